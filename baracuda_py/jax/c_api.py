"""XLA's foreign function interface as bytes: what `xla/ffi/api/c_api.h` of jaxlib lays out, read without a compiler.

A handler is a C function of one pointer, the call frame. Frames, their lists of arguments, results and attributes, and
the table of XLA's own functions begin with their size; a field is added at the end, and only another major version of
the interface moves one. So what is used here is read at fixed offsets. The header says the version (`version`), which
is asked before a handler is registered: XLA itself would refuse one when a backend starts, and the backend with it.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import BaracudaError, UnsupportedError

MAJOR, MINOR = 0, 3  # the version of the header that the layouts below are those of
EXECUTE = 3  # XLA_FFI_ExecutionStage; 0 is that of instantiation
INVALID_ARGUMENT, INTERNAL = 3, 13  # XLA_FFI_Error_Code
COMMAND_BUFFER_COMPATIBLE = 1  # XLA_FFI_Handler_TraitsBits

_FRAME = struct.Struct("<4Q i4x 2Qq2Q 2Qq2Q 2Qq3Q")
"""XLA_FFI_CallFrame: size, extension, api, context, stage; args and rets (size, extension, count, types, items);
attrs (size, extension, count, types, names, items)."""
_API = struct.Struct("<2Q 2Q2i Q")  # size, extension; version: size, extension, major, minor; internal
_EXTENSION = struct.Struct("<Q i4x 2Q")  # size, type, next; what it points to
_METADATA = 1  # XLA_FFI_Extension_Metadata
_VERSION = struct.Struct("<2Q2i I")  # at offset 8 of XLA_FFI_Metadata: the version, then the traits
_BUFFER = struct.Struct("<2Q i4x Qq Q")  # XLA_FFI_Buffer: size, extension, type, data, rank, dims
_BUFFER_DATA = 24  # offset of `data` in it
DATA_TYPES = {  # XLA_FFI_DataType by the name of the dtype
    "bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8, "uint64": 9,
    "float16": 10, "float32": 11, "float64": 12, "complex64": 15, "bfloat16": 16, "complex128": 18, "float8_e5m2": 19,
    "float8_e4m3fn": 20, "float8_e8m0fnu": 33,
}  # fmt: skip
_ERROR_CREATE, _STREAM_GET, _ORDINAL_GET = 48, 80, 184  # offsets of functions in XLA_FFI_Api
_LISTS = (40, 40, 48)  # sizes of args, rets and attrs, which lie within the frame

_word = ctypes.c_uint64.from_address
HANDLER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_FUNCTION = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)  # keeps the interpreter's lock: these are short


class Frame(NamedTuple):
    """A call: which stage, the pointers of its buffers, its attribute, and where XLA's functions and context are."""

    address: int
    api: int
    context: int
    stage: int
    inputs: Sequence[int]
    outputs: Sequence[int]
    key: bytes


def read_frame(address: int) -> Frame:
    """The frame of a call with one attribute, a string."""
    (
        _, _, api, context, stage, _, _, inputs, _, held, _, _, outputs, _, made, _, _, _, _, _, attributes,
    ) = _FRAME.unpack(ctypes.string_at(address, _FRAME.size))  # fmt: skip
    text = _word(attributes).value
    key = ctypes.string_at(_word(text).value, _word(text + 8).value)
    return Frame(address, api, context, stage, _buffers(held, inputs), _buffers(made, outputs), key)


def _buffers(items: int, count: int) -> list[int]:
    return [_word(buffer + _BUFFER_DATA).value or 0 for buffer in _items(items, count)]


def _items(items: int, count: int) -> Iterable[int]:
    return (ctypes.c_uint64 * count).from_address(items) if count else ()


def api_of(address: int) -> int:
    """Where the functions of XLA are that a frame brings."""
    return int(_word(address + 16).value)


