"""view_copy: y = x along an affine walk; permute, flip, slice, tile, unfold and their like copy along one of these."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.memo import cached_property
from ...core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative,
    Step, Variant, Vjp, element, extents, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ...core.checked import INT64, checked, sequence, wholes
from ...core.element import COMPLEX
from ...core.tensor import AXES, Shape, dense_strides, merge_axes, pad
from ...schedules.copy import KERNELS, copy_step, launched, layout_of, zeros_step
from ...schedules.geometry import grid
from ...schedules.map import THREADS
from ..indexing.indexed import MOVED
from .walk import Walk, apart, grouped, seen, unfolded, within


def _signed(name: str, value: Any) -> Shape:
    return wholes(name, value, -INT64 - 1, INT64, "integers")


def _each_signed(name: str, value: Any) -> tuple[Shape, ...]:
    return tuple([_signed(f"{name}[{i}]", one) for i, one in enumerate(sequence(name, value, "tuples"))])


@dataclass(frozen=True, kw_only=True)
class ViewCopyDescriptor(Descriptor):
    """x has shape `shape`, y `out_shape`, whose axes are made up of `loops`, one or several neighbours each.

    The element of y at (i_0, i_1, …) of the loops is x[start + Σ i_j steps[j]]: `start` and each of `steps` have an
    item for each axis of x, below 0 too. All that is met lies in x.
    """

    shape: tuple[int, ...] = extents()
    loops: tuple[int, ...] = extents()
    start: tuple[int, ...] = checked(_signed, accepts="Sequence[int]")
    steps: tuple[tuple[int, ...], ...] = checked(_each_signed, accepts="Sequence[Sequence[int]]")
    out_shape: tuple[int, ...] = extents()
    element: ElementKind = element(MOVED)

    def validate(self) -> None:
        """Loops make up the axes of y and stay inside x."""
        self.counts  # noqa: B018 (raises)
        within(self.shape, self.start, self.loops, self.steps)

    @cached_property
    def counts(self) -> list[int]:
        """How many loops each axis of y has."""
        return grouped(self.out_shape, self.loops)

    @property
    def walk(self) -> tuple[Shape, Shape, tuple[Shape, ...]]:
        """Start, loops and steps."""
        return self.start, self.loops, self.steps


@dataclass(slots=True, kw_only=True)
class ViewCopyArgs(Args):
    """Any strides."""

    x: Array = operand("*shape")
    y: Array = output("*out_shape")


def walked(desc: Any, x: Any) -> Any:
    """NumPy's view of x that the walk sees, an axis for each loop."""
    if 0 in desc.loops:
        return np.empty(desc.loops, x.dtype)
    begin = (*[slice(at, None) for at in desc.start], ...)  # with the dots NumPy gives a view even of no axes
    first = x[begin]
    strides = tuple(sum(k * s for k, s in zip(one, x.strides, strict=True)) for one in desc.steps)
    return np.lib.stride_tricks.as_strided(first, desc.loops, strides)


