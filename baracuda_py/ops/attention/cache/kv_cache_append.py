"""kv_cache_append: write new keys and values into their caches at a per-sample offset; moves bytes only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    FLOATS, Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step,
    Variant, View, element, extent, inout, operand,
)  # fmt: skip
from ....calls.functional import functional
from ....core.element import FP8, INDICES
from ....schedules.map import divider
from ..layouts import Layouts, check_heads
from ....core.benchmark import BYTES, Benchmark

ELEMENTS = (*FLOATS, ElementKind.I8, ElementKind.U8, *FP8)
THREADS = 256


def random_offsets(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Offsets at which all new rows fit."""
    return rng.integers(0, max(desc.max_cache_len - desc.new_len, 0) + 1, shape)


@dataclass(frozen=True, kw_only=True)
class KvCacheAppendDescriptor(Descriptor):
    """new_len rows of d_k (keys) and d_v (values) elements a head, into caches of max_cache_len rows."""

    batch_size: int = extent()
    num_heads: int = extent()
    new_len: int = extent()
    max_cache_len: int = extent()
    d_k: int = extent()
    d_v: int = extent()
    element: ElementKind = element(ELEMENTS)


@dataclass(slots=True, kw_only=True)
class KvCacheAppendArgs(Args):
    """The offsets are read, not advanced. float8 elements travel as uint8 with the descriptor naming the kind."""

    k_new: Array = operand("batch_size num_heads new_len d_k", layout="inner")
    v_new: Array = operand("batch_size num_heads new_len d_v", layout="inner")
    cache_offsets: Array = operand("batch_size", element=INDICES[::-1], values=random_offsets)
    k_cache: Array = inout("batch_size num_heads max_cache_len d_k", layout="inner")
    v_cache: Array = inout("batch_size num_heads max_cache_len d_v", layout="inner")


def reference(
    desc: Any, *, k_new: Any, v_new: Any, cache_offsets: Any, k_cache: Any, v_cache: Any
) -> Mapping[str, Any]:
    """NumPy on the stored bytes; the caches are updated in place."""
    for b, offset in enumerate(cache_offsets.tolist()):
        first, last = max(0, -offset), min(desc.new_len, desc.max_cache_len - offset)
        if first < last:
            k_cache[b, :, offset + first : offset + last] = k_new[b, :, first:last]
            v_cache[b, :, offset + first : offset + last] = v_new[b, :, first:last]
    return {"k_cache": k_cache, "v_cache": v_cache}


PARAMS = Params(
    "KvCacheAppendParams", k_new="ptr", v_new="ptr", cache_offsets="ptr", k_cache="ptr", v_cache="ptr", status="status",
    items="i64", row_words="i64", words="i64[2]", new_len="i64", heads="i64", cache_len="i64", offset_stride="i64",
    from_strides="i64[2][3]", to_strides="i64[2][3]", by_row="u32[3]", by_len="u32[3]", by_heads="u32[3]",
    offsets_wide="i32",
)  # fmt: skip


def word_bytes(views: tuple[View, ...], row_bytes: tuple[int, ...]) -> int:
    """The widest access that every row of every view is aligned to and made of."""
    width = 16
    while any(n % width for n in row_bytes) or not all(v.aligned(width) for v in views):
        width //= 2
    return width


