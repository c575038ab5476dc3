"""Norms quantised by blocks: NVFP4 and MX formats by their definitions, what is left out, refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import decode
from baracuda_py.core.errors import InvalidProblemError

RNG = np.random.default_rng(3)
F4, E4, E8 = (ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e8m0fnu)
GRID = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def _x(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) * np.exp(RNG.standard_normal(shape))).astype(np.float32)


def _nearest(q: np.ndarray) -> np.ndarray:
    """The number of float4 nearest to each, ties to the one whose last bit is 0, by a search of all eight."""
    size = np.minimum(np.abs(q), 6)
    distance = np.abs(size[..., None] - GRID)
    best = np.isclose(distance, distance.min(-1, keepdims=True), rtol=0, atol=1e-12)
    odd = np.arange(8) % 2
    return np.sign(q) * GRID[np.argmax(best * (2 - odd), -1)]


def _four(y: np.ndarray) -> np.ndarray:
    assert y.dtype == np.uint8
    return decode(y, "float4_e2m1fn").astype(np.float64)


@pytest.mark.parametrize("scale", [None, 0.03])
def test_nvfp4(scale: float | None) -> None:
    x, weight, residual = _x(5, 64), _x(64), _x(5, 64)
    y, scales, h = bc.rms_norm_quantize(
        x, weight, residual, to_element="float4_e2m1fn", scale=scale, weight_offset=1.0, return_h=True
    )
    assert y.shape == (5, 32) and scales.shape == (5, 4)
    np.testing.assert_array_equal(h, x + residual)
    u = bc.rms_norm(h, weight, weight_offset=1.0).astype(np.float64).reshape(5, 4, 16)
    whole = 1.0 if scale is None else scale
    wanted = np.minimum(np.abs(u).max(-1) / 6 / whole, 448).astype(np.float32).astype(E4)
    np.testing.assert_array_equal(scales.view(E4), wanted)
    q = u / (wanted.astype(np.float64)[..., None] * whole)
    np.testing.assert_array_equal(_four(y).reshape(u.shape), _nearest(q))


@pytest.mark.parametrize(("target", "emax"), [("float4_e2m1fn", 2), ("float8_e4m3fn", 8), ("float8_e5m2", 15)])
def test_mx(target: str, emax: int) -> None:
    x = _x(3, 2, 96)
    y, scales = bc.layer_norm_quantize(x, to_element=target, scale_element="float8_e8m0fnu")
    assert scales.shape == (3, 2, 3)
    u = bc.layer_norm(x, normalized_shape=96).astype(np.float64).reshape(3, 2, 3, 32)
    power = 2.0 ** (np.floor(np.log2(np.abs(u).max(-1))) - emax)
    np.testing.assert_array_equal(scales.view(E8).astype(np.float64), power)
    q = (u / power[..., None]).reshape(x.shape)
    if target == "float4_e2m1fn":
        np.testing.assert_array_equal(_four(y), _nearest(q))
    else:
        kind = bc.ElementKind.of(target)
        largest = float(kind.limits.max)
        np.testing.assert_array_equal(
            y.view(kind.dtype), np.clip(q, -largest, largest).astype(np.float32).astype(kind.dtype)
        )


def test_blocks_of_float32_scales() -> None:
    x = _x(4, 256)
    y, scales = bc.rms_norm_quantize(x, block=128)
    u = bc.rms_norm(x, normalized_shape=256).reshape(4, 2, 128)
    np.testing.assert_allclose(scales, np.abs(u).max(-1) / 448, rtol=1e-6)
    back = y.view(E4).astype(np.float32).reshape(u.shape) * scales[..., None]
    assert (np.abs(back - u) <= np.abs(u) / 16 + scales[..., None] * 2.0**-10).all()


def test_values_without_a_code() -> None:
    x = np.ones((4, 32), np.float32)
    x[1, 3], x[2, 20], x[3] = np.nan, np.inf, 0
    y, scales = bc.rms_norm_quantize(x, to_element="float4_e2m1fn", scale_element="float8_e8m0fnu", eps=0.0)
    assert scales.view(E8)[0, 0].astype(np.float32) == 2.0**-2 and (_four(y)[0] == 4).all()
    assert np.isnan(scales.view(E8).astype(np.float32)[1:3]).all() and (_four(y)[1] == 6).all()
    for element, code in (("float8_e8m0fnu", 0), ("float8_e4m3fn", 0)):
        y, scales = bc.rms_norm_quantize(x[3:], to_element="float4_e2m1fn", scale_element=element)
        assert (scales == code).all() and not y.any()  # zeros over 2^-127, and over 0


def test_what_is_left_out() -> None:
    x = _x(2, 64)
    for given, block, element in (
        ({"to_element": "float4_e2m1fn"}, 16, E4), ({"to_element": "float4_e2m1fn", "block": 32}, 32, E8),
        ({"scale_element": "float8_e8m0fnu"}, 32, E8), ({"block": 64}, 64, np.float32),
    ):  # fmt: skip
        _, scales = bc.rms_norm_quantize(x, **given)
        assert scales.shape == (2, 64 // block) and scales.itemsize == np.dtype(element).itemsize


def test_refusals() -> None:
    x = np.ones((2, 48), np.float32)
    four = {"to_element": "float4_e2m1fn"}
    with pytest.raises(InvalidProblemError, match="blocks of 32"):
        bc.rms_norm_quantize(x, **four, block=32)
    with pytest.raises(InvalidProblemError, match="block must be one of"):
        bc.rms_norm_quantize(x, **four, block=24)
    with pytest.raises(InvalidProblemError, match="block must be above 0"):
        bc.rms_norm_quantize(x, **four, block=0)
    with pytest.raises(InvalidProblemError, match="it must be None"):
        bc.rms_norm_quantize(x, block=16, scale=2.0)
    desc = bc.NormQuantizeBlocksDescriptor(kind="rms_norm", batch_shape=2, normalized_shape=48, element="float32")
    plan = bc.NormQuantizeBlocksPlan.select(desc, device=bc.fake_device(9.0))
    x, scales = bc.TensorRef(4096, (2, 48), (48, 1), "float32"), bc.TensorRef(16384, (2, 3), (3, 1), "uint8")
    for step in (1, 2):
        y = bc.TensorRef(8192, (2, 24), (48, step), "uint8")
        verdict = plan.can_implement(bc.NormQuantizeBlocksArgs(x=x, y=y, scales=scales))
        assert bool(verdict) == (step == 1) and (verdict or "must be contiguous" in verdict.reason)
