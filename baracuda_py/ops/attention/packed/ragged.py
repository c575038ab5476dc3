"""Packed sequences of any lengths: what their descriptors share, the rule of their bounds, attention one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....core import Descriptor, ElementKind, choice, derived, element, extent, flag, integer, number
from ....core.benchmark import FLOPS, Benchmark
from ....core.element import INDICES
from ....core.errors import InvalidProblemError
from ....schedules.attention.dense.forward import WIDER
from ....schedules.attention.score_terms import drop_probability
from ..dense.flash_sdpa import FlashSdpaDescriptor
from ..grouped_heads import GroupedHeads, kv_heads, score_scale
from ..score_terms import ALIGNMENTS

INDEX = INDICES[::-1]
POLICY = (
    "bounds are clamped to [0, total] and to the largest bound before them, so sequences never overlap; rows before "
    "the first and after the last bound belong to no sequence; one longer than max_seqlen_q or max_seqlen_k is "
    "computed all the same; but rows with shared bits make NaN of one with more than max_seqlen_k keys"
)


@dataclass(frozen=True, kw_only=True)
class RaggedDescriptor(GroupedHeads, Descriptor):
    """batch_size sequences of queries packed into total_q rows; where the keys stand, subclasses say.

    `max_seqlen_q` is the length the caller promises (None: total_q); only estimates and checked runs use it. Causality,
    window, soft cap, `scale` and `num_kv_heads` are as in `FlashSdpaDescriptor`, sequence by sequence, but that by
    default the last query of a sequence stands at its last key ("bottom_right", as FlashAttention has packed
    sequences).
    """

    batch_size: int = extent()
    total_q: int = extent()
    num_heads: int = extent()
    d_k: int = extent()
    d_v: int = extent()
    max_seqlen_q: int = integer(derived(lambda desc: desc.total_q), minimum=0)
    scale: float = score_scale()
    is_causal: bool = flag(False)
    causal_alignment: str = choice(ALIGNMENTS, "bottom_right")
    window_left: int = integer(None, minimum=0)
    window_right: int = integer(None, minimum=0)
    softcap: float = number(0.0, minimum=0.0)
    num_kv_heads: int = kv_heads()
    element: ElementKind = element()

    @property
    def num_bounds(self) -> int:
        """Length of an array of bounds."""
        return self.batch_size + 1

    def alone(self, queries: int, keys: int) -> FlashSdpaDescriptor:
        """One sequence as a dense problem."""
        return FlashSdpaDescriptor(
            batch_size=1, num_heads=self.num_heads, num_kv_heads=self.num_kv_heads, query_len=queries, key_len=keys,
            d_k=self.d_k, d_v=self.d_v, scale=self.scale, is_causal=self.is_causal,
            causal_alignment=self.causal_alignment, window_left=self.window_left, window_right=self.window_right,
            softcap=self.softcap, dropout_p=drop_probability(self), element=self.element,
        )  # fmt: skip

    @property
    def pairs(self) -> int:
        """(query, key) pairs of one head if every sequence is as long as promised."""
        queries = min(self.max_seqlen_q, self.total_q)
        return self.alone(queries, self.key_len).pairs * self.total_q // max(1, queries)

    @property
    def key_len(self) -> int:
        """The most keys that a sequence may have, as promised."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class PackedDescriptor(RaggedDescriptor):
    """The keys are packed too, into total_k rows; `max_seqlen_k` is to them what `max_seqlen_q` is to the queries."""

    total_k: int = extent()
    max_seqlen_k: int = integer(derived(lambda desc: desc.total_k), minimum=0)

    @property
    def key_len(self) -> int:
        return min(self.max_seqlen_k, self.total_k)


def settled(bounds: Any, total: int) -> Any:
    """Bounds as the kernels take them."""
    clipped = np.clip(np.asarray(bounds).astype(np.int64), 0, total)
    return np.maximum.accumulate(clipped)


def sequences(q_bounds: Any, k_bounds: Any, total_q: int, total_k: int) -> Iterator[tuple[slice, slice]]:
    """Rows of queries and of keys, sequence by sequence."""
    q, k = settled(q_bounds, total_q), settled(k_bounds, total_k)
    for b in range(len(q) - 1):
        yield slice(q[b], q[b + 1]), slice(k[b], k[b + 1])


def heads_first(x: Any, rows: slice) -> Any:
    """Rows of [rows, heads, d] as a batch of one, [1, heads, rows, d]."""
    return x[rows].swapaxes(0, 1)[None]


