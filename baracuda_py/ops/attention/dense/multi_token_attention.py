"""multi_token_attention: weights of attention that are convolutions over queries, keys and heads (Golovneva 2025).

A composition: the product of queries and keys, a convolution of the causal scores, `masked_softmax`, a convolution of
the weights, the product with the values. The convolutions are sums of windows by `vecdot`, as those of `convolve2d`.
"""

from __future__ import annotations

from typing import Any

from ....calls.composed import composed
from ....calls.entries import entry
from ....core import Array, ElementKind as E
from ....core.arrays import read
from ....core.errors import InvalidProblemError
from ....core.outputs import each_of
from ....core.views import permuted, shape_of
from ...elementwise.cast import cast
from ...gemm.matmul import matmul
from ...layout.moves import copy, flip
from ...layout.pad import pad
from ...layout.triangle import tril
from ...layout.views import reshape, unfold
from ...reduce.vecdot import vecdot
from ...softmax.masked_softmax import masked_softmax
from ..layouts import is_swapped, swap
from ..sparse.native_sparse_attention import lengths
from .forgetting_attention import check_held
from .sdpa import SdpaPlan

Options = dict[str, Any]


def _padded(x: Any, before: tuple[int, int], after: tuple[int, int], options: Options) -> Any:
    widths = [*[(0, 0)] * (len(shape_of(x, "x")) - 2), *zip(before, after, strict=True)]
    return x if not any(map(any, widths)) else pad(x, widths, **options)


