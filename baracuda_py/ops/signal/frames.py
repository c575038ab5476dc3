"""What functions of signals share: frames, their sum, windows, parts of complex numbers, formulas of places."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from ...core import ElementKind
from ...core.arrays import read
from ...core.checked import shown, whole
from ...core.errors import InvalidProblemError, UnsupportedError
from ...core.outputs import beside
from ...core.views import broadcast, cut, permuted, reshaped, shape_of, with_axis, without_axes
from ...expressions.elementwise import elementwise
from ...interop.packages import package_name
from ..elementwise.array_views import view_as_real
from ..elementwise.complex_pair import complex as joined
from ..elementwise.complex_unary import imag, real
from ..layout.axes import place
from ..layout.creation import arange, ones
from ..layout.im2col import col2im
from ..layout.moves import copy
from ..layout.pad import pad
from ..layout.views import part, unfold
from ...schedules.fourier import PARTS


@cache
def formula(text: str) -> Any:
    """The function of a formula, one for each text."""
    return elementwise(text)


def real_kind(x: Any, name: str, complex_too: bool = False) -> ElementKind:
    """The element of x's real numbers, which must be float32 or float64."""
    kind = read(x, "x").element
    if kind in PARTS or (complex_too and kind.is_complex):
        return kind.part
    many = "float32, float64, complex64 or complex128" if complex_too else "float32 or float64"
    raise UnsupportedError(f'{name} takes x of {many}, got {kind}; give cast(x, "float32")')


def with_same(x: Any, other: Any, name: str, function: str) -> None:
    """Refuses an operand of another element than x's real numbers."""
    kind, found = read(x, "x").element.part, read(other, name).element
    if found is not kind:
        raise InvalidProblemError(f"{function}: {name} must hold {kind} as x does, got {found}; cast it first")


def places(x: Any, n: int, stream: Any, element: ElementKind = ElementKind.F64) -> Any:
    """0, 1, … below n beside x."""
    with beside(x, stream):
        return arange(n, element=element, like=x)


def table(x: Any, count: int, text: str, options: Any, /, **numbers: Any) -> Any:
    """A formula of i = 0, 1, … below `count` in float64, rounded once to x's real numbers."""
    kind = read(x, "x").element.part
    named = "; ".join(f"{name} = {kind}({said})" for name, said in (one.split(" = ", 1) for one in text.split("; ")))
    return formula(named)(i=places(x, count, options["stream"]), **numbers, **options)


def parts(z: Any, options: Any) -> tuple[Any, Any]:
    """Real and imaginary parts of a complex array: views, in JAX copies."""
    if package_name(type(z)) == "jax":
        return real(z, **options), imag(z, **options)
    seen, rank = view_as_real(z), len(shape_of(z, "z"))
    halves = [cut(seen, [slice(None)] * rank + [slice(k, k + 1)], "z") for k in (0, 1)]
    return without_axes(halves[0], (rank,), "z"), without_axes(halves[1], (rank,), "z")


def scaled(z: Any, by: Any, options: Any) -> Any:
    """A complex array times a real one, which broadcasts to it; two launches."""
    first, second = parts(z, options)
    u, v = formula("u = a * r; v = b * r")(a=first, r=by, b=second, **options)
    return joined(u, v, **options)


def power_of(z: Any, power: float, options: Any, out: Any = None) -> Any:
    """|z| to a power; of 2 it is the sum of squares, whose gradient at 0 is 0."""
    first, second = parts(z, options)
    text = "a * a + b * b" if power == 2 else "hypot(a, b)" if power == 1 else "hypot(a, b) ** p"
    more = {} if power in (1, 2) else {"p": float(power)}
    return formula(text)(a=first, b=second, **more, out=out, **options)


def last(x: Any, axis: int, name: str = "x") -> tuple[Any, int]:
    """A view of x with an axis moved to the end, and where it was."""
    rank = len(shape_of(x, name))
    at = place(axis, rank)
    return permuted(x, [a for a in range(rank) if a != at] + [at], name), at


def back(y: Any, at: int, name: str = "y") -> Any:
    """A view of y with its last axis at another place."""
    rank = len(shape_of(y, name))
    order = list(range(rank - 1))
    order.insert(at, rank - 1)
    return permuted(y, order, name)


