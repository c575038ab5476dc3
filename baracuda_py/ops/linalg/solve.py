"""solve, inv and what they are for tensors: general linear systems by LU factors, with their gradients."""

from __future__ import annotations

import math
from typing import Any

from ...calls.composed import composed
from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.checked import whole, wholes
from ...core.errors import InvalidProblemError
from ...core.outputs import each_of
from ...core.tensor import View
from ...core.views import permuted, shape_of, with_axis
from ..elementwise.unary import neg  # type: ignore[attr-defined]  # made from a table
from ..layout.moves import copy
from ..layout.views import reshape
from .lu_factor import LuFactorPlan, lu_factors
from .lu_functions import ZERO_PIVOT, factored, lu_solve, permutation
from .parts import Options, adjoint_of, as_operand, column, product, refuse_singular, square
from .triangular_functions import solve_triangular, systems


def _vectors(a: Any, b: Any) -> bool:
    """Whether b is a vector for each matrix, by torch's rule: one vector, or a batch of a's own leading shape."""
    of_a, of_b = shape_of(a, "a"), shape_of(b, "b")
    return len(of_b) == 1 or (len(of_a) - 1 == len(of_b) and of_b == of_a[:-1])


def _by_lu(a: Any, b: Any, left: bool, out: Any, options: Options, factors: Any) -> Any:
    """x and info; vectors are columns, whose axis goes again. factors: what makes them."""
    square(a)
    vector = _vectors(a, b)
    if vector and not left:
        raise InvalidProblemError(f"left=False takes matrices b [..., k, n], got shape {shape_of(b, 'b')}")
    right, to = (with_axis(b, -1, "b"), with_axis(out, -1, "out") if out is not None else None) if vector else (b, out)
    lu, pivots, info = factors(a, None, options)
    x = lu_solve(lu, pivots, right, left=left, out=to, **options)
    return (out if out is not None else column(x) if vector else x), info


def _solve_back(dy: Any, a: Any, b: Any, y: Any, left: bool, preference: Any) -> tuple[Any, Any]:
    """db = A⁻ᴴ dy, da = -db yᴴ, or -yᴴ db where A stands on the right."""
    options = {"preference": preference}
    vector = _vectors(a, b)
    dy, y = (with_axis(x, -1, "y") if vector else x for x in (dy, y))
    db = solve(adjoint_of(a, options), dy, left=left, **options)
    less = neg(db, **options)
    da = product(less, adjoint_of(y, options), options) if left else product(adjoint_of(y, options), less, options)
    return as_operand(da, a, options), as_operand(column(db) if vector else db, b, options)


