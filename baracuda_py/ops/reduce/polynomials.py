"""Polynomials by their coefficients, the highest power first (numpy.polyval, numpy.polymul and their like).

Compositions, differentiated call by call but where a gradient is named. Coefficients are vectors with an element at
least; their values are on the device, so that no leading zeros are trimmed, as jax.numpy has it. Roots and fits need
eigenvalues and least squares, and are not here.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from ...core import Array, ElementKind, registry
from ...core.checked import real, shown, whole
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.outputs import beside, each_of
from ...core.views import shape_of, with_axis
from ...expressions.elementwise import elementwise
from ...core.arrays import read
from ..elementwise.binary import BinaryPlan
from ..elementwise.binary_functions import add, div, mul, sub
from ..elementwise.cast import cast
from ..layout.concat import ConcatPlan, concat
from ..layout.creation import full, ones, zeros
from ..layout.made import from_host
from ..layout.moves import flip
from ..layout.pad import pad
from ..layout.view_copy import ViewCopyPlan
from ..layout.views import part
from ..layout.moves import clone
from .convolve import convolve, windowed
from .vecdot import VecdotPlan


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


def coefficients(p: Any, name: str = "p") -> int:
    """How many a polynomial has."""
    shape = shape_of(p, name)
    if len(shape) != 1 or not shape[0]:
        raise InvalidProblemError(f"{name} must be a vector of a coefficient at least, got shape {shape}")
    return shape[0]


def inexact(x: Any, name: str) -> ElementKind:
    """The element of floats or complex numbers."""
    kind = read(x, name).element
    if not kind.is_inexact:
        raise UnsupportedError(f"{name} holds {kind}, and the result is no integer; write cast({name}, 'float32')")
    return kind


def _sides(a: Any, b: Any, options: Any) -> tuple[Any, Any]:
    """Both with as many coefficients: zeros before the shorter one."""
    n, m = coefficients(a, "a"), coefficients(b, "b")
    return tuple(
        pad(x, [(max(n, m) - count, 0)], **options) if count < max(n, m) else x for x, count in ((a, n), (b, m))
    )


@entry(BinaryPlan)
def polyadd(a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The sum of two polynomials, max(n, m) coefficients of n and m (numpy.polyadd): zeros go before the fewer."""
    options = {"stream": stream, "preference": preference}
    return add(*_sides(a, b, options), out=out, **options)


