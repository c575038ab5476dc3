"""Streams: operands are read on the one launched on, memory comes from it, what is in use stays until it has passed.

On the recorder without a GPU; on one, each test lets the stream lag behind, so that whoever does not wait reads or
writes what is not there yet or no longer.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.backends.cuda import intake
from baracuda_py.calls.call import Resolved
from baracuda_py.core import arrays, outputs
from baracuda_py.jit import launch
from baracuda_py.testing import pointer_view, recording
from baracuda_py.testing.recording import STREAM

sys.path.insert(0, str(Path(__file__).parents[1] / "core"))
from frame_toys import AXPY, AxpyArgs
from test_runner import H, address, array, call, plan, ref, strided


def on_stream(stream: int) -> Any:
    """The recorder's current stream, for a while."""
    return launch.runtime_for(H).on_stream(stream)


class Foreign:
    """Another package's device array: the CUDA array interface, asked for on some stream."""

    def __init__(self, array: np.ndarray, seen: list[int]) -> None:
        self.array, self.seen = array, seen

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        self.seen.append(launch.runtime_for(H).current_stream())
        a = self.array
        return {
            "shape": a.shape,
            "typestr": a.dtype.str,
            "data": (address(a), False),
            "version": 3,
            "strides": a.strides,
        }


class Exporter:
    """One that speaks DLPack alone."""

    def __init__(self, array: np.ndarray, seen: list[int]) -> None:
        self.array, self.seen = array, seen

    def __dlpack__(self, **_: Any) -> Any:
        raise AssertionError("read by the stand-in of cupy.from_dlpack")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0


