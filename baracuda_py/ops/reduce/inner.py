"""dot, vdot, inner: products summed along the last axis, as users of BLAS and NumPy call them; kinds of vecdot."""

from __future__ import annotations

from typing import Any

from ...core import Array
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.outputs import each_of
from ...core.tensor import Shape, TensorRef
from ...core.arrays import read
from ..elementwise.cast import cast
from .reduce_kinds import total
from .vecdot import VecdotBackwardPlan, VecdotPlan, vecdot, vecdot_backward


def _dotted(a: Any, b: Any, out: Any, **facts: Any) -> Any:
    """`vecdot` in the element of a and b: of integers of fewer than 64 bits modulo theirs, as products of matrices."""
    kind, options = read(a, "a").element, {"stream": facts["stream"], "preference": facts["preference"]}
    if total(kind) is kind or read(b, "b").element is not kind:  # vecdot refuses two elements
        return vecdot(a, b, out=out, **facts)
    return cast(vecdot(a, b, **facts), kind, out=out, **options)


def _shapes(a: Any, b: Any) -> tuple[Shape, Shape]:
    return tuple(read(a, "a").shape), tuple(read(b, "b").shape)


@entry(VecdotPlan)
def dot(a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The sum of a b, both of one axis and as long, neither conjugated (torch.dot).

    It has the element of a and b, and wraps where they are integers. `vecdot` takes more axes and totals integers in 64
    bits, `dense_gemm` takes matrices.
    """
    shapes = _shapes(a, b)
    if len(shapes[0]) != 1 or shapes[0] != shapes[1]:
        raise InvalidProblemError(
            f"dot takes two vectors of one length, got shapes {shapes[0]} and {shapes[1]}; see vecdot and dense_gemm"
        )
    y: Any = _dotted(a, b, out, conjugate=False, stream=stream, preference=preference)
    return y


def _one_shape(function: str, a: Any, b: Any) -> None:
    shapes = _shapes(a, b)
    if shapes[0] != shapes[1]:
        raise InvalidProblemError(f"{function} takes arrays of one shape, got {shapes[0]} and {shapes[1]}; see vecdot")


@entry(VecdotPlan)
def vdot(a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The sum of conj(a) b over all elements of two arrays of one shape (torch.vdot, numpy.vdot).

    It has the element of a and b, and wraps where they are integers.
    """
    _one_shape("vdot", a, b)
    y: Any = _dotted(a, b, out, axis=None, stream=stream, preference=preference)
    return y


@entry(VecdotBackwardPlan)
def vdot_backward(dy: Array, a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """(da, db) of `vdot`."""
    _one_shape("vdot_backward", a, b)
    options = {"return_da": True, "return_db": True, "out": out, "stream": stream, "preference": preference}
    return vecdot_backward(dy, a, b, axis=None, **options)


def _against_all(a: Any, b: Any) -> Any:
    """A view of a with an axis of extent 1, before its last, for each that b has but its last."""
    own, other = _shapes(a, b)
    if not own or not other or own[-1] != other[-1]:
        raise InvalidProblemError(
            f"inner takes arrays that are as long along their last axes, got shapes {own} and {other}; multiply numbers"
        )
    more = len(other) - 1
    if not isinstance(a, TensorRef):
        place = (..., *(None,) * more, slice(None))
        return a[place]
    view = read(a, "a")
    shape = (*own[:-1], *(1,) * more, own[-1])
    strides = (*view.strides[:-1], *(0,) * more, view.strides[-1])
    return TensorRef(a.ptr, shape, strides, view.element, device=a.device)


@entry(VecdotPlan)
def inner(a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """y[*A, *B] = the sum of a[*A, :] b[*B, :], neither conjugated (torch.inner, numpy.inner).

    It has the element of a and b, and wraps where they are integers. One launch, and a cast of integers of fewer than
    64 bits. Where both have many rows, `matmul` with b transposed reads them less often.
    """
    y: Any = _dotted(_against_all(a, b), b, out, conjugate=False, stream=stream, preference=preference)
    return y


@entry(VecdotBackwardPlan)
def inner_backward(
    dy: Array, a: Array, b: Array, *, out: Any = None, stream: Any = None, preference: Any = None
) -> tuple[Any, Any]:
    """(da, db) of `inner`: dy conj(b) summed over the rows of b, and dy conj(a) over those of a."""
    options = {"return_da": True, "return_db": True, "stream": stream, "preference": preference}
    first, second = each_of(out, 2)
    given = {"da": None if first is None else _against_all(first, b), "db": second}
    options["out"] = {n: one for n, one in given.items() if one is not None} or None
    da, db = vecdot_backward(dy, _against_all(a, b), b, conjugate=False, **options)
    return da.reshape(_shapes(a, b)[0]) if first is None else first, db
