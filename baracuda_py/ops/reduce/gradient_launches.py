"""The launches of a reduction's gradient: what it needs to know of rows, then a map over x and dx."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ...core import ElementKind, Geometry, Params, Problem, where
from ...core.element import HALVES
from ...core.tensor import Shape, View, dense_strides
from ...core.variant import Kernel, Spills, Step, aligned
from ...schedules.map import THREADS, chunked, lay_out, map_params, takes, widths
from ...schedules.reduce import STATE, over, reduce_kernels, reduce_launches, reduce_params
from .reduce_kinds import ReduceKind

OF_ROWS = ("dy", "y", "dz", "index")  # what the kernel reads one of a row, in its order
STATISTICS = reduce_params("GradientStatisticsParams")
SLOPES = Params(
    "GradientParams", dx="ptr", x="ptr", **dict.fromkeys(OF_ROWS, "ptr"), statistics="workspace", reduced="f64",
    option="f64", **map_params(8),
)  # fmt: skip

_SPREADS = (ReduceKind.NANVAR, ReduceKind.NANSTD)
_PRODUCTS = (ReduceKind.PROD, ReduceKind.NANPROD)
_SPILLS: Spills = {  # of wide chunks, and of complex numbers
    "rows": where(kind=ReduceKind.PROD, element=ElementKind.C64),
    "columns": where(kind=_SPREADS, element=HALVES, VEC=8),
    "slopes": where(kind=_PRODUCTS, element=HALVES, VEC=8)
    | where(kind=ReduceKind.L1_NORM, element=ElementKind.C128, VEC=1),
}


def gradient_kernels(kind: str, statistics: bool) -> tuple[Kernel, ...]:
    """The kernels of a gradient, with those that find the statistics of rows; `kind` is the C++ type of the functor."""
    slopes = Kernel(
        "slopes", f"reduce_backward<Gradient<{kind}>, {{T}}, Strided<{{VEC}}>>", SLOPES,
        lambda element: {"VEC": widths(element.itemsize)}, threads=THREADS, spills=_SPILLS["slopes"],
    )  # fmt: skip
    found = reduce_kernels(f"Gradient<{kind}>::Statistic", STATISTICS, _SPILLS) if statistics else ()
    return (*found, slopes)


def gradient_geometry(
    p: Problem, reduced: tuple[int, ...], statistics: bool, names: Mapping[str, str | None], option: float = 0.0
) -> Geometry | str:  # fmt: skip
    """A map over x and dx of what belongs to rows, after the launches that find their statistics.

    names: of x and `OF_ROWS` those that the op has under another name, or (None) not at all. option: the kind's own.
    """
    shape = p.dx.shape
    steps: tuple[Step, ...] = ()
    used, held = 0, None
    if statistics:
        rows = tuple(n for a, n in enumerate(shape) if a not in reduced)
        result = View(0, rows, dense_strides(rows), ElementKind.F64)  # strides count statistics, whatever they hold
        place = {"y": ("@workspace", 0)}
        found = reduce_launches(
            p.device, (p.x,), (result,), reduced, values=place, base=aligned(math.prod(rows) * STATE)
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
    grid = max(1, -(-(math.prod(shape) // vec) // (THREADS * (2 if vec > 1 else 4))))  # chunks a thread: `Strided`
    constants = {
        **chunked(merged, vec), **{one: name or "@null" for one, name in names.items()}, "statistics": 0,
        "reduced": math.prod(shape[a] for a in reduced), "option": option,
    }  # fmt: skip
    slopes = Step("slopes", (grid, 1, 1), constants, {"VEC": vec}, THREADS)
    return Geometry((*steps, slopes), used, merged.layout(merged.inner))


def _places(shape: Shape, reduced: Sequence[int]) -> View:
    """Not memory: offsets in it are the elements' places in their row, in the row-major order of the reduced axes."""
    strides, step = [0] * len(shape), 1
    for axis in sorted(reduced, reverse=True):
        strides[axis], step = step, step * shape[axis]
    return View(0, shape, tuple(strides), ElementKind.BOOL)
