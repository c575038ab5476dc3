"""paged_kv_append: write new keys and values into paged caches through a page table; moves bytes only.

A cache is [num_pages, num_heads, page_size, d] with any outer strides: FlashInfer's and vLLM's "NHD" pages are the view
with axes 1 and 2 swapped, a joint cache of keys and values is two views. Token l of sequence b goes to position
cache_offsets[b] + l of that sequence; or a slot mapping (vLLM's reshape_and_cache) names the page and cell of every
token. Nothing is advanced, and every table is read on the device: a captured graph serves any lengths.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan,
    Problem, Step, Variant, View, element, extent, inout, operand,
)  # fmt: skip
from ....calls.functional import functional
from ....schedules.map import divider
from .kv_cache_append import ELEMENTS, reach, word_bytes
from ..layouts import PAGE_LAYOUTS, Layouts, check_heads
from .kv_cache_append import word_axes
from ..paged.page_tables import (
    APPEND_TABLES, INDEX, check_new_tokens, locate, random_ints, settle, table_fields, table_params,
)  # fmt: skip
from ....core.benchmark import BYTES, Benchmark

THREADS = 128
PARTS = 2  # words of a token's keys, and of its values, that a thread moves


@dataclass(frozen=True, kw_only=True)
class PagedKvAppendDescriptor(Descriptor):
    """num_tokens new tokens of batch_size sequences, into num_pages pages of page_size tokens.

    max_pages: columns of a padded page table. num_indices: length of the page list of a compressed one. With a slot
    mapping there are no sequences: batch_size is 0.
    """

    batch_size: int = extent(0)
    num_tokens: int = extent()
    num_heads: int = extent()
    num_pages: int = extent()
    page_size: int = extent(minimum=1)
    d_k: int = extent()
    d_v: int = extent()
    element: ElementKind = element(ELEMENTS)
    max_pages: int = extent(0)
    num_indices: int = extent(0)

    @property
    def num_bounds(self) -> int:
        """Length of an array of bounds."""
        return self.batch_size + 1


@dataclass(slots=True, kw_only=True)
class PagedKvAppendArgs(Args):
    """The table is padded, `page_table`, or compressed (FlashInfer): pages kv_indices[kv_indptr[b] : kv_indptr[b + 1]].

    Sequence b has the tokens token_indptr[b] : token_indptr[b + 1] (absent: num_tokens / batch_size each; those after
    the last are padding). They follow the cache_offsets[b] tokens there, or with `kv_last_page_len` (of a compressed
    table) they end the sequence: its last page then holds that many. `slot_mapping` stands in place of all these: token
    t goes to cell slot_mapping[t] % page_size of page slot_mapping[t] / page_size, and is padding where that is
    negative. No two tokens may go to one place.
    """

    k_new: Array = operand("num_tokens num_heads d_k", layout="inner")
    v_new: Array = operand("num_tokens num_heads d_v", layout="inner")
    page_table: Array | None = operand("batch_size max_pages", element=INDEX, optional=True, values=random_ints)
    cache_offsets: Array | None = operand("batch_size", element=INDEX, optional=True, values=random_ints)
    token_indptr: Array | None = operand("num_bounds", element=INDEX, optional=True, values=random_ints)
    kv_indices: Array | None = operand("num_indices", element=INDEX, optional=True, values=random_ints)
    kv_indptr: Array | None = operand("num_bounds", element=INDEX, optional=True, values=random_ints)
    kv_last_page_len: Array | None = operand("batch_size", element=INDEX, optional=True, values=random_ints)
    slot_mapping: Array | None = operand("num_tokens", element=INDEX, optional=True, values=random_ints)
    k_cache: Array = inout("num_pages num_heads page_size d_k", layout="inner")
    v_cache: Array = inout("num_pages num_heads page_size d_v", layout="inner")


def reference(
    desc: PagedKvAppendDescriptor, *, k_new: Any, v_new: Any, k_cache: Any, v_cache: Any, **tables: Any
) -> Mapping[str, Any]:
    """NumPy on the stored bytes; the caches are updated in place."""
    token, page, cell, _ = locate(desc, **tables)
    k_cache[page, :, cell] = k_new[token]
    v_cache[page, :, cell] = v_new[token]
    return {"k_cache": k_cache, "v_cache": v_cache}


def append_params(name: str, **more: str | int) -> Params:
    """The parameters that `attention/cache/paged_append.cuh` reads, and an op's own."""
    return Params(
        name, k_new="ptr", v_new="ptr", k_cache="ptr", v_cache="ptr", status="status", items="i64", part="i64",
        token_words="i64", row_words="i64", words="i64[2]", batch="i64", new_len="i64", reach="i64",
        from_strides="i64[2][2]", to_strides="i64[2][3]", by_part="u32[3]", by_row="u32[3]", by_new="u32[3]",
        **table_fields(APPEND_TABLES), paged_parts=PARTS, **more,
    )  # fmt: skip


PARAMS = append_params("PagedKvAppendParams")


