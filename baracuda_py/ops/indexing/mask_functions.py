"""Functions of masks and positions: masked_select and masked_scatter that broadcast, compress, extract, argwhere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ...core import Array, registry
from ...calls.functional import functional
from ...core.checked import shown, whole
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.outputs import each_of
from ...core.views import broadcast, constant, permuted, reshaped, shape_of, with_axis
from ...expressions.elementwise import elementwise
from .gather import GatherPlan
from .index_functions import along
from .key import NOWHERE, broadcast_to, nowhere, numbers_like
from .masked_scatter import MaskedScatterPlan
from .masked_select import MaskedSelectPlan
from .nonzero import NonzeroPlan, nonzero
from .take import TakePlan, take

_masked_select = functional(MaskedSelectPlan, "masked_select")
_masked_scatter = functional(MaskedScatterPlan, "masked_scatter")


@entry(MaskedSelectPlan)
def masked_select(
    x: Array, mask: Array, *, size: int | None = None, fill_value: float = 0.0, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(the elements of x where `mask` holds, in row-major order, padded, how many they are); both are broadcast.

    The number stays on the device, an int64 array without axes. size: of the result, by default that of all elements,
    which always suffices; behind those chosen it is fill_value.
    """
    shapes = shape_of(x, "x"), shape_of(mask, "mask")
    try:
        shape = np.broadcast_shapes(*shapes)
    except ValueError:
        raise InvalidProblemError(f"mask must broadcast with x {shapes[0]}, got {shapes[1]}") from None
    options = {"size": size, "fill_value": fill_value, "out": out, "stream": stream, "preference": preference}
    return _masked_select(broadcast(x, shape, "x"), broadcast(mask, shape, "mask"), **options)


