"""qdwh: the polar decomposition by the dynamically weighted Halley iteration."""

from __future__ import annotations

import math
from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.checked import truth, whole
from ...core.element import ElementKind
from ...core.errors import InvalidProblemError
from ...core.outputs import beside, each_of
from ...core.views import broadcast, shape_of, with_axis
from ..elementwise.binary_functions import add, sub
from ..elementwise.cast import cast
from ..elementwise.unary import abs as magnitude  # type: ignore[attr-defined]  # made from a table
from ..layout.concat import concat
from ..layout.creation import full
from ..layout.moves import copy
from .cholesky_functions import cholesky
from .parts import adjoint_of, block, known
from .pieces import Pieces
from .qr import QrPlan
from .qr_functions import qr
from .triangular_functions import solve_triangular

_FAR = 100.0  # the weight up to which a step may be by Cholesky's factor


def _weights(least: float, eps: float, most: int) -> list[tuple[float, float, float]]:
    """(a, b, c) of each step, by the least singular value that it may meet (Nakatsukasa, Bai and Gygi 2010)."""
    made: list[tuple[float, float, float]] = []
    while abs(1 - least) > 10 * eps and len(made) < most:
        square = least * least
        d = (4 * (1 - square) / (square * square)) ** (1 / 3)
        root = math.sqrt(1 + d)
        a = root + 0.5 * math.sqrt(8 - 4 * d + 8 * (2 - square) / (square * root))
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        made.append((a, b, c))
        least = min(least * (a + b * square) / (1 + c * square), 1.0)
    return made


def _step(do: Pieces, x: Any, one: Any, a: float, b: float, c: float) -> Any:
    """X (a I + b Xᴴ X) (I + c Xᴴ X)⁻¹."""
    m = shape_of(x, "x")[-2]
    if c > _FAR:  # the inverse would lose digits: by the QR of sqrt(c) X above the identity
        q, _ = qr(concat([do.times(x, math.sqrt(c)), one], axis=-2, **do.options), **do.options)
        upper, lower = (block(q, rows, slice(None)) for rows in (slice(0, m), slice(m, None)))
        turned, share = do.product(upper, adjoint_of(lower, do.options)), (a - b / c) / math.sqrt(c)
    else:
        z = add(do.times(do.product(adjoint_of(x, do.options), x), c), one, **do.options)
        low = cholesky(z, **do.options)
        facts = {"upper": False, "left": False, **do.options}
        turned, share = solve_triangular(low, solve_triangular(low, x, trans="c", **facts), **facts), a - b / c
    return add(do.times(x, b / c), do.times(turned, share), **do.options)


@entry(QrPlan)
def qdwh(
    x: Array, *, is_hermitian: bool = False, max_iterations: int | None = None, eps: float | None = None,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(u, h, steps, converged): x = u h, u of orthonormal columns and h Hermitian, not negative (jax.lax.linalg.qdwh).

    x: [..., m, n], m >= n, of f32, f64, complex64, complex128, of full rank. u: [..., m, n], h: [..., n, n]; steps:
    int32 (), how many there were; converged: bool [...], whether the last one changed u by less than eps^(1/3).
    The weights are those of singular values down to eps (of the element by default) of the norm, so that the host
    knows the number of steps and nothing waits: 4 of float32, 6 of float64. Smaller singular values are as good as 0,
    and `converged` tells. is_hermitian changes nothing. Gradients are those of its calls.
    """
    do, view = Pieces(stream, preference), known(x, "x", "qdwh")
    truth("is_hermitian", is_hermitian)
    if len(view.shape) < 2 or view.shape[-2] < view.shape[-1] or 0 in view.shape[-2:]:
        raise InvalidProblemError(f"x must be [..., m, n] with m >= n >= 1, got shape {view.shape}; give the adjoint")
    to, n, kind = each_of(out, 4), view.shape[-1], view.element
    least = float(kind.limits.eps) if eps is None else float(eps)
    if not 0 < least < 1:
        raise InvalidProblemError(f"eps must be in (0, 1), got {eps}")
    steps = _weights(
        least, float(kind.limits.eps), 10 if max_iterations is None else whole("max_iterations", max_iterations, 1)
    )
    size = magnitude(x, **do.options)
    most = [
        do.reduced("amax", do.reduced("sum", size, axis), -1, keepdims=True) for axis in (-2, -1)
    ]  # of columns and of rows, whose mean is above the largest singular value
    norm = with_axis(do.of("where(a * b > 0, sqrt(a) * sqrt(b), 1)", a=most[0], b=most[1]), -1, "x")
    u, before = do.scaled(x, do.of("1 / s", s=norm)), None
    unit = cast(do.unit(n, norm), kind, **do.options)
    one = broadcast(unit, (*view.shape[:-2], n, n), "x")
    for weights in steps:
        before, u = u, _step(do, u, one, *weights)
    gram = do.product(adjoint_of(u, do.options), u)  # Newton and Schulz's step brings the columns to one length
    u = sub(do.times(u, 1.5), do.times(do.product(u, gram), 0.5), **do.options)
    off = do.reduced("l2_norm", magnitude(sub(u, before, **do.options), **do.options), (-2, -1))
    own = do.reduced("l2_norm", magnitude(u, **do.options), (-2, -1))
    converged = do.of("d <= e * s", d=off, s=own, e=float(kind.limits.eps) ** (1 / 3), out=to[3])
    h = do.product(adjoint_of(u, do.options), x)
    h = do.times(add(h, adjoint_of(h, do.options), **do.options), 0.5)
    with beside(u, stream):
        count = full((), len(steps), ElementKind.I32, like=u)
    u, h, count = (
        one if place is None else copy(one, out=place, **do.options)
        for one, place in zip((u, h, count), to, strict=False)
    )
    return u, h, count, converged
