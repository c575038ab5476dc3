"""moba_attention: mixture of block attention: each query head takes the blocks whose mean key it likes best (Lu 2025).

A composition: means, their products with the queries, `topk`, and `sdpa_block_sparse` under a pattern of one query a
block, whose tiles are visited where one of their queries wants them. Gradients are its; the choice is a constant.
"""

from __future__ import annotations

from typing import Any

from ....core import Array, ElementKind as E
from ....core.arrays import read
from ....core.checked import whole
from ....core.errors import InvalidProblemError
from ....core.outputs import beside
from ....core.views import constant, reshaped, shape_of, transposed
from ....calls.entries import entry
from ...elementwise.binary_functions import lt
from ...elementwise.ternary_functions import where
from ...gemm.matmul import matmul
from ...indexing.scatter import scatter
from ...layout.creation import arange, full, ones
from ...pooling.pool import avg_pool2d
from ...sort.topk import topk
from ..layouts import is_swapped, swap
from .native_sparse_attention import lengths
from .sdpa_block_sparse import SdpaBlockSparsePlan, sdpa_block_sparse


def _pattern(q: Any, k: Any, size: int, count: int, options: dict[str, Any]) -> Any:
    """Which blocks each query of each head takes, bool [batch, heads, queries, blocks]; q and k in "bhsd"."""
    (batch, heads, queries, d), (_, kv_heads, tokens, _) = shape_of(q, "q"), shape_of(k, "k")
    blocks, start, group = -(-tokens // size), tokens - queries, heads // max(kv_heads, 1)
    if heads != group * kv_heads:
        raise InvalidProblemError(f"the {kv_heads} heads of k must divide the {heads} of q")
    pool = min(size, tokens)
    means = avg_pool2d(k, kernel_size=(pool, 1), stride=(pool, 1), ceil_mode=True, **options)
    by_group = reshaped(q, (batch, kv_heads, group, queries, d), "q")
    keys = transposed(reshaped(means, (batch, kv_heads, 1, blocks, d), "k"), "k")
    wide = E.F64 if read(q, "q").element is E.F64 else E.F32
    scores = matmul(by_group, keys, out_element=wide, **options)
    with beside(q, options["stream"]):
        positions = reshaped(arange(start, tokens, element=E.I32, like=q), (queries, 1), "positions")
        begins, ends = (arange(n, n + blocks * size, size, element=E.I32, like=q) for n in (0, size))
        none = full((batch, heads, queries, blocks), False, E.BOOL, like=q)
        chosen = ones((batch, heads, queries, min(count, blocks)), E.BOOL, like=q)
    # the query's own block first, then those before it; those behind are never better
    past = where(lt(positions, ends, **options), float("inf"), scores, **options)
    past = where(lt(positions, begins, **options), float("-inf"), past, **options)
    past = reshaped(past, (batch, heads, queries, blocks), "scores")
    return scatter(none, topk(past, min(count, blocks), **options)[1], chosen, axis=-1, **options)


@entry(SdpaBlockSparsePlan)
def moba_attention(
    q: Array, k: Array, v: Array, *, block_size: int = 512, top_k: int = 3, scale: float | None = None,
    layout: str = "bhsd", return_lse: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Causal attention of each query head to the top_k blocks whose mean key it likes best, its own always among them.

    With return_lse also log Σ exp.
    q [batch, heads, queries, d_k], k and v [batch, kv_heads, tokens, d_k and d_v], layout "bshd": heads and sequence
    exchanged; the queries are the last of the tokens. A block of block_size tokens is liked by q · (the mean of its
    keys); a query takes its own block and the top_k - 1 best of those before it, of equal ones the first. Mixture of
    block attention (MoBA, arXiv:2502.13189). Gradients of q, k and v come by torch's autograd and JAX; the choice is a
    constant to them, as in the paper.
    """
    swapped, options = is_swapped(layout), {"stream": stream, "preference": preference}
    _, tokens = lengths(q, k, v, swapped)
    size, count = whole("block_size", block_size, 1), whole("top_k", top_k, 1)
    if not tokens:
        raise InvalidProblemError("moba_attention takes at least one token")
    by_heads, keys = (constant(swap(x) if swapped else x) for x in (q, k))
    pattern = _pattern(by_heads, keys, size, count, options)
    return sdpa_block_sparse(
        q, k, v, pattern, query_block=1, key_block=size, is_causal=True, causal_alignment="bottom_right", scale=scale,
        layout=layout, return_lse=return_lse, out=out, **options,
    )  # fmt: skip
