"""fake_quantize: y = (clamp(round(x / scale) + zero point) - zero point) scale, and its straight-through gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Exact, Geometry, Guarantee, InvalidProblemError, Kernel, Params,
    Plan, Problem, Scalar, Variant, Vjp, flag, integer, operand, output, scalar,
)  # fmt: skip
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import cast, decode
from ...core.tensor import Shape
from ...schedules.blocks import SINGLE, BlockMap
from ...schedules.map import THREADS, map_params
from .affine import AffineFields, affine_params, draw_scope, infer_block_shape, random_zeros, shared, shared_views, wide

E = ElementKind
EACH = {"strided": 2}  # chunks of a thread


def check_range(desc: Any) -> None:
    """The ends of the range of integers are in order, and differences of them numbers of the accumulator."""
    most = 2**51 if desc.element is E.F64 else 2**22
    if not -most <= desc.quant_min <= desc.quant_max <= most:
        raise InvalidProblemError(
            f"quant_min, quant_max must be in order, within {most} of 0, got {desc.quant_min}, {desc.quant_max}"
        )


@dataclass(frozen=True, kw_only=True)
class FakeQuantizeDescriptor(AffineFields, Descriptor):
    """x and y have shape `shape`; blocks, scales and zero points (int32) are as in `AffineFields`.

    quant_min, quant_max: the ends of the range of integers, of at most 2²² steps (float64: 2⁵¹).
    """

    quant_min: int = integer(-128)
    quant_max: int = integer(127)
    element: ElementKind = element_field()

    def validate(self) -> None:
        self.check(self.element, E.I32)
        check_range(self)


def _scales(rng: np.random.Generator, desc: Any, shape: Shape) -> Any:
    """Such that most numbers are in the range."""
    return 8 / max(desc.quant_max - desc.quant_min, 1) * rng.uniform(0.5, 2, shape)


def _points(desc: Any) -> tuple[float, ...]:
    """The ends of the range, about."""
    return (0, 0.5, 1, 4)


@dataclass(slots=True, kw_only=True)
class FakeQuantizeArgs(Args):
    """Any strides; scales and zero_points have an item for each block, or broadcast to that. y may be x.

    mask: whether an element's integer is in the range, so that it has a gradient.
    """

    x: Array = operand("*shape", values=Everywhere(_points))
    scales: Array | None = operand(
        "*scale_shape", element="scale_element", broadcast=True, instead="uniform", values=_scales
    )
    zero_points: Array | None = operand(
        "*scale_shape", element="zero_element", broadcast=True, optional=True, values=random_zeros
    )
    y: Array = output("*shape", inplace=("x",))
    mask: Array | None = output("*shape", element=E.BOOL, optional=True)
    uniform_scale: Scalar = scalar(1.0)
    uniform_zero_point: Scalar = scalar(0, integer=True)


def _parts(desc: Any, x: Any, scales: Any, zeros: Any, number: Any, zero: Any) -> tuple[Any, Any, Any, Any]:
    """(quotients, the least and the largest integer that they may become, scales) in the accumulator."""
    acc = desc.element.acc
    factors, given = shared(desc, acc, scales, zeros, number, zero)
    first, last = acc.dtype.type(desc.quant_min), acc.dtype.type(desc.quant_max)
    held = np.clip(given.astype(acc.dtype), first, last)
    return wide(x, desc.element, acc) / factors, first - held, last - held, factors


def reference(
    desc: FakeQuantizeDescriptor, *, x: Any, scales: Any, zero_points: Any, uniform_scale: Any, uniform_zero_point: Any,
    wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in float32, of float64 in float64."""
    with np.errstate(all="ignore"):
        v, low, high, factors = _parts(desc, x, scales, zero_points, uniform_scale, uniform_zero_point)
        r = np.rint(v)
        made = {"y": np.array(cast(np.asarray(np.clip(r, low, high) * factors), desc.element))}
        return made | ({"mask": np.asarray((r >= low) & (r <= high))} if "mask" in wanted else {})


PARAMS = Params(
    "FakeQuantizeParams", y="ptr", mask="ptr", dx="ptr", x="ptr", scales="ptr", zero_points="ptr", dy="ptr",
    uniform_scale="scalar", uniform_zero_point="iscalar", step="i64", scales_step="i64", zero_points_step="i64",
    columns="i64", base="i64", low="f64", high="f64", scale_code="i32", zero_code="i32", uniform="i32", whole="i32",
    divided="i32", **SINGLE, **map_params(6),
)  # fmt: skip


