"""Convolutions of fp8 with scales, beside float64 of exactly decoded numbers; kernels."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
DTYPES = {"float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2}
GIVEN: dict[str, Any] = {"stride": (2, 1), "padding": 1, "dilation": (1, 2), "groups": 2}


def codes(name: str, *shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(DTYPES[name])


def exact(x: np.ndarray, w: np.ndarray, sx: float, sw: Any, bias: Any, given: dict[str, Any]) -> np.ndarray:
    """By torch in float64, the scales behind the sums."""
    left, right = (torch.tensor(a.astype(np.float64)) for a in (x, w))
    sums = torch.nn.functional.conv2d(left, right, None, **given).numpy()
    return sums * sx * np.reshape(sw, (-1, 1, 1)).astype(float) + np.reshape(bias, (-1, 1, 1)).astype(float)


@pytest.mark.parametrize("xd", DTYPES)
@pytest.mark.parametrize("wd", DTYPES)
@pytest.mark.parametrize("out", ["float32", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_it_is_exact(xd: str, wd: str, out: str) -> None:
    x, w, sx = codes(xd, 2, 6, 7, 6), codes(wd, 8, 3, 3, 2), np.array(0.5, np.float32)
    sw, bias = RNG.uniform(0.25, 2, 8).astype(np.float32), RNG.standard_normal(8).astype(np.float32)
    sy = np.array(100.0, np.float32) if out.startswith("float8") else None
    got = bc.scaled_conv(x, w, sx, sw, bias=bias, scale_y=sy, out_element=out, **GIVEN)
    want = exact(x, w, 0.5, sw, bias, GIVEN)
    if sy is None:
        np.testing.assert_allclose(np.asarray(got).astype(float), want, rtol=2.0**-8 if out == "bfloat16" else 1e-6)
        return
    top = float(ml_dtypes.finfo(out).max)
    want = np.clip(want * 100, -top, top).astype(np.float32).astype(out)
    got = np.asarray(got)
    np.testing.assert_array_equal(got.view(out) if got.dtype == np.uint8 else got, want)
    assert (np.abs(want.astype(float)) == top).any() or out == "float8_e5m2"


def test_one_scale_and_what_it_is_called_with() -> None:
    x, w = codes("float8_e4m3fn", 1, 4, 5, 5), codes("float8_e4m3fn", 3, 4, 3, 3)
    one = np.array(0.25, np.float32)
    want = exact(x, w, 0.25, 0.25, np.zeros(3), {})
    np.testing.assert_allclose(bc.scaled_conv(x, w, one, one, out_element="float32"), want, rtol=1e-6)
    held = bc.scaled_conv(x.view(np.uint8), w.view(np.uint8), one, one, element="float8_e4m3fn", out_element="float32")
    np.testing.assert_allclose(held, want, rtol=1e-6)
    for call, said in (
        (lambda: bc.scaled_conv(x.astype(np.float32), w), "float8"),
        (lambda: bc.scaled_conv(x, w, out_element="int8"), "it may be one of bfloat16"),
        (lambda: bc.scaled_conv(x, w, bias=np.ones(3, np.float16)), "bias must be float32"),
        (lambda: bc.scaled_conv(x, w, scale_w=np.ones(2, np.float32)), "broadcast to"),
    ):
        with pytest.raises(bc.BaracudaError, match=said):
            call()


# -- kernels -------------------------------------------------------------------------------------------------------


def last(array: np.ndarray) -> np.ndarray:
    """The same numbers, channels last."""
    return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)


def on_row(row: str, desc: Any, sms: int = 132, **arrays: Any) -> list[Any]:
    """Emulates it in a row, gives the launches."""
    plan = bc.ScaledConvPlan
    with emulating() as emulator:
        chosen = plan(desc, bc.PlanPreference(), emulated_device(9.0, sms))
        chosen.rows = tuple(one for one in chosen.rows if one.name == row)
        args = plan.args(**{name: None if x is None else pointer_view(x) for name, x in arrays.items()})
        verdict = chosen.can_implement(args)
        assert verdict, verdict
        _, geometry, _ = chosen.plan_layout(args)
        chosen.run(args)
        assert not emulator.overrun()
    return list(geometry.steps)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("out", ["float32", "float16", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize(
    ("row", "channels", "groups", "xd", "wd"),
    [("wgmma", 16, 2, "float8_e4m3fn", "float8_e5m2"), ("wgmma", 35, 1, "float8_e4m3fn", "float8_e4m3fn"),
     ("mma_fp8", 16, 2, "float8_e4m3fn", "float8_e4m3fn"), ("mma_fp8", 35, 1, "float8_e5m2", "float8_e5m2"),
     ("mma", 16, 1, "float8_e4m3fn", "float8_e5m2"), ("simt", 3, 2, "float8_e5m2", "float8_e4m3fn")],
)  # fmt: skip
def test_kernels(row: str, channels: int, groups: int, xd: str, wd: str, out: str, inner: bool) -> None:
    given = GIVEN | {"groups": groups}
    x, w = codes(xd, 2, channels * groups, 7, 6), codes(wd, 11 * groups, channels, 3, 2)
    sx, sw = np.array(0.5, np.float32), RNG.uniform(0.25, 2, 11 * groups).astype(np.float32)
    bias, sy = RNG.standard_normal(11 * groups).astype(np.float32), np.array(8.0, np.float32)
    want = 8.0 * np.maximum(exact(x, w, 0.5, sw, bias, given), 0)
    scale = 8.0 * exact(np.abs(x), np.abs(w), 0.5, sw, np.abs(bias), given)
    desc = bc.ScaledConvDescriptor(
        shape=x.shape, filter_shape=w.shape, **given, element=xd, w_element=wd, out_element=out, activation="relu"
    )
    kind = ElementKind.of(out)
    y = np.zeros(want.shape, kind.carrier)
    y = last(y) if inner else y
    held = {"x": x.view(np.uint8), "w": w.view(np.uint8)}
    held = {name: last(a) for name, a in held.items()} if inner else held
    steps = on_row(row, desc, **held, scale_x=sx, scale_w=sw, bias=bias, scale_y=sy, y=y)
    packs = 0 if row == "simt" or (inner and channels == 16) else 2
    assert [step.kernel for step in steps] == ["pack"] * packs + [{"simt": "each", "wgmma": "wgmma"}.get(row, "mma")]
    got = (y.view(out) if kind.carrier == np.uint8 else y).astype(float)
    allowed = float(kind.limits.eps) * np.abs(want) + 2.0 ** (-11 if row in ("mma_fp8", "wgmma") else -20) * scale
    if kind.carrier == np.uint8:
        want, allowed = np.minimum(want, 448.0), np.maximum(allowed, 2.0**-10)
    assert np.count_nonzero(want) > want.size // 4 and (np.abs(got - want) <= allowed).all()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("row", "axis"), [("mma", "SIZE"), ("wgmma", "COLS")])
def test_large_tiles_and_spread_inputs(row: str, axis: str) -> None:
    x, w = codes("float8_e4m3fn", 1, 16, 9, 11), codes("float8_e4m3fn", 16, 131, 3, 2)
    desc = bc.ScaledConvDescriptor(
        shape=x.shape, filter_shape=w.shape, input_dilation=(2, 1), padding=(2, 1), transposed=True,
        element="float8_e4m3fn", out_element="float32",
    )  # fmt: skip
    y = last(np.zeros((1, *desc.out_shape[1:]), np.float32))
    steps = on_row(row, desc, 2, x=last(x.view(np.uint8)), w=w.view(np.uint8), y=y)
    assert [step.axes[axis] for step in steps if step.kernel == row] == [128, 128]
    left, right = (torch.tensor(a.astype(np.float64)) for a in (x, w))
    want = torch.nn.functional.conv_transpose2d(left, right, None, (2, 1)).numpy()
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-4 if row == "mma" else 0.05)
