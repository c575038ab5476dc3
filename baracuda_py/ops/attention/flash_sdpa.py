"""flash_sdpa: softmax(scale · q kᵀ) v without the score matrix in memory (Dao 2023, FlashAttention-2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args,
    Array,
    Descriptor,
    ElementKind,
    OpCategory,
    Plan,
    Vjp,
    choice,
    element,
    extent,
    flag,
    functional,
    integer,
    number,
    operand,
    output,
)  # fmt: skip
from ...core.element import unrounded
from ...core.errors import InvalidProblemError
from ...schedules.attention import SIMT_ROW, SM80_ROW, SM89_ROW, SM90A_ROW
from .layouts import is_swapped, swap, swapped_call

ALIGNMENTS = ("top_left", "bottom_right")
_CHUNK = 2**23  # scores the reference holds at a time


@dataclass(frozen=True, kw_only=True)
class FlashSdpaDescriptor(Descriptor):
    """Attention of `query_len` queries to `key_len` keys; `scale` None is 1 / √d_k.

    Query i sees key j where j <= i (causal, "top_left", as torch) or j <= i + key_len - query_len ("bottom_right", as
    FlashAttention). `num_kv_heads` None is `num_heads`; fewer are shared by consecutive query heads (GQA, MQA).
    """

    batch_size: int = extent()
    num_heads: int = extent()
    query_len: int = extent()
    key_len: int = extent()
    d_k: int = extent()
    d_v: int = extent()
    scale: float = number(None)
    is_causal: bool = flag(False)
    causal_alignment: str = choice(ALIGNMENTS, "top_left")
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

    @property
    def shift(self) -> int:
        """A causal query i sees the keys j <= i + shift."""
        return self.key_len - self.query_len if self.causal_alignment == "bottom_right" else 0

    @property
    def pairs(self) -> int:
        """(query, key) pairs that are not masked, of one head."""
        if not self.is_causal:
            return self.query_len * self.key_len
        first, last = self.shift + 1, self.shift + self.query_len  # keys seen by the first and the last query
        rising = range(max(first, 0), min(last, self.key_len) + 1)
        full = max(0, last - max(self.key_len, first - 1))
        return len(rising) * (rising[0] + rising[-1]) // 2 + full * self.key_len if rising else full * self.key_len


@dataclass(slots=True, kw_only=True)
class FlashSdpaArgs(Args):
    """`lse` = log Σ exp(scale · q kᵀ) over the keys, in the accumulator's element: the backward takes it."""

    q: Array = operand("batch_size num_heads query_len d_k", layout="inner")
    k: Array = operand("batch_size num_kv_heads key_len d_k", layout="inner")
    v: Array = operand("batch_size num_kv_heads key_len d_v", layout="inner")
    y: Array = output("batch_size num_heads query_len d_v", layout="inner")
    lse: Array | None = output("batch_size num_heads query_len", element="acc", optional=True, layout="dense")


def visible(desc: FlashSdpaDescriptor) -> np.ndarray | None:
    """The causal mask [query_len, key_len], True where a key is seen; None where nothing is masked."""
    if not desc.is_causal or desc.shift + 1 >= desc.key_len:
        return None
    return np.arange(desc.key_len) <= np.arange(desc.query_len)[:, None] + desc.shift


