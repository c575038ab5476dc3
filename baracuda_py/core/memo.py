"""What is remembered: `memo`, `functools.lru_cache` typed as the function it wraps, `cached_property`, `keep`, a dict
with a bound, and `records`, a dict that a forked child finds empty.

mypy takes a class whose instances are unhashable for unhashable itself, and so refuses Args classes as arguments.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .._forking import in_child

F = TypeVar("F", bound=Callable[..., Any])
K = TypeVar("K")
V = TypeVar("V")

PLANS_KEPT = 8192
"""Classes of which facts are remembered: every plan of the package, and as many again of formulas, the last used."""


def memo(maxsize: int | None = None) -> Callable[[F], F]:
    """Remember results by arguments: `maxsize` of them, or all."""

    def wrap(function: F) -> F:
        return functools.lru_cache(maxsize=maxsize)(function)  # type: ignore[return-value]

    return wrap


if TYPE_CHECKING:
    from functools import cached_property as cached_property  # noqa: TID251
else:

    class cached_property:
        """`functools.cached_property` without the lock that it has before Python 3.12.

        That one is held for all instances of a class, and in a forked child for good where another thread held it.
        Threads that ask at the same time each compute the value, and all of them get the first that is kept.
        """

        def __init__(self, func: Callable[[Any], Any]) -> None:
            self.func = func
            self.__doc__ = func.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            return instance.__dict__.setdefault(self.name, self.func(instance))


def keep(records: dict[K, V], key: K, value: V, most: int) -> V:
    """`records[key]`, which becomes `value` where it is new. A full dict is emptied first: what is used comes back.

    Reading `records` stays one `get`; any number of threads may do either.
    """
    if len(records) >= most and key not in records:
        records.clear()
    return records.setdefault(key, value)


class _Records(dict[Any, Any]):
    """A dict that is known here without being kept alive."""

    __slots__ = ("__weakref__",)


_known: weakref.WeakValueDictionary[int, _Records] = weakref.WeakValueDictionary()  # by identity


def records() -> dict[Any, Any]:
    """A new dict, which a forked child finds empty. It lives as long as its holder does."""
    made = _Records()
    _known[id(made)] = made
    return made


def _forget_parent() -> None:
    for one in list(_known.values()):
        one.clear()


in_child(_forget_parent)
