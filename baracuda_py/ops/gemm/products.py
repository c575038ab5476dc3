"""outer, kron, addr, addbmm, matvec, vecmat, bilinear: products that are one plan on views, or few."""

from __future__ import annotations

from typing import Any

from ...core import Array, Scalar
from ...core.args import broadcasts_to
from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.memo import memo
from ...core.tensor import Shape
from ...core.views import broadcast, permuted, reshaped, shape_of, transposed, with_axis, without_axes
from ...expressions.elementwise import Expression, elementwise
from ..elementwise.binary import BinaryPlan
from ..elementwise.binary_functions import add, mul
from ..elementwise.binary_kinds import BinaryKind
from ..elementwise.binary_numbers import element_of
from ..reduce.vecdot import vecdot
from .contraction import Factor, Labels, copied, same_element
from .gemm import GemmPlan
from .linear import linear
from .matmul import matmul


def _axes(name: str, operand: str, x: Any, count: int) -> Shape:
    """The shape of an operand that must have so many axes."""
    shape = shape_of(x, operand)
    if len(shape) != count:
        raise InvalidProblemError(f"{name}: {operand} must have {count} axes, got shape {shape}")
    return shape


@entry(BinaryPlan, kind=BinaryKind.MUL)
def outer(a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """y[i, j] = a[i] b[j] of two vectors (torch.outer, torch.ger; numpy.outer, for which flatten with reshape(-1))."""
    _axes("outer", "a", a, 1)
    _axes("outer", "b", b, 1)
    options = {"out": out, "stream": stream, "preference": preference}
    return mul(with_axis(a, 1, "a"), with_axis(b, 0, "b"), **options)


ger = outer


@entry(BinaryPlan, kind=BinaryKind.MUL)
def kron(a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Every element of a times all of b: y[i B + j] = a[i] b[j] along each axis of B in b (torch.kron, numpy.kron).

    The array of fewer axes has axes of extent 1 before its own. One launch.
    """
    shapes = shape_of(a, "a"), shape_of(b, "b")
    rank = max(map(len, shapes))
    first, second = ((1,) * (rank - len(shape)) + shape for shape in shapes)
    for axis in range(rank):
        place = axis - rank
        a = with_axis(a, 2 * axis, "a") if -place > len(shapes[0]) else a
        a = with_axis(a, 2 * axis + 1, "a")
        b = with_axis(b, 2 * axis, "b")
        b = with_axis(b, 2 * axis + 1, "b") if -place > len(shapes[1]) else b
    split = tuple(n for pair in zip(first, second, strict=True) for n in pair)
    whole = tuple(m * n for m, n in zip(first, second, strict=True))
    given = _one(out)
    if given is not None and shape_of(given, "out") != whole:
        raise InvalidProblemError(f"kron: out must have shape {whole}, got {shape_of(given, 'out')}")
    target = None if given is None else reshaped(given, split, "out")  # axes that are split need no copy
    made = mul(a, b, out=target, stream=stream, preference=preference)
    return given if given is not None else reshaped(made, whole, "y")


@memo()
def _formula(text: str) -> Expression:
    return elementwise(text)


@entry(GemmPlan)
def addr(
    c: Array, a: Array, b: Array, *, beta: Scalar = 1.0, alpha: Scalar = 1.0, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """beta · c + alpha · a[i] b[j] of two vectors (torch.addr), c broadcast. One launch; beta = 0 leaves c out.

    Of integers alpha and beta are integers.
    """
    shape = (*_axes("addr", "a", a, 1), *_axes("addr", "b", b, 1))
    if not broadcasts_to(shape_of(c, "c"), shape):
        raise InvalidProblemError(f"addr: c must broadcast to shape {shape}, got {shape_of(c, 'c')}")
    element = same_element("addr", [element_of(x) for x in (c, a, b)])
    if not element.is_float:
        beta, alpha = (_as_integer(name, value, element) for name, value in (("beta", beta), ("alpha", alpha)))
    given = {"a": with_axis(a, 1, "a"), "b": with_axis(b, 0, "b"), "alpha": alpha}
    options = {"out": out, "stream": stream, "preference": preference}
    if isinstance(beta, (int, float)) and beta == 0:
        return _formula("alpha * (a * b)")(**given, **options)
    return _formula("beta * c + alpha * (a * b)")(c=broadcast(c, shape, "c"), beta=beta, **given, **options)


def _as_integer(name: str, value: Any, element: Any) -> Any:
    """A number beside integers."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, float):
        raise InvalidProblemError(f"addr: {name} must be an integer as the arrays are {element}, got {shown(value)}")
    return value


def _grouped(x: Any, labels: Labels, *groups: Labels, **options: Any) -> Any:
    """x with an axis for each group of its axes: a view, or where no strides say so, one copy."""
    found = Factor(x, labels)
    made = found.grouped(*groups)
    if made is not None:
        return made
    order = tuple(label for group in groups for label in group)
    return Factor(copied(found.arranged(order), **options), order).grouped(*groups)


@entry(GemmPlan)
def addbmm(
    c: Array, a: Array, b: Array, *, beta: Scalar = 1.0, alpha: Scalar = 1.0, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """beta · c + alpha · the sum over i of a[i] @ b[i] (torch.addbmm): a [i, m, k], b [i, k, n], c is broadcast.

    One matrix product, summed over i and k at once; an operand whose axes i and k are not evenly spaced as one is
    copied first, as a dense a is.
    """
    left, right = _axes("addbmm", "a", a, 3), _axes("addbmm", "b", b, 3)
    if left[0] != right[0] or left[2] != right[1]:
        raise InvalidProblemError(f"addbmm: a must be [i, m, k] and b [i, k, n], got shapes {left} and {right}")
    options = {"stream": stream, "preference": preference}
    rows = _grouped(a, ("i", "m", "k"), ("m",), ("i", "k"), **options)
    columns = _grouped(b, ("i", "k", "n"), ("i", "k"), ("n",), **options)
    return matmul(rows, columns, c, alpha=alpha, beta=beta, out=out, **options)


@entry(GemmPlan)
def matvec(a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """y[…, i] = the sum of a[…, i, k] b[…, k], other axes broadcast (numpy.matvec): `matmul` with stacks of vectors."""
    if len(shape_of(a, "a")) < 2 or not shape_of(b, "b"):
        raise InvalidProblemError(f"matvec: a must be […, m, k], b […, k], got {shape_of(a, 'a')}, {shape_of(b, 'b')}")
    to = None if out is None else with_axis(_one(out), -1, "out")
    y = matmul(a, with_axis(b, -1, "b"), out=to, stream=stream, preference=preference)
    return _one(out) if out is not None else without_axes(y, [len(shape_of(y, "y")) - 1], "y")


@entry(GemmPlan)
def vecmat(a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """y[…, j] = the sum of conj(a[…, k]) b[…, k, j], other axes broadcast (numpy.vecmat)."""
    if not shape_of(a, "a") or len(shape_of(b, "b")) < 2:
        raise InvalidProblemError(f"vecmat: a must be […, k], b […, k, n], got {shape_of(a, 'a')}, {shape_of(b, 'b')}")
    options = {"stream": stream, "preference": preference}
    if element_of(a).is_complex:
        same_element("vecmat", (element_of(a), element_of(b)))
        return vecdot(with_axis(a, -1, "a"), b, axis=-2, out=out, **options)
    to = None if out is None else with_axis(_one(out), -2, "out")
    y = matmul(with_axis(a, -2, "a"), b, out=to, **options)
    return _one(out) if out is not None else without_axes(y, [len(shape_of(y, "y")) - 2], "y")


def _one(out: Any) -> Any:
    return out[0] if isinstance(out, (list, tuple)) and len(out) == 1 else out


@entry(GemmPlan)
def bilinear(
    a: Array, b: Array, weight: Array, bias: Array | None = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """y[…, o] = the sum of a[…, i] weight[o, i, j] b[…, j] + bias[o] (torch.nn.functional.bilinear).

    a […, i] and b […, j] have the same other axes. Two or three launches, by way of the smaller array: all products of
    a and b, of i j elements a row, which `linear` sums with the weight (`matmul` where they are integers or complex
    numbers, always by this way); or a times the weight, of o j, which are summed with b and have o first in memory. The
    weight or a is copied first where its axes are not evenly spaced as one.
    """
    of_a, of_b, (outs, i, j) = shape_of(a, "a"), shape_of(b, "b"), _axes("bilinear", "weight", weight, 3)
    if not of_a or not of_b or of_a[:-1] != of_b[:-1] or (of_a[-1], of_b[-1]) != (i, j):
        raise InvalidProblemError(f"bilinear: a must be […, {i}] and b […, {j}] for the weight, got {of_a} and {of_b}")
    if bias is not None and shape_of(bias, "bias") != (outs,):
        raise InvalidProblemError(f"bilinear: bias must have shape {(outs,)}, got {shape_of(bias, 'bias')}")
    options = {"stream": stream, "preference": preference}
    plain = element_of(a).is_float
    if i <= outs or not plain:
        pairs = mul(with_axis(a, -1, "a"), with_axis(b, -2, "b"), **options)
        pairs = reshaped(pairs, (*of_a[:-1], i * j), "y")
        rows = _grouped(weight, ("o", "i", "j"), ("o",), ("i", "j"), **options)
        if plain:
            return linear(pairs, rows, bias, out=out, **options)
        y = matmul(pairs, transposed(rows, "weight"), out=out if bias is None else None, **options)
        return y if bias is None else add(y, bias, out=out, **options)
    lead = tuple(range(len(of_a) - 1))
    rows = _grouped(a, (*lead, "i"), lead, ("i",), **options)
    each = reshaped(matmul(rows, weight, **options), (outs, *of_b), "y")
    given = _one(out)
    to = None if given is None else permuted(given, (len(lead), *lead), "out")
    y = vecdot(each, b, conjugate=False, out=to if bias is None else None, **options)
    if bias is not None:
        y = add(y, reshaped(bias, (outs, *(1 for _ in lead)), "bias"), out=to, **options)
    return given if given is not None else permuted(y, (*(axis + 1 for axis in lead), 0), "y")