def reach(view: View, width: int) -> int:
    """How many words of `width` bytes lie between elements of a view, at most."""
    return sum((n - 1) * abs(s) for n, s in zip(view.shape, view.strides, strict=True)) * view.element.itemsize // width


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    size = desc.element.itemsize
    views = (p.k_new, p.v_new, p.k_cache, p.v_cache)
    width = word_bytes(views, (desc.d_k * size, desc.d_v * size))
    k_words, v_words = desc.d_k * size // width, desc.d_v * size // width
    row, length, heads = max(k_words, v_words, 1), max(desc.new_len, 1), max(desc.num_heads, 1)
    items = desc.batch_size * desc.num_heads * desc.new_len * max(k_words, v_words)
    spans = (reach(p.cache_offsets, 4), *(reach(v, width) for v in views))
    narrow = max(items + THREADS, desc.max_cache_len, *spans) < 2**31

    def words(view: View) -> list[int]:
        return [s * size // width if n > 1 else 0 for s, n in zip(view.strides[:3], view.shape, strict=False)]

    params = {
        "items": items, "row_words": row, "words": [k_words, v_words], "new_len": length, "heads": heads,
        "cache_len": desc.max_cache_len, "offset_stride": p.cache_offsets.strides[0],
        "from_strides": [words(p.k_new), words(p.v_new)], "to_strides": [words(p.k_cache), words(p.v_cache)],
        "by_row": divider(row) if narrow else [1, 0, 0], "by_len": divider(length) if narrow else [1, 0, 0],
        "by_heads": divider(heads) if narrow else [1, 0, 0],
        "offsets_wide": p.cache_offsets.element is ElementKind.I64,
    }  # fmt: skip
    grid = max(1, -(-items // THREADS))
    step = Step("kv_cache_append", (grid, 1, 1), params, {"BYTES": width, "I": "i32" if narrow else "i64"}, THREADS)
    return Geometry((step,), layout="contiguous" if all(v.dense for v in views) else "inner_contiguous")


def word_axes(kind: ElementKind) -> Mapping[str, Any]:
    """Widths of the words that rows of an element are copied in, and of indices."""
    return {"BYTES": tuple(b for b in (1, 2, 4, 8, 16) if b >= kind.itemsize), "I": ("i32", "i64")}


_KERNEL = Kernel("kv_cache_append", "kv_cache_append<{BYTES}, {I}>", PARAMS, word_axes, threads=THREADS)


def in_torch(torch: Any, desc: Any, *, k_new: Any, v_new: Any, cache_offsets: Any, k_cache: Any, v_cache: Any) -> Any:
    """A copy a sequence."""
    for b, start in enumerate(cache_offsets.tolist()):
        for cache, new in ((k_cache, k_new), (v_cache, v_new)):
            cache[b, :, start : start + desc.new_len] = new[b]
    return {"k_cache": k_cache, "v_cache": v_cache}


class KvCacheAppendPlan(Plan):
    """k_cache[b, h, cache_offsets[b] + l] = k_new[b, h, l], and values likewise.

    k_new, v_new [batch, heads, new_len, d], caches [batch, heads, max_cache_len, d]; the functional layer takes layout
    "bshd", [batch, rows, heads, d], too.
    """

    op = "attention.kv_cache_append"
    descriptor = KvCacheAppendDescriptor
    args = KvCacheAppendArgs
    raw = True
    reference = staticmethod(reference)
    value_policy = "rows whose cache_offsets[b] + l lies outside [0, max_cache_len) are skipped"
    variants = (
        Variant(
            "words", _geometry, source="attention/cache/kv_cache_append.cu", elements=ELEMENTS,
            kernels=(_KERNEL,), guarantee=Guarantee(native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"[64, 8, {new}, 128] x2 bf16", batch_size=64, num_heads=8, new_len=new, max_cache_len=4096, d_k=128,
            d_v=128, element="bfloat16", work=BYTES, target=0.9, peers=(),
            make=lambda torch, desc: {"cache_offsets": torch.full((desc.batch_size,), 128)},
        )
        for new in (512, 2048)
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> KvCacheAppendDescriptor:
        new_len = draw.integer(0, 9)
        return KvCacheAppendDescriptor(
            batch_size=draw.integer(0, 3), num_heads=draw.integer(0, 4), new_len=new_len,
            max_cache_len=new_len + draw.integer(0, 20), d_k=draw.sizes(0, 1, 7, 24, 64, 128),
            d_v=draw.sizes(0, 2, 20, 64), element=draw.element,
        )  # fmt: skip

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        offsets = np.asarray(arrays["cache_offsets"])
        if desc.new_len and ((offsets < 0) | (offsets > desc.max_cache_len - desc.new_len)).any():
            return f"cache_offsets must lie in [0, {desc.max_cache_len - desc.new_len}]"
        return None

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        check_heads(shapes, "k_new", "k_cache")

    @classmethod
    def bytes(cls, desc: KvCacheAppendDescriptor) -> int:
        rows = desc.batch_size * desc.num_heads * desc.new_len
        return 2 * rows * (desc.d_k + desc.d_v) * desc.element.itemsize + 8 * desc.batch_size


kv_cache_append = functional(KvCacheAppendPlan, layouts=Layouts(("k_new", "v_new", "k_cache", "v_cache")))
