"""Distances, similarity and normalisation: compositions of norms and formulas, with their gradients.

Each docstring says how many launches a call takes and what it allocates besides its result. Norms of 16-bit floats are
kept in float32 where their kind can, so that they leave the range no earlier than those of float32 do.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ...core import Array, ElementKind
from ...core.element import HALVES
from ...core.checked import real, whole
from ...core.errors import InvalidProblemError
from ...calls.composed import composed
from ...calls.entries import entry
from ...core.outputs import each_of
from ...core.tensor import Shape, TensorRef
from ...core.views import broadcast
from ...expressions.elementwise import elementwise
from ...expressions.reduce import reduce as reduction
from ...core.arrays import read
from . import reduce as page
from .norm import ORDERS, norm, norm_backward, sum_to_size
from .reduce import ReducePlan
from .reduce_backward import ReduceBackwardPlan
from .vecdot import VecdotBackwardPlan, VecdotPlan, vecdot


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


@cache
def _reduced(text: str, kind: str, axis: Any, keepdims: bool) -> Any:
    return reduction(text, kind, axis=axis, keepdims=keepdims)


def _shape(x: Any, name: str) -> Shape:
    return tuple(read(x, name).shape)


def _axis(axis: Any, rank: int) -> int:
    """One axis of an array of `rank` axes, counted from the front."""
    return whole("axis", axis, -rank, rank - 1) % rank


def kept_norm(x: Any, p: float, axis: Any, options: Any) -> Any:
    """The norm along `axis`, which stays with extent 1; in float32 of 16-bit floats where the order allows it."""
    p = real("p", p)
    if p in (1, 2) and read(x, "x").element in HALVES:
        return getattr(page, ORDERS[p])(x, axis=axis, keepdims=True, out_element=ElementKind.F32, **options)
    return norm(x, p, axis=axis, keepdims=True, **options)


# ---- distances ------------------------------------------------------------------------------------------------------


def _distance(a: Any, b: Any, p: float, eps: float, axis: Any, keepdims: bool, out: Any, options: Any) -> Any:
    """The norm of a - b + eps: one launch for the orders that are kinds of their own, two for others."""
    kind = ORDERS.get(p) if type(p) in (int, float) else None
    if kind is not None:
        return _reduced("a - b + eps", kind, axis, keepdims)(a, b, eps=real("eps", eps), out=out, **options)
    apart = _formula("a - b + eps")(a, b, eps=real("eps", eps), **options)
    return norm(apart, p, axis=axis, keepdims=keepdims, out=out, **options)


def _distance_backward(
    dy: Any, a: Any, b: Any, y: Any, p: float, eps: float, axis: Any, keepdims: bool, out: Any, options: Any
) -> tuple[Any, Any]:
    apart = _formula("a - b + eps")(a, b, eps=real("eps", eps), **options)
    shapes, outs = (_shape(a, "a"), _shape(b, "b")), pair(out)
    whole = np.broadcast_shapes(*shapes)
    direct = [one if shape == whole else None for one, shape in zip(outs, shapes, strict=True)]
    da = norm_backward(dy, apart, y, p, axis=axis, keepdims=keepdims, out=direct[0], **options)
    db = _formula("-d")(da, out=direct[1], **options)
    return _summed((da, db), shapes, whole, outs, options)


def pair(out: Any) -> tuple[Any, Any]:
    """The two arrays of `out=`, or None for each."""
    first, second = each_of(out, 2)
    return first, second


def _summed(made: Any, shapes: tuple[Shape, Shape], whole: Shape, outs: Any, options: Any) -> tuple[Any, Any]:
    """Gradients of the common shape as those of operands that were broadcast, written to `outs`."""
    first, second = (
        g if shape == whole else sum_to_size(g, shape, out=one, **options)
        for g, shape, one in zip(made, shapes, outs, strict=True)
    )
    return first, second


@composed("pairwise_distance_backward", "x1", "x2", result=True)
@entry(ReducePlan)
def pairwise_distance(
    x1: Array, x2: Array, p: float = 2, eps: float = 1e-6, *, keepdims: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The norm of order p of x1 - x2 + eps along the last axis (torch.nn.functional.pairwise_distance).

    x1 and x2 broadcast. One launch for p = 0, 1, 2, inf and -inf; of other orders two, and an array of differences.
    """
    return _distance(x1, x2, p, eps, -1, keepdims, out, {"stream": stream, "preference": preference})


