"""torch.sparse's names and torch's constructors of sparse tensors: mm, addmm, spdiags, spsolve, sparse_coo_tensor …"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.checked import shown, wholes
from ..core.errors import InvalidProblemError, UnsupportedError
from ..core.views import cut, shape_of, transposed, without_axes
from ..ops.layout.concat import concat
from ..ops.layout.made import from_host
from ..ops.linalg.solve import solve
from ..ops.quant_gemm.sparse24 import sparse24_compress
from .convert import coo_to_csr
from .dense import dense_to_coo, to_dense
from .entrywise import add
from .formats import BSR, COO, CSC, CSR, Sparse, is_sparse, sparse_of
from .parts import Options
from .products import spmm
from .spgemm import spgemm


def mm(a: Any, b: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """A b of a sparse A (torch.sparse.mm, torch.spmm, dsmm, hsmm): `spmm` of a dense b, `spgemm` of a sparse one."""
    options: Options = {"stream": stream, "preference": preference}
    if not is_sparse(b):
        return spmm(a, b, out=out, **options)
    if out is not None:
        raise InvalidProblemError("the product of two sparse matrices has as many entries as it has; leave out= away")
    return spgemm(a, b, **options)


dsmm = hsmm = mm


def addmm(
    c: Any, a: Any, b: Any, *, beta: Any = 1.0, alpha: Any = 1.0, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """beta c + alpha A b of a sparse A and dense b and c (torch.sparse.addmm, torch.saddmm); see `spmm`."""
    return spmm(a, b, c, alpha=alpha, beta=beta, out=out, stream=stream, preference=preference)


saddmm = addmm


def smm(a: Any, b: Any, *, size: int | None = None, stream: Any = None, preference: Any = None) -> COO:
    """A b of a sparse A and a dense b, as COO of what is not 0 (torch.smm, torch.hspmm, whose rows are dense).

    See `dense_to_coo` for `size`, without which a count is read back: this waits.
    """
    options: Options = {"stream": stream, "preference": preference}
    return dense_to_coo(spmm(a, b, **options), size=size, **options)


hspmm = smm


def sspaddmm(
    c: Any, a: Any, b: Any, *, beta: Any = 1.0, alpha: Any = 1.0, size: int | None = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """beta C + alpha A b of sparse C and A and a dense b, in C's format (torch.sspaddmm); `smm`, then `add`."""
    options: Options = {"stream": stream, "preference": preference}
    return add(sparse_of(c, "c"), smm(a, b, **options), alpha=beta, beta=alpha, size=size, **options)


def spsolve(a: Any, b: Any, *, left: bool = True, stream: Any = None, preference: Any = None) -> Any:
    """x with A x = b, A sparse and square, or x A = b where not `left` (torch.sparse.spsolve).

    a: [n, n]; b, x: [n], or [n, k] ([k, n]). No sparse factors: the whole matrix is made and solved by LU factors, n²
    elements of memory and n³ operations. For large ones `cg`, `bicgstab` or `gmres` take `lambda x: spmv(a, x)`, and
    triangles `spsolve_triangular`. Gradients of the values and b.
    """
    options: Options = {"stream": stream, "preference": preference}
    a = sparse_of(a)
    if a.shape[0] != a.shape[1]:
        raise InvalidProblemError(f"a must be square, got shape {a.shape}")
    whole = to_dense(a, **options)
    if len(shape_of(b, "b")) == 1 and not left:
        return solve(transposed(whole, "a"), b, **options)
    return solve(whole, b, left=left, **options)


def _offsets(offsets: Any) -> tuple[int, ...]:
    """Numbers of the host."""
    given = (
        offsets.tolist() if hasattr(offsets, "tolist") and not hasattr(offsets, "__cuda_array_interface__") else offsets
    )
    made = wholes("offsets", (given,) if isinstance(given, int) else tuple(given), -(2**62))
    if len(set(made)) != len(made):
        raise InvalidProblemError(f"offsets must differ, got {made}")
    return made


