"""savgol_filter and medfilt: what windows of a signal say of their middle. freqz: what a filter does to frequencies."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import Array
from ...core.arrays import read
from ...core.checked import real, shown, whole, wholes
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.outputs import beside, each_of
from ...core.views import reshaped, shape_of
from ...calls.entries import entry
from ..elementwise.binary_functions import div
from ..fft.functions import fft
from ..fft.fft import FftPlan
from ..gemm.matmul import matmul
from ..layout.axes import place, places
from ..layout.concat import concat
from ..layout.creation import linspace
from ..layout.made import from_host
from ..layout.moves import copy
from ..layout.pad import pad
from ..layout.views import part, unfold
from ..reduce.convolve import windowed
from ..reduce.vecdot import VecdotPlan
from ..sort.median import median
from ..sort.sort import SortPlan
from .filters import numbers
from .frames import last, one_of, real_kind, returned, to_last

_MODES = {"mirror": "reflect", "nearest": "replicate", "wrap": "circular", "constant": "constant"}


def savgol_weights(size: int, order: int, deriv: int, delta: float, at: Any) -> np.ndarray:
    """Rows of weights: the derivative at places `at` of the polynomial of least squares through `size` values.

    Places are counted from the middle.
    """
    t, powers = np.arange(size) - size // 2, np.arange(order + 1)
    scale = max(size // 2, 1)  # powers of places within ±1 are well conditioned
    fit = np.linalg.pinv((t[:, None] / scale) ** powers)
    falling = np.array([math.perm(int(k), deriv) if k >= deriv else 0 for k in powers])
    where = (np.asarray(at)[:, None] / scale) ** np.maximum(powers - deriv, 0)
    return np.asarray((where * falling) @ fit / (delta * scale) ** deriv)


@entry(VecdotPlan)
def savgol_filter(
    x: Array, window_length: int, polyorder: int, deriv: int = 0, delta: float = 1.0, axis: int = -1,
    mode: str = "interp", cval: float = 0.0, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The polynomial of least squares through each window, or its derivative, at its middle (scipy.signal).

    Savitzky and Golay 1964. x: any shape, float32 or float64. window_length: odd; polyorder: below it; delta: the
    distance of places, for deriv. mode: "interp", the ends are of the polynomial of the first and the last window; or x
    is padded, "mirror", "nearest", "wrap", "constant" with cval. Weights are computed on the host and copied. Gradient
    of x.
    """
    options = {"stream": stream, "preference": preference}
    kind = real_kind(x, "savgol_filter")
    size = whole("window_length", window_length, 1)
    if size % 2 == 0:
        raise InvalidProblemError(f"window_length must be odd, so that windows have a middle, got {size}")
    order, times, step = (
        whole("polyorder", polyorder, 0, size - 1),
        whole("deriv", deriv, 0),
        float(real("delta", delta)),
    )
    one_of("mode", mode, "interp", *_MODES)
    at = place(axis, len(shape_of(x, "x")))
    rows, _ = last(x, at)
    rank, n, half = len(shape_of(x, "x")), shape_of(rows, "x")[-1], size // 2
    if mode == "interp" and n < size:
        raise InvalidProblemError(f'x must have window_length {size} elements at least for mode "interp", got {n}')
    (out,) = each_of(out, 1)
    to = to_last(out, at, x)

    def held(places_of: Any) -> Any:
        return from_host(savgol_weights(size, order, times, step, places_of).astype(kind.dtype), x, stream)

    middle = reshaped(held(np.zeros(1)), (size,), "w")
    if mode != "interp":
        wide = pad(rows, [(0, 0)] * (rank - 1) + [(half, half)], _MODES[mode], float(real("cval", cval)), **options)
        return returned(windowed(wide, middle, (0,), (n,), to, options), at, out)
    inner = windowed(rows, middle, (0,), (n - 2 * half,), None if half else to, options)
    if not half:
        return returned(inner, at, out)
    begin = matmul(part(rows, rank - 1, 0, size), held(np.arange(-half, 0)).T, **options)
    end = matmul(part(rows, rank - 1, n - size, n), held(np.arange(1, half + 1)).T, **options)
    return returned(concat([begin, inner, end], axis=-1, out=to, **options), at, out)


