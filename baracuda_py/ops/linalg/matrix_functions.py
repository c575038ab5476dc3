"""sqrtm and logm, functions of matrices by products and inverses; solve_sylvester and funm, by eigenvectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...calls.composed import composed
from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ...core.outputs import beside
from ...core.views import broadcast, shape_of, with_axis
from ..elementwise.binary_functions import add, div, mul, sub
from ..elementwise.cast import cast
from ..elementwise.complex_unary import real
from ..elementwise.ternary_functions import where
from ..layout.moves import copy
from .eig import EigPlan
from .eig_functions import eig
from .lu_factor import LuFactorPlan
from .matrix_exp import doubled
from .parts import block, known, looked_at, rehearsed, square
from .pieces import Pieces, across, down
from .determinants import slogdet
from .solve import inv_ex, solve_ex

_STEPS = 14
_SCALED = 6  # of the first steps, which are scaled by the determinant (Byers 1987)
_ROOTS = 14


def _matrices(a: Any, name: str) -> int:
    known(a, "a", name)
    return square(a)


def _unit(do: Pieces, a: Any) -> Any:
    """Identity matrices in a's shape."""
    view = read(a, "a")
    one = do.unit(view.shape[-1], do.reduced("l1_norm", a, -1))
    return broadcast(cast(one, view.element, **do.options), view.shape, "a")


def _root(do: Pieces, a: Any) -> Any:
    """The principal root by the product form of Denman and Beavers' iteration, scaled at first (Higham 2008, 6.29).

    M ← (I + (μ² M + M⁻¹ / μ²) / 2) / 2 and X ← X (μ I + M⁻¹ / μ) / 2, μ = |det M|^(-1 / 2n), which tends to 1.
    """
    n, one = shape_of(a, "a")[-1], _unit(do, a)
    m, x = a, a
    for step in range(1 if rehearsed() else _STEPS):
        inverse, _ = inv_ex(m, **do.options)
        if step < _SCALED:
            _, size = slogdet(m, **do.options)
            mu = do.of("where(abs(s) <= 1e30, exp(s * c), 1)", s=size, c=-1 / (2 * n))
            mu = with_axis(with_axis(mu, -1, "s"), -1, "s")
            over, under = do.scaled(m, do.of("m * m", m=mu)), do.scaled(inverse, do.of("1 / (m * m)", m=mu))
            ends = do.scaled(one, mu), do.scaled(inverse, do.of("1 / m", m=mu))
        else:
            over, under, ends = m, inverse, (one, inverse)
        x = do.times(do.product(x, add(*ends, **do.options)), 0.5)
        m = do.times(add(one, do.times(add(over, under, **do.options), 0.5), **do.options), 0.5)
    return x


def _along(function: Any, dy: Any, a: Any, do: Pieces) -> Any:
    """The derivative of a function at aᴴ along dy."""
    n = shape_of(a, "a")[-1]
    made = function(doubled(do, do.turned(a), dy), **do.options)
    return copy(block(made, slice(0, n), slice(n, None)), **do.options)


def _sqrtm_back(dy: Any, a: Any, *, stream: Any = None, preference: Any = None) -> Any:
    """The derivative of the root, of matrices twice as large."""
    return _along(sqrtm, dy, a, Pieces(stream, preference))


