"""Parts put in, taken out and picked: insert, delete, resize, combinations; keys of latent attention."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...core import Array
from ...core.checked import whole, wholes
from ...core.errors import InvalidProblemError
from ...calls.exported import exported
from ...calls.entries import entry
from ...core.tensor import Shape
from ...core.views import broadcast, shape_of, with_axis
from ..indexing.take import TakePlan, take
from .concat import ConcatPlan, concat
from .grids import tril_indices, triu_indices
from .made import from_host
from .pad import PadPlan, pad
from .parts import unbind
from .axes import place
from .views import movedim, part, raveled, reshape


def _flat(x: Array, axis: int | None, stream: Any) -> tuple[Array, int, int]:
    """x, its axis and the extent there; x as one axis where none is given."""
    x, axis = (raveled(x, stream), 0) if axis is None else (x, axis)
    shape = shape_of(x, "x")
    at = place(axis, len(shape))
    return x, at, shape[at]


def _indices(name: str, given: Any, low: int, high: int) -> list[int]:
    """Integers of the host in [low, high]."""
    if isinstance(given, (int, np.integer)):
        return [whole(name, given, low, high)]
    if isinstance(given, slice):
        return list(range(*given.indices(high + 1)))
    try:
        items = list(given)
    except TypeError:
        raise InvalidProblemError(f"{name} must be integers that the host knows, got {given!r}") from None
    return [whole(f"{name}[{i}]", one, low, high) for i, one in enumerate(items)]


@entry(ConcatPlan)
def delete(
    x: Array, index: Any, axis: int | None = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x without what lies at some indices along an axis, integers or a slice (numpy.delete).

    Without `axis` x is one axis. The host must know the indices.
    """
    x, at, extent = _flat(x, axis, stream)
    gone = {i % extent for i in _indices("index", index, -extent, extent - 1)}
    kept, start = [], 0
    for stop in [*sorted(gone), extent]:
        if stop > start:
            kept.append(part(x, at, start, stop))
        start = stop + 1
    return concat(kept or [part(x, at, 0, 0)], axis=at, out=out, stream=stream, preference=preference)


@entry(ConcatPlan)
def insert(
    x: Array, index: Any, values: Array, axis: int | None = None, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x with values before some indices along an axis (numpy.insert); without `axis` x is one axis.

    index: an integer, before which all of `values` go, the first axis of `values` along `axis`; or several, of x as it
    was, one for each slice of `values`. values: an array of x's element that broadcasts to its place.
    """
    x, at, extent = _flat(x, axis, stream)
    own, alone = shape_of(x, "x"), isinstance(index, (int, np.integer))
    where = [i + extent if i < 0 else i for i in _indices("index", index, -extent, extent)]
    count = len(where)
    if alone:
        if len(shape_of(values, "values")) > len(own):
            _spread(values, own, at)
        for _ in range(len(own) - len(shape_of(values, "values"))):
            values = with_axis(values, 0, "values")
        values = movedim(values, 0, at)
        count = shape_of(values, "values")[at]
    placed = broadcast(_spread(values, own, at), (*own[:at], count, *own[at + 1 :]), "values")
    pieces, start = [], 0
    for stop, number in sorted(zip(where, itertools.count(), strict=False)):
        pieces += [part(x, at, start, stop)] if stop > start else []
        pieces.append(placed if alone else part(placed, at, number, number + 1))
        start = stop
    pieces += [part(x, at, start, extent)] if extent > start or not pieces else []
    return concat(pieces, axis=at, out=out, stream=stream, preference=preference)


def _spread(values: Array, own: Shape, at: int) -> Array:
    """values, if they broadcast to a place along an axis."""
    given = shape_of(values, "values")
    others = [(n, own[a]) for a, n in zip(range(len(own) - len(given), len(own)), given, strict=True) if a != at]
    if len(given) > len(own) or any(n not in (1, m) for n, m in others):
        raise InvalidProblemError(f"values of shape {given} do not broadcast to a place along axis {at} of {own}")
    return values


@entry(PadPlan)
def resize(x: Array, shape: Any, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """The elements of x, again and again, in another shape of any size (numpy.resize)."""
    wanted = wholes("shape", (shape,) if isinstance(shape, (int, np.integer)) else shape)
    flat = raveled(x, stream)
    have, need = shape_of(flat, "x")[0], math.prod(wanted)
    if need and not have:
        raise InvalidProblemError(f"x has no elements to fill shape {wanted} with")
    to = None if out is None else reshape(out, (-1,))
    made = pad(flat, (0, need - have), "circular", out=to, stream=stream, preference=preference)
    return reshape(made, wanted) if out is None else out


@entry(TakePlan)
def combinations(
    x: Array, r: int = 2, with_replacement: bool = False, *, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """All choices of r elements of a vector, as rows, in order (torch.combinations). The host counts them out."""
    shape = shape_of(x, "x")
    if len(shape) != 1:
        raise InvalidProblemError(f"x must be a vector, got shape {shape}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    rows = np.array(list(choose(range(shape[0]), whole("r", r, 1))), np.int64).reshape(-1, r)
    return take(x, from_host(rows, x, stream), axis=0, out=out, stream=stream, preference=preference)


@entry(ConcatPlan)
def concat_mla_k(k_nope: Array, k_rope: Array, *, out: Any = None, stream: Any = None, preference: Any = None) -> Any:
    """Keys of latent attention: the part without positions of each head, then the rotated part that all heads share.

    k_nope: (…, heads, d); k_rope: (…, 1, r). The result is (…, heads, d + r), written without a copy of k_rope.
    """
    own, shared = shape_of(k_nope, "k_nope"), shape_of(k_rope, "k_rope")
    if len(own) < 2 or len(shared) != len(own) or (*own[:-2], 1) != shared[:-1]:
        raise InvalidProblemError(f"k_rope must have shape {(*own[:-2], 1, 'r')} beside k_nope {own}, got {shared}")
    wide = broadcast(k_rope, (*own[:-1], shared[-1]), "k_rope")
    return concat([k_nope, wide], axis=len(own) - 1, out=out, stream=stream, preference=preference)


@exported
def mask_indices(n: int, mask: Any, k: int = 0, *, like: Any = None) -> Sequence[Array]:
    """Rows and columns of an n × n matrix that `mask` leaves: `triu` or `tril` of this package (numpy.mask_indices)."""
    made = {"triu": triu_indices, "tril": tril_indices}.get(getattr(mask, "__name__", ""))
    if made is None:
        raise InvalidProblemError(f"mask must be triu or tril: how many of others hold is on the device, got {mask!r}")
    return unbind(made(n, None, k, like=like))
