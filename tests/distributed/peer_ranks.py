"""What ranks do on GPUs of their own, or on one that they share, for test_peers_gpu.py: processes import it by name."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peers_stand_in import drawn

import baracuda_py as bc
from baracuda_py.core.device import resolve_device
from baracuda_py.core.element import REALS, ElementKind
from baracuda_py.distributed import peer_kernels, peers
from baracuda_py.distributed.peer_kernels import ONE_SHOT
from baracuda_py.distributed.peer_memory import CudaMemory
from baracuda_py.distributed.tree import reduced
from baracuda_py.jit.compiler import compile_all

D = bc.distributed
MOST = 1 << 22  # bytes


class Together(CudaMemory):
    together = True


def here(comm: Any, share: bool) -> Any:
    """The rank's GPU, with a way to the others'; returns a stream."""
    import cupy

    device = resolve_device(0 if share else comm.rank)
    cupy.cuda.Device(device.ordinal).use()
    comm.reach(lambda comm: peers.reached(comm, device, Together(device) if share else None))
    assert not isinstance(comm.peers, str), comm.peers
    return cupy.cuda.Stream(non_blocking=True)


class Held:
    """Numbers of every rank on the device, their sum in the order of the tree, and views of both."""

    def __init__(self, comm: Any, element: str, op: str, nbytes: int = MOST) -> None:
        import cupy

        self.cupy, self.comm, self.op, self.kind = cupy, comm, D.ReduceOp(op), ElementKind.of(element)
        self.count = nbytes // self.kind.itemsize
        parts = [drawn(self.kind, self.count, rank) for rank in range(comm.size)]
        self.want = cupy.asarray(reduced(parts, self.op, self.kind).view(np.uint8))
        self.x = cupy.asarray(parts[comm.rank].view(np.uint8))
        self.y = cupy.zeros(len(self.x) + 64, np.uint8)
        wrong = cupy.zeros((), np.int64)
        # CuPy's kernels of every size, and memory, before any rank waits on a device that it may share.
        for n in (*(1 << k for k in range(len(self.x).bit_length())), len(self.x)):
            self.y[:n] = 99
            self.y[:n] = self.x[:n]
            wrong += (self.y[:n] != self.want[:n]).sum()
        int(wrong)
        for kernel in peer_kernels.PHASES:  # and both ways of the kernels, with operands on a boundary and not
            for place in (0, 2):
                comm.peers.prepare(kernel, self.kind, self.op, place)
        D.barrier(comm)

    def seen(self, memory: Any, start: int, count: int) -> Any:
        return self.cupy.ndarray((count,), self.kind.dtype, memory.data + start * self.kind.itemsize)

    def call(self, start: int, count: int, at: int = 0, inplace: bool = False) -> Any:
        """One call on a piece; the number of bytes that are wrong, on the device."""
        size = self.kind.itemsize
        y = self.y[at * size : (at + count) * size]
        y[:] = self.x[start * size : (start + count) * size] if inplace else 99
        out = self.seen(self.y, at, count)
        x = out if inplace else self.seen(self.x, start, count)
        desc = D.AllReduceDescriptor(shape=(count,), element=self.kind, op=self.op, ranks=self.comm.size)
        D.AllReducePlan.select(desc, self.comm)(x=x, y=out)
        return (y != self.want[start * size : (start + count) * size]).sum()


def sizes(comm: Any, share: bool) -> None:
    """Sizes to 4 MB, even and odd, with aligned and other places, in place and not."""
    with here(comm, share):
        held = Held(comm, "bfloat16", "sum")
        edge = ONE_SHOT[comm.size] // 2
        counts = [0, 1, 7, 8, 255, 4096, 65_537, 100_003, edge, edge + 1, 1 << 20, (1 << 21) - 24]
        for count in (c for c in counts if c < held.count - 16):
            wrong = [held.call(3, count, 1), held.call(0, count), held.call(8, count, 8, True)]
            assert [int(one) for one in wrong] == [0] * 3, count


def elements(comm: Any, share: bool) -> None:
    """Every element with one of the ops, by both kernels, which are compiled side by side."""
    cases = []
    for place, kind in enumerate(REALS):
        ops = [op for op in D.ReduceOp if op is not D.ReduceOp.MEAN or kind.is_float]
        cases.append((kind, ops[place % len(ops)]))
    with here(comm, share):
        units = []
        for kind, op in cases:
            for kernel in peer_kernels.PHASES:
                step = comm.peers._step(kernel, op, False)
                units.append(peer_kernels.ALL_REDUCE.launched("distributed.all_reduce", kind, None, step)[0])
        compile_all(units, comm.place.target)
        D.barrier(comm)
        for kind, op in cases:
            held = Held(comm, str(kind), op.value, ONE_SHOT[comm.size] + 4096 if comm.size > 2 else 1 << 19)
            for count in (1001, held.count - 5):
                assert int(held.call(1, count, 0)) == 0, (kind, op, count)


def many(comm: Any, share: bool, calls: int) -> None:
    """Calls of mixed sizes, one after another, without a wait of the host."""
    with here(comm, share) as stream:
        held = Held(comm, "bfloat16", "sum", 1 << 21)
        rng, wrong = np.random.default_rng(11), held.cupy.zeros((), np.int64)
        lengths = [1, 40, 1000, 4096, 30_000, 131_072, 131_080, 400_000]
        for count in lengths:
            wrong += held.call(0, count)
            stream.synchronize()
        for _ in range(calls):
            count = lengths[rng.integers(len(lengths))]
            wrong += held.call(int(rng.integers(held.count - count)), count, int(rng.integers(4)))
        assert int(wrong) == 0


def graphs(comm: Any, share: bool, replays: int) -> None:
    """Three calls, captured and replayed, with new numbers before each."""
    with here(comm, share) as stream:
        held = Held(comm, "float16", "sum", 1 << 21)
        cupy, counts = held.cupy, (5000, 300_000, 17)
        x, y = cupy.zeros(1 << 20, np.uint8), cupy.zeros(1 << 20, np.uint8)
        plans = []
        for count in counts:
            desc = D.AllReduceDescriptor(shape=(count,), element="float16", ranks=comm.size)
            plans.append((D.AllReducePlan.select(desc, comm), held.seen(x, 0, count), held.seen(y, 0, count)))

        def step() -> None:
            for plan, given, out in plans:
                plan(x=given, y=out)

        step()
        stream.synchronize()
        stream.begin_capture()
        step()
        graph = stream.end_capture()
        wrong = cupy.zeros((), np.int64)
        for turn in range(replays):
            start = 2 * 97 * turn
            x[:] = held.x[start : start + len(x)]
            y[:] = 99
            graph.launch(stream)
            wrong += (y[: 2 * counts[1]] != held.want[start : start + 2 * counts[1]]).sum()
        assert int(wrong) == 0


def norms(comm: Any, share: bool) -> None:
    """The fused norm has the bits of all_reduce and rms_norm; rows of decoding and of prefill."""
    import cupy

    with here(comm, share) as stream:
        weight = cupy.asarray(drawn(ElementKind.F32, 8192, 99))
        for rows, cols in ((1, 8192), (3, 4096), (64, 8192), (515, 5120)):
            host = drawn(ElementKind.F32, (rows, cols), comm.rank)
            x, residual = cupy.asarray(host), cupy.asarray(drawn(ElementKind.F32, (rows, cols), 98))
            total = D.all_reduce(x, comm)
            stream.synchronize()
            D.barrier(comm)
            want = bc.rms_norm(total, weight[:cols], residual, return_h=True)
            stream.synchronize()
            D.barrier(comm)
            for view in (x, cupy.asfortranarray(x)):
                got = D.all_reduce_residual_rms_norm(view, residual, weight[:cols], comm)
                stream.synchronize()
                D.barrier(comm)
                for one, other in zip(got, want, strict=True):
                    assert not (one.view(cupy.uint8) != other.view(cupy.uint8)).any(), (rows, cols)


def killed(comm: Any, folder: str) -> None:
    """Rank 1 ends while the others' kernels wait for it; what they saw is noted, and their GPUs work."""
    import cupy

    with here(comm, False) as stream:
        x = cupy.ones(1000, np.float32)
        y = D.all_reduce(x, comm)
        stream.synchronize()
        D.barrier(comm)
        if comm.rank == 1:
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        D.all_reduce(x, comm, out=y)
        began = time.monotonic()
        stream.synchronize()
        assert time.monotonic() - began < 20
        with pytest.raises(D.RankLostError):
            comm.check()
        with pytest.raises(D.RankLostError):
            D.all_reduce(x, comm, out=y)
        assert int(cupy.arange(10).sum()) == 45
        Path(folder, str(comm.rank)).write_text("lost")


