"""Masked, scaled and wider softmax, Gumbel softmax, sparsemax and entmax15: definitions, identities, edges."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from call_emulated import call

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.random.philox import philox_uniform

RNG = np.random.default_rng(3)


def soft(z: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(z - z.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_masks_bias_and_scale_broadcast(axis: int) -> None:
    x, bias = RNG.standard_normal((3, 4, 5)), RNG.standard_normal((4, 1))
    mask = RNG.random((3, 1, 5)) < 0.7
    mask[:, :, 0] = True
    mask[0] = True
    z = np.where(mask, 0.5 * x + bias, -np.inf)
    seen = ~np.isneginf(z.max(axis, keepdims=True))
    with np.errstate(invalid="ignore"):
        expected = np.where(seen, soft(z, axis), np.nan)
    y = bc.masked_softmax(x, mask, bias, axis=axis, scale=0.5)
    np.testing.assert_allclose(y, expected, rtol=1e-14)
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(
            bc.masked_log_softmax(x, mask, bias, axis=axis, scale=0.5), np.log(expected), rtol=1e-12, atol=1e-14
        )
    safe = bc.masked_softmax(x, mask, bias, axis=axis, scale=0.5, safe=True)
    np.testing.assert_allclose(safe, np.where(seen, expected, 0), rtol=1e-14)


@pytest.mark.parametrize("diagonal", [-1, 0, 2])
def test_causal_is_a_triangle(diagonal: int) -> None:
    x = RNG.standard_normal((2, 4, 6))
    mask = np.tril(np.ones((4, 6), bool), diagonal)
    y = bc.masked_softmax(x, causal=True, diagonal=diagonal, safe=True)
    np.testing.assert_array_equal(y, bc.masked_softmax(x, mask, safe=True))
    with pytest.raises(InvalidProblemError, match="last of two axes"):
        bc.masked_softmax(x, axis=0, causal=True)


def test_the_gradient_of_what_is_left_out_is_zero() -> None:
    x, mask = RNG.standard_normal((5, 7)), RNG.random((5, 7)) < 0.6
    mask[0] = False
    dy = RNG.standard_normal((5, 7))
    for log, function in ((False, bc.masked_softmax), (True, bc.masked_log_softmax)):
        y = function(x, mask, safe=True)
        dx = bc.masked_softmax_backward(dy, y, mask, log=log, safe=True, scale=1.0)
        assert not dx[~mask].any() and np.isfinite(dx).all()


@pytest.mark.parametrize("causal", [False, True])
def test_what_is_left_out_has_a_gradient_of_0_in_rows_of_nan(causal: bool) -> None:
    """As that of masked_fill: a row of which nothing is left is NaN, and no NaN comes back from it."""
    x, mask = RNG.standard_normal((5, 7)), RNG.random((5, 7)) < 0.6
    mask[2], mask[3, 0] = False, True
    left_out = ~(mask & np.tril(np.ones((5, 7), bool), -1)) if causal else ~mask
    for log, function in ((False, bc.masked_softmax), (True, bc.masked_log_softmax)):
        more = {"causal": causal, "diagonal": -1 if causal else 0}
        y = function(x, mask, **more)
        assert np.isnan(y[2]).all()
        dy = RNG.standard_normal(y.shape)
        dx = bc.masked_softmax_backward(dy, y, mask, log=log, **more)
        assert not dx[left_out].any() and np.isfinite(dx).all()
        found = np.full_like(dx, 7)
        desc = bc.MaskedSoftmaxDescriptor(shape=(5, 7), log=log, element="float64", **more)
        call(bc.MaskedSoftmaxBackwardPlan, desc, {"dx": found}, dy=dy, y=y, mask=mask, scale=1.0)
        np.testing.assert_allclose(found, dx, rtol=1e-12, atol=1e-15)


def test_dtypes_are_torchs() -> None:
    """A cast first; a wider result of 16-bit rows is in float32 from the first step on."""
    x = RNG.standard_normal((4, 9)).astype(np.float16)
    y = bc.softmax(x, dtype="float32")
    assert y.dtype == np.float32
    np.testing.assert_allclose(y, soft(x.astype(np.float64)), rtol=1e-6)
    assert bc.log_softmax(x, dtype="float64").dtype == np.float64
    whole = np.arange(12).reshape(3, 4)
    np.testing.assert_allclose(bc.softmax(whole, dtype=np.float64), soft(whole.astype(np.float64)), rtol=1e-15)
    assert bc.softmin(x, dtype="bfloat16").dtype == ml_dtypes.bfloat16
    with pytest.raises(UnsupportedError, match="write softmax\\(x, dtype='float32'\\)"):
        bc.softmax(whole)
    with pytest.raises(UnsupportedError, match="dtype int32"):
        bc.softmax(x, dtype="int32")


def test_temperature_and_softmin() -> None:
    x = RNG.standard_normal((4, 9))
    np.testing.assert_allclose(bc.softmax(x, temperature=2.0, axis=0), soft(x / 2, 0), rtol=1e-14)
    np.testing.assert_array_equal(bc.softmin(x), bc.softmax(-x))
    with pytest.raises(InvalidProblemError, match="temperature must be a number > 0"):
        bc.softmax(x, temperature=0.0)


def test_gumbel_softmax_is_its_formula() -> None:
    x = RNG.standard_normal((3, 8))
    u = philox_uniform(11, 4, 24).astype(np.float64).reshape(3, 8) + 2.0**-25
    expected = soft((x - np.log(-np.log(u))) / 0.7)
    y = bc.gumbel_softmax(x, tau=0.7, seed=11, offset=4)
    np.testing.assert_allclose(y, expected, rtol=1e-12)
    hard, kept = bc.gumbel_softmax(x, tau=0.7, seed=11, offset=4, hard=True, return_soft=True)
    np.testing.assert_array_equal(kept, y)
    np.testing.assert_array_equal(hard, np.eye(8)[y.argmax(-1)])


def test_the_noise_is_of_the_element_whatever_the_axis() -> None:
    x = RNG.standard_normal((3, 8))
    x0 = bc.gumbel_softmax(x, axis=0, seed=5)
    u = philox_uniform(5, 0, 24).astype(np.float64).reshape(3, 8) + 2.0**-25
    np.testing.assert_allclose(x0, soft(x - np.log(-np.log(u)), 0), rtol=1e-12)


def test_hard_samples_have_the_probabilities_of_softmax() -> None:
    x = np.broadcast_to(np.array([0.0, 1.0, -1.0]), (20000, 3))
    share = bc.gumbel_softmax(x, seed=1, hard=True).mean(0)
    np.testing.assert_allclose(share, soft(x[0]), atol=0.012)


def test_sparsemax_projects() -> None:
    """The nearest point of the simplex: no other is nearer; a shift changes nothing; known values."""
    np.testing.assert_allclose(bc.sparsemax(np.array([1.0, 0.8, 0.1])), [0.6, 0.4, 0.0], atol=1e-15)
    x = 2 * RNG.standard_normal((50, 12))
    y = bc.sparsemax(x)
    np.testing.assert_allclose(y.sum(-1), 1, rtol=1e-14)
    np.testing.assert_allclose(bc.sparsemax(x + 3), y, atol=1e-14)
    others = RNG.dirichlet(np.ones(12), 200)
    assert (((x - y) ** 2).sum(-1)[:, None] <= ((x[:, None] - others) ** 2).sum(-1)).all()


def test_entmax15_satisfies_its_condition() -> None:
    """y² ∝ nothing: √y + t = x / 2 on the support, and x / 2 <= t off it."""
    x = 3 * RNG.standard_normal((50, 30))
    y = bc.entmax15(x)
    np.testing.assert_allclose(y.sum(-1), 1, rtol=1e-13)
    t = x / 2 - np.sqrt(y)
    top = np.take_along_axis(t, x.argmax(-1)[:, None], -1)
    inside = y > 0
    np.testing.assert_allclose(np.where(inside, t - top, 0), 0, atol=1e-12)
    assert (np.where(inside, -1, x / 2 - top) <= 1e-12).all() and (~inside).any()


@pytest.mark.parametrize("name", ["sparsemax", "entmax15"])
def test_rows_without_a_finite_maximum_are_nan(name: str) -> None:
    inf = np.inf
    x = np.array([[-inf, -inf], [np.nan, 0], [inf, 0], [-inf, 0]])
    y = getattr(bc, name)(x)
    assert np.isnan(y[:3]).all()
    np.testing.assert_array_equal(y[3], [0, 1])


@pytest.mark.parametrize("name", ["sparsemax", "entmax15"])
def test_equal_elements_share(name: str) -> None:
    np.testing.assert_allclose(getattr(bc, name)(np.full((2, 1000), 7.0)), 1e-3, rtol=1e-12)
    assert getattr(bc, name)(np.zeros((3, 0))).shape == (3, 0)
    assert getattr(bc, name)(np.array(4.0)) == 1


def test_straight_through_in_torch() -> None:
    """The gradient of a hard sample is that of the soft one."""
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    x = torch.from_numpy(RNG.standard_normal((3, 8)))
    weights = torch.from_numpy(RNG.standard_normal((3, 8)))
    found = []
    for hard in (False, True):
        leaf = x.clone().requires_grad_()
        (bt.gumbel_softmax(leaf, seed=2, hard=hard, tau=0.5) * weights).sum().backward()
        found.append(leaf.grad)
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
