"""Nodes from calls and operators: arity checked, constants folded, powers by small numbers as PyTorch takes them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..core.checked import shown
from ..core.keywords import near
from .errors import ExpressionError
from .function import Function
from .functions import ALIASES, CASTS, functions, known, names
from .nodes import Node, constant, converted, is_constant

_FOLDED: Mapping[str, Callable[..., Any]] = {
    "neg": operator.neg, "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv,
    "pow": operator.pow, "floor_divide": operator.floordiv, "remainder": operator.mod, "sqrt": math.sqrt,
    "exp": math.exp, "log": math.log, "abs": abs,
}  # fmt: skip
MOST_BITS = 1023  # bits of an integer that float64 reaches


def call(name: str, args: Sequence[Node], given: Mapping[str, Node] | None = None) -> Node:
    """A function of nodes, by any of its names; `given` are arguments by keyword."""
    name = ALIASES.get(name, name) if name not in functions() and name not in MACROS else name
    if name in CASTS:
        (x,) = arranged(name, ("x",), {}, args, given or {})
        return converted(x, CASTS[name])
    if name == "clamp":
        return _clamp(args, given or {})
    if name in MACROS:
        parameters, defaults, formula = MACROS[name]
        return formula(*arranged(name, parameters, defaults, args, given or {}))
    function = known(name)
    if function is None:
        close = near(name, callable_names())
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        raise ExpressionError(f"there is no function {name}{hint}")
    return made(function, arranged(name, function.parameters, function.defaults, args, given or {}))


def arranged(
    name: str, parameters: Sequence[str], defaults: Mapping[str, float], args: Sequence[Node], given: Mapping[str, Node]
) -> tuple[Node, ...]:
    """The arguments of a call in order, defaults filled in."""
    form = f"{name}({', '.join(f'{p}={defaults[p]:g}' if p in defaults else p for p in parameters)})"
    if len(args) > len(parameters):
        raise ExpressionError(f"{form} takes {len(parameters)} arguments, got {len(args)}")
    held = dict(zip(parameters, args, strict=False))
    for word, value in given.items():
        if word not in parameters:
            raise ExpressionError(f"{form} has no argument {word}")
        if word in held:
            raise ExpressionError(f"{form}: {word} is given twice")
        held[word] = value
    missing = [p for p in parameters if p not in held and p not in defaults]
    if missing:
        raise ExpressionError(f"{form} needs {' and '.join(missing)}, got {len(args) + len(given)} arguments")
    return tuple(held[p] if p in held else constant(defaults[p]) for p in parameters)


def made(function: Function, args: Sequence[Node]) -> Node:
    """A call of a function, or the constant or simpler call that it is."""
    name = function.name
    if name in _FOLDED and all(is_constant(arg) and not isinstance(arg.value, bool) for arg in args):
        value = _folded(name, [arg.value for arg in args])
        if isinstance(value, (int, float)):
            return constant(value)
    if name == "pow" and is_constant(args[1]) and not isinstance(args[1].value, bool):
        simpler = _power(args[0], args[1].value)
        if simpler is not None:
            return simpler
    return Node("call", name, tuple(args))


def _folded(name: str, values: Sequence[Any]) -> Any:
    """What a function makes of numbers, integers exactly; None where that is left to the functor's own rules."""
    whole = all(isinstance(value, int) for value in values)
    if name == "pow" and whole and values[1] * (abs(values[0]).bit_length() - 1) > MOST_BITS:
        raise ExpressionError(f"{shown(values[0])} ** {shown(values[1])} is beyond float64")
    try:
        value = _FOLDED[name](*values)
    except (ArithmeticError, ValueError):
        return None
    if isinstance(value, int) and value.bit_length() > MOST_BITS:
        raise ExpressionError(f"an integer of {value.bit_length()} bits is beyond float64")
    return value


def _power(x: Node, exponent: float) -> Node | None:
    """x to a power that is a function of its own, as PyTorch's pow has it."""
    if exponent == 1:
        return x
    if exponent == 2:
        return call("square", (x,))
    if exponent == 3:
        return call("mul", (call("mul", (x, x)), x))
    if isinstance(exponent, float):
        if exponent == 0.5:
            return call("sqrt", (x,))
        if exponent == -0.5:
            return call("rsqrt", (x,))
    if exponent == -1:
        return call("reciprocal", (x,))
    if exponent == -2:
        return call("reciprocal", (call("square", (x,)),))
    return None


def _clamp(args: Sequence[Node], given: Mapping[str, Node]) -> Node:
    """min(max(x, low), high); either end may be left out or None."""
    words = {"min": "low", "max": "high"}
    x, low, high = _ends(args, {words.get(word, word): value for word, value in given.items()})
    if low is None or high is None:
        name, end = ("clamp_max", high) if low is None else ("clamp_min", low)
        return made(functions()[name], (x, end))  # type: ignore[arg-type]
    return made(functions()["clamp"], (x, low, high))


def _ends(args: Sequence[Node], given: Mapping[str, Node]) -> tuple[Node, Node | None, Node | None]:
    absent = constant(math.nan)
    parameters = ("x", "low", "high")
    filled = {p: absent for p in parameters[1:] if p not in given and parameters.index(p) >= len(args)}
    x, low, high = arranged("clamp", parameters, {}, args, {**given, **filled})
    if len(filled) == 2:
        raise ExpressionError("clamp(x, low, high) needs low or high, got neither")
    return x, None if "low" in filled else low, None if "high" in filled else high


def _of(name: str) -> Callable[..., Node]:
    return lambda *args: call(name, args)


_add, _sub, _mul, _div = map(_of, ("add", "sub", "mul", "div"))
_tanh, _silu = map(_of, ("tanh", "silu"))

MACROS: Mapping[str, tuple[tuple[str, ...], Mapping[str, float], Callable[..., Node]]] = {
    "rsub": (("a", "b"), {}, lambda a, b: _sub(b, a)),
    "swiglu": (("gate", "x"), {}, lambda gate, x: _mul(_silu(gate), x)),
    "softcap": (("x", "cap"), {}, lambda x, cap: _mul(cap, _tanh(_div(x, cap)))),
}
"""Functions that are formulas of others: parameters, defaults, and the formula."""


def callable_names() -> list[str]:
    """Every name that may be called."""
    return sorted({*names(), *MACROS, "clip"})


def parameters_of(name: str) -> tuple[str, ...]:
    """The names of a function's arguments; none where there is no such function."""
    name = "clamp" if name == "clip" else name
    function = known(name)
    return function.parameters if function else MACROS[name][0] if name in MACROS else ()
