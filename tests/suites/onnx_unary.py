"""ONNX's operators of one array, and those of three: functions of a node of `onnx_node`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import baracuda_py as bc

from .onnx_node import Node, need

_SAME = {
    "Abs": "abs", "Neg": "neg", "Sign": "sign", "Reciprocal": "reciprocal", "Sqrt": "sqrt", "Exp": "exp", "Log": "log",
    "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh",
    "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh", "Erf": "erf",
    "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sigmoid": "sigmoid", "Relu": "relu", "Mish": "mish",
    "Softplus": "softplus", "Softsign": "softsign", "HardSwish": "hardswish", "Not": "logical_not",
    "BitwiseNot": "bitwise_not", "IsNaN": "isnan",
}  # fmt: skip

_hard_sigmoid = bc.elementwise("clamp(slope * x + shift, 0, 1)", slope=0.2, shift=0.5)
_shrink = bc.elementwise("where(x < -bound, x + bias, where(x > bound, x - bias, 0))", bound=0.5, bias=0.0)
_swish = bc.elementwise("x * sigmoid(slope * x)", slope=1.0)
_swiglu = bc.elementwise("gate * sigmoid(slope * gate) * up", slope=1.0)


def _same(name: str) -> Callable[[Node], Any]:
    return lambda n: getattr(bc, name)(n[0])


def _is_inf(n: Node) -> Any:
    negative, positive = n.get("detect_negative", 1), n.get("detect_positive", 1)
    return (bc.isinf if negative and positive else bc.isposinf if positive else bc.isneginf)(n[0])


def _identity(n: Node) -> Any:
    need(hasattr(n[0], "dtype"), "sequences and optional values are no arrays")
    return bc.positive(n[0])


UNARY: dict[str, Callable[[Node], Any]] = {
    **{name: _same(ours) for name, ours in _SAME.items()},
    "LeakyRelu": lambda n: bc.leaky_relu(n[0], negative_slope=n.get("alpha", 0.01)),
    "Elu": lambda n: bc.elu(n[0], alpha=n.get("alpha", 1.0)),
    "Celu": lambda n: bc.celu(n[0], alpha=n.get("alpha", 1.0)),
    "Selu": lambda n: bc.elu(n[0], alpha=n.get("alpha", 1.6732632), scale=n.get("gamma", 1.0507010)),
    "Gelu": lambda n: (bc.gelu_tanh if n.get("approximate") == "tanh" else bc.gelu)(n[0]),
    "ThresholdedRelu": lambda n: bc.threshold(n[0], threshold=n.get("alpha", 1.0), value=0.0),
    "HardSigmoid": lambda n: _hard_sigmoid(n[0], slope=n.get("alpha", 0.2), shift=n.get("beta", 0.5)),
    "Shrink": lambda n: _shrink(n[0], bound=n.get("lambd", 0.5), bias=n.get("bias", 0.0)),
    "Swish": lambda n: _swish(n[0], slope=n.get("alpha", 1.0)),
    "SwiGLU": lambda n: _swiglu(n[0], n[1], slope=n.get("alpha", 1.0)),
    "IsInf": _is_inf,
    "Identity": _identity,
    "Clip": lambda n: bc.clip(n[0], n[1], n[2]),
    "Where": lambda n: bc.where(n[0], n[1], n[2]),
}
