"""matmul_w4a8: rows of int8 of any shape by weights of 4 bits, as one matrix."""

from __future__ import annotations

import math
from typing import Any

from ...core import Array
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.views import broadcast, reshaped, rows_of, shape_of
from ..quantize.format_kinds import FormatKind
from .w4a8_gemm import W4A8GemmPlan, w4a8_gemm


@entry(W4A8GemmPlan, kind=FormatKind.INT4)
def matmul_w4a8(
    x: Array, codes: Array, scales: Array, zeros: Array | None = None, *, x_scale: Array | None = None,
    bias: Array | None = None, kind: Any = None, out_element: Any = "float32", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x_scale · (x @ Wᵀ) + bias of int8 x [*, k] by weights W [n, k] of 4 bits: the result is [*, n] (W4A8).

    x and x_scale are what `dynamic_quantize(…, scope="token")` makes: a float32 scale for each row, [*] or [*, 1], or
    one for all. codes, scales and zeros are what `block_quantize` makes of kind int4, or uint4, with uint8 zero points:
    uint8 [n, k / 2], and [n, k / group]; kind says which, by default uint4 where there are zeros. bias [n] is in
    out_element, that of the result: float32, float16 or bfloat16. Sums of a group are exact; see `W4A8GemmPlan`. There
    is no gradient.
    """
    shape, stored = shape_of(x, "x"), shape_of(codes, "codes")
    if not shape or len(stored) != 2:
        raise InvalidProblemError(
            f"x must be [*, k] and codes [n, k / 2], got shapes {shape} and {stored}; w4a8_gemm takes batches"
        )
    wanted, given = (*shape[:-1], stored[0]), out[0] if isinstance(out, (list, tuple)) and len(out) == 1 else out
    if given is not None and shape_of(given, "out") != wanted:
        raise InvalidProblemError(f"out must have shape {wanted}, got {shape_of(given, 'out')}")
    y = w4a8_gemm(
        x=_rows(x, "x"), codes=codes, scales=scales, zeros=zeros, scale_x=_scale_of_rows(x_scale, shape[:-1]),
        bias=bias, kind=(FormatKind.INT4 if zeros is None else FormatKind.UINT4) if kind is None else kind,
        element=out_element, out=None if given is None else _rows(given, "out"), stream=stream, preference=preference,
    )  # fmt: skip
    return given if given is not None else y if len(shape) == 2 else reshaped(y, wanted, "y")


def _rows(x: Array, name: str) -> Array:
    """x as one matrix."""
    rows = rows_of(x, name)
    if rows is None:
        raise UnsupportedError(f"{name} of shape {shape_of(x, name)} must have even rows; a contiguous copy has them")
    return rows


def _scale_of_rows(x_scale: Array | None, lead: tuple[int, ...]) -> Array | None:
    """One for each row of the matrix."""
    if x_scale is None:
        return None
    shape, rows = shape_of(x_scale, "x_scale"), math.prod(lead)
    if shape not in (lead, (*lead, 1), (), (1,)):
        raise InvalidProblemError(f"x_scale must have shape {lead}, {(*lead, 1)} or (), got {shape}")
    alone = shape not in (lead, (*lead, 1))
    found = reshaped(x_scale, (1,) if alone else (rows,), "x_scale")
    if found is None:
        raise UnsupportedError(f"x_scale of shape {shape} must have even steps; a contiguous copy has them")
    return broadcast(found, (rows,), "x_scale") if alone else found
