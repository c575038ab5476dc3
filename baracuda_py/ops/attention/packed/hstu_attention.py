"""hstu_attention: silu in place of softmax over packed sequences (HSTU, Zhai et al. 2024)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Args, Array, Descriptor, ElementKind, Plan, Vjp, element, extent, flag, integer, operand, output,
)  # fmt: skip
from ....calls.functional import functional
from ....calls.entries import entry
from ....core.benchmark import Benchmark, FLOPS
from ....core.element import unrounded
from ....schedules.attention.hstu import MMA_ROW, SIMT_ROW
from ....schedules.attention.dense.forward import HALVES
from ..grouped_heads import score_scale
from ..score_terms import finite
from .ragged import INDEX, random_bounds


@dataclass(frozen=True, kw_only=True)
class HstuAttentionDescriptor(Descriptor):
    """`total` tokens of batch_size sequences, one behind the other; weights are divided by max_seqlen.

    scale None is 1 / √d_k. Causal, a token sees those up to itself; window_left: none further back than that.
    """

    total: int = extent()
    num_heads: int = extent()
    d_k: int = extent()
    d_v: int = extent()
    num_bounds: int = extent(minimum=1)
    max_seqlen: int = integer(minimum=1)
    is_causal: bool = flag(True)
    window_left: int = integer(None, minimum=0)
    scale: float = score_scale()
    element: ElementKind = element()

    @property
    def batch_size(self) -> int:
        """Sequences."""
        return self.num_bounds - 1


@dataclass(slots=True, kw_only=True)
class HstuAttentionArgs(Args):
    """Sequence b has the rows seq_offsets[b] : seq_offsets[b + 1].

    What is not finite makes results NaN that it reaches, or that a neighbour in its tile of scores reaches.
    """

    q: Array = operand("total num_heads d_k", layout="inner", values=finite)
    k: Array = operand("total num_heads d_k", layout="inner", values=finite)
    v: Array = operand("total num_heads d_v", layout="inner", values=finite)
    seq_offsets: Array = operand("num_bounds", element=INDEX, values=random_bounds("total"))
    y: Array = output("total num_heads d_v", layout="inner")


def seen(desc: Any, seq_offsets: Any) -> np.ndarray:
    """Which tokens see which, [total, total]."""
    mask = np.zeros((desc.total, desc.total), np.bool_)
    bounds = np.maximum.accumulate(np.clip(np.asarray(seq_offsets).astype(np.int64), 0, desc.total))
    for first, last in itertools.pairwise(bounds):
        mask[first:last, first:last] = True
    ahead = np.arange(desc.total) - np.arange(desc.total)[:, None]
    if desc.is_causal:
        mask &= ahead <= 0
    return mask if desc.window_left is None else mask & (ahead >= -desc.window_left)


def silu(s: Any) -> tuple[Any, Any]:
    """silu(s) and its derivative."""
    with np.errstate(over="ignore"):
        sigmoid = 1 / (1 + np.exp(-s))
    return s * sigmoid, sigmoid * (1 + s * (1 - sigmoid))


def scores(desc: Any, q: Any, k: Any) -> Any:
    """scale · q kᵀ of each head, [heads, total, total]."""
    return np.swapaxes(q, 0, 1) @ np.moveaxis(k, 0, -1) * q.dtype.type(desc.scale)


def reference(
    desc: HstuAttentionDescriptor, *, q: Any, k: Any, v: Any, seq_offsets: Any, store: Any = unrounded
) -> Mapping[str, Any]:
    """NumPy in the dtype q comes in; the weights are what a kernel keeps in the element."""
    p = np.where(seen(desc, seq_offsets), silu(scores(desc, q, k))[0], 0).astype(q.dtype)
    y = store(p) @ v.swapaxes(0, 1) / q.dtype.type(desc.max_seqlen)
    return {"y": np.ascontiguousarray(y.swapaxes(0, 1))}


def in_torch(torch: Any, desc: HstuAttentionDescriptor, *, q: Any, k: Any, v: Any, seq_offsets: Any) -> Any:
    """silu of masked scores."""
    bounds, rows = (
        torch.cummax(seq_offsets.long().clamp(0, desc.total), 0)[0],
        torch.arange(desc.total, device=q.device),
    )
    sequence = (bounds <= rows[:, None]).sum(-1)  # 0 before the first
    ahead = rows - rows[:, None]
    mask = (sequence == sequence[:, None]) & (sequence > 0) & (sequence < desc.num_bounds)
    mask &= (ahead <= 0) | (not desc.is_causal)
    mask &= ahead >= -(desc.total if desc.window_left is None else desc.window_left)
    s = torch.einsum("ihd,jhd->hij", q, k) * desc.scale
    p = torch.nn.functional.silu(s).masked_fill(~mask, 0.0)
    return torch.einsum("hij,jhd->ihd", p, v) / desc.max_seqlen


def hstu_benchmarks(*also: str) -> tuple[Benchmark, ...]:
    """32 sequences of 2048 tokens, whole."""

    def make(torch: Any, desc: Any) -> dict[str, Any]:
        return {"seq_offsets": (torch.arange(desc.num_bounds) * desc.max_seqlen).int()}

    return (
        Benchmark(
            "32 x 2048 tokens, 4 heads of 128, causal bf16", total=65536, num_heads=4, d_k=128, d_v=128, num_bounds=33,
            max_seqlen=2048, element="bfloat16", also=also, make=make, work=FLOPS, target=None, peers=(),
        ),
    )  # fmt: skip


POLICY = "bounds are clamped to [0, total] and to the largest bound before them"


class HstuAttentionPlan(Plan):
    """y = silu(scale · q kᵀ) v / max_seqlen of each sequence, causal or not.

    Scores in memory at no time. Tokens of no sequence give zeros. Products of 16 bits take weights in the element.
    """

    op = "attention.hstu_attention"
    descriptor = HstuAttentionDescriptor
    args = HstuAttentionArgs
    reference = staticmethod(reference)
    value_policy = POLICY
    variants = (MMA_ROW, SIMT_ROW)
    vjp = Vjp("HstuAttentionBackwardPlan", grads={"q": "dq", "k": "dk", "v": "dv"})
    torch = staticmethod(in_torch)
    benchmarks = hstu_benchmarks()

    @staticmethod
    def case(draw: Any) -> HstuAttentionDescriptor:
        return HstuAttentionDescriptor(**hstu_case(draw))

    @classmethod
    def flops(cls, desc: HstuAttentionDescriptor) -> int:
        """With sequences of max_seqlen tokens."""
        return 2 * desc.num_heads * pairs(desc) * (desc.d_k + desc.d_v)


def pairs(desc: HstuAttentionDescriptor) -> int:
    """(query, key) pairs of one head, with sequences of max_seqlen tokens."""
    length = desc.max_seqlen
    each = desc.total * length if not desc.is_causal else desc.total * (length + 1) // 2
    return each if desc.window_left is None else min(each, desc.total * (desc.window_left + 1))


def hstu_case(draw: Any) -> dict[str, Any]:
    """Fields for tests: few and many tokens and sequences, sizes round the tiles."""
    wider = () if draw.element in HALVES else (96, 192, 256)
    return {
        "total": draw.sizes(7, 0, 1, 61, 64, 130), "num_heads": draw.integer(0, 3),
        "num_bounds": draw.sizes(3, 1, 2, 9), "d_k": draw.sizes(8, 1, 17, 32, 64, 80, 128, rare=wider),
        "d_v": draw.sizes(8, 1, 19, 32, 72, 128, rare=wider), "max_seqlen": draw.choice((1, 16, 100)),
        "is_causal": draw.flag(), "window_left": draw.choice((None, 0, 9, 70)), "scale": draw.choice((None, 0.3, -0.5)),
        "element": draw.element,
    }  # fmt: skip


_call = functional(HstuAttentionPlan)


@entry(HstuAttentionPlan)
def hstu_attention(
    q: Any, k: Any, v: Any, seq_offsets: Any, *, max_seqlen: int, is_causal: bool = True,
    window_left: int | None = None, scale: float | None = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """silu(scale · q kᵀ) v / max_seqlen of packed sequences, causal by default (HSTU, arXiv:2402.17152).

    q, k [total, heads, d_k], v [total, heads, d_v]; sequence b has the rows seq_offsets[b] : seq_offsets[b + 1], int32
    or int64 [sequences + 1] on the device. A token sees those of its sequence, causal up to itself, with window_left
    none further back than that. max_seqlen divides the weights, whatever the sequences' lengths. Tokens of no sequence
    give zeros. generative-recommenders' and FBGEMM's HSTU attention without targets and contextual tokens.
    """
    return _call(
        q, k, v, seq_offsets, max_seqlen=max_seqlen, is_causal=is_causal, window_left=window_left, scale=scale, out=out,
        stream=stream, preference=preference,
    )  # fmt: skip
