"""What the functions of Fourier transforms do with axes, lengths and norms, and their passes of plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core import Array, registry
from ...core.arrays import read
from ...core.checked import INT64, MAX_AXES, shown, whole, wholes
from ...core.element import COMPLEX, HALVES, ElementKind
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.outputs import beside
from ...core.views import broadcast, shape_of
from ...schedules.fourier import PARTS
from ...schedules.stockham import REALS
from ..layout.axes import places
from ..layout.views import part
from .fft import _fft
from .irfft import _irfft
from .rfft import _rfft, alone
from .transforms import MOST, NORMS

SWAPPED = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def norm_of(norm: Any) -> str:
    """The norm, by default that of NumPy and PyTorch."""
    if norm is None:
        return "backward"
    if not isinstance(norm, str) or norm not in NORMS:
        raise InvalidProblemError(f"norm must be one of {list(NORMS)} or None, got {shown(norm)}")
    return norm


def several(x: Array, s: Any, axis: Any) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """The axes, counted from the front, and their lengths, None where x has them."""
    rank = len(shape_of(x, "x"))
    if isinstance(s, (int, np.integer)):
        s = (s,)
    sizes = None if s is None else wholes("s", s, -1, INT64, "lengths")
    if axis is None:
        if sizes is not None and len(sizes) > rank:
            raise InvalidProblemError(f"s has {len(sizes)} lengths, but x has {rank} axes")
        axis = tuple(range(rank))[rank - len(sizes) :] if sizes is not None else tuple(range(rank))
    found = places(axis, rank)
    if not found:
        raise InvalidProblemError("axis names no axis to transform")
    if sizes is None:
        return found, (None,) * len(found)
    if len(sizes) != len(found):
        raise InvalidProblemError(f"s must have a length for each of the axes {found}, got {sizes}")
    for n in sizes:
        if n == 0:
            raise InvalidProblemError(f"s must have lengths of at least 1, or -1 for those of x, got {sizes}")
    return found, tuple(None if n == -1 else n for n in sizes)


def one(x: Array, n: Any, axis: Any) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """As `several`, of one axis."""
    found = places(whole("axis", axis, -MAX_AXES, MAX_AXES - 1), len(shape_of(x, "x")))
    return found, (None if n is None else whole("n", n, 1),)


def _sized(x: Array, axes: Sequence[int], lengths: Sequence[int | None], more: dict[str, Any]) -> Array:
    """x cut, as a view, or with zeros behind it, as a copy, where an axis has another length."""
    widths = [(0, 0)] * len(shape_of(x, "x"))
    for axis, n in zip(axes, lengths, strict=True):
        own = shape_of(x, "x")[axis]
        if n is not None and n < own:
            x = part(x, axis, 0, n)
        elif n is not None:
            widths[axis] = (0, n - own)
    return registry.public("pad")(x, widths, **more) if any(after for _, after in widths) else x


def _refuse(x: Array, name: str, complex_too: bool) -> Any:
    """The element of x, which must be one that is transformed."""
    element = read(x, "x").element
    if element in (PARTS if complex_too else REALS) or (complex_too and element in COMPLEX):
        return element
    if element.is_complex:
        raise UnsupportedError(f"{name} takes real numbers, got x of {element}: take its real(x) or imag(x)")
    many = "float32, float64, complex64 or complex128" if complex_too else "a float"
    raise UnsupportedError(f'{name} takes x of {many}, got {element}: give cast(x, "float32")')


def _complex(x: Array, name: str, more: dict[str, Any]) -> Array:
    """x as complex numbers: real ones with imaginary parts of 0."""
    element = _refuse(x, name, True)
    if element.is_complex:
        return x
    with beside(x, more["stream"]):
        zero = registry.public("zeros")((), element, like=x)
    return registry.public("complex")(x, broadcast(zero, shape_of(x, "x"), "x"), **more)


def _by_passes(x: Array, axes: Sequence[int], inverse: bool, norm: str, out: Any, more: dict[str, Any]) -> Array:
    """Transforms of complex numbers over any number of axes, three at a time."""
    groups = [axes[i : i + MOST] for i in range(0, len(axes), MOST)]
    for group in groups[1:]:
        x = _fft(x, axis=tuple(group), inverse=inverse, norm=norm, **more)
    return _fft(x, axis=tuple(groups[0]), inverse=inverse, norm=norm, out=out, **more)


def to_complex(
    name: str, x: Array, found: Any, norm: Any, inverse: bool, out: Any, stream: Any, preference: Any
) -> Array:  # fmt: skip
    """Complex to complex."""
    (axes, lengths), more = found, {"stream": stream, "preference": preference}
    norm = norm_of(norm)
    _refuse(x, name, True)
    x = _complex(_sized(x, axes, lengths, more), name, more)
    return _by_passes(x, axes, inverse, norm, out, more)


def to_half(name: str, x: Array, found: Any, norm: str, out: Any, stream: Any, preference: Any) -> Array:
    """Real to half a spectrum."""
    (axes, lengths), more = found, {"stream": stream, "preference": preference}
    element = _refuse(x, name, False)
    x = _sized(x, axes, lengths, more)
    together = MOST
    if element in HALVES:
        together = 1
        if not alone([shape_of(x, "x")[axes[-1]]], element):
            x, together = registry.public("cast")(x, ElementKind.F32, **more), MOST
    if len(axes) <= together:
        return _rfft(x, axis=axes, norm=norm, out=out, **more)
    x = _rfft(x, axis=axes[-together:], norm=norm, **more)
    return _by_passes(x, axes[:-together], False, norm, out, more)


def to_real(
    name: str, x: Array, found: Any, norm: str, conjugate: bool, out: Any, stream: Any, preference: Any
) -> Array:
    """Half a spectrum, or its conjugate, to real."""
    (axes, lengths), more = found, {"stream": stream, "preference": preference}
    _refuse(x, name, True)
    own, last = shape_of(x, "x"), axes[-1]
    n = 2 * (own[last] - 1) if lengths[-1] is None else lengths[-1]
    if n < 1:
        raise InvalidProblemError(
            f"{name} has {n} results along axis {last}, where x has {own[last]}: give their number"
        )
    x = _complex(_sized(x, axes, (*lengths[:-1], n // 2 + 1), more), name, more)
    if conjugate:
        x = registry.public("conj")(x, **more)
    part_of, together = read(x, "x").element.part, MOST
    if out is not None and read(out, "out").element in HALVES and part_of is ElementKind.F32:
        part_of, together = read(out, "out").element, 1
    if len(axes) > together:
        x, axes = _by_passes(x, axes[:-together], True, norm, None, more), axes[-together:]
    shape = list(shape_of(x, "x"))
    shape[last] = n
    return _irfft(x, shape=tuple(shape), axis=axes, norm=norm, element=part_of, out=out, **more)