@entry(SortPlan)
def medfilt(
    x: Array, kernel_size: Any = 3, axis: Any = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The median of a window about each element, 0 beyond the ends (scipy.signal.medfilt, medfilt2d).

    x: any shape that `median` takes. kernel_size: odd, one number or one for each of `axis`, by default all axes.
    Windows are copied, as many elements as outputs times windows have. Gradient of x.
    """
    options = {"stream": stream, "preference": preference}
    shape = shape_of(x, "x")
    if read(x, "x").element.is_complex:
        raise UnsupportedError(f"medfilt takes numbers that have an order, got {read(x, 'x').element}")
    axes = places(tuple(range(len(shape))) if axis is None else axis, len(shape))
    sizes = (kernel_size,) * len(axes) if isinstance(kernel_size, (int, np.integer)) else kernel_size
    sizes = wholes("kernel_size", sizes, 1)
    if len(sizes) != len(axes) or any(k % 2 == 0 for k in sizes):
        raise InvalidProblemError(f"kernel_size must be odd, one for each of the axes {axes}, got {shown(kernel_size)}")
    (out,) = each_of(out, 1)
    if 0 in shape or not axes:
        return copy(x, out=out, **options)
    widths = [(0, 0)] * len(shape)
    for a, k in zip(axes, sizes, strict=True):
        widths[a] = (k // 2, k // 2)
    seen = pad(x, widths, **options)
    for a, k in zip(axes, sizes, strict=True):
        seen = unfold(seen, a, k, 1)
    rows = reshaped(copy(seen, **options), (*shape, math.prod(sizes)), "x")
    found = median(rows, axis=-1, **options)[0]
    return found if out is None else copy(found, out=out, **options)


def _response(c: Any, count: int, n: int, options: Any) -> Any:
    """Σ_k c[k] exp(-i w k) at w = 2π j / n below `count`; longer c are folded by a longer transform."""
    times = -(-shape_of(c, "c")[-1] // n)
    made = fft(c, n * times, **options)
    return part(made, 0, 0, count * times, times) if times > 1 else part(made, 0, 0, count)


def _over_whole(b: Any, a: Any, points: int, whole_circle: bool, out: Any, options: Any) -> Any:
    n = points if whole_circle else 2 * points
    return div(_response(b, points, n, options), _response(a, points, n, options), out=out, **options)


@entry(FftPlan, inverse=False)
def freqz(
    b: Array, a: Array | None = None, n: int = 512, whole_circle: bool = False, fs: float = 2 * math.pi, *, out: Any =
    None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(w, h): the response Σ b[k] e^(-iwk) / Σ a[k] e^(-iwk) of a filter at n frequencies (scipy.signal.freqz).

    b: a vector, float32 or float64; a: one of its element, or Python numbers, 1 by default. w: n frequencies from 0 to
    below half of fs, or with whole_circle to below fs; h: complex. By Fourier transforms. Gradients of b and a.
    """
    options = {"stream": stream, "preference": preference}
    kind = real_kind(b, "freqz")
    taps, poles = numbers("b", b, b, options), numbers("a", (1.0,) if a is None else a, b, options)
    count, rate = whole("n", n, 1), float(real("fs", fs))
    to_w, to_h = each_of(out, 2)
    h = _over_whole(taps, poles, count, bool(whole_circle), to_h, options)
    with beside(b, stream):
        end = rate if whole_circle else rate / 2
        w = linspace(0, end * (count - 1) / count, count, str(kind), like=b)
    return w if to_w is None else copy(w, out=to_w, **options), h
