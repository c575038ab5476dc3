"""gated_cast_transpose_backward: a gated activation's gradients side by side as fp8, and their transpose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Geometry, Guarantee, Kernel, Params, Plan, Problem, Scalar, Variant, View, inout,
    operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import FP8
from ...schedules.rows import row_params
from ..elementwise.unary_fields import MOST
from ..quantize.fp8_cast import WIDE, cast_in_torch, raised, scaled, single
from ..quantize.fp8_cast_transpose import TURNED, turning, upright_shape
from .gated_activation import halves_in_torch
from .gated_cast_transpose import KINDS, E, GatedCastTransposeDescriptor, bound
from .gated_kinds import gate_gradient, up_gradient


@dataclass(frozen=True, kw_only=True)
class GatedCastTransposeBackwardDescriptor(GatedCastTransposeDescriptor):
    """dy, gate and up have shape `shape` (*lead, cols), y (*lead, 2 cols), yt (2 cols, product of lead)."""

    @property
    def packed(self) -> tuple[int, ...]:
        """The shape of y: dgate and dup beside each other."""
        return (*self.shape[:-1], 2 * self.cols)

    @property
    def both(self) -> int:
        """Columns of y."""
        return 2 * self.cols


@dataclass(slots=True, kw_only=True)
class GatedCastTransposeBackwardArgs(Args):
    """Any strides; y and yt travel as uint8, or in a dtype of fp8. amax and scale are as in `Fp8CastArgs`."""

    dy: Array = operand("*shape")
    gate: Array = operand("*shape")
    up: Array = operand("*shape")
    amax: Array | None = inout("", element=E.F32, optional=True, values=(0.0, 4.0))
    y: Array = output("*packed", element="to_element")
    yt: Array = output("both rows", element="to_element")
    scale: Scalar = scalar(1.0)


def reference(
    desc: GatedCastTransposeBackwardDescriptor, *, dy: Any, gate: Any, up: Any, amax: Any, scale: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype gate comes in; gradients and the product with the scale are float32 numbers."""
    with np.errstate(all="ignore"):
        parts = gate_gradient(desc.kind, dy, up, gate, element=desc.element), up_gradient(desc.kind, dy, up, gate)
        d = single(np.concatenate(parts, -1), gate.dtype)
    y = scaled(desc, d, scale)
    return {"y": y, "yt": np.array(y.reshape(desc.rows, desc.both).T), **raised(amax, d)}


PARAMS = Params(
    "GatedCastBackwardParams", y="ptr", yt="ptr", dy="ptr", gate="ptr", up="ptr", amax="ptr", scale="scalar",
    coefficients=f"f64[{MOST}]", y_part="i64", **row_params(4), **TURNED,
)  # fmt: skip

_CALL = "gated_cast_transpose_backward<{KIND}<{T}>, gradient::{KIND}<{T}>, {T}"


def _geometry(p: Problem) -> Geometry | str:
    y, shape = p.y, p.desc.shape
    first = View(y.ptr, shape, y.strides, y.element)  # dgate; dup lies behind it
    values = {"coefficients": [0.0] * MOST, "y_part": shape[-1] * y.strides[-1]}
    found = turning(p, values, (first, p.dy, p.gate, p.up))
    if isinstance(found, str):
        return found
    tiles, layout = found
    step = replace(tiles, kernel="tiles" if tiles.axes["WIDE"] else "tiles_any", axes={})
    return Geometry((step,), layout=layout)


def in_torch(
    torch: Any, desc: GatedCastTransposeBackwardDescriptor, *, dy: Any, gate: Any, up: Any, amax: Any, scale: Any
) -> Any:
    """Autograd of the activation, and the formula; y and yt before they are rounded."""
    with torch.enable_grad():
        leaves = [gate.detach().requires_grad_(), up.detach().requires_grad_()]
        d = torch.cat(torch.autograd.grad(desc.kind.in_torch(torch, *leaves), leaves, dy), -1)
    made = cast_in_torch(torch, desc, d.float().to(gate.dtype), amax, scale)
    return {**made, "yt": made["y"].reshape(desc.rows, desc.both).T}


class GatedCastTransposeBackwardPlan(Plan):
    """y = (dgate, dup) · scale as fp8, yt = y transposed, amax = max(amax, |dgate|, |dup|): one launch.

    dgate = dy · up · act'(gate) and dup = dy · act(gate) are those of `GatedActivationBackwardPlan` in float32, never
    rounded to the element; they lie beside each other, as the product that made gate and up had them, so that y and yt
    are the operands of its dx and dW. Rounding, saturation and amax are those of `Fp8CastPlan`. Gradients want
    float8_e5m2. There is no gradient of it.
    """

    op = "gated.gated_cast_transpose_backward"
    direction = "backward"
    kinds = KINDS
    descriptor = GatedCastTransposeBackwardDescriptor
    args = GatedCastTransposeBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "tiles", _geometry, source="gated/gated_cast_transpose_backward.cu", elements=WIDE,
            guarantee=Guarantee(bound),
            kernels=(
                Kernel("tiles", f"{_CALL}, true>", PARAMS),
                Kernel("tiles_any", f"{_CALL}, false>", PARAMS, min_blocks=1),  # else it spills around its calls
            ),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "swiglu [32768, 2x4096] bf16 to e5m2", shape=(32768, 4096), kind="swiglu", element="bfloat16",
            to_element="float8_e5m2", also=("amax",), peers=(),
            make=lambda torch, desc: halves_in_torch(torch, desc, "gate", "up"),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GatedCastTransposeBackwardDescriptor:
        shape = upright_shape(draw)
        goal = draw.choice(FP8)
        return GatedCastTransposeBackwardDescriptor(kind=draw.kind, shape=shape, to_element=goal, element=draw.element)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        arrays["scale"] = 0.75


gated_cast_transpose_backward = functional(GatedCastTransposeBackwardPlan)
