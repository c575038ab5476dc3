"""rrelu and stochastic_cast: their distributions, their gradients, equal bits of equal calls."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from call_placed import on

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

TARGETS = {
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


def test_slopes_are_uniform(place):
    x = np.concatenate([np.full(40000, -1.0), np.full(10, 2.0), [0.0, np.nan]]).astype(np.float32)
    y = on(place, bc.rrelu, x, seed=7)
    slopes = -y[:40000]
    assert slopes.min() >= 1 / 8 and slopes.max() < 1 / 3
    fractions = (slopes.astype(float) - 1 / 8) / (1 / 3 - 1 / 8)
    assert abs(fractions.mean() - 0.5) < 5 * np.sqrt(1 / 12 / 40000)
    assert abs((fractions**2).mean() - 1 / 3) < 0.01
    np.testing.assert_array_equal(y[40000:40011], x[40000:40011])
    dx = on(place, bc.rrelu_backward, np.ones_like(x), x, seed=7)
    np.testing.assert_array_equal(dx[:40000], slopes)
    np.testing.assert_array_equal(dx[40000:40010], 1)
    assert 1 / 8 <= dx[40010] < 1 / 3 and dx[40011] == 1  # at 0 the slope, as in PyTorch
    np.testing.assert_array_equal(on(place, bc.rrelu, x, seed=7), y)
    assert (on(place, bc.rrelu, x, seed=7, offset=1)[:100] != y[:100]).any()


def test_rrelu_out_of_training_has_the_mean_slope():
    x, dy = np.random.default_rng(0).standard_normal((2, 50))
    slope = (1 / 8 + 1 / 3) / 2
    np.testing.assert_array_equal(bc.rrelu(x), np.where(x > 0, x, x * slope))
    np.testing.assert_array_equal(bc.rrelu_backward(dy, x, 0.0, 0.5), np.where(x > 0, dy, dy * 0.25))
    with pytest.raises(InvalidProblemError, match="seed is None"):
        bc.rrelu(x, training=True)
    with pytest.raises(InvalidProblemError, match=r"rrelu needs lower <= upper, got 0\.5 and 0\.25"):
        bc.rrelu(x, 0.5, 0.25, training=True, seed=1)


def held(y, name):
    return (y.view(TARGETS[name]) if y.dtype == np.uint8 else y).astype(np.float64)


def neighbours(v, name):
    """The numbers of the target on both sides of v: all of them are known."""
    dtype = np.dtype(TARGETS[name])
    every = np.arange(2 ** (8 * dtype.itemsize)).astype(f"u{dtype.itemsize}").view(dtype).astype(np.float64)
    every = np.unique(every[np.isfinite(every)])
    at = np.searchsorted(every, v, side="right")
    return every[at - 1], every[np.minimum(at, every.size - 1)]


@pytest.mark.parametrize("name", TARGETS)
def test_the_mean_is_kept(name):
    """Of 40000 roundings of each number the mean lies within 6 of its deviations of the number itself."""
    rng, count = np.random.default_rng(1), 40000
    v = (rng.standard_normal(40) * np.exp(rng.uniform(-11, 4, 40))).astype(np.float32)
    y = held(bc.stochastic_cast(np.repeat(v[:, None], count, 1), name, seed=3), name)
    low, high = neighbours(v.astype(float), name)
    assert ((y == low[:, None]) | (y == high[:, None])).all()
    part = (v - low) / (high - low)
    deviation = (high - low) * np.sqrt(part * (1 - part) / count)
    assert (np.abs(y.mean(1) - v) <= 6 * deviation + 1e-30).all()
    assert ((y == high[:, None]).any(1) == (part > 0)).mean() > 0.9  # both ways are taken


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_numbers_of_the_target_stay(name, source, place):
    dtype = np.dtype(TARGETS[name])
    every = np.arange(2 ** (8 * dtype.itemsize)).astype(f"u{dtype.itemsize}").view(dtype)
    with np.errstate(all="ignore"):
        wide = every.astype(source)
        got = held(on(place, bc.stochastic_cast, wide, to_element=name, seed=5), name)
        np.testing.assert_array_equal(got, wide.astype(np.float64))
        finite = np.isfinite(wide)
        np.testing.assert_array_equal(np.signbit(got[finite]), np.signbit(wide[finite]))


def test_overflow():
    x = np.array([1e30, -1e30, np.inf, 460.0, 1e-30], np.float32)
    got = held(bc.stochastic_cast(x, "float8_e4m3fn", seed=2), "float8_e4m3fn")
    assert np.isnan(got[:3]).all() and (np.isnan(got[3]) or got[3] == 448)
    got = held(bc.stochastic_cast(x, "float8_e4m3fn", seed=2, saturate=True), "float8_e4m3fn")
    np.testing.assert_array_equal(got[:4], [448, -448, 448, 448])
    np.testing.assert_array_equal(
        bc.stochastic_cast(x[:3], "float16", seed=2), np.array([np.inf, -np.inf, np.inf], "f2")
    )
    many = held(bc.stochastic_cast(np.full(20000, 460.0, np.float32), "float8_e4m3fn", seed=9), "float8_e4m3fn")
    assert abs(np.isnan(many).mean() - 12 / 32) < 0.02  # 460 is 12 / 32 of the way from 448 to 480, which is none


def test_equal_calls_have_equal_bits(place):
    x = np.random.default_rng(4).standard_normal((31, 9)).astype(np.float32)
    first = on(place, bc.stochastic_cast, x, to_element="bfloat16", seed=11, offset=3)
    np.testing.assert_array_equal(first, on(place, bc.stochastic_cast, x, to_element="bfloat16", seed=11, offset=3))
    np.testing.assert_array_equal(first, bc.stochastic_cast(x, "bfloat16", seed=11, offset=3))
    turned = bc.stochastic_cast(np.asfortranarray(x), "bfloat16", seed=11, offset=3)
    np.testing.assert_array_equal(first, turned)
    assert (first != on(place, bc.stochastic_cast, x, to_element="bfloat16", seed=11, offset=4)).any()


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_dropout_of_channels(spatial):
    function = getattr(bc, f"dropout{spatial}d")
    x = np.ones((40, 30, *(3,) * spatial), np.float32)
    y = function(x, 0.25, seed=1)
    channels = y.reshape(40, 30, -1)
    assert (channels.min(-1) == channels.max(-1)).all() and 0.2 < (channels[..., 0] == 0).mean() < 0.3
    np.testing.assert_array_equal(y, bc.feature_dropout(x, 0.25, seed=1))
    alone = function(x[0], 0.25, seed=1).reshape(30, -1)
    assert (alone.min(-1) == alone.max(-1)).all() and (alone == 0).any() and alone.any()
    np.testing.assert_array_equal(function(x, training=False), x)
    with pytest.raises(InvalidProblemError, match=f"dropout{spatial}d needs x of {spatial + 1} or {spatial + 2} axes"):
        function(np.ones(3), seed=1)
