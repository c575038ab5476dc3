"""distance_transform: from every place to the nearest that is 0 (scipy.ndimage's distance_transform_edt and _cdt)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.entries import entry
from ...calls.functional import functional
from ...core import (
    Args, Array, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant, View, choice,
    element, flag, operand, output,
)  # fmt: skip
from ...core.benchmark import BYTES, Benchmark
from ...core.checked import whole
from ...core.errors import InvalidProblemError
from ...core.variant import aligned
from .interpolate import reals
from .volumes import MASKS, MOST, VolumeDescriptor, random_mask, volume_params, volume_shape, volume_values

THREADS, SEGMENT = 256, 32  # of a block; places along an axis that are left out together
METRICS = ("euclidean", "cityblock", "chessboard")
ALIASES = {"taxicab": "cityblock", "manhattan": "cityblock"}  # as SciPy calls it, too
F32, F64 = ElementKind.F32, ElementKind.F64


@dataclass(frozen=True, kw_only=True)
class DistanceTransformDescriptor(VolumeDescriptor):
    """sampling: how far apart places are, a number or one for each axis; squared: of the Euclidean distance."""

    metric: str = choice(METRICS, "euclidean")
    sampling: Any = reals((1.0,))
    squared: bool = flag(False)
    distance_element: ElementKind = element((F32, F64), F32)

    def validate(self) -> None:
        """Distances that there are."""
        super().validate()
        if len(self.sampling) not in (1, self.rank) or not all(0 < step < math.inf for step in self.sampling):
            raise InvalidProblemError(
                f"sampling must be a finite number above 0, or {self.rank} of them, got {self.sampling}"
            )
        if self.squared and self.metric != "euclidean":
            raise InvalidProblemError(f"squared is of the Euclidean distance, got metric {self.metric!r}")

    @property
    def spacing(self) -> tuple[float, ...]:
        """How far apart places are along each axis."""
        return tuple(self.sampling) * (self.rank if len(self.sampling) == 1 else 1)

    @property
    def whole(self) -> bool:
        """Whether distances, squared ones of the Euclidean, are integers of 32 bits."""
        most = sum((max(n, 1) - 1) ** (2 if self.metric == "euclidean" else 1) for n in self.space)
        return set(self.spacing) == {1.0} and most < MOST


@dataclass(slots=True, kw_only=True)
class DistanceTransformArgs(Args):
    """Any strides. indices: the nearest place's coordinates, the first axis first, -1 where no place is 0."""

    x: Array = operand("*shape", values=random_mask)
    distance: Array = output("*shape", element="distance_element")
    indices: Array | None = output("rank *shape", element=ElementKind.I32, optional=True)


