"""dynamic_slice and dynamic_update_slice: a part of an array that begins where indices on the device say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Plan, Problem, Step, Variant, View, Vjp,
    element, extents, inout, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ...core.element import COMPLEX, INDICES
from ...core.errors import InvalidProblemError
from ...core.tensor import AXES, Shape
from ...schedules.copy import PLAIN, Moving, launched, plain_step, zeros_step
from ..indexing.indexed import MOVED

POLICY = "an index below 0 counts from the end; then it is held so that the part lies inside"


@dataclass(frozen=True, kw_only=True)
class DynamicSliceDescriptor(Descriptor):
    """x has shape `shape`, the part `sizes`, with as many axes and none longer. starts has an index for each axis."""

    shape: tuple[int, ...] = extents()
    sizes: tuple[int, ...] = extents()
    element: ElementKind = element(MOVED)

    def validate(self) -> None:
        """A part that fits."""
        if len(self.sizes) != len(self.shape) or any(n > m for n, m in zip(self.sizes, self.shape, strict=True)):
            raise InvalidProblemError(f"sizes must be those of a part of shape {self.shape}, got {self.sizes}")
        if len(self.movable) > AXES:
            raise InvalidProblemError(f"sizes {self.sizes} leave more than {AXES} axes of {self.shape} to move along")

    @property
    def rank(self) -> int:
        """How many indices there are."""
        return len(self.shape)

    @property
    def movable(self) -> list[int]:
        """The axes along which the part may begin at several places."""
        return [a for a, (n, m) in enumerate(zip(self.sizes, self.shape, strict=True)) if n < m]


def random_starts(rng: Any, desc: Any, shape: Shape) -> Any:
    """Every other time inside throughout; else before the ends, behind them, and far away."""
    last = np.asarray(desc.shape, np.int64).reshape(shape) - np.asarray(desc.sizes, np.int64).reshape(shape)
    inside = rng.integers(0, last + 1)
    if rng.random() < 0.5:
        return inside
    far = rng.choice((0, -(2**31), 2**31 - 1), shape)
    return np.where(rng.random(shape) < 0.3, far, rng.integers(-last - 3, last + 3))


def held(desc: Any, starts: Any) -> Shape:
    """Where the part begins, by the policy."""
    return tuple(
        min(max(int(at) + m if at < 0 else int(at), 0), m - n)
        for at, n, m in zip(starts, desc.sizes, desc.shape, strict=True)
    )


def part_of(desc: Any, x: Any, starts: Any) -> Any:
    """NumPy's view of the part."""
    place = (*[slice(at, at + n) for at, n in zip(held(desc, starts), desc.sizes, strict=True)], ...)
    return x[place]


def moving(desc: Any, whole: View, starts: View, target: bool) -> Moving:
    """The axes of the whole along which the part moves."""
    axes = desc.movable
    return Moving(
        "starts", starts.element is ElementKind.I64, tuple(a * starts.strides[0] for a in axes),
        tuple(desc.shape[a] for a in axes), tuple(desc.shape[a] - desc.sizes[a] for a in axes),
        tuple(whole.strides[a] for a in axes), target,
    )  # fmt: skip


def read_part(p: Problem, to: str, of: str) -> Step | str | None:
    """The launch that copies the part of a whole."""
    part, whole = p.views[to], p.views[of]
    seen = replace(whole, shape=part.shape)
    return plain_step(part, seen, (to, 0), (of, 0), moving(p.desc, whole, p.starts, False) if p.desc.movable else None)


def write_part(p: Problem, to: str, of: str) -> Step | str | None:
    """The launch that writes the part of a whole; without `of`, zeros."""
    whole = p.views[to]
    seen = replace(whole, shape=p.desc.sizes)
    moves = moving(p.desc, whole, p.starts, True) if p.desc.movable else None
    if of:
        return plain_step(seen, p.views[of], (to, 0), (of, 0), moves)
    nothing = View(0, seen.shape, seen.strides, seen.element)
    return plain_step(seen, nothing, (to, 0), ("@null", 0), moves)


