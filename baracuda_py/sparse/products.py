"""spmv, spmm, sampled_addmm: sparse by dense, and dense by dense at the places of a sparse matrix."""

from __future__ import annotations

from typing import Any

from ..core.arrays import read
from ..core.checked import truth
from ..core.errors import InvalidProblemError
from ..core.views import reshaped, shape_of, transposed, with_axis, without_axes
from ..ops.elementwise.binary_functions import add, mul, sub
from ..ops.elementwise.complex_pair import complex as complex_of
from ..ops.elementwise.complex_unary import conj, imag, real
from ..ops.gemm.matmul import matmul
from ..ops.indexing.take import take
from ..ops.layout.concat import stack
from ..ops.segment.gather_scatter import gather_scatter_sum
from ..ops.segment.segment_index import segment_ids
from ..ops.segment.segment_reduce import segment_sum
from ..ops.sparse.sddmm import sddmm
from .formats import BSR, COO, CSC, CSR, sparse_of
from .parts import Options, formula


def spmm(
    a: Any, b: Any, c: Any = None, *, alpha: Any = 1.0, beta: Any = 1.0, transpose: bool = False,
    conjugate: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y = alpha op(A) b + beta c of a sparse A and a dense b (torch.sparse.mm, torch.sparse.addmm; cuSPARSE's SpMM).

    a: COO, CSR, CSC or BSR, [m, k]; b: [k, n] of any strides; c and y: [m, n]. float16, bfloat16, float32, float64 and
    complex; the values may be of the accumulator's element. op: `transpose`, and `conjugate` of complex values.
    Sums are in the accumulator, in an order that the number of entries of a row fixes (`gather_scatter_sum`): the same
    bits in every run. CSR takes three launches: the rows, their sums, those of long rows. COO, CSC and the transpose of
    CSR sort their entries besides in each call, which `csr_to_csc(a).T` does once. alpha, beta and c are one launch
    more. BSR multiplies its blocks as one batch and sums them. Gradients of the values, b and c.
    """
    options = {"stream": stream, "preference": preference}
    a = sparse_of(a)
    if truth("transpose", transpose):
        a = _turned(a)
    if conjugate and read(a.values, "values").element.is_complex:
        a = a.with_values(conj(a.values, **options))
    shape = shape_of(b, "b")
    if len(shape) != 2 or shape[0] != a.shape[1]:
        raise InvalidProblemError(f"b must be [{a.shape[1]}, n], as op(a) is {list(a.shape)}, got shape {shape}")
    wanted = (a.shape[0], shape[1])
    if c is not None and shape_of(c, "c") != wanted:
        raise InvalidProblemError(f"c must have shape {wanted}, got {shape_of(c, 'c')}")
    plain = c is None and isinstance(alpha, (int, float)) and alpha == 1
    y = _product(a, b, out if plain else None, options)
    return y if plain else _scaled(y, c, alpha, beta, out, options)


def _scaled(y: Any, c: Any, alpha: Any, beta: Any, out: Any, options: Options) -> Any:
    """alpha y + beta c."""
    if not read(y, "y").element.is_complex:
        if c is None:
            return formula("s * y")(y=y, s=alpha, out=out, **options)
        return formula("s * y + t * c")(y=y, c=c, s=alpha, t=beta, out=out, **options)
    if c is None:
        return mul(y, alpha, out=out, **options)
    return add(mul(y, alpha, **options), mul(c, beta, **options), out=out, **options)


def _turned(a: Any) -> Any:
    """The transpose, of the same arrays."""
    if isinstance(a, BSR):
        raise InvalidProblemError("transpose takes COO, CSR or CSC, got BSR; `bsr_to_coo` converts")
    return a.T


def _product(a: Any, b: Any, out: Any, options: Options) -> Any:
    """A b."""
    theirs, ours = (read(x, n).element.is_complex for x, n in ((b, "b"), (a.values, "values")))
    if not (theirs or ours):
        return _real(a, b, out, options)
    rows = pairs(b, options) if theirs else b
    if not ours:
        y = _real(a, rows, None, options)
        return complex_of(_part(y, 0), _part(y, 1), out=out, **options)
    first, second = (_real(a.with_values(part(a.values, **options)), rows, None, options) for part in (real, imag))
    if not theirs:
        return complex_of(first, second, out=out, **options)
    low = sub(_part(first, 0), _part(second, 1), **options)
    return complex_of(low, add(_part(first, 1), _part(second, 0), **options), out=out, **options)


def pairs(x: Any, options: Options) -> Any:
    """Complex numbers as a last axis of two."""
    return stack([real(x, **options), imag(x, **options)], -1, **options)


def _part(y: Any, number: int) -> Any:
    return y[..., number]


def _real(a: Any, b: Any, out: Any, options: Options) -> Any:
    """A b of real numbers, b [k, n] or [k, n, 2]."""
    if isinstance(a, BSR):
        return _blocks(a, b, out, options)
    facts: Options = {"num_segments": a.shape[0], "out": out, **options}
    if isinstance(a, CSR):
        return gather_scatter_sum(b, a.columns, a.offsets, a.values, by="offsets", **facts)
    columns = a.columns if isinstance(a, COO) else _line_of(a, options)
    return gather_scatter_sum(b, columns, a.rows, a.values, by="ids", **facts)


def _line_of(a: CSC, options: Options) -> Any:
    """The column of every entry."""
    return segment_ids(a.offsets, num_segments=a.shape[1], tokens=a.nnz, **options)


def _blocks(a: BSR, b: Any, out: Any, options: Options) -> Any:
    """Each block by the rows of b that it meets, one batch of products, and their sum by rows of blocks."""
    (r, c), (down, across), wide = a.block, a.grid, shape_of(b, "b")[1:]
    count = 1
    for n in wide:
        count *= n
    rows = reshaped(b, (across, c, count), "b")
    if rows is None:
        raise InvalidProblemError("b must be one run of memory where a is BSR, got strides that are not; copy it")
    met = take(rows, a.columns, axis=0, **options)
    products = matmul(a.values, met, **options)
    to = None if out is None else reshaped(out, (down, r, count), "out")
    if out is not None and to is None:
        raise InvalidProblemError("out must be one run of memory where a is BSR, got strides that are not")
    y = segment_sum(products, a.offsets, num_segments=down, by="offsets", out=to, **options)
    return out if out is not None else reshaped(y, (a.shape[0], *wide), "y")


def spmv(
    a: Any, x: Any, c: Any = None, *, alpha: Any = 1.0, beta: Any = 1.0, transpose: bool = False,
    conjugate: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y = alpha op(A) x + beta c of a sparse A [m, k] and vectors x [k], c and y [m]; see `spmm`."""
    if len(shape_of(x, "x")) != 1:
        raise InvalidProblemError(f"x must be a vector, got shape {shape_of(x, 'x')}; `spmm` takes matrices")
    column, add_, to = (None if one is None else with_axis(one, 1, n) for one, n in ((x, "x"), (c, "c"), (out, "out")))
    facts: Options = {"alpha": alpha, "beta": beta, "transpose": transpose, "conjugate": conjugate, "out": to}
    y = spmm(a, column, add_, stream=stream, preference=preference, **facts)
    return out if out is not None else without_axes(y, (1,), "y")


def sampled_addmm(
    c: Any, a: Any, b: Any, *, beta: Any = 1.0, alpha: Any = 1.0, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """alpha a @ b at the places of a sparse c, plus beta c (torch.sparse.sampled_addmm); SDDMM.

    c: CSR, CSC or COO [m, n]; a: [m, k]; b: [k, n]; `out` gets the values. See `sddmm` for sums and gradients, which
    a, b and the values of c have. A b that is the transpose of a contiguous matrix is read in whole rows.
    """
    c, options = sparse_of(c, "c", COO, CSR, CSC), {"stream": stream, "preference": preference}
    if shape_of(a, "a")[:1] != c.shape[:1] or shape_of(b, "b")[1:] != c.shape[1:]:
        found = f"{shape_of(a, 'a')} and {shape_of(b, 'b')}"
        raise InvalidProblemError(f"a must be [{c.shape[0]}, k] and b [k, {c.shape[1]}], as c is, got shapes {found}")
    if isinstance(c, CSC):
        given: Options = {"beta": beta, "alpha": alpha, "out": out, **options}
        return sampled_addmm(c.T, transposed(b, "b"), transposed(a, "a"), **given).T
    index, by = (c.offsets, "offsets") if isinstance(c, CSR) else (c.rows, "ids")
    right = transposed(b, "b")
    if not read(a, "a").element.is_complex:
        facts: Options = {"by": by, "alpha": alpha, "beta": beta, "out": out, **options}
        return c.with_values(sddmm(a, right, c.columns, index, c.values, **facts))
    left, turned = pairs(a, options), conj(right, **options)
    parts = [
        sddmm(left, pairs(one, options), c.columns, index, by=by, **options)
        for one in (turned, mul(turned, 1j, **options))
    ]
    return c.with_values(_scaled(complex_of(*parts, **options), c.values, alpha, beta, out, options))
