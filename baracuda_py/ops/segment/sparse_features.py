"""permute_2d_sparse_data and block_bucketize_sparse_features: bags of ids moved and dealt out (torch.ops.fbgemm)."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.checked import whole
from ...core.errors import InvalidProblemError
from ...core.outputs import beside, each_of
from ...core.views import cut, reshaped, shape_of
from ...expressions.elementwise import elementwise
from ...schedules.segments import By
from ..indexing.take import TakePlan, take
from ..layout.creation import arange
from ..layout.views import raveled
from ..scan.scan import cumsum
from .segment_index import segment_ids
from .segment_kinds import beyond
from .segment_order import segment_order


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


def _numbers(name: str, x: Array, rank: int) -> tuple[int, ...]:
    """The shape of whole numbers with so many axes."""
    shape = shape_of(x, name)
    if len(shape) != rank or not read(x, name).element.is_integer:
        axes = "1 axis" if rank == 1 else f"{rank} axes"
        raise InvalidProblemError(
            f"{name} must be whole numbers of {axes}, got {read(x, name).element} of shape {shape}"
        )
    return shape


def _values(name: str, x: Array, count: int | None = None) -> int:
    """How many values there are, one for each id."""
    shape = shape_of(x, name)
    if not shape or (count is not None and shape[0] != count):
        what = "an axis of ids" if count is None else f"{count} rows, one for each id"
        raise InvalidProblemError(f"{name} must have {what}, got shape {shape}")
    return shape[0]


@entry(TakePlan)
def permute_2d_sparse_data(
    permute: Array, lengths: Array, values: Array, weights: Array | None = None, *, total: int | None = None,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """(lengths, values, weights) with the bags of feature permute[t] as those of feature t (fbgemm's).

    permute: [features of the result], int32 or int64; a feature may be left out, or be there more than once. lengths:
    [features, batch], or [features], how many values each bag has; values: [total, ...]; weights: [total, ...],
    without which the results are two. total: how many values the result has (fbgemm's permuted_lengths_sum), by
    default as many as there are, as nothing is read back; what is more is cut, what is fewer is 0 at the end. Gradients
    of values and weights are sums in a fixed order.
    """
    shape, options = shape_of(lengths, "lengths"), {"stream": stream, "preference": preference}
    (features,) = _numbers("permute", permute, 1)
    _numbers("lengths", lengths, 1 if len(shape) == 1 else 2)
    count = _values("values", values)
    if weights is not None:
        _values("weights", weights, count)
    count = count if total is None else whole("total", total, 0)
    to = each_of(out, 2 if weights is None else 3)
    made = take(lengths, permute, axis=0, out=to[0], **options)
    bags = features * math.prod(shape[1:])
    ends = [cumsum(raveled(x, stream), axis=0, **options) for x in (lengths, made)]
    # How far the first value of a bag is from where it was.
    begins = _formula("e - n")(e=reshaped(ends[0], shape, "ends"), n=lengths, **options)
    begins = take(begins, permute, axis=0, **options)
    shift = _formula("b - (e - n)")(b=begins, e=reshaped(ends[1], shape_of(made, "lengths"), "ends"), n=made, **options)
    absent = beyond(values)
    bag = segment_ids(ends[1], tokens=count, num_segments=bags, by=By.ENDS.value, absent=absent, **options)
    source = take(reshaped(shift, (bags,), "shift"), bag, axis=0, **options)
    with beside(bag, stream):
        places = arange(count, element=read(bag, "bag").element, like=bag)
    index = _formula("where(b < 0, absent, s + i)")(b=bag, s=source, i=places, absent=absent, **options)
    given = (values,) if weights is None else (values, weights)
    return (made, *(take(x, index, axis=0, out=one, **options) for x, one in zip(given, to[1:], strict=True)))


permute_1d_sparse_data = permute_2d_sparse_data


@entry(TakePlan)
def block_bucketize_sparse_features(
    lengths: Array, indices: Array, block_sizes: Array, my_size: int, weights: Array | None = None, *,
    bucketize_pos: bool = False, sequence: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """(lengths, indices, weights, pos, unbucketize_permute) of bags dealt to my_size ranks (fbgemm's).

    lengths: [features · batch], how many ids each bag has; indices: [total], ids, int32 or int64; block_sizes:
    [features], how many ids of a feature a rank has. An id i of feature t belongs to rank i // block_sizes[t] and is
    i % block_sizes[t] there; one outside [0, my_size · block_sizes[t]) to rank i % my_size, of Python's remainder, as
    nobody owns it. The result has the bags of rank 0, then those of rank 1, …, each in the order of its ids: lengths
    [my_size · features · batch], indices [total], weights [total, ...] where given. With bucketize_pos pos [total] is
    the place of each id in its bag before; with sequence unbucketize_permute [total] is where each id has gone. What is
    not asked for is not there. Nothing is read back: ids behind the last bag go nowhere (-1), and the result ends in
    zeros. The gradient of weights is what comes back in their places.
    """
    (bags,), (count,), (features,) = (
        _numbers(name, x, 1) for name, x in (("lengths", lengths), ("indices", indices), ("block_sizes", block_sizes))
    )
    ranks, options = whole("my_size", my_size, 1), {"stream": stream, "preference": preference}
    if bags % max(features, 1) or (bags and not features):
        raise InvalidProblemError(f"lengths must be [features · batch] of {features} features, got {bags}")
    if weights is not None:
        _values("weights", weights, count)
    batch, absent = bags // max(features, 1), beyond(indices)
    wanted = (True, True, weights is not None, bool(bucketize_pos), bool(sequence))
    given = iter(each_of(out, sum(wanted)))
    to = [next(given) if one else None for one in wanted]
    ends = cumsum(lengths, axis=0, **options)
    bag = segment_ids(ends, tokens=count, num_segments=bags, by=By.ENDS.value, absent=absent, **options)
    feature = _formula("where(b < 0, b, b // maximum(n, 1))")(b=bag, n=batch, **options)
    size = take(block_sizes, feature, axis=0, **options)
    fits = "0 <= i and i < s * ranks"
    owned = _formula(f"where(b < 0, -1, where({fits}, i // maximum(s, 1), i % ranks) * bags + b)")(
        b=bag, i=indices, s=size, ranks=ranks, bags=bags, **options
    )
    own = _formula("where(s > 0, i % maximum(s, 1), i)")(i=indices, s=size, **options)
    _, offsets, places, order = segment_order(
        owned, num_segments=ranks * bags, others=True, absent=absent, return_places=True, return_rows=True, **options
    )
    edges = [cut(offsets, (place,), "offsets") for place in (slice(1, ranks * bags + 1), slice(0, ranks * bags))]
    kinds = {name: read(x, name).element for name, x in (("lengths", lengths), ("indices", indices))}
    found = _formula(f"{kinds['lengths']}(a - b)")(a=edges[0], b=edges[1], out=to[0], **options)
    ids = _formula(f"{kinds['indices']}(x)")(x=take(own, order, axis=0, **options), out=to[1], **options)
    made = [found, ids]
    if weights is not None:
        made.append(take(weights, order, axis=0, out=to[2], **options))
    if bucketize_pos:
        with beside(bag, stream):
            at = arange(count, element=read(bag, "bag").element, like=bag)
        begins = take(_formula("e - n")(e=ends, n=lengths, **options), bag, axis=0, **options)
        at = _formula(f"{kinds['indices']}(i - b)")(i=at, b=begins, **options)
        made.append(take(at, order, axis=0, out=to[3], **options))
    if sequence:
        text = f"{kinds['indices']}(where(p < 0, -1, p))"
        made.append(_formula(text)(p=places, out=to[4], **options))
    return tuple(made)
