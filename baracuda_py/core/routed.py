"""Calls that their operands or their preference send elsewhere than to a plan's kernels."""

from __future__ import annotations

from typing import Any

from ..interop.jax_arrays import unwrapped, wraps
from ..interop.torch_rules import modes, settled, stands_in
from .errors import RecordedError
from .execution import bridge


class Routed:
    """A preference that sends a call to `baracuda_py.torch`; unhashable, so that no entry is found for it."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, preference: Any = None) -> None:
        self.preference: Any = preference.preference if isinstance(preference, Routed) else preference

    def around(self, preference: Any) -> Routed:
        """The same of another preference."""
        return Routed(preference)

    def serve(self, function: Any, *call: Any) -> Any:
        """What becomes of a call with this preference."""
        return bridge()(function, *call)


def arrived(args: tuple[Any, ...], given: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call's arguments: with arrays in the place of what wraps them, and where a trace of torch's sees it, with
    numbers for symbols, and a preference that says so."""
    if wraps((*args, *given.values())):
        args, given = unwrapped(args), unwrapped(given)
    if not modes() or not stands_in([*args, *given.values()]):
        return args, given
    held = {name: settled(value) for name, value in given.items()}
    return tuple([settled(value) for value in args]), {**held, "preference": Routed(given.get("preference"))}


def route(
    function: Any, error: RecordedError | None, entry: Any, arrays: Any, attributes: Any, scalars: Any,
    returns: Any, out: Any, stream: Any, preference: Any, *layout: Any,
) -> Any:  # fmt: skip
    """What autograd or a trace makes of a call that `error` refuses, or that is known to be one for them."""
    if error is not None:
        error.__traceback__ = None  # whose frames have the arrays, and are of one cycle with it
    if wraps(arrays.values()):
        place = function.local
        flags = {flag: value for n, value in returns.items() if (flag := f"return_{place[n]}") in function.flags}
        operands = {place[n]: value for n, value in unwrapped({**arrays, **scalars}).items()}
        options = {"out": out, "stream": stream, "preference": preference, **({"layout": layout[0]} if layout else {})}
        return function(**operands, **attributes, **flags, **options)
    serve = preference.serve if isinstance(preference, Routed) else bridge()
    return serve(function, error, entry, arrays, attributes, scalars, returns, out, stream, preference, *layout)
