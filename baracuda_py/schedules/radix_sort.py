"""Radix sort: the geometry of stable sorts of rows along one axis. `kernels/include/baracuda/radix_sort.cuh` sorts.

* *warp*: rows of up to 128 keys, a warp each;
* *block*: rows of up to 16384 keys (8192 of 8 bytes), a block each, in shared memory;
* *passes*: longer rows, a launch for every digit of 8 bits, after one that counts the digits of all passes.

Keys and places go to operands, or to pieces of the workspace for steps after the sort; of a window of the sorted row
alone, if one is named. A row has fewer than 2^32 keys.

    rows, cols = rows_of(p.x, axis)
    x, y, indices = (Strided.of(name, p.views[name], axis) for name in ("x", "y", "indices"))
    done = sort_steps(p, x, element, rows, cols, sorted=y, places=indices)
    Geometry(done.steps, done.workspace)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import AXES, Shape, View, dense_strides, merge_axes, pad
from ..core.variant import Axes, Kernel, Problem, Step, aligned
from .geometry import MOST_BLOCKS
from .row_groups import row_axis_last

WARP = 32
WARP_ITEMS = (1, 4)
"""Keys a lane of rows that a warp sorts."""
ITEMS = 16
BLOCKS = (128, 256, 512, 1024)
"""Threads of blocks that sort a row each, of up to ITEMS keys a thread."""
THREADS = 512  # of a block that counts, or sorts a tile in a pass
DIGIT, DIGITS = 8, 256
_CLEAR, _CLEARED = 256, 8  # threads of a block that clears, counts a thread clears
_COUNTING = 4  # blocks a multiprocessor that count
_WARP_BLOCK = 128


def sort_params(name: str, **more: str) -> Params:
    """The parameter struct of the sort's kernels; `more` are fields that a page adds."""
    return Params(
        name, keys="ptr", sorted="ptr", places="ptr", carried="ptr", counts="ptr", states="ptr", rows="i64", cols="i64",
        tiles="i64", marks="i64", first="i64", most="i64", outer_shape="i64[8]", outer="i64[3][8]", step="i64[3]",
        order="u64[7]", outer_rank="i32", bits="i32", shift="i32", number="i32", passes="i32", parts="i32",
        begins="i32", ends="i32", places_wide="i32", **more,
    )  # fmt: skip


def warp_kernel(params: Params, source: str = "", key: str = "key_word<{T}>") -> Kernel:
    """The kernel that sorts short rows, see `Sort.warps`."""
    template, axes = f"sort_warp<{key}, {{ITEMS}}>", {"ITEMS": WARP_ITEMS}
    return Kernel("warp", template, params, axes, threads=_WARP_BLOCK, source=source)


def sort_kernels(params: Params, source: str = "", element: ElementKind | None = None) -> tuple[Kernel, ...]:
    """The kernels of a sort; `element`: of the keys, where it is not the row's own."""
    key = f"key_word<{element.ctype if element else '{T}'}>"

    def kernel(name: str, template: str, threads: int | str, axes: Any = None, blocks: int = 0, **facts: Any) -> Kernel:
        return Kernel(name, template, params, axes or {}, threads=threads, min_blocks=blocks, source=source, **facts)

    def sizes(of: ElementKind) -> Axes:
        return {"THREADS": BLOCKS[:3] if (element or of).itemsize == 8 else BLOCKS}

    def items(of: ElementKind) -> Axes:
        return {"ITEMS": (pass_items(element or of),)}

    return (
        warp_kernel(params, source, key),
        kernel("block", f"sort_block<{key}, {{THREADS}}, {ITEMS}>", "THREADS", sizes),
        kernel("clear", "radix_clear", _CLEAR),
        kernel("count", f"radix_count<{key}, {THREADS}>", THREADS),
        kernel("pass", f"radix_pass<{key}, {THREADS}, {{ITEMS}}>", THREADS, items, 2),
    )


def pass_items(element: ElementKind) -> int:
    """Keys of a thread in a pass."""
    return 8 if element.itemsize == 8 else 16


def key_order(element: ElementKind, descending: bool = False) -> list[int]:
    """`KeyOrder` of radix_sort.cuh: what makes unsigned numbers of the same order from the bits of an element."""
    bits = 8 * element.itemsize
    every, top = (1 << bits) - 1, 1 << (bits - 1)
    flip = every if descending else 0
    if not element.is_float:
        return [top if element.is_integer and element.limits.min < 0 else 0, 0, 0, every, 0, 0, flip]
    infinity = ((1 << (bits - 1 - element.limits.digits)) - 1) << element.limits.digits
    low = every ^ (infinity | top)
    return [top, top - 1, low, (infinity | top) - low, top - 1, top, flip]


