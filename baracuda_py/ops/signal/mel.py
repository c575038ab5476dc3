"""mel_filterbank and the cosines of cepstra: tables in float64 rounded once, made where they are used."""

from __future__ import annotations

import math
from typing import Any

from ...core import Array, ElementKind
from ...core.checked import real, shown, whole
from ...core.errors import InvalidProblemError
from ...core.arrays import read
from ...core.outputs import beside
from ...core.views import shape_of, with_axis
from ...calls.exported import exported
from ..layout.creation import arange
from ..layout.made import kind_of, new
from .frames import formula, one_of

_HZ = {
    "htk": "700 * (exp({0} * (log(10) / 2595)) - 1)",
    "slaney": "({0} * (200 / 3) if {0} < 15 else 1000 * exp(({0} - 15) * (log(6.4) / 27)))",
}


def _mel(hz: float, scale: str) -> float:
    if scale == "htk":
        return 2595 * math.log10(1 + hz / 700)
    return hz * 3 / 200 if hz < 1000 else 15 + math.log(hz / 1000) * 27 / math.log(6.4)


def _filters(scale: str, norm: str | None, kind: ElementKind) -> str:
    """The formula of filter j at frequency i: the lower of the two sides of a triangle, 0 beyond them."""
    lines = [f"_m{k} = low + (j + {k}) * step" for k in range(3)]
    lines += [f"_p{k} = {_HZ[scale].format(f'_m{k}').replace('log(10)', '2.302585092994046')}" for k in range(3)]
    lines.append("_f = i * spacing")
    height = "2 / (_p2 - _p0)" if norm == "slaney" else "1"
    triangle = f"maximum(minimum((_f - _p0) / (_p1 - _p0), (_p2 - _f) / (_p2 - _p1)), 0) * ({height})"
    return "; ".join([*lines, f"y = {kind}({triangle})"]).replace("log(6.4)", repr(math.log(6.4)))


def matrix(shape: tuple[int, int], element: ElementKind, like: Any, out: Any, text: str, **numbers: float) -> Any:
    """y[i, j], a formula of the places in float64."""

    def write(y: Array) -> Any:
        rows, columns = (arange(n, element=ElementKind.F64, like=y) for n in shape)
        return formula(text)(i=with_axis(rows, 1, "i"), j=with_axis(columns, 0, "j"), **numbers, out=y)

    return new(shape, element, like, write) if out is None else write(out)


@exported
def mel_filterbank(
    n_freqs: int, f_min: float, f_max: float, n_mels: int, sample_rate: int, norm: str | None = None,
    mel_scale: str = "htk", *, element: Any = None, like: Any = None, out: Any = None,
) -> Array:  # fmt: skip
    """Triangles of equal width in mel over the frequencies of a spectrum, [n_freqs, n_mels] (melscale_fbanks).

    torchaudio.functional.melscale_fbanks. Column j rises from point j of n_mels + 2, which are as far from each other
    in mel, between f_min and f_max in Hz, to 1 at point j + 1, and falls to 0 at point j + 2; row i is the frequency
    i (sample_rate // 2) / (n_freqs - 1). mel_scale: "htk", 2595 log10(1 + f / 700), or "slaney", linear below 1000 Hz
    and of logarithms above. norm: "slaney" divides each by half its width in Hz. In float64, rounded once to `element`
    (float32 by default); three launches.
    """
    rows, columns, rate = whole("n_freqs", n_freqs, 2), whole("n_mels", n_mels, 1), whole("sample_rate", sample_rate, 2)
    low, high = float(real("f_min", f_min)), float(real("f_max", f_max))
    if not 0 <= low < high < math.inf:
        raise InvalidProblemError(f"f_min must be 0 at least and below f_max, got {shown(f_min)} and {shown(f_max)}")
    scale = one_of("mel_scale", mel_scale, "htk", "slaney")
    one_of("norm", norm, None, "slaney")
    kind = kind_of(element, ElementKind.F32 if out is None else read(out, "out").element)
    if not kind.is_float:
        raise InvalidProblemError(f"element must be a float, got {kind}")
    if out is not None and shape_of(out, "out") != (rows, columns):
        raise InvalidProblemError(f"out must have shape {(rows, columns)}, got {shape_of(out, 'out')}")
    least = _mel(low, scale)
    numbers = {"low": least, "step": (_mel(high, scale) - least) / (columns + 1), "spacing": (rate // 2) / (rows - 1)}
    return matrix((rows, columns), kind, like, out, _filters(scale, norm, kind), **numbers)


def cosines(x: Any, n: int, count: int, norm: str | None, options: Any) -> Any:
    """[n, count]: column k has 2 cos(π k (i + ½) / n), or that of the orthonormal transform (`dct` of type 2)."""
    factor = "(sqrt(0.25 / n) if j < 0.5 else sqrt(0.5 / n))" if norm == "ortho" else "1"
    kind = read(x, "x").element
    with beside(x, options["stream"]):
        text = f"{kind}(2 * cos(pi * j * (i + 0.5) / n) * {factor})"
        return matrix((n, count), kind, x, None, text, n=float(n))
