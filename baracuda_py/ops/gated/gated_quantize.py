"""gated_quantize: a gated activation whose result is fp8 with a scale for each row, for the product that follows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem,
    PerOutput, Relative, Step, Ulp, Variant, choice, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import cast as cast_values
from ...calls.entries import entry
from ...schedules.rows import merge_rows, row_params
from ..elementwise.unary_fields import MOST, UnaryFields, packed
from ..elementwise.unary_kinds import draw_coefficients
from .gated_activation import halves_in_torch
from .gated_functions import halves, usual_order
from .gated_kinds import GatedActivationKind, gated

K, E = GatedActivationKind, ElementKind
KINDS = (K.SWIGLU, K.GEGLU, K.GEGLU_TANH, K.REGLU, K.RELU2_GLU, K.SWIGLU_OAI)
TARGETS = (E.FP8E4M3, E.FP8E5M2)
SOURCES = (E.F32, E.F16, E.BF16)
HELD = ((128, 4), (512, 4))
"""Threads of a row, and the chunks of 16 bytes that each of them holds, by growing row."""
THREADS = 256  # of a row that is read twice
_LEAST = 2.0**-126  # of a scale: below it float32 has few digits


@dataclass(frozen=True, kw_only=True)
class GatedQuantizeDescriptor(UnaryFields, Descriptor):
    """gate, up and y have shape `shape`, scales that without the last axis; y holds `to_element`.

    The coefficients are those of the activation, see `UnaryFields`.
    """

    kind: GatedActivationKind = choice(GatedActivationKind)  # type: ignore[assignment]
    to_element: ElementKind = element_field(TARGETS, E.FP8E4M3)
    element: ElementKind = element_field(SOURCES)

    def validate(self) -> None:
        if not self.shape:
            raise InvalidProblemError("gated_quantize needs at least one axis, along which a row lies, got shape ()")
        if self.kind not in KINDS:
            raise InvalidProblemError(f"kind must be {', '.join(k.value for k in KINDS)}, got {self.kind.value}")
        super().validate()

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.to_element

    @property
    def rows(self) -> tuple[int, ...]:
        """The shape of scales."""
        return self.shape[:-1]


@dataclass(slots=True, kw_only=True)
class GatedQuantizeArgs(Args):
    """Any strides of gate, up and y, which travels as uint8; scales are float32 and dense."""

    gate: Array = operand("*shape")
    up: Array = operand("*shape")
    y: Array = output("*shape", element="to_element")
    scales: Array = output("*rows", element=E.F32, layout="dense")


def reference(desc: GatedQuantizeDescriptor, *, gate: Any, up: Any) -> Mapping[str, Any]:
    """NumPy in the dtype gate comes in; the activation, the scale and the quotient are float32 numbers."""
    largest = desc.to_element.limits.max
    with np.errstate(all="ignore"):
        u = cast_values(gated(desc.kind, gate, up, *desc.rounded(gate)), E.F32).astype(gate.dtype)
        most = np.max(np.abs(u), axis=-1, keepdims=True, initial=0)
        scale = cast_values(np.where(most / largest < _LEAST, _LEAST, most / largest), E.F32).astype(gate.dtype)
        y = cast_values(u / scale, E.F32).astype(gate.dtype)
        return {"y": np.clip(y, -largest, largest), "scales": scale[..., 0]}


PARAMS = Params(
    "GatedQuantizeParams", y="ptr", scales="ptr", gate="ptr", up="ptr", coefficients=f"f64[{MOST}]", **row_params(3),
    e5m2="i32", largest="f32",
)  # fmt: skip

_FUNCTORS = "{KIND}<{T}>, gradient::{KIND}<{T}>"


def _geometry(p: Problem) -> Geometry | str:
    desc, width = p.desc, 16 // p.desc.element.itemsize
    found = merge_rows((p.y, p.gate, p.up), len(desc.shape) - 1)
    if isinstance(found, str):
        return found
    wide, chunks = found.run and found.cols % width == 0 and found.access(width), -(-found.cols // width)
    held = next((one for one in HELD if wide and chunks <= one[0] * one[1]), (THREADS, 0))
    values = {
        **found.params(), "coefficients": packed(desc), "e5m2": desc.to_element is E.FP8E5M2,
        "largest": desc.to_element.limits.max,
    }  # fmt: skip
    grid = (max(1, math.prod(desc.rows)), 1, 1)
    kernel, axes = ("rows", {"WIDE": wide}) if held[1] == 0 else (f"rows_{held[0]}x{held[1]}", {})
    return Geometry((Step(kernel, grid, values, axes, held[0]),), layout=found.layout_class)


def in_torch(torch: Any, desc: GatedQuantizeDescriptor, *, gate: Any, up: Any) -> Any:
    """The formula; y before it is rounded."""
    if 0 in desc.shape:
        return NotImplemented
    own = [float(np.float32(c)) for c in desc.coefficients]  # as kernels have them
    u = desc.kind.in_torch(torch, gate, up, *own).float().to(gate.dtype)
    scale = (u.abs().amax(-1, keepdim=True) / desc.to_element.limits.max).clamp(min=_LEAST).float().to(gate.dtype)
    y = (u / scale).float().to(gate.dtype).clamp(-desc.to_element.limits.max, desc.to_element.limits.max)
    return {"y": y, "scales": scale[..., 0]}


def _bound(element: ElementKind, kind: GatedActivationKind | None) -> PerOutput:
    """Activations of 16-bit floats are as exact as those elements need, which is less than a float32 scale shows."""
    scales = Ulp(256) if element is not E.F32 else Relative(2) if kind is GatedActivationKind.SWIGLU_OAI else Ulp(24)
    return PerOutput((("y", Relative(2)), ("scales", scales)))


class GatedQuantizePlan(Plan):
    """scales[r] = max |u| / largest over row r of u = act(gate) · up, and y = u / scales as float8, one launch.

    u is that of `GatedActivationPlan` in float32, never rounded to the element; `largest` is that of the float8, 448 of
    float8_e4m3fn. y is the float32 quotient rounded to nearest, ties to even; y · scales[..., None] is u but for that.
    A scale is 2⁻¹²⁶ at least, so that a row of zeros is zeros. A NaN makes its whole row NaN, an infinity its scale
    infinite, all numbers of the row 0 and itself NaN. There is no gradient: take that of the gated activation.
    """

    op = "gated.gated_quantize"
    kinds = KINDS
    descriptor = GatedQuantizeDescriptor
    args = GatedQuantizeArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "rows", _geometry, source="gated/gated_quantize.cu", elements=SOURCES,
            kernels=(
                *(Kernel(f"rows_{lanes}x{held}", f"gated_quantize<{_FUNCTORS}, {{T}}, {lanes}, {held}, true>", PARAMS,
                         threads=lanes) for lanes, held in HELD),
                Kernel("rows", f"gated_quantize<{_FUNCTORS}, {{T}}, {THREADS}, 0, {{WIDE}}>", PARAMS,
                       {"WIDE": (True, False)}, threads=THREADS, min_blocks=1),
            ),
            guarantee=Guarantee(_bound, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "swiglu [32768, 2x4096] bf16 to e4m3", shape=(32768, 4096), kind="swiglu", element="bfloat16", peers=(),
            make=lambda torch, desc: halves_in_torch(torch, desc, "gate", "up"),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> GatedQuantizeDescriptor:
        own = dict(draw_coefficients(draw))
        shape = (*draw.shape(0, 3, 0, 5), draw.sizes(1, 0, 7, 8, 33, 64, 257, 1000, 2048, 4100, rare=(8192, 20000)))
        goal = draw.choice(TARGETS)
        return GatedQuantizeDescriptor(kind=draw.kind, shape=shape, to_element=goal, element=draw.element, **own)


_quantize = functional(GatedQuantizePlan)


@entry(GatedQuantizePlan)
def gated_quantize(
    gate: Array, up: Array | None = None, *, kind: Any = "swiglu", to_element: Any = "float8_e4m3fn",
    order: str | None = None, alpha: float | None = None, limit: float | None = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(y, scales): act(gate) · up as float8 with a float32 scale for each row; see `GatedQuantizePlan`.

    With `up` left out, `gate` is an array of both, halves along the last axis in `order`, as of `gated_activation`.
    kind: swiglu, geglu, geglu_tanh, reglu, relu2_glu, or swiglu_oai, which takes `alpha` and `limit`.
    """
    if up is None:
        gate, up = halves(gate, usual_order(kind, order))
    elif order is not None:
        raise InvalidProblemError("order says how one array is split; with up given there is nothing to split")
    own = {name: value for name, value in (("alpha", alpha), ("limit", limit)) if value is not None}
    made = _quantize(gate, up, kind=kind, to_element=to_element, **own, out=out, stream=stream, preference=preference)
    return made  # type: ignore[no-any-return]
