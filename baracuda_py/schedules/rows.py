"""Rows × columns: the geometry of ops that work along trailing (or one) axes: norms, softmax, losses.

Operands share `outer` axes (one row each) and `inner` axes (the row). Both groups are merged over all
operands; the inner group is *dense* when every operand steps through it with stride 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.tensor import Shape, View
from .geometry import Axes, Merged


class Rows(Merged):
    """Merged row geometry of several operands."""

    @property
    def outer(self) -> Axes:
        """The axes along which there is a row each."""
        return self.groups[0]

    @property
    def inner_axes(self) -> Axes:
        """The axes of a row."""
        return self.groups[1]

    @property
    def rows(self) -> int:
        return self.outer.count

    @property
    def cols(self) -> int:
        return self.inner_axes.count

    @property
    def outer_shape(self) -> Shape:
        return self.outer.shape

    @property
    def layout_class(self) -> str:
        """The layout class for the SKU."""
        return self.layout(self.run)

    def params(self) -> Mapping[str, Any]:
        """The constant fields that `row_params` declares."""
        return {
            "rows": self.rows, "cols": self.cols, **self.outer.params("outer_shape", "outer", "outer_rank"),
            **self.inner_axes.params("inner_shape", "inner", "inner_rank"),
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
    rank = len(next(v.shape for v in views if v is not None))
    return Rows.of(views, (range(split), range(split, rank)))
