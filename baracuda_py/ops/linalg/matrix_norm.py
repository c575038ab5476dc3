"""matrix_norm and cond: norms of matrices, by their columns, rows or singular values, in the words of torch.linalg."""

from __future__ import annotations

import math
from typing import Any

from ...core import Array
from ...core.checked import real, shown, truth, wholes
from ...core.errors import InvalidProblemError
from ...core.views import permuted, shape_of, with_axis, without_axes
from ...calls.entries import entry
from ..reduce.norm import vector_norm
from .pieces import Pieces, across, one_of
from .pseudo_inverse import matrices
from .svd import SvdPlan
from .svd_functions import svd, svdvals

_WORDS = ("fro", "nuc")


def _order(name: str, value: Any) -> Any:
    """A word, or one of the numbers that have a norm of matrices."""
    order = value if isinstance(value, str) else real(name, value)
    if order not in (*_WORDS, 1.0, -1.0, 2.0, -2.0, math.inf, -math.inf):
        raise InvalidProblemError(f"{name} must be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf, got {shown(value)}")
    return order


def _norm(do: Pieces, a: Any, order: Any, out: Any = None) -> Any:
    """Of the last two axes."""
    if order == "fro":
        return vector_norm(a, 2, axis=(-2, -1), out=out, **do.options)
    if order == "nuc":
        return do.reduced("sum", svdvals(a, **do.options), out=out)
    largest = "amax" if order > 0 else "amin"
    if abs(order) == 2:
        return do.reduced(largest, svdvals(a, **do.options), out=out)
    return do.reduced(largest, do.reduced("l1_norm", a, -2 if abs(order) == 1 else -1), out=out)


@entry(SvdPlan)
def matrix_norm(
    a: Array, ord: Any = "fro", axis: Any = (-2, -1), keepdims: bool = False, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The norm of matrices along two axes (torch.linalg.matrix_norm, numpy.linalg.matrix_norm).

    ord: "fro", the root of the sum of |a|²; "nuc", the sum of the singular values; 2 and -2, the largest and the
    smallest of these; 1 and -1, of the sums of |a| down the columns; inf and -inf, of those along the rows. The result
    is real. Gradients are those of the calls that it is made of.
    """
    shape = shape_of(a, "a")
    given = wholes("axis", axis, -len(shape))
    if len(given) != 2 or any(not -len(shape) <= one < len(shape) for one in given):
        raise InvalidProblemError(f"axis must be two axes of a, of shape {shape}, got {shown(axis)}")
    rows, cols = (one % len(shape) for one in given)
    if rows == cols:
        raise InvalidProblemError(f"axis must be two different axes, got {shown(axis)}")
    order, places = _order("ord", ord), sorted((rows, cols))
    moved = permuted(a, (*(i for i in range(len(shape)) if i not in places), rows, cols), "a")
    do = Pieces(stream, preference)
    if not truth("keepdims", keepdims):
        return _norm(do, moved, order, out)
    made = _norm(do, moved, order, None if out is None else without_axes(out, places, "out"))
    for place in places:
        made = with_axis(made, place, "y")
    return made if out is None else out


@entry(SvdPlan)
def nuclear_norm(
    a: Array, axis: Any = (-2, -1), keepdims: bool = False, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """`matrix_norm` of order "nuc", the sum of the singular values (torch.nuclear_norm)."""
    return matrix_norm(a, "nuc", axis=axis, keepdims=keepdims, out=out, stream=stream, preference=preference)


@entry(SvdPlan)
def cond(a: Array, p: Any = None, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The condition numbers of matrices, by a norm of `matrix_norm` (torch.linalg.cond, numpy.linalg.cond).

    a: [..., m, n]. p: None and 2, σ₁ / σₖ, and -2, σₖ / σ₁; other norms are ‖a‖ ‖a⁻¹‖ of square matrices, the inverse
    by singular values, and infinite where one is 0.
    """
    do, order = Pieces(stream, preference), 2.0 if p is None else _order("p", p)
    shape = matrices(a, "a", order not in (2.0, -2.0))
    if not min(shape[-2:]):
        return vector_norm(a, 1, axis=(-2, -1), out=out, **do.options)  # zeros, as torch has it
    if order in (2.0, -2.0):
        s, count = svdvals(a, **do.options), min(shape[-2:])
        over, under = (one_of(s, place) for place in ((0, count - 1) if order > 0 else (count - 1, 0)))
        return do.of("s / t", s=over, t=under, out=out)
    if order in _WORDS:
        s = svdvals(a, **do.options)
        texts = ("s", "1 / s") if order == "nuc" else ("s * s", "1 / (s * s)")
        sums = [do.reduced("sum", do.of(text, s=s)) for text in texts]
        text = "a * b" if order == "nuc" else "sqrt(a) * sqrt(b)"
        return do.of(f"where(s == 0, inf, {text})", a=sums[0], b=sums[1], s=one_of(s, shape[-1] - 1), out=out)
    u, s, vh = svd(a, False, **do.options)
    inverse = do.product(do.scaled(do.turned(vh), across(do.of("1 / s", s=s))), do.turned(u))
    norms = [_norm(do, one, order) for one in (a, inverse)]
    return do.of("where(s == 0, inf, a * b)", a=norms[0], b=norms[1], s=one_of(s, shape[-1] - 1), out=out)
