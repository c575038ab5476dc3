"""Functions made of several calls whose gradient is another such function: to autograd each is one node."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ..interop.torch_rules import requires_grad
from . import registry
from .execution import composition

F = TypeVar("F", bound=Callable[..., Any])


def composed(
    backward: str | Callable[..., Any], *operands: str, result: bool = False, reads: tuple[str, ...] | None = None,
    where: Callable[[dict[str, Any]], bool] | None = None,
) -> Callable[[F], F]:  # fmt: skip
    """Marks a function of one array whose gradients `backward(dy, …)` makes, those for `operands` in their order.

    backward, a function or the name of a public one, takes the function's own arguments by name, and with `result` its
    result as y. reads: the operands whose values it looks at (by default all); others come without memory, to tell
    shape and element. where: tells by the arguments whether there is a gradient; else the calls inside say so.
    """

    def mark(function: F) -> F:
        shown = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Any, **given: Any) -> Any:
            if requires_grad(args) or (given and requires_grad(given.values())):
                try:
                    bound = shown.bind(*args, **given)
                except TypeError:
                    return function(*args, **given)  # which says what is wrong
                bound.apply_defaults()
                held = dict(bound.arguments)
                if where is None or where(held):
                    made = registry.public(backward) if isinstance(backward, str) else backward
                    return composition()(function, made, held, operands, result, reads)
            return function(*args, **given)

        return call  # type: ignore[return-value]

    return mark
