"""Map: the geometry of elementwise ops over operands that share one (broadcast) shape.

Axes are put in the order in which the first output lies in memory and then merged over all operands, so that
operands transposed alike become dense and writes coalesce. Three layouts come out: *flat* (every operand dense),
*inner contiguous* (every operand steps along the last axis by 1 or 0) and *strided*. An element is computed by the
same code in each of them, so its bits never depend on the layout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import AXES, View, merge_axes, pad
from ..core.variant import Geometry, Kernel, Problem, Step

THREADS = 256
_BLOCKS = 4  # an SM at least: 1024 threads with a chunk of each operand on the way keep memory busy


def map_params(operands: int) -> dict[str, str]:
    """Params fields for `operands` operands, outputs first; `kernels/include/baracuda/map.cuh` reads them."""
    return {
        "count": "i64", "chunks": "i64", "shape": "i64[8]", "strides": f"i64[{operands}][8]", "rank": "i32",
        "narrow": "i32", "splat": "u32", "dividers": "u32[8][3]",
    }  # fmt: skip


def map_kernels(template: str, params: Params, vec: str = "{VEC}", widths_of: Any = None) -> tuple[Kernel, Kernel]:
    """The two kernels of a map: `template` is a C++ call whose last argument, `{LAYOUT}`, is the layout policy.

    vec: the C++ form of a chunk's width. widths_of: element → the values of VEC, where those of the descriptor's
    element will not do.
    """
    options = widths_of or (lambda kind: widths(kind.itemsize))

    def flat(kind: ElementKind) -> Mapping[str, Any]:
        return {"VEC": options(kind)[:1]}

    def strided(kind: ElementKind) -> Mapping[str, Any]:
        return {"VEC": options(kind)}

    dense = template.replace("{LAYOUT}", f"baracuda::Flat<{vec}>")
    any_layout = template.replace("{LAYOUT}", f"baracuda::Strided<{vec}>")
    return (
        Kernel("flat", dense, params, flat, threads=THREADS, min_blocks=_BLOCKS, unit="map"),
        Kernel("strided", any_layout, params, strided, threads=THREADS, unit="map"),
    )


def widths(itemsize: int) -> tuple[int, ...]:
    """Elements a chunk may have when the widest element has `itemsize` bytes: 16 bytes, or one element."""
    return (16 // itemsize, 1)


@dataclass(frozen=True)
class MapLayout:
    """Merged geometry of several operands (an absent one has zero strides)."""

    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]
    views: tuple[View | None, ...]

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def flat(self) -> bool:
        """Every operand is dense."""
        return not self.shape or (len(self.shape) == 1 and all(s == (1,) for s, _ in self._present))

    @property
    def inner(self) -> bool:
        """Every operand steps along the last axis by 1, or stays where it is."""
        return all(s[-1] in (0, 1) for s, _ in self._present) if self.shape else True

    @property
    def wide(self) -> bool:
        """Whether offsets or chunk numbers may pass 32 bits."""
        reach = [sum((n - 1) * abs(k) for n, k in zip(self.shape, s, strict=True)) for s, _ in self._present]
        return max(*reach, self.count) >= 2**31 - THREADS * 4

    @property
    def layout(self) -> str:
        """The layout class for the SKU."""
        return "contiguous" if self.flat else "inner_contiguous" if self.inner else "strided"

    @property
    def _present(self) -> list[tuple[tuple[int, ...], View]]:
        return [(s, v) for s, v in zip(self.strides, self.views, strict=True) if v is not None]

    def vector(self, vec: int) -> bool:
        """Whether the last axis falls into chunks of `vec` elements that every operand moves in one access."""
        if vec == 1:
            return True
        if not self.shape or not self.inner or self.shape[-1] % vec:
            return False
        return self.aligned(vec) and all(k % vec == 0 for s, _ in self._present if s[-1] for k in s[:-1])

    def aligned(self, vec: int) -> bool:
        """Whether every pointer to chunks (not to an element that stays) suits an access of `vec` elements."""
        return all(v.ptr % (vec * v.element.itemsize) == 0 for s, v in self._present if s and s[-1])


def lay_out(views: Sequence[View | None]) -> MapLayout | str:
    """Order and merge the axes of operands of one common shape; a string says why not. The first one present leads."""
    shape, lead = next((v.shape, v.strides) for v in views if v is not None)
    order = sorted(range(len(shape)), key=lambda axis: -abs(lead[axis]))
    strides = [tuple(v.strides[a] for a in order) if v is not None else (0,) * len(shape) for v in views]
    merged, kept = merge_axes(tuple(shape[a] for a in order), strides)
    if len(merged) > AXES:
        return f"more than {AXES} axes remain after merging"
    return MapLayout(merged, kept, tuple(views))


def map_geometry(
    problem: Problem, views: Sequence[View | None], values: Mapping[str, Any] | None = None
) -> Geometry | str:
    """The launch for operands of one shape, outputs first; `values` are the op's own constant parameters."""
    found = lay_out(views)
    if isinstance(found, str):
        return found
    options = widths(max(v.element.itemsize for v in views if v is not None))
    if found.flat and found.aligned(options[0]):
        vec, each, kernel = options[0], 1, "flat"
    else:
        vec = next(w for w in options if found.vector(w))
        each = 2 if vec > 1 else 4  # as `Strided` in map.cuh
        kernel = "strided"
    grid = max(1, -(-(found.count // vec) // (THREADS * each)))
    step = Step(kernel, (grid, 1, 1), {**(values or {}), **_constants(found, vec)}, {"VEC": vec}, THREADS)
    return Geometry((step,), layout=found.layout)


def _constants(found: MapLayout, vec: int) -> Mapping[str, Any]:
    """What `map_params` declares. Along the last axis the kernel counts chunks, so that extent and step are scaled."""
    shape, strides, splat = found.shape, found.strides, 0
    if vec > 1 and shape:
        shape = (*shape[:-1], shape[-1] // vec)
        strides = tuple((*s[:-1], s[-1] * vec) for s in strides)
        splat = sum(1 << i for i, s in enumerate(found.strides) if s[-1] == 0)
    return {
        "count": found.count, "chunks": found.count // vec, "shape": pad(shape), "strides": [pad(s) for s in strides],
        "rank": len(shape), "narrow": not found.wide, "splat": splat, "dividers": [divider(n) for n in pad(shape)],
    }  # fmt: skip


def divider(extent: int) -> tuple[int, int, int]:
    """(divisor, magic, shift): the `DivMod` of kernels/include/baracuda/index.cuh; zeros where it is not usable."""
    if not 1 <= extent < 2**31:
        return 0, 0, 0
    shift = (extent - 1).bit_length()
    return extent, ((1 << 32) * ((1 << shift) - extent)) // extent + 1, shift
