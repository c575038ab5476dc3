"""Scales and zero points that are sought: SmoothQuant's factors, and HQQ's zero points.

These run once, when weights are quantised, and are composed of reductions and formulas; arrays of any package.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ...core import Array, ElementKind, InvalidProblemError
from ...core.checked import real, shown, whole
from ...calls.exported import exported
from ...core.views import constant, cut, shape_of
from ...expressions.elementwise import elementwise
from ...expressions.reduce import reduce
from ..layout.views import ravel, reshape
from ..reduce.reduce import max_norm  # type: ignore[attr-defined]
from .format import PART
from .format_kinds import FormatKind
from .repack import pack_codes
from .stored import kind_of

_LEAST = 1e-5  # of a column's largest weight, and of a factor
_STEPS = 4096  # of a group's largest number that a scale is at least one of: zero points then fit float16


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


@cache
def _mean(text: str) -> Any:
    return reduce(text, "mean", axis=-1, keepdims=True)


@exported
def smooth_quant_scales(x: Array, weight: Array, alpha: float = 0.5, *, stream: Any = None) -> Any:
    """SmoothQuant's factors of columns, s = max |x|^alpha / max |weight|^(1 - alpha), [in] in float32.

    x [*, in]: activations of a calibration, or [in], the largest |x| of each column so far; weight [*, in], as layers
    of one input have them below each other. `quantized_linear(x, …, smooth=s)` divides x by s, so that what is
    quantised is weight · s. alpha, from 0 to 1: how much of the range goes to the weights. As in the authors' code
    max |weight| and s are at least 10⁻⁵ (Xiao et al., SmoothQuant, 2023). There is no gradient.
    """
    alpha, shapes = real("alpha", alpha), [shape_of(x, "x"), shape_of(weight, "weight")]
    if not 0 <= alpha <= 1:
        raise InvalidProblemError(f"alpha must be from 0 to 1, got {shown(alpha)}")
    if not all(shapes) or shapes[0][-1] != shapes[1][-1]:
        raise InvalidProblemError(f"x and weight must be [*, in], got {shapes[0]} and {shapes[1]}")
    text = f"float32(maximum(pow(abs(float32(x)), a) / pow(maximum(abs(float32(w)), {_LEAST}), b), {_LEAST}))"
    return _formula(text)(
        x=_columns(x, stream), w=_columns(weight, stream), a=alpha, b=1 - alpha, stream=stream
    )  # fmt: skip


def _columns(x: Any, stream: Any) -> Any:
    """The largest size in each column; of one row the row itself."""
    axes = tuple(range(len(shape_of(x, "x")) - 1))
    return max_norm(x, axis=axes, stream=stream) if axes else x


@exported
def hqq_quantize(
    x: Array, *, kind: Any = "uint4", group: int = 64, iterations: int = 20, p: float = 0.7, beta: float = 10.0,
    kappa: float = 1.01, scale_element: Any = "float32", zero_element: Any = "float32", stream: Any = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """(codes, scales, zeros) of x [*, n, k] as `block_quantize` makes them, with zero points that HQQ finds.

    Half-quadratic quantisation (Badri & Shaji 2023): with a scale (max - min) / (2ⁿ - 1) for each group of `group`
    neighbours, zeros minimise Σ |x - (code - zero) scale|^p, p below 1, by `iterations` of a shrinkage of the errors
    e, sign(e) max(|e| - |e|^(p - 1) / beta, 0), and of the mean that is the best zero for it; beta grows by kappa each
    time. Of all zeros seen each group keeps the one of the smallest mean |e|, where the authors' code stops all groups
    together, which the host would have to wait for. A scale is at least 1 / 4096 of the largest |x| of its group. NaN
    or infinity makes NaN of its group.

    kind: uint8, uint4, uint3 or uint2. scale_element: float32, float16 or bfloat16; zero_element one of these. For
    `block_dequantize`, `block_gemm` and others. Two launches an iteration that read x, and three of a number for each
    group. There is no gradient.
    """
    form = kind_of(kind)
    if form not in _BITS:
        raise InvalidProblemError(f"kind must be one of {', '.join(k.value for k in _BITS)}, got {form.value}")
    shape, group = shape_of(x, "x"), whole("group", group, 1)
    if len(shape) < 2 or shape[-1] % group or group % PART:
        raise InvalidProblemError(
            f"x must be [*, n, k], k a multiple of group, and that one of {PART}, got shape {shape}, group {group}"
        )
    for name, value in (("p", p), ("beta", beta), ("kappa", kappa)):
        if not real(name, value) > 0:
            raise InvalidProblemError(f"{name} must be above 0, got {shown(value)}")
    bits, options = _BITS[form], {"stream": stream}
    holds, zero_holds = ElementKind.of(scale_element), ElementKind.of(zero_element)
    top, groups = float(2**bits - 1), (*shape[:-1], shape[-1] // group)
    v = reshape(x, (*groups, group))
    low, high = (reduce("float32(v)", of, axis=-1, keepdims=True)(v=v, **options) for of in ("amin", "amax"))
    size = "maximum(abs(l), abs(h))"
    text = f"{holds}(maximum((h - l) / top, {size} / {_STEPS}) if {size} != 0 else 1)"
    s = _formula(text)(l=low, h=high, top=top, **options)
    held = f"{zero_holds}({{}})"
    z = _formula(held.format("-l / float32(s)"))(l=low, s=s, **options)
    given = {"v": v, "s": s, "top": top, **options}
    code = "clamp(rint(float32(v) / float32(s) + float32(z)), 0, top)"
    error = f"(float32(v) - ({code} - float32(z)) * float32(s))"
    shrunk = f"(sign({error}) * maximum(abs({error}) - pow(abs({error}), p - 1) / beta, 0))"
    best, least = z, _mean(f"abs({error})")(z=z, **given)
    for step in range(whole("iterations", iterations, 0)):
        mean = _mean(f"{code} - (float32(v) - {shrunk}) / float32(s)")
        z = _formula(held.format("m"))(m=mean(z=z, p=p, beta=beta * kappa**step, **given), **options)
        found = _mean(f"abs({error})")(z=z, **given)
        best = _formula(held.format("z if e < f else y"))(z=z, y=best, e=found, f=least, **options)
        least = _formula("minimum(e, f)")(e=found, f=least, **options)
    codes = _formula(f"uint8({code})")(z=best, **given)
    return pack_codes(reshape(codes, shape), bits), reshape(s, groups), reshape(best, groups)


@exported
def choose_qparams_optimized(
    x: Array, numel: int | None = None, n_bins: int = 200, ratio: float = 0.16, bit_width: int = 4, *,
    axis: int | None = None, stream: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(xmax, xmin), [1] in float32: the range that codes of `bit_width` bits should span (torch's function).

    A greedy search: from the range of x, of `n_bins` steps, it takes away a step from the end that leaves the smaller
    loss, down to `int(n_bins (1 - ratio))` steps, and keeps the best range whose both neighbours are worse. The loss is
    ‖x - x'‖ of x' = clamp(rint((x - low) / s), 0, 2ᵇ - 1) s + low, where low is xmin and s is (xmax - low) / (2ᵇ - 1),
    both rounded to float16. x: float32, float16 or bfloat16; numel: how many of its elements count, the first ones.
    axis=-1: a search for each row, all at once, and results of x's shape without its last axis.

    Sums of squares are trees here, torch's one after the other: results are torch's where no two losses that are
    compared are as near as that. Nothing is read back: all rows take `n_bins - int(n_bins (1 - ratio)) + 2` steps of
    three launches, two of them reading x, and keep what they had at their end. A NaN makes its row NaN. There is no
    gradient.
    """
    shape = shape_of(x, "x")
    if axis is not None and (not shape or whole("axis", axis) not in (-1, len(shape) - 1)):
        raise InvalidProblemError(f"axis must be None or the last, got {shown(axis)} of shape {shape}")
    rows = constant(x if axis is not None else ravel(x))
    lead, count = shape_of(rows, "x")[:-1], shape_of(rows, "x")[-1]
    taken = count if numel is None else whole("numel", numel, 1)
    if not 0 < taken <= count:
        raise InvalidProblemError(
            f"numel must be from 1 to the {count} elements of {'a row' if lead else 'x'}, got {taken}"
        )
    bins, part = whole("n_bins", n_bins, 1), real("ratio", ratio)
    if not 0 <= part <= 1:
        raise InvalidProblemError(f"ratio must be from 0 to 1, got {shown(ratio)}")
    top, least = float(2 ** whole("bit_width", bit_width, 1, 16) - 1), int(bins * (1 - float(np.float32(part))))
    rows = cut(rows, (*[slice(None)] * len(lead), slice(0, taken, 1)), "x")
    options = {"stream": stream}
    low, high = (reduce("float32(x)", of, axis=-1, keepdims=True)(x=rows, **options) for of in ("amin", "amax"))
    step = _formula("(h - l) / n")(h=high, l=low, n=float(bins), **options)
    given = {"x": rows, "step": step, "top": top, **options}
    loss = reduce(_LOSS, axis=-1, keepdims=True)
    here = best = loss(low=low, high=high, u=0.0, v=0.0, **given)
    a, b = low, high
    for _ in range(bins - least + 2):
        left, right = (loss(low=a, high=b, u=u, v=1 - u, **given) for u in (1.0, 0.0))
        state = {"a": a, "b": b, "low": low, "high": high, "best": best, "here": here}
        a, b, low, high, best, here = _formula(_STEP)(
            **state, step=step, left=left, right=right, least=float(least), **options
        )
    shape = (1,) if axis is None else lead
    return reshape(high, shape), reshape(low, shape)


_LOSS = """_low = float32(float16(low + u * step))
_range = (high - v * step) - _low
_scale = 1.0 if _range == 0 else float32(float16(_range / top))
_by = 1 / (1.0 if _scale == 0 else _scale)
sqrt(sum(square(float32(x) - (clamp(rint((float32(x) - _low) * _by), 0, top) * _scale + _low))))"""
_STEP = """_live = a + least * step < b
_kept = _live and here < left and here < right and here < best
_left = left < right
a1 = a + step if _live and _left else a
b1 = b - step if _live and not _left else b
low1 = a if _kept else low
high1 = b if _kept else high
best1 = here if _kept else best
here1 = (left if _left else right) if _live else here"""


_BITS = {FormatKind.UINT8: 8, FormatKind.UINT4: 4, FormatKind.UINT3: 3, FormatKind.UINT2: 2}
