"""The windows of torch.signal.windows beside those that NumPy names too: sums of cosines, a bell, an arch, a decay.

Each is a formula of 0, 1, … in float64, rounded once; two launches. sym: the window is symmetric, as filters take it;
else it is periodic, the symmetric one of n + 1 without its last element, as spectra take it. `like` and `element` are
those of `linspace`; `out` is an array to write, which says both.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from ...core import Array, ElementKind
from ...core.checked import real, sequence, shown, truth, whole
from ...core.errors import InvalidProblemError
from ...calls.exported import exported
from ...core.arrays import read
from ...core.views import shape_of
from ...expressions.elementwise import elementwise
from .creation import arange
from .made import kind_of, new


@cache
def _formula(text: str, kind: str) -> Any:
    return elementwise(f"{kind}({text})")


def over_places(n: int, text: str, element: Any, like: Any, out: Any, /, **numbers: float) -> Array:
    """A formula of i = 0, 1, … below n, in float64 and rounded once."""
    kind = kind_of(element, ElementKind.F32 if out is None else read(out, "out").element)
    if not kind.is_float:
        raise InvalidProblemError(f"element must be a float, got {kind}")
    if out is not None and shape_of(out, "out") != (n,):
        raise InvalidProblemError(f"out must have shape {(n,)}, got {shape_of(out, 'out')}")

    def write(y: Array) -> Array:  # of JAX a buffer, whose places are of float64 where its arrays are not
        places = arange(n, element=ElementKind.F64, like=y)
        return _formula(text, str(kind))(i=places, **numbers, out=y)

    return new((n,), kind, like, write) if out is None else write(out)


def _length(n: Any, sym: Any) -> tuple[int, int]:
    """n, and the elements of the symmetric window that it is, or begins."""
    count = whole("n", n, 0)
    return count, count + (not truth("sym", sym) and count > 1)


def _above_zero(name: str, value: Any) -> float:
    number = real(name, value)
    if not 0 < number < math.inf:
        raise InvalidProblemError(f"{name} must be finite and above 0, got {shown(value)}")
    return float(number)


@exported
def cosine(n: int, *, sym: bool = True, element: Any = None, like: Any = None, out: Any = None) -> Array:
    """sin(π (i + ½) / N), N being n where `sym`, else n + 1 (torch.signal.windows.cosine): half a period of a sine."""
    count, longer = _length(n, sym)
    return over_places(count, "sin(pi * (i + 0.5) / last)", element, like, out, last=float(longer))


@exported
def gaussian(
    n: int, *, std: float = 1.0, sym: bool = True, element: Any = None, like: Any = None, out: Any = None
) -> Array:
    """exp(-½ ((i - c) / std)²) about the middle c (torch.signal.windows.gaussian)."""
    count, longer = _length(n, sym)
    numbers = {"c": (longer - 1) / 2, "std": _above_zero("std", std)}
    return over_places(count, "exp(-0.5 * square((i - c) / std))", element, like, out, **numbers)


@exported
def exponential_window(
    n: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, element: Any = None, like: Any = None,
    out: Any = None,
) -> Array:  # fmt: skip
    """exp(-|i - center| / tau), by default about the middle (torch.signal.windows.exponential).

    center is for a window that is not `sym`. `exponential` draws random numbers.
    """
    count, longer = _length(n, sym)
    if center is not None and sym:
        raise InvalidProblemError(f"center must be None for a symmetric window, got {shown(center)}; give sym=False")
    middle = (longer - 1) / 2 if center is None else float(real("center", center))
    numbers = {"c": middle, "tau": _above_zero("tau", tau)}
    return over_places(count, "exp(-abs(i - c) / tau)", element, like, out, **numbers)


@exported
def general_cosine(
    n: int, *, a: Any, sym: bool = True, element: Any = None, like: Any = None, out: Any = None
) -> Array:
    """Σ_k (-1)^k a[k] cos(2π k i / N), N being n - 1 where `sym`, else n (torch.signal.windows.general_cosine).

    a: numbers, as many as the sum has terms, one at least. Of n = 1 the window is 1.
    """
    count, longer = _length(n, sym)
    weights = [float(real(f"a[{k}]", one)) for k, one in enumerate(sequence("a", a, "numbers"))]
    if not weights:
        raise InvalidProblemError("a must have a number at least")
    if count == 1:
        return over_places(1, "1 + 0 * i", element, like, out)
    terms = [f"{'-' if k % 2 else '+'} a{k} * cos({2 * k} * pi * (i / last))" for k, _ in enumerate(weights)]
    numbers = {f"a{k}": one for k, one in enumerate(weights)}
    text = "a0 " + " ".join(terms[1:]) + (" + 0 * i / last" if len(terms) == 1 else "")
    return over_places(count, text, element, like, out, last=float(longer - 1), **numbers)


@exported
def general_hamming(
    n: int, *, alpha: float = 0.54, sym: bool = True, element: Any = None, like: Any = None, out: Any = None
) -> Array:
    """alpha - (1 - alpha) cos(2π i / N), N being n - 1 where `sym`, else n (torch.signal.windows.general_hamming)."""
    first = float(real("alpha", alpha))
    return general_cosine(n, a=(first, 1 - first), sym=sym, element=element, like=like, out=out)


@exported
def hann(n: int, *, sym: bool = True, element: Any = None, like: Any = None, out: Any = None) -> Array:
    """½ - ½ cos(2π i / N), N being n - 1 where `sym`, else n (torch.signal.windows.hann)."""
    return general_cosine(n, a=(0.5, 0.5), sym=sym, element=element, like=like, out=out)


@exported
def nuttall(n: int, *, sym: bool = True, element: Any = None, like: Any = None, out: Any = None) -> Array:
    """Nuttall's window of four terms with the lowest side lobes (Nuttall 1981; torch.signal.windows.nuttall)."""
    return general_cosine(
        n, a=(0.3635819, 0.4891775, 0.1365995, 0.0106411), sym=sym, element=element, like=like, out=out
    )
