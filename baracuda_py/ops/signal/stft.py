"""stft and istft: the short-time Fourier transform, and the signal of one (torch.stft, torch.istft)."""

from __future__ import annotations

from typing import Any

from ...core import Array
from ...core.arrays import read
from ...core.checked import truth, whole
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.outputs import beside, each_of
from ...core.views import permuted, shape_of
from ...calls.entries import entry
from ..elementwise.binary_functions import mul
from ..fft.framed_rfft import FramedRfftPlan
from ..fft.functions import ifft, irfft
from ..fft.irfft import IrfftPlan
from ..layout.concat import stack
from ..layout.creation import ones
from ..layout.pad import pad
from ..layout.views import part
from .frames import (
    check_centre, check_window, formula, frame_sizes, overlap_added, parts, real_kind, scaled, spread_rows, window_of,
)  # fmt: skip
from .fused_frames import Frames, short_time

LEAST = 1e-11  # PyTorch's bound of what windows add up to


def turned(x: Any) -> Any:
    """A view with the last two axes exchanged."""
    rank = len(shape_of(x, "x"))
    return permuted(x, (*range(rank - 2), rank - 1, rank - 2), "x")


def turned_out(out: Any, x: Any) -> Any:
    """The array for a spectrogram of x as a view frame by frame; None of None."""
    (one,) = each_of(out, 1)
    if one is None:
        return None
    rank, found = len(shape_of(x, "x")) + 1, shape_of(one, "out")
    if len(found) != rank:
        raise InvalidProblemError(f"out must have {rank} axes, [..., frequencies, frames], got shape {found}")
    return turned(one)


def one_side(onesided: Any, is_complex: bool) -> bool:
    """Whether half of the spectrum is meant."""
    one = not is_complex if onesided is None else truth("onesided", onesided)
    if one and is_complex:
        raise InvalidProblemError("onesided must be False for a complex x or window, whose spectrum has both halves")
    return one


