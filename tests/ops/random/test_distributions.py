"""Distributions against their distribution functions, with fixed seeds, of which one in 10⁶ would fail a test."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from call_placed import on

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.random.distributions import RandomKind
from baracuda_py.ops.random.philox import philox_bits, philox_uniform
from baracuda_py.ops.random.random_fill import RandomDescriptor, RandomPlan
from baracuda_py.testing.places import call

stats, special = pytest.importorskip("scipy.stats"), pytest.importorskip("scipy.special")
COUNT, LEVEL = 20000, 1e-6

CONTINUOUS = {
    "uniform": ((-1.0, 2.0), stats.uniform(-1, 3)),
    "normal": ((1.0, 2.0), stats.norm(1, 2)),
    "log_normal": ((0.5, 0.75), stats.lognorm(0.75, scale=np.exp(0.5))),
    "exponential": ((2.0,), stats.expon(scale=0.5)),
    "laplace": ((1.0, 2.0), stats.laplace(1, 2)),
    "random_logistic": ((1.0, 2.0), stats.logistic(1, 2)),
    "gumbel": ((1.0, 2.0), stats.gumbel_r(1, 2)),
    "cauchy": ((1.0, 2.0), stats.cauchy(1, 2)),
    "rayleigh": ((2.0,), stats.rayleigh(scale=2)),
    "weibull": ((2.0, 1.5), stats.weibull_min(1.5, scale=2)),
    "pareto": ((2.0, 3.0), stats.pareto(3, scale=2)),
    "triangular": ((-1.0, 0.5, 2.0), stats.triang(0.5, -1, 3)),
    "truncated_normal": ((-0.5, 2.0), stats.truncnorm(-0.5, 2)),
    "random_gamma": ((0.4, 2.0), stats.gamma(0.4, scale=0.5)),
    "random_loggamma": ((0.3,), stats.loggamma(0.3)),
    "random_beta": ((0.5, 2.0), stats.beta(0.5, 2)),
    "chi_square": ((3.0,), stats.chi2(3)),
    "student_t": ((4.0, 1.0, 2.0), stats.t(4, 1, 2)),
    "random_f": ((3.0, 7.0), stats.f(3, 7)),
    "generalized_normal": ((0.75,), stats.gennorm(0.75)),
    "maxwell": ((2.0,), stats.maxwell(scale=2)),
    "double_sided_maxwell": ((0.0, 1.0), stats.dgamma(1.5)),
    "wald": ((1.5, 2.0), stats.invgauss(0.75, scale=2)),
}  # fmt: skip
DISCRETE = {
    "poisson-few": ("poisson", (3.5,), stats.poisson(3.5)),
    "poisson-many": ("poisson", (30.0,), stats.poisson(30)),
    "binomial-few": ("binomial", (20, 0.3), stats.binom(20, 0.3)),
    "binomial-many": ("binomial", (100, 0.7), stats.binom(100, 0.7)),
    "negative_binomial": ("negative_binomial", (4, 0.4), stats.nbinom(4, 0.4)),
    "geometric": ("geometric", (0.3,), stats.geom(0.3)),
}  # fmt: skip


def test_every_kind_is_tested() -> None:
    named = {k.row.name or k.value for k in RandomKind}
    assert named - {*CONTINUOUS, *(n for n, *_ in DISCRETE.values())} == {"bernoulli", "rademacher", "randint"}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_the_distribution_function(name: str) -> None:
    """Kolmogorov and Smirnov's test, in float64 and float32."""
    parameters, truth = CONTINUOUS[name]
    if name == "double_sided_maxwell":
        parameters, truth = (0.0, np.sqrt(0.5)), None
    for element in ("float64", "float32"):
        y = getattr(bc, name)(*parameters, shape=COUNT, seed=11, element=element).astype(np.float64)
        assert y.shape == (COUNT,)
        if truth is None:  # x² / (2 scale²) is a gamma variate of 3/2, of either sign
            assert abs((y > 0).mean() - 0.5) < 5 * 0.5 / np.sqrt(COUNT)
            y, truth_of = y**2, stats.gamma(1.5)
        else:
            truth_of = truth
        assert stats.kstest(y, truth_of.cdf).pvalue > LEVEL


