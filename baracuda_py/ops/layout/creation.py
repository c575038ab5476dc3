"""Arrays of nothing but numbers: empty, full, arange, linspace, eye and their like.

`like` is an array whose package and device the result has; without it that is CuPy on the current GPU, or NumPy where
there is none. `element` is any dtype-like; its defaults are PyTorch's (float32, of integers int64).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ...core import Array, ElementKind, Scalar
from ...core.checked import real, whole, wholes
from ...core.errors import InvalidProblemError
from ...calls.exported import exported
from ...core.numbers import met, plain
from ...core.tensor import Shape
from ...core.views import permuted, shape_of, with_axis
from ...expressions.elementwise import elementwise
from ...core.arrays import read
from ..elementwise.binary_functions import pow as power
from ..elementwise.cast import cast
from ..elementwise.fill import fill
from ..reduce.reduce_kinds import total
from .concat import stack
from .generate import generate
from .made import kind_of, new, number_kind

F32, I64 = ElementKind.F32, ElementKind.I64


def _shape(shape: Any) -> Shape:
    return wholes("shape", (shape,) if isinstance(shape, (int, np.integer)) else shape)


# ---- one value -----------------------------------------------------------------------------------------------------


@exported
def empty(shape: Any, element: Any = None, *, like: Any = None) -> Array:
    """An array whose elements are not set (torch.empty, numpy.empty)."""
    return new(_shape(shape), kind_of(element, F32), like)


@exported
def full(shape: Any, value: Scalar, element: Any = None, *, like: Any = None) -> Array:
    """An array of one value (torch.full, numpy.full)."""
    kind = kind_of(element, number_kind(value) if np.isscalar(value) else read(value, "value").element)
    return new(_shape(shape), kind, like, lambda y: fill(y, value))


@exported
def zeros(shape: Any, element: Any = None, *, like: Any = None) -> Array:
    """An array of zeros (torch.zeros, numpy.zeros)."""
    return full(shape, 0, kind_of(element, F32), like=like)


@exported
def ones(shape: Any, element: Any = None, *, like: Any = None) -> Array:
    """An array of ones (torch.ones, numpy.ones)."""
    return full(shape, 1, kind_of(element, F32), like=like)


@exported
def empty_like(x: Array, element: Any = None) -> Array:
    """An array of x's shape, and its element where none is given, whose elements are not set (torch.empty_like)."""
    found = read(x, "x")
    return empty(found.shape, kind_of(element, found.element), like=x)


@exported
def full_like(x: Array, value: Scalar, element: Any = None) -> Array:
    """An array of x's shape, and its element where none is given, of one value (torch.full_like)."""
    found = read(x, "x")
    return full(found.shape, value, kind_of(element, found.element), like=x)


@exported
def zeros_like(x: Array, element: Any = None) -> Array:
    """An array of x's shape, and its element where none is given, of zeros (torch.zeros_like)."""
    return full_like(x, 0, element)


@exported
def ones_like(x: Array, element: Any = None) -> Array:
    """An array of x's shape, and its element where none is given, of ones (torch.ones_like)."""
    return full_like(x, 1, element)


@exported
def empty_permuted(shape: Any, physical_layout: Any, element: Any = None, *, like: Any = None) -> Array:
    """An array whose axes lie in memory in the order `physical_layout`, outermost first (torch.empty_permuted)."""
    sizes, order = _shape(shape), wholes("physical_layout", physical_layout)
    if sorted(order) != [a for a, _ in enumerate(sizes)]:
        raise InvalidProblemError(f"physical_layout must name each axis of {sizes} once, got {order}")
    made = empty(tuple(sizes[a] for a in order), element, like=like)
    return permuted(made, [order.index(a) for a, _ in enumerate(sizes)], "made")


@exported
def empty_strided(shape: Any, stride: Any, element: Any = None, *, like: Any = None) -> Array:
    """An array with these strides, in elements, whose elements are not set (torch.empty_strided).

    The strides are those of a permuted array without gaps; others, which leave memory unused, are refused.
    """
    sizes, strides = _shape(shape), wholes("stride", stride)
    if len(sizes) != len(strides):
        raise InvalidProblemError(f"stride must have an item for each axis of {sizes}, got {strides}")
    order = sorted([a for a, _ in enumerate(sizes)], key=lambda a: (-strides[a], sizes[a] != 1))
    step = 1
    for a in reversed(order):
        if sizes[a] > 1 and strides[a] != step and 0 not in sizes:
            raise InvalidProblemError(f"stride {strides} of shape {sizes} is no order of axes without gaps")
        step *= sizes[a]
    return empty_permuted(sizes, order, element, like=like)


# ---- numbers in order ----------------------------------------------------------------------------------------------