def reference(desc: DistanceTransformDescriptor, *, x: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy: along each axis, from the last to the first, the least way, of equal ones to the lowest place."""
    shape = (desc.batches, *desc.space)
    found = np.where(np.reshape(np.asarray(x) == 0, shape), 0.0, np.inf)
    near = np.broadcast_to(np.indices(desc.space), (desc.batches, desc.rank, *desc.space))
    if desc.places:
        for axis in range(desc.rank, 0, -1):
            steps = np.arange(shape[axis])
            ways = np.abs(steps[:, None] - steps) * desc.spacing[axis - 1]
            ways = (ways * ways if desc.metric == "euclidean" else ways).reshape(len(steps), len(steps), 1)
            lines = np.moveaxis(found, axis, -1).reshape(-1, 1, len(steps))
            join = np.maximum if desc.metric == "chessboard" else np.add
            all_ways = join(lines, ways[None, :, :, 0])
            at = np.moveaxis(np.argmin(all_ways, -1).reshape(np.moveaxis(found, axis, -1).shape), -1, axis)
            found = np.moveaxis(np.min(all_ways, -1).reshape(np.moveaxis(found, axis, -1).shape), -1, axis)
            near = np.take_along_axis(near, np.broadcast_to(at[:, None], near.shape), axis + 1)
    if desc.metric == "euclidean" and not desc.squared:
        found = np.sqrt(found)
    near = np.moveaxis(np.where(np.isinf(found)[:, None], -1, near), 1, 0)
    return {"distance": found.reshape(desc.shape), "indices": near.reshape(desc.rank, *desc.shape)}


PARAMS = Params(
    "DistanceParams", x="ptr", distance="ptr", indices="ptr", to="workspace", near_to="workspace",
    near_from="workspace", least="workspace", before="workspace", **volume_params(3), batches="i64", inner="i64",
    index_step="i64", spacing="f64[3]", axis="i32", segments="i32", rank="i32", metric="i32", root="i32", last="i32",
    wide="i32", distance_threads=THREADS, distance_segment=SEGMENT, DistanceMetric=METRICS,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc, indices = p.desc, p.indices
    inner_of_indices = indices and View(indices.ptr, indices.shape[1:], indices.strides[1:], indices.element)
    values = volume_values(desc, (p.x, p.distance, inner_of_indices))
    if isinstance(values, str):
        return values
    total = desc.batches * desc.places
    dense = all(v.dense for v in (p.x, p.distance, indices) if v is not None)
    layout = "contiguous" if dense else "strided"
    if not total:
        return Geometry((), 0, layout)
    extents = values["extents"]
    inners = (0, extents[2], extents[1] * extents[2])  # places apart, from the last axis to the first
    size = 4 if desc.whole else 8
    pieces = [aligned(size * total)] * 2 + [aligned(4 * total)] * 2
    pieces.append(aligned(size * max(total // n * -(-n // SEGMENT) for n in extents)))
    starts = [sum(pieces[:i]) for i in range(len(pieces))]
    last, steps = desc.rank - 1, []
    axes = {"W": "i32" if desc.whole else "double"}
    for turn, inner in enumerate(inners[: desc.rank]):
        axis = 2 - turn
        segments = -(-extents[axis] // SEGMENT)
        params = {
            **values, "to": starts[turn % 2], "before": starts[1 - turn % 2], "near_to": starts[2 + turn % 2],
            "near_from": starts[3 - turn % 2], "least": starts[4], "batches": desc.batches, "inner": inner,
            "index_step": indices.strides[0] if indices else 0, "spacing": (1.0,) * (3 - desc.rank) + desc.spacing,
            "axis": axis, "segments": segments, "rank": desc.rank, "metric": METRICS.index(desc.metric),
            "root": desc.metric == "euclidean" and not desc.squared, "last": turn == last,
            "wide": desc.distance_element is F64,
        }  # fmt: skip
        lines = total // extents[axis]
        launches = (
            (("least", lines * segments), ("sweep", total)) if turn else (("rows", lines * 32),)
        )  # fmt: skip
        steps += [Step(name, (-(-items // THREADS), 1, 1), params, axes, THREADS) for name, items in launches]
    if max(step.grid[0] for step in steps) >= 2**31:
        return "more than 2^31 blocks"
    return Geometry(tuple(steps), sum(pieces), layout)


def _bench(torch: Any, desc: DistanceTransformDescriptor) -> dict[str, Any]:
    return {"x": torch.rand(desc.shape) < 0.999}


class DistanceTransformPlan(Plan):
    """distance: of each place from the nearest that is 0, along the axes of its image or volume; 0 of a place of 0.

    Euclidean √Σ (Δ_a · sampling_a)², or its square; cityblock Σ |Δ_a| · sampling_a; chessboard max |Δ_a| · sampling_a.
    Infinite where no place is 0. indices: that place, of several equally near the first in raster order; of the
    chessboard the nearest on the first line that has one as near. Distances are exact before the root, as integers
    where sampling is 1 and in float64 else, and rounded once. Each place looks both ways along an axis as far as it has
    found something, by segments of 32 places where those are too far.
    """

    op = "image.distance_transform"
    descriptor = DistanceTransformDescriptor
    args = DistanceTransformArgs
    raw = True
    reference = staticmethod(reference)
    value_policy = "a place is 0 where its element is; NaN is not"
    variants = (
        Variant(
            "sweeps", _geometry, source="image/distance_transform.cu", elements=MASKS,
            guarantee=Guarantee(Exact(), batch_invariant=True),
            kernels=(
                Kernel("rows", "distance_rows<{T}, {W}>", PARAMS, {"W": ("i32", "double")}, threads=THREADS),
                Kernel("least", "distance_least<{W}>", PARAMS, {"W": ("i32", "double")}, threads=THREADS),
                Kernel("sweep", "distance_sweep<{W}>", PARAMS, {"W": ("i32", "double")}, threads=THREADS, min_blocks=4),
            ),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("[8, 2048, 2048] bool, one of 1000 is 0", shape=(8, 2048, 2048), element="bool", work=BYTES,
                  target=None, peers=(), make=_bench),
        Benchmark("[256, 256, 256] bool, one of 1000 is 0", shape=(256,) * 3, rank=3, element="bool", work=BYTES,
                  target=None, peers=(), make=_bench),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> DistanceTransformDescriptor:
        rank, metric = draw.choice((2, 3)), draw.choice(METRICS)
        sampling = draw.choice(((1.0,), (0.3,), (0.7, 1.1, 1.5)[:rank]))
        return DistanceTransformDescriptor(
            shape=volume_shape(draw, rank), rank=rank, metric=metric, sampling=sampling,
            squared=metric == "euclidean" and draw.flag(), distance_element=draw.choice((F32, F64)),
            element=draw.element,
        )  # fmt: skip


_distances = functional(DistanceTransformPlan, "distance_transform", returns=("distance",))


@entry(DistanceTransformPlan)
def distance_transform(
    x: Array, sampling: Any = 1.0, *, metric: str = "euclidean", squared: bool = False, return_indices: bool = False,
    rank: int = 2, distance_element: Any = "float32", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """How far every place of x is from the nearest that is 0, in images or volumes: x's last `rank` axes, 2 or 3.

    x: [..., height, width] or [..., depth, height, width], bool, integers or floats. sampling: how far apart places
    are, a number or one for each axis. metric: "euclidean" (scipy.ndimage.distance_transform_edt), "cityblock"
    ("taxicab", "manhattan") or "chessboard" (distance_transform_cdt). squared: the Euclidean distance squared.
    return_indices: also the coordinates of that place, int32 [rank, *x.shape], the first in raster order of several.
    Where no place is 0, distances are infinite and indices -1. distance_element: float32 or float64. See
    `DistanceTransformPlan`.
    """
    metric = ALIASES.get(metric, metric) if isinstance(metric, str) else metric
    return _distances(
        x, rank=whole("rank", rank, 2, 3), sampling=sampling, metric=metric, squared=squared,
        return_indices=return_indices, distance_element=distance_element, out=out, stream=stream,
        preference=preference,
    )  # fmt: skip
