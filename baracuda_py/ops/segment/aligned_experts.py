"""Rows of experts padded to whole tiles, with their probabilities beside them, and chunks of rows in another order.

The names are those of vLLM (`moe_align_block_size`) and of Transformer Engine and Megatron-LM. Everything stays on the
device: sizes of outputs follow from extents alone, bounds are arrays.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from ...calls.composed import composed
from ...calls.entries import entry
from ...core import Array, ElementKind
from ...core.arrays import read
from ...core.checked import whole
from ...core.element import INDICES
from ...core.errors import InvalidProblemError
from ...core.outputs import each_of
from ...core.views import reshaped, shape_of
from ...expressions.elementwise import elementwise
from ..elementwise.cast import cast
from ..indexing.take import TakePlan, take
from ..layout.pad import pad
from ..loss.composed_losses import places
from ..scan.scan import cumsum
from ..sort.sort import argsort
from .segment_index import segment_ids
from .segment_kinds import flat
from .segment_order import segment_order

_MOST = 2**31 - 1


@cache
def _map(formula: str, *numbers: str) -> Any:
    return elementwise(formula, **dict.fromkeys(numbers, 0))


class _Aligned(NamedTuple):
    """Of places in padded order the expert, -1 for none, and the slot (a token's choice), or what `take` finds none by;
    where each expert's places end; and a slot's place, -1 for none."""

    experts: Any
    slots: Any
    ends: Any
    places: Any


def _as(x: Any, like: Any, options: dict[str, Any]) -> Any:
    """An array of indices in the element of another."""
    kind = read(like, "like").element
    return x if read(x, "x").element is kind else cast(x, kind, **options)


def _none(like: Any) -> int:
    """What `take` finds no row for, and no mistake, in the element of an array of indices."""
    return -(2**31) if read(like, "like").element is ElementKind.I32 else -(2**63)


def _indices(name: str, x: Any, rank: int, what: str) -> tuple[int, ...]:
    shape = shape_of(x, name)
    if len(shape) != rank:
        raise InvalidProblemError(f"{name} must be {what}, got shape {shape}")
    if (found := read(x, name).element) not in INDICES:
        raise InvalidProblemError(f"{name} must be int64 or int32, got {found}")
    return shape


def _aligned(
    experts: Any, count: int, block: int, total: int, options: dict[str, Any], out: Any = None
) -> _Aligned:  # fmt: skip
    """The slots by expert, those of each expert in `total` places from a multiple of `block` on."""
    order, offsets, found = segment_order(experts, num_segments=count, others=True, return_places=True, **options)
    begins, ends, none = offsets[:-1], offsets[1:], _none(offsets)
    widths = _map("(b - a + (s - 1)) // s * s", "s")(a=begins, b=ends, s=block, **options)
    to = cumsum(widths, 0, **options)
    shifts = _map("a - (e - w)")(a=begins, e=to, w=widths, **options)
    own = _as(segment_ids(to, by="ends", tokens=total, absent=-1, **options), offsets, options)
    at = _map("where(o < 0, n, o)", "n")(o=own, n=none, **options)
    first, last = (take(one, at, axis=0, **options) for one in (shifts, ends))
    numbers = _as(places(experts, total, options["stream"]), offsets, options)
    there = _map("where((o < 0) | (i + f >= l), n, i + f)", "n")(o=own, i=numbers, f=first, l=last, n=none, **options)
    slots = _as(take(order, there, axis=0, **options), offsets, options)
    slots = _map("where(t < 0, n, s)", "n")(t=there, s=slots, n=none, **options)
    found = _as(found, offsets, options)
    whose = _map("where(p < 0, n, e)", "n")(p=found, e=_as(experts, offsets, options), n=none, **options)
    moved = _map("where(p < 0, -1, p - s)")(
        p=found, s=take(shifts, whose, axis=0, **options), out=out, **options
    )  # fmt: skip
    return _Aligned(own, slots, to, moved)


@entry(TakePlan)
def moe_align_block_size(
    topk_ids: Array, block_size: int, num_experts: int, expert_map: Array | None = None,
    pad_sorted_ids: bool = False, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, Any, Any]:  # fmt: skip
    """(sorted_token_ids, expert_ids, num_tokens_post_padded), int32: slots by expert, in whole blocks (vLLM's).

    topk_ids: [tokens, k], int32 or int64. Slot t k + j is token t's choice j. sorted_token_ids has the slots of
    expert 0 in their order, then of expert 1 …, each expert's filled up to a multiple of block_size by the number
    tokens · k, as is what follows; its size is tokens · k + num_experts (block_size - 1), with pad_sorted_ids rounded
    up to blocks, and at most tokens · k · block_size where there are fewer slots than experts. expert_ids: whose each
    block is, by expert_map [num_experts] what it names for that, -1 for blocks of none. num_tokens_post_padded [1]:
    where the last expert's blocks end. An expert outside [0, num_experts) has no place. The host reads nothing.
    """
    shape = _indices("topk_ids", topk_ids, 2, "[tokens, k]")
    block, count = whole("block_size", block_size, 1, _MOST), whole("num_experts", num_experts, 1, _MOST)
    slots = shape[0] * shape[1]
    total = slots + count * (block - 1)
    if pad_sorted_ids:
        total = -(-total // block) * block
    if slots < count:
        total = min(slots * block, total)
    if total > _MOST:
        raise InvalidProblemError(f"{total} padded slots do not fit in int32; hand in fewer tokens")
    options = {"stream": stream, "preference": preference}
    if expert_map is not None and _indices("expert_map", expert_map, 1, "[num_experts]") != (count,):
        raise InvalidProblemError(f"expert_map must be [{count}], got shape {shape_of(expert_map, 'expert_map')}")
    outs = each_of(out, 3)
    found = _aligned(flat(topk_ids, shape, "topk_ids"), count, block, total, options)
    ids = _map("int32(where(s < 0, n, s))", "n")(s=found.slots, n=slots, out=outs[0], **options)
    whose = found.experts[::block]
    if expert_map is None:
        experts = _map("int32(e)")(e=whose, out=outs[1], **options)
    else:
        at = _map("where(e < 0, n, e)", "n")(e=whose, n=_none(whose), **options)
        mapped = take(expert_map, at, axis=0, **options)
        experts = _map("int32(where(e < 0, -1, m))")(e=whose, m=mapped, out=outs[1], **options)
    return ids, experts, _map("int32(e)")(e=found.ends[-1:], out=outs[2], **options)


@entry(TakePlan)
def moe_permute_pad_with_probs(
    x: Array, experts: Array, probs: Array | None = None, scales: Array | None = None, *, num_experts: int,
    align_size: int = 16, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """(y, offsets, places), probs and scales if given: `moe_permute` with every expert's rows filled up to whole tiles.

    x: [tokens, ...]; experts: [tokens, k], int32 or int64; probs: [tokens, k] or None; scales: [tokens, ...] of fp8
    rows or None. align_size: 16 or 128, say, as fp8 products ask for. y has tokens · k + num_experts (align_size - 1)
    rows, rounded up to align_size: those of expert e from offsets[e] on, which align_size divides, in the order of
    tokens; zeros elsewhere. offsets [num_experts + 1]; places [tokens, k], which `moe_unpermute` takes, -1 for an
    expert outside [0, num_experts); probs and scales stand as rows of y do (Transformer Engine's
    moe_permute_and_pad_with_probs). Gradients of x, probs and scales, sums in a fixed order.
    """
    shape = _indices("experts", experts, 2, "[tokens, k]")
    block, count = whole("align_size", align_size, 1, _MOST), whole("num_experts", num_experts, 1, _MOST)
    for name, one, wanted in (("x", x, shape[:1]), ("probs", probs, shape), ("scales", scales, shape[:1])):
        if one is not None and (own := shape_of(one, name))[: len(wanted)] != wanted:
            raise InvalidProblemError(f"{name} must begin with axes {wanted}, as experts {shape} says, got shape {own}")
    if probs is not None and len(shape_of(probs, "probs")) != 2:
        raise InvalidProblemError(f"probs must be {shape}, got shape {shape_of(probs, 'probs')}")
    total = -(-(shape[0] * shape[1] + count * (block - 1)) // block) * block
    options = {"stream": stream, "preference": preference}
    outs = iter(each_of(out, 3 + (probs is not None) + (scales is not None)))
    to, bounds, where = (next(outs) for _ in range(3))
    given = None if where is None else flat(where, shape, "places")
    found = _aligned(flat(experts, shape, "experts"), count, block, total, options, given)
    tokens = _map("where(s < 0, s, s // k)", "k")(s=found.slots, k=max(shape[1], 1), **options)
    y = take(x, tokens, axis=0, out=to, **options)
    offsets = pad(found.ends, (1, 0), out=bounds, **options)
    made = [y, offsets, reshaped(found.places, shape, "places") if where is None else where]
    if probs is not None:
        made.append(take(flat(probs, shape, "probs"), found.slots, axis=0, out=next(outs), **options))
    if scales is not None:
        made.append(take(scales, tokens, axis=0, out=next(outs), **options))
    return tuple(made)


def _chunks(
    x: Any, split_sizes: Any, sorted_index: Any, preference: Any, stream: Any = None, back: bool = False
) -> tuple[Any, dict[str, Any]]:  # fmt: skip
    """Where each row of the result comes from, or with `back` where each row of x went."""
    rows, options = shape_of(x, "x"), {"stream": stream, "preference": preference}
    count = _indices("split_sizes", split_sizes, 1, "[chunks]")
    if not rows:
        raise InvalidProblemError("x must have an axis of rows, got a number")
    if not count[0]:
        raise InvalidProblemError("split_sizes must name one chunk at least, got shape (0,)")
    if _indices("sorted_index", sorted_index, 1, "[chunks]") != count:
        raise InvalidProblemError(f"sorted_index must be {count}, got shape {shape_of(sorted_index, 'sorted_index')}")
    ends, sizes = cumsum(split_sizes, 0, **options), take(split_sizes, sorted_index, axis=0, **options)
    begins = _map("e - s")(e=ends, s=split_sizes, **options)
    to = cumsum(sizes, 0, **options)
    shifts = _map("b - (t - s)")(b=take(begins, sorted_index, axis=0, **options), t=to, s=sizes, **options)
    if back:
        shifts = take(shifts, argsort(sorted_index, 0, **options), axis=0, **options)
    own = segment_ids(ends if back else to, by="ends", tokens=rows[0], absent=-1, **options)
    own, numbers = _as(own, shifts, options), _as(places(shifts, rows[0], stream), shifts, options)
    shift = take(shifts, _map("where(o < 0, n, o)", "n")(o=own, n=_none(own), **options), axis=0, **options)
    sign = "-" if back else "+"
    return _map(f"where(o < 0, n, i {sign} s)", "n")(o=own, i=numbers, s=shift, n=_none(own), **options), options


def _moved_back(dy: Any, x: Any, split_sizes: Any, sorted_index: Any, preference: Any) -> tuple[Any]:
    index, options = _chunks(x, split_sizes, sorted_index, preference, back=True)
    return (take(dy, index, axis=0, **options),)


@composed(_moved_back, "x", reads=())
def _moved(
    x: Any, split_sizes: Any, sorted_index: Any, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    index, options = _chunks(x, split_sizes, sorted_index, preference, stream)
    return take(x, index, axis=0, out=out, **options)


@entry(TakePlan)
def moe_sort_chunks_by_index(
    x: Array, split_sizes: Array, sorted_index: Array, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """y: the chunks of rows of x in the order of sorted_index, one behind the other (Transformer Engine's).

    x: [rows, ...], chunk c its next split_sizes[c] rows; split_sizes and sorted_index, a permutation: [chunks], int32
    or int64, on the device and never read by the host. Rows behind the last chunk are zeros. The gradient is a move
    back.
    """
    return _moved(x, split_sizes, sorted_index, out=out, stream=stream, preference=preference)


@entry(TakePlan)
def moe_sort_chunks_by_index_with_probs(
    x: Array, probs: Array, split_sizes: Array, sorted_index: Array, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(y, probs): `moe_sort_chunks_by_index` of rows and of their probabilities [rows, ...]; gradients of both."""
    if shape_of(probs, "probs")[:1] != shape_of(x, "x")[:1]:
        raise InvalidProblemError(
            f"probs must have {shape_of(x, 'x')[:1]} rows as x, got shape {shape_of(probs, 'probs')}"
        )
    given = {"stream": stream, "preference": preference}
    first, second = each_of(out, 2)
    y = _moved(x, split_sizes, sorted_index, out=first, **given)
    return y, _moved(probs, split_sizes, sorted_index, out=second, **given)
