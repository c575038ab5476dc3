"""Ops from formulas: `elementwise("silu(x) * y + alpha")`. See docs/expressions.md.

Inside a Python function that is traced, `expressions.where`, `expressions.exp` and so on take symbols: every name that
a formula may call is a function here.
"""

from __future__ import annotations

from typing import Any

from .build import callable_names
from .elementwise import Expression, elementwise
from .errors import ExpressionError
from .trace import apply

__all__ = ["Expression", "ExpressionError", "elementwise"]


def __getattr__(name: str) -> Any:
    if name.startswith("_") or name not in callable_names():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def function(*args: Any, **given: Any) -> Any:
        return apply(name, args, given)

    function.__name__ = function.__qualname__ = name
    return function
