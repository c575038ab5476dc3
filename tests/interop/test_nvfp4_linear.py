"""NVFP4 emulated: values against ml_dtypes in float64, products and gradients of them, rounding at random, refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda_py import InvalidProblemError, UnsupportedError

torch = pytest.importorskip("torch")
bcn = pytest.importorskip("baracuda_py.torch.nn")
RNG = np.random.default_rng(0)


def drawn(*shape: int, dtype: Any = torch.bfloat16) -> Any:
    return torch.from_numpy(RNG.standard_normal(shape) * 2.0 ** RNG.integers(-3, 3, shape)).to(dtype)


def by_ml_dtypes(x: np.ndarray, square: bool) -> np.ndarray:
    """x as NVFP4 has it, by the types of ml_dtypes."""
    m, n = x.shape
    high = 16 if square else 1
    apart = x.astype(np.float32).reshape(m // high, high, n // 16, 16)
    most = np.abs(apart).max((1, 3), keepdims=True)
    scale = np.float32(most.max() / np.float32(6 * 448)) or np.float32(1)
    scales = (most / np.float32(6) / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    with np.errstate(all="ignore"):
        inverse = np.where(scales > 0, 1 / (scales * scale), 0)
    codes = np.clip(apart * inverse, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(np.float64)
    return np.asarray((codes * scales * scale).reshape(m, n))


@pytest.mark.parametrize("square", [False, True])
def test_values_are_those_of_the_format(square: bool) -> None:
    x = drawn(32, 48, dtype=torch.float32)
    x[:16, :16] = 0
    x[16, 16:32] = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, *[0.0] * 8])  # ties
    values, scale = bcn.nvfp4_emulated(x, square=square)
    assert values.dtype == torch.bfloat16 and scale.shape == () and values.shape == x.shape
    got = values.double().numpy() * float(scale)
    np.testing.assert_allclose(got, by_ml_dtypes(x.numpy(), square), rtol=1e-6, atol=1e-30)
    zeros, one = bcn.nvfp4_emulated(torch.zeros(16, 16), square=square)
    assert not zeros.any() and float(one) == 1 and bcn.nvfp4_emulated(torch.zeros(0, 16))[0].shape == (0, 16)


def test_rounding_at_random_keeps_the_mean() -> None:
    x = drawn(16, 32, dtype=torch.float32)
    total, nearest = np.zeros(x.shape), bcn.nvfp4_emulated(x)
    for step in range(400):
        values, scale = bcn.nvfp4_emulated(x, stochastic=True, seed=3, offset=step * x.numel())
        total += values.double().numpy() * float(scale)
    assert torch.equal(nearest[1], scale)
    again = bcn.nvfp4_emulated(x, stochastic=True, seed=3, offset=399 * x.numel())[0]
    assert torch.equal(again, values)
    blocks = np.abs(x.numpy().reshape(16, 2, 16)).max(-1, keepdims=True) / 6
    wide = np.repeat(blocks, 16, -1).reshape(x.shape)  # the step of the format is at most 2 of these
    inside = np.abs(x.numpy()) <= 0.9 * 6 * wide
    assert (np.abs(total / 400 - x.numpy())[inside] < 0.25 * wide[inside]).all()


@pytest.mark.parametrize("hadamard", [False, True])
def test_products_are_of_the_values(hadamard: bool) -> None:
    layer = bcn.Nvfp4Linear(32, 48, random_hadamard=hadamard, stochastic_rounding=False).bfloat16()
    x, way = drawn(2, 16, 32).requires_grad_(), drawn(2, 16, 48)
    y = layer(x)
    dx, dw, db = torch.autograd.grad((y * way).sum(), (x, layer.weight, layer.bias))
    flat, slope = x.detach().float().numpy().reshape(32, 32), way.float().numpy().reshape(32, 48)
    w = layer.weight.detach().float().numpy()
    wanted = by_ml_dtypes(flat, False) @ by_ml_dtypes(w, True).T
    got = y.detach().double().numpy().reshape(32, 48) - layer.bias.detach().double().numpy()
    assert np.isclose(got, wanted, rtol=1e-2, atol=0.02 * np.abs(wanted).max()).mean() > 0.95
    wanted = by_ml_dtypes(slope, False) @ by_ml_dtypes(w, True)
    found = dx.double().numpy().reshape(32, 32)
    assert np.isclose(found, wanted, rtol=1e-2, atol=1e-2 * np.abs(wanted).max()).mean() > 0.95
    np.testing.assert_allclose(db.double().numpy(), slope.sum(0), rtol=1e-2, atol=0.3)
    exact = slope.astype(np.float64).T @ flat
    error = np.linalg.norm(dw.double().numpy() - exact) / np.linalg.norm(exact)
    assert error < 0.2
    if not hadamard:
        wanted = by_ml_dtypes(slope.T.copy(), False) @ by_ml_dtypes(flat.T.copy(), False).T
        near = np.isclose(dw.double().numpy(), wanted, rtol=1e-2, atol=2e-2 * np.abs(wanted).max())
        assert near.mean() > 0.99  # but for an element that is a tie, of which the sum is off


def test_gradients_at_random_have_the_mean_of_those_without() -> None:
    layer = bcn.Nvfp4Linear(16, 16, bias=False, random_hadamard=False).bfloat16()
    x, way, total = drawn(16, 16).requires_grad_(), drawn(16, 16), 0.0
    for _ in range(200):
        total = total + torch.autograd.grad((layer(x) * way).sum(), x)[0].double()
    assert layer.drawn == 200 * 2 * 256
    wanted = way.double().numpy() @ by_ml_dtypes(layer.weight.detach().float().numpy(), True)
    assert np.linalg.norm(total.numpy() / 200 - wanted) / np.linalg.norm(wanted) < 0.05


def test_masters_autocast_and_what_is_refused() -> None:
    layer = bcn.Nvfp4Linear(32, 16)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(drawn(16, 32, dtype=torch.float32))
    y.float().sum().backward()
    assert y.dtype == torch.bfloat16 and layer.weight.grad.dtype == torch.float32 and layer.weight.grad.any()
    assert "emulated" in repr(layer)
    with pytest.raises(UnsupportedError, match="float16 or bfloat16"):
        layer(drawn(16, 32, dtype=torch.float32))
    with pytest.raises(InvalidProblemError, match="multiple of 16 rows"):
        layer(drawn(5, 32))
    with pytest.raises(InvalidProblemError, match="out_features"):
        bcn.Nvfp4Linear(32, 20)
    with pytest.raises(InvalidProblemError, match="multiples of 16"):
        bcn.nvfp4_emulated(torch.zeros(4, 17))