def batches(desc: FlashSdpaDescriptor) -> Iterator[slice]:
    """Slices of the batch whose scores fit the reference's working set."""
    step = max(1, _CHUNK // max(1, desc.num_heads * desc.query_len * desc.key_len))
    for start in range(0, desc.batch_size, step):
        yield slice(start, start + step)


def grouped(x: np.ndarray, desc: FlashSdpaDescriptor) -> np.ndarray:
    """[b, num_heads, rows, d] as [b, num_kv_heads, group · rows, d]: one matrix a key head."""
    if desc.group == 1:
        return x
    return x.reshape(x.shape[0], desc.num_kv_heads, desc.group * x.shape[2], x.shape[3])


def masked_scores(desc: FlashSdpaDescriptor, q: np.ndarray, k: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """scale · q kᵀ as [b, num_heads, query_len, key_len], -inf where masked."""
    scores: np.ndarray = grouped(q * q.dtype.type(desc.scale), desc) @ k.swapaxes(-1, -2)
    scores = scores.reshape(q.shape[0], desc.num_heads, desc.query_len, desc.key_len)
    if mask is not None:
        np.copyto(scores, -np.inf, where=~mask)
    return scores


def weighted(desc: FlashSdpaDescriptor, p: np.ndarray, v: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    """p v. A masked key adds nothing, be its v infinite or NaN; the mask broadcasts to p's shape."""
    odd = None if mask is None or np.isfinite(v).all() else ~np.isfinite(v)
    y: np.ndarray = (grouped(p, desc) @ (v if odd is None else np.where(odd, 0, v))).reshape(*p.shape[:3], v.shape[-1])
    if odd is not None and mask is not None:
        for key in np.flatnonzero(odd.any(axis=(0, 1, 3))):
            value = np.repeat(np.where(odd[:, :, key], v[:, :, key], 0), desc.group, axis=1)[:, :, None]
            y += np.where(mask[..., key, None] & (value != 0), p[..., key, None] * value, 0)
    return y


def reference(
    desc: FlashSdpaDescriptor, *, q: Any, k: Any, v: Any, wanted: set[str], store: Any = unrounded
) -> Mapping[str, Any]:
    """NumPy in the dtype q comes in, a few batches at a time; the weights are what a kernel keeps in the element."""
    mask = visible(desc)
    return attend(desc, q, k, v, lambda b: mask, store)


def attend(
    desc: FlashSdpaDescriptor, q: Any, k: Any, v: Any, mask_of: Callable[[slice], np.ndarray | None], store: Any
) -> Mapping[str, Any]:
    """y and lse under a mask, given for slices of the batch."""
    y = np.empty((*q.shape[:3], desc.d_v), q.dtype)
    lse = np.empty(q.shape[:3], q.dtype)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for b in batches(desc):
            mask = mask_of(b)
            p = masked_scores(desc, q[b], k[b], mask)
            top = p.max(axis=-1, initial=-np.inf)
            base = np.where(top == -np.inf, 0, top).astype(q.dtype)
            p -= base[..., None]
            np.exp(p, out=p)
            total = p.sum(axis=-1)
            y[b] = weighted(desc, store(p), v[b], mask) / np.where(total == 0, 1, total)[..., None]
            lse[b] = base + np.log(total)
    return {"y": y, "lse": lse}


class FlashSdpaPlan(Plan):
    """y = softmax(scale · q kᵀ) v, causal or not (torch.nn.functional.scaled_dot_product_attention).

    A query that sees no key (key_len 0, or bottom_right with query_len > key_len) gives zeros and lse -inf.
    """

    op = "attention.flash_sdpa"
    category = OpCategory.ATTENTION
    descriptor = FlashSdpaDescriptor
    args = FlashSdpaArgs
    reference = staticmethod(reference)
    variants = (SM90A_ROW, SM80_ROW, SM89_ROW, SIMT_ROW)
    vjp = Vjp("FlashSdpaBackwardPlan", grads={"q": "dq", "k": "dk", "v": "dv"})

    @staticmethod
    def case(draw: Any) -> FlashSdpaDescriptor:
        return FlashSdpaDescriptor(**attention_case(draw))

    @classmethod
    def flops(cls, desc: FlashSdpaDescriptor) -> int:
        return 2 * desc.batch_size * desc.num_heads * desc.pairs * (desc.d_k + desc.d_v)


def attention_case(draw: Any) -> dict[str, Any]:
    """Descriptor fields for tests: sizes round the tiles, primes, empty axes, grouped heads."""
    kv_heads = draw.integer(1, 2)
    return {
        "batch_size": draw.integer(0, 2), "num_heads": kv_heads * draw.integer(1, 3), "num_kv_heads": kv_heads,
        "query_len": draw.sizes(1, 7, 32, 61, 67), "key_len": draw.sizes(0, 1, 13, 64, 65, 97),
        "d_k": draw.sizes(1, 8, 17, 32, 64, 80), "d_v": draw.sizes(1, 8, 19, 32, 72),
        "scale": draw.choice((None, 0.3, -0.5)), "is_causal": draw.flag(),
        "causal_alignment": draw.choice(ALIGNMENTS), "element": draw.element,
    }  # fmt: skip


_call = functional(FlashSdpaPlan)


def flash_sdpa(
    q: Any, k: Any, v: Any, *, scale: float | None = None, is_causal: bool = False, causal_alignment: str = "top_left",
    layout: str = "bhsd", return_lse: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ) v; with return_lse also log Σ exp, [batch, heads, queries] in either layout.

    layout "bhsd": q is [batch, heads, queries, d]; "bshd": [batch, queries, heads, d], read and written without a copy.
    """
    facts = {"scale": scale, "is_causal": is_causal, "causal_alignment": causal_alignment, "return_lse": return_lse}
    if not is_swapped(layout):
        return _call(q, k, v, **facts, out=out, stream=stream, preference=preference)
    names = ("y", "lse") if return_lse else ("y",)
    shapes = {"y": (*q.shape[:3], v.shape[3])}
    return swapped_call(_call, [swap(a) for a in (q, k, v)], facts, names, shapes, out, stream, preference)


flash_sdpa.plan = FlashSdpaPlan  # type: ignore[attr-defined]
flash_sdpa.fixed = {}  # type: ignore[attr-defined]
