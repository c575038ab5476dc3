"""Sorts and the best of segments against NumPy's of each, and the best of rows of which a part counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

RNG = np.random.default_rng(5)
OFFSETS = np.array([0, 3, 3, 40, 41], np.int32)


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint64])
@pytest.mark.parametrize("down", [False, True])
def test_segments_in_order(dtype: Any, down: bool) -> None:
    x = RNG.integers(0, 9, 50).astype(dtype)
    y, indices = bc.segment_sort(x, OFFSETS, down)
    best, places = bc.segment_topk(x, OFFSETS, 5, down)
    for s, (a, b) in enumerate(zip([*OFFSETS], [*OFFSETS[1:], 50], strict=True)):
        keys = x[a:b].astype(np.int64)
        order = a + np.argsort(-keys if down else keys, kind="stable")
        np.testing.assert_array_equal(indices[a:b], order)
        np.testing.assert_array_equal(y[a:b], x[order])
        if s < 4:
            n = min(5, b - a)
            np.testing.assert_array_equal(places[s], [*order[:n], *[-1] * (5 - n)])
            np.testing.assert_array_equal(best[s], [*x[order[:n]], *[0] * (5 - n)])
    outs = np.zeros(50, dtype), np.zeros(50, np.int64)
    assert all(a is b for a, b in zip(bc.segment_sort(x, OFFSETS, down, out=outs), outs, strict=True))
    np.testing.assert_array_equal(outs[1], indices)


def test_nan_and_none() -> None:
    y, indices = bc.segment_sort(np.float32([np.nan, 1, np.nan, 0]), np.array([0, 2, 4]))
    np.testing.assert_array_equal(y, np.float32([1, np.nan, 0, np.nan]))
    y, indices = bc.segment_sort(np.zeros(0, np.float32), np.array([0, 0]))
    assert y.shape == indices.shape == (0,)
    assert bc.segment_topk(np.ones(3), np.array([0, 3]), 0)[0].shape == (1, 0)
    with pytest.raises(InvalidProblemError, match="vector"):
        bc.segment_sort(np.ones((2, 2)), OFFSETS)


def test_gradients() -> None:
    torch = pytest.importorskip("torch")
    x = torch.randperm(12).double().requires_grad_()
    offsets = torch.tensor([0, 3, 3, 9])
    assert torch.autograd.gradcheck(lambda x: bc.segment_sort(x, offsets)[0], (x,))
    assert torch.autograd.gradcheck(lambda x: bc.segment_topk(x, offsets, 4)[0], (x,))
    rows = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: bc.topk_varlen(x, torch.tensor([6, 2]), 2)[0], (rows,))


def test_rows_of_which_a_part_counts() -> None:
    x, lengths = RNG.standard_normal((4, 9)).astype(np.float32), np.array([9, 4, 1, 0], np.int32)
    x[1, 0], x[0, 3] = -np.inf, np.nan
    y, places = bc.topk_varlen(x, lengths, 4)
    moved = bc.topk_varlen(x, lengths, 4, offsets=np.array([10, 20, 30, 40]))[1]
    pages = RNG.permutation(20).reshape(4, 5).astype(np.int32)
    held = bc.topk_varlen(x, lengths, 4, page_table=pages, page_size=2)[1]
    for r, n in enumerate(lengths):
        order = np.argsort(np.where(np.isnan(x[r, :n]), -np.inf, -x[r, :n]), kind="stable")[:4]
        rest = [-1] * (4 - len(order))
        np.testing.assert_array_equal(places[r], [*order, *rest])
        np.testing.assert_array_equal(y[r], [*x[r, order], *[-np.inf] * len(rest)])
        np.testing.assert_array_equal(moved[r], [*(order + 10 * (r + 1)), *rest])
        np.testing.assert_array_equal(held[r], [*(pages[r, order // 2] * 2 + order % 2), *rest])
    with pytest.raises(InvalidProblemError, match="in the place of offsets"):
        bc.topk_varlen(x, lengths, 4, offsets=lengths, page_table=pages)
    with pytest.raises(InvalidProblemError, match="lengths must be int64"):
        bc.topk_varlen(x, lengths.astype(np.float32), 4)


def test_pages_beyond_31_bits() -> None:
    pages = np.array([[2**30]], np.int32)
    held = bc.topk_varlen(np.ones((1, 3)), np.array([3]), 3, page_table=pages, page_size=16)[1]
    assert held.tolist() == [[2**34, 2**34 + 1, 2**34 + 2]]
