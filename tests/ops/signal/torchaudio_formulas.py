"""torchaudio's formulas in float64 on torch's own stft and NumPy: what the functions of sound are compared with."""

from typing import Any

import numpy as np
import torch


def filterbank(n: int, low: float, high: float, bands: int, rate: int, norm: Any, scale: str) -> np.ndarray:
    """torchaudio.functional.melscale_fbanks."""
    step = np.log(6.4) / 27

    def mel(f: float) -> float:
        if scale == "htk":
            return 2595 * np.log10(1 + f / 700)
        return f / (200 / 3) if f < 1000 else 15 + np.log(f / 1000) / step

    m = np.linspace(mel(low), mel(high), bands + 2)
    if scale == "htk":
        points = 700 * (10 ** (m / 2595) - 1)
    else:
        points = np.where(m < 15, m * 200 / 3, 1000 * np.exp(step * (m - 15)))
    width, slopes = np.diff(points), points[None] - np.linspace(0, rate // 2, n)[:, None]
    bank = np.maximum(0, np.minimum(-slopes[:, :-2] / width[:-1], slopes[:, 2:] / width[1:]))
    return bank * (2 / (points[2:] - points[:-2])) if norm == "slaney" else bank


def spectrogram(x: np.ndarray, window: np.ndarray, n: int, hop: int, power: Any, normalized: Any, **facts: Any) -> Any:
    """torchaudio.functional.spectrogram."""
    pad = facts.pop("pad", 0)
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(pad, pad)])
    w = torch.tensor(window)
    flat = torch.tensor(x.reshape(-1, x.shape[-1]))
    by_length = normalized == "frame_length"
    z = torch.stft(flat, n, hop, len(window), w, normalized=by_length, return_complex=True, **facts).numpy()
    z = z.reshape(*x.shape[:-1], *z.shape[1:])
    z = z / np.sqrt((window**2).sum()) if normalized in (True, "window") else z
    return z if power is None else np.abs(z) ** power


def decibels(x: np.ndarray, multiplier: float, amin: float, db: float, top: Any) -> np.ndarray:
    """torchaudio.functional.amplitude_to_DB."""
    y = multiplier * np.log10(np.maximum(x, amin)) - multiplier * db
    if top is None:
        return y
    packed = y.reshape(-1, x.shape[-3] if x.ndim > 2 else 1, *x.shape[-2:])
    return np.maximum(packed, packed.max((-3, -2, -1), keepdims=True) - top).reshape(x.shape)


def cosines(count: int, bands: int, norm: Any) -> np.ndarray:
    """torchaudio.functional.create_dct."""
    made = np.cos(np.pi / bands * (np.arange(bands) + 0.5) * np.arange(count)[:, None])
    if norm is None:
        return 2 * made.T
    made[0] /= np.sqrt(2)
    return made.T * np.sqrt(2 / bands)


def vocoded(x: np.ndarray, rate: float, advance: np.ndarray) -> np.ndarray:
    """torchaudio.functional.phase_vocoder."""
    steps = np.arange(0, x.shape[-1], rate)
    share, first = steps % 1, np.angle(x[..., :1])
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 2)])
    a, b = x[..., steps.astype(int)], x[..., steps.astype(int) + 1]
    phase = np.angle(b) - np.angle(a) - advance
    phase = phase - 2 * np.pi * np.round(phase / (2 * np.pi)) + advance
    phase = np.cumsum(np.concatenate([first, phase[..., :-1]], -1), -1)
    size = share * np.abs(b) + (1 - share) * np.abs(a)
    return size * np.exp(1j * phase)


def griffin_lim(
    x: np.ndarray, window: np.ndarray, n: int, hop: int, power: float, turns: int, momentum: float, length: Any,
    angles: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """torchaudio.functional.griffinlim, from given angles."""
    w, size = torch.tensor(window), torch.tensor(x ** (1 / power))
    guess, before, momentum = torch.tensor(angles), 0, momentum / (1 + momentum)
    for _ in range(turns):
        sound = torch.istft(size * guess, n, hop, len(window), w, length=length)
        made = torch.stft(sound, n, hop, len(window), w, return_complex=True)
        guess = made - before * momentum if momentum else made
        guess, before = guess / (guess.abs() + 1e-16), made
    return torch.istft(size * guess, n, hop, len(window), w, length=length).numpy()
