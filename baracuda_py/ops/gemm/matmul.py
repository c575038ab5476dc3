"""matmul, linear, addmm and the other products of matrices and vectors: `dense_gemm` with NumPy's rules for shapes."""

from __future__ import annotations

from typing import Any

from ...core import Array, Scalar
from ...core.args import broadcasts_to
from ...core.errors import InvalidProblemError
from ...core.keywords import entry, unexpected
from ...core.outputs import ordinal
from ...core.tensor import broadcast_shape
from ...core.views import broadcast, shape_of, transposed, with_axis
from ...interop.arrays import package_name, read
from ..elementwise.binary_numbers import element_of
from ..elementwise.cast import cast
from .dense_gemm import DenseGemmPlan, dense_gemm
from .exact import exact


@entry(DenseGemmPlan)
def matmul(
    a: Array, b: Array, c: Array | None = None, *, alpha: Scalar = 1.0, beta: Scalar = 1.0,
    math_precision: str = "element", out_element: Any = None, element: Any = None, out: Any = None, stream: Any = None,
    preference: Any = None, **unknown: Any,
) -> Any:  # fmt: skip
    """alpha · a @ b + beta · c with NumPy's shapes (torch.matmul, torch.baddbmm, numpy.matmul).

    Batch axes broadcast, and c to the result; of operands of one axis a is a row and b a column, and the result has no
    axis in their place: two vectors give a 0-d array. Views are taken; on a GPU a c that broadcasts is written to the
    result first, one launch more. See `DenseGemmPlan`. Integers and complex numbers, without c, alpha and beta, are
    summed by `vecdot`; integers modulo their element, or `out_element` (any of integers), which takes a launch more.
    """
    if unknown:
        raise unexpected(matmul, unknown)
    read_a = read(a, "a")
    left, right = read_a.shape, shape_of(b, "b")
    if element is None and not read_a.element.is_float:
        plain = c is None and isinstance(alpha, (int, float)) and alpha == 1 and math_precision == "element"
        return exact(a, b, plain, out_element, out, stream, preference)
    if c is None and element is None and len(left) >= 2 and len(right) >= 2 and left[:-2] == right[:-2]:
        return dense_gemm(
            a, b, alpha=alpha, math_precision=math_precision, out_element=out_element, out=out, stream=stream,
            preference=preference,
        )  # fmt: skip
    more: dict[str, Any] = {"alpha": alpha, "beta": beta, "math_precision": math_precision, "stream": stream}
    more |= {"preference": preference, "out_element": out_element} | ({} if element is None else {"element": element})
    return _product(a, b, c, left, right, out, more)


def _product(
    a: Array, b: Array, c: Array | None, left: tuple[int, ...], right: tuple[int, ...], out: Any, more: dict[str, Any]
) -> Any:
    """The product of operands as views of the plan's shapes, and its result without the axes put in."""
    for name, shape in (("a", left), ("b", right)):
        if not shape:
            raise InvalidProblemError(f"{name} must have an axis at least, got shape (); multiply by a number with mul")
    row, column = len(left) == 1, len(right) == 1
    a, b = with_axis(a, 0, "a") if row else a, with_axis(b, -1, "b") if column else b
    left, right = (1, *left) if row else left, (*right, 1) if column else right
    if left[-1] != right[-2]:
        raise InvalidProblemError(f"a has {left[-1]} columns and b {right[-2]} rows: {left} @ {right}")
    batch = broadcast_shape({"a": left[:-2], "b": right[:-2]}, ("a", "b"))
    whole = (*batch, left[-2], right[-1])
    shape = tuple(n for n, dropped in ((left[-2], row), (right[-1], column)) if not dropped)
    a, b = broadcast(a, (*batch, *left[-2:]), "a"), broadcast(b, (*batch, *right[-2:]), "b")

    def spread(x: Array, name: str) -> Array:
        x = with_axis(x, -1, name) if column else x
        return with_axis(x, -2, name) if row else x

    shape = (*batch, *shape)
    given = out[0] if isinstance(out, (list, tuple)) and len(out) == 1 else out
    if given is not None and shape_of(given, "out") != shape:
        raise InvalidProblemError(f"out must have shape {shape}, got {shape_of(given, 'out')}")
    y = None if given is None else spread(given, "out")
    if c is not None:
        full = shape_of(c, "c") == shape
        c = broadcast(spread(_spread_to(c, shape), "c"), whole, "c")
        if not full and ordinal(c) >= 0 and package_name(type(c)) != "jax":
            c = y = cast(c, element_of(c), out=y, stream=more["stream"])  # cuBLAS takes no c with a stride of 0
    made = dense_gemm(a, b, c, out=y, **more)
    return given if given is not None else made.reshape(shape) if row or column else made


def _spread_to(c: Array, shape: tuple[int, ...]) -> Array:
    """c as it broadcasts to the result's shape."""
    own = shape_of(c, "c")
    if not broadcasts_to(own, shape):
        raise InvalidProblemError(f"c must broadcast to the result's shape {shape}, got {own}")
    return broadcast(c, shape, "c")


@entry(DenseGemmPlan)
def linear(
    x: Array, weight: Array, bias: Array | None = None, *, out: Any = None, stream: Any = None, preference: Any = None,
    **unknown: Any,
) -> Any:  # fmt: skip
    """x @ weightᵀ + bias (torch.nn.functional.linear): x [*, in], weight [out, in] or [in], bias [out].

    The bias is added in the accumulator, before the result is rounded.
    """
    if unknown:
        raise unexpected(linear, unknown)
    given = {"out": out, "stream": stream, "preference": preference}
    return matmul(x, weight if len(shape_of(weight, "weight")) == 1 else transposed(weight, "weight"), bias, **given)


@entry(DenseGemmPlan)
def addmm(
    c: Array, a: Array, b: Array, *, beta: Scalar = 1.0, alpha: Scalar = 1.0, out: Any = None, stream: Any = None,
    preference: Any = None, **unknown: Any,
) -> Any:  # fmt: skip
    """beta · c + alpha · a @ b (torch.addmm, torch.baddbmm, torch.addmv): `matmul` with c, which broadcasts, first."""
    if unknown:
        raise unexpected(addmm, unknown)
    return matmul(a, b, c, alpha=alpha, beta=beta, out=out, stream=stream, preference=preference)


mm = bmm = mv = batch_matmul = matmul
baddbmm = addmv = addmm
