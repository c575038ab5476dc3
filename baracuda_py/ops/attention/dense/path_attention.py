"""path_attention: positions as products of reflections that tokens choose (Yang et al. 2025, PaTH attention).

The product of the maps I - β w wᵀ of all tokens between a key and a query is I minus a product of triangular matrices
(the UT transform), so that the scores are q kᵀ less a matrix found by products and one triangular solution. A
composition: that matrix is a bias that `flash_sdpa` reads where it lies.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ....calls.entries import entry
from ....core import Array
from ....core.arrays import read
from ....core.errors import InvalidProblemError
from ....core.outputs import each_of
from ....core.views import permuted, shape_of, with_axis
from ....expressions.attention import attention
from ...elementwise.binary_functions import mul
from ...elementwise.cast import cast
from ...gemm.matmul import matmul
from ...layout.triangle import tril
from ...layout.views import reshape
from ...linalg.triangular_functions import solve_triangular
from ..layouts import is_swapped, swap
from ..sparse.native_sparse_attention import lengths
from .flash_sdpa import FlashSdpaPlan
from .forgetting_attention import check_held, sums_of_gates


@cache
def _formula(fading: bool) -> Any:
    return attention("s - less[b, h, q, k]" + (" + sums[b, h, q] - sums[b, h, k]" if fading else ""))


def _less(q: Any, k: Any, w: Any, beta: Any, scale: float, options: dict[str, Any]) -> Any:
    """scale · tril(q wᵀ) (I + stril(β w wᵀ))⁻¹ stril(β w kᵀ), [batch, heads, tokens, tokens] in the accumulator."""
    (batch, heads, n, d), kv_heads, kind = shape_of(q, "q"), shape_of(k, "k")[1], read(q, "q").element
    wide = {"out_element": kind.acc, **options}
    turned = permuted(w, (0, 1, 3, 2), "w")
    beta = with_axis(beta, 3, "beta")
    among = mul(tril(matmul(w, turned, **wide), -1, **options), beta, **options)  # read below its diagonal
    keys = mul(tril(matmul(w, permuted(k, (0, 1, 3, 2), "k"), **wide), -1, **options), beta, **options)
    keys = solve_triangular(among, keys, upper=False, unitriangular=True, **options)
    grouped = reshape(q, (batch, kv_heads, heads // kv_heads, n, d))
    to = matmul(grouped, reshape(turned, (batch, kv_heads, 1, d, n)), **wide)
    made = matmul(tril(to, **options), reshape(keys, (batch, kv_heads, 1, n, n)), alpha=scale, **options)
    return reshape(made, (batch, heads, n, n))


@entry(FlashSdpaPlan)
def path_attention(
    q: Array, k: Array, v: Array, w: Array, beta: Array, g: Array | None = None, *, scale: float | None = None,
    layout: str = "bhsd", return_lse: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Causal attention with scores s[i, j] = scale · q[i]ᵀ H[i] H[i - 1] … H[j + 1] k[j], H[t] = I - β[t] w[t] w[t]ᵀ.

    q [batch, heads, tokens, d_k], k and w [batch, kv_heads, tokens, d_k], v [batch, kv_heads, tokens, d_v], beta
    [batch, kv_heads, tokens], in (0, 2) of w of length 1 (the caller's to make so); g [batch, heads, tokens]: the logs
    of forget gates, added to s as in `forgetting_attention`. beta and g may be of the accumulator's element; layout
    "bshd": heads and tokens exchanged, in beta and g, too. scale: default 1 / √d_k. With return_lse also log Σ exp.

    PaTH attention (arXiv:2505.16381; flash-linear-attention's `path_attn`, whose operands these are). s is scale times
    q kᵀ - tril(q wᵀ) (I + stril(β w wᵀ))⁻¹ stril(β w kᵀ): products and one triangular solution of whole sequences,
    tokens³ for each head, in the accumulator, with some matrices [batch, heads, tokens, tokens] in memory. That is for
    training at some thousands of tokens. Gradients of q, k, v, w, beta and g by torch's autograd and JAX.
    """
    swapped, options = is_swapped(layout), {"stream": stream, "preference": preference}
    queries, tokens = lengths(q, k, v, swapped)
    if queries != tokens:
        raise InvalidProblemError(f"q, k and v must have as many tokens, got {queries} and {tokens}")
    held = [swap(x) if swapped else x for x in (q, k, v, w)]
    (batch, heads, _, d_k), keys, values, found = (shape_of(x, n) for x, n in zip(held, "qkvw", strict=True))
    shape = (batch, keys[1], tokens, d_k)
    if keys != shape or not shape[1] or heads % shape[1] or values[:3] != shape[:3] or not d_k:
        raise InvalidProblemError(
            "q, k and v must be [B, H, N, D], [B, K, N, D] and [B, K, N, E], K dividing H, got "
            f"{shape_of(held[0], 'q')}, {keys} and {values}"
        )
    if found != shape:
        raise InvalidProblemError(f"w must have shape {shape} as k has, got {found}")
    kind = read(q, "q").element
    if swapped and len(shape_of(beta, "beta")) == 3:
        beta = permuted(beta, (0, 2, 1), "beta")
    if shape_of(beta, "beta") != shape[:3]:
        raise InvalidProblemError(
            f"beta must have shape {shape[:3]}, by heads and tokens, got {shape_of(beta, 'beta')}"
        )
    check_held("beta", beta, kind, kind.acc)
    check_held("w", w, kind)
    if read(beta, "beta").element is not kind.acc:
        beta = cast(beta, kind.acc, **options)
    tables = {}
    if g is not None:
        tables["sums"] = sums_of_gates(g, q, (batch, heads, tokens), swapped, options)
    scale = d_k**-0.5 if scale is None else scale
    tables["less"] = _less(held[0], held[1], held[3], beta, scale, options)
    outs = each_of(out, 2 if return_lse else 1)
    return _formula(g is not None)(
        q, k, v, **tables, is_causal=True, scale=scale, layout=layout, return_lse=return_lse,
        out=None if out is None else outs if return_lse else outs[0], **options,
    )  # fmt: skip
