"""Stand-ins of CUDA libraries for the emulator: their routines on host memory, by SciPy's LAPACK and BLAS.

They have the signatures of nvmath's bindings and their conventions, matrices by columns at an address, so that a plan
that calls a library runs from end to end without a device: its own kernels emulated, its pointers, leading dimensions
and workspaces as they are. A workspace is filled with rubbish over all the bytes that a routine asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ...backends.blas3 import CUBLAS
from ...backends.cublas import CUBLAS_LT
from ...backends.cufft import CUFFT
from ...backends.cusolver import CUSOLVER
from ...backends.library import Library
from ...core.errors import UnsupportedError
from .blas import HostBlas
from .fourier import HostFft
from .host import HostError
from .solver import HostSolver

__all__ = ["HostBlas", "HostError", "HostFft", "HostSolver", "standing_in"]


class _Absent:
    """Bindings of a library that has no stand-in."""

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedError(f"no stand-in has {name}")


@contextlib.contextmanager
def standing_in() -> Iterator[None]:
    """The libraries are their stand-ins while the context lasts; no handle of one is taken for one of the other."""
    pairs: list[tuple[Library, Any]] = [
        (CUSOLVER, HostSolver()), (CUBLAS, HostBlas()), (CUBLAS_LT, _Absent()), (CUFFT, HostFft()),
    ]  # fmt: skip
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
