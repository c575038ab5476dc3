"""gather_slices, scatter_slices: windows at indices, by dimension numbers (jax.lax.gather, lax.scatter); index_take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ...core import Array, registry
from ...core.checked import real, sequence, shown, wholes
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.tensor import Shape
from ...core.views import cut, permuted, shape_of
from ...expressions.elementwise import elementwise
from .index import IndexPlan
from .index_functions import picked_by, put_combined
from .index_put import IndexPutPlan
from .key import NOWHERE, nowhere, numbers_like, trailing

MODES = ("fill", "drop", "clip", "promise_in_bounds")


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


def _numbers(name: str, given: Any, rank: int, ascending: bool = True) -> Shape:
    """Different axes, counted from the front."""
    found = wholes(name, given, 0, max(rank - 1, 0), "axes")
    if len(set(found)) < len(found) or (ascending and list(found) != sorted(found)):
        raise InvalidProblemError(f"{name} must name different axes{', ascending' * ascending}, got {found}")
    return found


@dataclass(frozen=True)
class _Windows:
    """Which axes of x the indices say, and how long windows are along each.

    parts: what the last axis of the indices has, an axis of x each. pairs: axes of x and of the indices that go
    together. sizes: of a window along every axis of x. gone: axes that windows do not keep.
    """

    shape: Shape
    batch: Shape
    parts: Shape
    pairs: tuple[tuple[int, int], ...]
    sizes: Shape
    gone: Shape
    clip: bool

    @property
    def kept(self) -> list[int]:
        """The axes of x that windows keep."""
        return [a for a in range(len(self.shape)) if a not in self.gone and a not in dict(self.pairs)]

    @property
    def moved(self) -> list[int]:
        """Those of them that need an index for each element of a window."""
        return [a for a in self.kept if self.sizes[a] != self.shape[a] or a in self.parts]

    @property
    def rest(self) -> list[int]:
        """Those that are taken whole."""
        return [a for a in self.kept if a not in self.moved]

    def order(self, window_axes: Shape) -> list[int]:
        """For each axis of windows at indices, of which window_axes are those of windows, where the plans have it."""
        places = {a: n for n, a in enumerate([*self.moved, *self.rest])}
        own = dict(zip(window_axes, (places[a] + len(self.batch) for a in self.kept), strict=True))
        outer = iter(range(len(self.batch)))
        return [own[n] if n in own else next(outer) for n in range(len(self.batch) + len(window_axes))]

    def keys(self, x: Any, starts: Any, options: dict[str, Any]) -> tuple[tuple[int, ...], list[Any]]:
        """The axes with an index, and their indices, of the batch's axes and one for each axis that is moved."""
        found = {a: numbers_like(x, range(1), options["stream"]).reshape(()) for a in self.gone if a not in self.parts}
        for axis, own in self.pairs:
            numbers = numbers_like(x, range(self.shape[axis]), options["stream"])
            found[axis] = trailing(numbers, len(self.batch) - 1 - own + len(self.moved))
        for axis in self.moved:
            steps = numbers_like(x, range(self.sizes[axis]), options["stream"])
            found[axis] = trailing(steps, len(self.moved) - 1 - self.moved.index(axis))
        for number, axis in enumerate(self.parts):
            start = trailing(starts[..., number], len(self.moved))
            facts = {"v": start, "m": self.shape[axis] - self.sizes[axis], **options}
            step = {"i": found[axis]} if axis in found else {}
            placed = "clamp(v, 0, m)" if self.clip else "v"
            text = f"{placed} + i" if step else f"int64({placed})"
            if not self.clip:
                none = nowhere(start, *step.values()) if step else NOWHERE
                text, facts["none"] = f"{text} if v >= 0 and v <= m else none", none
            found[axis] = _formula(text)(**facts, **step)
        axes = tuple(sorted(found))
        return axes, [found[a] for a in axes]


def _windows(
    x: Any, starts: Any, sizes: Any, parts: Any, gone: Any, batching: Any, own_batching: Any, mode: Any,
    names: Sequence[str],
) -> _Windows:  # fmt: skip
    """The dimension numbers, checked; names: of parts, gone and both of the batch."""
    if mode not in MODES:
        raise InvalidProblemError(f"mode must be one of {', '.join(MODES)}, got {shown(mode)}")
    shape, given = shape_of(x, "x"), shape_of(starts, "indices")
    if not given:
        raise InvalidProblemError("indices must have a last axis, of a number for each axis that they say, got none")
    found = _numbers(names[0], parts, len(shape), ascending=False)
    left, axes = (_numbers(name, one, len(shape)) for name, one in ((names[1], gone), (names[2], batching)))
    own = _numbers(names[3], own_batching, len(given) - 1, ascending=False)
    if not found or len(found) != given[-1] or {*axes} & {*found, *left} or len(axes) != len(own):
        raise InvalidProblemError(
            f"{names[0]} must have an axis for each of the {given[-1]} numbers of an index, one at least, "
            f"{names[2]} others and as many as {names[3]}; got {found}, {axes} and {own}"
        )
    pairs = tuple(zip(axes, own, strict=True))
    if any(shape[a] != given[b] for a, b in pairs):
        raise InvalidProblemError(f"{names[2]} {axes} of x {shape} must be as long as axes {own} of indices {given}")
    lengths = wholes("slice_sizes", sizes)
    if len(lengths) != len(shape) or any(n > m for n, m in zip(lengths, shape, strict=True)):
        raise InvalidProblemError(f"slice_sizes must have a length for each axis of x {shape}, got {lengths}")
    if any(lengths[a] != 1 for a in (*left, *axes)):
        raise InvalidProblemError(f"slice_sizes must be 1 along {names[1]} and {names[2]}, got {lengths}")
    return _Windows(shape, given[:-1], found, pairs, lengths, left, mode == "clip")


