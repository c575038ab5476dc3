"""The gated activations: a kind is a name for an activation of the unary table, or for one that only gates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ...core import ElementKind, Relative, Ulp
from ...core.element import HALVES
from ...core.error_bound import ErrorBound
from ...core.kinds import TableKind
from ..elementwise.functions.row import Coefficient, Formula, Function, exact, ulps
from ..elementwise.unary_formulas import halved, maximum, minimum
from ..elementwise.unary_kinds import UnaryKind as U


def _relu(x: Any) -> Any:
    return maximum(x, x.dtype.type(0))


IDENTITY = Function(
    "identity/Identity", lambda x: x, lambda dy, x: dy, bound=exact, slope=exact, torch=lambda torch, x: x,
    gate=lambda x, by: x * by,
)  # fmt: skip
RELU_SQUARED = Function(
    "relu_squared/ReluSquared", lambda x: np.square(_relu(x)), lambda dy, x: 2 * dy * _relu(x), bound=ulps(0.5, 0.5),
    torch=lambda torch, x: torch.square(torch.relu(x)),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Unit(Function):
    """A row of a unit that changes up, too, so that it is no activation times up.

    product(gate, up, *coefficients) is y; dgate and dup of (dy, gate, up, *coefficients) its gradients. torch: a
    function of torch, gate, up and the coefficients.
    """

    folder: ClassVar[str] = "gated"
    product: Formula | Any = None
    dgate: Formula | Any = None
    dup: Formula | Any = None


def _clamped_gate(gate: Any, alpha: Any, limit: Any) -> tuple[Any, Any, Any]:
    """g = min(gate, limit), and h and r with sigmoid(alpha g) = r, for g < 0 h² r."""
    g = minimum(gate, limit)
    return g, *halved(alpha * g)


def _oai_gate(gate: Any, alpha: Any, limit: Any, by: Any = 1) -> Any:
    """g sigmoid(alpha g) by; far down the sigmoid as two factors around what it shrinks."""
    g, h, r = _clamped_gate(gate, alpha, limit)
    part = np.where(g < 0, h, 1)
    return g * part * by * (part * r)


def _oai_slope(dy: Any, gate: Any, up: Any, alpha: Any, limit: Any) -> Any:
    """dy (u + 1) s (1 + alpha g (1 - s)), s the sigmoid, and 0 where gate is above the limit, as PyTorch's clamp."""
    g, h, r = _clamped_gate(gate, alpha, limit)
    outer, other = np.where(g < 0, h, 1), np.where(g < 0, r, h * h * r)
    slope = _oai_up(up, limit) * (r * (1 + alpha * g * other))
    return np.where(gate <= limit, dy * outer * slope * outer, 0)


def _oai_up(up: Any, limit: Any) -> Any:
    return minimum(maximum(up, -limit), limit) + 1


def _oai_in_torch(torch: Any, gate: Any, up: Any, alpha: Any, limit: Any) -> Any:
    g, u = gate.clamp(max=limit), up.clamp(-limit, limit)
    return g * torch.sigmoid(alpha * g) * (u + 1)


SWIGLU_OAI = Unit(
    "swiglu_oai/SwigluOai", _oai_gate, torch=_oai_in_torch,
    coefficients=(
        Coefficient("alpha", 1.702, low=0), Coefficient("limit", 7.0, low=0, high=np.inf, drawn=(0.5, 8)),
    ),
    product=lambda gate, up, alpha, limit: _oai_gate(gate, alpha, limit, _oai_up(up, limit)),
    dgate=_oai_slope,
    dup=lambda dy, gate, up, alpha, limit: np.where(np.abs(up) <= limit, _oai_gate(gate, alpha, limit, dy), 0),
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
    SWIGLU_OAI = "swiglu_oai", SWIGLU_OAI

    row: Function
    """The activation that the gate goes through."""

    def in_torch(self, torch: Any, gate: Any, up: Any, *coefficients: Any) -> Any:
        """y in torch."""
        if isinstance(self.row, Unit):
            return self.row.torch(torch, gate, up, *coefficients)  # type: ignore[operator,misc]
        return self.row.in_torch(torch, gate, *coefficients) * up


def gated(kind: Any, gate: Any, up: Any, *coefficients: Any) -> Any:
    """act(gate) up in the dtype of gate; float64 in longdouble where act(gate) alone may lose digits."""
    row = kind.row
    if isinstance(row, Unit):
        return _widely(row.product, gate, up, *coefficients)
    if row.gate is not None:
        return np.asarray(row.gate(gate, up), gate.dtype)
    wide = np.longdouble if gate.dtype == np.float64 else gate.dtype
    found = row.formula(gate.astype(wide), *(np.asarray(c, wide)[()] for c in coefficients)) * up
    return np.asarray(found, gate.dtype)


def _widely(formula: Any, *given: Any) -> Any:
    """A formula in the dtype of its first argument; float64 in longdouble."""
    dtype = given[0].dtype
    wide = np.longdouble if dtype == np.float64 else dtype
    return np.asarray(formula(*(np.asarray(x, wide)[()] for x in given)), dtype)


def up_gradient(kind: Any, dy: Any, up: Any, gate: Any, *coefficients: Any) -> Any:
    """dy ∂y/∂up in the dtype of gate: act(gate) dy but for a `Unit`."""
    if isinstance(kind.row, Unit):
        return _widely(kind.row.dup, dy, gate, up, *coefficients)
    return gated(kind, gate, dy, *coefficients)


def gate_gradient(kind: Any, dy: Any, up: Any, gate: Any, *coefficients: Any, element: ElementKind) -> Any:
    """dy up act'(gate) in the dtype of gate.

    dy up may overflow where the slope does not, so numbers of `element` float64 are taken in longdouble. Those of
    narrower elements, which are given in float64, cannot.
    """
    if isinstance(kind.row, Unit):
        return _widely(kind.row.dgate, dy, gate, up, *coefficients)
    wide = np.dtype(np.longdouble) if gate.dtype == np.float64 and element is ElementKind.F64 else gate.dtype
    dy, up, x = (a.astype(wide) for a in (dy, up, gate))
    found = kind.row.gradient(dy * up, x, *(wide.type(c) for c in coefficients))
    return np.asarray(found, gate.dtype)


def gated_bound(element: ElementKind, kind: Any) -> ErrorBound:
    """The error bound of the product: an ulp of it may be half as large as one of the activation."""
    if isinstance(kind.row, Unit):
        return Relative(2)
    of_gate = kind.row.error(element)
    if not isinstance(of_gate, Ulp):  # an exact activation: the product is rounded once
        return Ulp(0.51)
    return Ulp(0.53) if element in HALVES else Ulp(2 * of_gate.n + 0.5)
