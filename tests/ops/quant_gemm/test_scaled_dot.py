"""scaled_dot_general and scaled_dot against their definition in float64, element by element."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnknownKeywordError, UnsupportedError
from tests.steps_emulated import by_kernels

NUMBERS = ((2, 3), (2, 1)), ((0,), (0,))  # of a [batch, m, u, v] and b [batch, v, u, n]
PLAIN = ((1,), (0,)), ((), ())
MODES = (("mxfp8", None), ("nvfp4", None), ("nvfp4", 0.40625))


def configs_of(mode: str, scale: Any) -> list[Any]:
    return [bc.get_scaled_dot_general_config(mode, scale)] * 3


def held(x: np.ndarray, mode: str, scale: float | None) -> np.ndarray:
    """[*, rows, k] as the format holds it, by searching all of its numbers: float64."""
    size = 32 if mode == "mxfp8" else 16
    blocks = x.astype(np.float64).reshape(*x.shape[:-1], -1, size)
    most = abs(blocks).max(-1, keepdims=True)
    if mode == "mxfp8":
        with np.errstate(divide="ignore"):
            by = np.exp2(np.maximum(np.ceil(np.log2(most / 448)), -127))
        dtype: Any = ml_dtypes.float8_e4m3fn
    else:
        own = 1.0 if scale is None else scale
        by = np.minimum(most / own / 6, 448).astype(np.float32).astype(ml_dtypes.float8_e4m3fn).astype(float) * own
        dtype = ml_dtypes.float4_e2m1fn
    codes = np.arange(128 if mode == "mxfp8" else 8, dtype=np.uint8).view(dtype).astype(float)
    codes = codes[np.isfinite(codes)]
    found = np.divide(blocks, by, out=np.zeros_like(blocks), where=by > 0)
    apart = np.abs(abs(found)[..., None] - codes)
    near = apart.argmin(-1)
    after = np.minimum(near + 1, len(codes) - 1)
    near += (near % 2) * (np.take_along_axis(apart, after[..., None], -1)[..., 0] == apart.min(-1))  # ties are even
    return (np.copysign(codes[np.minimum(near, len(codes) - 1)], found) * by).reshape(x.shape)


def draw(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-9, 9, (*shape[:-1], 1)))).astype(np.float32)


def flat(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of `NUMBERS`: [batch, m, k] and [batch, n, k]."""
    return a.reshape(*a.shape[:2], -1), b.transpose(0, 3, 2, 1).reshape(len(b), b.shape[3], -1)


@pytest.mark.parametrize("element", ["float32", "bfloat16"])
@pytest.mark.parametrize(("mode", "scale"), MODES)
def test_the_product_of_what_the_format_holds(mode: str, scale: Any, element: str) -> None:
    rng = np.random.default_rng(2)
    a, b = draw(rng, 2, 3, 4, 16).astype(element), draw(rng, 2, 16, 4, 5).astype(element)
    x, w = (held(one, mode, scale) for one in flat(a, b))
    y = bc.scaled_dot_general(a, b, NUMBERS, configs=configs_of(mode, scale))
    assert y.shape == (2, 3, 5) and y.dtype == np.float32
    assert (abs(y - x @ w.swapaxes(1, 2)) <= 2.0**-21 * (abs(x) @ abs(w).swapaxes(1, 2))).all()
    for out_element, digits in (("bfloat16", 8), ("float16", 11)):
        low = bc.scaled_dot_general(a, b, NUMBERS, out_element, configs_of(mode, scale))
        assert str(low.dtype) == out_element
        with np.errstate(over="ignore"):
            want = y.astype(low.dtype).astype(float)
        fine = np.isfinite(want)
        assert (abs(low.astype(float)[fine] - want[fine]) <= 2.0 ** (1 - digits) * abs(want[fine])).all()
    views = a[:, ::-1][:, ::-1], np.asfortranarray(b)
    np.testing.assert_array_equal(bc.scaled_dot_general(*views, NUMBERS, configs=configs_of(mode, scale)), y)


