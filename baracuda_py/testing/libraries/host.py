"""What stand-ins of CUDA libraries share: errors, matrices at an address, handles and streams."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ...backends.cusolver import LETTER

_DTYPES = {letter: np.dtype(name) for name, letter in LETTER.items()}


class HostError(Exception):
    """What bindings raise where a status is not 0."""

    status = 7


def by_columns(pointer: int, rows: int, cols: int, ld: int, dtype: Any) -> np.ndarray:
    """The matrix at an address, whose columns are ld elements apart."""
    size = np.dtype(dtype).itemsize
    memory = (ctypes.c_char * max((ld * (cols - 1) + rows) * size, 1)).from_address(pointer)
    made: np.ndarray = np.ndarray((rows, cols), dtype, memory, strides=(size, ld * size))
    return made


class Host:
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
