"""The stand-in of cuSOLVER's LU factors, by SciPy's LAPACK."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .host import Host, HostError, by_columns


class HostLu(Host):
    """getrf of cusolverDn."""

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