def test_nothing_saturates_in_mxfp8() -> None:
    """Of every size of a largest number, also those that float32 holds with fewer digits, and of zeros."""
    tops = np.float32([2.0**e * m for e in (-126, -118, -20, 0, 8, 100) for m in (1, 1.75, 1.7500001, 1.9999999)])
    a = tops[:, None] * np.linspace(0, 1, 32, dtype=np.float32)
    y = bc.scaled_dot_general(a, np.eye(32, dtype=np.float32), PLAIN, configs=configs_of("mxfp8", None))
    np.testing.assert_array_equal(y, held(a, "mxfp8", None))
    assert (abs(y[:, -1] - tops) <= tops / 16).all()
    zeros = np.zeros((2, 32), np.float32)
    assert not bc.scaled_dot_general(zeros, zeros.T, PLAIN, configs=configs_of("mxfp8", None)).any()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_makes_nan_of_its_rows(bad: float) -> None:
    a, b = np.ones((3, 32), np.float32), np.ones((32, 4), np.float32)
    a[1, 5] = bad
    y = bc.scaled_dot_general(a, b, PLAIN, configs=configs_of("mxfp8", None))
    assert np.isnan(y[1]).all() and (y[[0, 2]] == 32).all()


def test_without_configs_it_is_dot_general() -> None:
    rng = np.random.default_rng(3)
    a, b = draw(rng, 2, 3, 4, 5), draw(rng, 2, 5, 4, 6)
    np.testing.assert_array_equal(bc.scaled_dot_general(a, b, NUMBERS), bc.dot_general(a, b, NUMBERS))


def test_out_is_written() -> None:
    rng = np.random.default_rng(3)
    a, b = draw(rng, 3, 32), draw(rng, 32, 4)
    for mode, scale in MODES:
        want, out = bc.scaled_dot_general(a, b, PLAIN, configs=configs_of(mode, scale)), np.zeros((3, 4), np.float32)
        assert bc.scaled_dot_general(a, b, PLAIN, configs=configs_of(mode, scale), out=out) is out
        np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize(("mode", "scale"), [*MODES, ("nvfp4", 2.0**-12)])
def test_gradients_are_straight_through(mode: str, scale: Any) -> None:
    """Of mxfp8 products of what it holds, along the axes that they sum; of nvfp4 of operands, 0 where they saturate."""
    rng = np.random.default_rng(4)
    a, b, dy = draw(rng, 2, 32, 4, 16), draw(rng, 2, 16, 4, 64), draw(rng, 2, 32, 64)
    da, db = bc.scaled_dot_general_backward(dy, a, b, NUMBERS, configs=configs_of(mode, scale))
    assert da.shape == a.shape and db.shape == b.shape and da.dtype == db.dtype == np.float32
    x, w = (one.astype(float) for one in flat(a, b))
    dx_by, dw_by = (dy.astype(float), w.swapaxes(1, 2)), (dy.swapaxes(1, 2).astype(float), x.swapaxes(1, 2))
    if mode == "mxfp8":
        dx_by, dw_by = (tuple(held(one, mode, None) for one in pair) for pair in (dx_by, dw_by))
    for made, (g, other), inside in ((flat(da, db)[0], dx_by, x), (flat(da, db)[1], dw_by, w)):
        want, bound = g @ other.swapaxes(1, 2), abs(g) @ abs(other).swapaxes(1, 2)
        live = abs(inside) <= 6 * 448 * (scale or 1) if mode == "nvfp4" else np.ones(want.shape, bool)
        assert live.any() and (live.all() == (scale != 2.0**-12))
        assert (abs(made - np.where(live, want, 0)) <= 2.0**-20 * bound).all()


@pytest.mark.parametrize(("mode", "scale"), MODES)
def test_autograd(mode: str, scale: Any) -> None:
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    rng = np.random.default_rng(5)
    a, b, dy = (draw(rng, *shape) for shape in ((32, 64), (64, 96), (32, 96)))
    leaves = [torch.from_numpy(one).requires_grad_() for one in (a, b)]
    scale = None if scale is None else torch.tensor([scale])
    y = bt.scaled_dot_general(*leaves, PLAIN, configs=configs_of(mode, scale))
    found = torch.autograd.grad(y, leaves, torch.from_numpy(dy))
    want = bc.scaled_dot_general_backward(dy, a, b, PLAIN, configs=configs_of(mode, None if scale is None else 0.40625))
    for one, other in zip(found, want, strict=True):
        np.testing.assert_array_equal(one.numpy(), other)


