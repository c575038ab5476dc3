"""This rank's way into the memory of the other ranks' GPUs, on one host: a region of each, which every kernel reads.

Regions are made with the communicator, all at once, and told by IPC handles, or by address between threads of one
process. A region goes back when every other rank has said, in it, that it reads there no more; of a rank that was lost,
or a communicator that failed, it stays until the process ends.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from .._forking import Mutex
from ..core.device import Device
from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import TensorRef
from ..core.variant import Step, Variant
from ..jit.launch import Launch, Wanted, runtime_for
from . import peer_kernels as kernels
from .communicator import Communicator
from .descriptors import ReduceOp
from .peer_memory import CudaMemory, told, tried, within_reach

_OP, _COLLECTIVE = "distributed.all_reduce", "peers"
KEPT = 512
"""Launches that a communicator finds again."""
_LEFT = (1).to_bytes(8, "little")


class _Retired(NamedTuple):
    """A region of a communicator that is closed, which peers may read yet."""

    memory: Any
    ptr: int
    rank: int
    size: int


_retired: list[_Retired] = []
_sweeping = Mutex()


def _swept() -> None:
    """Free what no peer reads any more; ranks that are threads close at once."""
    with _sweeping():
        _sweep()


def _sweep() -> None:
    for one in list(_retired):
        with one.memory.inside():
            said = one.memory.read(one.ptr + kernels.LEFT, 8 * one.size)
            if all(said[8 * rank] for rank in range(one.size) if rank != one.rank):
                _retired.remove(one)
                one.memory.free(one.ptr)


def reached(comm: Communicator, device: Device, memory: Any = None) -> PeerRanks | str:
    """The ranks' way to one another's memory, or why there is none, the same on every rank. Every rank calls it."""
    kind = memory or CudaMemory(device)
    if not 2 <= comm.size <= kernels.RANKS:
        return f"is for 2 to {kernels.RANKS} ranks, there are {comm.size}"
    with kind.inside():
        _swept()
        found = within_reach(comm, _COLLECTIVE, kind)
        return found if isinstance(found, str) else _shared(comm, device, kind)


def _shared(comm: Communicator, device: Device, memory: Any) -> PeerRanks | str:
    """A region, and all others' opened; where one rank cannot, all close theirs before any frees its own."""
    region, why = tried(lambda: memory.make(kernels.HEADER + 2 * kernels.HALF))
    shown, why = (None, why) if why else tried(lambda: memory.shown(region))
    multiprocessors = device.sms // (comm.size if memory.together else 1)
    places = told(comm, _COLLECTIVE, "show", (shown and [*shown, multiprocessors], why))
    opened: dict[int, int] = {}
    why = ""
    for rank, place in enumerate([] if isinstance(places, str) else places):
        ptr, said = (region, "") if rank == comm.rank else tried(partial(memory.open, place[:-1]))
        why = why or (f"rank {rank}'s memory does not open: {said}" if said else "")
        if not said:
            opened[rank] = ptr
    done = places if isinstance(places, str) else told(comm, _COLLECTIVE, "open", (True, why))
    if not isinstance(done, str):
        return PeerRanks(comm, device, memory, list(opened.values()), list(places))
    for rank, ptr in opened.items():
        if rank != comm.rank:
            memory.close(ptr, places[rank])
    told(comm, _COLLECTIVE, "closed", (True, ""))
    if region is not None:
        memory.free(region)
    return done


