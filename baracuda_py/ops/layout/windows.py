"""Windows of signal processing, in float64 rounded once: PyTorch's, which are periodic, and NumPy's, which are not."""

from __future__ import annotations

from typing import Any

from ...core import Array, ElementKind
from ...core.checked import truth, whole
from ...calls.exported import exported
from ...expressions.elementwise import elementwise
from ..elementwise.cast import cast
from .creation import linspace
from .generate import generate
from .made import kind_of, new
from .views import part


def _made(form: str, n: Any, periodic: bool, element: Any, like: Any, *numbers: float) -> Array:
    count = whole("n", n, 0)
    last = count if truth("periodic", periodic) and count > 1 else max(count - 1, 0)
    kind = kind_of(element, ElementKind.F32)
    facts = dict(zip(("begin", "end", "base"), numbers, strict=False))
    return new((count,), kind, like, lambda y: generate(y, steps=(1,), form=form, last=last, element=kind, **facts))


@exported
def hann_window(n: int, periodic: bool = True, element: Any = None, *, like: Any = None) -> Array:
    """½ - ½ cos(2π i / N), N being n where periodic, else n - 1 (torch.hann_window)."""
    return _made("cosine", n, periodic, element, like, 0.5, 0.5, 0.0)


@exported
def hamming_window(
    n: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, element: Any = None, *, like: Any = None
) -> Array:
    """alpha - beta cos(2π i / N) (torch.hamming_window)."""
    return _made("cosine", n, periodic, element, like, alpha, beta, 0.0)


@exported
def blackman_window(n: int, periodic: bool = True, element: Any = None, *, like: Any = None) -> Array:
    """0.42 - ½ cos(2π i / N) + 0.08 cos(4π i / N) (torch.blackman_window)."""
    return _made("cosine", n, periodic, element, like, 0.42, 0.5, 0.08)


@exported
def bartlett_window(n: int, periodic: bool = True, element: Any = None, *, like: Any = None) -> Array:
    """1 - |2 i / N - 1| (torch.bartlett_window)."""
    return _made("tent", n, periodic, element, like)


@exported
def kaiser_window(n: int, periodic: bool = True, beta: float = 12.0, element: Any = None, *, like: Any = None) -> Array:
    """I₀(beta √(1 - (2 i / N - 1)²)) / I₀(beta) (torch.kaiser_window); three launches."""
    count, kind = whole("n", n, 0), kind_of(element, ElementKind.F32)
    longer = count + 1 if truth("periodic", periodic) and count > 1 else count
    if count == 1:
        return linspace(1, 1, 1, kind, like=like)
    places = linspace(-1, 1, longer, ElementKind.F64, like=like)
    made = elementwise("i0(beta * sqrt(maximum(1 - x * x, 0))) / i0(beta + 0 * x)")(x=places, beta=float(beta))
    return cast(part(made, 0, 0, count), kind)


@exported
def hanning(n: int, element: Any = "float64", *, like: Any = None) -> Array:
    """The Hann window that is not periodic, in float64 (numpy.hanning)."""
    return hann_window(n, False, element, like=like)


@exported
def hamming(n: int, element: Any = "float64", *, like: Any = None) -> Array:
    """The Hamming window that is not periodic, in float64 (numpy.hamming)."""
    return hamming_window(n, False, element=element, like=like)


@exported
def blackman(n: int, element: Any = "float64", *, like: Any = None) -> Array:
    """The Blackman window that is not periodic, in float64 (numpy.blackman)."""
    return blackman_window(n, False, element, like=like)


@exported
def bartlett(n: int, element: Any = "float64", *, like: Any = None) -> Array:
    """The Bartlett window that is not periodic, in float64 (numpy.bartlett)."""
    return bartlett_window(n, False, element, like=like)


@exported
def kaiser(n: int, beta: float, element: Any = "float64", *, like: Any = None) -> Array:
    """The Kaiser window that is not periodic, in float64 (numpy.kaiser)."""
    return kaiser_window(n, False, beta, element, like=like)
