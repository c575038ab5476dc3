"""A function of several calls gone through without a launch, so that an `out=` that one of them refuses costs nothing.

Each call checks its own output before it launches, but the ones before it have run by then, and may have written
another output or read what a later one overwrites. With `out=` a function is therefore run once with a preference
that has every plan check its operands instead of running; the results of calls are arrays with nothing in them. What
has been found right is remembered, so a call like it costs its key.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.args import arrays_of
from ..core.arrays import Reading, read
from ..core.errors import BaracudaError, InvalidProblemError, RecordedError
from ..core.memo import keep, records
from ..core.one_device import arrays_within, is_array
from ..core.outputs import allocating, maker
from ..core.tensor import View, shares_memory
from ..interop.packages import package_name
from ..interop.torch_rules import followed
from .call import Call
from .interpreters import innermost, interpreting

_CAPACITY = 4096
_ALIGNED = 256  # bytes: no load of a kernel asks for more
_known: dict[Any, bool] = records()
_PLAIN = (int, float, bool, str, type(None), complex)


class OverwrittenError(InvalidProblemError):
    """An output lies over an operand that a call reads after another one has written the output."""


@dataclass
class Outs:
    """The arrays that `out=` gave, by what a message calls them, and those that a call has written so far.

    twins: arrays in their place, where some lie over operands: what a call reads of their memory is an operand then,
    and not a result that it was told to put there.
    """

    views: dict[str, View]
    twins: dict[str, View] = field(default_factory=dict)
    written: set[str] = field(default_factory=set)

    def named(self, view: View) -> str | None:
        """The first that a view touches."""
        return next((name for name, out in self.views.items() if _touch(view, out)), None)

    def follow(self, reads: Iterable[View], writes: Iterable[View]) -> None:
        """Note a call; raise where it reads an operand that a call before it has written over."""
        for view in reads:
            name = next((name for name in self.written if _touch(view, self.views[name])), None)
            if name is not None:
                raise OverwrittenError(
                    f"{name} overlaps an operand that is read after it is written; give it memory of its own"
                )
        for view in writes:
            self.written.update(name for name, twin in self.twins.items() if _touch(view, twin))


class Rehearsal:
    """The interpreter that has calls checked and not run."""

    def __init__(self, outs: Outs) -> None:
        self.outs = outs

    def serve(self, call: Call) -> Any:
        """What the call would return, with nothing in it; raises what the call would raise."""
        entry, arrays = call.entry, call.arrays
        found = entry.resolved(call)
        if not entry.outs and call.out is not None:
            raise InvalidProblemError(f"{entry.name} works in place and takes no out=")
        with found.on_stream(call.stream):
            made = dict(zip(entry.outs, found.outputs(call.out), strict=True))
        args = found.args(**arrays, **call.scalars, **made)
        try:
            views = found.plan.plan_layout(args)[2]
        except BaracudaError as refused:
            raise self._told(refused, made) from None
        specs = arrays_of(found.plan.args)
        self.outs.follow(
            _views(views[spec.name] for spec in specs if spec.reads),
            _views(views[spec.name] for spec in specs if spec.writes),
        )
        results = tuple([{**arrays, **made}[name] for name in entry.results])
        return results[0] if len(results) == 1 else found.result(results)

    def _told(self, error: BaracudaError, made: Mapping[str, Any]) -> BaracudaError:
        """The error of a call, which names its own output, with the name of the one that was given for it."""
        name = str(error).partition(" ")[0].partition("[")[0]
        found = (self.outs.named(_view(read(one, name))) for one in _flat(made.get(name)) if one is not None)
        given = next((one for one in found if one is not None), None)
        if given is not None:
            error.args = (f"{given}: {error}",)
        return error


def rehearsing() -> bool:
    """Whether a function is gone through now, whose arrays have nothing in them."""
    return isinstance(innermost(), Rehearsal)


def rehearse(function: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any]) -> None:
    """Raise what a call with `out=` would raise by its last launch.

    Calls that torch records, JAX's arrays, which are no outputs, and functions of the caller, which would be called
    twice, are left to the calls.
    """
    if innermost() is not None or followed([*args, *given.values()]):
        return
    outs = {name: view for name, one in _named(given["out"]) if (view := _seen(one)) is not None}
    _check_apart(outs)
    rest = {name: value for name, value in given.items() if name != "out"}
    operands = [view for one in arrays_within((args, rest), is_array) if (view := _seen(one)) is not None]
    over = any(_touch(out, view) for out in outs.values() for view in operands)
    try:
        key = (function, _key(args, over), *[(name, _key(value, over)) for name, value in given.items()])
    except _Unknown as why:
        if why.args:
            return
        key = None
    except Exception:  # an operand or output that is none: whichever call reads it says so
        key = None
    if key is not None and key in _known:
        return
    _go_through(function, args, given, Outs(outs))
    if over:
        twin = _twin(given["out"], given.get("stream"))
        twins = {name: _view(read(one, name)) for name, one in _named(twin)}
        _go_through(function, args, {**given, "out": twin}, Outs(outs, twins))
    if key is not None:
        keep(_known, key, True, _CAPACITY)


def _go_through(function: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any], outs: Outs) -> None:
    # Whoever records a call says what is wrong with it.
    with interpreting(Rehearsal(outs)), contextlib.suppress(RecordedError):
        function(*args, **given)


def _check_apart(outs: Mapping[str, View]) -> None:
    """Raises where two outputs share memory."""
    for (name, out), (other, seen) in itertools.combinations(outs.items(), 2):
        if _touch(out, seen):
            raise InvalidProblemError(f"{other} overlaps {name}; give it memory of its own")


def _twin(out: Any, stream: Any) -> Any:
    """Arrays like those that `out=` gives, in memory of their own."""
    if isinstance(out, (list, tuple)):
        return tuple(_twin(one, stream) for one in out)
    if isinstance(out, dict):
        return {name: _twin(one, stream) for name, one in out.items()}
    if out is None:
        return None
    found = read(out, "out")
    with allocating(package_name(type(out)), found.device, stream):
        return maker(out, found.shape, found.element, found.device)()


class _Unknown(Exception):
    """Not every such call is alike; with an argument: nothing is to be rehearsed."""


def _key(value: Any, placed: bool) -> Any:
    """What of an argument decides whether a call is refused; raises _Unknown where that is not told from its type.

    placed: it matters where arrays lie, as some overlap.
    """
    kind = type(value)
    if kind in _PLAIN:
        return kind, value
    if isinstance(value, (list, tuple)):
        return kind, tuple([_key(one, placed) for one in value])
    if kind is dict:
        return kind, tuple([(name, _key(one, placed)) for name, one in value.items()])
    if is_array(value):
        view = read(value, "x")
        if view.traced or package_name(kind) == "jax":
            raise _Unknown("a trace")
        if view.device < 0:
            raise _Unknown  # its values may be read
        at = view.ptr if placed else view.ptr % _ALIGNED
        return kind, at, view.shape, view.strides, view.element, view.device, view.readonly
    if callable(value) and not isinstance(value, type):
        raise _Unknown("a function")
    hash(value)
    return kind, value


def _named(out: Any, name: str = "out") -> Iterator[tuple[str, Any]]:
    """The arrays that `out=` gives, each with what a message calls it."""
    if isinstance(out, (list, tuple, dict)):
        for key, one in out.items() if isinstance(out, dict) else enumerate(out):
            yield from _named(one, f"{name}[{key!r}]")
    elif out is not None:
        yield name, out


def _seen(array: Any) -> View | None:
    try:
        return _view(read(array, "out"))
    except BaracudaError:
        return None


def _view(reading: Reading) -> View:
    return View(reading.ptr, reading.shape, reading.strides, reading.element)


def _flat(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _views(values: Iterable[Any]) -> list[View]:
    return [view for value in values for view in _flat(value) if view is not None]


def _touch(a: View, b: View) -> bool:
    return bool(a.size and b.size) and shares_memory(a, b)
