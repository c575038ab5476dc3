"""Other rates, smoothing and responses against SciPy and torchaudio's formula, over random options."""

import math
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

scipy = pytest.importorskip("scipy.signal")


def _same(function: Any, operands: tuple[Any, ...], facts: dict[str, Any], truth: np.ndarray) -> None:
    y = function(*operands, **facts)
    np.testing.assert_allclose(y, truth, atol=1e-10)
    out = np.empty_like(y)
    assert function(*operands, **facts, out=out) is out
    np.testing.assert_array_equal(out, y)


def _torchaudio(x: np.ndarray, old: int, new: int, zeros: int, rolloff: float, kaiser: bool, beta: float) -> np.ndarray:
    """torchaudio.functional.resample in float64."""
    g = math.gcd(old, new)
    old, new = old // g, new // g
    base = min(old, new) * rolloff
    width = math.ceil(zeros * old / base)
    at = np.arange(-width, width + old) / old
    t = np.clip((np.arange(0, -new, -1)[:, None] / new + at) * base, -zeros, zeros)
    bell = np.i0(beta * np.sqrt(1 - (t / zeros) ** 2)) / np.i0(beta) if kaiser else np.cos(t * np.pi / zeros / 2) ** 2
    taps = np.sinc(t) * bell * base / old
    wide = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(width, width + old)])
    seen = np.lib.stride_tricks.sliding_window_view(wide, taps.shape[1], -1)[..., ::old, :]
    return (seen @ taps.T).reshape(*x.shape[:-1], -1)[..., : math.ceil(new * x.shape[-1] / old)]


