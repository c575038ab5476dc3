"""The logarithm of the gamma function and its derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..unary_formulas import by_parts, pi
from .row import Coefficient, Function, beyond_zeros, slope_in_double

# log Γ(2 + u/2) / (u/2), |u| <= 1, as a polynomial in u within 2e-23.
_LGAMMA = (
    "0.4227843350984671393935", "0.161233516712056609118101", "-0.0168380752632995237867915",
    "0.00257260105347306848571248", "-0.000461596939292123913432924", "0.0000903284478356725628061077",
    "-0.0000186367798703665401630786", "0.00000398179316205576182357209", "-0.000000871698275179609498561332",
    "0.000000194252954644826960101745", "-4.38732782327547751101599e-8", "1.00132875285856712333149e-8",
    "-2.30456196431101722556639e-9", "5.34041211124903214737116e-10", "-1.24465271393599431944789e-10",
    "2.91489380700008905065867e-11", "-6.85274380448299972161263e-12", "1.61744561864203108231285e-12",
    "-3.85397720081922683343757e-13", "9.15252355175789650569588e-14", "-2.01943427293952499981764e-14",
    "4.81592759644706606677083e-15", "-1.75923890193938152597177e-15", "4.21969238597007091589596e-16",
)  # fmt: skip
# ψ(x) / (x - x0), 1 <= x <= 2 and ψ(x0) = 0, as a polynomial in 2x - 3 within 3e-21.
_DIGAMMA = (
    "0.951055876031832879711054", "-0.211813710640730248166962", "0.0601356210601967285170459",
    "-0.018550615381739658718064", "0.00593679527830716363567718", "-0.0019350666647412760068947",
    "0.000636888030286475491282003", "-0.00021074841280927333670431", "0.0000699501892077337070527427",
    "-0.000023258233109451102505966", "0.00000774122912850585713386033", "-0.00000257813171610052800740284",
    "0.000000858925186309865178431049", "-0.000000286219310465383423124895", "9.53885212905257963495483e-8",
    "-3.17903704213841285244733e-8", "1.05960768269178574593198e-8", "-3.5360150574395901796428e-9",
    "1.1786432195810120132009e-9", "-3.87559467334893987349136e-10", "1.29185351960599249919214e-10",
    "-4.77193120763568659167951e-11", "1.59063917638961666238566e-11", "-2.65106699084066383493004e-12",
    "8.83687251169843419160447e-13", "-1.17824689452213392201092e-12", "3.92748869199459475592445e-13",
)  # fmt: skip
_ROOT, _ROOT_LOW = 1.4616321449683622, "9.549995429965697715184e-17"  # x0 as the sum of two numbers
# B(2k), as quotients.
_BERNOULLI = (
    (1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510), (43867, 798), (-174611, 330),
    (854513, 138), (-236364091, 2730), (8553103, 6),
)  # fmt: skip
_FAR = 24  # from here on asymptotic series


def _polynomial(u: Any, terms: tuple[str, ...]) -> Any:
    total = np.zeros_like(u)
    for term in reversed(terms):
        total = total * u + u.dtype.type(term)
    return total


def bernoulli(x: Any, k: int) -> Any:
    """B(2k) in the dtype of x."""
    above, below = _BERNOULLI[k - 1]
    return x.dtype.type(above) / x.dtype.type(below)


def sinpi(x: Any) -> Any:
    """sin(πx), 0 at integers."""
    r = np.asarray(np.fmod(x, 2))
    r = np.where(np.abs(r) > 1, r - np.copysign(2, r), r)
    return np.sin(pi(x) * np.where(np.abs(r) > 0.5, np.copysign(1 - np.abs(r), r), r))


def cospi(x: Any) -> Any:
    """cos(πx), 0 at halves."""
    r = np.abs(np.fmod(x, 2))
    r = np.where(r > 1, 2 - r, r)
    near = np.where(r > 0.5, 1 - r, r)
    y = np.where(near <= 0.25, np.cos(pi(x) * near), np.sin(pi(x) * (x.dtype.type(0.5) - near)))
    return np.where(r > 0.5, -y, y)


def _lgamma(x: Any) -> Any:
    """log |Γ(x)|; of negative x by reflection."""
    below = np.floor(x)
    z = np.where(x < 0, 1 - x, x)
    y = _log_gamma(np.where(np.isfinite(z), z, 1))
    reflected = np.log(pi(x)) - np.log(np.abs(sinpi(np.where(np.isfinite(x), x, 0.5)))) - y
    found = np.where(np.abs(x) < 1e-20, -np.log(np.abs(x)), np.where(x < 0, reflected, y))
    return np.where(np.isinf(x) | ((x <= 0) & (below == x)), np.inf, np.where(np.isnan(x), x, found))


def _log_gamma(x: Any) -> Any:
    """log Γ(x), x > 0: within 1/2 of 2 by a polynomial, up to 24 by the recurrence from there, then by a series."""
    return by_parts(x < _FAR, _log_gamma_near, _log_gamma_far, x)


def _log_gamma_near(w: Any) -> Any:
    steps = np.maximum(np.rint(w) - 2, -2)  # the number is carried to within 1/2 of 2
    product, rest = np.ones_like(w), np.zeros_like(w)
    for k in range(1, _FAR):
        product = np.where(k <= steps, product * (w - k), product)
    rest = rest - np.where(steps <= -1, np.where(steps <= -2, np.log(w) + np.log1p(w), np.log1p(w - 1)), 0)
    z = w - (steps + 2)
    return z * _polynomial(2 * z, _LGAMMA) + np.where(steps > 0, np.log(product), rest)


def _log_gamma_far(x: Any) -> Any:
    """Stirling's series."""
    series = sum(bernoulli(x, k) / (2 * k * (2 * k - 1)) / x ** (2 * k - 1) for k in range(1, 13))
    return (x - x.dtype.type(0.5)) * (np.log(x) - 1) + (np.log(2 * pi(x)) - 1) / 2 + series


