"""Composed forms of embedding: of a part of a vocabulary, of several tables added, bags of several tables."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from ...core import Array
from ...core.checked import whole
from ...core.element import INDICES
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import reshaped, shape_of, with_axis
from ...expressions.elementwise import elementwise
from ...core.arrays import read
from ..indexing.indexed import broadcast_together, indices_read
from ..indexing.positions import NOWHERE
from ..indexing.take import TakePlan, take
from ..segment.gather_scatter import GatherScatterPlan
from .embedding import EmbeddingPlan, embedding
from .embedding_bag import embedding_bag


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


@entry(TakePlan)
def vocab_parallel_embedding(
    indices: Array, weight: Array, vocab_start: int, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Rows of the part of a table that starts at row vocab_start (Megatron's VocabParallelEmbedding), 0 for others.

    indices: of the whole table, any shape; weight: [rows of the part, dim]. The sum over devices is the look-up. 2
    launches; the gradient of weight has that of its own rows.
    """
    options = {"stream": stream, "preference": preference}
    shape, kind = shape_of(weight, "weight"), read(indices, "indices").element
    if len(shape) != 2 or kind not in INDICES:
        raise InvalidProblemError(
            f"weight must be [rows, dim] and indices int64 or int32, got shape {shape} and {kind}"
        )
    start = whole("vocab_start", vocab_start, 0)
    facts = {"n": start, "e": start + shape[0], "none": NOWHERE}  # an index of another part is no mistake
    own = _formula("int64(i) - n if i >= n and i < e else none")(i=indices, **facts, **options)
    return take(weight, own, axis=0, out=out, **options)


@entry(EmbeddingPlan)
def embedding_add(
    indices: Array, weight: Array, positions: Array, position_weight: Array, types: Array | None = None,
    type_weight: Array | None = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """weight[indices] + position_weight[positions] (+ type_weight[types]): the embeddings of BERT and GPT-2.

    positions and types broadcast against indices. A launch for each table and one that adds; a gradient of each table.
    """
    if (types is None) != (type_weight is None):
        raise InvalidProblemError("types and type_weight go together: give both, or neither")
    options = {"stream": stream, "preference": preference}
    found = {"indices": indices, "positions": positions, "types": types}
    broadcast_together(tuple(indices_read(one, name).shape for name, one in found.items() if one is not None))
    columns = shape_of(weight, "weight")[-1:]
    for name, table in (("position_weight", position_weight), ("type_weight", type_weight)):
        if table is not None and (shape := shape_of(table, name))[-1:] != columns:
            raise InvalidProblemError(f"{name} must have as many columns as weight, {columns[0]}, got shape {shape}")
    a, b = embedding(indices, weight, **options), embedding(positions, position_weight, **options)
    if types is None:
        return _formula("a + b")(a=a, b=b, out=out, **options)
    c = embedding(types, type_weight, **options)
    return _formula("a + b + c")(a=a, b=b, c=c, out=out, **options)


@entry(GatherScatterPlan)
def embedding_bag_tables(
    indices: Array, weight: Array, row_offsets: Array, per_sample_weights: Array | None = None, *, mode: str = "sum",
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The bags of several tables in one launch (FBGEMM's table-batched embedding): y[t, b, :] of table t and bag b.

    weight: [rows of all tables, dim], table t being its rows row_offsets[t] to row_offsets[t + 1] - 1; indices:
    [tables, bags, length], within their table, others (as -1) have no part; per_sample_weights likewise. mode: sum,
    mean or max. 2 launches; gradients as `embedding_bag`.
    """
    shape, tables = shape_of(indices, "indices"), shape_of(row_offsets, "row_offsets")
    if len(shape) != 3 or tables != (shape[0] + 1,):
        raise InvalidProblemError(
            f"indices must be [tables, bags, length] and row_offsets [tables + 1], got {shape} and {tables}"
        )
    options = {"stream": stream, "preference": preference}
    first, end = (with_axis(with_axis(one, -1, "rows"), -1, "rows") for one in (row_offsets[:-1], row_offsets[1:]))
    rows = _formula("where((i >= 0) & (i < e - r), i + r, -1)")(i=indices, r=first, e=end, **options)
    bags = (shape[0] * shape[1], shape[2])
    own = None if per_sample_weights is None else _as(per_sample_weights, bags, "per_sample_weights")
    held = None if out is None else _as(out, (bags[0], shape_of(weight, "weight")[1]), "out")
    y = embedding_bag(_as(rows, bags, "indices"), weight, None, own, mode=mode, out=held, **options)
    return out if out is not None else _as(y, (*shape[:2], shape_of(weight, "weight")[1]), "y")


def _as(x: Any, shape: tuple[int, ...], name: str) -> Any:
    """x in another shape."""
    if math.prod(shape_of(x, name)) != math.prod(shape):
        raise InvalidProblemError(f"{name} must have {math.prod(shape)} elements, got shape {shape_of(x, name)}")
    made = reshaped(x, shape, name)
    if made is None:
        raise InvalidProblemError(f"{name} must be one run of memory, got other strides; copy it to a dense array")
    return made
