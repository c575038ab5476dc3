"""gated_cast_transpose: a gated activation as fp8 by a given scale, and its transpose, for the product that follows."""

from __future__ import annotations


from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, PerOutput, Plan,
    Problem, Relative, Scalar, Ulp, Variant, choice, extents, inout, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import FP8
from ...schedules.rows import row_params
from ..elementwise.unary_fields import MOST
from ..quantize.fp8_cast import WIDE, cast_in_torch, raised, scaled, single
from ..quantize.fp8_cast_transpose import TURNED, CastTransposed, transposing, upright_shape
from .gated_activation import halves_in_torch
from .gated_kinds import GatedActivationKind, gated

K, E = GatedActivationKind, ElementKind
KINDS = (K.SWIGLU, K.GEGLU, K.GEGLU_TANH, K.REGLU, K.RELU2_GLU)


@dataclass(frozen=True, kw_only=True)
class GatedCastTransposeDescriptor(CastTransposed, Descriptor):
    """gate, up and y have shape `shape` (*lead, cols), yt (cols, product of lead); y and yt hold `to_element`."""

    kind: GatedActivationKind = choice(GatedActivationKind)
    shape: tuple[int, ...] = extents()
    to_element: ElementKind = element_field(FP8, E.FP8E4M3)
    element: ElementKind = element_field(WIDE)

    def validate(self) -> None:
        super().validate()
        if self.kind not in KINDS:
            raise InvalidProblemError(f"kind must be {', '.join(k.value for k in KINDS)}, got {self.kind.value}")


@dataclass(slots=True, kw_only=True)
class GatedCastTransposeArgs(Args):
    """Any strides; y and yt travel as uint8, or in a dtype of fp8. amax and scale are as in `Fp8CastArgs`."""

    gate: Array = operand("*shape")
    up: Array = operand("*shape")
    amax: Array | None = inout("", element=E.F32, optional=True, values=(0.0, 4.0))
    y: Array = output("*shape", element="to_element")
    yt: Array = output("cols rows", element="to_element")
    scale: Scalar = scalar(1.0)


def reference(desc: GatedCastTransposeDescriptor, *, gate: Any, up: Any, amax: Any, scale: Any) -> Mapping[str, Any]:
    """NumPy in the dtype gate comes in; the activation and the product with the scale are float32 numbers."""
    with np.errstate(all="ignore"):
        u = single(gated(desc.kind, gate, up), gate.dtype)
    y = scaled(desc, u, scale)
    return {"y": y, "yt": np.array(y.reshape(desc.rows, desc.cols).T), **raised(amax, u)}


PARAMS = Params(
    "GatedCastParams", y="ptr", yt="ptr", gate="ptr", up="ptr", amax="ptr", scale="scalar",
    coefficients=f"f64[{MOST}]", **row_params(3), **TURNED,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    return transposing(p, {"coefficients": [0.0] * MOST}, p.gate, p.up)


def in_torch(torch: Any, desc: GatedCastTransposeDescriptor, *, gate: Any, up: Any, amax: Any, scale: Any) -> Any:
    """The formula; y and yt before they are rounded."""
    made = cast_in_torch(torch, desc, desc.kind.in_torch(torch, gate, up).float().to(gate.dtype), amax, scale)
    return {**made, "yt": made["y"].reshape(desc.rows, desc.cols).T}


def bound(element: ElementKind, kind: Any) -> PerOutput:
    """Activations of 16-bit floats are as exact as those elements need, which is less than float32 of amax shows."""
    own = (("y", Relative(2)), ("yt", Relative(2)))
    return PerOutput((*own, ("amax", Ulp(24) if element is E.F32 else Ulp(256))))


class GatedCastTransposePlan(Plan):
    """y = act(gate) · up · scale as fp8, yt = y transposed, amax = max(amax, |act(gate) · up|): one launch.

    The activation is that of `GatedActivationPlan` in float32, never rounded to the element; rounding, saturation and
    amax are those of `Fp8CastPlan`. NVIDIA's Transformer Engine does the same for the second product of an MLP, whose
    dW wants the transpose. There is no gradient: `GatedCastTransposeBackwardPlan` has that of the activation.
    """

    op = "gated.gated_cast_transpose"
    kinds = KINDS
    descriptor = GatedCastTransposeDescriptor
    args = GatedCastTransposeArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "tiles", _geometry, source="gated/gated_cast_transpose.cu", elements=WIDE, guarantee=Guarantee(bound),
            kernels=(
                Kernel("tiles", "gated_cast_transpose<{KIND}<{T}>, gradient::{KIND}<{T}>, {T}, {WIDE}>", PARAMS,
                       {"WIDE": (True, False)}),
            ),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "swiglu [32768, 2x4096] bf16 to e4m3", shape=(32768, 4096), kind="swiglu", element="bfloat16",
            also=("amax",), peers=(), make=lambda torch, desc: halves_in_torch(torch, desc, "gate", "up"),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GatedCastTransposeDescriptor:
        shape = upright_shape(draw)
        goal = draw.choice(FP8)
        return GatedCastTransposeDescriptor(kind=draw.kind, shape=shape, to_element=goal, element=draw.element)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        arrays["scale"] = 0.75


gated_cast_transpose = functional(GatedCastTransposePlan)
