"""The gamma function, its sign, the factorial, Bernoulli numbers, the logarithm of the multivariate gamma function."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..unary_formulas import pi
from . import gamma, in_torch
from .cylinder import widely
from .gamma import DIGAMMA, LGAMMA
from .row import Coefficient, Function, beyond_zeros, exact, in_double, slope_in_double

_lgamma, _digamma = LGAMMA.formula, DIGAMMA.formula


def _pole(x: Any) -> Any:
    return (x <= 0) & (np.floor(x) == x)


def _gammasgn(x: Any) -> Any:
    """The sign of Γ(x); that of a zero is its own, a pole has none."""
    odd = np.floor(x) % 2 != 0
    below = np.where(_pole(x) | np.isinf(x), np.nan, np.where(odd, -1, 1))
    return np.where(x > 0, 1, np.where(x == 0, np.copysign(1, x), np.where(np.isnan(x), x, below)))


def _gamma(x: Any) -> Any:
    """Γ(x), for whole x as a product."""
    t = np.where(np.isfinite(x) & ~_pole(x), x, 1)
    size = _gammasgn(t) * np.exp(np.minimum(_lgamma(t), 11000))
    whole = (t == np.floor(t)) & (t < 172)
    factorials = np.cumprod(np.array([1, *range(1, 171)], x.dtype))
    found = np.where(whole, factorials[np.where(whole, t, 1).astype(int) - 1], size)
    found = np.where(x == 0, np.copysign(np.inf, x), np.where(_pole(x) | (x == -np.inf), np.nan, found))
    return np.where(np.isnan(x) | (x == np.inf), x, found)


def _factorial(x: Any) -> Any:
    return np.where(x == -1, np.nan, _gamma(x + 1))


def _gamma_slope(dy: Any, x: Any) -> Any:
    """dy Γ(x) ψ(x); at 0 a double pole."""
    tiny = np.abs(x) < 1e-20
    t = np.where(tiny | _pole(x) | (x == np.inf), 1, x)
    found = np.where(tiny, -dy / np.abs(x) / np.abs(x), dy * _gamma(t) * _digamma(t))
    found = np.where(x == np.inf, dy * np.inf, found)
    return np.where((_pole(x) & ~tiny) | np.isnan(x), np.nan, found)


def _arguments(x: Any, p: Any) -> Any:
    return [x - x.dtype.type(j) / 2 for j in range(int(p))]


def _multigammaln(x: Any, p: Any) -> Any:
    inside = x > (p - 1) / 2
    t = np.where(inside, x, p)
    found = p * (p - 1) / 4 * np.log(pi(x)) + sum(_lgamma(one) for one in _arguments(t, p))
    return np.where(inside, found, np.nan)


def _multigammaln_slope(dy: Any, x: Any, p: Any) -> Any:
    inside = x > (p - 1) / 2
    t = np.where(inside, x, p)
    last = t - (p - 1) / 2
    near = last < 1e-20
    found = np.where(near, -dy / last, dy * sum(_digamma(np.where(near, p, one)) for one in _arguments(t, p)))
    return np.where(inside, found, np.nan)


def _multigammaln_in_torch(torch: Any, x: Any, p: Any) -> Any:
    inside = x > (p - 1) / 2  # torch refuses a tensor with others
    return torch.where(inside, torch.mvlgamma(torch.where(inside, x, p), int(p)), torch.nan)


def _bernoulli_numbers() -> Any:
    """B(n) for n up to 300, of which the last are beyond every double: 2 n! ζ(n) / (2π)^n for large n."""
    found = np.zeros(301, np.longdouble)
    found[:2] = 1, -0.5
    part = np.longdouble(2)
    for n in range(1, 301):
        part = part * n / (2 * pi(found))
        if n % 2 == 0:
            zeta = 1 + sum(np.longdouble(j) ** -n for j in range(2, 12))
            found[n] = gamma.bernoulli(found, n // 2) if n <= 26 else part * zeta * (1 if n % 4 else -1)
    return found


_NUMBERS = _bernoulli_numbers()


def _bernoulli_number(x: Any) -> Any:
    whole = (x >= 0) & (x == np.floor(x)) & np.isfinite(x)
    n = np.where(whole, x, 0)
    last = np.where(np.fmod(n, 2) == 1, 0, np.where(np.fmod(n, 4) == 0, -np.inf, np.inf))
    found = np.where(n <= 300, _NUMBERS[np.minimum(n, 300).astype(np.int64)], last)
    return np.where(whole, found, np.nan)


_P = Coefficient("p", None, low=1, high=1000, whole=True, drawn=(1, 5))
GAMMA = Function(
    "Gamma", widely(_gamma), widely(_gamma_slope), bound=in_double(10), slope=slope_in_double(None),
    kernel="unary_gamma", points=(170.6, 171.6, 184.0), torch=in_torch.gamma,
)  # fmt: skip
FACTORIAL = Function(
    "Factorial", widely(_factorial), widely(lambda dy, x: _gamma_slope(dy, x + 1)), bound=in_double(10),
    slope=slope_in_double(None), kernel="unary_gamma", points=(169.6, 170.6, 185.0),
    torch=lambda torch, x: in_torch.gamma(torch, x + 1),
)  # fmt: skip
GAMMASGN = Function("Gammasgn", _gammasgn, bound=exact, kernel="unary_gamma", torch=in_torch.gammasgn)
MULTIGAMMALN = Function(
    "Multigammaln", _multigammaln, _multigammaln_slope, coefficients=(_P,), bound=beyond_zeros,
    slope=slope_in_double(None), kernel="unary_gamma", aliases=("mvlgamma",),
    torch=_multigammaln_in_torch,
)  # fmt: skip
BERNOULLI_NUMBER = Function(
    "BernoulliNumber", widely(_bernoulli_number), bound=in_double(1), kernel="unary_gamma",
    torch=in_torch.bernoulli_number,
    points=(4.0, 12.0, 24.0, 26.0, 60.0, 130.0, 258.0, 260.0),
)  # fmt: skip
