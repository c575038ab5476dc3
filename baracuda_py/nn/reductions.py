"""Functions of elements, rows and products whose forms in PyTorch are several, or meet what has no function here."""

from __future__ import annotations

import math
from typing import Any

from ..core.arrays import read
from ..core.element import ElementKind
from ..core.views import shape_of
from ..ops.elementwise.binary_numbers import NUMBERS
from .promotion import brought_together, common_kind, default_float, kind_of
from .spelling import bc, own, spelled

# ---- the extremes --------------------------------------------------------------------------------------------------


def _extreme(which: str, input: Any, dim: Any, keepdim: bool, more: dict[str, Any]) -> Any:
    dim, keepdim = more.pop("other", more.pop("axis", dim)), more.pop("keepdims", keepdim)
    if dim is None:
        return bc(f"a{which}")(input, **more)
    if not isinstance(dim, int):
        return spelled(f"{which}imum")(input, dim, **more)
    return bc(f"{which}_with_index")(input, axis=dim, keepdims=keepdim, **more)


@own
def max(input: Any, dim: Any = None, keepdim: bool = False, **more: Any) -> Any:
    """The largest element; (values, indices) along `dim`; or the larger of two arrays (torch.max)."""
    return _extreme("max", input, dim, keepdim, more)


@own
def min(input: Any, dim: Any = None, keepdim: bool = False, **more: Any) -> Any:
    """The smallest element; (values, indices) along `dim`; or the smaller of two arrays (torch.min)."""
    return _extreme("min", input, dim, keepdim, more)


# ---- what real numbers and bool have no function for ----------------------------------------------------------------


def _truth(name: str, args: Any, given: Any) -> Any:
    made = spelled(name)(*args, **given)
    source = args[0] if args else given.get("input", given.get("x"))
    return bc("cast")(made, "uint8") if kind_of(source) is ElementKind.U8 else made


@own
def all(*args: Any, **given: Any) -> Any:
    """Whether all elements are not 0 (torch.all), of uint8 in uint8."""
    return _truth("all", args, given)


@own
def any(*args: Any, **given: Any) -> Any:
    """Whether an element is not 0 (torch.any), of uint8 in uint8."""
    return _truth("any", args, given)


@own
def nansum(input: Any, dim: Any = None, keepdim: bool = False, **more: Any) -> Any:
    """The sum of the elements that are not NaN (torch.nansum)."""
    kind = kind_of(input)
    name = "nansum" if kind is None or kind.is_inexact or more.get("dtype") is not None else "sum"
    return spelled(name)(input, dim, keepdim, **more)


def _of_reals(name: str, input: Any, more: dict[str, Any], real: Any) -> Any:
    kind = kind_of(input)
    return (bc(name) if kind is None or kind.is_complex else real)(input, **more)


def _itself(x: Any, **more: Any) -> Any:
    return bc("clone")(x, **more) if more else x


@own
def conj(input: Any, **more: Any) -> Any:
    """The conjugate (torch.conj); of real numbers they themselves."""
    return _of_reals("conj", input, more, _itself)


@own
def conj_physical(input: Any, **more: Any) -> Any:
    """The conjugate (torch.conj_physical), of real numbers a copy."""
    return _of_reals("conj", input, more, bc("clone"))


@own
def real(input: Any, **more: Any) -> Any:
    """The real parts (torch.real); of real numbers they themselves."""
    return _of_reals("real", input, more, _itself)


@own
def angle(input: Any, **more: Any) -> Any:
    """The angle of a complex number (torch.angle); of real ones 0, π of negative ones, and NaN of NaN."""

    def of_real(x: Any, **more: Any) -> Any:
        kind = read(x, "input").element
        x = x if kind.is_inexact else bc("cast")(x, default_float((x,)))
        half = bc("mul")(bc("cast")(bc("lt")(x, 0.0), x.dtype), math.pi)
        return bc("where")(bc("isnan")(x), x, half, **more)

    return _of_reals("angle", input, more, of_real)


def _sign(name: str, input: Any, more: dict[str, Any]) -> Any:
    return bc("clone" if kind_of(input) is ElementKind.BOOL else name)(input, **more)


@own
def sign(input: Any, **more: Any) -> Any:
    """-1, 0 or 1 by the sign of each element (torch.sign); of bool the elements themselves."""
    return _sign("sign", input, more)


@own
def sgn(input: Any, **more: Any) -> Any:
    """-1, 0 or 1 by the sign of each element, of a complex number x / |x| (torch.sgn); of bool the elements."""
    return _sign("sgn", input, more)


@own
def float_power(input: Any, exponent: Any, **more: Any) -> Any:
    """The power in float64, or in complex128 (torch.float_power)."""
    kind = common_kind((input, exponent))
    if kind is None or not kind.is_complex:
        return spelled("float_power")(input, exponent, **more)
    operands = [x if type(x) in NUMBERS else bc("cast")(x, ElementKind.C128) for x in (input, exponent)]
    return bc("pow")(*operands, **more)


# ---- spreads -------------------------------------------------------------------------------------------------------


def _spread(name: str) -> Any:
    def spread(input: Any, *args: Any, **given: Any) -> Any:
        correction = given.get("correction")
        if not isinstance(correction, float):
            return spelled(name)(input, *args, **given)
        if correction.is_integer():
            return spelled(name)(input, *args, **{**given, "correction": int(correction)})
        made = spelled(name)(input, *args, **{**given, "correction": 0})
        axis, shape = given.get("dim", given.get("axis", args[0] if args else None)), shape_of(input, "input")
        count = math.prod(shape[i] for i in ((axis,) if isinstance(axis, int) else axis or range(len(shape))))
        factor = count / (count - correction) if count > correction else math.inf
        factor = math.sqrt(factor) if name.startswith("std") else factor
        return (bc("mul")(made[0], factor), made[1]) if isinstance(made, tuple) else bc("mul")(made, factor)

    spread.__name__ = spread.__qualname__ = name
    spread.__doc__ = f"{spelled(name).__doc__}\n\nA correction may be any number."
    return own(spread)


