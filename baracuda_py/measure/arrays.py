"""The same problem in NumPy or CuPy, where these have a function for it: a peer to time against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..core.plan import Plan

_NAMES = {  # a kind → the function of NumPy and CuPy, where that has another name
    "div": "true_divide", "mul": "multiply", "sub": "subtract", "neg": "negative", "acos": "arccos", "asin": "arcsin",
    "atan": "arctan", "atan2": "arctan2", "acosh": "arccosh", "asinh": "arcsinh", "atanh": "arctanh", "eq": "equal",
    "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "pow": "power",
    "sgn": "sign",
}  # fmt: skip


def in_arrays(xp: Any, plan: type[Plan], desc: Any, given: Mapping[str, Any]) -> Callable[[], Any] | None:
    """A call of `xp`'s function on the operands; None where it has none."""
    kind = getattr(desc, "kind", None)
    name = getattr(kind, "value", plan.op.partition(".")[2])
    function = getattr(xp, _NAMES.get(name, name), None)
    maker = _OPS.get(plan.op)
    if maker is None or (function is None and plan.op != "gemm.gemm"):
        return None
    return maker(xp, function, desc, given)


def _unary(xp: Any, function: Any, desc: Any, given: Mapping[str, Any]) -> Callable[[], Any] | None:
    return lambda: function(given["x"])


def _binary(xp: Any, function: Any, desc: Any, given: Mapping[str, Any]) -> Callable[[], Any] | None:
    return None if desc.with_number else lambda: function(given["a"], given["b"])


def _reduce(xp: Any, function: Any, desc: Any, given: Mapping[str, Any]) -> Callable[[], Any] | None:
    axis = desc.axis if len(desc.axis) != 1 else desc.axis[0]
    return lambda: function(given["x"], axis=axis)


def _scan(xp: Any, function: Any, desc: Any, given: Mapping[str, Any]) -> Callable[[], Any] | None:
    plain = not (desc.reverse or desc.exclusive)
    return (lambda: function(given["x"], axis=desc.axis)) if plain else None


def _product(xp: Any, function: Any, desc: Any, given: Mapping[str, Any]) -> Callable[[], Any] | None:
    return (lambda: xp.matmul(given["a"], given["b"])) if given.get("c") is None else None


_OPS = {
    "elementwise.unary": _unary, "elementwise.binary": _binary, "reduce.reduce": _reduce, "scan.scan": _scan,
    "gemm.gemm": _product,
}  # fmt: skip
