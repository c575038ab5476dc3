"""Which plans `moe` goes by on an sm_90a device that is not there: few tokens, many, and what TMA does not read."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.calls import call as call_module
from baracuda_py.core import device as device_module
from baracuda_py.core.device import fake_device
from baracuda_py.ops.moe import experts as experts_module
from baracuda_py.ops.moe import routes
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view, recording


@pytest.fixture(autouse=True)
def _hopper(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(device_module, "cuda_device", lambda ordinal: fake_device(9.0, ordinal))
    routes._takes.cache_clear()
    experts_module._known_ways.clear()
    yield
    routes._takes.cache_clear()
    experts_module._known_ways.clear()


def array(*shape: int, element: str = "bfloat16", strides: Any = None, at: int = 1 << 40, device: int = 0) -> Any:
    return bc.TensorRef(at, shape, strides, element=element, device=device)


def few(tokens: int = 4, d: int = 64, f: int = 40, **more: Any) -> bool:
    """Whether that many tokens go by `moe_decode`."""
    given = {"x": array(tokens, d), "indices": array(tokens, 2, element="int64"), "gate": array(8, f, d),
             "weights": array(tokens, 2, element="float32"), "up": array(8, f, d), "down": array(8, d, f),
             "gate_bias": None, "up_bias": None, "down_bias": array(8, d)}  # fmt: skip
    preference = more.pop("preference", None)
    return routes.streams("silu", preference, given | more)


def gathered(d: int = 64, f: int = 48, **more: Any) -> bool:
    """Whether the first product of 100 tokens goes by `grouped_gather_gemm`."""
    b = array(8, d, f, strides=(f * d, 1, d))
    return routes.gathers(200, "silu", None, {"x": array(100, d), "b": b, "up": b, "bias": None} | more)


def test_what_goes_which_way() -> None:
    assert few() and few(up=None) and few(down=array(8, 64, 40, strides=(2560, 1, 64)))
    interleaved = [array(8, 40, 64, strides=(5120, 128, 1), at=(1 << 40) + 128 * n) for n in (0, 1)]
    assert few(gate=interleaved[0], up=interleaved[1])
    assert gathered() and gathered(up=None) and gathered(x=array(100, 64, strides=(72, 1)))


def test_what_many_tokens_would_not_read_by_tma_few_do_not_either() -> None:
    assert not few(d=60) and not few(f=44) and not few(x=array(4, 64, at=(1 << 40) + 2))
    assert not few(x=array(4, 64, device=-1)) and not few(down=array(8, 64, 40, element="float16"))
    assert not few(gate=array(8, 40, 64, strides=(2560, 1, 40)))  # and up along k
    assert not few(preference=bc.PlanPreference(max_workspace_bytes=64))
    assert not few(preference=bc.PlanPreference(max_arch="sm80"))
    assert not gathered(d=60) and not gathered(x=array(100, 64, strides=(1, 100)))
    assert not gathered(x=array(100, 64, element="float32"))


def test_other_devices_go_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "cuda_device", lambda ordinal: fake_device(8.0, ordinal))
    assert not few() and not gathered()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("unit", "order"), [("swiglu", "gate_first"), ("swiglu_oai", "interleaved")])
def test_whole_layers_emulated(unit: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """34 tokens by the gather, four of them by `moe_decode`: launches of each, the same bits, and the formula."""
    device = emulated_device(9.0, 3)
    monkeypatch.setattr(device_module, "cuda_device", lambda ordinal: device)
    monkeypatch.setattr(call_module, "maker", lambda like, shape, kind, device, last: lambda: held(shape, kind, device))
    monkeypatch.setattr(call_module, "allocating", lambda *facts: contextlib.nullcontext())
    rng, (tokens, d, f, experts) = np.random.default_rng(0), (34, 72, 24, 5)
    rows = 2 * f

    def normal(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * shape[-1] ** -0.5).astype(np.float16)

    x, indices = normal(tokens, d), np.argsort(rng.random((tokens, experts + 1)), axis=1)[:, :2].copy()
    weights, gate_up, down = rng.random((tokens, 2), np.float32), normal(experts, rows, d), normal(experts, d, f)
    bias = (normal(experts, rows), normal(experts, d)) if unit == "swiglu_oai" else ()
    more = {"activation": unit, "order": order}
    given = [gate_up, down, *bias]

    def layer(count: int) -> Any:
        y = np.empty((count, d), np.float16)
        own = [pointer_view(one) for one in (x[:count], indices[:count], weights[:count], *given)]
        with emulating():
            bc.moe(*own, out=pointer_view(y), **more)
        return y

    y = layer(tokens)
    assert layer(4).tobytes() == y[:4].tobytes()
    wanted = bc.moe(x.astype(float), indices, weights.astype(float), *(one.astype(float) for one in given), **more)
    np.testing.assert_allclose(y, wanted, atol=4e-3)


def test_a_call_like_an_earlier_one_is_neither_checked_nor_chosen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """But one of another layout, element or activation is; what it launches is the same."""
    device = fake_device(9.0)
    monkeypatch.setattr(device_module, "cuda_device", lambda ordinal: device)
    monkeypatch.setattr(call_module, "maker", lambda like, shape, kind, device, last: lambda: held(shape, kind, device))
    monkeypatch.setattr(call_module, "allocating", lambda *facts: contextlib.nullcontext())
    asked: list[str] = []
    streams = experts_module.streams
    monkeypatch.setattr(experts_module, "streams", lambda *given: asked.append("") or streams(*given))

    def layer(tokens: int = 4, d: int = 64, element: Any = np.float16, **more: Any) -> list[str]:
        x, gate_up, down = (pointer_view(np.zeros(s, element)) for s in ((tokens, d), (8, 48, d), (8, d, 24)))
        indices, weights = np.zeros((tokens, 2), np.int64), np.zeros((tokens, 2), np.float32)
        with recording() as record:
            bc.moe(x, pointer_view(indices), pointer_view(weights), gate_up, down, **more)
        return [one.function.symbol for one in record.launches]

    first = layer()
    assert len(first) == 2 and layer() == first and len(asked) == 1
    assert len(layer(5)) == 2 and len(layer(activation="geglu")) == 2 and len(asked) == 3
    wide = layer(element=np.float32)
    assert len(wide) > 2 and layer(element=np.float32) == wide and len(asked) == 4
    assert layer() == first and len(asked) == 4
    for _ in range(2):
        with pytest.raises(bc.BaracudaError, match="gate_up must be"):
            x, indices, weights = np.zeros((4, 64)), np.zeros((4, 2), np.int64), np.zeros((4, 2))
            bc.moe(*map(pointer_view, (x, indices, weights, np.zeros((8, 48, 65)), np.zeros((8, 64, 24)))))


def held(shape: tuple[int, ...], kind: Any, device: int) -> Any:
    made = np.empty(shape, kind.carrier)
    return made if device < 0 else pointer_view(made)
