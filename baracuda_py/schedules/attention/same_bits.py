"""Rows of dense, packed and paged attention that sum keys as `batch_paged_extend` does, so that all have its bits.

Its kernels read packed queries and keys in pages. A dense key or value array is a cache of one page a sequence, and
packed ones are pages of one key; a small kernel before writes the page tables that say so
(`kernels/attention/paged/extend_tables.cuh`). They are taken by `PlanPreference(same_bits=True)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ...core import ElementKind, Kernel, Params, Problem, Step, Variant, View
from ...core.variant import aligned
from ..map import divider
from .dense.forward import strides
from .extend import Extend, Seen, extend_rows, renamed
from .packed import packed_strides
from .score_terms import UNBOUNDED, drop_probability, window

THREADS = 256
_MADE = dict.fromkeys(("made_bounds", "made_pages", "made_lengths"), "workspace") | {"status": "status", "batch": "i64"}
DENSE_TABLES = Kernel(
    "dense_tables", f"extend_dense_tables<{THREADS}>",
    Params(
        "ExtendDenseTablesParams", **_MADE, batch_index="ptr",
        **dict.fromkeys(("index_stride", "cache_batch", "query_len", "key_len"), "i64"), wide_index="i32",
    ),
    threads=THREADS,
)  # fmt: skip
PACKED_TABLES = Kernel(
    "packed_tables", f"extend_packed_tables<{THREADS}>",
    Params(
        "ExtendPackedTablesParams", **_MADE, bounds_k="ptr",
        **dict.fromkeys(("bound_stride", "total_k", "max_keys"), "i64"), wide_bounds="i32",
    ),
    threads=THREADS,
)  # fmt: skip


def same_bits_rows(
    fields: Mapping[str, str], see: Callable[[Problem], Seen | str], tables: Kernel | None = None,
    one_query: bool = False,
) -> tuple[Variant, ...]:  # fmt: skip
    """The rows of an op whose operands are seen so; `fields` are `page_tables.table_fields`."""
    rows = extend_rows(Extend(fields, see, tables, one_query))
    return tuple(replace(renamed(row, "shared_"), name=f"shared_{row.name}") for row in rows)


def without_masks(p: Problem) -> str | None:
    """Why these rows do not serve a problem's score terms, or None."""
    for name in ("mask", "mask_bits", "starts", "weights", "mean_weights"):
        if p.views.get(name) is not None:
            return f"not for {name}"
    return "not for dropout" if drop_probability(p.desc) else None


def paged(values: Callable[[Problem], Mapping[str, Any]]) -> Callable[[Problem], Seen | str]:
    """Packed queries over pages, as `batch_paged_extend` and `batch_paged_prefill` have them."""

    def see(p: Problem) -> Seen | str:
        if why := without_masks(p):
            return why
        desc, (q, y) = p.desc, packed_strides(p.q, p.y)
        k, v = strides(p.k_cache, p.v_cache)
        return Seen(
            (p.q, p.k_cache, p.v_cache, p.y), q, k, v, y, (0, desc.total_q, 1), values(p), desc.batch_size,
            desc.total_q, desc.max_seqlen_q, desc.max_cache_len, _reach(desc), _bounds(p.qo_indptr),
            (desc.num_pages, desc.page_size),
            {"k": "k_cache", "v": "v_cache"} | ({} if "tree_mask" in p.views else {"tree_mask": "@null"}),
        )  # fmt: skip

    return see


