"""Reduce: y[kept] = the merged elements of x along any axes. `baracuda/reduce_axes.cuh` is the device side.

What is merged is x, or a map of several operands that is made while they are read (`baracuda/reduce_source.cuh`): then
operands broadcast by strides of 0, and there are one or two results.

The tree of a row follows from the number of reduced elements and their size alone; what is chosen here is who computes
which part of it:

* *rows* (reduced axes innermost, or nothing contiguous): a group of lanes a row, a team of warps a longer one; where
  long rows are few, every warp of the grid a segment of one, whose state goes through the workspace;
* *columns* (a kept axis innermost): threads along that axis, lanes and segments down the reduced ones.

States in the workspace are merged by further launches, 256 to one, until a row has one state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.device import Device
from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import Shape, View, pad
from ..core.variant import Geometry, Kernel, Problem, Step, aligned
from .geometry import Axes, Merged, grid
from .map import divider
from .rows import Rows, row_params

THREADS = 256
WARPS = THREADS // 32
SEGMENT = 256  # chunks of 16 bytes in a segment, and states that make one
STATE = 32  # bytes a state may have
NARROW = 2**31 - THREADS  # below it 32 bits hold the numbers of rows and segments, also past the last block's end
REDUCE = {"reduce_threads": THREADS, "segment_chunks": SEGMENT, "max_state": STATE}
"""Params fields of kernels that include `kernels/include/baracuda/reduce_axes.cuh`, which reduce_params has."""
_COLUMN_BYTES = 32  # a run of kept elements worth reading across: a sector
_COLUMNS = 4  # neighbouring columns a thread has at most: each has a state in registers


def reduce_params(
    name: str, operands: Sequence[str] | None = None, results: Sequence[str] = ("y",), **more: str | int
) -> Params:
    """The parameter struct of the reduce kernels.

    operands: those of a map (None: x, as it is), by the names that the page has for them. results: y, or y and z.
    more: the op's own fields.
    """
    names = ("x",) if operands is None else operands
    splat = {} if operands is None else {"splat": "u32"}
    return Params(
        name, **dict.fromkeys((*names, *results), "ptr"), partials="workspace", sources="workspace", count="i64",
        segments="i64", correction="i64", tiles="i64", lanes="i32", team="i32", merging="i32",
        outer_dividers="u32[8][3]", inner_dividers="u32[8][3]", **splat, **more,
        **REDUCE,
        **row_params(len(names) + len(results)),
    )  # fmt: skip


def reduce_kernels(
    kind: str, params: Params, *, source: str = "Elements<{T}>",
    width: Callable[[ElementKind], int] = lambda element: 16 // element.itemsize, prefix: str = "", across: str = "",
) -> tuple[Kernel, ...]:  # fmt: skip
    """The kernels of a reduction.

    kind: the C++ type of the functor. source: the C++ type of what is read.
    width: elements of a chunk, 16 bytes of the widest operand. prefix: stands before the kernels' names.
    across: the type of what `columns` reads where that is another one, for which {VEC} columns of a map's operands are
    16 bytes, as those of one operand are; then the launches say how many operands are `packed`.
    """

    def columns(element: ElementKind) -> Mapping[str, Any]:
        return {"VEC": _column_widths(width(element), not (across or source.startswith("Elements")))}

    rows = f"reduce_rows<{kind}, {source}, {{WIDE}}>"
    made: tuple[tuple[str, str, Any], ...] = (
        ("rows", rows, {"WIDE": (True,)}),
        ("rows_any", rows, {"WIDE": (False,)}),
        ("columns", f"reduce_columns<{kind}, {across or source}, {{VEC}}>", columns),
        ("partials", f"reduce_partials<{kind}, {source}>", {}),
    )
    return tuple(
        Kernel(f"{prefix}{name}", template, params, values, threads=THREADS) for name, template, values in made
    )


def _column_widths(width: int, mapped: bool) -> tuple[int, ...]:
    """The widest first: 16 bytes of 2-byte elements, unless those are mapped, as a map's operands take registers."""
    return tuple(dict.fromkeys((8 if width == 8 and not mapped else min(width, _COLUMNS), 1)))


