"""periodogram, welch, csd, coherence: power over frequencies, means of windows that overlap (Welch 1967; SciPy)."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from ...core import Array, registry
from ...core.arrays import read
from ...core.checked import real, shown, truth, whole
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.outputs import beside, each_of
from ...core.views import shape_of
from ...calls.entries import entry
from ...expressions.reduce import reduce as reduction
from ..elementwise.binary_functions import mul, sub
from ..elementwise.complex_pair import complex as joined
from ..fft.functions import fft, rfft
from ..layout.axes import place
from ..layout.frequencies import fftfreq, rfftfreq
from ..reduce.detrend import detrend as detrended
from ..reduce.reduce import ReducePlan
from .frames import formula, framed, last, one_of, parts, places, real_kind, returned, scaled, sized, to_last, with_same
from .window_shapes import get_window


@cache
def _mean(text: str) -> Any:
    return reduction(f"mean({text})", axis=-2)


class Windows(NamedTuple):
    """How a signal is cut: elements of a window, of the transform, from one to the next; one side of the spectrum."""

    size: int
    n_fft: int
    step: int
    window: Any
    half: bool


def _cut(
    x: Any, count: int, options: Any, window: Any, nperseg: Any, noverlap: Any, nfft: Any, one_side: Any
) -> Windows:
    named = isinstance(window, (str, tuple, list, int, float))
    if not named:
        with_same(x, window, "window", "spectra")
    if not named and len(shape_of(window, "window")) != 1:
        raise InvalidProblemError(f"window must have one axis, got shape {shape_of(window, 'window')}")
    given = 256 if named else shape_of(window, "window")[0]
    size = (
        min(given, count) if nperseg is None and named else given if nperseg is None else whole("nperseg", nperseg, 1)
    )
    size = min(size, count) if named else size
    if not named and size != given:
        raise InvalidProblemError(f"nperseg must be the length of window {given}, got {shown(nperseg)}")
    if size > count:
        raise InvalidProblemError(f"x must have {size} elements at least along its axis, a window, got {count}")
    overlap = size // 2 if noverlap is None else whole("noverlap", noverlap, 0, size - 1)
    n = size if nfft is None else whole("nfft", nfft, size)
    if named:
        with beside(x, options["stream"]):
            window = get_window(window, size, element=read(x, "x").element.part, like=x)
    half = truth("return_onesided", one_side) and not read(x, "x").element.is_complex
    return Windows(size, n, size - overlap, window, half)


def _spectra(x: Any, cut: Windows, detrend: Any, options: Any) -> Any:
    """The transforms of x's windows, [..., windows, frequencies]."""
    frames = framed(x, cut.size, cut.step, "spectra")
    is_complex = read(x, "x").element.is_complex
    one_of("detrend", detrend, False, "constant", "linear")
    if detrend == "linear" and is_complex:
        raise UnsupportedError('detrend="linear" is of real numbers; give detrend="constant" or False')
    if detrend is not False:
        if is_complex:
            means = registry.public("mean")(frames, axis=-1, keepdims=True, **options)
            frames = sub(frames, means, **options)
        else:
            frames = detrended(frames, -1, detrend, **options)
    frames = scaled(frames, cut.window, options) if is_complex else mul(frames, cut.window, **options)
    return (rfft if cut.half else fft)(frames, cut.n_fft, **options)


def _frequencies(x: Any, cut: Windows, fs: float, out: Any, options: Any) -> Any:
    kind = read(x, "x").element.part
    with beside(x, options["stream"]):
        return (rfftfreq if cut.half else fftfreq)(cut.n_fft, 1 / fs, kind, like=x, out=out)


def _rate(fs: Any) -> float:
    rate = float(real("fs", fs))
    if not rate > 0:
        raise InvalidProblemError(f"fs must be above 0, got {shown(fs)}")
    return rate


