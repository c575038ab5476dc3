"""Matrices of a known structure (scipy.linalg's): Toeplitz and its like of vectors, others counted out by the host.

Those of vectors are copies along walks, so that gradients reach the vectors. Those that the host counts out, in float64
from exact integers where it can, are copied where `like` is.
"""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from ...core import Array, ElementKind, registry
from ...core.checked import shown, whole
from ...core.element import cast as cast_values
from ...core.element import encode
from ...core.errors import InvalidProblemError
from ...calls.exported import exported
from ...calls.entries import entry
from ...core.memory import raise_lacking
from ...core.outputs import beside
from ...core.views import shape_of, with_axis
from ...core.arrays import read
from ..elementwise.binary_functions import div, sub
from .concat import ConcatPlan, concat
from .creation import ones, zeros
from .made import from_host, kind_of
from .moves import flip
from .pad import pad
from ..indexing.take import TakePlan, take
from .view_copy import ViewCopyPlan, view_copy
from .view_scatter import view_scatter
from .views import part, raveled
from .walk import Walk


def _diagonals(values: Array, rows: int, columns: int, start: int, down: int, out: Any, **more: Any) -> Array:
    """y[i, j] = values[start + down · i + j]."""
    count = shape_of(values, "values")[0]
    walk = Walk((count,), (start if rows and columns else 0,), (((rows, (down,)),), ((columns, (1,)),)))
    return view_copy(values, **walk.fields, out=out, **more)


