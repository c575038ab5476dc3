"""The frequencies of a discrete Fourier transform, and their order: what is around a transform, without one."""

from __future__ import annotations

from typing import Any

from ...core import Array
from ...core.checked import real, shown, whole
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...calls.exported import exported
from ...core.views import shape_of
from .axes import places
from .pad import PadPlan, roll
from .signal_windows import over_places


def _spacing(d: Any) -> float:
    number = float(real("d", d))
    if number == 0:
        raise InvalidProblemError(f"d must not be 0, got {shown(d)}")
    return number


@exported
def fftfreq(n: int, d: float = 1.0, element: Any = None, *, like: Any = None, out: Any = None) -> Array:
    """The n frequencies of a transform of samples d apart: 0, 1, … and then those below 0, over n d.

    torch.fft.fftfreq, numpy.fft.fftfreq; n is 1 at least. In float64, rounded once to `element` (float32 by default).
    Two launches.
    """
    count = whole("n", n, 1)
    numbers = {"half": float((count + 1) // 2), "n": float(count), "d": _spacing(d)}
    return over_places(count, "(i if i < half else i - n) / (n * d)", element, like, out, **numbers)


@exported
def rfftfreq(n: int, d: float = 1.0, element: Any = None, *, like: Any = None, out: Any = None) -> Array:
    """The n // 2 + 1 frequencies of a transform of n real samples d apart: i / (n d) (torch.fft.rfftfreq)."""
    count = whole("n", n, 1)
    numbers = {"n": float(count), "d": _spacing(d)}
    return over_places(count // 2 + 1, "i / (n * d)", element, like, out, **numbers)


def _shifted(x: Any, axis: Any, sign: int, options: Any) -> Any:
    shape = shape_of(x, "x")
    along = places(tuple(range(len(shape))) if axis is None else axis, len(shape))
    return roll(x, [sign * (shape[a] // 2) for a in along], along, **options)


@entry(PadPlan)
def fftshift(x: Array, axis: Any = None, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """x with the frequency 0, which is first, moved to the middle of `axis`, all by default (torch.fft.fftshift).

    Rolled by n // 2 along each axis of an integer or a tuple; one launch.
    """
    return _shifted(x, axis, 1, {"out": out, "stream": stream, "preference": preference})


@entry(PadPlan)
def ifftshift(x: Array, axis: Any = None, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """x with the middle of `axis` moved to its front, which undoes `fftshift` (torch.fft.ifftshift)."""
    return _shifted(x, axis, -1, {"out": out, "stream": stream, "preference": preference})
