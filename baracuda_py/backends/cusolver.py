"""cuSOLVER's dense routines (cusolverDn): LAPACK's, on matrices by columns, in place.

A matrix by rows is its transpose by columns: a lower triangle by rows is an upper one by columns, so that nothing is
transposed. Called through nvmath-python's bindings (docs/design/libraries.md).
"""

from __future__ import annotations

import importlib
from typing import Any

from baracuda_py.backends.library import Library, current
from baracuda_py.core.device import Device

from ..core.memo import cached_property
from ..core.tensor import View


class _Solver(Library):
    """Its bindings keep statuses and exceptions in a module of their own."""

    @cached_property
    def _statuses(self) -> Any:
        return importlib.import_module("nvmath.bindings.cusolver")

    @cached_property
    def error(self) -> type[Exception]:
        """What a failed call raises."""
        kind: type[Exception] = self._statuses.cuSOLVERError
        return kind

    def status_name(self, error: Exception) -> str:
        """CUSOLVER_STATUS_…, as the manual has it."""
        return f"CUSOLVER_STATUS_{self._statuses.Status(error.status).name}"  # type: ignore[attr-defined]


CUSOLVER = _Solver(
    "cusolver", bindings="nvmath.bindings.cusolverDn", package="nvmath-python", error="cuSOLVERError",
    unsupported=("CUSOLVER_STATUS_ARCH_MISMATCH", "CUSOLVER_STATUS_NOT_SUPPORTED"), behind=1,  # 11 is of CUDA 12
)  # fmt: skip
LETTER = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}  # before a routine's name
LOWER, UPPER = 0, 1  # cublasFillMode_t
SOMEWHERE = 1 << 20  # stands for a pointer that is not read


def leading(matrix: View) -> tuple[int, bool] | None:
    """(elements from one line to the next, whether lines are rows) of a view's last two axes, or None: not dense."""
    (rows, cols), (down, right) = matrix.shape[-2:], matrix.strides[-2:]
    for lines, length, apart, along, by_rows in ((rows, cols, down, right, True), (cols, rows, right, down, False)):
        if (length <= 1 or along == 1) and (lines <= 1 or apart >= max(length, 1)):
            return (apart if lines > 1 else max(length, 1)), by_rows
    return None


class Potrf:
    """Cholesky factors of n×n matrices in place, one a call. uplo: which triangle by columns is read and written."""

    def __init__(self, element: str, n: int, ld: int, uplo: int, device: Device) -> None:
        letter = LETTER[element]
        self._name = f"cusolverDn{letter.upper()}potrf"
        self._device, self._set_stream = device, CUSOLVER.bindings.set_stream
        self._factor = getattr(CUSOLVER.bindings, f"{letter}potrf")
        self._shape = uplo, n
        self._ld = ld
        ask = getattr(CUSOLVER.bindings, f"{letter}potrf_buffer_size")
        with current(device), CUSOLVER.calling(f"{self._name}_bufferSize"):
            self._lwork = int(ask(CUSOLVER.handle(device), *self._shape, SOMEWHERE, ld))
        self.workspace = self._lwork * {"s": 4, "d": 8, "c": 8, "z": 16}[letter]

    def run(self, matrix: int, info: int, workspace: int, stream: int) -> None:
        """Factor the matrix at a pointer; the device's int32 at `info` tells the first minor that is not positive."""
        handle = CUSOLVER.handle(self._device)
        try:
            self._set_stream(handle, stream)
            self._factor(handle, *self._shape, matrix, self._ld, workspace, self._lwork, info)
        except CUSOLVER.error as error:
            raise CUSOLVER.failure(error, self._name) from None
