"""Products of jagged rows, bags permuted and dealt to ranks, against loops over bags."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

RNG = np.random.default_rng(17)
OFFSETS = np.array([0, 3, 3, 8, 9])


@pytest.mark.parametrize("index", ("int32", "int64"))
@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_products_of_jagged_rows(index: str, dtype: str) -> None:
    x, y, dense = (RNG.standard_normal(shape).astype(dtype) for shape in ((11, 5), (11, 3), (4, 5, 7)))
    offsets = OFFSETS.astype(index)
    made = bc.jagged_dense_bmm(x, offsets, dense)
    sums = bc.jagged_jagged_bmm(x, y, offsets)
    rows = [slice(a, b) for a, b in pairwise(OFFSETS)]
    for item, row in enumerate(rows):
        np.testing.assert_allclose(made[row], x[row] @ dense[item], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(sums[item], x[row].T @ y[row], rtol=1e-4, atol=1e-5)
    assert not made[9:].any() and made.dtype == sums.dtype == dtype and sums.shape == (4, 5, 3)


def test_gradients_of_jagged_products_are_those_of_loops() -> None:
    torch = pytest.importorskip("torch")
    shapes = ((9, 5), (9, 3), (4, 5, 7))
    leaves = [torch.from_numpy(RNG.standard_normal(shape)).requires_grad_() for shape in shapes]
    x, y, dense = leaves
    rows = list(pairwise(OFFSETS.tolist()))
    offsets = torch.from_numpy(OFFSETS)
    ours = (bc.jagged_dense_bmm(x, offsets, dense), bc.jagged_jagged_bmm(x, y, offsets))
    theirs = (
        torch.cat([x[a:b] @ dense[i] for i, (a, b) in enumerate(rows)]),
        torch.stack([x[a:b].T @ y[a:b] for a, b in rows]),
    )
    slopes = [
        torch.autograd.grad([(one * one.detach().sin()).sum() for one in made], leaves) for made in (ours, theirs)
    ]
    for mine, want in zip(*slopes, strict=True):
        torch.testing.assert_close(mine, want)


def test_what_jagged_products_refuse() -> None:
    x, dense = np.ones((4, 2)), np.ones((2, 2, 3))
    with pytest.raises(bc.InvalidProblemError, match=r"offsets must be \[2 \+ 1\], got shape \(4,\)"):
        bc.jagged_dense_bmm(x, np.array([0, 1, 2, 4]), dense)
    with pytest.raises(bc.InvalidProblemError, match="values must have 2 axes"):
        bc.jagged_dense_bmm(x[0], np.array([0, 1, 2]), dense)
    with pytest.raises(bc.InvalidProblemError, match=r"dense must be \[batch, d, n\]"):
        bc.jagged_dense_bmm(x, np.array([0, 1, 2]), dense[0])


def _bags(lengths: Any) -> list[list[int]]:
    """The places of the values of each bag."""
    ends = np.cumsum(lengths)
    return [list(range(end - n, end)) for end, n in zip(ends, lengths, strict=True)]


@pytest.mark.parametrize("features", ([2, 0, 1], [1], [0, 0, 2, 1], []))
@pytest.mark.parametrize("batch", (0, 1, 4))
@pytest.mark.parametrize("index", ("int32", "int64"))
def test_permuted_bags(features: list[int], batch: int, index: str) -> None:
    lengths = RNG.integers(0, 4, (3, batch)).astype(index)
    count = int(lengths.sum())
    values, weights = RNG.standard_normal((count, 2)), RNG.integers(-9, 9, count)
    bags = _bags(lengths.ravel())
    order = [i for t in features for b in range(batch) for i in bags[t * batch + b]]
    permute = np.array(features, index)
    for total in (len(order), len(order) + 3, max(len(order) - 2, 0)):
        found, moved, shares = bc.permute_2d_sparse_data(permute, lengths, values, weights, total=total)
        np.testing.assert_array_equal(found, lengths[features])
        assert found.dtype == index and moved.dtype == values.dtype and shares.dtype == weights.dtype
        kept = order[:total]
        np.testing.assert_array_equal(moved[: len(kept)], values[kept])
        np.testing.assert_array_equal(shares[: len(kept)], weights[kept])
        assert moved.shape == (total, 2) and not moved[len(kept) :].any() and not shares[len(kept) :].any()
    if sorted(features) == [0, 1, 2]:
        assert bc.permute_2d_sparse_data(permute, np.asfortranarray(lengths), values)[1].shape == values.shape


def test_bags_of_one_axis_and_their_gradient() -> None:
    torch = pytest.importorskip("torch")
    lengths, permute = torch.tensor([2, 0, 3]), torch.tensor([2, 0, 2], dtype=torch.int32)
    values = torch.arange(5.0).requires_grad_()
    found, moved = bc.permute_1d_sparse_data(permute, lengths, values, total=8)
    assert found.tolist() == [3, 2, 3] and moved.tolist() == [2, 3, 4, 0, 1, 2, 3, 4]
    (slope,) = torch.autograd.grad(moved, values, torch.arange(8.0))
    assert slope.tolist() == [3, 4, 0 + 5, 1 + 6, 2 + 7]


@pytest.mark.parametrize("index", ("int32", "int64"))
@pytest.mark.parametrize(("features", "batch", "ranks"), ((3, 4, 2), (1, 7, 5), (2, 1, 1), (2, 0, 3), (0, 0, 2)))
def test_bags_dealt_to_ranks(index: str, features: int, batch: int, ranks: int) -> None:
    lengths = RNG.integers(0, 5, features * batch).astype(index)
    count, sizes = int(lengths.sum()), RNG.integers(1, 6, features).astype(index)
    ids, weights = RNG.integers(-3, 30, count).astype(index), RNG.standard_normal((count, 2))
    dealt: list[list[list[int]]] = [[[] for _ in lengths] for _ in range(ranks)]
    for bag, places in enumerate(_bags(lengths)):
        size = int(sizes[bag // batch])
        for i in places:
            inside = 0 <= ids[i] < size * ranks
            dealt[ids[i] // size if inside else ids[i] % ranks][bag].append(i)
    order = [i for rank in dealt for bag in rank for i in bag]
    begins = np.concatenate([[places[0] if places else 0] * len(places) for places in _bags(lengths)] or [[]])
    found, own, shares, pos, back = bc.block_bucketize_sparse_features(
        lengths, ids, sizes, ranks, weights, bucketize_pos=True, sequence=True
    )
    np.testing.assert_array_equal(found, [len(bag) for rank in dealt for bag in rank])
    feature = np.repeat(np.arange(features * batch) // max(batch, 1), lengths)
    np.testing.assert_array_equal(own, (ids % np.take(sizes, feature) if count else ids)[order])
    np.testing.assert_array_equal(shares, weights[order])
    np.testing.assert_array_equal(pos, (np.arange(count) - begins)[order])
    np.testing.assert_array_equal(np.array(order, int)[back], np.arange(count))
    assert {x.dtype for x in (found, own, pos, back)} == {np.dtype(index)}
    plain = bc.block_bucketize_sparse_features(lengths, ids, sizes, ranks)
    np.testing.assert_array_equal(plain[1], own)
    assert len(plain) == 2


def test_ids_behind_the_last_bag_go_nowhere() -> None:
    found, own, back = bc.block_bucketize_sparse_features(
        np.array([1, 1]), np.array([4, 1, 7, 7]), np.array([3, 3]), 2, sequence=True
    )
    assert found.tolist() == [0, 1, 1, 0] and own.tolist() == [1, 1, 0, 0] and back.tolist() == [1, 0, -1, -1]


def test_the_gradient_of_dealt_weights() -> None:
    torch = pytest.importorskip("torch")
    weights = torch.randn(5, requires_grad=True)
    _, _, moved, back = bc.block_bucketize_sparse_features(
        torch.tensor([2, 3]), torch.tensor([4, 0, 1, 5, 2]), torch.tensor([3, 3]), 2, weights, sequence=True
    )
    (slope,) = torch.autograd.grad(moved, weights, torch.arange(5.0))
    torch.testing.assert_close(slope, torch.arange(5.0)[back])


def test_what_bags_refuse() -> None:
    ids = np.arange(3)
    with pytest.raises(bc.InvalidProblemError, match="permute must be whole numbers of 1 axis, got float64"):
        bc.permute_2d_sparse_data(np.ones(2), np.ones((2, 2), int), ids)
    with pytest.raises(bc.InvalidProblemError, match="weights must have 3 rows, one for each id, got shape"):
        bc.permute_2d_sparse_data(ids[:1], np.ones((2, 2), int), ids, np.ones(4))
    with pytest.raises(bc.InvalidProblemError, match=r"lengths must be \[features · batch\] of 2 features, got 3"):
        bc.block_bucketize_sparse_features(np.ones(3, int), ids, np.ones(2, int), 2)
    with pytest.raises(bc.InvalidProblemError, match="my_size"):
        bc.block_bucketize_sparse_features(np.ones(2, int), ids, np.ones(2, int), 0)
