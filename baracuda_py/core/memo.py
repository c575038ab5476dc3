"""`memo`, `functools.lru_cache` typed as the function it wraps.

mypy takes a class whose instances are unhashable for unhashable itself, and so refuses Args classes as arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def memo(maxsize: int | None = None) -> Callable[[F], F]:
    """Remember results by arguments: `maxsize` of them, or all."""

    def wrap(function: F) -> F:
        return functools.lru_cache(maxsize=maxsize)(function)  # type: ignore[return-value]

    return wrap
