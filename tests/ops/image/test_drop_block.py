"""DropBlock against torchvision's formula with the draws made known, its share of places, and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

torch = pytest.importorskip("torch")
FUNCTIONS = {2: bc.drop_block2d, 3: bc.drop_block3d}


def by_hand(x: np.ndarray, p: float, block: int, eps: float, **drawn: Any) -> np.ndarray:
    """Every begun block by itself."""
    space = x.shape[2:]
    block = min(block, *space)
    starts = [n - block + 1 for n in space]
    chance = p * np.prod(space) / (block ** len(space) * np.prod(starts))
    begun = bc.bernoulli(float(chance), shape=(*x.shape[:2], *starts), element="uint8", like=x, **drawn)
    keep = np.ones(x.shape, bool)
    for n, c, *at in np.argwhere(begun):
        keep[(n, c, *[slice(a, a + block) for a in at])] = False
    return np.where(keep, x * (x.size / (eps + keep.sum())), 0)


@pytest.mark.parametrize("spatial", [2, 3])
@pytest.mark.parametrize("block", [1, 2, 3, 5, 9])
def test_blocks_are_dropped_where_they_begin(spatial: int, block: int) -> None:
    x = np.random.default_rng(block).standard_normal((2, 3, 11, 7, 6)[: spatial + 2])
    y = FUNCTIONS[spatial](x, 0.3, block, seed=5, offset=2, eps=1e-3)
    np.testing.assert_allclose(y, by_hand(x, 0.3, block, 1e-3, seed=5, offset=2), rtol=1e-14)
    assert (y == 0).any() and (y != 0).any()


def test_odd_blocks_are_those_that_torchvision_centres() -> None:
    """torchvision pads the draws to the image and takes the maximum about each place."""
    x, block = torch.ones(4, 5, 20, 23, dtype=torch.float64), 5
    begun = bc.bernoulli(0.2 * 20 * 23 / (25 * 16 * 19), shape=(4, 5, 16, 19), seed=3, element="float64", like=x)
    noise = torch.nn.functional.pad(begun, [block // 2] * 4)
    keep = 1 - torch.nn.functional.max_pool2d(noise, block, 1, block // 2)
    want = x * keep * (keep.numel() / (1e-6 + keep.sum()))
    torch.testing.assert_close(bc.drop_block2d(x, 0.2, block, seed=3), want)


def test_the_mean_stays_and_the_share_is_near() -> None:
    y = bc.drop_block2d(np.ones((8, 16, 40, 40), np.float32), 0.1, 5, seed=1)
    assert abs(y.mean() - 1) < 1e-5
    assert 0.07 < (y == 0).mean() < 0.1  # blocks overlap


def test_the_gradient_is_dropped_alike() -> None:
    for kind, tolerance in ((torch.float64, 1e-14), (torch.bfloat16, 0)):
        x = torch.randn(2, 3, 8, 9, dtype=kind, requires_grad=True)
        y = bc.drop_block2d(x, 0.4, 3, seed=7)
        (dx,) = torch.autograd.grad(y, x, torch.ones_like(y))
        factor = bc.drop_block2d(torch.ones(2, 3, 8, 9, dtype=kind), 0.4, 3, seed=7)
        torch.testing.assert_close(dx, factor, rtol=tolerance, atol=0)
        assert y.dtype == dx.dtype == kind


def test_what_is_dropped_is_0_and_all_may_be() -> None:
    x = np.full((1, 2, 3, 4), np.nan)
    assert not bc.drop_block2d(x, 1.0, 1, seed=1).any()
    np.testing.assert_array_equal(bc.drop_block2d(x, 0.9, training=False), x)
    np.testing.assert_array_equal(bc.drop_block2d(x, 0.0), x)
    assert bc.drop_block3d(np.zeros((0, 2, 3, 4, 5)), 0.5, seed=1).shape == (0, 2, 3, 4, 5)


def test_wrong_problems_are_refused() -> None:
    for call, words in (
        (lambda: bc.drop_block2d(np.zeros((2, 3, 4)), 0.5, seed=1), "drop_block2d needs x of shape"),
        (lambda: bc.drop_block3d(np.zeros((2, 3, 0, 4, 4)), 0.5, seed=1), "1 place or more"),
        (lambda: bc.drop_block2d(np.zeros((1, 1, 4, 4)), 1.5, seed=1), "p must be from 0 to 1"),
        (lambda: bc.drop_block2d(np.zeros((1, 1, 4, 4)), 0.5, 0, seed=1), "block_size"),
        (lambda: bc.drop_block2d(np.zeros((1, 1, 4, 4)), 0.5, eps=-1.0, seed=1), "eps must be"),
        (lambda: bc.drop_block2d(np.zeros((1, 1, 4, 4))), "drop_block2d: seed is None"),
    ):
        with pytest.raises(InvalidProblemError, match=words):
            call()
