"""cuBLAS's products and solves with triangular matrices (trmm, trsm), on matrices by columns.

cuBLASLt, which does the products (`cublas.py`), has neither. Called through nvmath-python's bindings.
"""

from __future__ import annotations

from ctypes import addressof, c_double, c_float
from typing import Any

from baracuda_py.backends.library import Library, current
from baracuda_py.core.device import Device

from .cusolver import LETTER

CUBLAS = Library(
    "cublas", bindings="nvmath.bindings.cublas", package="nvmath-python", error="cuBLASError",
    unsupported=("CUBLAS_STATUS_ARCH_MISMATCH", "CUBLAS_STATUS_NOT_SUPPORTED"),
)  # fmt: skip
LEFT, RIGHT = 0, 1  # cublasSideMode_t
PLAIN, TRANSPOSED, ADJOINT = 0, 1, 2  # cublasOperation_t
_PARTS = {"s": c_float, "d": c_double, "c": c_float, "z": c_double}


class Triangular:
    """B := op(A) B or B op(A), A a triangular n×n matrix by columns and B in place; `solve`: with op(A)⁻¹.

    others: the extent of B that A does not have, n by default; lds: elements from a column to the next, of A and B;
    unit: A's diagonal is of ones, and not read (cublasDiagType_t).
    """

    def __init__(
        self, element: str, n: int, uplo: int, device: Device, *, others: int | None = None,
        lds: tuple[int, int] | None = None, unit: bool = False,
    ) -> None:  # fmt: skip
        letter = LETTER[element]
        self._letter, self._uplo, self._device, self._unit = letter, uplo, device, int(unit)
        others = n if others is None else others
        self._shapes = {LEFT: (n, others), RIGHT: (others, n)}
        self._lda, self._ldb = lds or (n, n)
        self._one = (_PARTS[letter] * 2)(1.0, 0.0)  # a complex number, or a real one and what is not read
        lib = CUBLAS.bindings
        self._set_stream = lib.set_stream
        self._trmm, self._trsm = getattr(lib, f"{letter}trmm"), getattr(lib, f"{letter}trsm")
        with current(device):
            CUBLAS.handle(device)  # made here, as that allocates

    def multiply(self, side: int, op: int, a: int, b: int, stream: int) -> None:
        """B := op(A) B of side LEFT, B op(A) of RIGHT."""
        self._call(self._trmm, "trmm", side, op, a, b, stream, b, self._ldb)

    def solve(self, side: int, op: int, a: int, b: int, stream: int) -> None:
        """B := op(A)⁻¹ B of side LEFT, B op(A)⁻¹ of RIGHT."""
        self._call(self._trsm, "trsm", side, op, a, b, stream)

    def _call(self, call: Any, name: str, side: int, op: int, a: int, b: int, stream: int, *result: int) -> None:
        handle, alpha = CUBLAS.handle(self._device), addressof(self._one)
        try:
            self._set_stream(handle, stream)
            call(
                handle, side, self._uplo, op, self._unit, *self._shapes[side], alpha, a, self._lda, b, self._ldb,
                *result,
            )  # fmt: skip
        except CUBLAS.error as error:
            raise CUBLAS.failure(error, f"cublas{self._letter.upper()}{name}") from None
