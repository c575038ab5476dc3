"""choose_qparams: the scale and zero point of every block of x, by the range of its numbers."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Plan,
    Problem, UnsupportedError, Variant, View, choice, operand, output,
)  # fmt: skip
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import FP8, decode
from ...core.tensor import dense_strides
from ...core.variant import LibraryStep, Step, aligned
from ...schedules.blocks import WORKSPACE, boxes, counted, place, split
from ...schedules.reduce import reduce_kernels, reduce_launches, reduce_params
from .affine import BlockFields, draw_runs, draw_scope

E = ElementKind
SOURCES = (E.F32, E.F16, E.BF16)
TARGETS = (E.I8, E.U8, E.S4, E.U4, *FP8, E.FP4E2M1)
_LEAST = np.float32(2.0**-126)  # of a scale: below it float32 has few digits


class RangeKind(enum.Enum):
    """What of a block's range its scale covers: the largest size, or all from the smallest number to the largest."""

    SYMMETRIC = "symmetric"
    ASYMMETRIC = "asymmetric"

    @property
    def cpp(self) -> str:
        """Whether it is the size, in C++."""
        return "true" if self is RangeKind.SYMMETRIC else "false"


K = RangeKind


@dataclass(frozen=True, kw_only=True)
class RangeFields(BlockFields):
    """What the range of every block of `shape` is brought to: the codes of `to_element`. Blocks: see `BlockFields`.

    kind: symmetric is for int8, int4, float8 and float4, asymmetric for integers. scale_element: float32, or
    float8_e8m0fnu, powers of two (in uint8), for symmetric ranges of float8 and float4.
    """

    kind: RangeKind = choice(RangeKind)
    to_element: ElementKind = element_field(TARGETS, E.I8)
    scale_element: ElementKind = element_field((E.F32, E.E8M0), E.F32)

    def validate(self) -> None:
        """The kind goes with the target."""
        whole = self.to_element.is_integer
        if self.kind is K.ASYMMETRIC and not whole:
            raise UnsupportedError(f"asymmetric is for integers, got to_element {self.to_element}")
        if self.kind is K.SYMMETRIC and whole and self.to_element.limits.min == 0:
            raise UnsupportedError(f"symmetric is for signed targets, got to_element {self.to_element}")
        if self.scale_element is E.E8M0 and whole:
            raise UnsupportedError(f"scale_element float8_e8m0fnu is for float8 and float4, got {self.to_element}")

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.to_element


@dataclass(frozen=True, kw_only=True)
class ChooseQParamsDescriptor(RangeFields, Descriptor):
    """x has shape `shape`; the rest is as in `RangeFields`."""

    element: ElementKind = element_field(SOURCES)


@dataclass(slots=True, kw_only=True)
class ChooseQParamsArgs(Args):
    """Any strides. Scales are float32, or powers of two in uint8; zero points are int32, of asymmetric ranges."""

    x: Array = operand("*shape")
    scales: Array = output("*scale_shape", element="scale_element")
    zero_points: Array | None = output("*scale_shape", element=E.I32, kinds=(K.ASYMMETRIC,))


def range_of_blocks(x: Any, desc: BlockFields) -> tuple[Any, Any]:
    """(lowest, highest) of every block with 0 in it, NaN where one is in the block."""
    low, high = np.minimum(x, 0), np.maximum(x, 0)
    for axis, (count, size) in enumerate(zip(desc.scale_shape, desc.block, strict=True)):
        starts = np.arange(count) * size
        if desc.shape[axis] == 0:
            low = high = np.zeros((*low.shape[:axis], 1, *low.shape[axis + 1 :]), x.dtype)
            continue
        low, high = np.minimum.reduceat(low, starts, axis), np.maximum.reduceat(high, starts, axis)
    return low, high


def qparams(desc: RangeFields, x: Any) -> tuple[Any, Any]:
    """(scales as they are stored, zero points) of values in float32; those of symmetric ranges are 0."""
    low, high = range_of_blocks(x, desc)
    goal = desc.to_element
    with np.errstate(all="ignore"):
        if desc.kind is K.SYMMETRIC:
            most, largest = np.maximum(-low, high), np.float32(goal.limits.max)
            zeros = np.zeros(most.shape, np.int32)
            if desc.scale_element is E.E8M0:
                exponent = np.frexp(np.where(np.isfinite(most), most, 1))[1] - np.frexp(largest)[1] + 127
                code = np.where(np.isfinite(most), np.where(most == 0, 0, np.maximum(exponent, 0)), 255)
                return np.asarray(code, np.uint8), zeros
            quotient = np.asarray(most / largest)
            return np.where(quotient < _LEAST, _LEAST, quotient).astype(np.float32), zeros
        first, last = int(goal.limits.min), int(goal.limits.max)
        scale = (high - low) / np.float32(last - first)
        scale = np.where(scale < _LEAST, _LEAST, scale)
        scale = np.where(high == low, np.float32(1), scale).astype(np.float32)
        zero = np.rint(np.float32(first) - low / scale)
        zero = np.clip(np.where(np.isnan(zero), 0, zero), first, last)
        return scale, zero.astype(np.int32)


