"""Spectra of windowed frames in one launch, with gradients by those of its parts; else in a launch for each part."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from ...core import BackendKind
from ...core.arrays import read
from ...core.preference import preferred
from ...core.views import shape_of
from ...calls.composed import composed, may_grow
from ...expressions.reduce import reduce as reduction
from ...schedules.framed import PADDINGS, frames_fit
from ...schedules.fourier import PARTS
from ..elementwise.binary_functions import mul
from ..elementwise.complex_pair import complex as joined
from ..fft.framed_rfft import _framed_rfft, frames_of
from ..fft.functions import fft, rfft
from ..fft.rfft_backward import rfft_backward
from ..layout.pad import pad
from ..layout.pad_backward import pad_backward
from ..layout.views import part
from .frames import centred, formula, framed, overlap_added, parts, power_of, scaled, widened_window

_POWERS = {"magnitude": 1.0, "power": 2.0}
_SLOPES = {
    "power": "u = 2 * d * a; v = 2 * d * b",
    "magnitude": "_r = hypot(a, b); u = where(_r == 0, 0, d * (a / _r)); v = where(_r == 0, 0, d * (b / _r))",
}


class Frames(NamedTuple):
    """How a signal is cut: elements of a transform, from a frame to the next, of the window, and what is beyond x."""

    n_fft: int
    hop: int
    taps: int
    padding: int
    mode: str


def short_time(
    x: Any, window: Any, cut: Frames, half: bool, norm: str, result: str, out: Any, options: dict[str, Any]
) -> Any:  # fmt: skip
    """Spectra frame by frame, [..., frames, frequencies], or magnitudes of them or their squares."""
    if half and _in_one_launch(x, cut, options["preference"]):
        function = _of_both if window is not None and may_grow(window) else _of_signal
        return function(x, window, *cut, result, norm, out=out, **options)
    taps = widened_window(x, window, cut.n_fft, cut.taps, options)
    if cut.padding:
        x = centred(x, cut.n_fft, cut.mode, options)
    frames = framed(x, cut.n_fft, cut.hop, "stft")
    if taps is not None:
        frames = scaled(frames, taps, options) if read(x, "x").element.is_complex else mul(frames, taps, **options)
    last = out if result == "complex" else None
    made = (rfft if half else fft)(frames, norm=norm, out=last, **options)
    return made if result == "complex" else power_of(made, _POWERS[result], options, out)


def _in_one_launch(x: Any, cut: Frames, preference: Any) -> bool:
    """Whether our kernel has such frames, and no library is asked for."""
    kind, length = read(x, "x").element, shape_of(x, "x")[-1]
    if kind not in PARTS or not frames_fit(cut.n_fft, kind):
        return False
    if preferred(preference).prefer_backend is BackendKind.CUFFT:
        return False
    least = {"constant": 0, "reflect": cut.padding + 1, "circular": cut.padding}.get(cut.mode, 1)
    held = not cut.padding or (cut.mode in PADDINGS and length >= least)
    return held and frames_of(length, cut.n_fft, cut.hop, cut.padding) > 0


def _framed(
    x: Any, window: Any, n_fft: int, hop: int, taps: int, padding: int, mode: str, result: str, norm: str, out: Any,
    options: dict[str, Any],
) -> Any:  # fmt: skip
    """The launch."""
    mode = mode if padding else "constant"
    return _framed_rfft(
        x, window=window, n_fft=n_fft, hop_length=hop, win_length=taps, padding=padding, pad_mode=mode, result=result,
        norm=norm, out=out, **options,
    )  # fmt: skip


@cache
def _products(axes: tuple[int, ...]) -> Any:
    return reduction("sum(a * b)", axis=axes)


def _forth(ddx: Any, dy: Any, n: int, norm: str, *, stream: Any = None, preference: Any = None) -> tuple[Any]:
    """The adjoint of an adjoint."""
    return (rfft(ddx, norm=norm, stream=stream, preference=preference),)


@composed(_forth, "dy", reads=())
def _transformed_back(
    dy: Any, n: int, norm: str, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """The adjoint of `rfft` over n numbers, which can be differentiated itself."""
    shape, kind = (*shape_of(dy, "dy")[:-1], n), read(dy, "dy").element.part
    return rfft_backward(
        dy, shape=shape, axis=(len(shape) - 1,), norm=norm, element=kind, out=out, stream=stream, preference=preference
    )


def _padded(
    ddx: Any, dy: Any, shape: Any, widths: Any, mode: str, *, stream: Any = None, preference: Any = None
) -> tuple[Any]:  # fmt: skip
    """The adjoint of an adjoint."""
    return (pad(ddx, widths, mode, stream=stream, preference=preference),)


@composed(_padded, "dy", reads=())
def _unpadded(
    dy: Any, shape: Any, widths: Any, mode: str, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:  # fmt: skip
    """The adjoint of `pad`, which can be differentiated itself."""
    return pad_backward(dy, shape=shape, padding=widths, mode=mode, out=out, stream=stream, preference=preference)


def _slopes(
    dy: Any, x: Any, window: Any, cut: Frames, result: str, norm: str, options: dict[str, Any], both: bool
) -> tuple[Any, ...]:  # fmt: skip
    """Those of x, and with `both` of the window: the transform back, the product, overlapping frames added up."""
    rank, length = len(shape_of(x, "x")), shape_of(x, "x")[-1]
    if result != "complex":
        z = short_time(x, window, cut, True, norm, "complex", None, options)
        a, b = parts(z, options)
        u, v = formula(_SLOPES[result])(a=a, b=b, d=dy, **options)
        dy = joined(u, v, **options)
    frames = _transformed_back(dy, cut.n_fft, norm, **options)
    taps = widened_window(x, window, cut.n_fft, cut.taps, options)
    widths = ((0, 0),) * (rank - 1) + ((cut.padding, cut.padding),)
    made = overlap_added(frames if taps is None else mul(frames, taps, **options), cut.hop, options)
    beyond = length + 2 * cut.padding - shape_of(made, "dx")[-1]
    if beyond:  # what no frame reaches
        made = pad(made, ((0, 0),) * (rank - 1) + ((0, beyond),), **options)
    if cut.padding:
        made = _unpadded(made, shape_of(x, "x"), widths, cut.mode, **options)
    if not both:
        return (made,)
    given = framed(pad(x, widths, cut.mode, **options) if cut.padding else x, cut.n_fft, cut.hop, "stft")
    slope = _products(tuple(range(rank)))(a=frames, b=given, **options)
    left = (cut.n_fft - cut.taps) // 2
    return made, slope if cut.taps == cut.n_fft else part(slope, 0, left, left + cut.taps)


def _back(
    dy: Any, x: Any, window: Any, n_fft: int, hop: int, taps: int, padding: int, mode: str, result: str, norm: str, *,
    stream: Any = None, preference: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradient of x."""
    options = {"stream": stream, "preference": preference}
    return _slopes(dy, x, window, Frames(n_fft, hop, taps, padding, mode), result, norm, options, False)


def _back_to_both(
    dy: Any, x: Any, window: Any, n_fft: int, hop: int, taps: int, padding: int, mode: str, result: str, norm: str, *,
    stream: Any = None, preference: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """Those of x and of the window."""
    options = {"stream": stream, "preference": preference}
    return _slopes(dy, x, window, Frames(n_fft, hop, taps, padding, mode), result, norm, options, True)


@composed(_back, "x")
def _of_signal(
    x: Any, window: Any, n_fft: int, hop: int, taps: int, padding: int, mode: str, result: str, norm: str, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Spectra of frames in one launch, with a gradient of x."""
    options = {"stream": stream, "preference": preference}
    return _framed(x, window, n_fft, hop, taps, padding, mode, result, norm, out, options)


@composed(_back_to_both, "x", "window")
def _of_both(
    x: Any, window: Any, n_fft: int, hop: int, taps: int, padding: int, mode: str, result: str, norm: str, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The same with a gradient of the window, too."""
    options = {"stream": stream, "preference": preference}
    return _framed(x, window, n_fft, hop, taps, padding, mode, result, norm, out, options)
