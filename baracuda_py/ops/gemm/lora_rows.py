"""The rows of `LoraMatmulPlan` and of its gradient: two launches, of tensor cores for many tokens, or without them."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...core import ElementKind, Geometry, Kernel, Params, Problem, Step, View
from ...core.variant import aligned
from ...schedules.gemm import steps_of
from .mma import HALVES, k_first, pieces_of, ring_bytes

THREADS, _MMA_THREADS = 256, 128
_TILE, _CHUNK = 8, 512  # tokens of a block, elements of k of a piece; kernels/gemm/lora_matmul.cu, too
_MANY = 32  # tokens from which on tensor cores take them
# Of kernels/gemm/lora_mma.cu: tokens of a tile of x aᵀ; tokens and columns of one of y, chunks of the rank, what of
# shared memory does not depend on the rank (a ring of three stages, what warps' sums go through), and static memory.
_MMA_TILE, _ROWS, _COLUMNS, _DEPTH, _EXPAND, _STATIC = 64, 32, 128, 32, 3 * 128 * 64 + 8 * 16 * 40 * 4, 1024
_SHORTEST = 256  # of k in a split
_RESIDENT = {True: 3, False: 2}  # blocks of y that a multiprocessor has, by whether b has the rank along memory
__all__ = ["BACKWARD", "FORWARD", "HALVES", "KERNELS", "MMA_KERNELS", "launches", "tensor_cores"]

FIELDS = {
    **dict.fromkeys(("ids", "offsets", "ranks"), "ptr"),
    **dict.fromkeys(
        ("tokens", "k", "n", "adapters", "rank", "segments", "chunks", "each", "splits", "ids_step", "offsets_step",
         "ranks_step"), "i64"),
    **dict.fromkeys(("tile", "wide", "wide_ids", "wide_offsets", "wide_ranks"), "i32"),
    "parts": "workspace",
}  # fmt: skip
SHRINK = Params(
    "LoraShrinkParams", x="ptr", a="ptr", copy="ptr", x_step="i64[2]", a_step="i64[3]", copy_step="i64[2]", **FIELDS
)
EXPAND = Params(
    "LoraExpandParams", b="ptr", scale="ptr", base="ptr", y="ptr", b_step="i64[3]", base_step="i64[2]",
    y_step="i64[2]", scale_step="i64", **FIELDS,
)  # fmt: skip
KERNELS = (
    Kernel("shrink", "lora_shrink<{T}>", SHRINK, threads=THREADS),
    Kernel("expand", "lora_expand<{T}>", EXPAND, threads=THREADS),
)


SHRINK_MMA = Params(
    "LoraShrinkMmaParams", x="ptr", a="ptr", copy="ptr", x_step="i64[2]", a_step="i64[3]", copy_step="i64[2]",
    piece="i32", shares="i32", **FIELDS,
)  # fmt: skip
EXPAND_MMA = Params(
    "LoraExpandMmaParams", b="ptr", scale="ptr", base="ptr", y="ptr", b_step="i64[3]", base_step="i64[2]",
    y_step="i64[2]", scale_step="i64", ranges="i64", shares="i32", **FIELDS,
)  # fmt: skip
_MAJORS = {"B_K": (True, False)}
_MMA_SOURCE = "gemm/lora_mma.cu"
MMA_KERNELS = (
    Kernel("shrink_mma", "lora_shrink_mma<{T}, {B_K}>", SHRINK_MMA, _MAJORS, _MMA_THREADS, 4, source=_MMA_SOURCE),
    Kernel("expand_mma", "lora_expand_mma<{T}, true>", EXPAND_MMA, {}, THREADS, _RESIDENT[True], source=_MMA_SOURCE),
    Kernel("expand_mma_across", "lora_expand_mma<{T}, false>", EXPAND_MMA, {}, THREADS, _RESIDENT[False],
           source=_MMA_SOURCE),
)  # fmt: skip


def _swapped(view: View) -> View:
    """Matrices with their two axes in turn."""
    (count, m, n), (s, t, u) = view.shape, view.strides
    return View(view.ptr, (count, n, m), (s, u, t), view.element)


class Names(NamedTuple):
    """What both products read and write, by the operands' names. copy: where x goes, too; of the gradient the matrices
    are transposed, and change places."""

    x: str
    y: str
    copy: str = ""
    backward: bool = False


FORWARD, BACKWARD = Names("x", "y"), Names("dy", "dx", "dbase", True)


class _Products:
    """The matrices [adapters, rank, k] and [adapters, n, rank] of a problem, and the values of the kernels' fields."""

    def __init__(self, p: Problem, names: Names) -> None:
        desc = p.desc
        self.p, self.names = p, names
        first, second = ("b", "a") if names.backward else ("a", "b")
        self.a, self.b = p.views[first], p.views[second]
        self.k, self.n = desc.in_features, desc.out_features
        if names.backward:
            self.a, self.b, self.k, self.n = _swapped(self.a), _swapped(self.b), self.n, self.k
        self.x, self.y, self.copy = p.views[names.x], p.views[names.y], p.views.get(names.copy)
        self.base = None if names.backward else p.base
        facts = {
            "tokens": desc.tokens, "k": self.k, "n": self.n, "adapters": desc.adapters, "rank": desc.max_rank,
            "parts": 0, "segments": desc.num_ids, **dict.fromkeys(("chunks", "each", "splits"), 1),
        }  # fmt: skip
        for name in ("ids", "offsets", "ranks"):
            view = p.views[name]
            facts[f"wide_{name}"] = int(view is not None and view.element is ElementKind.I64)
            facts[f"{name}_step"] = 0 if view is None else view.strides[0]
        self.shrink = {
            **facts, "x": names.x, "a": first, "copy": "@null" if self.copy is None else names.copy,
            "x_step": _steps(self.x), "a_step": _steps(self.a), "copy_step": _steps(self.copy),
        }  # fmt: skip
        self.expand = {
            **facts, "b": second, "y": names.y, "base": "@null" if self.base is None else "base",
            "base_step": _steps(self.base), "y_step": _steps(self.y), "b_step": _steps(self.b),
            "scale_step": 0 if p.scale is None else p.scale.strides[0],
        }  # fmt: skip

    def geometry(self, shrink: Step, expand: Step, nbytes: int) -> Geometry | str:
        """Both launches, but those of nothing."""
        blocks = max(shrink.grid[0], expand.grid[0])
        if blocks >= 2**31:
            return f"needs {blocks} blocks, a grid has 2**31 - 1"
        steps = [step for step, to in ((shrink, self.x), (expand, self.y)) if to is not None and step.grid[0]]
        layout = "contiguous" if all(v.dense for v in self.p.flat()) else "strided"
        return Geometry(tuple(steps), aligned(nbytes), layout)


