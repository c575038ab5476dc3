"""cuSOLVER's eigenvalues of general matrices (cusolverDnXgeev, of cuSOLVER 11.7.1 and later)."""

from __future__ import annotations

import threading
import weakref

import numpy as np

from baracuda_py.backends.library import current
from baracuda_py.core.device import Device
from baracuda_py.core.errors import CaptureError, UnsupportedError
from baracuda_py.jit.launch import runtime_for

from .cusolver import CUSOLVER, SOMEWHERE

_TYPES = {"complex64": 4, "complex128": 5}  # cudaDataType CUDA_C_32F, CUDA_C_64F
_NONE, _VECTORS = 0, 1  # cusolverEigMode_t


class Geev:
    """Eigenvalues of complex n×n matrices by columns, and with `vectors` eigenvectors of length 1 as columns.

    The routine works on the host and the device in turns: it waits for the device, and no graph can have it.
    """

    def __init__(self, element: str, n: int, vectors: bool, device: Device) -> None:
        bindings = CUSOLVER.bindings
        if not hasattr(bindings, "xgeev"):
            raise UnsupportedError(
                "eig needs cusolverDnXgeev, which this nvmath-python does not bind; install a later one, or compute on "
                "the host: bc.eig of a NumPy array"
            )
        self._device, self._bindings, self._held = device, bindings, threading.local()
        with CUSOLVER.calling("cusolverDnCreateParams"):
            self._params = int(bindings.create_params())
        weakref.finalize(self, bindings.destroy_params, self._params)
        self._kind, self._n, self._job = _TYPES[element], n, _VECTORS if vectors else _NONE
        with current(device), CUSOLVER.calling("cusolverDnXgeev_bufferSize"):
            given = self._given(SOMEWHERE, SOMEWHERE, SOMEWHERE)
            self.workspace, self._host = map(int, bindings.xgeev_buffer_size(CUSOLVER.handle(device), *given))

    def _given(self, matrix: int, values: int, vectors: int) -> tuple[int, ...]:
        kind, n = self._kind, self._n
        return (
            self._params, _NONE, self._job, n, kind, matrix, n, kind, values, kind, 0, n, kind,
            vectors if self._job else 0, n, kind,
        )  # fmt: skip

    def run(self, matrix: int, values: int, vectors: int, info: int, workspace: int, stream: int) -> None:
        """Of the matrix at a pointer, which is overwritten; the int32 at `info` is 0 where it converged."""
        if runtime_for(self._device).capturing(stream):
            raise CaptureError("eig waits for the device, which no graph can hold: compute it before the capture")
        handle = CUSOLVER.handle(self._device)
        held = getattr(self._held, "memory", None)
        if held is None:
            held = self._held.memory = np.empty(max(self._host, 1), np.uint8)
        try:
            self._bindings.set_stream(handle, stream)
            self._bindings.xgeev(
                handle, *self._given(matrix, values, vectors), workspace, self.workspace, held.ctypes.data, self._host,
                info,
            )  # fmt: skip
        except CUSOLVER.error as error:
            raise CUSOLVER.failure(error, "cusolverDnXgeev") from None
