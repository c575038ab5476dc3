"""The binary kinds: the names of the rows of `operations`, and what is asked of a row by kind."""

from __future__ import annotations

from typing import Any

from ...core import ElementKind
from ...core.error_bound import ErrorBound
from ...core.kinds import TableKind
from .operations import arithmetic, choices, powers, relations, whole
from .operations.row import EVERY, POINTS, Operation


class BinaryKind(TableKind):
    """y = f(a, b), by PyTorch's names and definitions."""

    ADD = "add", arithmetic.ADD
    ADD_SCALED = "add_scaled", arithmetic.ADD_SCALED
    SUB = "sub", arithmetic.SUB
    MUL = "mul", arithmetic.MUL
    DIV = "div", arithmetic.DIV
    TRUNC_DIVIDE = "trunc_divide", arithmetic.TRUNC_DIVIDE
    FLOOR_DIVIDE = "floor_divide", arithmetic.FLOOR_DIVIDE
    REMAINDER = "remainder", arithmetic.REMAINDER
    FMOD = "fmod", arithmetic.FMOD
    SQUARED_DIFFERENCE = "squared_difference", arithmetic.SQUARED_DIFFERENCE
    ABSOLUTE_DIFFERENCE = "absolute_difference", arithmetic.ABSOLUTE_DIFFERENCE
    POW = "pow", powers.POW
    LDEXP = "ldexp", powers.LDEXP
    LOGADDEXP = "logaddexp", powers.LOGADDEXP
    LOGADDEXP2 = "logaddexp2", powers.LOGADDEXP2
    XLOGY = "xlogy", powers.XLOGY
    XLOG1PY = "xlog1py", powers.XLOG1PY
    ATAN2 = "atan2", powers.ATAN2
    HYPOT = "hypot", powers.HYPOT
    MAXIMUM = "maximum", choices.MAXIMUM
    MINIMUM = "minimum", choices.MINIMUM
    FMAX = "fmax", choices.FMAX
    FMIN = "fmin", choices.FMIN
    COPYSIGN = "copysign", choices.COPYSIGN
    NEXTAFTER = "nextafter", choices.NEXTAFTER
    HEAVISIDE = "heaviside", choices.HEAVISIDE
    PRELU = "prelu", choices.PRELU
    GCD = "gcd", whole.GCD
    LCM = "lcm", whole.LCM
    MULHI = "mulhi", whole.MULHI
    BITWISE_AND = "bitwise_and", whole.BITWISE_AND
    BITWISE_OR = "bitwise_or", whole.BITWISE_OR
    BITWISE_XOR = "bitwise_xor", whole.BITWISE_XOR
    BITWISE_LEFT_SHIFT = "bitwise_left_shift", whole.BITWISE_LEFT_SHIFT
    BITWISE_RIGHT_SHIFT = "bitwise_right_shift", whole.BITWISE_RIGHT_SHIFT
    SHIFT_RIGHT_LOGICAL = "shift_right_logical", whole.SHIFT_RIGHT_LOGICAL
    EQ = "eq", relations.EQ
    NE = "ne", relations.NE
    LT = "lt", relations.LT
    LE = "le", relations.LE
    GT = "gt", relations.GT
    GE = "ge", relations.GE
    LOGICAL_AND = "logical_and", relations.LOGICAL_AND
    LOGICAL_OR = "logical_or", relations.LOGICAL_OR
    LOGICAL_XOR = "logical_xor", relations.LOGICAL_XOR
    ISCLOSE = "isclose", relations.ISCLOSE

    row: Operation


WITH_GRADIENT = tuple(kind for kind in BinaryKind if kind.row.gradient is not None)


def binary_elements(kind: BinaryKind | None) -> tuple[ElementKind, ...]:
    """The elements that a kind takes."""
    return EVERY if kind is None else kind.row.elements


def binary_bound(element: ElementKind, kind: BinaryKind) -> ErrorBound:
    """The error bound of a kind."""
    return kind.row.error(element)


def slope_bound(element: ElementKind, kind: BinaryKind) -> ErrorBound:
    """The error bound of a kind's gradients."""
    return kind.row.slope(element)


def binary_points(_: Any) -> tuple[float, ...]:
    """Values whose neighbours are worth testing."""
    return POINTS
