"""dequantize_backward: dscale = the sum of dy (q - zero point) over what shares a scale."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, ElementKind, Everywhere, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative,
    UnsupportedError, Variant, View, derived, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import decode
from ...core.tensor import pad
from ...core.variant import Step
from ...schedules.map import THREADS, chunked, lay_out, map_params
from ...schedules.reduce import reduce_kernels, reduce_params
from ..elementwise.cast import CODES, PACKED
from .affine import (
    TARGETS, WHOLE, check_zeros, clamped, draw_elements, draw_runs, draw_scope, infer_block_shape, over_blocks,
    plain_scales, random_zeros,
)  # fmt: skip
from .block_sums import Sums, over_blocks_sums, sums_of_blocks
from .dequantize import DequantizeDescriptor

E = ElementKind


@dataclass(frozen=True, kw_only=True)
class DequantizeBackwardDescriptor(DequantizeDescriptor):
    """The fields of `DequantizeDescriptor`; dy holds `to_element`."""

    to_element: ElementKind = element_field(FLOATS, derived(lambda desc: E.F32))

    def validate(self) -> None:
        DequantizeDescriptor.validate(self)
        if self.scale_element is E.E8M0:
            raise UnsupportedError("scale_element float8_e8m0fnu is a power of two, which has no gradient")


@dataclass(slots=True, kw_only=True)
class DequantizeBackwardArgs(Args):
    """Any strides; packed codes are contiguous along the last axis. dscales has the shape of scales."""

    dy: Array = operand("*shape", element="to_element")
    x: Array = operand("*x_shape", values=Everywhere())
    scales: Array | None = operand(
        "*scale_shape", element="scale_element", broadcast=True, instead="uniform", values=plain_scales
    )
    zero_points: Array | None = operand(
        "*scale_shape", element="zero_element", broadcast=True, optional=True, values=random_zeros
    )
    dscales: Array | None = output("*scale_shape", element="scale_element", like="scales", optional=True)


def reference(
    desc: DequantizeBackwardDescriptor, *, dy: Any, x: Any, scales: Any, zero_points: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in; x are codes as they are stored, or their values."""
    if "dscales" not in wanted:
        return {}
    stored = desc.element not in WHOLE or desc.element in PACKED
    codes = decode(x, desc.element) if stored and x.dtype == np.uint8 and x.shape == desc.x_shape else x
    codes = codes[..., : desc.shape[-1]] if desc.element in PACKED else codes
    with np.errstate(all="ignore"):
        numbers = np.asarray(codes, np.float64)
        if desc.element in WHOLE and zero_points is not None:
            numbers = numbers - clamped(over_blocks(zero_points, desc), desc.element)
        sums = over_blocks_sums(desc, dy * numbers.astype(dy.dtype))
        lead = sums.ndim - scales.ndim
        away = (*range(lead), *(lead + a for a, n in enumerate(scales.shape) if n == 1))
        return {"dscales": np.sum(sums, axis=away).reshape(scales.shape)}


SUMS = reduce_params("CodeSumsParams", ("dy", "x", "zero_points"), zero_code="i32")
TOTALS = Params(
    "CodeTotalsParams", sums="workspace", dscales="ptr", scale_code="i32", sharing="i64", sharing_rank="i32",
    sharing_shape="i64[8]", sharing_strides="i64[1][8]", **map_params(2),
)  # fmt: skip


def _width(code: ElementKind, to: ElementKind) -> int:
    """Elements of a chunk: 16 bytes of the wider operand."""
    return 16 // max(code.itemsize, to.itemsize)


def _kernels() -> tuple[Kernel, ...]:
    """The reductions of every float that dy may hold."""
    made: list[Kernel] = []
    for to in FLOATS:

        def width(code: ElementKind, to: ElementKind = to) -> int:
            return _width(code, to)

        found = reduce_kernels(
            "kinds::Sum<acc_t<{TO}>>",
            SUMS,
            source="affine::CodeTerms<{CODE}, {TO}>",
            width=width,
            prefix=f"{to.value}_",
        )
        made += [replace(kernel, axes=_axes(kernel, to)) for kernel in found]
    totals = (
        Kernel(f"totals_{acc.value}", "code_totals<{ACC}>", TOTALS, {"ACC": (acc,)}, threads=THREADS)
        for acc in (E.F32, E.F64)
    )
    return (*made, *totals)


def _axes(kernel: Kernel, to: ElementKind) -> Any:
    return lambda element: {**kernel.axes_for(element), "CODE": (CODES.index(element),), "TO": (to,)}


