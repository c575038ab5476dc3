"""Hadamard matrices of 2ᵏ, 12·2ᵏ, 20·2ᵏ and 28·2ᵏ: how an order is made, and the matrices themselves in NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core.checked import whole
from ...core.errors import InvalidProblemError
from ...calls.exported import exported
from ...core.memo import memo

BASES = (12, 20, 28)
_ODD = {1: 1, 3: 12, 5: 20, 7: 28}


def order_of(name: str, n: int) -> tuple[int, int]:
    """(base, k) with n = base · 2ᵏ, base 1, 12, 20 or 28; `name` is what has n, for the error."""
    odd = n // (n & -n) if n > 0 else 0
    base = _ODD.get(odd, 0)
    if not base or n % base:
        raise InvalidProblemError(f"{name} must be 2^k, 12·2^k, 20·2^k or 28·2^k, got {n}")
    return base, int(math.log2(n // base))


def _characters(q: int) -> Any:
    """χ(a - b) for all elements a and b of the field of q = 5, 9 or 13: 1 of squares, -1 of others, 0 of 0."""
    if q == 9:  # a + b i with i² = -1 over the integers modulo 3; element a + 3 b
        parts = [(n % 3, n // 3) for n in range(9)]
        squares = {((a * a - b * b) % 3, 2 * a * b % 3) for a, b in parts} - {(0, 0)}
        differences = [[((a - c) % 3, (b - d) % 3) for c, d in parts] for a, b in parts]
        zero: Any = (0, 0)
    else:
        squares = {n * n % q for n in range(1, q)}  # type: ignore[misc]
        differences = [[(a - b) % q for b in range(q)] for a in range(q)]  # type: ignore[misc]
        zero = 0
    return np.array([[0 if d == zero else 1 if d in squares else -1 for d in row] for row in differences])


@memo()
def base_matrix(base: int) -> Any:
    """The matrix of 1, 12, 20 or 28, integers 1 and -1: Paley's second construction (1933), which is symmetric."""
    if base == 1:
        return np.ones((1, 1), np.int64)
    q = base // 2 - 1
    conference = np.ones((q + 1, q + 1), np.int64)
    conference[0, 0], conference[1:, 1:] = 0, _characters(q)
    return np.kron(conference, [[1, 1], [1, -1]]) + np.kron(np.eye(q + 1, dtype=np.int64), [[1, -1], [-1, -1]])


@exported
def hadamard_matrix(n: int) -> Any:
    """H of order n, int64 of 1 and -1 on the host: the matrix that `hadamard_transform` multiplies by.

    n is 2ᵏ (Sylvester's matrix, scipy.linalg.hadamard), or 12, 20 or 28 times that: Paley's symmetric matrix of 12, 20
    or 28, and Sylvester's in the place of each of its elements. H = Hᵀ and H Hᵀ = n I.
    """
    base, k = order_of("n", whole("n", n, 1, 2**15))
    made = base_matrix(base)
    for _ in range(k):
        made = np.kron(made, [[1, 1], [1, -1]])
    return made
