"""The functions of three operands: a kind is a row of this table and functors of kernels/elementwise/ternary_*.cuh."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...core import FLOATS, ElementKind, Exact, Forward, Relative, Ulp
from ...core.element import ALL, COMPLEX, HALVES, INTS
from ...core.element import cast as cast_values
from ...core.error_bound import ErrorBound
from ...core.kinds import TableKind, WithFunctor
from .complex_formulas import by, divide, multiply
from .unary_formulas import maximum, minimum

REALS = (*FLOATS, *INTS)
INEXACT = (*FLOATS, *COMPLEX)


def _exact(element: ElementKind) -> ErrorBound:
    return Exact()


def _moved(element: ElementKind) -> ErrorBound:
    return Exact(signed_zero=element.is_float or element.is_complex)


def _rounded(element: ElementKind) -> ErrorBound:
    return Relative(2) if element.is_inexact else Exact()


def _fused(element: ElementKind) -> ErrorBound:
    """One rounding; the truth for double has 64 bits itself, of which a difference may leave few."""
    if element is ElementKind.F64:
        return Forward(1)
    return Exact() if element in INTS else Ulp(0.51 if element in HALVES else 0.501)


def _twice(element: ElementKind) -> ErrorBound:
    """The product is rounded to the accumulator, in the reference too."""
    if element is ElementKind.F64:
        return Forward(1)
    return Ulp(0.51) if element in HALVES else Exact()


def _times(a: Any, b: Any) -> Any:
    return multiply(a, b) if np.iscomplexobj(a) else a * b


def _addcmul(a: Any, b: Any, c: Any, value: Any, element: ElementKind) -> Any:
    return a + (multiply(by(b, value.real), c) if element.is_complex else value * b * c)


def _addcdiv(a: Any, b: Any, c: Any, value: Any, element: ElementKind) -> Any:
    return a + (by(divide(b, c), value.real) if element.is_complex else value * b / c)


def _lerp(a: Any, b: Any, c: Any, value: Any, element: ElementKind) -> Any:
    if element.is_complex:
        near = np.hypot(c.real, c.imag) < 0.5
        return np.where(near, a + multiply(c, b - a), b - multiply(b - a, 1 - c))
    quarter = a.dtype.type(0.25)  # so that a difference of finite numbers is finite
    a, b = a * quarter, b * quarter
    return np.where(np.abs(c) < 0.5, a + c * (b - a), b - (b - a) * (1 - c)) * 4


def _mac(a: Any, b: Any, c: Any, value: Any, element: ElementKind) -> Any:
    product = b * c
    return a + (cast_values(product, element.acc).astype(product.dtype) if element.is_float else product)


@dataclass(frozen=True)
class Partial:
    """dy ∂f/∂x in NumPy (dy, a, b, c, value), and which of a, b and c it reads."""

    reads: str
    formula: Callable[..., Any]


_DY = Partial("", lambda dy, a, b, c, v: dy)


def _where(dy: Any, condition: Any) -> Any:
    return np.where(condition, dy, dy.dtype.type(0))


_CLAMP = (
    Partial("abc", lambda dy, a, b, c, v: _where(dy, (a >= b) & (a <= c))),
    Partial("abc", lambda dy, a, b, c, v: _where(dy, (b < c) & (a < b))),
    Partial("abc", lambda dy, a, b, c, v: _where(dy, (a > c) | (c < b))),
)
_WHERE = (
    None,
    Partial("a", lambda dy, a, b, c, v: _where(dy, a != 0)),
    Partial("a", lambda dy, a, b, c, v: _where(dy, a == 0)),
)
_LERP = (
    Partial("c", lambda dy, a, b, c, v: _times(dy, np.conj(1 - c))),
    Partial("c", lambda dy, a, b, c, v: _times(dy, np.conj(c))),
    Partial("ab", lambda dy, a, b, c, v: _times(dy, np.conj(b - a))),
)
_FMA = Partial("b", lambda dy, a, b, c, v: dy * b), Partial("a", lambda dy, a, b, c, v: dy * a), _DY
_MAC = _DY, Partial("c", lambda dy, a, b, c, v: dy * c), Partial("b", lambda dy, a, b, c, v: dy * b)
_ADDCMUL = (
    _DY,
    Partial("c", lambda dy, a, b, c, v: _scaled(_times(dy, np.conj(c)), v)),
    Partial("b", lambda dy, a, b, c, v: _scaled(_times(dy, np.conj(b)), v)),
)


def _scaled(x: Any, value: Any) -> Any:
    return by(x, value.real) if np.iscomplexobj(x) else x * value


def _addcdiv_b(dy: Any, a: Any, b: Any, c: Any, v: Any) -> Any:
    return divide(_scaled(dy, v), np.conj(c)) if np.iscomplexobj(dy) else dy * v / c


def _addcdiv_c(dy: Any, a: Any, b: Any, c: Any, v: Any) -> Any:
    if not np.iscomplexobj(dy):
        return -dy * v * b / (c * c)
    return -divide(multiply(_scaled(dy, v), np.conj(divide(b, c))), np.conj(c))


_ADDCDIV = _DY, Partial("c", _addcdiv_b), Partial("bc", _addcdiv_c)


@dataclass(frozen=True)
class Ternary(WithFunctor):
    """A row: the functor (its file in `kernels/elementwise/ternary/`, its name), the formula in NumPy (a, b, c, value,
    element → y), the gradient by each operand (None: it has none), elements, the bound of f and of its gradients.

    a_is_condition: a is bool, whatever the element. scaled: `value` is part of the formula.
    """

    folder: ClassVar[str] = "elementwise/ternary"
    functor: str
    formula: Callable[[Any, Any, Any, Any, ElementKind], Any]
    gradient: tuple[Partial | None, Partial | None, Partial | None]
    elements: tuple[ElementKind, ...]
    bound: Callable[[ElementKind], ErrorBound]
    slope: Callable[[ElementKind], ErrorBound] = _rounded
    a_is_condition: bool = False
    scaled: bool = False


class TernaryKind(TableKind):
    """y = f(a, b, c), by PyTorch's definitions; mac is a + b c with the product rounded, as add and mul composed."""

    CLAMP = (
        "clamp",
        Ternary(
            "clamp/Clamp", lambda a, b, c, value, element: minimum(maximum(a, b), c), _CLAMP, REALS, _exact, _exact
        ),
    )
    WHERE = (
        "where",
        Ternary("where/Where", lambda a, b, c, value, element: np.where(a, b, c), _WHERE, ALL, _moved, _exact, True),
    )
    LERP = "lerp", Ternary("lerp/Lerp", _lerp, _LERP, INEXACT, _rounded)
    FMA = "fma", Ternary("fma/Fma", lambda a, b, c, value, element: a * b + c, _FMA, REALS, _fused)
    MAC = "mac", Ternary("fma/Mac", _mac, _MAC, REALS, _twice)
    ADDCMUL = ("addcmul", Ternary("addcmul/Addcmul", _addcmul, _ADDCMUL, (*REALS, *COMPLEX), _rounded, scaled=True))
    ADDCDIV = ("addcdiv", Ternary("addcdiv/Addcdiv", _addcdiv, _ADDCDIV, INEXACT, _rounded, scaled=True))

    row: Ternary


def ternary_elements(kind: TernaryKind | None) -> tuple[ElementKind, ...]:
    """The elements a kind takes."""
    return ALL if kind is None else kind.row.elements


def slope_elements(kind: TernaryKind | None) -> tuple[ElementKind, ...]:
    """Those that its gradient takes."""
    return INEXACT if kind is None else tuple(e for e in kind.row.elements if e.is_inexact)


def ternary_bound(element: ElementKind, kind: TernaryKind) -> ErrorBound:
    """The error bound of a kind."""
    return kind.row.bound(element)


def ternary_slope_bound(element: ElementKind, kind: TernaryKind) -> ErrorBound:
    """The error bound of a kind's gradients where nothing is summed."""
    return kind.row.slope(element)
