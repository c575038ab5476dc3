"""matmul, addmm and the other products of matrices and vectors: `dense_gemm` with NumPy's rules for shapes."""

from __future__ import annotations

from typing import Any

from ...core import Array, Scalar, registry
from ...core.args import broadcasts_to
from ...core.checked import shown
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.keywords import unexpected
from ...core.ordinals import ordinal
from ...core.tensor import broadcast_shape
from ...core.views import broadcast, rows_of, shape_of, with_axis
from ...interop.packages import package_name
from ...core.arrays import read
from ...interop.torch_rules import recorded
from ..elementwise.binary_numbers import element_of
from ..elementwise.cast import cast
from .exact import exact
from .gemm import GemmPlan, dense_gemm

Shape = tuple[int, ...]


@entry(GemmPlan)
def matmul(
    a: Array, b: Array, c: Array | None = None, *, alpha: Scalar = 1.0, beta: Scalar = 1.0,
    math_precision: str = "element", out_element: Any = None, element: Any = None, out: Any = None, stream: Any = None,
    preference: Any = None, epilogue: Any = None, **unknown: Any,
) -> Any:  # fmt: skip
    """alpha · a @ b + beta · c with NumPy's shapes (torch.matmul, torch.baddbmm, numpy.matmul).

    Batch axes broadcast, and c to the result; of operands of one axis a is a row and b a column, and the result has no
    axis in their place: two vectors give a 0-d array. Views are taken; a b that the whole batch shares meets the rows
    of all its items as one matrix, where a lies so. On a GPU a c that broadcasts is written to the result first, one
    launch more. See `GemmPlan`. Integers and complex numbers, without c, alpha and beta, are summed by `vecdot`;
    integers modulo their element, or `out_element` (any of integers), which takes a launch more. math_precision of
    float32: "element", "tf32", or "bf16x9", "bf16x6" and "bf16x3" of a and b alone, see `split_matmul`.

    epilogue may be a formula, as a text or a Python function, of the product x: epilogue="relu(x) + r". What else it
    names, arrays that broadcast to the result and numbers, is given by keyword; see `product`, which makes functions of
    formulas. c is then one of its arrays, and beta goes into it.
    """
    if epilogue is not None:
        return _with_formula(a, b, epilogue, c, beta, math_precision, element, unknown | {
            "alpha": alpha, "out_element": out_element, "out": out, "stream": stream, "preference": preference,
        })  # fmt: skip
    if unknown:
        raise unexpected(matmul, unknown)
    if str(math_precision).startswith("bf16x"):
        if c is not None or out_element is not None or element is not None or not _is_one(alpha):
            raise InvalidProblemError(f"math_precision={math_precision!r} takes a and b alone; see split_matmul")
        parts = registry.public("split_matmul")
        return parts(a, b, products=math_precision, out=out, stream=stream, preference=preference)
    read_a = read(a, "a")
    left, right = read_a.shape, shape_of(b, "b")
    if element is None and not read_a.element.is_float:
        plain = c is None and _is_one(alpha) and math_precision == "element"
        return exact(a, b, plain, out_element, out, stream, preference)
    if c is None and element is None and len(right) >= 2 and len(left) == len(right) and left[:-2] == right[:-2]:
        return dense_gemm(
            a, b, alpha=alpha, math_precision=math_precision, out_element=out_element, out=out, stream=stream,
            preference=preference,
        )  # fmt: skip
    more: dict[str, Any] = {"alpha": alpha, "beta": beta, "math_precision": math_precision, "stream": stream}
    more |= {"preference": preference, "out_element": out_element} | ({} if element is None else {"element": element})
    return product(a, b, c, out, more)


def _is_one(number: Any) -> bool:
    return isinstance(number, (int, float)) and number == 1


def _with_formula(
    a: Array, b: Array, epilogue: Any, c: Any, beta: Any, math_precision: str, element: Any, facts: dict[str, Any]
) -> Any:
    """The product by the function of a formula, which has no c and one precision."""
    if c is not None or not _is_one(beta):
        raise InvalidProblemError('c and beta are written into the formula of epilogue=, as in "x + 0.5 * r" with r=c')
    if math_precision != "element":
        raise InvalidProblemError(f"math_precision must be 'element' beside epilogue=, got {shown(math_precision)}")
    words = {} if element is None else {"element": element}
    return registry.public("product")(epilogue)(a, b, **words, **facts)


