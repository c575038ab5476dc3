"""solve_triangular and triangular_solve: systems with triangular matrices from either side, and their gradients."""

from __future__ import annotations

from typing import Any

from ...calls.composed import composed
from ...calls.entries import entry
from ...core import Array
from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ...core.views import shape_of, transposed, with_axis
from ..elementwise.unary import neg  # type: ignore[attr-defined]  # made from a table
from ..layout.triangle import tril, triu
from .parts import Options, adjoint_of, as_operand, column, conjugate, fits, one_batch, product, square
from .triangular_solve import TriangularSolvePlan, triangular_systems

_TRANS = {
    "n": (False, False),
    "t": (True, False),
    "c": (True, True),
    0: (False, False),
    1: (True, False),
    2: (True, True),
}
_OF = {(False, False): "n", (True, False): "t", (True, True): "c"}


def _meant(trans: Any) -> tuple[bool, bool]:
    """(transposed, conjugated), of SciPy's words."""
    try:
        return _TRANS[trans.lower() if isinstance(trans, str) else trans]
    except (KeyError, TypeError):
        raise InvalidProblemError(f'trans must be "n", "t" or "c" (or 0, 1 or 2), got {shown(trans)}') from None


def systems(
    a: Any, b: Any, upper: bool, left: bool, unit: bool, transpose: bool, conjugated: bool, out: Any, options: Options
) -> Any:
    """op(a) x = b, or x op(a) = b: its transpose."""
    a, b = one_batch((a, "a"), (b, "b"))
    if not left:
        transpose, b, out = not transpose, transposed(b, "b"), None if out is None else transposed(out, "out")
    a, upper = (transposed(a, "a"), not upper) if transpose else (a, upper)
    x = triangular_systems(a, b, upper=upper, unit=unit, conjugate=conjugated, out=out, **options)
    return x if left else transposed(x, "x")


def _back(
    dy: Any, a: Any, b: Any, y: Any, upper: bool, left: bool, unitriangular: bool, trans: Any,
    preference: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """db = op(a)⁻ᴴ dy; of op(a) it is -db yᴴ from the left and -yᴴ db from the right, of a its triangle."""
    options = {"preference": preference}
    transpose, conjugated = _meant(trans)
    held = conjugate(a, options, transpose and not conjugated)  # of its transpose the adjoint is the conjugate of a
    back = "n" if transpose else "c"
    db = solve_triangular(held, dy, upper=upper, left=left, unitriangular=unitriangular, trans=back, **options)
    less = neg(db, **options)
    da = product(less, adjoint_of(y, options), options) if left else product(adjoint_of(y, options), less, options)
    da = conjugate(transposed(da, "da") if transpose else da, options, conjugated)
    da = triu(da, int(unitriangular), **options) if upper else tril(da, -int(unitriangular), **options)
    return as_operand(da, a, options), as_operand(db, b, options)


@composed(_back, "a", "b", result=True)
@entry(TriangularSolvePlan)
def solve_triangular(
    a: Array, b: Array, *, upper: bool, left: bool = True, unitriangular: bool = False, trans: Any = "n",
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with op(A) x = b, or x op(A) = b where not `left`, A a triangle of a (torch.linalg.solve_triangular).

    a: [..., n, n], of which the upper triangle is read, or else the lower one; `unitriangular`: its diagonal counts as
    ones, and is not read. b, x: [..., n, k], or [..., k, n] where not `left`; the leading axes broadcast. trans: op(A)
    is "n" A, "t" its transpose, "c" its adjoint (SciPy's words, or 0, 1 and 2). A zero on the diagonal is divided by.
    `out` may be b. One launch of a library after copies; see `TriangularSolvePlan`. The gradient of a is 0 beyond its
    triangle.
    """
    fits(square(a), b, left)
    options = {"stream": stream, "preference": preference}
    x = systems(a, b, upper, left, unitriangular, *_meant(trans), out, options)
    return x if out is None else out


@entry(TriangularSolvePlan)
def triangular_solve(
    a: Array, b: Array, *, left_side: bool = False, lower: bool = False, transpose_a: bool = False,
    conjugate_a: bool = False, unit_diagonal: bool = False, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """`solve_triangular` by JAX's words: x op(A) = b, or op(A) x = b with `left_side` (jax.lax.linalg).

    a: [..., n, n]. b: [..., k, n] ([..., n, k]), or a vector [..., n] for each matrix, as is x. op(A) is A, its
    transpose, its conjugate, or with both its adjoint. torch.triangular_solve, which is deprecated, takes b first and
    returns a besides: write `solve_triangular(a, b, upper=True)`.
    """
    n, vector = square(a), len(shape_of(b, "b")) == len(shape_of(a, "a")) - 1
    options = {"stream": stream, "preference": preference}
    to = out
    if vector:
        axis = -1 if left_side else -2
        b, to = with_axis(b, axis, "b"), None if out is None else with_axis(out, axis, "out")
    fits(n, b, left_side)
    given: Options = {"upper": not lower, "left": left_side, "unitriangular": unit_diagonal, "out": to, **options}
    if conjugate_a and not transpose_a:
        a = conjugate(a, options)
    x = solve_triangular(a, b, trans=_OF[transpose_a, conjugate_a and transpose_a], **given)
    if out is not None:
        return out
    return column(x if left_side else transposed(x, "x")) if vector else x
