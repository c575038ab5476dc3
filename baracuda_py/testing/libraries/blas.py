"""cuBLAS's stand-in, by SciPy's BLAS."""

from __future__ import annotations

from typing import Any

import numpy as np

from .host import Host, HostError, by_columns


class HostBlas(Host):
    """cublas."""

    def _trsm(self, letter: str, dtype: Any, *given: int) -> None:
        _triangular(f"{letter}trsm", dtype, *given)

    def _trmm(self, letter: str, dtype: Any, *given: int) -> None:
        *rest, b, ldb, c, ldc = given
        if (b, ldb) != (c, ldc):
            raise HostError
        _triangular(f"{letter}trmm", dtype, *rest, b, ldb)


def _triangular(routine: str, dtype: Any, *given: int) -> None:
    from scipy.linalg import blas

    side, uplo, op, diag, m, n, alpha, a, lda, b, ldb = given
    order, target = m if side == 0 else n, by_columns(b, m, n, ldb, dtype)
    factor, matrix = by_columns(alpha, 1, 1, 1, dtype)[0, 0], np.array(by_columns(a, order, order, lda, dtype))
    call = getattr(blas, routine)
    target[...] = call(factor, matrix, np.array(target), side=side, lower=uplo == 0, trans_a=op, diag=diag)
