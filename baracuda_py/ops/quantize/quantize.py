"""quantize: y = clamp(round(x / scale) + zero point) in 4 to 32 bits, or x / scale as float8 or float4."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Scalar,
    UnsupportedError, Variant, flag, operand, output, scalar,
)  # fmt: skip
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import FP8, encode
from ...core.tensor import Shape
from ...schedules.blocks import SINGLE, BlockMap
from ...schedules.map import THREADS, map_params
from ..elementwise.cast import CODES, PACKED
from ..random.draws import streams
from ..random.philox import philox_bits
from ..random.stochastic_cast import StochasticCastDescriptor
from ..random.stochastic_cast import reference as stochastic_cast
from .affine import (
    TARGETS, WHOLE, AffineFields, affine_params, check_zeros, codes_of, complete_numbers, draw_elements, draw_scope,
    held_shape, infer_block_shape, random_scales, random_zeros, shared, shared_views, wide,
)  # fmt: skip

E = ElementKind


@dataclass(frozen=True, kw_only=True)
class QuantizeDescriptor(AffineFields, Descriptor):
    """x has shape `shape`, y holds `to_element`; blocks, scales and zero points are as in `AffineFields`.

    stochastic: quotients are rounded up or down at random, so that the mean is kept; of integers and float8.
    """

    to_element: ElementKind = element_field(TARGETS, E.I8)
    stochastic: bool = flag(False)
    element: ElementKind = element_field()

    def validate(self) -> None:
        self.check(self.element, self.to_element)
        if self.stochastic and self.to_element is E.FP4E2M1:
            raise UnsupportedError("stochastic is for integers and float8, got float4_e2m1fn")

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.to_element

    @property
    def y_shape(self) -> Shape:
        """The shape of the array that holds y."""
        return held_shape(self.shape, self.to_element)


def _points(desc: QuantizeDescriptor) -> tuple[float, ...]:
    """Halves, and the ends of the target's range."""
    limits = desc.to_element.limits
    return (0, 0.5, 1, 1.5, 2.5, float(limits.max), float(limits.max) + 0.5, float(-limits.min))


@dataclass(slots=True, kw_only=True)
class QuantizeArgs(Args):
    """Any strides; scales and zero_points have an item for each block, or broadcast to that.

    y travels as uint8 where it is float8 or two a byte.
    """

    x: Array = operand("*shape", values=Everywhere(_points))
    scales: Array | None = operand(
        "*scale_shape", element="scale_element", broadcast=True, instead="uniform", values=random_scales
    )
    zero_points: Array | None = operand(
        "*scale_shape", element="zero_element", broadcast=True, optional=True, values=random_zeros
    )
    y: Array = output("*y_shape", element="to_element")
    uniform_scale: Scalar = scalar(1.0)
    uniform_zero_point: Scalar = scalar(0, integer=True)
    seed: Scalar = scalar(integer=True, drawn="stochastic")
    offset: Scalar = scalar(0, integer=True)