@dataclass(frozen=True)
class Strided:
    """An operand of a sort: what a `ptr` field takes, its strides along the rows' axes, and along a row."""

    name: Any
    outer: Shape
    step: int
    wide: bool = True  # places of 8 bytes

    @classmethod
    def of(cls, name: str, view: View | None, axis: int) -> Strided | None:
        """An operand whose rows are along `axis`; None for one that is absent. Of rank 0 it is one row of one key."""
        if view is None:
            return None
        if not view.shape:
            return cls(name, (), 1, view.element.itemsize == 8)
        last = row_axis_last(view, axis)
        assert last is not None
        return cls(name, last.strides[:-1], last.strides[-1], view.element.itemsize == 8)

    @classmethod
    def at(cls, offset: int, rows: Shape, pitch: int, wide: bool = False) -> Strided:
        """A piece of the workspace: dense rows, `pitch` apart."""
        return cls(("@workspace", offset), tuple(s * pitch for s in dense_strides(rows)), 1, wide)


def _name(operand: Strided | None) -> Any:
    """What a pointer field takes."""
    return "@null" if operand is None else operand.name


@dataclass(frozen=True)
class Sorting:
    """The steps of a sort, and where the workspace that they use ends."""

    steps: tuple[Step, ...]
    workspace: int


def rows_of(view: View, axis: int) -> tuple[Shape, int]:
    """The shape of the rows, and the keys of each."""
    if not view.shape:
        return (), 1
    return (*view.shape[:axis], *view.shape[axis + 1 :]), view.shape[axis]


def block_threads(element: ElementKind, cols: int, smem: int) -> int | None:
    """Threads of the block that sorts a row, or None where no block does."""
    for threads in BLOCKS[:3] if element.itemsize == 8 else BLOCKS:
        fixed = threads // WARP * (2 * DIGITS + 4) + 4 * DIGITS
        if cols <= threads * ITEMS:
            return threads if fixed + block_smem(element, cols) <= smem else None
    return None


