"""`Function`: a row of the elementwise tables, whatever the number of operands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...core import FLOATS, ElementKind
from ...core.error_bound import ErrorBound

MOST = 3
"""Coefficients that a function may have; kernels get as many."""


def same(element: ElementKind) -> ElementKind:
    """The element of a result that is the operands'."""
    return element


def truth(element: ElementKind) -> ElementKind:
    """The element of a predicate's result."""
    return ElementKind.BOOL


@dataclass(frozen=True)
class Function:
    """y = f(operands, coefficients), element by element.

    formula: NumPy, in the dtype the operands come in: (operands …, coefficients) → y. bound: element → the error bound.
    gradients: dy ∂f/∂operand, one an operand, (dy, operands …, coefficients) → its gradient; None where the derivative
    is 0 wherever there is one; empty where no operand has any. slope_bounds: element → the bound of each gradient.
    coefficients: name → default, in the order in which formulas and functors take them; names and defaults are
    PyTorch's. elements: those of the operands that the function takes. result: their element → y's. points: values
    beside which operands are worth testing.

    The functor F<T> of kernels/elementwise/ has the name of the kind in capitals: `log_sigmoid` is LogSigmoid. It has
    `value(operands …, c)`, c being `Coefficients<A>`; gradient::F<T> has `first`, `second` and `third`
    `(dy, operands …, c)`.
    """

    formula: Callable[..., Any]
    bound: Callable[[ElementKind], ErrorBound]
    gradients: tuple[Callable[..., Any] | None, ...] = ()
    slope_bounds: tuple[Callable[[ElementKind], ErrorBound] | None, ...] = ()
    coefficients: Mapping[str, float] = field(default_factory=dict)
    elements: tuple[ElementKind, ...] = FLOATS
    result: Callable[[ElementKind], ElementKind] = same
    points: tuple[float, ...] = ()


def functor(name: str) -> str:
    """The C++ name of a kind."""
    return "".join(part.capitalize() for part in name.split("_"))
