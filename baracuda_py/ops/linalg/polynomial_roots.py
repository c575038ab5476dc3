"""roots and polyfit: polynomials by eigenvalues and least squares."""

from __future__ import annotations

from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.checked import shown, whole
from ...core.outputs import beside
from ...core.errors import InvalidProblemError
from ...core.views import shape_of, with_axis
from ..elementwise.binary_functions import div, mul
from ..layout.creation import vander
from ..layout.moves import copy
from ..layout.structured import companion
from .eig import EigPlan
from .eig_functions import eigvals
from .parts import adjoint_of, known
from .pieces import Pieces, across, down
from .pseudo_inverse import lstsq
from .solve import inv
from .svd import SvdPlan


@entry(EigPlan)
def roots(p: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The n - 1 roots of a polynomial of n coefficients, the highest power first (numpy.roots, jax.numpy.roots).

    p: [n] of f32, f64, complex64, complex128, n >= 2; the roots [n - 1] are complex, in the order of `eigvals` of its
    `companion`, whose gradient they have. The values are on the device, so that no zeros are trimmed, as jax.numpy with
    strip_zeros=False: a leading zero gives NaN and infinities, trailing ones roots of 0.
    """
    options = {"stream": stream, "preference": preference}
    known(p, "p", "roots")
    if len(shape_of(p, "p")) != 1 or shape_of(p, "p")[0] < 2:
        raise InvalidProblemError(f"p must be a vector of two coefficients at least, got shape {shape_of(p, 'p')}")
    return eigvals(companion(p, **options), out=out, **options)


@entry(SvdPlan)
def polyfit(
    x: Array, y: Array, deg: int, rcond: float | None = None, full: bool = False, w: Array | None = None,
    cov: bool | str = False, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The deg + 1 coefficients, the highest power first, of the least sum of w² (p(x) - y)² (numpy.polyfit).

    x: [m] of f32, f64; y: [m], or [m, r] of r fits, whose coefficients are columns; w: [m]. By `lstsq` of `vander`,
    whose columns are brought to one length; singular values up to rcond σ₁ (by default m eps) count as 0. full:
    (p, residuals, rank, s, rcond), residuals as of `lstsq`. cov: (p, the covariance [deg + 1, deg + 1] of p, of several
    fits along a last axis), scaled by the residuals over m - deg - 1, "unscaled" by 1. Gradients of x, y and w are
    those of matrices of full rank.
    """
    do, count = Pieces(stream, preference), whole("deg", deg, 0) + 1
    shape, right = shape_of(x, "x"), shape_of(y, "y")
    view = known(x, "x", "polyfit")
    if len(shape) != 1 or not shape[0] or len(right) not in (1, 2) or right[0] != shape[0]:
        raise InvalidProblemError(f"x must be [m], m >= 1, and y [m] or [m, r], got shapes {shape} and {right}")
    if cov not in (False, True, "unscaled"):
        raise InvalidProblemError(f"cov must be False, True or 'unscaled', got {shown(cov)}")
    if cov is True and shape[0] <= count:
        raise InvalidProblemError(f"cov=True takes more points than the {count} coefficients, got {shape[0]}")
    m = shape[0]
    limit = m * view.element.limits.eps if rcond is None else rcond
    with beside(x, stream):
        powers, columns = vander(x, count), len(right) == 2
    if w is not None:
        if shape_of(w, "w") != shape:
            raise InvalidProblemError(f"w must be {shape}, a weight for each point, got shape {shape_of(w, 'w')}")
        powers = mul(powers, with_axis(w, -1, "w"), **do.options)
        y = mul(y, with_axis(w, -1, "w") if columns else w, **do.options)
    sizes = do.of("where(s > 0, s, 1)", s=do.reduced("l2_norm", powers, -2))
    powers = div(powers, across(sizes), **do.options)
    found, left, rank, s = lstsq(powers, y, rtol=limit, **do.options)
    p = div(found, down(sizes) if columns else sizes, out=None if full or cov else out, **do.options)
    if full:
        made: tuple[Any, ...] = (p, left, rank, s)
        return (
            *(made if out is None else (copy(a, out=b, **do.options) for a, b in zip(made, out, strict=True))),
            limit,
        )
    if cov is False:
        return p
    spread = inv(do.product(adjoint_of(powers, do.options), powers), **do.options)
    spread = div(div(spread, across(sizes), **do.options), down(sizes), **do.options)
    if cov is True:
        share = do.times(left, 1 / (m - count))
        spread = mul(with_axis(spread, -1, "c") if columns else spread, share, **do.options)
    elif columns:
        spread = with_axis(spread, -1, "c")
    if out is None:
        return p, spread
    return tuple(copy(a, out=b, **do.options) for a, b in zip((p, spread), out, strict=True))
