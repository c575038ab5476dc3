"""cuSOLVER's LU factors (cusolverDn getrf) and those of symmetric matrices (sytrf): in place, by columns."""

from __future__ import annotations

from baracuda_py.backends.library import current
from baracuda_py.core.device import Device

from .cusolver import CUSOLVER, LETTER, LOWER, SOMEWHERE


class Getrf:
    """P L U of m×n matrices in place, one a call, with row pivots counted from 1."""

    def __init__(self, element: str, m: int, n: int, ld: int, device: Device) -> None:
        letter = LETTER[element]
        self._name = f"cusolverDn{letter.upper()}getrf"
        self._device, self._set_stream = device, CUSOLVER.bindings.set_stream
        self._factor = getattr(CUSOLVER.bindings, f"{letter}getrf")
        self._shape, self._ld = (m, n), ld
        ask = getattr(CUSOLVER.bindings, f"{letter}getrf_buffer_size")
        with current(device), CUSOLVER.calling(f"{self._name}_bufferSize"):
            elements = int(ask(CUSOLVER.handle(device), m, n, SOMEWHERE, ld))
        self.workspace = elements * {"s": 4, "d": 8, "c": 8, "z": 16}[letter]

    def run(self, matrix: int, pivots: int, info: int, workspace: int, stream: int) -> None:
        """Factor the matrix at a pointer; the device's int32s at `pivots` and `info` are written."""
        handle = CUSOLVER.handle(self._device)
        try:
            self._set_stream(handle, stream)
            self._factor(handle, *self._shape, matrix, self._ld, workspace, pivots, info)
        except CUSOLVER.error as error:
            raise CUSOLVER.failure(error, self._name) from None


class Sytrf:
    """L D Lᵀ of symmetric n×n matrices in place of their lower triangles, one a call (Bunch and Kaufman)."""

    def __init__(self, element: str, n: int, device: Device) -> None:
        letter = LETTER[element]
        self._name = f"cusolverDn{letter.upper()}sytrf"
        self._device, self._set_stream, self._n = device, CUSOLVER.bindings.set_stream, n
        self._factor = getattr(CUSOLVER.bindings, f"{letter}sytrf")
        ask = getattr(CUSOLVER.bindings, f"{letter}sytrf_buffer_size")
        with current(device), CUSOLVER.calling(f"{self._name}_bufferSize"):
            self._lwork = int(ask(CUSOLVER.handle(device), n, SOMEWHERE, n))
        self.workspace = self._lwork * {"s": 4, "d": 8, "c": 8, "z": 16}[letter]

    def run(self, matrix: int, pivots: int, info: int, workspace: int, stream: int) -> None:
        """Factor the matrix at a pointer; the device's int32s at `pivots` and `info` are written."""
        handle = CUSOLVER.handle(self._device)
        try:
            self._set_stream(handle, stream)
            self._factor(handle, LOWER, self._n, matrix, self._n, pivots, workspace, self._lwork, info)
        except CUSOLVER.error as error:
            raise CUSOLVER.failure(error, self._name) from None
