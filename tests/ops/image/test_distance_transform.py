"""Distances to the nearest 0 against SciPy and against all pairs of places; the kernels' sweeps over long ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from tests.call_emulated import call

ndimage = pytest.importorskip("scipy.ndimage")
F64 = {"distance_element": "float64"}


def by_pairs(x: np.ndarray, sampling: Any, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Squares or sums of all pairs of places of one sample, and the first place of the least."""
    places = np.stack([axis.reshape(-1) for axis in np.indices(x.shape)], 1)
    zeros = places[x.reshape(-1) == 0]
    away = np.abs(places[:, None] - zeros).astype(np.float64) * sampling
    ways = {"euclidean": (away**2).sum(-1), "cityblock": away.sum(-1), "chessboard": away.max(-1)}[metric]
    near = zeros[ways.argmin(1)].T.reshape(x.ndim, *x.shape)
    return ways.min(1).reshape(x.shape), near


@pytest.mark.parametrize("rank", [2, 3])
@pytest.mark.parametrize("sampling", [1.0, 2.5, (0.7, 1.3, 0.4)])
def test_euclidean_distances_are_scipys(rank: int, sampling: Any) -> None:
    own = sampling if isinstance(sampling, float) else sampling[:rank]
    shape = (2, 3, 31, 45) if rank == 2 else (2, 11, 13, 9)
    x = np.random.default_rng(rank).random(shape) < 0.97
    y, indices = bc.distance_transform(x, own, rank=rank, return_indices=True, **F64)
    flat, lead = x.reshape(-1, *shape[-rank:]), shape[:-rank]
    want = np.stack([ndimage.distance_transform_edt(one, own) for one in flat])
    np.testing.assert_allclose(y, want.reshape(shape), rtol=1e-14)
    assert indices.shape == (rank, *shape) and indices.dtype == np.int32
    steps = (indices - np.indices(shape)[len(lead) :]) * np.reshape(np.broadcast_to(own, rank), (rank, *[1] * x.ndim))
    np.testing.assert_allclose(np.sqrt((steps**2).sum(0)), y, rtol=1e-14)
    narrow = bc.distance_transform(x, own, rank=rank)
    assert narrow.dtype == np.float32
    np.testing.assert_array_equal(narrow, y.astype(np.float32))


@pytest.mark.parametrize("metric", ["cityblock", "taxicab", "manhattan", "chessboard"])
@pytest.mark.parametrize("rank", [2, 3])
def test_other_distances_are_scipys(metric: str, rank: int) -> None:
    x = np.random.default_rng(rank).integers(-1, 20, (17, 23) if rank == 2 else (9, 7, 12))
    want = ndimage.distance_transform_cdt(x != 0, metric)
    np.testing.assert_array_equal(bc.distance_transform(x, metric=metric, rank=rank), want)


@pytest.mark.parametrize("metric", ["euclidean", "cityblock"])
def test_of_equally_near_places_the_first_is_named(metric: str) -> None:
    x = np.random.default_rng(5).random((6, 8, 9)) < 0.95
    y, indices = bc.distance_transform(
        x, metric=metric, rank=3, squared=metric == "euclidean", return_indices=True, **F64
    )
    want, near = by_pairs(x, 1.0, metric)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(indices, near)


def test_squares_are_whole_numbers() -> None:
    x = np.ones((3, 500), np.float32)
    x[2, 0] = 0
    y = bc.distance_transform(x, squared=True)
    np.testing.assert_array_equal(y, np.arange(500) ** 2 + np.array([[4], [1], [0]]))


def test_nothing_to_reach_is_infinitely_far() -> None:
    y, indices = bc.distance_transform(np.stack([np.full((2, 3), np.nan), np.zeros((2, 3))]), return_indices=True)
    assert np.isinf(y[0]).all() and (indices[:, 0] == -1).all()
    assert (y[1] == 0).all() and (indices[:, 1] == np.indices((2, 3))).all()
    assert bc.distance_transform(np.zeros((4, 0))).shape == (4, 0)


def test_wrong_problems_are_refused() -> None:
    x = np.ones((3, 4))
    with pytest.raises(InvalidProblemError, match="sampling must be a finite number above 0, or 2 of them"):
        bc.distance_transform(x, (1.0, 2.0, 3.0))
    with pytest.raises(InvalidProblemError, match="sampling"):
        bc.distance_transform(x, 0.0)
    with pytest.raises(InvalidProblemError, match="squared is of the Euclidean distance"):
        bc.distance_transform(x, metric="cityblock", squared=True)
    with pytest.raises(InvalidProblemError, match="metric must be one of"):
        bc.distance_transform(x, metric="minkowski")


@pytest.mark.parametrize("metric", ["euclidean", "cityblock", "chessboard"])
@pytest.mark.parametrize("sampling", [1.0, (1.5, 0.25)])
def test_the_kernels_look_far(metric: str, sampling: Any) -> None:
    x = np.ones((3, 131, 5), np.float16)
    x[0, 100, 4] = x[1, 0, 0] = x[1, 63, 2] = x[1, 64, 2] = x[1, 130, 1] = 0
    desc = bc.DistanceTransformDescriptor(
        shape=x.shape, metric=metric, sampling=sampling, distance_element="float64", element="float16"
    )
    outputs = {"distance": np.zeros(x.shape), "indices": np.zeros((2, *x.shape), np.int32)}
    made = call(bc.DistanceTransformPlan, desc, outputs, x=x)
    for b in range(2):
        want, near = by_pairs(x[b], np.broadcast_to(sampling, 2), metric)
        np.testing.assert_allclose(made["distance"][b], np.sqrt(want) if metric == "euclidean" else want, rtol=1e-15)
        if metric != "chessboard":
            np.testing.assert_array_equal(made["indices"][:, b], near)
    assert np.isinf(made["distance"][2]).all() and (made["indices"][:, 2] == -1).all()
    again = bc.distance_transform(x, sampling, metric=metric, return_indices=True, **F64)
    np.testing.assert_array_equal(made["distance"], again[0])
    np.testing.assert_array_equal(made["indices"], again[1])
