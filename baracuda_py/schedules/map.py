"""Map: the geometry of elementwise ops over operands that share one (broadcast) shape.

Axes are put in the order in which the first output lies in memory and then merged over all operands, so that
operands transposed alike become dense and writes coalesce. Three layouts come out: *flat* (every operand dense),
*inner contiguous* (every operand steps along the last axis by 1 or 0) and *strided*, whose elements are visited tile by
tile where operands are contiguous along different axes. An element is computed by the same code in each of them, so its
bits never depend on the layout.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import AXES, View, pad
from ..core.variant import Geometry, Kernel, Problem, Step
from .geometry import Axes, Merged

THREADS = 256
_CHUNKS, _ELEMENTS = 2, 4  # of a thread, where an operand is not dense: of several elements each, or of one
STRIDED = "Strided<{VEC}, strided_chunks, strided_elements>"
"""The layout of operands that are not all dense, in the template of a kernel with an axis VEC."""
_NARROW = 2**31 - THREADS * 4  # below it offsets and chunk numbers, also of threads past the end, fit 32 bits
_SECTOR = 32  # bytes that memory moves at least
MIN_BLOCKS = 4  # an SM at least: 1024 threads with a chunk of each operand on the way keep memory busy


def map_params(operands: int) -> dict[str, str | int]:
    """Params fields for `operands` operands, outputs first; `kernels/include/baracuda/map.cuh` reads them."""
    return {
        "count": "i64", "chunks": "i64", "shape": "i64[8]", "strides": f"i64[{operands}][8]", "rank": "i32",
        "narrow": "i32", "splat": "u32", "dividers": "u32[8][3]",
        "map_threads": THREADS, "strided_chunks": _CHUNKS, "strided_elements": _ELEMENTS,
    }  # fmt: skip


def map_kernels(
    template: str,
    params: Params,
    vec: str = "{VEC}",
    widths_of: Any = None,
    min_blocks: int = MIN_BLOCKS,
    source: str = "",
) -> tuple[Kernel, Kernel]:
    """The two kernels of a map: `template` is a C++ call whose last argument, `{LAYOUT}`, is the layout policy.

    vec: the C++ form of a chunk's width. widths_of: element → the values of VEC, where those of the descriptor's
    element will not do. min_blocks: on an SM, of the flat kernel; 0 where
    arithmetic needs the registers more. source: the file of the kernels, if not the row's.
    """
    options = widths_of or (lambda kind: widths(kind.itemsize))

    def flat(kind: ElementKind) -> Mapping[str, Any]:
        return {"VEC": options(kind)[:1]}

    def strided(kind: ElementKind) -> Mapping[str, Any]:
        return {"VEC": options(kind)}

    dense = template.replace("{LAYOUT}", f"Flat<{vec}>")
    any_layout = template.replace("{LAYOUT}", STRIDED.replace("{VEC}", vec))
    return (
        Kernel("flat", dense, params, flat, threads=THREADS, min_blocks=min_blocks, source=source),
        Kernel("strided", any_layout, params, strided, threads=THREADS, source=source),
    )


def widths(itemsize: int) -> tuple[int, ...]:
    """Elements a chunk may have when the widest element has `itemsize` bytes: 16 bytes, or one element."""
    return (16 // itemsize, 1) if itemsize < 16 else (1,)


def lay_out(views: Sequence[View | None]) -> Merged | str:
    """Order and merge the axes of operands of one common shape; a string says why not. The first one present leads."""
    rank = len(next(v.shape for v in views if v is not None))
    return Merged.of(views, (range(rank),), free=(0,))


def strided(vec: int) -> int:
    """Chunks of `vec` elements that a thread has of the layout `STRIDED`."""
    return _CHUNKS if vec > 1 else _ELEMENTS


def takes(found: Merged, vec: int) -> bool:
    """Whether the last axis falls into chunks of `vec` elements that every operand moves in one access."""
    (axes,) = found.groups
    return vec == 1 or (bool(axes.shape) and found.inner and axes.shape[-1] % vec == 0 and found.access(vec))


def map_geometry(
    problem: Problem, views: Sequence[View | None], values: Mapping[str, Any] | None = None
) -> Geometry | str:
    """The launch for operands of one shape, outputs first; `values` are the op's own constant parameters."""
    found = lay_out(views)
    if isinstance(found, str):
        return found
    options = widths(max(v.element.itemsize for v in views if v is not None))
    (axes,) = found.groups
    if found.dense and (not axes.shape or found.access(options[0])):
        vec, each, kernel = options[0], 1, "flat"
    else:
        vec = next(w for w in options if takes(found, w))
        each = strided(vec)
        kernel = "strided"
    grid = max(1, -(-(axes.count // vec) // (THREADS * each)))
    visited = found if vec > 1 else dataclasses.replace(found, groups=(in_tiles(axes, 16 // options[0]),))
    step = Step(kernel, (grid, 1, 1), {**(values or {}), **chunked(visited, vec)}, {"VEC": vec}, THREADS)
    return Geometry((step,), layout=found.layout(found.inner))


def in_tiles(axes: Axes, itemsize: int) -> Axes:
    """The same elements in another order, where some operand is contiguous along another axis than the last.

    Both axes are split, and a tile of whole sectors along either comes last: a warp then moves whole sectors of every
    operand, or a block does before they leave the cache. Axes that no tile divides stay as they are.
    """
    last, side = axes.rank - 1, _SECTOR // itemsize
    across = next((a for s in axes.strides for a in range(last) if abs(s[a]) == 1 and abs(s[last]) != 1), None)
    if across is None or axes.rank + 2 > AXES or axes.shape[across] % side or axes.shape[last] % side:
        return axes

    def split(values: Sequence[int], outer: Callable[[int], int], inner: Callable[[int], int]) -> tuple[int, ...]:
        whole = [outer(n) if a in (across, last) else n for a, n in enumerate(values)]
        return (*whole, inner(values[across]), inner(values[last]))

    strides = tuple(split(s, lambda n: n * side, lambda n: n) for s in axes.strides)
    return Axes(split(axes.shape, lambda n: n // side, lambda n: side), strides)


def chunked(found: Merged, vec: int, words: Collection[int] = ()) -> Mapping[str, Any]:
    """What `map_params` declares. Along the last axis the kernel counts chunks, so that extent and step are scaled.

    words: the operands whose strides are in chunks of `vec` elements, too.
    """
    (axes,) = found.groups
    chunks, splat = axes, 0
    if vec > 1 and axes.shape:
        scaled = [(*s[:-1], s[-1] * vec) for s in axes.strides]
        strides = tuple(tuple(k // vec for k in s) if n in words else s for n, s in enumerate(scaled))
        chunks = Axes((*axes.shape[:-1], axes.shape[-1] // vec), strides)
        splat = sum(1 << i for i, s in enumerate(axes.strides) if s[-1] == 0)
    return {
        **chunks.params(), "count": axes.count, "chunks": axes.count // vec, "narrow": found.reach < _NARROW,
        "splat": splat, "dividers": [divider(n) for n in pad(chunks.shape)],
    }  # fmt: skip


def divider(extent: int) -> tuple[int, int, int]:
    """(divisor, magic, shift): the `DivMod` of kernels/include/baracuda/index.cuh; zeros where it is not usable."""
    if not 1 <= extent < 2**31:
        return 0, 0, 0
    shift = (extent - 1).bit_length()
    return extent, ((1 << 32) * ((1 << shift) - extent)) // extent + 1, shift
