"""spsolve_triangular: substitution with a sparse triangle, row by row on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..calls.composed import composed
from ..core.arrays import read, to_numpy
from ..core.checked import truth
from ..core.element import ElementKind
from ..core.errors import InvalidProblemError, UnsupportedError
from ..core.outputs import beside, handed, maker
from ..core.views import shape_of, transposed, with_axis, without_axes
from ..ops.elementwise.complex_unary import conj
from ..ops.elementwise.ternary_functions import where
from ..ops.elementwise.unary import neg  # type: ignore[attr-defined]  # made from a table
from ..ops.layout.creation import zeros
from .convert import csr_to_coo, to_csr
from .formats import COO, CSR, sparse_of
from .parts import Options, formula
from .products import sampled_addmm

_ELEMENTS = (ElementKind.F32, ElementKind.F64, ElementKind.C64, ElementKind.C128)


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
    found, element = read(b, "b"), read(values, "values").element
    if any(read(x).device >= 0 or read(x).traced for x in (values, columns, offsets, b)):
        raise UnsupportedError(
            "spsolve_triangular runs on arrays of the host alone, outside of traces; solve_triangular(to_dense(a), b) "
            "solves on a device, cupyx.scipy.sparse.linalg has a sparse one"
        )
    if found.element is not element or element not in _ELEMENTS:
        raise InvalidProblemError(
            f"a and b must both be one of {', '.join(map(str, _ELEMENTS))}, got {element} and {found.element}"
        )
    v, c, o, right = map(to_numpy, (values, columns, offsets, b))
    x = _substituted(v, c, o, right, lower, unit, turned)
    made = out if out is not None else maker(b, found.shape, element, -1)()
    to_numpy(made)[...] = x
    return made if out is not None else handed(made, element, b)


def _substituted(values: Any, columns: Any, offsets: Any, b: Any, lower: bool, unit: bool, turned: bool) -> Any:
    """Row r gives x[r] from those before it; as a column of the transpose, what x[r] takes from those after it."""
    wide = np.complex128 if values.dtype.kind == "c" else np.float64
    x, n, count = b.astype(wide), len(b), len(values)
    forward = lower != turned
    edges = np.clip(offsets.astype(np.int64), 0, count)
    with np.errstate(all="ignore"):
        for r in range(n) if forward else range(n - 1, -1, -1):
            at, v = columns[edges[r] : edges[r + 1]], values[edges[r] : edges[r + 1]].astype(wide)
            pivot = 1.0 if unit else v[at == r].sum()
            off = ((at >= 0) & (at < r)) if lower else ((at > r) & (at < n))
            at, v = at[off], v[off][:, None]
            if turned:
                x[r] /= pivot
                np.subtract.at(x, at, v * x[r])
            else:
                x[r] = (x[r] - (v * x[at]).sum(0)) / pivot
    return x


def spsolve_triangular(
    a: Any, b: Any, *, lower: bool = True, unit_diagonal: bool = False, transpose: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with op(A) x = b, A the lower or upper triangle of a sparse matrix (scipy.sparse.linalg.spsolve_triangular).

    a: [n, n], which becomes CSR; what stands outside its triangle is not read, with unit_diagonal neither is the
    diagonal, which then is of ones. A diagonal that is not there is 0, and divided by. b, x: [n] or [n, k], float32,
    float64 or complex. Of arrays of the host, in float64; of a device's it is refused. Gradients of the values and b in
    torch.
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
