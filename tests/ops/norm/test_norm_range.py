"""Rows at the ends of the range, and far from 0: forward norms against sums in longer numbers, on every backend."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda_py.core.element import ElementKind, cast
from baracuda_py.ops.norm.layer_norm import LayerNormDescriptor, LayerNormPlan
from baracuda_py.ops.norm.rms_norm import RMSNormDescriptor, RMSNormPlan
from baracuda_py.testing.places import call

PLANS = {"rms_norm": (RMSNormPlan, RMSNormDescriptor), "layer_norm": (LayerNormPlan, LayerNormDescriptor)}
SIZES = {"f32": 1.01 * 2.0**-23, "f64": 2.0**-52, "f16": 0.51 * 2.0**-10, "bf16": 0.51 * 2.0**-7}
# 5 and 100: parts of a warp; 1000: a warp or a block; 20000: rows longer than registers hold.
COLUMNS = (5, 100, 1000, 20000)


def rows_of(element: str, cols: int) -> np.ndarray:
    """Rows of one magnitude each over the whole range, constant, of two magnitudes, of zeros, and ordinary ones."""
    kind = ElementKind.of({"f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16"}[element])
    rng = np.random.default_rng(cols)
    low, high = kind.limits.min_exponent, float(np.log2(float(kind.limits.max)))
    exponents = [low, low + 8, low / 2, low / 4, -20, 0, 10, high / 4, high / 2, high - 5]
    rows = [np.ldexp(rng.standard_normal(cols) + 0.5, int(e)) for e in exponents]
    top = float(kind.limits.max)
    rows += [np.full(cols, top), np.where(np.arange(cols) % 2, top, -top / 2), np.zeros(cols)]
    rows += [np.full(cols, top / 3.4), np.ldexp(1.0, int(low)) * (1 + np.arange(cols) % 3), np.eye(1, cols)[0] * top]
    return np.array(cast(np.clip(np.stack(rows), -top, top), kind))


def truth(op: str, h: np.ndarray, eps: float) -> tuple[Any, Any, Any]:
    """y, mean and rstd of every row in longdouble, whose range holds every square and whose sums lose nothing here."""
    x = h.astype(np.longdouble)
    with np.errstate(all="ignore"):
        mean = x.mean(axis=1, keepdims=True) if op == "layer_norm" else np.zeros((len(x), 1), x.dtype)
        mean = np.where(
            x.max(axis=1, keepdims=True) == x.min(axis=1, keepdims=True), x[:, :1] * (op != "rms_norm"), mean
        )
        rstd = 1 / np.sqrt(np.square(x - mean).mean(axis=1, keepdims=True) + np.longdouble(eps))
        return (x - mean) * rstd, mean[:, 0], rstd


def _close(got: Any, expected: np.ndarray, bound: float, kind: ElementKind) -> None:
    """Within `bound` of the row's largest result; results beyond the element's range are infinite."""
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = np.array(cast(expected.astype(np.float64), kind)).astype(np.float64)
    got = got.astype(np.float64)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(wanted))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(wanted))
    fine = np.isfinite(wanted)
    exact = np.where(fine, expected, 0)
    size = np.max(np.abs(exact), axis=-1, keepdims=True)
    error = np.abs(np.where(fine, got, 0) - exact)
    assert (error <= bound * size + kind.limits.tiny).all()


@pytest.mark.parametrize("cols", COLUMNS)
@pytest.mark.parametrize("eps", [0.0, 1e-6])
@pytest.mark.parametrize("element", SIZES)
@pytest.mark.parametrize("op", PLANS)
def test_rows_over_the_whole_range(place: str, op: str, element: str, eps: float, cols: int) -> None:
    plan, descriptor = PLANS[op]
    x = rows_of(element, cols)
    desc = descriptor(batch_shape=len(x), normalized_shape=cols, eps=eps, element=x.dtype)
    wanted = ("y", "mean", "rstd") if op == "layer_norm" else ("y", "rstd")
    got = call(plan, desc, wanted, place, x=x)
    y, mean, rstd = truth(op, x, eps)
    acc = desc.acc
    slack = {"f32": 8, "f64": 16, "f16": 1.2, "bf16": 1.2}[element]
    _close(got["y"], y, slack * SIZES[element], desc.element)
    own = 16 * (2.0**-52 if acc is ElementKind.F64 else 2.0**-23)
    _close(got["rstd"][:, None], rstd, own, acc)
    if op == "layer_norm":
        error = np.abs(got["mean"].astype(np.float64) - mean)
        assert (error <= own * np.abs(x.astype(np.float64)).max(axis=1)).all()


@pytest.mark.parametrize("cols", [100, 20000])
@pytest.mark.parametrize("element", ["f32", "bf16", "f64"])
@pytest.mark.parametrize("op", PLANS)
def test_ordinary_rows_keep_their_bits_beside_others(place: str, op: str, element: str, cols: int) -> None:
    """A row alone, and among rows that are scaled."""
    plan, descriptor = PLANS[op]
    x = rows_of(element, cols)
    for at in (4, 5, 6):
        both = [
            call(plan, descriptor(batch_shape=len(part), normalized_shape=cols, eps=1e-6, element=x.dtype), ("y",),
                 place, x=part)["y"]
            for part in (x[at : at + 1], x)
        ]  # fmt: skip
        assert both[0][0].tobytes() == both[1][at].tobytes()


@pytest.mark.parametrize("cols", [100, 3000, 20000])
@pytest.mark.parametrize("op", PLANS)
def test_a_residual_is_added_first(place: str, op: str, cols: int) -> None:
    """h is rounded and kept at its own size; y, written over x, is that of h."""
    plan, descriptor = PLANS[op]
    x = rows_of("bf16", cols)
    residual = np.array(cast(x.astype(np.float64)[::-1] * 0.25, ElementKind.BF16))
    desc = descriptor(batch_shape=len(x), normalized_shape=cols, eps=0.0, element=x.dtype)
    with np.errstate(over="ignore"):
        h = np.array(cast(x.astype(np.float64) + residual.astype(np.float64), ElementKind.BF16))
    finite = np.isfinite(h.astype(np.float64)).all(axis=1)
    for wanted in (("y", "h"), ("y",)):
        got = call(plan, desc, wanted, place, x=x, residual=residual)
        if "h" in got:
            assert got["h"].tobytes() == h.tobytes()
        y, _, _ = truth(op, h[finite], 0.0)
        _close(got["y"][finite], y, 1.2 * SIZES["bf16"], desc.element)


@pytest.mark.parametrize("cols", [64, 1000, 20000])
@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("mean", [1e3, 1e5, -1e12])
def test_layer_norm_keeps_its_digits_where_the_mean_is_large(place: str, mean: float, element: str, cols: int) -> None:
    """Deviations on a grid that the element holds beside the mean: y is theirs to the last digits."""
    if element == "f32" and abs(mean) > 1e6:
        mean = 1e6
    rng = np.random.default_rng(cols)
    grid = 2.0**-3 if element == "f32" else 2.0**-10
    steps = rng.integers(-2000, 2000, (3, cols)) * grid
    x = (mean + steps).astype("float32" if element == "f32" else "float64")
    np.testing.assert_array_equal(x.astype(np.float64) - mean, steps)
    desc = LayerNormDescriptor(batch_shape=3, normalized_shape=cols, eps=1e-5, element=x.dtype)
    got = call(LayerNormPlan, desc, ("y", "mean", "rstd"), place, x=x)
    centred = steps - np.array([[np.longdouble(s).sum() / cols] for s in steps.astype(np.longdouble)])
    expected = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    error = np.abs(got["y"].astype(np.longdouble) - expected).max() / np.abs(expected).max()
    assert error <= (4e-7 if element == "f32" else 2e-15)


def test_eps_smaller_than_float32_counts() -> None:
    """On NumPy and in kernels: eps 1e-60 beside squares of 1e-60, in float32."""
    x = np.full((1, 64), 1e-30, np.float32)
    for name, (plan, descriptor) in PLANS.items():
        desc = descriptor(batch_shape=1, normalized_shape=64, eps=1e-60, element="float32")
        y = call(plan, desc, ("y",), "numpy", x=x)["y"]
        np.testing.assert_allclose(y, 0.0 if name == "layer_norm" else 0.5**0.5, rtol=1e-6, atol=1e-6)


def test_dtypes_of_bfloat16() -> None:
    assert rows_of("bf16", 5).dtype == ml_dtypes.bfloat16
