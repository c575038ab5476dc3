"""flash_decoding: one query token a sequence over its key and value cache, the keys split between blocks.

Dao et al. 2023, Flash-Decoding for long-context inference. How a sequence's keys are split follows from its length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args,
    Array,
    Descriptor,
    ElementKind,
    Geometry,
    Guarantee,
    Kernel,
    OpCategory,
    Params,
    Plan,
    Problem,
    Relative,
    Step,
    Variant,
    element,
    extent,
    functional,
    integer,
    number,
    operand,
    output,
)  # fmt: skip
from ...core.element import unrounded
from ...core.errors import InvalidProblemError
from ...core.variant import aligned
from ...schedules.attention import HALVES, HEAD_DIMS, head_dim, layout, split_scale, wide
from .layouts import is_swapped, swap

SPLIT = 256  # keys of a split; more in the tensor-core row where that makes over MOST splits
MOST = 32
FOLD = 4  # splits that are added first: by one block where WAVES waves of such blocks remain, else by the merge
WAVES = 3
THREADS = 256
HEADS = (1, 4, 8)  # query heads a block takes at once
MMA_THREADS = 128
MMA_HEADS = 16
_LIMIT = 99 << 10  # bytes of shared memory every device gives a block
_KV = "batch_size num_kv_heads max_cache_len"


@dataclass(frozen=True, kw_only=True)
class FlashDecodingDescriptor(Descriptor):
    """One query a sequence against a cache of `max_cache_len` keys.

    `scale` None is 1 / √d_k; `num_kv_heads` None is `num_heads`.
    """

    batch_size: int = extent()
    num_heads: int = extent()
    max_cache_len: int = extent()
    d_k: int = extent()
    d_v: int = extent()
    scale: float = number(None)
    num_kv_heads: int = integer(None, minimum=0)
    element: ElementKind = element()

    def validate(self) -> None:
        if self.scale is None:
            object.__setattr__(self, "scale", 1.0 / math.sqrt(max(self.d_k, 1)))
        if self.num_kv_heads is None:
            object.__setattr__(self, "num_kv_heads", self.num_heads)
        if self.num_heads % self.num_kv_heads if self.num_kv_heads else self.num_heads:
            raise InvalidProblemError(
                f"num_heads must be a multiple of num_kv_heads, got {self.num_heads} and {self.num_kv_heads}"
            )

    @property
    def group(self) -> int:
        """Query heads that share one key and value head."""
        return self.num_heads // self.num_kv_heads if self.num_kv_heads else 1


def _lengths(rng: Any, desc: FlashDecodingDescriptor, shape: tuple[int, ...]) -> Any:
    return rng.integers(0, desc.max_cache_len + 1, shape)


@dataclass(slots=True, kw_only=True)
class FlashDecodingArgs(Args):
    """`lengths[b]` keys of sequence b's cache are seen; `lse` is natural-log, in the accumulator's element."""

    q: Array = operand("batch_size num_heads d_k", layout="inner")
    k: Array = operand(f"{_KV} d_k", layout="inner")
    v: Array = operand(f"{_KV} d_v", layout="inner")
    lengths: Array = operand("batch_size", element=(ElementKind.I32, ElementKind.I64), values=_lengths)
    y: Array = output("batch_size num_heads d_v", layout="inner")
    lse: Array | None = output("batch_size num_heads", element="acc", optional=True, layout="dense")


def reference(
    desc: FlashDecodingDescriptor, *, q: Any, k: Any, v: Any, lengths: Any, wanted: set[str], store: Any = unrounded
) -> Mapping[str, Any]:
    """NumPy in the dtype q comes in; cells beyond a length are not read."""
    y = np.zeros((*q.shape[:2], desc.d_v), q.dtype)
    lse = np.full(q.shape[:2], -np.inf, q.dtype)
    scaled = (q * q.dtype.type(desc.scale)).reshape(desc.batch_size, desc.num_kv_heads, desc.group, desc.d_k)
    with np.errstate(invalid="ignore", over="ignore"):
        for b, length in enumerate(np.clip(lengths, 0, desc.max_cache_len).tolist()):
            if not length or not desc.num_heads:
                continue
            p = scaled[b] @ k[b, :, :length].swapaxes(-1, -2)
            top = p.max(axis=-1, keepdims=True)
            top[top == -np.inf] = 0
            np.exp(p - top, out=p)
            total = p.sum(axis=-1, keepdims=True)
            y[b] = (store(p) @ v[b, :, :length] / np.where(total == 0, 1, total)).reshape(y[b].shape)
            with np.errstate(divide="ignore"):
                lse[b] = (top + np.log(total)).reshape(-1)
    return {"y": y, "lse": lse}


_SHARED = {
    "scale": "f64",
    "splits": "i64",
    "max_len": "i64",
    "lengths_stride": "i64",
    "num_heads": "i32",
    "d_v": "i32",
    "long_lengths": "i32",
}
SPLIT_PARAMS = Params(
    "FlashDecodingParams", q="ptr", k="ptr", v="ptr", lengths="ptr", parts="workspace", stats="workspace",
    status="status", q_stride="i64[2]", k_stride="i64[3]", v_stride="i64[3]", sign="f64", group="i32", chunks="i32",
    d_k="i32", wide="i32", run="i64", runs="i64", **_SHARED,
)  # fmt: skip
COMBINE_PARAMS = Params(
    "FlashCombineParams", lengths="ptr", y="ptr", lse="ptr", parts="workspace", stats="workspace", y_stride="i64[2]",
    run="i64", runs="i64", **_SHARED,
)  # fmt: skip


@dataclass(frozen=True)
class _Tiles:
    """How a row cuts the work: splits a sequence has at most, and what a block takes of them and of query heads."""

    splits: int
    run: int
    heads: int
    threads: int
    pitch: int  # numbers from one part's outputs to the next's


def _steps(p: Problem, tiles: _Tiles, kernels: tuple[str, str], axes: Mapping[str, Any], smem: int) -> Geometry:
    """The kernel that takes the splits and the one that adds them; a part is what a block leaves."""
    desc = p.desc
    size = desc.element.acc.itemsize
    rows = desc.batch_size * desc.num_heads
    chunks = -(-desc.group // tiles.heads)
    runs = -(-tiles.splits // tiles.run)
    stats = aligned(rows * runs * tiles.pitch * size)
    scale = split_scale(desc)
    shared = {
        "scale": scale["scale"], "splits": tiles.splits, "run": tiles.run, "runs": runs, "max_len": desc.max_cache_len,
        "num_heads": desc.num_heads, "lengths_stride": p.lengths.strides[0], "d_v": desc.d_v, "parts": 0,
        "stats": stats, "long_lengths": int(p.lengths.element is ElementKind.I64),
    }  # fmt: skip
    split = {
        "q_stride": p.q.strides[:-1], "k_stride": p.k.strides[:-1], "v_stride": p.v.strides[:-1],
        "sign": scale["sign"], "group": desc.group, "chunks": chunks, "d_k": desc.d_k, "wide": wide(p.q, p.k, p.v),
        **shared,
    }  # fmt: skip
    steps = [Step(kernels[1], (rows, 1, 1), {"y_stride": p.y.strides[:-1], **shared}, {}, tiles.threads)]
    if runs:
        grid = (runs * chunks * desc.batch_size * desc.num_kv_heads, 1, 1)
        steps.insert(0, Step(kernels[0], grid, split, axes, tiles.threads, smem))
    workspace = stats + aligned(rows * runs * 2 * size)
    return Geometry(tuple(steps), workspace, layout(p.q, p.k, p.v, p.y))


def _mma_geometry(p: Problem) -> Geometry | str:
    desc, d = p.desc, head_dim(p.desc)
    if isinstance(d, str):
        return d
    splits = min(-(-desc.max_cache_len // SPLIT), MOST)
    blocks = splits * -(-desc.group // MMA_HEADS) * desc.batch_size * desc.num_kv_heads
    fills = blocks >= WAVES * FOLD * RINGS[d].blocks * p.device.sms
    run = FOLD if fills and mma_shared_bytes(d, desc.group, FOLD) <= _LIMIT else 1
    tiles = _Tiles(splits, run, MMA_HEADS, MMA_THREADS, -(-desc.d_v // 4) * 4)
    return _steps(p, tiles, (f"mma_{d}", "merge"), {}, mma_shared_bytes(d, desc.group, run))


def _geometry(p: Problem) -> Geometry | str:
    desc, d = p.desc, head_dim(p.desc)
    if isinstance(d, str):
        return d
    heads = next((h for h in HEADS if desc.group <= h), HEADS[-1])
    name = "split" if heads < HEADS[-1] else f"split_{heads}"
    if wide(p.k, p.v) != 3:
        name, heads = "split_narrow", 4
    axes = {"D": d, "HEADS": heads} if name == "split" else {"D": d}
    smem = shared_bytes(d, heads, desc.element)
    tiles = _Tiles(-(-desc.max_cache_len // SPLIT), 1, heads, THREADS, desc.d_v)
    return _steps(p, tiles, (name, "combine"), axes, smem)


_FACTS: dict[str, Any] = {"split": ("D",), "threads": THREADS, "min_blocks": 2}
_SPLITS = (
    # Three blocks a multiprocessor cost 4 heads up to 16 bytes of spills, once a block, and won all the same: 531 us
    # against 557 with two at batch 32, context 8192, 32/8 heads of 128 in f32 (H200).
    Kernel(
        "split", "flash_decoding_split<{T}, {D}, {HEADS}, true>", SPLIT_PARAMS, {"D": HEAD_DIMS, "HEADS": HEADS[:-1]},
        split=("D", "HEADS"), threads=THREADS, min_blocks=3, spills=True,
    ),
    Kernel(
        f"split_{HEADS[-1]}", f"flash_decoding_split<{{T}}, {{D}}, {HEADS[-1]}, true>", SPLIT_PARAMS, {"D": HEAD_DIMS},
        **_FACTS,
    ),
    Kernel("split_narrow", "flash_decoding_split<{T}, {D}, 4, false>", SPLIT_PARAMS, {"D": HEAD_DIMS}, **_FACTS),
    Kernel("combine", "flash_decoding_combine<{T}>", COMBINE_PARAMS, threads=THREADS, min_blocks=2),
)  # fmt: skip


@dataclass(frozen=True)
class Ring:
    """A warp's ring of cp.async: 64-column pages a unit has, units, and blocks a multiprocessor has registers for."""

    pages: int
    units: int
    blocks: int


