"""sdpa_block_sparse: attention that leaves out the blocks of scores a pattern does not set, at no cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ....core import Args, Array, ElementKind, Plan, Vjp, extent, operand, output
from ....calls.functional import functional
from ....core.element import unrounded
from ....calls.entries import entry
from ....schedules.attention.sparse.forward import MMA_ROW, SIMT_ROW
from ..dense.flash_sdpa import attention_case
from ..dense.flash_sdpa import reference as attention
from ..layouts import Layouts
from ..score_terms import AttentionDescriptor
from ....core.benchmark import Benchmark, EAGER, FLOPS
from ..in_torch import attention as attend
from ..in_torch import terms


@dataclass(frozen=True, kw_only=True)
class SdpaBlockSparseDescriptor(AttentionDescriptor):
    """As `AttentionDescriptor`; a block of the pattern is `query_block` queries by `key_block` keys, the last cut off.

    Any sizes. Tiles of scores are visited whole or not at all: 64 queries by 64 keys, or 16 by 32. Blocks of such
    multiples cost what is set in them, others what their tiles hold.
    """

    window_left: ClassVar[None] = None  # no score terms
    window_right: ClassVar[None] = None
    softcap: ClassVar[float] = 0.0
    dropout_p: ClassVar[float] = 0.0
    query_block: int = extent(64, minimum=1)
    key_block: int = extent(64, minimum=1)

    @property
    def query_blocks(self) -> int:
        """Blocks along the queries."""
        return -(-self.query_len // self.query_block)

    @property
    def key_blocks(self) -> int:
        """Blocks along the keys."""
        return -(-self.key_len // self.key_block)


def random_pattern(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Blocks set at random, few or most of them."""
    return rng.random(shape) < rng.choice((0.2, 0.5, 0.9))


PATTERN = "batch_size num_heads query_blocks key_blocks"


@dataclass(slots=True, kw_only=True)
class SdpaBlockSparseArgs(Args):
    """`pattern`: 0 where none of the block's scores is seen; it may be shared by a batch or by heads (extent 1).

    `lse` = log Σ exp(scale · q kᵀ) over the keys seen, in the accumulator's element: the backward takes it.
    """

    q: Array = operand("batch_size num_heads query_len d_k", layout="inner")
    k: Array = operand("batch_size num_kv_heads key_len d_k", layout="inner")
    v: Array = operand("batch_size num_kv_heads key_len d_v", layout="inner")
    pattern: Array = operand(PATTERN, element=(ElementKind.BOOL, ElementKind.U8), broadcast=True, values=random_pattern)
    y: Array = output("batch_size num_heads query_len d_v", layout="inner")
    lse: Array | None = output("batch_size num_heads query_len", element="acc", optional=True, layout="dense")


def seen(desc: Any, pattern: Any) -> np.ndarray:
    """The pattern as a mask [batch, heads, query_len, key_len]."""
    grid = np.broadcast_to(
        np.asarray(pattern) != 0, (desc.batch_size, desc.num_heads, desc.query_blocks, desc.key_blocks)
    )
    rows, columns = np.arange(desc.query_len) // desc.query_block, np.arange(desc.key_len) // desc.key_block
    mask: np.ndarray = grid[:, :, rows[:, None], columns]
    return mask


def reference(
    desc: SdpaBlockSparseDescriptor, *, q: Any, k: Any, v: Any, pattern: Any, wanted: set[str], store: Any = unrounded
) -> Mapping[str, Any]:
    """NumPy in the dtype q comes in, as `FlashSdpaPlan`'s."""
    return attention(desc, q=q, k=k, v=v, mask=seen(desc, pattern), wanted=wanted, store=store)  # type: ignore[arg-type]


def in_torch(
    torch: Any, desc: SdpaBlockSparseDescriptor, *, q: Any, k: Any, v: Any, pattern: Any, wanted: set[str]
) -> Any:
    """Attention under the pattern as a mask."""
    mask = pattern != 0
    mask = mask.repeat_interleave(desc.query_block, 2).repeat_interleave(desc.key_block, 3)
    mask = mask[:, :, : desc.query_len, : desc.key_len]
    made = attend(torch, q, k, v, **terms(desc), mask=mask, only_y="lse" not in wanted)
    return {name: made[name] for name in ("y", "lse") if name in made}


