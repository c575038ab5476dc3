"""Attention over packed sequences of any lengths: lists of tiles, and the launches of kernels that walk them.

The host knows only totals. A kernel with one block for each list turns the bounds into lists of tiles (`ragged.cuh`). A
list has room for as many tiles as any bounds may need; blocks that find no tile end at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ...core import ElementKind, Geometry, Kernel, Params, Problem, Step, View
from ...core.variant import aligned
from .dense.backward import Arrangement, Cut
from .dense.bias_gradients import SINKS_ALONE
from .dense.forward import FIELDS, L2, Form, layout, parts, scales, split_scale, strides, wide
from .score_terms import LEVELS, TERMS, WINDOW, level, refuse_terms, terms, window

QUERIES, KEYS = 0, 1  # sides
LONGEST_FIRST, ASCENDING, AS_THEY_STAND = 0, 1, 2  # orders of a list
SEGMENTS = 64  # groups of sequences whose keys fit the L2 cache together; at most so many
TILE_BYTES = 32
TILE_THREADS = 1024
MOST = 2**31 - 2**16  # rows of a side, at most

_TILES = WINDOW | dict.fromkeys(("bounds_q", "bounds_k"), "ptr")
_TILES |= dict.fromkeys(("list", "second", "starts"), "workspace") | {"status": "status"}
_TILES |= dict.fromkeys(("batch", "total_q", "total_k", "query_tile", "segment"), "i64")
_TILES |= dict.fromkeys(("left", "right"), "i64") | dict.fromkeys(("side", "order"), "i32[2]")
_TILES |= dict.fromkeys(("bound_stride", "max_len", "tile_rows", "capacity"), "i64[2]")
_TILES |= dict.fromkeys(("bottom_right", "wide_bounds"), "i32")
_LISTED = {"list": "workspace", "bottom_right": "i32"}
_BITS = {"mask_indptr": "ptr", "mask_bytes": "i64", "mask_indptr_stride": "i64", "wide_mask_indptr": "i32"}
"""Of a mask of bits, which stands in the place of `mask`."""


def tiles_kernel(name: str, bounds: str, fields: Mapping[str, str] | None = None) -> Kernel:
    """The kernel that writes lists; `bounds` is the C++ policy that finds where sequences begin."""
    params = Params(f"{name}TilesParams", **_TILES, **(fields or {}))
    call = f"ragged_tiles<attention::{bounds}>"
    return Kernel("ragged_tiles", call, params, threads=TILE_THREADS, min_blocks=1)


PACKED_TILES = tiles_kernel("Packed", "PackedBounds")


@dataclass(frozen=True)
class TileList:
    """A list of one side's tiles, of `rows` rows each."""

    side: int
    rows: int
    order: int

    def capacity(self, desc: Any) -> int:
        """The most tiles that any bounds cut the side into, with the rows before and after all sequences."""
        total = desc.total_q if self.side == QUERIES else desc.total_k
        return int(total + min(desc.batch_size + 2, total) * (self.rows - 1)) // self.rows


def packed_strides(*views: View | None) -> list[tuple[int, ...]]:
    """Strides of [rows, heads, d] for a kernel: 0 along sequences, then head and row."""
    return [(0, v.strides[1], v.strides[0]) if v is not None else (0, 0, 0) for v in views]


def bytes_of_keys(desc: Any) -> int:
    """Bytes of all keys and values of one head."""
    return int(desc.total_k * (desc.d_k + desc.d_v) * desc.element.itemsize)


