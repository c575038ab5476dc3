"""stft and istft against torch's, over random options; gradients against differences."""

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def _drawn(seed: int) -> tuple[Any, dict[str, Any], Any]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 33))
    size = int(rng.integers(max(n // 2, 1), n + 1))
    hop = int(rng.integers(1, size + 1))
    shape = [(97,), (2, 64), (3, 50)][rng.integers(3)]
    window = None if rng.integers(3) == 0 else rng.uniform(0.1, 1.0, size)
    facts: dict[str, Any] = {
        "hop_length": hop, "win_length": size, "center": bool(rng.integers(2)), "normalized": bool(rng.integers(2))
    }  # fmt: skip
    return rng.standard_normal(shape), {"n_fft": n, **facts}, window


def _torch(value: Any) -> Any:
    return None if value is None else torch.tensor(value)


@pytest.mark.parametrize("seed", range(20))
def test_random_options_are_those_of_torch(seed: int) -> None:
    x, facts, window = _drawn(seed)
    rng = np.random.default_rng(seed + 100)
    more = {
        "pad_mode": ["reflect", "constant", "replicate"][rng.integers(3)],
        "onesided": [None, True, False][rng.integers(3)],
    }
    if rng.integers(4) == 0:
        x, more["onesided"] = x + 1j * rng.standard_normal(x.shape), False
    y = bc.stft(x, window=window, **facts, **more)
    wide = {**facts, **more, "return_complex": True}
    # torch pads with reflections of up to the length only
    theirs = torch.stft(torch.tensor(x), window=_torch(window), **wide).numpy()
    np.testing.assert_allclose(y, theirs, atol=1e-12)
    pairs = bc.stft(x, window=window, **facts, **more, return_complex=False)
    np.testing.assert_array_equal(pairs, np.stack([y.real, y.imag], -1))
    out = np.empty_like(y)
    assert bc.stft(x, window=window, **facts, **more, out=out) is out
    np.testing.assert_array_equal(out, y)


@pytest.mark.parametrize("seed", range(20))
def test_random_inverses_are_those_of_torch(seed: int) -> None:
    x, facts, window = _drawn(seed)
    rng = np.random.default_rng(seed)
    facts["center"] = facts["center"] or facts["win_length"] < facts["n_fft"]  # else torch refuses the ends
    facts["hop_length"] = min(facts["hop_length"], facts["win_length"] // 2 + 1)
    length = [None, 40, 120 if facts["win_length"] == facts["n_fft"] else 30][rng.integers(3)]
    for sides in (True, False):
        spectrum = bc.stft(x, window=window, onesided=sides, **facts)
        spectrum = spectrum * rng.uniform(0.5, 2, spectrum.shape)  # no longer one of a signal
        if facts["n_fft"] > 2 or sides:
            y = bc.istft(spectrum, window=window, length=length, onesided=sides, **facts)
            theirs = torch.istft(
                torch.tensor(spectrum), window=_torch(window), length=length, onesided=sides, **facts
            ).numpy()
            np.testing.assert_allclose(y, theirs, atol=1e-12)
            out = np.empty_like(y)
            assert bc.istft(spectrum, window=window, length=length, onesided=sides, out=out, **facts) is out
            np.testing.assert_array_equal(out, y)
    both = bc.istft(spectrum, window=window, length=length, onesided=False, return_complex=True, **facts)
    theirs = torch.istft(
        torch.tensor(spectrum), window=_torch(window), length=length, onesided=False, return_complex=True, **facts
    )
    np.testing.assert_allclose(both, theirs.numpy(), atol=1e-12)


def test_there_and_back() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 200))
    window = bc.hann_window(32, element="float64")
    y = bc.stft(x, 32, 8, window=window)
    assert y.shape == (2, 3, 17, 26)
    np.testing.assert_allclose(bc.istft(y, 32, 8, window=window, length=200), x, atol=1e-12)


def test_float32_and_no_rows() -> None:
    x = np.random.default_rng(0).standard_normal((2, 64)).astype(np.float32)
    y = bc.stft(x, 16)
    assert y.dtype == np.complex64
    np.testing.assert_allclose(y, bc.stft(x.astype(float), 16), atol=1e-5)
    assert bc.stft(x[:0], 16).shape == (0, 9, 17)
    assert bc.istft(y[:0], 16).shape == (0, 64)


def test_places_without_a_window_are_0() -> None:
    window = np.array([0.0, 1.0, 1.0, 0.0])
    y = bc.istft(np.ones((3, 4), complex), 4, 4, window=window, center=False)
    assert np.isfinite(y).all() and (y[3:5] == 0).all()


@pytest.mark.parametrize("center", [True, False])
def test_gradients(center: bool) -> None:
    rng = np.random.default_rng(1)
    x = torch.tensor(rng.standard_normal((2, 20)), requires_grad=True)
    w = torch.tensor(rng.uniform(0.5, 1, 6), requires_grad=True)
    facts = {"n_fft": 8, "hop_length": 3, "win_length": 6, "center": center}
    assert torch.autograd.gradcheck(lambda x, w: bc.stft(x, window=w, **facts), (x, w))
    z = bc.stft(x, window=w, **facts).detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda z, w: bc.istft(z, window=w, length=18, **facts), (z, w))
    z = bc.stft(x, window=w, onesided=False, **facts).detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda z, w: bc.istft(z, window=w, return_complex=True, **facts), (z, w))


def test_what_is_refused() -> None:
    x = np.zeros((2, 20))
    with pytest.raises(InvalidProblemError, match="more than 20 elements"):
        bc.stft(x, 40)
    with pytest.raises(InvalidProblemError, match="a frame, got 20"):
        bc.stft(x, 21, center=False)
    with pytest.raises(InvalidProblemError, match="window must have shape"):
        bc.stft(x, 8, window=np.ones(7))
    with pytest.raises(InvalidProblemError, match="window must hold float64"):
        bc.stft(x, 8, window=np.ones(8, np.float32))
    with pytest.raises(InvalidProblemError, match="win_length"):
        bc.stft(x, 8, win_length=9)
    with pytest.raises(InvalidProblemError, match="onesided must be False"):
        bc.stft(x + 0j, 8, onesided=True)
    with pytest.raises(UnsupportedError, match="stft takes x of float32"):
        bc.stft(x.astype(np.float16), 8)
    with pytest.raises(UnsupportedError, match="istft takes complex"):
        bc.istft(x, 38)
    z = np.zeros((5, 3), complex)
    with pytest.raises(InvalidProblemError, match="hop_length must be at most win_length 4"):
        bc.istft(z, 8, 5, 4)
    with pytest.raises(InvalidProblemError, match="6 or 10 frequencies"):
        bc.istft(z, 10)
    with pytest.raises(InvalidProblemError, match="both halves"):
        bc.istft(z, 8, return_complex=True)
