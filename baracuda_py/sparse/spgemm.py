"""spgemm: the product of two sparse matrices, each pair of entries written out, sorted and summed."""

from __future__ import annotations

from typing import Any

from ..core.errors import InvalidProblemError
from ..ops.elementwise.binary_functions import mul
from ..ops.indexing.take import take
from ..ops.scan.scan import cumsum
from ..ops.segment.segment_index import segment_ids
from ..ops.segment.segment_kinds import beyond
from .convert import coalesced, to_coo, to_csr
from .formats import COO, CSR, sparse_of
from .parts import Options, first_of, formula, host_count, index_element, numbers_of, size_of


def spgemm(
    a: Any, b: Any, *, size: int | None = None, products: int | None = None, stream: Any = None,
    preference: Any = None,
) -> CSR:  # fmt: skip
    """A B of two sparse matrices in CSR (torch.sparse.mm, SciPy's @), each place once, in order.

    a: [m, k], b: [k, n]; both become CSR. Every entry of a meets a row of b: the products are written, sorted by their
    places and summed, those of one place in the order of a's entries. Two counts are read back, each of which waits:
    of products, which are memory, and of places. With both upper bounds, `products` and `size`, nothing waits; what is
    left over are zeros behind the last offset. Products beyond `products` are left out, so it must not be too low.
    Gradients of both values.
    """
    options = {"stream": stream, "preference": preference}
    first, second = sparse_of(a, "a"), sparse_of(b, "b")
    if first.shape[1] != second.shape[0]:
        raise InvalidProblemError(f"b must have {first.shape[1]} rows, as a is {first.shape}, got {second.shape}")
    left, right = to_csr(first, **options), to_csr(second, **options)
    shape = (left.shape[0], right.shape[1])
    asked, limit = size_of(size), size_of(products, "products")
    made = _products(to_coo(left, **options), right, shape, limit, options)
    result: CSR = coalesced(made, asked, CSR, index_element(left.columns), options)
    return result


def _products(a: COO, b: CSR, shape: tuple[int, int], limit: int | None, options: Options) -> COO:
    """Every entry of a by each of the row of b that it meets, one after the other; row -1 behind the last."""
    if limit == 0 or not a.nnz or not b.nnz:
        none = first_of(a.values, 0, "values")
        return COO(none, first_of(a.rows, 0, "rows"), first_of(a.columns, 0, "columns"), shape)
    edges, none = [], beyond(b.offsets)
    for shift in (0, 1):
        text = "where(c >= 0 and c < k, int64(c) + s, n)"
        at = formula(text)(c=a.columns, k=b.shape[0], s=shift, n=none, **options)
        edges.append(take(b.offsets, at, axis=0, **options))
    text = "n = int64(clamp(e, 0, m)) - int64(clamp(s, 0, m)); n if n > 0 and r >= 0 else 0"
    lengths = formula(text)(s=edges[0], e=edges[1], r=a.rows, m=b.nnz, **options)
    ends = cumsum(lengths, **options)
    if limit is None:
        limit = host_count(ends[-1], "products", options)
    owner = segment_ids(ends, num_segments=a.nnz, tokens=limit, by="ends", **options)
    entry = formula("i if i >= 0 else n")(i=owner, n=none, **options)
    shifts = formula("int64(clamp(s, 0, m)) - (e - n)")(s=edges[0], e=ends, n=lengths, m=b.nnz, **options)
    moved = take(shifts, entry, axis=0, **options)
    met = formula("p + s if i >= 0 else n")(p=numbers_of(limit, ends, options), s=moved, i=owner, n=none, **options)
    rows = formula("r if i >= 0 else -1")(r=take(a.rows, entry, axis=0, **options), i=owner, **options)
    values = mul(take(a.values, entry, axis=0, **options), take(b.values, met, axis=0, **options), **options)
    return COO(values, rows, take(b.columns, met, axis=0, **options), shape)
