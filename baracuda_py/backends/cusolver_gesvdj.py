"""cuSOLVER's singular values by Jacobi's method (cusolverDn gesvdj)."""

from __future__ import annotations

import weakref

from baracuda_py.backends.library import current
from baracuda_py.core.device import Device
from baracuda_py.core.errors import CaptureError
from baracuda_py.jit.launch import runtime_for

from .cusolver import CUSOLVER, LETTER, SOMEWHERE

_VALUES, _VECTORS = 0, 1  # cusolverEigMode_t


class Gesvdj:
    """A = U Σ Vᴴ of m×n matrices by columns, m >= n: with `full` all of U's columns; without `vectors` Σ alone.

    Its defaults are kept: sweeps until the machine's precision, at most 100. The host waits after each.
    """

    def __init__(self, element: str, m: int, n: int, vectors: bool, full: bool, device: Device) -> None:
        letter, bindings = LETTER[element], CUSOLVER.bindings
        self._name, self._device = f"cusolverDn{letter.upper()}gesvdj", device
        self._set_stream, self._call = bindings.set_stream, getattr(bindings, f"{letter}gesvdj")
        with CUSOLVER.calling("cusolverDnCreateGesvdjInfo"):
            self._params = int(bindings.create_gesvdj_info())
        weakref.finalize(self, bindings.destroy_gesvdj_info, self._params)
        self._shape = _VECTORS if vectors else _VALUES, 0 if full else 1, m, n
        ask = getattr(bindings, f"{letter}gesvdj_buffer_size")
        with current(device), CUSOLVER.calling(f"{self._name}_bufferSize"):
            given = self._given(SOMEWHERE, SOMEWHERE, SOMEWHERE, SOMEWHERE)
            self._lwork = int(ask(CUSOLVER.handle(device), *given, self._params))
        self.workspace = self._lwork * {"s": 4, "d": 8, "c": 8, "z": 16}[letter]

    def _given(self, matrix: int, s: int, u: int, v: int) -> tuple[int, ...]:
        m, n = self._shape[2:]
        return *self._shape, matrix, m, s, u, m, v, n

    def run(self, matrix: int, s: int, u: int, v: int, info: int, workspace: int, stream: int) -> None:
        """Of the matrix at a pointer, which is overwritten; V, not Vᴴ, is written, its vectors one after another."""
        if runtime_for(self._device).capturing(stream):
            raise CaptureError(
                "gesvdj waits for the device, which no graph can hold: write driver='gesvd', or compute it before"
            )
        handle = CUSOLVER.handle(self._device)
        try:
            self._set_stream(handle, stream)
            self._call(handle, *self._given(matrix, s, u, v), workspace, self._lwork, info, self._params)
        except CUSOLVER.error as error:
            raise CUSOLVER.failure(error, self._name) from None
