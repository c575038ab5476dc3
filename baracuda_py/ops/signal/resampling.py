"""Other rates: by a Fourier transform, by a filter between two rates, and by a windowed sinc."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import Array, registry
from ...core.arrays import read
from ...core.checked import real, shown, whole
from ...core.errors import InvalidProblemError
from ...core.outputs import beside, each_of
from ...core.views import reshaped, shape_of, transposed
from ...calls.entries import entry
from ..elementwise.cast import cast
from ..elementwise.complex_pair import complex as joined
from ..fft.functions import irfft, rfft
from ..fft.rfft import RfftPlan
from ..gemm.matmul import matmul
from ..indexing.take import take
from ..layout.axes import place
from ..layout.made import from_host
from ..layout.moves import copy
from ..layout.pad import pad
from ..layout.views import part, unfold
from ..reduce.vecdot import VecdotPlan, vecdot
from .filters import numbers
from .frames import formula, last, one_of, parts, places, real_kind, returned, table, to_last
from .mel import matrix
from .window_shapes import get_window


def _bands(rows: Any, num: int, to: Any, options: Any) -> Any:
    """Real rows at `num` places instead of theirs: what their spectra have in common."""
    n = shape_of(rows, "x")[-1]
    spectrum, least = rfft(rows, **options), min(n, num)
    half = least // 2 + 1
    spectrum = part(spectrum, len(shape_of(rows, "x")) - 1, 0, half)
    twice = least % 2 == 0 and num != n  # the frequency at both ends of the narrower spectrum
    edge = "0.5" if num > n else "2"
    text = f"w = k * ({edge} if i == n else 1)" if twice else "w = k + 0 * (i + n)"
    weights = table(rows, half, text, options, k=num / n, n=float(half - 1))
    a, b = parts(spectrum, options)
    u, v = formula("u = a * w; v = b * w")(a=a, w=weights, b=b, **options)
    return irfft(joined(u, v, **options), num, out=to, **options)


@entry(RfftPlan)
def resample(
    x: Array, num: int, axis: int = 0, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x at `num` places along an axis, as if it were periodic: its spectrum cut, or with zeros (scipy.signal.resample).

    x: any shape, float32, float64 or complex. For a rate of sounds see `sinc_resample`. Gradient of x.
    """
    options = {"stream": stream, "preference": preference}
    real_kind(x, "resample", complex_too=True)
    at, count = place(axis, len(shape_of(x, "x"))), whole("num", num, 1)
    rows, _ = last(x, at)
    if not shape_of(rows, "x")[-1]:
        raise InvalidProblemError(f"x must have elements along axis {at}, got shape {shape_of(x, 'x')}")
    (out,) = each_of(out, 1)
    to = to_last(out, at, x)
    if read(x, "x").element.is_complex:
        a, b = (_bands(one, count, None, options) for one in parts(rows, options))
        return returned(joined(a, b, out=to, **options), at, out)
    return returned(_bands(rows, count, to, options), at, out)


