"""`bc.graph`: the CPU's replay, capture on the recording runtime and on a stand-in stream, and the real thing."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
from test_runner import address, array, plan, strided

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.jit.capture import captured, for_graph
from baracuda_py.testing import pointer_view, recording
from baracuda_py.testing.recording import STREAM

H = fake_device(9.0)


# -- the CPU --------------------------------------------------------------------------------------------------------


def test_a_replay_on_the_cpu_calls_again_and_keeps_its_outputs() -> None:
    x, calls = np.arange(4.0, dtype=np.float32), []

    def function(x: Any, scale: Any) -> Any:
        calls.append(1)
        return {"y": bc.mul(x, scale), "pair": (bc.add(x, x), None, 3), "list": [bc.add(x, scale)]}

    g = bc.graph(function, x, np.full(4, 2, np.float32), warmup=2)
    assert len(calls) == 2 and repr(g) == "<Graph on cpu>" and g.memory == 0
    held = g.outputs
    y, pair, item = held["y"], held["pair"], held["list"][0]
    x += 1
    assert g() is g.outputs and len(calls) == 3
    assert g.outputs["y"] is y and g.outputs["pair"][0] is pair[0] and g.outputs["list"][0] is item
    assert g.outputs["pair"][1:] == (None, 3)
    np.testing.assert_array_equal(y, 2 * x)
    np.testing.assert_array_equal(pair[0], 2 * x)
    np.testing.assert_array_equal(item, x + 2)


def test_a_replay_of_another_shape_is_refused() -> None:
    sizes = [2, 3]
    g = bc.graph(lambda: np.zeros(sizes.pop(0), np.float32), device="cpu")
    with pytest.raises(bc.InvalidProblemError, match=r"made float32\[3\] where the graph holds float32\[2\]"):
        g()


def test_what_graph_refuses() -> None:
    with pytest.raises(bc.InvalidProblemError, match="function must be callable, got int"):
        bc.graph(3)
    for warmup in (0, -1, 1.0, True):
        with pytest.raises(bc.InvalidProblemError, match="warmup must be an integer of at least 1"):
            bc.graph(list, warmup=warmup)
    with pytest.raises(bc.InvalidProblemError, match=r"on one device, got ordinals \[-1, 0\]"):
        bc.graph(print, [np.zeros(2)], {"x": pointer_view(np.zeros(2))})
    torch = type("Tensor", (), {"shape": (), "dtype": None, "__module__": "torch"})
    with pytest.raises(bc.UnsupportedError, match=r"graph takes CuPy arrays .* got torch Tensor"):
        bc.graph(print, torch())
    with pytest.raises(ValueError, match="mine"):
        bc.graph(lambda: (_ for _ in ()).throw(ValueError("mine")), device="cpu")


# -- capture, recorded ----------------------------------------------------------------------------------------------


def test_a_captured_call_replays_its_launches() -> None:
    chosen, x, y = plan(8), array(8), array(8)
    a, b = pointer_view(x), pointer_view(y)
    with recording() as record:
        g = bc.graph(lambda: chosen(x=a, y=b), device=H)
        assert [launch.stream for launch in record.launches] == [STREAM], "the warm-up runs, the capture does not"
        g()
        g.replay(stream=7)
        assert len(record.launches) == 3 and record.launches[0].image == record.launches[2].image
        assert address(x).to_bytes(8, "little") in record.launches[1].image


@pytest.mark.parametrize("device", ["cpu", H])
def test_a_graph_keeps_what_it_reads(device: Any) -> None:
    class Held:
        pass

    given, closed = Held(), Held()
    alive = [weakref.ref(given), weakref.ref(closed)]
    with recording():
        g = bc.graph(lambda given, closed=closed: None, given, device=device)
        del given, closed
        gc.collect()
        assert all(ref() is not None for ref in alive)
        del g
        gc.collect()
        assert not any(ref() is not None for ref in alive)


def test_workspace_under_capture_is_the_graphs_own() -> None:
    """What `run` refuses under a capture of the caller's it does under `graph`."""
    chosen, args = plan(8), strided()
    with recording() as record:
        chosen.prepare(args)
        record.capturing = True
        with pytest.raises(bc.NotPreparedError, match="1024 bytes of workspace, to be given under capture"):
            chosen.run(args)
        record.capturing = False
        g = bc.graph(chosen.run, args, device=H)
        count = len(record.launches)
        g()
        assert len(record.launches) == 2 * count and not for_graph()


def test_an_unprepared_layout_under_capture() -> None:
    """A branch that the warm-up did not take: the error is typed, and the next graph works."""
    chosen = plan(8)
    sides = [(pointer_view(array(8)), pointer_view(array(8))), (pointer_view(array(16)[::2]), pointer_view(array(8)))]

    def function() -> None:
        x, y = sides.pop(0)
        chosen(x=x, y=y)

    with recording() as record:
        with pytest.raises(bc.NotPreparedError, match="not prepared before capture"):
            bc.graph(function, device=H)
        assert not record.capturing and not for_graph()


def test_a_graph_inside_a_captured_function() -> None:
    with recording(), pytest.raises(bc.CaptureError, match="cannot make a graph of its own"):
        bc.graph(lambda: bc.graph(int, device=H), device=H)


