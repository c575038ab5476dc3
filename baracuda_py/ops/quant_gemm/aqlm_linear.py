"""aqlm_linear: a layer whose weights are sums of vectors of codebooks (AQLM), and its gradient."""

from __future__ import annotations

import math
from typing import Any

from ...core import Array
from ...calls.composed import composed
from ...calls.entries import entry
from ...core.errors import InvalidProblemError
from ...core.views import reshaped, shape_of
from ..gemm.linear import linear
from ..gemm.matmul import matmul
from ..quantize.aqlm_dequantize import aqlm_dequantize
from .aqlm_gemv import MOST, AqlmGemvPlan, aqlm_gemv
from .lines import over_rows


def _parts(codes: Array, codebooks: Array, scales: Array | None) -> tuple[dict[str, Any], int, int]:
    """The parts of W, with one axis of scales, and its rows and columns."""
    stored, vectors = shape_of(codes, "codes"), shape_of(codebooks, "codebooks")
    if len(stored) != 3 or len(vectors) != 4 or stored[2] != vectors[0]:
        raise InvalidProblemError(
            f"codes must be [out_groups, in_groups, books] and codebooks [books, entries, out_group, in_group], got "
            f"{stored} and {vectors}"
        )
    parts = {"codes": codes, "codebooks": codebooks}
    if scales is not None:
        if (found := shape_of(scales, "scales")) not in ((stored[0],), (stored[0], 1, 1, 1)):
            raise InvalidProblemError(f"scales must have shape {(stored[0],)}, or with 1, 1, 1 behind, got {found}")
        parts["scales"] = scales if len(found) == 1 else reshaped(scales, stored[:1], "scales")
    return parts, stored[0] * vectors[2], stored[1] * vectors[3]


@composed("aqlm_linear_backward", "x")
@entry(AqlmGemvPlan)
def aqlm_linear(
    x: Array, codes: Array, codebooks: Array, scales: Array | None = None, bias: Array | None = None, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x @ Wᵀ + bias of x [*, in] by weights as AQLM stores them, see `aqlm_dequantize`; the result is [*, out].

    codes: [out_groups, in_groups, books] of 8, 16 or 32 bits; codebooks: [books, entries, out_group, in_group]; scales:
    [out_groups], or with 1, 1, 1 behind. x, codebooks, scales, bias and the result have one element, float16, bfloat16
    or float32. Up to 8 rows of x meet the codes as they are stored, in one launch (`AqlmGemvPlan`); more go by W, which
    is dequantised in the element first. x has a gradient, the weights and bias have none.
    """
    options = {"stream": stream, "preference": preference}
    parts, n, k = _parts(codes, codebooks, scales)
    shape = shape_of(x, "x")
    if not shape or shape[-1] != k:
        raise InvalidProblemError(f"x must be [*, {k}] as codes and codebooks have inputs, got {shape}")
    if math.prod(shape[:-1]) <= MOST:
        return over_rows(lambda rows, to: aqlm_gemv(rows, bias=bias, out=to, **parts, **options), x, "x", n, out)
    return linear(x, aqlm_dequantize(**parts, **options), bias, out=out, **options)


@entry(AqlmGemvPlan)
def aqlm_linear_backward(
    dy: Array, x: Array, codes: Array, codebooks: Array, scales: Array | None = None, bias: Array | None = None, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """dx of `aqlm_linear`: dy @ W, with W dequantised first. x tells its shape alone."""
    del bias
    options = {"stream": stream, "preference": preference}
    parts, n, k = _parts(codes, codebooks, scales)
    if shape_of(x, "x")[-1:] != (k,) or shape_of(dy, "dy") != (*shape_of(x, "x")[:-1], n):
        raise InvalidProblemError(
            f"dy [*, {n}] and x [*, {k}] must have the same rows, got {shape_of(dy, 'dy')} and {shape_of(x, 'x')}"
        )
    return matmul(dy, aqlm_dequantize(**parts, **options), out=out, **options)
