"""CUDA libraries through ctypes: found by cuda-pathfinder, of CuPy's CUDA major, with statuses as typed errors."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from baracuda_py.core.errors import BaracudaError, UnsupportedError
from baracuda_py.jit.toolkit import cupy_major


class LibraryError(BaracudaError):
    """A library call that failed at run time; `status` is the library's own name for what went wrong."""

    def __init__(self, call: str, status: str) -> None:
        super().__init__(f"{call} failed: {status}")
        self.call = call
        self.status = status


def unavailable(name: str) -> str:
    """Why the library `name` ("cublasLt") cannot be used, with what to type; empty when it can. Asks no device."""
    return _find(name)[1]


def load(name: str, signatures: Mapping[str, tuple[Any, ...]]) -> ctypes.CDLL:
    """The library, its functions declared; a function returns its status unless the caller sets `restype`."""
    path, why = _find(name)
    if why:
        raise UnsupportedError(why)
    library = ctypes.CDLL(path)
    for function, argtypes in signatures.items():
        getattr(library, function).argtypes = argtypes
    return library


@functools.cache
def _find(name: str) -> tuple[str, str]:
    """The path and an empty reason, or the reason; searched once a process, for a search costs 0.1 s."""
    major = cupy_major()
    install = f'install it with: pip install "baracuda_py[cu{major or 13}]"'
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = load_nvidia_dynamic_lib(name).abs_path
    except (ImportError, RuntimeError) as error:
        detail = str(error).splitlines()[0] if str(error) else type(error).__name__
        return "", f"{name} was not found ({detail}); {install}"
    if not path:
        return "", f"{name} is loaded in this process, but nothing says from where; {install}"
    found = re.search(r"\.so\.(\d+)", Path(path).resolve().name)
    if major and found and int(found[1]) != major:
        return "", f"CuPy is built for CUDA {major}, but {path} is of CUDA {found[1]}; {install}"
    return path, ""