@pytest.fixture(params=[Foreign, Exporter])
def foreign(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes foreign arrays; `.seen` are the streams current while they were read, `.holders` what must be kept."""
    import cupy

    seen: list[int] = []
    monkeypatch.setattr(arrays, "_device_of", lambda pointer: 0)
    make: Any = lambda a: request.param(a, seen)  # noqa: E731
    make.seen, make.holders = seen, []

    def from_dlpack(exporter: Exporter) -> Any:
        seen.append(launch.runtime_for(H).current_stream())
        make.holders.append(pointer_view(exporter.array))
        return make.holders[-1]

    monkeypatch.setattr(cupy, "from_dlpack", from_dlpack)
    make.is_held = lambda owner, one: owner is one or any(owner is h for h in make.holders)
    return make


# -- reading and keeping --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [None, 7, 0])
def test_foreign_operands_are_read_on_the_stream_and_kept_until_it_has_passed(foreign: Any, stream: Any) -> None:
    x, bias, y = foreign(array(8)), foreign(array(8)), array(8)
    chosen = plan(8)
    with recording() as record:
        args = AxpyArgs(x=x, y=pointer_view(y), bias=bias)
        chosen.prepare(args)
        assert not record.kept
        del foreign.seen[:]
        chosen.run(args, stream=stream)
        at = STREAM if stream is None else stream
        assert foreign.seen and set(foreign.seen) == {at} and record.launches[-1].stream == at
        ((found, held),) = record.kept
        assert found == at and len(held) == 2
        assert foreign.is_held(held[0], x) and foreign.is_held(held[1], bias)


def test_foreign_scalars_and_workspaces_too(foreign: Any) -> None:
    alpha, memory = array(1).reshape(()), array(512)
    scalar, workspace = foreign(alpha), foreign(memory)
    chosen, args = plan(8), strided()
    with recording() as record:
        chosen.run(args)
        record.launches.clear()
        del foreign.seen[:]
        args.alpha = scalar
        chosen.run(args, workspace, 9)
        assert set(foreign.seen) == {9} and [r.stream for r in record.launches] == [9, 9]
        assert record.launches[0].fields(AXPY)["alpha_ptr"] == address(alpha)
        assert record.launches[0].fields(AXPY)["scratch"] == address(memory)
        ((at, held),) = record.kept
        assert at == 9 and len(held) == 2


def test_nothing_is_kept_for_arrays_whose_allocator_knows() -> None:
    chosen = plan(8)
    with recording() as record:
        for _ in range(3):
            chosen.run(call(array(8), array(8)))
            chosen.run(AxpyArgs(x=ref(array(8)), y=pointer_view(array(8))), stream=4)
            chosen.bind(call(array(8), array(8)))()
        assert not record.kept and len(record.launches) == 9


class FakeCuda:
    """What `Cuda.keep` needs of CuPy and the driver: events that are done when told so."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.asked = 0
        outer = self

        class Event:
            def __init__(self, disable_timing: bool) -> None:
                self.passed, self.stream = False, None
                outer.events.append(self)

            def record(self, stream: Any) -> None:
                self.stream = stream

            @property
            def done(self) -> bool:
                outer.asked += 1
                return self.passed

        self.cuda = SimpleNamespace(Event=Event)


def test_owners_are_let_go_in_order_when_their_events_have_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    fake, modes = FakeCuda(), []
    cuda = object.__new__(launch.Cuda)
    cuda._cupy, cuda._in_use = fake, launch.deque()
    mode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
    exchange = lambda wanted: (modes.append(wanted), "global")  # noqa: E731
    cuda._driver = SimpleNamespace(cuThreadExchangeStreamCaptureMode=exchange, CUstreamCaptureMode=mode)
    capturing = [False]
    cuda.capturing = lambda stream: capturing[0]
    monkeypatch.setattr(launch, "external_stream", lambda stream: stream)
    owners = [array(4) for _ in range(4)]
    alive = [weakref.ref(o) for o in owners]
    for i in range(3):
        cuda.keep(10 + i, owners.pop(0))
    assert [e.stream for e in fake.events] == [10, 11, 12] and modes == ["relaxed", "global"] * 3
    fake.events[1].passed = True  # the first has not: nothing goes
    capturing[0], fake.asked = True, 0
    cuda.keep(13, owners[0])
    assert len(fake.events) == 3 and fake.asked == 0, "nothing is asked or recorded under capture"
    capturing[0] = False
    cuda.keep(14, None)
    assert all(r() is not None for r in alive)
    fake.events[0].passed = True
    cuda.keep(15, None)
    gc.collect()
    assert [r() is None for r in alive] == [True, True, False, False]


@pytest.mark.parametrize(("producer", "captured", "waits"), [
    (5, (), True), (5, (7,), False), (5, (5, 7), True), (7, (), False), (7, (7,), False), (1, (), True),
    (1, (7,), False), (None, (), False),
])  # fmt: skip
def test_the_current_stream_waits_for_a_producer_unless_it_is_captured(
    producer: Any, captured: Any, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[Any] = []
    current = SimpleNamespace(ptr=7, wait_event=lambda event: log.append("wait"))
    event = SimpleNamespace(record=lambda stream: log.append(stream.pointer))
    cuda = SimpleNamespace(
        get_current_stream=lambda: current, runtime=SimpleNamespace(streamIsCapturing=lambda s: int(s in captured)),
        Event=lambda disable_timing: event,
        Device=lambda ordinal: contextlib.nullcontext(devices.append(ordinal)),
    )  # fmt: skip
    devices: list[int] = []
    monkeypatch.setattr(arrays, "_cupy", lambda: SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(arrays, "external_stream", lambda stream: SimpleNamespace(pointer=stream))
    arrays._order_after(producer, 3)
    assert log == ([0 if producer == 1 else producer, "wait"] if waits else [])
    assert devices == ([] if producer is None else [3]), "an event is of the device that is current when it is made"


# -- memory ---------------------------------------------------------------------------------------------------------


def test_workspace_comes_from_the_stream_launched_on() -> None:
    chosen, args = plan(8), strided()
    with recording() as record:
        for stream in (None, 5, 0):
            chosen.run(args, stream=stream)
        with on_stream(6):
            chosen.run(args)
        assert record.streams == [STREAM, 5, 0, 6]


def test_a_bound_call_shares_its_workspace_with_no_other_stream_or_thread() -> None:
    with recording() as record:
        bound = plan(8).bind(strided())
        assert record.streams == [STREAM], "made on the current stream, not on stream 0"
        bound()
        with on_stream(5):
            bound()
            bound()
        bound()
        thread = threading.Thread(target=bound)
        thread.start()
        thread.join()
        assert record.streams == [STREAM, 5, STREAM]
        used = [r.fields(AXPY)["scratch"] for r in record.launches if "second" in r.function.symbol]
    first, other, threads = (memory.ptr for memory in record.allocations)
    assert [u - 256 for u in used] == [first, other, other, first, threads]


def test_a_bound_call_on_a_given_stream_has_one_workspace_a_thread() -> None:
    with recording() as record:
        bound = plan(8).bind(strided(), stream=5)
        bound()
        with on_stream(6):
            bound()
        thread = threading.Thread(target=bound)
        thread.start()
        thread.join()
        assert record.streams == [5, 5] and {r.stream for r in record.launches} == {5}


def test_a_bound_call_under_capture_takes_no_memory() -> None:
    with recording() as record:
        bound = plan(8).bind(strided())
        record.capturing = True
        bound()
        with on_stream(5), pytest.raises(bc.NotPreparedError, match="workspace"):
            bound()
        given = plan(8).bind(strided(), pointer_view(array(512)))
        with on_stream(5):
            given()
        assert len(record.allocations) == 1


def test_a_bound_call_reads_foreign_operands_on_each_stream(foreign: Any) -> None:
    x, y = foreign(array(8)), array(8)
    with recording() as record:
        bound = plan(8).bind(AxpyArgs(x=x, y=pointer_view(y)))
        bound()
        before = len(foreign.seen)
        with on_stream(5):
            bound()
        assert set(foreign.seen[before:]) == {5} and [at for at, _ in record.kept] == [STREAM, 5]
        assert all(foreign.is_held(held[0], x) for _, held in record.kept)


# -- torch ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def tensors(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch tensors that say they are on cuda:0; `.recorded` are (pointer, stream)."""
    torch = pytest.importorskip("torch")
    recorded: list[tuple[int, int]] = []

    class Tensor(torch.Tensor):  # type: ignore[misc,name-defined]
        __torch_function__ = torch._C._disabled_torch_function_impl

        def get_device(self) -> int:
            return 0

        def record_stream(self, stream: Any) -> None:
            recorded.append((self.data_ptr(), stream))

    Tensor.__module__ = "torch"
    monkeypatch.setattr(intake, "raw_stream_getter", lambda: lambda ordinal: 21)
    monkeypatch.setattr(intake, "external_stream", lambda stream, ordinal: stream)
    make: Any = lambda *shape: torch.zeros(*shape).as_subclass(Tensor)  # noqa: E731
    make.recorded, make.torch = recorded, torch
    return make


def test_a_given_stream_is_recorded_on_torch_tensors(tensors: Any) -> None:
    chosen = plan(8)
    x, y, bias, alpha = tensors(8), tensors(8), tensors(8), tensors(1).reshape(())
    with recording() as record:
        alpha = alpha.as_subclass(type(x))
        for stream in (None, 21):
            chosen.run(AxpyArgs(x=x, y=y, bias=bias, alpha=alpha), stream=stream)
            chosen.bind(AxpyArgs(x=x, y=y, bias=bias, alpha=alpha), stream=stream)()
        assert not tensors.recorded and {r.stream for r in record.launches} == {21}
        everyone = {(t.data_ptr(), 33) for t in (x, y, bias, alpha)}
        for act in (chosen.run, lambda args, stream: chosen.bind(args, stream=stream)()):
            del tensors.recorded[:]
            act(AxpyArgs(x=x, y=y, bias=bias, alpha=alpha), stream=33)
            assert set(tensors.recorded) == everyone and record.launches[-1].stream == 33
        del tensors.recorded[:]
        chosen.run(AxpyArgs(x=x, y=pointer_view(array(8))), stream=33)
        assert tensors.recorded == [(x.data_ptr(), 33)]


def test_packages_whose_streams_differ_need_one(tensors: Any) -> None:
    x, y = tensors(8), pointer_view(array(8))
    chosen = plan(8)
    with recording() as record:
        for args in (AxpyArgs(x=x, y=y), AxpyArgs(x=y, y=x)):
            for act in (chosen.run, lambda args: chosen.bind(args)()):
                with pytest.raises(bc.InvalidProblemError, match=r"current streams .* differ .*pass stream="):
                    act(args)
            chosen.run(args, stream=33)
            with on_stream(21):
                chosen.run(args)
                chosen.bind(args)()
        chosen.run(AxpyArgs(x=x, y=ref(array(8))))  # a pointer has no stream of its own
        assert [r.stream for r in record.launches] == [33, 21, 21, 33, 21, 21, 21]


def test_outputs_are_allocated_on_the_stream_of_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[Any] = []
    device = SimpleNamespace(kind="cuda", ordinal=0)

    class Context:
        def __init__(self, *what: Any) -> None:
            self.what = what

        def __enter__(self) -> None:
            entered.append(self.what)

        def __exit__(self, *_: Any) -> None:
            entered.append("left")

    monkeypatch.setattr(outputs, "on_stream", lambda *where: Context("cupy", *where))
    monkeypatch.setattr(outputs.torch_rules, "on_stream", lambda *where: Context("torch", *where))
    for package in ("torch", "cupy", "jax"):
        makers = (lambda: entered.append("y"), lambda: entered.append("rest"))
        found = Resolved(SimpleNamespace(device=device), dict, package, ("y", "rest"), makers, ())
        for out in (None, {"rest": 1}):
            with found.on_stream(33):
                found.outputs(out)
    here, there = ("cupy", 33, 0), ("torch", 33, 0)
    expected = []
    for context in (there, here, here):
        expected += [context, "y", "rest", "left", context, "y", "left"]
    assert entered == expected


# -- with a GPU -----------------------------------------------------------------------------------------------------

LAG = 200_000_000  # clock cycles: a tenth of a second


def lag(stream: Any) -> None:
    """Keep a stream busy."""
    import cupy

    sleep = cupy.RawKernel(
        'extern "C" __global__ void lag(long long n) { long long t = clock64(); while (clock64() - t < n); }', "lag"
    )
    with stream:
        sleep((1,), (1,), (np.int64(LAG),))


@pytest.mark.gpu
def test_torch_memory_is_not_given_away_while_a_kernel_uses_it() -> None:
    torch = pytest.importorskip("torch")
    import cupy

    side, n = torch.cuda.Stream(), 1 << 20
    x = torch.ones(n, device="cuda")
    bc.exp(x)
    torch.cuda.synchronize()
    lag(cupy.cuda.ExternalStream(side.cuda_stream))
    y = bc.exp(x, stream=side)
    out = torch.empty(n, device="cuda")
    bc.exp(x, out=out, stream=side)
    del x
    spoiled = [torch.full((n,), 100.0, device="cuda") for _ in range(4)]  # would take x's block, ahead of the kernel
    torch.cuda.synchronize()
    assert torch.allclose(y, torch.full_like(y, float(np.e))) and torch.allclose(out, y) and len(spoiled) == 4


class Lagging:
    """A producer whose values arrive late on its own stream."""

    def __init__(self, n: int) -> None:
        import cupy

        self.stream = cupy.cuda.Stream(non_blocking=True)
        self.values = cupy.zeros(n, cupy.float32)
        cupy.cuda.Device().synchronize()
        lag(self.stream)
        with self.stream:
            self.values.fill(1)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.values.__cuda_array_interface__, "stream": self.stream.ptr, "version": 3}


@pytest.mark.gpu
@pytest.mark.parametrize("act", ["run", "bind", "bind elsewhere", "functional"])
def test_a_producer_is_waited_for_by_the_stream_launched_on(act: str) -> None:
    import cupy

    n = 1 << 16
    chosen = bc.UnaryPlan.select(bc.UnaryDescriptor(shape=n, kind="exp", element="float32"))
    chosen.prepare(bc.UnaryArgs(x=cupy.zeros(n, cupy.float32), y=cupy.zeros(n, cupy.float32)))
    bc.exp(cupy.zeros(n, cupy.float32))
    y, side = cupy.zeros(n, cupy.float32), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    x = Lagging(n)
    if act == "run":
        chosen.run(bc.UnaryArgs(x=x, y=y), stream=side)
    elif act == "bind":
        chosen.bind(bc.UnaryArgs(x=x, y=y), stream=side)()
    elif act == "bind elsewhere":
        bound = chosen.bind(bc.UnaryArgs(x=x, y=y))
        with side:
            bound()
    else:
        y = bc.exp(x, stream=side)
    side.synchronize()
    assert float(abs(y - np.e).max()) < 1e-5


@pytest.mark.gpu
def test_a_holder_lives_as_long_as_the_kernel_that_reads_it() -> None:
    import cupy

    class Wrapped:
        def __init__(self, values: Any) -> None:
            self.values = values

        def __dlpack__(self, **how: Any) -> Any:
            return self.values.__dlpack__(**{k: v for k, v in how.items() if k == "stream"})

        def __dlpack_device__(self) -> Any:
            return self.values.__dlpack_device__()

    n = 1 << 20
    bc.exp(cupy.ones(n, cupy.float32))
    side = cupy.cuda.Stream(non_blocking=True)
    x = Wrapped(cupy.ones(n, cupy.float32))
    cupy.cuda.Device().synchronize()
    lag(side)
    y = bc.exp(x, stream=side)
    del x
    spoiled = [cupy.full(n, 100, cupy.float32) for _ in range(4)]
    side.synchronize()
    assert float(abs(y - np.e).max()) < 1e-5 and len(spoiled) == 4


@pytest.mark.gpu
def test_a_bound_call_with_a_workspace_serves_other_streams_and_threads() -> None:
    import cupy

    x, dy = (cupy.random.standard_normal((2048, 1024), dtype=cupy.float32) for _ in range(2))
    weight = cupy.ones(1024, cupy.float32)
    _, rstd = bc.rms_norm(x, weight, return_rstd=True)
    dx, dweight = cupy.empty_like(x), cupy.empty_like(weight)
    chosen = bc.RMSNormBackwardPlan.select(
        bc.RMSNormBackwardDescriptor(batch_shape=2048, normalized_shape=1024, element="float32")
    )
    args = bc.RMSNormBackwardArgs(x=x, dy=dy, weight=weight, rstd=rstd, dx=dx, dweight=dweight)
    assert chosen.workspace_size(args) > 0
    wide = x.get().astype(np.float64)
    want = (dy.get() * wide / np.sqrt(np.mean(wide * wide, -1, keepdims=True) + 1e-6)).sum(0)
    bound = chosen.bind(args)

    def work() -> None:
        for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True)):
            with stream:
                dweight.fill(np.nan)
                bound()
                np.testing.assert_allclose(dweight.get(), want, rtol=1e-4, atol=1e-3)

    work()
    failed: list[BaseException] = []

    def guarded() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=guarded)
    thread.start()
    thread.join()
    assert not failed


