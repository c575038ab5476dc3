"""flash_decoding: one query token a sequence over its key and value cache, the keys split between blocks.

Dao et al. 2023, Flash-Decoding for long-context inference. How a sequence's keys are split follows from its length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ....core import (
    Args, Array, Descriptor, ElementKind, InvalidProblemError, Plan, Problem, Scalar, derived, element, extent, integer,
    number, operand, output,
)  # fmt: skip
from ....core.arrays import read
from ....calls.functional import functional
from ....core.element import unrounded
from ....calls.entries import entry
from ....schedules.attention.decoding import Walk, mma_row, row
from ....schedules.attention.dense.forward import WIDER
from ....schedules.attention.extend import FAMILY
from ....schedules.attention.same_bits import DENSE_TABLES, cached, same_bits_rows
from ....schedules.attention.score_terms import KINDS
from ..fp8_output import asked, fp8_output
from ..grouped_heads import GroupedHeads, kv_heads, score_scale
from ..layouts import Layouts
from ..paged.page_tables import READ_TABLES, table_fields
from ....core.benchmark import Benchmark
from ..in_torch import attention
from .decoding_terms import TERM_FIELDS, attend, term_values, usual_slopes

_KV = "cache_batch num_kv_heads max_cache_len"
_INDEX = (ElementKind.I32, ElementKind.I64)


@dataclass(frozen=True, kw_only=True)
class FlashDecodingDescriptor(GroupedHeads, Descriptor):
    """One query a sequence against a cache of `max_cache_len` keys.

    window_left: the query sees the last token and as many before it, None all of them (Beltagy et al. 2020). softcap:
    s = softcap · tanh(s / softcap) if not 0 (Gemma 2). cache_batch: rows of the cache, None is one a sequence. `scale`
    None is 1 / √d_k; `num_kv_heads` None is `num_heads`.
    """

    batch_size: int = extent()
    num_heads: int = extent()
    max_cache_len: int = extent()
    d_k: int = extent()
    d_v: int = extent()
    scale: float = score_scale()
    num_kv_heads: int = kv_heads()
    window_left: int = integer(None, minimum=0)
    softcap: float = number(0.0, minimum=0.0)
    cache_batch: int = integer(derived(lambda desc: desc.batch_size), minimum=0)
    element: ElementKind = element()

    @property
    def most_keys(self) -> int:
        """Keys that a query sees at most."""
        return self.max_cache_len if self.window_left is None else min(self.max_cache_len, self.window_left + 1)

    @property
    def mask_elements(self) -> tuple[ElementKind, ...]:
        """What a mask may be: True where a key is seen, or numbers added to the scores."""
        wide = (ElementKind.F64,) if self.element is ElementKind.F64 else ()
        return ElementKind.F32, ElementKind.BOOL, ElementKind.F16, ElementKind.BF16, *wide


def _lengths(rng: Any, desc: FlashDecodingDescriptor, shape: tuple[int, ...]) -> Any:
    return rng.integers(0, desc.max_cache_len + 1, shape)


def _rows(rng: Any, desc: FlashDecodingDescriptor, shape: tuple[int, ...]) -> Any:
    """Rows of the cache; one without any has no legal index."""
    return rng.integers(0, max(desc.cache_batch, 1), shape)


@dataclass(slots=True, kw_only=True)
class FlashDecodingArgs(Args):
    """`lengths[b]` keys of sequence b's cache are seen, all of them without it, from key `starts[b]` on (left padding).

    batch_index: the row of the cache that is sequence b's, b without it. mask: True where a key is seen, or added to
    the scores; -inf hides a key. slopes: ALiBi's, [heads] or [batch, heads], times the distance from the last token.
    sinks: a logit a head that takes part in the sum and has no value. slopes and sinks are float32, for float64
    operands float64. `lse` is natural-log, in the accumulator's element.

    `weights` are what the softmax gives each key of the cache, 0 where it is not seen, and `mean_weights` their mean
    over heads, both in the accumulator's element: what cache eviction ranks keys by (H2O, Zhang et al. 2023).
    """

    q: Array = operand("batch_size num_heads d_k", layout="inner")
    k: Array = operand(f"{_KV} d_k", layout="inner")
    v: Array = operand(f"{_KV} d_v", layout="inner")
    lengths: Array | None = operand("batch_size", element=_INDEX, optional=True, values=_lengths)
    mask: Array | None = operand(
        "batch_size num_heads max_cache_len", element="mask_elements", optional=True, broadcast=True
    )
    slopes: Array | None = operand(
        "batch_size num_heads", element="acc", optional=True, broadcast=True, values=usual_slopes
    )
    sinks: Array | None = operand("num_heads", element="acc", optional=True, layout="dense")
    starts: Array | None = operand("batch_size", element=_INDEX, optional=True, values=_lengths)
    batch_index: Array | None = operand("batch_size", element=_INDEX, optional=True, values=_rows)
    y: Array = output("batch_size num_heads d_v", layout="inner")
    lse: Array | None = output("batch_size num_heads", element="acc", optional=True, layout="dense")
    weights: Array | None = output("batch_size num_heads max_cache_len", element="acc", optional=True, layout="inner")
    mean_weights: Array | None = output("batch_size max_cache_len", element="acc", optional=True, layout="inner")


def _parts(desc: FlashDecodingDescriptor, lengths: Any, starts: Any, batch_index: Any) -> list[tuple[int, int, int]]:
    """Each sequence's row of the cache, and the first and the end of the keys that it sees."""
    parts = []
    for b in range(desc.batch_size):
        end = desc.max_cache_len if lengths is None else min(max(int(lengths[b]), 0), desc.max_cache_len)
        first = 0 if desc.window_left is None else max(0, end - 1 - desc.window_left)
        first = first if starts is None else max(first, min(int(starts[b]), end))
        row = b if batch_index is None else int(batch_index[b])
        parts.append((row, first, end) if 0 <= row < desc.cache_batch else (0, 0, 0))
    return parts


