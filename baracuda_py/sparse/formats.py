"""COO, CSR, CSC and BSR: the arrays of a sparse matrix and its shape; those of other packages, not copied."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ..core.checked import shown, wholes
from ..core.errors import InvalidProblemError, UnsupportedError
from ..interop.packages import package_name

S = TypeVar("S", bound="Sparse")
_INDICES = ("int32", "int64")


def _shape_of(array: Any, name: str, rank: int) -> tuple[int, ...]:
    shape = getattr(array, "shape", None)
    if shape is None or len(shape) != rank:
        found = shown(array) if shape is None else f"shape {tuple(shape)}"
        raise InvalidProblemError(f"{name} must be an array of {rank} axes, got {found}")
    return tuple(shape)


def _index(array: Any, name: str, length: int | None = None) -> None:
    """Raises unless an array is a row of int32 or int64, of a length where one is told."""
    (found,) = _shape_of(array, name, 1)
    element = str(getattr(array, "dtype", "")).removeprefix("torch.")
    if element not in _INDICES:
        raise InvalidProblemError(f"{name} must be int64 or int32, got {element or type(array).__name__}")
    if length is not None and found != length:
        raise InvalidProblemError(f"{name} must have {length} elements, got {found}")


@dataclass(frozen=True, eq=False)
class Sparse:
    """A matrix of `shape` (rows, columns) by its entries: `values`, and arrays of indices, int32 or int64.

    An entry that stands several times counts as their sum. Arrays may be of any package and are held as they are; what
    they hold is not looked at (`check` does): an entry outside the matrix has no part in anything.
    """

    values: Any
    shape: tuple[int, int]

    def _fits(self) -> None:
        """Raises where arrays and shape do not go together."""
        raise NotImplementedError

    def __post_init__(self) -> None:
        shape = wholes("shape", self.shape)
        if len(shape) != 2:
            raise InvalidProblemError(f"shape must be (rows, columns), got {shown(self.shape)}")
        object.__setattr__(self, "shape", shape)
        self._fits()

    @property
    def nnz(self) -> int:
        """How many entries the arrays have, explicit zeros and what stands outside included."""
        count = 1
        for extent in self.values.shape:
            count *= int(extent)
        return count

    @property
    def dtype(self) -> Any:
        """That of the values."""
        return self.values.dtype

    def with_values(self: S, values: Any) -> S:
        """The same places with other values."""
        return replace(self, values=values)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.shape}, nnz={self.nnz}, values={self.values.dtype})"


@dataclass(frozen=True, eq=False, repr=False, init=False)
class COO(Sparse):
    """Entries values[e] at (rows[e], columns[e]), in any order."""

    rows: Any = None
    columns: Any = None

    def __init__(self, values: Any, rows: Any, columns: Any, shape: Any) -> None:
        _set(self, values=values, rows=rows, columns=columns, shape=shape)

    def _fits(self) -> None:
        (count,) = _shape_of(self.values, "values", 1)
        _index(self.rows, "rows", count)
        _index(self.columns, "columns", count)

    @classmethod
    def from_torch(cls, tensor: Any) -> COO:
        """Of a torch.sparse_coo tensor, coalesced or not."""
        _layout(tensor, "sparse_coo")
        whole = tensor.is_coalesced()
        index = tensor.indices() if whole else tensor._indices()
        return cls(tensor.values() if whole else tensor._values(), index[0], index[1], tuple(tensor.shape))

    def to_torch(self) -> Any:
        """A torch.sparse_coo tensor; torch has one array for rows and columns, which are put together here."""
        torch = _torch(self.values)
        return torch.sparse_coo_tensor(torch.stack([self.rows, self.columns]), self.values, self.shape)

    @classmethod
    def from_scipy(cls, matrix: Any) -> COO:
        """Of a coo matrix or array of scipy.sparse or cupyx.scipy.sparse."""
        _format(matrix, "coo")
        return cls(matrix.data, matrix.row, matrix.col, matrix.shape)

    def to_scipy(self) -> Any:
        """A coo_matrix of scipy.sparse, of CuPy arrays one of cupyx.scipy.sparse."""
        module = _scipy(self.values)
        return module.coo_matrix((self.values, (self.rows, self.columns)), shape=self.shape)

    @property
    def T(self) -> COO:
        """The transpose, of the same arrays."""
        return COO(self.values, self.columns, self.rows, self.shape[::-1])


class _Compressed(Sparse):
    """What CSR, CSC and BSR share with torch and SciPy."""

    _torch_layout = ""
    _scipy_format = ""
    offsets: Any

    @property
    def _inner(self) -> Any:
        raise NotImplementedError

    @classmethod
    def from_torch(cls: Any, tensor: Any) -> Any:
        """Of a tensor of torch's layout of the same name."""
        _layout(tensor, cls._torch_layout)
        by_columns = cls is CSC
        offsets = tensor.ccol_indices() if by_columns else tensor.crow_indices()
        inner = tensor.row_indices() if by_columns else tensor.col_indices()
        return cls(tensor.values(), inner, offsets, tuple(tensor.shape))

    def to_torch(self) -> Any:
        """A tensor of torch's layout of the same name, over the same memory."""
        make = getattr(_torch(self.values), f"{self._torch_layout}_tensor")
        return make(self.offsets, self._inner, self.values, self.shape)

    @classmethod
    def from_scipy(cls: Any, matrix: Any) -> Any:
        """Of a matrix or array of scipy.sparse or cupyx.scipy.sparse of the same name."""
        _format(matrix, cls._scipy_format)
        return cls(matrix.data, matrix.indices, matrix.indptr, matrix.shape)

    def to_scipy(self) -> Any:
        """A matrix of scipy.sparse of the same name, of CuPy arrays one of cupyx.scipy.sparse."""
        make = getattr(_scipy(self.values), f"{self._scipy_format}_matrix")
        return make((self.values, self._inner, self.offsets), shape=self.shape)