def _totals(desc: Any, sums: Sums, dscales: View) -> Step | str:
    """A thread for each scale, which adds the blocks along the axes that the scale is broadcast over."""
    rank = len(desc.scale_shape)
    shape = (*(1 for _ in range(rank - len(dscales.shape))), *dscales.shape)
    strides = (*(0 for _ in range(rank - len(dscales.shape))), *dscales.strides)
    away = [a for a in range(rank) if shape[a] == 1 and desc.scale_shape[a] > 1]
    own = View(sums.view.ptr, shape, sums.view.strides, sums.view.element)
    found = lay_out((own, View(dscales.ptr, shape, strides, dscales.element)))
    if isinstance(found, str):
        return found
    counts = tuple(desc.scale_shape[a] for a in away)
    params = {
        "sums": 0, "scale_code": CODES.index(desc.scale_element), "sharing": math.prod(counts),
        "sharing_rank": len(away), "sharing_shape": pad(counts),
        "sharing_strides": [pad(tuple(sums.view.strides[a] for a in away))], **chunked(found, 1),
    }  # fmt: skip
    blocks = max(1, -(-params["chunks"] // THREADS))
    acc = desc.to_element.acc
    return Step(f"totals_{acc.value}", (blocks, 1, 1), params, {"ACC": acc}, THREADS)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    if p.dscales is None:
        return Geometry(())
    x = p.x
    if desc.element in PACKED:
        if x.shape[-1] > 1 and x.strides[-1] != 1 and math.prod(x.shape):
            return f"packed codes must be contiguous along the last axis, got strides {x.strides}"
        x = View(x.ptr, desc.shape, (*(2 * s for s in x.strides[:-1]), 1), x.element)
    zeros = None if p.zero_points is None else p.zero_points.broadcast_to(desc.scale_shape)
    sums = sums_of_blocks(
        p, {"dy": p.dy, "x": x}, {"zero_points": zeros}, desc.to_element.acc, _width(desc.element, desc.to_element),
        {"zero_code": CODES.index(desc.zero_element)}, packed="x" if desc.element in PACKED else "",
        prefix=f"{desc.to_element.value}_",
    )  # fmt: skip
    if isinstance(sums, str):
        return sums
    last = _totals(desc, sums, p.dscales)
    if isinstance(last, str):
        return last
    own = {"CODE": CODES.index(desc.element), "TO": desc.to_element}
    steps = [replace(step, axes={**step.axes, **own}) for step in sums.steps]
    layout = "contiguous" if p.dy.dense and p.x.dense else "inner_contiguous" if sums.coalesced else "strided"
    return Geometry((*steps, last), sums.used, layout)


class DequantizeBackwardPlan(Plan):
    """dscale = the sum of dy (q - zero point) over the elements that share a scale: of `DequantizePlan`, in scales.

    Of float8 and float4 the sum of dy q. The difference is exact; products and sums are in float32, float64 of float64,
    in an order that the extents of blocks alone fix; blocks whose scale is broadcast are added in order, in float64.
    """

    op = "quantize.dequantize_backward"
    direction = "backward"
    descriptor = DequantizeBackwardDescriptor
    args = DequantizeBackwardArgs
    reference = staticmethod(reference)
    value_policy = "zero points beyond the range of x's element count as its ends"
    variants = (
        Variant(
            "blocks", _geometry, source="quantize/code_sums.cu", elements=TARGETS, kernels=_kernels(),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("134M int8, bf16", also=("dscales",), shape=(16384, 8192), block_shape=(1, 0),
                  to_element="bfloat16", element="int8", peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> DequantizeBackwardDescriptor:
        goal = draw.choice(FLOATS)
        scope = draw_runs(draw) if draw.integer(0, 2) == 0 else draw_scope(draw, draw.element in PACKED)
        elements = draw_elements(draw, goal, draw.element)
        if elements["scale_element"] is E.E8M0:
            elements["scale_element"] = E.F32
        scope["uniform"] = False  # a number has no gradient
        return DequantizeBackwardDescriptor(**scope, **elements, to_element=goal, element=draw.element)

    @classmethod
    def complete(cls, desc: DequantizeBackwardDescriptor, arrays: dict[str, Any]) -> None:
        if desc.uniform or desc.element not in WHOLE:
            arrays["zero_points"] = None

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_zeros(desc, views, desc.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", tuple(shapes["dy"]))
        infer_block_shape(facts["shape"], shapes, facts)


dequantize_backward = functional(DequantizeBackwardPlan)
