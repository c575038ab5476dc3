"""ring_attention: attention over a sequence in shards, keys and values going round the ranks (arXiv:2310.01889).

What a block of queries finds in a block of keys is attention with its log Σ exp; such states are merged in float32, in
one binary tree over the blocks of keys. So a result depends on how the sequence is cut into blocks, and not on which
rank has which of them: `blocks` fixes the bits over any number of ranks.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ..calls.composed import composed
from ..core import Array
from ..core.arrays import read
from ..core.checked import truth
from ..core.outputs import beside, each_of
from ..core.views import reshaped
from ..ops.attention.decoding.cascade_attention import cascade_attention
from ..ops.attention.dense.flash_sdpa import flash_sdpa
from ..ops.attention.layouts import shape_of
from ..ops.elementwise.cast import cast
from ..ops.layout.creation import empty, full, zeros
from ..ops.layout.moves import copy
from .ring import Options, checked_outs, ring_of, rows_of, stepped, wide
from .ring_gradient import ring_gradients
from .sequence_blocks import FixedTree, Piece, visible


class State(NamedTuple):
    """Attention over some keys, and the log Σ exp of its scores."""

    y: Any
    lse: Any


def _merged(options: Options) -> Any:
    """Two states as one, in the accumulator's element."""

    def merge(low: State, high: State) -> State:
        y, lse = wide(low.y, options), low.lse
        batch, heads, n, d = read(y, "y").shape
        count = batch * heads * n
        of = [reshaped(x, (count, 1, d), "y") for x in (y, wide(high.y, options))]
        sums = [reshaped(x, (count, 1), "lse") for x in (lse, high.lse)]
        cascade_attention(of[0], sums[0], of[1], sums[1], **options)
        return State(y, lse)

    return merge


def _state(q: Any, k: Any, v: Any, sinks: Any, piece: Piece, facts: Options, options: Options) -> State:
    """What a block of queries finds in a block of keys; sinks: logits that join the sum."""
    n = shape_of(q, "q")[2]
    found = State(
        *flash_sdpa(
            rows_of(q, piece.queries, "q"), rows_of(k, piece.keys, "k"), rows_of(v, piece.keys, "v"), sinks=sinks,
            **facts, **piece.facts, return_lse=True, **options,
        )
    )  # fmt: skip
    if piece.queries == slice(0, n):
        return found
    y, lse = unseeing(q, v, options)
    copy(found.y, out=rows_of(y, piece.queries, "y"), **options)
    copy(found.lse, out=rows_of(lse, piece.queries, "lse"), **options)
    return State(y, lse)


def unseeing(q: Any, v: Any, options: Options) -> State:
    """The state of queries that see no key."""
    kind, (*lead, _) = read(q, "q").element, shape_of(q, "q")
    with beside(q, options["stream"]):
        y = zeros((*lead, shape_of(v, "v")[3]), kind, like=q)
        return State(y, full(tuple(lead), float("-inf"), kind.acc, like=q))


@composed(ring_gradients, "q", "k", "v", "sinks", result=True)
def _ring_attention(
    q: Any, k: Any, v: Any, sinks: Any, comm: Any, facts: Options, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(y, lse)."""
    options = {"stream": stream, "preference": preference}
    ring = ring_of(q, k, v, sinks, comm, **facts)
    cuts, own, outs = ring.blocks, ring.blocks.of(comm.rank), each_of(out, 2)
    kind, lead = read(q, "q").element, shape_of(q, "q")[:3]
    checked_outs(outs, (("y", (*lead, shape_of(v, "v")[3]), kind), ("lse", lead, kind.acc)))
    queries = [rows_of(q, cuts.rows(place), "q") for place in range(len(own))]
    trees: list[FixedTree[State]] = [FixedTree(cuts.count, _merged(options)) for _ in own]
    keys, values = (copy(x, **options) if comm.size > 1 else x for x in (k, v))
    for step in range(comm.size):
        for place, key in enumerate(cuts.of((comm.rank - step) % comm.size)):
            rows = cuts.rows(place)
            for query, block, tree in zip(own, queries, trees, strict=True):
                piece = visible(ring.sight, cuts, query, key)
                of = (rows_of(keys, rows, "k"), rows_of(values, rows, "v"))
                once = sinks if key == query else None  # every query sees its own block
                tree.add(key, None if piece is None else _state(block, *of, once, piece, ring.facts, options))
        if step + 1 < comm.size:
            keys, values = stepped(keys, comm, options), stepped(values, comm, options)
    states = [tree.total or unseeing(block, v, options) for tree, block in zip(trees, queries, strict=True)]
    to_y, to_lse = outs
    if len(states) == 1 and to_y is to_lse is None:
        return _rounded(states[0].y, q, None, options), states[0].lse
    with beside(q, stream):
        y = empty((*lead, shape_of(v, "v")[3]), kind, like=q) if to_y is None else to_y
        lse = empty(lead, kind.acc, like=q) if to_lse is None else to_lse
    for place, state in enumerate(states):
        _rounded(state.y, q, rows_of(y, cuts.rows(place), "y"), options)
        copy(state.lse, out=rows_of(lse, cuts.rows(place), "lse"), **options)
    return y, lse


def _rounded(y: Any, q: Any, out: Any, options: Options) -> Any:
    """y in q's element."""
    kind = read(q, "q").element
    if read(y, "y").element is not kind:
        return cast(y, kind, out=out, **options)
    return y if out is None else copy(y, out=out, **options)


def ring_attention(
    q: Array, k: Array, v: Array, comm: Any, *, sinks: Array | None = None, is_causal: bool = False,
    window_left: int | None = None, window_right: int | None = None, softcap: float = 0.0, scale: float | None = None,
    layout: str = "zigzag", blocks: int | None = None, return_lse: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(scale · q kᵀ) v over a sequence in shards; query i stands at key i (top left) of the whole sequence.

    q [batch, heads, n, d_k], k [batch, kv_heads, n, d_k] and v [batch, kv_heads, n, d_v] are this rank's n positions,
    as many on every rank, and so is y; with return_lse also log Σ exp(s), [batch, heads, n]. layout "zigzag": rank r
    has chunks r and 2 size - 1 - r of 2 size, so that causal work is even; "contiguous": chunk r of size
    (`shard_sequence` cuts either). Windows, softcap, scale and sinks [heads], alike on all ranks, as in `flash_sdpa`.

    The sequence is cut into `blocks` of equal length: a multiple of the chunks by a power of two, by default the least
    that is 16 or more where the length allows it, and 1 for one rank. Each block of queries attends to each block of
    keys that it sees, in the element; results are merged in float32 (float64 for float64) in one binary tree over
    blocks of keys. With as many blocks the bits are the same for any number of ranks and either layout; with one they
    are those of `flash_sdpa`. Gradients of q, k and v, and through lse: k and v go round again, parts of dk and dv go
    straight to the rank that has the keys, and sums have that order, too; that of sinks is each rank's part.

    Raises `InvalidProblemError` for shards that do not fit, `MismatchError` on every rank where ranks differ.
    """
    want = truth("return_lse", return_lse)
    outs = None if out is None else (each_of(out, 2) if want else (*each_of(out, 1), None))
    facts = {
        "is_causal": is_causal, "window_left": window_left, "window_right": window_right, "softcap": softcap,
        "scale": scale, "layout": layout, "blocks": blocks,
    }  # fmt: skip
    y, lse = _ring_attention(q, k, v, sinks, comm, facts, out=outs, stream=stream, preference=preference)
    return (y, lse) if want else y