# H200, bf16, d 128, 32/8 heads, batch 64, context 8192 and 64/8 heads, batch 16, context 32768: 500 and 488 us with
# two blocks a multiprocessor and four units of two pages; 499 and 535 with three and three, whose 1024 equal blocks are
# 2.6 waves; without FOLD 521 and 502. A deeper ring for a few blocks gained nothing (batch 1: 15.1 us against 14.0).
RINGS = {
    32: Ring(1, 5, 4), 64: Ring(1, 5, 4), 96: Ring(2, 4, 2), 128: Ring(2, 4, 2), 192: Ring(1, 8, 2), 256: Ring(1, 6, 2),
}  # fmt: skip
_MMA = tuple(
    Kernel(
        f"mma_{d}", f"flash_decoding_mma<{{T}}, {d}, {ring.pages}, {ring.units}>", SPLIT_PARAMS,
        threads=MMA_THREADS, min_blocks=ring.blocks,
    )
    for d, ring in RINGS.items()
)  # fmt: skip


def mma_shared_bytes(d: int, group: int, run: int) -> int:
    """A ring a warp, the queries, maxima and sums, the warps' outputs and those kept (`flash_decoding_mma.cu`)."""
    ring, warps, row = RINGS[d], MMA_THREADS // 32, 4 * (-(-d // 64) * 64 + 4)
    kept = min(MMA_HEADS, group) * row if run > 1 else 0
    outs = min(8, group) * row
    return warps * (ring.units * ring.pages * 2048 + 16 * MMA_HEADS + outs) + 16 * MMA_HEADS + 2 * MMA_HEADS * d + kept


