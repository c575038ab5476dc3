"""`Operation`: all that is said of a function of two numbers, but its kernel code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ....core import FLOATS, ElementKind, Exact, Ulp
from ....core.element import HALVES, INTS
from ....core.error_bound import ErrorBound
from ....core.kinds import WithFunctor
from ..functions.row import EVERY, WITH_INTEGERS, Bound, ulps

__all__ = ["EVERY", "WITH_INTEGERS", "Operation", "ulps"]

Formula: TypeAlias = Callable[..., Any]
"""f(a, b, *coefficients): NumPy in the dtype of a and b."""
Gradient: TypeAlias = Callable[..., Any]
"""g(dy, a, b, *coefficients) = dy ∂f/∂a, or dy ∂f/∂b."""
Draw: TypeAlias = Callable[[np.random.Generator, Any], Any]

WITH_BOOL = (*INTS, ElementKind.BOOL)

POINTS = (0, 0.5, 1, 2, 3, 10, 127, 128, 2.0**24, 2.0**53)
"""Values whose neighbours are worth testing."""


@dataclass(frozen=True)
class Smooth:
    """Values of a and b for tests that need f differentiable, and finite: functions of a generator and a shape."""

    a: Draw = lambda rng, shape: rng.standard_normal(shape)
    b: Draw = lambda rng, shape: rng.standard_normal(shape)


def positive(rng: np.random.Generator, shape: Any) -> Any:
    """About 1, well above 0."""
    return np.exp(rng.uniform(-1, 1, shape))


@dataclass(frozen=True, eq=False)  # compared and hashed by identity
class Operation(WithFunctor):
    """A row: y = f(a, b, *coefficients), element by element.

    functor: its file and its name, "bits/Mulhi" for Mulhi of `kernels/elementwise/binary/bits.cuh`: a template over the
    element; its value(a, b, {coefficients}) is f, and partial::<name> has da(dy, a, b) and db(dy, a, b). gradient:
    dy ∂f/∂a and dy ∂f/∂b, None for one that is 0 wherever it exists; None as a whole where both are, or f has none.
    elements: those of a and b; y has the same, or bool where `predicate`. coefficients: names of what f takes besides,
    fields of `BinaryDescriptor` or `BinaryArgs`. bound, slope: of the error of f and of its gradients, by element.
    torch: torch's function, dotted from `torch`, or a function of torch, a, b and the coefficients. whole: what to call
    for integers instead, where f of them is none. in_element: a number in the place of an operand is rounded to the
    element, not to the type of the arithmetic. smooth: for tests of gradients. aliases: further public names.
    """

    folder: ClassVar[str] = "elementwise/binary"
    functor: str
    formula: Formula
    gradient: tuple[Gradient | None, Gradient | None] | None = None
    elements: tuple[ElementKind, ...] = FLOATS
    predicate: bool = False
    coefficients: tuple[str, ...] = ()
    bound: Bound = lambda element: Exact()
    slope: Bound = lambda element: Ulp(0.51) if element in HALVES else Ulp(4)
    torch: str | Callable[..., Any] = ""
    whole: str = ""
    in_element: bool = False
    smooth: Smooth = Smooth()
    aliases: tuple[str, ...] = ()

    def result(self, element: ElementKind) -> ElementKind:
        """The element of y."""
        return ElementKind.BOOL if self.predicate else element

    def error(self, element: ElementKind) -> ErrorBound:
        """The error bound of f; integers and truth values are exact."""
        return self.bound(element) if element.is_float and not self.predicate else Exact()

    def in_torch(self, torch: Any, a: Any, b: Any, *coefficients: Any) -> Any:
        """f in torch."""
        if callable(self.torch):
            return self.torch(torch, a, b, *coefficients)
        function = torch
        for name in self.torch.split("."):
            function = getattr(function, name)
        return function(a, b, *coefficients)


def exact(element: ElementKind) -> ErrorBound:
    """One rounding of a result that is exact, or no rounding at all; zeros have their sign."""
    return Exact(signed_zero=True)


def rounded_once(element: ElementKind) -> ErrorBound:
    """A sum of two numbers: rounded once, 16-bit floats also by way of float; a double's truth has 64 bits itself."""
    return Ulp(0.501) if element is ElementKind.F64 else Exact()


def rounded_product(element: ElementKind) -> ErrorBound:
    """Likewise a product or quotient; but a subnormal bfloat16 is a subnormal float first."""
    return Ulp(0.51) if element is ElementKind.BF16 else rounded_once(element)


def wide(*values: Any) -> tuple[Any, ...]:
    """Floats with more digits and exponents, where there are any: no product on the way overflows or vanishes."""
    return tuple(np.asarray(value, np.longdouble) for value in values)


def widened(gradient: Gradient) -> Gradient:
    """The gradient evaluated in `wide`, rounded to the dtype of a."""

    def rounded(dy: Any, a: Any, b: Any, *coefficients: Any) -> Any:
        return np.asarray(gradient(*wide(dy, a, b), *coefficients)).astype(a.dtype)

    return rounded
