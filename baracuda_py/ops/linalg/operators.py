"""What iterative solvers share: matrices or functions as maps of vectors, and numbers of systems that are done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...core.arrays import read
from ...core.checked import real as real_number
from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ...core.views import shape_of, with_axis
from ..elementwise.binary_functions import add, mul
from ..elementwise.complex_unary import real
from ..reduce.vecdot import vecdot
from .parts import adjoint_of, column, known, looked_at, one_batch, rehearsed, square
from .pieces import Pieces

Map = Callable[[Any], Any]
MOST = 1000  # iterations, where no number is given


def operator(a: Any, n: int, do: Pieces, name: str = "A", adjoint: bool = False) -> Map:
    """x -> A x of vectors along the last axis, A an array [..., n, n] or a function of such vectors."""
    if a is None:
        return lambda x: x
    if callable(a):
        return lambda x: _kept(a(x), x, name)
    if square(a, name) != n:
        raise InvalidProblemError(
            f"{name} must be [..., {n}, {n}], as vectors have {n} numbers, got {shape_of(a, name)}"
        )
    held = adjoint_of(a, do.options) if adjoint else a

    def product(x: Any) -> Any:
        matrix, columns = one_batch((held, name), (with_axis(x, -1, "x"), "x"))
        return column(do.product(matrix, columns))

    return product


def _kept(y: Any, x: Any, name: str) -> Any:
    if shape_of(y, "y") != shape_of(x, "x"):
        raise InvalidProblemError(
            f"{name} must return vectors of the shape it is given, {shape_of(x, 'x')}, got {shape_of(y, 'y')}"
        )
    return y


def vectors(a: Any, b: Any, name: str) -> tuple[Any, int]:
    """b [..., n], repeated where A has more axes of a batch, and n."""
    view = known(b, "b", name)
    if not view.shape:
        raise InvalidProblemError(f"{name}: b must be vectors [..., n], got shape ()")
    if not callable(a):
        n = square(a, "A")
        if n != view.shape[-1]:
            raise InvalidProblemError(f"b must be [..., {n}], vectors along its last axis, got shape {view.shape}")
        b = column(one_batch((a, "A"), (with_axis(b, -1, "b"), "b"))[1])
    return b, view.shape[-1]


def count(name: str, value: Any, usual: int) -> int:
    """A number of iterations, or the usual one."""
    if value is None:
        return min(usual, MOST)
    if isinstance(value, (bool, float)) or not isinstance(value, (int, np.integer)) or value < 0:
        raise InvalidProblemError(f"{name} must be a number of iterations, 0 or more, got {shown(value)}")
    return int(value)


class Systems:
    """Sums along vectors and steps along them, each system by itself."""

    def __init__(self, do: Pieces) -> None:
        self.do = do

    def dot(self, x: Any, y: Any) -> Any:
        """xᴴ y, of each pair."""
        return vecdot(x, y, **self.do.options)

    def real_dot(self, x: Any, y: Any) -> Any:
        """The real part of xᴴ y."""
        found = self.dot(x, y)
        return real(found, **self.do.options) if read(found, "x").element.is_complex else found

    def plus(self, x: Any, by: Any, y: Any) -> Any:
        """x + by y, a number for each."""
        return add(x, self.times(y, by), **self.do.options)

    def times(self, y: Any, by: Any) -> Any:
        """by y."""
        by = with_axis(by, -1, "s")
        if read(by, "s").element.is_complex:
            return mul(y, by, **self.do.options)
        return self.do.scaled(y, by)

    def limit(self, b: Any, tol: Any, atol: Any) -> Any:
        """max(tol² |b|², atol²), up to which the square of a residual counts as 0."""
        share, least = real_number("tol", tol) ** 2, real_number("atol", atol) ** 2
        return self.do.of("maximum(share * s, least)", s=self.real_dot(b, b), share=share, least=least)


def settled(left: Any, limit: Any, made: int) -> bool:
    """Whether all are known to be done, or one iteration, `made`, has been rehearsed."""
    if rehearsed():
        return made > 1
    return looked_at(left) and not bool((left > limit).any())
