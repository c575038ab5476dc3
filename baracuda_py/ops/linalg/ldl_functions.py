"""ldl_factor, ldl_factor_ex and ldl_solve: symmetric and Hermitian systems by Bunch and Kaufman's factors."""

from __future__ import annotations

from typing import Any

from ...calls.composed import composed
from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.checked import truth
from ...core.element import ElementKind
from ...core.errors import InvalidProblemError
from ...core.outputs import beside, each_of
from ...core.views import diagonal, shape_of, transposed, with_axis
from ..elementwise.ternary_functions import where
from ..indexing.mask_functions import take_along_axis
from ..layout.creation import arange
from ..layout.moves import copy
from ..layout.pad import pad, roll
from ..scan.scan import cumsum
from .ldl_factor import LdlFactorPlan, ldl_factors
from .lu_functions import permuted_rows
from .lu_permutation import row_order
from .parts import Options, as_operand, block, column, conjugate, fits, known, one_batch, square
from .pieces import across, down, formula
from .triangular_functions import solve_triangular
from .triangular_solve import TriangularSolvePlan
from .tridiagonal_functions import tridiagonal_solve


@entry(LdlFactorPlan)
def ldl_factor_ex(
    a: Array, *, hermitian: bool = False, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """(ld, pivots, info): factors A = P L D L* Pᵀ of symmetric matrices (torch.linalg.ldl_factor_ex; LAPACK sytrf).

    a: [..., n, n] of f32, f64, complex64, complex128, whose lower triangle is read; hermitian: complex ones are
    Hermitian, and L* is Lᴴ, else symmetric, and L* is Lᵀ. ld: D, of blocks of one and two rows, and the columns of L
    below them; zeros above, where torch has what stood there. pivots, int32 [..., n]: k of a block of one row exchanged
    with pivots[k], counted from 1, -p of a block of two whose second row was exchanged with p. info, int32 [...]: 0, or
    k where the k-th number of D is the first that is 0. Nothing waits for the device. On a device Hermitian matrices of
    complex numbers have up to 64 rows. No gradient, as torch has none: `solve` has one.
    """
    options = {"stream": stream, "preference": preference}
    known(a, "a", "ldl_factor_ex"), square(a)
    return ldl_factors(a, truth("hermitian", hermitian), out, options)


@entry(LdlFactorPlan)
def ldl_factor(
    a: Array, *, hermitian: bool = False, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """(ld, pivots) of `ldl_factor_ex` (torch.linalg.ldl_factor). A singular matrix has factors, too: D has a 0."""
    to = each_of(out, 2)
    options = {"stream": stream, "preference": preference}
    known(a, "a", "ldl_factor"), square(a)
    given = None if out is None else {"ld": to[0], "pivots": to[1]}
    return tuple(ldl_factors(a, truth("hermitian", hermitian), given, options)[:2])


def _numbers(n: int, like: Any, options: Options) -> Any:
    """0, 1, …, int32."""
    with beside(like, options["stream"]):
        return arange(0, n, 1, ElementKind.I32, like=like)


def _blocks(pivots: Any, own: Any, options: Options) -> tuple[Any, Any]:
    """The exchanges as those of LU factors, and 1 where a block of two rows begins, else 0."""
    paired = formula("int32(p < 0)")(p=pivots, **options)
    before = cumsum(paired, axis=-1, **options)
    first = formula("int32(p < 0 and c % 2 == 1)")(p=pivots, c=before, **options)
    swaps = formula("int32(k + 1 if f == 1 else (-p if p < 0 else p))")(p=pivots, f=first, k=own, **options)
    return swaps, first


def _lower(ld: Any, swaps: Any, first: Any, own: Any, options: Options) -> Any:
    """L's columns below the diagonal, their rows in the last order: those of each are moved by what came after it."""
    text = "int32(s if k > j + f else k + 1)"
    moved = formula(text)(s=across(swaps), k=own, j=down(own), f=down(first), **options)
    order = row_order(moved, shape_of(ld, "ld")[-1], options)
    kept = formula("i - j > f")(i=down(own), j=own, f=across(first), **options)  # beside a block's corner
    stored = transposed(where(kept, ld, 0, **options), "ld")
    return transposed(take_along_axis(stored, order, -1, **options), "ld")


def _solve_back(dy: Any, ld: Any, pivots: Any, b: Any, hermitian: bool, preference: Any) -> Any:
    """A⁻ᴴ dy, of symmetric complex matrices the conjugate of A⁻¹ dy*."""
    options = {"preference": preference}
    turned = not hermitian
    right = conjugate(dy, options, turned)
    made = ldl_solve(ld, pivots, right, hermitian=hermitian, **options)
    return as_operand(conjugate(made, options, turned), b, options)


@composed(_solve_back, "b", reads=("ld", "pivots"))
@entry(TriangularSolvePlan)
def ldl_solve(
    ld: Array, pivots: Array, b: Array, *, hermitian: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x with A x = b, A by its factors from `ldl_factor` (torch.linalg.ldl_solve; LAPACK sytrs, hetrs).

    ld: [..., n, n], of which the lower triangle is read, pivots: int32 [..., n]; b and x: [..., n, k]; the leading axes
    broadcast. Rows are put in the pivots' order, then L, D (by `tridiagonal_solve`) and L* are solved with. A zero of D
    is divided by; a pivot that names no row exchanges nothing. The gradient is that of b.
    """
    options: Options = {"stream": stream, "preference": preference}
    n, conjugated = square(ld, "ld"), truth("hermitian", hermitian)
    known(ld, "ld", "ldl_solve")
    fits(n, b, True)
    if shape_of(pivots, "pivots") != shape_of(ld, "ld")[:-1]:
        raise InvalidProblemError(
            f"pivots must be {shape_of(ld, 'ld')[:-1]}, one for each row of ld, got shape {shape_of(pivots, 'pivots')}"
        )
    if not n or 0 in shape_of(b, "b"):
        return copy(one_batch((ld, "ld"), (b, "b"))[1], out=out, **options)
    own = _numbers(n, pivots, options)
    swaps, first = _blocks(pivots, own, options)
    lower = _lower(ld, swaps, first, own, options)
    rank = len(shape_of(ld, "ld"))
    middle = diagonal(ld, rank - 2, rank - 1, "ld")
    corner = diagonal(block(ld, slice(1, None), slice(0, n - 1)), rank - 2, rank - 1, "ld")
    corner = where(formula("f == 1")(f=first, **options), pad(corner, (0, 1), **options), 0, **options)
    right_of = conjugate(corner, options, conjugated)
    lines = [with_axis(x, -1, "d") for x in (roll(corner, 1, -1, **options), middle, right_of)]
    swaps, lower, *lines, right = one_batch(
        (with_axis(swaps, -1, "pivots"), "pivots"), (lower, "ld"), *((x, "ld") for x in lines), (b, "b")
    )
    swaps = column(swaps)
    x = permuted_rows(right, swaps, False, None, options)
    x = solve_triangular(lower, x, upper=False, unitriangular=True, **options)
    left_of, own, right_of = map(column, lines)
    x = tridiagonal_solve(left_of, own, right_of, x, **options)
    turned = "c" if conjugated and read(ld, "ld").element.is_complex else "t"
    x = solve_triangular(lower, x, upper=False, unitriangular=True, trans=turned, **options)
    return permuted_rows(x, swaps, True, out, options)
