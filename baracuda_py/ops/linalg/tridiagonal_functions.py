"""tridiagonal_solve with its gradient, and eigenvalues of tridiagonal matrices."""

from __future__ import annotations

from typing import Any

from ...calls.composed import composed
from ...calls.entries import entry
from ...core import Array
from ...core.checked import shown, truth
from ...core.errors import InvalidProblemError
from ...core.views import shape_of, with_axis
from ..elementwise.unary import neg  # type: ignore[attr-defined]  # made from a table
from ..layout.pad import roll
from ..layout.pad import pad
from ..layout.written import diag_embed
from ..reduce.vecdot import vecdot
from .eigh import EighPlan
from .eigh_functions import eigh, eigvalsh
from .parts import Options, as_operand, block, column, conjugate, one_batch
from .pieces import Pieces
from .tridiagonal_solve import TridiagonalSolvePlan, tridiagonal_systems


def _back(
    dy: Any, dl: Any, d: Any, du: Any, b: Any, y: Any, preference: Any = None
) -> tuple[Any, Any, Any, Any]:  # fmt: skip
    """db = A⁻ᴴ dy; of A it is -db yᴴ, of which the diagonals have three."""
    options: Options = {"preference": preference}
    vector, n = len(shape_of(y, "y")) < len(shape_of(d, "d")) + 1, shape_of(d, "d")[-1]
    dy, y = (with_axis(x, -1, "y") if vector else x for x in (dy, y))
    turned = [roll(conjugate(du, options), 1, -1, **options), conjugate(d, options)]
    below = roll(conjugate(dl, options), -1, -1, **options)
    db = tridiagonal_solve(turned[0], turned[1], below, dy, **options)
    every = slice(None)

    def along(rows: slice, columns: slice) -> Any:
        return neg(vecdot(block(y, columns, every), block(db, rows, every), **options), **options)

    lower, above = along(slice(1, None), slice(0, max(n - 1, 0))), along(slice(0, max(n - 1, 0)), slice(1, None))
    grown = [pad(lower, (1, 0), **options), along(every, every), pad(above, (0, 1), **options)] if n else [d, d, d]
    return (
        *(as_operand(one, x, options) for one, x in zip(grown, (dl, d, du), strict=True)),
        as_operand(column(db) if vector else db, b, options),
    )


@composed(_back, "dl", "d", "du", "b", result=True)
@entry(TridiagonalSolvePlan)
def tridiagonal_solve(
    dl: Array, d: Array, du: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """x with A x = b, A of three diagonals (jax.lax.linalg.tridiagonal_solve; LAPACK gtsv).

    dl, d, du: [..., n] of f32, f64, complex64, complex128: row i of A has dl[i] left of d[i] and du[i] right of it;
    dl[0] and du[n - 1] count for nothing. b, x: [..., n, k], or vectors [..., n] of as many axes as d; the leading
    axes broadcast. `out` may be b. By elimination with exchanges of neighbouring rows, which is backward stable; of a
    singular matrix x has infinities or NaN. Of a symmetric matrix give dl = roll(du, 1).
    """
    options = {"stream": stream, "preference": preference}
    shapes = [shape_of(x, name) for x, name in ((dl, "dl"), (d, "d"), (du, "du"))]
    if not shapes[1] or len({shape[-1:] for shape in shapes}) > 1:
        raise InvalidProblemError(f"dl, d and du must be [..., n] of one n, got shapes {', '.join(map(str, shapes))}")
    n, right = shapes[1][-1], shape_of(b, "b")
    vector = len(right) <= len(shapes[1])
    if (right[-1:] if vector else right[-2:-1]) != (n,):
        raise InvalidProblemError(f"b must be [..., {n}, k], or [..., {n}] of as many axes as d, got shape {right}")
    b, to = (x if x is None or not vector else with_axis(x, -1, "b") for x in (b, out))
    lines = [with_axis(x, -1, name) for x, name in ((dl, "dl"), (d, "d"), (du, "du"))]
    *lines, b = one_batch(*zip([*lines, b], ("dl", "d", "du", "b"), strict=True))
    left, own, right_of = map(column, lines)
    x = tridiagonal_systems(left, own, right_of, b, out=to, **options)
    return out if out is not None else column(x) if vector else x


@entry(EighPlan)
def eigh_tridiagonal(
    d: Array, e: Array, *, eigvals_only: bool = False, select: str = "a", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(w, v) of Hermitian tridiagonal matrices (scipy.linalg.eigh_tridiagonal, jax.scipy.linalg); or w alone.

    d: [..., n], the diagonal; e: [..., n - 1], what is below it, of which the conjugate stands above. The whole matrix
    is made and given to `eigh`. select: "a", all eigenvalues; of others cut the result.
    """
    if select != "a":
        raise InvalidProblemError(f"select must be 'a', of whose result a part can be cut, got {shown(select)}")
    shape, beside = shape_of(d, "d"), shape_of(e, "e")
    if not shape or beside != (*shape[:-1], max(shape[-1] - 1, 0)):
        raise InvalidProblemError(f"d must be [..., n] and e [..., n - 1], got shapes {shape} and {beside}")
    do = Pieces(stream, preference)
    a = diag_embed(d, **do.options)
    if shape[-1] > 1:  # both sides, as a gradient is for Hermitian changes
        a = do.sum(a, diag_embed(e, -1, **do.options), diag_embed(conjugate(e, do.options), 1, **do.options))
    if truth("eigvals_only", eigvals_only):
        return eigvalsh(a, out=out, **do.options)
    return eigh(a, out=out, **do.options)
