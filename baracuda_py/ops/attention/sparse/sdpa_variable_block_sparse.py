"""sdpa_variable_block_sparse: block-sparse attention whose blocks differ in size (as FlashInfer's)."""

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
from ....schedules.attention.sparse.variable import MMA_ROW, SIMT_ROW
from ..dense.flash_sdpa import attention_case
from ..dense.flash_sdpa import reference as attention
from ..in_torch import attention as attend
from ..in_torch import terms
from ..layouts import Layouts
from ..score_terms import AttentionDescriptor
from .sdpa_block_sparse import random_pattern

INDEX = (ElementKind.I32, ElementKind.I64)
MASK = "num_kv_heads row_blocks column_blocks"
PATTERN_ELEMENTS = (ElementKind.BOOL, ElementKind.U8)


@dataclass(frozen=True, kw_only=True)
class SdpaVariableBlockSparseDescriptor(AttentionDescriptor):
    """As `AttentionDescriptor`; the pattern of a key head has row_blocks by column_blocks blocks."""

    window_left: ClassVar[None] = None  # no score terms
    window_right: ClassVar[None] = None
    softcap: ClassVar[float] = 0.0
    dropout_p: ClassVar[float] = 0.0
    row_blocks: int = extent()
    column_blocks: int = extent()


def random_sizes(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Sizes small and large, none among them; together fewer or more than there are queries and keys."""
    made = rng.choice((0, 1, 7, 16, 33, 64, -1), shape)
    return np.where(rng.random(shape) < 0.1, 200, made)


@dataclass(slots=True, kw_only=True)
class SdpaVariableBlockSparseArgs(Args):
    """`block_mask`: 0 where none of the block's scores is seen; for all batches and the query heads of a key head.

    row_sizes and column_sizes: how many queries and keys each block of a key head has, one behind the other. `lse` =
    log Σ exp(scale · q kᵀ) over the keys seen, in the accumulator's element: the backward takes it.
    """

    q: Array = operand("batch_size num_heads query_len d_k", layout="inner")
    k: Array = operand("batch_size num_kv_heads key_len d_k", layout="inner")
    v: Array = operand("batch_size num_kv_heads key_len d_v", layout="inner")
    block_mask: Array = operand(MASK, element=PATTERN_ELEMENTS, values=random_pattern)
    row_sizes: Array = operand("num_kv_heads row_blocks", element=INDEX, values=random_sizes)
    column_sizes: Array = operand("num_kv_heads column_blocks", element=INDEX, values=random_sizes)
    y: Array = output("batch_size num_heads query_len d_v", layout="inner")
    lse: Array | None = output("batch_size num_heads query_len", element="acc", optional=True, layout="dense")


def places(sizes: Any, length: int) -> np.ndarray:
    """Which block each of `length` tokens is in, [heads, length]; behind the last block one more."""
    ends = np.cumsum(np.maximum(sizes, 0).astype(np.int64), axis=1)
    found: np.ndarray = (ends[:, None] <= np.arange(length)[:, None]).sum(-1)
    return found


def seen(desc: Any, block_mask: Any, row_sizes: Any, column_sizes: Any) -> np.ndarray:
    """The pattern as a mask [1, heads, query_len, key_len]."""
    grid = np.pad(np.asarray(block_mask) != 0, ((0, 0), (0, 1), (0, 1)))
    rows, columns = places(row_sizes, desc.query_len), places(column_sizes, desc.key_len)
    mask: np.ndarray = grid[np.arange(desc.num_kv_heads)[:, None, None], rows[:, :, None], columns[:, None]]
    return mask.repeat(desc.group, axis=0)[None]


def reference(
    desc: SdpaVariableBlockSparseDescriptor, *, q: Any, k: Any, v: Any, block_mask: Any, row_sizes: Any,
    column_sizes: Any, wanted: set[str], store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in, as `FlashSdpaPlan`'s under the pattern as a mask."""
    mask = seen(desc, block_mask, row_sizes, column_sizes)
    return attention(desc, q=q, k=k, v=v, mask=mask, wanted=wanted, store=store)  # type: ignore[arg-type]


def in_torch(
    torch: Any, desc: SdpaVariableBlockSparseDescriptor, *, q: Any, k: Any, v: Any, block_mask: Any, row_sizes: Any,
    column_sizes: Any, wanted: set[str],
) -> Any:  # fmt: skip
    """Attention under the pattern as a mask."""

    def block_of(sizes: Any, length: int) -> Any:
        ends = sizes.long().clamp(min=0).cumsum(1)
        return (ends[:, None] <= torch.arange(length, device=q.device)[:, None]).sum(-1)

    grid = torch.nn.functional.pad(block_mask != 0, (0, 1, 0, 1))
    heads = torch.arange(desc.num_kv_heads, device=q.device)[:, None, None]
    rows, columns = block_of(row_sizes, desc.query_len), block_of(column_sizes, desc.key_len)
    mask = grid[heads, rows[:, :, None], columns[:, None]].repeat_interleave(desc.group, 0)[None]
    made = attend(torch, q, k, v, **terms(desc), mask=mask, only_y="lse" not in wanted)
    return {name: made[name] for name in ("y", "lse") if name in made}


def quarter_in_torch(torch: Any, desc: Any) -> dict[str, Any]:
    """Blocks of 64 and 192 tokens in turn, a quarter of every row set."""
    heads = desc.num_kv_heads
    sizes = [torch.tensor([64, 192]).repeat(heads, n // 2).int() for n in (desc.row_blocks, desc.column_blocks)]
    mask = torch.rand((heads, desc.row_blocks, desc.column_blocks)).argsort(-1) < desc.column_blocks // 4
    return {"block_mask": mask, "row_sizes": sizes[0], "column_sizes": sizes[1]}


def variable_benchmarks(*also: str) -> tuple[Benchmark, ...]:
    """A long sequence under `quarter_in_torch`."""
    return (
        Benchmark(
            "16 x [8192, 128], 25 % of blocks of 64 and 192, bf16", batch_size=1, num_heads=16, query_len=8192,
            key_len=8192, d_k=128, d_v=128, row_blocks=64, column_blocks=64, element="bfloat16", also=also,
            make=quarter_in_torch, work=FLOPS, share=0.25, target=None, peers=(),
        ),
    )  # fmt: skip


POLICY = (
    "block_mask: any byte but 0 is set; a negative size is 0; tokens behind the last block see and are seen by none"
)


class SdpaVariableBlockSparsePlan(Plan):
    """y = softmax(scale · q kᵀ) v over the keys whose block of the pattern is set and that a causal mask leaves.

    As `SdpaBlockSparsePlan`; tables say which block a query or key is in. Tiles of 64 queries by 64 keys without a set
    block cost nothing; what stands in hidden k and v adds nothing.
    """

    op = "attention.sdpa_variable_block_sparse"
    descriptor = SdpaVariableBlockSparseDescriptor
    args = SdpaVariableBlockSparseArgs
    reference = staticmethod(reference)
    value_policy = POLICY
    variants = (MMA_ROW, SIMT_ROW)
    vjp = Vjp("SdpaVariableBlockSparseBackwardPlan", grads={"q": "dq", "k": "dk", "v": "dv"})
    torch = staticmethod(in_torch)
    benchmarks = variable_benchmarks()

    @staticmethod
    def case(draw: Any) -> SdpaVariableBlockSparseDescriptor:
        return SdpaVariableBlockSparseDescriptor(**variable_case(draw))

    @classmethod
    def flops(cls, desc: SdpaVariableBlockSparseDescriptor) -> int:
        """With every block set."""
        return 2 * desc.batch_size * desc.num_heads * desc.pairs * (desc.d_k + desc.d_v)


def variable_case(draw: Any) -> dict[str, Any]:
    """`attention_case` with few and many blocks."""
    return attention_case(draw) | {
        "row_blocks": draw.sizes(3, 0, 1, 9, rare=(300,)), "column_blocks": draw.sizes(3, 0, 1, 9, rare=(300,)),
    }  # fmt: skip


_call = functional(SdpaVariableBlockSparsePlan, layouts=Layouts(("q", "k", "v", "y")))


@entry(SdpaVariableBlockSparsePlan)
def sdpa_variable_block_sparse(
    q: Any, k: Any, v: Any, block_mask: Any, row_sizes: Any, column_sizes: Any, *, scale: float | None = None,
    is_causal: bool = False, causal_alignment: str = "top_left", layout: str = "bhsd", return_lse: bool = False,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ) v over the keys whose block is set, blocks of any sizes; query i at key i (top left).

    With return_lse also log Σ exp.
    q [batch, heads, queries, d_k], k and v [batch, kv_heads, keys, d_k and d_v], layout "bshd": heads and sequence
    exchanged. block_mask, bool or uint8 [kv_heads, rows, columns]; row_sizes [kv_heads, rows] and column_sizes
    [kv_heads, columns], int32 or int64 on the device: how many queries and keys the blocks of each key head have.
    FlashInfer's VariableBlockSparseAttentionWrapper, with gradients.
    """
    return _call(
        q, k, v, block_mask, row_sizes, column_sizes, scale=scale, is_causal=is_causal,
        causal_alignment=causal_alignment, return_lse=return_lse, layout=layout, out=out, stream=stream,
        preference=preference,
    )  # fmt: skip