@entry(IndexPlan)
def gather_slices(
    x: Array, indices: Array, *, offset_dims: Sequence[int], collapsed_slice_dims: Sequence[int] = (),
    start_index_map: Sequence[int], slice_sizes: Sequence[int], operand_batching_dims: Sequence[int] = (),
    start_indices_batching_dims: Sequence[int] = (), mode: str = "fill", fill_value: float = 0, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Windows of x of the lengths slice_sizes, each beginning where an index says (jax.lax.gather).

    The dimension numbers are those of jax.lax.GatherDimensionNumbers. indices [..., k]: int64 or int32, a number for
    each axis of start_index_map. offset_dims: the axes of y that are those of a window, without collapsed_slice_dims,
    along which it is 1 long. mode: a window that does not lie within x is fill_value (fill), or moved until it does
    (clip). No number counts from the end. y may be a view whose axes are in another order than its memory. A launch for
    each axis of start_index_map and one that gathers; two more for a fill_value other than 0.
    """
    options = {"stream": stream, "preference": preference}
    said = _windows(
        x, indices, slice_sizes, start_index_map, collapsed_slice_dims, operand_batching_dims,
        start_indices_batching_dims, mode,
        ("start_index_map", "collapsed_slice_dims", "operand_batching_dims", "start_indices_batching_dims"),
    )  # fmt: skip
    window_axes = _numbers("offset_dims", offset_dims, len(said.batch) + len(said.kept))
    if len(window_axes) != len(said.kept):
        raise InvalidProblemError(f"offset_dims must have an axis for each of x's {said.kept}, got {window_axes}")
    axes, keys = said.keys(x, indices, options)
    whole = [slice(None) if a in axes or n == m else slice(n) for a, (n, m) in enumerate(zip(said.sizes, said.shape))]  # noqa: B905
    order, fill = said.order(window_axes), real("fill_value", fill_value)
    back = [order.index(n) for n in range(len(order))]
    filled = fill != 0 and mode in ("fill", "drop")
    to = None if out is None or filled else permuted(out, back, "out")
    view = x if all(one == slice(None) for one in whole) else cut(x, whole, "x")
    y = permuted(picked_by(view, keys, axes=axes, place=0, out=to, **options), order, "y")
    if not filled:
        return y if out is None else out
    mask = permuted(trailing(_within(said, indices, options), len(said.kept)), order, "mask")
    return registry.public("where")(mask, y, fill, out=out, **options)


def _within(said: _Windows, starts: Any, options: dict[str, Any]) -> Any:
    """Where a window lies within x."""
    given: dict[str, Any] = {}
    for n, axis in enumerate(said.parts):
        given |= {f"v{n}": starts[..., n], f"m{n}": said.shape[axis] - said.sizes[axis]}
    text = " and ".join(f"v{n} >= 0 and v{n} <= m{n}" for n in range(len(said.parts)))
    return _formula(text)(**given, **options)


@entry(IndexPutPlan)
def scatter_slices(
    x: Array, indices: Array, updates: Array, reduction: str = "none", *, update_window_dims: Sequence[int],
    inserted_window_dims: Sequence[int] = (), scatter_dims_to_operand_dims: Sequence[int],
    operand_batching_dims: Sequence[int] = (), scatter_indices_batching_dims: Sequence[int] = (), mode: str = "fill",
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with windows written, or combined, where indices say that they begin (jax.lax.scatter, scatter_add, …).

    The dimension numbers are those of jax.lax.ScatterDimensionNumbers: update_window_dims are the axes of updates that
    are those of a window, without inserted_window_dims, along which it is 1 long; indices and mode as of
    `gather_slices`, but that a window which does not lie within x is left out (fill or drop). reduction: none (the last
    in the order of the indices wins), add, mul, max or min. Gradients of none and add.
    """
    options = {"stream": stream, "preference": preference}
    shape, values, given = shape_of(x, "x"), shape_of(updates, "updates"), shape_of(indices, "indices")
    window_axes = _numbers("update_window_dims", update_window_dims, len(values))
    gone = {*wholes("inserted_window_dims", inserted_window_dims), *wholes("batch", operand_batching_dims)}
    lengths = iter([values[n] for n in window_axes])
    sizes = [1 if a in gone else next(lengths, -1) for a in range(len(shape))]
    if -1 in sizes or next(lengths, None) is not None or len(values) != len(given) - 1 + len(window_axes):
        raise InvalidProblemError(
            f"updates must have the axes of indices {given} but the last, and those of a window of x {shape} at "
            f"{window_axes}; got {values}"
        )
    said = _windows(
        x, indices, sizes, scatter_dims_to_operand_dims, inserted_window_dims, operand_batching_dims,
        scatter_indices_batching_dims, mode,
        ("scatter_dims_to_operand_dims", "inserted_window_dims", "operand_batching_dims",
         "scatter_indices_batching_dims"),
    )  # fmt: skip
    axes, keys = said.keys(x, indices, options)
    order = said.order(window_axes)
    src = permuted(updates, [order.index(n) for n in range(len(order))], "updates")
    return put_combined(reduction, x, keys, src, axes=axes, place=0, out=out, **options)


@entry(IndexPlan)
def index_take(
    x: Array, indices: Sequence[Array], axes: Sequence[int], *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """y[i…, …] = the slice of x at indices[k][i…] along axis axes[k] for every k (jax.lax.index_take).

    The indices broadcast together; negative ones count from the end. See `IndexPlan`.
    """
    options = {"out": out, "stream": stream, "preference": preference}
    return picked_by(x, list(sequence("indices", indices, "arrays")), axes=axes, place=0, **options)
