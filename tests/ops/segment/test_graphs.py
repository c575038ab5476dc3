"""Sampled neighbours and random walks: what they may be, and how often, against the weights of their papers."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc

stats = pytest.importorskip("scipy.stats")
RNG = np.random.default_rng(0)
DEGREES = np.array([0, 1, 5, 30])
INDPTR = np.concatenate([[0], np.cumsum(DEGREES)])
INDICES = RNG.integers(0, 4, INDPTR[-1])


@pytest.mark.parametrize("replace", [False, True])
def test_samples_are_edges_of_their_seed(replace: bool) -> None:
    seeds = np.array([3, 0, 2, 1, 9, -1, 2])
    neighbors, edges, counts = bc.neighbor_sample(
        INDPTR, INDICES, seeds, k=5, replace=replace, seed=1, return_edge_ids=True, return_counts=True
    )
    want = {0: 0, 1: 5 if replace else 1, 2: 5, 3: 5}
    for s, node in enumerate(seeds.tolist()):
        n = want.get(node, 0)
        own = edges[s, :n]
        assert counts[s] == n and (edges[s, n:] == -1).all() and (neighbors[s, n:] == -1).all()
        assert n == 0 or ((own >= INDPTR[node]) & (own < INDPTR[node + 1])).all()
        assert replace or len(set(own.tolist())) == n
        np.testing.assert_array_equal(neighbors[s, :n], INDICES[own])


@pytest.mark.parametrize("replace", [False, True])
def test_every_edge_is_as_likely(replace: bool) -> None:
    _, edges = bc.neighbor_sample(INDPTR, INDICES, np.full(4000, 3), k=4, replace=replace, seed=2, return_edge_ids=True)
    counts = np.bincount(edges.ravel() - INDPTR[3], minlength=30)
    assert stats.chisquare(counts).pvalue > 1e-6


def test_walks_go_along_edges_and_stay_without() -> None:
    path, edges = bc.random_walk(
        INDPTR, INDICES, np.arange(-1, 5), length=9, p=0.5, q=3.0, seed=4, return_edge_ids=True
    )
    for w in range(6):
        for t in range(9):
            node, edge = path[w, t], edges[w, t]
            if 0 <= node < 4 and DEGREES[node]:
                assert INDPTR[node] <= edge < INDPTR[node + 1] and path[w, t + 1] == INDICES[edge]
            else:
                assert edge == -1 and path[w, t + 1] == node


@pytest.mark.parametrize(("p", "q"), [(1.0, 1.0), (0.25, 2.0), (4.0, 0.5)])
def test_weights_of_node2vec(p: float, q: float) -> None:
    """From 0 to 1, and from there back, to 2, which 0 knows, or to 3, which it does not."""
    indptr, indices = np.array([0, 2, 5, 6, 7]), np.array([1, 2, 0, 2, 3, 1, 1])
    path = bc.random_walk(indptr, indices, np.zeros(9000, np.int64), length=2, p=p, q=q, seed=5)
    there = path[path[:, 1] == 1]
    weights = np.array([1 / p, 1.0, 1 / q])
    counts = np.array([(there[:, 2] == node).sum() for node in (0, 2, 3)])
    keep = weights / weights.sum() * counts.sum() > 5
    assert stats.chisquare(counts[keep], weights[keep] / weights[keep].sum() * counts[keep].sum()).pvalue > 1e-6


def test_where_no_try_is_taken_all_weights_count() -> None:
    """Edges whose weights are far below that of a neighbour's neighbour, of which there is none."""
    indptr, indices = np.array([0, 1, 3, 3, 4]), np.array([1, 0, 3, 1])
    path = bc.random_walk(indptr, indices, np.zeros(3000, np.int64), length=2, p=2e9, q=1e9, seed=6)
    back = int((path[:, 2] == 0).sum())
    assert stats.binomtest(back, 3000, 1 / 3).pvalue > 1e-6