def spdiags(
    diagonals: Any, offsets: Any, shape: Any, layout: str = "coo", *, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """The matrix of `shape` whose diagonal offsets[i] has row i of `diagonals` (torch.sparse.spdiags, SciPy's dia).

    diagonals: [k, n]; offsets: k numbers of the host, above 0 right of the main diagonal. Column j takes element j of a
    row; what lies outside the matrix counts for nothing. layout: "coo", "csr" or "csc". Gradients of the diagonals.
    """
    options: Options = {"stream": stream, "preference": preference}
    (m, n), given, moved = wholes("shape", shape), shape_of(diagonals, "diagonals"), _offsets(offsets)
    if len(given) != 2 or given[0] != len(moved):
        raise InvalidProblemError(f"diagonals must be [{len(moved)}, n], a row for each offset, got shape {given}")
    if layout not in ("coo", "csr", "csc"):
        raise InvalidProblemError(f"layout must be 'coo', 'csr' or 'csc', got {shown(layout)}")
    parts, rows, columns = [], [], []
    for i, offset in enumerate(moved):
        first, last = max(offset, 0), min(m + offset, n, given[1])
        if first < last:
            place = (slice(i, i + 1), slice(first, last))
            parts.append(without_axes(cut(diagonals, place, "diagonals"), (0,), "diagonals"))
            columns.append(np.arange(first, last))
            rows.append(columns[-1] - offset)
    none = cut(diagonals, (slice(0, len(moved)), slice(0, 0)), "diagonals")
    values = concat(parts, **options) if parts else _flat(none)
    index = [
        from_host(np.concatenate(one) if one else np.zeros(0, np.int64), diagonals, stream) for one in (rows, columns)
    ]
    made = COO(values, index[0], index[1], (m, n))
    if layout == "coo":
        return made
    return coo_to_csr(made, **options) if layout == "csr" else coo_to_csr(made.T, **options).T


def _flat(x: Any) -> Any:
    """A matrix without elements as a vector."""
    return without_axes(cut(x, (slice(0, 1), slice(0, 0)), "diagonals"), (0,), "diagonals")


def to_sparse_semi_structured(x: Any, *, stream: Any = None, preference: Any = None) -> Any:
    """(values, metadata) of a matrix with the two largest of each four kept, for `sparse24_matmul` (torch.sparse's).

    Which is `sparse24_compress`: torch asks for a matrix of that pattern, here others are pruned to it.
    """
    return sparse24_compress(x, stream=stream, preference=preference)


# ---- constructors --------------------------------------------------------------------------------------------------


def sparse_coo_tensor(indices: Any, values: Any, size: Any) -> COO:
    """COO of indices [2, nnz], rows above columns (torch.sparse_coo_tensor); the same memory. size is required."""
    shape = shape_of(indices, "indices")
    if len(shape) != 2 or shape[0] != 2:
        raise InvalidProblemError(f"indices must be [2, nnz], rows and columns, got shape {shape}")
    rows, columns = (without_axes(cut(indices, (slice(i, i + 1),), "indices"), (0,), "indices") for i in (0, 1))
    return COO(values, rows, columns, size)


def sparse_csr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any) -> CSR:
    """CSR (torch.sparse_csr_tensor); the same memory. size is required: the largest column is on the device."""
    return CSR(values, col_indices, crow_indices, size)


def sparse_csc_tensor(ccol_indices: Any, row_indices: Any, values: Any, size: Any) -> CSC:
    """CSC (torch.sparse_csc_tensor); the same memory. size is required."""
    return CSC(values, row_indices, ccol_indices, size)


def sparse_bsr_tensor(crow_indices: Any, col_indices: Any, values: Any, size: Any) -> BSR:
    """BSR of blocks values [blocks, r, c] (torch.sparse_bsr_tensor); the same memory. size is required."""
    return BSR(values, col_indices, crow_indices, size)


def sparse_compressed_tensor(
    compressed_indices: Any, plain_indices: Any, values: Any, size: Any, *, layout: Any
) -> Sparse:  # fmt: skip
    """CSR, CSC or BSR, as `layout` says: "csr", or torch's torch.sparse_csr … (torch.sparse_compressed_tensor)."""
    name = str(layout).removeprefix("torch.").removeprefix("sparse_")
    if name == "bsc":
        raise UnsupportedError("there is no format of blocks by columns: its transpose is BSR, of transposed blocks")
    if name not in _MAKERS:
        raise InvalidProblemError(f"layout must be one of {', '.join(_MAKERS)}, got {shown(layout)}")
    made: Sparse = _MAKERS[name](compressed_indices, plain_indices, values, size)
    return made


_MAKERS = {"csr": sparse_csr_tensor, "csc": sparse_csc_tensor, "bsr": sparse_bsr_tensor}