@pytest.mark.parametrize("name", DISCRETE)
def test_frequencies_of_whole_numbers(name: str) -> None:
    """The chi-square test over cells of an expected count of 10 at least."""
    function, parameters, truth = DISCRETE[name]
    y = getattr(bc, function)(*parameters, shape=COUNT, seed=12, element="int64")
    _check_cells(y, truth.pmf(np.arange(y.max() + 200)))


def _check_cells(y: np.ndarray, p: np.ndarray) -> None:
    observed = np.bincount(y, minlength=p.size)
    large = p * y.size >= 10
    cells = [*observed[large], observed[~large].sum()], [*(p[large] * y.size), (1 - p[large].sum()) * y.size]
    keep = np.array(cells[1]) > 5
    seen, wanted = np.array(cells[0])[keep], np.array(cells[1])[keep]
    assert stats.chisquare(seen, wanted * seen.sum() / wanted.sum()).pvalue > LEVEL


def test_bits_are_those_of_philox(place) -> None:
    facts = {"shape": (1000,), "seed": 5}
    drawn = on(place, bc.rand, **facts, element="float32", offset=9)
    np.testing.assert_array_equal(drawn, philox_uniform(5, 9, 1000))
    words = on(place, bc.bits, **facts, element="uint32", low=0, span=2**32)
    assert np.array_equal(words, philox_bits(5, 0, 1000))
    pairs = on(place, bc.rand, shape=(500,), seed=5, element="float64")
    words = philox_bits(5, 0, 1000).astype(np.uint64).reshape(-1, 2)
    np.testing.assert_array_equal(pairs, ((words[:, 1] << np.uint64(32) | words[:, 0]) >> np.uint64(11)) * 2.0**-53)
    assert on(place, bc.rand, shape=(9999,), seed=5, element="bfloat16").astype(np.float32).max() < 1


