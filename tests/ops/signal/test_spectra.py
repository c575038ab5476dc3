"""Powers over frequencies, convolutions by transforms and analytic signals against SciPy, over random options."""

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

scipy = pytest.importorskip("scipy.signal")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def _options(rng: Any, count: int) -> dict[str, Any]:
    size = [None, 8, 17, 300][rng.integers(4)]
    held = min(size or 256, count)
    return {
        "fs": float(rng.uniform(0.5, 50)), "window": ["hann", ("tukey", 0.3), "flattop"][rng.integers(3)],
        "nperseg": size, "noverlap": [None, 0, 3][rng.integers(3)], "nfft": [None, held, held + 5][rng.integers(3)],
        "detrend": ["constant", False, "linear"][rng.integers(3)],
    }  # fmt: skip


def _same(made: Any, truth: Any) -> None:
    for one, other in zip(made, truth, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10, rtol=1e-9)


@pytest.mark.parametrize("seed", range(24))
def test_random_options_are_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axis = int(rng.integers(-2, 2))
    shape = [60, 3] if axis % 2 == 0 else [3, 60]
    x, y = rng.standard_normal((2, *shape))
    facts = _options(rng, 60)
    more = {
        "return_onesided": bool(rng.integers(2)), "scaling": ["density", "spectrum"][rng.integers(2)],
        "average": ["mean", "median"][rng.integers(2)], "axis": axis,
    }  # fmt: skip
    if rng.integers(4) == 0:
        x, y = x + 1j * y, y - 2j * x
        facts["detrend"] = "constant" if facts["detrend"] == "linear" else facts["detrend"]
    _same(bc.welch(x, **facts, **more), scipy.welch(x, **facts, **more))
    _same(bc.csd(x, y, **facts, **more), scipy.csd(x, y, **facts, **more))
    _same(bc.coherence(x, y, **facts, axis=axis), scipy.coherence(x, y, **facts, axis=axis))
    once = {k: v for k, v in {**facts, **more}.items() if k not in ("nperseg", "noverlap", "average")}
    _same(bc.periodogram(x, **once), scipy.periodogram(x, **once))
    _same(bc.periodogram(x, nfft=40, axis=axis), scipy.periodogram(x, nfft=40, axis=axis))
    for made in (bc.welch, bc.csd, bc.coherence):
        pair = (x,) if made is bc.welch else (x, y)
        outs = tuple(np.empty_like(one) for one in made(*pair, **facts, axis=axis))
        given = made(*pair, **facts, axis=axis, out=outs)
        assert given[0] is outs[0] and given[1] is outs[1]
        _same(outs, made(*pair, **facts, axis=axis))


def test_windows_that_are_given_and_lengths_that_differ() -> None:
    rng = np.random.default_rng(0)
    x, y, w = rng.standard_normal((2, 50)), rng.standard_normal((2, 30)), rng.uniform(0.5, 1, 12)
    _same(bc.welch(x, window=w), scipy.welch(x, window=w))
    _same(bc.csd(x, y, nperseg=16), scipy.csd(x, y, nperseg=16))


@pytest.mark.parametrize("seed", range(16))
def test_random_convolutions_are_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    a, v = rng.standard_normal(rng.integers(1, 9, rank)), rng.standard_normal(rng.integers(1, 6, rank))
    if rng.integers(2):
        a, v = a + 1j, v * (1 - 2j)
    for mode in ("full", "same", "valid"):
        if mode == "valid" and not all(a.shape[i] >= v.shape[i] for i in range(rank)):
            v = v[tuple(slice(0, n) for n in a.shape)]
        truth = scipy.convolve(a, v, mode, "direct")
        y = bc.fftconvolve(a, v, mode)
        np.testing.assert_allclose(y, truth, atol=1e-12)
        out = np.empty_like(y)
        assert bc.oaconvolve(a, v, mode, out=out) is out
        if mode == "valid":
            np.testing.assert_allclose(bc.fftconvolve(v, a, mode), scipy.fftconvolve(v, a, mode), atol=1e-12)
    a, v = rng.standard_normal((3, 1, 7)), rng.standard_normal((1, 4, 3))
    np.testing.assert_allclose(bc.fftconvolve(a, v, axis=2), scipy.fftconvolve(a, v, axes=2), atol=1e-12)
    a = rng.standard_normal((3, 4, 7))  # SciPy cuts axes that are broadcast, too
    np.testing.assert_allclose(bc.fftconvolve(a, v, "same", -1), scipy.fftconvolve(a, v, "same", -1), atol=1e-12)