class PeerRanks:
    """This rank among those whose memory it reads. Calls return at once; their work is done in the stream's order."""

    def __init__(self, comm: Communicator, device: Device, memory: Any, regions: list[int], places: list[Any]) -> None:
        self.rank, self.size, self.device, self.memory = comm.rank, comm.size, device, memory
        self.regions, self._places = regions, places
        self.multiprocessors = min(place[-1] for place in places)
        self._word = memory.words()
        self._polls = max(1, int(comm.timeout * 1e9 / kernels.NAP))
        self._launches: dict[Any, Launch] = {}
        self._functions: dict[Any, Any] = {}
        self.closed, self._ending = False, Mutex()

    # --- calls -------------------------------------------------------------------------------------------------------

    def function(self, variant: Variant, op: str, element: ElementKind, step: Step) -> Any:
        """The handle of a kernel that is loaded: before any rank waits in one, as loading may wait for the device."""
        key = variant.name, op, element, step.kernel, *step.axes.values()
        if key not in self._functions:
            unit, instance = variant.launched(op, element, None, step)
            with self.memory.inside():
                loaded = runtime_for(self.device).load(self.device, [Wanted(unit, instance.symbol, step.smem)])
                self.memory.load(loaded[0])
            (self._functions[key],) = loaded
        return self._functions[key]

    def launch(
        self, kernel: str, phases: Sequence[int], key: Any, made: Callable[[int], Launch], pointers: tuple[int, ...],
        stream: int,
    ) -> None:  # fmt: skip
        """A call; what it launches is made once for a key. pointers: of its operands."""
        given = (*pointers, *self.regions, *[0] * (kernels.RANKS - self.size), self._word)

        def phase(number: int) -> None:
            found = self._launches.get((kernel, key, number))
            if found is None:
                if len(self._launches) >= KEPT:
                    self._launches.clear()
                found = self._launches[kernel, key, number] = made(number)
            found.call(given, (), stream)

        with self.memory.inside():
            self.memory.launched(phases, phase)

    def fields(self, phases: int) -> dict[str, int]:
        """What every kernel is told."""
        return {
            "half": kernels.HALF, "awake": kernels.AWAKE, "polls": self._polls, "rank": self.rank, "phases": phases,
        }  # fmt: skip

    def prepare(self, kernel: str, element: ElementKind, op: ReduceOp, pointers: int) -> None:
        """Load what an all-reduce of operands at such addresses launches."""
        self.function(kernels.ALL_REDUCE, _OP, element, self._step(kernel, op, not pointers % kernels.CHUNK))

    def _step(self, kernel: str, op: ReduceOp, wide: bool, grid: int = 1) -> Step:
        axes = {"OP": op.value, "RANKS": self.size, "WIDE": wide}
        return Step(kernel, (grid, 1, 1), {}, axes, kernels.THREADS)

    def all_reduce(self, kernel: str, x: TensorRef, y: TensorRef, op: ReduceOp, stream: int) -> None:
        """y = x of all ranks as one; both dense, along one axis. kernel: one_shot or two_shot."""
        element: ElementKind = y.element  # type: ignore[assignment]
        size, most = element.itemsize, kernels.HALF // element.itemsize
        for start in range(0, y.shape[0], most):
            count = min(most, y.shape[0] - start)
            pointers = x.ptr + start * size, y.ptr + start * size
            key = element, op, count, not (pointers[0] | pointers[1]) % kernels.CHUNK
            self.launch(kernel, kernels.PHASES[kernel], key, partial(self._made, kernel, *key), pointers, stream)

    def fixed(self, kernel: str, x: TensorRef, y: TensorRef, op: ReduceOp) -> Callable[[int], None]:
        """`all_reduce` of these operands with everything but the stream fixed."""
        element: ElementKind = y.element  # type: ignore[assignment]
        size, most = element.itemsize, kernels.HALF // element.itemsize
        made: dict[tuple[int, int], Callable[[int], None]] = {}
        rest = *self.regions, *[0] * (kernels.RANKS - self.size), self._word
        starts = range(0, y.shape[0], most)

        def fire(number: int, start: int, stream: int) -> None:
            found = made.get((number, start))
            if found is None:
                pointers = x.ptr + start * size, y.ptr + start * size
                wide = not (pointers[0] | pointers[1]) % kernels.CHUNK
                launch = self._made(kernel, element, op, min(most, y.shape[0] - start), wide, number)
                found = made[number, start] = launch.fixed((*pointers, *rest), ())
            found(stream)

        def call(stream: int) -> None:
            with self.memory.inside():
                for start in starts:
                    self.memory.launched(kernels.PHASES[kernel], lambda number: fire(number, start, stream))  # noqa: B023

        return call

    def _made(self, kernel: str, element: ElementKind, op: ReduceOp, count: int, wide: bool, phases: int) -> Launch:
        """A launch whose pointers are left open: a thread for each chunk of a share, as far as that goes."""
        threads = kernels.THREADS * (self.size if kernel == "two_shot" else 1)
        work = -(-count * element.itemsize // (kernels.CHUNK * threads))
        step = self._step(kernel, op, wide, kernels.blocks(work, self.multiprocessors))
        image = kernels.PARAMS.template({"count": count, **self.fields(phases)})
        return self.packed(kernels.ALL_REDUCE, _OP, element, step, kernels.PARAMS, image)

    def packed(
        self, variant: Variant, op: str, element: ElementKind, step: Step, params: Params, image: bytearray
    ) -> Launch:
        """A launch that takes its pointers in the order of the parameters."""
        picks = [(at, 0) for at in range(sum(slot.count for slot in params.pointers))]
        function = self.function(variant, op, element, step)
        return Launch(runtime_for(self.device), function, step.grid, step.block, 0, params, image, picks, ())

    # --- failures and the end ----------------------------------------------------------------------------------------

    @property
    def aborted(self) -> bool:
        """Whether kernels were told to wait no more."""
        return not self.closed and ctypes.c_uint32.from_address(self._word).value != 0

    @property
    def late(self) -> int | None:
        """The rank that a kernel has waited for in vain, as long as a call may wait."""
        said = 0 if self.closed else ctypes.c_uint32.from_address(self._word + 4).value
        return said - 1 if 0 < said <= kernels.RANKS else None

    @property
    def quiet(self) -> bool:
        """Whether neither the host nor the device has said that something is wrong."""
        return not self.closed and ctypes.c_uint64.from_address(self._word).value == 0

    def abort(self) -> None:
        """End waits that are under way on the device, and those to come."""
        with self._ending():  # which a thread that hears of a failure does while another closes
            if not self.closed:
                ctypes.c_uint32.from_address(self._word).value = 1

    def close(self) -> None:
        """Give back what the peers have shown, after what is under way, and tell them."""
        if self.closed:
            return
        failed = self.aborted or self.late is not None
        with self.memory.inside():
            self.memory.settle()
            for rank, (ptr, place) in enumerate(zip(self.regions, self._places, strict=True)):
                if rank != self.rank:
                    if not failed:
                        self.memory.write(ptr + kernels.LEFT + 8 * self.rank, _LEFT)
                    tried(partial(self.memory.close, ptr, place[:-1]))  # of a rank that has ended it may be gone
            with self._ending():
                self.closed = True
                self.memory.free_words(self._word)
            if not failed:
                with _sweeping():
                    _retired.append(_Retired(self.memory, self.regions[self.rank], self.rank, self.size))
                _swept()


Peering = Callable[[Communicator], "PeerRanks | str"]
