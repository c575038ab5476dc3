"""forgetting_attention: causal attention that fades by the gates between key and query (Lin et al. 2025, FoX).

A composition: the running sums of the gates' logs, and `flash_sdpa` under a formula that reads them where they lie.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from ....calls.entries import entry
from ....core import Array, ElementKind as E
from ....core.arrays import read
from ....core.errors import InvalidProblemError
from ....core.outputs import each_of
from ....core.views import permuted, shape_of
from ....expressions.attention import attention
from ...elementwise.cast import cast
from ...scan.scan import cumsum
from ..layouts import is_swapped
from ..sparse.native_sparse_attention import lengths
from .flash_sdpa import FlashSdpaPlan


@cache
def _fading() -> Any:
    return attention("s + sums[b, h, q + start] - sums[b, h, k]")


def check_held(name: str, x: Any, *kinds: E) -> None:
    """That x holds one of these elements."""
    if (found := read(x, name).element) not in kinds:
        wanted = " or ".join(dict.fromkeys(map(str, kinds)))
        raise InvalidProblemError(f"{name} must hold {wanted}, got {found}; cast it first")


def sums_of_gates(g: Any, like: Any, wanted: tuple[int, ...], swapped: bool, options: dict[str, Any]) -> Any:
    """The running sums [batch, heads, tokens] of the logs of gates, in the accumulator of q's element."""
    kind, found = read(like, "q").element, read(g, "g").element
    shown = (wanted[0], wanted[2], wanted[1]) if swapped else wanted
    if shape_of(g, "g") != shown:
        raise InvalidProblemError(
            f"g must have shape {shown}, a number for each head and token, got {shape_of(g, 'g')}"
        )
    check_held("g", g, kind, kind.acc)
    if found is not kind.acc:
        g = cast(g, kind.acc, **options)
    return cumsum(permuted(g, (0, 2, 1), "g") if swapped else g, axis=-1, **options)


@entry(FlashSdpaPlan)
def forgetting_attention(
    q: Array, k: Array, v: Array, g: Array, *, scale: float | None = None, layout: str = "bhsd",
    return_lse: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ + D) v, causal, with D[i, j] = g[j + 1] + … + g[i], the logs of the gates from key to query.

    q [batch, heads, queries, d_k], k and v [batch, kv_heads, tokens, d_k and d_v], g [batch, heads, tokens] ≤ 0 and
    finite, as log_sigmoid makes it, of q's element or its accumulator's; layout "bshd": heads and sequence exchanged, g
    [batch, tokens, heads]. The queries are the last of the tokens. scale: default 1 / √d_k. With return_lse also
    log Σ exp.
    The Forgetting Transformer (FoX, arXiv:2503.02130; flash-linear-attention's `forgetting_attn`). D is the difference
    of running sums in the accumulator, so of sums near -10⁴ in float32 it has an error near 10⁻³; no scores are in
    memory. Gradients of q, k, v and g by torch's autograd and JAX.
    """
    swapped, options = is_swapped(layout), {"stream": stream, "preference": preference}
    queries, tokens = lengths(q, k, v, swapped)
    batch, *axes = shape_of(q, "q")[:3]
    sums = sums_of_gates(g, q, (batch, axes[1] if swapped else axes[0], tokens), swapped, options)
    outs = each_of(out, 2 if return_lse else 1)
    return _fading()(
        q, k, v, sums=sums, start=tokens - queries, is_causal=True, causal_alignment="bottom_right", scale=scale,
        layout=layout, return_lse=return_lse, out=None if out is None else outs if return_lse else outs[0], **options,
    )  # fmt: skip