@entry(MaskedSelectPlan)
def extract(
    condition: Array, x: Array, *, size: int | None = None, fill_value: float = 0.0, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`masked_select`, padded as it is, by NumPy's name and order of arrays (numpy.extract, jax.numpy.extract)."""
    options = {"size": size, "fill_value": fill_value, "out": out, "stream": stream, "preference": preference}
    return masked_select(x, condition, **options)


@entry(MaskedScatterPlan)
def masked_scatter(
    x: Array, mask: Array, source: Array, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """x with the elements of source, in order, where `mask` holds, which broadcasts to x (torch.masked_scatter).

    What the mask chooses beyond the elements of source stays as it is.
    """
    options = {"out": out, "stream": stream, "preference": preference}
    return _masked_scatter(x, broadcast_to(mask, shape_of(x, "x"), "mask"), source, **options)


@entry(TakePlan)
def compress(
    condition: Array, x: Array, *, axis: int | None = None, size: int | None = None, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(slices of x along `axis` where the vector `condition` is not 0, padded, how many they are) (numpy.compress).

    axis: None takes the elements of x in row-major order. condition: may be shorter than the axis. size: of the result
    along it, by default the length of the condition; slices behind those chosen are 0.
    """
    shape, given = shape_of(x, "x"), shape_of(condition, "condition")
    if len(given) != 1:
        raise InvalidProblemError(f"condition must be a vector, got shape {given}")
    if axis is None:
        flat = reshaped(x, (math.prod(shape),), "x")
        if flat is None:
            raise InvalidProblemError("axis must be given where x is a view that cannot be seen as one row")
        x, axis, shape = flat, 0, (math.prod(shape),)
    if -len(shape) <= axis < len(shape) and given[0] > shape[axis]:
        raise InvalidProblemError(f"condition must be no longer than axis {axis} of {shape[axis]}, it has {given[0]}")
    options = {"stream": stream, "preference": preference}
    to, number = each_of(out, 2)
    found = {} if number is None else {"count": number}
    size = given[0] if size is None else size
    places, count = nonzero(condition, size=size, fill_value=NOWHERE, out=found or None, **options)
    return take(x, places[0], axis=axis, out=to, **options), count


@entry(NonzeroPlan)
def argwhere(
    x: Array, *, size: int | None = None, fill_value: int = -1, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(positions of the elements of x that are not 0, padded to [size, axes of x], how many they are)."""
    options = {"size": size, "fill_value": fill_value, "stream": stream, "preference": preference}
    return _rows(x, each_of(out, 2), options)


def _rows(x: Any, out: Sequence[Any], options: dict[str, Any]) -> tuple[Any, Any]:
    """What `argwhere` returns, written to those of the two arrays that are given."""
    to, number = out
    if to is not None and len(shape_of(to, "out")) != 2:
        raise InvalidProblemError(f"out[0] must have two axes, got shape {shape_of(to, 'out')}")
    given = {} if number is None else {"count": number}
    if to is not None:
        given["y"] = permuted(to, (1, 0), "out")
    y, count = nonzero(x, out=given or None, **options)
    return permuted(y, (1, 0), "y") if to is None else to, count


@entry(NonzeroPlan)
def nonzero_static(
    x: Array, *, size: int, fill_value: int = -1, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`argwhere` without the number (torch.nonzero_static)."""
    options = {"size": size, "fill_value": fill_value, "stream": stream, "preference": preference}
    return _rows(x, (*each_of(out, 1), None), options)[0]


_flat = functional(NonzeroPlan, "flatnonzero", flat=True)


@entry(NonzeroPlan)
def flatnonzero(
    x: Array, *, size: int | None = None, fill_value: int = -1, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(positions, in row-major order, of the elements of x that are not 0, padded to [size], how many they are)."""
    options = {"size": size, "fill_value": fill_value, "stream": stream, "preference": preference}
    to, number = each_of(out, 2)
    given = {} if number is None else {"count": number}
    if to is not None:
        given["y"] = with_axis(to, 0, "out")
    y, count = _flat(x, out=given or None, **options)
    return y[0] if to is None else to, count


@entry(GatherPlan)
def take_along_axis(
    x: Array, indices: Array, axis: int | None = -1, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y[…, j, …] = x[…, indices[…, j, …], …], the other axes broadcast together (numpy.take_along_axis).

    axis: None picks elements of x by their place in row-major order. Out of range: see `gather`.
    """
    return along(x, indices, axis, out=out, stream=stream, preference=preference)


@entry(GatherPlan)
def take_along_dim(
    x: Array, indices: Array, axis: int | None = None, *, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`take_along_axis` by torch's name, whose axis is None by default."""
    return along(x, indices, axis, out=out, stream=stream, preference=preference)


@cache
def _formula(text: str) -> Any:
    return elementwise(text)


@entry(TakePlan)
def trim_zeros(
    x: Array, trim: str = "fb", *, size: int | None = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """(a vector without the zeros before its first and behind its last other element, padded, how many are left).

    numpy.trim_zeros. The number stays on the device, an int64 array without axes. trim: "f" those before, "b" those
    behind, or both. size: of the result, by default that of x, which always suffices; behind those left it is 0.
    """
    shape = shape_of(x, "x")
    sides = trim.lower() if isinstance(trim, str) else ""
    if len(shape) != 1 or sides not in ("f", "b", "fb", "bf"):
        raise InvalidProblemError(f'x must be a vector and trim "f", "b" or "fb", got shape {shape} and {shown(trim)}')
    n, options, fixed = shape[0], {"stream": stream, "preference": preference}, constant(x)
    count, (to, to_number) = n if size is None else whole("size", size, 0), each_of(out, 2)
    places, first, end = numbers_like(x, range(n), stream), n * ("f" in sides), n * ("b" not in sides)
    if n and "f" in sides:
        first = registry.public("amin")(_formula("i if x != 0 else n")(x=fixed, i=places, n=n, **options), **options)
    if n and "b" in sides:
        end = registry.public("amax")(_formula("i + 1 if x != 0 else 0")(x=fixed, i=places, **options), **options)
    # A number that both ends give as numbers is made an array by the one element of the places.
    left = _formula("e - f + 0 * z if e > f else 0 * z")(
        e=end, f=first, z=numbers_like(x, range(1), stream).reshape(()), out=to_number, **options
    )
    steps = numbers_like(x, range(count), stream)
    from_x = _formula("i + f if i < n else none")(i=steps, f=first, n=left, none=nowhere(steps), **options)
    return take(x, from_x, axis=0, out=to, **options), left
