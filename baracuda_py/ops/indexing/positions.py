"""ravel_multi_index and unravel_index: row-major positions of coordinates, and back (NumPy's names; torch's)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant, choice,
    element, extents, operand, output, shapes,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ...core.checked import checked, truth
from ...core.element import INDICES
from ...core.errors import InvalidProblemError
from ...core.tensor import Shape, dense_strides
from ...schedules.keys import KEYS, MODES, position_kernel, position_params, position_step
from ...schedules.map import THREADS, chunked, lay_out, map_params
from .indexed import ELEMENTS, broadcast_together, located, mistaken, random_positions

NOWHERE = np.iinfo(np.int64).min
I64 = (ElementKind.I64,)


def _order(name: str, value: Any) -> bool:
    """True, False, or NumPy's order: "F" of the first axis fastest, "C" of the last."""
    return value == "F" if isinstance(value, str) and value in ("C", "F") else truth(name, value)


def _steps(desc: Any) -> tuple[int, ...]:
    """How far positions lie apart along each axis."""
    return dense_strides(desc.dims[::-1])[::-1] if desc.first_fastest else dense_strides(desc.dims)


@dataclass(frozen=True, kw_only=True)
class RavelMultiIndexDescriptor(Descriptor):
    """An index of each axis of an array of shape `dims`; they broadcast together.

    first_fastest: the first axis moves fastest (NumPy's order "F"), not the last.
    """

    index_shapes: tuple[tuple[int, ...], ...] = shapes()
    dims: tuple[int, ...] = extents()
    mode: str = choice(MODES, "strict")
    first_fastest: bool = checked(_order, False, accepts="bool | Literal['C', 'F']")
    element: ElementKind = element(I64, ElementKind.I64)

    def validate(self) -> None:
        """An index for each axis."""
        if len(self.dims) != len(self.index_shapes) or not 1 <= len(self.dims) <= KEYS:
            raise InvalidProblemError(
                f"dims must have an extent for each of the indices, 1 to {KEYS}; got {self.dims} for "
                f"{len(self.index_shapes)} indices"
            )
        broadcast_together(self.index_shapes)

    @property
    def out_shape(self) -> Shape:
        """The shape that the indices broadcast to."""
        return broadcast_together(self.index_shapes)


@dataclass(slots=True, kw_only=True)
class RavelMultiIndexArgs(Args):
    """Any strides; each index is int64 or int32."""

    indices: list[Array] = operand(many="index_shapes", element=ELEMENTS)
    y: Array = output("*out_shape")


def _placed(index: Any, extent: int, mode: str) -> tuple[Any, Any]:
    """(positions, known) of an index in a mode."""
    index = np.asarray(index)
    if mode == "from_end":
        return located(index, extent)
    named = (index != np.iinfo(index.dtype).min) & (extent > 0)
    wide = index.astype(np.int64)
    if mode == "wrap":
        return np.where(named, wide % max(extent, 1), 0), named
    if mode == "clip":
        return np.where(named, np.clip(wide, 0, max(extent - 1, 0)), 0), named
    known = (wide >= 0) & (wide < extent)
    return np.where(known, wide, 0), known


