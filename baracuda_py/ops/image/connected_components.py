"""connected_components: labels of the connected parts of images and volumes (scipy.ndimage.label, cucim, kornia)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ...calls.entries import entry
from ...calls.functional import functional
from ...core import (
    Args, Array, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant, element, flag,
    integer, operand, output,
)  # fmt: skip
from ...core.benchmark import BYTES, Benchmark
from ...core.checked import whole
from ...core.element import INDICES
from ...core.errors import InvalidProblemError
from ...core.variant import aligned
from .volumes import MASKS, VolumeDescriptor, random_mask, volume_params, volume_shape, volume_values

THREADS, CHUNK, SCAN = 256, 1024, 1024  # of a block of places; places of a chunk; threads that count chunks
ROWS = 32  # of 32 places of a tile
HOPS = {2: {4: 1, 8: 2}, 3: {6: 1, 18: 2, 26: 3}}  # axes along which a neighbour may be another place


@dataclass(frozen=True, kw_only=True)
class ConnectedComponentsDescriptor(VolumeDescriptor):
    """connectivity: neighbours of a place, 4 or 8 of an image, 6, 18 or 26 of a volume."""

    connectivity: int = integer()
    compact: bool = flag(False)
    label_element: ElementKind = element(INDICES, ElementKind.I32)

    def validate(self) -> None:
        """Neighbours that there are."""
        super().validate()
        if self.connectivity not in HOPS[self.rank]:
            raise InvalidProblemError(
                f"connectivity must be one of {[*HOPS[self.rank]]} for {self.rank} axes of places, "
                f"got {self.connectivity}"
            )

    @property
    def hops(self) -> int:
        """Axes along which a neighbour may be another place."""
        return HOPS[self.rank][self.connectivity]


@dataclass(slots=True, kw_only=True)
class ConnectedComponentsArgs(Args):
    """Any strides."""

    x: Array = operand("*shape", values=random_mask)
    labels: Array = output("*shape", element="label_element")
    counts: Array | None = output("*batch_shape", element=ElementKind.I32, optional=True)


def _neighbours(desc: ConnectedComponentsDescriptor) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...]]]:
    """Where places and their neighbours on one side of them are."""
    for way in product((-1, 0, 1), repeat=desc.rank):
        if (0,) * desc.rank < way and sum(map(abs, way)) <= desc.hops:
            both = [*zip(way, desc.space, strict=True)]
            here = tuple(slice(max(-step, 0), n - max(step, 0)) for step, n in both)
            yield here, tuple(slice(max(step, 0), n + min(step, 0)) for step, n in both)


def reference(desc: ConnectedComponentsDescriptor, *, x: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy: the lowest number goes from neighbour to neighbour, and by the place it names, until none changes."""
    none = desc.places
    labels = np.zeros((desc.batches, *desc.space), np.int64)
    counts = np.zeros(desc.batches, np.int64)
    for b, there in enumerate(np.reshape(np.asarray(x) != 0, labels.shape)):
        own = np.where(there, np.arange(none).reshape(desc.space), none)
        last = None
        while last is None or (own != last).any():
            last = own.copy()
            for here, other in _neighbours(desc):
                both = there[here] & there[other]
                least = np.minimum(own[here], own[other])
                own[here] = np.where(both, least, own[here])
                own[other] = np.where(both, np.minimum(least, own[other]), own[other])
            own = np.append(own.reshape(-1), none)[own]
        roots, numbers = np.unique(own[there], return_inverse=True)
        labels[b][there] = 1 + (numbers if desc.compact else own[there])
        counts[b] = roots.size
    return {"labels": labels.reshape(desc.shape), "counts": counts.reshape(desc.batch_shape)}


