"""block_select_attention: attention of each query to a few blocks of keys of its own choice.

What native sparse attention (Yuan et al. 2025) does with the blocks that its compressed branch finds. All query heads
of a key head share a query's choice, so a tile of scores has the heads of one query as rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....core import Args, Array, ElementKind, Plan, Vjp, extent, operand, output
from ....calls.functional import functional
from ....core.element import unrounded
from ....calls.entries import entry
from ....core.benchmark import Benchmark, FLOPS
from ....schedules.attention.sparse.selected import MMA_ROW, SIMT_ROW
from ..dense.flash_sdpa import attention_case
from ..dense.flash_sdpa import reference as attention
from ..in_torch import attention as attend
from ..in_torch import terms
from ..layouts import Layouts
from ..score_terms import AttentionDescriptor

INDEX = (ElementKind.I32, ElementKind.I64)
BLOCKS = "batch_size num_kv_heads query_len selected"


@dataclass(frozen=True, kw_only=True)
class BlockSelectAttentionDescriptor(AttentionDescriptor):
    """As `AttentionDescriptor`; `selected` blocks of block_size keys for each query and key head, the last cut off."""

    window_left: ClassVar[None] = None  # no score terms
    window_right: ClassVar[None] = None
    softcap: ClassVar[float] = 0.0
    dropout_p: ClassVar[float] = 0.0
    selected: int = extent()
    block_size: int = extent(64, minimum=1)

    @property
    def key_blocks(self) -> int:
        """Blocks of keys."""
        return -(-self.key_len // self.block_size)


def random_blocks(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Blocks that exist and some that do not, repeats among them, the first for about half of all queries."""
    made = rng.integers(-2, desc.key_blocks + 3, shape)
    made[..., :1] = np.where(rng.random((*shape[:-1], 1)) < 0.5, 0, made[..., :1])
    return made


@dataclass(slots=True, kw_only=True)
class BlockSelectAttentionArgs(Args):
    """`block_indices`: blocks of keys in any order; one named again counts once, a number of none is left out.

    `lse` = log Σ exp(scale · q kᵀ) over the keys seen, in the accumulator's element: the backward takes it.
    """

    q: Array = operand("batch_size num_heads query_len d_k", layout="inner")
    k: Array = operand("batch_size num_kv_heads key_len d_k", layout="inner")
    v: Array = operand("batch_size num_kv_heads key_len d_v", layout="inner")
    block_indices: Array = operand(BLOCKS, element=INDEX, values=random_blocks)
    y: Array = output("batch_size num_heads query_len d_v", layout="inner")
    lse: Array | None = output("batch_size num_heads query_len", element="acc", optional=True, layout="dense")


