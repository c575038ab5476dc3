"""interpolate: images of another size (torch.nn.functional.interpolate, jax.image.scale_and_translate)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core.memo import cached_property
from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem,
    Relative, Step, Variant, Vjp, choice, element, extents, flag, integer, operand, output, per_axis,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ...core.checked import checked, real, sequence
from ...core.errors import InvalidProblemError
from ...schedules.map import THREADS
from ...schedules.planes import STACKED, planes_geometry, planes_kernels, planes_params
from .resample import NAMES, InterpolateKind, ResampleAxis, products, step_of, usable
from .resample_walk import WALK_FIELDS, read_columns, walk


def reals(default: Any = None) -> Any:
    """A field with a number for each axis, or one for all."""

    def check(name: str, value: Any) -> tuple[float, ...]:
        if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
            return (real(name, value),)
        return tuple(real(name, item) for item in sequence(name, value, "numbers"))

    return checked(check, default, accepts="float | Sequence[float]")


@dataclass(frozen=True, kw_only=True)
class InterpolateDescriptor(Descriptor):
    """x has shape `shape`, whose last `spatial_rank` axes (1 to 3) become `size`; those before are batch axes.

    step: how far apart outputs lie among the inputs, by default in / out, with align_corners (in - 1) / (out - 1).
    Output o of an axis stands at step · (o + ½) + shift - ½, with align_corners at step · o. antialias: a filter is
    widened by step where that is more than 1. zero_outside: outputs of filters that stand outside x are 0.
    """

    kind: InterpolateKind = choice(InterpolateKind)
    shape: tuple[int, ...] = extents()
    spatial_rank: int = integer(minimum=1, maximum=3)
    size: Any = per_axis(minimum=1, of="spatial_rank")
    step: Any = reals()
    shift: Any = reals()
    align_corners: bool = flag(False)
    antialias: bool = flag(False)
    zero_outside: bool = flag(False)
    element: ElementKind = element()

    def validate(self) -> None:
        """What a kind has no use for is refused."""
        kind, rank = self.kind, self.spatial_rank
        if len(self.shape) < rank or min(self.shape[-rank:]) < 1:
            raise InvalidProblemError(f"shape must end in {rank} spatial axes of 1 or more, got {self.shape}")
        if self.align_corners and kind not in (InterpolateKind.LINEAR, InterpolateKind.CUBIC):
            raise InvalidProblemError(f"align_corners is for linear and cubic, got it for {kind.value}")
        if not kind.radius and (self.antialias or self.zero_outside or self.shift is not None):
            raise InvalidProblemError(f"antialias, zero_outside and shift are for filters, got them for {kind.value}")
        if kind is InterpolateKind.AREA and self.step is not None:
            raise InvalidProblemError("step is not for area, whose windows cut the axis into equal parts")
        for name, value in (("step", self.step), ("shift", self.shift)):
            if value is not None and len(value) not in (1, rank):
                raise InvalidProblemError(f"{name} must have one number, or one for each of {rank} axes, got {value}")
        if self.step is not None and not all(map(usable, self.step)):
            raise InvalidProblemError(f"step must lie in [0, 2^31], got {self.step}")
        if self.shift is not None and not all(abs(s) <= 2**31 for s in self.shift):
            raise InvalidProblemError(f"shift must lie in [-2^31, 2^31], got {self.shift}")

    @property
    def spatial_shape(self) -> tuple[int, ...]:
        """The axes of x that change."""
        return self.shape[len(self.shape) - self.spatial_rank :]

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The shape of y."""
        return (*self.shape[: len(self.shape) - self.spatial_rank], *self.size)

    @cached_property
    def axes(self) -> tuple[ResampleAxis, ...]:
        """The spatial axes."""
        rank, made = self.spatial_rank, []
        for a, (inputs, outputs) in enumerate(zip(self.spatial_shape, self.size, strict=True)):
            step, shift = (
                None if given is None else given[a if len(given) == rank else 0] for given in (self.step, self.shift)
            )
            scale = step_of(inputs, outputs, self.align_corners) if step is None else step
            widened = max(scale, 1.0) if self.antialias else 1.0
            made.append(
                ResampleAxis(
                    self.kind, inputs, outputs, scale, shift or 0.0, widened, self.align_corners, self.zero_outside
                )
            )
        return tuple(made)


