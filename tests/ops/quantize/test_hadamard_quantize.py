"""Hadamard transforms quantised: rows, groups and given scales by their definitions; what is left out; refusals."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from call_emulated import call

import baracuda_py as bc
from baracuda_py.core.element import decode
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.quantize.hadamard_matrix import hadamard_matrix

RNG = np.random.default_rng(5)
E8, E4 = ml_dtypes.float8_e8m0fnu, ml_dtypes.float8_e4m3fn


def _rotated(x: np.ndarray, block: int) -> np.ndarray:
    u: np.ndarray = x.astype(np.float64).reshape(*x.shape[:-1], -1, block) @ hadamard_matrix(block) / np.sqrt(block)
    return u.reshape(x.shape)


def _x(*shape: int) -> np.ndarray:
    made: np.ndarray = RNG.standard_normal(shape) * np.exp(2 * RNG.standard_normal(shape))
    return made.astype(np.float32)


@pytest.mark.parametrize("block", [16, 48, 96])
def test_rows_of_int8(block: int) -> None:
    x = _x(5, 96)
    y, scales = bc.hadamard_quantize(x, block=block, normalized=True, to_element="int8")
    u = _rotated(x, block)
    np.testing.assert_allclose(scales, np.abs(u).max(-1, keepdims=True) / 127, rtol=1e-6)
    assert y.dtype == np.int8
    assert np.abs(y - u / scales).max() <= 0.5001 and np.abs(y).max() == 127


def test_groups_and_signs() -> None:
    x, signs = _x(3, 64), RNG.choice([-1.0, 1.0], 64).astype(np.float32)
    y, scales = bc.hadamard_quantize(x, signs, block=64, group=16, normalized=True)
    u = _rotated(x * signs, 64).reshape(3, 4, 16)
    np.testing.assert_allclose(scales, np.abs(u).max(-1) / 448, rtol=1e-6)
    back = np.asarray(decode(np.asarray(y), "float8_e4m3fn")).astype(np.float64).reshape(u.shape) * scales[..., None]
    np.testing.assert_allclose(back, u, rtol=2.0**-4, atol=float(scales.max()) * 2.0**-9)


def test_a_given_scale() -> None:
    x = _x(4, 40)
    y: Any = bc.hadamard_quantize(x, normalized=True, to_element="int8", y_scale=0.25)
    u = _rotated(x, 40) / 0.25
    assert y.shape == x.shape
    assert np.abs(y - np.clip(u, -128, 127)).max() <= 0.5001


def test_mxfp4_and_nvfp4() -> None:
    x = _x(2, 64)
    u = _rotated(x, 32)
    y, scales = bc.hadamard_quantize(x, block=32, normalized=True, to_element="float4_e2m1fn", group=32)
    assert y.shape == (2, 32) and scales.shape == (2, 2)
    power = 2.0 ** (np.floor(np.log2(np.abs(u.reshape(2, 2, 32)).max(-1))) - 2)
    np.testing.assert_array_equal(np.asarray(scales).view(E8).astype(np.float64), power)
    back = np.asarray(decode(np.asarray(y), "float4_e2m1fn")).astype(np.float64).reshape(2, 2, 32)
    error = np.abs(back - np.clip(u.reshape(2, 2, 32) / power[..., None], -6, 6))
    assert (error <= np.maximum(np.abs(back) / 4, 0.25) + 1e-5).all()
    y, scales = bc.hadamard_quantize(x, block=32, normalized=True, to_element="float4_e2m1fn", y_scale=0.5)
    wanted = (np.abs(u.reshape(2, 4, 16)).max(-1) / 6 / 0.5).astype(np.float32).astype(E4).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(scales).view(E4).astype(np.float32), np.minimum(wanted, 448))


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"block": 16, "group": 24}, "group must divide block 16 or be blocks of it, got 24"),
        ({"group": 7}, "groups of 7"),
        ({"scale_element": "float8_e8m0fnu", "y_scale": 1.0}, "y_scale must be None"),
        ({"block": 5}, "block must be"),
    ],
)
def test_refusals(facts: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidProblemError, match=text):
        bc.hadamard_quantize(np.zeros((2, 48), np.float32), **facts)


def test_float4_needs_an_even_number() -> None:
    with pytest.raises(InvalidProblemError, match="must be even"):
        bc.hadamard_quantize(np.zeros((2, 1), np.float32), to_element="float4_e2m1fn", group=1)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("rows", "block", "group"),
    [(3, 512, 512), (3, 112, 112), (5, 128, 32), (2, 2048, 4096)],
    ids=["a window across rows", "levels within a chunk", "groups of lanes", "a group of two blocks"],
)
def test_rows_apart_keep_their_codes(rows: int, block: int, group: int) -> None:
    """Rows in chunks with gaps between them, in a tile that they do not fill; sums of whole numbers are exact."""
    cols = max(block, group)
    x = RNG.integers(-8, 9, (rows, cols + 16)).astype(ml_dtypes.bfloat16)
    plan = bc.HadamardQuantizePlan
    desc = plan.descriptor(shape=(rows, cols), block=block, group=group, to_element="int8", element="bfloat16")
    y, scales = np.full((rows, cols + 16), 77, np.int8), np.zeros((rows, cols // group), np.float32)
    call(plan, desc, {"y": y[:, :cols], "scales": scales}, x=x[:, :cols], signs=None, scale=1.0, y_scale=1.0)
    wanted, by = bc.hadamard_quantize(x[:, :cols], block=block, group=group, to_element="int8")
    np.testing.assert_array_equal(scales, by)
    np.testing.assert_array_equal(y[:, :cols], wanted)
    assert (y[:, cols:] == 77).all()