def _weight(x: Any, cut: Windows, scaling: Any, rate: float, options: Any) -> tuple[str, dict[str, Any]]:
    """The factor of a power as a formula, and its operands."""
    one_of("scaling", scaling, "density", "spectrum")
    density = scaling == "density"
    energy: Any = registry.public("sum_squares" if density else "sum")
    held: dict[str, Any] = {"e": energy(cut.window, keepdims=True, **options)}
    text = "1 / (fs * e)" if density else "1 / (e * e)"
    if density:
        held["fs"] = rate
    if cut.half:  # what stands for both sides is twice
        bins = cut.n_fft // 2 + 1
        held |= {
            "i": places(x, bins, options["stream"], read(x, "x").element.part),
            "end": float(bins - 1 + cut.n_fft % 2),
        }
        text = f"(2 if i > 0 and i < end else 1) * {text}"
    return text, held


def _averaged(texts: tuple[str, ...], held: dict[str, Any], average: Any, options: Any) -> list[Any]:
    """The mean over windows of formulas, or the median over its bias (Allen 2012)."""
    if one_of("average", average, "mean", "median") == "mean":
        return [_mean(text)(**{k: v for k, v in held.items() if k in text}, **options) for text in texts]
    count = shape_of(held["a"], "x")[-2]
    bias = 1 + sum(1 / (k + 1) - 1 / k for k in range(2, count, 2))
    made = [formula(text)(**{k: v for k, v in held.items() if k in text}, **options) for text in texts]
    middle: Any = registry.public("quantile")
    return [formula("m / bias")(m=middle(one, 0.5, axis=-2, **options), bias=bias, **options) for one in made]


def _power(
    x: Any,
    axis: Any,
    fs: Any,
    cutting: tuple[Any, ...],
    detrend: Any,
    scaling: Any,
    average: Any,
    out: Any,
    options: Any,
) -> Any:
    real_kind(x, "welch", complex_too=True)
    (to_f, to_p), rate = each_of(out, 2), _rate(fs)
    at = place(axis, len(shape_of(x, "x")))
    rows, _ = last(x, at)
    cut = _cut(rows, shape_of(rows, "x")[-1], options, *cutting)
    a, b = parts(_spectra(rows, cut, detrend, options), options)
    (made,) = _averaged(("a * a + b * b",), {"a": a, "b": b}, average, options)
    text, held = _weight(rows, cut, scaling, rate, options)
    power = formula(f"p * ({text})")(p=made, **held, out=to_last(to_p, at, x), **options)
    return _frequencies(rows, cut, rate, to_f, options), returned(power, at, to_p)


