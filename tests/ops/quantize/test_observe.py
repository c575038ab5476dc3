"""Fake quantisation by a running range: what torch makes over some steps, the mask, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc


def draw(seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((6, 9, 5)) + (1, -6, 2)[seed]).astype(np.float32)


def fresh(count: int) -> list[np.ndarray]:
    low = np.full(count, np.inf, np.float32)
    return [low, -low, np.ones(count, np.float32), np.zeros(count, np.int32)]


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("low", "high"), [(0, 255), (-128, 127)])
@pytest.mark.parametrize("rows", [False, True])
def test_it_is_torchs(symmetric: bool, low: int, high: int, rows: bool) -> None:
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    found: list[list[Any]] = []
    for function, on in ((torch.fused_moving_avg_obs_fake_quant, torch.ones(1, dtype=torch.int64)), (bt, True)):
        function = getattr(function, "fused_moving_avg_obs_fake_quant", function)
        held = [torch.from_numpy(a) for a in fresh(6 if rows else 1)]
        made: list[Any] = []
        for step in range(3):
            x = torch.from_numpy(draw(step)).requires_grad_()
            y = function(x, on, on, *held, 0.3, low, high, 0, rows, symmetric)
            y.backward(torch.from_numpy(draw(2 - step)))
            made += [y.detach(), x.grad, *(a.clone() for a in held)]
        found.append(made)
    for want, got in zip(*found, strict=True):
        np.testing.assert_array_equal(got, want)


def test_other_axes_are_views() -> None:
    x, a, b = draw(0), fresh(9), fresh(9)
    y = bc.fused_moving_avg_obs_fake_quant(x, True, True, *a, 0.5, 0, 255, -2, True)
    want = bc.fused_moving_avg_obs_fake_quant(np.swapaxes(x, 0, 1), True, True, *b, 0.5, 0, 255, 0, True)
    np.testing.assert_array_equal(y, np.swapaxes(want, 0, 1))
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_off_stays_as_it_is() -> None:
    x, held = draw(0), fresh(1)
    before = [a.copy() for a in held]
    y = bc.fused_moving_avg_obs_fake_quant(x, False, False, *held, 0.5, 0, 255, 0)
    np.testing.assert_array_equal(y, x)
    held[2][:], before[2][:] = 0.02, 0.02
    y, mask = bc.fused_moving_avg_obs_fake_quant(x, False, True, *held, 0.5, 0, 127, 0, return_mask=True)
    np.testing.assert_array_equal(y, bc.fake_quantize(x, 0.02, 0, quant_min=0, quant_max=127))
    q = np.rint(x / np.float32(0.02))
    np.testing.assert_array_equal(mask, (q >= 0) & (q <= 127))
    assert 0 < mask.sum() < mask.size
    for one, other in zip(held, before, strict=True):
        np.testing.assert_array_equal(one, other)


def test_masks_of_any_layout_say_where_the_gradient_is() -> None:
    x = draw(1)[:, ::2]
    out = np.zeros((6, 5, 5), np.float32), np.zeros((6, 5, 10), bool)[:, :, ::2]
    bc.fake_quantize(x, np.full((6, 1, 1), 0.05, np.float32), return_mask=True, out=out)
    dx = bc.fake_quantize_backward(np.ones_like(x), x, np.full((6, 1, 1), 0.05, np.float32))
    np.testing.assert_array_equal(out[1], dx == 1)


def test_what_does_not_go_together_is_refused() -> None:
    x = draw(0)
    call = bc.fused_moving_avg_obs_fake_quant
    with pytest.raises(bc.InvalidProblemError, match="observer_on must be True or False"):
        call(x, np.ones(1, np.int64), True, *fresh(1), 0.1, 0, 255, 0)
    with pytest.raises(bc.InvalidProblemError, match=r"running_min must have shape \(9,\)"):
        call(x, True, True, *fresh(6), 0.1, 0, 255, 1, True)
    with pytest.raises(bc.InvalidProblemError, match="at least 2 apart"):
        call(x, True, True, *fresh(1), 0.1, 0, 1, 0, False, True)
    with pytest.raises(bc.InvalidProblemError, match="must have elements"):
        call(x[:0], True, True, *fresh(1), 0.1, 0, 255, 0)
    with pytest.raises(bc.InvalidProblemError, match="no mask"):
        call(x, True, False, *fresh(1), 0.1, 0, 255, 0, return_mask=True)
    jax = pytest.importorskip("jax")
    with pytest.raises(bc.UnsupportedError, match="immutable"):
        call(jax.numpy.asarray(x), True, True, *map(jax.numpy.asarray, fresh(1)), 0.1, 0, 255, 0)