class CudaError(RuntimeError):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class Stream:
    """A stream that notes its calls; `end` is the error that ends its capture."""

    def __init__(self, end: Exception | None = None) -> None:
        self.calls: list[str] = []
        self.end = end

    def begin_capture(self) -> None:
        self.calls.append("begin")

    def end_capture(self) -> str:
        self.calls.append("end")
        if self.end is not None:
            raise self.end
        return "graph"


def fails(error: BaseException) -> Any:
    def function() -> None:
        raise error

    return function


def test_capture_always_ends() -> None:
    assert captured(Stream(), lambda: 5) == (5, "graph")
    for error, told in (
        (CudaError(900), bc.CaptureError), (CudaError(2), CudaError), (ValueError("x"), ValueError),
        (RuntimeError("the current stream is capturing, so D2H transfers are disallowed"), bc.CaptureError),
        (KeyboardInterrupt(), KeyboardInterrupt), (bc.NotPreparedError("x"), bc.NotPreparedError),
    ):  # fmt: skip
        for end in (None, CudaError(901)):
            stream = Stream(end)
            with pytest.raises(told):
                captured(stream, fails(error))
            assert stream.calls == ["begin", "end"]
    with pytest.raises(bc.CaptureError, match="never joined the captured one: status 904"):
        captured(Stream(CudaError(904)), int)
    with pytest.raises(CudaError):
        captured(Stream(CudaError(2)), int)


# -- a GPU ----------------------------------------------------------------------------------------------------------


def on_gpu(*shape: int, dtype: str = "float32") -> Any:
    import cupy

    return cupy.asarray(np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype))


def layer(x: Any, w: Any, scale: Any) -> Any:
    """A product with workspace, a norm, an in-place update by a device scalar, a reduction over lists."""
    y = bc.matmul(x.T, bc.matmul(x, w))
    norm = bc.rms_norm(y, None)
    total, factor = bc.global_norm([y, norm], return_clip_factor=True)
    bc.adam_step([w], [y], [scale["m"]], [scale["v"]], lr=scale["lr"], step=scale["step"], grad_scale=factor)
    return {"y": y, "norm": norm, "total": total}


def state(w: Any) -> dict[str, Any]:
    import cupy

    return {
        "m": cupy.zeros_like(w), "v": cupy.zeros_like(w), "lr": cupy.asarray(0.1), "step": cupy.asarray(1, np.int64),
    }  # fmt: skip


@pytest.mark.gpu
def test_replays_with_new_inputs_are_the_eager_calls() -> None:
    """Bit for bit, state included: one warm-up step, then five replays, each with another x, lr and step."""
    import cupy

    inputs = [on_gpu(256, 64) * (i + 1) for i in range(6)]
    w, w_eager = on_gpu(64, 64), on_gpu(64, 64)
    held, held_eager, x = state(w), state(w_eager), inputs[0].copy()
    g = bc.graph(layer, x, w, held)
    layer(inputs[0], w_eager, held_eager)
    used = cupy.get_default_memory_pool().used_bytes()
    assert g.memory >= 256 * 64 * 4
    for i in range(1, 6):
        for one in (held, held_eager):
            one["lr"][...] = 0.1 / i
            one["step"][...] = i + 1
        x[...] = inputs[i]
        got = g()
        want = layer(inputs[i], w_eager, held_eager)
        for name in want:
            cupy.testing.assert_array_equal(got[name], want[name])
        cupy.testing.assert_array_equal(w, w_eager)
        del want
    assert cupy.get_default_memory_pool().used_bytes() == used, "a replay takes nothing from the shared pool"


@pytest.mark.gpu
def test_two_graphs_share_no_memory() -> None:
    """Each writes its own blocks, whatever order they run in, and on other streams."""
    import cupy

    x = on_gpu(300, 64)
    first, second = (bc.graph(lambda x, f: bc.softmax(bc.rms_norm(bc.mul(x, f), None)), x, on_gpu(64)) for _ in "ab")
    third = bc.graph(lambda x: bc.softmax(bc.rms_norm(x, None)), x)
    want = [g().copy() for g in (first, second, third)]
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.wait_event(cupy.cuda.get_current_stream().record())
    for g in (third, first, second, first):
        g.replay(stream)
    stream.synchronize()
    for g, one in zip((first, second, third), want, strict=True):
        cupy.testing.assert_array_equal(g.outputs, one)


@pytest.mark.gpu
@pytest.mark.parametrize("bad", ["sync", "read", "layout", "stream", "own"])
def test_an_error_leaves_the_context_usable(bad: str) -> None:
    import cupy

    x, calls = on_gpu(64, 64), []
    side = cupy.cuda.Stream(non_blocking=True)

    def function() -> Any:
        calls.append(1)
        y = bc.rms_norm(x, None)
        if len(calls) < 2:
            return y
        if bad == "sync":
            cupy.cuda.get_current_stream().synchronize()
        elif bad == "read":
            float(y[0, 0])
        elif bad == "layout":
            bc.layer_norm(y[:, ::2], None)
        elif bad == "stream":
            side.wait_event(cupy.cuda.get_current_stream().record())
            with side:
                bc.rms_norm(y, None)
        else:
            raise ZeroDivisionError
        return y

    told = {"layout": bc.NotPreparedError, "own": ZeroDivisionError}.get(bad, bc.CaptureError)
    with pytest.raises(told):
        bc.graph(function)
    g = bc.graph(lambda: bc.rms_norm(x, None))
    cupy.testing.assert_array_equal(g(), bc.rms_norm(x, None))
    cupy.cuda.Device().synchronize()
