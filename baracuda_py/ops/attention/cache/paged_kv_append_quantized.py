"""paged_kv_append_quantized: paged_kv_append into caches of int8, int4 or fp8 codes, with a scale a token and head.

The scale is made of what is stored, so that no calibration is needed: max|x| / 127, 7, 448 or 57344 of each token and
head, of int4 also of each 32, 64 or 128 columns. A dense cache [batch, heads, length, d] is one page of `length` cells
a sequence: page_table = arange(batch)[:, None].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Array, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant, View, element, inout,
)  # fmt: skip
from ....calls.functional import functional
from ....core.benchmark import BYTES, Benchmark
from ...elementwise.cast import CODES
from ..layouts import PAGE_LAYOUTS, Layouts
from ..paged.page_tables import APPEND_TABLES, locate, table_fields
from .kv_cache_append import reach
from .paged_kv_append import (
    THREADS, PagedKvAppendArgs, PagedKvAppendDescriptor, PagedKvAppendPlan, by_extent, paged_case, paged_tables,
    place_values,
)  # fmt: skip
from .paged_kv_append_fp8 import SOURCES
from .quantized_caches import CODE_NUMBERS, FORMATS, GROUPS, QuantizedCaches, format_field, group_field, quantized

E = ElementKind
CACHE = "num_pages num_heads page_size"


@dataclass(frozen=True, kw_only=True)
class PagedKvAppendQuantizedDescriptor(QuantizedCaches, PagedKvAppendDescriptor):
    """As paged_kv_append's. `group_size`: columns that share a scale; None is all of a head's."""

    format: str = format_field()
    group_size: int | None = group_field()
    element: ElementKind = element(SOURCES)

    def validate(self) -> None:
        self.check_caches()


def _random_scales(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: what stands there before."""
    return rng.uniform(0.5, 2, shape)


@dataclass(slots=True, kw_only=True)
class PagedKvAppendQuantizedArgs(PagedKvAppendArgs):
    """As paged_kv_append's. Caches hold int8, or uint8: the bytes of fp8, and of int4 two columns, the even one low."""

    k_cache: Array = inout(f"{CACHE} k_bytes", element="code_element", layout="inner")
    v_cache: Array = inout(f"{CACHE} v_bytes", element="code_element", layout="inner")
    k_scales: Array = inout(f"{CACHE} k_groups", element=E.F32, values=_random_scales)
    v_scales: Array = inout(f"{CACHE} v_groups", element=E.F32, values=_random_scales)