PARAMS = Params(
    "ComponentsParams", x="ptr", labels="ptr", counts="ptr", parents="workspace", roots="workspace", before="workspace",
    totals="workspace", **volume_params(3), tiles="i32[3]", tile_height="i32", hops="i32", chunks="i32", compact="i32",
    label_threads=THREADS, label_chunk=CHUNK, scan_threads=SCAN,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    values = volume_values(desc, (p.x, p.labels, p.counts))
    if isinstance(values, str):
        return values
    height = ROWS if desc.rank == 2 else ROWS // 4
    extents = values["extents"]
    tiles = [-(-n // size) for n, size in zip(extents, (ROWS // height, height, 32), strict=True)]
    chunks, batches = -(-desc.places // CHUNK), desc.batches
    blocks = batches * tiles[0] * tiles[1] * tiles[2]
    if max(blocks, batches * chunks, batches) >= 2**31:
        return "more than 2^31 blocks"
    sizes = (4 * batches * desc.places, *((4 * batches * chunks * CHUNK // 32,) * 2), 4 * batches * chunks)
    starts = [sum(map(aligned, sizes[:i])) for i in range(len(sizes))]
    params = {
        **values, **dict(zip(("parents", "roots", "before", "totals"), starts, strict=True)), "tiles": tiles,
        "tile_height": height, "hops": desc.hops, "chunks": chunks, "compact": desc.compact,
    }  # fmt: skip
    counted = desc.compact or p.counts is not None
    steps = [
        Step("tile", (blocks, 1, 1), params, {}, THREADS),
        Step("merge", (blocks, 1, 1), params, {}, THREADS),
        Step("roots", (batches * chunks, 1, 1), params, {}, THREADS),
        Step("scan", (batches, 1, 1), params, {}, SCAN),
        Step("label", (batches * chunks, 1, 1), params, {"I": "i64" if desc.label_element.itemsize == 8 else "i32"},
             THREADS),
    ]  # fmt: skip
    made = [s for s in steps if s.grid[0] and (counted or s.kernel not in ("roots", "scan"))]
    dense = all(v.dense for v in (p.x, p.labels, p.counts) if v is not None)
    return Geometry(tuple(made), sum(map(aligned, sizes)), "contiguous" if dense else "strided")


def _bench(torch: Any, desc: ConnectedComponentsDescriptor) -> dict[str, Any]:
    return {"x": torch.rand(desc.shape) < 0.5}


class ConnectedComponentsPlan(Plan):
    """labels: of each place that is not 0 a number that the places connected with it share; 0 of all others.

    The number is 1 + the lowest place of the part, in raster order of its image or volume; compact, parts are numbered
    1, 2, … in the order of their lowest places (scipy.ndimage.label). counts: how many parts each sample has. NaN is a
    place that is there. No order of threads can change a label. The workspace has 4 bytes a place.
    """

    op = "image.connected_components"
    descriptor = ConnectedComponentsDescriptor
    args = ConnectedComponentsArgs
    reference = staticmethod(reference)
    value_policy = "every element that is not 0, NaN too, is a place that is there"
    variants = (
        Variant(
            "tiles", _geometry, source="image/connected_components.cu", elements=MASKS,
            guarantee=Guarantee(Exact(), batch_invariant=True),
            kernels=(
                Kernel("tile", "components_tile<{T}>", PARAMS, threads=THREADS, min_blocks=4),
                Kernel("merge", "components_merge", PARAMS, threads=THREADS, min_blocks=4),
                Kernel("roots", "components_roots", PARAMS, threads=THREADS),
                Kernel("scan", "components_scan", PARAMS, threads=SCAN),
                Kernel("label", "components_label<{I}>", PARAMS, {"I": ("i32", "i64")}, threads=THREADS),
            ),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("[8, 2048, 2048] bool, half there", shape=(8, 2048, 2048), connectivity=8, element="bool",
                  work=BYTES, target=None, peers=(), make=_bench),
        Benchmark("[256, 256, 256] bool, half there", shape=(256,) * 3, rank=3, connectivity=6, element="bool",
                  work=BYTES, target=None, peers=(), make=_bench),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> ConnectedComponentsDescriptor:
        rank = draw.choice((2, 3))
        return ConnectedComponentsDescriptor(
            shape=volume_shape(draw, rank), rank=rank, connectivity=draw.choice(tuple(HOPS[rank])),
            compact=draw.flag(), label_element=draw.choice(INDICES), element=draw.element,
        )  # fmt: skip


_components = functional(ConnectedComponentsPlan, "connected_components", returns=("labels",))


@entry(ConnectedComponentsPlan)
def connected_components(
    x: Array, connectivity: int | None = None, *, rank: int = 2, compact: bool = False, return_counts: bool = False,
    label_element: Any = "int32", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Labels of the connected parts of x, whose last `rank` axes are an image or a volume; 0 of the background.

    x: [..., height, width] or [..., depth, height, width], bool, integers or floats, of which those that are not 0 are
    there. connectivity: 4 or 8 neighbours of an image, 6, 18 or 26 of a volume; None, as scipy.ndimage.label, the
    fewest. A label is 1 + the lowest place of its part in raster order; compact: 1, 2, … in the order of those places,
    which is scipy's numbering. return_counts: also how many parts each image has, int32 of x's axes before.
    label_element: int32 or int64. See `ConnectedComponentsPlan`.
    """
    rank = whole("rank", rank, 2, 3)
    return _components(
        x, rank=rank, connectivity=min(HOPS[rank]) if connectivity is None else connectivity, compact=compact,
        return_counts=return_counts, label_element=label_element, out=out, stream=stream, preference=preference,
    )  # fmt: skip
