"""norm: the vector norm of any order, and reductions that are one of `ReduceKind` in another shape."""

from __future__ import annotations

import math
from typing import Any

from ...core import Array
from ...core.checked import real, shown, wholes
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.views import with_axis
from ...core.arrays import read
from ...core.numbers import plain
from ..elementwise.cast import cast
from . import reduce, reduce_backward
from .reduce import ReducePlan
from .reduce_kinds import ReduceKind, total
from .reduce_backward import ReduceBackwardPlan

ORDERS = {0.0: "l0_norm", 1.0: "l1_norm", 2.0: "l2_norm", math.inf: "max_norm", -math.inf: "min_norm"}


def _chosen(module: Any, name: str, value: Any, suffix: str = "") -> tuple[Any, dict[str, float]]:
    """The function that serves an order, and the order where it takes one."""
    order = real(name, value)
    if math.isnan(order):
        raise InvalidProblemError(f"{name} must be a number, inf or -inf, got {order}; the Frobenius norm has 2")
    if order in ORDERS:
        return getattr(module, f"{ORDERS[order]}{suffix}"), {}
    return getattr(module, f"p_norm{suffix}"), {"p": order}


@entry(ReducePlan)
def vector_norm(
    x: Array, ord: float = 2, axis: Any = None, keepdims: bool = False, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(Σ |x|^ord)^(1/ord) along `axis` (all by default), as if x were a vector (torch.linalg.vector_norm).

    ord 0 counts what is not 0, inf and -inf are the largest and smallest magnitude; any other number but NaN is an
    order. No square or power leaves the range. Each order is a kind of `ReducePlan`: l0_norm, l1_norm, l2_norm,
    max_norm, min_norm, p_norm.
    """
    function, order = _chosen(reduce, "ord", ord)
    return function(x, axis=axis, keepdims=keepdims, out=out, stream=stream, preference=preference, **order)


@entry(ReducePlan)
def norm(
    x: Array, p: float = 2, axis: Any = None, keepdims: bool = False, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """`vector_norm` with the order by torch.norm's name."""
    function, order = _chosen(reduce, "p", p)
    return function(x, axis=axis, keepdims=keepdims, out=out, stream=stream, preference=preference, **order)


@entry(ReducePlan)
def frobenius_norm(
    x: Array, axis: Any = None, keepdims: bool = False, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The square root of the sum of |x|² along `axis`, one, several or all (torch.frobenius_norm): `l2_norm`."""
    return norm(x, 2, axis=axis, keepdims=keepdims, out=out, stream=stream, preference=preference)


@entry(ReducePlan)
def norm_except_dim(
    x: Array, p: float = 2, axis: int | None = 0, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The norm of order p of each slice of x along `axis`, which stays, the other axes with extent 1.

    torch.norm_except_dim, where the norm of the whole is dim=-1: here it is axis=None, and -1 is the last axis.
    """
    others: Any = None
    if axis is not None:
        axis, rank = plain(axis), len(read(x, "x").shape)
        if type(axis) is not int or not -rank <= axis < rank:
            raise InvalidProblemError(f"axis must be None or an integer in [{-rank}, {rank}), got {shown(axis)}")
        others = tuple(a for a in range(rank) if a != axis % rank)
    return norm(x, p, axis=others, keepdims=axis is not None, out=out, stream=stream, preference=preference)


@entry(ReduceBackwardPlan)
def norm_backward(
    dy: Array, x: Array, y: Array | None = None, p: float = 2, *, axis: Any = None, keepdims: bool = False,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """dx of `norm` and `vector_norm`; y is their result, which only order 2 needs.

    The gradient is 0 where the norm is, and at 0 for orders up to 1; that of order 0 is 0 everywhere and refused.
    """
    if p == 0:
        raise InvalidProblemError("the gradient of a norm of order 0 is 0 wherever there is one; fill dx with 0")
    function, order = _chosen(reduce_backward, "p", p, "_backward")
    saved = {"y": y} if function.fixed["kind"] is ReduceKind.L2_NORM else {}
    return function(
        dy, x, **saved, axis=axis, keepdims=keepdims, out=out, stream=stream, preference=preference, **order
    )


@entry(ReducePlan)
def sum_to_size(x: Array, shape: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """x summed over the axes along which an array of `shape` broadcasts to x's shape (torch.Tensor.sum_to_size).

    The gradient of broadcasting; its own is broadcasting. Integers keep their element, and wrap.
    """
    given = read(x, "x").shape
    wanted = wholes("shape", (shape,) if isinstance(shape, int) else shape)
    lead = len(given) - len(wanted)
    if lead < 0 or any(n not in (1, m) for n, m in zip(wanted, given[max(lead, 0) :], strict=True)):
        raise InvalidProblemError(f"shape {wanted} does not broadcast to x's shape {given}")
    away = (*range(lead), *(lead + a for a, n in enumerate(wanted) if n == 1 and given[lead + a] != 1))
    kept, kind, options = out, read(x, "x").element, {"stream": stream, "preference": preference}
    for _ in range(lead if out is not None else 0):  # the axes that are summed away, with an extent of 1
        kept = with_axis(kept, 0, "out")
    add_up: Any = reduce.__dict__["sum"]
    if total(kind) is kind:
        y = add_up(x, axis=away, keepdims=True, out=kept, **options)
    else:
        y = cast(add_up(x, axis=away, keepdims=True, **options), kind, out=kept, **options)
    return y.reshape(wanted) if out is None else out