def block_smem(element: ElementKind, cols: int) -> int:
    """Dynamic shared memory of a block that sorts a row: keys and places of 2 bytes."""
    return -(-cols // WARP) * WARP * (element.itemsize + 2)


def sort_steps(
    p: Problem, keys: Strided, element: ElementKind, rows: Shape, cols: int, *, sorted: Strided | None = None,
    places: Strided | None = None, descending: bool = False, window: tuple[int, int] | None = None,
    bits: int | None = None, workspace: int = 0,
) -> Sorting | str:  # fmt: skip
    """Sort `rows` of `cols` keys of an element; a string says why not.

    window: the numbers [first, end) of the sorted row that are written. bits: how many of the key's low bits differ, of
    integers that are not negative. workspace: where that of the sort begins.
    """
    found = Sort.of(p, element, rows, cols, (keys, sorted, places), descending, window, bits)
    if isinstance(found, str):
        return found
    if cols <= WARP * WARP_ITEMS[-1]:
        return Sorting((found.warps(keys, sorted, places),), workspace)
    if threads := block_threads(element, cols, p.device.smem):
        step = found.step(
            "block", math.prod(rows), threads, keys, sorted, places, {"THREADS": threads}, block_smem(element, cols)
        )
        return Sorting((step,), workspace)
    return found.passes(keys, sorted, places, workspace)


@dataclass(frozen=True)
class Sort:
    """What all launches of a sort share."""

    p: Problem
    element: ElementKind
    rows: Shape
    cols: int
    order: list[int]
    bits: int
    first: int
    most: int

    @classmethod
    def of(
        cls, p: Problem, element: ElementKind, rows: Shape, cols: int, operands: Sequence[Strided | None],
        descending: bool = False, window: tuple[int, int] | None = None, bits: int | None = None,
    ) -> Sort | str:  # fmt: skip
        """A sort as `sort_steps` takes it; a string says why not."""
        if cols >= 2**32:
            return f"a row of {cols} keys; it holds 2^32 - 1"
        if math.prod(rows) * -(-cols // (THREADS * 8)) > MOST_BLOCKS:
            return "more than 2^31 blocks"
        if len(merge_axes(rows, [s.outer for s in operands if s is not None])[0]) > AXES:
            return f"more than {AXES} axes remain after merging"
        first, end = window or (0, cols)
        bits = 8 * element.itemsize if bits is None else max(bits, 1)
        return cls(p, element, rows, cols, key_order(element, descending), bits, first, end - first)

    def step(
        self, kernel: str, blocks: int, threads: int, keys: Strided, sorted: Strided | None, places: Strided | None,
        axes: Mapping[str, Any], smem: int = 0, **more: Any,
    ) -> Step:  # fmt: skip
        """A launch; `more` replaces parameters."""
        given = (keys, sorted, places)
        strides = [(0,) * len(self.rows) if s is None else s.outer for s in given]
        shape, merged = merge_axes(self.rows, strides)
        params = {
            "keys": keys.name, "sorted": _name(sorted), "places": _name(places),
            "carried": "@null", "counts": "@null", "states": "@null", "rows": math.prod(self.rows), "cols": self.cols,
            "tiles": 1, "marks": 0, "first": self.first, "most": self.most, "outer_shape": pad(shape),
            "outer": [pad(s) for s in merged], "step": [0 if s is None else s.step for s in given],
            "order": self.order, "outer_rank": len(shape), "bits": self.bits, "shift": 0, "number": 0, "passes": 1,
            "parts": 1, "begins": True, "ends": True, "places_wide": places is not None and places.wide, **more,
        }  # fmt: skip
        return Step(kernel, (max(blocks, 1), 1, 1), params, axes, threads, smem)

    def warps(self, keys: Strided, sorted: Strided | None, places: Strided | None, **more: Any) -> Step:
        """The launch of `warp_kernel`: a warp a row, of up to WARP * WARP_ITEMS[-1] keys."""
        items = next(n for n in WARP_ITEMS if self.cols <= WARP * n)
        blocks = -(-math.prod(self.rows) * WARP // _WARP_BLOCK)
        return self.step("warp", blocks, _WARP_BLOCK, keys, sorted, places, {"ITEMS": items}, 0, **more)

    def passes(self, keys: Strided, sorted: Strided | None, places: Strided | None, workspace: int) -> Sorting:
        """Clear, count, and a pass for every digit; between passes keys and places lie in one of two buffers."""
        rows, passes = math.prod(self.rows), -(-self.bits // DIGIT)
        items = pass_items(self.element)
        tiles = -(-self.cols // (THREADS * items))
        counts, state = 4 * rows * passes * DIGITS, 8 * rows * tiles * DIGITS
        buffers, end = [], workspace + aligned(counts) + aligned(state)
        for _ in range(min(passes - 1, 2)):
            at = end, end + aligned(rows * self.cols * self.element.itemsize)
            end = at[1] + (aligned(4 * rows * self.cols) if places else 0)
            buffers.append([Strided.at(a, self.rows, self.cols) for a in at])
        shared: dict[str, Any] = {
            "counts": ("@workspace", workspace), "states": ("@workspace", workspace + aligned(counts)), "tiles": tiles,
            "passes": passes, "marks": (aligned(counts) + state) // 4,
        }  # fmt: skip
        parts = max(1, min(tiles, -(-_COUNTING * self.p.device.sms // max(rows, 1))))
        cleared = min(-(-shared["marks"] // (_CLEAR * _CLEARED)), MOST_BLOCKS)
        steps = [
            self.step("clear", cleared, _CLEAR, keys, None, None, {}, **shared),
            self.step("count", rows * parts, THREADS, keys, None, None, {}, **shared, parts=parts),
        ]
        source, carried = keys, None
        for number in range(passes):
            last = number == passes - 1
            to, to_places = (sorted, places) if last else buffers[number % 2]
            steps.append(
                self.step(
                    "pass",
                    rows * tiles,
                    THREADS,
                    source,
                    to,
                    to_places if places else None,
                    {"ITEMS": items},
                    THREADS * items * (self.element.itemsize + 4),
                    **shared,
                    shift=DIGIT * number,
                    number=number,
                    begins=number == 0,
                    ends=last,
                    carried=_name(carried if places else None),
                    first=self.first if last else 0,
                    most=self.most if last else self.cols,
                )
            )
            if not last:
                source, carried = buffers[number % 2]
        return Sorting(tuple(steps), end)
