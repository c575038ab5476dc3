"""block_select_attention of packed sequences: each laid on whole blocks, and attention of all as one sequence.

Which rows go where is found on the device; rows are copied there and back by their numbers, and gradients alike the
other way, so that no sum is made of them.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from ....calls.composed import composed
from ....calls.entries import entry
from ....core import Array, ElementKind as E
from ....core.arrays import read
from ....core.checked import whole
from ....core.errors import InvalidProblemError
from ....core.outputs import each_of
from ....core.views import shape_of, with_axis, without_axes
from ....expressions.elementwise import elementwise
from ...elementwise.cast import cast
from ...indexing.take import take
from ...layout.pad import pad
from ...layout.views import part
from ...scan.scan import cumsum
from ..cache.batch_indices_positions import batch_indices_positions
from ..layouts import asked
from ..sparse.block_select_attention import BlockSelectAttentionPlan, block_select_attention
from ..sparse.block_select_attention_backward import BlockSelectAttentionBackwardPlan, block_select_attention_backward

Options = dict[str, Any]


@cache
def _map(formula: str) -> Any:
    return elementwise(formula)


def _moved_back(dy: Any, x: Any, index: Any, back: Any, axis: int, preference: Any) -> tuple[Any]:
    return (take(dy, back, axis=axis, preference=preference),)


@composed(_moved_back, "x", reads=())
def _moved(
    x: Any, index: Any, back: Any, *, axis: int = 0, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """Rows of x, each of which goes to one place at most, which `back` has: that way goes the gradient."""
    return take(x, index, axis=axis, out=out, stream=stream, preference=preference)


class _Places(NamedTuple):
    """Where the row of each place comes from, where each row goes, and the block lists of places."""

    source: Any
    place: Any
    blocks: Any


def _lengths(q: Any, k: Any, v: Any, blocks: Any, bounds: Any) -> tuple[int, int]:
    """(tokens, sequences)."""
    shapes = [shape_of(x, name) for name, x in (("q", q), ("k", k), ("v", v), ("block_indices", blocks))]
    if any(len(shape) != 3 for shape in shapes) or len({shape[0] for shape in shapes}) > 1:
        raise InvalidProblemError(
            "q, k, v and block_indices must be [total, heads, d], [total, kv_heads, d], [total, kv_heads, d] and "
            f"[total, kv_heads, n], got {', '.join(map(str, shapes))}"
        )
    shape, kind = shape_of(bounds, "cu_seqlens"), read(bounds, "cu_seqlens").element
    if len(shape) != 1 or not shape[0] or kind not in (E.I32, E.I64):
        raise InvalidProblemError(f"cu_seqlens must be [batch + 1] of int32 or int64, got {shape} of {kind}")
    if (found := read(blocks, "block_indices").element) not in (E.I32, E.I64):
        raise InvalidProblemError(f"block_indices must hold int32 or int64, got {found}")
    return shapes[0][0], shape[0] - 1


def _places(blocks: Any, bounds: Any, tokens: int, batch: int, size: int, options: Options) -> _Places:
    room = (tokens + batch * (size - 1)) // size * size + 1  # the last is no sequence's
    if read(bounds, "cu_seqlens").element is not E.I64:
        bounds = cast(bounds, E.I64, **options)  # of which their sums are
    begins, ends = part(bounds, 0, 0, batch), part(bounds, 0, 1, batch + 1)
    lengths = _map("maximum(e - b, 0)")(e=ends, b=begins, **options)
    laid = _map("(n + (size - 1)) // size * size")(n=lengths, size=size, **options)
    starts = pad(cumsum(laid, **options), [(1, 0)], **options)
    own, position = batch_indices_positions(bounds, lengths, num_tokens=tokens, **options)
    which, within = batch_indices_positions(starts, laid, num_tokens=room, **options)

    def of(x: Any, sequence: Any) -> Any:
        return take(x, sequence, axis=0, **options)

    if not batch:
        place = _map("room - 1 + 0 * p")(p=position, room=room, **options)
        source = _map("none + 0 * p")(p=within, none=tokens, **options)
        return _Places(source, place, _map("0 * b - 1")(b=take(blocks, source, axis=0, **options), **options))
    place = _map("room - 1 if s < 0 else at + p")(s=own, at=of(starts, own), p=position, room=room, **options)
    source = _map("none if s < 0 or p >= n else at + p")(
        s=which, p=within, n=of(lengths, which), at=of(begins, which), none=tokens, **options
    )
    n, at, s = (with_axis(with_axis(x, -1, "x"), -1, "x") for x in (of(laid, own), of(starts, own), own))
    # one more than the block: rows of no token are then 0, and so is what names no block of its sequence
    listed = _map("0 if s < 0 or b < 0 or b * size >= n else b + at // size + 1")(
        s=s, b=blocks, size=size, n=n, at=at, **options
    )
    return _Places(source, place, _map("b - 1")(b=take(listed, source, axis=0, **options), **options))


def _one(x: Any, name: str) -> Any:
    return with_axis(x, 0, name)


@entry(BlockSelectAttentionPlan)
def block_select_attention_varlen(
    q: Array, k: Array, v: Array, block_indices: Array, cu_seqlens: Array, *, block_size: int = 64,
    scale: float | None = None, return_lse: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`block_select_attention`, causal, of packed sequences: q [total, heads, d_k], k and v [total, kv_heads, d].

    block_indices, int32 or int64 [total, kv_heads, n]: blocks of block_size keys of the token's own sequence, counted
    from its first; one that it has not is left out. cu_seqlens, int32 or int64 [batch + 1], are bounds on the device,
    never read by the host; a token of no sequence gives zeros and lse -inf. With return_lse also log Σ exp,
    [heads, total]. That is flash-linear-attention's `parallel_nsa` with `cu_seqlens`, its selected branch.

    A composition: rows are copied so that each sequence begins at a block, at most batch · (block_size - 1) rows more,
    and back; some launches on integers say where. Gradients of q, k and v by torch's autograd and
    JAX, or `block_select_attention_varlen_backward`.
    """
    options = {"stream": stream, "preference": preference}
    tokens, batch = _lengths(q, k, v, block_indices, cu_seqlens)
    size = whole("block_size", block_size, 1)
    outs = each_of(out, 2 if return_lse else 1)
    places = _places(block_indices, cu_seqlens, tokens, batch, size, options)
    moved = [_moved(x, places.source, places.place, **options) for x in (q, k, v)]
    first, second, third = (_one(x, "x") for x in moved)
    made = block_select_attention(
        first, second, third, _one(places.blocks, "block_indices"), block_size=size,
        scale=scale, is_causal=True, layout="bshd", return_lse=return_lse, **options,
    )  # fmt: skip
    y, lse = made if return_lse else (made, None)
    y = _moved(without_axes(y, [0], "y"), places.place, places.source, out=outs[0], **options)
    if not return_lse:
        return y
    return y, _moved(without_axes(lse, [0], "lse"), places.place, places.source, axis=1, out=outs[1], **options)


