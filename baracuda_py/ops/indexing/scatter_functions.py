"""scatter_sub and scatter_apply: JAX's scatters that are made of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...core import Array
from ...core.errors import InvalidProblemError
from ...calls.exported import exported
from ...calls.entries import entry
from ...calls.refusing import refuse_call
from ...core.views import shape_of
from ..elementwise.unary import neg  # type: ignore[attr-defined]
from .gather import gather
from .indexed import indices_read
from .scatter import ScatterKind, ScatterPlan, scatter, scatter_add


@entry(ScatterPlan, kind=ScatterKind.ADD)
def scatter_sub(
    x: Array, index: Array, src: Array, *, axis: int, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """y = x less the tokens of src at positions along `axis` (jax.lax.scatter_sub): `scatter_add` of -src.

    Integers wrap. One launch more, and an array of src's shape.
    """
    options = {"stream": stream, "preference": preference}
    indices_read(index, "index")
    refuse_call(scatter_add, {"x": x, "index": index, "src": src}, {"axis": axis}, out, preference)
    return scatter_add(x, index, neg(src, **options), axis=axis, out=out, **options)


@exported
def scatter_apply(
    x: Array, index: Array, func: Callable[[Any], Any], *, axis: int, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """x with func of its elements at positions along `axis` (jax.lax.scatter_apply), by `gather` and `scatter`.

    func takes an array of the shape of index, and gives one of the same shape and element, such as a formula of
    `elementwise`. An element that several positions name is func of it once; in JAX func is applied for each of them.
    """
    options = {"stream": stream, "preference": preference}
    made, shape = func(gather(x, index, axis=axis, **options)), shape_of(index, "index")
    if shape_of(made, "func's result") != shape:
        raise InvalidProblemError(f"func must keep the shape {shape}, got {shape_of(made, 'its result')}")
    return scatter(x, index, made, axis=axis, out=out, **options)