@pytest.mark.parametrize(("low", "high", "element"), [
    (-3, 4, "int8"), (0, 2**64, "uint64"), (-(2**63), 2**63, "int64"), (-(2**31), 2**31, "int32"),
    (5, 5 + 3 * 2**62, "uint64"), (0, 2**32, "int64"), (-10, 2**32, "int64"), (250, 256, "uint8"), (-7, 8, "float32"),
])  # fmt: skip
def test_randint_of_any_range(low: int, high: int, element: str) -> None:
    """Within bounds, and alike over 16 equal parts of the range, or over its numbers."""
    y = bc.randint(low, high, shape=COUNT, seed=13, element=element)
    whole = [int(v) for v in y]
    assert min(whole) >= low and max(whole) < high
    parts = min(16, high - low)
    cells = np.bincount([(v - low) * parts // (high - low) for v in whole], minlength=parts)
    width = [((i + 1) * (high - low) - 1) // parts - (i * (high - low) - 1) // parts for i in range(parts)]
    assert stats.chisquare(cells, np.array(width, float) / sum(width) * COUNT).pvalue > LEVEL


def test_randint_bounds_as_arrays() -> None:
    low, high = np.array([0, -5, 7]), np.array([[1], [10], [8]])
    y = bc.randint(low, high, shape=(100, 3, 3), seed=1)
    assert (y >= low).all() and ((y < high) | (high <= low)).all() and (y[:, 0, 2] == 7).all()


def test_chances() -> None:
    p = np.array([0.0, 0.25, 1.0, np.nan, 2.0, -1.0], np.float32)
    y = bc.bernoulli(np.broadcast_to(p, (COUNT, 6)), seed=3, element="bool")
    assert y.dtype == np.bool_ and y[:, 2].all() and y[:, 4].all() and not y[:, [0, 3, 5]].any()
    assert abs(y[:, 1].mean() - 0.25) < 5 * np.sqrt(0.1875 / COUNT)
    signs = bc.rademacher(shape=COUNT, seed=4, element="int8")
    assert set(signs.tolist()) == {-1, 1} and abs(signs.mean()) < 5 / np.sqrt(COUNT)


def test_numbers_do_not_depend_on_layout_or_parameters_form() -> None:
    loc = np.random.default_rng(0).standard_normal((31, 17)).astype(np.float32)
    y = bc.normal(loc, 2.0, seed=5)
    turned = np.empty((17, 31), np.float32).T
    assert bc.normal(np.asfortranarray(loc), np.float32(2), seed=5, out=turned) is turned
    np.testing.assert_array_equal(y, turned)
    np.testing.assert_array_equal(bc.normal(0.0, 1.0, shape=527, seed=5)[:100], bc.randn(100, seed=5))
    assert (bc.randn(100, seed=5) != bc.randn(100, seed=5, offset=1)).all()


def test_gradients_of_normal() -> None:
    torch = pytest.importorskip("torch")
    loc, scale = torch.zeros(3, dtype=torch.float64), torch.full((4, 1), 2.0, dtype=torch.float64)
    loc.requires_grad_(), scale.requires_grad_()
    y = bc.normal(loc, scale, seed=3)
    z = bc.randn((4, 3), seed=3, element="float64")
    np.testing.assert_allclose(y.detach().numpy(), 2 * z, rtol=1e-14)
    y.sum().backward()
    np.testing.assert_allclose(loc.grad.numpy(), 4)
    np.testing.assert_allclose(scale.grad.numpy()[:, 0], z.sum(1), rtol=1e-12)
    with pytest.raises(UnsupportedError, match="requires grad, and exponential has no gradient"):
        bc.exponential(scale, seed=1)


@pytest.mark.parametrize(("call", "message"), [
    (lambda: bc.normal(0, -1, shape=3, seed=1), "scale must be above 0, got -1"),
    (lambda: bc.bernoulli(1.5, shape=3, seed=1), "p must be from 0 to 1, got 1.5"),
    (lambda: bc.uniform(2, 1, shape=3, seed=1), "uniform needs low <= high, got 2 and 1"),
    (lambda: bc.uniform(-3e38, 3e38, shape=3, seed=1), "must be finite in float32, got -3e.38 and 3e.38"),
    (lambda: bc.uniform(0, float("inf"), shape=3, seed=1, element="float64"), "must be finite in float64"),
    (lambda: bc.uniform(0, 1e6, shape=3, seed=1, element="float16"), "must be finite in float16, got 0 and 1000000.0"),
    (lambda: bc.bernoulli(float("nan"), shape=3, seed=1), "p must be from 0 to 1, got nan"),
    (lambda: bc.normal(float("nan"), shape=3, seed=1), "loc must be a number, got nan"),
    (lambda: bc.randint(3, 3, shape=3, seed=1), "randint needs low < high, got 3 and 3"),
    (lambda: bc.randint(0, 300, shape=3, seed=1, element="int8"), "int8 holds -128 to 127"),
    (lambda: bc.randint(10**5000, np.array([3]), seed=1), "low must fit int64"),
    (lambda: bc.poisson("x", shape=3, seed=1), "rate must be a number or an array"),
    (lambda: bc.poisson(float("inf"), shape=3, seed=1), "poisson: rate must be finite, got inf"),
    (lambda: bc.normal(10**400, shape=3, seed=1), "loc must be a number or an array"),
    (lambda: bc.rand(1.5, seed=1), "shape must be a tuple of sizes, got 1.5"),
    (lambda: bc.choice(3, 2, replace="no", seed=1), "replace must be True or False"),
    (lambda: bc.choice(3, 2, out=np.empty(3, np.int64), seed=1), r"out must have shape \(2,\), got \(3,\)"),
    (lambda: bc.sample(np.ones((1, 3), np.float32), top_n="2", seed=1), "top_n must be an integer"),
    (lambda: bc.top_k_mask(np.ones((1, 3), np.float32), object()), "top_k"),
    (lambda: bc.rand(3), "seed is None"),
])  # fmt: skip
def test_numbers_out_of_range(call, message: str) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        call()


def test_extreme_parameters() -> None:
    assert (bc.poisson(np.full(50, 1e9), seed=1) / 1e9 - 1 < 1e-3).all()
    assert (bc.random_gamma(1e-3, shape=1000, seed=1) >= 0).all()
    assert np.isfinite(bc.random_loggamma(1e-3, shape=1000, seed=1)).all()
    assert np.isnan(bc.random_gamma(np.array([-1.0, np.nan]), seed=1)).all()
    assert bc.poisson(np.array([-1.0]), seed=1, element="int64").tolist() == [0]
    for rate in (np.inf, np.nan):
        assert not np.isfinite(bc.poisson(np.full(50, rate), seed=1)).any()
    tail = bc.truncated_normal(8.0, 9.0, shape=1000, seed=2, element="float64")
    assert tail.min() >= 8 and tail.max() <= 9 and tail.mean() < 8.2
    assert (bc.binomial(5, np.array([0.0, 1.0]), seed=1) == [0, 5]).all()
    assert np.isnan(bc.binomial(np.array([np.inf, -1.0, np.nan]), 0.5, seed=1)).all()
    assert bc.uniform(-6e4, 6e4, shape=1000, seed=1, element="float16").astype(float).std() > 3e4
    assert (bc.uniform(np.array([-1e308]), np.array([1e308]), seed=1, element="float64") == -1e308).all()


@pytest.mark.parametrize(("low", "high"), [(-np.inf, -40.0), (36.01, 36.02), (50.0, 50.5), (38.0, np.inf)])
def test_far_tails_of_the_normal_distribution(low: float, high: float) -> None:
    """Where its distribution function has no double, against log Φ of both bounds."""
    y = bc.truncated_normal(low, high, shape=COUNT, seed=3, element="float64")
    assert (y >= low).all() and (y <= high).all()
    lower = y if high < 0 else -y
    a, b = (low, high) if high < 0 else (-high, -low)
    mass, all_of_it = (np.expm1(special.log_ndtr(a) - special.log_ndtr(x)) for x in (lower, np.float64(b)))
    share = np.exp(special.log_ndtr(lower) - special.log_ndtr(b)) * mass / all_of_it
    assert stats.kstest(share, "uniform").pvalue > LEVEL


@pytest.mark.parametrize("count", [1e9, 9e15])
def test_binomial_of_many_trials(count: float) -> None:
    """A normal number's distribution: differences of logarithms of 10¹⁵ trials would round away what is left."""
    y = bc.binomial(count, 0.3, shape=100000, seed=3, element="float64")
    assert stats.kstest((y - 0.3 * count) / np.sqrt(0.21 * count), "norm").pvalue > LEVEL


def test_extreme_parameters_of_the_kernels(place) -> None:
    """They are those of the reference where it has its branches: no parameter, far tails, huge counts."""
    low, high = np.array([-np.inf, -40.0, 38.0, 50.0, -36.0]), np.array([-38.0, -39.0, np.inf, 40.0, np.inf])
    counts, p = np.array([np.inf, 1e15, 0, 1e9, 90]), np.array([0.5, 0.3, 0.5, 0.999, np.nan])
    for function, a, b in ((bc.truncated_normal, low, high), (bc.binomial, counts, p)):
        desc = RandomDescriptor(kind=function.fixed["kind"], shape=(5,), element="float64")
        y = call(RandomPlan, desc, ["y"], place, a=a, b=b, seed=3, offset=0)["y"]
        np.testing.assert_allclose(y, function(a, b, seed=3, element="float64"), rtol=1e-12)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: bc.normal(np.zeros(3), np.ones(4), seed=1), r"^loc \(3,\) and scale \(4,\) do not broadcast"),
        (lambda: bc.randint(np.zeros(3, "i8"), np.ones(4, "i8"), seed=1), r"^low \(3,\) and high \(4,\)"),
        (lambda: bc.normal(0.0, np.ones(3, "f4"), shape=4, seed=1), r"^scale must broadcast to shape \(4,\)"),
        (lambda: bc.uniform(np.zeros(3, "i4"), np.ones(3, "f4"), seed=1), "^low must be float32 or "),
    ],
)
def test_errors_name_parameters_as_the_function_does(call: Any, match: str) -> None:
    with pytest.raises(InvalidProblemError, match=match):
        call()