@exported
def arange(
    start: Any, stop: Any = None, step: Any = 1, element: Any = None, *, like: Any = None, out: Any = None
) -> Array:
    """start, start + step, … below stop; of one number those from 0 below it (torch.arange, numpy.arange).

    The host must know the numbers: they say how long the result is. Floats are start + i step in float64, rounded once.
    """
    start, stop, step = map(plain, (0, start, step) if stop is None else (start, stop, step))
    for name, value in (("start", start), ("stop", stop), ("step", step)):
        _finite(name, value)
    if step == 0:
        raise InvalidProblemError("step must not be 0")
    kind = kind_of(element, number_kind(start, stop, step))
    exact = all(isinstance(one, (int, np.integer)) for one in (start, stop, step))
    count = -((start - stop) // step) if exact else _steps((stop - start) / step, math.ceil)
    return _counted(max(0, int(count)), start, step, kind, like, out)


def _finite(name: str, value: Any) -> float:
    """A number that is neither infinite nor NaN."""
    if not math.isfinite(number := real(name, value)):
        raise InvalidProblemError(f"{name} must be finite, got {value}: it says how long the result is")
    return number


def _steps(number: float, rounded: Callable[[float], int]) -> int:
    """A number of steps as an integer; raises where no array has so many."""
    if not abs(number) < 2**63:
        raise InvalidProblemError(f"from start to stop are {number} steps, more than an array has elements")
    return rounded(number)


def _counted(count: int, start: Any, step: Any, kind: ElementKind, like: Any, out: Any = None) -> Array:
    whole_ = not kind.is_inexact
    if whole_ and count:
        met("step", step, ElementKind.I64, "coefficient")
        for name, value in (("start", start), ("the last number", start + (count - 1) * step)):
            met(name, value, kind, "element")
    numbers = {"first": int(start), "stride": int(step)} if whole_ else {"begin": float(start), "end": float(step)}
    return generated((count,), (1,), "counted", kind, like, out, **numbers)


def generated(
    shape: Shape, steps: Shape, form: str, kind: ElementKind, like: Any, out: Any = None, **facts: Any
) -> Array:
    """The numbers of a form of `GeneratePlan`, whose index grows by `steps` along the axes; in `out` if given."""

    def write(y: Array) -> None:
        generate(y, steps=steps, form=form, element=kind, **facts)

    if out is None:
        return new(shape, kind, like, write)
    if shape_of(out, "out") != shape:
        raise InvalidProblemError(f"out must have shape {shape}, got {shape_of(out, 'out')}")
    generate(out, steps=steps, form=form, **facts)
    return out


@exported
def range_closed(start: Any, stop: Any, step: Any = 1, element: Any = None, *, like: Any = None) -> Array:
    """start, start + step, … up to stop, which may be met (torch.range)."""
    start, stop, step = map(plain, (start, stop, step))
    begin, end, by = _finite("start", start), _finite("stop", stop), _finite("step", step)
    if by == 0:
        raise InvalidProblemError("step must not be 0")
    count = _steps((end - begin) / by, math.floor) + 1
    return _counted(max(0, count), start, step, kind_of(element, F32), like)


@exported
def linspace(
    start: Scalar, stop: Scalar, num: int = 50, element: Any = None, *, endpoint: bool = True, like: Any = None,
    out: Any = None,
) -> Array:  # fmt: skip
    """num numbers from start to stop, evenly spaced (torch.linspace, numpy.linspace); stop is one if `endpoint`.

    Numbers, or 0-d arrays on the device. They are counted from the nearer end, in float64, and rounded once.
    """
    return _spaced("spaced", start, stop, num, element, endpoint, like, out)


def _spaced(
    form: str, start: Any, stop: Any, num: Any, element: Any, endpoint: bool, like: Any, out: Any, base: Any = 0.0
) -> Array:
    count = whole("num", num, 0)
    facts = {"begin": start, "end": stop, "base": base, "last": max(count - bool(endpoint), 0), "ends": bool(endpoint)}
    return generated((count,), (1,), form, kind_of(element, F32), like, out, **facts)


@exported
def logspace(
    start: Scalar, stop: Scalar, num: int = 50, base: Scalar = 10.0, element: Any = None, *, endpoint: bool = True,
    like: Any = None, out: Any = None,
) -> Array:  # fmt: skip
    """base to the power of the numbers of `linspace` (torch.logspace, numpy.logspace).

    Integers are those of float64 without their fractions, and saturate; a number within 10⁻¹⁵ of an integer, relative
    to it, counts as that, so that no rounding error of a power takes one away.
    """
    return _grown("powers", start, stop, num, element, endpoint, like, out, base)


@exported
def geomspace(
    start: Scalar, stop: Scalar, num: int = 50, element: Any = None, *, endpoint: bool = True, like: Any = None,
    out: Any = None,
) -> Array:  # fmt: skip
    """num numbers from start to stop, each the one before times the same factor (numpy.geomspace); of one sign.

    Integers are made as those of `logspace`.
    """
    start, stop = map(plain, (start, stop))
    if all(isinstance(one, (int, float)) for one in (start, stop)) and not start * stop > 0:
        raise InvalidProblemError(f"start and stop must have one sign and not be 0, got {start} and {stop}")
    return _grown("ratio", start, stop, num, element, endpoint, like, out)


def _grown(form: str, *given: Any) -> Array:
    """`_spaced` of powers or ratios, whose integers are cut from numbers in float64."""
    start, stop, num, element, endpoint, like, out, *base = given
    kind = kind_of(element, F32 if out is None else read(out, "out").element)
    if not kind.is_integer:
        return _spaced(form, start, stop, num, element, endpoint, like, out, *base)
    values = _spaced(form, start, stop, num, ElementKind.F64, endpoint, like if out is None else out, None, *base)
    return _whole(str(kind))(v=values, out=out)


@cache
def _whole(element: str) -> Any:
    return elementwise(f"{element}(v if abs(v - rint(v)) > 1e-15 * abs(v) else rint(v))")


@exported
def broadcasted_iota(element: Any, shape: Any, dimension: int, *, like: Any = None) -> Array:
    """The index along one axis, of every element of a shape (jax.lax.broadcasted_iota)."""
    sizes = _shape(shape)
    at = whole("dimension", dimension, 0, max(len(sizes) - 1, 0))
    steps = tuple(int(a == at) for a, _ in enumerate(sizes))
    return generated(sizes, steps, "counted", ElementKind.of(element), like)


@exported
def iota(element: Any, size: int, *, like: Any = None) -> Array:
    """0, 1, … size - 1 (jax.lax.iota)."""
    return broadcasted_iota(element, (size,), 0, like=like)


@exported
def indices(dimensions: Any, element: Any = None, *, like: Any = None) -> Array:
    """The index along each axis of every element of a shape, one behind the other (numpy.indices)."""
    sizes = _shape(dimensions)
    kind = kind_of(element, I64)
    if not sizes:
        return empty((0,), kind, like=like)
    return stack([broadcasted_iota(kind, sizes, axis, like=like) for axis, _ in enumerate(sizes)])


# ---- matrices ------------------------------------------------------------------------------------------------------


@exported
def eye(n: int, m: int | None = None, k: int = 0, element: Any = None, *, like: Any = None, out: Any = None) -> Array:
    """An n × m matrix, of n columns where m is None, with ones on diagonal k (torch.eye, numpy.eye)."""
    shape = (whole("n", n, 0), whole("n", n, 0) if m is None else whole("m", m, 0))
    return generated(shape, (-1, 1), "equal", kind_of(element, F32), like, out, diagonal=whole("k", k))


@exported
def identity(n: int, element: Any = None, *, like: Any = None) -> Array:
    """The n × n identity (numpy.identity)."""
    return eye(n, element=element, like=like)


@exported
def tri(n: int, m: int | None = None, k: int = 0, element: Any = None, *, like: Any = None) -> Array:
    """An n × m matrix with ones on and below diagonal k (numpy.tri)."""
    shape = (whole("n", n, 0), whole("n", n, 0) if m is None else whole("m", m, 0))
    return generated(shape, (-1, 1), "below", kind_of(element, F32), like, diagonal=whole("k", k))


@exported
def vander(x: Array, n: int | None = None, increasing: bool = False) -> Array:
    """The powers of each element of x along a new last axis, falling from n - 1 (torch.vander, numpy.vander).

    increasing: rising from 0, as torch.linalg.vander has them. Powers of integers and bools are of 64 bits, and wrap.
    """
    found = read(x, "x")
    if not found.shape:
        raise InvalidProblemError("x must have an axis at least, got shape ()")
    count = found.shape[-1] if n is None else whole("n", n, 0)
    kind = total(found.element)
    exponents = _counted(count, 0 if increasing else count - 1, 1 if increasing else -1, I64, x)
    rows = with_axis(x if kind is found.element else cast(x, kind), -1, "x")
    return power(rows, cast(exponents, kind))


@exported
def hilbert(n: int, element: Any = None, *, like: Any = None) -> Array:
    """The n × n matrix 1 / (i + j + 1) (scipy.linalg.hilbert)."""
    shape = (whole("n", n, 0),) * 2
    return generated(shape, (1, 1), "reciprocal", kind_of(element, F32), like)


range = range_closed
