"""Neighbours, balls and samples of clouds against SciPy's trees and loops; cells of grids against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

spatial = pytest.importorskip("scipy.spatial")
RNG = np.random.default_rng(3)
CLOUD, QUERIES = RNG.standard_normal((2, 500, 3)), RNG.standard_normal((2, 60, 3))


@pytest.mark.parametrize("k", [1, 7, 100])
def test_nearest_points_are_a_trees(k: int) -> None:
    index, squares = bc.nearest_points(CLOUD, QUERIES, k, return_squares=True)
    for b in range(2):
        distance, want = spatial.cKDTree(CLOUD[b]).query(QUERIES[b], k=[*range(1, k + 1)])
        np.testing.assert_array_equal(index[b], want)
        np.testing.assert_allclose(squares[b], distance**2, rtol=1e-12)


def test_nearest_points_of_short_clouds() -> None:
    lengths = np.array([3, 0])
    index, squares = bc.nearest_points(CLOUD, None, 5, lengths=lengths, return_squares=True)
    assert (index[0, :3, 0] == np.arange(3)).all() and (np.sort(index[0, :, :3]) == np.arange(3)).all()
    assert (index[:, :, 3:] == -1).all() and (index[1] == -1).all() and np.isinf(squares[1]).all()
    with pytest.raises(InvalidProblemError, match="k must be at most 128"):
        bc.nearest_points(CLOUD, k=129)


def test_a_ball_has_the_first_points_within() -> None:
    index, counts = bc.ball_query(CLOUD, QUERIES, 0.8, 6, return_counts=True)
    for b in range(2):
        for q, near in enumerate(spatial.cKDTree(CLOUD[b]).query_ball_point(QUERIES[b], 0.8)):
            first = sorted(near)[:6]
            assert counts[b, q] == len(first)
            assert index[b, q].tolist() == first + [-1] * (6 - len(first))


def test_farthest_points_are_the_loop() -> None:
    starts = np.array([4, 499])
    index = bc.farthest_point_sample(CLOUD, 40, start=starts)
    for b in range(2):
        chosen = [int(starts[b])]
        while len(chosen) < 40:
            chosen.append(int(np.argmax(spatial.distance.cdist(CLOUD[b], CLOUD[b, chosen]).min(1))))
        assert index[b].tolist() == chosen
    few = bc.farthest_point_sample(CLOUD, 4, lengths=np.array([2, 0]))
    assert few[0].tolist() == [0, 1, 0, 0] and (few[1] == -1).all()


def test_cells_of_a_grid() -> None:
    cells = bc.grid_cells(CLOUD, [0.5, 1.0, 0.25], [-1.0, -2.0, -1.0], 1.0)
    at = np.floor((CLOUD - np.array([-1.0, -2.0, -1.0])) / np.array([0.5, 1.0, 0.25])).astype(int)
    extents = np.array([5, 4, 9])
    inside = ((at >= 0) & (at < extents)).all(-1)
    np.testing.assert_array_equal(cells, np.where(inside, (at[..., 0] * 4 + at[..., 1]) * 9 + at[..., 2], -1))
    assert 0 < inside.mean() < 1
    for wrong, what in (({"size": 0.0}, "size must be above 0"), ({"low": [0.0, 1.0]}, "low must be")):
        with pytest.raises(InvalidProblemError, match=what):
            bc.grid_cells(CLOUD, **({"size": 1.0, "low": 0.0, "high": 1.0} | wrong))


def test_chamfer_distances_and_their_gradients() -> None:
    torch = pytest.importorskip("torch")
    x, y = (torch.tensor(v, requires_grad=True) for v in (CLOUD[:, :40], QUERIES))
    square = (x[:, :, None] - y[:, None]).square().sum(-1)
    want = square.min(2).values.mean(1) + square.min(1).values.mean(1)
    got = bc.chamfer_distance(x, y)
    torch.testing.assert_close(got, want)
    for a, b in zip(*(torch.autograd.grad(v.sum(), (x, y)) for v in (got, want)), strict=True):
        torch.testing.assert_close(a, b)
    with pytest.raises(InvalidProblemError, match="x and y must be"):
        bc.chamfer_distance(CLOUD, QUERIES[..., :2])
