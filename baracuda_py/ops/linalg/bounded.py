"""Norms of matrices, by which residuals of factorisations are measured."""

from __future__ import annotations

from typing import Any

import numpy as np


def adjoint(x: Any) -> Any:
    """Of matrices."""
    return x.conj().swapaxes(-1, -2)


def size(x: Any) -> Any:
    """The Frobenius norm of each matrix."""
    return np.sqrt(np.square(np.abs(x)).sum((-1, -2)))


def quotient(off: Any, scale: Any) -> Any:
    """off / scale, where 0 / 0 is 0."""
    return np.where(off == 0, 0, off / np.where(scale == 0, 1, scale))


def apart(q: Any) -> Any:
    """‖Qᴴ Q - I‖ / n of each matrix, whose columns should be orthonormal."""
    n = max(q.shape[-2], 1)
    return size(adjoint(q) @ q - np.eye(q.shape[-1])) / n


def finite(*given: Any) -> Any:
    """Whether all numbers of each matrix are finite."""
    return np.logical_and.reduce([np.isfinite(x).all((-1, -2)) for x in given])


def not_finite(name: str, read: Any) -> str | None:
    """What BARACUDA_CHECK says of NaN or infinities in what is read of an operand."""
    return None if np.isfinite(read).all() else f"{name} has NaN or infinities, of which nothing is known"


def doubled(x: Any) -> Any:
    """As NumPy's LAPACK takes it."""
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)
