"""The gated activations: a kind is a name for an activation of the unary table, or for one that only gates."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...core import ElementKind, Ulp
from ...core.element import HALVES
from ...core.error_bound import ErrorBound
from ...core.kinds import TableKind
from ..elementwise.functions.row import Function, exact, ulps
from ..elementwise.unary_formulas import maximum
from ..elementwise.unary_kinds import UnaryKind as U


def _relu(x: Any) -> Any:
    return maximum(x, x.dtype.type(0))


IDENTITY = Function(
    "Identity", lambda x: x, lambda dy, x: dy, bound=exact, slope=exact, torch=lambda torch, x: x,
    gate=lambda x, by: x * by,
)  # fmt: skip
RELU_SQUARED = Function(
    "ReluSquared", lambda x: np.square(_relu(x)), lambda dy, x: 2 * dy * _relu(x), bound=ulps(0.5, 0.5),
    torch=lambda torch, x: torch.square(torch.relu(x)),
)  # fmt: skip


class GatedActivationKind(TableKind):
    """y = act(gate) · up. Of the names, `glu` to `bilinear_glu` are Shazeer's (2020); others are the activation's."""

    GLU = "glu", U.SIGMOID.row
    REGLU = "reglu", U.RELU.row
    SWIGLU = "swiglu", U.SILU.row
    GEGLU = "geglu", U.GELU.row
    GEGLU_TANH = "geglu_tanh", U.GELU_TANH.row
    BILINEAR_GLU = "bilinear_glu", IDENTITY
    TANH_GLU = "tanh_glu", U.TANH.row
    RELU2_GLU = "relu2_glu", RELU_SQUARED
    RELU6_GLU = "relu6_glu", U.RELU6.row
    LEAKY_RELU_GLU = "leaky_relu_glu", U.LEAKY_RELU.row
    ELU_GLU = "elu_glu", U.ELU.row
    CELU_GLU = "celu_glu", U.CELU.row
    SELU_GLU = "selu_glu", U.SELU.row
    MISH_GLU = "mish_glu", U.MISH.row
    SOFTPLUS_GLU = "softplus_glu", U.SOFTPLUS.row
    SOFTSIGN_GLU = "softsign_glu", U.SOFTSIGN.row
    LOG_SIGMOID_GLU = "log_sigmoid_glu", U.LOG_SIGMOID.row
    HARDTANH_GLU = "hardtanh_glu", U.HARDTANH.row
    HARDSIGMOID_GLU = "hardsigmoid_glu", U.HARDSIGMOID.row
    HARDSWISH_GLU = "hardswish_glu", U.HARDSWISH.row
    HARDSHRINK_GLU = "hardshrink_glu", U.HARDSHRINK.row
    SOFTSHRINK_GLU = "softshrink_glu", U.SOFTSHRINK.row

    row: Function
    """The activation that the gate goes through."""


def gated(kind: Any, gate: Any, up: Any, *coefficients: Any) -> Any:
    """act(gate) up in the dtype of gate; float64 in longdouble where act(gate) alone may lose digits."""
    row = kind.row
    if row.gate is not None:
        return np.asarray(row.gate(gate, up), gate.dtype)
    wide = np.longdouble if gate.dtype == np.float64 else gate.dtype
    found = row.formula(gate.astype(wide), *(np.asarray(c, wide)[()] for c in coefficients)) * up
    return np.asarray(found, gate.dtype)


def gate_gradient(kind: Any, dy: Any, up: Any, gate: Any, *coefficients: Any) -> Any:
    """dy up act'(gate) in the dtype of gate; float64 in longdouble, as dy up may overflow and the slope not."""
    wide = np.dtype(np.longdouble) if gate.dtype == np.float64 else gate.dtype
    dy, up, x = (a.astype(wide) for a in (dy, up, gate))
    found = kind.row.gradient(dy * up, x, *(wide.type(c) for c in coefficients))
    return np.asarray(found, gate.dtype)


def gated_bound(element: ElementKind, kind: Any) -> ErrorBound:
    """The error bound of the product: an ulp of it may be half as large as one of the activation."""
    of_gate = kind.row.error(element)
    if not isinstance(of_gate, Ulp):  # an exact activation: the product is rounded once
        return Ulp(0.51)
    return Ulp(0.53) if element in HALVES else Ulp(2 * of_gate.n + 0.5)
