"""dynamic_quantize: codes of x, with a scale and zero point for every block by the range of its numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Variant, View,
    operand, output,
)  # fmt: skip
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import decode, encode
from ...core.tensor import Shape
from ...core.variant import Step
from ...schedules.blocks import WORKSPACE, Box, boxes, counted, place, split
from ...schedules.geometry import grid
from ...schedules.map import divider
from ...schedules.rows import Rows, row_params
from ..elementwise.cast import CODES, PACKED
from .affine import codes_of, held_shape, over_blocks
from .choose_qparams import SOURCES, K, RangeFields, RangeKind, draw_range, qparams, range_kernels, range_steps
from .choose_qparams import zero_points_of
from .quantize import kernels as quantize_kernels
from .quantize import launch as quantize_launch

E = ElementKind
HELD = ((0, 4), (128, 4), (256, 8), (512, 8))
"""Threads of a block (0: up to a warp), and chunks of 16 bytes that each holds at most, by growing block."""


@dataclass(frozen=True, kw_only=True)
class DynamicQuantizeDescriptor(RangeFields, Descriptor):
    """x has shape `shape`, y holds `to_element`; the rest is as in `RangeFields`.

    Of packed codes blocks have 1, all, or an even number along the last axis.
    """

    element: ElementKind = element_field(SOURCES)

    def validate(self) -> None:
        super().validate()
        self.check_bytes(self.to_element)

    @property
    def y_shape(self) -> Shape:
        """The shape of the array that holds y."""
        return held_shape(self.shape, self.to_element)


@dataclass(slots=True, kw_only=True)
class DynamicQuantizeArgs(Args):
    """Any strides. Scales are float32, or powers of two in uint8; zero points are int32, of asymmetric ranges.

    y travels as uint8 where it is float8 or two a byte.
    """

    x: Array = operand("*shape")
    y: Array = output("*y_shape", element="to_element")
    scales: Array = output("*scale_shape", element="scale_element")
    zero_points: Array | None = output("*scale_shape", element=E.I32, kinds=(K.ASYMMETRIC,))


def reference(desc: DynamicQuantizeDescriptor, *, x: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy in float32."""
    values = decode(x, desc.element).astype(np.float32)
    scales, zeros = qparams(desc, values)
    factors = over_blocks(decode(scales, desc.scale_element).astype(np.float32), desc)
    with np.errstate(all="ignore"):
        y = encode(codes_of(values / factors, over_blocks(zeros, desc), desc.to_element), desc.to_element)
    made = {"y": np.array(y), "scales": scales}
    return made | ({"zero_points": zeros} if desc.kind is K.ASYMMETRIC else {})


PARAMS = Params(
    "DynamicQuantizeParams", y="ptr", x="ptr", scales="ptr", zero_points="ptr", **row_params(4), chunks="i32",
    lane_bits="i32", run="u32[3]", code="i32", low="i32", high="i32", scale_kind="i32", largest="f32",
)  # fmt: skip


def _kernels(kind: RangeKind) -> tuple[Kernel, ...]:
    """Blocks held in registers; and, for others, the range first and then the codes."""
    held = tuple(
        Kernel(
            f"held_{lanes}x{chunks}", f"dynamic_quantize<{{T}}, {{KIND}}, {lanes}, {chunks}>", PARAMS,
            threads=lanes or 128, min_blocks={256: 4, 512: 2}.get(lanes, 0),
        )
        for lanes, chunks in HELD
    )  # fmt: skip
    return (*held, *range_kernels(kind), *quantize_kernels(False))


def _one_launch(p: Problem) -> Geometry | None:
    """Blocks in registers, a group of threads each; None where they are too long or lie otherwise."""
    steps, layouts = [], []
    for box in boxes(p.desc.shape, p.desc.block):
        found = _held(p, box)
        if found is None:
            return None
        steps.append(found[0])
        layouts.append(found[1])
    return Geometry(tuple(steps), layout=next((one for one in layouts if one != "contiguous"), "contiguous"))


