"""gradient: slopes of x along its axes from differences of neighbours (numpy.gradient, torch.gradient)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.checked import shown
from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Params, Plan, Problem, Relative, Scalar, Variant, Vjp,
    axis, choice, element, extents, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import HALVES, cast
from ...core.errors import InvalidProblemError
from ...calls.entries import entry
from ...core.outputs import each_of
from ...core.tensor import Shape, View
from ...core.variant import Kernel, Step
from ...core.arrays import read
from ...core.numbers import plain
from ...schedules.geometry import Axes, Merged
from ...schedules.map import THREADS, chunked, lay_out, map_params, strided, takes


@dataclass(frozen=True, kw_only=True)
class FiniteGradientDescriptor(Descriptor):
    """x and y have shape `shape`; slopes are along `axis`, whose extent is more than edge_order.

    edge_order: of the error at the ends, 1 (two elements) or 2 (three).
    """

    shape: Shape = extents()
    axis: int = axis(-1)
    edge_order: int = choice((1, 2), 1)
    element: ElementKind = element()

    def validate(self) -> None:
        if self.extent <= self.edge_order:
            raise InvalidProblemError(
                f"shape must have more than {self.edge_order} elements along axis {self.axis} for edge_order "
                f"{self.edge_order}, got {self.shape}"
            )

    @property
    def extent(self) -> int:
        """Elements along the axis."""
        return self.shape[self.axis]


@dataclass(slots=True, kw_only=True)
class FiniteGradientArgs(Args):
    """Any strides. places: where the elements are along the axis; without it neighbours are `spacing` apart."""

    x: Array = operand("*shape")
    places: Array | None = operand("extent", optional=True)
    spacing: Scalar = scalar(1.0)
    y: Array = output("*shape")


def _shares(desc: FiniteGradientDescriptor, dtype: Any, places: Any, spacing: Any) -> Any:
    """How often slope i takes element j, at [i, j]: the coefficients of numpy.gradient."""
    n = desc.extent
    widths = np.full(n - 1, spacing, dtype) if places is None else np.diff(places)
    shares = np.zeros((n, n), dtype)
    h, k = widths[:-1], widths[1:]
    both = h + k
    even = h == k  # also of elements that are all at one place
    uneven = (-(k / both) / h, (k - h) / h / k, h / both / k)
    for offset, (share, same) in enumerate(zip(uneven, (-1 / both, 0, 1 / both), strict=True)):
        share = np.where(even, same, share)
        shares[np.arange(1, n - 1), np.arange(n - 2) + offset] = share
    if desc.edge_order == 1:
        shares[0, :2] = -1 / widths[0], 1 / widths[0]
        shares[-1, -2:] = -1 / widths[-1], 1 / widths[-1]
    else:
        shares[0, :3] = -(1 + h[0] / both[0]) / h[0], both[0] / h[0] / k[0], -(h[0] / both[0]) / k[0]
        shares[-1, -3:] = k[-1] / both[-1] / h[-1], -(both[-1] / h[-1] / k[-1]), (1 + k[-1] / both[-1]) / k[-1]
    return shares


def _combined(shares: Any, x: Any, along: int) -> Any:
    """shares times x along an axis; what is taken 0 times is not read."""
    rows = np.moveaxis(x, along, -1)
    made = np.zeros_like(rows)
    for i, j in np.argwhere(shares):
        made[..., i] += shares[i, j] * rows[..., j]
    return np.moveaxis(made, -1, along)


def reference(desc: FiniteGradientDescriptor, *, x: Any, places: Any, spacing: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    with np.errstate(all="ignore"):
        shares = _shares(desc, x.dtype, places, spacing)
        y = _combined(shares, x, desc.axis)
        rows, slopes = (np.moveaxis(one, desc.axis, -1) for one in (x, y))
        for i in np.flatnonzero(np.isinf(shares).any(1)):  # between elements at one place
            read = np.flatnonzero(shares[i])
            steps = np.diff(rows[..., read])
            low, high = -shares[i, read[0]], shares[i, read[-1]]
            slopes[..., i] = low * steps[..., 0] + (high * steps[..., 1] if read.size > 2 else 0)
        return {"y": y}


_CHUNKS = 2  # of a thread
PARAMS = Params(
    "FiniteGradientParams", y="ptr", x="ptr", places="ptr", spacing="scalar", extent="i64", step="i64",
    place_step="i64", edge_order="i32", gradient_chunks=_CHUNKS, **map_params(3),
)  # fmt: skip


def _launch(p: Problem, y: View, x: View, names: Mapping[str, str], room: int) -> Geometry | str:
    """Elements equally apart by chunks, along another axis or the axis itself; else, and by places, one by one.

    room: how many elements at either end are not as those inside.
    """
    desc, along = p.desc, p.desc.axis
    row = View(x.ptr, x.shape, tuple(0 if a == along else s for a, s in enumerate(x.strides)), x.element)
    numbers = View(0, x.shape, tuple(int(a == along) for a in range(len(x.shape))), ElementKind.BOOL)
    merged = lay_out((y, row, numbers))
    if isinstance(merged, str):
        return merged
    places = p.places
    wide = 16 // x.element.itemsize
    constants = {
        **names, "extent": desc.extent, "step": x.strides[along], "edge_order": desc.edge_order,
        "place_step": 0 if places is None else places.strides[0],
    }  # fmt: skip
    made = None if places is not None else _chunks(merged, y, x, numbers, x.strides[along], wide)
    steps = [] if made is None else [_step(made[1], made[0], wide, _CHUNKS, constants)]
    if made is not None and made[1] == "along":
        ends = lay_out([_ends(view, along, room) for view in (y, row, numbers)])
        if isinstance(ends, str) or desc.extent < 2 * room:
            steps.clear()
        else:
            steps.append(_step("elements", ends, 1, strided(1), constants))
    return Geometry(tuple(steps or [_step("elements", merged, 1, strided(1), constants)]), layout="strided")


def _step(kernel: str, merged: Merged, vec: int, each: int, constants: Mapping[str, Any]) -> Step:
    """A launch with `each` chunks of `vec` elements a thread."""
    blocks = max(1, -(-(merged.groups[0].count // vec) // (THREADS * each)))
    params = {**constants, **chunked(merged, vec)}
    return Step(kernel, (blocks, 1, 1), params, {"VEC": vec} if vec > 1 else {}, THREADS)


def _ends(view: View, axis: int, room: int) -> View:
    """`room` elements at either end of an axis, both of which are an axis in front."""
    shape = (2, *view.shape[:axis], room, *view.shape[axis + 1 :])
    return View(view.ptr, shape, ((view.shape[axis] - room) * view.strides[axis], *view.strides), view.element)


def _chunks(merged: Merged, y: View, x: View, numbers: View, step: int, vec: int) -> tuple[Merged, str] | None:
    """The axes and the kernel for chunks of `vec` elements, None where operands are not aligned to them."""

    def place_moves(found: Merged) -> int:
        (axes,) = found.groups
        return axes.strides[2][-1] if axes.shape else 0

    def plain(found: Merged) -> bool:
        (axes,) = found.groups
        return takes(found, vec) and bool(axes.shape) and axes.strides[0][-1] == axes.strides[1][-1] == 1

    if plain(merged) and not place_moves(merged) and step % vec == 0:
        return merged, "across"
    if step != 1 or isinstance(whole := lay_out((y, x, numbers)), str):
        return None
    # The kernel adds an element's place to its row: what x moves along the axis is counted once.
    (axes,) = whole.groups
    if plain(whole) and place_moves(whole) == 1:
        rows = tuple(s - n for s, n in zip(axes.strides[1], axes.strides[2], strict=True))
        split = Axes(axes.shape, (axes.strides[0], rows, axes.strides[2]))
        return dataclasses.replace(whole, groups=(split,)), "along"
    return None


def _kernels(backward: bool) -> tuple[Kernel, ...]:
    flag = str(backward).lower()
    vec: Any = lambda element: {"VEC": (16 // element.itemsize,)}  # noqa: E731
    return (
        Kernel("elements", f"finite_gradient<{{T}}, {flag}>", PARAMS, threads=THREADS),
        *(
            Kernel(
                way,
                f"finite_gradient_chunks<{{T}}, {{VEC}}, {flag}, {along}>",
                PARAMS,
                vec,
                threads=THREADS,
                min_blocks=3,
            )
            for way, along in (("across", "false"), ("along", "true"))
        ),
    )


def in_torch(torch: Any, desc: FiniteGradientDescriptor, *, x: Any, places: Any, spacing: Any) -> Any:
    """torch.gradient."""
    steps = (float(spacing),) if places is None else (places,)
    return torch.gradient(x, spacing=steps, dim=desc.axis, edge_order=desc.edge_order)[0]


def placed(desc: FiniteGradientDescriptor, arrays: dict[str, Any]) -> None:
    """Places rise by a half to one and a half, so that no slope is a quotient of roundings.

    Of 16 bits many such would coincide: those rise from 1 by one or two of the element's own steps.
    """
    if arrays["places"] is None:
        return
    rng = np.random.default_rng(desc.extent)
    if desc.element in HALVES:
        codes = cast(np.ones(()), desc.element).view(np.uint16) + np.cumsum(rng.integers(1, 3, desc.extent))
        arrays["places"] = codes.astype(np.uint16).view(desc.element.dtype)
    else:
        arrays["places"] = np.array(cast(np.cumsum(rng.uniform(0.5, 1.5, desc.extent)), desc.element))


class FiniteGradientPlan(Plan):
    """y = the slope of x along `axis`: central differences of second order inside, of edge_order at the ends.

    With widths h before and k behind an element (places[i + 1] - places[i], or `spacing`) it is
    (k/h (x[i] - x[i - 1]) + h/k (x[i + 1] - x[i])) / (h + k), and (x[i + 1] - x[i - 1]) / (h + k) where both are equal
    (Quarteroni, Sacco and Saleri 2007; numpy.gradient). Everything is computed in float64. Where elements are at one
    place slopes are infinite or NaN. places has no gradient.
    """

    op = "scan.finite_gradient"
    descriptor = FiniteGradientDescriptor
    args = FiniteGradientArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "map", lambda p: _launch(p, p.y, p.x, {}, 1), source="scan/finite_gradient.cu",
            kernels=_kernels(False), guarantee=Guarantee(Relative(4), math="float64", batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    vjp = Vjp("FiniteGradientBackwardPlan", grads={"x": "dx"})
    benchmarks = tuple(
        Benchmark(f"[16384, 8192] bf16, axis {along}", shape=(16384, 8192), axis=along, element="bfloat16")
        for along in (1, 0)
    )

    @staticmethod
    def case(draw: Any) -> FiniteGradientDescriptor:
        order = draw.choice((1, 2))
        n = draw.choice((order + 1, order + 2, 5, 40, 304))
        shape = draw.choice(((n,), (3, n), (n, 17), (n, 32), (2, n, 9), (0, n)))
        along = next(a for a, extent in enumerate(shape) if extent == n)
        return FiniteGradientDescriptor(shape=shape, axis=along, edge_order=order, element=draw.element)

    @classmethod
    def complete(cls, desc: FiniteGradientDescriptor, arrays: dict[str, Any]) -> None:
        placed(desc, arrays)


# ---- backward -------------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class FiniteGradientBackwardArgs(Args):
    """Any strides; places and spacing are the forward's."""

    dy: Array = operand("*shape")
    places: Array | None = operand("extent", optional=True)
    spacing: Scalar = scalar(1.0)
    dx: Array = output("*shape")