@entry(BlockSelectAttentionBackwardPlan)
def block_select_attention_varlen_backward(
    q: Array, k: Array, v: Array, block_indices: Array, cu_seqlens: Array, y: Array, lse: Array, dy: Array,
    dlse: Array | None = None, *, block_size: int = 64, scale: float | None = None, return_dq: bool = True,
    return_dk: bool = True, return_dv: bool = True, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(dq, dk, dv), those asked for, of `block_select_attention_varlen`; lse and dlse are [heads, total]."""
    options = {"stream": stream, "preference": preference}
    tokens, batch = _lengths(q, k, v, block_indices, cu_seqlens)
    size, flags = whole("block_size", block_size, 1), asked({"dq": return_dq, "dk": return_dk, "dv": return_dv})
    outs = each_of(out, sum(flags.values()))
    source, place, blocks = _places(block_indices, cu_seqlens, tokens, batch, size, options)

    def laid(x: Any, axis: int = 0) -> Any:
        return None if x is None else _one(take(x, source, axis=axis, **options), "x")

    made = block_select_attention_backward(
        laid(q), laid(k), laid(v), _one(blocks, "block_indices"), laid(y), laid(lse, 1), laid(dy), laid(dlse, 1),
        block_size=size, scale=scale, is_causal=True, layout="bshd",
        return_dq=flags["dq"], return_dk=flags["dk"], return_dv=flags["dv"], **options,
    )  # fmt: skip
    made = made if isinstance(made, (tuple, list)) else (made,)
    back = [
        take(without_axes(x, [0], "dx"), place, axis=0, out=to, **options) for x, to in zip(made, outs, strict=True)
    ]
    return tuple(back) if len(back) > 1 else back[0]
