"""Comparisons and logic: truth values of any two numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from .row import EVERY, Operation


def _relation(functor: str, formula: Any, torch: Any, *aliases: str) -> Operation:
    return Operation(
        functor, formula, elements=EVERY, predicate=True, torch=torch, in_element=True, aliases=aliases
    )  # fmt: skip


EQ = _relation("comparison/Eq", np.equal, "eq", "equal")
NE = _relation("comparison/Ne", np.not_equal, "ne", "not_equal")
LT = _relation("comparison/Lt", np.less, "lt", "less")
LE = _relation("comparison/Le", np.less_equal, "le", "less_equal")
GT = _relation("comparison/Gt", np.greater, "gt", "greater")
GE = _relation("comparison/Ge", np.greater_equal, "ge", "greater_equal")
LOGICAL_AND = _relation("logic/LogicalAnd", np.logical_and, "logical_and")
LOGICAL_OR = _relation("logic/LogicalOr", np.logical_or, "logical_or")
LOGICAL_XOR = _relation("logic/LogicalXor", np.logical_xor, "logical_xor")


def _isclose(a: Any, b: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    """a = b, or |a - b| <= atol + rtol |b| where that is finite; integers in float64, equal ones exactly."""
    close = np.equal(a, b)
    if a.dtype.kind == "f":
        close = close | (np.isnan(a) & np.isnan(b)) if equal_nan else close
    if rtol == atol == 0:
        return close
    x, y = a.astype(np.float64), b.astype(np.float64)  # exact, whatever floats were given
    error = np.abs(x - y)
    return close | (np.isfinite(error) & (error <= atol + np.abs(rtol * y)))


def _isclose_in_torch(torch: Any, a: Any, b: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    """torch compares integers in float32."""
    x, y = (v if v.is_floating_point() else v.to(torch.float64) for v in (a, b))
    return torch.isclose(x, y, rtol=rtol, atol=atol, equal_nan=equal_nan)


ISCLOSE = Operation(
    "isclose/Isclose", _isclose, elements=EVERY, predicate=True, coefficients=("rtol", "atol", "equal_nan"),
    torch=_isclose_in_torch, in_element=True,
)  # fmt: skip
