"""Products whose exchanges run beside them: the bits of a product and then its exchange, for any number of chunks."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from distributed_stand_in import linking, stood_in
from test_parallel_linear import AXES, column, joined, operands, part, row

import baracuda_py as bc
from baracuda_py import distributed as D
from baracuda_py.core import device as device_module
from baracuda_py.core.element import ElementKind
from baracuda_py.distributed import chunks, lanes, launching, overlapped
from baracuda_py.distributed.communicator import Communicator
from baracuda_py.distributed.transport import thread_world
from baracuda_py.testing import emulated_device, pointer_view
from tests.interop.second_device import STREAM, two_devices

BF16 = ml_dtypes.bfloat16


def layered(comm: Any, layer: Any, overlap: int, element: Any, scattered: bool) -> tuple[Any, ...]:
    """`column` or `row` of the other file with chunks."""
    x, w, b, dy = operands(element)
    given = {"sequence_parallel": scattered, "overlap": overlap}
    if layer is column:
        own = (part(x, comm, 0) if scattered else x, part(w, comm, 0), part(b, comm, 0), comm)
        dx, *rest = D.column_parallel_linear_backward(part(dy, comm, 2), *own, **given)
        return D.column_parallel_linear(*own, **given), dx, *rest
    own = (part(x, comm, 2), part(w, comm, 1), b, comm)
    grads = D.row_parallel_linear_backward(part(dy, comm, 0) if scattered else dy, *own, **given)
    return D.row_parallel_linear(*own, **given), *grads


@pytest.mark.parametrize("element", [np.float32, BF16], ids=lambda one: np.dtype(one).name)
@pytest.mark.parametrize("layer", (column, row), ids=lambda one: one.__name__)
@pytest.mark.parametrize("scattered", [False, True])
def test_chunks_change_no_bits(layer: Any, element: Any, scattered: bool) -> None:
    (alone,) = D.run_ranks(layer, 1, element)
    for size in (2, 4):
        for overlap in (2, 5, 100):
            made = joined(D.run_ranks(layered, size, layer, overlap, element, scattered), AXES[layer, scattered])
            for one, two in zip(alone, made, strict=True):
                assert one.dtype == two.dtype and one.tobytes() == two.tobytes()


@pytest.mark.parametrize("rows", [1, 3, 7, 13])
def test_rows_that_ranks_do_not_divide(rows: int) -> None:
    rng = np.random.default_rng(rows)
    x, w = rng.standard_normal((rows, 24)).astype(BF16), rng.standard_normal((10, 24)).astype(BF16)

    def work(comm: Any) -> None:
        own, out = (part(x, comm, 1), part(w, comm, 1), None, comm), np.full((rows, 10), 7, BF16)
        want = D.row_parallel_linear(*own, slices=12, overlap=1)
        assert D.row_parallel_linear(*own, slices=12, overlap=3, out=out) is out
        assert out.tobytes() == want.tobytes()
        assert D.row_parallel_linear(*own, slices=12).tobytes() == want.tobytes()

    D.run_ranks(work, 3)


def test_outputs_that_chunks_would_read_or_that_have_gaps() -> None:
    """`out` over an operand is written after all is read; with gaps it takes no chunks."""
    x, w, b, _ = operands(np.float32)
    square = np.ascontiguousarray(np.resize(w, (12, 48)))

    def work(comm: Any) -> None:
        own = np.ascontiguousarray(part(x, comm, 2)[..., :12])
        held = (own, part(square, comm, 1)[:, :12].copy(), None, comm)
        want = D.row_parallel_linear(*held, overlap=1)
        gaps = np.zeros((*own.shape[:-1], 24), np.float32)[..., ::2]
        assert D.row_parallel_linear(*held, overlap=2, out=gaps).tolist() == want.tolist()
        assert D.row_parallel_linear(*held, overlap=2, out=own).tolist() == want.tolist()
        with pytest.raises(bc.InvalidProblemError, match="must have shape"):
            D.row_parallel_linear(part(x, comm, 2), part(w, comm, 1), b, comm, overlap=2, out=gaps)

    D.run_ranks(work, 4)
    for bad in (0, -1, 1.5, "all", True):
        with pytest.raises(bc.InvalidProblemError, match="overlap"):
            D.run_ranks(lambda c, bad=bad: D.row_parallel_linear(part(x, c, 2), part(w, c, 1), b, c, overlap=bad), 2)
        with pytest.raises(bc.InvalidProblemError, match="overlap"):
            D.row_parallel_linear(x, w, b, overlap=bad)


def test_ranks_that_give_other_chunks() -> None:
    x, w, b, _ = operands(np.float32)
    with pytest.raises(D.MismatchError, match=r"row_parallel_linear with chunks"):
        D.run_ranks(lambda c: D.row_parallel_linear(part(x, c, 2), part(w, c, 1), b, c, overlap=2 + c.rank), 2)
    with pytest.raises(bc.InvalidProblemError, match="must be a multiple of the 3 ranks"):
        D.run_ranks(
            lambda c: D.row_parallel_linear(
                part(x, c, 2), part(w, c, 1), b, c, overlap=2, sequence_parallel=True, slices=12
            ),
            3,
        )


def test_the_bounds_of_chunks() -> None:
    for rows in (0, 1, 7, 255, 2048, 4096, 5000):
        for count in (1, 2, 3, 8):
            bounds = overlapped.chunk_bounds(rows, count)
            assert bounds[0][0] == 0 and bounds[-1][1] == rows and len(bounds) <= count
            assert all(a[1] == b[0] for a, b in pairwise(bounds))
    assert overlapped.chunk_bounds(4096, 4) == [(0, 1024), (1024, 2048), (2048, 3072), (3072, 4096)]


def test_the_choice() -> None:
    """Wide layers of many rows are cut, small ones and few rows never; what a graph holds costs the host nothing."""
    kind = ElementKind.BF16
    sums = chunks._of_sums
    assert sums(kind, 2, 8192, 8192, 14336, 1.1, False) >= 2
    assert sums(kind, 2, 4096, 4096, 7168, 1.1, True) >= 2
    assert sums(kind, 2, 2048, 512, 128, 1.1, True) == 1
    assert sums(kind, 2, 128, 4096, 7168, 1.1, True) == 1
    assert chunks._of_shares(kind, 2, 8192, 3072, 4096, 1.1, False) == 2
    assert chunks._of_shares(kind, 2, 256, 512, 512, 1.1, False) == 1
    for ranks in (2, 4, 8):
        for rows in (1, 64, 512):
            assert sums(kind, ranks, rows, 4096, 14336 // ranks, 1.0, True) == 1


def test_torch_takes_chunks_under_autograd() -> None:
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(s, generator=generator) for s in ((6, 16), (10, 16)))

    def work(comm: Any, overlap: int, scattered: bool) -> Any:
        own = x.chunk(comm.size, 1)[comm.rank].clone().requires_grad_()
        mine = w.chunk(comm.size, 1)[comm.rank].clone().requires_grad_()
        y = D.row_parallel_linear(own, mine, None, comm, overlap=overlap, sequence_parallel=scattered)
        y.square().sum().backward()
        z = D.column_parallel_linear(y.detach(), mine.T.contiguous(), None, comm, sequence_parallel=scattered,
                                     overlap=overlap) if y.shape[-1] == mine.shape[0] else y  # fmt: skip
        return y.detach(), own.grad, mine.grad, z.detach()

    for scattered in (False, True):
        plain, cut = (D.run_ranks(work, 2, overlap, scattered) for overlap in (1, 3))
        assert all(
            torch.equal(a, b) for one, two in zip(plain, cut, strict=True) for a, b in zip(one, two, strict=True)
        )


class _Link:
    """NCCL's place on a device that is not there: what would be moved is noted."""

    def __init__(self, device: Any) -> None:
        self.device, self.aborted, self.moves = device, False, []

    def exchange(self, sends: Any, receives: Any, stream: int) -> None:
        self.moves.append([[0 if one is None else one.nbytes for one in side] for side in (sends, receives)])


