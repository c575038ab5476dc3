"""The gradients of ring_attention: k and v go round, the parts of dk and dv go to the rank that has the keys."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..core import Array
from ..core.arrays import read
from ..core.outputs import beside, each_of
from ..core.views import cut
from ..ops.attention.dense.flash_sdpa_backward import flash_sdpa_backward
from ..ops.attention.layouts import shape_of
from ..ops.elementwise.binary_functions import add
from ..ops.elementwise.cast import cast
from ..ops.elementwise.fill import fill
from ..ops.layout.concat import concat
from ..ops.layout.creation import empty, zeros, zeros_like
from ..ops.layout.moves import copy
from .collectives import send_receive
from .ring import Options, Ring, checked_outs, ring_of, rows_of, stepped, wide
from .sequence_blocks import Blocks, FixedTree, Piece, visible

Pair = tuple[Any, Any]
"""Parts of dk and dv of a block of keys, in the accumulator's element."""


class Queries(NamedTuple):
    """A block of queries, with what the forward made of it and the gradients that reach that."""

    q: Any
    y: Any
    lse: Any
    dy: Any
    dlse: Any


def ring_gradients(
    dy: Any, q: Any, k: Any, v: Any, sinks: Any, comm: Any, facts: Options, y: Any, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """(dq, dk, dv, dsinks or None) of `ring_attention`, whose results are y and their gradients dy, tuples of two."""
    options = {"stream": stream, "preference": preference}
    ring = ring_of(q, k, v, sinks, comm, **facts)
    cuts, own, rank, size = ring.blocks, ring.blocks.of(comm.rank), comm.rank, comm.size
    named = (("dq", q), ("dk", k), ("dv", v))
    outs = (*each_of(out, 3), None) if sinks is None else each_of(out, 4)
    checked_outs(outs[:3], [(n, shape_of(x, n), read(x, n).element) for n, x in named])
    queries = _queries(ring, q, y, dy, options)
    dqs: list[FixedTree[Any]] = [FixedTree(cuts.count, lambda a, b: add(a, b, **options)) for _ in own]
    pairs: list[FixedTree[Pair]] = [FixedTree(cuts.count, _added(options)) for _ in own]
    level, dsinks = cuts.each.bit_length() - 1, None
    keys, values = (copy(x, **options) if size > 1 else x for x in (k, v))
    for step in range(size):
        owner, source = (rank - step) % size, (rank + step) % size
        parts: dict[tuple[int, int], Pair] = {}
        for place, key in enumerate(cuts.of(owner)):
            block = tuple(rows_of(x, cuts.rows(place), n) for x, n in ((keys, "k"), (values, "v")))
            for c, chunk in enumerate(cuts.chunks(rank)):
                of_chunk: FixedTree[Pair] = FixedTree(cuts.each, _added(options))
                for n in range(cuts.each):
                    at = c * cuts.each + n
                    piece = visible(ring.sight, cuts, own[at], key)
                    dq, pair = None, None
                    if piece is not None:
                        once = sinks if own[at] == key else None  # where the forward had them
                        dq, pair, dsink = _gradients(queries[at], block, once, piece, ring, options)
                        if dsink is not None:
                            dsinks = dsink if dsinks is None else add(dsinks, dsink, **options)
                    dqs[at].add(key, dq)
                    of_chunk.add(n, pair)
                if of_chunk.total is not None:
                    parts[chunk, key] = of_chunk.total
        if step:
            parts = _handed(parts, ring, comm, step, (k, v), options)
        for chunk in cuts.chunks(source):
            for key, tree in zip(own, pairs, strict=True):
                tree.add(chunk, parts.get((chunk, key)), level)
        if step + 1 < size:
            keys, values = stepped(keys, comm, options), stepped(values, comm, options)
    dks, dvs = ([None if t.total is None else t.total[i] for t in pairs] for i in (0, 1))
    made = [
        _whole(found, x, cuts, to, options)
        for found, x, to in zip(([t.total for t in dqs], dks, dvs), (q, k, v), outs[:3], strict=True)
    ]
    if sinks is not None and dsinks is None:  # no positions
        with beside(sinks, stream):
            dsinks = zeros_like(sinks)
    return (*made, dsinks if outs[3] is None else copy(dsinks, out=outs[3], **options))


def _queries(ring: Ring, q: Any, y: Any, dy: Any, options: Options) -> list[Queries]:
    """The blocks of this rank's queries."""
    (made, lse), (slope, dlse) = y, dy
    if slope is None:
        with beside(made, options["stream"]):
            slope = zeros(read(made, "y").shape, read(made, "y").element, like=made)
    elif read(slope, "dy").strides[-1] != 1:
        slope = copy(slope, **options)  # as of a sum, whose gradient is one number everywhere

    def dense(x: Any, rows: slice) -> Any:
        return None if x is None else copy(rows_of(x, rows, "lse"), **options)

    cuts = ring.blocks
    places = range(cuts.parts * cuts.each)
    found = [(r, [rows_of(x, r, "y") for x in (q, made, slope)]) for r in map(cuts.rows, places)]
    return [Queries(one[0], one[1], dense(lse, r), one[2], dense(dlse, r)) for r, one in found]


def _added(options: Options) -> Any:
    def both(low: Pair, high: Pair) -> Pair:
        return add(low[0], high[0], **options), add(low[1], high[1], **options)

    return both


def _gradients(
    queries: Queries, block: tuple[Any, ...], sinks: Any, piece: Piece, ring: Ring, options: Options
) -> tuple[Any, Pair, Any]:
    """dq, (dk, dv) and dsinks of a block of queries and one of keys."""
    whole = piece.queries == slice(0, ring.blocks.length)
    of = [x if x is None else rows_of(x, piece.queries, "q") for x in queries]
    if not whole:
        of[2], of[4] = (x if x is None else copy(x, **options) for x in (of[2], of[4]))
    k, v = (rows_of(x, piece.keys, "k") for x in block)
    dq, dk, dv, *dsinks = flash_sdpa_backward(
        of[0], k, v, of[1], of[2], of[3], sinks=sinks, dlse=of[4], return_dsinks=sinks is not None, **ring.facts,
        **piece.facts, **options,
    )  # fmt: skip
    found = ((dq, piece.queries), (dk, piece.keys), (dv, piece.keys))
    made = [_placed(wide(x, options), rows, ring.blocks.length, options) for x, rows in found]
    return made[0], (made[1], made[2]), dsinks[0] if dsinks else None


def _placed(x: Any, rows: slice, length: int, options: Options) -> Any:
    """Some rows of a block, zeros elsewhere."""
    batch, heads, n, d = shape_of(x, "x")
    if n == length:
        return x
    with beside(x, options["stream"]):
        made = zeros((batch, heads, length, d), read(x, "x").element, like=x)
    copy(x, out=rows_of(made, rows, "x"), **options)
    return made


def _units(ring: Ring, rank: int, owner: int) -> list[tuple[int, int]]:
    """(chunk of `rank`, block of keys of `owner`) of which the first sees something."""
    cuts = ring.blocks

    def sees(chunk: int, key: int) -> bool:
        return any(visible(ring.sight, cuts, chunk * cuts.each + n, key) is not None for n in range(cuts.each))

    return [(chunk, key) for key in cuts.of(owner) for chunk in cuts.chunks(rank) if sees(chunk, key)]


def _handed(
    parts: dict[tuple[int, int], Pair], ring: Ring, comm: Any, step: int, kv: tuple[Any, Any], options: Options
) -> dict[tuple[int, int], Pair]:  # fmt: skip
    """Parts for the rank `step` before this one, exchanged for those of the rank `step` behind it.

    Both know which there are; every rank sends as many as the one that has most.
    """
    size, rank = comm.size, comm.rank
    owner, source = (rank - step) % size, (rank + step) % size
    most = max(len(_units(ring, r, (r - step) % size)) for r in range(size))
    if not most:
        return {}
    mine, theirs = _units(ring, rank, owner), _units(ring, source, rank)
    came = []
    for i, like in enumerate(kv):
        batch, heads, _, d = shape_of(like, "k")
        sent = [parts[unit][i] for unit in mine]
        if len(mine) < most:
            with beside(like, options["stream"]):
                shape = ((most - len(mine)) * batch, heads, ring.blocks.length, d)
                sent.append(zeros(shape, read(like, "k").element.acc, like=like))
        packed = concat(sent, axis=0, **options)
        got = send_receive(packed, comm, owner, source, stream=options["stream"])
        came.append([cut(got, (slice(n * batch, (n + 1) * batch),), "dk") for n in range(len(theirs))])
    return dict(zip(theirs, zip(*came, strict=True), strict=True))


def _whole(blocks: list[Any], like: Any, cuts: Blocks, out: Any, options: Options) -> Any:
    """Sums of all blocks, zeros for None, in the element."""
    element = read(like, "x").element
    with beside(like, options["stream"]):
        made = empty(shape_of(like, "x"), element, like=like) if out is None else out
    for place, x in enumerate(blocks):
        to = rows_of(made, cuts.rows(place), "x")
        if x is None:
            fill(to, 0, **options)
        else:
            cast(x, element, out=to, **options)
    return made


def ring_attention_backward(
    q: Array, k: Array, v: Array, y: Array, lse: Array, dy: Array, comm: Any, dlse: Array | None = None, *,
    sinks: Array | None = None, is_causal: bool = False, window_left: int | None = None,
    window_right: int | None = None, softcap: float = 0.0, scale: float | None = None, layout: str = "zigzag",
    blocks: int | None = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """(dq, dk, dv) of `ring_attention`, with sinks also dsinks; query i at key i (top left) of the whole sequence.

    y, lse: the forward's, dy and dlse the gradients that reach them; facts as the forward had them, on every rank.
    Keys and values go round as there. Each rank finds the parts of dk and dv of its own queries and hands them, in the
    accumulator's element, to the rank that has the keys; dq is summed over blocks of keys, dk and dv over blocks of
    queries, each in one binary tree, and rounded once: the bits are the same for any number of ranks with as many
    blocks, and with one block those of `flash_sdpa_backward`. dsinks is the part of this rank's queries.
    """
    facts = {
        "is_causal": is_causal, "window_left": window_left, "window_right": window_right, "softcap": softcap,
        "scale": scale, "layout": layout, "blocks": blocks,
    }  # fmt: skip
    made = ring_gradients(
        (dy, dlse), q, k, v, sinks, comm, facts, (y, lse), out=out, stream=stream, preference=preference
    )
    return made[:3] if sinks is None else made
