"""tridiagonal: Householder's reduction of Hermitian matrices, packed as LAPACK's sytrd and hetrd have it."""

from __future__ import annotations

from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.checked import truth
from ...core.errors import InvalidProblemError
from ...core.outputs import beside, each_of
from ...core.views import diagonal, shape_of
from ..elementwise.binary_functions import add, sub
from ..elementwise.cast import cast
from ..elementwise.complex_pair import complex as complex_of
from ..elementwise.complex_unary import imag, real
from ..elementwise.unary import abs as magnitude  # type: ignore[attr-defined]  # made from a table
from ..gemm.gemm import GemmPlan
from ..layout.concat import concat
from ..layout.creation import ones_like, zeros
from ..layout.moves import copy
from ..layout.pad import pad
from ..layout.triangle import tril
from ..layout.written import diag_embed
from .parts import adjoint_of, block, column, known, square
from .pieces import Pieces


def _reflector(do: Pieces, x: Any) -> tuple[Any, Any, Any]:
    """(v, tau, beta) of columns x: v begins with 1, (I - tau v vᴴ)ᴴ x is beta, real, above zeros (LAPACK's larfg)."""
    head, tail = block(x, slice(0, 1), slice(None)), block(x, slice(1, None), slice(None))
    off = do.reduced("sum_squares", magnitude(tail, **do.options), -2, keepdims=True)
    kind = read(x, "x").element
    own = real(head, **do.options) if kind.is_complex else head
    with beside(own, do.options["stream"]):
        aside = imag(head, **do.options) if kind.is_complex else zeros(shape_of(own, "x"), kind, like=own)
    given: dict[str, Any] = {"r": own, "i": aside, "o": off}
    beta = do.of("f = o + i * i > 0; where(f, copysign(sqrt(where(f, r * r + i * i + o, 1)), -r), r)", **given)
    given["b"] = beta
    far: dict[str, Any] = {"i": aside, "o": off, "b": beta}
    tau = do.of("(b - r) / where(o + i * i > 0, b, 1)", **given)
    share = do.of("(r - b) / where(o + i * i > 0, square(r - b) + i * i, 1)", **given)
    if kind.is_complex:
        tau = complex_of(tau, do.of("-i / where(o + i * i > 0, b, 1)", **far), **do.options)
        second = do.of("-i / where(o + i * i > 0, square(r - b) + i * i, 1)", **given)
        share = complex_of(share, second, **do.options)
    with beside(head, do.options["stream"]):
        one = ones_like(head)
    return concat([one, do.product(tail, share)], axis=-2, **do.options), tau, beta


@entry(GemmPlan)
def tridiagonal(
    a: Array, *, lower: bool = True, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """(reflectors, d, e, taus) of Hermitian matrices, Qᴴ A Q = T of three diagonals (jax.lax.linalg.tridiagonal).

    a: [..., n, n] of f32, f64, complex64, complex128, n >= 1, of which the lower triangle is read; of an upper one give
    the adjoint. d [..., n], the diagonal of T, and e [..., n - 1], beside it, are real. taus [..., n - 1] and the
    columns v below e's place in `reflectors` [..., n, n], which has d and e too and zeros above, make Q = H₁ … Hₙ₋₁ of
    Hₖ = I - tau v vᴴ, v with a 1 in row k + 1 (LAPACK's sytrd). By n - 1 reflectors, each of a few calls; `hessenberg`
    gives T and Q themselves. Gradients are those of its calls, where no column is 0 already.
    """
    do, n = Pieces(stream, preference), square(a)
    view = known(a, "a", "tridiagonal")
    if not truth("lower", lower) or not n:
        raise InvalidProblemError(
            f"tridiagonal reads the lower triangle of matrices of a row at least, got {view.shape}, lower={lower}; "
            "of an upper triangle give the adjoint"
        )
    to, rank, kind, every = each_of(out, 4), len(view.shape), view.element, slice(None)

    def middle(x: Any, given: Any = None) -> Any:
        """The real diagonal."""
        found = diagonal(x, rank - 2, rank - 1, "a")
        return real(found, out=given, **do.options) if kind.is_complex else copy(found, out=given, **do.options)

    below = tril(a, -1, **do.options)
    matrix = add(below, adjoint_of(below, do.options), **do.options)
    matrix = add(matrix, cast(diag_embed(middle(a), **do.options), kind, **do.options), **do.options)
    packed, es, taus = [], [], []
    for k in range(n - 1):
        v, tau, beta = _reflector(do, block(matrix, slice(k + 1, None), slice(k, k + 1)))
        wide = pad(v, (0, 0, k + 1, 0), **do.options)
        right, turned = do.product(wide, tau), adjoint_of(wide, do.options)
        matrix = sub(matrix, do.product(do.product(matrix, right), turned), **do.options)
        back = do.product(adjoint_of(right, do.options), matrix)
        matrix = sub(matrix, do.product(wide, back), **do.options)
        parts = [cast(beta, kind, **do.options), block(v, slice(1, None), every)]
        packed.append(pad(concat(parts, axis=-2, **do.options), (0, 0, k + 1, 0), **do.options))
        es.append(column(beta))
        taus.append(column(tau))
    d = middle(matrix, to[1])
    with beside(d, stream):
        last = zeros((*view.shape[:-1], 1), kind, like=d)
        none = [zeros((*view.shape[:-2], 0), one, like=d) for one in (kind.part, kind)]
    made = concat([*packed, last], axis=-1, **do.options)
    made = add(made, cast(diag_embed(d, **do.options), kind, **do.options), out=to[0], **do.options)
    e, tau = (
        concat([one, *parts], axis=-1, out=given, **do.options)
        for one, parts, given in zip(none, (es, taus), to[2:], strict=True)
    )
    return made, d, e, tau
