"""Spectra of frames in one launch: bits of the parts, launches, layouts, gradients, what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import BackendKind, PlanPreference
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.fft.framed_rfft import FramedRfftPlan, windowed
from baracuda_py.ops.fft.rfft import RfftPlan
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.places import call
from baracuda_py.testing.recording import pointer_view

OWN = PlanPreference(prefer_backend=BackendKind.BESPOKE)


def made(desc: Any, x: Any, window: Any = None) -> Any:
    """y on the emulator."""
    return call(FramedRfftPlan, desc, {"y"}, "emulator", x=x, **({} if window is None else {"window": window}))["y"]


@pytest.mark.parametrize("n", [1, 2, 7, 12, 16, 64, 100, 256])
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_bits_are_those_of_the_parts(n: int, mode: str) -> None:
    """Of frames times window in memory, transformed by `RfftPlan`; magnitudes and squares are those of that."""
    rng = np.random.default_rng(n)
    taps, padding = max(n - 3, 1), min(n // 2 + n % 3, 50)
    more: dict[str, Any] = {
        "shape": (2, n + 55), "n_fft": n, "hop_length": n // 3 + 1, "padding": padding, "pad_mode": mode,
        "norm": "ortho", "element": "float32",
    }  # fmt: skip
    x = rng.standard_normal(more["shape"]).astype(np.float32)
    for length, window in ((n, rng.uniform(0.2, 1, n)), (taps, rng.uniform(0.2, 1, taps)), (taps, None)):
        window = None if window is None else window.astype(np.float32)
        desc = FramedRfftPlan.descriptor(**more, win_length=length)
        frames = windowed(desc, x, window)
        parts = RfftPlan.descriptor(shape=frames.shape, axis=2, norm="ortho", element="float32")
        z = call(RfftPlan, parts, {"y"}, "emulator", OWN, x=frames)["y"]
        np.testing.assert_array_equal(made(desc, x, window), z)
    sizes = made(FramedRfftPlan.descriptor(**more, win_length=length, result="magnitude"), x)
    np.testing.assert_allclose(sizes, np.hypot(z.real, z.imag), rtol=3e-7)
    squares = made(FramedRfftPlan.descriptor(**more, win_length=length, result="power"), x)
    np.testing.assert_array_equal(squares, z.real * z.real + z.imag * z.imag)


def test_a_frame_alone_has_the_same_bits() -> None:
    """Whatever stands beside it, in views and where frames lie side by side in the result."""
    x = np.random.default_rng(0).standard_normal((3, 90)).astype(np.float32)
    more: dict[str, Any] = {"n_fft": 32, "hop_length": 9, "win_length": 32, "element": "float32"}
    want = made(FramedRfftPlan.descriptor(shape=(3, 90), **more), x)
    alone = made(FramedRfftPlan.descriptor(shape=(32,), **more), x[1, 27:59])
    np.testing.assert_array_equal(alone[0], want[1, 3])
    spread = np.zeros((90, 3, 2), np.float32)
    view = spread[::-1, :, 1].T
    view[...] = x
    np.testing.assert_array_equal(made(FramedRfftPlan.descriptor(shape=(3, 90), **more), view), want)
    desc = FramedRfftPlan.descriptor(shape=(3, 90), **more, result="power")
    across = np.zeros((3, 17, 7), np.float32).swapaxes(1, 2)
    with emulating():
        plan = FramedRfftPlan.select(desc, OWN, device=emulated_device(9.0))
        plan.run(FramedRfftPlan.args(x=pointer_view(x), y=pointer_view(across)))
    np.testing.assert_array_equal(across, want.real * want.real + want.imag * want.imag)


@pytest.mark.parametrize("device", [8.0, 8.6, 9.0, 12.0])
def test_every_device_has_the_row(device: float) -> None:
    for n, element in ((400, "float32"), (16384, "float32"), (8192, "float64"), (2401, "float32")):
        facts = {"shape": (2, n + 100), "n_fft": n, "hop_length": 10, "win_length": n, "element": element}
        plan = FramedRfftPlan(FramedRfftPlan.descriptor(**facts), PlanPreference(), emulated_device(device))
        assert "stockham" in str(plan.sku) and plan.workspace_size() == 0


def test_one_launch() -> None:
    """stft and spectrogram, of a window that is given, by a plan of one step that reads x once; explain shows it."""
    desc = FramedRfftPlan.descriptor(
        shape=(2, 500), n_fft=128, hop_length=32, win_length=128, padding=64, result="power", element="float32"
    )
    plan = FramedRfftPlan(desc, PlanPreference(), emulated_device(9.0))
    assert "framed_rfft" in str(plan.sku) and plan.workspace_size() == 0
    assert FramedRfftPlan.bytes(desc) == 2 * 500 * 4 + 2 * 16 * 65 * 4
    assert "stockham" in plan.explain()


def test_functions_take_it_or_the_parts() -> None:
    """The same numbers by one launch, by the parts that cuFFT is asked for, and of lengths that only it has."""
    x = np.random.default_rng(0).standard_normal((2, 200))
    window = np.random.default_rng(1).uniform(0.1, 1, 30)
    for n in (30, 32, 33):
        for mode in ("reflect", "constant", "replicate", "circular"):
            facts: dict[str, Any] = {"hop_length": 7, "win_length": 30, "window": window, "pad_mode": mode}
            z = bc.stft(x, n, **facts)
            both = bc.stft(x, n, onesided=False, **facts)
            np.testing.assert_allclose(z, both[:, : n // 2 + 1], atol=1e-12)
            np.testing.assert_allclose(bc.spectrogram(x, n, **facts), np.abs(z) ** 2, atol=1e-11)
            np.testing.assert_allclose(bc.spectrogram(x, n, power=1, **facts), np.abs(z), atol=1e-12)
            np.testing.assert_allclose(bc.spectrogram(x, n, power=3, **facts), np.abs(z) ** 3, atol=1e-10)


def test_gradients_of_magnitudes() -> None:
    """Of every result, of signals with places that no frame reaches, with padding of each mode; twice."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.standard_normal((2, 23)), requires_grad=True)
    w = torch.tensor(rng.uniform(0.4, 1, 6), requires_grad=True)
    for mode in ("reflect", "constant", "replicate", "circular"):
        for power in (None, 1.0, 2.0):
            facts = {"n_fft": 8, "hop_length": 5, "win_length": 6, "power": power, "pad_mode": mode}
            for center in (True, False):
                assert torch.autograd.gradcheck(
                    lambda x, w, c=center, f=facts: bc.spectrogram(x, window=w, center=c, **f), (x, w), fast_mode=True
                )
    check = torch.autograd.gradgradcheck
    assert check(lambda x, w: bc.spectrogram(x, 8, 5, 6, window=w), (x, w), fast_mode=True)
    assert check(lambda x: bc.stft(x, 8, 5).real, (x,), fast_mode=True)
    silent = torch.zeros((1, 16), dtype=torch.float64, requires_grad=True)
    bc.spectrogram(silent, 8, power=1.0).sum().backward()
    assert (silent.grad == 0).all()


def test_what_is_refused() -> None:
    def of(**facts: Any) -> Any:
        sizes = {"shape": (20,), "n_fft": 8, "hop_length": 2, "win_length": 8, "element": "float32"}
        return FramedRfftPlan.descriptor(**sizes | facts)

    with pytest.raises(InvalidProblemError, match="an axis of time"):
        of(shape=())
    with pytest.raises(InvalidProblemError, match="at most 19 in mode 'reflect'"):
        of(padding=20)
    with pytest.raises(InvalidProblemError, match="at most 20 in mode 'circular'"):
        of(padding=21, pad_mode="circular")
    with pytest.raises(InvalidProblemError, match="no elements"):
        of(shape=(0,), padding=4, pad_mode="replicate")
    with pytest.raises(InvalidProblemError, match="win_length must be at most n_fft 8"):
        of(win_length=9)
    with pytest.raises(InvalidProblemError, match="must have 21 elements"):
        of(n_fft=21, win_length=21)
    with pytest.raises(UnsupportedError, match="call stft"):
        of(n_fft=11, win_length=11)
    with pytest.raises(UnsupportedError):
        of(element="float16")
