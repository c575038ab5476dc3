"""Layers of int8 weights: what x becomes, results beside float64, gradients straight through, bad input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind, cast

rng = np.random.default_rng(0)
WEIGHT = rng.integers(-128, 128, (5, 24), dtype=np.int8)
SCALE = np.exp(rng.standard_normal(5)).astype(np.float32) / 100


def layer(x: Any, **facts: Any) -> tuple[Any, Any, Any]:
    """y, codes and scales."""
    facts = {"scale": SCALE, "weight": WEIGHT} | facts
    desc = bc.QuantizedLinearDescriptor(
        batch_shape=x.shape[:-1], in_features=24, out_features=5, static="x_scale" in facts, element=x.dtype
    )
    made = {
        "y": np.empty((*x.shape[:-1], 5), x.dtype), "quantized": np.empty(x.shape, np.int8),
        "scales": np.empty(x.shape[:-1], np.float32),
    }  # fmt: skip
    bc.QuantizedLinearPlan.select(desc, device="cpu")(x=x, **facts, **made)
    return made["y"], made["quantized"], made["scales"]


@pytest.mark.parametrize("element", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", [(24,), (3, 24), (2, 3, 24)])
def test_rows_have_their_own_scales(element: str, shape: tuple[int, ...]) -> None:
    dtype = ElementKind.of(element).dtype
    x, bias = (10 * rng.standard_normal(shape)).astype(dtype), rng.standard_normal(5).astype(dtype)
    y, codes, scales = layer(x, bias=bias)
    assert np.array_equal(scales, np.abs(x.astype(np.float32)).max(-1) / np.float32(127))
    assert np.array_equal(codes, np.rint(x.astype(np.float32) / scales[..., None]))
    sums = (codes.astype(np.int64) @ WEIGHT.T.astype(np.int64)).astype(np.longdouble)
    assert np.array_equal(y, cast(sums * scales[..., None] * SCALE + bias.astype(np.longdouble), element))
    assert np.array_equal(bc.quantized_linear(x, WEIGHT, SCALE, bias), y)
    assert np.abs(y.astype(float) - x.astype(float) @ (SCALE[:, None] * WEIGHT).T - bias.astype(float)).max() < 6


def test_smoothing_divides_columns_and_static_scales_saturate() -> None:
    x, smooth = (
        (10 * rng.standard_normal((3, 24))).astype(np.float32),
        np.exp(rng.standard_normal(24)).astype(np.float32),
    )
    _, codes, scales = layer(x, smooth=smooth)
    assert np.array_equal(codes, np.rint(x / smooth / scales[:, None]))
    _, codes, scales = layer(x, x_scale=0.0625)
    assert np.array_equal(codes, np.clip(np.rint(x * 16), -128, 127)) and (scales == 0.0625).all()
    direct = bc.smooth_quant_linear(codes, WEIGHT, np.array(0.0625, np.float32), SCALE)
    assert np.array_equal(bc.quantized_linear(x, WEIGHT, SCALE, x_scale=0.0625), direct)


def test_special_rows() -> None:
    x = np.ones((4, 24), np.float32)
    x[0, 3], x[1, 3], x[2] = np.nan, np.inf, 0
    y, codes, scales = layer(x)
    assert np.isnan(y[:2]).all() and (y[2] == 0).all() and np.isfinite(y[3]).all()
    assert scales[2] == np.float32(2.0**-126) and not codes[2].any() and (codes[3] == 127).all()


def test_gradient_is_straight_through() -> None:
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    x = torch.randn(2, 3, 24, requires_grad=True)
    weight, scale, smooth = torch.from_numpy(WEIGHT), torch.from_numpy(SCALE), torch.rand(24) + 0.5
    bt.quantized_linear(x, weight, scale, smooth=smooth).backward(dy := torch.randn(2, 3, 5))
    want = dy.double() @ (scale[:, None].double() * weight) / smooth.double()
    assert torch.allclose(x.grad.double(), want, rtol=1e-5, atol=1e-6)
    with pytest.raises(bc.UnsupportedError, match="requires grad"):
        bt.quantized_linear(x, weight, scale, x_scale=0.1)


def test_bad_input_is_named() -> None:
    x = np.ones((2, 24), np.float32)
    with pytest.raises(bc.InvalidProblemError, match="scale must broadcast to shape"):
        bc.quantized_linear(x, WEIGHT, SCALE[:4])
    with pytest.raises(bc.BaracudaError, match="scale"):
        bc.quantized_linear(x, WEIGHT, SCALE.astype(np.float64))
    with pytest.raises(bc.BaracudaError, match="weight"):
        bc.quantized_linear(x, WEIGHT.astype(np.float32), SCALE)
    with pytest.raises(bc.BaracudaError, match="weight"):
        bc.quantized_linear(x[:, :20], WEIGHT, SCALE)
    with pytest.raises(bc.InvalidProblemError, match="x must be"):
        bc.smooth_quant_linear(WEIGHT, WEIGHT[:, :3], np.array(1, np.float32), SCALE)
