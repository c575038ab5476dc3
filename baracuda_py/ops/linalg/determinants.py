"""det, slogdet and logdet: determinants by LU factors, with their gradients."""

from __future__ import annotations

from typing import Any

from ...calls.composed import composed
from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.outputs import each_of
from ...core.views import broadcast, diagonal, shape_of, with_axis
from ..elementwise.binary_functions import add, eq, mul
from ..elementwise.cast import cast
from ..elementwise.ternary_functions import masked_fill, where
from ..elementwise.unary import abs, log, neg, sgn  # type: ignore[attr-defined]  # made from a table
from ..layout.written import diag_embed
from ..reduce.reduce import amax, prod, sum  # type: ignore[attr-defined]  # made from a table
from .lu_factor import LuFactorPlan, lu_factors
from .lu_functions import counted, factored, lu_solve
from .parts import Options, block, conjugate, square


def _numbers(lu: Any, pivots: Any, options: Options) -> Any:
    """U's diagonal, each number negated whose row was exchanged: their product is the determinant."""
    found, n = diagonal(lu, len(shape_of(lu, "lu")) - 2, len(shape_of(lu, "lu")) - 1, "lu"), shape_of(lu, "lu")[-1]
    own = block(counted(pivots, n + 1, options), slice(1, None))
    return where(eq(pivots, own, **options), found, neg(found, **options), **options)


def _det_back(dy: Any, a: Any, preference: Any) -> Any:
    """dy times the conjugate of the adjugate's transpose, det(A)* A⁻ᴴ.

    A zero of U's diagonal counts as one rounding of the largest number there (or, of none, of 1), in the determinant as
    in the inverse: the adjugate of a singular matrix, which is finite, comes of it to within roundings.
    """
    options = {"preference": preference}
    n, element = square(a), read(a, "a").element
    lu, pivots, _ = factored(a, None, options)
    if not n:
        return lu
    at = len(shape_of(lu, "lu")) - 2
    found = diagonal(lu, at, at + 1, "lu")
    size, rounding = abs(found, **options), float(element.limits.eps) / 2
    zero = eq(found, mul(found, 0, **options), **options)
    small = mul(amax(size, axis=-1, keepdims=True, **options), rounding, **options)
    small = masked_fill(small, eq(small, mul(small, 0, **options), **options), rounding, **options)
    small = cast(small, element, **options) if element.is_complex else small
    added = where(zero, broadcast(small, shape_of(found, "lu"), "lu"), mul(found, 0, **options), **options)
    whole = add(lu, diag_embed(added, **options), **options)
    value = prod(_numbers(whole, pivots, options), axis=-1, **options)
    slope = mul(dy, conjugate(value, options), **options)
    right = diag_embed(broadcast(with_axis(slope, -1, "dy"), shape_of(found, "lu"), "dy"), **options)
    return lu_solve(whole, pivots, right, adjoint=True, **options)


@composed(_det_back, "a")
@entry(LuFactorPlan)
def det(a: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The determinants of matrices [..., n, n], by LU factors (torch.linalg.det, numpy.linalg.det); 1 of n = 0.

    Of large matrices they leave the range: see `slogdet`. The gradient is that of the adjugate, of singular matrices,
    too.
    """
    square(a)
    options = {"stream": stream, "preference": preference}
    lu, pivots, _ = lu_factors(a, None, options)
    return prod(_numbers(lu, pivots, options), axis=-1, out=out, **options)


@entry(LuFactorPlan)
def slogdet(a: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """(sign, logabsdet): det(A) = sign · exp(logabsdet), which stays in range (torch.linalg.slogdet, numpy's).

    a: [..., n, n]; sign is of a's element, of complex numbers one of size 1; logabsdet is real. Of singular matrices
    they are 0 and -inf, without a gradient that is finite.
    """
    square(a)
    options = {"stream": stream, "preference": preference}
    to = each_of(out, 2)
    lu, pivots, _ = factored(a, None, options)
    numbers = _numbers(lu, pivots, options)
    sign = prod(sgn(numbers, **options), axis=-1, out=to[0], **options)
    return sign, sum(log(abs(numbers, **options), **options), axis=-1, out=to[1], **options)


@entry(LuFactorPlan)
def logdet(a: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """log det(A) of matrices [..., n, n] (torch.logdet): NaN of a negative determinant, -inf of 0.

    Of complex matrices it is the principal value's logarithm of the sign, and the real one of the size.
    """
    options = {"stream": stream, "preference": preference}
    sign, size = slogdet(a, **options)
    element = read(a, "a").element
    return add(cast(size, element, **options) if element.is_complex else size, log(sign, **options), out=out, **options)
