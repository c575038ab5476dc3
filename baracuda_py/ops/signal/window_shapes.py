"""The windows of scipy.signal.windows that torch.signal.windows has not, and `get_window`, which takes their names.

As those of `signal_windows`: formulas of 0, 1, … in float64, rounded once. sym: symmetric, as filters take it, else the
symmetric one of n + 1 without its last element. Where no formula says them (`chebwin`, `dpss`, `taylor_window`,
`kaiser_bessel_derived`), they are computed by NumPy on the host and copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...core import Array, ElementKind
from ...core.arrays import read
from ...core.checked import real, shown, truth, whole
from ...core.element import cast as cast_values
from ...core.errors import InvalidProblemError
from ...core.views import shape_of
from ...calls.exported import exported
from ..layout.made import from_host, kind_of
from ..layout.moves import copy
from ..layout.signal_windows import cosine, exponential_window, gaussian, general_cosine, general_hamming, hann
from ..layout.signal_windows import nuttall, over_places

_FLAT = (0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368)
_HARRIS = (0.35875, 0.48829, 0.14128, 0.01168)


def _extent(n: Any, sym: Any) -> tuple[int, int]:
    """n, and the elements of the symmetric window that it is, or begins."""
    count = whole("n", n, 0)
    return count, count + (not truth("sym", sym) and count > 1)


def _formula(n: Any, sym: Any, text: str, element: Any, like: Any, out: Any, **numbers: float) -> Array:
    """A formula of i = 0, 1, … and m, the elements of the symmetric window; of n = 1 it is 1."""
    count, longer = _extent(n, sym)
    if count == 1:
        return over_places(1, "1 + 0 * i", element, like, out)
    return over_places(count, f"{text} + 0 * (i + m)", element, like, out, m=float(longer), **numbers)


def _held(values: np.ndarray, count: int, element: Any, like: Any, out: Any) -> Array:
    """The first `count` of numbers of the host."""
    kind = kind_of(element, ElementKind.F32 if out is None else read(out, "out").element)
    if not kind.is_float:
        raise InvalidProblemError(f"element must be a float, got {kind}")
    if out is not None and shape_of(out, "out") != (count,):
        raise InvalidProblemError(f"out must have shape {(count,)}, got {shape_of(out, 'out')}")
    made = from_host(np.ascontiguousarray(cast_values(values[:count], kind)), like if out is None else out)
    return made if out is None else copy(made, out=out)


def _above(name: str, value: Any, least: float = 0.0) -> float:
    number = float(real(name, value))
    if not least < number < math.inf:
        raise InvalidProblemError(f"{name} must be finite and above {least:g}, got {shown(value)}")
    return number


@exported
def boxcar(n: int, *, sym: bool = True, element: Any = None, like: Any = None, out: Any = None) -> Array:
    """1 everywhere (scipy.signal.windows.boxcar)."""
    return _formula(n, sym, "1", element, like, out)


@exported
def triang(n: int, *, sym: bool = True, element: Any = None, like: Any = None, out: Any = None) -> Array:
    """1 - |2 i - (m - 1)| / M, M being m, of an odd m m + 1: a triangle above 0 (scipy.signal.windows.triang)."""
    wide = float(_extent(n, sym)[1] | 1)
    wide += wide % 2 if _extent(n, sym)[1] % 2 else -1
    return _formula(n, sym, "1 - abs(2 * i - (m - 1)) / wide", element, like, out, wide=wide)


@exported
def parzen(n: int, *, sym: bool = True, element: Any = None, like: Any = None, out: Any = None) -> Array:
    """Parzen's window, four boxes convolved: cubic in the distance from the middle (scipy.signal.windows.parzen)."""
    distance = "(abs(2 * i - (m - 1)) / m)"
    near = f"1 - 6 * square{distance} + 6 * square{distance} * {distance}"
    far = f"2 * (1 - {distance}) * square(1 - {distance})"
    return _formula(n, sym, f"({near} if 2 * abs(2 * i - (m - 1)) <= m - 1 else {far})", element, like, out)


