"""Operands of linear systems, LU factors and determinants, which are written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Call = tuple[list[Any], dict[str, Any]]


def _made(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _far() -> np.ndarray:
    """Matrices far from singular, whose rows are exchanged."""
    return (_made(2, 4, 4) + 6 * np.eye(4)[[2, 0, 3, 1]]).astype(np.float32)


def _triangle() -> np.ndarray:
    return (np.tril(_made(4, 4)) + 4 * np.eye(4)).astype(np.float32)


def _definite() -> np.ndarray:
    x = _made(4, 4)
    return (x @ x.T + np.eye(4)).astype(np.float32)


_PIVOTS = np.array([[3, 3, 4, 4], [1, 2, 3, 4]], np.int32)

LINALG_LU: dict[str, Callable[[], Call]] = {
    "solve_triangular": lambda: ([_triangle(), _made(2, 4, 3)], {"upper": False}),
    "triangular_solve": lambda: ([_triangle(), _made(4, 3)], {"left_side": True, "lower": True}),
    "lu_factor": lambda: ([_far()], {}),
    "lu_factor_ex": lambda: ([_far()], {}),
    "lu": lambda: ([_far()], {}),
    "lu_unpack": lambda: ([_far(), _PIVOTS], {}),
    "lu_solve": lambda: ([_far(), _PIVOTS, _made(2, 4, 3)], {}),
    "lu_pivots_to_permutation": lambda: ([_PIVOTS, 5], {"first": 1}),
    "ldl_factor": lambda: ([_definite()], {}),
    "ldl_factor_ex": lambda: ([_definite()], {}),
    "ldl_solve": lambda: ([_triangle(), np.array([1, -4, -4, 4], np.int32), _made(2, 4, 3)], {}),
    "solve": lambda: ([_far(), _made(2, 4, 3)], {}),
    "solve_ex": lambda: ([_far(), _made(2, 4, 3)], {}),
    "inv": lambda: ([_far()], {}),
    "inv_ex": lambda: ([_far()], {}),
    "inverse": lambda: ([_far()], {}),
    "tensorinv": lambda: ([_far()[0].reshape(2, 2, 4)], {}),
    "tensorsolve": lambda: ([_far()[0].reshape(2, 2, 4), _made(2, 2)], {}),
    "det": lambda: ([_far()], {}),
    "slogdet": lambda: ([_far()], {}),
    "logdet": lambda: ([_definite()], {}),
    "cholesky": lambda: ([_definite()], {}),
    "cholesky_solve": lambda: ([_made(4, 3), _triangle()], {}),
    "cholesky_inverse": lambda: ([_triangle()], {}),
    "cho_factor": lambda: ([_definite()], {}),
    "cho_solve": lambda: ([[_triangle(), True], _made(4, 3)], {}),
}
