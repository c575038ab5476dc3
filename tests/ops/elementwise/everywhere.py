"""Inputs over the whole range of an element, and what results of kernels are compared with."""

from __future__ import annotations

import numpy as np
import truth

from baracuda_py.core.element import ElementKind
from baracuda_py.core.error_bound import Relative
from baracuda_py.ops.elementwise.binary_kinds import BinaryKind
from baracuda_py.ops.elementwise.unary_kinds import UnaryKind, slope_bound
from baracuda_py.testing.draw import everywhere
from baracuda_py.testing.tolerance import check

COUNT = {2: 2**16, 4: 2000, 8: 600}


# A value for each coefficient that torch gives none.
OWN = {"threshold": {"threshold": 0.5, "value": -3.0}, "polygamma": {"n": 2}, "multigammaln": {"p": 3}}


def own(kind: UnaryKind) -> dict[str, float]:
    """What a call of the kind must be given."""
    return OWN.get(kind.value, {})


def coefficients(kind: UnaryKind, element: ElementKind) -> tuple[float, ...]:
    """Those of such a call as kernels have them: rounded to the accumulator."""
    given = own(kind)
    values = ((given.get(one.name, one.default_for(element)), one.absent) for one in kind.row.coefficients)
    return tuple(float(element.acc.dtype.type(absent if c is None else c)) for c, absent in values)


def inputs(element: ElementKind) -> np.ndarray:
    """Every finite 16-bit float, some thousands of the wider ones."""
    named = {p for kind in UnaryKind for p in (*kind.row.points, *coefficients(kind, element)) if abs(p) < 1e30}
    return truth.points(element, COUNT[element.itemsize], tuple(sorted(named)))


def wide(x: np.ndarray, element: ElementKind) -> np.ndarray:
    """x in a type with more digits and exponents."""
    return x.astype(np.longdouble if element is ElementKind.F64 else np.float64)


def forward(kind: UnaryKind, element: ElementKind, x: np.ndarray) -> np.ndarray:
    """The row's formula of x in more digits."""
    w = wide(x, element)
    with np.errstate(all="ignore"):
        return np.asarray(kind.row.formula(w, *(w.dtype.type(c) for c in coefficients(kind, element))))


