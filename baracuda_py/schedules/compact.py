"""Compact: the geometry of choosing elements by a mask, or by their value, in row-major order (one pass)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..core.element import ElementKind, cast
from ..core.params import Params
from ..core.tensor import AXES, View, merge_axes, pad
from ..core.variant import Geometry, Kernel, Step, aligned
from .geometry import grid

THREADS = 256
RUN = 16  # neighbours of which a thread has one or more runs
MOST_AXES = 32  # of an array whose positions are told
MOST_TILES = 2**31 - 1
KEPT = "kept"  # as `count`: for the kernel that fills up, in the workspace

_CARRIED: Mapping[str, str | int] = {
    "count": "ptr", "states": "workspace", "elements": "i64", "tiles": "i64", "compact_threads": THREADS,
    "compact_run": RUN,
}  # fmt: skip
_WHERE = {"size": "i64", "shape": f"i64[{AXES}]", "rank": "i32", "wide": "u32"}


def position_params(name: str) -> Params:
    """Params of the kernels that tell positions."""
    return Params(
        name, y="ptr", x="ptr", **_CARRIED, bits="u64", extents=f"i64[{MOST_AXES}]", steps="i64[2]", fill="i64[2]",
        strides=f"i64[1][{AXES}]", axes="i32", **_WHERE,
    )  # fmt: skip


def mask_params(name: str) -> Params:
    """Params of the kernels that a mask rules."""
    return Params(
        name, y="ptr", x="ptr", mask="ptr", source="ptr", status="status", **_CARRIED, fill="i64[2]",
        strides=f"i64[3][{AXES}]", source_shape=f"i64[{AXES}]", source_strides=f"i64[{AXES}]", source_rank="i32",
        cyclic="i32", **_WHERE,
    )  # fmt: skip


def words(kind: ElementKind) -> Mapping[str, Any]:
    """The bytes of an element."""
    return {"BYTES": (kind.itemsize,)}


def compact_kernels(params: Params, *names: str, clears: bool = True) -> tuple[Kernel, ...]:
    """Kernels by name; `clears`: with the one that clears the flags of the others."""
    clear = (Kernel("clear", "compact_clear", params, threads=THREADS),) if clears else ()
    return *clear, *(
        Kernel(name, f"compact_{name}<{{BYTES}}>", params, words, threads=THREADS, min_blocks=4) for name in names
    )


def position_kernels(params: Params) -> tuple[Kernel, ...]:
    """The kernels that tell positions."""
    fill = Kernel("fill_positions", "compact_fill_positions", params, threads=THREADS)
    return (*compact_kernels(params, "positions"), fill)


def value_bits(kind: ElementKind) -> int:
    """Of eight bytes of elements the bits that make one differ from 0: the sign of a float does not."""
    size = min(kind.part.itemsize if kind.is_complex else kind.itemsize, 8)
    signed = kind.is_inexact
    one = (1 << (8 * size - 1)) - 1 if signed else (1 << 8 * size) - 1
    whole = sum(one << (8 * size * k) for k in range(8 // size))
    return whole if kind.itemsize >= 8 else one


def stored_bits(value: float, kind: ElementKind) -> list[int]:
    """A number as an element, in two integers of 64 bits."""
    with np.errstate(all="ignore"):
        raw = np.asarray(cast(np.array(value), kind)).tobytes().ljust(16, b"\0")
    return [int.from_bytes(raw[at : at + 8], "little", signed=True) for at in (0, 8)]


def in_order(views: Sequence[View | None]) -> dict[str, Any] | str:
    """Operands of one shape, merged with the order of their elements kept; a string says why not."""
    first = next(view for view in views if view is not None)
    strides = [(0,) * len(first.shape) if view is None else view.strides for view in views]
    shape, kept = merge_axes(first.shape, strides)
    if len(shape) > AXES:
        return f"more than {AXES} axes remain after merging"
    dense = [len(shape) <= 1 and steps in ((), (1,)) for steps in kept]
    wide = sum(1 << n for n, view in enumerate(views) if view is not None and dense[n] and view.ptr % 16 == 0)
    return {"shape": pad(shape), "strides": [pad(s) for s in kept], "rank": len(shape), "wide": wide}


def source_fields(source: View | None) -> dict[str, Any] | str:
    """What has an element for each rank, in row-major order."""
    if source is None:
        return {"source_shape": pad(()), "source_strides": pad(()), "source_rank": 0}
    shape, (strides,) = merge_axes(source.shape, (source.strides,))
    if len(shape) > AXES:
        return f"more than {AXES} axes remain after merging"
    return {"source_shape": pad(shape), "source_strides": pad(strides), "source_rank": len(shape)}


def tile_elements(itemsize: int) -> int:
    """Elements of a block."""
    return THREADS * RUN * (4 if itemsize <= 2 else 2 if itemsize == 4 else 1)


def compact_geometry(
    kernel: str, elements: int, params: Mapping[str, Any], axes: Mapping[str, Any], views: Sequence[View | None],
    fill: str | None = None, fill_axes: Mapping[str, Any] | None = None, kept_bytes: int = 0,
) -> Geometry | str:  # fmt: skip
    """The launches: states cleared, elements chosen, and what is left of `size` filled up by the kernel `fill`.

    kept_bytes: what a tile keeps of an element that is chosen, where that is not the element.
    """
    itemsize = axes["BYTES"]
    tile = tile_elements(itemsize)
    tiles = max(1, math.ceil(elements / tile))
    if tiles > MOST_TILES:
        return f"needs {tiles} blocks, a grid has 2**31 - 1"
    shared = {"states": 0, "elements": elements, "tiles": tiles, **params}
    workspace = aligned(8 * tiles)
    if params.get("count") == KEPT:
        shared["count"], workspace = ("@workspace", workspace), workspace + aligned(8)
    steps = [
        Step("clear", grid(-(-tiles // THREADS)), shared, {}, THREADS),
        Step(kernel, (tiles, 1, 1), shared, axes, THREADS, tile * (kept_bytes or itemsize)),
    ]
    if fill is not None and params["size"]:
        steps.append(Step(fill, grid(-(-params["size"] // (THREADS * RUN))), shared, fill_axes or {}, THREADS))
    return Geometry(tuple(steps), workspace, layout_of(views))


def layout_of(views: Sequence[View | None]) -> str:
    """The layout class."""
    return "contiguous" if all(view.dense for view in views if view is not None) else "strided"