@dataclass(frozen=True, eq=False, repr=False, init=False)
class CSR(_Compressed):
    """Rows one after the other: entries offsets[r] to offsets[r + 1] - 1 are those of row r, at columns[e]."""

    columns: Any = None
    offsets: Any = None

    def __init__(self, values: Any, columns: Any, offsets: Any, shape: Any) -> None:
        _set(self, values=values, columns=columns, offsets=offsets, shape=shape)

    _torch_layout, _scipy_format = "sparse_csr", "csr"

    def _fits(self) -> None:
        _index(self.columns, "columns", *_shape_of(self.values, "values", 1))
        _index(self.offsets, "offsets", self.shape[0] + 1)

    @property
    def _inner(self) -> Any:
        return self.columns

    @property
    def T(self) -> CSC:
        """The transpose, of the same arrays."""
        return CSC(self.values, self.columns, self.offsets, self.shape[::-1])


@dataclass(frozen=True, eq=False, repr=False, init=False)
class CSC(_Compressed):
    """Columns one after the other: entries offsets[c] to offsets[c + 1] - 1 are those of column c, at rows[e]."""

    rows: Any = None
    offsets: Any = None

    def __init__(self, values: Any, rows: Any, offsets: Any, shape: Any) -> None:
        _set(self, values=values, rows=rows, offsets=offsets, shape=shape)

    _torch_layout, _scipy_format = "sparse_csc", "csc"

    def _fits(self) -> None:
        _index(self.rows, "rows", *_shape_of(self.values, "values", 1))
        _index(self.offsets, "offsets", self.shape[1] + 1)

    @property
    def _inner(self) -> Any:
        return self.rows

    @property
    def T(self) -> CSR:
        """The transpose, of the same arrays."""
        return CSR(self.values, self.rows, self.offsets, self.shape[::-1])