def lgamma_above_1(a: Any) -> Any:
    """log Γ(1 + a) for |a| <= 1/2, with relative accuracy near 0."""
    return a * _polynomial(2 * a, _LGAMMA) - np.log1p(a)


def _digamma(x: Any) -> Any:
    """ψ(x); ±∞ at ∓0 and NaN at other poles, as in PyTorch; of negative x by reflection."""
    z = np.where(x < 0, 1 - x, x)
    y = _psi(np.where(np.isfinite(z) & (z > 0), z, 1))
    t = np.where(np.isfinite(x), x, 0.5)
    reflected = y - pi(x) * cospi(t) / sinpi(t)
    found = np.where(x < 0, np.where(np.floor(x) == x, np.nan, reflected), y)
    found = np.where(x == 0, np.copysign(np.inf, -x), found)
    return np.where(x == np.inf, x, np.where(np.isnan(x) | (x == -np.inf), np.nan, found))


def _psi(x: Any) -> Any:
    """ψ(x), x > 0: between 1 and 2 by a polynomial, up to 24 by the recurrence from there, then its series."""
    return by_parts(x < _FAR, _psi_near, _psi_far, x)


def _psi_near(w: Any) -> Any:
    rest = np.where(w < 1, -1 / w, 0)
    w = np.where(w < 1, w + 1, w)
    for _ in range(_FAR):
        above = w > 2
        w = np.where(above, w - 1, w)
        rest = rest + np.where(above, 1 / w, 0)
    return rest + ((w - _ROOT) - w.dtype.type(_ROOT_LOW)) * _polynomial(2 * w - 3, _DIGAMMA)


def _psi_far(x: Any) -> Any:
    series = sum(bernoulli(x, k) / (2 * k) / x ** (2 * k) for k in range(1, 13))
    return np.log(x) - 1 / (2 * x) - series


