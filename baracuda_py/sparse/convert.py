"""Conversions between formats, and the sum of entries that stand several times: sorts by keys, no atomics."""

from __future__ import annotations

from typing import Any

from ..core.checked import whole, wholes
from ..core.element import ElementKind
from ..core.errors import InvalidProblemError
from ..core.outputs import beside
from ..core.views import reshaped, with_axis
from ..ops.indexing.gather import gather
from ..ops.layout.creation import full
from ..ops.segment.segment_index import segment_ids
from ..ops.sort.searchsorted import searchsorted
from ..ops.sort.sort import sort
from ..ops.sort.unique import runs_of
from .formats import BSR, COO, CSC, CSR, Sparse, sparse_of
from .parts import (
    Options,
    bounds_of,
    first_of,
    formula,
    host_count,
    index_element,
    keys_of,
    numbers_of,
    places,
    size_of,
    total,
)  # fmt: skip


def sparse_transpose(a: Any) -> Any:
    """The transpose, of the same arrays: COO of COO, CSC of CSR, CSR of CSC."""
    return sparse_of(a, "a", COO, CSR, CSC).T


def csr_to_coo(a: Any, *, stream: Any = None, preference: Any = None) -> COO:
    """The row of every entry, in a new array; values and columns are those of a. One launch.

    An entry that the offsets leave out has row -1.
    """
    a, options = sparse_of(a, "a", CSR), {"stream": stream, "preference": preference}
    facts: Options = {"num_segments": a.shape[0], "tokens": a.nnz, "element": index_element(a.columns)}
    return COO(a.values, segment_ids(a.offsets, **facts, **options), a.columns, a.shape)


def csc_to_coo(a: Any, *, stream: Any = None, preference: Any = None) -> COO:
    """The column of every entry, in a new array; values and rows are those of a. One launch."""
    return csr_to_coo(sparse_of(a, "a", CSC).T, stream=stream, preference=preference).T


def bsr_to_coo(a: Any, *, stream: Any = None, preference: Any = None) -> COO:
    """Every element of every block as an entry, zeros too; the values are a's in another shape. Three launches."""
    a, options = sparse_of(a, "a", BSR), {"stream": stream, "preference": preference}
    (r, c), count = a.block, a.values.shape[0]
    ids = segment_ids(a.offsets, num_segments=a.grid[0], tokens=count, element=index_element(a.columns), **options)
    down, right = (numbers_of(n, ids, options) for n in (r, c))
    down = with_axis(with_axis(down, 1, "rows"), 0, "rows")
    right = with_axis(with_axis(right, 0, "columns"), 0, "columns")
    made = []
    for blocks, within, across, size in ((ids, down, right, r), (a.columns, right, down, c)):
        at = with_axis(with_axis(blocks, 1, "blocks"), 2, "blocks")
        index = formula(f"{index_element(a.columns)}(b * s + i + 0 * j)")(b=at, s=size, i=within, j=across, **options)
        made.append(reshaped(index, (a.nnz,), "index"))
    values = reshaped(a.values, (a.nnz,), "values")
    if values is None:
        raise InvalidProblemError("values must be one run of memory, got strides that are not; copy them")
    return COO(values, made[0], made[1], a.shape)


def to_coo(a: Any, *, stream: Any = None, preference: Any = None) -> COO:
    """COO of any format."""
    a, options = sparse_of(a), {"stream": stream, "preference": preference}
    if isinstance(a, COO):
        return a
    make = {CSR: csr_to_coo, CSC: csc_to_coo, BSR: bsr_to_coo}[type(a)]
    return make(a, **options)


def coo_to_csr(a: Any, *, is_sorted: bool = False, stream: Any = None, preference: Any = None) -> CSR:
    """Entries by rows, and in a row by columns; equal ones stay, in their order (see `coalesce`). Nothing waits.

    A stable sort by row and column and a gather of each array. An entry outside the matrix stands behind the last row
    and belongs to none. is_sorted: rows ascend already, and all arrays are taken as they are.
    """
    a, options = sparse_of(a, "a", COO), {"stream": stream, "preference": preference}
    element = index_element(a.columns)
    if is_sorted:
        edges = numbers_of(a.shape[0] + 1, a.rows, options)
        if index_element(a.rows) is not ElementKind.I64:
            edges = formula("int32(e)")(e=edges, **options)
        return CSR(a.values, a.columns, searchsorted(a.rows, edges, index_element=element, **options), a.shape)
    keys, order = sort(keys_of(a, options), **options)
    offsets = _offsets(keys, a.shape, options, element)
    values, columns = (gather(one, order, axis=0, **options) for one in (a.values, a.columns))
    return CSR(values, columns, offsets, a.shape)


def _offsets(keys: Any, shape: tuple[int, int], options: Options, element: Any) -> Any:
    """The offsets of rows, of sorted keys; all are 0 where there are no columns."""
    if shape[1]:
        return bounds_of(keys, *shape, options, element)
    with beside(keys, options.get("stream")):
        return full((shape[0] + 1,), 0, element, like=keys)


def to_csr(a: Any, *, stream: Any = None, preference: Any = None) -> CSR:
    """CSR of any format."""
    a, options = sparse_of(a), {"stream": stream, "preference": preference}
    return a if isinstance(a, CSR) else coo_to_csr(to_coo(a, **options), **options)


def csr_to_csc(a: Any, *, stream: Any = None, preference: Any = None) -> CSC:
    """The same matrix by columns, in a column by rows: a sort, as of `coo_to_csr`.

    Of a matrix whose transpose is multiplied often this is made once: `csr_to_csc(a).T` is Aᵀ in CSR.
    """
    options = {"stream": stream, "preference": preference}
    turned: CSC = coo_to_csr(csr_to_coo(a, **options).T, **options).T
    return turned


