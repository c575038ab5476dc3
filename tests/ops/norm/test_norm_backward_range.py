"""Gradients of norms whose rows lie at the ends of the range, from the statistics the forward saves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py.core.element import ElementKind, cast
from baracuda_py.ops.norm.layer_norm import LayerNormDescriptor, LayerNormPlan
from baracuda_py.ops.norm.layer_norm_backward import LayerNormBackwardDescriptor, LayerNormBackwardPlan
from baracuda_py.ops.norm.rms_norm import RMSNormDescriptor, RMSNormPlan
from baracuda_py.ops.norm.rms_norm_backward import RMSNormBackwardDescriptor, RMSNormBackwardPlan
from baracuda_py.testing.places import call

OPS = {
    "rms_norm": (RMSNormPlan, RMSNormDescriptor, RMSNormBackwardPlan, RMSNormBackwardDescriptor),
    "layer_norm": (LayerNormPlan, LayerNormDescriptor, LayerNormBackwardPlan, LayerNormBackwardDescriptor),
}
BOUND = {"float16": 2e-3, "bfloat16": 1.2e-2, "float32": 4e-6, "float64": 1e-13}


def _rows(kind: ElementKind, cols: int) -> np.ndarray:
    rng = np.random.default_rng(cols)
    top = float(kind.limits.max)
    low = float(np.ldexp(1.0, kind.limits.min_exponent // 2))
    sizes = [low, 1e-3, 1.0, 100.0, np.sqrt(top), top / 8]
    rows = [size * rng.standard_normal(cols) for size in sizes]
    rows += [np.full(cols, top), np.where(np.arange(cols) % 2, top, -top / 2)]
    return np.array(cast(np.clip(np.stack(rows), -top, top), kind))


def _truth(op: str, x: Any, dy: Any, eps: float) -> np.ndarray:
    """dx in longdouble, the statistics its own."""
    z, g = x.astype(np.longdouble), dy.astype(np.longdouble)
    mean = z.mean(axis=1, keepdims=True) if op == "layer_norm" else 0
    equal = z.max(axis=1, keepdims=True) == z.min(axis=1, keepdims=True)
    d = np.where(equal & (op == "layer_norm"), 0, z - mean)
    rstd = 1 / np.sqrt((d * d).mean(axis=1, keepdims=True) + eps)
    xhat = d * rstd
    centre = g.mean(axis=1, keepdims=True) if op == "layer_norm" else 0
    return np.asarray(rstd * (g - centre - xhat * (g * xhat).mean(axis=1, keepdims=True)))


@pytest.mark.parametrize("cols", [40, 1000, 20000])
@pytest.mark.parametrize("element", BOUND)
@pytest.mark.parametrize("op", OPS)
def test_dx_of_rows_over_the_range(place: str, op: str, element: str, cols: int) -> None:
    """Within the element's rounding of the row's largest gradient, from what the same place saved."""
    forward, descriptor, backward, descriptor_back = OPS[op]
    kind, eps = ElementKind.of(element), 1e-5
    x = _rows(kind, cols)
    dy = np.random.default_rng(1).standard_normal(x.shape).astype(kind.dtype)
    statistics = ("mean", "rstd") if op == "layer_norm" else ("rstd",)
    desc = descriptor(batch_shape=len(x), normalized_shape=cols, eps=eps, element=kind)
    saved = call(forward, desc, (*statistics, "y"), place, x=x)
    saved.pop("y")
    desc = descriptor_back(batch_shape=len(x), normalized_shape=cols, element=kind)
    dx = call(backward, desc, ("dx",), place, dy=dy, x=x, **saved)["dx"].astype(np.longdouble)
    expected = _truth(op, x, dy, eps)
    size = np.abs(expected).max(axis=1, keepdims=True)
    # rstd of the largest rows is subnormal in the accumulator: it holds fewer digits.
    least = float(np.ldexp(1.0, kind.limits.min_exponent - kind.limits.digits))
    acc = float(kind.acc.limits.eps) * 2.0 ** (kind.acc.limits.min_exponent)
    rstd = size * 0 + 1 / np.sqrt((x.astype(np.longdouble) ** 2).mean(axis=1, keepdims=True) + eps)
    allowed = BOUND[element] * size + least + size * np.minimum(1, 4 * acc / rstd)
    assert (np.abs(dx - expected) <= allowed).all(), (np.abs(dx - expected) / size).max(axis=1)
