"""learnable_fake_quantize: fake quantisation whose scales and zero points have gradients (learned step sizes)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan,
    PerOutput, Problem, Relative, Scalar, UnsupportedError, Variant, View, Vjp, derived, integer, operand,
    output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import cast
from ...core.tensor import Shape
from ...schedules.blocks import SINGLE, BlockMap
from ...schedules.map import THREADS, map_params
from ...schedules.reduce import reduce_kernels, reduce_params
from ..elementwise.cast import CODES
from .affine import BlockFields, draw_runs, draw_scope, infer_block_shape, over_blocks
from .block_sums import finish, finish_kernel, finish_params, over_blocks_sums, sums_of_blocks
from .fake_quantize import EACH, check_range

E = ElementKind
_D = TypeVar("_D")
_RANGES = ((-128, 127), (0, 255), (-8, 7), (0, 3))
_SATURATED = (0, 1)  # a range that all numbers of `gradient_case` are beyond


@dataclass(frozen=True, kw_only=True)
class LearnableFields(BlockFields):
    """x and y have shape `shape`, scales and zero points `scale_shape`; blocks are as in `BlockFields`.

    scale_element: of scales and zero points, float64 only of float64. quant_min, quant_max: the ends of the range of
    integers, of at most 2²² steps (float64: 2⁵¹).
    """

    scale_element: ElementKind = element_field(FLOATS, derived(lambda desc: E.F32))
    quant_min: int = integer(-128)
    quant_max: int = integer(127)
    element: ElementKind = element_field()

    def validate(self) -> None:
        """The range is one, and float64 scales go with float64."""
        if self.scale_element is E.F64 and self.element is not E.F64:
            raise UnsupportedError(
                f"scale_element float64 is for float64, got {self.element}; it may be float32, float16, bfloat16"
            )
        check_range(self)


@dataclass(frozen=True, kw_only=True)
class LearnableFakeQuantizeDescriptor(LearnableFields, Descriptor):
    """As `LearnableFields`."""


def _scales(rng: np.random.Generator, desc: Any, shape: Shape) -> Any:
    """Such that most numbers are in the range, or none."""
    if (desc.quant_min, desc.quant_max) == _SATURATED:
        return np.full(shape, 2.0**-20)
    return 4 / max(desc.quant_max - desc.quant_min, 1) * rng.uniform(0.5, 2, shape)


def _zeros(rng: np.random.Generator, desc: Any, shape: Shape) -> Any:
    """About 0, and some beyond the range."""
    return rng.uniform(-2, 5, shape)


@dataclass(slots=True, kw_only=True)
class LearnableFakeQuantizeArgs(Args):
    """Any strides; scales and zero_points have an item for each block. y may be x. grad_factor scales gradients."""

    x: Array = operand("*shape")
    scales: Array = operand("*scale_shape", element="scale_element", values=_scales)
    zero_points: Array | None = operand("*scale_shape", element="scale_element", optional=True, values=_zeros)
    y: Array = output("*shape", inplace=("x",))
    grad_factor: Scalar = scalar(1.0)


def _steps(desc: Any, scales: Any, zeros: Any, kind: Any) -> tuple[Any, Any, Any]:
    """(scales, the least and the largest integer that a quotient may become) of elements."""
    first, last = kind(desc.quant_min), kind(desc.quant_max)
    given = np.zeros((), kind) if zeros is None else over_blocks(np.asarray(zeros, kind), desc)
    zero = np.clip(np.rint(given), first, last)
    return over_blocks(np.asarray(scales, kind), desc), first - zero, last - zero


def reference(
    desc: LearnableFakeQuantizeDescriptor, *, x: Any, scales: Any, zero_points: Any, grad_factor: Any
) -> Mapping[str, Any]:
    """NumPy in float32, of float64 in float64."""
    kind = desc.element.acc.dtype.type
    with np.errstate(all="ignore"):
        factors, low, high = _steps(desc, scales, zero_points, kind)
        y = np.clip(np.rint(x.astype(kind) / factors), low, high) * factors
        return {"y": np.array(cast(np.asarray(y), desc.element))}


PARAMS = Params(
    "LearnableFakeQuantizeParams", y="ptr", dx="ptr", x="ptr", scales="ptr", zero_points="ptr", dy="ptr", step="i64",
    scales_step="i64", zero_points_step="i64", columns="i64", base="i64", low="f64", high="f64", scale_code="i32",
    **SINGLE, **map_params(6),
)  # fmt: skip


def _kernels(backward: bool) -> tuple[Kernel, ...]:
    said = str(backward).lower()
    return tuple(
        Kernel(n, f"learnable_{n}<{{T}}, {said}>", PARAMS, threads=THREADS) for n in ("flat", "strided", "one")
    )


def _shared(p: Problem) -> dict[str, View | None]:
    return {"scales": p.scales, "zero_points": p.zero_points}


def _values(desc: Any) -> dict[str, Any]:
    return {"low": desc.quant_min, "high": desc.quant_max, "scale_code": CODES.index(desc.scale_element)}


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    made = BlockMap(desc.shape, desc.block, {"y": p.y, "x": p.x}, _shared(p), "x", 16, each=EACH)
    return made.launches({**_values(desc), "dx": "@null", "dy": "@null"})


def in_torch(
    torch: Any, desc: LearnableFakeQuantizeDescriptor, *, x: Any, scales: Any, zero_points: Any, grad_factor: Any
) -> Any:
    """The formula of torch._fake_quantize_learnable_per_tensor_affine, with gradients that pass the rounding."""
    if any(size not in (1, extent) for size, extent in zip(desc.block, desc.shape, strict=True)) or not x.numel():
        return NotImplemented

    def told(value: Any, share: Any) -> Any:
        """The value, with the gradient of `share`."""
        return share + (value - share).detach()

    factors = told(scales, scales * grad_factor)
    given = torch.zeros((), dtype=x.dtype) if zero_points is None else zero_points
    zero = told(torch.round(given).clamp(desc.quant_min, desc.quant_max), given * grad_factor)
    v = x / factors
    codes = (told(torch.round(v), v) + zero).clamp(desc.quant_min, desc.quant_max)
    return (codes - zero) * factors


class LearnableFakeQuantizePlan(Plan):
    """y = (clamp(round(x / scale) + zero point, quant_min, quant_max) - zero point) scale, whose scales are learned.

    The values of `FakeQuantizePlan`; zero points are floats here, and count as the integer nearest to them, halves to
    even, in the range. Gradients are those of learned step sizes (Esser et al., 2020), as of torch's
    _fake_quantize_learnable_per_tensor_affine: see `LearnableFakeQuantizeBackwardPlan`.
    """

    op = "quantize.learnable_fake_quantize"
    descriptor = LearnableFakeQuantizeDescriptor
    args = LearnableFakeQuantizeArgs
    reference = staticmethod(reference)
    raw = True
    value_policy = "a scale of any value is divided by and multiplied with as it is; a zero point of NaN makes NaN"
    variants = (
        Variant(
            "blocks", _geometry, source="quantize/learnable_fake_quantize.cu", kernels=_kernels(False),
            guarantee=Guarantee(Exact(), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    vjp = Vjp(
        "LearnableFakeQuantizeBackwardPlan", grads={"x": "dx", "scales": "dscales", "zero_points": "dzero_points"}
    )
    benchmarks = (
        Benchmark("134M bf16", shape=1 << 27, element="bfloat16", peers=()),
        Benchmark("[16384, 8192] bf16, rows", shape=(16384, 8192), block_shape=(1, 0), element="bfloat16", peers=()),
    )

    @staticmethod
    def case(draw: Any) -> LearnableFakeQuantizeDescriptor:
        return _drawn(draw, LearnableFakeQuantizeDescriptor, *draw.choice(_RANGES))

    @staticmethod
    def gradient_case(draw: Any) -> LearnableFakeQuantizeDescriptor:
        """All numbers are beyond the range, where the estimator is the derivative, of scales in x's element."""
        return replace(_drawn(draw, LearnableFakeQuantizeDescriptor, *_SATURATED), scale_element=draw.element)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        arrays["grad_factor"] = 0.5 if math.prod(desc.shape) % 2 else 1.0
        if (desc.quant_min, desc.quant_max) == _SATURATED:
            arrays["grad_factor"], arrays["zero_points"] = 1.0, None

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", tuple(shapes["x"]))
        infer_block_shape(facts["shape"], shapes, facts)


