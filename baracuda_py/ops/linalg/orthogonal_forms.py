"""hessenberg, cholesky_update and solve_toeplitz: by reflectors and factors, one call after another."""

from __future__ import annotations

from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.checked import truth
from ...core.errors import InvalidProblemError
from ...core.outputs import beside, each_of
from ...core.views import broadcast, constant, diagonal, shape_of, with_axis
from ..elementwise.binary_functions import mul, sub
from ..elementwise.cast import cast
from ..elementwise.ternary_functions import where
from ..elementwise.unary import abs as magnitude, sgn  # type: ignore[attr-defined]  # made from a table
from ..gemm.gemm import GemmPlan
from ..layout.concat import concat
from ..layout.creation import ones_like
from ..layout.moves import copy
from ..layout.pad import pad
from ..layout.structured import toeplitz
from ..layout.triangle import triu
from .lu_factor import LuFactorPlan
from .parts import adjoint_of, block, conjugate, known, square
from .pieces import Pieces, down
from .qr import QrPlan
from .qr_functions import qr
from .solve import solve


def _reflector(do: Pieces, x: Any) -> tuple[Any, Any]:
    """(v, t) of columns x, for which (I - t v vᴴ) x has one number, the first; t is 0 where x has no other."""
    head, tail = block(x, slice(0, 1), slice(None)), block(x, slice(1, None), slice(None))
    off = do.reduced("sum_squares", _size(do, tail), -2, keepdims=True)
    own = _size(do, head)
    phase = sgn(head, **do.options)
    with beside(phase, do.options["stream"]):
        one = ones_like(phase)
    phase = where(do.of("s == 0", s=own), one, phase, **do.options)
    first = do.scaled(phase, do.of("s + sqrt(s * s + o)", s=own, o=off))
    scale = do.of("where(o > 0, 2 / (o + square(s + sqrt(s * s + o))), 0)", s=own, o=off)
    return concat([first, tail], axis=-2, **do.options), scale


def _size(do: Pieces, x: Any) -> Any:
    return magnitude(x, **do.options)


@entry(GemmPlan)
def hessenberg(
    a: Array, calc_q: bool = False, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """h, or (h, q), with a = q h qᴴ: h is 0 below the diagonal's neighbour, q unitary (scipy.linalg.hessenberg).

    a: [..., n, n] of f32, f64, complex64, complex128. By n - 2 reflectors, each of a few calls: of a Hermitian a h is
    tridiagonal to within roundings. Gradients are those of its calls, where no column is 0 already.
    """
    do, n = Pieces(stream, preference), square(a)
    wanted, h, every = truth("calc_q", calc_q), a, slice(None)
    view = known(a, "a", "hessenberg")
    to = each_of(out, 2) if wanted else (out, None)
    q: Any = None
    if wanted:
        unit = do.unit(n, do.reduced("l1_norm", constant(a), -1)) if n else a
        q = broadcast(cast(unit, view.element, **do.options), view.shape, "a") if n else copy(a, **do.options)
    for k in range(n - 2):
        v, scale = _reflector(do, block(h, slice(k + 1, None), slice(k, k + 1)))
        v = pad(v, (0, 0, k + 1, 0), **do.options)
        turned = do.scaled(adjoint_of(v, do.options), scale)
        h = sub(h, do.product(v, do.product(turned, h)), **do.options)
        h = sub(h, do.product(do.product(h, v), turned), **do.options)
        q = sub(q, do.product(do.product(q, v), turned), **do.options) if wanted else None
    h = triu(h, -1, out=to[0], **do.options)
    if not wanted:
        return h
    return h, copy(block(q, every, every), out=to[1], **do.options)


@entry(QrPlan)
def cholesky_update(
    r: Array, w: Array, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """The upper factor s with sᴴ s = rᴴ r + wᴴ w, w a row (jax.lax.linalg.cholesky_update).

    r: [..., n, n], an upper Cholesky factor; w: [..., n]. By a QR of r with w below it, whose signs are made those of a
    positive diagonal. Of complex numbers the row w counts as it is.
    """
    do, n = Pieces(stream, preference), square(r, "r")
    if shape_of(w, "w") != (*shape_of(r, "r")[:-2], n):
        raise InvalidProblemError(
            f"w must be {(*shape_of(r, 'r')[:-2], n)}, one row for each r, got {shape_of(w, 'w')}"
        )
    if not n:
        return copy(r, out=out, **do.options)
    _, made = qr(concat([triu(r, **do.options), with_axis(w, -2, "w")], axis=-2, **do.options), **do.options)
    rank = len(shape_of(made, "r"))
    signs = sgn(diagonal(made, rank - 2, rank - 1, "r"), **do.options)  # which are real
    return mul(made, down(signs), out=out, **do.options)


@entry(LuFactorPlan)
def solve_toeplitz(
    c_or_cr: Any, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """x with T x = b, T of constant diagonals (scipy.linalg.solve_toeplitz).

    c_or_cr: T's first column [n], whose conjugate is its first row, or (column, row), of which the row's first number
    counts for nothing. b: [n] or [n, k]. The whole matrix is made and solved by `solve`, in n³ operations, which is
    backward stable where Levinson's recursion in n² is not.
    """
    options = {"stream": stream, "preference": preference}
    pair = isinstance(c_or_cr, (tuple, list))
    given = c_or_cr if pair else (c_or_cr, conjugate(c_or_cr, options))
    if pair and len(given) != 2:
        raise InvalidProblemError(f"c_or_cr must be a column, or a column and a row, got {len(given)} arrays")
    return solve(toeplitz(*given, **options), b, out=out, **options)
