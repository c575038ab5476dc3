"""Where a page table sends the tokens of a batch: the rule of the paged ops in NumPy, and random tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....core import ElementKind, InvalidProblemError, Problem, derived, integer
from ....core.element import INDICES
from ....schedules.map import divider

PAGE_TABLES = ("page_table", "kv_indices", "kv_indptr", "kv_last_page_len")  # `PagedTable`
TABLES = (*PAGE_TABLES, "cache_offsets", "token_indptr")  # of tokens that are written
APPEND_TABLES = (*TABLES, "slot_mapping")
READ_TABLES = (*PAGE_TABLES, "lengths")
CACHE = "num_pages num_kv_heads page_size"  # and the columns
INDEX = INDICES[::-1]


def _room(desc: Any) -> int:
    return int(desc.page_size * max(desc.max_pages, desc.num_indices))


def cache_len() -> Any:
    """The field `max_cache_len`: at most, and by default, what the table has room for."""
    return integer(derived(_room, lambda desc, given: min(given, _room(desc))), minimum=0)


def table_fields(names: Sequence[str]) -> dict[str, str]:
    """Fields of a kernel's Params for the tables `names`, which begin with PAGE_TABLES: what `pages.cuh` reads."""
    return {
        **dict.fromkeys(names, "ptr"), "table_strides": f"i64[{len(names)}][2]", "table_len": "i64", "pages": "i64",
        "page_size": "i64", "by_page": "u32[3]", "wide_tables": "u32",
    }  # fmt: skip


def table_params(p: Problem, names: Sequence[str]) -> dict[str, Any]:
    """Their values."""
    tables: list[Any] = [p.views[name] for name in names]
    return {
        "table_strides": [[0, 0] if t is None else [0, *t.strides][-2:] for t in tables],
        "wide_tables": sum(1 << i for i, t in enumerate(tables) if t is not None and t.element is ElementKind.I64),
        "table_len": p.desc.max_pages if p.kv_indptr is None else p.desc.num_indices, "pages": p.desc.num_pages,
        "page_size": p.desc.page_size, "by_page": divider(p.desc.page_size),
    }  # fmt: skip


def check_tables(views: Mapping[str, Any]) -> None:
    """Refuse tables that do not go together."""
    there = {name for name in PAGE_TABLES if views[name] is not None}
    if ("page_table" in there) == ("kv_indices" in there) or ("kv_indices" in there) != ("kv_indptr" in there):
        raise InvalidProblemError("give page_table, or kv_indices and kv_indptr, and not both tables")


def check_lengths(views: Mapping[str, Any]) -> None:
    """Refuse tables, and lengths of what is read through them, that do not go together."""
    check_tables(views)
    if (views["lengths"] is None) == (views["kv_last_page_len"] is None):
        raise InvalidProblemError("give lengths or, with kv_indices, kv_last_page_len in its place")
    if views["kv_last_page_len"] is not None and views["kv_indices"] is None:
        raise InvalidProblemError("kv_last_page_len goes with kv_indices; give lengths with page_table")


def sequence_of(token: Any, token_indptr: Any) -> Any:
    """The last sequence whose first bound is at most the token, by bisection as in the kernel."""
    low, high = np.zeros_like(token), np.full_like(token, len(token_indptr) - 1)
    while (open_ := high - low > 1).any():
        middle = (low + high) // 2
        right = token_indptr[middle] <= token
        low = np.where(open_ & right, middle, low)
        high = np.where(open_ & ~right, middle, high)
    return low


def check_new_tokens(desc: Any, views: Mapping[str, Any], new: str) -> None:
    """Refuse tables of new tokens, those of the operand `new`, that do not go together."""
    there = {name for name in TABLES if views[name] is not None}
    check_tables(views)
    if ("cache_offsets" in there) == ("kv_last_page_len" in there) or {"page_table", "kv_last_page_len"} <= there:
        raise InvalidProblemError("give cache_offsets or, with kv_indices, kv_last_page_len in its place")
    if "token_indptr" not in there and desc.num_tokens % max(desc.batch_size, 1):
        raise InvalidProblemError(
            f"without token_indptr every sequence gets as many tokens; {new} has {desc.num_tokens} for batch_size "
            f"{desc.batch_size}"
        )


