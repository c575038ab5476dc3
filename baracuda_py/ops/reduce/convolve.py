"""convolve, correlate and their like of images: sums of products of windows, with gradients; no transform.

One launch of `vecdot` multiplies the windows of the longer operand, padded, which lie over each other in memory, by the
shorter one: m products for each of n outputs. That is the way for taps of some tens; thousands of them want a
transform. Besides the result the padded operand and the taps turned round are in memory; in JAX, which has no views,
the windows are, too, n m elements.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from ...core import Array, registry
from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ...calls.composed import composed
from ...calls.entries import entry
from ...core.outputs import each_of
from ...core.tensor import Shape
from ...core.views import shape_of
from ...core.arrays import read
from ..layout.moves import flip
from ..layout.pad import pad
from ..layout.views import part, unfold
from .vecdot import VecdotBackwardPlan, VecdotPlan, vecdot


def conjugated(x: Any, options: Any) -> Any:
    """The conjugate; x itself of real numbers."""
    conj: Any = registry.public("conj")
    return conj(x, **options) if read(x, "x").element.is_complex else x


def windowed(x: Any, taps: Any, before: Shape, count: Shape, out: Any, options: Any) -> Any:
    """y[o] = Σ_j x[o - before + j] taps[j] for `count` outputs of each of the last axes, x being 0 beyond its ends.

    Axes of x before those are kept; taps have none of them, or one of extent 1 for each output axis behind them.
    """
    shape, rank = shape_of(x, "x"), len(count)
    first, sizes = len(shape) - rank, shape_of(taps, "taps")[-rank:]
    each = zip(shape[first:], sizes, before, count, strict=True)
    widths = [(b, c + m - 1 - n - b) for n, m, b, c in each]
    for axis, (left, right) in enumerate(widths):
        if left < 0 or right < 0:
            stop = shape[first + axis] - max(-right, 0)
            x = part(x, first + axis, max(-left, 0), stop)
    more = [(max(left, 0), max(right, 0)) for left, right in widths]
    if any(pair != (0, 0) for pair in more):
        x = pad(x, [(0, 0)] * first + more, **options)
    for axis, size in enumerate(sizes):
        x = unfold(x, first + axis, size, 1)
    return vecdot(x, taps, axis=tuple(range(-rank, 0)), conjugate=False, out=out, **options)


class _Cut(NamedTuple):
    """The outputs of the full convolution of shapes n and m that a mode keeps: where they begin, and how many."""

    first: Shape
    extent: Shape


def _cut(n: Shape, m: Shape, mode: str, correlated: bool) -> _Cut:
    """NumPy's for one axis, where "same" is the longer one's length; SciPy's for images, where it is that of a."""
    each = list(zip(n, m, strict=True))
    if mode == "full":
        return _Cut((0,) * len(n), tuple(i + j - 1 for i, j in each))
    if mode == "valid":
        return _Cut(tuple(min(i, j) - 1 for i, j in each), tuple(abs(i - j) + 1 for i, j in each))
    if len(n) == 1:
        ((i, j),) = each
        return _Cut(((min(i, j) - (not correlated or j <= i)) // 2,), (max(i, j),))
    return _Cut(tuple((j - 1) // 2 if not correlated else j - 1 - (j - 1) // 2 for j in m), n)


def _problem(a: Any, v: Any, mode: Any, rank: int, correlated: bool) -> _Cut:
    """What a mode keeps of two operands of `rank` axes that fit together."""
    shapes = shape_of(a, "a"), shape_of(v, "v")
    for name, shape in zip("av", shapes, strict=True):
        if len(shape) != rank or 0 in shape:
            axes = "1 axis" if rank == 1 else f"{rank} axes"
            raise InvalidProblemError(f"{name} must have {axes}, and elements, got shape {shape}")
    if (wanted := read(a, "a").element) is not (found := read(v, "v").element):
        raise InvalidProblemError(f"v must hold {wanted} as a does, got {found}; cast it first")
    if mode not in ("full", "same", "valid"):
        raise InvalidProblemError(f'mode must be "full", "same" or "valid", got {shown(mode)}')
    signs = {(i > j) - (i < j) for i, j in zip(*shapes, strict=True)}
    if mode == "valid" and {1, -1} <= signs:
        raise InvalidProblemError(f'mode "valid" needs one of a {shapes[0]} and v {shapes[1]} to contain the other')
    return _cut(*shapes, mode, correlated)


def _convolved(a: Any, v: Any, mode: Any, rank: int, correlated: bool, out: Any, options: Any) -> Any:
    """Part of the convolution of a with v, or with the conjugate of v turned round."""
    first, count = _problem(a, v, mode, rank, correlated)
    (out,) = each_of(out, 1)
    shapes = shape_of(a, "a"), shape_of(v, "v")
    if math.prod(shapes[1]) <= math.prod(shapes[0]):
        x, taps = a, conjugated(v, options) if correlated else flip(v, **options)
    else:
        x, taps = flip(conjugated(v, options), **options) if correlated else v, flip(a, **options)
    before = tuple(m - 1 - f for m, f in zip(shape_of(taps, "v"), first, strict=True))
    return windowed(x, taps, before, count, out, options)


def _slopes(dy: Any, a: Any, v: Any, mode: Any, rank: int, correlated: bool, out: Any, options: Any) -> tuple[Any, Any]:
    """(da, dv): the correlations of dy with the other operand."""
    first, count = _problem(a, v, mode, rank, correlated)
    if shape_of(dy, "dy") != count:
        raise InvalidProblemError(f"dy must have the shape of y {count}, got {shape_of(dy, 'dy')}")
    to = each_of(out, 2)
    taps = flip(v, **options) if correlated else conjugated(v, options)
    da = windowed(dy, taps, first, shape_of(a, "a"), to[0], options)
    other, sizes = conjugated(a, options), shape_of(v, "v")
    if not correlated:
        return da, windowed(dy, other, first, sizes, to[1], options)
    turned = windowed(dy, other, first, sizes, None, options)
    return da, flip(conjugated(turned, options), out=to[1], **options)


@composed("convolve_backward", "a", "v")
@entry(VecdotPlan)
def convolve(
    a: Array, v: Array, mode: str = "full", *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[i] = Σ_j a[i - j] v[j] of vectors a [n] and v [m] of one element (numpy.convolve, jax.numpy.convolve).

    mode: "full", n + m - 1 outputs; "same", the max(n, m) in the middle; "valid", those of whole overlap. Sums are
    those of `vecdot`: float32 of 16-bit floats, rounded once; of integers int64, uint64 of uint64. Up to three launches
    and n m products, with no transform: for short taps, see `VecdotPlan`. Gradients of a and v.
    """
    return _convolved(a, v, mode, 1, False, out, {"stream": stream, "preference": preference})


@entry(VecdotBackwardPlan)
def convolve_backward(
    dy: Array, a: Array, v: Array, mode: str = "full", *, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(da, dv) of `convolve`: dy correlated with v, and with a."""
    return _slopes(dy, a, v, mode, 1, False, out, {"stream": stream, "preference": preference})


@composed("correlate_backward", "a", "v")
@entry(VecdotPlan)
def correlate(
    a: Array, v: Array, mode: str = "valid", *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[i] = Σ_j a[i + j] conj(v[j]) of vectors a [n] and v [m] of one element (numpy.correlate).

    mode: "full", i from 1 - m on; "same", the max(n, m) in the middle; "valid", those of whole overlap. Cost and
    elements are those of `convolve`. Gradients of a and v.
    """
    return _convolved(a, v, mode, 1, True, out, {"stream": stream, "preference": preference})


@entry(VecdotBackwardPlan)
def correlate_backward(
    dy: Array, a: Array, v: Array, mode: str = "valid", *, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(da, dv) of `correlate`: dy convolved with v, and correlated with a."""
    return _slopes(dy, a, v, mode, 1, True, out, {"stream": stream, "preference": preference})


@composed("convolve2d_backward", "a", "v")
@entry(VecdotPlan)
def convolve2d(
    a: Array, v: Array, mode: str = "full", *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[i, k] = Σ a[i - j, k - l] v[j, l] of images a and v of one element, 0 around them (scipy.signal.convolve2d).

    mode: "full"; "same", as many as a has, in the middle; "valid", those of whole overlap, for which one contains the
    other. Cost and elements are those of `convolve`: for one image and a small v. Gradients of a and v.
    """
    return _convolved(a, v, mode, 2, False, out, {"stream": stream, "preference": preference})


@entry(VecdotBackwardPlan)
def convolve2d_backward(
    dy: Array, a: Array, v: Array, mode: str = "full", *, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(da, dv) of `convolve2d`: dy correlated with v, and with a."""
    return _slopes(dy, a, v, mode, 2, False, out, {"stream": stream, "preference": preference})


@composed("correlate2d_backward", "a", "v")
@entry(VecdotPlan)
def correlate2d(
    a: Array, v: Array, mode: str = "full", *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[i, k] = Σ a[i + j, k + l] conj(v[j, l]) of images a and v, 0 around them (scipy.signal.correlate2d).

    mode, cost and elements are those of `convolve2d`. Gradients of a and v.
    """
    return _convolved(a, v, mode, 2, True, out, {"stream": stream, "preference": preference})


@entry(VecdotBackwardPlan)
def correlate2d_backward(
    dy: Array, a: Array, v: Array, mode: str = "full", *, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(da, dv) of `correlate2d`: dy convolved with v, and correlated with a."""
    return _slopes(dy, a, v, mode, 2, True, out, {"stream": stream, "preference": preference})
