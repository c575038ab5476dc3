"""The coefficients of unary kinds as fields of a descriptor, by torch's names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core import ElementKind, choice, derived, extents, number
from ...core.checked import Checked
from ...core.errors import InvalidProblemError
from .functions.row import Coefficient
from .unary_kinds import UnaryKind

_EXACT = 2**53  # whole numbers up to it are float64 numbers


def _coefficient(name: str) -> Any:
    def default(desc: Any) -> float | None:
        one = desc.kind.row.coefficient(name)
        return None if one is None else one.default_for(desc.element)

    return number(derived(default), infinite=True)


@dataclass(frozen=True, kw_only=True)
class UnaryFields(Checked):
    """A kind, a shape, and the coefficients of kinds that have some, by default PyTorch's.

    negative_slope: of leaky_relu. min_val, max_val: of hardtanh. lambd: of hardshrink and softshrink, >= 0.
    alpha, scale, input_scale: of elu; alpha of celu. beta, threshold: of softplus, which is x where beta x > threshold.
    threshold, value: of threshold, which has no defaults. eps: of logit, None or the distance from 0 and 1 that x is
    kept at. nan, posinf, neginf: of nan_to_num, by default 0 and the ends of the element's range. decimals: of round,
    a whole number, 0 by default. limit: of swiglu_oai, >= 0, as its alpha is. n: of polygamma, the order of the
    derivative, and p: of multigammaln, the dimension, which have no default. They are rounded to the accumulator (f32,
    f64 for f64), so that a threshold is the number that the same constant in x is.
    """

    kind: UnaryKind = choice(UnaryKind)
    shape: tuple[int, ...] = extents()
    negative_slope: float | None = _coefficient("negative_slope")
    alpha: float | None = _coefficient("alpha")
    scale: float | None = _coefficient("scale")
    input_scale: float | None = _coefficient("input_scale")
    beta: float | None = _coefficient("beta")
    threshold: float | None = _coefficient("threshold")
    value: float | None = _coefficient("value")
    min_val: float | None = _coefficient("min_val")
    max_val: float | None = _coefficient("max_val")
    lambd: float | None = _coefficient("lambd")
    eps: float | None = _coefficient("eps")
    nan: float | None = _coefficient("nan")
    posinf: float | None = _coefficient("posinf")
    neginf: float | None = _coefficient("neginf")
    decimals: float | None = _coefficient("decimals")
    n: float | None = _coefficient("n")
    limit: float | None = _coefficient("limit")
    p: float | None = _coefficient("p")
    if TYPE_CHECKING:
        element: ElementKind  # declared by every page

    def validate(self) -> None:
        """Raise InvalidProblemError for a coefficient that the kind has not, or outside its range."""
        name = self.kind.value
        for field in COEFFICIENTS:
            given, one = getattr(self, field), self.kind.row.coefficient(field)
            if one is not None:
                self._check(one, given)
            elif given is not None:
                own = ", ".join(c.name for c in self.kind.row.coefficients) or "no coefficient"
                raise InvalidProblemError(f"{name} has {own}; {field} must be None, got {given}")
        if self.min_val is not None and not self.min_val <= self.max_val:  # type: ignore[operator]
            raise InvalidProblemError(f"{name} needs min_val <= max_val, got {self.min_val} and {self.max_val}")

    def _check(self, one: Coefficient, given: float | None) -> None:
        what = f"{one.name} of {self.kind.value}"
        if given is None:
            if one.absent is None:
                raise InvalidProblemError(f"{what} has no default and must be given")
            return
        if not one.low <= given <= one.high:
            raise InvalidProblemError(f"{what} must be in [{one.low:g}, {one.high:g}], got {given}")
        if not one.zero and given == 0:
            raise InvalidProblemError(f"{what} must not be 0")
        if one.whole and not given.is_integer():
            raise InvalidProblemError(f"{what} must be a whole number, got {given}")
        if one.floats and not self.element.is_float and given != one.default_for(self.element):
            raise InvalidProblemError(
                f"{what} must be {one.default_for(self.element):g} for {self.element}, got {given}"
            )
        limits = self.element.limits
        if self.element.is_integer and not (
            math.isfinite(given) and given.is_integer() and max(limits.min, -_EXACT) <= given <= min(limits.max, _EXACT)
        ):
            raise InvalidProblemError(f"{what} must be a whole number that {self.element} holds, got {given}")

    @property
    def coefficients(self) -> tuple[float, ...]:
        """What the kernel is told, in the order of the row."""
        given = ((getattr(self, one.name), one) for one in self.kind.row.coefficients)
        return tuple(one.absent if value is None else value for value, one in given)  # type: ignore[misc]

    def rounded(self, x: Any) -> tuple[Any, ...]:
        """The coefficients as kernels have them, in the dtype of x: rounded to the accumulator."""
        if not self.element.is_float:
            return tuple(x.dtype.type(int(c) if self.element.is_integer else c) for c in self.coefficients)
        acc = self.element.acc.dtype.type
        return tuple(x.dtype.type(acc(c)) for c in self.coefficients)


COEFFICIENTS = (
    "negative_slope", "alpha", "scale", "input_scale", "beta", "threshold", "value", "min_val", "max_val", "lambd",
    "eps", "nan", "posinf", "neginf", "decimals", "n", "limit", "p",
)  # fmt: skip
MOST = 3  # coefficients that a kind has


def fixed_for(kind: UnaryKind) -> dict[str, Any]:
    """What the function of one kind fixes: the kind, and no coefficient that is not its own."""
    return {"kind": kind, **{name: None for name in COEFFICIENTS if kind.row.coefficient(name) is None}}


def packed(desc: UnaryFields) -> list[float]:
    """The kernel's parameter `coefficients`."""
    given = desc.coefficients
    return [*given, *(0.0,) * (MOST - len(given))]


def refused(kind: UnaryKind, element: ElementKind) -> str:
    """Why a kind does not take an element, and what would do."""
    taken = kind.row.elements
    if not any(one.is_float for one in taken):
        what = "integers and bool" if ElementKind.BOOL in taken else "integers"
        return f"{kind.value} is a function of {what}, got {element}"
    if element is ElementKind.BOOL and any(one.is_integer for one in taken):
        return f"{kind.value} of bool is not defined; cast to an integer or a float first"
    return f"{kind.value} of {element} is not an integer in general; cast to a float first"
