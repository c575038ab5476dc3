"""XLA's foreign function interface as bytes: what `xla/ffi/api/c_api.h` of jaxlib lays out, read without a compiler.

A handler is a C function of one pointer, the call frame. Frames, their lists of arguments, results and attributes, and
the table of XLA's own functions begin with their size; a field is added at the end, and only another major version of
the interface moves one. So what is used here is read at fixed offsets once the sizes and the version are known
(`check`), and a version that is not known is refused when the handler is registered.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from functools import cache
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
_BUFFER_DATA = 24  # offset of `data` in XLA_FFI_Buffer
_ERROR_CREATE, _STREAM_GET, _ORDINAL_GET = 48, 80, 184  # offsets of functions in XLA_FFI_Api
_LISTS = (40, 40, 48)  # sizes of args, rets and attrs, which lie within the frame

_word = ctypes.c_uint64.from_address
HANDLER = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_FUNCTION = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)  # keeps the interpreter's lock: these are short


class Frame(NamedTuple):
    """A call: which stage, the pointers of its buffers, its attribute, and where XLA's functions and context are."""

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
    return Frame(api, context, stage, _buffers(held, inputs), _buffers(made, outputs), key)


def _buffers(items: int, count: int) -> list[int]:
    if not count:
        return []
    return [_word(buffer + _BUFFER_DATA).value for buffer in (ctypes.c_uint64 * count).from_address(items)]


def api_of(address: int) -> int:
    """Where the functions of XLA are that a frame brings."""
    return int(_word(address + 16).value)


def answer_query(address: int, traits: int) -> bool:
    """Whether the call asks what the handler is, as XLA does when one is registered; the answer is filled in."""
    extension = _word(address + 8).value
    if not extension:
        return False
    _, kind, _, metadata = _EXTENSION.unpack(ctypes.string_at(extension, _EXTENSION.size))
    if kind != _METADATA:
        return False
    minor = min(MINOR, check(address))
    ctypes.memmove(metadata + 8, _VERSION.pack(24, 0, MAJOR, minor, traits), _VERSION.size)
    return True


def check(address: int) -> int:
    """Raise UnsupportedError unless the frame is laid out as is known here; returns XLA's minor version."""
    frame = _FRAME.unpack(ctypes.string_at(address, _FRAME.size))
    size, _, _, _, major, minor, _ = _API.unpack(ctypes.string_at(frame[2], _API.size))
    lists = (frame[5], frame[10], frame[15])
    known = major == MAJOR and frame[0] >= _FRAME.size and lists == _LISTS and size > _STREAM_GET
    if not known:
        raise UnsupportedError(
            f"XLA's foreign function interface {major}.{minor} (frame of {frame[0]} bytes, lists of {lists}) is not "
            f"the known {MAJOR}.{MINOR} ({_FRAME.size}, {_LISTS}); install a jaxlib that has it"
        )
    return int(minor)


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
