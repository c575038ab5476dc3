"""concat: arrays side by side along an axis of one (torch.cat, numpy.concatenate), and its gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Plan, Problem, Variant, Vjp, axis,
    element, operand, output, shapes,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ...core.element import COMPLEX
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.tensor import Shape
from ...core.views import shape_of, with_axis
from ...schedules.concat import CAPACITY, KERNELS, concat_geometry, elements, joined
from ..indexing.indexed import MOVED
from .axes import place
from .views import atleast_1d, atleast_2d, atleast_3d, raveled, transpose


@dataclass(frozen=True, kw_only=True)
class ConcatDescriptor(Descriptor):
    """Arrays of these shapes, one at least, which are equal but along `axis`."""

    shapes: tuple[tuple[int, ...], ...] = shapes()
    axis: int = axis(0, of="rank")
    element: ElementKind = element(MOVED)

    def validate(self) -> None:
        """One shape, but for the extents along the axis."""
        for i, shape in enumerate(self.shapes):
            if len(shape) != self.rank or any(
                n != m for a, (n, m) in enumerate(zip(shape, self.shapes[0], strict=True)) if a != self.axis
            ):
                raise InvalidProblemError(
                    f"xs[{i}] must have the shape of xs[0] {self.shapes[0]} but along axis {self.axis}, got {shape}"
                )

    @property
    def rank(self) -> int:
        """Axes of each array."""
        if not self.shapes:
            raise InvalidProblemError("xs must have an array at least")
        return len(self.shapes[0])

    @property
    def out_shape(self) -> Shape:
        """The shape of y."""
        return joined(self.shapes, self.axis)


@dataclass(slots=True, kw_only=True)
class ConcatArgs(Args):
    """Any strides."""

    xs: list[Array] = operand(many="shapes")
    y: Array = output("*out_shape")


def reference(desc: ConcatDescriptor, *, xs: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    return {"y": np.concatenate(xs, desc.axis)}


def _geometry(p: Problem) -> Geometry | str:
    return concat_geometry(p.y, p.xs, p.desc.axis, ("y", "xs"), apart=False)


_FIELDS: dict[str, Any] = {"shapes": ((2048, 1024),) * 64, "axis": 1, "element": "bfloat16"}


class ConcatPlan(Plan):
    """y = the arrays one behind the other along `axis` (torch.cat); one launch for each 80 whose rows are dense,
    and one for as many that are columns side by side (`stack` along the last axis).

    Elements are moved as they are. Arrays of other strides are copied by a launch each.
    """

    op = "layout.concat"
    descriptor = ConcatDescriptor
    args = ConcatArgs
    raw = True
    reference = staticmethod(reference)
    vjp = Vjp("ConcatBackwardPlan", grads={"xs": "dxs"})
    variants = (
        Variant(
            "copy", _geometry, "layout/concat.cu", KERNELS, elements=MOVED,
            guarantee=Guarantee(Exact(), native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(lambda torch, desc, *, xs: torch.cat(tuple(xs), desc.axis))
    benchmarks = (
        Benchmark("64 of [2048, 1024] bf16 along axis 1", work=BYTES, **_FIELDS),
        Benchmark("64 of [1 Mi] f32", shapes=((1 << 20,),) * 64, axis=0, element="float32", work=BYTES),
    )

    @staticmethod
    def case(draw: Any) -> ConcatDescriptor:
        found, at = drawn(draw)
        return ConcatDescriptor(shapes=found, axis=at, element=draw.element)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int(2 * elements(desc.shapes) * desc.element.itemsize)


def drawn(draw: Any) -> tuple[tuple[Shape, ...], int]:
    """A few arrays, some empty, of rows that have whole words or not; at times more than a launch takes."""
    if draw.rarely():
        return tuple((1, i % 3) for i in range(CAPACITY + 5)), 1
    if draw.integer(0, 4) == 0:  # columns
        return ((draw.choice((2, 33, 700)), 1),) * draw.choice((2, 3, 8)), 1
    rank = draw.integer(1, 3)
    at = draw.integer(0, rank - 1)
    even = draw.choice((1, 8, 16, 2))
    shape = [draw.integer(1, 4) for _ in range(rank)]
    shape[-1] *= even
    count = draw.integer(1, 4)
    extents = [draw.integer(0, 3) * (even if at == rank - 1 else 1) for _ in range(count)]
    return tuple((*shape[:at], n, *shape[at + 1 :]) for n in extents), at


@dataclass(frozen=True, kw_only=True)
class ConcatBackwardDescriptor(ConcatDescriptor):
    """The forward's fields."""

    element: ElementKind = element((*FLOATS, *COMPLEX))


@dataclass(slots=True, kw_only=True)
class ConcatBackwardArgs(Args):
    """Any strides."""

    dy: Array = operand("*out_shape")
    dxs: list[Array] = output(many="shapes")