def _power(x: Any, n: int) -> Any:
    """n! / xⁿ⁺¹, a product in which nothing leaves the range unless the whole does."""
    y = 1 / x
    for k in range(1, n + 1):
        y = y * (k / x)
    return y


def _zeta(x: Any, n: int) -> Any:
    """n! ζ(n + 1, x), x > 0, by Euler's and Maclaurin's formula from n + 16 on."""
    total, far = np.zeros_like(x), np.array(x)
    for _ in range(n + 16):
        small = far < n + 16
        total = total + np.where(small, _power(far, n), 0)
        far = np.where(small, far + 1, far)
    term = x.dtype.type(n) * (n + 1) / (2 * far * far)
    tail = 1 + n / (2 * far) + bernoulli(x, 1) * term
    for k in range(2, 13):
        term = term * (n + 2 * k - 2) / (2 * k - 1) * (n + 2 * k - 1) / (2 * k) / far / far
        tail = tail + bernoulli(x, k) * term
    return total + _power(far, n - 1) * tail


def polygamma(x: Any, order: Any) -> Any:
    """The derivative of that order of ψ(x): (-1)ⁿ⁺¹ n! ζ(n + 1, x); at a pole ±∞, as in PyTorch."""
    n = int(order)
    if n == 0:
        return _digamma(x)
    sign = 1 if n % 2 else -1
    whole, inside = np.floor(x), np.isfinite(x)
    pole = inside & (x <= 0) & (whole == x)
    positive = np.where(inside & (x > 0), x, 1)
    t = np.where(inside & (x < 0) & ~pole, x, -0.5)
    above, below = _zeta(t - np.floor(t), n), _zeta(np.ceil(t) - t, n)  # the poles on both sides of t, to infinity
    both = (above + sign * below) - sign * _zeta(1 - t, n)  # the two may be equal, and beyond 0 there are none
    y = sign * np.where(x < 0, both, _zeta(positive, n))
    y = np.where(pole, sign * np.inf, np.where(x == np.inf, 0 * sign, y))
    return np.where(np.isnan(x) | (x == -np.inf), np.nan, y)


def _times_polygamma(dy: Any, x: Any, order: Any) -> Any:
    """dy times `polygamma`. Near 0 that is of -1 / x, and far out of log(x): there dy is multiplied factor by factor,
    so that nothing leaves the range unless the result does."""
    n = int(order)
    near = (np.abs(x) < 1e-20) & (x != 0)
    apart = near | ((x > 1e30) & np.isfinite(x) & (n > 0))
    t = np.where(apart, x, 1)
    y = (1 if n % 2 else -1) * dy / t
    for k in range(1, n + 1):
        y = np.where((k == n) & ~near, y, y * (k / t))
    y = np.where(dy == 0, (1 if n % 2 else -1) * dy * np.copysign(1, t) ** (n + 1), y)  # k / t may be infinite
    return np.where(apart, y, dy * polygamma(np.where(apart, 1, x), n))


_N = Coefficient("n", None, low=0, high=60, whole=True, drawn=(0, 4))

LGAMMA = Function(
    "Lgamma", _lgamma, lambda dy, x: _times_polygamma(dy, x, 0), bound=beyond_zeros, slope=slope_in_double(None),
    kernel="unary_special", torch="lgamma", aliases=("gammaln", "loggamma"), points=(1.0, 2.0, 2.457, 8.0),
)  # fmt: skip
DIGAMMA = Function(
    "Digamma", _digamma, lambda dy, x: _times_polygamma(dy, x, 1), bound=beyond_zeros, slope=slope_in_double(16),
    kernel="unary_special", torch="digamma", aliases=("psi",), points=(1.4616321449683623, 0.504, 10.0),
)  # fmt: skip
POLYGAMMA = Function(
    "Polygamma", polygamma, lambda dy, x, n: _times_polygamma(dy, x, n + 1), bound=beyond_zeros,
    slope=slope_in_double(None), coefficients=(_N,), kernel="unary_special",
    torch=lambda torch, x, n: torch.polygamma(int(n), x),
)  # fmt: skip
