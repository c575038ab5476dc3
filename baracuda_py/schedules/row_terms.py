"""Rows of terms: softmax and its kin over what is computed from several operands, a group of threads a row.

Rows are cut as in `row_groups`, one at a time for each group. Operands may differ in element and strides, and each says
by a bit of `wide` whether a chunk's elements are one run of aligned memory. `kernels/softmax/terms.cuh` is the device
side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View
from ..core.variant import Geometry, Kernel, Step
from .row_groups import BLOCK, GROUPS, LONG, group_of, group_params, group_rows, launch, row_axis_last

_THREADS = 512  # registers for so many threads a multiprocessor: a row's terms are held in the accumulator's element


def term_params(operands: int) -> dict[str, Any]:
    """Params fields for so many operands."""
    return {**group_params(operands), "wide": "i32"}


def outputs(kind: ElementKind) -> dict[str, tuple[ElementKind, ...]]:
    """The axis OUT: an output has the operands' element or their accumulator's."""
    return {"OUT": tuple(dict.fromkeys((kind, kind.acc)))}


def term_kernels(rows: str, long: str, params: Params, axes: Any) -> tuple[Kernel, ...]:
    """A kernel for each row of GROUPS, whose threads and chunks `rows` names as {GROUP}, and `long`.

    Both name the axis {WHOLE}, whether all operands' rows are whole aligned chunks.
    """

    def all_axes(element: ElementKind) -> dict[str, Any]:
        return {**(axes(element) if callable(axes) else axes), "WHOLE": (False, True)}

    def kernel(threads: int, chunks: int) -> Kernel:
        block = max(threads, BLOCK)
        call = rows.replace("{GROUP}", f"{threads}, {chunks}")
        return Kernel(f"rows_{threads}x{chunks}", call, params, all_axes, threads=block, min_blocks=_THREADS // block)

    grouped = [kernel(threads, chunks) for threads, chunks, _ in GROUPS]
    return (*grouped, Kernel("long", long, params, all_axes, threads=LONG, min_blocks=1))


def last_axis(views: Sequence[View | None], axis: int) -> tuple[View | None, ...]:
    """The views with the row's axis moved to the end; a view without axes is a row of one."""
    if not next(v for v in views if v is not None).shape:
        return tuple(None if v is None else v.reshaped((1,)) for v in views)
    return tuple(row_axis_last(v, axis) for v in views)


def term_geometry(
    views: Sequence[View | None], element: ElementKind, params: Mapping[str, Any], axes: Mapping[str, Any]
) -> Geometry | str:
    """The one launch over operands whose last axis is the row, by the kernels of `term_kernels`."""
    rows = group_rows(views)
    if isinstance(rows, str):
        return rows
    width = 16 // element.itemsize
    wide = {i for i in rows.present if rows.wide_of(i, width)}
    in_memory = {i for i in rows.present if (view := rows.views[i]) is not None and view.ptr}
    whole = rows.cols % width == 0 and wide >= in_memory
    constants = {**rows.params(), **params, "wide": sum(1 << i for i in wide)}
    group = group_of(rows.cols, element, 1)
    name, block, blocks = ("long", LONG, rows.rows) if group is None else launch(rows.rows, group)
    return Geometry((Step(name, (blocks, 1, 1), constants, {**axes, "WHOLE": whole}, block),), layout=rows.layout_class)