@dataclass(slots=True, kw_only=True)
class InterpolateArgs(Args):
    """Any strides."""

    x: Array = operand("*shape")
    y: Array = output("*out_shape")


def reference(desc: InterpolateDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in, tap by tap; weights in float64 before."""
    kind = x.dtype.type
    flat = x.reshape(math.prod(desc.shape[: len(desc.shape) - desc.spatial_rank]), *desc.spatial_shape)
    y = np.zeros((flat.shape[0], *desc.size), x.dtype)
    with np.errstate(all="ignore"):
        for places, weights, there in products(desc.axes):
            at: Any = (slice(None), *places)
            part = flat[at]
            if not desc.kind.picks:
                weight = kind(1)
                for one in weights:
                    weight = weight * one.astype(x.dtype)
                part = weight * part
            y = np.where(there, y + part, y)
    return {"y": y.reshape(desc.out_shape)}


AXIS_FIELDS: dict[str, Any] = {
    "in_extent": "i64[3]", "out_extent": "i64[3]", "scale": "f64[3]", "shift": "f64[3]", "widened": "f64[3]",
    "align_corners": "i32", "zero_outside": "i32", "Resample": NAMES,
}  # fmt: skip
PARAMS = Params("InterpolateParams", y="ptr", x="ptr", **AXIS_FIELDS, **planes_params(2))
WALK = Params("InterpolateWalkParams", y="ptr", x="ptr", **AXIS_FIELDS, **planes_params(2), **WALK_FIELDS)


def axis_values(desc: InterpolateDescriptor) -> dict[str, Any]:
    """What the kernels know of the axes; one before the spatial axes has a single place."""
    single = ResampleAxis(desc.kind, 1, 1, 1.0, 0.0, 1.0, desc.align_corners, False)
    axes = (*(single,) * (3 - desc.spatial_rank), *desc.axes)
    return {
        "in_extent": [a.inputs for a in axes], "out_extent": [a.outputs for a in axes],
        "scale": [a.scale for a in axes], "shift": [a.shift for a in axes], "widened": [a.widened for a in axes],
        "align_corners": desc.align_corners, "zero_outside": desc.zero_outside,
    }  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    rank, batch = len(p.desc.shape), len(p.desc.shape) - p.desc.spatial_rank
    return planes_geometry((p.y, p.x), range(batch), range(batch, rank), axis_values(p.desc), stacks=True)


_IN_ROWS = (InterpolateKind.NEAREST, InterpolateKind.NEAREST_EXACT, InterpolateKind.LINEAR)


def _rows(p: Problem) -> Geometry | str:
    """Stacks of planes, of whose rows a thread makes 16 bytes."""
    made, wide = _geometry(p), 16 // p.desc.element.itemsize
    if isinstance(made, str) or not isinstance(stack := made.steps[0], Step) or stack.kernel != "stack":
        return made if isinstance(made, str) else "planes do not lie one step apart, or are few"
    others = [s for n, s in zip(p.y.shape[:-1], p.y.strides[:-1], strict=True) if n > 1]
    if p.y.strides[-1] != 1 or p.y.ptr % 16 or any(s % wide for s in others) or p.y.shape[-1] < wide:
        return "rows of y do not begin at 16 bytes"
    if (p.x.shape[-1] - 1) * abs(p.x.strides[-1]) >= 2**31:
        return "rows of x are longer than 2^31 elements"
    *before, width = stack.params["points"]
    points = [*before, -(-width // wide)]
    items = stack.params["groups"] * math.prod(points)
    params = {**stack.params, "points": points, "items": items}
    step = replace(stack, kernel="rows", grid=(max(1, -(-items // THREADS)), 1, 1), params=params)
    return replace(made, steps=(step,))


def _walk(p: Problem) -> Geometry | str:
    return walk(p, _geometry(p), p.y, p.x, read_columns(p.desc.element), {})


def planes(desc: InterpolateDescriptor, tensor: Any) -> Any:
    """[n, 1, *spatial] for torch's functions."""
    spatial = tensor.shape[len(tensor.shape) - desc.spatial_rank :]
    return tensor.reshape(math.prod(tensor.shape[: len(tensor.shape) - desc.spatial_rank]), 1, *spatial)


_MODES = {
    InterpolateKind.NEAREST: ("nearest",) * 3, InterpolateKind.NEAREST_EXACT: ("nearest-exact",) * 3,
    InterpolateKind.LINEAR: ("linear", "bilinear", "trilinear"), InterpolateKind.AREA: ("area",) * 3,
    InterpolateKind.CUBIC: (None, "bicubic", None), InterpolateKind.TRIANGLE: (None, "bilinear", None),
    InterpolateKind.KEYS: (None, "bicubic", None),
}  # fmt: skip


def in_torch(torch: Any, desc: InterpolateDescriptor, *, x: Any) -> Any:
    """torch's interpolate, where it has the mode, and coordinates that it makes of the sizes."""
    mode = _MODES.get(desc.kind, (None,) * 3)[desc.spatial_rank - 1]
    own = desc.step is None and desc.shift is None and not desc.zero_outside
    if mode is None or not own or 0 in desc.shape or (desc.kind.radius and not desc.antialias):
        return NotImplemented
    facts: dict[str, Any] = {"mode": mode}
    if not desc.kind.picks and desc.kind is not InterpolateKind.AREA:
        facts |= {"align_corners": desc.align_corners, "antialias": bool(desc.kind.radius)}
    return torch.nn.functional.interpolate(planes(desc, x), desc.size, **facts).reshape(desc.out_shape)


def interpolate_case(draw: Any, descriptor: Any) -> Any:
    """Random images, grown and shrunk; channels last where a batch of whole words is drawn."""
    kind, rank = draw.kind, draw.integer(1, 3)
    few = 4 if rank == 3 or kind.radius > 2 else 7
    rank = min(rank, 2) if kind.radius else rank
    batch = draw.choice(((2, 16), (3,), (), (2, 3), (0, 2), (19,)))
    shape = batch + tuple(draw.integer(1, few) for _ in range(rank))
    size = tuple(draw.integer(1, few) for _ in range(rank))
    facts: dict[str, Any] = {}
    if kind.radius:
        facts = {"antialias": draw.flag(), "zero_outside": draw.flag()}
        if draw.integer(0, 2) == 0:
            facts["shift"] = tuple(draw.choice((0.0, 1.25, -2.0)) for _ in range(rank))
    if kind in (InterpolateKind.LINEAR, InterpolateKind.CUBIC):
        facts["align_corners"] = draw.flag()
    if kind is not InterpolateKind.AREA and draw.integer(0, 2) == 0:
        facts["step"] = draw.choice((0.4, 0.75, 1.0, 1.6, 0.0))
    if draw.integer(0, 3) == 3:  # planes alone are contiguous, as with channels last
        shape, size = (2, 16, *(1,) * rank), (1,) * rank
    if draw.rarely():  # rows of whole words of many planes
        shape, size = (19, *shape[-rank:]), (*size[:-1], draw.choice((8, 16)))
    return descriptor(kind=kind, shape=shape, spatial_rank=rank, size=size, element=draw.element, **facts)


def channels_last(names: tuple[str, ...]) -> Any:
    """A benchmark's operands laid channels last."""

    def make(torch: Any, desc: InterpolateDescriptor) -> Mapping[str, Any]:
        made = {}
        for name in names:
            shape = desc.out_shape if name in ("y", "dy") else desc.shape
            made[name] = torch.empty(
                shape, dtype=getattr(torch, str(desc.element)), memory_format=torch.channels_last
            ).normal_()
        return made

    return make


def interpolate_benchmarks(*names: str) -> tuple[Benchmark, ...]:
    """The up-sampling of a UNet, channels first and last, and of a segmentation's logits."""
    unet: dict[str, Any] = {"shape": (8, 256, 128, 128), "spatial_rank": 2, "size": 256, "element": "bfloat16"}
    return (
        Benchmark("[8, 256, 128, 128] bf16 nearest × 2", kind="nearest", work=BYTES, **unet),
        Benchmark("[8, 256, 128, 128] bf16 nearest × 2, channels last", kind="nearest", work=BYTES, **unet,
                  make=channels_last(names)),
        Benchmark("[8, 256, 128, 128] bf16 bilinear × 2", kind="linear", work=BYTES, **unet),
        Benchmark("[8, 256, 128, 128] bf16 bilinear × 2, channels last", kind="linear", work=BYTES, **unet,
                  make=channels_last(names)),
        Benchmark("[8, 256, 128, 128] bf16 bicubic × 2", kind="cubic", work=BYTES, **unet),
    )  # fmt: skip


_GUARANTEE = Guarantee(
    lambda element, kind: Exact() if kind is not None and kind.picks else Relative(2), batch_invariant=True
)


class InterpolatePlan(Plan):
    """y[…, o] = Σ w(o, i) x[…, i], w the product of a weight for each spatial axis.

    nearest, nearest_exact, linear, cubic (a = -¾, edges repeated) and area are PyTorch's modes; coordinates are
    float64 but for nearest, whose places are PyTorch's in float32. triangle, keys (a = -½), lanczos3 and lanczos5 are
    filters whose weights are divided by their sum, JAX's and, with antialias, PyTorch's. Infinity times a weight of 0
    is NaN.
    """

    op = "image.interpolate"
    kinds = InterpolateKind
    descriptor = InterpolateDescriptor
    args = InterpolateArgs
    reference = staticmethod(reference)
    vjp = Vjp("InterpolateBackwardPlan", grads={"x": "dx"})
    variants = (
        Variant(
            "rows", _rows, source="image/interpolate.cu", elements=FLOATS, kinds=_IN_ROWS, guarantee=_GUARANTEE,
            kernels=(
                Kernel(
                    "rows", "interpolate_rows<{T}, {N}, Resample::{KIND}>", PARAMS, {"N": (STACKED,)}, THREADS,
                    min_blocks=2,
                ),
            ),
        ),
        Variant(
            "walk", _walk, source="image/interpolate_walk.cu", elements=FLOATS, kinds=(InterpolateKind.CUBIC,),
            kernels=(
                Kernel(
                    "walk", "interpolate_walk<{T}, {N}, Resample::{KIND}>", WALK,
                    lambda kind: {"N": (read_columns(kind),)}, THREADS, min_blocks=3,
                ),
            ),
            guarantee=_GUARANTEE,
        ),
        Variant(
            "planes", _geometry, source="image/interpolate.cu", elements=FLOATS,
            kernels=planes_kernels(
                "interpolate<{T}, {N}, {TOGETHER}, Resample::{KIND}>", PARAMS,
                "interpolate_stack<{T}, {N}, Resample::{KIND}>",
            ), may_spill=True,
            guarantee=_GUARANTEE,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = interpolate_benchmarks("x", "y")

    @staticmethod
    def case(draw: Any) -> InterpolateDescriptor:
        return interpolate_case(draw, InterpolateDescriptor)  # type: ignore[no-any-return]


interpolated = functional(InterpolatePlan, "interpolated", follows="x")
