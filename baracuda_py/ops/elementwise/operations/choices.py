"""Extremes, steps, and neighbours: results that are one of the operands, or found from their bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.element import ElementKind, cast
from ..unary_formulas import fmax, fmin, maximum, minimum
from .row import EVERY, Operation, exact, rounded_product


def _tied(beats: Any) -> tuple[Any, Any]:
    """dy of the winner, half of it where both are equal; with a NaN neither loses."""

    def of_a(dy: Any, a: Any, b: Any) -> Any:
        return np.where(a == b, dy / 2, np.where(beats(b, a), 0, dy))

    return of_a, lambda dy, a, b: of_a(dy, b, a)


def _first_wins(reach: Any) -> tuple[Any, Any]:
    """dy of a where it is the result (also of equals, and where b is NaN), else of b."""

    def wins(a: Any, b: Any) -> Any:
        return reach(a, b) | np.isnan(b)

    return lambda dy, a, b: np.where(wins(a, b), dy, 0), lambda dy, a, b: np.where(wins(a, b), 0, dy)


def _extreme(functor: str, formula: Any, gradient: Any) -> Operation:
    name = functor.rpartition("/")[2].lower()
    return Operation(
        functor, formula, gradient, elements=EVERY, bound=exact, slope=exact, torch=name, in_element=True
    )  # fmt: skip


def _of_any(of_floats: Any, function: Any) -> Any:
    """Floats by a formula that tells zeros apart, all else by NumPy's function."""
    return lambda a, b: of_floats(a, b) if a.dtype.kind == "f" else function(a, b)


MAXIMUM = _extreme("extremes/Maximum", _of_any(maximum, np.maximum), _tied(np.greater))
MINIMUM = _extreme("extremes/Minimum", _of_any(minimum, np.minimum), _tied(np.less))
FMAX = _extreme("extremes/Fmax", _of_any(fmax, np.fmax), _first_wins(np.greater_equal))
FMIN = _extreme("extremes/Fmin", _of_any(fmin, np.fmin), _first_wins(np.less_equal))

HEAVISIDE = Operation(
    "signs/Heaviside", lambda a, b: np.where(a == 0, b, (a > 0).astype(a.dtype)), elements=EVERY, bound=exact,
    torch="heaviside", in_element=True,
)  # fmt: skip


def _nextafter(a: Any, b: Any, element: Any) -> Any:
    """The neighbour of a in its element, towards b."""
    kind = ElementKind.of(element)
    word = np.dtype(f"i{kind.itemsize}")
    start, end = cast(a, kind), cast(b, kind)
    bits = start.view(word)
    away = (a < b) == (a > 0)
    step = np.where(away, bits + word.type(1), bits - word.type(1)).astype(word).view(kind.dtype)
    least = np.copysign(np.ones_like(bits).view(kind.dtype).astype(a.dtype), b)
    found = np.where(a == b, end.astype(a.dtype), np.where(a == 0, least, step.astype(a.dtype)))
    return np.where(np.isnan(a) | np.isnan(b), a + b, found)


NEXTAFTER = Operation(
    "nextafter/Nextafter", _nextafter, (lambda dy, a, b: dy, None), coefficients=("element",), bound=exact, slope=exact,
    in_element=True,
    torch=lambda torch, a, b, element: torch.nextafter(a, b),
)  # fmt: skip


def _prelu(a: Any, b: Any) -> Any:
    return np.where(a > 0, a, a * b)


PRELU = Operation(
    "prelu/Prelu", _prelu, (lambda dy, a, b: np.where(a > 0, dy, dy * b), lambda dy, a, b: np.where(a > 0, 0, dy * a)),
    bound=rounded_product, slope=rounded_product, torch=lambda torch, a, b: torch.where(a > 0, a, a * b),
)  # fmt: skip


def _copysign_slope(dy: Any, a: Any, b: Any) -> Any:
    """dy y / a, which is dy or -dy, and 0 where a is 0."""
    return np.where(a == 0, 0, dy * (np.copysign(a, b) / a))


COPYSIGN = Operation(
    "signs/Copysign", np.copysign, (_copysign_slope, None),
    bound=exact, slope=exact, torch="copysign", in_element=True,
)  # fmt: skip