@composed(_sqrtm_back, "a")
@entry(LuFactorPlan)
def sqrtm(a: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The principal square root x of matrices, x x = a (scipy.linalg.sqrtm, jax.scipy.linalg.sqrtm).

    a: [..., n, n] of f32, f64, complex64, complex128, without eigenvalues on the real axis up to 0: of others, singular
    ones included, x has NaN, infinities, or no digits. A real a has a real root; give a complex one where its
    eigenvalues lie below 0, beside the axis. 14 steps of Denman and Beavers' iteration in product form, of an inverse
    and a product each: the error is about eps times the condition of a's root. The gradient is exact, of a matrix twice
    as large.
    """
    do, n = Pieces(stream, preference), _matrices(a, "sqrtm")
    if not n or 0 in shape_of(a, "a"):
        return copy(a, out=out, **do.options)
    x = _root(do, a)
    return x if out is None else copy(x, out=out, **do.options)


def _logm_back(dy: Any, a: Any, *, stream: Any = None, preference: Any = None) -> Any:
    """The derivative of the logarithm, of matrices twice as large."""
    return _along(logm, dy, a, Pieces(stream, preference))


@composed(_logm_back, "a")
@entry(LuFactorPlan)
def logm(a: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The principal logarithm x of matrices, exp(x) = a (scipy.linalg.logm).

    a: [..., n, n] as of `sqrtm`. Square roots are taken until |a - I| is at most 0.25, up to 14 of them (on a device
    all are taken, of which each matrix keeps what it needs: some 200 inverses); then the diagonal Padé approximant by
    Gauss and Legendre's points serves (Higham 2008, 11.4). The error is about eps times the condition of a's roots. The
    gradient is exact, of a matrix twice as large.
    """
    do, n = Pieces(stream, preference), _matrices(a, "logm")
    if not n or 0 in shape_of(a, "a"):
        return copy(a, out=out, **do.options)
    one, x = _unit(do, a), a
    taken = None
    for _ in range(1 if rehearsed() else _ROOTS):
        far = do.of(
            "x > 0.25", x=do.reduced("amax", do.reduced("l1_norm", sub(x, one, **do.options), -2), keepdims=True)
        )
        if looked_at(far) and not far.any():
            break
        more = do.of("where(f, 1.0, 0.0)", f=far)
        taken = more if taken is None else add(taken, more, **do.options)
        x = where(broadcast(with_axis(far, -1, "f"), shape_of(x, "x"), "f"), _root(do, x), x, **do.options)
    near = sub(x, one, **do.options)
    points, weights = np.polynomial.legendre.leggauss(8)
    made = None
    for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
        matrix = add(one, do.times(near, float(point)), **do.options)
        made = do.sum(made, do.times(solve_ex(matrix, near, **do.options)[0], float(weight)))
    if taken is not None:
        back = do.of("exp2(t)", t=taken)
        made = do.scaled(made, cast(with_axis(back, -1, "t"), read(a, "a").element.part, **do.options))
    return made if out is None else copy(made, out=out, **do.options)


@entry(EigPlan)
def solve_sylvester(
    a: Array, b: Array, q: Array, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """x with a x + x b = q (scipy.linalg.solve_sylvester, jax.scipy.linalg), for matrices that `eig` makes diagonal.

    a: [..., m, m], b: [..., n, n], q: [..., m, n]. In the eigenvectors' terms each number is divided by the sum of two
    eigenvalues; then the error that is left is taken off in the same way, twice. Vectors that are nearly dependent
    cost digits; a sum of 0 gives infinities or NaN.
    """
    do = Pieces(stream, preference)
    m, n = _matrices(a, "solve_sylvester"), square(b, "b")
    if shape_of(q, "q")[-2:] != (m, n):
        raise InvalidProblemError(f"q must be [..., {m}, {n}], got shape {shape_of(q, 'q')}")
    (w, u), (z, v) = eig(a, **do.options), eig(b, **do.options)
    sums = add(down(w), across(z), **do.options)
    plain = not read(a, "a").element.is_complex and not read(b, "b").element.is_complex

    def solved(right: Any) -> Any:
        given = cast(right, read(u, "u").element, **do.options) if plain else right
        turned = do.product(solve_ex(u, given, **do.options)[0], v)
        found = solve_ex(v, do.product(u, div(turned, sums, **do.options)), left=False, **do.options)[0]
        return real(found, **do.options) if plain else found

    x = solved(q)
    for _ in range(2):
        left = sub(q, add(do.product(a, x), do.product(x, b), **do.options), **do.options)
        x = add(x, solved(left), **do.options)
    return x if out is None else copy(x, out=out, **do.options)


@entry(EigPlan)
def funm(
    a: Array, func: Callable[[Any], Any], *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """f(a) of matrices that `eig` makes diagonal: v diag(func(w)) v⁻¹ (scipy.linalg.funm, jax.scipy.linalg.funm).

    a: [..., n, n] of f32, f64, complex64, complex128; func: takes the eigenvalues [..., n], complex, and returns as
    many, such as `bc.exp`. The result is complex; of a real matrix and a function that is real on conjugates its
    imaginary part is of the size of roundings. Vectors that are nearly dependent cost digits, as many as the condition
    of v has: `matrix_exp`, `sqrtm` and `logm` lose none. Gradients are those of `eig` and of func.
    """
    do = Pieces(stream, preference)
    _matrices(a, "funm")
    if not callable(func):
        raise InvalidProblemError(f"func must be a function of eigenvalues, such as bc.exp, got {shown(func)}")
    given = None if out is None else read(out, "out")  # before func is called
    if given is not None and (given.shape != shape_of(a, "a") or not given.element.is_complex):
        raise InvalidProblemError(
            f"out must be complex of shape {shape_of(a, 'a')}, got {given.element} of shape {given.shape}"
        )
    w, v = eig(a, **do.options)
    with beside(w, stream):
        values = func(w)
    if shape_of(values, "func's result") != shape_of(w, "w"):
        raise InvalidProblemError(
            f"func must return an array of shape {shape_of(w, 'w')}, got {shape_of(values, 'func result')}"
        )
    values = cast(values, read(v, "v").element, **do.options)
    x = solve_ex(v, mul(v, across(values), **do.options), left=False, **do.options)[0]
    return x if out is None else copy(x, out=out, **do.options)
