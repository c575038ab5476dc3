"""The launches of a reduction's gradient: what it needs to know of rows, then a map over x and dx."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...core import ElementKind, Geometry, Params, Problem
from ...core.tensor import Shape, View, dense_strides
from ...core.variant import Kernel, Step, aligned
from ...schedules.geometry import Axes, Merged
from ...schedules.map import STRIDED, THREADS, chunked, lay_out, map_params, strided, takes, widths
from ...schedules.reduce import REDUCE, STATE, over, reduce_kernels, reduce_launches, reduce_params

OF_ROWS = ("dy", "y", "dz", "index")  # what the kernel reads one of a row, in its order
STATISTICS = reduce_params("GradientStatisticsParams")
POWERS = reduce_params("GradientPowersParams", ("x",), p="f64")
SLOPES = Params(
    "GradientParams", dx="ptr", x="ptr", **dict.fromkeys(OF_ROWS, "ptr"), statistics="workspace", reduced="f64",
    option="f64", down="i64", each="i64", x_step="i64", dx_step="i64", **REDUCE, **map_params(8),
)  # fmt: skip


def gradient_header(element: ElementKind, kind: Any) -> str:
    """The prelude of a unit: the gradient of its kind, in a file of the name that the functor's has."""
    return f'#include "{kind.row.folder}/gradients/{kind.header.rpartition("/")[2]}"'


def gradient_kernels(kind: str, statistics: bool, powers: bool = False) -> tuple[Kernel, ...]:
    """The kernels of a gradient, with those that find the statistics of rows; `kind` is the C++ type of the functor.

    powers: the statistics are those of powers of magnitudes, whose order is the kind's option.
    """
    slopes = Kernel(
        "slopes", f"reduce_backward<Gradient<{kind}>, {{T}}, {STRIDED}>", SLOPES,
        lambda element: {"VEC": widths(element.itemsize)}, threads=THREADS,
    )  # fmt: skip
    if not statistics:
        return (slopes,)
    down = Kernel(
        "slopes_down", f"reduce_backward_down<Gradient<{kind}>, {{T}}, {{VEC}}>", SLOPES,
        lambda element: {"VEC": widths(element.itemsize)[:1]}, threads=THREADS,
    )  # fmt: skip
    of = f"Gradient<{kind}>::Statistic"
    if powers:
        found = reduce_kernels(of, POWERS, source="Mapped<kinds::Magnitude<{T}>, {T}>")
    else:
        found = reduce_kernels(of, STATISTICS)
    return (*found, slopes, down)


def gradient_geometry(
    p: Problem, reduced: tuple[int, ...], statistics: bool, names: Mapping[str, str | None], option: float = 0.0,
    powers: bool = False,
) -> Geometry | str:  # fmt: skip
    """A map over x and dx of what belongs to rows, after the launches that find their statistics.

    names: of x and `OF_ROWS` those that the op has under another name, or (None) not at all. option: the kind's own.
    powers: as in `gradient_kernels`.
    """
    shape = p.dx.shape
    steps: tuple[Step, ...] = ()
    used, held = 0, None
    if statistics:
        rows = tuple(n for a, n in enumerate(shape) if a not in reduced)
        result = View(0, rows, dense_strides(rows), ElementKind.F64)  # strides count statistics, whatever they hold
        place: dict[str, Any] = {"y": ("@workspace", 0), **({"p": option} if powers else {})}
        found = reduce_launches(
            p.device, (p.x,), (result,), reduced, values=place, base=aligned(math.prod(rows) * STATE), mapped=powers
        )
        if isinstance(found, str):
            return found
        steps, used, held = found.steps, found.used, over(result, shape, reduced)
    given = [p.views.get(name) if name else None for name in (names.get(one, one) for one in OF_ROWS)]
    of_rows = [None if view is None else over(view, shape, reduced) for view in given]
    merged = lay_out((p.dx, p.views.get("x"), *of_rows, held, _places(shape, reduced)))
    if isinstance(merged, str):
        return merged
    vec = next(w for w in widths(p.dx.element.itemsize) if takes(merged, w))
    own = {
        **{one: name or "@null" for one, name in names.items()}, "statistics": 0,
        "reduced": math.prod(shape[a] for a in reduced), "option": option,
    }  # fmt: skip
    layout = merged.layout(merged.inner)
    axis = _downward(merged, vec) if statistics else None
    if axis is not None:
        return Geometry((*steps, _down(p.device.sms, merged, axis, vec, own)), used, layout)
    grid = max(1, -(-(math.prod(shape) // vec) // (THREADS * strided(vec))))
    constants = {**chunked(merged, vec), **own, "down": 0, "each": 0, "x_step": 0, "dx_step": 0}
    slopes = Step("slopes", (grid, 1, 1), constants, {"VEC": vec}, THREADS)
    return Geometry((*steps, slopes), used, layout)


_LEAST = 8  # elements of a row that are worth keeping what is known of it


def _downward(merged: Merged, vec: int) -> int | None:
    """The longest reduced axis, where neighbours along the last axis are chunks of as many rows, of x too."""
    (axes,) = merged.groups
    of_rows = [axes.strides[i] for i in merged.present if i > 1][:-1]  # without the places
    widest = widths(merged.views[0].element.itemsize)[0]  # type: ignore[union-attr]
    if vec != widest or not axes.shape or axes.strides[1][-1] == 0 or any(s[-1] == 0 for s in of_rows):
        return None
    found = [a for a in range(axes.rank) if axes.shape[a] >= _LEAST and not any(s[a] for s in of_rows)]
    return max(found, key=lambda a: axes.shape[a], default=None)


def _down(sms: int, merged: Merged, axis: int, vec: int, own: Mapping[str, Any]) -> Step:
    """The launch that goes down `axis`, in as long parts as leave every multiprocessor some blocks."""
    (axes,) = merged.groups

    def other(values: Sequence[int]) -> Shape:
        return tuple(n for a, n in enumerate(values) if a != axis)

    rest = dataclasses.replace(merged, groups=(Axes(other(axes.shape), tuple(other(s) for s in axes.strides)),))
    across, down = max(1, -(-(axes.count // axes.shape[axis] // vec) // THREADS)), axes.shape[axis]
    each = next((n for n in (64, 32, 16) if across * (down // n) >= 8 * sms), 8)
    each = max(each, -(-down // 65535))
    constants = {
        **chunked(rest, vec), **own, "down": down, "each": each, "dx_step": axes.strides[0][axis],
        "x_step": axes.strides[1][axis],
    }  # fmt: skip
    return Step("slopes_down", (across, -(-down // each), 1), constants, {"VEC": vec}, THREADS)


def _places(shape: Shape, reduced: Sequence[int]) -> View:
    """Not memory: offsets in it are the elements' places in their row, in the row-major order of the reduced axes."""
    strides, step = [0] * len(shape), 1
    for axis in sorted(reduced, reverse=True):
        strides[axis], step = step, step * shape[axis]
    return View(0, shape, tuple(strides), ElementKind.BOOL)
