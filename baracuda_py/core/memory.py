"""Memory that cannot be had: what each package raises then becomes one error, which names the bytes."""

from __future__ import annotations

import math
from typing import Any, NoReturn

from .errors import OutOfMemoryError
from .memo import memo

_WORDS = ("can't allocate memory", "out of memory", "resource_exhausted", "storage size calculation overflowed",
          "array is too big", "maximum supported dimension", "maximum allowed dimension")  # fmt: skip
"""What is said by packages that raise no MemoryError."""


def lacking(error: BaseException, what: str, nbytes: int | None = None) -> OutOfMemoryError | None:
    """The error for `what`, where `error` is of memory that could not be had; None where it is of something else.

    It is of the type of `error`, too, so that `except torch.OutOfMemoryError` goes on catching it.
    """
    if isinstance(error, OutOfMemoryError):
        return None  # which says it already
    if not isinstance(error, MemoryError) and not _said(error):
        return None
    asked = _asked(error) if nbytes is None else nbytes
    size = "memory" if asked is None else f"{asked} bytes"
    text = " ".join(str(error).split())
    told = f"{size} for {what} cannot be allocated{f' ({text})' if text else ''}; free memory, or split the problem"
    made: OutOfMemoryError = _typed(type(error))(told, asked)
    return made


def raise_lacking(error: Exception, what: str, nbytes: int | None = None) -> NoReturn:
    """From an `except`: the error for `what`, see `lacking`, or `error` itself where it is of something else."""
    if (told := lacking(error, what, nbytes)) is None:
        raise error
    raise told from error


def _said(error: BaseException) -> bool:
    if type(error).__name__ == OutOfMemoryError.__name__:  # torch's
        return True
    return isinstance(error, (RuntimeError, ValueError)) and any(word in str(error).lower() for word in _WORDS)


def _asked(error: BaseException) -> int | None:
    """The bytes that NumPy's error knows of."""
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    known = isinstance(shape, tuple) and hasattr(dtype, "itemsize")
    return math.prod(shape) * int(dtype.itemsize) if known else None  # type: ignore[union-attr, arg-type]


@memo()
def _typed(kind: type[BaseException]) -> Any:
    if issubclass(OutOfMemoryError, kind):
        return OutOfMemoryError
    try:
        return type("OutOfMemoryError", (OutOfMemoryError, kind), {"__module__": OutOfMemoryError.__module__})
    except TypeError:  # two layouts in memory
        return OutOfMemoryError
