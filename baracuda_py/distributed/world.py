"""`communicator`: this process's place among those that were started with it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ..backends.nccl import NCCL, NcclRanks, unique_id
from ..core.checked import shown, whole
from ..core.config import get
from ..core.device import Device, driver_device_count, resolve_device
from ..core.errors import InvalidProblemError, UnsupportedError
from ..interop.packages import package_name
from .communicator import Communicator
from .jax_processes import Told, of_jax, processes
from .limits import seconds
from .peers import PeerRanks, reached
from .rendezvous import Directory, Master, meet
from .sockets import ProcessTransport

ENGINES = ("processes", "torch", "nccl", "peers")

RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
LOCALS = ("SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
SIZES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


def communicator(
    source: Any = None, *, rank: int | None = None, size: int | None = None, engine: str | None = None,
    peers: bool = False, timeout: float = 60.0,
) -> Communicator:  # fmt: skip
    """This process's communicator; every process of the job calls it.

    source: None, the environment, as torchrun, srun and mpirun set it (RANK and WORLD_SIZE or their own names for
    these; MASTER_ADDR and MASTER_PORT, where rank 0 listens; BARACUDA_DISTRIBUTED_KEY, a secret that ranks show each
    other). A path: a directory of this machine through which its processes find each other, of `size` ranks of which
    this is `rank`. A torch ProcessGroup: its ranks, and what carries its collectives. The module `jax.distributed`,
    once it is initialized: its processes. engine: "processes" (arrays of the host over sockets), "torch", "nccl"
    (arrays of CUDA devices), "peers" (the same on one host, by our kernels alone); None is the first, or for a
    ProcessGroup the second. peers: of engine "nccl", whether sums read the memory of the other GPUs of the host where
    that can be, and `overlap=None` may cut products into chunks: the same bits, not yet measured on several GPUs.
    timeout: seconds to wait for the others here and in every call.
    Raises `TimedOutError`, `MismatchError` or `RankLostError` on every rank where some did not come or differ.
    """
    limit = seconds(timeout)
    if engine is not None and not (isinstance(engine, str) and engine in ENGINES):
        raise InvalidProblemError(f"engine must be one of {', '.join(map(repr, ENGINES))} or None, got {shown(engine)}")
    at: Directory | Master
    if source is None:
        own = _number("rank", rank, RANKS)
        count = _number("size", size, SIZES)
        at = _master() if count > 1 else Directory(Path())
    elif package_name(type(source)) == "torch":
        comm = import_module("baracuda_py.distributed.process_group").group_communicator(source, limit)
        return _linked(comm, engine, peers)
    elif of_jax(source):
        own, count = processes()
        at = Told(own) if count > 1 else Directory(Path())
    elif isinstance(source, (str, os.PathLike)):
        at = Directory(Path(source))
        own, count = _number("rank", rank, ()), _number("size", size, ())
    else:
        raise InvalidProblemError(
            f"source must be None, a path, a torch ProcessGroup or jax.distributed, got {shown(source)}"
        )
    if not 0 <= own < whole("size", count, 1):
        raise InvalidProblemError(f"rank must be from 0 to {count - 1}, got {own}")
    made = Communicator(ProcessTransport(own, count, meet(at, own, count, limit)), limit)
    try:
        made.exchange({"collective": "communicator", "engine": engine, "peers": peers})  # all have found all
        return _linked(made, engine, peers)
    except BaseException:
        made.close()
        raise


def _linked(comm: Communicator, engine: str | None, peers: bool) -> Communicator:
    if engine == "nccl":
        comm.attach(linked_by_nccl)
    if engine == "peers" or (engine == "nccl" and peers):
        comm.reach(reached_peers)
    if engine == "peers" and isinstance(comm.peers, str):
        raise UnsupportedError(f"engine peers: {comm.peers}")
    return comm


def reached_peers(comm: Communicator) -> PeerRanks | str:
    """The memory of the other ranks' GPUs, from the device of LOCAL_RANK, or the current one."""
    return reached(comm, comm.place or _local_device())


def _local_device() -> Device:
    """The GPU of this rank on its host: of LOCAL_RANK, or of what srun and mpirun set for several processes.

    Those may give each process one GPU of its own, whose number is then 0. Without any of them the current device.
    """
    local = os.environ.get("LOCAL_RANK")
    several = next((os.environ[name] for name in SIZES if name in os.environ), "1") != "1"
    if local is None and several and driver_device_count() > 1:
        local = next((os.environ[name] for name in LOCALS if name in os.environ), None)
    return resolve_device(None if local is None else _number("local rank", None, ("LOCAL_RANK", *LOCALS)))


def linked_by_nccl(comm: Communicator) -> NcclRanks:
    """NCCL's communicator of the same ranks, on the device of LOCAL_RANK, or the current one."""
    if why := NCCL.unavailable():
        raise UnsupportedError(why)
    said = comm.gathered({"collective": "nccl"}, unique_id().hex() if comm.rank == 0 else None)
    return NcclRanks(comm.rank, comm.size, bytes.fromhex(said[0]), _local_device())


def _number(name: str, given: int | None, variables: Sequence[str]) -> int:
    """A rank or size: given, or of the first of the variables that is set."""
    if given is not None:
        return whole(name, given, 0)
    for variable in variables:
        if text := os.environ.get(variable):
            try:
                return int(text)
            except ValueError:
                raise InvalidProblemError(f"{variable} must be an integer, got {text!r}") from None
    tell = f", or set {variables[0]}" if variables else ""
    raise InvalidProblemError(f"{name} is None; give it{tell}")


def _master() -> Master:
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if not host or not (port or "").isdigit():
        raise InvalidProblemError("MASTER_ADDR and MASTER_PORT must say where rank 0 listens; or give a directory")
    key = get("BARACUDA_DISTRIBUTED_KEY")
    place = host, int(port or 0) + (os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True")  # torchrun holds the port
    return Master(place, (b"baracuda_py" if key is None else key.text.encode()))