def product(
    a: Array, b: Array, c: Array | None, out: Any, more: dict[str, Any], *, up: Array | None = None,
    residual: Array | None = None, names: tuple[str, str, str] = ("a", "b", "c"),
) -> Any:  # fmt: skip
    """The product of operands as views of the plan's shapes, and its result without the axes put in.

    up has b's shape, residual the result's; vectors of the epilogue and scalars are in `more`. names: what the caller
    calls a, b and c.
    """
    left, right = shape_of(a, names[0]), shape_of(b, names[1])
    for name, shape in ((names[0], left), (names[1], right)):
        if not shape:
            raise InvalidProblemError(f"{name} must have an axis at least, got shape (); multiply by a number with mul")
    row, column = len(left) == 1, len(right) == 1
    a, b = with_axis(a, 0, "a") if row else a, with_axis(b, -1, "b") if column else b
    left, right = (1, *left) if row else left, (*right, 1) if column else right
    if left[-1] != right[-2]:
        raise InvalidProblemError(
            f"{names[0]} has {left[-1]} columns and {names[1]} {right[-2]} rows: {left} @ {right}"
        )
    batch = broadcast_shape({names[0]: left[:-2], names[1]: right[:-2]}, names[:2])
    shape = (*batch, *(n for n, dropped in ((left[-2], row), (right[-1], column)) if not dropped))

    def spread(x: Array, name: str) -> Array:
        x = with_axis(x, -1, name) if column else x
        return with_axis(x, -2, name) if row else x

    given = out[0] if isinstance(out, (list, tuple)) and len(out) == 1 else out
    views: dict[str, Any] = {"out": given, "residual": residual}
    for name, value in views.items():
        if value is not None and shape_of(value, name) != shape:
            raise InvalidProblemError(f"{name} must have shape {shape}, got {shape_of(value, name)}")
    written = c is not None and shape_of(c, "c") != shape and ordinal(c) >= 0 and package_name(type(c)) != "jax"
    views["c"] = None if c is None else _spread_to(c, shape, names[2])
    views = {"a": a} | {name: x if x is None else spread(x, name) for name, x in views.items()}
    flat = _as_rows(views) if batch and len(right) == 2 else None
    if flat is None:
        views["a"] = broadcast(a, (*batch, *left[-2:]), "a")
        b, up = (x if x is None else broadcast(x, (*batch, *right[-2:]), "b") for x in (b, up))
    else:
        views = flat
    if written:  # cuBLAS takes no c with a stride of 0
        if any(map(recorded, (*views.values(), b, up, *more.values()))):  # what is written over has no gradient
            views["c"] = views["c"].contiguous()
        else:
            views["c"] = views["out"] = cast(views["c"], element_of(c), out=views["out"], stream=more["stream"])
    made = dense_gemm(views["a"], b, views["c"], up=up, residual=views["residual"], out=views["out"], **more)
    return given if given is not None else made.reshape(shape) if row or column or flat is not None else made


def _spread_to(c: Array, shape: Shape, name: str) -> Array:
    """c as it broadcasts to the result's shape."""
    own = shape_of(c, name)
    if not broadcasts_to(own, shape):
        raise InvalidProblemError(f"{name} must broadcast to the result's shape {shape}, got {own}")
    return broadcast(c, shape, "c")


def _as_rows(views: dict[str, Any]) -> dict[str, Any] | None:
    """The operands with the batch's rows below each other as one matrix, or None where that needs a copy."""
    flat = {name: x if x is None else rows_of(x, name) for name, x in views.items()}
    return None if any(x is None and views[name] is not None for name, x in flat.items()) else flat


@entry(GemmPlan)
def addmm(
    c: Array, a: Array, b: Array, *, beta: Scalar = 1.0, alpha: Scalar = 1.0, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """beta · c + alpha · a @ b (torch.addmm, torch.baddbmm, torch.addmv): `matmul` with c, which broadcasts, first."""
    return matmul(a, b, c, alpha=alpha, beta=beta, out=out, stream=stream, preference=preference)


mm = bmm = mv = batch_matmul = matmul
baddbmm = addmv = addmm
