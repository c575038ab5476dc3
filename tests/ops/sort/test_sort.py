"""Known orders: zeros, NaN, ties, windows of a row, and what selections give."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc

NAN = np.nan


def test_nan_stands_last_and_equal_elements_keep_their_order() -> None:
    x = np.array([2.0, NAN, -0.0, 0.0, -np.inf, NAN, 2.0], np.float32)
    y, indices = bc.sort(x)
    assert indices.tolist() == [4, 2, 3, 0, 6, 1, 5]
    assert np.signbit(y[1:3]).tolist() == [True, False]
    y, indices = bc.sort(x, descending=True)
    assert indices.tolist() == [1, 5, 0, 6, 2, 3, 4]


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.uint64, np.bool_])
def test_integers_over_their_whole_range(dtype: type) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 256, 64 * np.dtype(dtype).itemsize, np.uint8).view(np.uint8 if dtype is np.bool_ else dtype)
    x = (x % 2).astype(dtype) if dtype is np.bool_ else x
    assert (bc.sort(x)[0] == np.sort(x)).all()
    assert (bc.msort(x) == np.sort(x)).all()
    assert (bc.argsort(x) == np.argsort(x, kind="stable")).all()


def test_a_window_of_the_sorted_row() -> None:
    x = np.array([[5, 1, 4, 2, 3]], np.int32)
    y, indices = bc.sort(x, start=1, stop=3)
    assert y.tolist() == [[2, 3]] and indices.tolist() == [[3, 4]]
    with pytest.raises(bc.InvalidProblemError, match="0 <= start <= stop <= 5"):
        bc.sort(x, start=4, stop=6)


def test_kthvalue_counts_from_one() -> None:
    x = np.array([[5.0, 1.0, NAN, 1.0]])
    assert [a.tolist() for a in bc.kthvalue(x, 1)] == [[1.0], [1]]
    assert [a.tolist() for a in bc.kthvalue(x, 2, keepdims=True)] == [[[1.0]], [[3]]]
    assert np.isnan(bc.kthvalue(x, 4)[0]).all()
    for k in (0, 5, 1.5):
        with pytest.raises(bc.InvalidProblemError, match="k must be in"):
            bc.kthvalue(x, k)  # type: ignore[arg-type]


def test_topk_takes_the_lowest_indices_of_equal_elements() -> None:
    x = np.array([1, 3, 3, 0, 3], np.int16)
    assert [a.tolist() for a in bc.topk(x, 2)] == [[3, 3], [1, 2]]
    assert [a.tolist() for a in bc.topk(x, 2, largest=False)] == [[0, 1], [3, 0]]
    with pytest.raises(bc.InvalidProblemError, match="k must be at most 5"):
        bc.topk(x, 6)


def test_topk_of_more_than_a_block_finds_is_a_sort() -> None:
    x = np.random.default_rng(0).permutation(5000).astype(np.float32)
    y, indices = bc.topk(x, 3000)
    assert (y == np.arange(4999, 1999, -1)).all() and (x[indices] == y).all()


def test_searching_and_membership() -> None:
    row = np.array([1.0, 2.0, 2.0, NAN], np.float32)
    values = np.array([0.0, 2.0, 3.0, NAN], np.float32)
    assert bc.searchsorted(row, values).tolist() == [0, 1, 3, 3]
    assert bc.searchsorted(row, values, right=True).tolist() == [0, 3, 3, 4]
    assert bc.bucketize(values[:3], row[:3]).tolist() == [0, 1, 3]
    assert bc.digitize(values[:3], row[:3]).tolist() == np.digitize(values[:3], row[:3]).tolist()
    assert bc.isin(values, np.array([[3.0, NAN], [-0.0, 7.0]], np.float32)).tolist() == [True, False, True, False]


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 5), (0, 3), (4,), ()])
def test_the_inverse_has_the_shape_of_x(shape: tuple[int, ...]) -> None:
    torch = pytest.importorskip("torch")
    x = np.asarray(np.random.default_rng(1).integers(0, 5, shape))
    for function, of_torch in ((bc.unique, torch.unique), (bc.unique_consecutive, torch.unique_consecutive)):
        values, inverse, counts, number = function(x, return_inverse=True, return_counts=True)
        wanted = of_torch(torch.from_numpy(x), return_inverse=True, return_counts=True)
        for got, want in zip((values[: int(number)], inverse, counts[: int(number)]), wanted, strict=True):
            np.testing.assert_array_equal(got, want.numpy(), strict=True)
        out = (np.zeros_like(values), np.full(shape, -1), np.zeros_like(number))
        made = function(x, return_inverse=True, out=out)
        assert made[1] is out[1]
        np.testing.assert_array_equal(out[1], inverse)
        named = {"inverse": np.full(shape, -1)}
        assert function(x, return_inverse=True, return_index=True, out=named)[1] is named["inverse"]
        np.testing.assert_array_equal(named["inverse"], inverse)
    np.testing.assert_array_equal(
        bc.unique(x, return_inverse=True)[1], np.unique(x, return_inverse=True)[1], strict=True
    )


def test_unique_elements_fill_what_is_left() -> None:
    x = np.array([[3, 1], [3, 2]], np.int32)
    values, inverse, counts, first, number = bc.unique(x, return_inverse=True, return_counts=True, return_index=True)
    assert values.tolist() == [1, 2, 3, 1] and int(number) == 3
    assert inverse.tolist() == [[2, 0], [2, 1]] and counts.tolist() == [1, 1, 2, 0] and first.tolist() == [1, 3, 0, 1]
    values, number = bc.unique(x, size=2)
    assert values.tolist() == [1, 2] and int(number) == 3
    values, counts, number = bc.unique_consecutive(np.array([1, 1, 0, 1]), return_counts=True)
    assert values.tolist() == [1, 0, 1, 1] and counts.tolist() == [2, 1, 1, 0] and int(number) == 3
    with pytest.raises(bc.InvalidProblemError, match="without a copy"):
        bc.unique(np.zeros((4, 4))[:, :3])