var, std, var_mean, std_mean = (_spread(name) for name in ("var", "std", "var_mean", "std_mean"))


# ---- rows ----------------------------------------------------------------------------------------------------------


@own
def gradient(
    input: Any, *distances: Any, spacing: Any = None, dim: Any = None, edge_order: int = 1, **more: Any
) -> Any:
    """The derivatives along the axes by central differences, a tuple (torch.gradient).

    spacing: a distance, one for each axis, or the coordinates along each.
    """
    axis = more.pop("axis", dim)
    if spacing is not None:
        many = isinstance(spacing, (list, tuple))
        distances = (*distances, *spacing) if many else (*distances, spacing)
    if not distances and axis is None and "out" not in more:
        axis = tuple(range(len(shape_of(input, "input"))))
    input = brought_together("gradient", {"x": input})["x"]
    made = bc("gradient")(input, *distances, axis=axis, edge_order=edge_order, **more)
    return tuple(made) if isinstance(made, (list, tuple)) else (made,)


@own
def histogram(*args: Any, **given: Any) -> Any:
    """How many elements are in every bin, and the edges of the bins, in the input's dtype (torch.histogram)."""
    return _in_dtype("histogram", args, given)


@own
def histogramdd(*args: Any, **given: Any) -> Any:
    """How many points are in every bin, and the edges of the bins along each axis (torch.histogramdd)."""
    return _in_dtype("histogramdd", args, given)


def _in_dtype(name: str, args: Any, given: Any) -> Any:
    to, to_edges = (name == "histogram" and given.pop("out", None)) or (None, None)
    hist, edges = spelled(name)(*args, **given)
    kind = read(args[0] if args else given.get("input", given.get("x")), "input").element
    if isinstance(edges, (list, tuple)):
        return bc("cast")(hist, kind), tuple([bc("cast")(one, kind) for one in edges])
    return bc("cast")(hist, kind, out=to), bc("cast")(edges, kind, out=to_edges)


# ---- products ------------------------------------------------------------------------------------------------------


@own
def cross(input: Any, other: Any, dim: Any = None, **more: Any) -> Any:
    """The cross products along an axis of 3 (torch.cross), by default the first such axis."""
    axis = dim
    if axis is None:
        shapes = [shape_of(input, "input"), shape_of(other, "other")]
        axis = next((-i for i in range(len(shapes[0]), 0, -1) if {s[-i] for s in shapes if len(s) >= i} == {3}), -1)
    return bc("cross")(input, other, axis=axis, **more)


@own
def inner(input: Any, other: Any, **more: Any) -> Any:
    """The products of the rows of two arrays (torch.inner); an array without axes multiplies the other."""
    flat = () in (shape_of(input, "input"), shape_of(other, "other"))
    return spelled("mul" if flat else "inner")(input, other, **more)


def _product(name: str, product: str, input: Any, a: Any, b: Any, beta: Any, alpha: Any, more: dict[str, Any]) -> Any:
    """beta · input + alpha · a b, of integers by functions of theirs; product "" sums those of a batch."""
    kind = kind_of(input)
    if kind is None or kind.is_inexact:
        return bc(name)(input, a, b, beta=beta, alpha=alpha, **more)
    made = bc("sum")(bc("matmul")(a, b), axis=0) if product == "" else bc(product)(a, b)
    made = made if alpha == 1 else bc("mul")(made, alpha)
    if beta == 0:
        return made if not more else bc("clone")(made, **more)
    return bc("add")(made, input if beta == 1 else bc("mul")(input, beta), **more)


@own
def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1, **more: Any) -> Any:
    """beta · input + alpha · mat1 mat2 (torch.addmm)."""
    return _product("addmm", "matmul", input, mat1, mat2, beta, alpha, more)


@own
def addmv(input: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1, **more: Any) -> Any:
    """beta · input + alpha · mat vec (torch.addmv)."""
    return _product("addmv", "matmul", input, mat, vec, beta, alpha, more)


@own
def addr(input: Any, vec1: Any, vec2: Any, *, beta: Any = 1, alpha: Any = 1, **more: Any) -> Any:
    """beta · input + alpha · vec1 vec2ᵀ (torch.addr)."""
    return _product("addr", "outer", input, vec1, vec2, beta, alpha, more)


@own
def baddbmm(input: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1, **more: Any) -> Any:
    """beta · input + alpha · batch1 batch2 (torch.baddbmm)."""
    return _product("baddbmm", "matmul", input, batch1, batch2, beta, alpha, more)


@own
def addbmm(input: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1, **more: Any) -> Any:
    """beta · input + alpha · the sum of the products of a batch (torch.addbmm)."""
    return _product("addbmm", "", input, batch1, batch2, beta, alpha, more)


@own
def tensordot(a: Any, b: Any, dims: Any = 2, **more: Any) -> Any:
    """The product over axes of both (torch.tensordot); axes that an array names are read from it."""
    return bc("tensordot")(a, b, dims.tolist() if hasattr(dims, "tolist") else dims, **more)


@own
def equal(input: Any, other: Any, **more: Any) -> Any:
    """Whether two arrays have one shape and equal elements (torch.equal), as a 0-d array: nothing waits for it."""
    kind = common_kind((input, other))
    if kind is not None:
        input, other = (x if read(x).element is kind else bc("cast")(x, kind) for x in (input, other))
    return bc("array_equal")(input, other, **more)
