"""matrix_exp and expm_frechet: exponentials of matrices by scaling and squaring, with products alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...calls.composed import composed
from ...calls.entries import entry
from ...core import Array
from ...core.checked import truth, whole
from ...core.errors import InvalidProblemError
from ...core.views import broadcast, shape_of, with_axis
from ..elementwise.binary_functions import add
from ..elementwise.cast import cast
from ..elementwise.ternary_functions import where
from ..gemm.gemm import GemmPlan
from ..layout.concat import concat
from ..layout.moves import copy
from .parts import block, known, looked_at, rehearsed, square
from .pieces import Pieces

# Bader, Blanes and Casas (2019): Taylor's polynomial of degree 18 by five products. Rows of a combination of 1, A, A²,
# A³, A⁶ each.
_B1 = (0.0, -1.00365581030144618291e-01, -8.02924648241156932449e-03, -8.92138498045729985177e-04, 0.0)
_B2 = (
    0.0,
    3.97849749499645077844e-01,
    1.36783778460411720168e00,
    4.98289622525382669416e-01,
    -6.37898194594723280150e-04,
)
_B3 = (
    -1.09676396052962061844e01, 1.68015813878906206114e00, 5.71779846478865511061e-02, -6.98210122488052056106e-03,
    3.34975017086070470649e-05,
)  # fmt: skip
_B4 = (
    -9.04316832390810593223e-02, -6.76404519071381882256e-02, 6.75961301770459654925e-02, 2.95552570429315521194e-02,
    -1.39180257516060693404e-05,
)  # fmt: skip
_B5 = (0.0, 0.0, -9.23364619367118555360e-02, -1.69364939002081722752e-02, -1.40086798182036094347e-05)
_NEAR = {4: 3.01, 8: 1.09}  # by the bytes of a real number: norms of which the polynomial errs by less than a rounding
SQUARINGS = 32


def _combined(do: Pieces, numbers: tuple[float, ...], powers: list[Any]) -> Any:
    """The sum of powers times numbers; those of 0 are left out."""
    used = [(c, x) for c, x in zip(numbers, powers, strict=True) if c]
    made = None
    for c, x in used:
        term = do.times(x, c)
        made = term if made is None else add(made, term, **do.options)
    return made


def _polynomial(do: Pieces, a: Any, one: Any) -> Any:
    """Taylor's polynomial of degree 18."""
    a2 = do.product(a, a)
    a3 = do.product(a2, a)
    powers = [one, a, a2, a3, do.product(a3, a3)]
    b1, b2, b3, b4, b5 = (_combined(do, numbers, powers) for numbers in (_B1, _B2, _B3, _B4, _B5))
    a9 = add(do.product(b1, b5), b4, **do.options)
    return add(b2, do.product(add(b3, a9, **do.options), a9), **do.options)


def _exponential(a: Any, squarings: int, out: Any, do: Pieces) -> Any:
    """exp of matrices scaled to near 0, squared as often as they were halved."""
    n, view = square(a), known(a, "a", "matrix_exp")
    if not n or 0 in view.shape:
        return copy(a, out=out, **do.options)
    part = view.element.part
    near = _NEAR[part.itemsize]
    size = do.reduced("amax", do.reduced("l1_norm", a, -2), keepdims=True)
    halved = do.of(f"clamp_min(ceil(log2(x * {1 / near!r})), 0)", x=size)
    share = do.of(f"where(x <= {near * 2.0**squarings!r}, exp2(-h), nan)", x=size, h=halved)
    if rehearsed():
        squarings = min(squarings, 1)
    elif looked_at(halved):  # the host knows how often; elsewhere nothing is read back
        finite = halved[np.isfinite(halved)]
        squarings = min(squarings, int(finite.max(initial=0)))
    share, halved = with_axis(share, -1, "s"), with_axis(halved, -1, "s")
    one = broadcast(cast(do.unit(n, share), view.element, **do.options), view.shape, "a")
    y = _polynomial(do, do.scaled(a, share), one)
    for i in range(squarings):
        more = broadcast(do.of("h > i", h=halved, i=float(i)), view.shape, "h")
        y = where(more, do.product(y, y), y, out=out if i == squarings - 1 else None, **do.options)
    return y if out is None or squarings else copy(y, out=out, **do.options)


def doubled(do: Pieces, a: Any, e: Any) -> Any:
    """[[a, e], [0, a]], whose function f has f's derivative along e above the diagonal."""
    above = concat([a, e], axis=-1, **do.options)
    below = concat([do.nothing(a), a], axis=-1, **do.options)
    return concat([above, below], axis=-2, **do.options)


def _back(dy: Any, a: Any, squarings: int = SQUARINGS, *, stream: Any = None, preference: Any = None) -> Any:
    """The derivative of exp at aᴴ along dy: what stands above the diagonal of exp [[aᴴ, dy], [0, aᴴ]]."""
    do, n = Pieces(stream, preference), square(a)
    y = matrix_exp(doubled(do, do.turned(a), dy), squarings, **do.options)
    return copy(block(y, slice(0, n), slice(n, None)), **do.options)


@composed(_back, "a")
@entry(GemmPlan)
def matrix_exp(
    a: Array, squarings: int = SQUARINGS, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """exp(a) = I + a + a² / 2 + … of square matrices (torch.linalg.matrix_exp, scipy.linalg.expm).

    a: [..., n, n] of f32, f64, complex64, complex128. Each matrix is halved until its 1-norm is at most 1.09 (of
    float32 3.01), where Taylor's polynomial of degree 18 by five products serves (Bader, Blanes and Casas 2019), then
    squared as often. How often is not read back from a device: there `squarings` products are made, of which each
    matrix keeps what it needs; fewer take less time where norms are known to be small. A matrix whose 1-norm is beyond
    1.09 · 2^squarings, or that has NaN, gives NaN. The gradient is exact, of a matrix twice as large.
    """
    most = whole("squarings", squarings, 0, 1000)
    return _exponential(a, most, out, Pieces(stream, preference))


@entry(GemmPlan)
def expm(a: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """`matrix_exp` by SciPy's name (scipy.linalg.expm, jax.scipy.linalg.expm)."""
    return matrix_exp(a, out=out, stream=stream, preference=preference)


@entry(GemmPlan)
def expm_frechet(
    a: Array, e: Array, *, compute_expm: bool = True, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """(exp(a), L): L is the derivative of exp at a along e (scipy.linalg.expm_frechet, jax.scipy.linalg).

    a, e: [..., n, n]; L = lim (exp(a + t e) - exp(a)) / t. Without compute_expm L alone. See `matrix_exp`.
    """
    do, n = Pieces(stream, preference), square(a)
    if shape_of(e, "e") != shape_of(a, "a"):
        raise InvalidProblemError(f"e must have a's shape {shape_of(a, 'a')}, got {shape_of(e, 'e')}")
    y = matrix_exp(doubled(do, a, e), **do.options)
    to = out if truth("compute_expm", compute_expm) and out is not None else (None, out)
    along = copy(block(y, slice(0, n), slice(n, None)), out=to[1], **do.options)
    return (copy(block(y, slice(0, n), slice(0, n)), out=to[0], **do.options), along) if compute_expm else along