@entry(ReducePlan)
def welch(
    x: Array, fs: float = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
    axis: int = -1, average: str = "mean", *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(f, power): the mean of |transform|² of windows of x that overlap, over frequencies (scipy.signal.welch).

    x: any shape, float32, float64 or complex; power has the frequencies along `axis`. fs: samples in a second. window:
    a name or tuple that `get_window` takes, or an array, whose length is then nperseg. nperseg: 256 by default, the
    length of x at most; noverlap: half of it; nfft: the transform's length, with zeros behind. detrend: "constant" or
    "linear" of each window, or False. return_onesided: of a real x half the spectrum, twice but at the ends. scaling:
    "density", over fs Σ window²; "spectrum", over (Σ window)². average: "mean", or "median" over its bias. Gradients of
    x and a window that is given.
    """
    options = {"stream": stream, "preference": preference}
    cutting = (window, nperseg, noverlap, nfft, return_onesided)
    return _power(x, axis, fs, cutting, detrend, scaling, average, out, options)


@entry(ReducePlan)
def periodogram(
    x: Array, fs: float = 1.0, window: Any = "boxcar", nfft: int | None = None, detrend: Any = "constant",
    return_onesided: bool = True, scaling: str = "density", axis: int = -1, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(f, power): |transform|² of x as one window (scipy.signal.periodogram).

    nfft: the transform's length, to which x is cut, or filled with zeros behind the window. The rest is that of
    `welch`.
    """
    options = {"stream": stream, "preference": preference}
    at = place(axis, len(shape_of(x, "x")))
    count = shape_of(x, "x")[at]
    if not count:
        raise InvalidProblemError(f"x must have elements along axis {at}, got shape {shape_of(x, 'x')}")
    if nfft is not None and whole("nfft", nfft, 1) < count:
        x, count = sized(x, at, nfft, options), nfft
    cutting = (window, count, 0, nfft, return_onesided)
    return _power(x, axis, fs, cutting, detrend, scaling, "mean", out, options)


def _pair(
    x: Any, y: Any, axis: Any, cutting: tuple[Any, ...], detrend: Any, options: Any
) -> tuple[Any, Windows, int, dict[str, Any]]:
    """x with its frequencies last, the windows, where the axis was, and the parts of both transforms."""
    real_kind(x, "csd", complex_too=True)
    kind, found = read(x, "x").element, read(y, "y").element
    if kind is not found:
        raise InvalidProblemError(f"y must hold {kind} as x does, got {found}; cast it first")
    if len(shape_of(x, "x")) != len(shape_of(y, "y")):
        raise InvalidProblemError(f"x and y must have as many axes, got {shape_of(x, 'x')} and {shape_of(y, 'y')}")
    at = place(axis, len(shape_of(x, "x")))
    count = max(shape_of(x, "x")[at], shape_of(y, "y")[at])
    (rows, _), (others, _) = last(sized(x, at, count, options), at), last(sized(y, at, count, options), at)
    cut = _cut(rows, count, options, *cutting)
    a, b = parts(_spectra(rows, cut, detrend, options), options)
    c, d = (a, b) if x is y else parts(_spectra(others, cut, detrend, options), options)
    return rows, cut, at, {"a": a, "b": b, "c": c, "d": d}


@entry(ReducePlan)
def csd(
    x: Array, y: Array, fs: float = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", return_onesided: bool = True, scaling: str = "density",
    axis: int = -1, average: str = "mean", *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(f, cross power): the mean of conj(transform of x) · transform of y, complex (scipy.signal.csd).

    x, y: of one element and as many axes, broadcast but for `axis`, along which the shorter one gets zeros behind. The
    rest is that of `welch`.
    """
    options = {"stream": stream, "preference": preference}
    (to_f, to_p), rate = each_of(out, 2), _rate(fs)
    cutting = (window, nperseg, noverlap, nfft, return_onesided)
    rows, cut, at, held = _pair(x, y, axis, cutting, detrend, options)
    u, v = _averaged(("a * c + b * d", "a * d - b * c"), held, average, options)
    text, weights = _weight(rows, cut, scaling, rate, options)
    u, v = formula(f"_w = {text}; p = u * _w; q = v * _w")(**weights, u=u, v=v, **options)
    made = joined(u, v, out=None if to_p is None else _as_last(to_p, at, made_rank=len(shape_of(u, "u"))), **options)
    return _frequencies(rows, cut, rate, to_f, options), returned(made, at, to_p)


def _as_last(out: Any, at: int, made_rank: int) -> Any:
    found = shape_of(out, "out")
    if len(found) != made_rank:
        raise InvalidProblemError(f"out must have {made_rank} axes, got shape {found}")
    return last(out, at, "out")[0]


@entry(ReducePlan)
def coherence(
    x: Array, y: Array, fs: float = 1.0, window: Any = "hann", nperseg: int | None = None, noverlap: int | None = None,
    nfft: int | None = None, detrend: Any = "constant", axis: int = -1, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(f, |csd(x, y)|² / (welch(x) welch(y))): from 0 to 1, how linear y is in x (scipy.signal.coherence).

    x, y: real or complex. Arguments are those of `csd`.
    """
    options = {"stream": stream, "preference": preference}
    (to_f, to_p), rate = each_of(out, 2), _rate(fs)
    rows, cut, at, held = _pair(x, y, axis, (window, nperseg, noverlap, nfft, True), detrend, options)
    texts = ("a * c + b * d", "a * d - b * c", "a * a + b * b", "c * c + d * d")
    u, v, p, q = _averaged(texts, held, "mean", options)
    to = None if to_p is None else _as_last(to_p, at, made_rank=len(shape_of(u, "u")))
    made = formula("(u * u + v * v) / (p * q)")(u=u, v=v, p=p, q=q, out=to, **options)
    return _frequencies(rows, cut, rate, to_f, options), returned(made, at, to_p)
