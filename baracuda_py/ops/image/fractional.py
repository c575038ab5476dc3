"""fractional_max_pool2d and 3d: maxima of windows that begin at random (torch.nn.functional.fractional_max_pool2d)."""

from __future__ import annotations

import math
from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.arrays import read
from ...core.checked import real, wholes
from ...core.errors import InvalidProblemError
from ...core.outputs import beside, each_of
from ...core.views import constant, shape_of, with_axis
from ..indexing.gather import GatherPlan, gather
from ..layout.creation import arange
from ..layout.moves import copy
from ..layout.parts import unbind
from ..layout.views import reshape
from .resizing import numbers_of
from .sampling import float_like, formula, reduced, shaped


def _pooled(
    rank: int, x: Any, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any, out: Any, options: Any,
) -> tuple[Any, Any]:  # fmt: skip
    shape = shape_of(x, "x")
    lead, own = shape[: len(shape) - rank], shape[len(shape) - rank :]
    if len(shape) not in (rank + 1, rank + 2) or min(own) < 1:
        raise InvalidProblemError(f"x must be ([N], C, *{rank} spatial axes of 1 or more), got shape {shape}")
    kernel = wholes("kernel_size", numbers_of("kernel_size", kernel_size, rank), 1)
    if (output_size is None) is (output_ratio is None):
        raise InvalidProblemError(f"give one of output_size and output_ratio, got {output_size} and {output_ratio}")
    if output_size is None:
        ratios = [real("output_ratio", r) for r in numbers_of("output_ratio", output_ratio, rank)]
        if not all(0 < r < 1 for r in ratios):
            raise InvalidProblemError(f"output_ratio must lie in (0, 1), got {output_ratio}")
        output_size = [int(n * r) for n, r in zip(own, ratios, strict=True)]
    size = wholes("output_size", numbers_of("output_size", output_size, rank), 1)
    if any(m + k - 1 > n for n, k, m in zip(own, kernel, size, strict=True)):
        raise InvalidProblemError(f"output_size {size} and kernel_size {kernel} need more places than the {own} of x")
    kind = float_like(x)
    if samples is None:
        raise InvalidProblemError(f"samples is None; give numbers in [0, 1), {(*lead, rank)}, as `rand` draws them")
    if shape_of(samples, "samples") != (*lead, rank) or read(samples, "samples").element not in (kind, kind.acc):
        raise InvalidProblemError(
            f"samples must be {(*lead, rank)} of x's element, {kind}, or its accumulator, got "
            f"{shape_of(samples, 'samples')} of {read(samples, 'samples').element}"
        )
    # torch has the sample of the last axis first in two axes, and last in three
    drawn = unbind(constant(samples), -1)[:: -1 if rank == 2 else 1]
    with beside(x, options["stream"]):
        number = arange(math.prod(kernel), like=x)
        along = [arange(m, like=x) for m in size]
    facts: dict[str, Any] = {"k": number}
    text, step = "0", math.prod(kernel)
    for a, (n, k, m) in enumerate(zip(own, kernel, size, strict=True)):
        step //= k
        start = f"where(i{a} == {m - 1}, {n - k}, int64((i{a} + s{a}) * a{a}) - int64(s{a} * a{a}))"
        text = f"({text}) * {n} + ({start} + (k // {step}) % {k})"
        facts[f"i{a}"] = reshape(along[a], (m, *(1,) * (rank - a)))
        facts[f"s{a}"] = reshape(drawn[a], (*lead, *(1,) * (rank + 1)))
        facts[f"a{a}"] = (n - k) / (m - 1) if m > 1 else 0.0
    windows = formula(text)(**facts, **options)
    rows, points, taps = math.prod(lead), math.prod(size), math.prod(kernel)
    flat, index = shaped(x, (rows, math.prod(own)), options), reshape(windows, (rows, points * taps))
    values = reshape(gather(constant(flat), index, axis=1, **options), (rows, points, taps))
    best = with_axis(reduced("argmax", values, 2, options), 2, "best")
    place = reshape(gather(reshape(windows, (rows, points, taps)), best, axis=2, **options), (rows, points))
    shown = (*lead, *size)
    to, to_places = each_of(out, 2) if isinstance(out, (tuple, list, dict)) else (out, None)
    y = reshape(gather(flat, place, axis=1, **options), shown)
    place = reshape(place, shown)
    return (
        y if to is None else copy(y, out=to, **options),
        place if to_places is None else copy(place, out=to_places, **options),
    )


@entry(GatherPlan)
def fractional_max_pool2d(
    x: Array, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, *, samples: Array, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Maxima of windows that begin at random (torch.nn.functional.fractional_max_pool2d; Graham 2014).

    x: ([N], C, H, W); give output_size, or output_ratio of x's size. samples: ([N], C, 2), uniform in [0, 1), of x's
    element or its accumulator: window i of an axis begins at ⌊(i + s) a⌋ - ⌊s a⌋ with a = (n - kernel) / (outputs - 1),
    the last at n - kernel; samples[…, 0] is that of the columns, PyTorch's order. The gradient goes to each window's
    first maximum, summed in a fixed order. Calls of gather, so windows are written once.
    """
    options = {"stream": stream, "preference": preference}
    return _pooled(2, x, kernel_size, output_size, output_ratio, samples, out, options)[0]


@entry(GatherPlan)
def fractional_max_pool2d_with_indices(
    x: Array, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, *, samples: Array, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`fractional_max_pool2d`, and the row-major place of each maximum in its plane, int64."""
    options = {"stream": stream, "preference": preference}
    return _pooled(2, x, kernel_size, output_size, output_ratio, samples, out, options)


@entry(GatherPlan)
def fractional_max_pool3d(
    x: Array, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, *, samples: Array, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`fractional_max_pool2d` of x ([N], C, D, H, W); samples ([N], C, 3) are those of depth, rows and columns."""
    options = {"stream": stream, "preference": preference}
    return _pooled(3, x, kernel_size, output_size, output_ratio, samples, out, options)[0]


@entry(GatherPlan)
def fractional_max_pool3d_with_indices(
    x: Array, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, *, samples: Array, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """`fractional_max_pool3d`, and the row-major place of each maximum in its volume, int64."""
    options = {"stream": stream, "preference": preference}
    return _pooled(3, x, kernel_size, output_size, output_ratio, samples, out, options)
