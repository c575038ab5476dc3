"""Runs: y[j] = f(x[j + shift], …) along rows that are runs of memory; `baracuda/runs.cuh` is the device side.

Views of one array that are shifted by an element are not aligned together, nor are rows of odd lengths. The kernel
reads aligned accesses at any alignment of the pointers and pitches, which it finds by itself: here rows are laid out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View, pad
from ..core.variant import Kernel, Step
from .map import divider, lay_out
from .reduce import without_axes

THREADS = 256
_EACH = 2  # chunks of a thread, whose loads are issued before the first is used
_NARROW = 2**31 - THREADS * _EACH  # below it 32 bits hold the numbers of chunks and elements, also past the end

_SHORTEST = 4  # chunks: the elements at both ends of a shorter row are too many of all


def run_params(operands: int) -> dict[str, str | int]:
    """Params fields for y, x and what a row has one of; `kernels/include/baracuda/runs.cuh` reads them."""
    return {
        "cols": "i32", "run": "i32", "shift": "i32", "total": "u32", "divider": "u32[3]",
        "outer": f"i64[{operands}][8]", "outer_dividers": "u32[8][3]", "outer_rank": "i32",
        "run_threads": THREADS, "run_unroll": _EACH,
    }  # fmt: skip


def run_kernel(template: str, params: Params, source: str, name: str = "runs", min_blocks: int = 6) -> Kernel:
    """The kernel of `template`, which is in `source`; min_blocks: on an SM, of which 6 have 48 KB on the way."""

    def blocks(element: ElementKind, _: Any) -> int:
        return 4 if element.itemsize == 1 else min_blocks  # a chunk of 16 elements takes the registers of 4

    return Kernel(name, template, params, threads=THREADS, min_blocks=blocks, source=source)


def run_step(
    kernel: str, y: View, x: View | None, axis: int, *, shift: int = 0, each: Sequence[View] = (),
    values: Mapping[str, Any] | None = None,
) -> Step | None:  # fmt: skip
    """The launch of rows along `axis`; None where rows are no runs of memory, too short to gain, or too many.

    x (None: f reads none) has y's other axes. each: operands without the axis. values: the op's own constants.
    """
    along = [view for view in (y, x) if view is not None]
    vec = 16 // y.element.itemsize
    cols, run = y.shape[axis], (x or y).shape[axis]
    if any(view.strides[axis] != 1 for view in along) or cols < _SHORTEST * vec or run < 1 or not y.size:
        return None
    rows = (None if view is None else without_axes(view, (axis,)) for view in (y, x))
    found = lay_out((*rows, *each))
    if isinstance(found, str):
        return None
    (outer,) = found.groups
    chunks = (cols + 2 * (vec - 1)) // vec  # that a row has at the worst alignment
    total = outer.count * chunks
    if max(total, cols + 2 * vec, run) >= _NARROW:
        return None
    constants = {
        **(values or {}), **outer.params("outer_shape", "outer", "outer_rank"), "cols": cols, "run": run,
        "shift": shift, "total": total, "divider": divider(chunks),
        "outer_dividers": [divider(n) for n in pad(outer.shape)],
    }  # fmt: skip
    del constants["outer_shape"]
    return Step(kernel, (-(-total // (THREADS * _EACH)), 1, 1), constants, {}, THREADS)
