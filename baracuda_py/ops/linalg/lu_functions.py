"""LU factors and what is made of them: lu_factor, lu_unpack, lu and lu_solve, with their gradients."""

from __future__ import annotations

from typing import Any

from ...calls.composed import composed
from ...calls.entries import entry
from ...calls.interpreters import recorder
from ...core import Array
from ...core.arrays import read
from ...core.errors import InvalidProblemError
from ...core.outputs import each_of
from ...core.views import constant, shape_of, transposed, with_axis
from ..elementwise.binary_functions import add, sub
from ..elementwise.unary import neg  # type: ignore[attr-defined]  # made from a table
from ..indexing.mask_functions import take_along_axis
from ..layout.concat import concat
from ..layout.moves import copy
from ..layout.one_hot import one_hot
from ..layout.triangle import tril, triu
from .lu_factor import LuFactorPlan, lu_factors
from .lu_permutation import LuPermutationPlan, row_order
from .parts import (
    Options, adjoint_of, as_operand, block, column, fits, one_batch, product, square,
)  # fmt: skip
from .triangular_functions import solve_triangular, systems
from .triangular_solve import TriangularSolvePlan

ZERO_PIVOT = "U[{0}, {0}] is exactly 0, counted from 1: a matrix is singular"


def permuted_rows(x: Any, pivots: Any, inverse: bool, out: Any, options: Options) -> Any:
    """Pᵀ x, or P x where `inverse`: rows in the order of the pivots, or back."""
    order = row_order(pivots, shape_of(x, "b")[-2], options, inverse=inverse)
    return take_along_axis(x, with_axis(order, -1, "pivots"), -2, out=out, **options)


def permutation(pivots: Any, rows: int, element: Any, inverse: bool, out: Any, options: Options) -> Any:
    """P with A = P L U, or Pᵀ where not `inverse`."""
    order = row_order(pivots, rows, options, inverse=inverse)
    return one_hot(order, rows, element=element, out=out, **options)


def counted(pivots: Any, rows: int, options: Options) -> Any:
    """0, 1, … in every vector of a batch: what no swaps leave."""
    return row_order(block(constant(pivots), slice(0, 0)), rows, options)


def unit_lower(lu: Any, pivots: Any, out: Any, options: Options) -> Any:
    """L [..., m, min(m, n)], of ones on the diagonal."""
    m, n = shape_of(lu, "lu")[-2:]
    ones = one_hot(counted(pivots, m, options), min(m, n), element=read(lu, "lu").element, **options)
    return add(tril(block(lu, slice(0, min(m, n))), -1, **options), ones, out=out, **options)


# ---- factors ----------------------------------------------------------------------------------------------------


def _lu_back(dy: Any, a: Any, lu: Any, pivots: Any, y: Any, preference: Any = None) -> Any:
    """P L⁻ᴴ (tril(Lᴴ dL, -1) + triu(dU Uᴴ)) U⁻ᴴ of the square part, with terms of what is beyond it.

    Beyond it U₂ = L⁻¹ A₂ of wide matrices, L₂ = A₂ U⁻¹ of tall ones.
    """
    options = {"preference": preference}
    m, n = shape_of(y, "lu")[-2:]
    k = min(m, n)
    first, rest = slice(0, k), slice(k, None)
    core, slope = (block(x, first, first) for x in (y, dy))
    lower, upper = unit_lower(core, pivots, None, options), triu(core, **options)
    below = product(adjoint_of(lower, options), tril(slope, -1, **options), options)
    above = product(triu(slope, **options), adjoint_of(upper, options), options)
    wide, tall = n > m, m > n
    if wide:
        beyond = block(dy, rest)
        below = sub(below, product(beyond, adjoint_of(block(y, rest), options), options), **options)
    if tall:
        beyond = block(dy, rest, slice(None))
        above = sub(above, product(adjoint_of(block(y, rest, slice(None)), options), beyond, options), **options)
    inner = add(tril(below, -1, **options), triu(above, **options), **options)
    by_lower: Options = {"upper": False, "unitriangular": True, "trans": "c", **options}
    by_upper: Options = {"upper": True, "left": False, "trans": "c", **options}
    inner = solve_triangular(core, solve_triangular(core, inner, **by_lower), **by_upper)
    if wide:
        inner = concat([inner, solve_triangular(core, beyond, **by_lower)], axis=-1, **options)
    if tall:
        inner = concat([inner, solve_triangular(core, beyond, **by_upper)], axis=-2, **options)
    return permuted_rows(inner, pivots, True, None, options)


@composed(_lu_back, "a", result=True, reads=("pivots",))
def _of_matrix(a: Any, lu: Any, pivots: Any, stream: Any = None, preference: Any = None) -> Any:
    """The factors as what is differentiated by a."""
    return copy(lu, stream=stream, preference=preference)


def factored(a: Any, out: Any, options: Options) -> Any:
    """(lu, pivots, info), of which lu has a gradient where one is recorded."""
    if recorder((a,)) is None:
        return lu_factors(a, out, options)
    lu, pivots, info = lu_factors(constant(a), out, options)
    return _of_matrix(a, lu, pivots, **options), pivots, info