def _kernels(backward: bool) -> tuple[Kernel, ...]:
    said = str(backward).lower()
    return tuple(
        Kernel(n, f"fake_quantize_{n}<{{T}}, {said}>", PARAMS, threads=THREADS) for n in ("flat", "strided", "one")
    )


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    dense = {"y": p.y, "x": p.x} | ({} if p.mask is None else {"mask": p.mask})
    beside = None if p.mask is None else "mask"
    made = BlockMap(desc.shape, desc.block, dense, shared_views(p), "x", 16, beside=beside, each=EACH)
    ends: dict[str, Any] = {"low": desc.quant_min, "high": desc.quant_max, "whole": True, "divided": False}
    ends |= dict.fromkeys(("mask", "dx", "dy"), "@null")
    return made.launches({**affine_params(desc), **ends})


def in_torch(
    torch: Any, desc: FakeQuantizeDescriptor, *, x: Any, scales: Any, zero_points: Any, uniform_scale: Any,
    uniform_zero_point: Any, wanted: set[str],
) -> Any:  # fmt: skip
    """The formula of torch.fake_quantize_per_tensor_affine, with a gradient that passes the rounding."""
    found = _parts_in_torch(torch, desc, x, scales, zero_points, uniform_scale, uniform_zero_point)
    if found is None:
        return NotImplemented
    v, low, high, factors = found
    rounded = v + (torch.round(v) - v).detach()
    made = {"y": torch.minimum(torch.maximum(rounded, low), high) * factors}
    return made | ({"mask": (rounded >= low) & (rounded <= high)} if "mask" in wanted else {})


def _parts_in_torch(torch: Any, desc: Any, x: Any, scales: Any, zeros: Any, number: Any, zero: Any) -> Any:
    """What `_parts` has, of scales for a tensor or along axes; None of others."""
    if any(size not in (1, extent) for size, extent in zip(desc.block, desc.shape, strict=True)):
        return None
    if desc.scale_element is E.E8M0 or not x.numel():
        return None
    factors = number if desc.uniform else scales
    given = torch.as_tensor(zero if desc.uniform else 0 if zeros is None else zeros)
    held = given.clamp(desc.quant_min, desc.quant_max).to(x.dtype)
    return x / factors, desc.quant_min - held, desc.quant_max - held, factors