def reference(desc: ViewCopyDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    return {"y": np.array(walked(desc, x)).reshape(desc.out_shape)}


def _geometry(p: Problem) -> Geometry | str:
    source, begin = seen(p.x, *p.desc.walk)
    return launched([copy_step(unfolded(p.y, p.desc.counts, p.desc.loops), source, of=("x", begin))], (p.x, p.y))


def in_torch(torch: Any, desc: ViewCopyDescriptor, *, x: Any) -> Any:
    """as_strided, which has no negative strides."""
    x = x.contiguous()
    places = dense_strides(desc.shape)
    strides = [sum(k * s for k, s in zip(one, places, strict=True)) for one in desc.steps]
    if any(s < 0 for s in strides) or 0 in desc.loops:
        return NotImplemented
    begin = sum(at * s for at, s in zip(desc.start, places, strict=True))
    return x.as_strided(desc.loops, strides, begin).contiguous().reshape(desc.out_shape)


def _permuted(*order: int, shape: tuple[int, ...]) -> dict[str, Any]:
    return {"shape": shape, **Walk.of(shape).permuted(order).fields}


_BENCHMARKS = (
    Benchmark(
        "[16384, 8192] bf16 transposed", element="bfloat16", work=BYTES, **_permuted(1, 0, shape=(16384, 8192))
    ),
    Benchmark(
        "[64, 2048, 16, 64] bf16, axes 1 and 2 exchanged", element="bfloat16", work=BYTES,
        **_permuted(0, 2, 1, 3, shape=(64, 2048, 16, 64)),
    ),
    Benchmark(
        "[128, 256, 64, 64] f32 channels last", element="float32", work=BYTES,
        **_permuted(0, 2, 3, 1, shape=(128, 256, 64, 64)),
    ),
    Benchmark(
        "[16384, 8192] bf16 flipped", element="bfloat16", work=BYTES, shape=(16384, 8192), peers=(),
        **Walk.of((16384, 8192)).sliced(1, 8191, 8192, -1).fields,
    ),
)  # fmt: skip


class ViewCopyPlan(Plan):
    """y = x along an affine walk (torch.permute_copy, torch.flip, numpy.tile, torch.as_strided_copy and their like).

    Elements are moved as they are. `bc.permute_copy`, `flip`, `tile`, `pixel_shuffle` … say which walk it is.
    """

    op = "layout.view_copy"
    descriptor = ViewCopyDescriptor
    args = ViewCopyArgs
    raw = True
    reference = staticmethod(reference)
    vjp = Vjp("ViewCopyBackwardPlan", grads={"x": "dx"})
    variants = (
        Variant(
            "copy", _geometry, "layout/copy.cu", KERNELS, elements=MOVED,
            guarantee=Guarantee(Exact(), native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = _BENCHMARKS

    @staticmethod
    def case(draw: Any) -> ViewCopyDescriptor:
        walk = drawn(draw)
        return ViewCopyDescriptor(shape=walk.shape, element=draw.element, **walk.fields)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        moved = min(math.prod(desc.shape), math.prod(desc.loops)) + math.prod(desc.loops)
        return int(moved * desc.element.itemsize)


def drawn(draw: Any) -> Walk:
    """Axes in another order, of which one is reversed, repeated, cut or windowed; at times two that a tile takes."""
    if draw.integer(0, 2) == 0:
        shape = draw.choice(((2, 32, 48), (33, 70), (64, 16), (3, 40, 36), (130, 33)))
        order = (0, 2, 1) if len(shape) == 3 else (1, 0)
        return Walk.of(shape).permuted(order)
    last = draw.sizes(1, 3, 16, 32, 5)
    shape = (*draw.shape(0, 3, 0, 5), last)
    walk = Walk.of(shape)
    axis = draw.integer(0, len(shape) - 1)
    n = shape[axis]
    how = draw.integer(0, 6)
    if how == 0:
        walk = walk.sliced(axis, n - 1, n, -1)
    elif how == 1:
        walk = walk.repeated(draw.integer(0, len(shape)), draw.sizes(3, 16, 1))
    elif how == 2 and n > 1:
        walk = walk.sliced(axis, 1, (n - 1 + 1) // 2, 2)
    elif how == 3 and n > 1:
        walk = walk.windowed(axis, min(n, 2), draw.integer(1, 2))
    elif how == 4:
        walk = walk.repeated(axis, 2).merged(axis, 2)
    elif how == 5 and len(shape) > 1:
        walk = walk.diagonal(draw.integer(-1, 1), 0, len(shape) - 1)
    if draw.flag():
        mixed = list(range(len(walk.groups)))
        for i in range(len(mixed) - 1, 0, -1):
            j = draw.integer(0, i)
            mixed[i], mixed[j] = mixed[j], mixed[i]
        walk = walk.permuted(mixed)
    return walk


# ---- backward ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ViewCopyBackwardDescriptor(ViewCopyDescriptor):
    """The forward's fields."""

    element: ElementKind = element((*FLOATS, *COMPLEX))


@dataclass(slots=True, kw_only=True)
class ViewCopyBackwardArgs(Args):
    """Any strides; dx is written whole."""

    dy: Array = operand("*out_shape")
    dx: Array = output("*shape")


def backward_reference(desc: ViewCopyBackwardDescriptor, *, dy: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in: element by element."""
    dx = np.zeros(desc.shape, dy.dtype)
    places = walked(desc, np.arange(dx.size).reshape(desc.shape))
    if places.size:
        np.add.at(dx.reshape(-1), places.ravel(), dy.reshape(-1))
    return {"dx": dx}


FOLD = Params(
    "FoldParams", dx="ptr", dy="ptr", count="i64", loops="i64", shape=f"i64[{AXES}]", strides=f"i64[1][{AXES}]",
    extent=f"i64[{AXES}]", number=f"i64[{AXES}]", step=f"i64[{AXES}]", low=f"i64[{AXES}]", high=f"i64[{AXES}]",
    begin="i64", rank="i32",
)  # fmt: skip


def _fold(p: Problem) -> Geometry | str:
    """A thread for each element of dx: it finds the loops that meet it, by their numbers along a dense x."""
    desc, dx = p.desc, p.dx
    dy, places = unfolded(p.dy, desc.counts, desc.loops), dense_strides(desc.shape)
    numbers = [sum(k * s for k, s in zip(one, places, strict=True)) for one in desc.steps]
    order = sorted(range(len(numbers)), key=lambda j: -abs(numbers[j]))
    extent, (number, step) = merge_axes(
        tuple(desc.loops[j] for j in order), [tuple(values[j] for j in order) for values in (numbers, dy.strides)]
    )
    shape, (strides,) = merge_axes(dx.shape, [dx.strides])
    if max(len(extent), len(shape)) > AXES:
        return f"more than {AXES} loops remain after merging"
    reach = [(n - 1) * k for n, k in zip(extent, number, strict=True)]
    rest = [reach[j + 1 :] for j in range(len(reach))]
    params = {
        "count": dx.size, "loops": len(extent), "shape": pad(shape), "strides": [pad(strides)], "rank": len(shape),
        "extent": pad(extent), "number": pad(number), "step": pad(step),
        "begin": sum(at * s for at, s in zip(desc.start, places, strict=True)),
        "low": pad([sum(min(r, 0) for r in one) for one in rest]),
        "high": pad([sum(max(r, 0) for r in one) for one in rest]),
    }  # fmt: skip
    return Geometry((Step("fold", grid(-(-dx.size // THREADS)), params, {}, THREADS),), layout=layout_of((dx, p.dy)))


def _backward_geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    if not apart(desc.shape, desc.loops, desc.steps):
        return _fold(p)
    dx, begin = seen(p.dx, *desc.walk)
    steps = [] if math.prod(desc.loops) == p.dx.size else [zeros_step(p.dx, ("dx", 0))]
    steps.append(copy_step(dx, unfolded(p.dy, desc.counts, desc.loops), ("dx", begin), ("dy", 0)))
    return launched(steps, (p.dx, p.dy))


class ViewCopyBackwardPlan(Plan):
    """dx = the sum of dy over what was read at each element of x, 0 where nothing was; the order of loops fixes it."""

    op = "layout.view_copy_backward"
    direction = "backward"
    descriptor = ViewCopyBackwardDescriptor
    args = ViewCopyBackwardArgs
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "copy", _backward_geometry, "layout/copy.cu",
            (*KERNELS, Kernel("fold", "fold<{T}>", FOLD, threads=THREADS, source="layout/fold.cu")),
            elements=(*FLOATS, *COMPLEX), guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (_BENCHMARKS[0],)

    @staticmethod
    def case(draw: Any) -> ViewCopyBackwardDescriptor:
        walk = drawn(draw)
        return ViewCopyBackwardDescriptor(shape=walk.shape, element=draw.element, **walk.fields)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int((math.prod(desc.shape) + math.prod(desc.loops)) * desc.element.itemsize)


view_copy = functional(ViewCopyPlan)
view_copy_backward = functional(ViewCopyBackwardPlan)