def backward_reference(desc: FiniteGradientDescriptor, *, dy: Any, places: Any, spacing: Any) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in."""
    with np.errstate(all="ignore"):
        return {"dx": _combined(_shares(desc, dy.dtype, places, spacing).T, dy, desc.axis)}


class FiniteGradientBackwardPlan(Plan):
    """dx of `FiniteGradientPlan`: every slope hands dy back to the elements that it reads."""

    op = "scan.finite_gradient_backward"
    direction = "backward"
    descriptor = FiniteGradientDescriptor
    args = FiniteGradientBackwardArgs
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "map", lambda p: _launch(p, p.dx, p.dy, {"x": "dy", "y": "dx"}, 3),
            source="scan/finite_gradient.cu", kernels=_kernels(True),
            guarantee=Guarantee(Relative(4), math="float64", batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (Benchmark("[16384, 8192] bf16, axis 1", shape=(16384, 8192), axis=1, element="bfloat16"),)
    case = staticmethod(FiniteGradientPlan.case)

    @classmethod
    def complete(cls, desc: FiniteGradientDescriptor, arrays: dict[str, Any]) -> None:
        placed(desc, arrays)


_slopes: Any = functional(FiniteGradientPlan, "finite_gradient")
_slopes_backward: Any = functional(FiniteGradientBackwardPlan, "finite_gradient_backward")


def _axes(x: Any, along: Any) -> tuple[int, ...]:
    rank = len(read(x, "x").shape)
    wanted = range(rank) if along is None else along if isinstance(along, (tuple, list)) else (along,)
    found = []
    for one in map(plain, wanted):
        if type(one) is not int or not -rank <= one < rank:
            raise InvalidProblemError(f"axis must be None, or integers in [{-rank}, {rank}), got {shown(along)}")
        found.append(one % rank)
    if len(set(found)) < len(found):
        raise InvalidProblemError(f"axis names an axis twice, got {shown(along)}")
    return tuple(found)


def _distances(spacing: Sequence[Any], count: int) -> list[dict[str, Any]]:
    """The keywords of each axis: one distance for all, or a number, or an array of places, for each."""
    if len(spacing) not in (0, 1, count):
        raise InvalidProblemError(f"spacing must be one for all of {count} axes or one for each, got {len(spacing)}")
    made: list[dict[str, Any]] = []
    for one in map(plain, spacing or (1.0,)):
        number = isinstance(one, (int, float)) or not read(one, "spacing").shape
        made.append({"spacing": one} if number else {"places": one})
    if len(made) == 1 < count and "places" in made[0]:
        raise InvalidProblemError(f"places are those of one axis: give an array for each of {count} axes, or axis=")
    return made * count if len(made) == 1 else made


@entry(FiniteGradientPlan)
def gradient(
    x: Array, *spacing: Any, axis: Any = None, edge_order: int = 1, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The slopes of x along each of `axis` (all by default), a tuple unless that is one (numpy.gradient).

    spacing: nothing (1), a number for all axes, or for each axis a number or the places of its elements. One launch an
    axis; see `FiniteGradientPlan`. torch.gradient's spacing is the same by keyword, and its result a tuple always.
    """
    options = {"edge_order": edge_order, "stream": stream, "preference": preference}
    along = _axes(x, axis)
    found = tuple(
        _slopes(x, **distance, axis=one, out=y, **options)
        for one, distance, y in zip(along, _distances(spacing, len(along)), each_of(out, len(along)), strict=True)
    )
    return found[0] if len(found) == 1 else found


@entry(FiniteGradientBackwardPlan)
def gradient_backward(
    dy: Array, *spacing: Any, axis: int = -1, edge_order: int = 1, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """dx of `gradient` along one axis; those of several add up."""
    (along,) = _axes(dy, (axis,))
    (distance,) = _distances(spacing, 1)
    options = {"edge_order": edge_order, "out": out, "stream": stream, "preference": preference}
    return _slopes_backward(dy, **distance, axis=along, **options)
