"""Fake quantisation: what torch makes, its gradient, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return (3 * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


@pytest.mark.parametrize(("zero", "low", "high"), [(0, -128, 127), (3, 0, 255), (-2, -8, 7)])
def test_it_is_torchs(zero: int, low: int, high: int) -> None:
    """Of scales that are powers of two, by which torch's product with the inverse is a quotient, too."""
    torch = pytest.importorskip("torch")
    zero = max(zero, low)
    x, dy = draw(6, 40), draw(6, 40, seed=1)
    for scale in (2.0**-4, 2.0**-6):
        leaf = torch.from_numpy(x).requires_grad_()
        want = torch.fake_quantize_per_tensor_affine(leaf, scale, zero, low, high)
        want.backward(torch.from_numpy(dy))
        y = bc.fake_quantize_per_tensor_affine(x, scale, zero, low, high)
        np.testing.assert_array_equal(y, want.detach().numpy())
        dx = bc.fake_quantize_backward(dy, x, scale, zero, quant_min=low, quant_max=high)
        np.testing.assert_array_equal(dx, leaf.grad.numpy())
        assert (dx != dy).any() and (dx == dy).any()
    scales, zeros = np.exp2(-np.arange(6.0)).astype(np.float32), np.full(6, zero, np.int32)
    leaf = torch.from_numpy(x).requires_grad_()
    want = torch.fake_quantize_per_channel_affine(leaf, torch.from_numpy(scales), torch.from_numpy(zeros), 0, low, high)
    want.backward(torch.from_numpy(dy))
    y = bc.fake_quantize_per_channel_affine(x, scales, zeros, 0, low, high)
    np.testing.assert_array_equal(y, want.detach().numpy())
    facts = {"quant_min": low, "quant_max": high}
    dx = bc.fake_quantize_backward(dy, x, scales[:, None], zeros[:, None], **facts)
    np.testing.assert_array_equal(dx, leaf.grad.numpy())


@pytest.mark.parametrize("element", ["float32", "float16", "bfloat16", "float64"])
def test_it_is_quantise_and_dequantise(element: str) -> None:
    x = bc.cast(draw(5, 24), element)
    scales = np.random.default_rng(2).uniform(0.01, 0.1, (5, 4)).astype(np.float32)
    zeros = np.arange(20, dtype=np.int32).reshape(5, 4)
    y = bc.fake_quantize(x, scales, zeros)
    want = bc.dequantize(bc.quantize(x, scales, zeros), scales, zeros, to_element=element)
    np.testing.assert_array_equal(y, want)


def test_the_gradient_of_quantise_is_over_the_scale() -> None:
    x, dy = draw(4, 16), draw(4, 16, seed=1)
    dx = bc.quantize_backward(dy, x, 0.02, to_element="int8")
    q = np.rint(x / np.float32(0.02))
    np.testing.assert_array_equal(dx, np.where((q >= -128) & (q <= 127), dy / np.float32(0.02), 0))
    dx = bc.quantize_backward(dy, x, 0.01, to_element="float8_e4m3fn")
    np.testing.assert_array_equal(dx, np.where(np.abs(x / np.float32(0.01)) <= 448, dy / np.float32(0.01), 0))


def test_nan_stays_and_has_no_gradient() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.3], np.float32)
    y = bc.fake_quantize(x, 0.5)
    np.testing.assert_array_equal(y, np.array([np.nan, 63.5, -64, 0.5], np.float32))
    np.testing.assert_array_equal(bc.fake_quantize_backward(np.ones(4, np.float32), x, 0.5), [0, 0, 0, 1])


def test_what_does_not_go_together_is_refused() -> None:
    x = draw(4, 8)
    with pytest.raises(bc.InvalidProblemError, match="must be in order"):
        bc.fake_quantize(x, 0.5, quant_min=3, quant_max=2)
    with pytest.raises(bc.InvalidProblemError, match="must be in order"):
        bc.fake_quantize(x, 0.5, quant_max=2**30)
    for zero, low, high in ((300, 0, 255), (-9, -8, 7)):  # torch refuses them, too
        with pytest.raises(bc.InvalidProblemError, match=f"zero_points must be from {low} to {high}.* got {zero}"):
            bc.fake_quantize_per_tensor_affine(x, 0.5, zero, low, high)
    with pytest.raises(bc.InvalidProblemError, match="zero_points must be from 0 to 15"):
        bc.quantize_per_tensor(x, 0.5, 16, to_element="uint4")
    with pytest.raises(bc.InvalidProblemError, match="quant_min"):
        bc.fake_quantize(x, 0.5, 0, quant_min="low")
    with pytest.raises((bc.InvalidProblemError, bc.UnsupportedError), match="zero_element"):
        bc.fake_quantize(x, np.ones((4, 1), np.float32), np.zeros((4, 1), np.int8))
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    scale = torch.ones(4, 1, requires_grad=True)
    with pytest.raises(bc.UnsupportedError, match="requires grad"):
        bt.fake_quantize(torch.from_numpy(x), scale)
