"""view_scatter: y = x, or 0, with src written along a walk (torch.slice_scatter, diag_embed), and its gradient."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Args, Array, ElementKind, Exact, Geometry, Guarantee, Plan, Problem, Step, Variant, Vjp, element,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ...core.element import COMPLEX
from ...core.errors import InvalidProblemError
from ...core.tensor import Shape, View
from ...schedules.copy import PLAIN, launched, plain_step, shifted, zeros_step
from ..indexing.indexed import MOVED
from .view_copy import ViewCopyDescriptor, drawn, walked
from .walk import Walk, apart, around, box, seen, unfolded


@dataclass(frozen=True, kw_only=True)
class ViewScatterDescriptor(ViewCopyDescriptor):
    """x and y have shape `shape`, src has `out_shape`, and its elements go where the walk of `view_copy` would read.

    The walk meets no element twice.
    """

    element: ElementKind = element(MOVED)

    def validate(self) -> None:
        """A walk that stays inside and meets every element once at most."""
        ViewCopyDescriptor.validate(self)
        if not apart(self.shape, self.loops, self.steps):
            raise InvalidProblemError(
                f"the walk of loops {self.loops}, steps {self.steps} meets elements of shape {self.shape} twice"
            )


@dataclass(slots=True, kw_only=True)
class ViewScatterArgs(Args):
    """Any strides; y may be x itself. Without x, y is 0 where src is not."""

    src: Array = operand("*out_shape")
    x: Array | None = operand("*shape", optional=True)
    y: Array = output("*shape", inplace=("x",))


def reference(desc: ViewScatterDescriptor, *, src: Any, x: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    y = np.zeros(desc.shape, src.dtype) if x is None else np.array(x)
    if 0 not in desc.loops:
        walked(desc, y)[...] = src.reshape(desc.loops)
    return {"y": y}


_LAUNCH = 4 << 20  # bytes that are moved in the time that a launch more takes


def _rest(desc: Any, y: View, x: View | None, names: tuple[str, str]) -> list[Step | str | None]:
    """The launches that make y equal to x, or 0 without x, at least where the walk does not go.

    Where the walk fills a box, the boxes around it are moved, if they have words as wide as the whole; else all is.
    """
    if math.prod(desc.loops) == math.prod(desc.shape):
        return []
    whole = _moved(desc.shape, (0,) * len(desc.shape), y, x, names)
    found = box(*desc.walk)
    if found is None or not isinstance(whole, Step):
        return [whole]
    parts = around(desc.shape, *found)
    saved = 2 * math.prod(desc.loops) * y.element.itemsize
    steps = [_moved(extents, begin, y, x, names) for begin, extents in parts]
    if saved < 2 * _LAUNCH * (len(parts) - 1) or _wide(whole) > min(map(_wide, steps)):
        return [whole]
    return steps


def _moved(extents: Shape, begin: Shape, y: View, x: View | None, names: tuple[str, str]) -> Step | str | None:
    """The launch that makes a box of y equal to that of x, or 0 without x."""

    def part(view: View) -> tuple[View, int]:
        at = sum(k * s for k, s in zip(begin, view.strides, strict=True))
        return shifted(replace(view, shape=extents), at), at

    own, at = part(y)
    if x is None:
        return zeros_step(own, (names[0], at))
    other, there = part(x)
    return plain_step(own, other, (names[0], at), (names[1], there))


def _wide(step: Step | str | None) -> bool:
    """Whether a launch moves 16 bytes at a time."""
    return isinstance(step, Step) and (step.kernel == "flat" or step.axes["BYTES"] == 16)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    steps = _rest(desc, p.y, p.x, ("y", "x"))
    place, begin = seen(p.y, *desc.walk)
    steps.append(plain_step(place, unfolded(p.src, desc.counts, desc.loops), ("y", begin), ("src", 0)))
    return launched(steps, [v for v in (p.y, p.src, p.x) if v is not None])


def in_torch(torch: Any, desc: ViewScatterDescriptor, *, src: Any, x: Any) -> Any:
    """The elements of a dense x numbered by the walk, and put."""
    places = torch.from_numpy(np.array(walked(desc, np.arange(math.prod(desc.shape)).reshape(desc.shape)))).flatten()
    base = src.new_zeros(desc.shape) if x is None else x
    flat = base.reshape(-1).index_copy(0, places.to(src.device), src.reshape(-1))
    return flat.reshape(desc.shape)


_HALF = Walk.of((8192, 8192)).sliced(1, 4096, 4096)


class ViewScatterPlan(Plan):
    """y = x with src written along a walk; 0 in place of x where there is none (torch.slice_scatter, diag_embed …).

    Elements are moved as they are. `bc.diag_embed`, `diagonal_scatter`, `select_scatter`, `slice_scatter` say which
    walk it is.
    """

    op = "layout.view_scatter"
    descriptor = ViewScatterDescriptor
    args = ViewScatterArgs
    raw = True
    reference = staticmethod(reference)
    vjp = Vjp("ViewScatterBackwardPlan", grads={"x": "dx", "src": "dsrc"})
    variants = (
        Variant(
            "copy", _geometry, "layout/copy.cu", PLAIN, elements=MOVED,
            guarantee=Guarantee(Exact(), native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "half the columns of [8192, 8192] bf16", shape=(8192, 8192), element="bfloat16", also=("x",), work=BYTES,
            peers=(), **_HALF.fields,
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> ViewScatterDescriptor:
        walk = once(draw)
        return ViewScatterDescriptor(shape=walk.shape, element=draw.element, **walk.fields)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int(2 * math.prod(desc.shape) * desc.element.itemsize)


def once(draw: Any) -> Walk:
    """A walk of `view_copy` if it meets nothing twice, else all of its operand."""
    walk = drawn(draw)
    fields = walk.fields
    return walk if apart(walk.shape, fields["loops"], fields["steps"]) else Walk.of(walk.shape)


@dataclass(frozen=True, kw_only=True)
class ViewScatterBackwardDescriptor(ViewScatterDescriptor):
    """The forward's fields."""

    element: ElementKind = element((*FLOATS, *COMPLEX))