def test_codes_and_scales_are_those_of_jax() -> None:
    jax = pytest.importorskip("jax")
    theirs = pytest.importorskip("jax._src.cudnn.scaled_matmul_stablehlo")
    rng = np.random.default_rng(6)
    a, b = draw(rng, 3, 64), draw(rng, 64, 5)
    for mode in ("mxfp8", "nvfp4"):
        config = jax.nn.get_scaled_dot_general_config(mode)
        codes = [theirs.quantize(jax.numpy.asarray(x[None]), config) for x in (a, b.T.copy())]
        x, w = (
            np.asarray(c, np.float64) * np.repeat(np.asarray(s, np.float64), config.block_size, -1) for c, s in codes
        )
        want = (x @ w.swapaxes(1, 2))[0]
        y = bc.scaled_dot_general(a, b, PLAIN, configs=configs_of(mode, None))
        assert (abs(y - want) <= 2.0**-21 * (abs(x) @ abs(w).swapaxes(1, 2))[0]).all()


@pytest.mark.parametrize(("mode", "scale"), MODES)
def test_in_jax(mode: str, scale: Any) -> None:
    """Under jit, with its gradient."""
    jax = pytest.importorskip("jax")
    rng = np.random.default_rng(5)
    a, b, dy = (draw(rng, *shape) for shape in ((32, 64), (64, 96), (32, 96)))
    configs = configs_of(mode, scale)

    def call(a: Any, b: Any) -> Any:
        return bc.scaled_dot_general(a, b, PLAIN, configs=configs)

    y, pull = jax.vjp(jax.jit(call), jax.numpy.asarray(a), jax.numpy.asarray(b))
    np.testing.assert_array_equal(y, call(a, b))
    want = bc.scaled_dot_general_backward(dy, a, b, PLAIN, configs=configs)
    for one, other in zip(pull(jax.numpy.asarray(dy)), want, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("held_in", ["float8_e4m3fn", "float8_e5m2", "int8"])
@pytest.mark.parametrize("powers", [False, True])
def test_scaled_dot(held_in: str, powers: bool) -> None:
    if powers and held_in == "int8":
        return
    rng = np.random.default_rng(7)
    dtype = np.dtype(np.int8) if held_in == "int8" else np.dtype(getattr(ml_dtypes, held_in))
    a, b = (rng.integers(-8, 8, s).astype(dtype) for s in ((2, 3, 24), (2, 24, 5)))
    sa, sb = (np.exp2(rng.integers(-3, 4, s)).astype(np.float32) for s in ((2, 3, 3), (2, 6, 5)))
    x, w = a.astype(float) * np.repeat(sa, 8, 2), b.astype(float) * np.repeat(sb, 4, 1)
    scales = [s.astype(ml_dtypes.float8_e8m0fnu) for s in (sa, sb)] if powers else [sa, sb]
    for out_element, digits in (("float32", 22), ("bfloat16", 8)):
        y = bc.scaled_dot(a, b, *scales, out_element=out_element)
        assert str(y.dtype) == out_element
        assert (abs(y.astype(float) - x @ w) <= 2.0**-digits * (abs(x) @ abs(w))).all()
    if held_in != "int8":
        carried = a.view(np.uint8), b.view(np.uint8)
        np.testing.assert_array_equal(bc.scaled_dot(*carried, *scales, element=held_in), y)
    numbers = ((2,), (1,)), ((0,), (0,))
    np.testing.assert_array_equal(bc.scaled_dot(a, b, *scales, dimension_numbers=numbers), y)
    half = w.astype(ml_dtypes.bfloat16)
    alone = bc.scaled_dot(a, half, scales[0], out_element="float32")
    assert (abs(alone - x @ half.astype(float)) <= 2.0**-22 * (abs(x) @ abs(half.astype(float)))).all()


X, MX = np.ones((3, 64), np.float32), [bc.BlockScaleConfig("mxfp8")] * 3
BAD = {
    "mode must be one of nvfp4, mxfp8, got 'fp8'": lambda: bc.get_scaled_dot_general_config("fp8"),
    "global_scale is for nvfp4": lambda: bc.get_scaled_dot_general_config("mxfp8", 2.0),
    "global_scale must be above 0": lambda: bc.get_scaled_dot_general_config("nvfp4", -1.0),
    "array of one float32, got float32 .2,.": lambda: bc.BlockScaleConfig("nvfp4", np.ones(2, np.float32)),
    "configs must be three": lambda: bc.scaled_dot_general(X, X.T, PLAIN, configs=MX[:2]),
    "configs must have one mode": lambda: bc.scaled_dot_general(
        X, X.T, PLAIN, configs=[*MX[:2], bc.BlockScaleConfig("nvfp4")]
    ),
    "mxfp8 takes blocks of 32": lambda: bc.scaled_dot_general(X[:, :48], X[:, :48].T, PLAIN, configs=MX),
    "of a have 0 elements": lambda: bc.scaled_dot_general(X[:, :0], X[:, :0].T, PLAIN, configs=MX),
    "are not as long": lambda: bc.scaled_dot_general(X, X, PLAIN, configs=MX),
    "axis 1 is summed and batch": lambda: bc.scaled_dot_general(X, X, (((1,), (1,)), ((1,), (1,))), configs=MX),
    "scaled_dot_general: dimension_numbers must be": lambda: bc.scaled_dot_general(X, X, 3, configs=MX),
    r"out must have shape \(3, 3\)": lambda: bc.scaled_dot_general(X, X.T, PLAIN, configs=MX, out=X),
    r"dy must have shape \(3, 3\)": lambda: bc.scaled_dot_general_backward(X, X, X.T, PLAIN, configs=MX),
    "which of dy have 3": lambda: bc.scaled_dot_general_backward(X[:, :3], X, X.T, PLAIN, configs=MX),
    "scale_a must have the shape": lambda: bc.scaled_dot(X.astype(np.int8), X.T, X[:, :3], out_element="float32"),
    "the same number of axes": lambda: bc.scaled_dot(X, X[0]),
}


@pytest.mark.parametrize("said", BAD)
def test_bad_input_is_refused(said: str) -> None:
    with pytest.raises(InvalidProblemError, match=said):
        BAD[said]()


def test_elements_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="a must hold one of float32"):
        bc.scaled_dot_general(X.astype(np.float64), X.T, PLAIN, configs=MX)
    with pytest.raises(UnsupportedError, match="out_element must be one of float32"):
        bc.scaled_dot_general(X, X.T, PLAIN, "float64", MX)
    with pytest.raises(UnsupportedError, match="a with a scale must hold"):
        bc.scaled_dot(X, X.T, X)
    with pytest.raises(UnknownKeywordError, match="did you mean out_element"):
        bc.scaled_dot_general(X, X.T, PLAIN, preferred_element_type="float32")


