"""Questions about a number. y is bool."""

from __future__ import annotations

from typing import Any

import numpy as np

from .row import EVERY, Formula, Function


def _predicate(cpp: str, formula: Formula, torch: Any, *aliases: str) -> Function:
    return Function(
        cpp, formula, elements=EVERY, predicate=True, kernel="unary_predicate", torch=torch, aliases=aliases
    )


def _signbit(x: Any) -> Any:
    return np.signbit(x) if x.dtype.kind == "f" else x < 0 if x.dtype.kind == "i" else np.zeros(x.shape, bool)


ISNAN = _predicate("IsNan", lambda x: x != x, "isnan")
ISINF = _predicate("IsInf", lambda x: (x == np.inf) | (x == -np.inf), "isinf")
ISFINITE = _predicate("IsFinite", np.isfinite, "isfinite", "is_finite")
ISPOSINF = _predicate("IsPosInf", lambda x: x == np.inf, "isposinf")
ISNEGINF = _predicate("IsNegInf", lambda x: x == -np.inf, "isneginf")
ISREAL = _predicate("IsReal", lambda x: np.ones(x.shape, bool), "isreal")
ISCOMPLEX = _predicate("IsComplex", lambda x: np.zeros(x.shape, bool), lambda torch, x: ~torch.isreal(x))
SIGNBIT = _predicate("SignBit", _signbit, "signbit")
LOGICAL_NOT = _predicate("LogicalNot", lambda x: x == 0, "logical_not")