def check_places(desc: Any, views: Mapping[str, Any], new: str) -> None:
    """Refuse tables, or slots, of the tokens of the operand `new` that do not go together."""
    there = {name for name in APPEND_TABLES if views[name] is not None}
    if "slot_mapping" not in there:
        check_new_tokens(desc, views, new)
    elif len(there) > 1:
        raise InvalidProblemError(
            f"slot_mapping says where every token goes; leave out {', '.join(sorted(there - {'slot_mapping'}))}"
        )


def place_values(p: Problem) -> tuple[dict[str, Any], int]:
    """What `attention/cache/paged_places.cuh` reads but `by_new`, and the largest of the numbers that it counts to."""
    desc = p.desc
    tables = table_params(p, APPEND_TABLES)
    slots = desc.num_pages if p.slot_mapping is not None else tables["table_len"]
    room = desc.page_size * slots  # positions, or the slots of a mapping, lie below
    given: list[Any] = [p.views[name] for name in APPEND_TABLES if p.views[name] is not None]
    counts = (desc.num_tokens, desc.batch_size, desc.num_pages, desc.page_size, room, *(reach(v, 4) for v in given))
    new_len = max(desc.num_tokens // max(desc.batch_size, 1), 1)
    return {"batch": desc.batch_size, "new_len": new_len, "reach": min(room, 2**63 - 1), **tables}, max(counts)


def by_extent(extent: int, narrow: bool) -> Any:
    """The divider of a kernel whose numbers have 32 bits; others divide."""
    return divider(max(extent, 1)) if narrow else [1, 0, 0]


def append_values(p: Problem, each: int) -> tuple[dict[str, Any], bool]:
    """Their values, in words of `each` elements, and whether 32 bits hold all that is counted."""
    desc = p.desc
    views = (p.k_new, p.v_new, p.k_cache, p.v_cache)
    k_words, v_words = desc.d_k // each, desc.d_v // each
    row = max(k_words, v_words)
    part = -(-desc.num_heads * row // PARTS)
    items = desc.num_tokens * part
    places, most = place_values(p)
    spans = (reach(v, v.element.itemsize * each) for v in views)
    narrow = max(items + THREADS, PARTS * part, most, *spans) < 2**31

    def words(view: View, axes: tuple[int, ...]) -> list[int]:
        return [view.strides[a] // each if view.shape[a] > 1 else 0 for a in axes]

    return {
        "items": items, "part": max(part, 1), "token_words": desc.num_heads * row, "row_words": max(row, 1),
        "words": [k_words, v_words], "from_strides": [words(p.k_new, (0, 1)), words(p.v_new, (0, 1))],
        "to_strides": [words(p.k_cache, (0, 1, 2)), words(p.v_cache, (0, 1, 2))], "by_part": by_extent(part, narrow),
        "by_row": by_extent(row, narrow), "by_new": by_extent(places["new_len"], narrow), **places,
    }, narrow  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    size = p.desc.element.itemsize
    views = (p.k_new, p.v_new, p.k_cache, p.v_cache)
    width = word_bytes(views, (p.desc.d_k * size, p.desc.d_v * size))
    params, narrow = append_values(p, width // size)
    grid = max(1, -(-params["items"] // THREADS))
    step = Step("paged_kv_append", (grid, 1, 1), params, {"BYTES": width, "I": "i32" if narrow else "i64"}, THREADS)
    return Geometry((step,), layout="contiguous" if all(v.dense for v in views) else "inner_contiguous")


_KERNEL = Kernel("paged_kv_append", "paged_kv_append<{BYTES}, {I}>", PARAMS, word_axes, threads=THREADS)


def in_torch(
    torch: Any, desc: PagedKvAppendDescriptor, *, k_new: Any, v_new: Any, k_cache: Any, v_cache: Any, page_table: Any,
    cache_offsets: Any, token_indptr: Any, kv_indices: Any, kv_indptr: Any, kv_last_page_len: Any, slot_mapping: Any,
) -> Any:  # fmt: skip
    """A scatter a sequence, or one for all tokens of a slot mapping."""
    if slot_mapping is not None:
        there = (slot_mapping >= 0).nonzero()[:, 0]
        slot = slot_mapping[there].long()
        for cache, new in ((k_cache, k_new), (v_cache, v_new)):
            cache[slot // desc.page_size, :, slot % desc.page_size] = new[there]
        return {"k_cache": k_cache, "v_cache": v_cache}
    each = desc.num_tokens // max(desc.batch_size, 1)
    ends = [b * each for b in range(desc.num_bounds)] if token_indptr is None else token_indptr.tolist()
    for b, (first, last) in enumerate(itertools.pairwise(ends)):
        pages = page_table[b] if kv_indptr is None else kv_indices[int(kv_indptr[b]) : int(kv_indptr[b + 1])]
        if kv_last_page_len is None:
            start = int(cache_offsets[b])
        else:
            start = (len(pages) - 1) * desc.page_size + int(kv_last_page_len[b]) - (last - first)
        place = torch.arange(start, start + last - first, device=k_new.device)
        page, cell = pages[place // desc.page_size].long(), place % desc.page_size
        for cache, new in ((k_cache, k_new), (v_cache, v_new)):
            cache[page, :, cell] = new[first:last]
    return {"k_cache": k_cache, "v_cache": v_cache}


BEFORE = 100  # tokens that benchmarks have in the caches already


def paged_tables(torch: Any, desc: Any) -> dict[str, Any]:
    """Pages dealt out at random, as after a while of serving, in a padded table or a compressed one."""
    pages = torch.randperm(desc.num_pages).int()
    made = {"cache_offsets": torch.full((desc.batch_size,), BEFORE, dtype=torch.int32)}
    if desc.max_pages:
        return made | {"page_table": pages.reshape(desc.batch_size, desc.max_pages)}
    bounds = torch.arange(desc.num_bounds, dtype=torch.int32)
    pages_each, tokens_each = desc.num_pages // desc.batch_size, desc.num_tokens // desc.batch_size
    return made | {"kv_indices": pages, "kv_indptr": bounds * pages_each, "token_indptr": bounds * tokens_each}


def _benchmark(batch: int, new: int, page: int, ragged: bool = False) -> Benchmark:
    each = -(-(BEFORE + new) // page)
    table: dict[str, Any] = {"num_indices": batch * each} if ragged else {"max_pages": each}
    return Benchmark(
        f"{batch} x {new} tokens, pages of {page}{', ragged' if ragged else ''}, bf16", batch_size=batch,
        num_tokens=batch * new, num_heads=8, num_pages=batch * each, page_size=page, d_k=128, d_v=128,
        element="bfloat16", **table, make=paged_tables, work=BYTES, target=0.9, peers=(),
    )  # fmt: skip


def paged_case(draw: Any) -> dict[str, Any]:
    """A small problem for tests: what a descriptor has besides elements."""
    batch, new, page = draw.integer(0, 3), draw.integer(0, 4), draw.sizes(4, 1, 3, 16, 64)
    each = -(-(batch * new + draw.integer(1, 9)) // page)
    padded = draw.flag()
    if draw.flag():
        return {
            "num_tokens": batch * new,
            "num_heads": draw.integer(0, 3),
            "num_pages": each,
            "page_size": page,
            "d_k": draw.sizes(64, 0, 1, 7, 24, 128),
            "d_v": draw.sizes(64, 0, 2, 20),
        }
    return {
        "batch_size": batch, "num_tokens": batch * new, "num_heads": draw.integer(0, 3),
        "num_pages": batch * each + draw.integer(0, 2), "page_size": page, "d_k": draw.sizes(64, 0, 1, 7, 24, 128),
        "d_v": draw.sizes(64, 0, 2, 20), "max_pages": each if padded else 0,
        "num_indices": 0 if padded else batch * each + draw.integer(0, 2),
    }  # fmt: skip


class PagedKvAppendPlan(Plan):
    """k_cache[page, h, cell] = k_new[t, h] where page_size · slot + cell is the position of token t; values likewise.

    page is the slot-th page that the table names for the sequence (flashinfer.append_paged_kv_cache). The functional
    layer takes caches of layout "nhd", [num_pages, page_size, num_heads, d], too.
    """

    op = "attention.paged_kv_append"
    descriptor = PagedKvAppendDescriptor
    args = PagedKvAppendArgs
    raw = True
    reference = staticmethod(reference)
    value_policy = (
        "a token is skipped when its position is negative or past its sequence's pages, when its page is not in "
        "[0, num_pages), or when kv_indptr leads outside kv_indices; tokens outside token_indptr, and those of a "
        "negative slot, are padding"
    )
    variants = (
        Variant(
            "words", _geometry, source="attention/cache/paged_kv_append.cu", elements=ELEMENTS,
            kernels=(_KERNEL,), guarantee=Guarantee(native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        _benchmark(64, 512, 16),
        _benchmark(64, 512, 1),
        _benchmark(8, 4096, 256),
        _benchmark(64, 2048, 16),
        _benchmark(64, 2048, 1),
        _benchmark(8, 16384, 256),
        _benchmark(64, 2048, 16, ragged=True),
    )

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        check_places(desc, views, "k_new")

    @staticmethod
    def case(draw: Any) -> PagedKvAppendDescriptor:
        return PagedKvAppendDescriptor(**paged_case(draw), element=draw.element)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        settle(desc, arrays, APPEND_TABLES)

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        *_, bad = locate(desc, **{name: arrays.get(name) for name in APPEND_TABLES})
        return None if bad is None else f"token {bad} has no place: {cls.value_policy}"

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        check_heads(shapes, "k_new", "k_cache", PAGE_LAYOUTS)

    @classmethod
    def bytes(cls, desc: PagedKvAppendDescriptor) -> int:
        return 2 * desc.num_tokens * desc.num_heads * (desc.d_k + desc.d_v) * desc.element.itemsize


paged_kv_append = functional(PagedKvAppendPlan, layouts=Layouts(("k_cache", "v_cache"), PAGE_LAYOUTS))