def reference(desc: ChooseQParamsDescriptor, *, x: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy in float32."""
    scales, zeros = qparams(desc, decode(x, desc.element).astype(np.float32))
    return {"scales": scales, "zero_points": zeros} if desc.kind is K.ASYMMETRIC else {"scales": scales}


SIZES = reduce_params("SizeScaleParams", largest="f32")
SPANS = reduce_params("SpanScaleParams", results=("y", "z"))
SOURCE = "quantize/choose_qparams.cu"


def range_kernels(kind: RangeKind) -> tuple[Kernel, ...]:
    """The reductions to scales: of spans; of sizes, in float32 and to powers of two."""
    if kind is K.ASYMMETRIC:
        made = reduce_kernels("kinds::SpanScale<{T}>", SPANS, prefix="span_")
    else:
        made = (
            *reduce_kernels("kinds::SizeScale<{T}, float>", SIZES, prefix="size_"),
            *reduce_kernels("kinds::SizeScale<{T}, u8>", SIZES, prefix="power_"),
        )
    return tuple(replace(kernel, source=SOURCE) for kernel in made)


def zero_points_of(p: Problem) -> tuple[View, str, int]:
    """Zero points as a view, the operand they are in, and the bytes that they take of the workspace instead."""
    if p.zero_points is not None:
        return p.zero_points, "zero_points", 0
    shape = p.desc.scale_shape
    view = View(0, shape, dense_strides(shape), E.I32)
    return view, WORKSPACE, aligned(view.nbytes)


def range_steps(p: Problem) -> tuple[tuple[Step | LibraryStep, ...], int, bool] | str:
    """The launches that write scales and zero points, the workspace they use, and whether reads are coalesced."""
    desc, coalesced = p.desc, True
    steps: list[Step | LibraryStep] = []
    symmetric, goal = desc.kind is K.SYMMETRIC, desc.to_element
    zeros, home, used = zero_points_of(p) if not symmetric else (None, "", 0)
    for box in boxes(desc.shape, desc.block):
        x = split(p.x, box)
        results = [counted(p.scales, box)]
        values: dict[str, Any] = {"x": place("x", p.x, box.start), "y": place("scales", p.scales, box.first)}
        if symmetric:
            prefix, values["largest"] = "power_" if desc.scale_element is E.E8M0 else "size_", goal.limits.max
        else:
            assert zeros is not None
            prefix = "span_"
            results.append(counted(zeros, box))
            values["z"] = place(home, zeros, box.first)
            values["correction"] = int(goal.limits.min) * 2**32 + int(goal.limits.max)
        inner = tuple(range(1, len(x.shape), 2))
        found = reduce_launches(p.device, (x,), results, inner, ordered=False, values=values, prefix=prefix, base=used)
        if isinstance(found, str):
            return found
        steps, used, coalesced = [*steps, *found.steps], found.used, coalesced and found.coalesced
    return tuple(steps), used, coalesced


def _geometry(p: Problem) -> Geometry | str:
    found = range_steps(p)
    if isinstance(found, str):
        return found
    steps, used, coalesced = found
    return Geometry(steps, used, "contiguous" if p.x.dense else "inner_contiguous" if coalesced else "strided")


class ChooseQParamsPlan(Plan):
    """scale (and zero point) of every block by the range of its numbers.

    symmetric: max |x| / largest, where largest is that of the target (127, 7, 448, 57344, 6), at least 2⁻¹²⁶; or the
    power of two that brings max |x| to the exponent of `largest` (OCP Microscaling Formats 1.0), 2⁻¹²⁷ of zeros, NaN
    where it is not finite. asymmetric: with 0 in the range, scale = (max - min) / (last - first) for the codes first
    to last, 1 of zeros, at least 2⁻¹²⁶, and zero point = round(first - min / scale) within them, halves to even
    (ONNX DynamicQuantizeLinear). All in float32, each operation rounded once; a NaN makes the scale NaN, and a zero
    point of NaN is 0.
    """

    op = "quantize.choose_qparams"
    kinds = RangeKind
    descriptor = ChooseQParamsDescriptor
    args = ChooseQParamsArgs
    reference = staticmethod(reference)
    raw = True
    variants = tuple(
        Variant(
            kind.value, _geometry, source=SOURCE, elements=SOURCES, kernels=range_kernels(kind), kinds=(kind,),
            guarantee=Guarantee(Exact(), math="float32", batch_invariant=True),
        )
        for kind in K
    )  # fmt: skip
    benchmarks = (
        Benchmark("[16384, 8192] bf16, a tensor", kind="symmetric", shape=(16384, 8192), element="bfloat16", peers=()),
        Benchmark("[16384, 8192] bf16, columns", kind="asymmetric", shape=(16384, 8192), block_shape=(0, 1),
                  to_element="uint8", element="bfloat16", also=("zero_points",), peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> ChooseQParamsDescriptor:
        return ChooseQParamsDescriptor(**draw_range(draw, False), element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", tuple(shapes["x"]))


def draw_range(draw: Any, packable: bool) -> dict[str, Any]:
    """The fields of a problem; packable: where 4-bit codes are made, blocks end where bytes do."""
    whole = (E.I8, E.S4) if draw.kind is K.SYMMETRIC else (E.U8, E.I8, E.U4, E.S4)
    goal = draw.choice((*whole, *FP8, E.FP4E2M1) if draw.kind is K.SYMMETRIC else whole)
    scope = draw_scope(draw, packable and goal.bits == 4)
    if draw.integer(0, 2) == 0:
        scope = draw_runs(draw)
    scope.pop("uniform", None)
    scales = (E.F32, E.E8M0) if not goal.is_integer else (E.F32,)
    return {**scope, "kind": draw.kind, "to_element": goal, "scale_element": draw.choice(scales)}