def csc_to_csr(a: Any, *, stream: Any = None, preference: Any = None) -> CSR:
    """The same matrix by rows, in a row by columns: a sort, as of `coo_to_csr`."""
    turned: CSR = csr_to_csc(sparse_of(a, "a", CSC).T, stream=stream, preference=preference).T
    return turned


def merged(a: COO, size: int | None, options: Options) -> tuple[Any, Any, int]:
    """The different places of entries as sorted keys, the sum at each, and how many there are; filled up with zeros.

    The key behind the last is the number of places. Where size is None it is read back, for which this waits.
    """
    count, most = places(a.shape, a.rows), a.nnz
    keys, order = sort(keys_of(a, options), **options)
    with beside(keys, options.get("stream")):
        fill = full((), count, ElementKind.I64, like=keys)
    keep = formula("k < p")(k=keys, p=count, **options)
    room = most if size is None else size
    found, inverse, number = runs_of(keys, None, keep, inverse=True, size=room, fill=fill, **options)
    size = host_count(number, "size", options) if size is None else size
    ids = formula("i if i >= 0 and i < n else n")(i=inverse, n=size, **options)
    sums = total(gather(a.values, order, axis=0, **options), ids, size + 1, "sorted", None, options)
    return first_of(found, size, "keys"), first_of(sums, size, "values"), size


def split(keys: Any, shape: tuple[int, int], element: Any, options: Options) -> tuple[Any, Any]:
    """Rows and columns of keys; of the number of places those behind the last ones."""
    made = []
    for text, last in (("k // n if k < p else e", shape[0]), ("k % n if k < p else e", shape[1])):
        facts: Options = {"k": keys, "n": max(shape[1], 1), "p": places(shape, keys), "e": last}
        made.append(formula(f"{element}({text})")(**facts, **options))
    return made[0], made[1]


def coalesce(a: Any, *, size: int | None = None, stream: Any = None, preference: Any = None) -> Any:
    """Entries in order, each place once: equal ones are summed in the order they are stored (torch's coalesce).

    Of COO, CSR or CSC. How many places there are is read back, the one time that this waits; with `size`, an upper
    bound, it does not, and what is left over are zeros at (rows, columns), outside the matrix, or behind the last
    offset. Entries outside the matrix are dropped.
    """
    a, options = sparse_of(a, "a", COO, CSR, CSC), {"stream": stream, "preference": preference}
    if isinstance(a, CSC):
        return coalesce(a.T, size=size, **options).T
    return coalesced(to_coo(a, **options), size_of(size), type(a), index_element(a.columns), options)


def coalesced(a: COO, size: int | None, kind: type[Sparse], element: Any, options: Options) -> Any:
    """Each place once, in a format; element: of the indices."""
    keys, values, _ = merged(a, size, options)
    rows, columns = split(keys, a.shape, element, options)
    if kind is COO:
        return COO(values, rows, columns, a.shape)
    return CSR(values, columns, _offsets(keys, a.shape, options, element), a.shape)


def csr_to_bsr(
    a: Any, block: Any, *, size: int | None = None, stream: Any = None, preference: Any = None
) -> BSR:  # fmt: skip
    """CSR, or COO, in dense blocks of shape `block` (r, c), which divide that of the matrix (SciPy's tobsr).

    Blocks stand in order; entries of one place are summed. How many blocks there are is read back, the one time that
    this waits; with `size`, an upper bound, it does not, and blocks of zeros stand behind the last offset.
    """
    a, options = sparse_of(a, "a", COO, CSR), {"stream": stream, "preference": preference}
    r, c = (whole("block", n, 1) for n in _pair(block))
    if a.shape[0] % r or a.shape[1] % c:
        raise InvalidProblemError(f"block must divide the shape {a.shape} of the matrix, got {(r, c)}")
    grid, element = (a.shape[0] // r, a.shape[1] // c), index_element(a.columns)
    flat = to_coo(a, **options)
    last = places(grid, a.values)
    text = "where(r >= 0 and r < m and c >= 0 and c < n, int64(r) // h * g + int64(c) // w, p)"
    facts: Options = {"m": a.shape[0], "n": a.shape[1], "h": r, "w": c, "g": grid[1], "p": last}
    keys, order = sort(formula(text)(r=flat.rows, c=flat.columns, **facts, **options), **options)
    with beside(keys, stream):
        fill = full((), last, ElementKind.I64, like=keys)
    keep = formula("k < p")(k=keys, p=last, **options)
    asked = size_of(size)
    most = a.nnz if asked is None else asked
    found, inverse, number = runs_of(keys, order, keep, inverse=True, size=most, fill=fill, **options)
    count = host_count(number, "size", options) if asked is None else asked
    text = "(b * h + int64(r) % h) * w + int64(c) % w if b >= 0 and b < s else s * h * w"
    ids = formula(text)(b=inverse, r=flat.rows, c=flat.columns, h=r, w=c, s=count, **options)
    values = first_of(total(flat.values, ids, count * r * c + 1, "ids", None, options), count * r * c, "values")
    found = first_of(found, count, "keys")
    columns = formula(f"{element}(k % g if k < p else 0)")(k=found, g=max(grid[1], 1), p=last, **options)
    blocks = reshaped(values, (count, r, c), "values")
    return BSR(blocks, columns, _offsets(found, grid, options, element), a.shape)


def _pair(block: Any) -> tuple[int, ...]:
    pair = wholes("block", block if isinstance(block, (tuple, list)) else (block, block))
    if len(pair) != 2:
        raise InvalidProblemError(f"block must be (rows, columns), got {pair}")
    return pair
