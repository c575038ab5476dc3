"""dequantize: y = (x - zero point) scale of integer codes, or x scale of small floats."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Everywhere, Exact, Geometry, Guarantee, InvalidProblemError, Kernel,
    Params, Plan, Problem, Scalar, Variant, Vjp, operand, output, scalar,
)  # fmt: skip
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import cast, decode
from ...core.tensor import Shape
from ...schedules.blocks import SINGLE, BlockMap
from ...schedules.map import THREADS, map_params
from ..elementwise.cast import CODES, PACKED
from .affine import (
    TARGETS, AffineFields, affine_params, check_zeros, complete_numbers, draw_elements, draw_scope, held_shape,
    infer_block_shape, random_scales, random_zeros, shared, shared_views, values_of,
)  # fmt: skip

E = ElementKind


@dataclass(frozen=True, kw_only=True)
class DequantizeDescriptor(AffineFields, Descriptor):
    """x holds `element`, y `to_element`; both have shape `shape`, in elements. The rest is as in `AffineFields`."""

    to_element: ElementKind = element_field(FLOATS, E.F32)
    element: ElementKind = element_field(TARGETS)

    def validate(self) -> None:
        self.check(self.to_element, self.element)

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.to_element

    @property
    def x_shape(self) -> Shape:
        """The shape of the array that holds x."""
        return held_shape(self.shape, self.element)


@dataclass(slots=True, kw_only=True)
class DequantizeArgs(Args):
    """Any strides; scales and zero_points have an item for each block, or broadcast to that. Float8 and packed codes
    travel as uint8."""

    x: Array = operand("*x_shape", values=Everywhere())
    scales: Array | None = operand(
        "*scale_shape", element="scale_element", broadcast=True, instead="uniform", values=random_scales
    )
    zero_points: Array | None = operand(
        "*scale_shape", element="zero_element", broadcast=True, optional=True, values=random_zeros
    )
    y: Array = output("*shape", element="to_element")
    uniform_scale: Scalar = scalar(1.0)
    uniform_zero_point: Scalar = scalar(0, integer=True)


def reference(
    desc: DequantizeDescriptor, *, x: Any, scales: Any, zero_points: Any, uniform_scale: Any, uniform_zero_point: Any
) -> Mapping[str, Any]:
    """NumPy in float32, of float64 and of int32 in float64."""
    if desc.element in PACKED and x.dtype != desc.element.carrier:
        raise InvalidProblemError(f"x holds one {desc.element} in a byte ({x.dtype}); pack two in a uint8")
    acc, codes = desc.to_element.acc, decode(x, desc.element)
    if desc.element in PACKED:
        codes = codes[..., : desc.shape[-1]]
    factors, zeros = shared(desc, acc, scales, zero_points, uniform_scale, uniform_zero_point)
    with np.errstate(all="ignore"):
        y = values_of(codes, desc.element, factors, zeros, acc)
        return {"y": np.array(cast(y, desc.to_element))}


PARAMS = Params(
    "DequantizeParams", y="ptr", x="ptr", scales="ptr", zero_points="ptr", uniform_scale="scalar",
    uniform_zero_point="iscalar", step="i64", scales_step="i64", zero_points_step="i64", columns="i64", base="i64",
    to="i32", scale_code="i32", zero_code="i32", uniform="i32", **SINGLE, **map_params(6),
)  # fmt: skip


def _from(element: ElementKind) -> Mapping[str, Any]:
    return {"FROM": (CODES.index(element),), "WIDTH": (2, 4, 8)}


def _single(packed: bool) -> Any:
    return lambda element: {"FROM": (CODES.index(element),) if (element in PACKED) == packed else ()}


KERNELS = (
    Kernel("flat", "dequantize_flat<{FROM}, {WIDTH}>", PARAMS, _from, threads=THREADS),
    Kernel("strided", "dequantize_strided<{FROM}, {WIDTH}>", PARAMS, _from, threads=THREADS, min_blocks=4),
    Kernel("one", "dequantize_one<{FROM}>", PARAMS, _single(False), threads=THREADS),
    Kernel("bytes", "dequantize_bytes<{FROM}>", PARAMS, _single(True), threads=THREADS),
)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    packed = "x" if desc.element in PACKED else None
    made = BlockMap(desc.shape, desc.block, {"y": p.y, "x": p.x}, shared_views(p), "y", 16, packed, each={"strided": 2})
    source, width = CODES.index(desc.element), desc.to_element.itemsize

    def kernel(layout: str) -> tuple[str, dict[str, int]]:
        return layout, {"FROM": source} | ({"WIDTH": width} if layout in ("flat", "strided") else {})

    return made.launches({**affine_params(desc), "to": CODES.index(desc.to_element)}, kernel)


def in_torch(
    torch: Any, desc: DequantizeDescriptor, *, x: Any, scales: Any, zero_points: Any, uniform_scale: Any,
    uniform_zero_point: Any,
) -> Any:  # fmt: skip
    """The formula on whole tensors, of scales for a tensor or along one axis."""
    if desc.element not in (E.I8, E.U8, E.I16, E.I32) or not x.numel() or desc.to_element is not E.F64:
        return NotImplemented
    if any(size not in (1, extent) for size, extent in zip(desc.block, desc.shape, strict=True)):
        return NotImplemented
    if desc.scale_element is E.E8M0:
        return NotImplemented
    factors = uniform_scale if desc.uniform else scales.to(torch.float64)
    zeros = uniform_zero_point if desc.uniform else 0 if zero_points is None else zero_points.to(torch.float64)
    return (x.to(torch.float64) - zeros) * factors


class DequantizePlan(Plan):
    """y = (x - zero point) scale of integers, or x scale of float8 and float4, a scale for each block.

    The difference is exact; the product is rounded in float32 (float64 for float64 and of int32), and then to y's
    element (ONNX DequantizeLinear, torch's dequantize). Scales have a gradient, zero points are integers.
    """

    op = "quantize.dequantize"
    descriptor = DequantizeDescriptor
    args = DequantizeArgs
    reference = staticmethod(reference)
    raw = True
    value_policy = (
        "a scale of any value multiplies as it is; zero points beyond the range of x's element count as its ends"
    )
    variants = (
        Variant(
            "blocks", _geometry, source="quantize/dequantize.cu", elements=TARGETS, kernels=KERNELS,
            guarantee=Guarantee(Exact(), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    vjp = Vjp("DequantizeBackwardPlan", grads={"scales": "dscales"})
    benchmarks = (
        Benchmark("134M int8 to bf16", shape=1 << 27, uniform=True, to_element="bfloat16", element="int8", peers=()),
        Benchmark("[16384, 8192] int4 to bf16, groups of 128", shape=(16384, 8192), block_shape=(1, 128),
                  to_element="bfloat16", element="int4", peers=(),
                  make=lambda torch, desc: {"x": torch.randint(0, 256, desc.x_shape, dtype=torch.uint8)}),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> DequantizeDescriptor:
        scope, goal = draw_scope(draw, draw.element in PACKED), draw.choice(FLOATS)
        return DequantizeDescriptor(
            **scope, **draw_elements(draw, goal, draw.element), to_element=goal, element=draw.element
        )

    @staticmethod
    def gradient_case(draw: Any) -> DequantizeDescriptor:
        """Scales in which differences can be told."""
        scope = draw_scope(draw, draw.element in PACKED)
        return DequantizeDescriptor(**scope, scale_element=E.F64, to_element=E.F64, element=draw.element)

    @classmethod
    def complete(cls, desc: DequantizeDescriptor, arrays: dict[str, Any]) -> None:
        complete_numbers(desc, arrays, desc.element)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_zeros(desc, views, desc.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        shape = tuple(shapes["x"])
        if facts.get("element") in PACKED and shape:
            shape = (*shape[:-1], 2 * shape[-1])
        facts.setdefault("shape", shape)
        infer_block_shape(facts["shape"], shapes, facts)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        shared = 0 if desc.uniform else math.prod(desc.scale_shape) * desc.scale_element.itemsize
        return int(
            shared + math.prod(desc.x_shape) * desc.element.itemsize + math.prod(desc.shape) * desc.to_element.itemsize
        )
