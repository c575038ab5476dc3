"""fp8 casts, transposes and recipes: codes against ml_dtypes, rules of delayed scaling, a product of two casts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from call_emulated import call

import baracuda_py as bc
from baracuda_py.core.element import decode
from baracuda_py.core.errors import InvalidProblemError

RNG = np.random.default_rng(11)
E4, E5, E8 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.float8_e8m0fnu


def _numbers(y: np.ndarray, element: str = "float8_e4m3fn") -> np.ndarray:
    return np.asarray(decode(np.asarray(y), element)).astype(np.float64)


@pytest.mark.parametrize(("to", "dtype", "largest"), [("float8_e4m3fn", E4, 448.0), ("float8_e5m2", E5, 57344.0)])
def test_codes(to: str, dtype: type, largest: float) -> None:
    """Numbers of all sizes; ties, what is too large, infinities and NaN."""
    x = (RNG.standard_normal(4096) * 2.0 ** RNG.integers(-24, 18, 4096)).astype(np.float32)
    grid = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
    grid = np.sort(grid[np.isfinite(grid)])
    x = np.concatenate([x, grid, (grid[1:] + grid[:-1]) / 2, [np.inf, -np.inf, np.nan, -0.0, 1e30]]).astype(np.float32)
    wanted = np.clip(x * np.float32(0.5), -largest, largest).astype(dtype).astype(np.float64)
    y = _numbers(bc.fp8_cast(x, scale=0.5, to_element=to), to)
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(np.signbit(y[~np.isnan(y)]), np.signbit(wanted[~np.isnan(y)]))


def test_amax_is_raised() -> None:
    amax = np.array(2.0, np.float32)
    bc.fp8_cast(np.array([1.0, -1.5], np.float32), amax)
    assert amax == 2.0
    bc.fp8_cast(np.array([1.0, -7.5], np.float32), amax, scale=100.0)
    assert amax == 7.5
    bc.fp8_cast(np.zeros(0, np.float32), amax)
    assert amax == 7.5
    bc.fp8_cast(np.array([np.nan, 9.0], np.float32), amax)
    assert np.isnan(amax)


def test_transpose() -> None:
    x, amax = RNG.standard_normal((3, 5, 7)).astype(np.float32), np.zeros((), np.float32)
    y, yt = bc.fp8_cast_transpose(x, amax, scale=8.0)
    np.testing.assert_array_equal(np.asarray(y), np.asarray(bc.fp8_cast(x, scale=8.0)))
    np.testing.assert_array_equal(np.asarray(yt), np.asarray(y).reshape(15, 7).T)
    assert amax == np.abs(x).max()


@pytest.mark.parametrize(("to", "dtype", "emax"), [("float8_e4m3fn", E4, 8), ("float8_e5m2", E5, 15)])
def test_mxfp8(to: str, dtype: type, emax: int) -> None:
    """Blocks of 32 by the definition: floor(log2 max) - emax; of zeros the smallest power."""
    x = (RNG.standard_normal((64, 96)) * np.exp(3 * RNG.standard_normal((64, 96)))).astype(np.float32)
    x[3, 32:64] = 0
    made = bc.mxfp8_cast_transpose(x, to_element=to)
    for values, y, scales in ((x, made[0], made[1]), (x.T, made[2], made[3])):
        blocks = values.astype(np.float64).reshape(values.shape[0], -1, 32)
        most = np.abs(blocks).max(-1)
        with np.errstate(divide="ignore"):
            power = np.where(most == 0, 2.0**-127, 2.0 ** (np.floor(np.log2(most)) - emax))
        np.testing.assert_array_equal(np.asarray(scales).view(E8).astype(np.float64), power)
        largest = float(bc.ElementKind.of(to).limits.max)
        wanted: Any = np.clip(blocks / power[..., None], -largest, largest).astype(np.float32).astype(dtype)
        np.testing.assert_array_equal(_numbers(y, to), wanted.astype(np.float64).reshape(values.shape))


def test_mxfp8_refuses_parts_of_blocks() -> None:
    with pytest.raises(InvalidProblemError, match="blocks of 32, got 33 rows and 64 columns"):
        bc.mxfp8_cast_transpose(np.zeros((33, 64), np.float32))


def test_every_code_comes_back() -> None:
    codes = np.arange(256, dtype=np.uint8)
    for element, dtype in (("float8_e4m3fn", E4), ("float8_e5m2", E5)):
        wanted = codes.view(dtype).astype(np.float32) * np.float32(0.3)
        np.testing.assert_array_equal(bc.fp8_dequantize(codes, 0.3, from_element=element), wanted)
        half = bc.fp8_dequantize(codes, 0.3, from_element=element, to_element="bfloat16")
        np.testing.assert_array_equal(half.astype(np.float32), wanted.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_the_update_follows_the_rules() -> None:
    """amax of 0, infinity and NaN keep the old scale; slots move on as torch.roll(history, -1) does."""
    history = np.array([[4, 0, np.inf, np.nan, 1e-38], [8, 0, 1, 1, 0], [2, 0, 1, 1, 0]], np.float32)
    scale, inverse = np.full(5, 3, np.float32), np.full(5, 7, np.float32)
    moved = np.roll(history, -1, 0)
    moved[0] = 0
    bc.fp8_scale_update(history, scale, inverse, margin=1)
    np.testing.assert_array_equal(history, moved)
    np.testing.assert_array_equal(scale[:4], [448 / 8 / 2, 3, 3, 3])
    np.testing.assert_array_equal(inverse[:4], np.array([1 / 28, 7, 7, 7], np.float32))
    assert scale[4] == np.finfo(np.float32).max
    history[0, 0] = 16
    bc.fp8_scale_update(history, scale, inverse, algorithm="most_recent")
    assert scale[0] == 28 and inverse[0] == np.float32(1 / 28)


def _torch(x: np.ndarray) -> Any:
    torch = pytest.importorskip("torch")
    return torch.from_numpy(x)


@pytest.mark.parametrize("package", ["numpy", "torch"])
def test_a_step_of_training(package: str) -> None:
    """x and w to fp8 by a recipe each, and their product against that of the decoded numbers in float64."""
    made: Any = _torch if package == "torch" else np.asarray
    like = made(np.zeros(1, np.float32))
    inputs, weights = (bc.Fp8Recipe(2, slots=4, like=like) for _ in range(2))
    largest = 0.0
    for step in range(3):
        x = RNG.standard_normal((32, 64)).astype(np.float32) * 1000 / (step + 1)
        w = RNG.standard_normal((48, 64)).astype(np.float32) / 50
        (x8, x_inv), (w8, w_inv) = inputs.cast(1, made(x)), weights.cast(0, made(w))
        y = bc.scaled_mm(x8, w8.T, x_inv, w_inv, element="float8_e4m3fn", out_element="float32")
        codes = [np.asarray(one.view(_bytes()) if package == "torch" else one) for one in (x8, w8)]
        left, right = (_numbers(one) * float(inverse) for one, inverse in zip(codes, (x_inv, w_inv), strict=True))
        np.testing.assert_allclose(np.asarray(y), left @ right.T, rtol=1e-5, atol=1e-5)
        if step:  # the first step has a scale of 1, and saturates
            np.testing.assert_allclose(left, x, rtol=2.0**-4, atol=float(x_inv) * 2.0**-9)
        inputs.update()
        weights.update()
        largest = max(largest, float(np.abs(x).max()))
        assert float(inputs.scale_of(1)) == np.float32(448) / np.float32(largest)
        assert float(inputs.scale_of(0)) == 1
    state = inputs.state_dict()
    other = bc.Fp8Recipe(2, slots=4, to_element="float8_e5m2", like=like)
    other.load_state_dict(state)
    assert other.to_element is bc.ElementKind.FP8E4M3 and float(other.scale_of(1)) == float(inputs.scale_of(1))
    with pytest.raises(InvalidProblemError, match="history must have shape"):
        bc.Fp8Recipe(3, slots=4).load_state_dict(state)


def _bytes() -> Any:
    return pytest.importorskip("torch").uint8


def test_current_scaling() -> None:
    x = RNG.standard_normal((8, 40)).astype(np.float32) * 1000
    y, inverse = bc.fp8_quantize(x)
    assert np.abs(_numbers(y)).max() == 448
    np.testing.assert_allclose(_numbers(y) * float(inverse), x, rtol=2.0**-4, atol=float(inverse) * 2.0**-9)


def test_recipe_refusals() -> None:
    recipe = bc.Fp8Recipe(2, slots=3)
    assert "2 tensors" in repr(recipe)
    with pytest.raises(InvalidProblemError, match="tensor"):
        recipe.cast(2, np.zeros(3, np.float32))
    with pytest.raises(InvalidProblemError, match="slots"):
        bc.Fp8Recipe(2, slots=0)
    with pytest.raises(InvalidProblemError, match="algorithm"):
        bc.Fp8Recipe(2, algorithm="mean")


@pytest.mark.usefixtures("emulation")
def test_codes_of_zeros_keep_their_sign() -> None:
    """In blocks of numbers, of zeros, and of what the scale makes zeros; along rows and columns."""
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    x[0], x[1, ::2], x[32:, 5], x[:, 7], x[3, :32], x[9, :32] = -0.0, -0.0, -0.0, 0.0, -1e-40, -1e-30
    x[6, :32] *= 1e30
    wanted = bc.mxfp8_cast_transpose(x, to_element="float8_e4m3fn")
    desc = bc.Mxfp8CastTransposeDescriptor(shape=(64, 64), to_element="float8_e4m3fn", element="float32")
    outputs = {name: np.zeros_like(y) for name, y in zip(("y", "scales", "yt", "scales_t"), wanted, strict=True)}
    call(bc.Mxfp8CastTransposePlan, desc, outputs, x=x)
    for name, y in zip(outputs, wanted, strict=True):
        assert outputs[name].tobytes() == y.tobytes(), name
