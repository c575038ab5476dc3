"""Functions that torch has not, written in torch: integrals by Gauss's rule, which torch differentiates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

EULER = 0.5772156649015329


def unit_integral(torch: Any, integrand: Callable[[Any], Any], like: Any, nodes: int = 64) -> Any:
    """∫ integrand(u) du from 0 to 1, u having an axis more than `like`, the last."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    u, w = (torch.as_tensor(v, dtype=like.dtype, device=like.device) for v in ((points + 1) / 2, weights / 2))
    return (integrand(u) * w).sum(-1)


def scaled(kernel: Callable[[Any, Any, Any], Any]) -> Callable[..., Any]:
    """x ∫ kernel(torch, x, u) du."""
    return lambda torch, x: x * unit_integral(torch, lambda u: kernel(torch, x[..., None], u), x)


def bessel_j(order: int) -> Callable[..., Any]:
    """J by Bessel's integral; torch's own J1 is off by more than its digits near some numbers."""

    def function(torch: Any, x: Any) -> Any:
        wave = lambda u: torch.cos(order * np.pi * u - x[..., None] * torch.sin(np.pi * u))  # noqa: E731
        return unit_integral(torch, wave, x)

    return function


def _exponential(torch: Any, x: Any) -> Any:
    """∫ (exp(x u) - 1) / u du."""
    return unit_integral(torch, lambda u: torch.expm1(x[..., None] * u) / u, x)


def exp1(torch: Any, x: Any) -> Any:
    """E1(x) by its integral less the logarithm."""
    return -EULER - torch.log(x) - _exponential(torch, -x)


def expi(torch: Any, x: Any) -> Any:
    """Ei(x) likewise."""
    return EULER + torch.log(x.abs()) + _exponential(torch, x)


def cosine_integral(torch: Any, x: Any) -> Any:
    """Ci(|x|) likewise."""
    return EULER + torch.log(x.abs()) + unit_integral(torch, lambda u: (torch.cos(x[..., None] * u) - 1) / u, x)


def spence(torch: Any, x: Any) -> Any:
    """The integral of s / (exp(s) - 1) from 0 to -log(x)."""
    end = -torch.log(x)
    return end * unit_integral(torch, lambda u: end[..., None] * u / torch.expm1(end[..., None] * u), x)


def gammasgn(torch: Any, x: Any) -> Any:
    """The sign of Γ(x)."""
    return torch.where((x > 0) | (torch.floor(x) % 2 == 0), 1.0, -1.0).to(x.dtype)


def gamma(torch: Any, x: Any) -> Any:
    """Γ(x) as an exponential."""
    return gammasgn(torch, x.detach()) * torch.exp(torch.lgamma(x))


def betaln(torch: Any, a: Any, b: Any) -> Any:
    """log B(a, b) of positive numbers."""
    return torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b)


def expn(torch: Any, x: Any, n: Any) -> Any:
    """E_n(x), the integral of exp(-x e^s - (n - 1) s) over s, for x that are not near 0."""
    x, n = torch.broadcast_tensors(x, n)
    end = torch.log(750 / x.detach().clamp(max=100))[..., None]

    def integrand(u: Any) -> Any:
        return torch.exp(-x[..., None] * torch.exp(end * u) - (n[..., None] - 1) * end * u) * end

    return unit_integral(torch, integrand, x, 300)


def betainc(torch: Any, x: Any, a: Any, b: Any) -> Any:
    """I_x(a, b) as the integral over the logit of x."""
    x, a, b = (v[..., None] for v in torch.broadcast_tensors(x, a, b))
    low, end = -45 / a.clamp(max=1), torch.logit(x)
    scale = torch.exp(-betaln(torch, a, b))

    def integrand(u: Any) -> Any:
        s = low + (end - low) * u
        part = torch.nn.functional.logsigmoid
        return torch.exp(a * part(s) + b * part(-s)) * (end - low) * scale

    return unit_integral(torch, integrand, x, 800)


