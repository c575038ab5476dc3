"""Functions of signals on a GPU at sizes of real sounds, every element, against float64."""

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

pytestmark = pytest.mark.gpu


def _close(made: Any, truth: np.ndarray, share: float) -> None:
    """Every element is within `share` of the largest."""
    if isinstance(made, tuple):
        made = made[1]
    host = made.get()
    assert host.shape == truth.shape and np.isfinite(host).all()
    assert np.abs(host - truth).max() <= share * np.abs(truth).max()


@pytest.fixture
def sound() -> Any:
    cp = pytest.importorskip("cupy")
    x = np.random.default_rng(0).standard_normal((4, 80000)).astype(np.float32)
    return x.astype(np.float64), cp.asarray(x), cp


def test_short_time_spectra_there_and_back(sound: Any) -> None:
    x, held, cp = sound
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(400) / 400)
    z = bc.stft(held, 512, 160, 400, cp.asarray(window.astype(np.float32)))
    truth = bc.stft(x, 512, 160, 400, window)
    _close(z, truth, 1e-5)
    _close(bc.istft(z, 512, 160, 400, cp.asarray(window.astype(np.float32)), length=80000), x, 1e-5)


def test_mel_spectra_and_cepstra(sound: Any) -> None:
    x, held, _ = sound
    for function, facts in ((bc.spectrogram, {}), (bc.mel_spectrogram, {}), (bc.mfcc, {"n_mels": 80})):
        _close(
            function(held, n_fft=512, hop_length=160, **facts), function(x, n_fft=512, hop_length=160, **facts), 1e-4
        )


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
def test_cosine_and_sine_transforms(sound: Any, kind: int) -> None:
    scipy = pytest.importorskip("scipy.fft")
    x, held, _ = sound
    x, held = x[:, :4000].reshape(16, 1000), held[:, :4000].reshape(16, 1000)
    for name in ("dct", "idct", "dst", "idst"):
        for axis in (0, 1):
            truth = getattr(scipy, name)(x, kind, axis=axis, norm="ortho")
            _close(getattr(bc, name)(held, kind, axis=axis, norm="ortho"), truth, 1e-5)


def test_spectra_and_convolutions(sound: Any) -> None:
    scipy = pytest.importorskip("scipy.signal")
    x, held, _ = sound
    _close(bc.welch(held, nperseg=512), scipy.welch(x, nperseg=512)[1], 1e-4)
    _close(bc.csd(held, held * 2, nperseg=512), scipy.csd(x, x * 2, nperseg=512)[1], 1e-4)
    _close(bc.fftconvolve(held, held[:, :999], axis=1), scipy.fftconvolve(x, x[:, :999], axes=1), 1e-5)
    _close(bc.analytic_signal(held), scipy.hilbert(x), 1e-5)


def test_filters_and_rates(sound: Any) -> None:
    scipy = pytest.importorskip("scipy.signal")
    x, held, cp = sound
    b, a = (one.astype(np.float32) for one in scipy.butter(4, 0.3))
    wide = b.astype(np.float64), a.astype(np.float64)
    _close(bc.lfilter(cp.asarray(b), cp.asarray(a), held), scipy.lfilter(*wide, x), 1e-5)
    _close(bc.filtfilt(cp.asarray(b), cp.asarray(a), held), scipy.filtfilt(*wide, x), 1e-4)
    sos = scipy.butter(6, 0.2, output="sos").astype(np.float32)
    _close(bc.sosfilt(cp.asarray(sos), held), scipy.sosfilt(sos.astype(np.float64), x), 1e-4)
    _close(bc.resample_poly(held, 3, 2, 1), scipy.resample_poly(x, 3, 2, 1), 1e-5)
    _close(bc.sinc_resample(held, 16000, 44100), bc.sinc_resample(x[:, :80000], 16000, 44100), 1e-5)
    _close(bc.savgol_filter(held, 11, 3), scipy.savgol_filter(x, 11, 3), 1e-5)
    _close(bc.medfilt(held[:, :9000], 5, axis=1), scipy.medfilt(x[:, :9000], [1, 5]), 0)


def test_gradients_reach_sounds_and_windows(sound: Any) -> None:
    torch = pytest.importorskip("torch")
    x, _, _ = sound
    made = []
    for device, kind in (("cuda", torch.float32), ("cpu", torch.float64)):
        t = torch.tensor(x[:2, :8000], dtype=kind, device=device, requires_grad=True)
        w = torch.hann_window(400, dtype=kind, device=device).requires_grad_()
        bc.mfcc(t, 16000, n_mels=40, n_mfcc=20, log_mels=True, window=w).square().sum().backward()
        made.append([one.grad.cpu().double().numpy() for one in (t, w)])
    for one, other in zip(*made, strict=True):
        assert np.abs(one - other).max() <= 1e-3 * np.abs(other).max()