def version(folder: str) -> tuple[int, int]:
    """The version of the interface that jaxlib's headers are of; raises UnsupportedError where it is not known here."""
    try:
        text = Path(folder, "xla/ffi/api/c_api.h").read_text()
        major, minor = (int(re.findall(rf"define XLA_FFI_API_{part} (\d+)", text)[0]) for part in ("MAJOR", "MINOR"))
    except (OSError, LookupError, ValueError) as error:
        raise UnsupportedError(f"jaxlib has no header that says the version of its interface: {error!r}") from error
    if major != MAJOR:
        raise UnsupportedError(
            f"XLA's foreign function interface {major}.{minor} of this jaxlib is not known; {MAJOR}.x is"
        )
    return major, minor


def answer_query(address: int, traits: int, minor: int) -> bool:
    """Whether the call asks what the handler is, as XLA does when one is registered; the answer is filled in.

    minor: that of XLA's version; an older version of the interface than XLA's is served, a newer one is not.
    """
    extension = _word(address + 8).value
    if not extension:
        return False
    _, kind, _, metadata = _EXTENSION.unpack(ctypes.string_at(extension, _EXTENSION.size))
    if kind != _METADATA:
        return False
    ctypes.memmove(metadata + 8, _VERSION.pack(24, 0, MAJOR, min(MINOR, minor), traits), _VERSION.size)
    return True


def expect(address: int, inputs: Iterable[Described], outputs: Iterable[Described]) -> None:
    """Raise UnsupportedError unless the frame is laid out as is known here and has these buffers."""
    frame = _FRAME.unpack(ctypes.string_at(address, _FRAME.size))
    size, _, _, _, major, minor, _ = _API.unpack(ctypes.string_at(frame[2], _API.size))
    lists = (frame[5], frame[10], frame[15])
    if major != MAJOR or frame[0] < _FRAME.size or lists != _LISTS or size <= _STREAM_GET:
        raise UnsupportedError(
            f"XLA's foreign function interface {major}.{minor} (frame of {frame[0]} bytes, lists of {lists}) is not "
            f"the known {MAJOR}.{MINOR} ({_FRAME.size}, {_LISTS})"
        )
    for what, wanted, count, items in (("inputs", inputs, *frame[7:10:2]), ("outputs", outputs, *frame[12:15:2])):
        found = [_described(buffer) for buffer in _items(items, count)]
        if found != (said := list(wanted)):
            raise BaracudaError(f"XLA gives {what} {found} (XLA_FFI_DataType, shape) where {said} were declared")


Described = tuple[int, tuple[int, ...]]
"""An XLA_FFI_DataType and a shape."""


def _described(buffer: int) -> Described:
    _, _, code, _, rank, dims = _BUFFER.unpack(ctypes.string_at(buffer, _BUFFER.size))
    return code, tuple((ctypes.c_int64 * rank).from_address(dims)) if rank else ()


def error(api: int, message: str, code: int = INTERNAL) -> int:
    """An error of XLA's with a message, to be returned by the handler; XLA copies the text and owns the rest."""
    text = ctypes.create_string_buffer(message.encode("utf-8", "backslashreplace"))
    given = struct.pack("<3Qi", 28, 0, ctypes.addressof(text), code)
    return _call(api, _ERROR_CREATE, ctypes.create_string_buffer(given)) or 0


def stream(frame: Frame) -> int:
    """The CUDA stream that the call's work belongs on."""
    return _ask(frame, _STREAM_GET, "a stream")


def ordinal(frame: Frame) -> int | None:
    """The CUDA ordinal of the call's device; None where this version of XLA does not say."""
    if _word(frame.api).value <= _ORDINAL_GET:
        return None
    return _ask(frame, _ORDINAL_GET, "a device") & 0xFFFFFFFF


def _ask(frame: Frame, function: int, what: str) -> int:
    """Call a function of XLA's that fills in one value of the context: size, extension, context, value."""
    given = ctypes.create_string_buffer(struct.pack("<4Q", 32, 0, frame.context, 0))
    if _call(frame.api, function, given):
        raise BaracudaError(f"XLA gave no answer when asked for {what}")
    return int(struct.unpack_from("<Q", given.raw, 24)[0])


def _call(api: int, function: int, given: Any) -> int | None:
    return _function(_word(api + function).value)(ctypes.addressof(given))  # type: ignore[no-any-return]


@cache
def _function(pointer: int) -> Any:
    return _FUNCTION(pointer)
