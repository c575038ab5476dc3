"""ONNX's operators of two arrays, and of several that are folded: functions of a node of `onnx_backend`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import baracuda_py as bc
from baracuda_py.calls.functional import functional

_FOLDED = {"Add": "add", "Sub": "sub", "Mul": "mul", "Max": "maximum", "Min": "minimum", "Sum": "add"}
_OF_TWO = {
    "And": "logical_and", "Or": "logical_or", "Xor": "logical_xor", "Equal": "eq", "Greater": "gt",
    "GreaterOrEqual": "ge", "Less": "lt", "LessOrEqual": "le", "BitwiseAnd": "bitwise_and", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
}  # fmt: skip


def _folded(name: str) -> Callable[[Any], Any]:
    return lambda n: functools.reduce(getattr(bc, name), n.inputs)


def _of_two(name: str) -> Callable[[Any], Any]:
    return lambda n: getattr(bc, name)(n[0], n[1])


def _mean(n: Any) -> Any:
    return bc.affine(functools.reduce(bc.add, n.inputs), 1 / len(n.inputs))


def _div(n: Any) -> Any:
    return bc.div(n[0], n[1], rounding_mode=None if n[0].dtype.kind == "f" else "trunc")


def _mod(n: Any) -> Any:
    return (bc.fmod if n.get("fmod", 0) else bc.remainder)(n[0], n[1])


def _pow(n: Any) -> Any:
    """The result has the base's element, whatever the exponent's."""
    base, exponent = n[0], n[1]
    if base.dtype.kind == "f" or exponent.dtype.kind != "f":
        return bc.pow(base, bc.cast(exponent, base.dtype))
    return bc.cast(bc.pow(bc.cast(base, exponent.dtype), exponent), base.dtype)


def _bit_shift(n: Any) -> Any:
    return (bc.left_shift if n.get("direction") == "LEFT" else bc.right_shift)(n[0], n[1])


def _prelu(n: Any) -> Any:
    """Slopes of any shape that broadcasts, where torch's are those of channels."""
    return functional(bc.BinaryPlan, kind=bc.BinaryKind.PRELU)(n[0], n[1])


BINARY: dict[str, Callable[[Any], Any]] = {
    **{name: _folded(ours) for name, ours in _FOLDED.items()},
    **{name: _of_two(ours) for name, ours in _OF_TWO.items()},
    "Mean": _mean, "Div": _div, "Mod": _mod, "Pow": _pow, "BitShift": _bit_shift, "PRelu": _prelu,
}  # fmt: skip
