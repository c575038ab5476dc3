"""The kinds of functions of two complex numbers: a kind is a name of a `ComplexOperation`, a row of the table below."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ...core import ElementKind, Exact, Ulp
from ...core.error_bound import ErrorBound, Relative
from ...core.kinds import TableKind, WithFunctor
from .complex_formulas import divide, multiply, power

Gradient: TypeAlias = Callable[[Any, Any, Any], Any]


@dataclass(frozen=True, eq=False)  # compared and hashed by identity
class ComplexOperation(WithFunctor):
    """A row: y = f(a, b), element by element.

    functor: its file and its name, a template over the parts, with value(a, b), and da(dy, a, b) and db(dy, a, b) where
    there is a gradient. formula: NumPy in the dtype of a and b. gradient: dy times the conjugates of ∂f/∂a and
    ∂f/∂b. bound, slope: of the errors. predicate: y is bool. everywhere: the bound holds for operands of any size; a
    power's does not, as the logarithm's error is multiplied.
    """

    folder: ClassVar[str] = "elementwise/complex"

    functor: str
    formula: Callable[..., Any]
    gradient: tuple[Gradient, Gradient] | None = None
    bound: ErrorBound = Exact()
    slope: ErrorBound = Exact()
    predicate: bool = False
    everywhere: bool = True
    coefficients: tuple[str, ...] = ()

    def result(self, element: ElementKind) -> ElementKind:
        """The element of y."""
        return ElementKind.BOOL if self.predicate else element


def _once(sum_of: Any) -> Any:
    """A sum in complex128 at most: rounded to more digits first, it may be rounded to other ones in the end."""

    def formula(a: Any, b: Any) -> Any:
        a, b = np.asarray(a), np.asarray(b)
        given = np.result_type(a, b)
        if given.itemsize > 16:
            a, b = a.astype(np.complex128), b.astype(np.complex128)
        return np.asarray(sum_of(a, b), given)

    return formula


def _over(dy: Any, a: Any, b: Any) -> Any:
    return divide(dy, np.conj(b))


def _pow_a(dy: Any, a: Any, b: Any) -> Any:
    """dy conj(b a^(b - 1)), and 0 where b is 0."""
    slope = multiply(b, power(a, b - 1))
    return np.where(b == 0, np.zeros_like(dy), multiply(dy, np.conj(slope)))


def _pow_b(dy: Any, a: Any, b: Any) -> Any:
    """dy conj(a^b log a), and 0 where a is 0 and the real part of b not negative."""
    slope = multiply(power(a, b), np.log(a))
    return np.where((a == 0) & (b.real >= 0), np.zeros_like(dy), multiply(dy, np.conj(slope)))


def _isclose(a: Any, b: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    """a = b, or |a - b| <= atol + |rtol b| where that is finite, in float64."""
    close = np.equal(a, b)
    if equal_nan:
        close = close | (np.isnan(a) & np.isnan(b))
    z, w = a.astype(np.complex128), b.astype(np.complex128)  # exact, whatever was given
    error = np.hypot(z.real - w.real, z.imag - w.imag)
    return close | (np.isfinite(error) & (error <= atol + np.hypot(rtol * w.real, rtol * w.imag)))


class ComplexBinaryKind(TableKind):
    """y = f(a, b), by PyTorch's names."""

    ADD = "add", ComplexOperation("arithmetic/Add", _once(np.add), (lambda dy, a, b: dy, lambda dy, a, b: dy))
    SUB = "sub", ComplexOperation("arithmetic/Sub", _once(np.subtract), (lambda dy, a, b: dy, lambda dy, a, b: -dy))
    MUL = (
        "mul",
        ComplexOperation(
            "arithmetic/Mul", multiply,
            (lambda dy, a, b: multiply(dy, np.conj(b)), lambda dy, a, b: multiply(dy, np.conj(a))),
            Ulp(2.5), Ulp(2.5),
        ),
    )  # fmt: skip
    DIV = (
        "div",
        ComplexOperation(
            "arithmetic/Div", divide,
            (_over, lambda dy, a, b: -divide(multiply(dy, np.conj(divide(a, b))), np.conj(b))), Ulp(3), Ulp(7),
        ),
    )  # fmt: skip
    POW = "pow", ComplexOperation("pow/Pow", power, (_pow_a, _pow_b), Relative(2), Relative(2), everywhere=False)
    EQ = "eq", ComplexOperation("comparison/Eq", np.equal, predicate=True)
    NE = "ne", ComplexOperation("comparison/Ne", np.not_equal, predicate=True)
    ISCLOSE = (
        "isclose",
        ComplexOperation("isclose/Isclose", _isclose, predicate=True, coefficients=("rtol", "atol", "equal_nan")),
    )

    row: ComplexOperation

    @property
    def cpp(self) -> str:
        """The functor, without its template argument."""
        return f"of_complex::{self.row.cpp}"


WITH_GRADIENT = tuple(kind for kind in ComplexBinaryKind if kind.row.gradient is not None)
