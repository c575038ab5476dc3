"""Dropout: what is kept is what Philox says, channels share draws, the backward draws again, ends of p, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.random.philox import philox_uniform


def test_what_is_kept_is_what_philox_says():
    x = np.arange(1, 61, dtype=np.float32).reshape(3, 4, 5)
    y, mask = bc.dropout(x, 0.25, seed=7, offset=3, return_mask=True)
    keep = philox_uniform(7, 3, 60).reshape(x.shape) >= 0.25
    np.testing.assert_array_equal(mask, keep)
    np.testing.assert_array_equal(y, np.where(keep, x * np.float32(1 / 0.75), 0))
    assert (bc.dropout(x, 0.25, seed=8, offset=3) != y).any() and (bc.dropout(x, 0.25, seed=7, offset=4) != y).any()


def test_elements_are_numbered_by_their_logical_places():
    x = np.ones((6, 10))
    turned = np.ones((10, 6)).T
    np.testing.assert_array_equal(bc.dropout(x, seed=1), bc.dropout(turned, seed=1))


def test_axes_share_draws():
    x = np.ones((4, 3, 5, 2))
    y = bc.dropout(x, 0.5, seed=5, axis=(0, 2))
    keep = philox_uniform(5, 0, 20).reshape(4, 1, 5, 1) >= 0.5
    np.testing.assert_array_equal(y, np.broadcast_to(2.0 * keep, x.shape))
    channels = bc.feature_dropout(x, 0.5, seed=5)
    np.testing.assert_array_equal(channels, bc.dropout(x, 0.5, seed=5, axis=(0, 1)))
    assert (channels == channels[..., :1, :1]).all() and len(np.unique(channels)) == 2
    assert len(np.unique(bc.dropout(x, 0.5, seed=5, axis=()))) == 1  # one draw for all


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_as_many_as_p_says(p):
    mask = bc.dropout(np.ones(200_000, np.float16), p, seed=11, return_mask=True)[1]
    assert abs(mask.mean() - (1 - p)) < 5 * math.sqrt(p * (1 - p) / mask.size)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_alpha_dropout_keeps_mean_and_variance(p):
    x = np.random.default_rng(0).standard_normal(400_000)
    y = bc.alpha_dropout(x, p, seed=2)
    assert abs(y.mean()) < 0.02 and abs(y.var() - 1) < 0.04
    dropped = np.unique(y[~bc.dropout(x, p, seed=2, return_mask=True)[1]])
    limit = -1.7580993408473766
    scale = 1 / math.sqrt((1 - p) * (1 + p * limit**2))
    np.testing.assert_allclose(dropped, [scale * limit * (1 - p)], rtol=1e-12)
    whole = bc.feature_alpha_dropout(x.reshape(40, 100, 100), p, seed=2)
    again = bc.alpha_dropout(x.reshape(40, 100, 100), p, seed=2, axis=(0, 1))
    np.testing.assert_array_equal(whole, again)


def test_the_ends_of_p_and_inference():
    x = np.array([1.0, -0.0, np.nan, np.inf, -np.inf])
    for function in (bc.dropout, bc.alpha_dropout):
        np.testing.assert_array_equal(function(x, 1.0, seed=1), np.zeros(5))
        for y in (function(x, 0.0, seed=1), function(x, 0.7, training=False)):
            np.testing.assert_array_equal(y, x)
            assert np.signbit(y[1]) and y is not x
    kept = bc.dropout(x, 0.5, seed=1, return_mask=True)
    assert (kept[0][~kept[1]] == 0).all()  # of NaN and infinity, too


def test_backward_draws_again():
    rng = np.random.default_rng(3)
    x, dy = rng.standard_normal((2, 50, 7)).astype(np.float32)
    for alpha in (False, True):
        function = bc.alpha_dropout if alpha else bc.dropout
        _, mask = function(x, 0.3, seed=9, offset=1, axis=0, return_mask=True)
        dx = bc.dropout_backward(dy, p=0.3, seed=9, offset=1, axis=0, alpha=alpha)
        slope = (function(x + 1, 0.3, seed=9, offset=1, axis=0) - function(x, 0.3, seed=9, offset=1, axis=0)).max()
        np.testing.assert_allclose(dx, np.where(mask, dy * slope, 0), rtol=1e-5)


def test_seeds_may_be_arrays():
    x = np.ones(100)
    y = bc.dropout(x, seed=np.array(5), offset=np.array(2**40))
    np.testing.assert_array_equal(y, bc.dropout(x, seed=5, offset=2**40))


def test_refusals():
    x = np.ones(4)
    with pytest.raises(bc.InvalidProblemError, match="p must be >= 0 and <= 1"):
        bc.dropout(x, 1.5, seed=1)
    with pytest.raises(bc.InvalidProblemError, match="seed is None"):
        bc.dropout(x)
    with pytest.raises(bc.InvalidProblemError, match=r"feature_dropout needs x of shape \[batch, channel"):
        bc.feature_dropout(x, seed=1)
    with pytest.raises(bc.InvalidProblemError, match="seed must be an integer"):
        bc.dropout(x, seed=0.5)
    with pytest.raises(bc.InvalidProblemError, match="axis must be in"):
        bc.dropout(x, seed=1, axis=1)
    with pytest.raises(bc.UnsupportedError, match="int64 is not supported"):
        bc.dropout(np.arange(4), seed=1)
    with pytest.raises(bc.UnknownKeywordError, match="seed="):
        bc.dropout(x, generator=1)
