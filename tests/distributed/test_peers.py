"""Sums by kernels that read peers' memory, emulated: the bits of tree.py, regions and their end, failures."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np
import pytest
from peers_stand_in import DEVICE, drawn, reaching, ref, small

import baracuda_py as bc
from baracuda_py.core.element import REALS, ElementKind
from baracuda_py.distributed import peer_kernels, peers
from baracuda_py.distributed.descriptors import ReduceOp
from baracuda_py.distributed.tree import reduced
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.libraries.peers import HostMemory

D = bc.distributed
OPS = list(ReduceOp)


def alike(size: int, calls: Any, half: int = 1 << 14) -> None:
    """Calls (kernel, element, op, count, offset in elements, in place), one after another, on one communicator."""

    reach = reaching(size)

    def work(comm: Any) -> None:
        comm.reach(reach)
        for kernel, element, op, count, offset, inplace in calls:
            kind = ElementKind.of(element)
            parts = [drawn(kind, count, rank) for rank in range(size)]
            whole = np.zeros(count + offset + 16, kind.dtype)
            x = whole[offset : offset + count]
            x[:] = parts[comm.rank]
            room = np.full(count + 32, 7, kind.dtype)
            y = x if inplace else room[16 : 16 + count]
            comm.peers.all_reduce(kernel, ref(x, kind), ref(y, kind), ReduceOp(op), 0)
            assert y.tobytes() == reduced(parts, ReduceOp(op), kind).tobytes(), (kernel, element, op, count)
            assert (room[:16] == 7).all() and (room[16 + count :] == 7).all() and not whole[offset + count :].any()
            if not inplace:
                assert x.tobytes() == parts[comm.rank].tobytes()

    D.run_ranks(work, size, timeout=60)


@pytest.fixture(autouse=True)
def emulator(monkeypatch: pytest.MonkeyPatch, emulation: Any) -> Any:
    small(monkeypatch)
    with emulating(1) as running:
        yield running


@pytest.mark.parametrize("kind", REALS, ids=str)
def test_every_element_has_the_bits_of_the_tree(kind: ElementKind) -> None:
    place = REALS.index(kind)
    ops = [op for op in OPS if op is not ReduceOp.MEAN or kind.is_float]
    kernels = ("one_shot", "two_shot")
    alike(3 + place % 2, [
        (kernels[(place + i) % 2], kind, op, (1, 37, 129, 515)[i % 4], i % 3, i % 2 == 1) for i, op in enumerate(ops)
    ])  # fmt: skip


@pytest.mark.parametrize("size", range(2, 9))
def test_every_number_of_ranks(size: int) -> None:
    alike(size, [("one_shot", "bfloat16", "sum", 85, 0, False), ("two_shot", "float32", "sum", 133, 0, True)])


def test_calls_of_mixed_sizes_take_the_halves_in_turn() -> None:
    rng = np.random.default_rng(5)
    sizes = [1, 3, 8191, 8, 4096, 2, 8192, 8192, 5, 6000]
    calls = [(("one_shot", "two_shot")[rng.integers(2)], "float16", "sum", n, int(n % 2), False) for n in sizes]
    alike(2, calls)


def test_a_message_longer_than_a_region_is_several_calls(emulator: Any) -> None:
    alike(2, [("one_shot", "float32", "sum", 9001, 0, False), ("two_shot", "float32", "max", 4097, 1, True)])
    assert len(emulator.record.launches) == 2 * (2 * 3 + 3 * 2)


def test_regions_go_back_when_nobody_reads_them() -> None:
    def work(comm: Any) -> Any:
        part = comm.split(comm.rank // 2)
        part.reach(lambda comm: peers.reached(comm, DEVICE, HostMemory(gates[part.rank], part.rank + 10 * comm.rank)))
        memory, region = part.peers.memory, part.peers.regions[part.rank]
        assert part.engine == "peers" and part.device == 0
        assert region in memory.held and len(memory.held) == 2
        D.barrier(comm)
        if part.rank == 0:
            part.close()
            assert region in memory.held and len(memory.held) == 1  # rank 1 may read it
        D.barrier(comm)
        if part.rank == 1:
            part.close()
        D.barrier(comm)
        assert not memory.held and part.closed

    gates = [lambda: None] * 2
    D.run_ranks(work, 4, timeout=20)
    assert not peers._retired


def test_a_kernel_that_waits_ends_when_a_rank_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the second phase is launched: nobody has signalled."""

    def work(comm: Any) -> Any:
        comm.reach(reach)
        mine = comm.peers
        D.barrier(comm)
        mine.abort()
        y = np.full(8, 7, np.float32)
        mine.memory.launched = lambda phases, launch: launch(2)
        with alone:
            mine.all_reduce("one_shot", ref(y, ElementKind.F32), ref(y, ElementKind.F32), ReduceOp.SUM, 0)
        assert (y == 7).all() and said(mine, 1) == 1 + peer_kernels.RANKS
        assert mine.aborted and mine.late is None
        with pytest.raises(D.RankLostError, match="what was under way on the device is aborted"):
            comm.check()
        ctypes.c_uint32.from_address(mine._word).value = 0
        with alone:  # what has failed stays failed: at once, without a poll
            mine.all_reduce("one_shot", ref(y, ElementKind.F32), ref(y, ElementKind.F32), ReduceOp.SUM, 0)
        assert (y == 7).all()

    monkeypatch.setattr(peer_kernels, "AWAKE", 0)
    alone, reach = threading.Lock(), reaching(2)
    D.run_ranks(work, 2, timeout=20)


def said(mine: Any, word: int) -> int:
    return ctypes.c_uint32.from_address(mine._word + 4 * word).value


def test_a_kernel_that_waits_too_long_names_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(comm: Any) -> Any:
        comm.reach(reach)
        mine = comm.peers
        mine._polls = 3
        D.barrier(comm)
        y = np.full(8, 7, np.float32)
        if comm.rank == 1:
            mine.memory.launched = lambda phases, launch: launch(2)
            with alone:
                mine.all_reduce("one_shot", ref(y, ElementKind.F32), ref(y, ElementKind.F32), ReduceOp.SUM, 0)
            assert mine.late in (0, 1)
            with pytest.raises(D.TimedOutError, match="a kernel of rank 1 waited about 20 s for rank"):
                comm.check()
        with pytest.raises(D.TimedOutError):
            D.barrier(comm)

    monkeypatch.setattr(peer_kernels, "AWAKE", 0)
    alone, reach = threading.Lock(), reaching(2)
    D.run_ranks(work, 2, timeout=20)


class Elsewhere(HostMemory):
    def unreachable(self, theirs: Any) -> str:
        return "is on another host (b)" if theirs[2] == "bus 1" else ""


class Closed(HostMemory):
    def open(self, theirs: Any) -> int:
        if self._rank == 1:
            raise ValueError("no")
        return super().open(theirs)


@pytest.mark.parametrize(("kind", "why"), [
    (Elsewhere, "rank 0: rank 1 is on another host (b)"),
    (Closed, "rank 1: rank 0's memory does not open: ValueError: no"),
])  # fmt: skip
def test_why_there_is_no_way(kind: type, why: str) -> None:
    def work(comm: Any) -> None:
        comm.reach(reach)
        assert comm.peers == why and comm.engine == "threads" and comm.device is None
        desc = D.AllReduceDescriptor(shape=(8,), element="float32", ranks=comm.size)
        assert "is for engine nccl, peers, this is threads" in D.AllReducePlan.select(desc, comm).explain()

    reach = reaching(3, kind)
    D.run_ranks(work, 3, timeout=20)
