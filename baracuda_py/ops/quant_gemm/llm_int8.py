"""llm_int8_linear: a layer of int8 weights whose input keeps a few columns of large numbers in its own element."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from ...core import Array, ElementKind
from ...calls.composed import composed
from ...calls.entries import entry
from ...core.checked import real, whole
from ...core.errors import InvalidProblemError
from ...core.outputs import beside
from ...core.views import shape_of, transposed, with_axis
from ...expressions.elementwise import Expression, elementwise
from ...expressions.reduce import reduce as reduction
from ...core.arrays import read
from ..gemm.matmul import matmul
from ..indexing.scatter import scatter
from ..indexing.take import take
from ..layout.creation import zeros
from ..sort.topk import topk
from .layers import quantized_linear, quantized_linear_backward
from .lines import over_rows
from .quantized_linear import QuantizedLinearPlan


@cache
def _formula(text: str) -> Expression:
    return elementwise(text)


@cache
def _peaks() -> Any:
    return reduction("abs(x)", "amax", axis=0)


@composed("llm_int8_linear_backward", "x")
@entry(QuantizedLinearPlan)
def llm_int8_linear(
    x: Array, weight: Array, scale: Array, bias: Array | None = None, *, threshold: float = 6.0,
    max_outliers: int = 128, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x @ (scale · weight)ᵀ + bias of int8 weights [out, in], columns of x with outliers in 16 bits (LLM.int8).

    A column of x [*, in] with |x| >= threshold in any row is multiplied as it is, by weights rounded to x's element; of
    the others each row is quantised to int8 by its own max |x| / 127 and multiplied exactly, as `quantized_linear` does
    (Dettmers et al., LLM.int8(), 2022; bitsandbytes' Linear8bitLt, whose SCB is 127 · scale). x is float32, float16 or
    bfloat16, and so are bias and result; scale is float32, one number or [out].

    No more than max_outliers columns are outliers, those with the largest |x|, of equal ones the first: their count is
    known on the device alone, and the product of so many is always made. What is beyond is quantised with the rest. A
    threshold of 0 finds none, and columns with NaN are none. What is an outlier depends on all rows of x. The quantised
    part is rounded to x's element before the other is added to it. The gradient, for x alone, is straight through.
    """
    limit, most = real("threshold", threshold), whole("max_outliers", max_outliers, 0)
    if not limit >= 0 or math.isinf(limit):
        raise InvalidProblemError(f"threshold must be a finite number of at least 0, got {threshold}")
    options = {"stream": stream, "preference": preference}
    stored, shape, element = shape_of(weight, "weight"), shape_of(x, "x"), read(x, "x").element
    if len(stored) != 2 or not shape or shape[-1] != stored[1]:
        raise InvalidProblemError(f"x must be [*, in] and weight [out, in], got {shape} and {stored}")
    most = min(most, stored[1])
    if not limit or not most or 0 in (*shape, *stored):
        return quantized_linear(x, weight, scale, bias, out=out, **options)

    def product(rows: Any, to: Any) -> Any:
        peaks, columns = topk(_peaks()(x=rows, **options), most, **options)
        kept = _formula(f"float32(p) >= {limit!r}")(p=peaks, **options)
        with beside(x, stream):
            none = zeros(shape[-1:], ElementKind.BOOL, like=x)
        mask = scatter(none, columns, kept, axis=0, **options)
        base = quantized_linear(_formula("where(m, 0, x)")(m=mask, x=rows, **options), weight, scale, bias, **options)
        large = _formula("where(m, x, 0)")(m=kept, x=take(rows, columns, axis=1, **options), **options)
        by = with_axis(scale, -1, "scale") if shape_of(scale, "scale") else scale
        weights = _formula(f"{element}(float32(w) * s)")(w=take(weight, columns, axis=1, **options), s=by, **options)
        return matmul(large, transposed(weights, "weight"), base, out=to, **options)

    return over_rows(product, x, "x", stored[0], out)


@entry(QuantizedLinearPlan)
def llm_int8_linear_backward(
    dy: Array, x: Array, weight: Array, scale: Array, bias: Array | None = None, *, threshold: float = 6.0,
    max_outliers: int = 128, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """dx of `llm_int8_linear`, straight through the quantisation: dy @ (scale · weight), outliers or not."""
    real("threshold", threshold), whole("max_outliers", max_outliers, 0)
    return quantized_linear_backward(dy, x, weight, scale, bias, out=out, stream=stream, preference=preference)
