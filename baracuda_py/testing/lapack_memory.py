"""What the stand-ins of libraries (`lapack.py`) share: their error, and matrices at an address."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np


class HostError(Exception):
    """What bindings raise where a status is not 0."""

    status = 7


def by_columns(pointer: int, rows: int, cols: int, ld: int, dtype: Any) -> np.ndarray:
    """The matrix at an address, whose columns are ld elements apart."""
    size = np.dtype(dtype).itemsize
    memory = (ctypes.c_char * max((ld * (cols - 1) + rows) * size, 1)).from_address(pointer)
    made: np.ndarray = np.ndarray((rows, cols), dtype, memory, strides=(size, ld * size))
    return made