@exported
def bohman(n: int, *, sym: bool = True, element: Any = None, like: Any = None, out: Any = None) -> Array:
    """(1 - |x|) cos(π |x|) + sin(π |x|) / π, x from -1 to 1, at which it is 0 (scipy.signal.windows.bohman)."""
    x = "abs(2 * i / (m - 1) - 1)"
    inside = f"(1 - {x}) * cos(pi * {x}) + sin(pi * {x}) / pi"
    return _formula(n, sym, f"(0 if i == 0 or i == m - 1 else {inside})", element, like, out)


@exported
def blackmanharris(n: int, *, sym: bool = True, element: Any = None, like: Any = None, out: Any = None) -> Array:
    """Blackman's and Harris's window of four cosines (scipy.signal.windows.blackmanharris)."""
    return general_cosine(n, a=_HARRIS, sym=sym, element=element, like=like, out=out)


@exported
def flattop(n: int, *, sym: bool = True, element: Any = None, like: Any = None, out: Any = None) -> Array:
    """The window of five cosines with a flat top, which reads amplitudes (scipy.signal.windows.flattop)."""
    return general_cosine(n, a=_FLAT, sym=sym, element=element, like=like, out=out)


@exported
def barthann(n: int, *, sym: bool = True, element: Any = None, like: Any = None, out: Any = None) -> Array:
    """0.62 - 0.48 |x| + 0.38 cos(2π |x|), x from -½ to ½ (scipy.signal.windows.barthann)."""
    x = "abs(i / (m - 1) - 0.5)"
    return _formula(n, sym, f"0.62 - 0.48 * {x} + 0.38 * cos(2 * pi * {x})", element, like, out)


@exported
def tukey(
    n: int, *, alpha: float = 0.5, sym: bool = True, element: Any = None, like: Any = None, out: Any = None
) -> Array:
    """1 between two halves of a cosine, which are `alpha` of it; from 1 on `hann` (scipy.signal.windows.tukey)."""
    share = float(real("alpha", alpha))
    if share <= 0:
        return boxcar(n, sym=sym, element=element, like=like, out=out)
    if share >= 1:
        return hann(n, sym=sym, element=element, like=like, out=out)
    _, longer = _extent(n, sym)
    width = float(math.floor(share * (longer - 1) / 2))
    nearest = "minimum(i, m - 1 - i)"
    text = f"(0.5 - 0.5 * cos(2 * pi * {nearest} / (alpha * (m - 1))) if {nearest} <= width else 1)"
    return _formula(n, sym, text, element, like, out, alpha=share, width=width)


@exported
def general_gaussian(
    n: int, *, p: float, sig: float, sym: bool = True, element: Any = None, like: Any = None, out: Any = None
) -> Array:
    """exp(-½ |x / sig|^2p), x the distance from the middle (scipy.signal.windows.general_gaussian)."""
    numbers = {"p2": 2 * float(real("p", p)), "sig": _above("sig", sig)}
    return _formula(n, sym, "exp(-0.5 * abs((i - (m - 1) / 2) / sig) ** p2)", element, like, out, **numbers)


@exported
def lanczos(n: int, *, sym: bool = True, element: Any = None, like: Any = None, out: Any = None) -> Array:
    """sinc(2 i / (m - 1) - 1), the middle arch of a sinc (scipy.signal.windows.lanczos)."""
    return _formula(n, sym, "sinc(2 * i / (m - 1) - 1)", element, like, out)


