"""Spectrograms, mel, cepstra, decibels, codes and phases against torchaudio's formulas in float64."""

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

torch = pytest.importorskip("torch")
from tests.ops.signal import torchaudio_formulas as audio  # noqa: E402


def _drawn(seed: int) -> tuple[np.ndarray, dict[str, Any], dict[str, Any]]:
    """x; options of ours; the same of the formula's."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(8, 40))
    size = int(rng.integers(n // 2, n + 1))
    hop = int(rng.integers(1, size))
    shape = [(120,), (2, 90), (2, 3, 80)][rng.integers(3)]
    window = rng.uniform(0.2, 1, size) if rng.integers(2) else None
    both = {
        "power": [1.0, 2.0, 0.7, 3][rng.integers(4)],
        "normalized": [False, True, "window", "frame_length"][rng.integers(4)],
        "center": bool(rng.integers(2)), "pad": int(rng.integers(3)),
        "pad_mode": ["reflect", "constant"][rng.integers(2)],
    }  # fmt: skip
    theirs = {
        "window": bc.hann_window(size, element="float64") if window is None else window,
        "n": n,
        "hop": hop,
        **both,
    }
    return (
        rng.standard_normal(shape),
        {"n_fft": n, "hop_length": hop, "win_length": size, "window": window, **both},
        theirs,
    )


def _same(function: Any, x: np.ndarray, facts: dict[str, Any], truth: np.ndarray) -> None:
    y = function(x, **facts)
    np.testing.assert_allclose(y, truth, atol=1e-10, rtol=1e-10)
    out = np.empty_like(y)
    assert function(x, **facts, out=out) is out
    np.testing.assert_array_equal(out, y)


@pytest.mark.parametrize("seed", range(12))
def test_random_spectrograms(seed: int) -> None:
    x, ours, theirs = _drawn(seed)
    one = bool(seed % 2)
    _same(bc.spectrogram, x, {**ours, "onesided": one}, audio.spectrogram(x, **theirs, onesided=one))
    _same(bc.spectrogram, x, {**ours, "power": None}, audio.spectrogram(x, **{**theirs, "power": None}))


@pytest.mark.parametrize("seed", range(12))
def test_random_mels_and_cepstra(seed: int) -> None:
    x, ours, theirs = _drawn(seed)
    rng = np.random.default_rng(seed)
    bands, rate = int(rng.integers(2, 9)), int(rng.choice([8000, 16000, 44100]))
    filters = {"f_min": float(rng.choice([0, 100.0])), "n_mels": bands, "mel_scale": str(rng.choice(["htk", "slaney"]))}
    norm, f_max = [None, "slaney"][rng.integers(2)], [None, 3500.0][rng.integers(2)]
    top = rate / 2 if f_max is None else f_max
    bank = audio.filterbank(ours["n_fft"] // 2 + 1, filters["f_min"], top, bands, rate, norm, filters["mel_scale"])
    made = bc.mel_filterbank(
        ours["n_fft"] // 2 + 1, filters["f_min"], top, bands, rate, norm, filters["mel_scale"], element="float64"
    )
    np.testing.assert_allclose(made, bank, atol=1e-12)
    mels = (audio.spectrogram(x, **theirs).swapaxes(-1, -2) @ bank).swapaxes(-1, -2)
    facts = {**ours, **filters, "f_max": f_max}
    _same(bc.mel_spectrogram, x, {**facts, "norm": norm, "sample_rate": rate}, mels)
    count, logs = int(rng.integers(1, bands + 1)), bool(rng.integers(2))
    high = np.log(mels + 1e-6) if logs else audio.decibels(mels, 10, 1e-10, 0, 80.0)
    for transform in ("ortho", None):
        truth = (high.swapaxes(-1, -2) @ audio.cosines(count, bands, transform)).swapaxes(-1, -2)
        more = {"sample_rate": rate, "n_mfcc": count, "norm": transform, "log_mels": logs, "mel_norm": norm}
        _same(bc.mfcc, x, {**facts, **more}, truth)


@pytest.mark.parametrize("seed", range(10))
def test_random_decibels_and_codes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.uniform(-0.1, 3, [(4, 5), (2, 4, 5), (3, 2, 4, 5)][rng.integers(3)])
    facts = {"multiplier": [10.0, 20.0][rng.integers(2)], "amin": [1e-10, 1e-3][rng.integers(2)]}
    zero, top = float(rng.uniform(-1, 1)), [None, 5.0, 80.0][rng.integers(3)]
    truth = audio.decibels(x, facts["multiplier"], facts["amin"], zero, top)
    _same(bc.amplitude_to_db, x, {**facts, "db_multiplier": zero, "top_db": top}, truth)
    ref, power = float(rng.uniform(0.5, 2)), [1.0, 0.5][rng.integers(2)]
    _same(bc.db_to_amplitude, truth, {"ref": ref, "power": power}, ref * (10 ** (0.1 * truth)) ** power)
    levels = [256, 2, 100][rng.integers(3)]
    mu, x = levels - 1, rng.uniform(-1, 1, 50)
    codes = ((np.sign(x) * np.log1p(mu * np.abs(x)) / np.log1p(mu) + 1) / 2 * mu + 0.5).astype(np.int64)
    _same(bc.mu_law_encoding, x, {"quantization_channels": levels}, codes)
    s = codes / mu * 2 - 1
    truth = np.sign(s) * (np.exp(np.abs(s) * np.log1p(mu)) - 1) / mu
    _same(bc.mu_law_decoding, codes, {"quantization_channels": levels, "element": "float64"}, truth)
    assert bc.mu_law_encoding(np.array([-3.0, 3.0]), levels).tolist() == [0, mu]


@pytest.mark.parametrize("seed", range(10))
def test_random_phases(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, hop, rate = 16, int(rng.integers(2, 9)), float(rng.uniform(0.4, 2.5))
    x = rng.standard_normal([(200,), (2, 160)][rng.integers(2)])
    z, advance = bc.stft(x, n, hop), np.linspace(0, np.pi * hop, 9)[:, None]
    _same(lambda z, **more: bc.phase_vocoder(z, rate, advance, **more), z, {}, audio.vocoded(z, rate, advance))
    sizes, window = bc.spectrogram(x, n, hop), bc.hann_window(n, element="float64")
    momentum, power, length = (
        float(rng.choice([0, 0.99])),
        float(rng.choice([1, 2, 1.5])),
        [None, x.shape[-1]][rng.integers(2)],
    )
    angles = np.ones(z.shape, complex) if rng.integers(2) else np.exp(1j * rng.standard_normal(z.shape))
    truth = audio.griffin_lim(sizes, window, n, hop, power, 4, momentum, length, angles)
    facts = {"n_fft": n, "hop_length": hop, "power": power, "n_iter": 4, "momentum": momentum, "length": length}
    y = bc.griffin_lim(sizes, **facts, init=None if (angles == 1).all() else angles)
    np.testing.assert_allclose(y, truth, atol=1e-8)


def test_gradients() -> None:
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.standard_normal((2, 24)), requires_grad=True)
    facts = {"n_fft": 8, "hop_length": 4}
    check = torch.autograd.gradcheck
    for power, normalized in ((2.0, True), (1.0, "frame_length"), (1.5, "window"), (None, True)):
        assert check(lambda x, p=power, m=normalized: bc.spectrogram(x, power=p, normalized=m, **facts), (x,))
    w = torch.tensor(rng.uniform(0.5, 1, 8), requires_grad=True)
    assert check(lambda w: bc.spectrogram(x.detach(), window=w, normalized=True, **facts), (w,))
    assert check(lambda x: bc.mel_spectrogram(x, n_mels=3, **facts), (x,))
    for logs in (True, False):
        assert check(lambda x, logs=logs: bc.mfcc(x, n_mfcc=2, log_mels=logs, n_mels=3, **facts), (x,))
    assert check(lambda x: bc.amplitude_to_db(x.abs(), top_db=3.0), (x,))
    assert check(lambda x: bc.db_to_amplitude(x, 2.0, 0.5), (x,))
    s = torch.tensor(rng.uniform(0, 255, 9), requires_grad=True)
    assert check(bc.mu_law_decoding, (s,))
    z = bc.stft(x, 8, 4).detach().requires_grad_()
    advance = torch.linspace(0, 4 * np.pi, 5, dtype=torch.float64)[:, None]
    assert check(lambda z: bc.phase_vocoder(z, 0.7, advance), (z,))
    sizes = torch.tensor(rng.uniform(0.5, 1, (5, 7)), requires_grad=True)
    assert check(lambda s: bc.griffin_lim(s, 8, n_iter=2), (sizes,))


def test_float32_and_no_rows() -> None:
    x = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    for function, facts in (
        (bc.spectrogram, {}),
        (bc.mel_spectrogram, {"n_mels": 4}),
        (bc.mfcc, {"n_mels": 4, "n_mfcc": 3}),
    ):
        y = function(x, n_fft=16, **facts)
        wide = function(x.astype(float), n_fft=16, **facts)
        assert y.dtype == np.float32
        np.testing.assert_allclose(y, wide, rtol=1e-4, atol=1e-4 * np.abs(wide).max())
        assert function(x[:0], n_fft=16, **facts).shape == (0, *y.shape[1:])


def test_what_is_refused() -> None:
    x = np.zeros((2, 64))
    with pytest.raises(InvalidProblemError, match="power must be above 0"):
        bc.spectrogram(x, 16, power=0.0)
    with pytest.raises(InvalidProblemError, match="normalized must be one of"):
        bc.spectrogram(x, 16, normalized="l2")
    with pytest.raises(InvalidProblemError, match="f_min must be 0 at least and below f_max"):
        bc.mel_filterbank(9, 10.0, 5.0, 3, 8000)
    with pytest.raises(InvalidProblemError, match="mel_scale must be one of"):
        bc.mel_filterbank(9, 0.0, 5.0, 3, 8000, mel_scale="bark")
    with pytest.raises(InvalidProblemError, match="n_mfcc"):
        bc.mfcc(x, n_fft=16, n_mels=4, n_mfcc=5)
    with pytest.raises(InvalidProblemError, match="amin must be above 0"):
        bc.amplitude_to_db(x, amin=0.0)
    with pytest.raises(InvalidProblemError, match="rate must be finite"):
        bc.phase_vocoder(x + 0j, 0.0, x)
    with pytest.raises(UnsupportedError, match="phase_vocoder takes complex"):
        bc.phase_vocoder(x, 1.0, x)
    with pytest.raises(InvalidProblemError, match="momentum must be 0 at least"):
        bc.griffin_lim(np.zeros((9, 3)), 16, momentum=1.0)
    with pytest.raises(InvalidProblemError, match="x must be"):
        bc.griffin_lim(np.zeros((8, 3)), 16)
    with pytest.raises(InvalidProblemError, match="length must give the 3 frames of x, 8 to 11"):
        bc.griffin_lim(np.zeros((9, 3)), 16, 4, length=7)
    with pytest.raises(UnsupportedError, match="mu_law_encoding takes floats"):
        bc.mu_law_encoding(np.arange(3))
