"""The stand-ins of cuSOLVER's LU factors and of those of symmetric matrices, by SciPy's LAPACK."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .host import Host, HostError, by_columns


class HostLu(Host):
    """getrf and sytrf of cusolverDn."""

    def _getrf_buffer_size(self, letter: str, dtype: Any, m: int, n: int, a: int, lda: int) -> int:
        return 2 * max(m, n) + 1

    def _getrf(
        self, letter: str, dtype: Any, m: int, n: int, a: int, lda: int, workspace: int, pivots: int, info: int
    ) -> None:
        from scipy.linalg import lapack

        if lda < max(m, 1):
            raise HostError
        ctypes.memset(workspace, 0xAB, self._getrf_buffer_size(letter, dtype, m, n, a, lda) * dtype.itemsize)
        matrix = by_columns(a, m, n, lda, dtype)
        found, swaps, status = getattr(lapack, f"{letter}getrf")(np.array(matrix))
        matrix[...] = found
        by_columns(pivots, min(m, n), 1, min(m, n), np.int32)[:, 0] = swaps + 1
        ctypes.c_int32.from_address(info).value = status

    def _sytrf_buffer_size(self, letter: str, dtype: Any, n: int, a: int, lda: int) -> int:
        return 3 * n + 2

    def _sytrf(
        self, letter: str, dtype: Any, uplo: int, n: int, a: int, lda: int, pivots: int, work: int, lwork: int,
        info: int,
    ) -> None:  # fmt: skip
        from scipy.linalg import lapack

        if lda < max(n, 1) or uplo != 0 or lwork < self._sytrf_buffer_size(letter, dtype, n, a, lda):
            raise HostError
        ctypes.memset(work, 0xAB, lwork * dtype.itemsize)
        matrix = by_columns(a, n, n, lda, dtype)
        found, swaps, status = getattr(lapack, f"{letter}sytrf")(np.array(matrix), lower=1)
        matrix[...] = found
        by_columns(pivots, n, 1, n, np.int32)[:, 0] = swaps
        ctypes.c_int32.from_address(info).value = status