@entry(BinaryPlan)
def polysub(a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The difference of two polynomials, max(n, m) coefficients of n and m (numpy.polysub); see `polyadd`."""
    options = {"stream": stream, "preference": preference}
    return sub(*_sides(a, b, options), out=out, **options)


@entry(VecdotPlan)
def polymul(a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The product of two polynomials, n + m - 1 coefficients of n and m (numpy.polymul): their `convolve`."""
    coefficients(a, "a"), coefficients(b, "b")
    return convolve(a, b, out=out, stream=stream, preference=preference)


def _times(p: Any, factors: Any, out: Any, options: Any) -> Any:
    """p times numbers of the host, which 16-bit floats meet in float32."""
    kind = read(p, "p").element
    of = kind.acc if kind.is_float else kind
    held = from_host(np.asarray(factors, of.dtype), p, options["stream"])
    if kind.is_float:
        return _formula(f"{kind}(p * c)")(p=p, c=held, out=out, **options)
    return mul(p, held, out=out, **options)


def _falling(power: int, m: int) -> int:
    """power (power - 1) … of m factors."""
    return math.perm(power, m)


@entry(BinaryPlan)
def polyder(p: Array, m: int = 1, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The m-th derivative, n - m coefficients of n and none of fewer (numpy.polyder); two launches at most.

    Coefficients of integers wrap; m = 0 gives a copy.
    """
    options = {"stream": stream, "preference": preference}
    count, order = coefficients(p), whole("m", m, 0)
    if read(p, "p").element is ElementKind.BOOL:
        raise UnsupportedError("p holds bool, which derivatives leave; write cast(p, 'int64')")
    if order == 0:
        return clone(p, out=out, **options)
    left = max(count - order, 0)
    kind = read(p, "p").element
    factors = [_falling(count - 1 - i, order) for i in range(left)]
    if kind.is_integer:
        factors = [_wrapped(one, kind) for one in factors]
    return _times(part(p, 0, 0, left), factors, out, options)


def _wrapped(number: int, kind: ElementKind) -> int:
    """An integer modulo the range of an element."""
    low = number % (1 << kind.bits)
    return low - (1 << kind.bits) if low > int(np.iinfo(kind.dtype).max) else low


def _constants(p: Any, k: Any, order: int, kind: ElementKind, options: Any) -> Any:
    """The constants of integration, as a vector of p's element."""
    if k is None or isinstance(k, (int, float, complex, np.number)):
        with beside(p, options["stream"]):
            return full((order,), 0 if k is None else k, kind, like=p)
    if isinstance(k, (list, tuple)):
        if len(k) not in (1, order):
            raise InvalidProblemError(f"k must be one constant or {order}, got {shown(k)}")
        if not kind.is_complex:
            k = [real(f"k[{i}]", one) for i, one in enumerate(k)]
        values = np.asarray([*k] * (order if len(k) == 1 else 1), complex if kind.is_complex else float)
        with beside(p, options["stream"]):
            held = from_host(values.astype(kind.acc.dtype), p, options["stream"])
        return cast(held, kind, **options)
    if shape_of(k, "k") != (order,):
        raise InvalidProblemError(f"k must have shape {(order,)}, got {shape_of(k, 'k')}")
    if (found := read(k, "k").element) is not kind:
        raise InvalidProblemError(f"k must hold {kind} as p does, got {found}; cast it first")
    return k


@entry(ConcatPlan)
def polyint(
    p: Array, m: int = 1, k: Any = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The m-th antiderivative, n + m coefficients of n (numpy.polyint), of floats or complex numbers.

    k: the constants of integration in the order in which they come, numbers or an array [m]; one number for all, 0 by
    default. Three launches.
    """
    options = {"stream": stream, "preference": preference}
    count, order, kind = coefficients(p), whole("m", m, 0), inexact(p, "p")
    if order == 0:
        return clone(p, out=out, **options)
    above = [1 / _falling(count - 1 - i + order, order) for i in range(count)]
    below = [1 / math.factorial(order - 1 - j) for j in range(order)]
    made = [_times(p, above, None, options), _times(_constants(p, k, order, kind, options), below, None, options)]
    return concat(made, out=out, **options)


@entry(ViewCopyPlan)
def poly(x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The polynomial with n roots x, (z - x[0]) (z - x[1]) …: n + 1 coefficients, the first of them 1 (numpy.poly).

    x [n], floats or complex numbers; the matrix that numpy.poly takes, too, needs eigenvalues. Halves of the factors
    are multiplied with each other, log₂ n times, in x's element. Complex coefficients stay so; NumPy's may become real.
    """
    options = {"stream": stream, "preference": preference}
    shape, kind = shape_of(x, "x"), inexact(x, "x")
    if len(shape) != 1:
        raise InvalidProblemError(f"x must be the roots [n], got shape {shape}")
    (n,) = shape
    with beside(x, stream):
        one = ones((1,), kind, like=x)
    if not n:
        return clone(one, out=out, **options)
    rows = 1 << (n - 1).bit_length()  # a power of two: the polynomials 0 z + 1 are added, which change no product
    negated: Any = registry.public("neg")
    last = negated(x, **options)
    with beside(x, stream):
        first = ones((n,), kind, like=x)
        if rows > n:
            first = concat([first, zeros((rows - n,), kind, like=x)], **options)
            last = concat([last, ones((rows - n,), kind, like=x)], **options)
    factors = concat([with_axis(first, 1, "x"), with_axis(last, 1, "x")], axis=1, **options)
    while rows > 1:
        rows, degree = rows // 2, shape_of(factors, "x")[1] - 1
        taps = flip(part(factors, 0, rows, 2 * rows), 1, **options)
        held = part(factors, 0, 0, rows)
        factors = windowed(held, with_axis(taps, 1, "x"), (degree,), (2 * degree + 1,), None, options)
    whole_ = factors.reshape((-1,))
    length = shape_of(whole_, "x")[0]
    return clone(part(whole_, 0, length - n - 1, length), out=out, **options)


@entry(BinaryPlan)
def polydiv(u: Array, v: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> tuple[Any, Any]:
    """(quotient, remainder) of u / v by long division, so that u = quotient · v + remainder (numpy.polydiv).

    Of floats or complex numbers; the first coefficient of v must not be 0, or both are infinite or NaN. The quotient
    has max(n - m + 1, 1) coefficients of n and m, the remainder max(m - 1, 1), leading zeros included, which NumPy
    trims. Each coefficient of the quotient takes up to four launches, and of the remainder so far one copy.
    """
    options = {"stream": stream, "preference": preference}
    n, m = coefficients(u, "u"), coefficients(v, "v")
    if inexact(u, "u") is not inexact(v, "v"):
        raise InvalidProblemError(f"v must hold {read(u, 'u').element} as u does, got {read(v, 'v').element}")
    to = each_of(out, 2)
    steps = n - m + 1
    if steps < 1:
        longest = max(m - 1, 1)
        with beside(u, stream):
            nothing = zeros((1,), read(u, "u").element, like=u)
        return clone(nothing, out=to[0], **options), pad(u, [(longest - n, 0)], out=to[1], **options)
    rest, first, others, quotient = u, part(v, 0, 0, 1), part(v, 0, 1, m), []
    for step in range(steps):
        digit = div(part(rest, 0, 0, 1), first, **options)
        quotient.append(digit)
        behind = part(rest, 0, 1, n - step)
        if m == 1:
            rest = behind
            continue
        lessened = sub(part(behind, 0, 0, m - 1), mul(others, digit, **options), **options)
        rest = concat([lessened, part(behind, 0, m - 1, n - step - 1)], **options) if step < steps - 1 else lessened
    if m == 1:
        with beside(u, stream):
            rest = zeros((1,), read(u, "u").element, like=u)
    return concat(quotient, out=to[0], **options), clone(rest, out=to[1], **options)
