"""spsolve_triangular: substitution with a sparse triangle, and its gradients."""

from __future__ import annotations

from typing import Any

from ..calls.composed import composed
from ..core.arrays import read
from ..core.checked import truth
from ..core.errors import InvalidProblemError
from ..core.outputs import beside
from ..core.views import shape_of, transposed, with_axis, without_axes
from ..ops.elementwise.complex_unary import conj
from ..ops.elementwise.ternary_functions import where
from ..ops.elementwise.unary import neg  # type: ignore[attr-defined]  # made from a table
from ..ops.layout.creation import zeros
from ..ops.linalg.draws import ELEMENTS
from ..ops.sparse.triangular_solve import sparse_triangular_systems
from .convert import csr_to_coo, csr_to_csc, to_csr
from .formats import COO, CSR, sparse_of
from .parts import Options, formula
from .products import sampled_addmm


def _conjugate(x: Any, options: Options) -> Any:
    return conj(x, **options) if read(x, "x").element.is_complex else x


def _back(
    dy: Any, values: Any, columns: Any, offsets: Any, b: Any, y: Any, lower: bool, unit: bool, turned: bool,
    preference: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """db = op(A)⁻ᴴ dy; of op(A) it is -db yᴴ at the places of the triangle that is read."""
    options, n = {"preference": preference}, shape_of(b, "b")[0]
    db = _solve(_conjugate(values, options), columns, offsets, dy, lower, unit, not turned, **options)
    rows = csr_to_coo(CSR(values, columns, offsets, (n, n)), **options).rows
    with beside(values):
        none = zeros(shape_of(values, "values"), read(values, "values").element, like=values)
    places = COO(none, columns, rows, (n, n)) if turned else COO(none, rows, columns, (n, n))
    dots = sampled_addmm(places, db, transposed(_conjugate(y, options), "y"), **options).values
    text = f"r {'>' if lower else '<'}{'' if unit else '='} c"
    return neg(where(formula(text)(r=rows, c=columns, **options), dots, 0, **options), **options), db


@composed(_back, "values", "b", result=True)
def _solve(
    values: Any, columns: Any, offsets: Any, b: Any, lower: bool, unit: bool, turned: bool, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """op(A) x = b; a transpose is sorted by its rows first."""
    options: Options = {"stream": stream, "preference": preference}
    theirs, element = read(b, "b").element, read(values, "values").element
    if theirs is not element or element not in ELEMENTS:
        raise InvalidProblemError(
            f"a and b must both be one of {', '.join(map(str, ELEMENTS))}, got {element} and {theirs}"
        )
    if turned:
        n = shape_of(b, "b")[0]
        sorted_ = csr_to_csc(CSR(values, columns, offsets, (n, n)), **options)
        values, columns, offsets = sorted_.values, sorted_.rows, sorted_.offsets
    upper = lower == turned
    return sparse_triangular_systems(values, columns, offsets, b, upper=upper, unit=unit, out=out, **options)


def spsolve_triangular(
    a: Any, b: Any, *, lower: bool = True, unit_diagonal: bool = False, transpose: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with op(A) x = b, A the lower or upper triangle of a sparse matrix (scipy.sparse.linalg.spsolve_triangular).

    a: [n, n], which becomes CSR; what stands outside its triangle is not read, with unit_diagonal neither is the
    diagonal, which then is of ones. A diagonal that is not there is 0, and divided by. b, x: [n] or [n, k], float32,
    float64 or complex. A warp takes a row and waits for those that it needs (see `SparseTriangularSolvePlan`); a
    transpose is sorted first, as by `csr_to_csc`, which can be done once. The bits are the same in every run. Gradients
    of the values and b.
    """
    options: Options = {"stream": stream, "preference": preference}
    a = sparse_of(a)
    n = a.shape[0]
    shape = shape_of(b, "b")
    if a.shape[1] != n or len(shape) not in (1, 2) or shape[0] != n:
        raise InvalidProblemError(f"a must be square and b [n] or [n, k], got shapes {a.shape} and {shape}")
    if out is not None and shape_of(out, "out") != shape:
        raise InvalidProblemError(f"out must have shape {shape}, got {shape_of(out, 'out')}")
    flags = truth("lower", lower), truth("unit_diagonal", unit_diagonal), truth("transpose", transpose)
    csr, vector = to_csr(a, **options), len(shape) == 1
    right, to = (None if one is None else with_axis(one, 1, "b") if vector else one for one in (b, out))
    x = _solve(csr.values, csr.columns, csr.offsets, right, *flags, out=to, **options)
    return out if out is not None else without_axes(x, (1,), "x") if vector else x