def _summed(x: Any, taps: Any, before: tuple[int, int], after: tuple[int, int], options: Options) -> Any:
    """Σ over channels c and taps (u, v) of taps[g, o, c, u, v] x[b, g, c, i + u, j + v], x being 0 beyond its ends."""
    (batch, channels, *_), (groups, outs, ins, rows, cols) = shape_of(x, "x"), shape_of(taps, "taps")
    x = _padded(x, before, after, options)
    x = reshape(x, (batch, groups, 1, channels // groups, *shape_of(x, "x")[2:]))
    x = unfold(unfold(x, 4, rows, 1), 5, cols, 1)  # [b, g, 1, c, i, j, u, v]
    made = vecdot(x, reshape(taps, (groups, outs, ins, 1, 1, rows, cols)), axis=(3, 6, 7), conjugate=False, **options)
    return reshape(made, (batch, groups * outs, *shape_of(made, "y")[3:]))


def _sides(weight: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    """How many queries and keys a window has before its own, and behind it."""
    *_, rows, cols = shape_of(weight, "weight")
    return (rows - 1, (cols - 1) // 2), (0, cols // 2)


def _by_group(x: Any, groups: int) -> Any:
    heads, *rest = shape_of(x, "weight")
    return reshape(x, (groups, heads // groups, *rest))


def _slopes(dy: Any, x: Any, weight: Any, preference: Any) -> tuple[Any, Any]:
    """dx: dy by the taps turned round, in and out exchanged; dweight: the sums of products with x, by place."""
    options = {"preference": preference}
    (batch, heads, n, m), (_, ins, rows, cols), (before, after) = (
        shape_of(x, "x"),
        shape_of(weight, "weight"),
        _sides(weight),
    )
    groups = heads // ins
    taps = permuted(_by_group(flip(weight, axis=(2, 3), **options), groups), (0, 2, 1, 3, 4), "weight")
    dx = copy(dy, **options) if 0 in shape_of(x, "x") else _summed(dy, taps, after, before, options)
    wide = reshape(_padded(x, before, after, options), (batch, groups, 1, ins, n + rows - 1, m + cols - 1))
    wide = unfold(unfold(wide, 4, n, 1), 5, m, 1)  # [b, g, 1, c, u, v, i, j]
    dy = reshape(dy, (batch, groups, ins, 1, 1, 1, n, m))
    return dx, reshape(vecdot(wide, dy, axis=(0, 6, 7), conjugate=False, **options), shape_of(weight, "weight"))


@composed(_slopes, "x", "weight")
def _mixed(x: Any, weight: Any, *, stream: Any = None, preference: Any = None) -> Any:
    """y[b, h, i, j] = Σ weight[h, c, u, v] x[b, c of h's group, i - rows + 1 + u, j - (cols - 1) // 2 + v]."""
    options = {"stream": stream, "preference": preference}
    if 0 in shape_of(x, "x"):
        return copy(x, **options)
    groups = shape_of(x, "x")[1] // shape_of(weight, "weight")[1]
    return _summed(x, _by_group(weight, groups), *_sides(weight), options)


def _taps(name: str, weight: Any, heads: int, kind: E, options: Options) -> Any:
    """The weight of a convolution over heads, queries and keys, in the accumulator's element."""
    shape, found = shape_of(weight, name), read(weight, name).element
    if len(shape) != 4 or shape[0] != heads or 0 in shape or heads % shape[1]:
        raise InvalidProblemError(
            f"{name} must have shape [{heads}, heads of a group, rows, columns], the heads of a group dividing "
            f"{heads}, got {shape}"
        )
    check_held(name, weight, kind, kind.acc)
    return weight if found is kind.acc else cast(weight, kind.acc, **options)


@entry(SdpaPlan)
def multi_token_attention(
    q: Array, k: Array, v: Array, pre_weight: Array | None = None, post_weight: Array | None = None, *,
    scale: float | None = None, layout: str = "bhsd", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """C_post(softmax(C_pre(scale · q kᵀ))) v, causal, C a convolution over heads, queries and keys.

    q [batch, heads, tokens, d_k], k and v [batch, kv_heads, tokens, d_k and d_v], layout "bshd": heads and sequence
    exchanged. Weights [heads, heads of a group, rows, columns] as of a grouped conv2d (torch's order), of q's element
    or its accumulator's, None for none: C(x)[h, i, j] = Σ weight[h, c, u, t] x[c, i - rows + 1 + u,
    j - (columns - 1) // 2 + t] over the heads c of h's group; x counts as 0 beyond its ends and where j > i, before
    C and behind it, and the softmax of what C_pre makes is over j ≤ i. So a query mixes its scores with those of the
    rows - 1 queries before it and of the keys around each. The paper's key-query convolution is pre_weight
    [heads, 1, c_q, c_k], its mixing of heads post_weight [heads, c_h, 1, 1]. scale: default 1 / √d_k.

    Multi-Token Attention (arXiv:2504.00927); Liger's `LigerMultiTokenAttention` is C_post of given scores, whose
    windows reach to later queries as well, which these do not. Scores and weights, [batch, heads, tokens, tokens] of
    the accumulator, are in memory, some at a time. An infinite or NaN value of v reaches all queries of its head.
    Gradients of q, k, v and both weights by torch's autograd and JAX.
    """
    swapped, options = is_swapped(layout), {"stream": stream, "preference": preference}
    queries, tokens = lengths(q, k, v, swapped)
    if queries != tokens:
        raise InvalidProblemError(f"q, k and v must have as many tokens, got {queries} and {tokens}")
    (out,) = each_of(out, 1)
    q, k, v = (swap(x) if swapped else x for x in (q, k, v))
    (batch, heads, _, d_k), (_, kv_heads, _, d_v) = shape_of(q, "q"), shape_of(v, "v")
    if not kv_heads or heads % kv_heads or shape_of(k, "k") != (batch, kv_heads, tokens, d_k) or not d_k:
        raise InvalidProblemError(
            f"q, k and v must be [B, H, N, D], [B, K, N, D] and [B, K, N, E], K dividing H, got {shape_of(q, 'q')}, "
            f"{shape_of(k, 'k')} and {shape_of(v, 'v')}"
        )
    kind, group = read(q, "q").element, heads // kv_heads
    pre, post = (
        None if weight is None else _taps(name, weight, heads, kind, options)
        for name, weight in (("pre_weight", pre_weight), ("post_weight", post_weight))
    )
    keys = reshape(permuted(k, (0, 1, 3, 2), "k"), (batch, kv_heads, 1, d_k, tokens))
    scores = matmul(
        reshape(q, (batch, kv_heads, group, tokens, d_k)), keys, alpha=d_k**-0.5 if scale is None else scale,
        out_element=kind.acc, **options,
    )  # fmt: skip
    full = (batch, heads, tokens, tokens)
    scores = reshape(scores, full)
    if pre is not None:
        scores = _mixed(tril(scores, **options), pre, **options)
    weights = masked_softmax(scores, causal=True, **options)
    if post is not None:
        weights = tril(_mixed(weights, post, **options), **options)
    if kind is not kind.acc:
        weights = cast(weights, kind, **options)
    weights = reshape(weights, (batch, kv_heads, group, tokens, tokens))
    if out is not None:
        shape = (batch, tokens, heads, d_v) if swapped else (batch, heads, tokens, d_v)
        if shape_of(out, "out") != shape:
            raise InvalidProblemError(f"out must have shape {shape}, got {shape_of(out, 'out')}")
    rows = out if out is None else reshape(swap(out) if swapped else out, (batch, kv_heads, group, tokens, d_v))
    y = matmul(weights, reshape(v, (batch, kv_heads, 1, tokens, d_v)), out=rows, **options)
    y = reshape(y, (batch, heads, tokens, d_v))
    return out if out is not None else swap(y) if swapped else y