def shared_bytes(d: int, heads: int, kind: ElementKind) -> int:
    """Queries, weights, and one round of the output's sum over the block (`flash_decoding.cu`)."""
    size = kind.acc.itemsize
    lanes = d * kind.itemsize // 16
    groups = THREADS // lanes
    at_once = max(1, min(heads, 16384 // (groups * d * size)))
    return size * (heads * d + heads * SPLIT + groups * at_once * d)


class FlashDecodingPlan(Plan):
    """y = softmax(scale · q kᵀ) v for one query a sequence, over the first `lengths[b]` cells of its cache.

    A length of 0 gives zeros and lse -inf.
    """

    op = "attention.flash_decoding"
    category = OpCategory.ATTENTION
    descriptor = FlashDecodingDescriptor
    args = FlashDecodingArgs
    reference = staticmethod(reference)
    value_policy = "lengths are clamped to [0, max_cache_len]; cells beyond a length are never read"
    variants = (
        Variant(
            "split_k_mma", _mma_geometry, source="attention/flash_decoding_mma.cu", elements=HALVES,
            kernels=(
                *_MMA,
                Kernel("merge", "flash_decoding_merge<{T}>", COMBINE_PARAMS, threads=MMA_THREADS, min_blocks=6),
            ),
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
        Variant(
            "split_k", _geometry, elements=(ElementKind.F32, ElementKind.F64), source="attention/flash_decoding.cu",
            kernels=_SPLITS,
            guarantee=Guarantee(Relative(2), batch_invariant=True),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> FlashDecodingDescriptor:
        kv_heads = draw.integer(1, 2)
        return FlashDecodingDescriptor(
            batch_size=draw.integer(0, 3), num_heads=kv_heads * draw.sizes(1, 2, 3, 8, 9), num_kv_heads=kv_heads,
            max_cache_len=draw.sizes(0, 1, 61, 256, 257, 521), d_k=draw.sizes(1, 8, 17, 32, 64),
            d_v=draw.sizes(1, 8, 19, 32, 72), scale=draw.choice((None, 0.3, -0.5)), element=draw.element,
        )  # fmt: skip

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        """The first length outside the cache."""
        bad = [n for n in np.asarray(arrays["lengths"]).reshape(-1).tolist() if not 0 <= n <= desc.max_cache_len]
        return f"lengths holds {bad[0]}, the cache {desc.max_cache_len} cells" if bad else None

    @classmethod
    def flops(cls, desc: FlashDecodingDescriptor) -> int:
        return 2 * desc.batch_size * desc.num_heads * desc.max_cache_len * (desc.d_k + desc.d_v)


_call = functional(FlashDecodingPlan)


def flash_decoding(
    q: Any, k: Any, v: Any, lengths: Any, *, scale: float | None = None, layout: str = "bhsd", return_lse: bool = False,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ) v of one query token [batch, heads, d] over the first lengths[b] cells of each cache.

    layout "bhsd": the caches are [batch, kv_heads, cells, d]; "bshd": [batch, cells, kv_heads, d], read without a copy.
    """
    if is_swapped(layout):
        k, v = swap(k), swap(v)
    return _call(q, k, v, lengths, scale=scale, return_lse=return_lse, out=out, stream=stream, preference=preference)


flash_decoding.plan = FlashDecodingPlan  # type: ignore[attr-defined]
flash_decoding.fixed = {}  # type: ignore[attr-defined]
