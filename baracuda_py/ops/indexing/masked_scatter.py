"""masked_scatter: what a mask chooses of x taken from a source in order (torch.masked_scatter), and its gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Plan, Problem, Variant, Vjp, element, extents,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...schedules.compact import KEPT, compact_geometry, compact_kernels, in_order, mask_params, source_fields
from .indexed import MOVED, SUMMED


@dataclass(frozen=True, kw_only=True)
class MaskedScatterDescriptor(Descriptor):
    """x, mask and y have shape `shape`, source any shape, `source_shape`."""

    shape: tuple[int, ...] = extents()
    source_shape: tuple[int, ...] = extents()
    element: ElementKind = element(MOVED)


def chosen(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    """Masks that choose about half, at times none or all."""
    return rng.random(shape) < rng.choice((0.5, 0.5, 0.0, 1.0))


@dataclass(slots=True, kw_only=True)
class MaskedScatterArgs(Args):
    """Any strides; y may be x."""

    x: Array = operand("*shape")
    mask: Array = operand("*shape", element=ElementKind.BOOL, values=chosen)
    source: Array = operand("*source_shape")
    y: Array = output("*shape", inplace=("x",))


def reference(desc: MaskedScatterDescriptor, *, x: Any, mask: Any, source: Any) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    y, flat = np.array(x).reshape(-1), source.reshape(-1)
    places = np.flatnonzero(mask)[: flat.size]
    y[places] = flat[: places.size]
    return {"y": y.reshape(desc.shape)}


PARAMS = mask_params("MaskedScatterParams")


def _geometry(p: Problem) -> Geometry | str:
    return scatter_geometry(p, cyclic=False)


def scatter_geometry(p: Problem, cyclic: bool) -> Geometry | str:
    """The launches of a scatter of `source`, which begins anew where it ends if it is cyclic."""
    merged, source = in_order((p.mask, p.x, p.y)), source_fields(p.source)
    if isinstance(merged, str) or isinstance(source, str):
        return merged if isinstance(merged, str) else str(source)
    params = {
        **merged, **source, "count": "@null", "size": p.source.size, "cyclic": cyclic, "fill": [0, 0],
    }  # fmt: skip
    axes = {"BYTES": p.desc.element.itemsize}
    return compact_geometry("scatter", p.x.size, params, axes, (p.x, p.mask, p.source, p.y))


def in_torch(torch: Any, desc: MaskedScatterDescriptor, *, x: Any, mask: Any, source: Any) -> Any:
    """torch.masked_scatter, which takes no source that is too short."""
    return torch.masked_scatter(x, mask, source) if mask.sum() <= source.numel() else NotImplemented


class MaskedScatterPlan(Plan):
    """y = the r-th element of source at the r-th element of x where `mask` holds, x elsewhere (torch.masked_scatter).

    Both in row-major order. Where the source has fewer elements than the mask chooses, y is x in the place of the rest.
    One pass over mask and x; the same result in every run.
    """

    op = "indexing.masked_scatter"
    descriptor = MaskedScatterDescriptor
    args = MaskedScatterArgs
    raw = True
    reference = staticmethod(reference)
    vjp = Vjp("MaskedScatterBackwardPlan", grads={"x": "dx", "source": "dsource"})
    value_policy = "what the mask chooses beyond the elements of source stays as it is"
    variants = (
        Variant(
            "look_back", _geometry, "indexing/compact.cu", compact_kernels(PARAMS, "scatter"), elements=MOVED,
            guarantee=Guarantee(native=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "half of [16384, 16384] bf16", shape=(16384, 16384), source_shape=(1 << 27,), element="bfloat16",
            make=lambda torch, desc: {"mask": torch.rand(desc.shape) < 0.4999},
        ),
    )  # fmt: skip

    @classmethod
    def check_values(cls, desc: Any, arrays: Mapping[str, Any]) -> str | None:
        wanted, there = int(np.sum(arrays["mask"])), int(np.prod(desc.source_shape, dtype=object))
        return f"source must have the {wanted} elements that mask chooses, it has {there}" if wanted > there else None

    @classmethod
    def coupled(cls, desc: Any) -> bool:
        return True  # by their ranks, which count from the first element of all

    @staticmethod
    def case(draw: Any) -> MaskedScatterDescriptor:
        return MaskedScatterDescriptor(**masked_case(draw))


def masked_case(draw: Any) -> dict[str, Any]:
    """A descriptor's fields: sources too short, enough or too long; now and then several tiles."""
    shape = draw.choice((draw.shape(0, 4, 0, 7), (4100,), (3, 40, 70)))
    source = draw.choice((shape, shape, (5,), (2, 3), (0,), (5000,)))
    return {"shape": shape, "source_shape": source, "element": draw.element}