def reference(
    desc: PagedKvAppendQuantizedDescriptor, *, k_new: Any, v_new: Any, k_cache: Any, v_cache: Any, k_scales: Any,
    v_scales: Any, **tables: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy on the stored bytes; caches and scales are updated in place."""
    token, page, cell, _ = locate(desc, **tables)
    for cache, scales, new, groups in (
        (k_cache, k_scales, k_new, desc.k_groups), (v_cache, v_scales, v_new, desc.v_groups),
    ):  # fmt: skip
        codes, scale = quantized(desc, new[token], groups)
        cache[page, :, cell], scales[page, :, cell] = codes.view(cache.dtype), scale
    return {"k_cache": k_cache, "v_cache": v_cache, "k_scales": k_scales, "v_scales": v_scales}


PARAMS = Params(
    "PagedKvAppendQuantizedParams", k_new="ptr", v_new="ptr", k_cache="ptr", v_cache="ptr", k_scales="ptr",
    v_scales="ptr", status="status", items="i64", token_groups="i64", head_groups="i64", groups="i64[2]", batch="i64",
    new_len="i64", reach="i64", from_strides="i64[2][2]", to_strides="i64[2][4]", scale_strides="i64[2][4]",
    columns="i32[2]", chunks="i32[2]", lane_bits="i32", by_token="u32[3]", by_head="u32[3]", by_new="u32[3]",
    **table_fields(APPEND_TABLES),
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    news, caches, scales = (p.k_new, p.v_new), (p.k_cache, p.v_cache), (p.k_scales, p.v_scales)
    groups = (desc.k_groups, desc.v_groups)
    columns = [desc.group_size or d for d in (desc.d_k, desc.d_v)]
    if max(columns) >= 2**20:
        return "groups of 2^20 columns or more"
    whole = 16 // desc.element.itemsize
    wide = all(n % whole == 0 for n in columns) and all(v.aligned(16) for v in news)
    wide = wide and all(v.aligned(whole // desc.per_byte) for v in caches)
    chunks = [n // (whole if wide else desc.per_byte) for n in columns]
    lane_bits = min(5, max(max(chunks) - 1, 0).bit_length())
    most_groups = max(groups)
    items = desc.num_tokens * desc.num_heads * most_groups
    places, most = place_values(p)
    spans = (reach(v, v.element.itemsize) for v in (*news, *caches, *scales))
    narrow = max((items << lane_bits) + THREADS, most, *spans) < 2**31

    def strides(view: View, axes: tuple[int, ...]) -> list[int]:
        return [view.strides[a] if view.shape[a] > 1 else 0 for a in axes]

    params = {
        "items": items, "token_groups": max(desc.num_heads * most_groups, 1), "head_groups": max(most_groups, 1),
        "groups": groups, "from_strides": [strides(v, (0, 1)) for v in news],
        "to_strides": [[*strides(v, (0, 1, 2)), n // desc.per_byte] for v, n in zip(caches, columns, strict=True)],
        "scale_strides": [strides(v, (0, 1, 2, 3)) for v in scales], "columns": columns, "chunks": chunks,
        "lane_bits": lane_bits, "by_token": by_extent(desc.num_heads * most_groups, narrow),
        "by_head": by_extent(most_groups, narrow), "by_new": by_extent(places["new_len"], narrow), **places,
    }  # fmt: skip
    axes = {"WIDE": wide, "FORMAT": CODES.index(desc.code), "I": "i32" if narrow else "i64"}
    grid = max(1, -(-(items << lane_bits) // THREADS))
    step = Step("paged_kv_append_quantized", (grid, 1, 1), params, axes, THREADS)
    views = (*news, *caches, *scales)
    return Geometry((step,), layout="contiguous" if all(v.dense for v in views) else "inner_contiguous")


_KERNEL = Kernel(
    "paged_kv_append_quantized", "paged_kv_append_quantized<{T}, {WIDE}, {FORMAT}, {I}>", PARAMS,
    {"WIDE": (True, False), "FORMAT": CODE_NUMBERS, "I": ("i32", "i64")}, threads=THREADS,
    min_blocks=8,
)  # fmt: skip


def _benchmark(name: str, **more: Any) -> Benchmark:
    return Benchmark(
        f"64 x 2048 tokens, pages of 16, bf16 to {name}", batch_size=64, num_tokens=64 * 2048, num_heads=8,
        num_pages=64 * 135, page_size=16, d_k=128, d_v=128, element="bfloat16", max_pages=135, make=paged_tables,
        work=BYTES, peers=(), **more,
    )  # fmt: skip


class PagedKvAppendQuantizedPlan(Plan):
    """k_cache[page, h, cell] = round(k_new[t, h] / scale), k_scales[page, h, cell] = scale; values likewise.

    scale = max|x| / largest of the columns of a group, in float32; largest is 127 of int8, 7 of int4, 448 of
    float8_e4m3fn, 57344 of float8_e5m2. Codes are rounded to nearest, ties to even, and at most the largest. Places are
    those of `PagedKvAppendPlan`; `batch_paged_extend_quantized` reads what is stored.
    """

    op = "attention.paged_kv_append_quantized"
    descriptor = PagedKvAppendQuantizedDescriptor
    args = PagedKvAppendQuantizedArgs
    raw = True
    reference = staticmethod(reference)
    value_policy = PagedKvAppendPlan.value_policy + (
        "; a group of zeros, or of numbers so small that the quotient rounds to 0, has scale 0, one with NaN or an "
        "infinity in it scale NaN, and both have codes of 0"
    )
    variants = (
        Variant(
            "groups", _geometry, source="attention/cache/paged_kv_append_quantized.cu", elements=SOURCES,
            kernels=(_KERNEL,), guarantee=Guarantee(batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (
        _benchmark("int8"),
        _benchmark("int4 in groups of 32", format="int4", group_size=32),
        _benchmark("e4m3", format="float8_e4m3fn"),
    )

    @staticmethod
    def case(draw: Any) -> PagedKvAppendQuantizedDescriptor:
        facts, name = paged_case(draw), draw.choice(FORMATS)
        if draw.integer(0, 7) == 0:
            facts |= {"d_k": 320}  # more than the lanes of a group keep
        if name != "int4":
            return PagedKvAppendQuantizedDescriptor(**facts, format=name, element=draw.element)
        group = draw.choice((None, *GROUPS))
        facts |= {side: facts[side] // 2 * 2 for side in ("d_k", "d_v")}
        if group is not None:
            facts |= {"d_k": group * draw.integer(0, 2), "d_v": group * draw.integer(0, 2)}
        return PagedKvAppendQuantizedDescriptor(**facts, format=name, group_size=group, element=draw.element)

    complete = PagedKvAppendPlan.complete
    check = PagedKvAppendPlan.check
    check_values = PagedKvAppendPlan.check_values
    infer = PagedKvAppendPlan.infer

    @classmethod
    def bytes(cls, desc: Any) -> int:
        sides = ((desc.d_k, desc.k_bytes, desc.k_groups), (desc.d_v, desc.v_bytes, desc.v_groups))
        row = sum(d * desc.element.itemsize + stored + 4 * groups for d, stored, groups in sides)
        return int(desc.num_tokens * desc.num_heads * row)


paged_kv_append_quantized = functional(
    PagedKvAppendQuantizedPlan, layouts=Layouts(("k_cache", "v_cache", "k_scales", "v_scales"), PAGE_LAYOUTS)
)
