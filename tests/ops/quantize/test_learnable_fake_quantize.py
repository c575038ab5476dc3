"""Learned step sizes: what torch makes, the sums of every scope against loops, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return (3 * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize(("low", "high"), [(-128, 127), (0, 255), (-2, 3)])
def test_it_is_torchs(axis: int | None, low: int, high: int) -> None:
    """Of scales that are powers of two, by which torch's product with the inverse is a quotient, too."""
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    x, dy, n = draw(6, 40), torch.from_numpy(draw(6, 40, seed=1)), {None: 1, 0: 6, 1: 40}[axis]
    rng = np.random.default_rng(2)
    scales = np.exp2(-rng.integers(1, 7, n)).astype(np.float32)
    zeros = (rng.uniform(0.6, 9, n) if low == 0 else np.zeros(n)).astype(np.float32)  # PyTorch truncates those below 0
    scope = ("_per_tensor_affine",) if axis is None else ("_per_channel_affine", axis)
    found = []
    for name, module in ((f"_fake_quantize_learnable{scope[0]}", torch), (f"fake_quantize_learnable{scope[0]}", bt)):
        leaves = [torch.from_numpy(a.copy()).requires_grad_() for a in (x, scales, zeros)]
        y = getattr(module, name)(*leaves, *scope[1:], low, high, 0.3)
        y.backward(dy)
        found.append([y.detach(), *(leaf.grad for leaf in leaves)])
    for want, got in zip(*found, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5 * float(want.abs().max()))
    np.testing.assert_array_equal(found[1][0], found[0][0])
    np.testing.assert_array_equal(found[1][1], found[0][1])
    assert found[1][2].abs().max() > 0


@pytest.mark.parametrize("blocks", [(2, 3), (1, 8), (3, 0), (0, 0), (5, 7)])
def test_every_scope_sums_its_block(blocks: tuple[int, int]) -> None:
    x, dy = draw(7, 24).astype(np.float64), draw(7, 24, seed=1).astype(np.float64)
    size = [b or n for b, n in zip(blocks, x.shape, strict=True)]
    count = [-(-n // b) for b, n in zip(size, x.shape, strict=True)]
    scales = np.random.default_rng(3).uniform(0.3, 1, count)
    zeros = np.random.default_rng(4).uniform(-3, 3, count)
    facts = {"block_shape": blocks, "quant_min": -4, "quant_max": 5, "grad_factor": 0.25}
    dx, dscales, dzeros = bc.learnable_fake_quantize_backward(dy, x, scales, zeros, **facts)
    for i in np.ndindex(*count):
        part = tuple(slice(k * b, (k + 1) * b) for k, b in zip(i, size, strict=True))
        z = min(max(round(zeros[i]), -4), 5)
        q = np.rint(x[part] / scales[i]) + z
        clamped, inside = np.clip(q, -4, 5), (q >= -4) & (q <= 5)
        np.testing.assert_array_equal(dx[part], np.where(inside, dy[part], 0))
        terms = dy[part] * (clamped - z - np.where(inside, x[part] / scales[i], 0))
        np.testing.assert_allclose(dscales[i], 0.25 * terms.sum(), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(dzeros[i], -0.25 * scales[i] * dy[part][~inside].sum(), rtol=1e-12, atol=1e-12)


def test_values_are_those_of_fake_quantize() -> None:
    x = draw(4, 24)
    scales = np.random.default_rng(2).uniform(0.01, 0.1, (4, 3)).astype(np.float32)
    zeros = np.random.default_rng(3).uniform(-9, 9, (4, 3)).astype(np.float32)
    y = bc.learnable_fake_quantize(x, scales, zeros)
    np.testing.assert_array_equal(y, bc.fake_quantize(x, scales, np.rint(zeros).astype(np.int32)))


def test_an_empty_array_has_gradients_of_zero() -> None:
    x, one = np.zeros((3, 0), np.float32), np.ones((1, 1), np.float32)
    dx, dscales, dzeros = bc.learnable_fake_quantize_backward(x, x, one, one)
    assert dx.shape == (3, 0) and dscales.tolist() == [[0]] and dzeros.tolist() == [[0]]


def test_what_does_not_go_together_is_refused() -> None:
    x, scales = draw(4, 8), np.ones((4, 1), np.float32)
    with pytest.raises(bc.InvalidProblemError, match="must be an array"):
        bc.learnable_fake_quantize(x, 0.5)
    with pytest.raises(bc.InvalidProblemError, match="must be in order"):
        bc.learnable_fake_quantize(x, scales, quant_min=3, quant_max=2)
    with pytest.raises(bc.InvalidProblemError, match="zero_points"):
        bc.learnable_fake_quantize(x, scales, np.zeros((2, 1), np.float32))
    with pytest.raises((bc.InvalidProblemError, bc.UnsupportedError), match="int32"):
        bc.learnable_fake_quantize(x, scales, np.zeros((4, 1), np.int32))
    with pytest.raises(bc.UnsupportedError, match="float64"):
        bc.learnable_fake_quantize(x, scales.astype(np.float64))
    with pytest.raises(bc.InvalidProblemError, match="one item"):
        bc.fake_quantize_learnable_per_tensor_affine(x, scales, scales, 0, 255)