class FakeQuantizePlan(Plan):
    """y = (clamp(round(x / scale) + zero point, quant_min, quant_max) - zero point) scale, in x's element.

    torch.fake_quantize_per_tensor_affine and torch.fake_quantize_per_channel_affine by their formula, which divides by
    the scale; halves go to even. It is `dequantize` of `quantize`, except that NaN stays NaN. The gradient is the
    straight-through estimator: dx = dy where the integer is in the range, else 0; scales have none here.
    """

    op = "quantize.fake_quantize"
    descriptor = FakeQuantizeDescriptor
    args = FakeQuantizeArgs
    reference = staticmethod(reference)
    raw = True
    value_policy = "a scale of any value is divided by and multiplied with as it is; zero points count within the range"
    variants = (
        Variant(
            "blocks", _geometry, source="quantize/fake_quantize.cu", kernels=_kernels(False),
            guarantee=Guarantee(Exact(), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    vjp = Vjp("FakeQuantizeBackwardPlan", grads={"x": "dx"})
    benchmarks = (
        Benchmark("134M bf16", shape=1 << 27, uniform=True, element="bfloat16", peers=()),
        Benchmark("[16384, 8192] bf16, rows", shape=(16384, 8192), block_shape=(1, 0), element="bfloat16", peers=()),
    )

    @staticmethod
    def case(draw: Any) -> FakeQuantizeDescriptor:
        low, high = draw.choice(((-128, 127), (0, 255), (-8, 7), (0, 0)))
        made: FakeQuantizeDescriptor = _drawn(draw, FakeQuantizeDescriptor, low, high)
        return made

    @staticmethod
    def gradient_case(draw: Any) -> FakeQuantizeDescriptor:
        """So many steps that rounding is none, and the estimator is the derivative."""
        most = 2**50 if draw.element is E.F64 else 2**20
        made: FakeQuantizeDescriptor = _drawn(draw, FakeQuantizeDescriptor, -most, most)
        return made

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        _complete(desc, arrays)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        _check(desc, views)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", tuple(shapes["x"]))
        infer_block_shape(facts["shape"], shapes, facts)


def _drawn(draw: Any, descriptor: Any, low: int, high: int, **facts: Any) -> Any:
    scales = (E.F32, E.F64) if draw.element is E.F64 else (E.F32, E.F16, E.E8M0)
    return descriptor(
        **draw_scope(draw, False), scale_element=draw.choice(scales), quant_min=low, quant_max=high,
        element=draw.element, **facts,
    )  # fmt: skip


def _complete(desc: Any, arrays: dict[str, Any]) -> None:
    span = max(desc.quant_max - desc.quant_min, 1)
    arrays["uniform_scale"] = (8.0 if math.prod(desc.shape) % 2 else 6.0) / span
    arrays["uniform_zero_point"] = len(desc.shape)
    if desc.uniform:
        arrays["zero_points"] = None


def _check(desc: Any, views: Mapping[str, Any]) -> None:
    if desc.uniform and views["zero_points"] is not None:
        raise InvalidProblemError(
            "zero_points must be None: with uniform scales uniform_zero_point stands in its place"
        )


@dataclass(frozen=True, kw_only=True)
class FakeQuantizeBackwardDescriptor(FakeQuantizeDescriptor):
    """As `FakeQuantizeDescriptor`.

    divided: the gradient is that of a quantiser, dy / scale. whole: the codes are integers, so that a quotient is in
    the range if it is after rounding.
    """

    divided: bool = flag(False)
    whole: bool = flag(True)


@dataclass(slots=True, kw_only=True)
class FakeQuantizeBackwardArgs(Args):
    """Any strides; dx may be dy or x."""

    dy: Array = operand("*shape")
    x: Array = operand("*shape", values=Everywhere(_points))
    scales: Array | None = operand(
        "*scale_shape", element="scale_element", broadcast=True, instead="uniform", values=_scales
    )
    zero_points: Array | None = operand(
        "*scale_shape", element="zero_element", broadcast=True, optional=True, values=random_zeros
    )
    dx: Array = output("*shape", inplace=("dy", "x"))
    uniform_scale: Scalar = scalar(1.0)
    uniform_zero_point: Scalar = scalar(0, integer=True)


def backward_reference(
    desc: FakeQuantizeBackwardDescriptor, *, dy: Any, x: Any, scales: Any, zero_points: Any, uniform_scale: Any,
    uniform_zero_point: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in float32, of float64 in float64."""
    with np.errstate(all="ignore"):
        v, low, high, factors = _parts(desc, x, scales, zero_points, uniform_scale, uniform_zero_point)
        r = np.rint(v) if desc.whole else v
        grad = decode(dy, desc.element).astype(desc.element.acc.dtype)
        dx = np.where((r >= low) & (r <= high), grad / factors if desc.divided else grad, 0)
        return {"dx": np.array(cast(np.asarray(dx, grad.dtype), desc.element))}


def _backward_geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    dense = {"dx": p.dx, "x": p.x, "dy": p.dy}
    made = BlockMap(desc.shape, desc.block, dense, shared_views(p), "x", 16, beside="dy", each=EACH)
    ends: dict[str, Any] = {"low": desc.quant_min, "high": desc.quant_max, "whole": desc.whole, "divided": desc.divided}
    ends |= dict.fromkeys(("y", "mask"), "@null")
    return made.launches({**affine_params(desc), **ends})


def backward_in_torch(
    torch: Any, desc: Any, *, dy: Any, x: Any, scales: Any, zero_points: Any, uniform_scale: Any,
    uniform_zero_point: Any,
) -> Any:  # fmt: skip
    """The formula; an estimator of its own definition."""
    found = _parts_in_torch(torch, desc, x, scales, zero_points, uniform_scale, uniform_zero_point)
    if found is None:
        return NotImplemented
    v, low, high, factors = found
    r = torch.round(v) if desc.whole else v
    return torch.where((r >= low) & (r <= high), dy / factors if desc.divided else dy, torch.zeros_like(dy))


class FakeQuantizeBackwardPlan(Plan):
    """dx = dy where round(x / scale) + zero point is from quant_min to quant_max, else 0 (and where x is NaN).

    The straight-through estimator of `FakeQuantizePlan`; with `divided` dx = dy / scale, that of `QuantizePlan`.
    """

    op = "quantize.fake_quantize_backward"
    direction = "backward"
    descriptor = FakeQuantizeBackwardDescriptor
    args = FakeQuantizeBackwardArgs
    reference = staticmethod(backward_reference)
    raw = True
    value_policy = FakeQuantizePlan.value_policy
    variants = (
        Variant(
            "blocks", _backward_geometry, source="quantize/fake_quantize.cu", kernels=_kernels(True),
            guarantee=Guarantee(Exact(), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(backward_in_torch)
    benchmarks = (Benchmark("134M bf16", shape=1 << 27, uniform=True, element="bfloat16", peers=()),)

    @staticmethod
    def case(draw: Any) -> FakeQuantizeBackwardDescriptor:
        low, high = draw.choice(((-128, 127), (0, 255), (-8, 7)))
        divided = draw.integer(0, 3) == 0
        facts = {"divided": divided, "whole": not divided or draw.flag()}
        made: FakeQuantizeBackwardDescriptor = _drawn(draw, FakeQuantizeBackwardDescriptor, low, high, **facts)
        return made

    complete = FakeQuantizePlan.complete
    check = FakeQuantizePlan.check
    infer = FakeQuantizePlan.infer
