"""Products of jagged arrays, rows of different lengths one after the other (torch.ops.fbgemm)."""

from __future__ import annotations

from typing import Any

from ...calls.entries import entry
from ...core import Array
from ...core.errors import InvalidProblemError
from ...core.views import cut, shape_of, transposed
from ..gemm.grouped_gemm import GroupedGemmPlan, grouped_gemm
from ..gemm.grouped_inner_gemm import GroupedInnerGemmPlan, grouped_inner_gemm


def _ends(offsets: Array, values: dict[str, Array], items: int | None = None) -> Any:
    """Where the rows end, of offsets [items + 1]; values are named by what the function calls them."""
    for name, x in values.items():
        if len(shape_of(x, name)) != 2:
            raise InvalidProblemError(f"{name} must have 2 axes, one value a row, got shape {shape_of(x, name)}")
    shape = shape_of(offsets, "offsets")
    if len(shape) != 1 or not shape[0] or (items is not None and shape[0] != items + 1):
        raise InvalidProblemError(f"offsets must be [{'batch' if items is None else items} + 1], got shape {shape}")
    return cut(offsets, (slice(1, shape[0]),), "offsets")


@entry(GroupedGemmPlan)
def jagged_dense_bmm(
    values: Array, offsets: Array, dense: Array, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """y[r] = values[r] @ dense[b] for the rows r of item b, offsets[b] to offsets[b + 1] - 1 (fbgemm's).

    values: [total, d]; offsets: [batch + 1], int32 or int64, the first 0; dense: [batch, d, n]; y: [total, n], 0 in
    rows behind the last item's. Items of any length: no max_L. One launch of `grouped_gemm`; gradients of values and
    dense.
    """
    if len(shape_of(dense, "dense")) != 3:
        raise InvalidProblemError(f"dense must be [batch, d, n], got shape {shape_of(dense, 'dense')}")
    ends = _ends(offsets, {"values": values}, shape_of(dense, "dense")[0])
    return grouped_gemm(values, dense, ends, out=out, stream=stream, preference=preference)


@entry(GroupedInnerGemmPlan)
def jagged_jagged_bmm(
    x_values: Array, y_values: Array, offsets: Array, *, out: Any = None, stream: Any = None, preference: Any = None
) -> Any:
    """z[b] = Σ over the rows r of item b of x_values[r]ᵀ y_values[r], [batch, d, n] (fbgemm's).

    x_values: [total, d]; y_values: [total, n]; offsets: [batch + 1], int32 or int64, the first 0; an item without rows
    gives 0. Items of any length: no max_L. One launch of `grouped_inner_gemm`; gradients of both values.
    """
    ends = _ends(offsets, {"x_values": x_values, "y_values": y_values})
    options = {"out": out, "stream": stream, "preference": preference}
    return grouped_inner_gemm(transposed(x_values, "x_values"), y_values, ends, **options)