def _phases(x: Any, taps: Any, step: int, count: int, before: int, out: Any, options: Any) -> Any:
    """y[q P + r] = Σ_j taps[r, j] x[q step + j - before], the first `count` outputs; x is 0 beyond its ends."""
    *many, n = shape_of(x, "x")
    phases, width = shape_of(taps, "taps")
    groups = -(-count // phases)
    needed = max((groups - 1) * step + width, width)
    x = pad(x, [(0, 0)] * len(many) + [(before, max(needed - before - n, 0))], **options)
    x = part(x, len(many), 0, needed)
    windows = unfold(x, -1, width, step)
    if phases == 1:
        made = vecdot(windows, taps, axis=-1, conjugate=False, **options)
    else:
        made = matmul(copy(windows, **options), transposed(taps, "taps"), **options)
    kept = part(reshaped(made, (*many, groups * phases), "y"), len(many), 0, count)
    return kept if out is None else copy(kept, out=out, **options)


def _between(h: Any, x: Any, up: int, down: int, out: Any, options: Any, first: int = 0, count: Any = None) -> Any:
    """`upfirdn` along the last axis, of which `count` outputs from `first` on."""
    size, n = shape_of(h, "h")[0], shape_of(x, "x")[-1]
    total = (((n - 1) * up + size - 1) // down + 1) if n else 0
    count = total - first if count is None else count
    common = math.gcd(up, down)
    phases, step = up // common, down // common
    start = first * down  # of the outputs that are wanted, counted at the higher rate
    left, right = (size - 1) // up + 1, (start + (phases - 1) * down) // up
    rows, columns = np.arange(phases)[:, None], np.arange(-left, right + 1)
    at = start + rows * down - columns * up
    held = from_host(np.where((at >= 0) & (at < size), at, size), x, options["stream"])
    taps = take(pad(h, ((0, 1),), **options), held, axis=0, **options)
    return _phases(x, taps, step, count, left, out, options)


@entry(VecdotPlan)
def upfirdn(
    h: Array, x: Array, up: int = 1, down: int = 1, axis: int = -1, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x with up - 1 zeros behind each element, convolved with h, and of that each down-th one (scipy.signal.upfirdn).

    x: any shape, float32 or float64; h: a vector of its element, or Python numbers. The result has ((n - 1) up + len(h)
    - 1) // down + 1 elements along `axis`; x is 0 beyond its ends. No product with a zero that was put in but at the
    ends of up's phases: windows of x, step by step, times a table of h's; they are copied where there are phases.
    Gradients of h and x.
    """
    options = {"stream": stream, "preference": preference}
    real_kind(x, "upfirdn")
    more, fewer = whole("up", up, 1), whole("down", down, 1)
    at = place(axis, len(shape_of(x, "x")))
    rows, _ = last(x, at)
    if not shape_of(rows, "x")[-1]:
        raise InvalidProblemError(f"x must have elements along axis {at}, got shape {shape_of(x, 'x')}")
    (out,) = each_of(out, 1)
    made = _between(numbers("h", h, x, options), rows, more, fewer, to_last(out, at, x), options)
    return returned(made, at, out)


def _low_pass(x: Any, rate: int, window: Any, up: int, options: Any) -> Any:
    """The sinc of 1 / rate over 20 rate + 1 elements under a window, its sum `up`."""
    half, kind = 10 * rate, read(x, "x").element
    with beside(x, options["stream"]):
        taps = get_window(window, 2 * half + 1, False, element="float64", like=x)
    text = "w * sinc((i - half) / rate)"
    wide = formula(text)(w=taps, i=places(x, 2 * half + 1, options["stream"]), half=half, rate=rate, **options)
    total: Any = registry.public("sum")(wide, keepdims=True, **options)
    return cast(formula("h * up / s")(h=wide, s=total, up=float(up), **options), str(kind), **options)


@entry(VecdotPlan)
def resample_poly(
    x: Array, up: int, down: int, axis: int = 0, window: Any = ("kaiser", 5.0), *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x at up / down times its rate, ⌈n up / down⌉ elements, by a filter between (scipy.signal.resample_poly).

    x: any shape, float32 or float64, 0 beyond its ends. window: what `get_window` takes, under which the filter is the
    sinc of the lower rate, of 20 max(up, down) + 1 elements; or an array, the filter itself. Gradients of x and a
    filter that is given.
    """
    options = {"stream": stream, "preference": preference}
    kind = real_kind(x, "resample_poly")
    more, fewer = whole("up", up, 1), whole("down", down, 1)
    common = math.gcd(more, fewer)
    more, fewer = more // common, fewer // common
    at = place(axis, len(shape_of(x, "x")))
    rows, _ = last(x, at)
    (out,) = each_of(out, 1)
    to, n = to_last(out, at, x), shape_of(rows, "x")[-1]
    if not n:
        raise InvalidProblemError(f"x must have elements along axis {at}, got shape {shape_of(x, 'x')}")
    if more == fewer:
        return returned(copy(rows, out=to, **options), at, out)
    if isinstance(window, (str, tuple, int, float)):
        h = _low_pass(x, max(more, fewer), window, more, options)
    else:
        h = formula(f"{kind}(h * up)")(h=numbers("window", window, x, options), up=float(more), **options)
    half = (shape_of(h, "h")[0] - 1) // 2
    before = fewer - half % fewer
    h = pad(h, ((before, 0),), **options)
    made = _between(h, rows, more, fewer, to, options, first=(half + before) // fewer, count=-(-n * more // fewer))
    return returned(made, at, out)


@entry(VecdotPlan)
def sinc_resample(
    x: Array, orig_freq: int, new_freq: int, lowpass_filter_width: int = 6, rolloff: float = 0.99,
    resampling_method: str = "sinc_interp_hann", beta: float = 14.769656459379492, *, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x at new_freq instead of orig_freq along the last axis, ⌈n new / orig⌉ elements (torchaudio.functional.resample).

    x: [..., n], float32 or float64, 0 beyond its ends. Each output is a sum of x under a sinc of rolloff times the
    lower rate, cut after lowpass_filter_width zeros by Hann's window, or with "sinc_interp_kaiser" Kaiser's of beta.
    The table of sincs is computed in float64. Gradient of x.
    """
    options = {"stream": stream, "preference": preference}
    kind = real_kind(x, "sinc_resample")
    old, new = whole("orig_freq", orig_freq, 1), whole("new_freq", new_freq, 1)
    zeros, share = whole("lowpass_filter_width", lowpass_filter_width, 1), float(real("rolloff", rolloff))
    method = one_of("resampling_method", resampling_method, "sinc_interp_hann", "sinc_interp_kaiser")
    if not 0 < share <= 1:
        raise InvalidProblemError(f"rolloff must be above 0, and 1 at most, got {shown(rolloff)}")
    if not shape_of(x, "x"):
        raise InvalidProblemError("x must have an axis of time, got a single number")
    (out,) = each_of(out, 1)
    common = math.gcd(old, new)
    old, new = old // common, new // common
    n = shape_of(x, "x")[-1]
    if old == new or not n:
        return x if out is None else copy(x, out=out, **options)
    base = min(old, new) * share
    width = math.ceil(zeros * old / base)
    hann = "square(cos(_t * pi / width / 2))"
    kaiser = "i0(beta * sqrt(maximum(1 - square(_t / width), 0))) / i0(beta + 0 * _t)"
    bell = hann if method == "sinc_interp_hann" else kaiser
    text = (
        f"_t = clamp(((j - before) / old - i / new) * base, -width, width); y = {kind}(sinc(_t) * {bell} * base / old)"
    )
    facts = {"before": width, "old": old, "new": new, "base": base, "width": zeros}
    facts |= {} if method == "sinc_interp_hann" else {"beta": float(real("beta", beta))}
    with beside(x, stream):
        taps = matrix((new, 2 * width + old), kind, x, None, text, **{k: float(v) for k, v in facts.items()})
    return _phases(x, taps, old, -(-n * new // old), width, out, options)
