"""What ranks that are processes do in the tests; in a module, since a new process imports it."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

import baracuda_py as bc

D = bc.distributed


def everything(comm: Any) -> Any:
    """Results of every collective, to compare with those of threads."""
    rng = np.random.default_rng(comm.rank)
    x = rng.standard_normal((comm.size * 2, 3)).astype(np.float32)
    big = rng.standard_normal(300_001).astype(np.float16)
    ring = [(rank, (rank + 1) % comm.size) for rank in range(comm.size)]
    half = comm.split(comm.rank % 2)
    made = [
        D.all_reduce(x, comm), D.all_reduce(big, comm), D.reduce_scatter(x, comm), D.all_gather(x[::2], comm, 1),
        D.broadcast(x, comm, 1), D.all_to_all(x, comm), D.permute(x, comm, ring), D.all_reduce(x[:0], comm),
        D.send_receive(x, comm, ring[comm.rank][1], comm.rank - 1 if comm.rank else comm.size - 1),
        D.all_to_all_v(x[: comm.size], [1] * comm.size, [1] * comm.size, comm), D.all_gather(x, half),
    ]  # fmt: skip
    D.barrier(comm)
    return [(one.shape, one.tobytes()) for one in made]


KILLED = ("between calls", "inside a call")
FAULTS = {
    "late": "TimedOutError", "abort": "AbortedError", "collective": "MismatchError", "shape": "MismatchError",
    "dtype": "MismatchError", "closed": "RankLostError",
}  # fmt: skip


def killed(comm: Any, how: str, notes: str) -> None:
    """Rank 1 is killed; the others note what they raise."""
    try:
        D.barrier(comm)
        if comm.rank == 1:
            if how == "inside a call":  # with a message half sent
                comm._transport.links[0].queue.put(({"group": "0", "call": {}, "data": True}, None))
                time.sleep(0.1)
            os.kill(os.getpid(), signal.SIGKILL)
        D.all_reduce(np.ones(100_000), comm)
    except D.DistributedError as error:
        Path(notes, str(comm.rank)).write_text(f"{type(error).__name__}: {error}")
        raise


def faulty(comm: Any, directory: str) -> list[tuple[str, str]]:
    """What each fault of rank 1 raises, each on a communicator of its own."""
    found = []
    for how in FAULTS:
        own = comm.rank == 1 and how
        one = D.communicator(f"{directory}/{how}", rank=comm.rank, size=comm.size, timeout=3 if how == "late" else 20)
        D.barrier(comm)  # all have it before there are faults
        try:
            if own == "late":
                time.sleep(5)
            if own == "abort":
                one.abort()
            if own == "closed":
                one.close()
            if own == "collective":
                D.all_gather(np.ones(3), one)
            D.all_reduce(np.ones(4 if own == "shape" else 3, "f" if own == "dtype" else "d"), one)
            D.barrier(one)
        except D.DistributedError as error:
            found.append((type(error).__name__, str(error)))
        one.close()
    return found


def raising(comm: Any) -> None:
    if comm.rank == 1:
        raise KeyError("mine")
    D.barrier(comm)


def of_group(rank: int, size: int, file: str, answer: str) -> None:
    """A process of a torch ProcessGroup: results of every collective, then faults that all see."""
    import datetime

    import torch

    torch.distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=size)
    world = torch.distributed.group.WORLD
    made = [[list(shape), data.hex()] for shape, data in everything(D.communicator(world, timeout=20))]
    found = []
    comm = D.communicator(world, timeout=20)
    if rank == 0:
        D.send(np.arange(3), comm, 1)
    else:
        made.append(D.receive(np.empty(3, int), comm, 0).tolist())
    x = torch.ones(3, requires_grad=True)
    (D.all_reduce(x * (rank + 1), comm) * (rank + 1)).sum().backward()
    made.append(x.grad.tolist())
    for fault in ("shape", "late"):
        one = torch.distributed.new_group(backend="gloo", timeout=datetime.timedelta(seconds=5))
        comm = D.communicator(one, timeout=0.5 if fault == "late" else 10)
        try:
            if rank == 1 and fault == "late":
                time.sleep(1.5)
            D.all_reduce(np.ones(3 + (rank == 1 and fault == "shape")), comm)
        except D.DistributedError as error:
            found.append(type(error).__name__)
    Path(answer, str(rank)).write_text(json.dumps([made, found]))
    os._exit(0)  # a group whose gloo connections broke waits for nothing
