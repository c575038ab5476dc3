"""Gradients of the gated RMS norm over few columns, whose terms nearly cancel, are within their bound with room."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py.core import Relative
from baracuda_py.core.element import ElementKind
from baracuda_py.ops.norm.gated_rms_norm import GatedRMSNormDescriptor
from baracuda_py.ops.norm.gated_rms_norm_backward import GatedRMSNormBackwardPlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.tolerance import check
from baracuda_py.testing.truth import Truth

DRAWS = 120


def as_the_kernel(desc: Any, dy: Any, x: Any, z: Any, weight: Any) -> np.ndarray:
    """dx in the order of the kernel: sums by multiply-adds along the row, the mean by a rounded rstd."""
    dtype = desc.acc.dtype.type
    wide = np.longdouble if dtype is np.float64 else np.float64
    dy, x, z = (one.astype(dtype) for one in (dy, x, z))
    silu = z * (1 / (1 + np.exp(-z.astype(wide)))).astype(dtype)
    b, g = (x, dy * silu) if desc.norm_before_gate else (x * silu, dy)
    slope = g if weight is None else g * weight.astype(dtype)
    squares = dots = np.zeros((*x.shape[:-1], 1), dtype)
    for k in range(desc.cols):
        one = b[..., k : k + 1].astype(wide)
        squares = (one * one + squares).astype(dtype)
        dots = (slope[..., k : k + 1] * one + dots).astype(dtype)
    rstd = dtype(1) / np.sqrt(squares / dtype(desc.cols) + dtype(desc.eps))
    mean = dots * rstd / dtype(desc.cols)
    da = (slope - b * rstd * mean) * rstd
    return np.asarray(da if desc.norm_before_gate else da * silu)


@pytest.mark.parametrize("cols", [1, 2, 3, 4])
@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64"])
def test_dx_is_within_three_quarters_of_its_bound(element: str, cols: int) -> None:
    rng, kind = np.random.default_rng(cols), ElementKind.of(element)
    for _ in range(DRAWS):
        desc = GatedRMSNormDescriptor(
            batch_shape=int(rng.integers(1, 4)), groups=1, cols=cols, eps=float(10 ** rng.uniform(-8, -2)),
            norm_before_gate=bool(rng.integers(2)), element=element, weight_element=element,
        )  # fmt: skip
        given = {"weight": bool(rng.integers(2)), "dx": True, "dz": False, "dweight": False}
        case = fill(GatedRMSNormBackwardPlan, desc, rng, given)
        got = as_the_kernel(desc, *(case.arrays[name] for name in ("dy", "x", "z", "weight")))
        truth = Truth(case)
        bound = Relative(3 * 0.75)
        message = check(
            bound, got.astype(kind.dtype), truth._truth["dx"], element=kind, low=truth._low(bound)["dx"]
        )  # fmt: skip
        assert message is None, (desc, message)
