"""What gradients and compositions of factorisations are made of: the same calls for real and complex matrices."""

from __future__ import annotations

from functools import cache
from typing import Any

from ...core.arrays import read
from ...core.outputs import beside
from ...core.views import cut, shape_of, with_axis, without_axes
from ...expressions.elementwise import elementwise
from ..elementwise.binary_functions import add, mul, sub
from ..elementwise.cast import cast
from ..elementwise.complex_unary import adjoint
from ..gemm.matmul import matmul
from ..layout.creation import eye, zeros_like
from ..reduce import reduce as page


@cache
def formula(text: str) -> Any:
    """A formula of real arrays."""
    return elementwise(text)


class Pieces:
    """Calls on one stream by one preference."""

    def __init__(self, stream: Any, preference: Any) -> None:
        self.options = {"stream": stream, "preference": preference}

    def product(self, a: Any, b: Any, out: Any = None) -> Any:
        """a @ b."""
        return matmul(a, b, out=out, **self.options)

    def turned(self, x: Any) -> Any:
        """The adjoint."""
        return adjoint(x, **self.options)

    def sum(self, *terms: Any) -> Any:
        """Of those that there are, or None."""
        made = None
        for one in terms:
            made = one if made is None else made if one is None else add(made, one, **self.options)
        return made

    def scaled(self, x: Any, by: Any) -> Any:
        """x times real numbers, which broadcast."""
        kind = read(x, "x").element
        return mul(x, cast(by, kind, **self.options) if kind.is_complex else by, **self.options)

    def times(self, x: Any, number: float) -> Any:
        """x times a number that the host knows."""
        return mul(x, number, **self.options)

    def skew(self, x: Any) -> Any:
        """x less its adjoint."""
        return sub(x, self.turned(x), **self.options)

    def of(self, text: str, out: Any = None, **arrays: Any) -> Any:
        """A formula of real arrays and numbers."""
        return formula(text)(**arrays, out=out, **self.options)

    def reduced(self, name: str, x: Any, axis: Any = -1, out: Any = None, keepdims: bool = False) -> Any:
        """A reduction by its name."""
        return page.__dict__[name](x, axis=axis, keepdims=keepdims, out=out, **self.options)

    def unit(self, n: int, like: Any) -> Any:
        """The identity in the element of an array of real numbers."""
        with beside(like, self.options["stream"]):
            return eye(n, element=read(like, "w").element, like=like)

    def nothing(self, like: Any) -> Any:
        """Zeros of an array's shape and element."""
        with beside(like, self.options["stream"]):
            return zeros_like(like)


def across(w: Any) -> Any:
    """A number for each column."""
    return with_axis(w, -2, "w")


def down(w: Any) -> Any:
    """A number for each row."""
    return with_axis(w, -1, "w")


def first(s: Any, count: int = 1) -> Any:
    """The first of singular values, as they broadcast."""
    return cut(s, (*(slice(None),) * (len(shape_of(s, "s")) - 1), slice(count)), "s")


def one_of(s: Any, place: int) -> Any:
    """One of each matrix's singular values, counted from 0, without their axis."""
    rank = len(shape_of(s, "s"))
    return without_axes(cut(s, (*(slice(None),) * (rank - 1), slice(place, place + 1)), "s"), (rank - 1,), "s")