@pytest.mark.parametrize(("mode", "scale"), MODES[::2])
def test_the_product_on_the_emulator(mode: str, scale: Any) -> None:
    """By its kernels, axes out of order copied first: what the format holds of blocks of zeros and of any exponent."""
    rng = np.random.default_rng(3)
    a, b = draw(rng, 2, 3, 4, 16), draw(rng, 2, 16, 4, 5)
    a[0, 1], b[1, :, :, 2] = 0, 0
    if mode == "mxfp8":
        a[1, 0] *= 2.0**-120
    x, w = (held(one, mode, scale) for one in flat(a, b))
    with by_kernels() as launched:
        y = bc.scaled_dot_general(a, b, NUMBERS, configs=configs_of(mode, scale))
    assert any("block_gemm" in name for name in launched) and any("view_copy" in name for name in launched)
    assert (abs(y - x @ w.swapaxes(1, 2)) <= 2.0**-21 * (abs(x) @ abs(w).swapaxes(1, 2))).all()


@pytest.mark.parametrize("mode", ["mxfp8", "nvfp4"])
def test_the_gradient_on_the_emulator(mode: str) -> None:
    rng = np.random.default_rng(4)
    dy, a, b = draw(rng, 32, 32), draw(rng, 32, 64), draw(rng, 64, 32)
    given = (dy, a, b, PLAIN)
    want = bc.scaled_dot_general_backward(*given, configs=configs_of(mode, None))
    with by_kernels() as launched:
        made = bc.scaled_dot_general_backward(*given, configs=configs_of(mode, None))
    assert sum("gemm" in name for name in launched) >= 2
    scale = abs(dy) @ abs(b.T), abs(a.T) @ abs(dy)
    for one, other, size in zip(made, want, scale, strict=True):
        assert other.any() and (abs(one - other) <= 2.0**-18 * size).all()
