"""Stand-ins of CUDA libraries for the emulator: their routines on host memory, by SciPy's LAPACK and BLAS.

They have the signatures of nvmath's bindings and their conventions, matrices by columns at an address, so that a plan
that calls a library runs from end to end without a device: its own kernels emulated, its pointers, leading dimensions
and workspaces as they are. A workspace is filled with rubbish over all the bytes that a routine asked for.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..backends.blas3 import CUBLAS
from ..backends.cublas import CUBLAS_LT
from ..backends.cufft import CUFFT
from ..backends.cusolver import CUSOLVER, LETTER
from ..backends.library import Library
from ..core.errors import UnsupportedError
from .fourier import HostFft
from .host_error import HostError

_DTYPES = {letter: np.dtype(name) for name, letter in LETTER.items()}


def by_columns(pointer: int, rows: int, cols: int, ld: int, dtype: Any) -> np.ndarray:
    """The matrix at an address, whose columns are ld elements apart."""
    size = np.dtype(dtype).itemsize
    memory = (ctypes.c_char * max((ld * (cols - 1) + rows) * size, 1)).from_address(pointer)
    made: np.ndarray = np.ndarray((rows, cols), dtype, memory, strides=(size, ld * size))
    return made


class _Host:
    """Bindings: handles, streams, and of a routine `potrf` its four forms `spotrf` … `zpotrf`."""

    def create(self) -> int:
        return 1

    def set_stream(self, handle: int, stream: int) -> None:
        """All is done at once."""

    def get_status_name(self, status: int) -> str:
        return f"STATUS_{status}"

    def __getattr__(self, name: str) -> Any:
        routine, dtype = getattr(type(self), f"_{name[1:]}", None), _DTYPES.get(name[:1])
        if routine is None or dtype is None:
            raise AttributeError(f"no stand-in of {name}")

        def call(handle: int, *given: Any) -> Any:
            return routine(self, name[0], dtype, *given)

        return call


class HostSolver(_Host):
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


class HostBlas(_Host):
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


class _Absent:
    """Bindings of a library that has no stand-in."""

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedError(f"no stand-in has {name}")


@contextlib.contextmanager
def standing_in() -> Iterator[None]:
    """The libraries are their stand-ins while the context lasts; no handle of one is taken for one of the other."""
    pairs: list[tuple[Library, Any]] = [
        (CUSOLVER, HostSolver()),
        (CUBLAS, HostBlas()),
        (CUBLAS_LT, _Absent()),
        (CUFFT, HostFft()),
    ]
    kept = [dict(vars(library)) for library, _ in pairs]
    for library, host in pairs:
        library.forget()
        vars(library).update(bindings=host, error=HostError)
    try:
        yield
    finally:
        for (library, _), before in zip(pairs, kept, strict=True):
            vars(library).clear()
            vars(library).update(before)