@exported
def taylor_window(
    n: int, *, nbar: int = 4, sll: float = 30.0, norm: bool = True, sym: bool = True, element: Any = None,
    like: Any = None, out: Any = None,
) -> Array:  # fmt: skip
    """Taylor's window: nbar side lobes nearly as high, sll dB below the main one (scipy.signal.windows.taylor).

    norm: divided by its value in the middle of its elements.
    """
    count, m = _extent(n, sym)
    terms, level = whole("nbar", nbar, 1), _above("sll", sll)
    a = math.acosh(10 ** (level / 20)) / math.pi
    s2 = terms**2 / (a**2 + (terms - 0.5) ** 2)
    each = range(1, terms)
    factors = []
    for k in each:
        over = (-1) ** (k + 1) * math.prod(1 - k**2 / s2 / (a**2 + (j - 0.5) ** 2) for j in each)
        factors.append(over / (2 * math.prod(1 - k**2 / j**2 for j in each if j != k)))

    def at(x: Any) -> Any:
        angles = 2 * np.pi * (np.asarray(x, float)[..., None] - m / 2 + 0.5) / max(m, 1)
        return 1 + 2 * (np.cos(angles * np.arange(1, terms)) * factors).sum(-1)

    values = at(np.arange(m)) / (at((m - 1) / 2) if truth("norm", norm) else 1)
    return _held(values if count != 1 else np.ones(1), count, element, like, out)