def to_last(out: Any, at: int, like: Any) -> Any:
    """A view of `out`, which has as many axes as `like`, whose axis `at` is the last; None of None."""
    if out is None:
        return None
    rank, found = len(shape_of(like, "x")), shape_of(out, "out")
    if len(found) != rank:
        raise InvalidProblemError(f"out must have {rank} axes, got shape {found}")
    return last(out, at, "out")[0]


def returned(y: Any, at: int, out: Any) -> Any:
    """`out` where it was given, else y with its last axis at `at`."""
    return back(y, at) if out is None else out


def frame_sizes(n_fft: Any, hop_length: Any, win_length: Any) -> tuple[int, int, int]:
    """PyTorch's: windows as long as the transform, a quarter of it apart."""
    n = whole("n_fft", n_fft, 1)
    hop = max(n // 4, 1) if hop_length is None else whole("hop_length", hop_length, 1)
    return n, hop, n if win_length is None else whole("win_length", win_length, 1, n)


def check_window(x: Any, window: Any, length: int, function: str) -> None:
    """Refuses a window of another length or element."""
    if window is None:
        return
    if shape_of(window, "window") != (length,):
        raise InvalidProblemError(
            f"{function}: window must have shape {(length,)}, of win_length, got {shape_of(window, 'window')}"
        )
    with_same(x, window, "window", function)


def widened_window(x: Any, window: Any, n: int, length: int, options: Any) -> Any:
    """A window that was checked with zeros about it up to the transform's length n; None where it is 1 everywhere."""
    if length == n:
        return window
    if window is None:
        with beside(x, options["stream"]):
            window = ones((length,), read(x, "x").element.part, like=x)
    left = (n - length) // 2
    return pad(window, ((left, n - length - left),), **options)


def window_of(x: Any, window: Any, n: int, length: int, function: str, options: Any) -> Any:
    """`widened_window` of one that is checked here."""
    check_window(x, window, length, function)
    return widened_window(x, window, n, length, options)


def check_centre(x: Any, n: int, mode: Any) -> None:
    """Refuses a signal that is too short to be reflected half a window about it."""
    half = n // 2
    if mode == "reflect" and half >= max(shape_of(x, "x")[-1], 1):
        raise InvalidProblemError(
            f"x must have more than {half} elements along its last axis, half of n_fft, to be reflected, got "
            f'{shape_of(x, "x")[-1]}; give center=False or pad_mode="constant"'
        )


def centred(x: Any, n: int, mode: Any, options: Any) -> Any:
    """x with half a window about it along the last axis."""
    half, rank = n // 2, len(shape_of(x, "x"))
    return pad(x, [(0, 0)] * (rank - 1) + [(half, half)], mode, **options)


def framed(x: Any, size: int, step: int, function: str) -> Any:
    """A view of the frames of the last axis: (…, frames, size)."""
    n = shape_of(x, "x")[-1]
    if n < size:
        raise InvalidProblemError(
            f"{function}: x must have {size} elements at least along its last axis, a frame, got {n}"
        )
    return unfold(x, -1, size, step)


def overlap_added(frames: Any, step: int, options: Any) -> Any:
    """Frames (…, T, n) that begin every `step` elements, added up: (…, n + step (T - 1)); a fixed order of sums."""
    *many, count, n = shape_of(frames, "x")
    size = n + step * (count - 1)
    rows = reshaped(frames, (math.prod(many), count, n), "x")
    if rows is None:
        rows = reshaped(copy(frames, **options), (math.prod(many), count, n), "x")
    made = col2im(permuted(rows, (0, 2, 1), "x"), (size,), (n,), stride=step, **options)
    return reshaped(made, (*many, size), "x")


def spread_rows(row: Any, count: int) -> Any:
    """A view of a vector as `count` equal rows."""
    return broadcast(with_axis(row, 0, "window"), (count, shape_of(row, "window")[0]), "window")


def one_of(name: str, value: Any, *allowed: Any) -> Any:
    """A value among those that are allowed."""
    if not any(value is one or (isinstance(value, str) and value == one) for one in allowed):
        raise InvalidProblemError(f"{name} must be one of {list(allowed)}, got {shown(value)}")
    return value


def sized(x: Any, axis: int, n: int, options: Any) -> Any:
    """x cut at its end along an axis, or with zeros behind it, to n elements."""
    shape = shape_of(x, "x")
    if n <= shape[axis]:
        return part(x, axis, 0, n) if n < shape[axis] else x
    widths = [(0, 0)] * len(shape)
    widths[axis] = (0, n - shape[axis])
    return pad(x, widths, **options)
