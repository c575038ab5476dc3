"""Scatter: the geometry of writing along one axis, or several, at positions that an index array tells.

Every element of y is made by one thread from the tokens (positions of the index) that name it, in their order; rows
that are asked for add by atomics instead. Of several scattered axes the index tells the row-major position.
A line has its own indices: lines are told apart by the axes along which the index differs. Lines of single elements are
made by blocks that hold them (scatter_lines.py); for other lines see scatter_find.py.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View
from ..core.variant import Geometry, Kernel, Problem, Step
from .counting_sort import COUNTING
from .map import THREADS, map_params
from .scatter_find import Finding, latest, latest_kernels, sorted_tokens
from .scatter_find import sorting_kernels as sorting_kernels
from .scatter_lines import LIST, combining_line_kernel, line_step, moving_line_kernel
from .scatter_places import FEW, Lines, Source, Tokens


def scatter_params(name: str) -> Params:
    """Params of an op that scatters."""
    return Params(
        name, y="ptr", x="ptr", src="ptr", index="ptr", status="status", counts="workspace", totals="workspace",
        starts="workspace", order="workspace", latest="workspace", keys="workspace", sorted_keys="workspace",
        tokens="i64", marks="i64", x_step="i64", extent="i64", starts_pitch="i64", line_shape="i64[8]",
        line_bound="i64[8]", line_strides="i64[8]", token_shape="i64[8]", token_strides="i64[2][8]", row_shape="i64[8]",
        row_strides="i64[8]", ranges="i32", parts="i32", range_pitch="i32", line_rank="i32",
        token_rank="i32", row_rank="i32", index_wide="i32", fresh="i32", sorted="i32", last="i32", line_list=LIST,
        **COUNTING, **map_params(5),
    )  # fmt: skip


def _words(kind: ElementKind) -> Mapping[str, Any]:
    return {"BYTES": tuple(b for b in (1, 2, 4, 8, 16) if b >= kind.itemsize)}


def moving_kernels(params: Params) -> tuple[Kernel, ...]:
    """Those of words of which the last token wins."""
    return (*latest_kernels(params), *word_kernels(params, "words"), moving_line_kernel(params))


def gradient_kernels(params: Params) -> tuple[Kernel, ...]:
    """Those of the gradients of x and src."""
    return (*latest_kernels(params), *word_kernels(params, "words", "source"))


def word_kernels(params: Params, *names: str) -> tuple[Kernel, ...]:
    """Those that move words: "words", where the last token wins, and "source", the gradient of src."""
    return tuple(Kernel(name, f"scatter_{name}<{{BYTES}}>", params, _words, threads=THREADS) for name in names)


def combining_kernels(params: Params, functor: str) -> tuple[Kernel, ...]:
    """Those that combine every token, by the C++ functor of how."""

    def axes(kind: ElementKind) -> Mapping[str, Any]:
        return {"VEC": tuple(dict.fromkeys((16 // kind.itemsize, 1)))}

    call = f"scatter_elements<{functor}, {{T}}, {{VEC}}>"
    elements = Kernel("elements", call, params, axes, threads=THREADS, min_blocks=2)
    return (*sorting_kernels(params), elements, combining_line_kernel(params, functor))


def atomic_kernels(params: Params) -> tuple[Kernel, ...]:
    """Those that copy what is there and add every token to it by atomics."""

    def axes(kind: ElementKind) -> Mapping[str, Any]:
        return {"VEC": (4, 1) if kind is ElementKind.F32 else (1,)}

    adding = Kernel("atomic", "scatter_atomic<{T}, {VEC}>", params, axes, threads=THREADS)
    return (*word_kernels(params, "words"), adding)


def scatter_geometry(
    p: Problem, y: View, x: View | None, axes: tuple[int, ...], tokens: Tokens, names: Mapping[str, Any],
    fresh: bool = False, moves: bool = False, before: Sequence[Step] = (), start: int = 0,
) -> Geometry | str:  # fmt: skip
    """The launches; `names` are the operands behind the parameters, where they are called otherwise.

    fresh: what an element was has no part in what its tokens make it. moves: the last token is what it becomes.
    before: the steps that make the index, in the first `start` bytes of the workspace.
    """
    views = (y, x, tokens.src, tokens.index)

    def find(lines: int, count: int, extent: int) -> Finding | str:
        return latest(lines, count, extent, start) if moves else sorted_tokens(p, lines, count, extent, start)

    held = Lines.of(y, axes, tokens, names, None, start)
    if isinstance(held, str):
        return held
    if math.prod(tokens.shape) > FEW:
        whole = line_step(p, held, y, x, tokens, moves, {"fresh": fresh})
        if whole is not None:
            return _together((*before, whole), start, views)
    lines = Lines.of(y, axes, tokens, names, find, start)
    if isinstance(lines, str):
        return lines
    step = lines.elements("words" if moves else "elements", y, x, tokens, {"fresh": fresh})
    if isinstance(step, str):
        return step
    return _together((*before, *lines.then(step)), lines.finding.workspace, views)


def scatter_backward_geometry(
    dx: View | None, source: Source | None, dy: View, axes: tuple[int, ...], tokens: Tokens, last: bool,
    names: Mapping[str, Any], dsrc: str, before: Sequence[Step] = (), start: int = 0,
) -> Geometry | str:  # fmt: skip
    """The launches that make of dy the gradients of x, and of src, which is called `dsrc`.

    last: only the last token of an element has a part. Where dx is dy, what dsrc takes of it is read before.
    """

    def find(lines: int, count: int, extent: int) -> Finding | str:
        return latest(lines, count, extent, start)

    given = {**names, "x": "dy", "src": "@null"}
    lines = Lines.of(dy, axes, tokens, given, find if last else None, start)
    if isinstance(lines, str):
        return lines
    steps: list[Step | str] = []
    if source is not None and source.view.size:
        steps.append(lines.sources("source", source, dy, {"y": dsrc, "last": last}))
    if dx is not None and dx.size:
        params: dict[str, Any] = {"y": "dx"} if last else {"y": "dx", "tokens": 0}
        steps.append(lines.elements("words", dx, dy, tokens, params))
    made = [step for step in steps if isinstance(step, Step)]
    if len(made) < len(steps):
        return next(step for step in steps if isinstance(step, str))
    views = (dx, source.view if source else None, dy, tokens.index)
    return _together((*before, *lines.then(*made)), lines.finding.workspace, views)


def scatter_atomic_geometry(
    y: View, x: View | None, axes: tuple[int, ...], tokens: Tokens, source: Source, names: Mapping[str, Any],
    before: Sequence[Step] = (), start: int = 0,
) -> Geometry | str:  # fmt: skip
    """The launches that copy x, or write 0, and add the tokens by atomics; see `scatter_geometry`."""
    lines = Lines.of(y, axes, tokens, names, None, start)
    if isinstance(lines, str):
        return lines
    steps: list[Step | str] = []
    if x is None or (x.ptr, x.strides) != (y.ptr, y.strides):
        none = {"src": "@null", "tokens": 0}
        steps.append(lines.elements("words", y, x, dataclasses.replace(tokens, src=None), none))
    if source.view.size:
        steps.append(lines.sources("atomic", source, y, {"x": "@null"}))
    made = [step for step in steps if isinstance(step, Step)]
    if len(made) < len(steps):
        return next(step for step in steps if isinstance(step, str))
    return _together((*before, *made), lines.finding.workspace, (y, x, source.view, tokens.index))


def _together(steps: Sequence[Step], workspace: int, views: Sequence[View | None]) -> Geometry:
    dense = all(v.dense for v in views if v is not None)
    wide = any(step.axes.get("VEC", 1) > 1 for step in steps)
    return Geometry(tuple(steps), workspace, "contiguous" if dense else "inner_contiguous" if wide else "strided")