@entry(ViewCopyPlan)
def toeplitz(c: Array, r: Array | None = None, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The matrix with first column c and first row r whose diagonals are constant (scipy.linalg.toeplitz).

    r[0] is not looked at; without r it is c, of complex numbers to be conjugated by the caller.
    """
    more = {"stream": stream, "preference": preference}
    column, row = raveled(c, stream), raveled(c if r is None else r, stream)
    m, n = shape_of(column, "c")[0], shape_of(row, "r")[0]
    values = concat([flip(column, **more), part(row, 0, 1, max(n, 1))], **more)
    return _diagonals(values, m, n, m - 1, -1, out, **more)


@entry(ViewCopyPlan)
def hankel(c: Array, r: Array | None = None, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The matrix with first column c and last row r, 0 without, whose anti-diagonals are constant (scipy's hankel)."""
    more = {"stream": stream, "preference": preference}
    column = raveled(c, stream)
    m = shape_of(column, "c")[0]
    row = None if r is None else raveled(r, stream)
    n = m if row is None else shape_of(row, "r")[0]
    values = pad(column, (0, m - 1), **more) if row is None else concat([column, part(row, 0, 1, max(n, 1))], **more)
    return _diagonals(values, m, n, 0, 1, out, **more)


@entry(ViewCopyPlan)
def circulant(c: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The matrix whose columns are c, each rolled by one more than the one before (scipy.linalg.circulant)."""
    more = {"stream": stream, "preference": preference}
    column = raveled(c, stream)
    n = shape_of(column, "c")[0]
    back = flip(column, **more)
    values = concat([back, part(back, 0, 0, max(n - 1, 0))], **more)
    return _diagonals(values, n, n, n - 1, -1, out, **more)


@entry(ViewCopyPlan)
def convolution_matrix(
    a: Array, n: int, mode: str = "full", *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The matrix whose product with a vector of n is its convolution with a (scipy.linalg.convolution_matrix).

    mode: the rows of "full", of "same" as many as the longer of the two has, or of "valid" those without an end.
    """
    more = {"stream": stream, "preference": preference}
    taps = raveled(a, stream)
    m, count = shape_of(taps, "a")[0], whole("n", n, 1)
    if mode not in ("full", "same", "valid") or not m:
        raise InvalidProblemError(f'mode must be "full", "same" or "valid", and a have elements, got {shown(mode)}')
    rows = {"full": m + count - 1, "same": max(m, count), "valid": max(m, count) - min(m, count) + 1}[mode]
    first = {"full": 0, "same": (min(m, count) - 1) // 2, "valid": min(m, count) - 1}[mode]
    values = pad(flip(taps, **more), (count - 1, count - 1), **more)  # y[i, j] = a[first + i - j]
    return _diagonals(values, rows, count, count + m - 2 - first, -1, out, **more)


@entry(ConcatPlan)
def leslie(f: Array, s: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The matrix with first row f and s below its main diagonal, 0 elsewhere (scipy.linalg.leslie)."""
    more = {"stream": stream, "preference": preference}
    n = shape_of(f, "f")[0] if shape_of(f, "f") else 0
    if len(shape_of(f, "f")) != 1 or shape_of(s, "s") != (n - 1,) or n < 2:
        raise InvalidProblemError(f"f and s must have n and n - 1 elements, got {shape_of(f, 'f')}, {shape_of(s, 's')}")
    below = view_scatter(s, shape=(n - 1, n), **Walk.of((n - 1, n)).diagonal(0, 0, 1).fields, **more)
    return concat([with_axis(f, 0, "f"), below], axis=0, out=out, **more)


@entry(ConcatPlan)
def companion(a: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The companion matrix of a polynomial's coefficients, the highest power first (scipy.linalg.companion)."""
    shape, kind, more = shape_of(a, "a"), read(a, "a").element, {"stream": stream, "preference": preference}
    if len(shape) != 1 or shape[0] < 2:
        raise InvalidProblemError(f"a must have two coefficients at least, got shape {shape}")
    negated: Any = registry.public("neg")
    row = negated(div(part(a, 0, 1, shape[0]), part(a, 0, 0, 1), **more), **more)
    if shape[0] == 2:
        return with_axis(row, 0, "a")
    with beside(a, stream):
        below = ones((shape[0] - 2,), kind, like=a)
    return leslie(row, below, out=out, **more)


@entry(TakePlan)
def fiedler_companion(a: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The pentadiagonal companion matrix of a polynomial's coefficients (scipy.linalg.fiedler_companion).

    a: the highest power first, two at least. Its eigenvalues are the roots, as those of `companion`.
    """
    shape, kind, more = shape_of(a, "a"), read(a, "a").element, {"stream": stream, "preference": preference}
    if len(shape) != 1 or shape[0] < 2:
        raise InvalidProblemError(f"a must have two coefficients at least, got shape {shape}")
    negated: Any = registry.public("neg")
    scaled = negated(div(part(a, 0, 1, shape[0]), part(a, 0, 0, 1), **more), **more)
    n, none, one = shape[0] - 1, shape[0] - 1, shape[0]  # places of a 0 and a 1 behind the n coefficients
    held = np.full((n, n), none)
    held[np.arange(2, n, 2), np.arange(1, n - 1, 2)] = np.arange(2, n, 2)
    held[np.arange(3, n, 2), np.arange(1, n - 2, 2)] = one
    held[np.arange(0, n - 1, 2), np.arange(1, n, 2)] = np.arange(1, n, 2)
    held[np.arange(0, n - 2, 2), np.arange(2, n, 2)] = one
    held[:2, 0] = (0, one)[: min(n, 2)]
    with beside(a, stream):
        ends = [zeros((1,), kind, like=a), ones((1,), kind, like=a)]
    values = concat([scaled, *ends], **more)
    return take(values, from_host(held, a, stream), axis=0, out=out, **more)


def _counted(values: Any, element: Any, like: Any) -> Array:
    kind = kind_of(element, ElementKind.F32)
    return from_host(np.ascontiguousarray(encode(cast_values(np.asarray(values), kind), kind)), like)


@exported
def hadamard(n: int, element: Any = None, *, like: Any = None) -> Array:
    """The n × n Hadamard matrix of Sylvester's order, n being a power of two (scipy.linalg.hadamard)."""
    size = _extent(n)
    if size & (size - 1):
        raise InvalidProblemError(f"n must be a power of two, got {n}")
    made = np.ones((1, 1))
    while len(made) < size:
        made = np.block([[made, made], [made, -made]])
    return _counted(made, element, like)


@exported
def dft(n: int, scale: str | None = None, element: Any = "complex64", *, like: Any = None) -> Array:
    """The n × n matrix of the discrete Fourier transform (scipy.linalg.dft); scale: None, "sqrtn" or "n"."""
    if scale not in (None, "sqrtn", "n"):
        raise InvalidProblemError(f'scale must be None, "sqrtn" or "n", got {shown(scale)}')
    size = _extent(n)
    angle = np.outer(np.arange(size), np.arange(size)) % size / size
    by = {None: 1.0, "sqrtn": math.sqrt(size), "n": size}[scale]
    return _counted(np.exp(-2j * np.pi * angle) / by, element, like)


def _extent(n: Any) -> int:
    """The rows and columns of a matrix that the host makes; raises at once where it has no memory for one."""
    size = whole("n", n, 1)
    try:
        np.empty((size, size), np.complex128)
    except (MemoryError, ValueError) as error:
        raise_lacking(error, f"a matrix of {size} rows and columns", 16 * size * size)
    return size


# Rows beyond which numbers of the matrix pass the range of float64.
_MOST = {"symmetric": 515, "lower": 1030, "upper": 1030}
_MOST_INVERSE = {**_MOST, "symmetric": 330}
_MOST_OF_HILBERT = 210


def _binomials(n: int) -> list[list[int]]:
    """Pascal's triangle, row by row; by additions, which cost less than as many binomials."""
    rows = [[1] + [0] * (n - 1)]
    while len(rows) < n:
        last = rows[-1]
        rows.append([1, *(a + b for a, b in pairwise(last))])
    return rows


def _floats(numbers: Any) -> Any:
    """Exact integers in float64."""
    try:
        return np.array(numbers, object).astype(np.float64)
    except OverflowError:
        raise InvalidProblemError("n is too large: numbers of the matrix pass the range of float64") from None


@exported
def pascal(n: int, kind: str = "symmetric", element: Any = None, *, like: Any = None) -> Array:
    """Pascal's triangle as an n × n matrix, "symmetric", "lower" or "upper" (scipy.linalg.pascal)."""
    size = _rows(n, kind, _MOST)
    if kind == "symmetric":
        made = [[1] * size]
        while len(made) < size:
            made.append(list(accumulate(made[-1])))
    else:
        made = _binomials(size)
    return _counted(_floats(np.array(made, object).T if kind == "upper" else made), element, like)


def _rows(n: Any, kind: Any, most: dict[str, int]) -> int:
    """The rows of a matrix of a kind, few enough for float64."""
    if not isinstance(kind, str) or kind not in most:
        raise InvalidProblemError(f'kind must be "symmetric", "lower" or "upper", got {shown(kind)}')
    return whole("n", n, 1, most[kind])


@exported
def invpascal(n: int, kind: str = "symmetric", element: Any = None, *, like: Any = None) -> Array:
    """The inverse of `pascal` (scipy.linalg.invpascal)."""
    n = _rows(n, kind, _MOST_INVERSE)
    lower = np.array(_binomials(n), object)
    signs = np.array([[(-1) ** (i + j) for j in range(n)] for i in range(n)], object)
    back = lower * signs
    made = back.T.dot(back) if kind == "symmetric" else back.T if kind == "upper" else back
    return _counted(_floats(made), element, like)


@exported
def invhilbert(n: int, element: Any = None, *, like: Any = None) -> Array:
    """The inverse of `hilbert`, of integers (scipy.linalg.invhilbert)."""
    size, comb = whole("n", n, 1, _MOST_OF_HILBERT), math.comb

    def one(i: int, j: int) -> int:
        ways = comb(size + i, size - j - 1) * comb(size + j, size - i - 1) * comb(i + j, i) ** 2
        return ways * (i + j + 1) * (-1 if (i + j) % 2 else 1)

    made = [[one(i, j) for j in range(size)] for i in range(size)]
    return _counted(_floats(made), element, like)


@exported
def helmert(n: int, full: bool = False, element: Any = None, *, like: Any = None) -> Array:
    """The Helmert matrix of n, without its first row unless `full` (scipy.linalg.helmert)."""
    size = _extent(n)
    made = np.tril(np.ones((size, size)), -1) - np.diag(np.arange(size))
    made[0] = 1
    scale = np.arange(size) * np.arange(1, size + 1)
    scale[0] = size
    made = made / np.sqrt(scale)[:, None]
    return _counted(made if full else made[1:], element, like)


@exported
def fiedler(a: Array) -> Array:
    """|a_i - a_j| of a vector (scipy.linalg.fiedler)."""
    if len(shape_of(a, "a")) != 1:
        raise InvalidProblemError(f"a must be a vector, got shape {shape_of(a, 'a')}")
    absolute: Any = registry.public("abs")
    return absolute(sub(with_axis(a, 0, "a"), with_axis(a, 1, "a")))
