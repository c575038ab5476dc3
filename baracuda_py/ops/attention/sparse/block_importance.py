"""block_importance: how much of a query's attention to compressed keys falls on each block of tokens (Yuan et al.).

Native sparse attention chooses by it: `topk` of the importance are the blocks that `block_select_attention` takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Args, Array, Descriptor, ElementKind, Plan, derived, element, extent, integer, operand, output,
)  # fmt: skip
from ....calls.functional import functional
from ....calls.entries import entry
from ....core.benchmark import Benchmark, FLOPS
from ....core.element import cast, unrounded
from ....schedules.attention.sparse.importance import MMA_ROW, SIMT_ROW
from ..grouped_heads import GroupedHeads, kv_heads, score_scale
from ..layouts import Layouts
from ..score_terms import finite


@dataclass(frozen=True, kw_only=True)
class BlockImportanceDescriptor(GroupedHeads, Descriptor):
    """Compressed key c stands for the compress_size tokens from c · compress_stride on, of `tokens`.

    Query i stands at token query_start + i, by default so that the last query is at the last token, and sees c once it
    has seen all of c's tokens. The first `initial` blocks of block_size tokens and the `local` last ones up to the
    query's own are inf. num_kv_heads and scale as in `AttentionDescriptor`.
    """

    batch_size: int = extent()
    num_heads: int = extent()
    query_len: int = extent()
    key_len: int = extent()
    d_k: int = extent()
    tokens: int = integer(derived(lambda desc: desc.query_len), minimum=0)
    query_start: int = integer(derived(lambda desc: max(desc.tokens - desc.query_len, 0)), minimum=0)
    block_size: int = integer(64, minimum=1)
    compress_size: int = integer(32, minimum=1)
    compress_stride: int = integer(16, minimum=1)
    initial: int = integer(1, minimum=0)
    local: int = integer(2, minimum=0)
    scale: float = score_scale()
    num_kv_heads: int = kv_heads()
    element: ElementKind = element()

    @property
    def blocks(self) -> int:
        """Blocks of tokens."""
        return -(-self.tokens // self.block_size)

    @property
    def seen(self) -> np.ndarray:
        """Which queries see which compressed keys, [query_len, key_len]."""
        ends = np.arange(self.key_len) * self.compress_stride + self.compress_size
        mask: np.ndarray = ends <= np.arange(self.query_len)[:, None] + self.query_start + 1
        return mask

    @property
    def overlap(self) -> np.ndarray:
        """How many of its strides a compressed key has in each block, [key_len, blocks]."""
        first = np.arange(self.key_len)[:, None] * self.compress_stride
        begin = np.arange(self.blocks) * self.block_size
        tokens = np.minimum(first + self.compress_size, begin + self.block_size) - np.maximum(first, begin)
        strides: np.ndarray = np.maximum(tokens, 0) / self.compress_stride
        return strides


@dataclass(slots=True, kw_only=True)
class BlockImportanceArgs(Args):
    """`lse`: log Σ exp(scale · q kᵀ) over the compressed keys seen, as `flash_sdpa` gives it."""

    q: Array = operand("batch_size num_heads query_len d_k", layout="inner", values=finite)
    k: Array = operand("batch_size num_kv_heads key_len d_k", layout="inner", values=finite)
    lse: Array = operand("batch_size num_heads query_len", element="acc", layout="dense")
    importance: Array = output("batch_size num_kv_heads query_len blocks", element="acc", layout="inner")


def _scores(desc: Any, q: Any, k: Any) -> Any:
    return (q * q.dtype.type(desc.scale)) @ k.repeat(desc.group, axis=1).swapaxes(-1, -2)


def reference(
    desc: BlockImportanceDescriptor, *, q: Any, k: Any, lse: Any, store: Any = unrounded
) -> Mapping[str, Any]:
    """NumPy in the dtype q comes in."""
    s, seen = _scores(desc, q, k), desc.seen
    with np.errstate(over="ignore", invalid="ignore"):
        p = np.where(seen, np.exp(np.minimum(s - lse[..., None].astype(s.dtype), 0)), 0).astype(s.dtype)
    shape = (desc.batch_size, desc.num_kv_heads, desc.group, desc.query_len, desc.key_len)
    importance = p.reshape(shape).sum(axis=2) @ desc.overlap.astype(s.dtype)
    own = (np.arange(desc.query_len) + desc.query_start) // desc.block_size
    behind = own[:, None] - np.arange(desc.blocks)
    importance[..., (behind < desc.local) | (np.arange(desc.blocks) < desc.initial)] = np.inf
    importance[..., behind < 0] = -np.inf
    return {"importance": importance}


def in_torch(torch: Any, desc: BlockImportanceDescriptor, *, q: Any, k: Any, lse: Any) -> Any:
    """The weights of all heads, summed."""
    s = (q * desc.scale).to(lse.dtype) @ k.to(lse.dtype).repeat_interleave(desc.group, 1).transpose(-1, -2)
    p = torch.exp((s - lse[..., None]).clamp(max=0)).masked_fill(~torch.from_numpy(desc.seen).to(q.device), 0.0)
    shape = (desc.batch_size, desc.num_kv_heads, desc.group, desc.query_len, desc.key_len)
    importance = p.reshape(shape).sum(2) @ torch.from_numpy(desc.overlap).to(p)
    blocks = torch.arange(desc.blocks, device=q.device)
    own = (torch.arange(desc.query_len, device=q.device) + desc.query_start) // desc.block_size
    behind = own[:, None] - blocks
    importance = importance.masked_fill((behind < desc.local) | (blocks < desc.initial), torch.inf)
    return importance.masked_fill(behind < 0, -torch.inf)


class BlockImportancePlan(Plan):
    """importance[t, j] = Σ over a key head's query heads and the compressed keys c seen of weight · overlap(c, j).

    weight = exp(scale · q[t] k[c] - lse[t]); overlap counts the strides of c that lie in block j (equation 9 of the
    paper, whose sizes are multiples of the stride). Blocks that begin after the query are -inf.
    """

    op = "attention.block_importance"
    descriptor = BlockImportanceDescriptor
    args = BlockImportanceArgs
    reference = staticmethod(reference)
    variants = (MMA_ROW, SIMT_ROW)
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "64/4 heads, 8192 tokens, stride 16, bf16", batch_size=1, num_heads=64, num_kv_heads=4, query_len=8192,
            key_len=511, d_k=128, element="bfloat16", work=FLOPS, target=None, peers=(),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> BlockImportanceDescriptor:
        kv_heads, queries = draw.integer(1, 2), draw.sizes(5, 0, 1, 40)
        size, stride = draw.choice(((32, 16), (8, 4), (5, 3), (2, 7), (1, 1)))
        tokens = queries + draw.sizes(0, 3, 90)
        return BlockImportanceDescriptor(
            batch_size=draw.integer(0, 2), num_heads=kv_heads * draw.choice((1, 3, 16, 18)), num_kv_heads=kv_heads,
            query_len=queries, key_len=draw.sizes(0, 1, 7, 33, 70), d_k=draw.sizes(8, 1, 17, 64, 128, rare=(192, 256)),
            tokens=tokens, query_start=draw.choice((None, 0, 200)), block_size=draw.sizes(16, 1, 5, 64),
            compress_size=size, compress_stride=stride, initial=draw.choice((1, 0, 2)), local=draw.choice((2, 0, 1)),
            scale=draw.choice((None, 0.3, -0.5)), element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        q, k = (arrays[n].astype(np.longdouble) for n in ("q", "k"))
        s = np.where(desc.seen, _scores(desc, q, k), -np.inf)
        top = s.max(axis=-1, initial=-np.inf)
        base = np.where(top == -np.inf, 0, top)
        with np.errstate(divide="ignore"):
            arrays["lse"] = cast(base + np.log(np.exp(s - base[..., None]).sum(axis=-1)), desc.acc)

    @classmethod
    def flops(cls, desc: BlockImportanceDescriptor) -> int:
        return 2 * desc.batch_size * desc.num_heads * int(desc.seen.sum()) * desc.d_k


_call = functional(BlockImportancePlan, layouts=Layouts(("q", "k", "importance")))


@entry(BlockImportancePlan)
def block_importance(
    q: Any, k: Any, lse: Any, *, tokens: int | None = None, query_start: int | None = None, block_size: int = 64,
    compress_size: int = 32, compress_stride: int = 16, initial: int = 1, local: int = 2, scale: float | None = None,
    layout: str = "bhsd", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """How much of a query's attention to compressed keys falls on each block, [batch, kv_heads, queries, blocks].

    q [batch, heads, queries, d], k [batch, kv_heads, compressed, d], layout "bshd": heads and sequence exchanged, in
    the result too. k[c] stands for compress_size tokens from c · compress_stride on. lse [batch, heads, queries]: log
    Σ exp over the compressed keys that a query sees, those whose tokens all stand at or before it, as
    flash_sdpa(…, mask="k * 16 + 32 <= q + 1", return_lse=True) gives it. Query i stands at token query_start + i, by
    default the last at the last of `tokens`, by default as many as queries. Of block_size tokens each, the first
    `initial` blocks and the `local` last up to the query's own are inf; blocks behind it -inf. `topk` of the result are
    the blocks that native sparse attention selects. There is no gradient: a choice has none.
    """
    return _call(
        q, k, lse, tokens=tokens, query_start=query_start, block_size=block_size, compress_size=compress_size,
        compress_stride=compress_stride, initial=initial, local=local, scale=scale, layout=layout, out=out,
        stream=stream, preference=preference,
    )  # fmt: skip
