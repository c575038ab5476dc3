"""skip_softmax_attention: attention without the blocks of keys whose weights are provably small (after BLASST, 2025).

A composition: bounds of the scores of each query and block of keys by the largest and smallest of its components, a
bound of each row's maximum by real keys, and `sdpa_block_sparse` under the pattern that these make.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from ....calls.entries import entry
from ....core import Array
from ....core.arrays import read
from ....core.checked import shown, whole
from ....core.errors import InvalidProblemError
from ....core.outputs import beside
from ....core.views import constant, permuted, shape_of
from ....expressions.elementwise import elementwise
from ...elementwise.unary import neg, relu  # type: ignore[attr-defined]  # made from a table
from ...gemm.matmul import matmul
from ...layout.creation import arange
from ...layout.views import part, reshape
from ...pooling.pool import max_pool2d
from ...reduce.reduce import amax  # type: ignore[attr-defined]  # made from a table
from ..layouts import is_swapped, swap
from .native_sparse_attention import lengths
from .sdpa_block_sparse import SdpaBlockSparsePlan, sdpa_block_sparse


@cache
def _formulas() -> tuple[Any, Any]:
    return (
        elementwise("-inf if start > position else s"),
        elementwise("not (high - low < most + margin)"),  # so that NaN keeps a block
    )


def _pattern(q: Any, k: Any, size: int, scale: float, margin: float, causal: bool, options: dict[str, Any]) -> Any:
    """Which blocks each query of each head keeps, bool [batch, heads, queries, blocks]; q and k in "bhsd"."""
    (batch, heads, queries, d), (_, kv_heads, tokens, _) = shape_of(q, "q"), shape_of(k, "k")
    if not kv_heads or heads % kv_heads:
        raise InvalidProblemError(f"the {kv_heads} heads of k must divide the {heads} of q")
    size = min(size, tokens)
    blocks, grouped = -(-tokens // size), (batch, kv_heads, heads // kv_heads, queries, d)
    pool = {"kernel_size": (size, 1), "stride": (size, 1), "ceil_mode": True, **options}
    wide = {"alpha": scale, "out_element": read(q, "q").element.acc, **options}

    def by_keys(rows: Any, keys: Any) -> Any:
        columns = reshape(permuted(keys, (0, 1, 3, 2), "k"), (batch, kv_heads, 1, d, blocks))
        return reshape(matmul(reshape(rows, grouped), columns, **wide), (batch, heads, queries, blocks))

    less = neg(q, **options)
    high = by_keys(relu(q, **options), max_pool2d(k, **pool))
    low = neg(by_keys(relu(less, **options), max_pool2d(neg(k, **options), **pool)), **options)
    most, (hidden, kept) = by_keys(q, part(k, 2, 0, tokens, size)), _formulas()
    if causal:
        with beside(q, options["stream"]):
            positions = reshape(arange(tokens - queries, tokens, element="int32", like=q), (queries, 1))
            starts = arange(0, blocks * size, size, element="int32", like=q)
        most = hidden(start=starts, position=positions, s=most, **options)
    most = amax(most, axis=-1, keepdims=True, **options)
    return kept(high=high, low=low, most=most, margin=margin, **options)


@entry(SdpaBlockSparsePlan)
def skip_softmax_attention(
    q: Array, k: Array, v: Array, threshold: float, *, block_size: int = 64, scale: float | None = None,
    is_causal: bool = False, layout: str = "bhsd", return_lse: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ) v without blocks of keys of which no weight reaches threshold times the row's largest.

    q [batch, heads, queries, d_k], k and v [batch, kv_heads, tokens, d_k and d_v], layout "bshd": heads and sequence
    exchanged; the queries are the last of the tokens. threshold in (0, 1), scale above 0. With return_lse also log Σ
    exp, of what is left.

    What is promised: but for the rounding of scores, a weight that is left out is less than threshold times the
    largest of its row, so y differs from attention by at most 2 n threshold max |v| where n keys are left out; nothing
    is promised to be left out. A query leaves a block of block_size keys out where the bound of its scores,
    scale Σ_d max(q_d max k_d, q_d min k_d) over the block's largest and smallest components, is below log threshold
    plus the largest score among the first keys of the blocks that it sees; tiles of which no query keeps a block cost
    nothing. The bound is loose where components vary within a block. TensorRT-LLM's skip softmax looks at the block's
    scores themselves and at the maximum so far, with threshold = its scale factor / tokens: it leaves out more, and of
    each row what comes after a large score. Gradients of q, k and v by torch's autograd and JAX, the choice being a
    constant.
    """
    swapped, options = is_swapped(layout), {"stream": stream, "preference": preference}
    _, tokens = lengths(q, k, v, swapped)
    size = whole("block_size", block_size, 1)
    if not isinstance(threshold, (int, float)) or not 0 < threshold < 1:
        raise InvalidProblemError(f"threshold must be a number between 0 and 1, got {shown(threshold)}")
    scale = shape_of(q, "q")[-1] ** -0.5 if scale is None else scale
    if not isinstance(scale, (int, float)) or not 0 < scale < math.inf:
        raise InvalidProblemError(f"scale must be a number above 0, got {shown(scale)}")
    if not tokens:
        raise InvalidProblemError("skip_softmax_attention takes at least one token")
    by_heads, keys = (constant(swap(x) if swapped else x) for x in (q, k))
    pattern = _pattern(by_heads, keys, size, scale, math.log(threshold), is_causal, options)
    return sdpa_block_sparse(
        q, k, v, pattern, query_block=1, key_block=size, is_causal=is_causal, causal_alignment="bottom_right",
        scale=scale, layout=layout, return_lse=return_lse, out=out, **options,
    )  # fmt: skip
