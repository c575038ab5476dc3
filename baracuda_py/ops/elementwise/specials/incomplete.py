"""The regularised incomplete gamma and beta functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..functions import in_torch
from ..functions.gamma import lgamma_above_1
from ..special import erfc
from ..unary_formulas import pi
from .combinatorics import lgamma, log_beta, stirling
from .divergence import log_gap
from .parameter import by_parameter
from .row import Special, between, evenly, partial, widely

# The series in η of the coefficients of Temme's expansion, within 1e-21 for |η| < 1/2 and a >= 2000.
_TEMME = (
    (
        "-0.3333333333333333333333", "0.08333333333333333333333", "-0.01481481481481481481481",
        "0.001157407407407407407407", "0.0003527336860670194003527", "-0.0001787551440329218106996",
        "0.00003919263178522437781697", "-0.000002185448510679992161474", "-0.000001854062210715159960702",
        "8.296711340953086005016e-7", "-1.766595273682607930436e-7", "6.707853543401498580369e-9",
        "1.026180978424030804257e-8", "-4.382036018453353186553e-9", "9.147699582236790234182e-10",
        "-2.551419399494624976688e-11", "-5.830772132550425067464e-11", "2.436194802066741624369e-11",
        "-5.027669280114175589091e-12", "1.100439203195613477084e-13", "3.371763262400985378828e-13",
        "-1.392388722418162065919e-13", "2.853489380704744320397e-14",
    ),
    (
        "-0.001851851851851851851852", "-0.003472222222222222222222", "0.002645502645502645502646",
        "-0.0009902263374485596707819", "0.0002057613168724279835391", "-4.018775720164609053498e-7",
        "-0.00001809855033448997783703", "0.000007649160916081110084637", "-0.000001612090089456344600378",
        "4.647127802807434342261e-9", "1.378633446915720959312e-7", "-5.752545603517704964022e-8",
        "1.195162859977814732431e-8", "-1.754324171974764762375e-11", "-1.009154371060041262746e-9",
        "4.162792991842582636234e-10", "-8.563907026492980638074e-11", "6.067215101604758615127e-14",
        "7.16249896481148539008e-12", "-2.933186643771437117406e-12",
    ),
    (
        "0.004133597883597883597884", "-0.002681327160493827160494", "0.0007716049382716049382716",
        "0.000002009387860082304526749", "-0.0001073665322636516052154", "0.00005292344882912012541642",
        "-0.00001276063518861872771338", "3.42357873409613807419e-8", "0.000001372195730906293320559",
        "-6.298992138380055022907e-7", "1.428061420606424179158e-7", "-2.047709842199086601492e-10",
        "-1.409252991086752105329e-8", "6.228974084922022033564e-9", "-1.367048839661711349927e-9",
    ),
    (
        "0.0006494341563786008230453", "0.0002294720936213991769547", "-0.0004691894943952557121281",
        "0.0002677206320628388529623", "-0.00007561801671883976410725", "-2.396505113867296651933e-7",
        "0.00001108265411534730236148", "-0.0000056749528269915965675", "0.000001423090073243588391455",
        "-2.786108029152814224058e-11", "-1.695840409193027728986e-7", "8.099464905388082363353e-8",
    ),
    (
        "-0.0008618882909167116986047", "0.000784039221720066627474", "-0.0002990724803031901797334",
        "-0.000001463845257884341817812", "0.00006641498215465122186659", "-0.00003968365047179434664431",
        "0.00001137572697067841909806",
    ),
    (
        "-0.0003367985533663581503088", "-0.00006972813758365857774294", "0.0002772753244959392078734",
    ),
)  # fmt: skip
_UNIFORM = 2000  # from here on Temme's expansion where x is near a
_MOST = 6000  # terms of a series or of a continued fraction


def _where(condition: Any, x: Any, otherwise: float) -> Any:
    return np.where(condition, x, x.dtype.type(otherwise))


def _density(a: Any, x: Any) -> Any:
    """x^a exp(-x) / Γ(a + 1)."""
    large = a >= 10
    u = _where(large, a, 10)
    d = (x - u) / u
    gap = np.where(np.abs(d) < 0.5, log_gap(np.clip(d, -0.5, 0.5)), d - (np.log(x) - np.log(u)))
    far = np.exp(-u * gap - stirling(u)) / np.sqrt(2 * pi(u)) / np.sqrt(u)
    v = np.where(large, 1, a)
    near = np.exp(v * np.log(x) - np.minimum(x, 12000) - lgamma(v + 1))
    return np.where(large, far, near)


def _series(a: Any, x: Any) -> Any:
    """The lower function, for x up to about a."""
    total, term, end = np.ones_like(x), np.ones_like(x), a
    for _ in range(_MOST):
        end = end + 1
        term = term * (x / end)
        total = total + term
        if not (term > 1e-20 * total).any():
            break
    return _density(a, x) * total


def _series_upper(a: Any, x: Any) -> Any:
    """The upper function for x <= 1.1 and small a, where the lower one may be nearly 1."""
    total, term = np.zeros_like(x), np.ones_like(x)
    for k in range(1, 40):
        term = term * -x / k
        total = total + term / (a + k)
    log = a * np.log(x) - np.where(a < 0.5, lgamma_above_1(np.minimum(a, 0.5)), lgamma(a + 1))
    return -np.expm1(log) - a * total * np.exp(log)


def _fraction(a: Any, x: Any) -> Any:
    """The upper function for x from about a on, and above 1."""
    b, c = x + 1 - a, np.full_like(x, 1e300)
    d = 1 / b
    y, going = d, np.ones(x.shape, bool)
    for i in range(1, _MOST):
        n = i * (a - i)
        b = b + 2
        d, c = 1 / (n * d + b), b + n / c
        y = np.where(going, y * c * d, y)
        going = going & ~(np.abs(c * d - 1) < 1e-19)
        if not going.any():
            break
    return _density(a, x) * a * y


def _uniform(a: Any, d: Any, upper: bool) -> Any:
    """Temme 1979: erfc of η √(a/2) over 2, and a rest that is the same for both functions up to its sign."""
    gap = log_gap(d)
    eta = np.copysign(np.sqrt(2 * gap), d)
    rest, scale = np.zeros_like(a), np.ones_like(a)
    for terms in _TEMME:
        part = np.zeros_like(a)
        for term in reversed(terms):
            part = part * eta + a.dtype.type(term)
        rest, scale = rest + scale * part, scale / a
    rest = rest * np.exp(-a * gap) / np.sqrt(2 * pi(a)) / np.sqrt(a)
    side = (eta if upper else -eta) * np.sqrt(a.dtype.type(0.5)) * np.sqrt(a)
    return erfc(side) / 2 + (rest if upper else -rest)


def _gamma(upper: bool) -> Any:
    def formula(x: Any, a: Any) -> Any:
        inside = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
        u, v = _where(inside, a, 1), _where(inside, x, 1)
        d = (v - u) / u
        uniform = (u >= _UNIFORM) & (np.abs(d) < 0.3)
        fraction = ~uniform & (v > 1.1) & (v > u)
        small = ~uniform & ~fraction & (v <= 1.1)
        small &= np.where(v <= 0.5, -0.4 / np.log(np.minimum(v, 0.5)) >= u, 1.1 * v >= u) & upper
        rest = ~uniform & ~fraction & ~small
        found = np.ones_like(u)
        branches: tuple[tuple[Any, Callable[[Any, Any], Any], bool], ...] = (
            (uniform, lambda a, x: _uniform(a, (x - a) / a, upper), upper), (fraction, _fraction, True),
            (small, _series_upper, True), (rest, _series, False),
        )  # fmt: skip
        for chosen, function, is_upper in branches:
            if chosen.any():
                part = function(u[chosen], v[chosen])
                found[chosen] = part if is_upper == upper else 1 - part
        outside = ~((a >= 0) & (x >= 0)) | ((a == 0) & (x == 0)) | (np.isinf(a) & np.isinf(x))
        low = (x == 0) | np.isinf(a)
        found = np.where(inside, found, np.where(low, int(upper), int(not upper)))
        return np.where(outside, np.nan, found)

    return formula


def _gamma_slope(sign: int) -> Any:
    """± dy x^(a - 1) exp(-x) / Γ(a)."""

    def formula(dy: Any, x: Any, a: Any) -> Any:
        inside = (a > 0) & (x > 0) & np.isfinite(x) & np.isfinite(a)
        u, v = _where(inside, a, 1), _where(inside, x, 1)
        found = dy * (_density(u, v) * u) / v
        end = np.where(a > 1, 0 * dy, np.where(a == 1, dy, dy * np.inf))
        found = np.where(inside, found, np.where((x == 0) & (a > 0), end, 0 * dy))
        return sign * np.where((a >= 0) & (x >= 0) & ~((a == 0) & (x == 0)), found, np.nan)

    return partial("ab", formula)


# ---- the incomplete beta function -----------------------------------------------------------------------------------


def _beta_density(a: Any, b: Any, x: Any, y: Any) -> Any:
    """x^a y^b / B(a, b), y = 1 - x."""
    large = (a >= 10) & (b >= 10)
    u, v = _where(large, a, 10), _where(large, b, 10)
    shift = x * v - y * u
    log = -u * log_gap(shift / u) - v * log_gap(-shift / v) + (stirling(u + v) - stirling(u) - stirling(v))
    far = np.exp(log) * np.sqrt(u / (u + v) * v / (2 * pi(u)))
    near = np.exp(a * np.log(x) + b * np.where(x < 0.5, np.log1p(-x), np.log(y)) - log_beta(a, b))
    return np.where(large, far, near)


def _beta_fraction(a: Any, b: Any, x: Any, y: Any) -> Any:
    """For x below about the mean."""
    c, d = np.ones_like(x), 1 / (1 - (a + b) * x / (a + 1))
    value, going = d, np.ones(x.shape, bool)
    for m in range(1, 20000):
        even = m / (a + 2 * m - 1) * ((b - m) / (a + 2 * m)) * x
        d, c = 1 / (1 + even * d), 1 + even / c
        value = np.where(going, value * d * c, value)
        odd = -(a + m) / (a + 2 * m) * ((a + b + m) / (a + 2 * m + 1)) * x
        d, c = 1 / (1 + odd * d), 1 + odd / c
        value = np.where(going, value * d * c, value)
        going = going & ~(np.abs(c * d - 1) < 1e-19)
        if not going.any():
            break
    return _beta_density(a, b, x, y) * value / a


def _betainc(x: Any, a: Any, b: Any) -> Any:
    inside = (a > 0) & (b > 0) & (x > 0) & (x < 1) & np.isfinite(a) & np.isfinite(b)
    u, v, t = _where(inside, a, 1), _where(inside, b, 1), _where(inside, x, 0.5)
    above = t > (u + 1) / (u + v + 2)
    first, second = np.where(above, v, u), np.where(above, u, v)
    found = _beta_fraction(first, second, np.where(above, 1 - t, t), np.where(above, t, 1 - t))
    found = np.where(above, 1 - found, found)
    end = np.where((x == 0) | (b == 0), np.where(a == 0, 1, 0), 1)
    outside = ~((a >= 0) & (b >= 0) & (x >= 0) & (x <= 1)) | ((a == 0) & (b == 0)) | np.isinf(a) | np.isinf(b)
    return np.where(outside, np.nan, np.where(inside, found, end))


def _betainc_slope(dy: Any, x: Any, a: Any, b: Any) -> Any:
    """dy x^(a - 1) (1 - x)^(b - 1) / B(a, b)."""
    inside = (a > 0) & (b > 0) & (x > 0) & (x < 1) & np.isfinite(a) & np.isfinite(b)
    u, v, t = _where(inside, a, 1), _where(inside, b, 1), _where(inside, x, 0.5)
    found = dy * _beta_density(u, v, t, 1 - t) / t / (1 - t)
    own, other = np.where(x == 0, a, b), np.where(x == 0, b, a)
    end = np.where(own > 1, 0 * dy, np.where(own == 1, dy * other, dy * np.inf))
    positive = (a > 0) & (b > 0) & np.isfinite(a) & np.isfinite(b)
    return np.where(inside, found, np.where(positive & ((x == 0) | (x == 1)), end, np.nan))


_ARGUMENTS = between(0.1, 40), between(0.2, 18)
_BY_A = by_parameter(_density)


def _of_gamma(functor: str, upper: bool, **more: Any) -> Special:
    sign = -1 if upper else 1
    by_a = partial("ab", lambda dy, x, a: sign * dy * _BY_A(x, a))
    return Special(
        functor, widely(_gamma(upper)), _ARGUMENTS, (_gamma_slope(sign), by_a), ulp=1024, slope=1024, call="ba",
        torch=lambda torch, x, a: in_torch.gammainc(torch, x, a, upper), **more,
    )  # fmt: skip


GAMMAINC = _of_gamma("gamma_parameter/Gammainc", False, aliases=("igamma",))
GAMMAINCC = _of_gamma("gamma_parameter/Gammaincc", True, aliases=("igammac",))
IGAMMA_GRAD_A = Special(
    "gamma_parameter/IgammaGradA", widely(_BY_A), _ARGUMENTS, ulp=1024, torch=in_torch.igamma_grad_a, call="ba"
)
BETAINC = Special(
    "incomplete/Betainc", widely(_betainc), (evenly(0.02, 0.98), between(0.5, 40), between(0.5, 40)),
    (partial("abc", _betainc_slope), None), ulp=1024, slope=1024,
    torch=in_torch.betainc, call="bca",
)  # fmt: skip
