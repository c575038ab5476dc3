"""Sums over an axis, softmax over the entries of a row, sums and products of two sparse matrices."""

from __future__ import annotations

from typing import Any

from ..core import registry
from ..core.arrays import read
from ..core.errors import InvalidProblemError
from ..ops.elementwise.binary_functions import mul as times
from ..ops.elementwise.ternary_functions import where
from ..ops.indexing.take import take
from ..ops.layout.concat import concat
from ..ops.segment.segment_kinds import beyond
from ..ops.segment.segment_softmax import segment_log_softmax, segment_softmax
from ..ops.sort.searchsorted import searchsorted
from .convert import coalesced, merged, to_coo
from .dense import sparse_mask
from .formats import BSR, COO, CSC, CSR, Sparse, is_sparse, sparse_of
from .parts import Options, axis_of, formula, index_element, keys_of, size_of, total


def _lines(a: Any, axis: int) -> tuple[Any, str, int]:
    """What tells the line along `axis` of every entry, how, and how many lines there are: rows for axis 1."""
    count = a.shape[1 - axis]
    if isinstance(a, COO):
        return (a.rows if axis else a.columns), "ids", count
    if isinstance(a, CSR) == bool(axis):
        return a.offsets, "offsets", count
    return (a.columns if isinstance(a, CSR) else a.rows), "ids", count


def sum(
    a: Any, axis: int | None = None, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """The sums of the columns (axis 0) or rows (axis 1) of a sparse matrix, or of all: a dense array.

    Rows of CSR and columns of CSC are added as they stand; other lines, and COO, are sorted first. Only the indices
    that tell the line are looked at.
    """
    a, options = sparse_of(a), {"stream": stream, "preference": preference}
    a = to_coo(a, **options) if isinstance(a, BSR) else a
    along = int(isinstance(a, CSR)) if axis is None else axis_of(axis)
    index, by, count = _lines(a, along)
    if axis is None:
        lines = total(a.values, index, count, by, None, options)
        return registry.public("sum")(lines, out=out, **options)
    return total(a.values, index, count, by, out, options)


def _softmax(a: Any, axis: int, log: bool, out: Any, options: Options) -> Any:
    a = sparse_of(a, "a", COO, CSR, CSC)
    index, by, count = _lines(a, axis_of(axis))
    make = segment_log_softmax if log else segment_softmax
    return a.with_values(make(a.values, index, num_segments=count, by=by, out=out, **options))


def softmax(a: Any, axis: int = -1, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """softmax over the entries of every row (axis 1) or column (axis 0); what is not stored is -inf.

    A matrix of the same places; `out` gets the values. Places must be stored once each. Gradients of the
    values. torch.sparse.softmax.
    """
    return _softmax(a, axis, False, out, {"stream": stream, "preference": preference})


def log_softmax(a: Any, axis: int = -1, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The logarithm of `softmax`, more exactly (torch.sparse.log_softmax)."""
    return _softmax(a, axis, True, out, {"stream": stream, "preference": preference})


def _alike(a: Sparse, b: Sparse) -> None:
    if a.shape != b.shape:
        raise InvalidProblemError(f"b must have the shape {a.shape} of a, got {b.shape}")
    mine, theirs = (read(one.values, "values").element for one in (a, b))
    if mine is not theirs:
        raise InvalidProblemError(f"b must be {mine}, as a is, got {theirs}")


def add(
    a: Any, b: Any, *, alpha: Any = 1.0, beta: Any = 1.0, size: int | None = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """alpha a + beta b of two sparse matrices, in a's format (COO, CSR, CSC), each place once.

    Entries of both are put together, sorted, and summed, those of a first. How many places there are is read back, the
    one time that this waits, unless `size`, an upper bound, is given; see `coalesce`.
    """
    options = {"stream": stream, "preference": preference}
    a, b = sparse_of(a, "a", COO, CSR, CSC), sparse_of(b, "b", COO, CSR, CSC)
    _alike(a, b)
    if isinstance(a, CSC):
        return add(a.T, b.T, alpha=alpha, beta=beta, size=size, **options).T
    element, parts = index_element(a.columns), [to_coo(a, **options), to_coo(b, **options)]
    values = [
        one.values if isinstance(factor, (int, float)) and factor == 1 else times(one.values, factor, **options)
        for one, factor in zip(parts, (alpha, beta), strict=True)
    ]
    rows, columns = (
        concat([_as(getattr(one, name), element, options) for one in parts], **options) for name in ("rows", "columns")
    )
    both = COO(concat(values, **options), rows, columns, a.shape)
    return coalesced(both, size_of(size), type(a), element, options)


def _as(index: Any, element: Any, options: Options) -> Any:
    return index if index_element(index) is element else formula(f"{element}(i)")(i=index, **options)


def mul(a: Any, b: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """a · b place by place, at the places of a: b a number, a dense matrix, or a sparse one; `out` gets the values.

    Where a sparse b has no entry the product is 0, stored as such, so that nothing has to be counted or waited for;
    entries of b at one place are summed first. Gradients of both values.
    """
    a, options = sparse_of(a, "a", COO, CSR, CSC), {"stream": stream, "preference": preference}
    if isinstance(b, (int, float, complex)):
        return a.with_values(times(a.values, b, out=out, **options))
    if not is_sparse(b):
        return a.with_values(times(a.values, sparse_mask(b, a, **options).values, out=out, **options))
    b = sparse_of(b, "b", COO, CSR, CSC)
    _alike(a, b)
    own = keys_of(to_coo(a, **options), options)
    keys, sums, count = merged(to_coo(b, **options), b.nnz, options)
    at = searchsorted(keys, own, **options)
    found = take(keys, at, axis=0, **options)
    hit = formula("where(f == k and i < n, i, e)")(f=found, k=own, i=at, n=count, e=beyond(at), **options)
    theirs = take(sums, hit, axis=0, **options)
    known = where(formula("h >= 0")(h=hit, **options), a.values, 0, **options)  # an infinity beside nothing is no NaN
    return a.with_values(times(known, theirs, out=out, **options))
