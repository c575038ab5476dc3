"""Matrices that are hard to factor, and the layouts that operands of factorisations come in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from baracuda_py.testing.layouts import Placement

ROWS = Placement("permuted", order=(0, 1, 2), pads=(0, 3, 0))  # three more elements in a row
COLUMNS = Placement("permuted", order=(0, 2, 1), pads=(0, 0, 1))
LOOSE = Placement("permuted", order=(1, 2, 0))  # the batch is the dense axis
LAYOUTS = (Placement(), ROWS, COLUMNS, LOOSE)


def drawn(rng: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def orthonormal(rng: Any, n: int, dtype: Any) -> Any:
    return np.linalg.qr(drawn(rng, (n, n), np.complex128 if np.dtype(dtype).kind == "c" else np.float64))[0]


def spectra(n: int) -> Iterator[tuple[str, Any]]:
    """Graded, clustered, repeated, deficient, tiny and huge ones."""
    yield "graded", 10.0 ** -np.arange(n)
    yield "clustered", 1 + 1e-9 * np.arange(n)[::-1]
    yield "one", np.ones(n)
    yield "deficient", np.where(np.arange(n) < n // 2, 2.0, 0)
    yield "zero", np.zeros(n)
    yield "tiny", 1e-30 * np.arange(n, 0, -1.0)
    yield "huge", 1e15 * np.arange(n, 0, -1.0)


def hard(m: int, n: int, dtype: Any) -> Iterator[tuple[str, Any]]:
    """Matrices [m, n] of each spectrum."""
    rng, k = np.random.default_rng(5), min(m, n)
    for name, s in spectra(k):
        yield name, (orthonormal(rng, m, dtype)[:, :k] * s @ orthonormal(rng, n, dtype)[:k]).astype(dtype)


def hermitian(n: int, dtype: Any) -> Iterator[tuple[str, Any]]:
    """Hermitian ones, eigenvalues of either sign."""
    rng = np.random.default_rng(6)
    for name, s in spectra(n):
        v = orthonormal(rng, n, dtype)
        a = v * (s * (-1.0) ** np.arange(n)) @ v.conj().T
        yield name, ((a + a.conj().T) / 2).astype(dtype)
