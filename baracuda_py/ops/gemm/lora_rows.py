"""The rows of `LoraMatmulPlan` and of its gradient: tensor cores for many tokens of an adapter, or without them.

Both are two launches. Before those of tensor cores a third one may put tokens into the order of their adapters.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...core import ElementKind, Geometry, Kernel, Params, Problem, Step, View
from ...core.variant import aligned
from ...schedules.gemm import steps_of
from .mma import HALVES, k_first

THREADS, _MMA_THREADS, _ORDER_THREADS = 256, 128, 1024
_TILE, _CHUNK = 8, 512  # tokens of a block, elements of k of a piece
_RUN = 32  # tokens for each adapter from which on blocks have tiles of several tokens
# On tensor cores: tokens of a tile of x aᵀ and of the list, and of the rank there, k of a slice, stages of its ring;
# tokens and columns of a tile of y, chunks of the rank, stages of its ring, what of shared memory does not depend on
# the rank (the ring, what warps' sums go through), and static memory.
_MMA_TILE, _SLICE, _STAGES = 64, 64, 4
_ROWS, _COLUMNS, _DEPTH, _EXPAND_STAGES = 32, 128, 32, 3
_EXPAND, _STATIC = _EXPAND_STAGES * _COLUMNS * _DEPTH * 2 + 8 * 16 * 40 * 4, 1024
_RING = _STAGES * 2 * _MMA_TILE * _SLICE * 2
_SHORTEST, _LONGEST = 512, 1024  # of k in a split
_SHRINKS, _RESIDENT = 3, {True: 3, False: 2}  # blocks a multiprocessor has; of y by whether b has the rank along memory
_ORDER_WARPS = (32, 8)  # of the block that sorts, the most and the least
__all__ = ["BACKWARD", "FORWARD", "HALVES", "KERNELS", "MMA_KERNELS", "launches", "tensor_cores"]

FIELDS: dict[str, str | int] = {
    **dict.fromkeys(("ids", "offsets", "ranks"), "ptr"),
    **dict.fromkeys(
        ("tokens", "k", "n", "adapters", "rank", "segments", "chunks", "each", "splits", "ids_step", "offsets_step",
         "ranks_step"), "i64"),
    **dict.fromkeys(("tile", "wide", "wide_ids", "wide_offsets", "wide_ranks"), "i32"),
    "parts": "workspace",
    "lora_threads": THREADS, "lora_tile": _TILE, "lora_chunk": _CHUNK,
}  # fmt: skip
_MMA = {
    "lora_listed": _MMA_TILE, "lora_shrink_threads": _MMA_THREADS, "lora_shrink_depth": _SLICE,
    "lora_shrink_stages": _STAGES, "lora_expand_threads": THREADS, "lora_expand_rows": _ROWS,
    "lora_expand_cols": _COLUMNS, "lora_expand_depth": _DEPTH, "lora_expand_stages": _EXPAND_STAGES,
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
    order="ptr", list="ptr", shares="i32", **_MMA, **FIELDS,
)  # fmt: skip
EXPAND_MMA = Params(
    "LoraExpandMmaParams", b="ptr", scale="ptr", base="ptr", y="ptr", b_step="i64[3]", base_step="i64[2]",
    y_step="i64[2]", scale_step="i64", order="ptr", list="ptr", ranges="i64", shares="i32", **_MMA, **FIELDS,
)  # fmt: skip
ORDER = Params(
    "LoraOrderParams", ids="ptr", tokens="i64", adapters="i64", ids_step="i64", entries="i64", wide_ids="i32",
    warps="i32", tile="i32", order="workspace", list="workspace",
    lora_order_threads=_ORDER_THREADS,
)  # fmt: skip
_MAJORS = {"B_K": (True, False)}
_MMA_SOURCE = "gemm/lora_mma.cu"
MMA_KERNELS = (
    Kernel("order", "lora_order", ORDER, threads=_ORDER_THREADS, source="gemm/lora_order.cu", shared="lora"),
    Kernel("shrink_mma", "lora_shrink_mma<{T}, {B_K}>", SHRINK_MMA, _MAJORS, _MMA_THREADS, _SHRINKS,
           source=_MMA_SOURCE),
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

    def geometry(self, shrink: Step, expand: Step, nbytes: int, *before: Step) -> Geometry | str:
        """Both launches and those before them, but those of nothing."""
        blocks = max(shrink.grid[0], expand.grid[0])
        if blocks >= 2**31:
            return f"needs {blocks} blocks, a grid has 2**31 - 1"
        steps = [step for step, to in ((shrink, self.x), (expand, self.y)) if to is not None and step.grid[0]]
        steps = [*before, *steps] if steps else []
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
    tile = _TILE if desc.tokens > max(64, _RUN * _groups(desc, p.offsets is not None)) else 1
    tiles, chunks = -(-desc.tokens // tile), -(-own.k // _CHUNK)
    each = max(chunks, 1) if tiles >= 2 * p.device.sms else 1
    splits, columns = -(-chunks // each), -(-own.n // THREADS)
    more = {"chunks": chunks, "each": each, "splits": splits, "tile": tile}
    wide = _wide(own.x, own.a, own.copy)
    shrink = {**own.shrink, **more, "wide": wide if wide & 2 else wide | _wide(_swapped(own.a)) << 3}
    expand = {**own.expand, **more, "wide": _wide(own.b)}
    held = tile * -(-desc.max_rank // 8) * 8 * desc.acc.itemsize
    return own.geometry(
        Step("shrink", (tiles * splits, 1, 1), shrink, {}, THREADS),
        Step("expand", (tiles * columns, 1, 1), expand, {}, THREADS, held),
        splits * desc.tokens * desc.max_rank * desc.acc.itemsize,
    )


def _groups(desc: Any, segments: bool) -> int:
    """How many runs of tokens have one adapter at most, where they are in order."""
    return int(min(desc.tokens, desc.num_ids if segments else desc.adapters))


def _tiles(desc: Any, size: int, ordered: bool) -> int:
    """Tiles of tokens, some of which adapters leave half empty."""
    return int(max(1, -(-desc.tokens // size) + (_groups(desc, False) // 2 if ordered else 0)))


def _slower(desc: Any, segments: bool) -> str | None:
    """Why the row without tensor cores is faster, or None.

    Both are estimated in µs of an H100 with k + n = 8192, on which their ratio hardly depends. Without tensor cores a
    token takes 0.1 for 16 of the rank, as it reads its adapter alone. Tiles of 32 tokens of an adapter take 0.2, and
    0.06 for each 32 of the rank; before them the launches take 5 more, and the order another 5.
    """
    tiles = -(-desc.tokens // _ROWS) + _groups(desc, segments)
    before = 5.5 if segments or desc.adapters < 2 else 10.5
    theirs, own = desc.tokens * max(desc.max_rank, 8) / 160, before + tiles * (0.2 + 0.06 * -(-desc.max_rank // _DEPTH))
    if theirs > own:
        return None
    return f"{desc.tokens} tokens of up to {desc.adapters} adapters of rank {desc.max_rank} are too few for tiles"


def tensor_cores(p: Problem, names: Names) -> Geometry | str:
    """A block for 64 tokens, 64 of the rank and a split of k, then for 32 tokens and a range of columns."""
    desc, own = p.desc, _Products(p, names)
    if refusal := _slower(desc, p.offsets is not None):
        return refusal
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
    ordered = p.offsets is None and desc.adapters > 1
    shrink, expand = _shrink_mma(p, own, ordered), _expand_mma(p, own, ordered, _RESIDENT[bool(majors[1])])
    nbytes = aligned(shrink["splits"] * desc.tokens * -(-desc.max_rank // 8) * 8 * 4)
    before, places = _order(p, own, nbytes) if ordered else ((), {"order": "@null", "list": "@null"})
    if isinstance(before, str):
        return before
    shrink |= {**places, "wide": _wide(own.x, None, own.copy) | bits[0] << 1}
    expand |= {**places, "wide": _wide(None, own.base, own.y) | bits[1], "splits": shrink["splits"]}
    columns = max(1, -(-desc.max_rank // _MMA_TILE)) if own.copy is not None or desc.max_rank else 0
    listed = before[0].params["entries"] if before else 0
    tiles, rows = listed or -(-desc.tokens // _MMA_TILE), 2 * listed or -(-desc.tokens // _ROWS)
    if before:
        nbytes = before[0].params["list"] + aligned(16 * listed)
    return own.geometry(
        Step("shrink_mma", (tiles * columns * shrink["splits"] * shrink["shares"], 1, 1), shrink, {"B_K": majors[0]},
             _MMA_THREADS, _RING),
        Step("expand_mma" if majors[1] else "expand_mma_across",
             (rows * expand["ranges"] * expand["shares"], 1, 1), expand, {}, THREADS, held),
        nbytes, *before,
    )  # fmt: skip


def _order(p: Problem, own: _Products, at: int) -> tuple[tuple[Step, ...] | str, dict[str, Any]]:
    """The launch that makes the list of tiles, or why there is none, and where in the workspace list and order are."""
    desc, (most, least) = p.desc, _ORDER_WARPS
    buckets = desc.adapters + 1
    warps = min(most, p.device.smem // 4 // buckets - 3, max(least, -(-desc.tokens // 128)))
    if warps < least or desc.tokens >= 2**31:
        return f"{desc.tokens} tokens of {desc.adapters} adapters are too many for one block to sort", {}
    entries = desc.tokens // _MMA_TILE + min(desc.tokens, buckets)
    places = {"order": at, "list": at + aligned(4 * desc.tokens)}
    params = {
        **{name: own.shrink[name] for name in ("tokens", "adapters", "ids_step", "wide_ids")}, **places,
        "entries": entries, "warps": warps, "tile": _MMA_TILE,
    }  # fmt: skip
    step = Step("order", (1, 1, 1), params, {}, _ORDER_THREADS, 4 * ((warps + 2) * buckets + 2))
    return (step,), {name: ("@workspace", place) for name, place in places.items()}


def _shrink_mma(p: Problem, own: _Products, ordered: bool) -> dict[str, Any]:
    """Splits of k with which all blocks run at once, and more where a tile of neighbours may have many adapters."""
    desc, sms = p.desc, max(1, p.device.sms)
    tiles = _tiles(desc, _MMA_TILE, ordered) * max(1, -(-desc.max_rank // _MMA_TILE))
    each = -(-own.k // max(1, min(_SHRINKS * sms // tiles, own.k // _SHORTEST)))
    slices = -(-min(each, _LONGEST) // _SLICE) or 1
    splits = max(1, -(-own.k // (slices * _SLICE)))
    shares = 1 if ordered else _shares(p, _MMA_TILE, 4 * sms // (tiles * splits))
    return {**own.shrink, "tile": _MMA_TILE, "each": slices, "splits": splits, "shares": shares}


def _expand_mma(p: Problem, own: _Products, ordered: bool, resident: int) -> dict[str, Any]:
    """Ranges of columns that take the fewest steps, two of which are what a block begins with, in waves of blocks."""
    tiles, steps, sms = _tiles(p.desc, _ROWS, ordered), -(-own.n // _COLUMNS), max(1, p.device.sms)
    wave = resident * sms
    each = min(range(1, steps + 1), key=lambda n: (-(-tiles * -(-steps // n) // wave) * (n + 2), n), default=1)
    ranges = -(-steps // each)
    shares = 1 if ordered else _shares(p, _ROWS, 8 * sms // (tiles * max(1, ranges)))
    return {**own.expand, "tile": _ROWS, "each": each * _COLUMNS, "ranges": ranges, "shares": shares}


def _shares(p: Problem, tokens: int, blocks: int) -> int:
    """Blocks that have the adapters of a tile in turn; one of them is having none."""
    return int(max(1, min(blocks, tokens, p.desc.adapters + 1)))