def cut_of(
    x: Any, n_fft: Any, hop_length: Any, win_length: Any, window: Any, center: Any, pad_mode: Any, complex_too: bool
) -> tuple[bool, Frames]:  # fmt: skip
    """Whether x is complex, and its frames, of arguments that are checked."""
    real_kind(x, "stft", complex_too=complex_too)
    if not shape_of(x, "x"):
        raise InvalidProblemError("stft: x must have an axis of time, got a single number")
    n, hop, length = frame_sizes(n_fft, hop_length, win_length)
    check_window(x, window, length, "stft")
    about = truth("center", center)
    if about:
        check_centre(x, n, pad_mode)
    return read(x, "x").element.is_complex, Frames(n, hop, length, n // 2 if about else 0, pad_mode)


@entry(FramedRfftPlan)
def stft(
    x: Array, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Array | None = None,
    center: bool = True, pad_mode: str = "reflect", normalized: bool = False, onesided: bool | None = None,
    return_complex: bool = True, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """X[f, t] = Σ_j window[j] x[t hop_length + j] exp(-2πi f j / n_fft), j below n_fft (torch.stft).

    x: [..., n], float32 or float64, or complex. The result is complex, [..., frequencies, frames]: n_fft // 2 + 1
    frequencies, or with onesided=False, the default for a complex x, n_fft. hop_length: n_fft // 4 by default.
    window: [win_length] of x's real element, 1 by default, with zeros on both sides up to n_fft. center: frame t is
    about x[t hop_length], x being padded by n_fft // 2 as `pad` does with pad_mode; else it begins there. normalized:
    divided by √n_fft. return_complex=False: parts as a last axis of two.

    One launch where x is real and n_fft a product of 2, 3, 5 and 7 that a block holds (powers of two up to 16384, of
    float64 8192): frames are read from x where they overlap, padding and window by the way (`FramedRfftPlan`). Else up
    to three: padding, the product of frames and window, the transform. The result stands in memory frame by frame and
    is returned as a view. Gradients of x and window.
    """
    options = {"stream": stream, "preference": preference}
    is_complex, cut = cut_of(x, n_fft, hop_length, win_length, window, center, pad_mode, complex_too=True)
    half, both = one_side(onesided, is_complex), not truth("return_complex", return_complex)
    (out,) = each_of(out, 1)
    to = None if both else turned_out(out, x)
    norm = "ortho" if truth("normalized", normalized) else "backward"
    made = turned(short_time(x, window, cut, half, norm, "complex", to, options))
    if both:
        return stack(parts(made, options), axis=-1, out=out, **options)
    return made if out is None else out


def _envelope(x: Any, taps: Any, count: int, n: int, hop: int, options: Any) -> Any:
    """What the squares of the windows add up to at each place."""
    if taps is None:
        with beside(x, options["stream"]):
            squares = ones((n,), read(x, "x").element.part, like=x)
    else:
        squares = mul(taps, taps, **options)
    return overlap_added(spread_rows(squares, count), hop, options)


@entry(IrfftPlan)
def istft(
    x: Array, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Array | None = None,
    center: bool = True, normalized: bool = False, onesided: bool | None = None, length: int | None = None,
    return_complex: bool = False, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The signal of least squares whose `stft` is x: frames times window added up, over Σ window² (torch.istft).

    x: complex, [..., frequencies, frames], as `stft` gives it with the same arguments; the result is real, [..., n]
    (complex with return_complex, which takes both halves of the spectrum). onesided: by default what the number of
    frequencies says. length: of the result, cut or with zeros behind; by default n_fft + hop_length (frames - 1), less
    n_fft with `center` (n_fft - 1 of an odd one).

    Windows must cover the signal (nonzero overlap-add): hop_length at most win_length, and no place at which their
    squares add up to 1e-11 or less. The first is refused; values on a device are not read back, so such places are 0.
    Gradients of x and window.
    """
    options = {"stream": stream, "preference": preference}
    found = read(x, "x").element
    if not found.is_complex:
        raise UnsupportedError(f"istft takes complex x, got {found}; write complex(real, imag)")
    shape = shape_of(x, "x")
    n, hop, size = frame_sizes(n_fft, hop_length, win_length)
    if len(shape) < 2 or not shape[-1] or shape[-2] not in (n, n // 2 + 1):
        raise InvalidProblemError(
            f"istft: x must be [..., frequencies, frames] with {n // 2 + 1} or {n} frequencies of n_fft = {n} and a "
            f"frame at least, got shape {shape}"
        )
    if hop > size:
        raise InvalidProblemError(
            f"hop_length must be at most win_length {size}, so that windows cover the signal, got {hop}"
        )
    wanted = truth("return_complex", return_complex)
    half = (shape[-2] != n if n // 2 + 1 != n else not wanted) if onesided is None else truth("onesided", onesided)
    if shape[-2] != (n // 2 + 1 if half else n):
        raise InvalidProblemError(f"x has {shape[-2]} frequencies, which is not a spectrum of onesided={half}")
    if half and wanted:
        raise InvalidProblemError("return_complex takes both halves of a spectrum: onesided must be False")
    (out,) = each_of(out, 1)
    taps = window_of(x, window, n, size, "istft", options)
    norm = "ortho" if truth("normalized", normalized) else "backward"
    spectra = turned(x)
    if wanted:
        frames = ifft(spectra, norm=norm, **options)
        frames = frames if taps is None else scaled(frames, taps, options)
    else:
        frames = irfft(spectra if half else part(spectra, len(shape) - 1, 0, n // 2 + 1), n, norm=norm, **options)
        frames = frames if taps is None else mul(frames, taps, **options)
    many = shape[-1]
    made, weights = overlap_added(frames, hop, options), _envelope(x, taps, many, n, hop, options)
    first = n // 2 if truth("center", center) else 0
    total = n + hop * (many - 1)
    stop = total - first if length is None else first + whole("length", length, 0)
    if stop < first:
        raise InvalidProblemError(f"istft: {many} frames of {n} give no signal with center; give length=")
    held = min(stop, total)
    first = min(first, held)
    made, weights = part(made, len(shape) - 2, first, held), part(weights, 0, first, held)
    count = stop - (n // 2 if center else 0)
    if wanted:
        inverse = formula(f"where(e > {LEAST}, 1 / where(e > {LEAST}, e, 1), 0)")(e=weights, **options)
        return _padded(scaled(made, inverse, options), count, out, options)
    text, whole_signal = f"where(e > {LEAST}, y / where(e > {LEAST}, e, 1), 0)", stop == held
    made = formula(text)(e=weights, y=made, out=out if whole_signal else None, **options)
    return made if whole_signal else _padded(made, count, out, options)


def _padded(made: Any, count: int, out: Any, options: Any) -> Any:
    """made with zeros behind it up to `count` elements, in `out` where it was given."""
    shape = shape_of(made, "y")
    if out is None and shape[-1] == count:
        return made
    return pad(made, [(0, 0)] * (len(shape) - 1) + [(0, count - shape[-1])], out=out, **options)