def seen(desc: Any, block_indices: Any) -> np.ndarray:
    """The choice as a mask [batch, heads, query_len, key_len]."""
    none = desc.key_blocks
    blocks = np.where((block_indices < 0) | (block_indices > none), none, block_indices).astype(np.int64)
    chosen = np.zeros((*blocks.shape[:-1], none + 1), np.bool_)
    np.put_along_axis(chosen, blocks, True, axis=-1)
    mask: np.ndarray = chosen[..., np.arange(desc.key_len) // desc.block_size]
    return mask.repeat(desc.group, axis=1)


def reference(
    desc: BlockSelectAttentionDescriptor, *, q: Any, k: Any, v: Any, block_indices: Any, wanted: set[str],
    store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in, as `FlashSdpaPlan`'s under the choice as a mask."""
    mask = seen(desc, block_indices)
    return attention(desc, q=q, k=k, v=v, mask=mask, wanted=wanted, store=store)  # type: ignore[arg-type]


def in_torch(
    torch: Any, desc: BlockSelectAttentionDescriptor, *, q: Any, k: Any, v: Any, block_indices: Any, wanted: set[str]
) -> Any:
    """Attention under the choice as a mask."""
    none = desc.key_blocks
    blocks = block_indices.long()
    blocks = blocks.masked_fill((blocks < 0) | (blocks > none), none)
    chosen = torch.zeros((*blocks.shape[:-1], none + 1), dtype=torch.bool, device=q.device).scatter(-1, blocks, True)
    mask = chosen[..., torch.arange(desc.key_len, device=q.device) // desc.block_size]
    made = attend(torch, q, k, v, **terms(desc), mask=mask.repeat_interleave(desc.group, 1), only_y="lse" not in wanted)
    return {name: made[name] for name in ("y", "lse") if name in made}


def nearest_in_torch(torch: Any, desc: Any) -> dict[str, Any]:
    """The query's own block, the first, and others from before, as a causal choice has them."""
    own = torch.arange(desc.query_len)[:, None] // desc.block_size
    shape = (desc.batch_size, desc.num_kv_heads, desc.query_len, desc.selected - 2)
    others = (torch.rand(shape) * own).long()
    edges = torch.cat([own, torch.zeros_like(own)], 1).expand(*shape[:2], -1, -1)
    return {"block_indices": torch.cat([edges, others], -1).int()}


def block_select_benchmarks(*also: str) -> tuple[Benchmark, ...]:
    """The sizes of native sparse attention: 16 blocks of 64, 16 query heads to a key head."""
    length, selected = 8192, 16
    return (
        Benchmark(
            "64/4 heads, [8192, 128], 16 blocks of 64, bf16", batch_size=1, num_heads=64, num_kv_heads=4,
            query_len=length, key_len=length, d_k=128, d_v=128, selected=selected, is_causal=True, element="bfloat16",
            also=also, make=nearest_in_torch, work=FLOPS, target=None, peers=(),
        ),
    )  # fmt: skip


class BlockSelectAttentionPlan(Plan):
    """y = softmax(scale · q kᵀ) v over the keys of the blocks that a query chose and that a causal mask leaves.

    Other blocks cost nothing; what stands in their k and v adds nothing. A query that sees no key gives zeros and lse
    -inf. Bits follow from the set of blocks, not from the order in which they are named.
    """

    op = "attention.block_select_attention"
    descriptor = BlockSelectAttentionDescriptor
    args = BlockSelectAttentionArgs
    reference = staticmethod(reference)
    value_policy = "block_indices: a block named again counts once, one that is not in [0, key blocks) is left out"
    variants = (MMA_ROW, SIMT_ROW)
    vjp = Vjp("BlockSelectAttentionBackwardPlan", grads={"q": "dq", "k": "dk", "v": "dv"})
    torch = staticmethod(in_torch)
    benchmarks = block_select_benchmarks()

    @staticmethod
    def case(draw: Any) -> BlockSelectAttentionDescriptor:
        return BlockSelectAttentionDescriptor(**block_select_case(draw))

    @classmethod
    def flops(cls, desc: BlockSelectAttentionDescriptor) -> int:
        """With every block chosen whole."""
        keys = min(desc.selected * desc.block_size, desc.key_len)
        return 2 * desc.batch_size * desc.num_heads * desc.query_len * keys * (desc.d_k + desc.d_v)


def block_select_case(draw: Any) -> dict[str, Any]:
    """`attention_case` with lists shorter and longer than a warp, blocks that fill tiles and odd ones, large groups."""
    made = attention_case(draw) | {
        "selected": draw.sizes(0, 1, 3, 16, 40), "block_size": draw.sizes(64, 16, 32, 8, 1, 5, 24, 128)
    }  # fmt: skip
    return made | {"num_heads": made["num_kv_heads"] * draw.choice((1, 2, 4, 16, 17))}


_call = functional(BlockSelectAttentionPlan, layouts=Layouts(("q", "k", "v", "y", "block_indices")))


@entry(BlockSelectAttentionPlan)
def block_select_attention(
    q: Any, k: Any, v: Any, block_indices: Any, *, block_size: int = 64, scale: float | None = None,
    is_causal: bool = False, causal_alignment: str = "top_left", layout: str = "bhsd", return_lse: bool = False,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ) v over the keys of the blocks that a query chose; query i at key i (top left) by default.

    With return_lse also log Σ exp.
    q [batch, heads, queries, d_k], k and v [batch, kv_heads, keys, d_k and d_v], layout "bshd": heads and sequence
    exchanged. block_indices, int32 or int64 [batch, kv_heads, queries, n] (in "bshd" [batch, queries, kv_heads, n]):
    block b holds the keys from b · block_size to the next; in any order, one named again counts once, one that does
    not exist (-1) is left out. is_causal hides what lies after the query, in its own block too. The selected branch of
    native sparse attention (Yuan et al. 2025, arXiv:2502.11089).
    """
    return _call(
        q, k, v, block_indices, block_size=block_size, scale=scale, is_causal=is_causal,
        causal_alignment=causal_alignment, return_lse=return_lse, layout=layout, out=out, stream=stream,
        preference=preference,
    )  # fmt: skip
