"""Spectra of frames in one launch on a device: every kernel, real sounds, paddings, layouts, bits, graphs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

pytestmark = pytest.mark.gpu
SINGLE = (*(1 << bits for bits in range(15)), 6, 7, 12, 60, 100, 210, 243, 400, 480, 625, 1000, 1200, 1536, 2401)
DOUBLE = (1, 2, 8, 32, 60, 105, 128, 256, 400, 512, 1000, 1024, 2048, 4096, 8192)


PADDINGS = {"reflect": "reflect", "constant": "constant", "replicate": "edge", "circular": "wrap"}  # NumPy's words


def truth(x: Any, window: Any, facts: dict[str, Any]) -> tuple[Any, Any]:
    """The frames times the window, and their spectra, by NumPy in float64."""
    n, half, left = facts["n_fft"], facts["n_fft"] // 2, (facts["n_fft"] - facts["win_length"]) // 2
    padded = np.pad(x.astype(np.float64), ((0, 0), (half, half)), PADDINGS[facts["pad_mode"]])  # type: ignore[call-overload]
    taps = np.pad(window.astype(np.float64), (left, n - facts["win_length"] - left))
    frames = np.lib.stride_tricks.sliding_window_view(padded, n, axis=-1)[:, :: facts["hop_length"]] * taps
    return frames, np.fft.rfft(frames)


@pytest.mark.parametrize(("n", "dtype"), [(n, "float32") for n in SINGLE] + [(n, "float64") for n in DOUBLE])
def test_every_kernel(n: int, dtype: str) -> None:
    """Of a length: half of what is promised, of spectra, magnitudes and squares."""
    import cupy

    rng = np.random.default_rng(n)
    x = rng.standard_normal((3, max(4 * n, 60))).astype(dtype)
    window = rng.uniform(0.1, 1, n).astype(dtype)
    facts = {"n_fft": n, "hop_length": max(n // 3, 1), "win_length": n, "pad_mode": "reflect"}
    frames, want = truth(x, window, facts)
    size = np.sqrt(n * np.square(frames).sum(-1))
    bound = float(np.finfo(dtype).eps) * math.log2(2 * n)
    given = cupy.asarray(x), {"window": cupy.asarray(window), **facts}
    z = bc.stft(given[0], **given[1]).get().swapaxes(1, 2)
    assert (np.linalg.norm(z - want, axis=-1) <= bound * size).all()
    sizes = bc.spectrogram(given[0], power=1, **given[1]).get().swapaxes(1, 2)
    assert (np.linalg.norm(sizes - np.abs(want), axis=-1) <= bound * size).all()
    squares = bc.spectrogram(given[0], power=2, **given[1]).get().swapaxes(1, 2)
    assert (np.linalg.norm(squares - np.abs(want) ** 2, axis=-1) <= 2 * bound * size * size).all()


@pytest.mark.parametrize("mode", ["reflect", "constant", "replicate", "circular"])
@pytest.mark.parametrize(("n", "hop", "taps"), [(512, 128, 512), (400, 160, 400), (1024, 441, 882), (2048, 1, 2048)])
def test_sounds(n: int, hop: int, taps: int, mode: str) -> None:
    """Of a second, a window that is shorter than the transform, odd hops; beside NumPy and torch."""
    import cupy

    torch = pytest.importorskip("torch")

    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 30000 if hop > 1 else 2500)).astype(np.float32)
    window = np.hanning(taps).astype(np.float32)
    facts = {"n_fft": n, "hop_length": hop, "win_length": taps, "pad_mode": mode}
    frames, want = truth(x, window, facts)
    held, given = cupy.asarray(x), {"window": cupy.asarray(window), **facts}
    z = bc.stft(held, **given).swapaxes(1, 2)
    size = np.sqrt(n * np.square(frames).sum(-1))
    assert (np.linalg.norm(z.get() - want, axis=-1) <= 1.2e-7 * math.log2(2 * n) * size).all()
    own = torch.from_numpy(x).cuda(), torch.from_numpy(window).cuda()
    other = torch.stft(own[0], n, hop, taps, own[1], pad_mode=mode, return_complex=True).mT.cpu().numpy()
    assert (np.linalg.norm(z.get() - other, axis=-1) <= 5e-7 * math.log2(2 * n) * size).all()


def test_layouts_bits_and_graphs() -> None:
    import cupy

    x = np.random.default_rng(0).standard_normal((4, 5000)).astype(np.float32)
    held = cupy.asarray(x)
    want = bc.spectrogram(held, 512, 128)
    spread = cupy.zeros((5000, 4, 2), np.float32)
    view = spread[::-1, :, 1].T
    view[...] = held
    assert (bc.spectrogram(view, 512, 128) == want).all()
    assert (bc.spectrogram(held[2], 512, 128) == want[2]).all()
    out = cupy.empty_like(cupy.ascontiguousarray(want))  # frames of a frequency lie side by side
    assert (bc.spectrogram(held, 512, 128, out=out) == want).all()
    window = bc.hann_window(512, like=held)
    replay = bc.graph(lambda: bc.spectrogram(held, 512, 128, window=window))
    held *= 2
    assert (replay() == 4 * want).all()


def test_gradients() -> None:
    """Beside torch's, of the composition in float64."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.standard_normal((2, 4000)), device="cuda", requires_grad=True)
    w = torch.tensor(rng.uniform(0.2, 1, 400), device="cuda", requires_grad=True)
    dy = torch.tensor(rng.standard_normal((2, 201, 26)), device="cuda")
    theirs = torch.stft(x, 400, 160, window=w, return_complex=True).abs().square()
    want = torch.autograd.grad(theirs, (x, w), dy)
    got = torch.autograd.grad(bc.spectrogram(x, 400, 160, window=w), (x, w), dy)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-8)
