"""What is remembered: `memo`, `functools.lru_cache` typed as the function it wraps, and `keep`, a dict with a bound.

mypy takes a class whose instances are unhashable for unhashable itself, and so refuses Args classes as arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K")
V = TypeVar("V")


def memo(maxsize: int | None = None) -> Callable[[F], F]:
    """Remember results by arguments: `maxsize` of them, or all."""

    def wrap(function: F) -> F:
        return functools.lru_cache(maxsize=maxsize)(function)  # type: ignore[return-value]

    return wrap


def keep(records: dict[K, V], key: K, value: V, most: int) -> V:
    """`records[key]`, which becomes `value` where it is new. A full dict is emptied first: what is used comes back.

    Reading `records` stays one `get`; any number of threads may do either.
    """
    if len(records) >= most and key not in records:
        records.clear()
    return records.setdefault(key, value)