@dataclass(frozen=True, kw_only=True)
class MaskedScatterBackwardDescriptor(MaskedScatterDescriptor):
    """The forward's fields."""

    element: ElementKind = element(SUMMED)


@dataclass(slots=True, kw_only=True)
class MaskedScatterBackwardArgs(Args):
    """Any strides. A None gradient costs nothing."""

    dy: Array = operand("*shape")
    mask: Array = operand("*shape", element=ElementKind.BOOL)
    dx: Array | None = output("*shape", optional=True, inplace=("dy",))
    dsource: Array | None = output("*source_shape", optional=True)


def backward_reference(
    desc: MaskedScatterBackwardDescriptor, *, dy: Any, mask: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy on the stored values."""
    dx, dsource = np.array(dy).reshape(-1), np.zeros(int(np.prod(desc.source_shape)), dy.dtype)
    places = np.flatnonzero(mask)[: dsource.size]
    dsource[: places.size] = dx[places]
    dx[places] = 0
    made = {"dx": dx.reshape(desc.shape), "dsource": dsource.reshape(desc.source_shape)}
    return {name: made[name] for name in wanted}


BACKWARD_PARAMS = mask_params("MaskedScatterBackwardParams")


def _backward_geometry(p: Problem) -> Geometry | str:
    merged, source = in_order((p.mask, p.dy, p.dx)), source_fields(p.dsource)
    if isinstance(merged, str) or isinstance(source, str):
        return merged if isinstance(merged, str) else str(source)
    size = int(np.prod(p.desc.source_shape, dtype=object))
    params = {
        **merged, **source, "y": "dx", "x": "dy", "source": "dsource", "size": size, "cyclic": False, "fill": [0, 0],
        "count": KEPT,
    }  # fmt: skip
    axes = {"BYTES": p.desc.element.itemsize}
    views, fill = (p.dx, p.dy, p.mask, p.dsource), None if p.dsource is None else "fill"
    return compact_geometry("scatter_backward", p.dy.size, params, axes, views, fill, axes)


class MaskedScatterBackwardPlan(Plan):
    """dx = dy, 0 where the mask chose; dsource = dy there, in order, 0 behind what was taken."""

    op = "indexing.masked_scatter_backward"
    direction = "backward"
    descriptor = MaskedScatterBackwardDescriptor
    args = MaskedScatterBackwardArgs
    raw = True
    reference = staticmethod(backward_reference)
    variants = (
        Variant(
            "look_back", _backward_geometry, "indexing/compact.cu",
            compact_kernels(BACKWARD_PARAMS, "scatter_backward", "fill"), elements=SUMMED,
            guarantee=Guarantee(native=True),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark(
            "half of [16384, 16384] bf16", shape=(16384, 16384), source_shape=(1 << 27,), element="bfloat16",
            also=("dx", "dsource"), make=lambda torch, desc: {"mask": torch.rand(desc.shape) < 0.4999},
        ),
    )  # fmt: skip

    @classmethod
    def coupled(cls, desc: Any) -> bool:
        return True  # by their ranks, which count from the first element of all

    @staticmethod
    def case(draw: Any) -> MaskedScatterBackwardDescriptor:
        return MaskedScatterBackwardDescriptor(**masked_case(draw))


masked_scatter_backward = functional(MaskedScatterBackwardPlan)
