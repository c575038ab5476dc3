"""Medians, modes, quantiles, histograms, sets and ranks: what NumPy says, and the rules where it says nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.core.plan import Plan
from baracuda_py.ops.sort.sorted_quantile import METHODS

NAN = np.nan


def test_medians_and_modes() -> None:
    x = np.array([[3.0, 1.0, 2.0, 1.0], [5.0, NAN, 4.0, NAN], [NAN] * 4])
    values, indices = bc.median(x, 1)
    assert values[0] == 1.0 and np.isnan(values[1:]).all() and indices.tolist() == [3, 1, 0]
    values, indices = bc.nanmedian(x, 1, keepdims=True)
    assert values[:2].tolist() == [[1.0], [4.0]] and indices.tolist() == [[3], [2], [0]]
    values, indices = bc.mode(x[:2], 1)
    assert values[0] == 1.0 and np.isnan(values[1]) and indices.tolist() == [3, 3]
    assert float(bc.median(x[0])) == 1.0
    with pytest.raises(bc.InvalidProblemError, match="must have an element"):
        bc.median(np.zeros((3, 0)), 1)


@pytest.mark.parametrize("method", METHODS)
def test_quantiles_are_numpys(method: Any) -> None:
    rng, q = np.random.default_rng(0), np.array([0.0, 0.1, 0.5, 0.875, 1.0])
    for n in (1, 2, 8, 11):
        x = rng.standard_normal((3, n))
        want = np.quantile(x, q, axis=1, method=method)
        np.testing.assert_allclose(bc.quantile(x, q, 1, interpolation=method), want, rtol=1e-14)
        np.testing.assert_allclose(bc.percentile(x, 100 * q, 1, interpolation=method), want, rtol=1e-12)


def test_quantiles_of_infinities_nan_and_levels_beyond() -> None:
    x = np.array([[1.0, np.inf, np.inf], [NAN, 2.0, 4.0]])
    assert bc.quantile(x, 0.75, 1).tolist()[0] == np.inf
    assert np.isnan(bc.quantile(x, 0.75, 1)[1]) and bc.nanquantile(x, 0.75, 1)[1] == 3.5
    assert np.isnan(bc.quantile(x, np.array([-0.5, 1.5, NAN]), 1)).all()
    assert bc.quantile(x, 0.5, keepdims=True).shape == (1, 1)
    assert bc.quantile(x, np.array([0.5, 0.5]), 1, keepdims=True).shape == (2, 2, 1)


@pytest.mark.parametrize("facts", [{}, {"bins": 7, "range": (-1.0, 2.0)}, {"bins": np.array([-1.0, 0.0, 0.5, 3.0])}])
@pytest.mark.parametrize("density", [False, True])
def test_histograms_are_numpys(facts: Any, density: bool) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(500), rng.random(500)
    for weight in (None, w):
        got, edges = bc.histogram(x, weight=weight, density=density, **facts)
        want, want_edges = np.histogram(x, weights=weight, density=density, **facts)
        np.testing.assert_allclose(got, want, rtol=1e-12)
        np.testing.assert_allclose(edges, want_edges, rtol=1e-12)


def test_histograms_of_several_axes_and_counts() -> None:
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((300, 3)), rng.random(300)
    got, edges = bc.histogramdd(x, (3, 4, 5), weight=w, density=True)
    want, want_edges = np.histogramdd(x, (3, 4, 5), weights=w, density=True)
    np.testing.assert_allclose(got, want)
    for one, other in zip(edges, want_edges, strict=True):
        np.testing.assert_allclose(one, other)
    assert (bc.histogram2d(x[:, 0], x[:, 1], 4)[0] == np.histogram2d(x[:, 0], x[:, 1], 4)[0]).all()
    assert bc.histc(np.array([1.0, 1.0], np.float32), 2).tolist() == [0.0, 2.0]
    ids = np.array([3, -1, 0, 3, 9], np.int16)
    assert bc.bincount(ids, length=4).tolist() == [1, 0, 0, 2]
    assert bc.bincount(ids, np.arange(5.0), length=4).tolist() == [2.0, 0.0, 0.0, 3.0]
    assert bc.histogram(ids, 2, (0, 4), ids)[0].tolist() == [0.0, 6.0]
    for x in (np.array([1, 5, 5]), np.array([], np.int64), np.array([-3, -1]), np.array([2, 0], np.uint8)):
        want = np.bincount(x[x >= 0]) if (x < 0).any() else np.bincount(x)
        np.testing.assert_array_equal(bc.bincount(x), want)
    with pytest.raises(InvalidProblemError, match="give length=, as the largest of a TensorRef"):
        bc.bincount(bc.TensorRef(256, (3,), None, "int64"))
    whole = bc.bincount(np.array([3, 0, 3]), np.array([2, 5, -1], np.int32), length=4)
    assert whole.dtype == np.float64 and whole.tolist() == [5.0, 0.0, 0.0, 1.0]


ZERO = np.zeros(4, np.int64)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda x: bc.quantile(x, 1.5), "q must be from 0 to 1, got 1.5"),
        (lambda x: bc.histogram(x, 5, weight=x[0]), r"weight must have the shape \(2, 3\) of x, got \(3,\)"),
        (lambda x: bc.unique(x, size=-2), "size must be an integer >= 0, got -2"),
        (lambda x: bc.setdiff1d(x, x, size=0.5), "size must be an integer, got 0.5"),
        (lambda x: bc.isin(x, x.astype(int)), "test_elements must be float64, as x is, got int64"),
        (lambda x: bc.segment_topk(x[0], np.array([0, 3]), -1), "k must be an integer >= 0, got -1"),
        (lambda x: bc.scatter_sub(x, x.astype(np.int8), x, axis=0), "index must be int64 or int32, got int8"),
        (
            lambda x: bc.repeat(x, np.ones(2, np.uint64), 0, total=2),
            "repeats must be a number or 2 integers of at most",
        ),
        (lambda x: bc.embedding_add(ZERO, x, ZERO, x[:, :2]), "position_weight must have as many columns as weight, 3"),
        (lambda x: bc.embedding_add(ZERO, x, ZERO.astype(bool), x), "positions must be int64 or int32, got bool"),
        (lambda x: bc.quantile(x, NAN), "q must be from 0 to 1, got nan"),
        (lambda x: bc.nanpercentile(x, 101, 1), "q must be from 0 to 100, got 101"),
        (lambda x: bc.quantile(x, 0.5, interpolation="mean"), "interpolation must be one of"),
        (lambda x: bc.histogram(x, 5, (3, 1)), r"range must be finite numbers low <= high, got \(3, 1\)"),
        (lambda x: bc.histogram(x, 5, (0, np.inf)), "range must be finite"),
        (lambda x: bc.histc(x, 5, 2, -2), "range must be finite numbers low <= high"),
        (
            lambda x: bc.bincount(x.astype(int), x[0], length=3),
            r"weights must have the shape \(2, 3\) of x, got \(3,\)",
        ),
    ],
)
def test_what_the_host_knows_is_refused_before_any_launch(
    call: Any, says: str, monkeypatch: pytest.MonkeyPatch, long_way: None
) -> None:
    ran: list[Any] = []
    run = Plan.run
    monkeypatch.setattr(Plan, "run", lambda self, *args: (run(self, *args), ran.append(self.op)))
    with pytest.raises(InvalidProblemError, match=says):
        call(np.ones((2, 3)))
    assert not ran


def test_sets_orders_and_ranks() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 9, (3, 4)), rng.integers(4, 14, 9)
    for name in ("union1d", "intersect1d", "setdiff1d", "setxor1d"):
        values, number = getattr(bc, name)(a, b)
        assert values[: int(number)].tolist() == getattr(np, name)(a, b).tolist(), name
    keys = rng.integers(0, 3, (3, 20))
    assert (bc.lexsort(keys) == np.lexsort(keys)).all()
    x = np.array([[2, 1, 2, 0]], np.int8)
    assert bc.rankdata(x).tolist() == [[3.5, 2.0, 3.5, 1.0]]
    assert bc.rankdata(x, method="min").tolist() == [[3, 2, 3, 1]]
    assert bc.rankdata(x.T, 0, "max").tolist() == [[4], [2], [4], [1]]
    assert bc.rankdata(x, method="ordinal").tolist() == [[3, 2, 4, 1]]
    assert bc.merge_sorted(np.array([1, 3]), np.array([2, 3])).tolist() == [1, 2, 3, 3]
    keys, values = bc.sort_key_val(np.array([2, 1, 2]), np.array([5.0, 6.0, 7.0]))
    assert keys.tolist() == [1, 2, 2] and values.tolist() == [6.0, 5.0, 7.0]


@pytest.mark.parametrize("weights", [None, np.ones(3)])
def test_counts_of_no_bins(weights: Any) -> None:
    x, out = np.array([0, 2, -1]), None if weights is not None else np.zeros(0, np.int64)
    y = bc.bincount(x, weights, length=0, out=out)
    assert y.shape == (0,) and y.dtype == (np.int64 if weights is None else np.float64)
    assert out is None or out is y


def test_weights_in_no_bin_are_no_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    x, weight = np.array([0.5, NAN, 9.0, 1.5]), np.array([1.0, 2.0, 4.0, 8.0])
    assert bc.histogram(x, 2, range=(0, 2), weight=weight)[0].tolist() == [1, 8]
    assert bc.bincount(np.array([3, 0, -1, 1]), weight, length=2).tolist() == [2, 8]