def test_what_is_launched_and_moved_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 of two: the products of every chunk, spared multiprocessors beside exchanges, and each chunk's moves."""
    pytest.importorskip("cupy")
    monkeypatch.setattr(lanes, "agree", lambda *given, **said: None)
    with two_devices(monkeypatch) as devices, Communicator(thread_world(2)[1], 5.0) as comm:
        link = comm._link = _Link(devices.devices[0])
        x, w, b, dy = (np.ones(shape, np.float16) for shape in ((512, 128), (1024, 128), (1024,), (512, 1024)))
        x, w, b, dy = devices.array([x, w, b, dy], 0)
        seen = []
        for scattered in (False, True):
            given: dict[str, Any] = {"sequence_parallel": scattered, "overlap": 2, "slices": 4}
            half = 256 if scattered else 512
            assert D.row_parallel_linear(x, w, b, comm, **given).shape == (half, 1024)
            seen.append(list(link.moves))
            assert D.column_parallel_linear(x[:half], w, b, comm, **given).shape == (512, 1024)
            dx, dweight, dbias = D.column_parallel_linear_backward(dy, x[:half], w, b, comm, **given)
            assert (dx.shape, dweight.shape, dbias.shape) == ((half, 128), (1024, 128), (1024,))
            dx, dweight, dbias = D.row_parallel_linear_backward(dy[:half], x, w, b, comm, **given)
            assert (dx.shape, dweight.shape, dbias.shape) == ((512, 128), (1024, 128), (1024,))
            link.moves.clear()
        assert lanes.Lane(comm, x, None).spared.sms == 132 - lanes.SPARED
        assert devices.places() <= {(0, STREAM)}
        comm._link = None
    part, rounded = 128 * 1024 * 4, 128 * 1024 * 2
    sums, gathers = [[part, 0], [part, 0]], [[rounded, 0], [rounded, 0]]
    assert seen[0] == [sums, sums, gathers, gathers] and seen[1] == [sums, sums]


