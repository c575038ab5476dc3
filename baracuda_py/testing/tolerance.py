"""Is a result within its bound? One function, `check`, for the tiers of `baracuda_py.core.error_bound`.

The truth is the reference in float64 (longdouble for float64 results), not yet rounded to the element. NaN and
infinities must sit where the truth has them; a finite truth may overflow only if the bound reaches the range's edge.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from baracuda_py.core.element import Array, ElementKind, cast, decode
from baracuda_py.core.error_bound import Backward, Exact, Forward, OneBound, Relative, Ulp

_WITHOUT_INF = (ElementKind.FP8E4M3, ElementKind.E8M0)  # where an overflow shows as NaN


def ulp(x: Any, element: Any) -> Array:
    """The gap of `element` at `x`: that of its binade, subnormals included; a non-finite `x` counts as the largest.

    For a complex `x` it is the gap of a part of the size of |x|, beyond the range too.
    """
    kind = ElementKind.of(element)
    values = np.asarray(x)
    plain = values if values.dtype.kind == "c" or values.dtype == np.longdouble else values.astype(np.float64)
    size = np.abs(plain)
    if not kind.is_inexact:
        return np.ones(size.shape)
    largest, smallest = np.float64(kind.limits.max), np.float64(2.0) ** kind.limits.min_exponent
    known = np.isfinite(size) if kind.is_complex else ~np.isnan(size)
    highest = np.inf if kind.is_complex else largest
    exponent = np.frexp(np.clip(np.where(known, size, largest), smallest, highest))[1]
    return np.asarray(np.ldexp(np.ones((), size.dtype), exponent - 1 - kind.limits.digits))


def check(
    bound: OneBound, actual: Any, truth: Any, *, element: Any, low: Any = None, scale: Any = None, acc: Any = None
) -> str | None:
    """None when `actual` keeps the bound, otherwise a sentence with the worst coordinate, what it is and should be.

    low: the formula step by step in the op's own dtypes (`Relative`). scale: the reference on absolute values, and acc:
    the element sums are kept in, if not the usual one (`Forward`). `actual` may be a carrier (uint8 for fp8).
    """
    kind = ElementKind.of(element)
    got, wanted = np.asarray(actual), np.asarray(truth)
    if got.dtype not in (kind.dtype, kind.carrier):
        return f"{kind}: the result has dtype {got.dtype}, expected {kind.dtype}"
    got, wanted = decode(got, kind), _values(wanted, kind)
    if got.shape != wanted.shape:
        return f"{kind}: the result has shape {got.shape}, expected {wanted.shape}"
    if got.size == 0:
        return None
    with np.errstate(all="ignore"):
        if isinstance(bound, Exact) or kind.dtype == np.bool_ or (isinstance(bound, Forward) and kind.is_integer):
            rounded = cast(wanted, kind)
            same = _same(got, rounded, isinstance(bound, Exact) and bound.signed_zero)
            return _report(bound, kind, got, rounded, ~same, _distance(got, rounded, kind), np.zeros(got.shape))
        error = _distance(got, wanted, kind)
        if isinstance(bound, Ulp):
            allowed = np.longdouble(bound.n) * ulp(wanted, kind)  # n ulp of a subnormal float64 may be no float64
        elif isinstance(bound, Relative):
            own = _low_error(low, wanted, kind)
            allowed = bound.k * np.max(own) + (1 if own.size >= _SCARCE else _ROUNDINGS) * ulp(wanted, kind)
        elif isinstance(bound, Backward):
            raise TypeError("a backward error is one of all results, by the plan's `residual`")
        else:
            allowed = _forward(bound, wanted, scale, kind, kind.acc if acc is None else ElementKind.of(acc))
        outside = np.isinf(error) | ~((error <= allowed) | (error == 0))
        message = _report(bound, kind, got, wanted, outside, error, allowed)
        if message is None and isinstance(bound, Relative):
            message = _mean(bound, kind, wanted, error, own)
        return message


def assert_within(bound: OneBound, actual: Any, truth: Any, *, element: Any, **yardsticks: Any) -> None:
    """`check`, raising AssertionError."""
    message = check(bound, actual, truth, element=element, **yardsticks)
    if message is not None:
        raise AssertionError(message)


def _values(x: Array, kind: ElementKind) -> Array:
    return decode(x, kind) if x.dtype == kind.carrier else x


def _widen(x: Array, kind: ElementKind) -> Array:
    """`x` in a real or complex dtype in which differences of `kind` are (all but) exact."""
    longdouble = kind.is_integer or kind.limits.digits > 23
    real = np.longdouble if longdouble else np.float64
    return x.astype(np.result_type(real, np.complex64) if kind.is_complex else real)


def _same(got: Array, wanted: Array, signed_zero: bool) -> Array:
    if got.dtype.kind == "c":
        return _same(got.real, wanted.real, signed_zero) & _same(got.imag, wanted.imag, signed_zero)
    nan = np.asarray((got != got) & (wanted != wanted))
    same = np.asarray(got == wanted)
    if signed_zero:
        same &= np.signbit(got.astype(np.float32)) == np.signbit(wanted.astype(np.float32))
    equal: Array = same | nan
    return equal


def _distance(got: Array, wanted: Array, kind: ElementKind) -> Array:
    """|got - wanted|: 0 where both are the same infinity or NaN, inf where one of them is and the other is not."""
    got, wanted = _widen(got, kind), _widen(wanted, kind)
    if kind.is_complex:
        parts = [_real_distance(got.real, wanted.real, kind), _real_distance(got.imag, wanted.imag, kind)]
        # Where both parts leave the range one may lie far below the other, of which the bound then says nothing; and
        # where neither is finite a NaN does, since the infinite products that a part is the sum of may differ in sign.
        beyond = np.minimum(np.abs(wanted.real), np.abs(wanted.imag)) > kind.limits.max
        infinite, finite = np.isinf(got) & (np.minimum(*parts) == 0), np.isfinite(got.real) | np.isfinite(got.imag)
        return np.where(beyond & np.where(finite, infinite, True), 0, np.hypot(*parts))
    return _real_distance(got, wanted, kind)


def _real_distance(got: Array, wanted: Array, kind: ElementKind) -> Array:
    if kind in _WITHOUT_INF:
        got = np.where(np.isnan(got) & ~np.isnan(wanted), np.copysign(np.inf, wanted), got)
    # An overflow counts as the first value beyond the range, so that it is near to a truth near the edge.
    edge = got.dtype.type(kind.limits.max) + ulp(kind.limits.max, kind)
    overflow = np.isinf(got) & np.isfinite(wanted)
    error = np.abs(np.where(overflow, np.copysign(edge, got), got) - wanted)
    fine = (got == wanted) | (np.isnan(got) & np.isnan(wanted)) | (overflow & (wanted * np.sign(got) >= edge))
    return np.where(fine, 0, np.where(np.isnan(error), np.inf, error))


def _low_error(low: Any, wanted: Array, kind: ElementKind) -> Array:
    """How far the low-precision evaluation is off; where it blew up it is no excuse, and counts as right."""
    if low is None:
        raise TypeError("Relative needs low=: the formula evaluated in the op's own dtypes")
    value = _values(np.asarray(low), kind)
    if value.shape != wanted.shape:
        raise ValueError(f"low has shape {value.shape}, the truth {wanted.shape}")
    error = _distance(value, wanted, kind)
    return np.where(np.isfinite(_widen(value, kind)) & np.isfinite(error), error, 0)


def _forward(bound: Forward, wanted: Array, scale: Any, kind: ElementKind, acc: ElementKind) -> Array:
    if scale is None:
        raise TypeError("Forward needs scale=: the reference on absolute values")
    total = np.broadcast_to(np.abs(_widen(np.asarray(scale), kind)), wanted.shape)
    summing = bound.c * np.maximum(acc.limits.eps * total, acc.limits.tiny)
    rounding = np.maximum(kind.limits.eps * np.abs(_widen(wanted, kind)), kind.limits.tiny)
    return np.where(total == 0, 0, summing + rounding)  # a sum of zeros is zero


_FEW = 64  # results below which a mean says no more than the worst
_SCARCE = 48  # results below which their worst error in the own dtypes may be small by chance
_ROUNDINGS = 4  # ulp that are allowed for then, in place of one


def _mean(bound: Relative, kind: ElementKind, wanted: Array, error: Array, low: Array) -> str | None:
    finite = np.isfinite(_widen(wanted, kind))
    if np.count_nonzero(finite) < _FEW:  # too few for a mean to say more than the worst does
        return None
    mean = float(np.mean(error[finite]))
    allowed = float(bound.mean * np.mean(low[finite]) + 0.5 * np.mean(ulp(wanted[finite], kind)))
    if mean <= allowed:
        return None
    return f"{kind}, {bound}: mean error {mean:.4g}, allowed {allowed:.4g}"


def _report(
    bound: OneBound, kind: ElementKind, got: Array, wanted: Array, outside: Array, error: Array, allowed: Array
) -> str | None:
    if not outside.any():
        return None
    excess = np.where(outside, error - allowed, -1)
    index = np.unravel_index(int(np.argmax(excess)), got.shape)
    place = tuple(int(i) for i in index)
    steps = float(error[index] / ulp(wanted[index], kind))
    return (
        f"{kind}, {bound}: {int(np.count_nonzero(outside))} of {got.size} outside; worst at {place}: got {got[index]}, "
        f"expected {wanted[index]}, error {float(error[index]):.4g} ({steps:.3g} ulp), "
        f"allowed {float(allowed[index]):.4g}"
    )