def backward_reference(desc: ConcatBackwardDescriptor, *, dy: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    bounds = np.cumsum([shape[desc.axis] for shape in desc.shapes])[:-1]
    return {"dxs": [np.array(part) for part in np.split(dy, bounds, desc.axis)]}


def _backward_geometry(p: Problem) -> Geometry | str:
    return concat_geometry(p.dy, p.dxs, p.desc.axis, ("dy", "dxs"), apart=True)


def backward_in_torch(torch: Any, desc: ConcatBackwardDescriptor, *, dy: Any) -> Any:
    """split_with_sizes_copy."""
    return {"dxs": [x.clone() for x in dy.split([shape[desc.axis] for shape in desc.shapes], desc.axis)]}


class ConcatBackwardPlan(Plan):
    """dxs[i] = dy where array i lies in it."""

    op = "layout.concat_backward"
    direction = "backward"
    descriptor = ConcatBackwardDescriptor
    args = ConcatBackwardArgs
    raw = True
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "copy", _backward_geometry, "layout/concat.cu", KERNELS, elements=(*FLOATS, *COMPLEX),
            guarantee=Guarantee(Exact(), native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(backward_in_torch)
    benchmarks = (Benchmark("64 of [2048, 1024] bf16 along axis 1", work=BYTES, **_FIELDS),)

    @staticmethod
    def case(draw: Any) -> ConcatBackwardDescriptor:
        found, at = drawn(draw)
        return ConcatBackwardDescriptor(shapes=found, axis=at, element=draw.element)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int(2 * elements(desc.shapes) * desc.element.itemsize)


concat = functional(ConcatPlan)
concat_backward = functional(ConcatBackwardPlan)
cat = concatenate = concat


def _list(xs: Any) -> list[Any]:
    if not isinstance(xs, (list, tuple)) or not xs:
        raise InvalidProblemError("xs must be a list of arrays with one at least")
    return list(xs)


@entry(ConcatPlan)
def stack(xs: Sequence[Array], axis: int = 0, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Arrays of one shape along a new axis (torch.stack, numpy.stack), in one launch."""
    given = _list(xs)
    at = place(axis, len(shape_of(given[0], "xs[0]")) + 1)
    for i, x in enumerate(given):
        if shape_of(x, f"xs[{i}]") != shape_of(given[0], "xs[0]"):
            raise InvalidProblemError(
                f"xs[{i}] must have the shape of xs[0] {shape_of(given[0], 'xs[0]')}, got {shape_of(x, f'xs[{i}]')}"
            )
    many = [with_axis(x, at, f"xs[{i}]") for i, x in enumerate(given)]
    return concat(many, axis=at, out=out, stream=stream, preference=preference)


@entry(ConcatPlan)
def hstack(xs: Sequence[Array], *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Arrays along axis 1, vectors along axis 0 (torch.hstack)."""
    given = [atleast_1d(x) for x in _list(xs)]
    at = min(1, len(shape_of(given[0], "xs[0]")) - 1)
    return concat(given, axis=at, out=out, stream=stream, preference=preference)


@entry(ConcatPlan)
def vstack(xs: Sequence[Array], *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Arrays along axis 0, vectors as rows (torch.vstack, torch.row_stack)."""
    return concat([atleast_2d(x) for x in _list(xs)], axis=0, out=out, stream=stream, preference=preference)


row_stack = vstack


@entry(ConcatPlan)
def dstack(xs: Sequence[Array], *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Arrays along axis 2, which matrices and vectors get first (torch.dstack)."""
    return concat([atleast_3d(x) for x in _list(xs)], axis=2, out=out, stream=stream, preference=preference)


@entry(ConcatPlan)
def column_stack(xs: Sequence[Array], *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Arrays along axis 1, vectors as columns (torch.column_stack)."""
    given = []
    for x in _list(xs):
        few = len(shape_of(x, "xs")) < 2
        given.append(transpose(atleast_2d(x)) if few else x)
    return concat(given, axis=1, out=out, stream=stream, preference=preference)


@entry(ConcatPlan)
def append(
    x: Array, values: Array, axis: int | None = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """values behind x along an axis, or behind the elements of x, both in one axis (numpy.append)."""
    pair = [x, values] if axis is not None else [raveled(x, stream), raveled(values, stream)]
    return concat(pair, axis=0 if axis is None else axis, out=out, stream=stream, preference=preference)


@entry(ConcatPlan)
def block(xs: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Arrays in nested lists put together, the innermost along the last axis (numpy.block): a launch for each list."""
    depth, inner = 0, xs
    while isinstance(inner, (list, tuple)):
        depth, inner = depth + 1, _list(inner)[0]
    rank = max(depth, max(len(shape_of(x, "xs")) for x in _leaves(xs)))

    def made(level: int, one: Any) -> Any:
        if level == depth:
            if isinstance(one, (list, tuple)):
                raise InvalidProblemError(f"xs must have {depth} levels of lists everywhere")
            for _ in range(rank - len(shape_of(one, "xs"))):
                one = with_axis(one, 0, "xs")
            return one
        parts = [made(level + 1, each) for each in _list(one)]
        if len(parts) == 1 and (level or out is None):
            return parts[0]
        to = None if level else out
        return concat(parts, axis=rank - depth + level, out=to, stream=stream, preference=preference)

    return made(0, xs)


def _leaves(xs: Any) -> list[Any]:
    return [leaf for x in xs for leaf in _leaves(x)] if isinstance(xs, (list, tuple)) else [xs]