@dataclass(frozen=True, eq=False, repr=False, init=False)
class BSR(_Compressed):
    """CSR of blocks: values [blocks, r, c], columns and offsets count in blocks; r and c divide the shape."""

    columns: Any = None
    offsets: Any = None

    def __init__(self, values: Any, columns: Any, offsets: Any, shape: Any) -> None:
        _set(self, values=values, columns=columns, offsets=offsets, shape=shape)

    _torch_layout, _scipy_format = "sparse_bsr", "bsr"

    @property
    def block(self) -> tuple[int, int]:
        """The shape of a block."""
        return int(self.values.shape[1]), int(self.values.shape[2])

    @property
    def grid(self) -> tuple[int, int]:
        """How many blocks stand one above the other, and side by side."""
        return self.shape[0] // self.block[0], self.shape[1] // self.block[1]

    def _fits(self) -> None:
        count, *block = _shape_of(self.values, "values", 3)
        if any(b < 1 or n % b for n, b in zip(self.shape, block, strict=True)):
            raise InvalidProblemError(f"blocks of {tuple(block)} do not divide a matrix of shape {self.shape}")
        _index(self.columns, "columns", count)
        _index(self.offsets, "offsets", self.shape[0] // block[0] + 1)

    @property
    def _inner(self) -> Any:
        return self.columns


def _set(of: Sparse, **fields: Any) -> None:
    """The fields of a frozen object, checked."""
    for name, value in fields.items():
        object.__setattr__(of, name, value)
    of.__post_init__()


def _torch(values: Any) -> Any:
    if package_name(type(values)) != "torch":
        raise InvalidProblemError(f"to_torch takes torch tensors, got values of {type(values).__name__}")
    return sys.modules["torch"]


def _layout(tensor: Any, wanted: str) -> None:
    found = str(getattr(tensor, "layout", type(tensor).__name__)).removeprefix("torch.")
    if found != wanted:
        raise InvalidProblemError(f"expected a tensor of torch's layout {wanted}, got {found}")


def _format(matrix: Any, wanted: str) -> None:
    found = getattr(matrix, "format", type(matrix).__name__)
    if found != wanted:
        raise InvalidProblemError(f"expected a {wanted} matrix of scipy.sparse or cupyx, got {found}")


def _scipy(values: Any) -> Any:
    package = package_name(type(values))
    if package == "numpy":
        import scipy.sparse as module
    elif package == "cupy":
        import cupyx.scipy.sparse as module
    else:
        raise InvalidProblemError(f"to_scipy takes NumPy or CuPy arrays, got values of {type(values).__name__}")
    return module


_OF_TORCH: dict[str, Any] = {"sparse_coo": COO, "sparse_csr": CSR, "sparse_csc": CSC, "sparse_bsr": BSR}
_OF_SCIPY: dict[str, Any] = {"coo": COO, "csr": CSR, "csc": CSC, "bsr": BSR}


def is_sparse(a: Any) -> bool:
    """Whether `sparse_of` takes it, by what it says of itself."""
    layout = str(getattr(a, "layout", "")).removeprefix("torch.")
    return isinstance(a, Sparse) or layout.startswith("sparse_") or _of_scipy(a)


def _of_scipy(a: Any) -> bool:
    return type(a).__module__.partition(".")[0] in ("scipy", "cupyx") and hasattr(a, "format")


def sparse_of(a: Any, name: str = "a", *kinds: type[Sparse]) -> Any:
    """One of our matrices, of what torch, SciPy or CuPy have too; of the kinds alone, where some are named."""
    if not isinstance(a, Sparse):
        layout = str(getattr(a, "layout", "")).removeprefix("torch.")
        if layout in _OF_TORCH:
            a = _OF_TORCH[layout].from_torch(a)
        elif _of_scipy(a):
            if a.format not in _OF_SCIPY:
                raise UnsupportedError(f"{name} is a {a.format} matrix; convert it by its tocsr()")
            a = _OF_SCIPY[a.format].from_scipy(a)
        else:
            raise InvalidProblemError(
                f"{name} must be COO, CSR, CSC or BSR, or a sparse matrix of torch, SciPy or CuPy, got {shown(a)}"
            )
    if kinds and not isinstance(a, kinds):
        wanted = " or ".join(kind.__name__ for kind in kinds)
        raise InvalidProblemError(f"{name} must be {wanted}, got {type(a).__name__}; `to_csr` and `to_coo` convert")
    return a