def _row(geometry: Any, elements: tuple[ElementKind, ...]) -> tuple[Variant, ...]:
    guarantee = Guarantee(Exact(), native=True, batch_invariant=True)
    return (Variant("copy", geometry, "layout/copy.cu", PLAIN, elements=elements, guarantee=guarantee),)


def drawn(draw: Any) -> dict[str, Any]:
    """A part, at times of whole words, at times all of an axis."""
    even, least = draw.choice((1, 8, 16)), draw.choice((1, 1, 0))
    shape = [*draw.shape(0, 3, least, 5), draw.integer(least, 3) * even]
    sizes = [n if draw.flag() else draw.integer(min(least, n), n) for n in shape]
    return {"shape": tuple(shape), "sizes": tuple(sizes)}


class _Sliced(Plan):
    """What the plans share."""

    value_policy = POLICY

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        starts = np.asarray(arrays["starts"])
        if any(at != now for at, now in zip(starts.tolist(), held(desc, starts), strict=True)):
            return f"the part of {desc.sizes} must lie in {desc.shape}, starts is {starts.tolist()}"
        return None

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int(2 * math.prod(desc.sizes) * desc.element.itemsize)


_FIELDS: dict[str, Any] = {"shape": (64, 8192, 1024), "sizes": (64, 1024, 1024), "element": "bfloat16"}


def _start(torch: Any, desc: Any) -> Mapping[str, Any]:
    return {"starts": torch.tensor([0, 3000, 0])}


# ---- dynamic_slice -------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class DynamicSliceArgs(Args):
    """Any strides; starts is int32 or int64."""

    x: Array = operand("*shape")
    starts: Array = operand("rank", element=INDICES, values=random_starts)
    y: Array = output("*sizes")


def _slice_geometry(p: Problem) -> Geometry | str:
    return launched([read_part(p, "y", "x")], (p.x, p.y))


def slice_in_torch(torch: Any, desc: DynamicSliceDescriptor, *, x: Any, starts: Any) -> Any:
    """narrow along each axis."""
    for axis, (at, n) in enumerate(zip(held(desc, starts.tolist()), desc.sizes, strict=True)):
        x = x.narrow(axis, at, n)
    return x.clone()


class DynamicSlicePlan(_Sliced):
    """y = the part of x of shape `sizes` that begins at `starts`, indices on the device (jax.lax.dynamic_slice)."""

    op = "layout.dynamic_slice"
    descriptor = DynamicSliceDescriptor
    args = DynamicSliceArgs
    raw = True
    reference = staticmethod(lambda desc, *, x, starts: {"y": np.array(part_of(desc, x, starts))})
    vjp = Vjp("DynamicSliceBackwardPlan", grads={"x": "dx"})
    variants = _row(_slice_geometry, MOVED)
    torch = staticmethod(slice_in_torch)
    benchmarks = (
        Benchmark("1024 of 8192 rows of [64, 8192, 1024] bf16", make=_start, work=BYTES, peers=(), **_FIELDS),
    )

    @staticmethod
    def case(draw: Any) -> DynamicSliceDescriptor:
        return DynamicSliceDescriptor(**drawn(draw), element=draw.element)


@dataclass(frozen=True, kw_only=True)
class DynamicSliceBackwardDescriptor(DynamicSliceDescriptor):
    """The forward's fields."""

    element: ElementKind = element((*FLOATS, *COMPLEX))


@dataclass(slots=True, kw_only=True)
class DynamicSliceBackwardArgs(Args):
    """Any strides; dx is written whole."""

    dy: Array = operand("*sizes")
    starts: Array = operand("rank", element=INDICES, values=random_starts)
    dx: Array = output("*shape")