def reference(
    desc: FlashDecodingDescriptor, *, q: Any, k: Any, v: Any, lengths: Any = None, mask: Any = None,
    slopes: Any = None, sinks: Any = None, starts: Any = None, batch_index: Any = None, wanted: set[str],
    store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in; cells that are not seen are not read."""
    y = np.zeros((*q.shape[:2], desc.d_v), q.dtype)
    lse = np.full(q.shape[:2], -np.inf, q.dtype)
    weights = np.zeros((*q.shape[:2], desc.max_cache_len), q.dtype)
    mask = None if mask is None else np.broadcast_to(mask, weights.shape)
    slopes = None if slopes is None else np.broadcast_to(slopes, q.shape[:2])
    for b, (place, first, end) in enumerate(_parts(desc, lengths, starts, batch_index)):
        part = slice(first, end)
        keys, values = ((one[place] if len(one) else np.zeros(one.shape[1:], one.dtype))[:, part] for one in (k, v))
        y[b], lse[b], weights[b, :, part] = attend(
            desc, q[b], keys, values, store, None if mask is None else mask[b, :, part],
            None if slopes is None else slopes[b], sinks,
        )  # fmt: skip
    return {"y": y, "lse": lse, "weights": weights, "mean_weights": weights.sum(axis=1) / max(desc.num_heads, 1)}


def _has_terms(p: Problem) -> bool:
    terms = (p.mask, p.slopes, p.sinks, p.starts, p.batch_index)
    return p.desc.window_left is not None or p.desc.softcap > 0 or any(one is not None for one in terms)


def _integers(view: Any, stride: str, wide: str) -> dict[str, int]:
    """The parameters that say how integers lie."""
    if view is None:
        return {stride: 0, wide: 0}
    return {stride: view.strides[0], wide: int(view.element is ElementKind.I64)}


def _values(p: Problem) -> dict[str, Any]:
    return _integers(p.lengths, "lengths_stride", "long_lengths")


def _part_values(p: Problem) -> dict[str, Any]:
    """The parameters of DenseParts; pitches of the mask in bytes."""
    desc, pitch = p.desc, (0, 0, 0)
    if p.mask is not None:
        view = p.mask.broadcast_to((desc.batch_size, desc.num_heads, desc.max_cache_len))
        pitch = tuple(stride * view.element.itemsize for stride in view.strides)
    return {
        **_values(p), **term_values(p), **_integers(p.starts, "starts_stride", "long_starts"),
        **_integers(p.batch_index, "index_stride", "long_index"), "cache_batch": desc.cache_batch,
        "mask_pitch": pitch, "mask_kind": 0 if p.mask is None else KINDS[p.mask.element],
        "window_left": -1 if desc.window_left is None else min(desc.window_left, 2**62), "softcap": desc.softcap,
    }  # fmt: skip


_PLAIN = Walk(
    "FlashDecoding", "decoding::DenseCache",
    ("attention/decoding/flash_decoding_mma.cu", "attention/decoding/flash_decoding.cu"),
    {"lengths": "ptr", "lengths_stride": "i64", "long_lengths": "i32"}, _values, weights=True, has_terms=_has_terms,
)  # fmt: skip
_PARTS = {
    "mask": "ptr", "starts": "ptr", "batch_index": "ptr", "mask_pitch": "i64[3]", "starts_stride": "i64",
    "index_stride": "i64", "cache_batch": "i64", "window_left": "i64", "softcap": "f64", "mask_kind": "i32",
    "long_starts": "i32", "long_index": "i32",
}  # fmt: skip
_DENSE = replace(
    _PLAIN,
    termed=_PLAIN.with_terms(
        "FlashDecodingTerms", "decoding::Termed<decoding::DenseParts>", TERM_FIELDS | _PARTS, values=_part_values,
        masked=True,
    ),
)  # fmt: skip


def in_torch(
    torch: Any, desc: FlashDecodingDescriptor, *, q: Any, k: Any, v: Any, lengths: Any, mask: Any, slopes: Any,
    sinks: Any, starts: Any, batch_index: Any, wanted: set[str],
) -> Any:  # fmt: skip
    """Attention under what is seen as a mask, and ALiBi added to it."""
    place = torch.arange(desc.max_cache_len, device=q.device)
    end = torch.full((desc.batch_size, 1), desc.max_cache_len, device=q.device) if lengths is None else lengths[:, None]
    seen = place < end
    if desc.window_left is not None:
        seen = seen & (place >= end - 1 - desc.window_left)
    if starts is not None:
        seen = seen & (place >= starts[:, None])
    seen = seen[:, None]
    if mask is not None:
        seen = seen & mask if mask.dtype is torch.bool else torch.where(seen, mask.to(q.dtype), -torch.inf)
    if slopes is not None:
        away = slopes.expand(q.shape[:2])[..., None] * (end - 1 - place)[:, None].to(slopes.dtype)
        shown = torch.where(seen, 0.0, -torch.inf) if seen.dtype is torch.bool else seen
        seen = torch.where(shown == -torch.inf, shown, shown - away).to(q.dtype)
    if batch_index is not None:
        k, v = k[batch_index.long()], v[batch_index.long()]
    only_y = not wanted - {"y"}
    made = attention(
        torch, q[:, :, None], k, v, scale=desc.scale, softcap=desc.softcap, mask=seen[:, :, None], sinks=sinks,
        only_y=only_y,
    )  # fmt: skip
    found = {"y": made["y"][:, :, 0]}
    if not only_y:
        weights = made["attn"][:, :, 0]
        found |= {"lse": made["lse"][..., 0], "weights": weights, "mean_weights": weights.mean(1)}
    return found


def _full(torch: Any, desc: Any) -> dict[str, Any]:
    """Caches filled to the end."""
    return {"lengths": torch.full((desc.batch_size,), desc.max_cache_len)}


def _masked(torch: Any, desc: Any) -> dict[str, Any]:
    """A mask in the place of lengths, as transformers makes it of a cache of a fixed size; all cells are filled."""
    return {"mask": torch.ones(desc.batch_size, 1, desc.max_cache_len, dtype=torch.bool)}


def _benchmark(heads: int, kv_heads: int, batch: int, length: int, dim: int, mean: bool = False) -> Benchmark:
    return Benchmark(
        f"{heads}/{kv_heads} heads, batch {batch}, context {length}{'' if dim == 128 else f', d {dim}'}"
        f"{', mean weights' if mean else ''} bf16",
        batch_size=batch, num_heads=heads, num_kv_heads=kv_heads, max_cache_len=length, d_k=dim, d_v=dim,
        element="bfloat16", also=("mean_weights",) if mean else (), make=_full, target=None if mean else 0.85, peers=(),
    )  # fmt: skip


class FlashDecodingPlan(Plan):
    """y = softmax(s) v for one query a sequence, s = scale · q kᵀ over the first `lengths[b]` cells of its cache.

    Windows, soft cap, ALiBi, masks and sinks by the formulas of `ScoreTerms`' page, the query at the last of those
    cells. One that sees no key gives zeros and, without a sink, lse -inf. A key whose weight is 0 in the accumulator
    makes NaN of an infinite value, where the exact sum is infinite.
    """

    op = "attention.flash_decoding"
    same_bits = FAMILY
    descriptor = FlashDecodingDescriptor
    args = FlashDecodingArgs
    reference = staticmethod(reference)
    value_policy = (
        "lengths are clamped to [0, max_cache_len], starts to [0, length]; a sequence whose batch_index is not in "
        "[0, cache_batch) sees no key; cells that are not seen are never read"
    )
    variants = (
        mma_row(_DENSE), row(_DENSE), *same_bits_rows(table_fields(READ_TABLES), cached, DENSE_TABLES, True),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        _benchmark(32, 8, 64, 8192, 128),
        _benchmark(32, 8, 1, 32768, 128),
        _benchmark(8, 4, 8, 4096, 64),
        _benchmark(64, 8, 16, 32768, 128),
        _benchmark(64, 8, 64, 8192, 128, mean=True),
        Benchmark(
            "32/8 heads, batch 1, a mask of 2048 bf16", batch_size=1, num_heads=32, num_kv_heads=8, max_cache_len=2048,
            d_k=128, d_v=128, element="bfloat16", also=("mask",), make=_masked, target=None, peers=(),
        ),
    )  # fmt: skip

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        if desc.cache_batch != desc.batch_size and views["batch_index"] is None:
            raise InvalidProblemError(
                f"{desc.batch_size} sequences and a cache of {desc.cache_batch}: give batch_index, or one row for each"
            )

    @staticmethod
    def case(draw: Any) -> FlashDecodingDescriptor:
        kv_heads = draw.integer(1, 2)
        terms = {"window_left": draw.choice((None, 0, 9, 300)), "softcap": draw.choice((0.0, 0.7, 30.0))}
        terms["cache_batch"] = draw.choice((None, 1, 5))
        return FlashDecodingDescriptor(
            **(terms if draw.flag() else {}), batch_size=draw.integer(0, 3),
            num_heads=kv_heads * draw.sizes(1, 2, 3, 8, 9), num_kv_heads=kv_heads,
            max_cache_len=draw.sizes(0, 1, 61, 256, 257, 521), d_k=draw.sizes(1, 8, 17, 32, 64, rare=WIDER),
            d_v=draw.sizes(1, 8, 19, 32, 72, rare=WIDER), scale=draw.choice((None, 0.3, -0.5)), element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        if desc.cache_batch != desc.batch_size and arrays["batch_index"] is None:
            arrays["batch_index"] = np.arange(desc.batch_size, dtype=np.int32) % desc.cache_batch

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        """The first length or start outside the cache, or row that it has not."""
        limits = {"lengths": (0, desc.max_cache_len), "starts": (0, desc.max_cache_len)}
        for name, (low, high) in (limits | {"batch_index": (0, desc.cache_batch - 1)}).items():
            given = arrays.get(name)
            numbers = [] if given is None else np.asarray(given).reshape(-1).tolist()
            bad = [n for n in numbers if not low <= n <= high]
            if bad:
                size = f"{desc.cache_batch} rows" if name == "batch_index" else f"{desc.max_cache_len} cells"
                return f"{name} holds {bad[0]}, the cache {size}"
        return None

    @classmethod
    def flops(cls, desc: FlashDecodingDescriptor) -> int:
        return 2 * desc.batch_size * desc.num_heads * desc.most_keys * (desc.d_k + desc.d_v)


_call = functional(FlashDecodingPlan, layouts=Layouts(("k", "v")))


@entry(FlashDecodingPlan)
def flash_decoding(
    q: Any, k: Any, v: Any, lengths: Any = None, mask: Any = None, slopes: Any = None, sinks: Any = None, *,
    starts: Any = None, batch_index: Any = None, scale: float | None = None, window_left: int | None = None,
    softcap: float = 0.0, layout: str = "bhsd", out_element: Any = None, out_scale: Scalar = 1.0,
    return_lse: bool = False, return_weights: bool = False, return_mean_weights: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(s) v of one query token [batch, heads, d], s = scale · q kᵀ over the first lengths[b] cells of caches.

    layout "bhsd": the caches are [batch, kv_heads, cells, d]; "bshd": [batch, cells, kv_heads, d], read without a copy.
    Without lengths all cells count, starts [batch] (left padding) are the first that do, and window_left says how many
    count beside the last. batch_index [batch] is the row of the cache that belongs to each sequence (FlashAttention's
    cache_batch_idx); both are int32 or int64. mask broadcasts to [batch, heads, cells] or [batch, heads, 1, cells]:
    bool (True is seen) or added to the scores. softcap: s = softcap tanh(s / softcap). slopes [heads] or [batch, heads]
    (ALiBi): s -= slopes · distance from the last cell that counts. sinks [heads]: logits that join the sum without a
    value. return_weights: also the softmax's weights [batch, heads, cells]; return_mean_weights: their mean [batch,
    cells].
    out_element, out_scale: y as fp8 for the next product, as in `flash_sdpa`; out_scale is a number, or float32, 0-d or
    one for each head.
    """
    if mask is not None and len(shape := read(mask, "mask").shape) == 4:
        if shape[2] != 1:
            raise InvalidProblemError(f"mask must have one row of cells for the one query, got shape {shape}")
        mask = mask[:, :, 0]
    if asked(out_element, out_scale):
        made = partial(
            flash_decoding, q, k, v, lengths, mask, slopes, sinks, starts=starts, batch_index=batch_index, scale=scale,
            window_left=window_left, softcap=softcap, layout=layout, return_weights=return_weights,
            return_mean_weights=return_mean_weights,
        )  # fmt: skip
        return fp8_output(
            made, (q, k, v), out_element, out_scale, heads=1, return_lse=return_lse, out=out,
            stream=stream, preference=preference, more=bool(return_weights) + bool(return_mean_weights),
        )  # fmt: skip
    return _call(
        q, k, v, lengths, mask, slopes, sinks, starts, batch_index, scale=scale, window_left=window_left,
        softcap=softcap, return_lse=return_lse, return_weights=return_weights,
        return_mean_weights=return_mean_weights, layout=layout, out=out, stream=stream, preference=preference,
    )  # fmt: skip
