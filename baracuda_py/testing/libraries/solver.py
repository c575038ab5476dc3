"""cuSOLVER's stand-in, by SciPy's LAPACK."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .eigen import HostEigen
from .host import HostError, by_columns
from .lu import HostLu


class HostSolver(HostLu, HostEigen):
    """cusolverDn."""

    def _potrf_buffer_size(self, letter: str, dtype: Any, uplo: int, n: int, a: int, lda: int) -> int:
        return 3 * n + 1

    def _potrf(
        self, letter: str, dtype: Any, uplo: int, n: int, a: int, lda: int, workspace: int, lwork: int, info: int
    ) -> None:
        from scipy.linalg import lapack

        asked = self._potrf_buffer_size(letter, dtype, uplo, n, a, lda)
        if lda < max(n, 1) or lwork < asked:
            raise HostError
        ctypes.memset(workspace, 0xAB, asked * dtype.itemsize)
        matrix = by_columns(a, n, n, lda, dtype)
        found, status = getattr(lapack, f"{letter}potrf")(np.array(matrix), lower=uplo == 0, clean=0)
        kept = np.tri(n, dtype=bool) if uplo == 0 else ~np.tri(n, k=-1, dtype=bool)
        matrix[kept] = found[kept]
        ctypes.c_int32.from_address(info).value = status
