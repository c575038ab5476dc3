"""Clouds, graphs, spellings and decoding at the shapes that users have, on a GPU: the NumPy backend's results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

cupy = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu
RNG = np.random.default_rng(11)


def there(value: Any) -> Any:
    return cupy.asarray(value) if isinstance(value, np.ndarray) else value


def same(name: str, *args: Any, **given: Any) -> None:
    """A function on the device gives what it gives on the host, all in integers or of equal roundings."""
    function = getattr(bc, name)
    want = function(*args, **given)
    got = function(*map(there, args), **{key: there(value) for key, value in given.items()})
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, want)), strict=True):
        assert isinstance(a, cupy.ndarray)
        np.testing.assert_array_equal(cupy.asnumpy(a), b)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("dims", [2, 3, 6])
@pytest.mark.parametrize("count", [700, 5000])
def test_samples_of_clouds(dtype: str, dims: int, count: int) -> None:
    points = RNG.random((3, count, dims)).astype(dtype)
    same("farthest_point_sample", points, 60, start=np.array([0, 5, 699]), lengths=np.array([count, 600, 1]))


@pytest.mark.parametrize("k", [1, 5, 16, 20, 64, 100])
@pytest.mark.parametrize("dims", [3, 7])
def test_neighbours_of_many_points(k: int, dims: int) -> None:
    points, queries = RNG.random((2, 3001, dims), dtype=np.float32), RNG.random((2, 130, dims), dtype=np.float32)
    same("nearest_points", points, queries, k, return_squares=True)
    same("ball_query", points, queries, 0.2, k, return_counts=True)


def test_a_large_cloud_in_parts_has_the_neighbours_of_a_tree() -> None:
    spatial = pytest.importorskip("scipy.spatial")
    points = RNG.random((1, 20000, 3))
    index = cupy.asnumpy(bc.nearest_points(cupy.asarray(points), None, 16))
    np.testing.assert_array_equal(index[0], spatial.cKDTree(points[0]).query(points[0], k=16)[1])


@pytest.mark.parametrize("element", ["int32", "int64"])
def test_graphs(element: str) -> None:
    degrees = RNG.integers(0, 40, 500)
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(element)
    indices = RNG.integers(0, 500, int(indptr[-1])).astype(element)
    seeds = RNG.integers(-1, 501, 900).astype(element)
    for replace in (False, True):
        same("neighbor_sample", indptr, indices, seeds, k=12, replace=replace, seed=3, return_edge_ids=True)
    for p, q in ((1.0, 1.0), (0.5, 2.0), (1e9, 1e9)):
        same("random_walk", indptr, indices, seeds[:200], length=8, p=p, q=q, seed=4, return_edge_ids=True)


def test_spellings() -> None:
    lp = bc.log_softmax(RNG.standard_normal((200, 6, 30), dtype=np.float32))
    targets, lengths = RNG.integers(1, 30, (6, 40)), np.array([40, 30, 0, 7, 39, 40])
    steps = np.array([200, 150, 200, 0, 79, 20])
    same("ctc_align", lp, targets, steps, lengths, return_labels=True)
    same("ctc_greedy_decode", lp, steps)
    same("ctc_beam_decode", lp, steps, beam_width=32, nbest=5)
    same("edit_distance", RNG.integers(0, 9, (20, 333)), RNG.integers(0, 9, (20, 301)))
    same("edit_distance", RNG.integers(0, 9, (2, 1400)), RNG.integers(0, 9, (2, 77)), a_lengths=np.array([1400, 1200]))


def test_decoding() -> None:
    logits = RNG.standard_normal((16, 32000), dtype=np.float32)
    history = RNG.integers(0, 50, (16, 1500))
    same("repeat_penalties", logits, history, ngram=3, lengths=RNG.integers(0, 1501, 16))
    y = bc.repeat_penalties(*map(cupy.asarray, (logits, history)), multiplier=0.8, breakers=cupy.asarray([7]))
    want = bc.repeat_penalties(logits, history, multiplier=0.8, breakers=np.array([7]))
    np.testing.assert_allclose(cupy.asnumpy(y), want, rtol=1e-6)
    parents = np.stack([np.concatenate([[-1], RNG.integers(0, np.arange(1, 800))]) for _ in range(4)])
    scores = -np.round(RNG.random((4, 800)) * 64).astype(np.float32)
    same("draft_tree", RNG.integers(0, 99, 4), RNG.integers(0, 99, (4, 800)), parents, scores, nodes=61)
