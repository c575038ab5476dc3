"""What a function of formulas is: `Function`."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..core.element import FLOATS, ElementKind
from ..core.error_bound import ErrorBound, Ulp


class Rule(enum.Enum):
    """How a function's arguments come to one element, and what its result has."""

    NUMBER = "arguments promoted to an element it serves; so is the result"
    COMPARE = "arguments promoted; bool"
    TEST = "a float; bool"
    LOGIC = "arguments are true where they are not 0; bool"
    CHOICE = "the first argument is true or not; the others promoted"


@dataclass(frozen=True)
class Function:
    """A function of formulas.

    cpp: device code over {0}, {1} … with {T} the element and {A} the type that it is computed in. formula: NumPy, on
    arrays of one dtype. defaults: those of trailing parameters. halves: whether the code for 16-bit elements differs,
    and is only as accurate as those. bound: element → the error of a call on values of the element, None for none that
    is known. exact: whether the result is never rounded. in_element: a number among the arguments is rounded to the
    element, so that what compares with x is a number that x can hold. header: the file that the device code needs.
    """

    name: str
    parameters: tuple[str, ...]
    cpp: str
    formula: Callable[..., Any]
    rule: Rule = Rule.NUMBER
    elements: tuple[ElementKind, ...] = FLOATS
    defaults: Mapping[str, float] = field(default_factory=dict)
    halves: bool = False
    bound: Callable[[ElementKind], ErrorBound] | None = None
    exact: bool = False
    in_element: bool = False
    header: str = ""

    @property
    def ulps(self) -> float:
        """The larger error of float32 and float64; 0 where a result is exact or rounded once."""
        if self.bound is None or self.exact or ElementKind.F64 not in self.elements:
            return 0.0
        bounds = (self.bound(ElementKind.F32), self.bound(ElementKind.F64))
        return max(one.n if isinstance(one, Ulp) and one.n > 0.51 else 0.0 for one in bounds)

    @property
    def least(self) -> int:
        """Arguments that a call must give."""
        return len(self.parameters) - len(self.defaults)

    def __hash__(self) -> int:
        return hash(self.name)
