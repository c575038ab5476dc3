"""Variates of very small shape parameters, whose gamma variates are 0 in any float, against their distributions.

Those are taken in logarithms, so that no number of theirs is one that a float does not hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.random.random_fill import RandomPlan
from baracuda_py.testing.places import call

stats, special = pytest.importorskip("scipy.stats"), pytest.importorskip("scipy.special")
COUNT, LEVEL = 4000, 1e-6
ELEMENTS = ("float32", "float64")
TINY = (1e-3, 1e-6)


def draw(place: str, kind: str, parameters: tuple[float, ...], element: str) -> np.ndarray:
    desc = RandomPlan.descriptor(kind=kind, shape=(COUNT,), element=element)
    given = {f"{letter}_number": value for letter, value in zip("abc", parameters, strict=False)}
    y: np.ndarray = call(RandomPlan, desc, ("y",), place, seed=11, **given)["y"].astype(np.float64)
    assert not np.isnan(y).any()
    return y


def gamma_below(a: float, log_x: Any) -> Any:
    """P(X <= x) of a gamma variate: a power of x where x is small."""
    return np.where(log_x < -30, np.exp(a * log_x - special.gammaln(a + 1)), special.gammainc(a, np.exp(log_x)))


def odds_below(a: float, b: float, log_odds: Any) -> Any:
    """P(G / H <= odds) of gamma variates G of a and H of b: a power of the odds where they are small."""
    power = np.exp(a * np.minimum(log_odds, -40) - np.log(a) - special.betaln(a, b))
    near = special.betainc(a, b, special.expit(np.clip(log_odds, -50, 30)))
    far = 1 - np.exp(b * -np.maximum(log_odds, 30) - np.log(b) - special.betaln(a, b))
    return np.where(log_odds < -40, power, np.where(log_odds > 30, far, near))


def expected(found: int, chance: float) -> bool:
    """Whether so many of all samples may have what each has by chance."""
    held = stats.binom(COUNT, min(max(chance, 0.0), 1.0))
    return bool(held.cdf(found) > LEVEL and held.sf(found - 1) > LEVEL)


def agrees(log_y: np.ndarray, below: Callable[[Any], Any], low: float, high: float) -> None:
    """How many samples lie up to each end of what the element holds, and Kolmogorov and Smirnov's test between."""
    chances = below(np.array([low, high]))
    inside = (log_y > low) & (log_y < high)
    assert expected((log_y <= low).sum(), chances[0]) and expected((log_y >= high).sum(), 1 - chances[1])
    if inside.sum() > 50:
        uniform = (below(log_y[inside]) - chances[0]) / (chances[1] - chances[0])
        assert stats.kstest(uniform, "uniform").pvalue > LEVEL


def ends(element: str) -> tuple[float, float]:
    """Logarithms of the least and the largest number of an element."""
    info = np.finfo(element)
    return float(np.log(np.float64(info.smallest_subnormal))), float(np.log(np.float64(info.max)))


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("df", [*TINY, 0.05, 1.5])
@pytest.mark.parametrize("scale", [1.0, 1e-20])
def test_student_t(place: str, scale: float, df: float, element: str) -> None:
    """|t|² / df is the odds of two gamma variates, of 1/2 and df / 2; beyond the largest number it is infinite."""
    t = stats.t(df)
    np.testing.assert_allclose(1 - odds_below(0.5, df / 2, np.log(9 / df)), 2 * t.sf(3.0), rtol=1e-6)
    y = draw(place, "student_t", (df, 0.0, scale), element)
    assert expected((y > 0).sum(), 0.5)
    with np.errstate(divide="ignore"):
        logs = np.log(np.abs(y)) - np.log(scale)
    low, high = (end - np.log(scale) for end in ends(element))
    agrees(logs, lambda log_t: odds_below(0.5, df / 2, 2 * log_t - np.log(df)), low, high)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("a", TINY)
def test_gamma_variates(place: str, a: float, element: str) -> None:
    low, high = ends(element)
    with np.errstate(divide="ignore"):
        chi = np.log(draw(place, "chi_square", (a,), element))
        gamma = np.log(draw(place, "gamma", (a, 1e-30), element))  # the rate brings them within the range
    agrees(chi, lambda x: gamma_below(a / 2, x - np.log(2)), low, high)
    agrees(gamma, lambda x: gamma_below(a, x + np.log(1e-30)), low, high)
    logs = draw(place, "loggamma", (a,), element)
    agrees(logs, lambda x: gamma_below(a, x), -np.inf, 30.0)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize(("a", "b"), [(1e-3, 1e-3), (1e-6, 3e-6), (1e-3, 2.0)])
def test_ratios(place: str, a: float, b: float, element: str) -> None:
    low, high = ends(element)
    with np.errstate(divide="ignore"):
        beta = np.log(draw(place, "beta", (a, b), element))
        ratio = np.log(draw(place, "f_ratio", (2 * a, 2 * b), element))
    assert (beta <= 0).all()
    agrees(beta, lambda x: odds_below(a, b, x - np.log1p(-np.exp(np.minimum(x, -1e-9)))), low, np.log(0.5))
    agrees(ratio, lambda x: odds_below(a, b, x + np.log(a / b)), low, high)


@pytest.mark.parametrize("element", ["float16", *ELEMENTS])
@pytest.mark.parametrize("a", [1e-3, 1e-5, 1e-6])
def test_dirichlet(a: float, element: str) -> None:
    """Points whose numbers add up to 1; of small concentrations nearly always a corner, as often as that says."""
    concentration = np.array([a, 3 * a, 0], element)
    y = bc.dirichlet(concentration, shape=(COUNT, 3), seed=5)
    assert y.dtype == element
    y = y.astype(np.float64)
    np.testing.assert_allclose(y.sum(-1), 1, rtol=np.finfo(element).eps)
    share = concentration.astype(np.float64) / concentration.astype(np.float64).sum()
    for found, chance in zip((y > 0.5).sum(0), share, strict=True):
        assert expected(found, chance)
