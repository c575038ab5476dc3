"""spectrogram, mel_spectrogram, mfcc: what classifiers of sound read, with torchaudio's options."""

from __future__ import annotations

from typing import Any

from ...core import Array, registry
from ...core.arrays import read
from ...core.checked import real, shown, truth, whole
from ...core.errors import InvalidProblemError
from ...core.outputs import beside, each_of
from ...core.views import shape_of
from ...calls.entries import entry
from ..elementwise.binary_functions import div
from ..fft.framed_rfft import FramedRfftPlan
from ..gemm.gemm import GemmPlan
from ..gemm.matmul import matmul
from ..layout.moves import copy
from ..layout.pad import pad as padded
from ..layout.windows import hann_window
from .decibels import amplitude_to_db
from .frames import formula, frame_sizes, one_of, power_of, real_kind, scaled
from .mel import cosines, mel_filterbank
from .fused_frames import short_time
from .stft import cut_of, one_side, turned, turned_out


def _spectra(
    x: Any, n_fft: Any, hop_length: Any, win_length: Any, window: Any, power: Any, normalized: Any, center: Any,
    pad_mode: Any, onesided: Any, pad: Any, out: Any, options: Any,
) -> Any:  # fmt: skip
    """|X|^power or X, frame by frame: [..., frames, frequencies]."""
    kind = real_kind(x, "spectrogram")
    n, _, length = frame_sizes(n_fft, None, win_length)
    hop = max(length // 2, 1) if hop_length is None else hop_length
    if window is None:
        with beside(x, options["stream"]):
            window = hann_window(length, element=kind, like=x)
    if before := whole("pad", pad, 0):
        x = padded(x, (before, before), **options)
    one_of("normalized", normalized, False, True, "window", "frame_length")
    exponent = None if power is None else float(real("power", power))
    if exponent is not None and not exponent > 0:
        raise InvalidProblemError(f"power must be above 0, or None for complex numbers, got {shown(power)}")
    by_length, by_window = normalized == "frame_length", normalized in (True, "window")
    last = None if by_window else out
    is_complex, cut = cut_of(x, n, hop, length, window, center, pad_mode, complex_too=False)
    half, norm = one_side(onesided, is_complex), "ortho" if by_length else "backward"
    result = "complex" if exponent is None else {1.0: "magnitude", 2.0: "power"}.get(exponent, "complex")
    to = last if exponent is None or result != "complex" else None
    made = short_time(x, window, cut, half, norm, result, to, options)
    if exponent is not None and result == "complex":
        made = power_of(made, exponent, options, last)
    if not by_window:
        return made
    energy = registry.public("sum_squares")(window, keepdims=True, **options)
    if exponent is None:
        inverse = formula("1 / sqrt(e)")(e=energy, **options)
        return copy(scaled(made, inverse, options), out=out, **options)
    factor = energy if exponent == 2 else formula("e ** p")(e=energy, p=exponent / 2, **options)
    return div(made, factor, out=out, **options)


@entry(FramedRfftPlan)
def spectrogram(
    x: Array, n_fft: int = 400, hop_length: int | None = None, win_length: int | None = None,
    window: Array | None = None, power: float | None = 2.0, normalized: Any = False, center: bool = True,
    pad_mode: str = "reflect", onesided: bool = True, pad: int = 0, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """|stft(x)|^power, [..., frequencies, frames] (torchaudio.functional.spectrogram).

    x: [..., n], float32 or float64. window: [win_length], by default Hann's, periodic; win_length: n_fft by default,
    hop_length: half of it. power: 1 for magnitudes, 2 for their squares; None for the complex numbers. normalized:
    True or "window", divided by the window's |.| in l2 norm before the power; "frame_length", by √n_fft. pad: zeros
    before and behind x. The rest is that of `stft`, which is one launch where that is, the power of 1 or 2 included; a
    default window, `pad`, other powers and the window's norm have launches of their own. Gradients of x and window.
    """
    options = {"stream": stream, "preference": preference}
    (result,) = each_of(out, 1)
    made = _spectra(
        x, n_fft, hop_length, win_length, window, power, normalized, center, pad_mode, onesided, pad,
        turned_out(out, x), options,
    )  # fmt: skip
    return turned(made) if result is None else result


def _mels(x: Any, sample_rate: Any, facts: dict[str, Any], filters: Any, out: Any, options: Any) -> Any:
    """Mel spectra frame by frame: [..., frames, n_mels]."""
    spectra = _spectra(x, **facts, onesided=True, out=None, options=options)
    f_min, f_max, n_mels, norm, mel_scale = filters
    rate = whole("sample_rate", sample_rate, 2)
    with beside(x, options["stream"]):
        bank = mel_filterbank(
            shape_of(spectra, "x")[-1], f_min, rate / 2 if f_max is None else f_max, n_mels, rate, norm, mel_scale,
            element=read(x, "x").element, like=x,
        )  # fmt: skip
    return matmul(spectra, bank, out=out, **options)


@entry(GemmPlan)
def mel_spectrogram(
    x: Array, sample_rate: int = 16000, n_fft: int = 400, hop_length: int | None = None,
    win_length: int | None = None, window: Array | None = None, f_min: float = 0.0, f_max: float | None = None,
    n_mels: int = 128, power: float = 2.0, normalized: Any = False, center: bool = True, pad_mode: str = "reflect",
    pad: int = 0, norm: str | None = None, mel_scale: str = "htk", *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The `spectrogram` of x times `mel_filterbank`, [..., n_mels, frames] (torchaudio.transforms.MelSpectrogram).

    x: [..., n], float32 or float64. f_max: half the sample rate by default; it, f_min, n_mels, norm and mel_scale are
    those of `mel_filterbank`, the rest those of `spectrogram`. Gradients of x and window.
    """
    options = {"stream": stream, "preference": preference}
    (result,) = each_of(out, 1)
    facts = {"n_fft": n_fft, "hop_length": hop_length, "win_length": win_length, "window": window, "power": power,
             "normalized": normalized, "center": center, "pad_mode": pad_mode, "pad": pad}  # fmt: skip
    real("power", power)
    made = _mels(x, sample_rate, facts, (f_min, f_max, n_mels, norm, mel_scale), turned_out(out, x), options)
    return turned(made) if result is None else result


@entry(GemmPlan)
def mfcc(
    x: Array, sample_rate: int = 16000, n_mfcc: int = 40, norm: str | None = "ortho", log_mels: bool = False,
    n_fft: int = 400, hop_length: int | None = None, win_length: int | None = None, window: Array | None = None,
    f_min: float = 0.0, f_max: float | None = None, n_mels: int = 128, power: float = 2.0, normalized: Any = False,
    center: bool = True, pad_mode: str = "reflect", pad: int = 0, mel_norm: str | None = None,
    mel_scale: str = "htk", *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Cepstra of a sound: the first n_mfcc of the cosine transform of its mel spectra's logarithms, [..., n_mfcc,
    frames].

    torchaudio.transforms.MFCC. log_mels: log(mel + 1e-6), else `amplitude_to_db(mel, top_db=80)`. norm: "ortho" or None
    of the cosine transform (`dct`, type 2). mel_norm is the norm of `mel_spectrogram`, as are the others. Gradients of
    x and window.
    """
    options = {"stream": stream, "preference": preference}
    (result,) = each_of(out, 1)
    bands = whole("n_mels", n_mels, 1)
    count = whole("n_mfcc", n_mfcc, 1, bands)
    one_of("norm", norm, None, "ortho")
    real("power", power)
    facts = {"n_fft": n_fft, "hop_length": hop_length, "win_length": win_length, "window": window, "power": power,
             "normalized": normalized, "center": center, "pad_mode": pad_mode, "pad": pad}  # fmt: skip
    mels = _mels(x, sample_rate, facts, (f_min, f_max, bands, mel_norm, mel_scale), None, options)
    if truth("log_mels", log_mels):
        logs = formula("log(m + 1e-6)")(m=mels, **options)
    else:
        logs = amplitude_to_db(mels, top_db=80.0, **options)
    made = matmul(logs, cosines(logs, bands, count, norm, options), out=turned_out(out, x), **options)
    return turned(made) if result is None else result