def ravel_reference(desc: RavelMultiIndexDescriptor, *, indices: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    y, known = np.zeros(desc.out_shape, np.int64), np.ones(desc.out_shape, bool)
    for index, extent, step in zip(indices, desc.dims, _steps(desc), strict=True):
        at, here = _placed(index, extent, desc.mode)
        y, known = y + at * step, known & here
    return {"y": np.where(known, y, NOWHERE)}


PARAMS = position_params("RavelMultiIndexParams")


def _geometry(p: Problem) -> Geometry | str:
    keys = [one.broadcast_to(p.y.shape) for one in p.indices]
    step = position_step(p.y, keys, p.desc.dims, _steps(p.desc), mode=p.desc.mode)
    if isinstance(step, str):
        return step
    dense = all(view.dense for view in (p.y, *keys))
    return Geometry((step,), layout="contiguous" if dense else "strided")


def ravel_in_torch(torch: Any, desc: RavelMultiIndexDescriptor, *, indices: Any) -> Any:
    """Sums of products."""
    total = torch.zeros(desc.out_shape, dtype=torch.int64)
    for index, extent, step in zip(indices, desc.dims, _steps(desc), strict=True):
        index = index.long()
        if desc.mode == "wrap":
            index = index % extent
        elif desc.mode == "clip":
            index = index.clamp(0, extent - 1)
        total = total + torch.where(index < 0, index + extent, index) * step
    return total


def _known(torch: Any, desc: Any) -> Mapping[str, Any]:
    pairs = zip(desc.dims, desc.index_shapes, strict=True)
    return {"indices": [torch.randint(0, extent, shape) for extent, shape in pairs]}


class RavelMultiIndexPlan(Plan):
    """y = the position, in an array of shape `dims`, that an index of each of its axes names (numpy.ravel_multi_index).

    mode: indices in [0, extent) (strict), from the end where negative (from_end), modulo the extent (wrap), or moved to
    the ends (clip). Where one names nothing y is the least int64; so it is, whatever the mode, where an index is the
    least number of its type or its axis is empty.
    """

    op = "indexing.ravel_multi_index"
    descriptor = RavelMultiIndexDescriptor
    args = RavelMultiIndexArgs
    raw = True
    reference = staticmethod(ravel_reference)
    value_policy = "where an index is out of range y is the least int64"
    variants = (
        Variant(
            "map", _geometry, "indexing/index.cu", (position_kernel(PARAMS),), elements=I64,
            guarantee=Guarantee(native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(ravel_in_torch)
    benchmarks = (
        Benchmark(
            "2 × 16M", index_shapes=((1 << 24,), (1 << 24,)), dims=(4096, 4096), element="int64", work=BYTES,
            make=_known,
        ),
    )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Indices of the range of their axes."""
        rng = np.random.default_rng(sum(desc.dims))
        pairs = zip(desc.dims, arrays["indices"], strict=True)
        arrays["indices"] = [random_positions(rng, extent, one.shape).astype(one.dtype) for extent, one in pairs]

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        for extent, index in zip(desc.dims, arrays["indices"], strict=True):
            named = np.asarray(index) != np.iinfo(np.asarray(index).dtype).min
            if (named & ~_placed(index, extent, desc.mode)[1]).any():
                return f"an index must name a position of an axis of {extent}"
        return None

    @staticmethod
    def case(draw: Any) -> RavelMultiIndexDescriptor:
        dims = draw.choice((draw.shape(1, 4, 1, 9), (4,) * 8, (3, 0)))
        own = draw.choice(((), (5,), (3, 4), (300,), (0,)))
        index = tuple(own if k == 0 else tuple(1 if draw.flag() else n for n in own) for k in range(len(dims)))
        mode = draw.choice(MODES)
        return RavelMultiIndexDescriptor(index_shapes=index, dims=dims, mode=mode, first_fastest=draw.flag())


# ---- back -----------------------------------------------------------------------------------------------------------

MOST_AXES = 32


@dataclass(frozen=True, kw_only=True)
class UnravelIndexDescriptor(Descriptor):
    """Positions of shape `shape` in an array of shape `dims`; first_fastest as in `RavelMultiIndexDescriptor`."""

    shape: tuple[int, ...] = extents()
    dims: tuple[int, ...] = extents()
    first_fastest: bool = checked(_order, False, accepts="bool | Literal['C', 'F']")
    element: ElementKind = element(INDICES)

    @property
    def rank(self) -> int:
        """Axes of the array."""
        return len(self.dims)


@dataclass(slots=True, kw_only=True)
class UnravelIndexArgs(Args):
    """Any strides."""

    x: Array = operand("*shape", values=lambda rng, desc, shape: random_positions(rng, math.prod(desc.dims), shape))
    y: Array = output("rank *shape", element=ElementKind.I64)


def unravel_reference(desc: UnravelIndexDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    at, known = located(x, math.prod(desc.dims))
    y = np.full((desc.rank, *desc.shape), NOWHERE, np.int64)
    for k, (extent, step) in enumerate(zip(desc.dims, _steps(desc), strict=True)):
        y[k] = np.where(known, at // step % max(extent, 1), NOWHERE)
    return {"y": y}


UNRAVEL_PARAMS = Params(
    "UnravelIndexParams", y="ptr", x="ptr", status="status", extent="i64", extents=f"i64[{MOST_AXES}]",
    places=f"i64[{MOST_AXES}]", axes="i32", wide="i32", IndexMode=MODES, **map_params(2),
)  # fmt: skip


def _unravel_geometry(p: Problem) -> Geometry | str:
    desc, (step, *strides) = p.desc, p.y.strides
    if not desc.dims:
        return Geometry(())
    found = lay_out((type(p.y)(p.y.ptr, p.x.shape, tuple(strides), p.y.element), p.x))
    if isinstance(found, str):
        return found
    order = range(desc.rank)[::-1] if desc.first_fastest else range(desc.rank)
    rest = (0,) * (MOST_AXES - desc.rank)
    params = {
        **chunked(found, 1), "extent": math.prod(desc.dims), "extents": [*(desc.dims[k] for k in order), *rest],
        "places": [*(k * step for k in order), *rest], "axes": desc.rank, "wide": p.x.element is ElementKind.I64,
    }  # fmt: skip
    grid = max(1, -(-found.groups[0].count // THREADS))
    dense = p.x.dense and p.y.dense
    return Geometry(
        (Step("coordinates", (grid, 1, 1), params, {}, THREADS),), layout="contiguous" if dense else "strided"
    )


def unravel_in_torch(torch: Any, desc: UnravelIndexDescriptor, *, x: Any) -> Any:
    """Quotients and remainders."""
    x = x.long()
    x = torch.where(x < 0, x + math.prod(desc.dims), x)
    made = [x // step % extent for extent, step in zip(desc.dims, _steps(desc), strict=True)]
    return torch.stack(made) if made else torch.zeros((0, *desc.shape), dtype=torch.int64)


class UnravelIndexPlan(Plan):
    """y[k] = coordinate k, in an array of shape `dims`, of the position x (numpy.unravel_index, torch.unravel_index).

    A negative position counts from the end. Where x lies outside the array all its coordinates are the least int64.
    """

    op = "indexing.unravel_index"
    descriptor = UnravelIndexDescriptor
    args = UnravelIndexArgs
    raw = True
    reference = staticmethod(unravel_reference)
    value_policy = "where x lies outside the array its coordinates are the least int64"
    variants = (
        Variant(
            "map", _unravel_geometry, "indexing/index.cu",
            (Kernel("coordinates", "index_coordinates", UNRAVEL_PARAMS, threads=THREADS),), elements=INDICES,
            guarantee=Guarantee(native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(unravel_in_torch)
    benchmarks = (
        Benchmark(
            "16M of 3 axes", shape=(1 << 24,), dims=(256, 256, 256), element="int64", work=BYTES,
            make=lambda torch, desc: {"x": torch.randint(0, 1 << 24, desc.shape)},
        ),
    )  # fmt: skip

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        extent = math.prod(desc.dims)
        return f"x must lie in [{-extent}, {extent})" if mistaken(arrays["x"], extent) else None

    @staticmethod
    def case(draw: Any) -> UnravelIndexDescriptor:
        dims = draw.choice((draw.shape(0, 4, 1, 9), (2,) * 10, (3, 0)))
        return UnravelIndexDescriptor(
            shape=draw.shape(0, 3, 0, 9), dims=dims, first_fastest=draw.flag(), element=draw.element
        )


ravel_multi_index = functional(RavelMultiIndexPlan, positional=("dims", "mode", "first_fastest"))
unravel_index = functional(UnravelIndexPlan, positional=("dims", "first_fastest"))
