"""polyval: a polynomial at many places, by Horner's rule, eight coefficients a launch; with its gradient."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core import Array, registry
from ...core.errors import InvalidProblemError
from ...calls.composed import composed
from ...calls.entries import entry
from ...core.outputs import beside, each_of
from ...core.views import reshaped, shape_of, with_axis
from ...expressions.elementwise import elementwise
from ...expressions.reduce import reduce as reduction
from ...core.arrays import read
from ..elementwise.binary import BinaryPlan
from ..elementwise.binary_functions import add, mul
from ..layout.concat import concat
from ..layout.creation import zeros
from ..layout.views import part
from .polynomials import coefficients, polyder

EACH = 8
"""Coefficients a launch: a formula's inputs are few."""


@cache
def _horner(count: int, first: bool, kind: str) -> Any:
    """`count` steps y = y x + c, the first of them y = c where none is before; sums in the accumulator till `kind`."""
    text = "c0 + 0 * x" if first else "y"
    for i in range(int(first), count):
        text = f"({text}) * x + c{i}" if not (first and i == 1) else "c0 * x + c1"
    return elementwise(f"{kind}({text})")


@cache
def _slope() -> Any:
    return reduction("dy * x ** k", "sum", axis=None)


@composed("polyval_backward", "p", "x", where=lambda held: not read(held["p"], "p").element.is_complex)
@entry(BinaryPlan)
def polyval(p: Array, x: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Σ_i p[i] x^(n - 1 - i) at each element of x, p [n] and x (any shape) of one element (numpy.polyval).

    Horner's rule: one launch for 8 coefficients, in float32 of 16-bit floats, rounded once; of complex numbers two for
    each. Integers wrap. Gradients of p and x: a sum, and the derivative's value, as many launches as coefficients.
    """
    options = {"stream": stream, "preference": preference}
    count, shape = coefficients(p), shape_of(x, "x")
    kind = read(x, "x").element
    if read(p, "p").element is not kind:
        raise InvalidProblemError(f"p must hold {kind} as x does, got {read(p, 'p').element}; cast it first")
    (out,) = each_of(out, 1)
    if out is not None and shape_of(out, "out") != shape:
        raise InvalidProblemError(f"out must have shape {shape}, got {shape_of(out, 'out')}")
    flat, seen = (x, out) if shape else (with_axis(x, 0, "x"), out if out is None else with_axis(out, 0, "out"))
    if kind.is_complex:
        y = _stepwise(p, flat, count, seen, options)
        return reshaped(y, shape, "y") if out is None else out
    y, at = None, 0
    while at < count:
        upto = min(at + EACH, count)
        last = upto == count
        names = {f"c{i - at}": part(p, 0, i, i + 1) for i in range(at, upto)}
        names |= {} if y is None else {"y": y}
        step = _horner(upto - at, y is None, str(kind if last else kind.acc if kind.is_float else kind))
        y = step(x=flat, **names, out=seen if last else None, **options)
        at = upto
    return reshaped(y, shape, "y") if out is None else out


def _stepwise(p: Any, x: Any, count: int, out: Any, options: Any) -> Any:
    """Horner's rule by products and sums."""
    with beside(x, options["stream"]):
        y = zeros(shape_of(x, "x"), read(x, "x").element, like=x)
    for i in range(count):
        grown = y if not i else mul(y, x, **options)
        y = add(grown, part(p, 0, i, i + 1), out=out if i == count - 1 else None, **options)
    return y


@entry(BinaryPlan)
def polyval_backward(
    dy: Array, p: Array, x: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(dp, dx) of `polyval` of floats: dp[i] = Σ dy x^(n - 1 - i), in float32 at least, and dx = dy times p'(x)."""
    options = {"stream": stream, "preference": preference}
    count, to = coefficients(p), each_of(out, 2)
    if shape_of(dy, "dy") != shape_of(x, "x"):
        raise InvalidProblemError(f"dy must have the shape of x {shape_of(x, 'x')}, got {shape_of(dy, 'dy')}")
    sums = [reshaped(_slope()(dy=dy, x=x, k=float(count - 1 - i), **options), (1,), "dp") for i in range(count)]
    dp = concat(sums, out=to[0], **options)
    if count == 1:
        scaled: Any = registry.public("mul")
        with beside(x, stream):
            nothing = zeros((), read(x, "x").element, like=x)
        return dp, scaled(dy, nothing, out=to[1], **options)
    slopes = polyval(polyder(p, **options), x, **options)
    return dp, mul(dy, slopes, out=to[1], **options)
