"""`Function`: all that is said of a function of one number, but its kernel code."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from ....core import FLOATS, ElementKind, Exact, Relative, Ulp
from ....core.element import HALVES, INTS
from ....core.error_bound import ErrorBound
from ....core.kinds import WithFunctor

Formula: TypeAlias = Callable[..., Any]
"""f(x, *coefficients): NumPy in the dtype of x, in which the coefficients come too."""
Gradient: TypeAlias = Callable[..., Any]
"""g(dy, x, *coefficients) = dy f'(x)."""
Bound: TypeAlias = Callable[[ElementKind], ErrorBound]

WITH_INTEGERS = (*FLOATS, *INTS)
EVERY = (*WITH_INTEGERS, ElementKind.BOOL)

POINTS = (
    0, 0.25, 0.5, 0.75, 1, 1.5, 2, 3, 6, 2.0**15, *(k * math.pi / 4 for k in (1, 2, 3, 4, 6, 8)),
    *(k * end for end in (16.6, 87.3, 88.7, 104, 127, 149, 708.4, 709.8, 745.1, 1022, 1074) for k in (0.5, 1, 2)),
)  # fmt: skip
"""Values whose neighbours are worth testing: kinks, ends of domains, poles, and where exponentials leave a type."""


_LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Coefficient:
    """A number that a function takes besides x, by torch's name and with torch's default.

    default: a number, a function of the element, or None where the caller must give it. It lies in [low, high], and is
    a whole number where `whole`, and not 0 unless `zero`. absent: what the kernel is told where the caller says None,
    for those that may be. floats: integers take the default alone. drawn: the range that tests take it from.
    """

    name: str
    default: float | Callable[[ElementKind], float] | None
    low: float = -_LARGEST
    high: float = _LARGEST
    whole: bool = False
    zero: bool = True
    absent: float | None = None
    floats: bool = False
    drawn: tuple[float, float] = (0.0, 2.0)

    @classmethod
    def limit(cls, name: str, default: Any, **more: Any) -> Coefficient:
        """A coefficient that x or y is compared with or set to, which may be infinite."""
        return cls(name, default, low=-math.inf, high=math.inf, **more)

    def default_for(self, element: ElementKind) -> float | None:
        """The default for x of an element."""
        return self.default(element) if callable(self.default) else self.default


@dataclass(frozen=True, eq=False)  # compared and hashed by identity
class Function(WithFunctor):
    """A row: y = f(x, *coefficients), element by element.

    functor: its file and its name, "rounding/Floor" for Floor of `kernels/elementwise/unary/rounding.cuh`, or the name
    alone where the kernel's file has it: a template over the element; its value(x, {coefficients}) is f, and
    gradient::<name> has value(dy, x, {coefficients}). gradient: dy f'(x), or None where f' is 0 wherever it exists or f
    is one of integers. elements: those of x; y has the same, or bool where `predicate`. bound, slope: of the error of
    f and of its gradient, by element. torch: torch's function, dotted from `torch`, or a function of torch, x and the
    coefficients; None where torch has none. gate: f(x) by, for those that gate. kernel: the file of
    kernels/elementwise/ that has the functor, without .cu. points: values whose neighbours tests visit besides
    `POINTS`. aliases: further public names.
    """

    folder: ClassVar[str] = "elementwise/unary"
    functor: str
    formula: Formula
    gradient: Gradient | Any = None
    elements: tuple[ElementKind, ...] = FLOATS
    predicate: bool = False
    coefficients: tuple[Coefficient, ...] = ()
    bound: Bound = lambda element: Exact()
    slope: Bound = lambda element: Ulp(0.51) if element in HALVES else Ulp(8)
    torch: str | Callable[..., Any] | None = None
    gate: Formula | Any = None
    kernel: str = "unary"
    points: tuple[float, ...] = ()
    aliases: tuple[str, ...] = ()

    def result(self, element: ElementKind) -> ElementKind:
        """The element of y."""
        return ElementKind.BOOL if self.predicate else element

    def error(self, element: ElementKind) -> ErrorBound:
        """The error bound of f; integers are exact."""
        return self.bound(element) if element.is_float and not self.predicate else Exact()

    def coefficient(self, name: str) -> Coefficient | None:
        """The coefficient of that name, if f has it."""
        return next((one for one in self.coefficients if one.name == name), None)

    def in_torch(self, torch: Any, x: Any, *coefficients: Any) -> Any:
        """f in torch, or NotImplemented."""
        if callable(self.torch):
            return self.torch(torch, x, *coefficients)
        if self.torch is None:
            return NotImplemented
        return functools.reduce(getattr, self.torch.split("."), torch)(x, *coefficients)


def linearised(name: str, slope: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """torch.special's function of that name, which torch does not differentiate, with its slope by others of them."""

    def function(torch: Any, x: Any) -> Any:
        at = x.detach()
        y = getattr(torch.special, name)(at)
        return y + (x - at) * slope(torch.special, at) if x.requires_grad else y

    function.once = True  # type: ignore[attr-defined]  # the slope is a number to torch
    return function


def exact(element: ElementKind) -> ErrorBound:
    """One rounding of a result that is exact, or no rounding at all."""
    return Exact()


def ulps(single: float, double: float, half: float = 0.51, bfloat16: float | None = None) -> Bound:
    """n ulp of float32 and of float64; 16-bit floats are a float result of a few ulp, rounded once more.

    Where a kernel calls the CUDA math library, n is its documented maximum (CUDA Programming Guide, Mathematical
    Functions) and half an ulp; elsewhere that of the formula built on it.
    """
    bounds: Mapping[ElementKind, ErrorBound] = {
        ElementKind.F16: Ulp(half), ElementKind.BF16: Ulp(half if bfloat16 is None else bfloat16),
        ElementKind.F32: Ulp(single), ElementKind.F64: Ulp(double),
    }  # fmt: skip
    return bounds.__getitem__


def rounded_once(element: ElementKind) -> ErrorBound:
    """The result rounded once; 16-bit floats by way of float, a double against a truth that has 64 bits itself."""
    return Ulp(0.51) if element in HALVES else Exact() if element is ElementKind.F32 else Ulp(0.501)


def crosses_zero(element: ElementKind) -> ErrorBound:
    """A sum of terms that cancel somewhere, so that no bound relative to the result can hold."""
    return Relative(2)


def in_double(double: float) -> Bound:
    """Computed in double for every element and rounded once; n ulp of float64 itself."""
    return ulps(0.51, double)


def slope_in_double(double: float | None) -> Bound:
    """As `in_double`, for a gradient; None where terms cancel, so that float64 has no bound relative to the result."""
    if double is not None:
        return ulps(0.51, double)
    return beyond_zeros


def beyond_zeros(element: ElementKind) -> ErrorBound:
    """Computed in double, with zeros at which float64 has no relative bound; other elements are not that near them."""
    return Relative(2) if element is ElementKind.F64 else Ulp(1) if element is ElementKind.F32 else Ulp(0.51)