def _halves(p: Problem, box: Box) -> View | None:
    """y with strides in elements; of packed ones in halves of bytes, where its rows are dense and of whole bytes."""
    if p.desc.to_element not in PACKED:
        return split(p.y, box)
    if box.shape[-1] % 2 or p.desc.shape[-1] % 2 or (p.y.shape[-1] > 1 and p.y.strides[-1] != 1):
        return None
    strides = (*(2 * s for s in p.y.strides[:-1]), 1)
    at = split(View(0, box.shape, strides, E.U8), box)
    return View(p.y.ptr + at.ptr // 2, at.shape, at.strides, E.U8)


def _held(p: Problem, box: Box) -> tuple[Step, str] | None:
    desc, width, y = p.desc, 16 // p.desc.element.itemsize, _halves(p, box)
    if y is None:
        return None
    rank = 2 * len(desc.shape)
    outer = [counted(p.scales, box), None if p.zero_points is None else counted(p.zero_points, box)]
    found = Rows.of((y, split(p.x, box)), (range(0, rank, 2), range(1, rank, 2)), outer=outer, free=(0, 1))
    if isinstance(found, str):
        return None
    inner, chunks = found.inner_axes, found.cols // width
    runs = inner.rank in (1, 2) and all(s[-1] == 1 for s in inner.strides[:2]) and inner.shape[-1] % width == 0
    lanes, held = next((one for one in HELD if chunks <= max(one[0], 32 if not one[0] else 0) * one[1]), (0, 0))
    if not runs or not held or not found.access(width):
        return None
    group = lanes or min(32, 1 << max(-(-chunks // held) - 1, 0).bit_length())
    goal = desc.to_element
    whole = goal.is_integer
    start = (*box.start[:-1], box.start[-1] // 2) if goal in PACKED else box.start
    values = {
        **found.params(), "chunks": chunks, "lane_bits": group.bit_length() - 1,
        "run": list(divider(inner.shape[-1] // width)),
        "code": CODES.index(goal), "low": int(goal.limits.min) if whole else 0,
        "high": int(goal.limits.max) if whole else 0, "scale_kind": int(desc.scale_element is E.E8M0),
        "largest": goal.limits.max, "y": place("y", p.y, start), "x": place("x", p.x, box.start),
        "scales": place("scales", p.scales, box.first),
        "zero_points": "@null" if p.zero_points is None else place("zero_points", p.zero_points, box.first),
    }  # fmt: skip
    threads = lanes or 128
    step = Step(f"held_{lanes}x{held}", grid(-(-found.rows // (threads // group))), values, {}, threads)
    return step, "contiguous" if found.dense else "inner_contiguous"


def _geometry(p: Problem) -> Geometry | str:
    if (found := _one_launch(p)) is not None:
        return found
    ranges = range_steps(p)
    if isinstance(ranges, str):
        return ranges
    steps, used, coalesced = ranges
    desc = p.desc
    values = {
        "scale_code": CODES.index(desc.scale_element), "zero_code": CODES.index(E.I32), "uniform": False,
        "uniform_scale_value": 1.0, "uniform_zero_point_value": 0, "seed_value": 0, "offset_value": 0,
    }  # fmt: skip
    zeros, home, _ = (None, "", 0) if desc.kind is K.SYMMETRIC else zero_points_of(p)
    shared, kept = {"scales": p.scales, "zero_points": zeros}, "zero_points" if home == WORKSPACE else None
    made = quantize_launch(desc, p.x, p.y, shared, desc.to_element, values, kept)
    if isinstance(made, str):
        return made
    layout = made.layout if coalesced else "strided"
    return Geometry((*steps, *made.steps), used, layout)


class DynamicQuantizePlan(Plan):
    """scales and zero points of `ChooseQParamsPlan`, and y, the codes that `QuantizePlan` makes of x with them.

    One launch where a block has up to 64 KiB and lies as a run of memory, or as equal runs (tokens, groups, 2-D
    blocks); else the ranges come first (tensors, channels). NaN in a block makes its scale NaN, its integers zero
    points, and its floats NaN; an infinite number makes the scale infinite and finite numbers the code of 0.
    """

    op = "quantize.dynamic_quantize"
    kinds = RangeKind
    descriptor = DynamicQuantizeDescriptor
    args = DynamicQuantizeArgs
    reference = staticmethod(reference)
    raw = True
    variants = tuple(
        Variant(
            kind.value, _geometry, source="quantize/dynamic_quantize.cu", elements=SOURCES, kernels=_kernels(kind),
            kinds=(kind,), guarantee=Guarantee(Exact(), math="float32", batch_invariant=True),
        )
        for kind in K
    )  # fmt: skip
    benchmarks = (
        Benchmark("[32768, 4096] bf16 to int8, tokens", kind="symmetric", shape=(32768, 4096), block_shape=(1, 0),
                  element="bfloat16", peers=()),
        Benchmark("[16384, 8192] bf16 to e4m3, groups of 128", kind="symmetric", shape=(16384, 8192),
                  block_shape=(1, 128), to_element="float8_e4m3fn", element="bfloat16", peers=()),
        Benchmark("[16384, 8192] bf16 to e4m3, blocks of 128 × 128", kind="symmetric", shape=(16384, 8192),
                  block_shape=(128, 128), to_element="float8_e4m3fn", element="bfloat16", peers=()),
        Benchmark("[16384, 8192] bf16 to uint8, a tensor", kind="asymmetric", shape=(16384, 8192),
                  to_element="uint8", element="bfloat16", also=("zero_points",), peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> DynamicQuantizeDescriptor:
        return DynamicQuantizeDescriptor(**draw_range(draw, True), element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", tuple(shapes["x"]))

    @classmethod
    def bytes(cls, desc: Any) -> int:
        shared = math.prod(desc.scale_shape) * (desc.scale_element.itemsize + 4 * (desc.kind is K.ASYMMETRIC))
        moved = math.prod(desc.shape) * desc.element.itemsize + math.prod(desc.y_shape) * desc.to_element.itemsize
        return int(shared + moved)