def reference(
    desc: QuantizeDescriptor, *, x: Any, scales: Any, zero_points: Any, uniform_scale: Any, uniform_zero_point: Any,
    seed: Any, offset: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in float32, of float64 in float64."""
    acc, goal = desc.element.acc, desc.to_element
    factors, zeros = shared(desc, acc, scales, zero_points, uniform_scale, uniform_zero_point)
    with np.errstate(all="ignore"):
        v = np.asarray(wide(x, desc.element, acc) / factors)
        if desc.stochastic and goal in FP8:
            inner = StochasticCastDescriptor(shape=desc.shape, to_element=goal, saturate=True, element=acc)
            return stochastic_cast(inner, x=v, seed=seed, offset=offset)
        if desc.stochastic:
            v = _dithered(v, philox_bits(seed, offset, v.size).reshape(v.shape))
        return {"y": np.array(encode(codes_of(v, zeros, goal), goal))}


def _dithered(v: Any, words: Any) -> Any:
    """v rounded down or up, as its word says; what is not finite stays."""
    below = np.floor(v)
    part = np.where(np.isfinite(v), (v - below) * v.dtype.type(2.0**32), 0)
    return below + (words < part.astype(np.uint64))


SOURCE = "quantize/quantize.cu"
PARAMS = Params(
    "QuantizeParams", y="ptr", x="ptr", scales="ptr", zero_points="ptr", uniform_scale="scalar",
    uniform_zero_point="iscalar", seed="iscalar", offset="iscalar", step="i64", scales_step="i64",
    zero_points_step="i64", columns="i64", base="i64", code="i32", scale_code="i32", zero_code="i32", uniform="i32",
    low="i32", high="i32", fraction="i32", least="i32", top="u32", **SINGLE, **map_params(6),
)  # fmt: skip


def kernels(stochastic: bool) -> tuple[Kernel, ...]:
    """By layout: all of one scale, scales that stay or move within a chunk, any strides, and bytes of two codes."""
    said, prefix = str(stochastic).lower(), "stochastic_" if stochastic else ""
    names = {"flat": 4, "groups": 0, "columns": 0, "one": 0, "bytes": 0}  # and blocks on a multiprocessor
    return tuple(
        Kernel(f"{prefix}{n}", f"quantize_{n}<{{T}}, {said}>", PARAMS, threads=THREADS, min_blocks=least, source=SOURCE)
        for n, least in names.items()
    )


def launch(
    desc: Any, x: Any, y: Any, shared: Mapping[str, Any], goal: ElementKind, values: Mapping[str, Any],
    kept: str | None = None,
) -> Geometry | str:  # fmt: skip
    """The launches that quantise x into y with what blocks share; kept: which of it is in the workspace."""
    low, high = (int(goal.limits.min), int(goal.limits.max)) if goal in WHOLE else (0, 0)
    formed = {"code": CODES.index(goal), "low": low, "high": high, "fraction": 0, "least": 0, "top": 0}
    if goal in FP8:
        codes = StochasticCastDescriptor(shape=(), to_element=goal, saturate=True, element=E.F32).codes
        formed |= {"fraction": codes["fraction"], "least": codes["least"], "top": codes["max_code"]}
    packed = "y" if goal in PACKED else None
    dense, stochastic = {"y": y, "x": x}, getattr(desc, "stochastic", False)
    each = {} if stochastic else {"groups": 2}  # chunks of a thread
    made = BlockMap(desc.shape, desc.block, dense, shared, "x", 32, packed, stochastic, True, kept, each=each)
    prefix = "stochastic_" if stochastic else ""
    return made.launches({**formed, **values}, lambda layout: (prefix + layout, {}))


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    return launch(desc, p.x, p.y, shared_views(p), desc.to_element, affine_params(desc))


def in_torch(
    torch: Any, desc: QuantizeDescriptor, *, x: Any, scales: Any, zero_points: Any, uniform_scale: Any,
    uniform_zero_point: Any, seed: Any, offset: Any,
) -> Any:  # fmt: skip
    """The formula on whole tensors, of scales for a tensor or along axes."""
    goal = desc.to_element
    if desc.stochastic or goal not in (E.I8, E.U8, E.I16, E.I32) or not x.numel() or desc.scale_element is E.E8M0:
        return NotImplemented
    if any(size not in (1, extent) for size, extent in zip(desc.block, desc.shape, strict=True)):
        return NotImplemented
    factors = uniform_scale if desc.uniform else scales
    zeros = uniform_zero_point if desc.uniform else 0 if zero_points is None else zero_points.to(torch.float64)
    q = torch.round(x / factors)
    q = torch.where(q.isnan(), torch.zeros_like(q), q).to(torch.float64) + zeros
    return q.clamp(float(goal.limits.min), float(goal.limits.max)).to(getattr(torch, str(goal)))


class QuantizePlan(Plan):
    """y = clamp(round(x / scale) + zero point) in integers, or x / scale as a small float, a scale for each block.

    The quotient is that of float32 (float64 of float64), rounded once; it goes to the nearest integer, halves to even,
    the zero point is added, and the sum saturates (ONNX QuantizeLinear, torch.quantize_per_tensor and
    torch.quantize_per_channel). NaN becomes the zero point. To float8 and float4 the quotient is rounded to nearest,
    ties to even, and saturates, infinities too; NaN stays NaN, and as float4, which has none, its maximum. There is no
    zero point then.

    With `stochastic` the quotient goes up in the share of cases that it lies above, by the word of its element's
    row-major number in the Philox stream of `seed` and `offset`, see `StochasticCastPlan`.
    """

    op = "quantize.quantize"
    descriptor = QuantizeDescriptor
    args = QuantizeArgs
    reference = staticmethod(reference)
    raw = True
    value_policy = (
        "a scale of any value divides as it is: 0 gives the ends of the range (of 0 the zero point), a negative one "
        "turns signs, NaN gives the zero point (of floats NaN); zero points beyond the target's range count as its ends"
    )
    variants = (
        Variant(
            "blocks", _geometry, source=SOURCE, kernels=kernels(False),
            guarantee=Guarantee(Exact(), batch_invariant=True),
            refuses=lambda desc: "draws are the stochastic row's" if desc.stochastic else None,
        ),
        Variant(
            "stochastic", _geometry, source=SOURCE, kernels=kernels(True), guarantee=Guarantee(Exact()),
            refuses=lambda desc: None if desc.stochastic else "it rounds to nearest",
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("134M bf16 to int8", shape=1 << 27, uniform=True, element="bfloat16", peers=()),
        Benchmark("[16384, 8192] bf16 to int4, groups of 128", shape=(16384, 8192), block_shape=(1, 128),
                  to_element="int4", element="bfloat16", peers=()),
        Benchmark("[16384, 8192] f32 to e4m3, columns", shape=(16384, 8192), block_shape=(0, 1),
                  to_element="float8_e4m3fn", element="float32", peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> QuantizeDescriptor:
        goal = draw.choice(TARGETS)
        scope = draw_scope(draw, goal in PACKED)
        stochastic = goal is not E.FP4E2M1 and draw.integer(0, 2) == 0
        return QuantizeDescriptor(
            **scope, **draw_elements(draw, draw.element, goal), to_element=goal, stochastic=stochastic,
            element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: QuantizeDescriptor, arrays: dict[str, Any]) -> None:
        streams(desc.shape, arrays)
        complete_numbers(desc, arrays, desc.to_element)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_zeros(desc, views, desc.to_element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", tuple(shapes["x"]))
        infer_block_shape(facts["shape"], shapes, facts)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        shared = 0 if desc.uniform else math.prod(desc.scale_shape) * desc.scale_element.itemsize
        return int(
            shared + math.prod(desc.shape) * desc.element.itemsize + math.prod(desc.y_shape) * desc.to_element.itemsize
        )
