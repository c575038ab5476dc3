"""The errors a user meets: typed, to be caught, and pickle-safe, so that worker processes can send them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def _rebuild(cls: type[BaracudaError], args: tuple[Any, ...], state: dict[str, Any]) -> BaracudaError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


def _encodable(part: Any) -> Any:
    """Text that every stream can print: lone surrogates, which a caller's strings may hold, are written as escapes."""
    return part.encode("utf-8", "backslashreplace").decode() if isinstance(part, str) else part


class BaracudaError(Exception):
    """Base of every error this package raises on purpose."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*map(_encodable, parts))

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are normally rebuilt by calling the class with `args` (the message), which fails for
        # the subclasses whose constructor takes anything else.
        return _rebuild, (type(self), self.args, dict(self.__dict__))


class InvalidProblemError(BaracudaError, ValueError):
    """A wrong shape, dtype or value, or a missing operand: the problem makes no sense on any device."""


class UnknownKeywordError(InvalidProblemError, TypeError):
    """A keyword that a function, descriptor or Args class does not take; Python's TypeError, naming the one meant."""


class UnsupportedError(BaracudaError):
    """An element, layout or feature that no row of the dispatch table takes; `table` says why, row by row."""

    def __init__(self, message: str, table: str = "") -> None:
        super().__init__(f"{message}\n{table}" if table else message)
        self.table = table


class RecordedError(UnsupportedError):
    """A torch tensor with more to it than its memory: autograd, a transformation or a trace records what is done.

    Raised before anything is written. The functional layer hands such a call to `baracuda_py.torch`.
    """


class SingularMatrixError(BaracudaError, np.linalg.LinAlgError):
    """A matrix that has no factors or no inverse, where the host looks: at NumPy's arrays, or by BARACUDA_CHECK=1."""


class MisalignedOperandError(BaracudaError):
    """A pointer or pitch lies off the alignment that the kernel's loads need."""


class WorkspaceTooSmallError(BaracudaError):
    """The workspace given holds fewer bytes than `workspace_size(args)`."""

    def __init__(self, needed: int, got: int) -> None:
        super().__init__(f"workspace: needs {needed} bytes, got {got}; allocate plan.workspace_size(args) bytes")
        self.needed = needed
        self.got = got


class BufferTooSmallError(BaracudaError):
    """A `TensorRef` whose shape and strides reach beyond the bytes it says it owns."""

    def __init__(self, needed: int, got: int, operand: str = "") -> None:
        super().__init__(f"{operand or 'buffer'}: shape and strides reach {needed} bytes, nbytes is {got}")
        self.needed = needed
        self.got = got
        self.operand = operand


class OutOfMemoryError(BaracudaError, MemoryError):
    """Memory for an output, a workspace or the NumPy backend that cannot be had; `nbytes`: asked for, where known."""

    def __init__(self, message: str, nbytes: int | None = None) -> None:
        # Not by `super`: where it is of a package's own type, too, that one's constructor takes something else.
        Exception.__init__(self, _encodable(message))
        self.nbytes = nbytes

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        # The type that is a package's, too, is made while the program runs: it is sent as what it is here.
        return OutOfMemoryError, (self.args[0], self.nbytes), dict(self.__dict__)


class DeviceMismatchError(BaracudaError):
    """An operand on another device, a host array given to a CUDA plan, or a plan used in a forked child."""


class NotPreparedError(BaracudaError):
    """A layout not seen before arrived under graph capture, where nothing may be compiled or loaded."""


class CaptureError(BaracudaError):
    """A function given to `graph` did what a CUDA graph cannot hold: waited, read a value back, lost a stream."""


class CompileError(BaracudaError):
    """A kernel could not be compiled; `log` is the compiler's, `source_path` the flattened source it was given."""

    def __init__(self, message: str, log: str = "", source_path: Path | None = None) -> None:
        super().__init__(message)
        self.log = log
        self.source_path = source_path


Span = tuple[int, int]
"""First character of a part of a formula's text, and the one after its last."""


class ExpressionError(InvalidProblemError):
    """A formula that has no meaning, or none for the operands given; the message points at the characters.

    `text` is the formula and `span` the characters meant, from the first to the one after the last.
    """

    __module__ = "baracuda_py.expressions.errors"  # where users have it from, and pickles look for it

    def __init__(self, message: str, text: str = "", span: Span | None = None) -> None:
        self.text, self.span = text, span
        super().__init__(f"{message}\n{_pointed(text, span)}" if text and span else message)


def _pointed(text: str, span: Span) -> str:
    """The line of `text` that a span begins in, and under it what points at the span."""
    start = min(max(span[0], 0), len(text))
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", start)
    line = text[first : len(text) if last < 0 else last]
    width = max(1, min(span[1], first + len(line)) - start)
    return f"  {line}\n  {' ' * (start - first)}{'^' * width}"


class NonFiniteWarning(UserWarning):
    """BARACUDA_CHECK=1: a call made NaN or infinities of finite operands, or left elements of an output unwritten."""