def locate(desc: Any, *, slot_mapping: Any = None, **tables: Any) -> tuple[Any, Any, Any, int | None]:
    """The tokens that have a place, their pages and cells, and the first token that should have one and has none."""
    if slot_mapping is not None:
        slot = np.asarray(slot_mapping).astype(np.int64)
        good, bad = (slot >= 0) & (slot < desc.num_pages * desc.page_size), slot >= desc.num_pages * desc.page_size
        first_bad = int(np.flatnonzero(bad)[0]) if bad.any() else None
        return np.flatnonzero(good), slot[good] // desc.page_size, slot[good] % desc.page_size, first_bad
    token, page, cell, _, bad = placed(desc, **tables)
    return token, page, cell, bad


def placed(
    desc: Any, *, page_table: Any = None, cache_offsets: Any = None, token_indptr: Any = None, kv_indices: Any = None,
    kv_indptr: Any = None, kv_last_page_len: Any = None,
) -> tuple[Any, Any, Any, Any, int | None]:  # fmt: skip
    """The same with the tokens' positions in their sequences, after the cells."""
    empty = np.zeros(0, np.int64)
    if not desc.batch_size or not desc.num_tokens:
        return empty, empty, empty, empty, None
    page_table, cache_offsets, token_indptr, kv_indices, kv_indptr, last = (
        None if a is None else np.asarray(a).astype(np.int64)
        for a in (page_table, cache_offsets, token_indptr, kv_indices, kv_indptr, kv_last_page_len)
    )
    token = np.arange(desc.num_tokens)
    if token_indptr is None:
        count = np.int64(desc.num_tokens // desc.batch_size)
        sample = token // count
        row = token - sample * count
        real = np.ones(desc.num_tokens, bool)
    else:
        sample = sequence_of(token, token_indptr)
        first, end = token_indptr[sample], token_indptr[sample + 1]
        row, count, real = token - first, end - first, (first <= token) & (token < end)
    with np.errstate(over="ignore"):
        if last is None:
            place = cache_offsets[sample] + row
        else:
            held = (kv_indptr[sample + 1] - kv_indptr[sample] - 1) * desc.page_size + last[sample]
            place = held - count + row
        slot, cell = place // desc.page_size, place % desc.page_size
        if page_table is not None:
            good = (place >= 0) & (slot < desc.max_pages)
            at: Any = (sample, np.where(good, slot, 0))
            table = page_table
        else:
            begin = kv_indptr[sample]
            good = (place >= 0) & (begin >= 0) & (begin < desc.num_indices)
            good &= (slot < kv_indptr[sample + 1] - begin) & (slot < desc.num_indices - begin)
            at, table = np.where(good, begin + slot, 0), kv_indices
        page = table[at] if table.size else np.full(desc.num_tokens, -1)
    good &= real & (page >= 0) & (page < desc.num_pages)
    bad = np.flatnonzero(real & ~good)
    return token[good], page[good], cell[good], place[good], int(bad[0]) if bad.size else None


def random_ints(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Raw material for `settle`."""
    return rng.integers(0, 2**30, shape)


def settle(desc: Any, arrays: dict[str, Any], names: Sequence[str] = TABLES) -> None:
    """Turn random integers into legal tables `names`: every sequence has pages of its own, and room for all new tokens.

    Tokens of no sequence get a slot mapping, where there is one.
    """
    batch = desc.batch_size
    each = (desc.max_pages if desc.max_pages else desc.num_indices // max(batch, 1)) if batch else 0
    padded = desc.max_pages > 0
    dtype = next((arrays[n].dtype for n in names if arrays.get(n) is not None), np.dtype(np.int32))
    raw = {n: None if arrays.get(n) is None else np.asarray(arrays[n]).astype(np.int64) for n in names}
    bounds = None
    if raw["token_indptr"] is not None:
        bounds = np.sort(raw["token_indptr"] % (desc.num_tokens + 1))
        bounds[0] = 0
    counts = np.diff(bounds) if bounds is not None else np.full(batch, desc.num_tokens // max(batch, 1))
    seed = raw["cache_offsets"] if raw["cache_offsets"] is not None else np.arange(batch)
    room = np.maximum(each * desc.page_size - counts, 0)
    offsets = seed % (room + 1)
    pages = np.random.default_rng(int(offsets.sum())).permutation(max(desc.num_pages, 1))
    made: dict[str, Any] = {"token_indptr": bounds}
    if not batch and desc.num_tokens and "slot_mapping" in names:
        slots = np.random.default_rng(desc.num_tokens).permutation(desc.num_pages * desc.page_size)
        made = {"slot_mapping": np.append(slots, np.full(desc.num_tokens, -1))[: desc.num_tokens]}
        made["slot_mapping"][1::5] = -1  # padding
    elif padded or not batch:
        table = np.resize(pages, (batch, desc.max_pages))  # each page once, where there are enough
        made |= {"page_table": table, "cache_offsets": offsets}
    elif raw["kv_last_page_len"] is not None:
        lengths = offsets + counts
        used = np.maximum(-(-lengths // desc.page_size), 1)
        made |= {"kv_indptr": np.concatenate([[0], np.cumsum(used)])}
        made |= {"kv_last_page_len": lengths - (used - 1) * desc.page_size}
    else:
        made |= {"kv_indptr": np.arange(batch + 1) * each, "cache_offsets": offsets}
    if not padded and batch:
        made["kv_indices"] = np.resize(pages, desc.num_indices)
    for name in names:
        value = made.get(name)
        kept = arrays[name].dtype if arrays.get(name) is not None else dtype
        arrays[name] = None if value is None else np.ascontiguousarray(value).astype(kept)


def _wrapped(n: int) -> int:
    """As a sum of 64-bit integers comes out."""
    return (n + 2**63) % 2**64 - 2**63


def cells_of(
    desc: Any, b: int, *, page_table: Any = None, kv_indices: Any = None, kv_indptr: Any = None,
    kv_last_page_len: Any = None, lengths: Any = None, gaps: bool = True, window: int | None = None, spared: int = 0,
) -> tuple[Any, Any, str | None]:  # fmt: skip
    """The pages and cells, in order, of sequence b's tokens, and the first thing wrong with its tables.

    gaps: the tokens of a missing page are left out; else they end the sequence. window: only the last token and as many
    before it. spared: so many tokens at the end are left out.
    """
    if page_table is not None:
        named, row = desc.max_pages, np.asarray(page_table[b])
    else:
        begin = int(kv_indptr[b])
        named = _wrapped(int(kv_indptr[b + 1]) - begin)
        inside = 0 <= begin < desc.num_indices
        row = np.asarray(kv_indices[begin : begin + max(0, min(named, desc.num_indices - begin))] if inside else [])
    if kv_last_page_len is None:
        given = int(lengths[b])
    else:
        given = _wrapped((named - 1) * desc.page_size + int(kv_last_page_len[b])) if named else 0
    length = max(0, min(given, desc.max_cache_len, len(row) * desc.page_size))
    wrong = None if given == length else f"sequence {b} has {given} tokens and room for {length}"
    place = np.arange(0 if window is None else max(0, length - 1 - window), max(0, length - spared))
    page = row[place // desc.page_size].astype(np.int64) if len(place) else np.zeros(0, np.int64)
    there = (page >= 0) & (page < desc.num_pages)
    if wrong is None and not there.all():
        wrong = f"position {place[~there][0]} of sequence {b} is in page {page[~there][0]} of {desc.num_pages}"
    if not gaps:
        there = np.logical_and.accumulate(there)
    return page[there], place[there] % desc.page_size, wrong


def settle_cells(desc: Any, arrays: dict[str, Any]) -> None:
    """Turn random integers into legal tables of caches that hold each sequence's tokens."""
    batch, padded = desc.batch_size, desc.max_pages > 0 or not desc.batch_size
    each = 0 if not batch else desc.max_pages if padded else desc.num_indices // batch
    raw = next((np.asarray(arrays[n]) for n in READ_TABLES if arrays.get(n) is not None), np.zeros(1, np.int32))
    rng = np.random.default_rng(int(raw.astype(np.int64).sum()))
    room = min(each * desc.page_size, desc.max_cache_len) if desc.num_pages else 0
    lengths = rng.integers(0, room + 1, batch)
    pages = rng.permutation(max(desc.num_pages, 1))
    made: dict[str, Any] = {}
    if padded:
        made = {"page_table": np.resize(pages, (batch, desc.max_pages)), "lengths": lengths}
    else:
        used = -(-lengths // desc.page_size)
        made = {"kv_indices": np.resize(pages, desc.num_indices), "kv_indptr": np.concatenate([[0], np.cumsum(used)])}
        if arrays.get("kv_last_page_len") is not None:
            made["kv_last_page_len"] = lengths - (used - 1) * desc.page_size
        else:
            made["lengths"] = lengths
    for name in READ_TABLES:
        value, old = made.get(name), arrays.get(name)
        dtype = raw.dtype if old is None else old.dtype
        arrays[name] = None if value is None else np.ascontiguousarray(value).astype(dtype)
