"""Reduce: y[kept] = the merged elements of x along any axes. `baracuda/reduce_axes.cuh` is the device side.

The tree of a row follows from the number of reduced elements and their size alone; what is chosen here is who computes
which part of it:

* *rows* (reduced axes innermost, or nothing contiguous): a group of lanes a row, a team of warps a longer one; where
  long rows are few, every warp of the grid a segment of one, whose state goes through the workspace;
* *columns* (a kept axis innermost): threads along that axis, lanes and segments down the reduced ones.

States in the workspace are merged by further launches, 256 to one, until a row has one state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View, pad
from ..core.variant import Geometry, Kernel, Problem, Step, Where, aligned
from .geometry import Merged, grid
from .map import divider
from .rows import Rows, row_params

THREADS = 256
WARPS = THREADS // 32
SEGMENT = 256  # chunks of 16 bytes in a segment, and states that make one
STATE = 32  # bytes a state may have
_NARROW = 2**31 - THREADS  # below it 32 bits hold the numbers of rows and segments, also past the last block's end
_COLUMN_BYTES = 32  # a run of kept elements worth reading across: a sector
_COLUMNS = 4  # neighbouring columns a thread has at most: each has a state in registers


def reduce_params(name: str) -> Params:
    """The parameter struct of the reduce kernels."""
    return Params(
        name, x="ptr", y="ptr", partials="workspace", sources="workspace", count="i64", segments="i64",
        correction="i64", tiles="i64", lanes="i32", team="i32", merging="i32", outer_dividers="u32[8][3]",
        inner_dividers="u32[8][3]", **row_params(2),
    )  # fmt: skip


def reduce_kernels(kind: str, params: Params, spills: bool | Where = False) -> tuple[Kernel, ...]:
    """The kernels of a reduction; `kind` is the C++ type of the functor, `spills` of the kernel of any strides."""

    def columns(element: ElementKind) -> Mapping[str, Any]:
        return {"VEC": _column_widths(element)}

    rows = f"reduce_rows<{kind}, {{T}}, {{WIDE}}>"
    return (
        Kernel("rows", rows, params, {"WIDE": (True,)}, threads=THREADS),
        Kernel("rows_any", rows, params, {"WIDE": (False,)}, threads=THREADS, spills=spills),
        Kernel("columns", f"reduce_columns<{kind}, {{T}}, {{VEC}}>", params, columns, threads=THREADS),
        Kernel("partials", f"reduce_partials<{kind}>", params, threads=THREADS),
    )


def _column_widths(element: ElementKind) -> tuple[int, ...]:
    return (min(16 // element.itemsize, _COLUMNS), 1)


def lanes_of(chunks: int) -> int:
    """Lanes that share `chunks` chunks: four chunks a lane where there are 16 or more, and at most a warp."""
    wanted = max(-(-chunks // 4), min(chunks, 4), 1)
    return min(1 << (wanted - 1).bit_length(), 32)


def without_axes(view: View, axes: tuple[int, ...]) -> View:
    """The view without some axes."""
    kept = [a for a in range(len(view.shape)) if a not in axes]
    return View(view.ptr, tuple(view.shape[a] for a in kept), tuple(view.strides[a] for a in kept), view.element)


def reduce_geometry(
    p: Problem, x: View, y: View, axes: tuple[int, ...], *, ordered: bool, correction: int = 0
) -> Geometry | str:
    """The launches that reduce x along `axes` (ascending) into y, which has the other axes.

    ordered: the result depends on the order of the reduced elements, which is then the logical one; else memory's.
    """
    kept = [a for a in range(len(x.shape)) if a not in axes]
    rows = Rows.of((x,), (kept, axes), outer=(y,), free=(0,) if ordered else (0, 1))
    if isinstance(rows, str):
        return rows
    width = 16 // x.element.itemsize
    chunks = -(-rows.cols // width)
    segments = max(1, -(-chunks // SEGMENT))
    inner = rows.inner_axes
    fast = rows.rows * segments < _NARROW and (inner.rank <= 1 or rows.cols < _NARROW)
    vec = _across(rows) if fast else 0
    coalesced = bool(vec) or inner.strides[0][-1:] in ((), (1,))
    constants: dict[str, Any] = {
        **rows.params(), "partials": 0, "sources": 0, "count": rows.cols, "correction": correction,
        "segments": segments, "lanes": lanes_of(chunks), "team": 0, "merging": lanes_of(segments), "tiles": 1,
        "outer_dividers": [divider(n) for n in pad(rows.outer.shape)],
        "inner_dividers": [divider(n) for n in pad(rows.inner_axes.shape)],
    }  # fmt: skip
    lanes = constants["lanes"]
    whole = segments == 1
    if vec:
        constants["tiles"] = -(-rows.outer.shape[-1] // (THREADS // lanes * vec))
        blocks = rows.rows // rows.outer.shape[-1] * constants["tiles"] * segments
        first = Step("columns", grid(blocks), constants, {"VEC": vec}, THREADS)
    else:
        few = segments > WARPS and rows.rows < 2 * p.device.sms
        if not whole and segments <= SEGMENT and not few:
            constants["team"] = min(WARPS, 1 << (segments - 1).bit_length())
            whole, blocks = True, -(-rows.rows * constants["team"] // WARPS)
        else:
            blocks = -(-rows.rows * segments // (WARPS * (32 // lanes)))
        ends = inner.rank <= 1 or inner.shape[-1] % width == 0  # no chunk passes the end of the last axis
        wide = fast and coalesced and ends and rows.access(width)
        first = Step("rows" if wide else "rows_any", grid(blocks), constants, {"WIDE": wide}, THREADS)
    steps, used = [first], 0
    if not whole:
        steps, used = _merge_states(first, rows.rows, segments)
    dense = p.x.dense and p.y.dense
    return Geometry(tuple(steps), used, "contiguous" if dense else "inner_contiguous" if coalesced else "strided")


def _across(rows: Rows) -> int:
    """How many neighbouring columns a thread reads at once; 0 where no kept axis is innermost."""
    x = rows.views[0]
    assert x is not None
    kept = rows.outer
    if not kept.rank or kept.strides[0][-1] != 1 or kept.shape[-1] * x.element.itemsize < _COLUMN_BYTES:
        return 0
    across = Merged((rows.inner_axes, kept), (x,), 1)
    return next(
        v for v in _column_widths(x.element) if v == 1 or (kept.shape[-1] % v == 0 and across.access(v))
    )  # fmt: skip


def _merge_states(first: Step, rows: int, states: int) -> tuple[list[Step], int]:
    """`first`, which leaves `states` states a row in the workspace, and the launches that merge them; bytes used."""
    steps, place, used = [first], 0, aligned(rows * states * STATE)
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
        steps.append(Step("partials", grid(-(-rows * segments // (WARPS * (32 // lanes)))), constants, {}, THREADS))
        place, states = used, segments
        if states > 1:
            used += aligned(rows * states * STATE)
    return steps, used
