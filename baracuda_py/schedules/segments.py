"""Segments: the geometry of combining the tokens (rows) of each segment, in an order fixed by their number alone.

Which token belongs to which segment an index says: the bounds of segments, or an id of every token, sorted or not. Ids
that are not sorted are sorted stably in the workspace: by counts (kernels/include/baracuda/segments.cuh), or, of many
tokens or segments, by a radix sort (schedules/radix_sort.py); both give one order. The tokens of all segments in one
list are cut into slots of 32, so that the work is even whatever the lengths of segments (kernels/segment/combine.cuh).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.element import ElementKind
from ..core.params import Field, Params
from ..core.tensor import AXES, View, merge_axes, pad
from ..core.variant import Geometry, Kernel, Problem, Step, aligned
from .counting_sort import COUNTING, SORT_THREADS
from .radix_sort import Sort, Strided, sort_kernels, sort_params

_PART_COUNTS = 1 << 15  # counts of all parts
COUNTED = {"segments": 1 << 10, "tokens": 1 << 19}
"""Up to how many ids are sorted by counts; more by a radix sort."""
SLOT = 32  # places
COMBINE_THREADS, LEAST_LANES = 128, 8  # of a block, and of a group of its lanes
MERGE_THREADS = 256
MERGE_SLOTS = 16
MERGE_COLUMNS = 128  # of a block
THREADS = 256
_FILL_BYTES = 65536
_LIMIT = 2**31 - 4096
_OPERANDS = 5


class By(enum.Enum):
    """What tells the segment of a token."""

    OFFSETS = "offsets"
    STARTS = "starts"
    ENDS = "ends"
    EVENLY = "evenly"
    SORTED = "sorted"
    IDS = "ids"

    @property
    def bounds(self) -> bool:
        """Whether the index has the bounds of segments."""
        return self in (By.OFFSETS, By.STARTS, By.ENDS)

    @property
    def number(self) -> int:
        """Its number in the kernels."""
        return list(By).index(self)

    def length(self, tokens: int, segments: int) -> int:
        """How long the index is."""
        return {By.OFFSETS: segments + 1, By.STARTS: segments, By.ENDS: segments, By.EVENLY: 0}.get(self, tokens)


_CONSTANTS: dict[str, Field] = {
    "Segmented": (*(by.value for by in By), "keys"), **COUNTING, "slot_places": SLOT,
    "combine_threads": COMBINE_THREADS, "combine_least_lanes": LEAST_LANES, "merge_threads": MERGE_THREADS,
    "merge_slots": MERGE_SLOTS, "merge_block_columns": MERGE_COLUMNS,
}  # fmt: skip


def segment_params(name: str, **more: str | int) -> Params:
    """Params of an op on segments. Operands that may be absent are pointers, all others of the workspace.

    more: fields that a page adds.
    """
    return Params(
        name, y="ptr", x="ptr", z="ptr", g="ptr", h="ptr", arg="ptr", count="ptr", index="ptr", src="ptr", weight="ptr",
        shares="ptr", order="ptr", owners="ptr", status="status", counts="workspace", totals="workspace",
        starts="workspace", first="workspace", last="workspace", split="workspace", found="workspace",
        partial="workspace", aux="workspace", initial="scalar", empty="scalar", tokens="i64", segments="i64",
        rows="i64", each="i64", dim="i64", pitch="i64", padding="i64", left_out="i64", slots="i64", index_step="i64",
        src_step="i64", weight_step="i64", shares_step="i64", count_step="i64", x_row="i64", y_row="i64", z_row="i64",
        g_row="i64", h_row="i64", arg_row="i64", column_shape="i64[8]", column_strides="i64[5][8]", mode="i32",
        ranges="i32", parts="i32", range_pitch="i32", lanes="i32", tiles="i32", sum_blocks="i32", fill_rows="i32",
        column_rank="i32", index_wide="i32", src_wide="i32", weight_wide="i32", mean="i32", begins="i32", fills="i32",
        others="i32", keys="workspace", **_CONSTANTS, **more,
    )  # fmt: skip


_ABSENT = (
    "y", "x", "z", "g", "h", "arg", "count", "index", "src", "weight", "shares", "order", "owners", "initial_ptr",
    "empty_ptr",
)  # fmt: skip
_ZERO = (
    "initial_value", "empty_value", "counts", "totals", "starts", "first", "last", "split", "found", "partial", "aux",
    "tokens", "segments", "rows", "each", "dim", "pitch", "slots", "index_step", "src_step", "weight_step",
    "shares_step", "count_step", "x_row", "y_row", "z_row", "g_row", "h_row", "arg_row", "mode", "ranges", "parts",
    "range_pitch", "lanes", "tiles", "sum_blocks", "fill_rows", "column_rank", "index_wide", "src_wide", "mean",
    "weight_wide", "begins", "fills", "others", "keys",
)  # fmt: skip
NOTHING: Mapping[str, Any] = {
    **dict.fromkeys(_ABSENT, "@null"), **dict.fromkeys(_ZERO, 0), "padding": -1, "left_out": -2,
    "column_shape": pad(()), "column_strides": [pad(())] * _OPERANDS,
}  # fmt: skip
"""Every field of `segment_params` where an op has nothing to say."""
SORT_PARAMS = sort_params("SortParams")
_PASSES = ("clear", "count", "pass")


def place_kernels(params: Params, owners: bool = False) -> tuple[Kernel, ...]:
    """The kernels that find the places of segments, and the segment of every token."""
    return (
        Kernel("tally", "segment_sort_count", params, threads=SORT_THREADS),
        Kernel("place", "segment_sort_place", params, threads=SORT_THREADS),
        Kernel("keys", "segment_keys", params, threads=THREADS),
        *(kernel for kernel in sort_kernels(SORT_PARAMS, "sort/sort.cu", ElementKind.I32) if kernel.name in _PASSES),
        Kernel("bounds", "segment_bounds", params, threads=THREADS),
        *([Kernel("owners", "segment_owners", params, threads=THREADS)] if owners else []),
    )


def widths(kind: ElementKind) -> Mapping[str, Any]:
    """Columns that a thread takes: as many as 16 bytes hold of a float, else one."""
    return {"VEC": (16 // kind.itemsize, 1) if kind.is_float else (1,)}


def combine_kernels(params: Params, functor: str) -> tuple[Kernel, ...]:
    """The kernels that combine tokens, for a C++ functor of kernels/segment/functors.cuh."""
    return (
        Kernel("combine", f"segment_combine<{functor}, {{T}}, {{VEC}}>", params, widths, COMBINE_THREADS, 4),
        Kernel("merge", f"segment_merge<{functor}, {{T}}>", params, threads=MERGE_THREADS),
    )


def tokens_kernel(params: Params, functor: str) -> Kernel:
    """The kernel that makes one number a token and column."""
    return Kernel("tokens", f"segment_tokens<{functor}, {{T}}, {{VEC}}>", params, widths, threads=THREADS)


@dataclass
class Workspace:
    """Bytes handed out one piece after the other."""

    nbytes: int = 0

    def take(self, nbytes: int) -> int:
        """The place of a piece."""
        at = self.nbytes
        self.nbytes += aligned(nbytes)
        return at


@dataclass(frozen=True)
class Columns:
    """The columns of operands whose rows have one shape: how many, their strides, and how many a thread takes."""

    dim: int
    vec: int
    pitch: int
    params: Mapping[str, Any]

    @classmethod
    def of(cls, row_shape: Sequence[int], views: Mapping[str, View | None], element: ElementKind) -> Columns | str:
        """views: the operands by the kernels' names, of which g and arg are one, each with a leading axis."""
        slots = ("y", "x", "z", "arg" if "arg" in views else "g", "h")
        held = [views.get(name) for name in slots]
        strides = [tuple(v.strides[1:]) if v is not None else (0,) * len(row_shape) for v in held]
        present = [s for s, v in zip(strides, held, strict=True) if v is not None]
        shape, merged = merge_axes(tuple(row_shape), present)
        if len(shape) > AXES:
            return f"more than {AXES} axes remain after merging"
        dim, vec = math.prod(row_shape), 16 // element.itemsize if element.is_float else 1
        dense = len(shape) <= 1 and all(s in ((), (1,)) for s in merged)
        if vec > 1 and not (dense and dim % vec == 0 and all(_rows_aligned(v) for v in held if v is not None)):
            vec = 1
        found = iter(merged)
        rows = {f"{name}_row": v.strides[0] for name, v in zip(slots, held, strict=True) if v is not None}
        params = {
            **rows, "dim": dim, "pitch": -(-dim // 4) * 4, "column_rank": len(shape), "column_shape": pad(shape),
            "column_strides": [pad(next(found)) if v is not None else pad(()) for v in held],
        }  # fmt: skip
        return cls(dim, vec, -(-dim // 4) * 4, params)


def _rows_aligned(view: View) -> bool:
    return view.ptr % 16 == 0 and (view.shape[0] <= 1 or view.strides[0] * view.element.itemsize % 16 == 0)


@dataclass
class Segments:
    """Tokens and what tells their segments: the parameters and launches that find the places of every segment.

    left_out: an id whose tokens have no place, on purpose, -2 for none. others: whether ids outside [0, segments) are
    there on purpose, too; else a checked run is told of them.
    """

    problem: Problem
    by: By
    tokens: int
    segments: int
    index: View | None
    workspace: Workspace = field(default_factory=Workspace)
    left_out: int = -2
    name: str = "index"
    others: bool = False
    params: dict[str, Any] = field(default_factory=dict)

    def refusal(self) -> str | None:
        """Why there are too many of something, or None."""
        if self.tokens >= _LIMIT or self.segments >= _LIMIT:
            return "2^31 tokens or segments and more are not supported"
        return None

    def told(self) -> dict[str, Any]:
        """What the kernels need to know which segment a token belongs to."""
        index = self.index
        return {
            "mode": self.by.number, "tokens": self.tokens, "segments": self.segments,
            "each": self.tokens // max(self.segments, 1), "left_out": self.left_out, "others": self.others,
            "index": "@null" if index is None else self.name,
            "index_step": index.strides[0] if index is not None and index.size else 0,
            "index_wide": index is not None and index.element is ElementKind.I64,
        }  # fmt: skip

    def places(self, slots: bool = True, **more: Any) -> list[Step] | str:
        """The launches that find the bounds of segments and slots; `params` has afterwards where they are.

        slots: whether tokens are combined. more: parameters that a page adds. A string says why not.
        """
        take = self.workspace.take
        count = -(-self.tokens // SLOT) if slots else 0
        self.params = {**self.told(), "slots": count, "starts": take((-(-self.segments // 4) * 4 + 1) * 4)}
        if count:
            self.params |= {"first": take(count * 4), "last": take(count * 4)}
        steps: list[Step] = []
        sorted_index: dict[str, Any] = {}
        if self.by is By.IDS:
            self.params["order"] = ("@workspace", take(self.tokens * 4))
            if self.counted:
                steps = self._counting(more)
            else:
                sorting = self._radix(more)
                if isinstance(sorting, str):
                    return sorting
                steps, sorted_index = sorting
        threads = count if self.by is By.IDS and self.counted else max(count, self.segments + 1)
        if threads:
            params = {**NOTHING, **self.params, **sorted_index, **more}
            steps.append(Step("bounds", (-(-threads // THREADS), 1, 1), params, {}, THREADS))
        return steps

    @property
    def counted(self) -> bool:
        """Whether ids are sorted by counts."""
        return self.segments <= COUNTED["segments"] and self.tokens <= COUNTED["tokens"]

    def _counting(self, more: Mapping[str, Any]) -> list[Step]:
        """The launches of a counting sort."""
        take, tiles = self.workspace.take, -(-self.tokens // SORT_THREADS)
        pitch = max(4, -(-self.segments // 4) * 4)
        # The counts of each part are read by every part: few parts where there are many segments.
        parts = max(1, min(tiles, 64, _PART_COUNTS // pitch))
        self.params |= {
            "counts": take(parts * pitch * 4), "totals": take(parts * 4), "ranges": 1, "parts": parts,
            "range_pitch": pitch,
        }  # fmt: skip
        params = {**NOTHING, **self.params, **more}
        return [Step(name, (parts, 1, 1), params, {}, SORT_THREADS) for name in ("tally", "place")]

    def _radix(self, more: Mapping[str, Any]) -> tuple[list[Step], dict[str, Any]] | str:
        """The launches of a radix sort, and parameters that name the sorted keys as the index."""
        index = {"mode": len(By), "index_step": 1, "index_wide": False}
        if not self.tokens:
            return [], index
        keys, ordered = self.workspace.take(self.tokens * 4), self.workspace.take(self.tokens * 4)
        unsorted, sorted, order = (Strided.at(at, (), 1) for at in (keys, ordered, self.params["order"][1]))
        sort = Sort.of(
            self.problem, ElementKind.I32, (), self.tokens, (unsorted, sorted, order), bits=self.segments.bit_length()
        )
        if isinstance(sort, str):
            return sort
        sorting = sort.passes(unsorted, sorted, order, self.workspace.nbytes)
        self.workspace.nbytes = aligned(sorting.workspace)
        params = {**NOTHING, **self.params, "keys": keys, **more}
        first = Step("keys", (-(-self.tokens // THREADS), 1, 1), params, {}, THREADS)
        return [first, *sorting.steps], {**index, "index": ("@workspace", ordered)}

    def owners(self) -> tuple[Step, int]:
        """The launch that writes the segment of every token, -1 for none, and where in the workspace."""
        at = self.workspace.take(self.tokens * 4)
        params = {**NOTHING, **self.told(), "owners": ("@workspace", at)}
        return Step("owners", (max(1, -(-self.tokens // THREADS)), 1, 1), params, {}, THREADS), at

    def combined(
        self, columns: Columns, planes: int, acc: int, *, kept: bool = False, **facts: Any
    ) -> list[Step] | str:  # fmt: skip
        """The launches that combine the tokens, after `places`; facts: further parameters, operands by name.

        planes: numbers a column, of `acc` bytes, that a segment is made of; kept: they are the result, and stay in the
        workspace. initial and empty, where they are facts, are scalars of the call.
        """
        take, dim, slots = self.workspace.take, columns.dim, self.params["slots"]
        vec = columns.vec if dim > LEAST_LANES else 1  # of a narrow row every lane has a column, not a few of them all
        chunks = max(1, dim // vec)
        lanes = min(COMBINE_THREADS, max(LEAST_LANES, 1 << (chunks - 1).bit_length()))
        tiles, groups = -(-chunks // lanes), COMBINE_THREADS // lanes
        sum_blocks = -(-slots // groups) * tiles
        fill_rows = max(16, min(1024, _FILL_BYTES // max(dim * acc, 1)))
        fill_blocks = -(-self.segments // fill_rows)
        if sum_blocks + fill_blocks >= 2**31:
            return "more than 2^31 blocks"
        row = columns.pitch * planes * acc
        if kept:
            self.params["aux"] = take(self.segments * row)
        scalars = {f"{n}_{part}" for n in ("initial", "empty") if n in facts for part in ("ptr", "value")}
        params = {
            **{k: v for k, v in NOTHING.items() if k not in scalars}, **self.params, **columns.params,
            "split": take(slots * 4), "found": take(2 * slots * 4),
            "partial": take(2 * slots * row), "lanes": lanes, "tiles": tiles, "sum_blocks": sum_blocks,
            "fill_rows": fill_rows, "rows": self.tokens,
            **{k: v for k, v in facts.items() if k not in ("initial", "empty")},
        }  # fmt: skip
        grid = (max(1, sum_blocks + fill_blocks), 1, 1)
        steps = [Step("combine", grid, params, {"VEC": vec}, COMBINE_THREADS)]
        if slots > 1:  # otherwise no segment has more tokens than a chunk
            blocks = -(-slots // MERGE_SLOTS) * max(1, -(-dim // MERGE_COLUMNS))
            if blocks >= 2**31:
                return "more than 2^31 blocks"
            steps.append(Step("merge", (blocks, 1, 1), params, {}, MERGE_THREADS))
        return steps

    def per_token(self, columns: Columns, **facts: Any) -> Step | str:
        """The launch that makes one number a token and column."""
        blocks = -(-self.tokens * (columns.dim // columns.vec) // THREADS)
        if blocks >= 2**31:
            return "more than 2^31 blocks"
        params = {**NOTHING, **self.told(), **self.params, **columns.params, **facts}
        return Step("tokens", (max(1, blocks), 1, 1), params, {"VEC": columns.vec}, THREADS)


def together(steps: Sequence[Step], workspace: Workspace, columns: Columns, views: Sequence[View | None]) -> Geometry:
    """The geometry of these launches."""
    dense = all(v.dense for v in views if v is not None)
    layout = "contiguous" if dense else "inner_contiguous" if columns.vec > 1 else "strided"
    return Geometry(tuple(steps), workspace.nbytes, layout)
