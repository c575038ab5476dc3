"""Grids of vectors, and the indices of triangles and diagonals of matrices."""

from __future__ import annotations

from typing import Any

from ...core import Array, ElementKind
from ...core.checked import shown, whole
from ...core.errors import InvalidProblemError
from ...calls.exported import exported
from ...core.tensor import Shape
from ...core.views import shape_of, with_axis
from ...core.arrays import read
from .concat import stack
from .creation import I64, generated, iota
from .views import broadcast_to, ravel


@exported
def meshgrid(*arrays: Array, indexing: str = "ij", sparse: bool = False) -> list[Array]:
    """Vectors as views of the grid that they span (torch.meshgrid, numpy.meshgrid).

    indexing: "ij", vector a runs along axis a, or "xy", with the first two axes exchanged. NumPy's default is "xy".
    sparse: each keeps an extent of 1 along the axes of the others.
    """
    given = list(arrays[0]) if len(arrays) == 1 and isinstance(arrays[0], (list, tuple)) else list(arrays)
    if indexing not in ("ij", "xy"):
        raise InvalidProblemError(f'indexing must be "ij" or "xy", got {shown(indexing)}')
    sizes = []
    for i, x in enumerate(given):
        shape = shape_of(x, f"arrays[{i}]")
        if len(shape) > 1:
            raise InvalidProblemError(f"arrays[{i}] must be a vector or a number, got shape {shape}")
        sizes.append(shape[0] if shape else 1)
    order = [a for a, _ in enumerate(given)]
    if indexing == "xy" and len(given) > 1:
        order[:2] = [1, 0]
    whole_shape = tuple(sizes[a] for a in order)
    made = []
    for i, x in enumerate(given):
        seen = x if shape_of(x, "arrays") else with_axis(x, 0, "arrays")
        for axis, _ in enumerate(given):
            seen = seen if order[axis] == i else with_axis(seen, axis, "arrays")
        made.append(seen if sparse else broadcast_to(seen, whole_shape))
    return made


@exported
def ix_(*arrays: Array) -> list[Array]:
    """Vectors as views of one axis each, so that they index a grid together (numpy.ix_); bool ones are refused."""
    for i, x in enumerate(arrays):
        if read(x, f"arrays[{i}]").element is ElementKind.BOOL:
            raise InvalidProblemError(f"arrays[{i}] is bool; how many hold is on the device: give indices")
    return meshgrid(*arrays, sparse=True)


@exported
def cartesian_prod(*arrays: Array) -> Array:
    """All tuples of one element of each vector, as rows (torch.cartesian_prod); of one vector itself."""
    if len(arrays) == 1:
        return arrays[0]
    return stack([ravel(x) for x in meshgrid(*arrays)], axis=1)


@exported
def tril_indices(n: int, m: int | None = None, k: int = 0, *, like: Any = None) -> Array:
    """Rows and columns, [2, count] int64, of what lies on and below diagonal k of an n × m matrix, row by row.

    torch.tril_indices; numpy.tril_indices when unpacked.
    """
    return _triangle_indices("lower", n, m, k, like)


@exported
def triu_indices(n: int, m: int | None = None, k: int = 0, *, like: Any = None) -> Array:
    """Rows and columns, [2, count] int64, of what lies on and above diagonal k of an n × m matrix, row by row.

    torch.triu_indices; numpy.triu_indices when unpacked.
    """
    return _triangle_indices("upper", n, m, k, like)


def _triangle_indices(form: str, n: Any, m: Any, k: Any, like: Any) -> Array:
    rows = whole("n", n, 0)
    columns = rows if m is None else whole("m", m, 0)
    diagonal = min(max(whole("k", k), -rows - 1), columns + 1)
    below = _below(rows, columns, diagonal if form == "lower" else diagonal - 1)
    count = below if form == "lower" else rows * columns - below
    facts = {"diagonal": diagonal, "columns": columns, "last": count}
    return generated((2, count), (count, 1), form, I64, like, **facts)


def _below(rows: int, columns: int, k: int) -> int:
    """Elements on and below diagonal k."""
    first, full_ = max(0, -k), min(max(columns - k - 1, 0), rows)  # rows before have none, rows from there have all
    first = min(first, rows)
    rising = max(full_ - first, 0)
    return rising * (first + k + 1) + rising * (rising - 1) // 2 + (rows - max(full_, first)) * columns


@exported
def tril_indices_from(x: Array, k: int = 0) -> Array:
    """`tril_indices` of a matrix of x's shape (numpy.tril_indices_from)."""
    n, m = _matrix(x)
    return tril_indices(n, m, k, like=x)


@exported
def triu_indices_from(x: Array, k: int = 0) -> Array:
    """`triu_indices` of a matrix of x's shape (numpy.triu_indices_from)."""
    n, m = _matrix(x)
    return triu_indices(n, m, k, like=x)


def _matrix(x: Array) -> Shape:
    shape = shape_of(x, "x")
    if len(shape) != 2:
        raise InvalidProblemError(f"x must be a matrix, got shape {shape}")
    return shape


@exported
def diag_indices(n: int, ndim: int = 2, *, like: Any = None) -> list[Array]:
    """The indices of the main diagonal along each of `ndim` axes (numpy.diag_indices)."""
    one = iota(I64, n, like=like)
    return [one] * whole("ndim", ndim, 0)


@exported
def diag_indices_from(x: Array) -> list[Array]:
    """`diag_indices` of an array whose axes are of one extent (numpy.diag_indices_from)."""
    shape = shape_of(x, "x")
    if len(shape) < 2 or len(set(shape)) > 1:
        raise InvalidProblemError(f"x must have two axes at least, of one extent, got shape {shape}")
    return diag_indices(shape[0], len(shape), like=x)