def slice_backward_reference(desc: Any, *, dy: Any, starts: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    dx = np.zeros(desc.shape, dy.dtype)
    part_of(desc, dx, starts)[...] = dy
    return {"dx": dx}


def _slice_backward_geometry(p: Problem) -> Geometry | str:
    steps = [zeros_step(p.dx, ("dx", 0))] if p.desc.movable or not p.dy.size else []
    return launched([*steps, write_part(p, "dx", "dy")], (p.dx, p.dy))


class DynamicSliceBackwardPlan(_Sliced):
    """dx = dy where the part was read, 0 elsewhere."""

    op = "layout.dynamic_slice_backward"
    direction = "backward"
    descriptor = DynamicSliceBackwardDescriptor
    args = DynamicSliceBackwardArgs
    raw = True
    reference = staticmethod(slice_backward_reference)
    variants = _row(_slice_backward_geometry, (*FLOATS, *COMPLEX))
    benchmarks = (Benchmark("1024 of 8192 rows of [64, 8192, 1024] bf16", make=_start, peers=(), **_FIELDS),)

    @staticmethod
    def case(draw: Any) -> DynamicSliceBackwardDescriptor:
        return DynamicSliceBackwardDescriptor(**drawn(draw), element=draw.element)


# ---- dynamic_update_slice ------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DynamicUpdateSliceDescriptor(DynamicSliceDescriptor):
    """x and y have shape `shape`, update has `sizes`, with as many axes and none longer."""

    element: ElementKind = element(MOVED)


@dataclass(slots=True, kw_only=True)
class DynamicUpdateSliceArgs(Args):
    """Any strides; y may be x itself; starts is int32 or int64."""

    x: Array = operand("*shape")
    update: Array = operand("*sizes")
    starts: Array = operand("rank", element=INDICES, values=random_starts)
    y: Array = output("*shape", inplace=("x",))


def update_reference(desc: Any, *, x: Any, update: Any, starts: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    y = np.array(x)
    part_of(desc, y, starts)[...] = update
    return {"y": y}


def _update_geometry(p: Problem) -> Geometry | str:
    copied = [plain_step(p.y, p.x)] if p.desc.movable else []
    return launched([*copied, write_part(p, "y", "update")], (p.x, p.y, p.update))


def update_in_torch(torch: Any, desc: Any, *, x: Any, update: Any, starts: Any) -> Any:
    """A copy of x whose part is replaced."""
    y = x.clone()
    part_of(desc, y, starts.tolist())[...] = update
    return y


class DynamicUpdateSlicePlan(_Sliced):
    """y = x with the part that begins at `starts`, indices on the device, replaced (jax.lax.dynamic_update_slice)."""

    op = "layout.dynamic_update_slice"
    descriptor = DynamicUpdateSliceDescriptor
    args = DynamicUpdateSliceArgs
    raw = True
    reference = staticmethod(update_reference)
    vjp = Vjp("DynamicUpdateSliceBackwardPlan", grads={"x": "dx", "update": "dupdate"})
    variants = _row(_update_geometry, MOVED)
    torch = staticmethod(update_in_torch)
    benchmarks = (Benchmark("1024 of 8192 rows of [64, 8192, 1024] bf16", make=_start, peers=(), **_FIELDS),)

    @staticmethod
    def case(draw: Any) -> DynamicUpdateSliceDescriptor:
        return DynamicUpdateSliceDescriptor(**drawn(draw), element=draw.element)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int(2 * math.prod(desc.shape) * desc.element.itemsize)


@dataclass(frozen=True, kw_only=True)
class DynamicUpdateSliceBackwardDescriptor(DynamicUpdateSliceDescriptor):
    """The forward's fields."""

    element: ElementKind = element((*FLOATS, *COMPLEX))


@dataclass(slots=True, kw_only=True)
class DynamicUpdateSliceBackwardArgs(Args):
    """Any strides; each gradient is written whole, or not wanted."""

    dy: Array = operand("*shape")
    starts: Array = operand("rank", element=INDICES, values=random_starts)
    dx: Array | None = output("*shape", optional=True)
    dupdate: Array | None = output("*sizes", optional=True)


def update_backward_reference(desc: Any, *, dy: Any, starts: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    dx, dupdate = np.array(dy), np.array(part_of(desc, dy, starts))
    part_of(desc, dx, starts)[...] = 0
    return {name: one for name, one in {"dx": dx, "dupdate": dupdate}.items() if name in wanted}


def _update_backward_geometry(p: Problem) -> Geometry | str:
    steps = [] if p.dupdate is None else [read_part(p, "dupdate", "dy")]
    if p.dx is not None:
        steps += [plain_step(p.dx, p.dy, ("dx", 0), ("dy", 0))] if p.desc.movable else []
        steps.append(write_part(p, "dx", ""))
    return launched(steps, [v for v in (p.dy, p.dx, p.dupdate) if v is not None])


class DynamicUpdateSliceBackwardPlan(_Sliced):
    """dx = dy, but 0 where the part was replaced; dupdate = dy there."""

    op = "layout.dynamic_update_slice_backward"
    direction = "backward"
    descriptor = DynamicUpdateSliceBackwardDescriptor
    args = DynamicUpdateSliceBackwardArgs
    raw = True
    reference = staticmethod(update_backward_reference)
    variants = _row(_update_backward_geometry, (*FLOATS, *COMPLEX))
    benchmarks = (
        Benchmark(
            "1024 of 8192 rows of [64, 8192, 1024] bf16", make=_start, peers=(), also=("dx", "dupdate"), **_FIELDS
        ),
    )

    @staticmethod
    def case(draw: Any) -> DynamicUpdateSliceBackwardDescriptor:
        return DynamicUpdateSliceBackwardDescriptor(**drawn(draw), element=draw.element)


# ---- write_slice ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class WriteSliceDescriptor(DynamicSliceDescriptor):
    """x has shape `shape`, update has `sizes`, with as many axes and none longer."""

    element: ElementKind = element(MOVED)


@dataclass(slots=True, kw_only=True)
class WriteSliceArgs(Args):
    """Any strides; x is written where the part lies; starts is int32 or int64."""

    x: Array = inout("*shape")
    update: Array = operand("*sizes")
    starts: Array = operand("rank", element=INDICES, values=random_starts)


def write_reference(desc: Any, *, x: Any, update: Any, starts: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    part_of(desc, x, starts)[...] = update
    return {"x": x}


def _write_geometry(p: Problem) -> Geometry | str:
    if p.update.size:
        return launched([write_part(p, "x", "update")], (p.x, p.update))
    ones = (1,) * p.desc.rank  # nothing is written, by a launch that has nothing to do
    step = plain_step(replace(p.x, shape=ones), replace(p.update, shape=ones), ("x", 0), ("update", 0))
    assert isinstance(step, Step)
    return launched([replace(step, params={**step.params, "count": 0, "chunks": 0})], (p.x, p.update))


class WriteSlicePlan(_Sliced):
    """The part of x that begins at `starts`, indices on the device, becomes `update`, in place: a cache that grows."""

    op = "layout.write_slice"
    descriptor = WriteSliceDescriptor
    args = WriteSliceArgs
    raw = True
    reference = staticmethod(write_reference)
    variants = _row(_write_geometry, MOVED)
    torch = staticmethod(lambda torch, desc, **given: {"x": update_in_torch(torch, desc, **given)})
    benchmarks = (
        Benchmark("1024 of 8192 rows of [64, 8192, 1024] bf16", make=_start, work=BYTES, peers=(), **_FIELDS),
    )

    @staticmethod
    def case(draw: Any) -> WriteSliceDescriptor:
        return WriteSliceDescriptor(**drawn(draw), element=draw.element)


slice_at = functional(DynamicSlicePlan, "slice_at")
dynamic_slice_backward = functional(DynamicSliceBackwardPlan)
update_slice_at = functional(DynamicUpdateSlicePlan, "update_slice_at")
dynamic_update_slice_backward = functional(DynamicUpdateSliceBackwardPlan)
write_at = functional(WriteSlicePlan, "write_at")
