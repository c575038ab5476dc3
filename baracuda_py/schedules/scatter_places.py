"""What is scattered, and the lines that it is scattered along: the parts of the geometry of scatter.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.element import ElementKind
from ..core.tensor import AXES, View, dense_strides, merge_axes, pad
from ..core.variant import Step
from .counting_sort import RANGE, SORT_THREADS
from .gather import word
from .map import THREADS, chunked, lay_out
from .scatter_find import Finding, looked_through

FEW = 64  # tokens of a line that every element looks through


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