def test_analytic_signals_are_scipys() -> None:
    rng = np.random.default_rng(0)
    for shape, axis, n in (((7,), 0, None), ((3, 8), 1, None), ((5, 3), 0, 9), ((4, 6), -1, 4), ((2, 1), 1, None)):
        x = rng.standard_normal(shape)
        y = bc.analytic_signal(x, n, axis)
        np.testing.assert_allclose(y, scipy.hilbert(x, n, axis), atol=1e-12)
        out = np.empty_like(y)
        assert bc.analytic_signal(x, n, axis, out=out) is out


def test_gradients() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    check = torch.autograd.gradcheck
    x, y = (torch.tensor(rng.standard_normal((2, 20)), requires_grad=True) for _ in range(2))
    w = torch.tensor(rng.uniform(0.5, 1, 8), requires_grad=True)
    for facts in ({}, {"scaling": "spectrum", "average": "median", "detrend": "linear"}):
        assert check(lambda x, w, f=facts: bc.welch(x, window=w, **f)[1], (x, w), fast_mode=True)
        assert check(lambda x, y, f=facts: bc.csd(x, y, nperseg=8, **f)[1], (x, y), fast_mode=True)
    assert check(lambda x, y: bc.coherence(x, y, nperseg=8)[1], (x, y), fast_mode=True)
    assert check(lambda x: bc.periodogram(x)[1], (x,), fast_mode=True)
    assert check(lambda x, y: bc.fftconvolve(x, y, "same"), (x, y), fast_mode=True)
    assert check(bc.analytic_signal, (x,), fast_mode=True)
    z, v = x.detach() + 1j * y.detach(), torch.tensor([[1.0 + 1j, 2, -1j]])
    assert check(
        lambda z, v: bc.fftconvolve(z, v), (z.requires_grad_(), v.to(z.dtype).requires_grad_()), fast_mode=True
    )
    assert check(lambda z: bc.welch(z, nperseg=8)[1], (z,), fast_mode=True)


def test_what_is_refused() -> None:
    x = np.zeros((2, 20))
    with pytest.raises(InvalidProblemError, match="noverlap"):
        bc.welch(x, nperseg=8, noverlap=8)
    with pytest.raises(InvalidProblemError, match="detrend must be one of"):
        bc.welch(x, detrend="spline")
    with pytest.raises(InvalidProblemError, match="average must be one of"):
        bc.welch(x, average="mode")
    with pytest.raises(InvalidProblemError, match="scaling must be one of"):
        bc.welch(x, scaling="power")
    with pytest.raises(InvalidProblemError, match="nperseg must be the length of window 8"):
        bc.welch(x, window=np.ones(8), nperseg=9)
    with pytest.raises(InvalidProblemError, match="fs must be above 0"):
        bc.csd(x, x, fs=0.0)
    with pytest.raises(InvalidProblemError, match="as many axes"):
        bc.csd(x, x[0])
    with pytest.raises(UnsupportedError, match="of real numbers"):
        bc.welch(x + 0j, detrend="linear")
    with pytest.raises(InvalidProblemError, match="v must hold float64"):
        bc.fftconvolve(x, x.astype(np.float32))
    with pytest.raises(InvalidProblemError, match="contain the other"):
        bc.fftconvolve(x, x.T, "valid")
    with pytest.raises(UnsupportedError, match="fftconvolve takes x of float32"):
        bc.fftconvolve(np.ones(3, int), np.ones(3, int))