def _steps(view: View | None) -> tuple[int, ...]:
    return (0, 0) if view is None else (*view.strides[:-2], *steps_of(view))


def _wide(*views: View | None) -> int:
    """A bit for each view whose rows can be accessed 16 bytes at a time."""
    return sum(1 << i for i, v in enumerate(views) if v is not None and v.strides[-1] == 1 and v.aligned(16))


def launches(p: Problem, names: Names) -> Geometry | str:
    """A block for eight tokens, or for one of few, and all of k or one piece of it; then for 256 columns."""
    desc, own = p.desc, _Products(p, names)
    tile = _TILE if desc.tokens > 64 else 1
    tiles, chunks = -(-desc.tokens // tile), -(-own.k // _CHUNK)
    each = max(chunks, 1) if tiles >= 2 * p.device.sms else 1
    splits, columns = -(-chunks // each), -(-own.n // THREADS)
    more = {"chunks": chunks, "each": each, "splits": splits, "tile": tile}
    shrink = {**own.shrink, **more, "wide": _wide(own.x, own.a, own.copy)}
    expand = {**own.expand, **more, "wide": _wide(own.b)}
    held = tile * -(-desc.max_rank // 8) * 8 * desc.acc.itemsize
    return own.geometry(
        Step("shrink", (tiles * splits, 1, 1), shrink, {}, THREADS),
        Step("expand", (tiles * columns, 1, 1), expand, {}, THREADS, held),
        splits * desc.tokens * desc.max_rank * desc.acc.itemsize,
    )


def tensor_cores(p: Problem, names: Names) -> Geometry | str:
    """A block for 64 tokens, 64 of the rank and a split of k, then for 32 tokens and a range of columns."""
    desc, own = p.desc, _Products(p, names)
    if desc.tokens < _MANY:
        return f"{desc.tokens} tokens are fewer than {_MANY}"
    if own.x.strides[-1] != 1 and own.k > 1:
        return f"needs rows of {names.x} along memory, got strides {own.x.strides}"
    majors = k_first(own.a, -1), k_first(own.b, -1)
    if None in majors:
        return f"needs a stride of 1 in a and b, got strides {p.a.strides} and {p.b.strides}"
    a, b = (v if major else _swapped(v) for v, major in zip((own.a, own.b), majors, strict=True))
    bits = [int(v.aligned(16)) for v in (a, b)]  # of rows in memory
    held = _EXPAND + -(-desc.max_rank // _DEPTH) * 2 * _ROWS * _DEPTH * desc.element.itemsize
    if held + _STATIC > p.device.smem:
        return f"a rank of {desc.max_rank} needs {held} bytes of shared memory, the device has {p.device.smem}"
    shrink, expand = _shrink_mma(p, own), _expand_mma(p, own, _RESIDENT[bool(majors[1])])
    shrink["wide"] = _wide(own.x, None, own.copy) | bits[0] << 1
    expand |= {"wide": _wide(None, own.base, own.y) | bits[1], "splits": shrink["splits"]}
    copies = int(own.copy is not None or desc.max_rank > 0)  # a rank of 0 has no products
    tiles = -(-desc.tokens // _MMA_TILE) * max(1, -(-desc.max_rank // _MMA_TILE)) * copies
    rows = -(-desc.tokens // _ROWS)
    return own.geometry(
        Step("shrink_mma", (tiles * shrink["splits"] * shrink["shares"], 1, 1), shrink, {"B_K": majors[0]},
             _MMA_THREADS, ring_bytes(_MMA_TILE, False)),
        Step("expand_mma" if majors[1] else "expand_mma_across",
             (rows * expand["ranges"] * expand["shares"], 1, 1), expand, {}, THREADS, held),
        shrink["splits"] * desc.tokens * -(-desc.max_rank // 8) * 8 * 4,
    )  # fmt: skip


def _shrink_mma(p: Problem, own: _Products) -> dict[str, Any]:
    """Splits of k with which a multiprocessor has two blocks, and more where a tile may have many adapters."""
    desc, sms = p.desc, max(1, p.device.sms)
    tiles = -(-desc.tokens // _MMA_TILE) * max(1, -(-desc.max_rank // _MMA_TILE))
    slices, piece = -(-own.k // _DEPTH), pieces_of(desc.max_rank, own.k, desc.element)[1]
    each = -(-slices // max(1, min(2 * sms // tiles, own.k // _SHORTEST))) or 1
    splits = max(1, -(-slices // each))
    shares = _shares(p, _MMA_TILE, 4 * sms // (tiles * splits))
    return {**own.shrink, "tile": _MMA_TILE, "piece": piece, "each": each, "splits": splits, "shares": shares}


def _expand_mma(p: Problem, own: _Products, resident: int) -> dict[str, Any]:
    """Ranges of columns with which all blocks run at once, but for those of more adapters, as above."""
    tiles, steps, sms = -(-p.desc.tokens // _ROWS), -(-own.n // _COLUMNS), max(1, p.device.sms)
    each = -(-steps // max(1, min(resident * sms // max(1, tiles), steps))) or 1
    ranges = -(-steps // each)
    shares = _shares(p, _ROWS, 8 * sms // max(1, tiles * ranges))
    return {**own.expand, "tile": _ROWS, "each": each * _COLUMNS, "ranges": ranges, "shares": shares}


def _shares(p: Problem, tokens: int, blocks: int) -> int:
    """Blocks that have the adapters of a tile in turn; one of them is having none."""
    return int(max(1, min(blocks, tokens, p.desc.adapters + 1)))