def unseeing(desc: Any, sinks: Any, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
    """y and lse of rows that see no key: zeros and the sink, which makes NaN of both where it is NaN or infinite."""
    own = np.full(desc.num_heads, -np.inf, dtype)
    if sinks is not None:
        with np.errstate(invalid="ignore"):
            own = np.where(sinks == -np.inf, sinks, sinks + (sinks - sinks)).astype(dtype)
    y = np.zeros((desc.total_q, desc.num_heads, desc.d_v), dtype)
    y[:, np.isnan(own)] = np.nan
    return y, np.repeat(own[:, None], desc.total_q, axis=1)


def terms_of(
    desc: Any, b: int, one: FlashSdpaDescriptor, *, slopes: Any = None, sinks: Any = None, seed: Any = 0,
    offset: Any = 0, mask_bits: Any = None, mask_indptr: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """The operands of the score terms of sequence b, as those of the dense problem `one`."""
    mask = None
    if mask_bits is not None:
        bit = np.arange(one.query_len * one.key_len)
        byte = int(mask_indptr[b]) + bit // 8
        there = (byte >= 0) & (byte < len(mask_bits))
        seen = np.zeros(bit.shape, bool)
        seen[there] = mask_bits[byte[there]].astype(np.uint8) >> (bit[there] % 8).astype(np.uint8) & 1
        mask = seen.reshape(one.query_len, one.key_len)
    if slopes is not None:
        slopes = np.broadcast_to(slopes, (desc.batch_size, desc.num_heads))[b : b + 1]
    return {"mask": mask, "slopes": slopes, "sinks": sinks, "seed": seed, "offset": int(offset) + (b << 32)}


BITS_POLICY = "; a bit of a mask in a byte that is not in [0, mask_bytes) hides"


def mask_starts(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Random starts of masks of bits for tests."""
    return rng.integers(0, desc.mask_bytes + 1, shape)


def check_mask(views: Mapping[str, Any]) -> None:
    """Refuse a mask of bits without its starts, and starts alone."""
    if (views["mask_bits"] is None) != (views["mask_indptr"] is None):
        raise InvalidProblemError("give both mask_bits and mask_indptr, where its sequences begin, or neither")


def settle_mask(arrays: dict[str, Any]) -> None:
    """Both for tests, or neither."""
    if arrays.get("mask_bits") is None or arrays.get("mask_indptr") is None:
        arrays["mask_bits"] = arrays["mask_indptr"] = None


def wrong_bounds(bounds: Any, total: int, longest: int, name: str) -> str | None:
    """What is wrong with bounds, or None."""
    given = np.asarray(bounds).astype(np.int64)
    kept = settled(given, total)
    if (bad := np.flatnonzero(given != kept)).size:
        return f"{name}[{bad[0]}] is {given[bad[0]]}, which decreases or is not in [0, {total}]"
    if (lengths := np.diff(kept)).size and lengths.max() > longest:
        return f"{name} has a sequence of {lengths.max()} rows, promised are {longest} at most"
    return None


def random_bounds(total: str) -> Any:
    """Random bounds for tests: often from 0 to the end, with empty sequences, and at times rows of no sequence."""

    def make(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
        end = getattr(desc, total)
        bounds = np.sort(rng.integers(0, end + 1, shape))
        if rng.integers(4):
            bounds[0], bounds[-1] = 0, end if len(bounds) > 1 else 0
        return bounds

    return make


def ragged_case(draw: Any) -> dict[str, Any]:
    """Descriptor fields for tests."""
    kv_heads = draw.integer(1, 2)
    return {
        "batch_size": draw.integer(0, 5), "num_heads": kv_heads * draw.integer(1, 2), "num_kv_heads": kv_heads,
        "total_q": draw.sizes(1, 7, 61, 67, 130), "total_k": draw.sizes(0, 1, 13, 65, 97, 140, rare=(720,)),
        "d_k": draw.sizes(1, 8, 17, 32, 64, 80, rare=WIDER), "d_v": draw.sizes(1, 8, 19, 32, 72, rare=WIDER),
        "scale": draw.choice((None, 0.3, -0.5)), "is_causal": draw.flag(),
        "causal_alignment": draw.choice(ALIGNMENTS), "window_left": draw.choice((None, None, 0, 9, 70)),
        "window_right": draw.choice((None, None, 0, 3, 80)), "softcap": draw.choice((0.0, 0.0, 0.7, 30.0)),
        "element": draw.element,
    }  # fmt: skip


def packed_benchmarks(q_bounds: str, k_bounds: str, also: tuple[str, ...] = ()) -> tuple[Benchmark, ...]:
    """16 causal sequences of 2048 rows."""

    def bounds(torch: Any, desc: Any) -> dict[str, Any]:
        each = torch.arange(desc.num_bounds, dtype=torch.int32)
        return {q_bounds: each * desc.max_seqlen_q, k_bounds: each * desc.max_seqlen_k}

    return (
        Benchmark(
            "causal 16 x [2048, 16, 128] bf16", batch_size=16, total_q=32768, total_k=32768, max_seqlen_q=2048,
            max_seqlen_k=2048, num_heads=16, d_k=128, d_v=128, is_causal=True, element="bfloat16", also=also,
            make=bounds, work=FLOPS, target=None, peers=(),
        ),
    )  # fmt: skip


class Packed:
    """What forward plans over packed sequences share; `bounds` names the operands that say where each begins."""

    bounds: ClassVar[tuple[str, str]]
    value_policy: ClassVar[str] = POLICY

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_batch(shapes, facts, cls.bounds[0])

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        of_q, of_k = cls.bounds
        found = wrong_bounds(arrays[of_q], desc.total_q, desc.max_seqlen_q, of_q)
        return found or wrong_bounds(arrays[of_k], desc.total_k, desc.max_seqlen_k, of_k)

    @classmethod
    def flops(cls, desc: PackedDescriptor) -> int:
        return 2 * desc.num_heads * desc.pairs * (desc.d_k + desc.d_v)


def infer_batch(shapes: Mapping[str, Any], facts: dict[str, Any], name: str) -> None:
    """The functional layer's batch_size, from an array of bounds."""
    shape = shapes.get(name)
    if shape is not None and len(shape) == 1 and shape[0]:
        facts.setdefault("batch_size", shape[0] - 1)
