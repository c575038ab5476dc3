"""Dense matrices to sparse ones and back, and a dense matrix at the places of a sparse one."""

from __future__ import annotations

from typing import Any

from ..core.arrays import read
from ..core.checked import shown
from ..core.element import ElementKind
from ..core.errors import InvalidProblemError
from ..core.views import reshaped, shape_of, without_axes
from ..ops.indexing.nonzero import nonzero
from ..ops.indexing.take import take
from ..ops.reduce.reduce import count_nonzero  # type: ignore[attr-defined]  # made from a table
from .convert import coo_to_csr, split, to_coo
from .formats import COO, CSC, CSR, sparse_of
from .parts import host_count, keys_of, known_at, places, size_of, total


def to_dense(a: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The matrix [rows, columns] of a sparse one, entries of one place summed in the order they are stored.

    Zeros are written with the sums, after a sort of the entries by their places. The gradient of the values is what dy
    has at the places. `out` must be contiguous.
    """
    a, options = sparse_of(a), {"stream": stream, "preference": preference}
    flat, count = to_coo(a, **options), places(a.shape, a.values)
    to = None if out is None else _row(out, "out", a.shape)
    y = total(flat.values, keys_of(flat, options), count, "ids", to, options)
    return out if out is not None else reshaped(y, a.shape, "y")


def _row(x: Any, name: str, shape: tuple[int, int]) -> Any:
    """A matrix of a shape as a row, a view."""
    if shape_of(x, name) != shape:
        raise InvalidProblemError(f"{name} must have shape {shape}, got {shape_of(x, name)}")
    row = reshaped(x, (shape[0] * shape[1],), name)
    if row is None:
        raise InvalidProblemError(f"{name} must be one run of memory, got strides {read(x, name).strides}; copy it")
    return row


def dense_to_coo(x: Any, *, size: int | None = None, stream: Any = None, preference: Any = None) -> COO:
    """The elements of a matrix that are not 0, row by row (torch's to_sparse); NaN is not 0, -0 is.

    How many there are is read back, the one time that this waits; with `size`, an upper bound, it does not, and what is
    left over are zeros outside the matrix. The gradient of x is what the values have at their places, 0 elsewhere.
    x: contiguous.
    """
    options = {"stream": stream, "preference": preference}
    shape = shape_of(x, "x")
    if len(shape) != 2:
        raise InvalidProblemError(f"x must be a matrix, got shape {shape}")
    row, count = _row(x, "x", shape), size_of(size)
    if count is None:
        count = host_count(count_nonzero(x, **options), "size", options)
    last = places(shape, x)
    found, _ = nonzero(x, flat=True, size=count, fill_value=last, **options)
    keys = without_axes(found, (0,), "keys")
    values = take(row, known_at(keys, last, options), axis=0, **options)
    return COO(values, *split(keys, shape, ElementKind.I64, options), shape)


def dense_to_csr(x: Any, *, size: int | None = None, stream: Any = None, preference: Any = None) -> CSR:
    """`dense_to_coo` by rows (torch's to_sparse_csr)."""
    options = {"stream": stream, "preference": preference}
    return coo_to_csr(dense_to_coo(x, size=size, **options), is_sorted=True, **options)


_MAKERS = {"coo": dense_to_coo, "csr": dense_to_csr}


def from_dense(
    x: Any, format: str = "csr", *, size: int | None = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """A matrix as "csr" or "coo"; see `dense_to_coo`."""
    if format not in _MAKERS:
        raise InvalidProblemError(f"format must be one of {', '.join(_MAKERS)}, got {shown(format)}")
    return _MAKERS[format](x, size=size, stream=stream, preference=preference)


def sparse_mask(x: Any, a: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """x [rows, columns] at the places of a COO, CSR or CSC matrix (torch's sparse_mask): its format, other values.

    `out` gets the values. The gradient of x is the sum of dy at each place. x: contiguous.
    """
    a, options = sparse_of(a, "a", COO, CSR, CSC), {"stream": stream, "preference": preference}
    row, flat = _row(x, "x", a.shape), to_coo(a, **options)
    at = known_at(keys_of(flat, options), places(a.shape, x), options)
    return a.with_values(take(row, at, axis=0, out=out, **options))