@entry(ReduceBackwardPlan)
def pairwise_distance_backward(
    dy: Array, x1: Array, x2: Array, y: Array | None = None, p: float = 2, eps: float = 1e-6, *,
    keepdims: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(dx1, dx2) of `pairwise_distance`; y is its result, which orders 1, inf and -inf do not need.

    Three launches, and one for each of x1 and x2 that was broadcast; an array of differences.
    """
    options = {"stream": stream, "preference": preference}
    return _distance_backward(dy, x1, x2, y, p, eps, -1, keepdims, out, options)


@composed("dist_backward", "a", "b", result=True)
@entry(ReducePlan)
def dist(a: Array, b: Array, p: float = 2, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The norm of order p of a - b over all elements, a and b broadcast (torch.dist); launches as of
    `pairwise_distance`."""
    return _distance(a, b, p, 0.0, None, False, out, {"stream": stream, "preference": preference})


@entry(ReduceBackwardPlan)
def dist_backward(
    dy: Array, a: Array, b: Array, y: Array | None = None, p: float = 2, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(da, db) of `dist`; see `pairwise_distance_backward`."""
    return _distance_backward(dy, a, b, y, p, 0.0, None, False, out, {"stream": stream, "preference": preference})


def _with_axis(x: Any, name: str, at: int) -> Any:
    """A view of a matrix, or of a batch of them, with an axis of extent 1 before the one that `at` counts."""
    view = read(x, name)
    if len(view.shape) < 2:
        raise InvalidProblemError(f"{name} must have shape [..., rows, features], got {tuple(view.shape)}")
    if not isinstance(x, TensorRef):
        return x[..., :, None, :] if at == -1 else x[..., None, :, :]
    place = len(view.shape) + at
    shape = (*view.shape[:place], 1, *view.shape[place:])
    return TensorRef(x.ptr, shape, (*view.strides[:place], 0, *view.strides[place:]), view.element, device=x.device)


@composed("cdist_backward", "x1", "x2", result=True)
@entry(ReducePlan)
def cdist(x1: Array, x2: Array, p: float = 2, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """y[..., i, j] = the norm of order p of x1[..., i, :] - x2[..., j, :] (torch.cdist).

    Differences, not inner products, so that near rows keep their digits. Launches as of `pairwise_distance`; the array
    of differences, where there is one, has rows × rows × features elements.
    """
    rows, columns = _with_axis(x1, "x1", -1), _with_axis(x2, "x2", -2)
    return _distance(rows, columns, p, 0.0, -1, False, out, {"stream": stream, "preference": preference})


@entry(ReduceBackwardPlan)
def cdist_backward(
    dy: Array, x1: Array, x2: Array, y: Array | None = None, p: float = 2, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(dx1, dx2) of `cdist`. Five launches; three arrays of rows × rows × features elements."""
    options = {"stream": stream, "preference": preference}
    rows, columns = _with_axis(x1, "x1", -1), _with_axis(x2, "x2", -2)
    first, second = pair(out)
    into = None if out is None else (_with_axis(first, "out[0]", -1), _with_axis(second, "out[1]", -2))
    da, db = _distance_backward(dy, rows, columns, y, p, 0.0, -1, False, into, options)
    return (first, second) if into else (da.reshape(_shape(x1, "x1")), db.reshape(_shape(x2, "x2")))


# ---- similarity -----------------------------------------------------------------------------------------------------

_COSINE = "a / maximum(m, eps) * (b / maximum(n, eps))"
_COSINE_GRADIENT = (
    "da = dy * (b / maximum(n, eps) - where(m > 0, y * a / m, 0)) / maximum(m, eps);"
    "db = dy * (a / maximum(m, eps) - where(n > 0, y * b / n, 0)) / maximum(n, eps)"
)


def _along(x1: Any, x2: Any, axis: int) -> tuple[int, Any, Any]:
    """The axis of the similarity, counted from the end, and views of x1 and x2 that both have all of it."""
    elements = read(x1, "x1").element, read(x2, "x2").element
    if elements[0] is not elements[1]:
        raise InvalidProblemError(f"x1 and x2 must have one element, got {elements[0]} and {elements[1]}; cast one")
    shapes = _shape(x1, "x1"), _shape(x2, "x2")
    rank = max(map(len, shapes))
    found = _axis(axis, rank) - rank
    if all(len(shape) >= -found for shape in shapes) and shapes[0][found] == shapes[1][found]:
        return found, x1, x2
    try:
        whole = np.broadcast_shapes(*shapes)
    except ValueError:
        raise InvalidProblemError(f"x1 {shapes[0]} and x2 {shapes[1]} do not broadcast together") from None
    return found, broadcast(x1, whole, "x1"), broadcast(x2, whole, "x2")


def _norms(x1: Any, x2: Any, axis: int, options: Any) -> dict[str, Any]:
    return {"m": kept_norm(x1, 2, axis, options), "n": kept_norm(x2, 2, axis, options)}


@composed("cosine_similarity_backward", "x1", "x2")
@entry(VecdotPlan)
def cosine_similarity(
    x1: Array, x2: Array, axis: int = 1, eps: float = 1e-8, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Σ x1 x2 / (max(‖x1‖, eps) max(‖x2‖, eps)) along `axis` (torch.nn.functional.cosine_similarity).

    x1 and x2 broadcast, along `axis` too. Each is divided by its norm before they are multiplied, so that nothing
    leaves the range. Three launches (of 16-bit floats four); the norms are two arrays of the result's size.
    """
    options = {"stream": stream, "preference": preference}
    along, a, b = _along(x1, x2, axis)
    held = {"a": a, "b": b, **_norms(a, b, along, options)}
    element = read(x1, "x1").element
    last = out if element.acc is element else None  # of 16-bit floats the sum is kept in float32
    y = _reduced(_COSINE, "sum", along, False)(**held, eps=real("eps", eps), out=last, **options)
    return _as(y, element, {**options, "out": out})


def _as(x: Any, element: ElementKind, options: Any) -> Any:
    """x in an element: what is kept in float32 of 16-bit floats is rounded at the end."""
    return x if read(x, "x").element is element else _formula(f"{element}(x)")(x, **options)


@entry(VecdotBackwardPlan)
def cosine_similarity_backward(
    dy: Array, x1: Array, x2: Array, axis: int = 1, eps: float = 1e-8, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(dx1, dx2) of `cosine_similarity`, which is computed again.

    As in PyTorch eps is taken for a constant: a norm below it has the gradient of a norm. Four launches, and one for
    each of x1 and x2 that was broadcast or has 16 bits; arrays of the norms and the similarity.
    """
    options = {"stream": stream, "preference": preference}
    along, a, b = _along(x1, x2, axis)
    held = {"a": a, "b": b, **_norms(a, b, along, options)}
    y = _reduced(_COSINE, "sum", along, True)(**held, eps=real("eps", eps), **options)
    shapes, element, outs = (_shape(x1, "x1"), _shape(x2, "x2")), read(x1, "x1").element, pair(out)
    whole = np.broadcast_shapes(*shapes)
    exact = element.acc is element  # of 16-bit floats the formula's results are in float32
    direct = {
        n: o for n, o, s in zip(("da", "db"), outs, shapes, strict=True) if exact and o is not None and s == whole
    }
    gradient = _formula(_COSINE_GRADIENT)
    dy = dy.reshape(_shape(y, "y"))
    found = gradient(dy=dy, y=y, **held, eps=real("eps", eps), out=direct or None, **options)
    first, second = _summed(found, shapes, whole, outs if exact else (None, None), options)
    return _as(first, element, {**options, "out": outs[0]}), _as(second, element, {**options, "out": outs[1]})


# ---- normalisation --------------------------------------------------------------------------------------------------


def _scaled(x: Any, n: Any, text: str, out: Any, options: Any, **numbers: float) -> Any:
    """x with a factor made of its norm n, in x's element."""
    return _formula(f"{read(x, 'x').element}({text})")(x=x, n=n, **numbers, out=out, **options)


def _halved(held: dict[str, Any]) -> bool:
    """Whether the norm is kept in float32 beside its operand, and has no gradient by itself."""
    return read(held["x"], "x").element in HALVES


def _scaled_backward(
    dy: Any, x: Any, p: float, axis: Any, factor: str, slope: str, out: Any, options: Any, **numbers: float
) -> Any:
    """dx of x f(n), n the norm of x: dy f(n), and the norm's gradient of Σ dy x f'(n)."""
    if real("p", p) == 0:
        raise InvalidProblemError("p must not be 0: a norm of order 0 counts, and its gradient is 0 or is none")
    element = read(x, "x").element
    n = kept_norm(x, p, axis, options)
    s = vecdot(dy, x, axis=axis, **options)
    dn = _formula(f"{element}({slope})")(s=s.reshape(_shape(n, "n")), n=n, **numbers, **options)
    through = norm_backward(dn, x, _as(n, element, options), p, axis=axis, keepdims=True, **options)
    return _formula(f"{element}(dy * {factor} + through)")(dy=dy, n=n, through=through, **numbers, out=out, **options)


@composed("normalize_backward", "x", where=_halved)
@entry(ReducePlan)
def normalize(
    x: Array, p: float = 2, axis: Any = 1, eps: float = 1e-12, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x / max(‖x‖, eps), the norm of order p along `axis`, one or several (torch.nn.functional.normalize).

    Two launches, and an array of the norms; out may be x.
    """
    options = {"stream": stream, "preference": preference}
    n = kept_norm(x, p, axis, options)
    return _scaled(x, n, "x / maximum(n, eps)", out, options, eps=real("eps", eps))


@entry(ReduceBackwardPlan)
def normalize_backward(
    dy: Array, x: Array, p: float = 2, axis: Any = 1, eps: float = 1e-12, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """dx of `normalize`, whose norms are computed again: where they are below eps, dy / eps (p is not 0).

    Five launches (of 16-bit floats six), an array like x and four of the norms' size.
    """
    options = {"stream": stream, "preference": preference}
    factor, slope = "(1 / maximum(n, eps))", "where(n >= eps, -s / maximum(n, eps) / maximum(n, eps), 0)"
    return _scaled_backward(dy, x, p, axis, factor, slope, out, options, eps=real("eps", eps))


def _others(x: Any, axis: int) -> tuple[int, ...]:
    rank = len(_shape(x, "x"))
    if rank < 2:
        raise InvalidProblemError(f"renorm needs x of at least two axes, got shape {_shape(x, 'x')}")
    own = _axis(axis, rank)
    return tuple(a for a in range(rank) if a != own)


@composed("renorm_backward", "x", where=_halved)
@entry(ReducePlan)
def renorm(
    x: Array, p: float, axis: int, maxnorm: float, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with each slice along `axis` whose norm of order p exceeds maxnorm scaled by maxnorm / (norm + 1e-7).

    torch.renorm, whose constant that is. Two launches, and an array of the norms; out may be x.
    """
    options = {"stream": stream, "preference": preference}
    n = kept_norm(x, p, _others(x, axis), options)
    return _scaled(x, n, "where(n > most, x * (most / (n + 1e-7)), x)", out, options, most=real("maxnorm", maxnorm))


@entry(ReduceBackwardPlan)
def renorm_backward(
    dy: Array, x: Array, p: float, axis: int, maxnorm: float, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """dx of `renorm` (p is not 0); launches and arrays as of `normalize_backward`."""
    options = {"stream": stream, "preference": preference}
    factor = "where(n > most, most / (n + 1e-7), 1)"
    slope = "where(n > most, -s * (most / (n + 1e-7)) / (n + 1e-7), 0)"
    return _scaled_backward(dy, x, p, _others(x, axis), factor, slope, out, options, most=real("maxnorm", maxnorm))
