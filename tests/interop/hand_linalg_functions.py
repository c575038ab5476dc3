"""Operands of functions of matrices, eigenvalues, low ranks and iterative solvers, which are written by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import baracuda_py as bc

Call = tuple[list[Any], dict[str, Any]]


def _made(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _definite(n: int = 4) -> np.ndarray:
    x = _made(n, n)
    return (x @ x.T + n * np.eye(n)).astype(np.float32)


def _dominant() -> np.ndarray:
    """Definite, of numbers as they are and in [0.1, 0.9] alike."""
    return np.where(np.eye(4, dtype=bool), np.float32(20), np.float32(-2))


def _lines() -> list[np.ndarray]:
    return [_made(2, 5), _made(2, 5, seed=1) + 6, _made(2, 5, seed=2)]


def _squares(w: Any) -> Any:
    return bc.mul(w, w)


LINALG_FUNCTIONS: dict[str, Callable[[], Call]] = {
    "matrix_exp": lambda: ([_made(2, 4, 4)], {"squarings": 3}),
    "expm": lambda: ([_made(4, 4)], {}),
    "expm_frechet": lambda: ([_made(4, 4), _made(4, 4, seed=1)], {}),
    "ormqr": lambda: ([_made(6, 4), _made(4), _made(6, 3)], {}),
    "qr_multiply": lambda: ([_made(6, 4), _made(3, 6)], {}),
    "svd_lowrank": lambda: ([_made(8, 6), 3], {"niter": 1, "seed": 5}),
    "pca_lowrank": lambda: ([_made(8, 6), 3], {"niter": 1, "seed": 5}),
    "eig": lambda: ([_made(4, 4)], {}),
    "eigvals": lambda: ([_made(4, 4)], {}),
    "tridiagonal_solve": lambda: ([*_lines(), _made(2, 5, 3)], {}),
    "eigh_tridiagonal": lambda: ([_made(5), _made(4, seed=1)], {}),
    "cg": lambda: ([_dominant(), _made(4, 4)], {"maxiter": 8, "tol": 1e-12}),
    "bicgstab": lambda: ([_dominant(), _made(2, 4)], {"maxiter": 8, "tol": 1e-12}),
    "gmres": lambda: ([_dominant(), _made(2, 4)], {"restart": 4, "maxiter": 3, "tol": 1e-12}),
    "lobpcg": lambda: ([_definite(9), 2], {"niter": 40, "tol": 0.0, "seed": 5}),
    "sqrtm": lambda: ([_definite()], {}),
    "inverse_root": lambda: ([_definite(), 4], {}),
    "logm": lambda: ([_definite()], {}),
    "solve_sylvester": lambda: ([_definite(), _definite(3), _made(4, 3)], {}),
    "hessenberg": lambda: ([_made(4, 4)], {}),
    "cholesky_update": lambda: ([np.triu(_definite()), _made(4)], {}),
    "schur": lambda: ([_made(4, 4)], {}),
    "rsf2csf": lambda: ([np.triu(_made(4, 4), -1), np.eye(4, dtype=np.float32)], {}),
    "tridiagonal": lambda: ([_definite()], {}),
    "qdwh": lambda: ([_made(6, 4)], {}),
    "funm": lambda: ([_definite(), _squares], {}),
    "roots": lambda: ([np.array([2, -5, 1, 7], np.float32)], {}),
    "polyfit": lambda: ([np.linspace(-2, 2, 9, dtype=np.float32), _made(9), 3], {}),
    "solve_toeplitz": lambda: ([np.array([8, 1, 2], np.float32), _made(3)], {}),
    "pinverse": lambda: ([_made(4, 6)], {"rcond": 1e-6}),
    "nuclear_norm": lambda: ([_made(4, 6)], {}),
}