@composed(_solve_back, "a", "b", result=True)
@entry(LuFactorPlan)
def solve(a: Array, b: Array, *, left: bool = True, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """x with A x = b, or x A = b where not `left` (torch.linalg.solve, numpy.linalg.solve).

    a: [..., n, n]. b, x: [..., n, k] ([..., k, n]), or a vector [n], or [..., n] with a's own leading axes; the leading
    axes broadcast. By LU factors with partial pivoting: backward stable, whatever the scale of rows. Of a singular
    matrix x has infinities and NaN: nothing waits for a device. On NumPy arrays, and under BARACUDA_CHECK=1, a
    `SingularMatrixError` (a `numpy.linalg.LinAlgError`) is raised; `solve_ex` returns info in its place.
    """
    x, info = _by_lu(a, b, left, out, {"stream": stream, "preference": preference}, lu_factors)
    refuse_singular("solve", info, ZERO_PIVOT)
    return x


@entry(LuFactorPlan)
def solve_ex(
    a: Array, b: Array, *, left: bool = True, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """(x, info) of `solve`: info, int32 [...], is 0, or k where U[k, k] is exactly 0 (torch.linalg.solve_ex)."""
    options = {"stream": stream, "preference": preference}
    to = each_of(out, 2)
    x, info = _by_lu(a, b, left, to[0], options, factored)
    return x, info if to[1] is None else copy(info, out=to[1], **options)


# ---- inverses ----------------------------------------------------------------------------------------------------


def _inverted(a: Any, out: Any, options: Options) -> Any:
    """The inverse, as the columns of identity matrices in the pivots' order say it, and info."""
    n = square(a)
    lu, pivots, info = lu_factors(a, None, options)
    ones = permutation(pivots, n, read(a, "a").element, False, None, options)
    half = systems(lu, ones, False, True, True, False, False, None, options)
    return systems(lu, half, True, True, False, False, False, out, options), info


def _inv_back(dy: Any, a: Any, y: Any, preference: Any) -> Any:
    """-A⁻ᴴ dy A⁻ᴴ."""
    options = {"preference": preference}
    turned = adjoint_of(y, options)
    return neg(product(product(turned, dy, options), turned, options), **options)


@composed(_inv_back, "a", result=True)
@entry(LuFactorPlan)
def inv(a: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The inverse of matrices [..., n, n], by LU factors (torch.linalg.inv, numpy.linalg.inv).

    To solve systems `solve` takes less time and errs less. Singular matrices: see `solve`; `inv_ex` returns info.
    """
    y, info = _inverted(a, out, {"stream": stream, "preference": preference})
    refuse_singular("inv", info, ZERO_PIVOT)
    return y


@entry(LuFactorPlan)
def inverse(a: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """`inv` by its older name (torch.inverse)."""
    return inv(a, out=out, stream=stream, preference=preference)


@entry(LuFactorPlan)
def inv_ex(a: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """(inverse, info) of `inv`: info, int32 [...], is 0, or k where U[k, k] is exactly 0 (torch.linalg.inv_ex)."""
    options = {"stream": stream, "preference": preference}
    to, n = each_of(out, 2), square(a)
    lu, pivots, info = factored(a, None, options)
    ones = permutation(pivots, n, read(a, "a").element, False, None, options)
    half = solve_triangular(lu, ones, upper=False, unitriangular=True, **options)
    y = solve_triangular(lu, half, upper=True, out=to[0], **options)
    return y, info if to[1] is None else copy(info, out=to[1], **options)


# ---- of tensors ----------------------------------------------------------------------------------------------------


def _by_rows(x: Any, options: Options) -> Any:
    """x, or where it has gaps or another order a copy of it, made in the order of the stream."""
    found = read(x, "x")
    return x if View(0, found.shape, found.strides, found.element).dense else copy(x, **options)


@entry(LuFactorPlan)
def tensorinv(a: Array, ind: int = 2, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The inverse of a as a map from its last axes to its first `ind` (torch.linalg.tensorinv, numpy.linalg.tensorinv).

    The extents of both groups have one product. The result has the last axes first; see `inv`.
    """
    shape = shape_of(a, "a")
    first = whole("ind", ind, 1)
    rows, cols = shape[:first], shape[first:]
    if math.prod(rows) != math.prod(cols):
        raise InvalidProblemError(f"a of shape {shape} is no square map at ind = {ind}: {rows} and {cols} differ")
    options = {"stream": stream, "preference": preference}
    made = inv(reshape(_by_rows(a, options), math.prod(rows), math.prod(cols)), **options)
    made = reshape(made, *cols, *rows)
    return made if out is None else copy(made, out=out, **options)


@entry(LuFactorPlan)
def tensorsolve(
    a: Array, b: Array, dims: Any = None, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """x with tensordot(a, x, x.ndim) = b (torch.linalg.tensorsolve, numpy.linalg.tensorsolve).

    The axes of a are those of b, then those of x, whose extents have one product; dims: axes of a that are moved to its
    end first. See `solve`.
    """
    rank = len(shape_of(a, "a"))
    if dims is not None:
        moved = [axis % rank if -rank <= axis < rank else axis for axis in wholes("dims", dims)]
        if len(set(moved)) != len(moved) or any(not 0 <= axis < rank for axis in moved):
            raise InvalidProblemError(f"dims must be different axes of a, which has {rank}, got {tuple(dims)}")
        a = permuted(a, [*(axis for axis in range(rank) if axis not in moved), *moved], "a")
    shape, rows = shape_of(a, "a"), shape_of(b, "b")
    cols, size = shape[len(rows) :], math.prod(rows)
    if shape[: len(rows)] != rows or math.prod(cols) != size:
        raise InvalidProblemError(f"a must have shape {rows} with axes of {size} elements behind it, got {shape}")
    options = {"stream": stream, "preference": preference}
    matrix, right = reshape(_by_rows(a, options), size, size), reshape(_by_rows(b, options), size)
    made = reshape(solve(matrix, right, **options), *cols)
    return made if out is None else copy(made, out=out, **options)
