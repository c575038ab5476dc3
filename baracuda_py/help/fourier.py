"""Examples of the Fourier transforms."""

from __future__ import annotations

_RNG = "rng = np.random.default_rng(0)\n"
_X = f"{_RNG}x = rng.standard_normal((3, 4), dtype=np.float32)\n"
_Z = f"{_X}z = bc.fft(x)\n"
_H = f"{_X}z = bc.rfft(x)\n"

FOURIER: dict[str, str] = {
    **{name: f"{_Z}y = bc.{name}(z)" for base in ("fft", "ifft") for name in (base, f"{base}2", f"{base}n")},
    **{name: f"{_X}y = bc.{name}(x)" for base in ("rfft", "ihfft") for name in (base, f"{base}2", f"{base}n")},
    **{name: f"{_H}y = bc.{name}(z)" for base in ("irfft", "hfft") for name in (base, f"{base}2", f"{base}n")},
    "rfft_backward": f"{_H}dx = bc.rfft_backward(z, shape=(3, 4), axis=-1, element='float32')",
}
