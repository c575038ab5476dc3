"""DLPack's exchange API: a table of C functions on an array type, by which its arrays are read without a capsule.

`type(array).__dlpack_c_exchange_api__` (DLPack 1.3) says what `__dlpack__` says, read-only memory included, for every
element, and names the producer's stream, which ours then waits for. Types without it are read as before.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from ..interop.dlpack import Tensor, capsule_pointer
from .element import ElementKind
from .errors import UnsupportedError


class _Version(ctypes.Structure):
    _fields_ = (("major", ctypes.c_uint32), ("minor", ctypes.c_uint32))


class _Header(ctypes.Structure):
    """`DLPackExchangeAPIHeader`: `previous` leads to the table of an older major version."""

    _fields_ = (("version", _Version), ("previous", ctypes.c_void_p))


class _Table(ctypes.Structure):
    """`DLPackExchangeAPI`."""

    _fields_ = (
        ("header", _Header),
        ("allocate", ctypes.c_void_p),
        ("export", ctypes.c_void_p),
        ("make", ctypes.c_void_p),
        ("view", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )


class Managed(ctypes.Structure):
    """`DLManagedTensorVersioned`: a tensor with what gives it back."""

    _fields_ = (
        ("version", _Version),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


_MAJOR, _READ_ONLY = 1, 1
_export = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.POINTER(Managed)))
_stream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
_deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)

_ELEMENTS = {  # (DLDataTypeCode, bits) → element
    **{(0, n): ElementKind.of(f"int{n}") for n in (8, 16, 32, 64)},
    **{(1, n): ElementKind.of(f"uint{n}") for n in (8, 16, 32, 64)},
    (2, 16): ElementKind.F16, (2, 32): ElementKind.F32, (2, 64): ElementKind.F64, (4, 16): ElementKind.BF16,
    (5, 64): ElementKind.C64, (5, 128): ElementKind.C128, (6, 8): ElementKind.BOOL, (10, 8): ElementKind.FP8E4M3,
    (12, 8): ElementKind.FP8E5M2, (14, 8): ElementKind.E8M0,
}  # fmt: skip


class Exported(NamedTuple):
    """What an array is. Strides are in elements, None where it is dense; `device` is DLPack's (type, number)."""

    ptr: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    element: ElementKind
    device: tuple[int, int]
    readonly: bool
    owner: Any
    stream: int | None


class _Owner:
    """Gives a tensor back to its producer when it is no longer in use."""

    def __init__(self, managed: Any) -> None:
        self._managed = managed

    def __del__(self) -> None:
        deleter = self._managed.contents.deleter
        if deleter:
            _deleter(deleter)(ctypes.addressof(self._managed.contents))


class Exchange:
    """The functions of one array type."""

    def __init__(self, table: _Table) -> None:
        self._export = _export(table.export)
        self._stream = _stream(table.stream) if table.stream else None

    def export(self, array: Any) -> Exported:
        """An array of the type; raises what the producer raises."""
        managed = ctypes.POINTER(Managed)()
        if self._export(array, ctypes.byref(managed)) or not managed:
            raise UnsupportedError(f"a {type(array).__name__} was not exported through DLPack")
        owner, tensor = _Owner(managed), managed.contents.tensor
        element = _ELEMENTS.get((tensor.code, tensor.bits))
        if element is None or tensor.lanes != 1:
            said = f"code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes"
            raise UnsupportedError(f"no element kind for DLPack's data type ({said})")
        axes, at = range(tensor.ndim), (tensor.device_type, tensor.device_id)
        return Exported(
            (tensor.data or 0) + tensor.byte_offset, tuple(tensor.shape[i] for i in axes),
            tuple(tensor.strides[i] for i in axes) if tensor.strides else None, element, at,
            bool(managed.contents.flags & _READ_ONLY), owner, self._current(*at),
        )  # fmt: skip

    def _current(self, device_type: int, device_id: int) -> int | None:
        """The stream on which the producer works on a CUDA device; nothing of the host."""
        if device_type not in (2, 13) or self._stream is None:
            return None
        found = ctypes.c_void_p()
        self._stream(device_type, device_id, ctypes.byref(found))
        return found.value or 0


def exchange_of(kind: type) -> Exchange | None:
    """The table of an array type, where it has one of a version that is known."""
    capsule = getattr(kind, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    at = capsule_pointer(capsule, b"dlpack_exchange_api")
    while at:
        table = _Table.from_address(at)
        if table.header.version.major == _MAJOR and table.export:
            return Exchange(table)
        at = table.header.previous
    return None


class _Held:
    """Host memory as NumPy takes it, kept by what owns it."""

    def __init__(self, found: Exported, strides: tuple[int, ...]) -> None:
        size = found.element.itemsize
        self.owner = found.owner
        self.__array_interface__ = {
            "version": 3, "shape": found.shape, "typestr": f"|V{size}", "data": (found.ptr, found.readonly),
            "strides": tuple(step * size for step in strides),
        }  # fmt: skip


def on_host(found: Exported, strides: tuple[int, ...]) -> np.ndarray:
    """A NumPy array over the memory, which it keeps."""
    kind = found.element
    return np.asarray(_Held(found, strides)).view(kind.dtype if kind.bits >= 8 else kind.carrier)
