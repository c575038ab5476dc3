"""Scales of any exponents: what the element holds, by float64, does not pass through what it does not."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  bfloat16 by its name
import numpy as np
import pytest

from baracuda_py.core.element import ElementKind
from baracuda_py.core.preference import PlanPreference
from baracuda_py.core.sku import BackendKind
from baracuda_py.ops.gemm.gemm import GemmDescriptor, GemmPlan
from baracuda_py.testing.places import call

LARGEST = float(np.finfo(np.float32).max)
SIMT = PlanPreference(prefer_backend=BackendKind.BESPOKE)
SCALES = [
    ((LARGEST, -LARGEST), (LARGEST, 1e-38), 1.0), ((LARGEST,), (1e-38,), 1.0), ((1e-38,), (LARGEST,), 1e-10),
    ((LARGEST,), (1e-30,), 100.0), ((1e-30,), (1e-30,), 1e30), ((1e-40, LARGEST), None, 1e38),
    (None, (1e-44, 2.0), 3e38),
    ((LARGEST, 1.0), (0.0, LARGEST), 1.0),
]  # fmt: skip


def _activated(name: str, x: np.ndarray) -> np.ndarray:
    """By their limits, which float64 reaches."""
    if name == "silu":
        return x / (1 + np.exp(-np.maximum(x, -700)))
    return np.maximum(x, 0) if name == "relu" else x


@pytest.mark.parametrize("gated", [False, True], ids=["plain", "gated"])
@pytest.mark.parametrize("activation", ["none", "relu", "silu"])
@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_factors_whose_products_leave_the_range(place: str, name: str, activation: str, gated: bool) -> None:
    kind, rng = ElementKind.of(name), np.random.default_rng(3)
    desc = GemmDescriptor(m=6, n=8, k=4, activation=activation, element=kind)
    a, b, up = (rng.integers(-4, 5, shape).astype(kind.dtype) for shape in ((6, 4), (4, 8), (4, 8)))
    residual = np.full((6, 8), -0.75, kind.dtype)
    wide = {n: x.astype(np.float64) for n, x in (("a", a), ("b", b), ("up", up))}
    for of_row, of_column, alpha in SCALES:
        rows = None if of_row is None else np.resize(np.array(of_row, np.float32), 6)
        columns = None if of_column is None else np.resize(np.array(of_column, np.float32), 8)
        given: dict[str, Any] = {"a": a, "b": b, "residual": residual, "scale_a": rows, "scale_b": columns}
        got = call(GemmPlan, desc, ("y",), place, SIMT, alpha=alpha, **given, **({"up": up} if gated else {}))["y"]
        factor = float(np.float32(alpha)) * np.ones((6, 8))
        factor *= 1 if rows is None else rows.astype(np.float64)[:, None]
        factor *= 1 if columns is None else columns.astype(np.float64)
        wanted = _activated(activation, wide["a"] @ wide["b"] * factor)
        if gated:
            wanted = wanted * (wide["a"] @ wide["up"] * factor)
        wanted = wanted - 0.75
        with np.errstate(over="ignore"):
            rounded = wanted.astype(kind.dtype).astype(np.float64)
        # A factor of a gate that is itself beyond float32 leaves no more than its sign.
        apart = np.isinf(got.astype(np.float64)) & np.isfinite(rounded) if gated else np.zeros((6, 8), bool)
        assert not np.isnan(got.astype(np.float64)).any(), (of_row, of_column, alpha)
        eps = float(kind.limits.eps)
        np.testing.assert_allclose(got.astype(np.float64)[~apart], rounded[~apart], rtol=4 * max(eps, 2.0**-20))


def test_scales_of_float64_have_its_range() -> None:
    """On the emulator: NumPy's arithmetic has no more exponents than the result."""
    a, b = np.array([[1e300, -1e-300]]).T, np.array([[1.0, 1e-4]])
    desc = GemmDescriptor(m=2, n=2, k=1, element="float64")
    rows, columns = np.array([LARGEST, 1e-38], np.float32), np.array([1e-38, LARGEST], np.float32)
    got = call(GemmPlan, desc, ("y",), "emulator", SIMT, a=a, b=b, scale_a=rows, scale_b=columns)["y"]
    wide = np.longdouble
    with np.errstate(over="ignore", under="ignore"):
        exact = (a.astype(wide) @ b.astype(wide)) * rows.astype(wide)[:, None] * columns.astype(wide)
        np.testing.assert_allclose(got, exact.astype(np.float64), rtol=1e-12)