@pytest.mark.parametrize("seed", range(20))
def test_random_rates_are_theirs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axis, n = int(rng.integers(-2, 2)), int(rng.integers(1, 60))
    x = rng.standard_normal((n, 3) if axis % 2 == 0 else (3, n))
    num = int(rng.choice([n, max(n // 2, 1), 2 * n, int(rng.integers(1, 90))]))
    _same(bc.resample, (x, num, axis), {}, scipy.resample(x, num, axis=axis))
    z = x + 1j * rng.standard_normal(x.shape)
    _same(bc.resample, (z, num, axis), {}, scipy.resample(z, num, axis=axis))
    up, down = (int(k) for k in rng.integers(1, 9, 2))
    h = rng.standard_normal(rng.integers(1, 30))
    _same(bc.upfirdn, (h, x, up, down, axis), {}, scipy.upfirdn(h, x, up, down, axis))
    window = [("kaiser", 5.0), "hann", h][rng.integers(3)]
    _same(bc.resample_poly, (x, up, down, axis, window), {}, scipy.resample_poly(x, up, down, axis, window))
    x = rng.standard_normal((2, n))
    old, new = [(8000, 16000), (16000, 12000), (3, 2), (2, 7), (5, 5), (11, 4)][rng.integers(6)]
    zeros, rolloff, beta, kaiser = int(rng.integers(1, 8)), float(rng.uniform(0.7, 1)), 8.0, bool(rng.integers(2))
    facts = {
        "lowpass_filter_width": zeros, "rolloff": rolloff, "beta": beta,
        "resampling_method": "sinc_interp_kaiser" if kaiser else "sinc_interp_hann",
    }  # fmt: skip
    if old != new:
        _same(bc.sinc_resample, (x, old, new), facts, _torchaudio(x, old, new, zeros, rolloff, kaiser, beta))
    else:
        assert bc.sinc_resample(x, old, new) is x


@pytest.mark.parametrize("seed", range(16))
def test_random_smoothing_is_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axis = int(rng.integers(-2, 2))
    x = rng.standard_normal((30, 40))
    size = int(rng.choice([1, 3, 7, 11]))
    order = int(rng.integers(0, min(size, 5)))
    deriv, delta = int(rng.integers(0, 3)), float(rng.uniform(0.5, 2))
    for mode in ("interp", "mirror", "nearest", "wrap", "constant"):
        given = (x, size, order, deriv, delta, axis, mode, 0.7)
        _same(bc.savgol_filter, given, {}, scipy.savgol_filter(*given))
    sizes = [int(k) for k in rng.choice([1, 3, 5], 2)]
    _same(bc.medfilt, (x, sizes), {}, scipy.medfilt(x, sizes))
    _same(bc.medfilt, (x[0], 5), {}, scipy.medfilt(x[0], 5))
    _same(bc.medfilt, (x, 3), {"axis": 1}, scipy.medfilt(x, [1, 3]))


@pytest.mark.parametrize("seed", range(10))
def test_random_responses_are_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    b, a, n = rng.standard_normal(rng.integers(1, 40)), 1 + rng.uniform(size=3), int(rng.choice([1, 5, 8, 64]))
    round_, fs = bool(rng.integers(2)), float(rng.uniform(1, 10))
    made, truth = bc.freqz(b, a, n, round_, fs), scipy.freqz(b, a, n, round_, fs=fs)
    for one, other in zip(made, truth, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10, rtol=1e-8)
    outs = tuple(np.empty_like(one) for one in made)
    assert bc.freqz(b, a, n, round_, fs, out=outs)[1] is outs[1]
    np.testing.assert_array_equal(outs[0], made[0])


def test_gradients() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.standard_normal((2, 13)), requires_grad=True)
    h = torch.tensor(rng.standard_normal(5), requires_grad=True)

    def check(function: Any, *given: Any) -> bool:
        return bool(torch.autograd.gradcheck(function, given, fast_mode=True))

    assert check(lambda x: bc.resample(x, 8, 1), x) and check(lambda x: bc.resample(x, 21, 1), x)
    assert check(lambda h, x: bc.upfirdn(h, x, 3, 2), h, x)
    assert check(lambda x, h: bc.resample_poly(x, 2, 3, 1, h), x, h)
    assert check(lambda x: bc.sinc_resample(x, 3, 2), x)
    for mode in ("interp", "mirror"):
        assert check(lambda x, m=mode: bc.savgol_filter(x, 5, 2, mode=m), x)
    assert check(lambda x: bc.medfilt(x, 3), x)
    assert check(lambda h: bc.freqz(h, (1.0, 0.5), 8)[1], h)


def test_float32_and_no_rows() -> None:
    x = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    for function, given in (
        (bc.resample, (40, 1)), (bc.resample_poly, (3, 2, 1)), (bc.sinc_resample, (3, 2)), (bc.savgol_filter, (7, 2)),
    ):  # fmt: skip
        y = function(x, *given)
        assert y.dtype == np.float32
        np.testing.assert_allclose(y, function(x.astype(float), *given), atol=1e-5)
        assert function(x[:0], *given).shape == (0, y.shape[1])


def test_what_is_refused() -> None:
    x = np.zeros((2, 9))
    with pytest.raises(InvalidProblemError, match="must have elements along axis 0"):
        bc.resample(x[:0], 4)
    with pytest.raises(InvalidProblemError, match="num"):
        bc.resample(x, 0)
    with pytest.raises(InvalidProblemError, match="h must hold float64"):
        bc.upfirdn(np.ones(2, np.float32), x)
    with pytest.raises(InvalidProblemError, match="rolloff must be above 0"):
        bc.sinc_resample(x, 2, 3, rolloff=1.5)
    with pytest.raises(InvalidProblemError, match="resampling_method must be one of"):
        bc.sinc_resample(x, 2, 3, resampling_method="linear")
    with pytest.raises(InvalidProblemError, match="window_length must be odd"):
        bc.savgol_filter(x, 4, 2)
    with pytest.raises(InvalidProblemError, match="window_length 11 elements at least"):
        bc.savgol_filter(x, 11, 2)
    with pytest.raises(InvalidProblemError, match="kernel_size must be odd"):
        bc.medfilt(x, 4)
    with pytest.raises(UnsupportedError, match="medfilt takes numbers that have an order"):
        bc.medfilt(x + 0j)
