"""place and putmask: what a mask chooses taken from values that repeat (numpy.place, numpy.putmask)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Plan, Problem, Step, Variant, choice, element, extents,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...schedules.compact import (
    THREADS, compact_kernels, in_order, layout_of, mask_params, source_fields,
)  # fmt: skip
from .indexed import MOVED
from .masked_scatter import chosen, scatter_geometry


class PlaceKind(enum.Enum):
    """What tells which value an element takes: how many were chosen before it, or its own place."""

    RANK = "rank"
    POSITION = "position"


@dataclass(frozen=True, kw_only=True)
class PlaceDescriptor(Descriptor):
    """x, mask and y have shape `shape`, values any shape, `source_shape`."""

    shape: tuple[int, ...] = extents()
    source_shape: tuple[int, ...] = extents()
    kind: PlaceKind = choice(PlaceKind)
    element: ElementKind = element(MOVED)


@dataclass(slots=True, kw_only=True)
class PlaceArgs(Args):
    """Any strides; y may be x."""

    x: Array = operand("*shape")
    mask: Array = operand("*shape", element=ElementKind.BOOL, values=chosen)
    source: Array = operand("*source_shape")
    y: Array = output("*shape", inplace=("x",))


def reference(desc: PlaceDescriptor, *, x: Any, mask: Any, source: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    y, flat, places = np.array(x).reshape(-1), source.reshape(-1), np.flatnonzero(mask)
    if flat.size:
        y[places] = flat[(np.arange(places.size) if desc.kind is PlaceKind.RANK else places) % flat.size]
    return {"y": y.reshape(desc.shape)}


PARAMS = mask_params("PlaceParams")


def _by_rank(p: Problem) -> Geometry | str:
    return scatter_geometry(p, cyclic=True)


def _by_position(p: Problem) -> Geometry | str:
    merged, source = in_order((p.mask, p.x, p.y)), source_fields(p.source)
    if isinstance(merged, str) or isinstance(source, str):
        return merged if isinstance(merged, str) else str(source)
    blocks = -(-p.x.size // THREADS)
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    params = {
        **merged, **source, "count": "@null", "states": 0, "elements": p.x.size, "tiles": 0,
        "size": p.source.size, "cyclic": True, "fill": [0, 0],
    }  # fmt: skip
    step = Step("cycle", (max(blocks, 1), 1, 1), params, {"BYTES": p.desc.element.itemsize}, THREADS)
    return Geometry((step,), layout=layout_of((p.x, p.mask, p.source, p.y)))


def in_torch(torch: Any, desc: PlaceDescriptor, *, x: Any, mask: Any, source: Any) -> Any:
    """torch's boolean assignment of the values repeated."""
    places, flat, y = torch.nonzero(mask.reshape(-1))[:, 0], source.reshape(-1), x.clone().reshape(-1)
    if flat.numel():
        which = torch.arange(places.numel()) if desc.kind is PlaceKind.RANK else places
        y[places] = flat[which % flat.numel()]
    return y.reshape(desc.shape)


class PlacePlan(Plan):
    """y = x, but element r mod n of the n in `source` where `mask` holds, both in row-major order.

    rank: r counts the elements that the mask chooses (numpy.place); position: all elements (numpy.putmask). Where the
    source is empty y is x. It has no gradient: see masked_scatter and where.
    """

    op = "indexing.place"
    kinds = PlaceKind
    descriptor = PlaceDescriptor
    args = PlaceArgs
    raw = True
    reference = staticmethod(reference)
    variants = (
        Variant(
            "look_back", _by_rank, "indexing/compact.cu", compact_kernels(PARAMS, "scatter"), elements=MOVED,
            kinds=(PlaceKind.RANK,), guarantee=Guarantee(native=True),
        ),
        Variant(
            "map", _by_position, "indexing/compact.cu", compact_kernels(PARAMS, "cycle", clears=False), elements=MOVED,
            kinds=(PlaceKind.POSITION,), guarantee=Guarantee(native=True, batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "rank, half of [16384, 16384] bf16", kind="rank", shape=(16384, 16384), source_shape=(1 << 20,),
            element="bfloat16", make=lambda torch, desc: {"mask": torch.rand(desc.shape) < 0.5},
        ),
    )  # fmt: skip

    @classmethod
    def coupled(cls, desc: Any) -> bool:
        return True  # by their ranks, which count from the first element of all

    @staticmethod
    def case(draw: Any) -> PlaceDescriptor:
        shape = draw.choice((draw.shape(0, 4, 0, 7), (4100,), (3, 40, 70)))
        source = draw.choice(((), (5,), (2, 3), (0,), (5000,)))
        return PlaceDescriptor(shape=shape, source_shape=source, kind=draw.kind, element=draw.element)


place = functional(PlacePlan, "place", kind=PlaceKind.RANK)
putmask = functional(PlacePlan, "putmask", kind=PlaceKind.POSITION)
