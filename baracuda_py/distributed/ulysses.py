"""ulysses_attention: a sequence in shards attended to by heads in shards, exchanged by two all-to-alls (DeepSpeed)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..core import Array
from ..core.checked import shown
from ..core.errors import InvalidProblemError
from ..core.outputs import each_of
from ..core.views import with_axis, without_axes
from ..ops.attention.dense.flash_sdpa import flash_sdpa
from ..ops.attention.layouts import shape_of
from ..ops.layout.moves import copy
from ..ops.layout.repeats import repeat_interleave
from .agreement import checked_communicator
from .collectives import all_to_all


def ulysses_attention(
    q: Array, k: Array, v: Array, comm: Any, *, attention: Callable[..., Any] = flash_sdpa, return_lse: bool = False,
    out: Any = None, stream: Any = None, preference: Any = None, **facts: Any,
) -> Any:  # fmt: skip
    """attention(q, k, v, **facts) of a whole sequence of which every rank has a shard, whole heads on each rank.

    q [batch, heads, n, d_k], k [batch, kv_heads, n, d_k] and v [batch, kv_heads, n, d_v] are this rank's n positions,
    rank r's behind those of rank r - 1, as many on every rank, and so is y; with return_lse also lse [batch, heads, n].
    The ranks must divide the query heads. Key heads that they do not divide are repeated as often as it takes: with
    more ranks than key heads, several ranks have the same one. Two all-to-alls of q, k, v and y: each rank attends
    with heads / size of its heads to the whole sequence. attention is called as `flash_sdpa` is, which it is by
    default, with return_lse and whatever else is given by keyword (is_causal, windows, a formula; not what differs
    between heads, such as slopes or sinks). A head has the bits that attention gives it on one rank, for any number
    of ranks.

    Gradients of q, k and v are those of attention and of the exchanges, in torch. Raises `InvalidProblemError` where
    the ranks do not divide the heads, `MismatchError` on every rank where ranks differ. Jacobs et al. 2023
    (arXiv:2309.14509).
    """
    checked_communicator(comm)
    options = {"stream": stream, "preference": preference}
    shapes = {name: shape_of(x, name) for name, x in (("q", q), ("k", k), ("v", v))}
    size, heads, kv_heads = comm.size, shapes["q"][1], shapes["k"][1]
    if not callable(attention):
        raise InvalidProblemError(f"attention must be a function called as flash_sdpa is, got {shown(attention)}")
    if heads % size:
        raise InvalidProblemError(
            f"q has {heads} heads, which {size} ranks do not divide; ring_attention takes any number of heads"
        )
    if shapes["v"][1] != kv_heads or not kv_heads or heads % kv_heads:
        raise InvalidProblemError(
            f"k and v must have as many heads, and q a multiple of these, got {kv_heads} and "
            f"{shapes['v'][1]} for {heads}"
        )
    for name in ("k", "v"):
        if shapes[name][2] != shapes["q"][2]:
            raise InvalidProblemError(f"{name} must have q's {shapes['q'][2]} positions, got {shapes[name][2]}")
    often = size // math.gcd(size, kv_heads)
    if often > 1:
        k, v = (repeat_interleave(x, often, 1, **options) for x in (k, v))
    whole = [all_to_all(x, comm, 1, 2, stream=stream) if size > 1 else x for x in (q, k, v)]
    outs = each_of(out, 2) if return_lse else (*each_of(out, 1), None)
    made = attention(*whole, **facts, **({"return_lse": True} if return_lse else {}), **options)
    y, lse = made if return_lse else (made, None)
    if size > 1:
        y = all_to_all(y, comm, 2, 1, stream=stream)
        if lse is not None:
            lse = without_axes(all_to_all(with_axis(lse, 3, "lse"), comm, 2, 1, stream=stream), (3,), "lse")
    found = [x if to is None else copy(x, out=to, **options) for x, to in zip((y, lse), outs, strict=True)]
    return tuple(found) if return_lse else found[0]
