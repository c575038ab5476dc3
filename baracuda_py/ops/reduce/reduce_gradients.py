"""Gradients of the reductions in NumPy: a row of the table for each kind that has one.

A formula takes dy and y with an extent of 1 for every reduced axis, x, the axes and the descriptor, in the dtype they
come in, and returns dx, which broadcasts to x's shape. What a kind does not read is None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import ElementKind, Exact, Relative, Ulp
from ...core.element import HALVES, joined
from ...core.error_bound import ErrorBound
from . import reduce_formulas as formulas
from .reduce_formulas import Axes
from .reduce_kinds import ReduceKind

K = ReduceKind


def _ulps(double: float, single: float | None = None) -> Callable[[ElementKind], ErrorBound]:
    """`double` ulp for float64, `single` for float32, 16-bit floats rounded once from float32.

    Of complex numbers both parts are rounded, and products are made of two.
    """

    def bound(element: ElementKind) -> ErrorBound:
        if element.is_complex:
            return Ulp(double * 3 if element is ElementKind.C128 or single is None else single + 0.25)
        if element in HALVES:
            return Ulp(0.51)
        return Ulp(double if element is ElementKind.F64 or single is None else single)

    return bound


def _relative(element: ElementKind) -> ErrorBound:
    return Relative()


def _exact(element: ElementKind) -> ErrorBound:
    return Exact()


def _directed(real: Callable[[ElementKind], ErrorBound]) -> Callable[[ElementKind], ErrorBound]:
    """`real`, but of complex numbers that of x / |x| times a share: |x| within 2 ulp, three roundings."""
    of_complex = {ElementKind.C64: Ulp(0.751), ElementKind.C128: Ulp(7)}
    return lambda element: of_complex.get(element) or real(element)


@dataclass(frozen=True)
class Slope:
    """A row: the formula, what it reads, whether launches find statistics of the rows first, and the bound.

    exactly: (y as it is, y as it is stored, descriptor) → what a gradient by the former is multiplied by to be that of
    the latter, for a comparison with what does not take y.
    """

    formula: Callable[[Any, Any, Any, Axes, Any], Any]
    bound: Callable[[ElementKind], ErrorBound]
    x: bool = True
    y: bool = False
    statistics: bool = False
    exactly: Callable[[Any, Any, Any], Any] | None = None


def sign(x: Any) -> Any:
    """-1, 0 or 1; 0 of NaN, as in PyTorch. Of a complex number x / |x|; NaN in both parts where x is not finite."""
    if x.dtype.kind == "c":
        size = np.abs(x)
        return formulas.all_or_nothing(np.where(size == 0, x, joined(x.real / size, x.imag / size)).astype(x.dtype))
    return np.where(np.isnan(x), x.dtype.type(0), np.sign(x))


def times(z: Any, by: Any) -> Any:
    """z times a real number, of complex numbers part by part."""
    return joined(z.real * by, z.imag * by) if z.dtype.kind == "c" else z * by


def divided(dy: Any, count: int) -> Any:
    """dy / count, of complex numbers part by part."""
    n = dy.real.dtype.type(count)
    return joined(dy.real / n, dy.imag / n) if dy.dtype.kind == "c" else dy / n


def alike(x: Any, value: Any) -> Any:
    """Where x is `value`, NaN being NaN."""
    return (x == value) | (np.isnan(x) & np.isnan(value))


def shared(dy: Any, x: Any, value: Any, axes: Axes) -> Any:
    """dy divided evenly among the elements of x that are `value`, NaN being NaN; 0 for the others."""
    same = alike(x, value)
    share = dy / np.sum(same, axis=axes, keepdims=True).astype(x.dtype)
    return np.where(same, share, x.dtype.type(0))


def _extreme(find: Callable[..., Any], read: Callable[[Any], Any] = np.asarray) -> Callable[..., Any]:
    def formula(dy: Any, x: Any, y: Any, axes: Axes, desc: Any) -> Any:
        return shared(dy, read(x), find(read(x), axis=axes, keepdims=True), axes)

    return formula


def _size(find: Callable[..., Any]) -> Callable[..., Any]:
    extreme = _extreme(find, np.abs)

    def formula(dy: Any, x: Any, y: Any, axes: Axes, desc: Any) -> Any:
        size = np.abs(x)
        found = alike(size, find(size, axis=axes, keepdims=True))
        return np.where(found, times(sign(x), extreme(dy, x, y, axes, desc)), x.dtype.type(0))

    return formula


def _nan_extreme(find: Callable[..., Any], bottom: float) -> Callable[..., Any]:
    def formula(dy: Any, x: Any, y: Any, axes: Axes, desc: Any) -> Any:
        value = find(formulas.without_nan(x, bottom), axis=axes, keepdims=True)
        dx = shared(dy, x, value, axes)
        return np.where(np.isnan(x), x.dtype.type(0), dx)

    return formula


def both(low: Any, high: Any, x: Any, axes: Axes) -> Any:
    """low shared by the smallest elements, and high by the largest."""
    ends = (low, np.min(x, axis=axes, keepdims=True)), (high, np.max(x, axis=axes, keepdims=True))
    return sum(shared(dy, x, end, axes) for dy, end in ends)


def _product(dy: Any, x: Any, axes: Axes) -> Any:
    """dy times the product (its conjugate) of all other elements: of those before and of those after.

    Floats are multiplied apart from their powers of two, so that no product on the way leaves the range.
    """
    if not x.size:
        return x
    order = [a for a in range(x.ndim) if a not in axes] + list(axes)
    back, shape = np.argsort(order), [x.shape[a] for a in order]
    if x.dtype.kind != "c":
        flat = formulas.rows(x, axes)
        (before, low), (after, high) = _before(flat), _before(flat[..., ::-1])
        others, power = (
            (part.reshape(shape)).transpose(back) for part in (before * after[..., ::-1], low + high[..., ::-1])
        )
        own, more = np.frexp(dy)
        return np.ldexp(own * others, power + np.where(np.isfinite(dy), more, 0))
    flat = formulas.rows(formulas.all_or_nothing(x), axes)
    one = np.ones((*flat.shape[:-1], 1), x.dtype)
    before = np.concatenate([one, flat[..., :-1]], -1).cumprod(-1)
    after = np.concatenate([one, flat[..., :0:-1]], -1).cumprod(-1)[..., ::-1]
    return dy * np.conj((before * after).reshape(shape).transpose(back))


def _before(x: Any) -> tuple[Any, Any]:
    """The product of the elements before each of a row: fractions and powers of two, in steps of doubling length."""
    part, power = np.frexp(np.concatenate([np.ones((*x.shape[:-1], 1), x.dtype), x[..., :-1]], -1))
    power = np.where(np.isfinite(part), power, 0).astype(np.int64)
    step = 1
    while step < x.shape[-1]:
        made, more = np.frexp(part[..., step:] * part[..., :-step])
        more = np.where(np.isfinite(made), more, 0) + power[..., step:] + power[..., :-step]
        part, power = (np.concatenate([old[..., :step], new], -1) for old, new in ((part, made), (power, more)))
        step *= 2
    return part, power


def _nanprod(dy: Any, x: Any, y: Any, axes: Axes, desc: Any) -> Any:
    return np.where(np.isnan(x), x.dtype.type(0), _product(dy, formulas.without_nan(x, 1), axes))


def deviations(dy: Any, x: Any, axes: Axes, correction: int) -> Any:
    """The gradient of the variance."""
    n = x.real.dtype.type(formulas.count(x, axes))
    slope, apart = dy * (n.dtype.type(2) / (n - n.dtype.type(correction))), formulas.from_mean(x, axes)
    return times(apart, slope) if x.dtype.kind == "c" else _unless_lost(slope, apart, axes)


def _unless_lost(slope: Any, apart: Any, axes: Axes) -> Any:
    """slope times deviations; an infinite one is NaN times those that are lost in the rounding of the mean."""
    known = np.where(np.isnan(apart), apart.dtype.type(0), apart)
    size = np.sqrt(np.sum(np.square(known), axis=axes, keepdims=True).astype(np.float64))  # as the kernels keep it
    lost = np.isinf(slope) & ~(np.abs(apart) > 2.0**-44 * size + 2.0**-1070)
    return np.where(lost, apart.dtype.type(np.nan), slope * apart)


def _nan_deviations(dy: Any, x: Any, axes: Axes, correction: int) -> Any:
    n = np.sum(~np.isnan(x), axis=axes, keepdims=True).astype(x.dtype)
    slope = dy * (x.dtype.type(2) / (n - x.dtype.type(correction)))
    return np.where(np.isnan(x), x.dtype.type(0), _unless_lost(slope, formulas.from_nanmean(x, axes), axes))


def under_root(dy: Any, y: Any) -> Any:
    """The gradient of y² from that of y; 0 where y is 0, as in PyTorch."""
    return np.where(y == 0, y.dtype.type(0), dy / (2 * y))


def _l2(dy: Any, x: Any, y: Any, axes: Axes, desc: Any) -> Any:
    share = joined(x.real / y, x.imag / y) if x.dtype.kind == "c" else x / y
    return np.where(y == 0, x.dtype.type(0), times(share, dy))


def power_of_ratio(dy: Any, x: Any, y: Any, power: Any) -> Any:
    """dy (x / y) ** power for magnitudes x and y whose quotient may be subnormal, or 0, where the power is in range."""
    limits = np.finfo(x.dtype)
    half = (limits.nmant - limits.minexp) // 2 + 3  # twice that many powers of 2 make every such quotient normal
    step = np.exp2(-half * power)
    near = np.power(np.ldexp(x, half) / np.ldexp(y, -half), power)
    small = np.isfinite(y) & (x / y < limits.tiny)
    found = np.where(small, dy * step * near * step, dy * np.power(x / y, power))
    return np.where(np.isinf(dy) & np.isfinite(x) & np.isfinite(y), dy, found)  # no power is 0, however small


def _p(dy: Any, x: Any, y: Any, axes: Axes, desc: Any) -> Any:
    y = formulas.p_norm(x, axes, desc.p).reshape(dy.shape)
    slope = times(sign(x), power_of_ratio(dy, np.abs(x), y, y.dtype.type(desc.p - 1)))
    return np.where((x == 0) | (y == 0), x.dtype.type(0), slope)


def _numbers(x: Any) -> Any:
    return (~np.isnan(x)).astype(x.dtype)


def _nanmean(dy: Any, x: Any, y: Any, axes: Axes, desc: Any) -> Any:
    return dy / np.sum(_numbers(x), axis=axes, keepdims=True) * _numbers(x)


def _logsumexp(dy: Any, x: Any, y: Any, axes: Axes, desc: Any) -> Any:
    top = np.max(x, axis=axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, x.dtype.type(0))
    return dy * (np.exp(x - top) / np.sum(np.exp(x - shift), axis=axes, keepdims=True))


def _ratio(exact: Any, stored: Any, desc: Any) -> Any:
    return exact / stored


_ONCE = _ulps(1.5, 0.51)  # computed in double
_SPREAD: dict[str, Any] = {"bound": _relative, "statistics": True}
_DIVIDED = _ulps(0.501, 0.501)
_SHARED: dict[str, Any] = {"bound": _DIVIDED, "statistics": True}
_DIRECTED = _directed(_DIVIDED)

GRADIENT: dict[ReduceKind, Slope] = {
    K.SUM: Slope(lambda dy, x, y, axes, desc: dy, _exact, x=False),
    K.MEAN: Slope(lambda dy, x, y, axes, desc: divided(dy, desc.count), _ulps(1, 1), x=False),
    K.PROD: Slope(lambda dy, x, y, axes, desc: _product(dy, x, axes), _ulps(4, 0.51), statistics=True),
    K.AMAX: Slope(_extreme(np.max), **_SHARED),
    K.AMIN: Slope(_extreme(np.min), **_SHARED),
    K.PTP: Slope(lambda dy, x, y, axes, desc: both(-dy, dy, x, axes), _relative, statistics=True),
    K.SUM_SQUARES: Slope(lambda dy, x, y, axes, desc: dy * x * 2, _ulps(1, 1)),
    K.L1_NORM: Slope(lambda dy, x, y, axes, desc: times(sign(x), dy), _directed(_exact)),
    K.L2_NORM: Slope(_l2, _ONCE, y=True, exactly=_ratio),
    K.P_NORM: Slope(_p, _relative, statistics=True),
    K.MAX_NORM: Slope(_size(np.max), _DIRECTED, statistics=True),
    K.MIN_NORM: Slope(_size(np.min), _DIRECTED, statistics=True),
    K.LOGSUMEXP: Slope(_logsumexp, _relative, statistics=True),
    K.LOGMEANEXP: Slope(_logsumexp, _relative, statistics=True),
    K.VAR: Slope(lambda dy, x, y, axes, desc: deviations(dy, x, axes, desc.correction), **_SPREAD),
    K.STD: Slope(
        lambda dy, x, y, axes, desc: deviations(under_root(dy, y), x, axes, desc.correction),
        y=True, exactly=_ratio, **_SPREAD,
    ),
    K.NANSUM: Slope(lambda dy, x, y, axes, desc: dy * _numbers(x), _exact),
    K.NANMEAN: Slope(_nanmean, _ulps(1, 1), statistics=True),
    K.NANPROD: Slope(_nanprod, _ulps(4, 0.51), statistics=True),
    K.NANMAX: Slope(_nan_extreme(np.max, -np.inf), **_SHARED),
    K.NANMIN: Slope(_nan_extreme(np.min, np.inf), **_SHARED),
    K.NANVAR: Slope(lambda dy, x, y, axes, desc: _nan_deviations(dy, x, axes, desc.correction), **_SPREAD),
    K.NANSTD: Slope(
        lambda dy, x, y, axes, desc: _nan_deviations(under_root(dy, y), x, axes, desc.correction),
        y=True, exactly=_ratio, **_SPREAD,
    ),
}  # fmt: skip
"""The kinds with a gradient; that of the others is 0 wherever there is one."""
