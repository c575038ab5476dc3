"""Functions made of several calls whose gradient is another such function: to torch and JAX each is one operation."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ..core import registry
from ..interop.dynamo import opaque
from ..interop.torch_rules import autocasting, transformed
from .interpreters import Composed, autocast_function, recorder

F = TypeVar("F", bound=Callable[..., Any])


def may_grow(value: Any) -> bool:
    """Whether a gradient of an array may be asked for where `recorder` records it; some tell later."""
    return bool(getattr(value, "requires_grad", True)) or transformed(value)


def recording(shown: inspect.Signature, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
    """(recorder, arguments by name) of a call of a function that a framework records, None of any other.

    None also where the arguments do not fit: the function itself says what is wrong.
    """
    found = recorder((*args, *given.values()) if given else args)
    if found is None:
        return None
    try:
        bound = shown.bind(*args, **given)
    except TypeError:
        return None
    bound.apply_defaults()
    return found, dict(bound.arguments)


def composed(
    backward: str | Callable[..., Any], *operands: str, result: bool = False, reads: tuple[str, ...] | None = None,
    where: Callable[[dict[str, Any]], bool] | None = None,
) -> Callable[[F], F]:  # fmt: skip
    """Marks a function whose gradients `backward(dy, …)` makes, those for `operands` in their order.

    backward, a function or the name of a public one, takes the function's own arguments by name, and with `result` its
    result as y; one that has a parameter `wanted` is told by torch which operands' gradients are, and returns None for
    others. Of several results dy and y are tuples, dy with None for one that has no part in
    what is differentiated. reads: the operands whose values it looks at (by default all); others come without memory,
    to tell shape and element. where: tells by the arguments whether there is a gradient; else the calls inside say so.
    """

    def mark(function: F) -> F:
        shown = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            if autocasting():
                return autocast_function(call, args, given)
            noted = recording(shown, args, given)
            if noted is not None and (where is None or where(noted[1])):
                made = registry.public(backward) if isinstance(backward, str) else backward
                return noted[0].compose(Composed(function, made, noted[1], operands, result, reads))
            return function(*args, **given)

        return opaque(call)  # type: ignore[return-value]

    return mark