def slope(kind: UnaryKind, element: ElementKind, dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The row's gradient of dy and x in more digits."""
    w, d = wide(x, element), wide(dy, element)
    with np.errstate(all="ignore"):
        return np.asarray(kind.row.gradient(d, w, *(w.dtype.type(c) for c in coefficients(kind, element))), w.dtype)


def scale_of(kind: UnaryKind, dy: np.ndarray, x: np.ndarray) -> np.ndarray:
    """At least the size of both terms of a slope that crosses zero, times |dy|."""
    size = np.maximum(np.abs(x), 1e-300)
    tail = np.abs(kind.row.formula(-size)) * (1 / size + 1 + size)
    return np.abs(dy) * np.where(x < 0, tail, 1)


FEW = 7  # of so many results one is compared with mpmath where a bound is relative to terms


def wrong_forward(element: ElementKind, kind: UnaryKind, x: np.ndarray, got: np.ndarray) -> str | None:
    """What a kernel's f(x) gets wrong, or None."""
    wanted, bound = forward(kind, element, x), kind.row.error(element)
    if isinstance(bound, Relative):
        scale = truth.scale(kind.value, x[::FEW], *coefficients(kind, element))
        return truth.within_terms(element, got[::FEW], wanted[::FEW], scale)
    return check(bound, got, wanted, element=kind.row.result(element))


def wrong_gradient(element: ElementKind, kind: UnaryKind, dy: np.ndarray, x: np.ndarray, got: np.ndarray) -> str | None:
    """What a kernel's dy f'(x) gets wrong, or None."""
    wanted = slope(kind, element, dy, x)
    bound = slope_bound(element, kind)
    if not isinstance(bound, Relative):
        return check(bound, got, wanted, element=element)
    if kind.value in truth.GATES:
        return truth.within_terms(element, got, wanted, scale_of(kind, wide(dy, element), wide(x, element)))
    some = np.flatnonzero(np.isin(x.astype(np.float64), truth.POLES.get(kind.value, ()), invert=True))[::FEW]
    scale = truth.gradient(kind.value, dy[some], x[some], *coefficients(kind, element))[1]
    return truth.within_terms(element, got[some], wanted[some], scale)


def report(found: dict[str, str | None]) -> None:
    """Fail with every message there is."""
    wrong = {name: message for name, message in found.items() if message}
    assert not wrong, "\n".join(f"{name}: {message}" for name, message in wrong.items())


RTOL, ATOL = 0.25, 0.125


def pairs(element: ElementKind) -> tuple[np.ndarray, np.ndarray]:
    """Two operands: values of all sizes beside values of all sizes, beside themselves, and beside numbers near them."""
    rng = np.random.default_rng(element.bits)
    if element.is_float:
        x = inputs(element)
        x = x[rng.permutation(x.size)[:6000]]
    else:
        x = everywhere(element, (3000,), rng)
    with np.errstate(over="ignore"):
        near = np.roll(x, 1) if not element.is_float else (x.astype(np.float64) * 1.0625).astype(element.dtype)
    a = np.concatenate([x, x, x, x])
    b = np.concatenate([x[rng.permutation(x.size)], x, near, np.roll(x, 1)])
    if element.is_float:
        special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], element.dtype)
        a = np.concatenate([a, np.repeat(special, special.size)])
        b = np.concatenate([b, np.tile(special, special.size)])
    elif element.is_integer:
        small = np.arange(-9 if element.limits.min else 0, 70).astype(element.dtype)
        a = np.concatenate([a, np.repeat(x[:40], small.size)])
        b = np.concatenate([b, np.tile(small, 40)])
    return a, b


def binary_coefficients(kind: BinaryKind) -> tuple[str, ...]:
    """What a functor takes besides its operands, as C++."""
    row = kind.row.coefficients
    return ("A(3)",) if "alpha" in row else (repr(RTOL), repr(ATOL), "true") if "rtol" in row else ()


def wrong_binary(element: ElementKind, kind: BinaryKind, a: np.ndarray, b: np.ndarray, got: np.ndarray) -> str | None:
    """What a kernel's f(a, b) gets wrong, or None."""
    given = {"alpha": 3, "rtol": RTOL, "atol": ATOL, "equal_nan": True, "element": element}
    x, y = (wide(v, element) if element.is_float else v for v in (a, b))
    more = [given[name] if name != "alpha" else x.dtype.type(3) for name in kind.row.coefficients]
    wanted = np.asarray(kind.row.formula(x, y, *more))
    if kind.row.predicate:
        wrong = np.flatnonzero(got.astype(bool) != wanted)
        return f"{wrong.size} wrong, {a[wrong[0]]} and {b[wrong[0]]}: {got[wrong[0]]}" if wrong.size else None
    scale = kind.row.formula(np.abs(x), np.abs(y), *more) if element.is_float else None
    return check(kind.row.error(element), got, wanted, element=element, scale=scale)


def wrong_partial(
    element: ElementKind, kind: BinaryKind, side: int, dy: np.ndarray, a: np.ndarray, b: np.ndarray, got: np.ndarray
) -> str | None:
    """What a kernel's dy ∂f/∂a (side 0) or dy ∂f/∂b gets wrong, alpha being 1.5, or None."""
    gradient = (kind.row.gradient or (None, None))[side]
    d, x, y = (np.asarray(v, np.longdouble) for v in (dy, a, b))
    more = [x.dtype.type(1.5)] if "alpha" in kind.row.coefficients else []
    with np.errstate(all="ignore"):
        wanted = np.zeros_like(x) if gradient is None else np.asarray(gradient(d, x, y, *more), x.dtype)
    return check(kind.row.slope(element), got, wanted, element=element)