@exported
def chebwin(
    n: int, *, at: float = 100.0, sym: bool = True, element: Any = None, like: Any = None, out: Any = None
) -> Array:
    """Dolph's and Chebyshev's window: all side lobes `at` dB below the main one (scipy.signal.windows.chebwin)."""
    count, m = _extent(n, sym)
    level = _above("at", at)
    if m <= 1:
        return _held(np.ones(count), count, element, like, out)
    order = m - 1
    beta = math.cosh(math.acosh(10 ** (level / 20)) / order)
    x = beta * np.cos(np.pi * np.arange(m) / m)
    p = np.where(np.abs(x) <= 1, np.cos(order * np.arccos(np.clip(x, -1, 1))), 0)
    high = np.cosh(order * np.arccosh(np.maximum(np.abs(x), 1)))
    p = np.where(x > 1, high, np.where(x < -1, (2 * (m % 2) - 1) * high, p))
    if m % 2:
        w = np.fft.fft(p).real
        half = w[: (m + 1) // 2]
        w = np.concatenate([half[:0:-1], half])
    else:
        w = np.fft.fft(p * np.exp(1j * np.pi / m * np.arange(m))).real
        w = np.concatenate([w[m // 2 : 0 : -1], w[1 : m // 2 + 1]])
    return _held(w / w.max(), count, element, like, out)


@exported
def dpss(n: int, nw: float, *, sym: bool = True, element: Any = None, like: Any = None, out: Any = None) -> Array:
    """The sequence of n with most of its energy at frequencies below nw / n (Slepian; scipy.signal.windows.dpss).

    nw: half the bandwidth times n, below n / 2. The first eigenvector of a tridiagonal matrix, its largest element 1,
    of an even n less, by SciPy's formula; n³ operations on the host.
    """
    count, m = _extent(n, sym)
    width = _above("nw", nw)
    if m <= 1:
        return _held(np.ones(count), count, element, like, out)
    if width >= m / 2:
        raise InvalidProblemError(f"nw must be below half of {m} elements, got {shown(nw)}")
    k = np.arange(m)
    beside = k[1:] * (m - k[1:]) / 2.0
    middle = ((m - 1 - 2 * k) / 2.0) ** 2 * math.cos(2 * math.pi * width / m)
    matrix = np.diag(middle) + np.diag(beside, 1) + np.diag(beside, -1)
    w = np.linalg.eigh(matrix)[1][:, -1]
    w = w / w[np.argmax(np.abs(w))]
    if m % 2 == 0:
        w = w * (m**2 / (m**2 + width))
    return _held(w, count, element, like, out)


@exported
def kaiser_bessel_derived(n: int, beta: float, *, element: Any = None, like: Any = None, out: Any = None) -> Array:
    """The square root of a Kaiser window's running sum, there and back: of even n (scipy.signal.windows).

    Squares n / 2 apart add up to 1, as the modified cosine transform (MDCT) wants them.
    """
    count = whole("n", n, 0)
    if count % 2:
        raise InvalidProblemError(f"n must be even, got {n}")
    sums = np.cumsum(np.kaiser(count // 2 + 1, float(real("beta", beta))))
    half = np.sqrt(sums[:-1] / sums[-1]) if count else np.ones(0)
    return _held(np.concatenate([half, half[::-1]]), count, element, like, out)


def _of(function: Callable[..., Any], *names: str) -> tuple[Callable[..., Any], tuple[str, ...]]:
    return function, names


_NAMED: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "hann": _of(hann), "hanning": _of(hann), "boxcar": _of(boxcar), "ones": _of(boxcar), "rect": _of(boxcar),
    "rectangular": _of(boxcar), "box": _of(boxcar), "triang": _of(triang), "triangle": _of(triang),
    "parzen": _of(parzen), "bohman": _of(bohman), "blackmanharris": _of(blackmanharris), "nuttall": _of(nuttall),
    "flattop": _of(flattop), "barthann": _of(barthann), "cosine": _of(cosine), "sine": _of(cosine),
    "lanczos": _of(lanczos), "tukey": _of(tukey, "alpha"), "general_cosine": _of(general_cosine, "a"),
    "general_hamming": _of(general_hamming, "alpha"), "gaussian": _of(gaussian, "std"),
    "general_gaussian": _of(general_gaussian, "p", "sig"), "exponential": _of(exponential_window, "center", "tau"),
    "taylor": _of(taylor_window, "nbar", "sll", "norm"), "chebwin": _of(chebwin, "at"), "dpss": _of(dpss, "nw"),
}  # fmt: skip
_SUMS = {"hamming": (0.54, 0.46), "blackman": (0.42, 0.50, 0.08)}


@exported
def get_window(
    window: Any, n: int, fftbins: bool = True, *, element: Any = None, like: Any = None, out: Any = None
) -> Array:
    """A window by its name, a tuple of name and parameters, or a number, Kaiser's beta (scipy.signal.get_window).

    `get_window(("tukey", 0.25), 64)`. fftbins: periodic, as spectra take it, else symmetric.
    """
    name, *parameters = window if isinstance(window, (tuple, list)) and window else (window,)
    if isinstance(name, (int, float)) and not isinstance(name, bool):
        name, parameters = "kaiser", [name]
    sym = not truth("fftbins", fftbins)
    more = {"element": element, "like": like, "out": out}
    if name in _SUMS and not parameters:
        return general_cosine(n, a=_SUMS[name], sym=sym, **more)
    if name == "bartlett" and not parameters:
        return _formula(n, sym, "1 - abs(2 * i / (m - 1) - 1)", element, like, out)
    if name == "kaiser" and len(parameters) == 1:
        text = "i0(beta * sqrt(maximum(1 - square(2 * i / (m - 1) - 1), 0))) / i0(beta + 0 * i)"
        return _formula(n, sym, text, element, like, out, beta=float(real("beta", parameters[0])))
    if not isinstance(name, str) or name not in _NAMED:
        known = sorted({*_NAMED, *_SUMS, "bartlett", "kaiser"})
        raise InvalidProblemError(f"window must be one of {known}, or a tuple of one and numbers, got {shown(window)}")
    function, names = _NAMED[name]
    if len(parameters) > len(names):
        raise InvalidProblemError(f"window {name!r} takes the parameters {list(names)}, got {shown(window)}")
    facts = dict(zip(names, parameters, strict=False))
    missing = {"gaussian": "std", "general_gaussian": "sig", "dpss": "nw", "general_cosine": "a",
               "general_hamming": "alpha"}.get(name)  # fmt: skip
    if missing and missing not in facts:
        raise InvalidProblemError(f"window {name!r} takes the parameters {list(names)}: give a tuple ({name!r}, …)")
    return function(n, sym=sym, **facts, **more)