def quarter_in_torch(torch: Any, desc: Any) -> dict[str, Any]:
    """A pattern that sets a quarter of every row's blocks."""
    shape = (desc.batch_size, desc.num_heads, desc.query_blocks, desc.key_blocks)
    return {"pattern": torch.rand(shape).argsort(-1) < desc.key_blocks // 4}


def block_sparse_benchmarks(*also: str, target: float | None, blocks: tuple[int, ...]) -> tuple[Benchmark, ...]:
    """Long sequences under `quarter_in_torch`."""
    return tuple(
        Benchmark(
            f"16 x [8192, 128], 25 % of {block} x {block}, bf16", batch_size=1, num_heads=16, query_len=8192,
            key_len=8192, d_k=128, d_v=128, query_block=block, key_block=block, element="bfloat16", also=also,
            make=quarter_in_torch, work=FLOPS, share=0.25, target=target, peers=() if also else (EAGER,),
        )
        for block in blocks
    )  # fmt: skip


class SdpaBlockSparsePlan(Plan):
    """y = softmax(scale · q kᵀ) v over the keys whose block of the pattern is set and that a causal mask leaves.

    Blocks that are not set cost nothing; what stands in their k and v adds nothing. A query that sees no key gives
    zeros and lse -inf.
    """

    op = "attention.sdpa_block_sparse"
    descriptor = SdpaBlockSparseDescriptor
    args = SdpaBlockSparseArgs
    reference = staticmethod(reference)
    value_policy = "pattern: any byte but 0 is set"
    variants = (MMA_ROW, SIMT_ROW)
    vjp = Vjp("SdpaBlockSparseBackwardPlan", grads={"q": "dq", "k": "dk", "v": "dv"})
    torch = staticmethod(in_torch)
    benchmarks = block_sparse_benchmarks(target=0.35, blocks=(64, 128, 32))

    @staticmethod
    def case(draw: Any) -> SdpaBlockSparseDescriptor:
        return SdpaBlockSparseDescriptor(**block_sparse_case(draw))

    @classmethod
    def flops(cls, desc: SdpaBlockSparseDescriptor) -> int:
        """With every block set."""
        return 2 * desc.batch_size * desc.num_heads * desc.pairs * (desc.d_k + desc.d_v)


def block_sparse_case(draw: Any) -> dict[str, Any]:
    """`attention_case` with blocks that fill tiles, that cut them evenly, and odd ones."""
    sizes = (64, 16, 32, 8, 1, 5, 24, 128)
    return attention_case(draw) | {"query_block": draw.sizes(*sizes), "key_block": draw.sizes(*sizes)}


_call = functional(SdpaBlockSparsePlan, layouts=Layouts(("q", "k", "v", "y")))


@entry(SdpaBlockSparsePlan)
def sdpa_block_sparse(
    q: Any, k: Any, v: Any, pattern: Any, *, query_block: int = 64, key_block: int = 64, scale: float | None = None,
    is_causal: bool = False, causal_alignment: str = "top_left", layout: str = "bhsd", return_lse: bool = False,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ) v over the keys whose block of the pattern is set, query i at key i (top left) by default.

    With return_lse also log Σ exp.
    q [batch, heads, queries, d_k], k and v [batch, kv_heads, keys, d_k and d_v], layout "bshd": heads and sequence
    exchanged. pattern, bool or uint8 [batch or 1, heads or 1, ⌈queries / query_block⌉, ⌈keys / key_block⌉] in either.
    """
    facts = {
        "query_block": query_block, "key_block": key_block, "scale": scale, "is_causal": is_causal,
        "causal_alignment": causal_alignment, "return_lse": return_lse,
    }  # fmt: skip
    return _call(q, k, v, pattern, **facts, layout=layout, out=out, stream=stream, preference=preference)
