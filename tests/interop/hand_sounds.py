"""Operands for the functions of spectra, filters and other rates: see `hand_written`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Call = tuple[list[Any], dict[str, Any]]


def _x(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _z(*shape: int) -> np.ndarray:
    return (_x(*shape) + 1j * _x(*shape, seed=1)).astype(np.complex64)


def _poles(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


SOUNDS: dict[str, Callable[[], Call]] = {
    "amplitude_to_db": lambda: ([np.abs(_x(2, 3, 4)) + 0.1], {"top_db": 3.0}),
    "analytic_signal": lambda: ([_x(3, 8)], {"axis": 0}),
    **dict.fromkeys(("coherence", "csd"), lambda: ([_x(2, 30), _x(2, 30, seed=1)], {"nperseg": 12})),
    "fftconvolve": lambda: ([_x(3, 8), _x(3, 4, seed=1)], {"axis": 1}),
    "long_convolution": lambda: ([_x(2, 3, 8), _x(3, 4, seed=1), _x(3, seed=2)], {"pre_gate": _x(2, 3, 8, seed=3)}),
    "periodogram": lambda: ([_x(3, 8)], {"axis": 0}),
    "welch": lambda: ([_x(2, 30)], {"nperseg": 12}),
    "biquad": lambda: ([_x(3, 8), 0.2, 0.4, 0.2, 1.0, -0.4, 0.2], {}),
    "filtfilt": lambda: ([_x(3, seed=1), _poles(2, -0.5, 0.3), _x(2, 12)], {"padlen": 4}),
    "lfilter": lambda: ([_x(3, seed=1), _poles(2, -0.5, 0.3), _x(3, 8)], {}),
    "lfilter_zi": lambda: ([_x(3, seed=1), _poles(2, -0.5, 0.3)], {}),
    **dict.fromkeys(("preemphasis", "deemphasis"), lambda: ([_x(3, 8)], {})),
    "sosfilt": lambda: ([np.stack([_poles(1, 2, 0.3, 2, -0.5, 0.3), _poles(1, 0.2, 0.3, 2, 0.4, 0.3)]), _x(3, 8)], {}),
    "freqz": lambda: ([_x(3), _poles(2, -0.5, 0.3), 8], {}),
    "medfilt": lambda: ([_x(3, 8), 3], {}),
    "resample": lambda: ([_x(3, 8), 5], {"axis": 1}),
    "resample_poly": lambda: ([_x(3, 8), 3, 2], {"axis": 1, "window": _x(7, seed=1)}),
    "savgol_filter": lambda: ([_x(3, 8), 5, 2], {}),
    "sinc_resample": lambda: ([_x(3, 8), 3, 2], {}),
    "upfirdn": lambda: ([_x(4, seed=1), _x(3, 8)], {"up": 2}),
    "db_to_amplitude": lambda: ([_x(3, 4)], {"power": 0.5}),
    "griffin_lim": lambda: ([np.abs(_x(2, 5, 6)) + 0.1, 8], {"n_iter": 2}),
    "istft": lambda: ([_z(2, 5, 6), 8], {"hop_length": 3}),
    "mel_spectrogram": lambda: ([_x(2, 30)], {"n_fft": 16, "n_mels": 3}),
    "mfcc": lambda: ([_x(2, 30)], {"n_fft": 16, "n_mels": 3, "n_mfcc": 2}),
    "mu_law_decoding": lambda: ([np.abs(_x(2, 3)) * 50], {}),
    "mu_law_encoding": lambda: ([np.tanh(_x(3, 4))], {}),
    "phase_vocoder": lambda: ([_z(2, 5, 6), 1.3, np.abs(_x(5, 1))], {}),
    "spectrogram": lambda: ([_x(2, 30)], {"n_fft": 16}),
    "stft": lambda: ([_x(2, 30), 16], {"window": np.abs(_x(16, seed=1))}),
    **dict.fromkeys(("dct", "idct", "dst", "idst"), lambda: ([_x(3, 6)], {"axis": 0, "norm": "ortho"})),
    **dict.fromkeys(("dctn", "idctn", "dstn", "idstn"), lambda: ([_x(3, 6)], {"type": 3})),
}
