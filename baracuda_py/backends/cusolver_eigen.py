"""cuSOLVER's QR factorisations, eigenvalues and singular values of dense matrices by columns (see `cusolver.py`)."""

from __future__ import annotations

from baracuda_py.backends.library import current
from baracuda_py.core.device import Device

from .cusolver import CUSOLVER, LETTER

_SOMEWHERE = 1 << 20  # stands for a pointer that is not read
_BYTES = {"s": 4, "d": 8, "c": 8, "z": 16}
_VALUES, _VECTORS = 0, 1  # cusolverEigMode_t
_NONE, _SOME, _ALL = ord("N"), ord("S"), ord("A")


class _Routine:
    """One of the routines; `workspace` is the bytes that it asks for."""

    def __init__(self, element: str, name: str, device: Device, *asked: int) -> None:
        letter = LETTER[element]
        self._name, self._device = f"cusolverDn{letter.upper()}{name}", device
        self._set_stream = CUSOLVER.bindings.set_stream
        self._call = getattr(CUSOLVER.bindings, f"{letter}{name}")
        ask = getattr(CUSOLVER.bindings, f"{letter}{name}_buffer_size")
        with current(device), CUSOLVER.calling(f"{self._name}_bufferSize"):
            self._lwork = int(ask(CUSOLVER.handle(device), *asked))
        self.workspace = self._lwork * _BYTES[letter]

    def _run(self, stream: int, *given: int) -> None:
        handle = CUSOLVER.handle(self._device)
        try:
            self._set_stream(handle, stream)
            self._call(handle, *given)
        except CUSOLVER.error as error:
            raise CUSOLVER.failure(error, self._name) from None


class Geqrf(_Routine):
    """A = Q R of m×n matrices in place: R on and above the diagonal, the reflectors of Q below it and in tau."""

    def __init__(self, element: str, m: int, n: int, ld: int, device: Device) -> None:
        self._shape, self._ld = (m, n), ld
        super().__init__(element, "geqrf", device, m, n, _SOMEWHERE, ld)

    def run(self, matrix: int, tau: int, info: int, workspace: int, stream: int) -> None:
        """Factor the matrix at a pointer."""
        self._run(stream, *self._shape, matrix, self._ld, tau, workspace, self._lwork, info)


class Orgqr(_Routine):
    """The first n columns of the product of k reflectors (orgqr, of complex numbers ungqr), in place of these."""

    def __init__(self, element: str, m: int, n: int, k: int, ld: int, device: Device) -> None:
        self._shape, self._ld = (m, n, k), ld
        name = "orgqr" if LETTER[element] in "sd" else "ungqr"
        super().__init__(element, name, device, m, n, k, _SOMEWHERE, ld, _SOMEWHERE)

    def run(self, matrix: int, tau: int, info: int, workspace: int, stream: int) -> None:
        """Write the columns over the reflectors at a pointer."""
        self._run(stream, *self._shape, matrix, self._ld, tau, workspace, self._lwork, info)


class Syevd(_Routine):
    """Eigenvalues of Hermitian n×n matrices, ascending, and with `vectors` their eigenvectors in place (heevd)."""

    def __init__(self, element: str, n: int, uplo: int, vectors: bool, device: Device) -> None:
        self._shape = _VECTORS if vectors else _VALUES, uplo, n
        name = "syevd" if LETTER[element] in "sd" else "heevd"
        super().__init__(element, name, device, *self._shape, _SOMEWHERE, n, _SOMEWHERE)

    def run(self, matrix: int, values: int, info: int, workspace: int, stream: int) -> None:
        """Of the matrix at a pointer, which is overwritten; the int32 at `info` is 0 where it converged."""
        self._run(stream, *self._shape, matrix, self._shape[2], values, workspace, self._lwork, info)


class Gesvd(_Routine):
    """A = U Σ Vᴴ of m×n matrices, m >= n: with `full` all of U's columns; without `vectors` Σ alone."""

    def __init__(self, element: str, m: int, n: int, vectors: bool, full: bool, device: Device) -> None:
        job = (_ALL if full else _SOME) if vectors else _NONE
        self._shape = job, job, m, n
        super().__init__(element, "gesvd", device, m, n)

    def run(self, matrix: int, s: int, u: int, vh: int, info: int, workspace: int, stream: int) -> None:
        """Of the matrix at a pointer, which is overwritten; the int32 at `info` is 0 where it converged."""
        m, n = self._shape[2:]
        self._run(stream, *self._shape, matrix, m, s, u, m, vh, n, workspace, self._lwork, 0, info)