def _drawn(draw: Any, descriptor: Callable[..., _D], low: int, high: int) -> _D:
    scope = draw_runs(draw) if draw.integer(0, 2) == 0 else draw_scope(draw, False)
    scope.pop("uniform", None)
    scales = (E.F32, E.F64) if draw.element is E.F64 else (E.F32, E.F16 if draw.element is E.F16 else E.BF16)
    return descriptor(
        **scope, scale_element=draw.choice(scales), quant_min=low, quant_max=high, element=draw.element
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LearnableFakeQuantizeBackwardDescriptor(LearnableFields, Descriptor):
    """As `LearnableFields`."""


@dataclass(slots=True, kw_only=True)
class LearnableFakeQuantizeBackwardArgs(Args):
    """Any strides; each gradient may be None. dx may be dy or x."""

    dy: Array = operand("*shape")
    x: Array = operand("*shape")
    scales: Array = operand("*scale_shape", element="scale_element", values=_scales)
    zero_points: Array | None = operand("*scale_shape", element="scale_element", optional=True, values=_zeros)
    dx: Array | None = output("*shape", optional=True, inplace=("dy", "x"))
    dscales: Array | None = output("*scale_shape", element="scale_element", optional=True)
    dzero_points: Array | None = output("*scale_shape", element="scale_element", needs="zero_points", optional=True)
    grad_factor: Scalar = scalar(1.0)


def backward_reference(
    desc: LearnableFakeQuantizeBackwardDescriptor, *, dy: Any, x: Any, scales: Any, zero_points: Any, grad_factor: Any,
    wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype the operands come in; quotients are rounded to that of the accumulator."""
    kind, factor = x.dtype.type, x.dtype.type(grad_factor)
    with np.errstate(all="ignore"):
        factors, low, high = _steps(desc, scales, zero_points, kind)
        v = np.asarray(x / factors).astype(desc.element.acc.dtype).astype(kind)
        r = np.rint(v)
        inside = (r >= low) & (r <= high)
        held = np.clip(r, low, high)
        made = {"dx": np.where(inside, dy, 0)}
        if "dscales" in wanted:
            sums = over_blocks_sums(desc, dy * np.where(inside, held - v, held))
            made["dscales"] = sums * factor
        if "dzero_points" in wanted:
            sums = over_blocks_sums(desc, np.where(inside, 0, dy))
            made["dzero_points"] = -(scales * sums) * factor
    return {name: value for name, value in made.items() if name in wanted}


SUMS = reduce_params(
    "LearnableSumsParams", ("dy", "x", "scales", "zero_points"), low="f64", high="f64", scale_code="i32"
)
FINISH = finish_params(
    "LearnableFinishParams", 3, scales="ptr", dscales="ptr", dzeros="ptr", grad_factor="scalar", scale_code="i32"
)
_SOURCE = "quantize/learnable_sums.cu"
_SUM_KERNELS = reduce_kernels("kinds::Sum<complex<{A}>>", SUMS, source="affine::LearnableTerms<{T}>")


def _backward_geometry(p: Problem) -> Geometry | str:
    desc, used = p.desc, 0
    steps: list[Any] = []
    layout = "contiguous"
    if p.dscales is not None or p.dzero_points is not None:
        own = _values(desc)
        width = 16 // desc.element.itemsize
        pair = E.C128 if desc.element is E.F64 else E.C64
        sums = sums_of_blocks(p, {"dy": p.dy, "x": p.x}, _shared(p), pair, width, own)
        if isinstance(sums, str):
            return sums
        given = {
            "scale_code": own["scale_code"], "dzeros": "@null" if p.dzero_points is None else "dzero_points",
        }  # fmt: skip
        last = finish(sums, (p.scales, p.dscales, p.dzero_points), given)
        if isinstance(last, str):
            return last
        steps, used = [*sums.steps, last], sums.used
        layout = "contiguous" if p.dy.dense and p.x.dense else "inner_contiguous" if sums.coalesced else "strided"
    if p.dx is not None:
        dense = {"dx": p.dx, "x": p.x, "dy": p.dy}
        blocks = BlockMap(desc.shape, desc.block, dense, _shared(p), "x", 16, beside="dy", each=EACH)
        made = blocks.launches({**_values(desc), "y": "@null"})
        if isinstance(made, str):
            return made
        steps, layout = [*steps, *made.steps], made.layout
    return Geometry(tuple(steps), used, layout)


class LearnableFakeQuantizeBackwardPlan(Plan):
    """The gradients of `LearnableFakeQuantizePlan`, with v = x / scale, r = round(v), and r's range low to high.

    dx = dy where r is in the range, else 0. dscale = grad_factor · the sum over a block of dy (r - v), of dy low or
    dy high where r is beyond these ends (Esser et al., 2020); dzero = -grad_factor · scale · the sum of dy where r is
    beyond the range. Sums are in float32, float64 of float64, in an order that the extents of blocks alone fix.
    PyTorch's zero points are rounded as they are forward here, where its per-tensor gradient adds a half and truncates.
    """

    op = "quantize.learnable_fake_quantize_backward"
    direction = "backward"
    descriptor = LearnableFakeQuantizeBackwardDescriptor
    args = LearnableFakeQuantizeBackwardArgs
    reference = staticmethod(backward_reference)
    value_policy = LearnableFakeQuantizePlan.value_policy
    variants = (
        Variant(
            "blocks", _backward_geometry, source="quantize/learnable_fake_quantize.cu", may_spill=True,
            kernels=(
                *_kernels(True),
                *(replace(kernel, source=_SOURCE) for kernel in _SUM_KERNELS),
                finish_kernel("learnable_finish<{T}>", FINISH, _SOURCE),
            ),
            guarantee=Guarantee(
                PerOutput((("dx", Exact()), ("dscales", Relative(2)), ("dzero_points", Relative(2)))),
                batch_invariant=True,
            ),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("134M bf16", also=("dx", "dscales"), shape=1 << 27, element="bfloat16", peers=()),
        Benchmark("[16384, 8192] bf16, rows", also=("dx", "dscales"), shape=(16384, 8192), block_shape=(1, 0),
                  element="bfloat16", peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> LearnableFakeQuantizeBackwardDescriptor:
        return _drawn(draw, LearnableFakeQuantizeBackwardDescriptor, *draw.choice(_RANGES))

    complete = LearnableFakeQuantizePlan.complete
    infer = LearnableFakeQuantizePlan.infer


learnable_fake_quantize_backward = functional(LearnableFakeQuantizeBackwardPlan)