def lanes_of(chunks: int) -> int:
    """Lanes that share `chunks` chunks: four chunks a lane where there are 16 or more, and at most a warp."""
    wanted = max(-(-chunks // 4), min(chunks, 4), 1)
    return min(1 << (wanted - 1).bit_length(), 32)


def without_axes(view: View, axes: Sequence[int]) -> View:
    """The view without some axes."""
    kept = [a for a in range(len(view.shape)) if a not in axes]
    return View(view.ptr, tuple(view.shape[a] for a in kept), tuple(view.strides[a] for a in kept), view.element)


def over(view: View, shape: Shape, reduced: Sequence[int]) -> View:
    """What a row has one of, broadcast over the reduced axes, which it has with an extent of 1 or not at all."""
    strides = iter(
        view.strides if len(view.shape) < len(shape) else (s for a, s in enumerate(view.strides) if a not in reduced)
    )
    return View(view.ptr, shape, tuple(0 if a in reduced else next(strides) for a in range(len(shape))), view.element)


@dataclass(frozen=True)
class Launches:
    """The steps of a reduction, the workspace they use up to some byte, and whether reads are coalesced."""

    steps: tuple[Step, ...]
    used: int
    coalesced: bool


def reduce_geometry(
    p: Problem, operands: Sequence[View], results: Sequence[View], axes: tuple[int, ...], *, ordered: bool = True,
    mapped: bool = False, values: Mapping[str, Any] | None = None, prefix: str = "",
) -> Geometry | str:  # fmt: skip
    """The launches that reduce the operands, of one common shape, along `axes` (ascending) into the results.

    The results have the other axes. ordered: they depend on the order of the reduced elements, which is then the
    logical one; else memory's. mapped: the operands are those of a map. values: the op's own constants. prefix: of the
    kernels' names.
    """
    found = reduce_launches(
        p.device, operands, results, axes, ordered=ordered, mapped=mapped, values=values, prefix=prefix
    )
    if isinstance(found, str):
        return found
    dense = all(view.dense for view in (*operands, *results))
    layout = "contiguous" if dense else "inner_contiguous" if found.coalesced else "strided"
    return Geometry(found.steps, found.used, layout)


def reduce_launches(
    device: Device, operands: Sequence[View], results: Sequence[View], axes: tuple[int, ...], *, ordered: bool = True,
    mapped: bool = False, values: Mapping[str, Any] | None = None, prefix: str = "", base: int = 0,
    width: int | None = None, packed: int = 0,
) -> Launches | str:  # fmt: skip
    """As `reduce_geometry`, from byte `base` of the workspace on: a part of an op. width: as in `reduce_kernels`.

    packed: so many operands, the first, are read by several columns only where they move along those.
    """
    kept = [a for a in range(len(operands[0].shape)) if a not in axes]
    rows = Rows.of(operands, (kept, axes), outer=results, free=(0,) if ordered else (0, 1))
    if isinstance(rows, str):
        return rows
    width = width or 16 // max(view.element.itemsize for view in operands)
    chunks = -(-rows.cols // width)
    segments = max(1, -(-chunks // SEGMENT))
    inner = rows.inner_axes
    fast = rows.rows * segments < NARROW and (inner.rank <= 1 or rows.cols < NARROW)
    vec = _across(rows, operands, width, mapped, packed) if fast else 0
    run = rows.inner if mapped else inner.strides[0][-1:] in ((), (1,))
    lanes = lanes_of(chunks)
    constants: dict[str, Any] = {
        **rows.params(), "partials": base, "sources": 0, "count": rows.cols, "correction": 0, "segments": segments,
        "lanes": lanes, "team": 0, "merging": lanes_of(segments), "tiles": 1,
        "outer_dividers": [divider(n) for n in pad(rows.outer.shape)],
        "inner_dividers": [divider(n) for n in pad(inner.shape)], **(values or {}),
    }  # fmt: skip
    if mapped:
        constants["splat"] = _splat(rows.outer if vec else inner, len(operands))
    whole = segments == 1
    if vec:
        constants["tiles"] = -(-rows.outer.shape[-1] // (THREADS // lanes * vec))
        blocks = rows.rows // rows.outer.shape[-1] * constants["tiles"] * segments
        first = Step(f"{prefix}columns", grid(blocks), constants, {"VEC": vec}, THREADS)
    else:
        few = segments > WARPS and rows.rows < 2 * device.sms
        if not whole and segments <= SEGMENT and not few:
            constants["team"] = min(WARPS, 1 << (segments - 1).bit_length())
            whole, blocks = True, -(-rows.rows * constants["team"] // WARPS)
        else:
            blocks = -(-rows.rows * segments // (WARPS * (32 // lanes)))
        ends = inner.rank <= 1 or inner.shape[-1] % width == 0  # no chunk passes the end of the last axis
        wide = fast and run and ends and rows.access(width)
        name = f"{prefix}{'rows' if wide else 'rows_any'}"
        first = Step(name, grid(blocks), constants, {"WIDE": wide}, THREADS)
    if whole:
        return Launches((first,), base, bool(vec) or run)
    steps, used = _merge_states(first, f"{prefix}partials", rows.rows, segments, base)
    return Launches(tuple(steps), used, bool(vec) or run)


def sum_to(
    p: Problem, operands: Sequence[View], y: View, at: Mapping[str, Any], base: int, prefix: str = ""
) -> Launches | str:
    """The launches that sum a map of operands of one shape over the axes along which y is broadcast to it.

    at: the operands that the kernel's pointers mean. prefix, base: as in `reduce_launches`.
    """
    shape = operands[0].shape
    leading = len(shape) - len(y.shape)
    away = tuple(a for a, n in enumerate(shape) if a < leading or (y.shape[a - leading] == 1 and n != 1))
    rest = tuple(a - leading for a in range(leading, len(shape)) if a not in away)
    kept = View(y.ptr, tuple(y.shape[a] for a in rest), tuple(y.strides[a] for a in rest), y.element)
    return reduce_launches(p.device, operands, (kept,), away, mapped=True, values=at, prefix=prefix, base=base)


def _splat(axes: Axes, operands: int) -> int:
    """A bit for each operand that stays where it is along the last of these axes."""
    return sum(1 << i for i in range(operands) if axes.strides[i][-1:] == (0,))


def _across(rows: Rows, operands: Sequence[View], width: int, mapped: bool, packed: int) -> int:
    """How many neighbouring columns a thread reads at once; 0 where rows are read along the reduced axes.

    Columns are taken where more bytes an element lie side by side along the last kept axis than along the last reduced.
    """
    kept, inner = rows.outer, rows.inner_axes

    def beside(axes: Axes) -> int:
        steps = zip(operands, axes.strides, strict=False)  # results have strides along the kept axes, too
        return sum(view.element.itemsize for view, strides in steps if strides[-1:] == (1,))

    here = beside(kept)
    if not here or kept.shape[-1] * 16 // width < _COLUMN_BYTES or here < beside(inner):
        return 0
    steps = [strides[-1] for strides in kept.strides[: len(operands)]]
    moved = all(step == 1 or (step == 0 and n >= packed) for n, step in enumerate(steps))
    across = Merged((inner, kept), tuple(operands), len(operands))
    return next(
        v for v in _column_widths(width, mapped and not packed)
        if v == 1 or (moved and kept.shape[-1] % v == 0 and across.access(v))
    )  # fmt: skip


def _merge_states(first: Step, name: str, rows: int, states: int, base: int) -> tuple[list[Step], int]:
    """`first`, which leaves `states` states a row at byte `base`, and the launches that merge them; the bytes' end."""
    steps, place, used = [first], base, base + aligned(rows * states * STATE)
    while states > 1:
        segments = -(-states // SEGMENT)
        lanes = lanes_of(states)
        constants = {
            **first.params,
            "cols": states,
            "segments": segments,
            "lanes": lanes,
            "sources": place,
            "partials": used,
        }
        steps.append(Step(name, grid(-(-rows * segments // (WARPS * (32 // lanes)))), constants, {}, THREADS))
        place, states = used, segments
        if states > 1:
            used += aligned(rows * states * STATE)
    return steps, used
