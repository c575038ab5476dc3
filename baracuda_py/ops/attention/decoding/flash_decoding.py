"""flash_decoding: one query token a sequence over its key and value cache, the keys split between blocks.

Dao et al. 2023, Flash-Decoding for long-context inference. How a sequence's keys are split follows from its length.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import Args, Array, Descriptor, ElementKind, Plan, element, extent, operand, output
from ....calls.functional import functional
from ....core.element import unrounded
from ....calls.entries import entry
from ....schedules.attention.decoding import Walk, mma_row, row
from ....schedules.attention.dense.forward import WIDER
from ..grouped_heads import GroupedHeads, kv_heads, score_scale
from ..layouts import Layouts
from ....core.benchmark import Benchmark
from ..in_torch import attention

_KV = "batch_size num_kv_heads max_cache_len"


@dataclass(frozen=True, kw_only=True)
class FlashDecodingDescriptor(GroupedHeads, Descriptor):
    """One query a sequence against a cache of `max_cache_len` keys.

    `scale` None is 1 / √d_k; `num_kv_heads` None is `num_heads`.
    """

    batch_size: int = extent()
    num_heads: int = extent()
    max_cache_len: int = extent()
    d_k: int = extent()
    d_v: int = extent()
    scale: float = score_scale()
    num_kv_heads: int = kv_heads()
    element: ElementKind = element()

    @property
    def most_keys(self) -> int:
        """Keys that a query sees at most."""
        return self.max_cache_len


def _lengths(rng: Any, desc: FlashDecodingDescriptor, shape: tuple[int, ...]) -> Any:
    return rng.integers(0, desc.max_cache_len + 1, shape)


@dataclass(slots=True, kw_only=True)
class FlashDecodingArgs(Args):
    """`lengths[b]` keys of sequence b's cache are seen; `lse` is natural-log, in the accumulator's element.

    `weights` are what the softmax gives each key of the cache, 0 beyond the length, and `mean_weights` their mean over
    heads, both in the accumulator's element: what cache eviction ranks keys by (H2O, Zhang et al. 2023).
    """

    q: Array = operand("batch_size num_heads d_k", layout="inner")
    k: Array = operand(f"{_KV} d_k", layout="inner")
    v: Array = operand(f"{_KV} d_v", layout="inner")
    lengths: Array = operand("batch_size", element=(ElementKind.I32, ElementKind.I64), values=_lengths)
    y: Array = output("batch_size num_heads d_v", layout="inner")
    lse: Array | None = output("batch_size num_heads", element="acc", optional=True, layout="dense")
    weights: Array | None = output("batch_size num_heads max_cache_len", element="acc", optional=True, layout="inner")
    mean_weights: Array | None = output("batch_size max_cache_len", element="acc", optional=True, layout="inner")


def attend(desc: Any, q: Any, k: Any, v: Any, store: Any = unrounded, softcap: float = 0.0) -> tuple[Any, Any, Any]:
    """y [heads, d_v], lse [heads] and weights [heads, keys] of q [heads, d_k] over k, v [kv_heads, keys, d]."""
    shape, keys = (desc.num_heads, desc.d_v), (desc.num_heads, k.shape[1])
    if not k.shape[1] or not desc.num_heads:
        return np.zeros(shape, q.dtype), np.full(shape[0], -np.inf, q.dtype), np.zeros(keys, q.dtype)
    scaled = (q * q.dtype.type(desc.scale)).reshape(desc.num_kv_heads, desc.group, desc.d_k)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        p = scaled @ k.swapaxes(-1, -2)
        if softcap:
            p = p.dtype.type(softcap) * np.tanh(p / p.dtype.type(softcap))
        top = p.max(axis=-1, keepdims=True)
        top[top == -np.inf] = 0
        np.exp(p - top, out=p)
        total = p.sum(axis=-1, keepdims=True)
        over = np.where(total == 0, 1, total)
        y = np.where(total == 0, 0, store(p) @ v / over)  # where no key has a weight, whatever the values
        return y.reshape(shape), (top + np.log(total)).reshape(-1), (p / over).reshape(keys)


def reference(
    desc: FlashDecodingDescriptor, *, q: Any, k: Any, v: Any, lengths: Any, wanted: set[str], store: Any = unrounded
) -> Mapping[str, Any]:
    """NumPy in the dtype q comes in; cells beyond a length are not read."""
    y = np.zeros((*q.shape[:2], desc.d_v), q.dtype)
    lse = np.full(q.shape[:2], -np.inf, q.dtype)
    weights = np.zeros((*q.shape[:2], desc.max_cache_len), q.dtype)
    for b, length in enumerate(np.clip(lengths, 0, desc.max_cache_len).tolist()):
        y[b], lse[b], weights[b, :, :length] = attend(desc, q[b], k[b, :, :length], v[b, :, :length], store)
    return {"y": y, "lse": lse, "weights": weights, "mean_weights": weights.sum(axis=1) / max(desc.num_heads, 1)}


_DENSE = Walk(
    "FlashDecoding", "decoding::DenseCache",
    ("attention/decoding/flash_decoding_mma.cu", "attention/decoding/flash_decoding.cu"),
    {"lengths": "ptr", "lengths_stride": "i64", "long_lengths": "i32"},
    lambda p: {"lengths_stride": p.lengths.strides[0], "long_lengths": int(p.lengths.element is ElementKind.I64)},
    weights=True,
)  # fmt: skip


def in_torch(
    torch: Any, desc: FlashDecodingDescriptor, *, q: Any, k: Any, v: Any, lengths: Any, wanted: set[str]
) -> Any:
    """Attention under the lengths as a mask."""
    seen = torch.arange(desc.max_cache_len, device=q.device) < lengths[:, None]
    only_y = not wanted - {"y"}
    made = attention(torch, q[:, :, None], k, v, scale=desc.scale, mask=seen[:, None, None], only_y=only_y)
    found = {"y": made["y"][:, :, 0]}
    if not only_y:
        weights = made["attn"][:, :, 0]
        found |= {"lse": made["lse"][..., 0], "weights": weights, "mean_weights": weights.mean(1)}
    return found


def _full(torch: Any, desc: Any) -> dict[str, Any]:
    """Caches filled to the end."""
    return {"lengths": torch.full((desc.batch_size,), desc.max_cache_len)}


def _benchmark(heads: int, kv_heads: int, batch: int, length: int, dim: int, mean: bool = False) -> Benchmark:
    return Benchmark(
        f"{heads}/{kv_heads} heads, batch {batch}, context {length}{'' if dim == 128 else f', d {dim}'}"
        f"{', mean weights' if mean else ''} bf16",
        batch_size=batch, num_heads=heads, num_kv_heads=kv_heads, max_cache_len=length, d_k=dim, d_v=dim,
        element="bfloat16", also=("mean_weights",) if mean else (), make=_full, target=None if mean else 0.85, peers=(),
    )  # fmt: skip


class FlashDecodingPlan(Plan):
    """y = softmax(scale · q kᵀ) v for one query a sequence, over the first `lengths[b]` cells of its cache.

    A length of 0 gives zeros and lse -inf.
    """

    op = "attention.flash_decoding"
    descriptor = FlashDecodingDescriptor
    args = FlashDecodingArgs
    reference = staticmethod(reference)
    value_policy = "lengths are clamped to [0, max_cache_len]; cells beyond a length are never read"
    variants = (mma_row(_DENSE), row(_DENSE))
    torch = staticmethod(in_torch)
    benchmarks = (
        _benchmark(32, 8, 64, 8192, 128),
        _benchmark(32, 8, 1, 32768, 128),
        _benchmark(8, 4, 8, 4096, 64),
        _benchmark(64, 8, 16, 32768, 128),
        _benchmark(64, 8, 64, 8192, 128, mean=True),
    )

    @staticmethod
    def case(draw: Any) -> FlashDecodingDescriptor:
        kv_heads = draw.integer(1, 2)
        return FlashDecodingDescriptor(
            batch_size=draw.integer(0, 3), num_heads=kv_heads * draw.sizes(1, 2, 3, 8, 9), num_kv_heads=kv_heads,
            max_cache_len=draw.sizes(0, 1, 61, 256, 257, 521), d_k=draw.sizes(1, 8, 17, 32, 64, rare=WIDER),
            d_v=draw.sizes(1, 8, 19, 32, 72, rare=WIDER), scale=draw.choice((None, 0.3, -0.5)), element=draw.element,
        )  # fmt: skip

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        """The first length outside the cache."""
        bad = [n for n in np.asarray(arrays["lengths"]).reshape(-1).tolist() if not 0 <= n <= desc.max_cache_len]
        return f"lengths holds {bad[0]}, the cache {desc.max_cache_len} cells" if bad else None

    @classmethod
    def flops(cls, desc: FlashDecodingDescriptor) -> int:
        return 2 * desc.batch_size * desc.num_heads * desc.max_cache_len * (desc.d_k + desc.d_v)


_call = functional(FlashDecodingPlan, layouts=Layouts(("k", "v")))


@entry(FlashDecodingPlan)
def flash_decoding(
    q: Any, k: Any, v: Any, lengths: Any, *, scale: float | None = None, layout: str = "bhsd", return_lse: bool = False,
    return_weights: bool = False, return_mean_weights: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ) v of one query token [batch, heads, d] over the first lengths[b] cells of each cache.

    layout "bhsd": the caches are [batch, kv_heads, cells, d]; "bshd": [batch, cells, kv_heads, d], read without a copy.
    return_weights: also the softmax's weights [batch, heads, cells]; return_mean_weights: their mean [batch, cells].
    """
    return _call(
        q, k, v, lengths, scale=scale, return_lse=return_lse, return_weights=return_weights,
        return_mean_weights=return_mean_weights, layout=layout, out=out, stream=stream, preference=preference,
    )  # fmt: skip