def packed(bounds: tuple[str, str]) -> Callable[[Problem], Seen | str]:
    """Packed queries and keys; `bounds` are the operands with theirs."""

    def see(p: Problem) -> Seen | str:
        if why := without_masks(p):
            return why
        desc, of_keys = p.desc, p.views[bounds[1]]
        q, k, v, y = packed_strides(p.q, p.k, p.v, p.y)
        stride, wide = _bounds(of_keys)
        made, pointers, end = _made({"bounds": desc.num_bounds, "pages": desc.total_k, "lengths": desc.batch_size})
        params = {
            **made, "batch": desc.batch_size, "bounds_k": bounds[1], "bound_stride": stride, "total_k": desc.total_k,
            "max_keys": desc.key_len, "wide_bounds": int(wide),
        }  # fmt: skip
        threads = max(desc.total_k, 32 * desc.num_bounds)
        pointers = {
            "kv_indptr": pointers["bounds"], "kv_indices": pointers["pages"], "lengths": pointers["lengths"],
            "page_table": "@null", "kv_last_page_len": "@null", "qo_indptr": bounds[0], "tree_mask": "@null",
        }  # fmt: skip
        return Seen(
            (p.q, p.k, p.v, p.y), q, _one_key(k), _one_key(v), y, (0, desc.total_q, 1),
            _table_values(1, desc.total_k, desc.total_k), desc.batch_size, desc.total_q, desc.max_seqlen_q,
            desc.key_len, _reach(desc), _bounds(p.views[bounds[0]]), (desc.total_k, 1), pointers,
            (Step("packed_tables", (-(-threads // THREADS), 1, 1), params, {}, THREADS),), end, True,
        )  # fmt: skip

    return see


def dense(p: Problem) -> Seen | str:
    """Queries and keys of [batch, heads, length, d]."""
    if why := without_masks(p):
        return why
    desc = p.desc
    q, k, v, y = strides(p.q, p.k, p.v, p.y)
    heads, queries = desc.num_heads, desc.query_len
    return _one_page(
        p, (p.q, p.k, p.v, p.y), _counted_on(q, queries), k, v, _counted_on(y, queries),
        _counted_on((heads * queries, queries, 1), queries), queries, desc.key_len, desc.batch_size, _reach(desc),
    )  # fmt: skip


def cached(p: Problem) -> Seen | str:
    """One query a sequence, of [batch, heads, d], over the keys that a dense cache holds, as in `flash_decoding`."""
    if why := without_masks(p):
        return why
    desc, (q, y) = p.desc, packed_strides(p.q, p.y)
    k, v = strides(p.k, p.v)
    left = UNBOUNDED if desc.window_left is None else min(desc.window_left, UNBOUNDED)
    seen = _one_page(
        p, (p.q, p.k, p.v, p.y), q, k, v, y, (0, 1, desc.num_heads), 1, desc.max_cache_len, desc.cache_batch,
        {"left": left, "right": 0, "bottom_right": 1},
    )  # fmt: skip
    if p.lengths is None:
        return seen
    tables = dict(seen.tables)
    tables["table_strides"] = [*tables["table_strides"][:-1], [0, p.lengths.strides[0]]]
    tables["wide_tables"] |= int(p.lengths.element is ElementKind.I64) << (len(tables["table_strides"]) - 1)
    return replace(seen, tables=tables, pointers={**seen.pointers, "lengths": "lengths"})


def _one_page(
    p: Problem, views: tuple[View, View, View, View], q: Any, k: Any, v: Any, y: Any, lse: Any, queries: int, keys: int,
    pages: int, reach: Mapping[str, int],
) -> Seen:  # fmt: skip
    """Operands of which each sequence has one page."""
    batch, index = p.desc.batch_size, p.views.get("batch_index")
    made, pointers, end = _made({"bounds": batch + 1, "pages": batch, "lengths": batch})
    stride, wide = (0, False) if index is None else _bounds(index)
    params = {
        **made, "batch": batch, "query_len": queries, "key_len": keys, "index_stride": stride, "cache_batch": pages,
        "wide_index": int(wide), **({} if index is not None else {"batch_index": "@null"}),
    }  # fmt: skip
    pointers = {
        "page_table": pointers["pages"], "lengths": pointers["lengths"], "qo_indptr": pointers["bounds"],
        **dict.fromkeys(("kv_indices", "kv_indptr", "kv_last_page_len", "tree_mask"), "@null"),
    }  # fmt: skip
    return Seen(
        views, q, k, v, y, lse, _table_values(max(keys, 1), pages, 1), batch, batch * queries, queries, keys, reach,
        (1, False), (pages, max(keys, 1)), pointers,
        (Step("dense_tables", (batch // THREADS + 1, 1, 1), params, {}, THREADS),), end,
    )  # fmt: skip


def _made(counts: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Arrays of int32 in the workspace: what the kernel that writes them is given, their places, and where they end."""
    made, places, at = {}, {}, 0
    for name, count in counts.items():
        made[f"made_{name}"], places[name] = at, ("@workspace", at)
        at += aligned(4 * count)
    return made, places, at


def _table_values(page_size: int, pages: int, table_len: int) -> dict[str, Any]:
    """As `table_params` gives them, of dense tables of int32: a padded one has one column."""
    return {
        "table_strides": [[1, 1], [0, 1], [0, 1], [0, 1], [0, 1]], "wide_tables": 0, "table_len": table_len,
        "pages": pages, "page_size": page_size, "by_page": divider(page_size),
    }  # fmt: skip


def _reach(desc: Any) -> dict[str, int]:
    return {**window(desc), "bottom_right": int(desc.causal_alignment == "bottom_right")}


def _bounds(view: View) -> tuple[int, bool]:
    return view.strides[0], view.element is ElementKind.I64


def _one_key(packed: tuple[int, ...]) -> tuple[int, int, int]:
    """Strides of pages of one key each, of those of packed keys."""
    return packed[2], packed[1], packed[2]


def _counted_on(stride: tuple[int, ...], queries: int) -> tuple[int, int, int]:
    """Strides of a batch, a head and a row, where rows count on from batch to batch."""
    batch, head, row = stride
    return batch - queries * row, head, row