@pytest.mark.gpu
def test_torch_gives_the_workspace_of_its_calls() -> None:
    import cupy

    torch = pytest.importorskip("torch")
    x, dy = (torch.randn(2048, 1024, device="cuda") for _ in range(2))
    _, rstd = bc.rms_norm(x, return_rstd=True)
    weight, pool = torch.ones(1024, device="cuda"), cupy.get_default_memory_pool()
    wide = x.double()
    want = (dy.double() * wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt()).sum(0)
    before = pool.total_bytes()
    for stream in (None, torch.cuda.Stream(), None):
        torch.cuda.synchronize()
        _, dweight = bc.rms_norm_backward(dy, x, rstd, weight, stream=stream)
        torch.cuda.synchronize()
        assert torch.allclose(dweight.double(), want, rtol=1e-4, atol=1e-3)
    assert pool.total_bytes() == before


@pytest.mark.gpu
def test_a_captured_call_keeps_nothing_and_asks_no_event() -> None:
    """Foreign operands under capture, with work of another stream unfinished."""
    import cupy

    n = 1 << 16
    x, y, side = cupy.ones(n, cupy.float32), cupy.zeros(n, cupy.float32), cupy.cuda.Stream(non_blocking=True)
    other = cupy.cuda.Stream(non_blocking=True)
    chosen = bc.UnaryPlan.select(bc.UnaryDescriptor(shape=n, kind="exp", element="float32"))
    facts = x.__cuda_array_interface__
    foreign = SimpleNamespace(__cuda_array_interface__={**facts, "stream": other.ptr, "version": 3})
    chosen.run(bc.UnaryArgs(x=foreign, y=y), stream=side)
    bound = chosen.bind(bc.UnaryArgs(x=foreign, y=y), stream=side)
    cupy.cuda.Device().synchronize()
    lag(other)
    with side:
        side.begin_capture()
        chosen.run(bc.UnaryArgs(x=foreign, y=y))
        bound()
        graph = side.end_capture()
    y.fill(0)
    cupy.cuda.Device().synchronize()
    graph.launch(side)
    side.synchronize()
    assert float(abs(y - np.e).max()) < 1e-5
