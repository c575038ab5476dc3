"""max_unpool1d, 2d, 3d: what maximum pools kept, in its place again."""

from __future__ import annotations

import math
from typing import Any

from ...core import Array
from ...core.checked import wholes
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.outputs import beside, each_of
from ...core.views import reshaped, shape_of
from ...core.arrays import read
from ..indexing.scatter import ScatterPlan, scatter
from ..layout.creation import zeros
from ..layout.views import reshape


def _each(name: str, value: Any, rank: int) -> tuple[int, ...]:
    found = wholes(name, value if isinstance(value, (list, tuple)) else (value,) * rank)
    if len(found) != rank or min(found) < (0 if name == "padding" else 1):
        raise InvalidProblemError(f"{name} must be a number, or {rank} of them, not below {int(name != 'padding')}")
    return found


def _unpooled(
    rank: int, x: Any, indices: Any, kernel_size: Any, stride: Any, padding: Any, output_size: Any, out: Any,
    options: dict[str, Any],
) -> Any:  # fmt: skip
    shape = shape_of(x, "x")
    if len(shape) <= rank:
        raise InvalidProblemError(f"x must be [*, channels, {rank} spatial axes], got shape {shape}")
    if shape_of(indices, "indices") != shape:
        raise InvalidProblemError(f"indices must have the shape of x, {shape}, got {shape_of(indices, 'indices')}")
    size = _each("kernel_size", kernel_size, rank)
    step = size if stride is None else _each("stride", stride, rank)
    pads, (lead, own) = _each("padding", padding, rank), (shape[:-rank], shape[-rank:])
    usual = tuple((n - 1) * s - 2 * p + k for n, s, p, k in zip(own, step, pads, size, strict=True))
    spatial = usual
    if output_size is not None:
        spatial = wholes("output_size", output_size)[-rank:]
        fits = len(spatial) == rank and all(abs(n - m) < s for n, m, s in zip(spatial, usual, step, strict=True))
        if not fits:
            raise InvalidProblemError(
                f"output_size must be {rank} numbers, each less than a stride of {step} apart from {usual}, got "
                f"{output_size}"
            )
    if min(spatial) < 0:
        raise InvalidProblemError(f"the result would have shape {(*lead, *spatial)}; give less padding")
    flat = (*lead, math.prod(spatial))
    with beside(x, options["stream"]):
        base = zeros(flat, read(x, "x").element, like=x)
        rows = [reshape(one, (*lead, math.prod(own))) for one in (x, indices)]
    (given,) = each_of(out, 1)
    if given is not None and shape_of(given, "out") != (*lead, *spatial):
        raise InvalidProblemError(f"out must have shape {(*lead, *spatial)}, got {shape_of(given, 'out')}")
    to = None if given is None else reshaped(given, flat, "out")
    if given is not None and to is None:
        raise InvalidProblemError("out must have its spatial axes in even steps; give a contiguous array")
    made = scatter(base, rows[1], rows[0], axis=-1, out=to, **options)
    return given if given is not None else reshape(made, (*lead, *spatial))


@entry(ScatterPlan)
def max_unpool1d(
    x: Array, indices: Array, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Zeros, and each number of x [*, length] where `max_pool1d` found it; see `max_unpool2d`."""
    options = {"stream": stream, "preference": preference}
    return _unpooled(1, x, indices, kernel_size, stride, padding, output_size, out, options)


@entry(ScatterPlan)
def max_unpool2d(
    x: Array, indices: Array, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Zeros, and each number of x [*, height, width] where `max_pool2d` found it (torch's max_unpool2d).

    indices: those of the pool, row-major places of a plane of the result; a negative one counts from the end, one
    outside of the plane is skipped. Of equal ones the last number is kept, and has the gradient alone, where torch
    gives it to all. kernel_size, stride, padding: those of the pool; the result has (n - 1) · stride - 2 · padding +
    kernel_size places along an axis, or output_size, less than a stride apart from that. A fill and a scatter.
    """
    options = {"stream": stream, "preference": preference}
    return _unpooled(2, x, indices, kernel_size, stride, padding, output_size, out, options)


@entry(ScatterPlan)
def max_unpool3d(
    x: Array, indices: Array, kernel_size: Any, stride: Any = None, padding: Any = 0, output_size: Any = None, *,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Zeros, and each number of x [*, depth, height, width] where `max_pool3d` found it; see `max_unpool2d`."""
    options = {"stream": stream, "preference": preference}
    return _unpooled(3, x, indices, kernel_size, stride, padding, output_size, out, options)