def list_tiles(
    p: Problem,
    lists: Sequence[TileList],
    bounds: Sequence[str],
    segment: int,
    query_tile: int = 1,
    more: Mapping[str, Any] | None = None,
    start: int = 0,
) -> tuple[Step, list[int], int]:
    """The step that writes one or two lists, their offsets in the workspace from `start` on, and the end of theirs.

    `bounds`: names of the operands, one where only the queries are packed. `segment`: keys of the sequences that are
    ordered together. `more`: what else the policy reads.
    """
    desc = p.desc
    views = [p.views[name] for name in bounds]
    capacities = [one.capacity(desc) for one in lists]
    offsets, at = [], start
    for capacity in capacities:
        offsets.append(at)
        at += aligned(TILE_BYTES * (capacity + 1))
    params = {
        "bounds_q": bounds[0], "bounds_k": bounds[-1], "list": offsets[0], "second": offsets[-1], "starts": at,
        "batch": desc.batch_size, "total_q": desc.total_q, "total_k": desc.total_k, "query_tile": query_tile,
        "segment": max(1, segment, -(-desc.total_k // SEGMENTS)),
        "bound_stride": [v.strides[0] for v in views] + [0] * (2 - len(views)),
        "max_len": [desc.max_seqlen_q, desc.max_seqlen_k], "tile_rows": [one.rows for one in lists],
        "capacity": capacities, "side": [one.side for one in lists], "order": [one.order for one in lists],
        **window(desc), "bottom_right": int(desc.causal_alignment == "bottom_right"),
        "wide_bounds": sum(1 << n for n, v in enumerate(views) if v.element is ElementKind.I64),
        **(more or {}),
    }  # fmt: skip
    at += aligned(8 * 3 * (desc.batch_size + 3) * len(lists))
    return Step("ragged_tiles", (len(lists), 1, 1), params, {}, TILE_THREADS), offsets, at


def together(desc: Any) -> int:
    """Keys of one head that fit the L2 cache."""
    return L2 // max(1, int((desc.d_k + desc.d_v) * desc.element.itemsize))


def too_long(desc: Any) -> str | None:
    """Why a list cannot count the rows."""
    return f"more than {MOST} rows" if max(desc.total_q, desc.total_k) > MOST else None


def _forward(p: Problem, tiles: TileList, offset: int, views: Sequence[View]) -> dict[str, Any]:
    """Parameters of the kernels that walk a list of tiles of queries, without strides."""
    desc, keys = p.desc, bytes_of_keys(p.desc)
    return {
        "query_len": desc.total_q, "key_len": desc.total_k, "shift": 0, "tiles": tiles.capacity(desc),
        "heads": desc.num_heads, "ticket": offset + TILE_BYTES * tiles.capacity(desc),
        **scales(desc), "num_heads": desc.num_heads, "group": desc.group, "d_k": desc.d_k, "d_v": desc.d_v,
        "causal": int(desc.is_causal), **window(desc), "wide": wide(*views), "list": offset,
        "chunk": max(1, min(L2 // max(1, keys), desc.num_kv_heads)) * desc.group,
        "bottom_right": int(desc.causal_alignment == "bottom_right"),
    }  # fmt: skip


def term_values(p: Problem, scale: float) -> dict[str, Any]:
    """As `terms`; null pointers for operands that the op has not, and for slopes [0, heads], without a first row."""
    values: dict[str, Any] = {"mask": "@null"}
    values |= {} if p.desc.batch_size else {"slopes": "@null"}
    values |= {} if hasattr(p.desc, "dropout_p") else {"seed_value": 0, "offset_value": 0}
    if "mask_bits" in p.views:
        starts, held = p.mask_indptr, p.desc.mask_bytes
        values |= {  # a mask of no bytes may have no address; it hides all keys, and nothing is read of it
            "mask": "mask_bits" if held else "mask_indptr", "mask_bytes": held,
            "mask_indptr_stride": 0 if starts is None else starts.strides[0],
            "wide_mask_indptr": int(starts is not None and starts.element is ElementKind.I64),
        }  # fmt: skip
    return {**terms(p, scale), **values}


def _with_terms(
    p: Problem, kernel: str, axes: Mapping[str, Any], keys: int
) -> tuple[str, Mapping[str, Any], Mapping[str, Any]] | str:
    """The kernel for the problem's score terms, its axes, and what it reads of them, or why there is none.

    `keys`: no sequence has more.
    """
    more = level(p)
    if not more:
        return kernel, axes, {}
    if why := refuse_terms(p.desc.total_q, keys):
        return why
    axes = {name: value for name, value in axes.items() if more < 2 or name != "WIDE"}
    return kernel + LEVELS[more], axes, term_values(p, split_scale(p.desc)["scale"])


def packed_form(bounds: tuple[str, str], bits: bool = False) -> Form:
    """Queries, keys and values all packed. bits: whether the op has masks of bits; else it has dropout."""

    def launch(p: Problem, kernel: str, axes: Mapping[str, Any], rows: int, threads: int, smem: int) -> Geometry | str:
        if why := too_long(p.desc):
            return why
        chosen = _with_terms(p, kernel, axes, p.desc.total_k)
        if isinstance(chosen, str):
            return chosen
        kernel, axes, more = chosen
        views, tiles = (p.q, p.k, p.v, p.y), TileList(QUERIES, rows, LONGEST_FIRST)
        step, (offset,), workspace = list_tiles(p, (tiles,), bounds, together(p.desc))
        params = {"stride": packed_strides(*views), **_forward(p, tiles, offset, views), **more}
        grid = (tiles.capacity(p.desc) * p.desc.num_heads, parts(p.desc), 1)
        return Geometry((step, Step(kernel, grid, params, axes, threads, smem)), workspace, layout(*views))

    params = Params("FlashVarlenParams", **FIELDS, **_LISTED)
    of_terms = Params("FlashVarlenTermsParams", **(FIELDS | _LISTED | TERMS | (_BITS if bits else {})))
    return Form(params, "attention::Ragged", launch, (PACKED_TILES,), of_terms)


def paged_form(bounds: str, fields: Mapping[str, str], values: Callable[[Problem], Mapping[str, Any]]) -> Form:
    """Packed queries, keys and values in pages; `fields` and `values` are the tables' (`table_fields`)."""

    def launch(p: Problem, kernel: str, axes: Mapping[str, Any], rows: int, threads: int, smem: int) -> Geometry | str:
        desc, views = p.desc, (p.q, p.k_cache, p.v_cache, p.y)
        if desc.total_q > MOST or max(desc.max_cache_len, desc.page_size) >= 2**30 or desc.num_pages >= 2**31:
            return f"more than {MOST} queries, or 2^30 keys or 2^31 pages or more"
        chosen = _with_terms(p, kernel, axes, desc.max_cache_len)
        if isinstance(chosen, str):
            return chosen
        kernel, axes, more = chosen
        tiles = TileList(QUERIES, rows, LONGEST_FIRST)
        read = {**values(p), "max_keys": desc.max_cache_len}
        step, (offset,), workspace = list_tiles(p, (tiles,), (bounds,), together(desc), more=read)
        q, y = packed_strides(p.q, p.y)
        k, v = strides(p.k_cache, p.v_cache)
        params = {"stride": [q, k, v, y], "k": "k_cache", "v": "v_cache", **values(p)}
        params |= {**_forward(p, tiles, offset, views), **more}
        grid = (tiles.capacity(desc) * desc.num_heads, parts(desc), 1)
        return Geometry((step, Step(kernel, grid, params, axes, threads, smem)), workspace, layout(*views))

    params = Params("FlashPagedParams", **FIELDS, **_LISTED, **fields)
    of_terms = Params("FlashPagedTermsParams", **(FIELDS | _LISTED | TERMS | _BITS), **fields)
    before = tiles_kernel("Paged", "PagedBounds", {**fields, "max_keys": "i64"})
    names = ("q", "k_cache", "v_cache", "y")
    return Form(params, "attention::Paged", launch, (before,), of_terms, names)


def packed_arrangement(
    bounds: tuple[str, str], kernels: tuple[Kernel, ...], gradient: Callable[..., tuple[list[Step], int]]
) -> Arrangement:
    """The backward's operands, all packed; gradients of rows outside all sequences are zeros.

    kernels and gradient: those of dslopes (packed_slopes.py).
    """

    def cut(p: Problem, queries: int, keys: int, sorted_: bool) -> Cut | str:
        desc = p.desc
        if why := too_long(desc):
            return why
        lists = TileList(QUERIES, queries, LONGEST_FIRST if sorted_ else AS_THEY_STAND), TileList(KEYS, keys, ASCENDING)
        step, (of_queries, of_keys), start = list_tiles(p, lists, bounds, 0, queries)

        def steps(segment: int) -> tuple[Step, ...]:
            return (replace(step, params={**step.params, "segment": max(step.params["segment"], segment)}),)

        sizes = {
            "query_len": desc.total_q, "key_len": desc.total_k, "shift": 0,
            "bottom_right": int(desc.causal_alignment == "bottom_right"),
        }  # fmt: skip
        tiles, key_tiles = (one.capacity(desc) for one in lists)
        return Cut(1, tiles, key_tiles, sizes, steps, start, (of_queries, of_keys))

    fields = {"list": "workspace", "second": "workspace", "bottom_right": "i32"}
    policy = "attention::Ragged"
    return Arrangement(
        "Varlen", policy, packed_strides, cut, fields, (PACKED_TILES, *kernels), term_values, SINKS_ALONE,
        neighbours=8, rising=1, gradient=partial(gradient, bounds),
    )  # fmt: skip