def late(comm: Any, share: bool) -> None:
    """Rank 1 makes no call: the others' kernels end, and say so."""
    import cupy

    with here(comm, share) as stream:
        x = cupy.ones(1000, np.float32)
        y = D.all_reduce(x, comm)
        stream.synchronize()
        D.barrier(comm)
        if comm.rank != 1:
            D.all_reduce(x, comm, out=y)
            stream.synchronize()
            with pytest.raises(D.DistributedError):
                comm.check()
            assert int(cupy.arange(10).sum()) == 45
        with pytest.raises(D.DistributedError):
            D.barrier(comm)
        with pytest.raises(D.DistributedError):
            comm.check()


def moving(comm: Any, share: bool) -> None:
    """Functions on arrays of CuPy, strided ones, too, and communicators that come and go."""
    import cupy

    with here(comm, share) as stream:
        for _ in range(3):
            part = comm.split(0)
            x = cupy.arange(60_000, dtype=cupy.float32).reshape(200, 300) + part.rank
            for view in (x, x[:, ::2], x.T):
                y = D.all_reduce(view, part, "mean")
                stream.synchronize()
                first = view - part.rank
                np.testing.assert_array_equal(cupy.asnumpy(y), cupy.asnumpy(first + np.float32((part.size - 1) / 2)))
            part.close()
        D.barrier(comm)
