"""multi_dot, chain_matmul, matrix_power: matrices multiplied in the order that costs least."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from ...core import Array, ElementKind, registry
from ...core.checked import shown, whole
from ...core.errors import InvalidProblemError, UnsupportedError
from ...calls.entries import entry
from ...core.tensor import TensorRef
from ...core.views import constant, shape_of
from ...core.arrays import read
from ..elementwise.binary_functions import pow
from ..elementwise.cast import cast
from ..elementwise.complex_unary import real
from ..reduce.trace import trace_backward
from .contraction import copied
from .gemm import GemmPlan
from .matmul import matmul


def _sizes(name: str, matrices: Sequence[Any], vectors: bool) -> list[int]:
    """n[i] and n[i + 1] are the extents of matrix i; a vector is a row if it is first, a column if it is last."""
    shapes = [shape_of(x, f"matrices[{i}]") for i, x in enumerate(matrices)]
    last = len(shapes) - 1
    for i, shape in enumerate(shapes):
        if len(shape) != 2 and not (vectors and len(shape) == 1 and i in (0, last)):
            ends = ", or at the ends a vector" if vectors else ""
            raise InvalidProblemError(f"{name}: matrices[{i}] must be a matrix{ends}, got shape {shape}")
    ends_of = [((1, *s) if i == 0 else (*s, 1)) if len(s) == 1 else s for i, s in enumerate(shapes)]
    for i, (left, right) in enumerate(pairwise(ends_of)):
        if left[1] != right[0]:
            raise InvalidProblemError(
                f"{name}: matrices[{i}] of shape {shapes[i]} does not fit matrices[{i + 1}] of shape {shapes[i + 1]}"
            )
    return [ends_of[0][0], *(shape[1] for shape in ends_of)]


def cheapest(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """Where the product of matrices i to j is cut in the cheapest order, for each i < j; the first of equals."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    cuts: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            each = [cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)]
            cost[i, j] = min(each)
            cuts[i, j] = i + each.index(cost[i, j])
    return cuts


def _chained(name: str, matrices: Sequence[Any], vectors: bool, out: Any, **options: Any) -> Any:
    cuts = cheapest(_sizes(name, matrices, vectors))

    def product(i: int, j: int, to: Any = None) -> Any:
        if i == j:
            return matrices[i]
        k = cuts[i, j]
        return matmul(product(i, k), product(k + 1, j), out=to, **options)

    return product(0, len(matrices) - 1, out)


@entry(GemmPlan)
def multi_dot(
    matrices: Any, *, math_precision: str = "element", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The product of two matrices or more, in the order of fewest multiplications (torch.linalg.multi_dot).

    The first may be a vector, a row, and the last one, a column: the result has no axis in their place. The order
    depends on the shapes alone; each product is one `matmul`.
    """
    if not isinstance(matrices, (list, tuple)) or len(matrices) < 2:
        raise InvalidProblemError(f"multi_dot takes a list of two matrices at least, got {shown(matrices)}")
    options = {"math_precision": math_precision, "stream": stream, "preference": preference}
    return _chained("multi_dot", matrices, True, out, **options)


@entry(GemmPlan)
def chain_matmul(
    *matrices: Any, math_precision: str = "element", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The product of matrices in the order of fewest multiplications (torch.chain_matmul); of one, a copy of it."""
    if not matrices:
        raise InvalidProblemError("chain_matmul takes a matrix at least")
    if len(matrices) == 1:
        _sizes("chain_matmul", matrices, False)
        return copied(matrices[0], out=out, stream=stream, preference=preference)
    options = {"math_precision": math_precision, "stream": stream, "preference": preference}
    return _chained("chain_matmul", matrices, False, out, **options)


@entry(GemmPlan)
def matrix_power(
    a: Array, n: int, *, math_precision: str = "element", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """a @ a @ … of n times the square matrices a […, m, m] (torch.linalg.matrix_power).

    By squares, n = 13 being 1 + 4 + 8: at most 2 log₂ n products. n = 0 gives identity matrices, n = 1 a copy. n < 0 is
    -n of `inv(a)`, which tells of singular matrices.
    """
    power, view = whole("matrix_power: n", n), read(a, "a")
    if len(view.shape) < 2 or view.shape[-1] != view.shape[-2]:
        raise InvalidProblemError(f"matrix_power: a must be square matrices, got shape {view.shape}")
    if power < 0:
        given = {"stream": stream, "preference": preference}
        inverse = registry.public("inv")
        if power == -1:
            return inverse(a, out=out, **given)
        return matrix_power(inverse(a, **given), -power, math_precision=math_precision, out=out, **given)
    options = {"stream": stream, "preference": preference}
    if power == 0:
        return _identity(a, view, out, options)
    if power == 1:
        return copied(a, out=out, **options)
    options["math_precision"] = math_precision
    return _power(a, power, out, options)


def _power(a: Any, power: int, out: Any, options: Any) -> Any:
    """The powers a^(2^i) in turn, those multiplied that the binary digits of `power` name."""
    square, y, bits = a, None, power
    while bits:
        last = bits == 1
        if bits & 1:
            y = square if y is None else matmul(y, square, out=out if last else None, **options)
        bits >>= 1
        if bits:
            final = bits == 1 and y is None
            square = matmul(square, square, out=out if final else None, **options)
    return y


def _identity(a: Any, view: Any, out: Any, options: Any) -> Any:
    """Identity matrices in a's place; nothing of them depends on a's values."""
    if 0 in view.shape:
        return copied(a, out=out, **options)
    if isinstance(a, TensorRef):
        raise UnsupportedError("matrix_power: n = 0 of a TensorRef, which names no package to allocate ones from")
    first, plain = constant(a)[..., 0, 0], view.element.is_float
    if view.element.is_complex:
        first = real(first, **options)
    elif not plain:
        first = cast(first, ElementKind.F32, **options)
    ones = pow(first, 0, **options)
    placed = {"shape": view.shape, "axis1": -2, "axis2": -1}
    if plain:
        return trace_backward(ones, **placed, out=out, **options)
    return cast(trace_backward(ones, **placed, **options), view.element, out=out, **options)