def gammainc(torch: Any, x: Any, a: Any, upper: bool) -> Any:
    """P(a, x) or Q(a, x) as the integral over the logarithm of x, which torch differentiates by a too."""
    x, a = (v[..., None] for v in torch.broadcast_tensors(x, a))
    end = torch.log(x)
    start = torch.log(a.detach() + 40 * torch.sqrt(a.detach()) + 80) if upper else end.detach() - 45 / a.detach() - 8

    def integrand(u: Any) -> Any:
        s = start + (end - start) * u
        return torch.exp(a * s - torch.exp(s) - torch.lgamma(a)) * (end - start)

    return unit_integral(torch, integrand, x, 800) * (-1 if upper else 1)


def hyp1f1(torch: Any, x: Any, a: Any, b: Any) -> Any:
    """M(a, b, x) by its series for |x| up to 40, or exp(x) M(b - a, b, -x) for x < 0."""
    z, start = x.abs(), torch.where(x < 0, b - a, a)
    total = term = torch.ones_like(z * start * b)
    for k in range(200):
        term = term * ((start + k) / (b + k) * z / (k + 1))
        total = total + term
    return total * torch.exp(x.clamp(max=0))


def igamma_grad_a(torch: Any, x: Any, a: Any) -> Any:
    """The derivative of P(a, x) by a."""
    x, a = torch.broadcast_tensors(x, a)
    found = []
    for upper in (False, True):  # the one of P and Q that is small has its digits
        with torch.enable_grad():
            leaf = a.detach().clone().requires_grad_()
            found += torch.autograd.grad(gammainc(torch, x.detach(), leaf, upper).sum(), leaf)
    return torch.where(x > a, -found[1], found[0])


def wofz(torch: Any, z: Any) -> Any:
    """exp(-z²) erfc(-iz) by the trapezoidal rule with its poles, 2 exp(-z²) - w(-z) in the lower half plane."""
    low = z.imag < 0
    u, step = torch.where(low, -z, z), 0.25
    phase = (u.real / step).detach() % 1
    sign = torch.where((phase - 0.5).abs() <= 0.25, -1, 1)
    total, shift = torch.zeros_like(u), (sign > 0) * (0.5 + 0 * phase)
    for k in range(-32, 32):
        t = (k + shift) * step
        total = total + 1j * step / np.pi * torch.exp(-t * t) / (u - t)
    near = u.imag.detach() < np.pi / step
    v = torch.where(near, u, 0)
    pole = 2 * torch.exp(-v * v) / (1 + sign * torch.exp(-2j * np.pi / step * v))
    found = total + torch.where(near, pole, 0)
    return torch.where(low, 2 * torch.exp(-z * z) - found, found)


def hyp2f1(torch: Any, x: Any, a: Any, b: Any, c: Any) -> Any:
    """F(a, b; c; x) by its series for x up to 0.95, or (1 - x)^-a F(a, c - b; c; x / (x - 1)) for x < 0."""
    below = x < 0
    z, other = torch.where(below, x / (x - 1), x), torch.where(below, c - b, b)
    total = term = torch.ones_like(z * a * other * c)
    for k in range(1200):
        term = term * ((a + k) * (other + k) / (c + k) * z / (k + 1))
        total = total + term
    return total * torch.where(below, (1 - x) ** -a, 1.0)


def bernoulli_number(torch: Any, x: Any) -> Any:
    """B(n) = ∓2 n! ζ(n) / (2π)^n of whole n from 2 on."""
    whole = (x >= 0) & (x == torch.floor(x)) & torch.isfinite(x)
    size = (
        2
        * torch.exp(torch.lgamma(x + 1) - x * np.log(2 * np.pi))
        * torch.special.zeta(x.clamp(min=2), torch.ones_like(x))
    )
    found = torch.where(x % 2 == 1, 0, torch.where(x % 4 == 0, -size, size))
    return torch.where(whole, torch.where(x < 2, 1 - 1.5 * x, found), torch.nan)
