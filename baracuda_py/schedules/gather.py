"""Gather: the geometry of reading x along one axis at positions that an index array tells.

Axes are those of y, ordered and merged as schedule map does it, over y, the index and x without the indexed axis; the
index has stride 0 along axes that share it. Where the last axis shares its index and y and x are contiguous along it,
words of up to 16 bytes are moved, else elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View
from ..core.variant import Geometry, Kernel, Step
from .geometry import Merged
from .map import THREADS, chunked, lay_out, map_params, takes

WORDS = 4  # that a thread has in flight


def gather_params(name: str, index: str) -> Params:
    """Params of an op whose index operand is `index`."""
    fields = {"y": "ptr", "index": "ptr", "x": "ptr", "status": "status", "extent": "i64", "step": "i64"}
    return Params(name, **fields, index_wide="i32", gather_words=WORDS, **map_params(3))


def gather_kernel(params: Params) -> Kernel:
    """The kernel of words, over their widths."""

    def widths(kind: ElementKind) -> Mapping[str, Any]:
        return {"BYTES": tuple(b for b in (1, 2, 4, 8, 16) if b >= kind.itemsize)}

    return Kernel("gather", "gather<{BYTES}>", params, widths, threads=THREADS)


def gather_geometry(
    y: View, index: View, x: View, axis: int, base: Sequence[int], shared: Sequence[int], operand: str
) -> Geometry | str:
    """The launch: `base` are x's strides along the axes of y, `shared` the index's; `operand` is the index's name."""
    source, picked = (
        View(x.ptr, y.shape, tuple(base), x.element),
        View(index.ptr, y.shape, tuple(shared), index.element),
    )
    found = lay_out((y, picked, source))
    if isinstance(found, str):
        return found
    step, extent = x.strides[axis] if x.shape[axis] > 1 else 0, x.shape[axis]
    vec = word(found, step, (0, 2), (1,), x.element.itemsize)
    params = {
        "index": operand, "extent": extent, "step": step // vec, "index_wide": index.element is ElementKind.I64,
        **chunked(found, vec, words=(0, 2)),
    }  # fmt: skip
    grid = max(1, -(-(found.groups[0].count // vec) // (THREADS * WORDS)))
    width = {"BYTES": vec * x.element.itemsize}
    dense = y.dense and index.dense and x.dense
    layout = "contiguous" if dense else "inner_contiguous" if vec > 1 else "strided"
    return Geometry((Step("gather", (grid, 1, 1), params, width, THREADS),), layout=layout)


def word(found: Merged, step: int, moved: Sequence[int], fixed: Sequence[int], size: int) -> int:
    """Elements in the widest word along the last axis: contiguous in the operands `moved`, `fixed` staying; or 1.

    step: the stride of the indexed axis, whose positions must be aligned alike.
    """
    (axes,) = found.groups
    if not axes.shape or any(axes.strides[n][-1] for n in fixed) or any(axes.strides[n][-1] != 1 for n in moved):
        return 1
    vec = 16 // size
    while vec > 1 and not (takes(found, vec) and step % vec == 0):
        vec //= 2
    return vec
