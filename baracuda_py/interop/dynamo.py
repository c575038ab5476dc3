"""What torch.compile is told: each function of this package is one call of its graph, not Python to look into.

Importing `torch._dynamo` takes longer than all of this package, so it is told once somebody else has imported it.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from .torch_rules import modes, settled

F = TypeVar("F", bound=Callable[..., Any])

_DYNAMO = "torch._dynamo"


def opaque(function: F) -> F:
    """Have torch.compile put calls of `function`, or of a callable object, into its graph as they are."""
    _news.keep(function)
    return function


def broken_at(reason: str) -> Callable[[F], F]:
    """Marks a function that torch.compile does not look into: its graph ends there, and the message has the reason.

    The mark is the one that `torch.compiler.disable` leaves on what it makes, and costs a call nothing.
    """

    def mark(function: F) -> F:
        function._torchdynamo_disable = True  # type: ignore[attr-defined]
        function._torchdynamo_disable_msg = reason  # type: ignore[attr-defined]
        return function

    return mark


def uncompiled(reason: str) -> Callable[[F], F]:
    """The same for a function that may take longer to call: what it calls is not compiled either."""

    def mark(function: F) -> F:
        held: list[Any] = [function]

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            return held[0](*args, **given)

        def change() -> None:
            held[0] = broken_at(reason)(sys.modules["torch"].compiler.disable(function))

        _news.expect(change)
        return call  # type: ignore[return-value]

    return mark


FORMULA = "a formula is made before a compiled function, not in it: f = bc.elementwise(…) there, f(x) here"
PLAN = "plans, their descriptors and their run are no part of a graph; call the function of baracuda_py.torch instead"
"""Why a graph ends."""


def calls_in_graph(value: Any, *names: str) -> dict[str, Callable[..., Any]]:
    """The methods `names` of an object as functions that torch.compile puts into its graph: it knows none of objects.

    The object's class keeps them as `in_graph`, where the methods that `methods_in_graph` names find them.
    """
    return {name: opaque(_function(value, name)) for name in names}


def _function(value: Any, name: str) -> Callable[..., Any]:
    def formula(*args: Any, **given: Any) -> Any:
        method = getattr(type(value), name)
        own = {key: settled(one) for key, one in given.items()} if modes() else given
        return getattr(method, "__wrapped__", method)(value, *(map(settled, args) if modes() else args), **own)

    return formula


def methods_in_graph(*names: str) -> Callable[[type], type]:
    """Marks a class of objects with `in_graph`: torch.compile, once it is there, calls what stands in it instead."""

    def mark(cls: type) -> type:
        _news.expect(lambda: _redirect(cls, names))
        return cls

    return mark


def _redirect(cls: type, names: Iterable[str]) -> None:
    compiling = sys.modules["torch"].compiler.is_dynamo_compiling
    for name in names:
        setattr(cls, name, _redirected(cls.__dict__[name], name, compiling))


def _redirected(method: Callable[..., Any], name: str, compiling: Callable[[], bool]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **given: Any) -> Any:
        return self.in_graph[name](*args, **given) if compiling() else method(self, *args, **given)

    return call


class _News:
    """Finds, first among all finders, nothing but torch._dynamo, and tells it what is opaque once it is imported."""

    def __init__(self) -> None:
        self.awaited = self.arrived = False
        self.changes: list[Callable[[], None]] = []
        self.held: dict[int, weakref.ref[Any]] = {}  # by identity: formulas are equal that are two objects

    def _wait(self) -> None:
        """Be told of the import, or see that it has been; then tell."""
        if not self.awaited:
            self.awaited, self.arrived = True, _DYNAMO in sys.modules
            if not self.arrived:
                sys.meta_path.insert(0, self)
        if self.arrived:
            self.tell()

    def keep(self, function: Any) -> None:
        """Keep what is opaque until it is told, or gone."""
        key = id(function)
        self.held[key] = weakref.ref(function, lambda _: self.held.pop(key, None))
        self._wait()

    def expect(self, change: Callable[[], None]) -> None:
        """Keep a change that is made then."""
        self.changes.append(change)
        self._wait()

    def tell(self) -> None:
        """Tell what is kept."""
        while self.changes:
            self.changes.pop()()
        while self.held:
            function = self.held.popitem()[1]()
            if function is not None:
                sys.modules["torch"].compiler.allow_in_graph(function)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec that others find, whose module tells when it is there."""
        if name != _DYNAMO:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            self.awaited = False
            return spec
        loader: Any = spec.loader
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            try:
                run(module)
            except BaseException:
                self.awaited = False
                raise
            self.arrived = True
            self.tell()

        loader.exec_module = exec_module
        return spec


_news = _News()
