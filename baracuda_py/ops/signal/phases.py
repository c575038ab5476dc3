"""phase_vocoder and griffin_lim: another speed at the same pitch, and signals of magnitudes alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...core import Array, registry
from ...core.arrays import read
from ...core.checked import real, shown, whole
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.outputs import beside
from ...core.views import shape_of
from ...calls.entries import entry
from ..elementwise.complex_pair import complex as joined
from ..elementwise.complex_pair import polar
from ..elementwise.complex_unary import angle
from ..fft.irfft import IrfftPlan
from ..indexing.take import take
from ..layout.concat import concat
from ..layout.creation import zeros_like
from ..layout.made import from_host
from ..layout.pad import pad
from ..layout.views import part
from ..layout.windows import hann_window
from ..scan.scan import ScanPlan, cumsum
from .frames import formula, frame_sizes, parts, real_kind, scaled
from .stft import istft, stft, turned


@entry(ScanPlan)
def phase_vocoder(
    x: Array, rate: float, phase_advance: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """A spectrogram `rate` times as fast, its pitches kept (torchaudio.functional.phase_vocoder).

    x: complex, [..., frequencies, frames]; the result has ⌈frames / rate⌉ frames. Magnitudes are those between two
    frames, phases the sum of what they advance between them. phase_advance: what is expected from a frame to the next,
    [frequencies, 1] of x's real element, `linspace(0, π hop_length, frequencies)`. Gradients of x and phase_advance.
    """
    options = {"stream": stream, "preference": preference}
    kind, shape = read(x, "x").element, shape_of(x, "x")
    if not kind.is_complex or len(shape) < 2:
        raise UnsupportedError(f"phase_vocoder takes complex x [..., frequencies, frames], got {kind} of shape {shape}")
    speed = float(real("rate", rate))
    if not 0 < speed < math.inf:
        raise InvalidProblemError(f"rate must be finite and above 0, got {shown(rate)}")
    steps = np.arange(0, shape[-1], speed)
    wide = pad(x, [(0, 0)] * (len(shape) - 1) + [(0, 2)], **options)
    at = from_host(steps.astype(np.int64), x, stream)
    share = from_host((steps % 1).astype(kind.part.dtype), x, stream)
    here, there = take(wide, at, axis=-1, **options), take(wide, formula("i + 1")(i=at, **options), axis=-1, **options)
    one, two = angle(here, **options), angle(there, **options)
    advance = formula("_d = b - a - e; y = _d - 2 * pi * round(_d / (2 * pi)) + e")(
        b=two, a=one, e=phase_advance, **options
    )
    first = angle(part(x, len(shape) - 1, 0, min(1, shape[-1])), **options)
    count = len(steps)
    phases = concat([first, part(advance, len(shape) - 1, 0, max(count - 1, 0))], axis=-1, **options)
    magnitude: Any = registry.public("abs")
    u, v = magnitude(here, **options), magnitude(there, **options)
    size = formula("s * v + (1 - s) * u")(s=share, v=v, u=u, **options)
    return polar(size, cumsum(phases, axis=-1, **options), out=out, **options)


@entry(IrfftPlan)
def griffin_lim(
    x: Array, n_fft: int, hop_length: int | None = None, win_length: int | None = None, window: Array | None = None,
    power: float = 2.0, n_iter: int = 32, momentum: float = 0.99, length: int | None = None,
    init: Array | None = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """A signal whose `spectrogram` is near x: phases of istft and stft by turns (Griffin and Lim 1984; torchaudio).

    x: [..., n_fft // 2 + 1, frames], magnitudes to `power`; the result is [..., n]. window, hop_length and win_length
    are those of `spectrogram`. momentum: of the fast algorithm (Perraudin et al. 2013), 0 for the first. length: of the
    result, as in `istft`. init: complex numbers of x's shape whose phases are begun with, by default 1; torchaudio
    draws them. Gradients of x, through all n_iter turns, and window.
    """
    options = {"stream": stream, "preference": preference}
    kind, shape = real_kind(x, "griffin_lim"), shape_of(x, "x")
    n, _, size = frame_sizes(n_fft, None, win_length)
    hop = max(size // 2, 1) if hop_length is None else hop_length
    turns, weight, exponent = whole("n_iter", n_iter, 0), float(real("momentum", momentum)), float(real("power", power))
    if not 0 <= weight < 1:
        raise InvalidProblemError(f"momentum must be 0 at least and below 1, got {shown(momentum)}")
    if not exponent > 0:
        raise InvalidProblemError(f"power must be above 0, got {shown(power)}")
    if len(shape) < 2 or shape[-2] != n // 2 + 1:
        raise InvalidProblemError(f"x must be [..., {n // 2 + 1}, frames] of n_fft = {n}, got shape {shape}")
    step = whole("hop_length", hop, 1)
    if length is not None and whole("length", length, 1) // step + 1 != shape[-1]:
        raise InvalidProblemError(
            f"length must give the {shape[-1]} frames of x, {(shape[-1] - 1) * step} to {shape[-1] * step - 1}, "
            f"got {length}"
        )
    if init is not None and (shape_of(init, "init") != shape or not read(init, "init").element.is_complex):
        raise InvalidProblemError(f"init must be complex, of x's shape {shape}, got {shape_of(init, 'init')}")
    if window is None:
        with beside(x, stream):
            window = hann_window(size, element=kind, like=x)
    facts = {"n_fft": n, "hop_length": hop, "win_length": size, "window": window}
    sizes = formula("x" if exponent == 1 else "sqrt(x)" if exponent == 2 else "x ** p")(
        x=turned(x), **({} if exponent in (1, 2) else {"p": 1 / exponent}), **options
    )
    if init is None:
        with beside(x, stream):
            nothing = zeros_like(sizes)
        guess = joined(sizes, nothing, **options)
    else:
        guess = scaled(turned(init), sizes, options)
    before: Any = None
    for _ in range(turns):
        sound = istft(turned(guess), length=length, **facts, **options)
        made = turned(stft(sound, **facts, **options))
        (a, b), m = parts(made, options), weight / (1 + weight)
        if before is not None and weight:
            (c, d) = parts(before, options)
            a, b = formula("u = a - m * c; v = b - m * d")(a=a, c=c, b=b, d=d, m=m, **options)
        u, v = formula("_n = r / (hypot(a, b) + 1e-16); u = a * _n; v = b * _n")(r=sizes, a=a, b=b, **options)
        guess, before = joined(u, v, **options), made
    return istft(turned(guess), length=length, **facts, out=out, **options)
