"""`Special`: all that is said of a special function of two to four numbers, but its kernel code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....core import ElementKind, Relative, Ulp
from ....core.element import HALVES
from ....core.error_bound import ErrorBound
from ....core.kinds import WithFunctor
from ..ternary_kinds import Partial

Formula = Callable[..., Any]
"""f(a, b[, c[, d]]) in NumPy, in the dtype of a."""
Draw = Callable[[np.random.Generator, Any], Any]


def between(low: float, high: float, whole: bool = False) -> Draw:
    """Numbers drawn between two positive ones evenly by their logarithms, or whole ones evenly."""
    if whole:
        return lambda rng, shape: rng.integers(int(low), int(high), shape, endpoint=True).astype(np.float64)
    return lambda rng, shape: np.exp(rng.uniform(np.log(low), np.log(high), shape))


def evenly(low: float, high: float) -> Draw:
    """Numbers drawn evenly."""
    return lambda rng, shape: rng.uniform(low, high, shape)


@dataclass(frozen=True, eq=False)  # compared and hashed by identity
class Special(WithFunctor):
    """A row: y = f(a, b), f(a, b, c) or f(a, b, c, d), element by element, in double for every element.

    functor: its file and its name, a template over the element; its value(a, b, c, d) is f, and
    partial::<cpp> has of<i>(dy, a, b, c, d). drawn: for each operand, where tests take it from: there are as many as f
    has. gradient: by a and by b, None for one that f has no gradient by. ulp: the error of float64, None where no
    bound relative to the result holds. slope: likewise of the gradients. torch: torch's function of (a, b[, c[, d]]),
    its name dotted from `torch` where it takes them in this order. aliases: further names. call: the operands as the
    public function takes them. times: without a bound, how often the error of the formula in the element itself.
    """

    folder: ClassVar[str] = "elementwise"

    functor: str
    formula: Formula
    drawn: tuple[Draw, ...]
    gradient: tuple[Partial | None, Partial | None] = (None, None)
    ulp: float | None = None
    slope: float | None = None
    torch: str | Callable[..., Any] | None = None
    aliases: tuple[str, ...] = ()
    call: str = "ab"
    times: float = 2

    def error(self, element: ElementKind) -> ErrorBound:
        """The error bound of f."""
        return self._bound(self.ulp, element)

    def slope_error(self, element: ElementKind) -> ErrorBound:
        """The error bound of the gradients."""
        return self._bound(self.slope, element)

    def _bound(self, ulp: float | None, element: ElementKind) -> ErrorBound:
        if ulp is None:
            return Relative(self.times, max(1.5, self.times / 2))
        return Ulp(0.51) if element in HALVES else Ulp(1) if element is ElementKind.F32 else Ulp(ulp)

    def in_torch(self, torch: Any, *operands: Any) -> Any:
        """f in torch, or NotImplemented."""
        if self.torch is None:
            return NotImplemented
        if callable(self.torch):
            return self.torch(torch, *operands)
        return functools.reduce(getattr, self.torch.split("."), torch)(*operands)


def widely(formula: Formula) -> Formula:
    """`formula` in long double, rounded to the dtype of its first operand."""

    def rounded(*given: Any) -> Any:
        found = formula(*(np.asarray(x, np.longdouble) for x in np.broadcast_arrays(*given)))
        return np.asarray(found).astype(np.asarray(given[0]).dtype)

    return rounded


def partial(reads: str, formula: Formula) -> Partial:
    """dy ∂f/∂x in long double: `formula` of dy and those of a, b, c and d that are read."""
    wide = widely(formula)
    return Partial(reads, lambda dy, *given: wide(dy, *(given["abcd".index(name)] for name in reads)))
