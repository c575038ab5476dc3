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
_NON_UNIT = 0
_PARTS = {"s": c_float, "d": c_double, "c": c_float, "z": c_double}


class Triangular:
    """B := op(A) B or B op(A), of n×n matrices by columns, A triangular and B in place; `solve`: with op(A)⁻¹."""

    def __init__(self, element: str, n: int, uplo: int, device: Device) -> None:
        letter = LETTER[element]
        self._letter, self._n, self._uplo, self._device = letter, n, uplo, device
        self._one = (_PARTS[letter] * 2)(1.0, 0.0)  # a complex number, or a real one and what is not read
        lib = CUBLAS.bindings
        self._set_stream = lib.set_stream
        self._trmm, self._trsm = getattr(lib, f"{letter}trmm"), getattr(lib, f"{letter}trsm")
        with current(device):
            CUBLAS.handle(device)  # made here, as that allocates

    def multiply(self, side: int, op: int, a: int, b: int, stream: int) -> None:
        """B := op(A) B of side LEFT, B op(A) of RIGHT."""
        self._call(self._trmm, "trmm", side, op, a, b, stream, b, self._n)

    def solve(self, side: int, op: int, a: int, b: int, stream: int) -> None:
        """B := op(A)⁻¹ B of side LEFT, B op(A)⁻¹ of RIGHT."""
        self._call(self._trsm, "trsm", side, op, a, b, stream)

    def _call(self, call: Any, name: str, side: int, op: int, a: int, b: int, stream: int, *result: int) -> None:
        handle, n, alpha = CUBLAS.handle(self._device), self._n, addressof(self._one)
        try:
            self._set_stream(handle, stream)
            call(handle, side, self._uplo, op, _NON_UNIT, n, n, alpha, a, n, b, n, *result)
        except CUBLAS.error as error:
            raise CUBLAS.failure(error, f"cublas{self._letter.upper()}{name}") from None
