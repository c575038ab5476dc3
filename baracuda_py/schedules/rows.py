"""Rows × columns: the geometry of ops that work along trailing (or one) axes: norms, softmax, losses.

Operands share `outer` axes (one row each) and `inner` axes (the row). Both groups are merged over all
operands; the inner group is *dense* when every operand steps through it with stride 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.tensor import AXES, View, merge_axes, pad


@dataclass(frozen=True)
class Rows:
    """Merged row geometry of several operands (an absent operand has zero strides)."""

    rows: int
    cols: int
    outer_shape: tuple[int, ...]
    outer_strides: tuple[tuple[int, ...], ...]
    inner_shape: tuple[int, ...]
    inner_strides: tuple[tuple[int, ...], ...]
    views: tuple[View | None, ...]

    @property
    def dense(self) -> bool:
        """Every operand's row is contiguous."""
        return len(self.inner_shape) <= 1 and all(
            s in ((), (1,)) for s, v in zip(self.inner_strides, self.views, strict=True) if v is not None
        )

    @property
    def layout(self) -> str:
        """The layout class for the SKU."""
        present = [v for v in self.views if v is not None]
        return "contiguous" if all(v.dense for v in present) else "inner_contiguous" if self.dense else "strided"

    def vector(self, nbytes: int = 16) -> int:
        """The widest access, in elements of the first operand, that every row of every operand is aligned to."""
        first = next(v for v in self.views if v is not None)
        width = nbytes // first.element.itemsize
        while width > 1 and not all(self._aligned(i, width) for i in range(len(self.views))):
            width //= 2
        return width if self.dense else 1

    def _aligned(self, i: int, width: int) -> bool:
        view = self.views[i]
        if view is None:
            return True
        size = view.element.itemsize * width
        return view.ptr % min(size, 16) == 0 and all(s % width == 0 for s in self.outer_strides[i])

    def params(self) -> Mapping[str, Any]:
        """The constant fields that `row_params` declares."""
        return {
            "rows": self.rows, "cols": self.cols,
            "outer_shape": pad(self.outer_shape), "outer": [pad(s) for s in self.outer_strides],
            "inner_shape": pad(self.inner_shape), "inner": [pad(s) for s in self.inner_strides],
            "outer_rank": len(self.outer_shape), "inner_rank": len(self.inner_shape),
        }  # fmt: skip


def row_params(operands: int) -> dict[str, str]:
    """Params fields for `operands` operands; `kernels/include/baracuda/rows.cuh` reads them."""
    return {
        "rows": "i64", "cols": "i64", "outer_shape": "i64[8]", "outer": f"i64[{operands}][8]",
        "inner_shape": "i64[8]", "inner": f"i64[{operands}][8]", "outer_rank": "i32", "inner_rank": "i32",
    }  # fmt: skip


def merge_rows(views: Sequence[View | None], split: int) -> Rows | str:
    """Merge operands of one common shape whose first `split` axes are rows; a string says why not.

    An operand with only the inner axes (a weight) is given with the row axes broadcast (stride 0).
    """
    first = next(v for v in views if v is not None)
    shape = first.shape
    strides = [v.strides if v is not None else (0,) * len(shape) for v in views]
    outer_shape, outer = merge_axes(shape[:split], [s[:split] for s in strides])
    inner_shape, inner = merge_axes(shape[split:], [s[split:] for s in strides])
    if len(outer_shape) > AXES or len(inner_shape) > AXES:
        return f"more than {AXES} axes remain after merging"
    rows = cols = 1
    for extent in shape[:split]:
        rows *= extent
    for extent in shape[split:]:
        cols *= extent
    return Rows(rows, cols, outer_shape, outer, inner_shape, inner, tuple(views))