@dataclass(slots=True, kw_only=True)
class ViewScatterBackwardArgs(Args):
    """Any strides; each gradient is written whole, or not wanted."""

    dy: Array = operand("*shape")
    dx: Array | None = output("*shape", optional=True, inplace=("dy",))
    dsrc: Array | None = output("*out_shape", optional=True)


def backward_reference(desc: ViewScatterBackwardDescriptor, *, dy: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    dx, dsrc = np.array(dy), np.array(walked(desc, dy)).reshape(desc.out_shape)
    if 0 not in desc.loops:
        walked(desc, dx)[...] = 0
    return {name: one for name, one in {"dx": dx, "dsrc": dsrc}.items() if name in wanted}


def _backward_geometry(p: Problem) -> Geometry | str:
    desc, steps = p.desc, list[Step | str | None]()
    if p.dsrc is not None:
        place, begin = seen(p.dy, *desc.walk)
        steps.append(plain_step(unfolded(p.dsrc, desc.counts, desc.loops), place, ("dsrc", 0), ("dy", begin)))
    if p.dx is not None:
        steps += _rest(desc, p.dx, p.dy, ("dx", "dy"))
        place, begin = seen(p.dx, *desc.walk)
        steps.append(zeros_step(place, ("dx", begin)))
    return launched(steps, [v for v in (p.dy, p.dx, p.dsrc) if v is not None])


class ViewScatterBackwardPlan(Plan):
    """dx = dy, but 0 where src was written; dsrc = dy there."""

    op = "layout.view_scatter_backward"
    direction = "backward"
    descriptor = ViewScatterBackwardDescriptor
    args = ViewScatterBackwardArgs
    raw = True
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "copy", _backward_geometry, "layout/copy.cu", PLAIN, elements=(*FLOATS, *COMPLEX),
            guarantee=Guarantee(Exact(), native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark(
            "half the columns of [8192, 8192] bf16", shape=(8192, 8192), element="bfloat16", work=BYTES, peers=(),
            also=("dx", "dsrc"), **_HALF.fields,
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> ViewScatterBackwardDescriptor:
        walk = once(draw)
        return ViewScatterBackwardDescriptor(shape=walk.shape, element=draw.element, **walk.fields)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int(2 * (math.prod(desc.shape) + math.prod(desc.loops)) * desc.element.itemsize)


view_scatter = functional(ViewScatterPlan)
view_scatter_backward = functional(ViewScatterBackwardPlan)