def test_a_call_that_is_new_is_refused_under_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    stood_in(monkeypatch)
    emulated = emulated_device(9.0)
    monkeypatch.setattr(device_module, "cuda_device", lambda ordinal: emulated)
    captured: list[bool] = []
    monkeypatch.setattr(launching, "runtime_for", lambda device: _Capturing(captured))

    def work(comm: Any) -> None:
        comm.attach(lambda comm: linking(comm, emulated))
        x, y = np.arange(8, dtype=np.float32), np.zeros(16, np.float32)
        desc = D.AllGatherDescriptor(shape=(8,), element="float32", ranks=2)
        plan, args = D.AllGatherPlan.select(desc, comm), D.CollectiveArgs(x=pointer_view(x), y=pointer_view(y))
        D.barrier(comm)
        if comm.rank == 0:
            captured.append(True)
        D.barrier(comm)
        with pytest.raises(bc.CaptureError, match="all_gather is new to this communicator"):
            plan.run(args, stream=0)
        D.barrier(comm)
        captured.clear()
        D.barrier(comm)
        plan.run(args, stream=0)
        D.barrier(comm)
        captured.append(True)
        D.barrier(comm)
        plan.run(args, stream=0)  # agreed on: it goes into the graph
        assert y.tolist() == [*range(8)] * 2
        monkeypatch.setenv("BARACUDA_CHECK", "1")
        with pytest.raises(bc.CaptureError, match="BARACUDA_CHECK"):
            plan.run(args, stream=0)
        counts = D.AllToAllVDescriptor(
            shape=(2,), element="float32", ranks=2, send_counts=(1, 1), receive_counts=(1, 1)
        )
        two = D.CollectiveArgs(x=pointer_view(x[:2]), y=pointer_view(y[:2]))
        with pytest.raises(bc.CaptureError, match="compares its counts"):
            D.AllToAllVPlan.select(counts, comm).run(two, stream=0)

    D.run_ranks(work, 2, timeout=20)


class _Capturing:
    """A runtime whose streams are being captured where a list has something."""

    def __init__(self, captured: list[bool]) -> None:
        self._captured = captured

    def capturing(self, stream: int) -> bool:
        return bool(self._captured)

    def current_stream(self) -> int:
        return 0


def test_what_ranks_agree_on_is_agreed_before_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs: set[str] = set()
    monkeypatch.setattr(lanes.Lane, "capturing", property(lambda lane: threading.current_thread().name in graphs))

    def work(comm: Any) -> None:
        lane = lanes.Lane(comm, np.zeros(3), None)
        graphs.add(threading.current_thread().name)
        with pytest.raises(bc.CaptureError, match="make the same call once before the capture"):
            lane.agree("row_parallel_linear", rows=4)
        graphs.discard(threading.current_thread().name)
        lane.agree("row_parallel_linear", rows=4)
        graphs.add(threading.current_thread().name)
        lane.agree("row_parallel_linear", rows=4)

    D.run_ranks(work, 2)
