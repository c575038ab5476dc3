"""Scatter: the geometry of writing along one axis, or several, at positions that an index array tells.

Every element of y is made by one thread from the tokens (positions of the index) that name it, in their order; rows
that are asked for add by atomics instead. Of several scattered axes the index tells the row-major position.
A line has its own indices: lines are told apart by the axes along which the index differs. Lines of single elements are
made by blocks that hold them (scatter_lines.py); for other lines see scatter_find.py.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import AXES, View, dense_strides, merge_axes, pad
from ..core.variant import Geometry, Kernel, Problem, Step
from .gather import word
from .map import THREADS, chunked, lay_out, map_params
from .scatter_find import RANGE, SORT_THREADS, Finding, latest, latest_kernels, looked_through, sorted_tokens
from .scatter_find import sorting_kernels as sorting_kernels
from .scatter_lines import combining_line_kernel, line_step, moving_line_kernel

FEW = 64  # tokens of a line that every element looks through


def scatter_params(name: str) -> Params:
    """Params of an op that scatters."""
    return Params(
        name, y="ptr", x="ptr", src="ptr", index="ptr", status="status", counts="workspace", totals="workspace",
        starts="workspace", order="workspace", latest="workspace", keys="workspace", sorted_keys="workspace",
        tokens="i64", marks="i64", x_step="i64", extent="i64", starts_pitch="i64", line_shape="i64[8]",
        line_bound="i64[8]", line_strides="i64[8]", token_shape="i64[8]", token_strides="i64[2][8]", row_shape="i64[8]",
        row_strides="i64[8]", ranges="i32", parts="i32", range_pitch="i32", line_rank="i32",
        token_rank="i32", row_rank="i32", index_wide="i32", fresh="i32", sorted="i32", last="i32", **map_params(5),
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
class Source:
    """src or its gradient, for kernels over its elements: the index along its axes, and of each axis which one of y it
    is, or None for those of the tokens."""

    view: View
    index: View
    axes: tuple[int | None, ...]


@dataclass(frozen=True)
class Lines:
    """The lines of y: their numbers as strides along y's axes, the kernels' parameters, how elements find tokens."""

    axes: tuple[int, ...]
    strides: tuple[int, ...]
    params: Mapping[str, Any]
    finding: Finding

    @classmethod
    def of(
        cls, y: View, axes: tuple[int, ...], tokens: Tokens, names: Mapping[str, Any],
        find: Callable[[int, int, int], Finding | str] | None, start: int,
    ) -> Lines | str:  # fmt: skip
        """Those along which the index differs; a string says why not.

        y: what has the scattered axes. find: how elements find the tokens of long lines, from the number of lines, of
        tokens and of positions. start: the bytes of the workspace that are taken.
        """
        shape, extent, count = y.shape, math.prod(y.shape[a] for a in axes), math.prod(tokens.shape)
        if count >= 2**31 - SORT_THREADS or extent >= 2**31 - RANGE:
            return "2^31 tokens or positions and more are not supported"
        own = [
            a for a, n in enumerate(shape)
            if a not in axes and n > 1 and (tokens.index_strides[a] or tokens.bounds[a] != n)
        ]  # fmt: skip
        line_shape = [shape[a] for a in own]
        steps = dict(zip(own, dense_strides(line_shape), strict=True))
        token_shape, token_strides = merge_axes(tuple(tokens.shape), [tuple(s) for s in tokens.strides])
        row_shape, (row_strides,) = merge_axes(tuple(shape[a] for a in axes), [tuple(y.strides[a] for a in axes)])
        if max(len(own), len(token_shape), len(row_shape)) > AXES:
            return f"more than {AXES} axes remain after merging"
        finds = find is not None and count > FEW
        finding = find(math.prod(line_shape), count, extent) if find is not None and finds else looked_through(start)
        if isinstance(finding, str):
            return finding
        params = {
            **finding.params, **names, "tokens": count, "extent": extent, "line_shape": pad(line_shape),
            "line_bound": pad([tokens.bounds[a] for a in own]),
            "line_strides": pad([tokens.index_strides[a] for a in own]), "token_shape": pad(token_shape),
            "token_strides": [pad(s) for s in token_strides], "line_rank": len(own), "token_rank": len(token_shape),
            "row_shape": pad(row_shape), "row_strides": pad(row_strides), "x_step": 0,
            "row_rank": len(row_shape), "index_wide": tokens.index.element is ElementKind.I64, "fresh": False,
            "sorted": finds, "last": False,
        }  # fmt: skip
        numbers = tuple(steps.get(a, 0) for a in range(len(shape)))
        return cls(axes, numbers, params, finding)

    def numbers(self, y: View) -> tuple[View, View]:
        """Views whose offsets are the number of an element's line, and its position along the scattered axes."""
        steps = dict(zip(self.axes, dense_strides([y.shape[a] for a in self.axes]), strict=True))
        return virtual(y.shape, self.strides), virtual(y.shape, [steps.get(a, 0) for a in range(len(y.shape))])

    def launch(
        self, kernel: str, views: Sequence[View | None], moved: Sequence[int], params: Mapping[str, Any],
        steps: Sequence[str] = (),
    ) -> Step | str:  # fmt: skip
        """A kernel over the elements of the first of five views, of which those not `moved` are indices and numbers.

        Those `moved` are read or written, in 16 bytes or words where the others stay along the last axis; `steps` are
        parameters that hold more of their strides.
        """
        found = lay_out(views)
        if isinstance(found, str):
            return found
        first = views[0]
        assert first is not None
        size = first.element.itemsize
        fixed = [n for n in range(len(views)) if n not in moved and views[n] is not None]
        own: dict[str, Any] = {name: self.params[name] for name in steps}
        vec = word(found, math.gcd(*(s for name in steps for s in _last(own[name]))), moved, fixed, size)
        if kernel in ("words", "source"):
            own |= {name: _divided(value, vec) for name, value in own.items()}
            axes: dict[str, Any] = {"BYTES": vec * size}
            chunks = chunked(found, vec, words=moved)
        else:
            vec = vec if vec == 16 // size and (kernel == "elements" or size == 4) else 1
            axes = {"VEC": vec}
            chunks = chunked(found, vec)
        grid = max(1, -(-(found.groups[0].count // vec) // THREADS))
        return Step(kernel, (grid, 1, 1), {**self.params, **own, **chunks, **params}, axes, THREADS)

    def elements(self, kernel: str, y: View, x: View | None, tokens: Tokens, params: Mapping[str, Any]) -> Step | str:
        """The kernel over the elements of y, which are made of x and the tokens."""
        src = tokens.src
        source = None if src is None else View(src.ptr, y.shape, tuple(tokens.src_strides), src.element)
        views = (y, x, source)
        moved = [n for n, view in enumerate(views) if view is not None]
        steps = () if src is None else ("token_strides",)
        return self.launch(kernel, (*views, *self.numbers(y)), moved, params, steps)

    def sources(self, kernel: str, source: Source, y: View, params: Mapping[str, Any]) -> Step | str:
        """The kernel over the elements of src, or of its gradient, each with the element of y that its token names."""
        lead, axes = source.view, source.axes
        own = [n for n, a in enumerate(axes) if a is None]
        steps = dict(zip(own, dense_strides([lead.shape[n] for n in own]), strict=True))
        base = View(y.ptr, lead.shape, tuple(0 if a is None else y.strides[a] for a in axes), y.element)
        line = virtual(lead.shape, [0 if a is None else self.strides[a] for a in axes])
        token = virtual(lead.shape, [steps.get(n, 0) for n in range(len(axes))])
        return self.launch(kernel, (lead, base, source.index, line, token), (0, 1), params, ("row_strides",))

    def then(self, *steps: Step) -> tuple[Step, ...]:
        """Steps after those that find tokens, which take the parameters of the first of them."""
        return (*self.finding.launches(steps[0].params), *steps) if steps else ()


def virtual(shape: Sequence[int], strides: Sequence[int]) -> View:
    """A view of no memory, whose offsets are numbers."""
    return View(0, tuple(shape), tuple(strides), ElementKind.I64)


def _last(strides: Any) -> Sequence[int]:
    """Of a table of strides, the last row's: those of what is moved."""
    return strides[-1] if isinstance(strides[0], list) else strides  # type: ignore[no-any-return]


def _divided(strides: Any, by: int) -> Any:
    if isinstance(strides[0], list):
        return [*strides[:-1], _divided(strides[-1], by)]
    return [s // by for s in strides]


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