@entry(LuFactorPlan)
def lu_factor_ex(a: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """(lu, pivots, info): factors A = P L U with partial pivoting (torch.linalg.lu_factor_ex).

    a: [..., m, n]. lu: L below the diagonal, whose own is of ones, and U on and above it. pivots, int32 [..., min(m,
    n)]: row i was exchanged with row pivots[i], counted from 1, in turn. info, int32 [...]: 0, or k where U[k, k] is
    the first that is exactly 0. Nothing waits for the device. The gradient is that of matrices whose pivots stay.
    """
    return factored(a, out, {"stream": stream, "preference": preference})


@entry(LuFactorPlan)
def lu_factor(a: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """(lu, pivots) of `lu_factor_ex` (torch.linalg.lu_factor, jax.scipy.linalg.lu_factor; SciPy's pivots are from 0).

    Singular matrices have factors, too, with a 0 on U's diagonal.
    """
    to = each_of(out, 2)
    given = None if out is None else {"lu": to[0], "pivots": to[1]}
    return tuple(factored(a, given, {"stream": stream, "preference": preference})[:2])


@entry(LuPermutationPlan)
def lu_unpack(lu: Array, pivots: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """(P, L, U) of what `lu_factor` returns (torch.lu_unpack).

    lu: [..., m, n], pivots: int32 [..., min(m, n)], from 1. P [..., m, m] is of lu's element, L [..., m, min(m, n)], U
    [..., min(m, n), n], and A = P L U. A pivot that names no row exchanges nothing.
    """
    options = {"stream": stream, "preference": preference}
    to, (m, n) = each_of(out, 3), _unpackable(lu, pivots)
    p = permutation(pivots, m, read(lu, "lu").element, True, to[0], options)
    lower = unit_lower(lu, pivots, to[1], options)
    return p, lower, triu(block(lu, slice(0, min(m, n)), slice(None)), out=to[2], **options)


def _unpackable(lu: Any, pivots: Any) -> tuple[int, int]:
    """m and n of packed factors whose pivots fit."""
    shape, own = shape_of(lu, "lu"), shape_of(pivots, "pivots")
    if len(shape) < 2:
        raise InvalidProblemError(f"lu must have shape [..., m, n], got {shape}")
    wanted = (*shape[:-2], min(shape[-2:]))
    if own != wanted:
        raise InvalidProblemError(f"pivots must have shape {wanted}, one for each column of L, got {own}")
    return shape[-2], shape[-1]


@entry(LuFactorPlan)
def lu(a: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """(P, L, U) with A = P L U (torch.linalg.lu, scipy.linalg.lu); a: [..., m, n]. See `lu_factor_ex`, `lu_unpack`."""
    options = {"stream": stream, "preference": preference}
    packed, pivots, _ = factored(a, None, options)
    return lu_unpack(packed, pivots, out=out, **options)


# ---- systems ----------------------------------------------------------------------------------------------------


def by_factors(lu: Any, pivots: Any, b: Any, transpose: bool, conjugated: bool, out: Any, options: Options) -> Any:
    """op(A) x = b of A = P L U."""
    if not transpose:
        moved = permuted_rows(b, pivots, False, None, options)
        half = systems(lu, moved, False, True, True, False, conjugated, None, options)
        return systems(lu, half, True, True, False, False, conjugated, out, options)
    half = systems(lu, b, True, True, False, True, conjugated, None, options)
    half = systems(lu, half, False, True, True, True, conjugated, None, options)
    return permuted_rows(half, pivots, True, out, options)


def _swaps(pivots: Any, b: Any) -> Any:
    """The pivots of each system."""
    return column(one_batch((with_axis(pivots, -1, "pivots"), "pivots"), (b, "b"))[0])


def _lu_solve_back(
    dy: Any, lu: Any, pivots: Any, b: Any, y: Any, left: bool, adjoint: bool, preference: Any
) -> tuple[Any, Any]:
    """db = op(A)⁻ᴴ dy; with dA of it dL = tril(Pᵀ dA Uᴴ, -1) and dU = triu(Lᴴ Pᵀ dA)."""
    options = {"preference": preference}
    db = lu_solve(lu, pivots, dy, left=left, adjoint=not adjoint, **options)
    ends = (db, adjoint_of(y, options)) if left else (adjoint_of(y, options), db)
    da = neg(product(*ends, options), **options)
    moved = permuted_rows(adjoint_of(da, options) if adjoint else da, _swaps(pivots, da), False, None, options)
    upper, lower = triu(lu, **options), unit_lower(lu, pivots, None, options)
    dl = tril(product(moved, adjoint_of(upper, options), options), -1, **options)
    du = triu(product(adjoint_of(lower, options), moved, options), **options)
    return as_operand(add(dl, du, **options), lu, options), as_operand(db, b, options)


@composed(_lu_solve_back, "lu", "b", result=True)
@entry(TriangularSolvePlan)
def lu_solve(
    lu: Array, pivots: Array, b: Array, *, left: bool = True, adjoint: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with A x = b, A by its factors from `lu_factor` (torch.linalg.lu_solve).

    lu: [..., n, n], pivots: int32 [..., n], from 1; b and x: [..., n, k]. Not `left`: x A = b, of [..., k, n].
    `adjoint`: Aᴴ stands for A. The leading axes broadcast. Rows are put in the pivots' order, then two triangular
    systems are solved. A zero of U's diagonal is divided by; a pivot that names no row exchanges nothing.
    """
    fits(square(lu, "lu"), b, left)
    _unpackable(lu, pivots)
    options = {"stream": stream, "preference": preference}
    packed, right = one_batch((lu, "lu"), (b, "b"))
    swaps = _swaps(pivots, b)
    if left:
        return by_factors(packed, swaps, right, adjoint, adjoint, out, options)
    to = None if out is None else transposed(out, "out")
    # x A = b is Aᵀ xᵀ = bᵀ, and x Aᴴ = b the conjugate of A.
    x = by_factors(packed, swaps, transposed(right, "b"), not adjoint, adjoint, to, options)
    return transposed(x, "x") if out is None else out
