"""Stand-ins of cuSOLVER's QR, eigenvalues and singular values, by SciPy's LAPACK."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from .host import Host, HostError, by_columns


def _vector(pointer: int, n: int, dtype: Any) -> np.ndarray:
    return by_columns(pointer, n, 1, max(n, 1), dtype)[:, 0]


def _spoil(workspace: int, asked: int, lwork: int, dtype: Any) -> None:
    """Rubbish over all that was asked for."""
    if lwork < asked:
        raise HostError
    ctypes.memset(workspace, 0xAB, asked * np.dtype(dtype).itemsize)


class HostEigen(Host):
    """Of cusolverDn."""

    def _geqrf_buffer_size(self, letter: str, dtype: Any, m: int, n: int, a: int, lda: int) -> int:
        return 5 * n + 3

    def _geqrf(
        self, letter: str, dtype: Any, m: int, n: int, a: int, lda: int, tau: int, work: int, lwork: int, info: int
    ) -> None:
        from scipy.linalg import lapack

        if lda < m:
            raise HostError
        _spoil(work, self._geqrf_buffer_size(letter, dtype, m, n, a, lda), lwork, dtype)
        matrix = by_columns(a, m, n, lda, dtype)
        matrix[...], found, _, status = getattr(lapack, f"{letter}geqrf")(np.array(matrix))
        _vector(tau, min(m, n), dtype)[...] = found
        ctypes.c_int32.from_address(info).value = status

    def _orgqr_buffer_size(
        self, letter: str, dtype: Any, m: int, n: int, k: int, a: int, lda: int, tau: int
    ) -> int:  # fmt: skip
        return 7 * n + 2

    def _orgqr(
        self, letter: str, dtype: Any, m: int, n: int, k: int, a: int, lda: int, tau: int, work: int, lwork: int,
        info: int,
    ) -> None:  # fmt: skip
        from scipy.linalg import lapack

        if not (0 < k <= n <= m <= lda):
            raise HostError
        _spoil(work, self._orgqr_buffer_size(letter, dtype, m, n, k, a, lda, tau), lwork, dtype)
        matrix = by_columns(a, m, n, lda, dtype)
        routine = getattr(lapack, f"{letter}{'orgqr' if letter in 'sd' else 'ungqr'}")
        matrix[...], _, status = routine(np.array(matrix), np.array(_vector(tau, k, dtype)))
        ctypes.c_int32.from_address(info).value = status

    _ungqr_buffer_size, _ungqr = _orgqr_buffer_size, _orgqr

    def _syevd_buffer_size(
        self, letter: str, dtype: Any, jobz: int, uplo: int, n: int, a: int, lda: int, w: int
    ) -> int:  # fmt: skip
        return 2 * n * n + 5 * n + 1

    def _syevd(
        self, letter: str, dtype: Any, jobz: int, uplo: int, n: int, a: int, lda: int, w: int, work: int, lwork: int,
        info: int,
    ) -> None:  # fmt: skip
        from scipy.linalg import lapack

        _spoil(work, self._syevd_buffer_size(letter, dtype, jobz, uplo, n, a, lda, w), lwork, dtype)
        matrix = by_columns(a, n, n, lda, dtype)
        values = _vector(w, n, np.empty(0, dtype).real.dtype)
        if not np.isfinite(matrix).all():  # of which LAPACK may not return
            matrix[...], values[...], status = 0, 0, n
        else:
            routine = getattr(lapack, f"{letter}{'syevd' if letter in 'sd' else 'heevd'}")
            values[...], found, status = routine(np.array(matrix), compute_v=jobz, lower=uplo == 0)
            matrix[...] = found if jobz else 7  # the matrix is destroyed
        ctypes.c_int32.from_address(info).value = status

    _heevd_buffer_size, _heevd = _syevd_buffer_size, _syevd

    def _gesvd_buffer_size(self, letter: str, dtype: Any, m: int, n: int) -> int:
        return 4 * m + 5 * n + 1

    def _gesvd(
        self, letter: str, dtype: Any, jobu: int, jobvt: int, m: int, n: int, a: int, lda: int, s: int, u: int,
        ldu: int, vt: int, ldvt: int, work: int, lwork: int, rwork: int, info: int,
    ) -> None:  # fmt: skip
        from scipy.linalg import lapack

        if m < n or lda < m or jobu != jobvt:
            raise HostError
        _spoil(work, self._gesvd_buffer_size(letter, dtype, m, n), lwork, dtype)
        matrix, vectors, full = by_columns(a, m, n, lda, dtype), jobu != ord("N"), jobu == ord("A")
        values = _vector(s, n, np.empty(0, dtype).real.dtype)
        if not np.isfinite(matrix).all():
            matrix[...], values[...] = 0, 0
            ctypes.c_int32.from_address(info).value = n
            return
        routine = getattr(lapack, f"{letter}gesvd")
        left, values[...], right, status = routine(np.array(matrix), compute_uv=vectors, full_matrices=full)
        if vectors:
            by_columns(u, m, m if full else n, ldu, dtype)[...] = left
            by_columns(vt, n, n, ldvt, dtype)[...] = right
        matrix[...] = 7  # it is destroyed
        ctypes.c_int32.from_address(info).value = status

    def create_params(self) -> int:
        return 1

    def destroy_params(self, params: int) -> None:
        """There is nothing to free."""

    def xgeev_buffer_size(
        self, handle: int, params: int, jobvl: int, jobvr: int, n: int, kind_a: int, a: int, lda: int, kind_w: int,
        w: int, kind_vl: int, vl: int, ldvl: int, kind_vr: int, vr: int, ldvr: int, compute: int,
    ) -> tuple[int, int]:  # fmt: skip
        return 48 * n + 16, 24 * n + 8

    def xgeev(
        self, handle: int, params: int, jobvl: int, jobvr: int, n: int, kind_a: int, a: int, lda: int, kind_w: int,
        w: int, kind_vl: int, vl: int, ldvl: int, kind_vr: int, vr: int, ldvr: int, compute: int, work: int,
        nbytes: int, host: int, host_nbytes: int, info: int,
    ) -> None:  # fmt: skip
        from scipy.linalg import lapack

        dtype = np.dtype({4: "complex64", 5: "complex128"}[kind_a])
        if jobvl or {kind_a, kind_w, kind_vr, compute} != {kind_a} or lda < n or ldvr < n:
            raise HostError
        ctypes.memset(work, 0xAB, nbytes)
        ctypes.memset(host, 0xAB, host_nbytes)
        matrix, values = by_columns(a, n, n, lda, dtype), _vector(w, n, dtype)
        if not np.isfinite(matrix).all():
            matrix[...], values[...], status = 0, 0, n
        else:
            routine = getattr(lapack, "cgeev" if kind_a == 4 else "zgeev")
            values[...], _, vectors, status = routine(np.array(matrix), compute_vl=0, compute_vr=jobvr)
            if jobvr:
                by_columns(vr, n, n, ldvr, dtype)[...] = vectors
            matrix[...] = 7  # it is destroyed
        ctypes.c_int32.from_address(info).value = status
