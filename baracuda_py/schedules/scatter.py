"""Scatter: the geometry of writing along one axis at positions that an index array tells, without atomics.

Every element of y is made by one thread from the tokens (positions of the index along the scattered axis) that name it.
A line has its own indices: lines are told apart by the axes along which the index differs. Long lines are sorted by a
stable counting sort in the workspace (kernels/include/baracuda/segments.cuh); short ones are looked through.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import AXES, View, dense_strides, merge_axes, pad
from ..core.variant import Geometry, Kernel, Step, aligned
from .gather import word
from .map import THREADS, chunked, lay_out, map_params

SORT_THREADS = 1024  # as in kernels/include/baracuda/segments.cuh
RANGE = 4096  # positions that a sorting block counts in shared memory
FEW = 64  # tokens of a line that every element looks through


def scatter_params(name: str) -> Params:
    """Params of an op that scatters."""
    return Params(
        name, y="ptr", x="ptr", src="ptr", index="ptr", status="status", counts="workspace", totals="workspace",
        starts="workspace", order="workspace", tokens="i64", extent="i64", step="i64", starts_pitch="i64",
        line_shape="i64[8]", line_bound="i64[8]", line_strides="i64[8]", token_shape="i64[8]",
        token_strides="i64[2][8]", ranges="i32", parts="i32", range_pitch="i32", line_rank="i32", token_rank="i32",
        index_wide="i32", fresh="i32", **map_params(5),
    )  # fmt: skip


def scatter_kernels(params: Params, functor: str, source: str = "") -> tuple[Kernel, ...]:
    """The kernels, for the C++ functor of what a token does; `source`: the forward's, for the gradient of src."""

    def axes(kind: ElementKind) -> Mapping[str, Any]:
        return {"VEC": (16 // kind.itemsize, 1), "SORTED": (True, False)}

    def each(name: str, functor: str) -> Kernel:
        call = f"scatter_{name}<{functor}, {{T}}, {{VEC}}, {{SORTED}}>"
        return Kernel(name, call, params, axes, threads=THREADS, min_blocks=2)

    return (
        Kernel("count", "scatter_count", params, threads=SORT_THREADS),
        Kernel("place", "scatter_place", params, threads=SORT_THREADS),
        each("elements", functor),
        *([each("source", source)] if source else []),
    )


@dataclass(frozen=True)
class Tokens:
    """What is scattered: along the axes of y, the strides of src and of the index (0 where it is shared), and how far
    the index reaches; then the tokens' shape and their strides in the index and in src. No src: none is read."""

    src: View | None
    index: View
    src_strides: Sequence[int]
    index_strides: Sequence[int]
    bounds: Sequence[int]
    shape: Sequence[int]
    strides: tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class Lines:
    """The lines of y: their numbers as strides along y's axes, the kernels' parameters, blocks that sort."""

    strides: tuple[int, ...]
    params: Mapping[str, Any]
    blocks: int
    workspace: int

    @classmethod
    def of(
        cls, shape: Sequence[int], axis: int, tokens: Tokens, names: Mapping[str, str], find: bool = True
    ) -> Lines | str:
        """Those along which the index differs; a string says why not. find: whether an element looks for its tokens."""
        extent, count = shape[axis], math.prod(tokens.shape)
        if count >= 2**31 - SORT_THREADS or extent >= 2**31 - RANGE:
            return "2^31 tokens or positions and more are not supported"
        own = [
            a for a, n in enumerate(shape) if a != axis and n > 1 and (tokens.index_strides[a] or tokens.bounds[a] != n)
        ]
        line_shape = [shape[a] for a in own]
        steps = dict(zip(own, dense_strides(line_shape), strict=True))
        token_shape, token_strides = merge_axes(tuple(tokens.shape), [tuple(s) for s in tokens.strides])
        if len(own) > AXES or len(token_shape) > AXES:
            return f"more than {AXES} axes remain after merging"
        sorts = find and count > FEW
        sort, workspace, blocks = _sort(math.prod(line_shape), count, extent) if sorts else _sort(0, 0, 0)
        if blocks >= 2**31:
            return "more than 2^31 blocks"
        params = {
            **sort, **names, "tokens": count, "extent": extent, "step": 0, "line_shape": pad(line_shape),
            "line_bound": pad([tokens.bounds[a] for a in own]),
            "line_strides": pad([tokens.index_strides[a] for a in own]), "token_shape": pad(token_shape),
            "token_strides": [pad(s) for s in token_strides], "line_rank": len(own), "token_rank": len(token_shape),
            "index_wide": tokens.index.element is ElementKind.I64, "fresh": False,
        }  # fmt: skip
        numbers = tuple(steps.get(a, 0) for a in range(len(shape)))
        return cls(numbers, params, blocks if sorts else 0, workspace)

    def virtual(self, shape: Sequence[int], axis: int) -> tuple[View, View]:
        """Views whose offsets are the number of an element's line, and its position along the axis."""
        positions = tuple(int(a == axis) for a in range(len(shape)))
        both = (self.strides, positions)
        return tuple(View(0, tuple(shape), s, ElementKind.I64) for s in both)  # type: ignore[return-value]

    def launch(
        self, kernel: str, views: Sequence[View | None], moved: Sequence[int], fixed: Sequence[int], step: int,
        params: Mapping[str, Any],
    ) -> Step | str:  # fmt: skip
        """A kernel over the elements of the first of five views, the last two being `virtual`.

        Those `moved` are read or written, in words where the others stay along the last axis; step: what else a word's
        place is a multiple of.
        """
        found = lay_out(views)
        if isinstance(found, str):
            return found
        first = views[0]
        assert first is not None
        size = first.element.itemsize
        vec = 16 // size
        if word(found, math.gcd(step, vec), moved, fixed, size) != vec:
            vec = 1
        grid = max(1, -(-(found.groups[0].count // vec) // THREADS))
        axes = {"VEC": vec, "SORTED": self.blocks > 0}
        return Step(kernel, (grid, 1, 1), {**self.params, **chunked(found, vec), **params}, axes, THREADS)

    def then(self, *steps: Step) -> tuple[Step, ...]:
        """Steps after the sort, which takes the parameters of the first of them."""
        if not (self.blocks and steps):
            return steps
        names = ("count", "place")
        return *(Step(name, (self.blocks, 1, 1), steps[0].params, {}, SORT_THREADS) for name in names), *steps


def scatter_geometry(
    y: View, x: View | None, axis: int, tokens: Tokens, names: Mapping[str, str], fresh: bool = False
) -> Geometry | str:
    """The launches; `names` are the operands behind the parameters, where they are called otherwise.

    fresh: what an element was has no part in what its tokens make it.
    """
    lines = Lines.of(y.shape, axis, tokens, names)
    if isinstance(lines, str):
        return lines
    elements = _elements(y, x, axis, tokens, lines, {"fresh": fresh})
    if isinstance(elements, str):
        return elements
    return _together(lines.then(elements), lines.workspace, (y, x, tokens.src, tokens.index))


def _elements(
    y: View, x: View | None, axis: int, tokens: Tokens, lines: Lines, params: Mapping[str, Any]
) -> Step | str:
    src = tokens.src
    source = None if src is None else View(src.ptr, y.shape, tuple(tokens.src_strides), src.element)
    views = (y, x, source)
    moved = [n for n, view in enumerate(views) if view is not None]
    step = 0 if src is None else math.gcd(*lines.params["token_strides"][1])
    return lines.launch("elements", (*views, *lines.virtual(y.shape, axis)), moved, (3, 4), step, params)


def scatter_backward_geometry(
    dx: View | None, dsrc: View | None, dy: View, axis: int, tokens: Tokens, last: bool
) -> Geometry | str:
    """The launches that make the gradients of x and src of dy; last: only the last token of an element has a part.

    Where dx is dy, what dsrc takes of it is read before.
    """
    index = tokens.index
    lines = Lines.of(dy.shape, axis, tokens, {"x": "dy", "src": "@null"}, find=last)
    if isinstance(lines, str):
        return lines
    steps: list[Step | str] = []
    if dsrc is not None and dsrc.size:
        base = (*dy.strides[:axis], 0, *dy.strides[axis + 1 :])
        step = dy.strides[axis] if dy.shape[axis] > 1 else 0
        picked = View(dy.ptr, dsrc.shape, base, dy.element), View(index.ptr, dsrc.shape, index.strides, index.element)
        views = (dsrc, *picked, *lines.virtual(dsrc.shape, axis))
        steps.append(lines.launch("source", views, (0, 1), (2, 3, 4), step, {"y": "dsrc", "step": step}))
    if dx is not None and dx.size:
        params: dict[str, Any] = {"y": "dx"} if last else {"y": "dx", "tokens": 0}
        steps.append(_elements(dx, dy, axis, tokens, lines, params))
    made = [step for step in steps if isinstance(step, Step)]
    if len(made) < len(steps):
        return next(step for step in steps if isinstance(step, str))
    return _together(lines.then(*made), lines.workspace, (dx, dsrc, dy, index))


def _together(steps: Sequence[Step], workspace: int, views: Sequence[View | None]) -> Geometry:
    dense = all(v.dense for v in views if v is not None)
    wide = any(step.axes.get("VEC", 1) > 1 for step in steps)
    return Geometry(tuple(steps), workspace, "contiguous" if dense else "inner_contiguous" if wide else "strided")


def _sort(lines: int, tokens: int, extent: int) -> tuple[dict[str, int], int, int]:
    """Parameters of the sort with their places in the workspace, its bytes, and blocks."""
    ranges = max(1, -(-extent // RANGE))
    pitch = RANGE if ranges > 1 else max(4, -(-extent // 4) * 4)
    # Each part has counts of its own, and its blocks read those of all parts before: few where there are many blocks.
    parts = max(1, min(-(-tokens // SORT_THREADS), 128 // (ranges * lines or 1), 64, 8 * RANGE // pitch))
    starts_pitch = -(-extent // 4) * 4 + 1
    sizes = {
        "counts": lines * parts * ranges * pitch * 4, "totals": lines * parts * ranges * 4,
        "starts": lines * starts_pitch * 4, "order": lines * tokens * 4,
    }  # fmt: skip
    fields, workspace = {}, 0
    for name, nbytes in sizes.items():
        fields[name] = workspace
        workspace += aligned(nbytes)
    fields |= {"starts_pitch": starts_pitch, "ranges": ranges, "parts": parts, "range_pitch": pitch}
    return fields, workspace, max(1, lines * ranges * parts)
