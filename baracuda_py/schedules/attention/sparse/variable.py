"""Block-sparse attention whose blocks differ in size: the kernels of `sdpa_block_sparse`, with tables of borders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ....core import Geometry, Kernel, Params, Problem, Step, Variant
from ....core.variant import aligned
from ..dense import forward as attention
from ..dense.backward import Arrangement, Cut, dense_cut
from ..dense.backward_simt import simt_row
from ..dense.forward import HALVES, TENSOR_CORES, head_dim, strides
from .backward import mma_row
from .forward import CUT, WORK

THREADS = 256
_LIMIT = 2**30
_SIZES = dict.fromkeys(("pattern_rows", "pattern_columns"), "i64")
_TABLES = dict.fromkeys(("row_of", "column_of"), "workspace")
FIELDS = {"pattern": "ptr", "pattern_stride": "i64[4]", **_SIZES, **_TABLES}
PARAMS = Params("VariableBlockSparseParams", **attention.FIELDS, **FIELDS)
_BORDERS = Params(
    "VariableBlocksParams", **_SIZES, **_TABLES, **dict.fromkeys(("row_ends", "column_ends"), "workspace"),
    **dict.fromkeys(("row_sizes", "column_sizes"), "ptr"), **dict.fromkeys(("row_stride", "column_stride"), "i64[2]"),
    **dict.fromkeys(("query_len", "key_len"), "i64"), **dict.fromkeys(("wide_rows", "wide_columns"), "i32"),
)  # fmt: skip
TABLES = Kernel(
    "borders", f"variable_blocks<{THREADS}>", _BORDERS, threads=THREADS, source="attention/sparse/variable_blocks.cu"
)


def borders(p: Problem) -> tuple[dict[str, Any], tuple[Step, ...], int] | str:
    """The values of FIELDS, the launch that makes the tables, and the workspace that they take."""
    desc = p.desc
    if max(desc.query_len, desc.key_len, desc.row_blocks, desc.column_blocks) >= _LIMIT:
        return "2^30 queries, keys or blocks or more"
    places, workspace = {}, 0
    for name, count in (
        ("row_of", desc.query_len), ("column_of", desc.key_len), ("row_ends", desc.row_blocks),
        ("column_ends", desc.column_blocks),
    ):  # fmt: skip
        places[name] = workspace
        workspace += aligned(4 * desc.num_kv_heads * count)
    sizes = {"pattern_rows": desc.row_blocks, "pattern_columns": desc.column_blocks}
    made = {
        "query_len": desc.query_len, "key_len": desc.key_len, "row_stride": p.row_sizes.strides,
        "column_stride": p.column_sizes.strides, "wide_rows": int(p.row_sizes.element.itemsize == 8),
        "wide_columns": int(p.column_sizes.element.itemsize == 8), **sizes, **places,
    }  # fmt: skip
    steps = (Step("borders", (2 * desc.num_kv_heads, 1, 1), made, {}, THREADS),) if desc.num_kv_heads else ()
    fields = {
        "pattern": "block_mask", "pattern_stride": (0, *p.block_mask.strides), **sizes,
        "row_of": places["row_of"], "column_of": places["column_of"],
    }  # fmt: skip
    return fields, steps, workspace


def _launch(p: Problem, kernel: str, axes: Mapping[str, Any], rows: int, threads: int, smem: int) -> Geometry | str:
    found = borders(p)
    if isinstance(found, str):
        return found
    fields, steps, workspace = found
    made = attention.dense(p, kernel, axes, rows, threads, smem, **fields)
    return replace(made, steps=(*steps, *made.steps), workspace=workspace)


def _mma(p: Problem) -> Geometry | str:
    d = head_dim(p.desc, CUT.tilings)
    if isinstance(d, str):
        return d
    t = CUT.tilings[d]
    return _launch(p, f"{CUT.name}_{d}", {}, t.rows, 32 * t.warps, t.smem(d))


MMA_ROW = Variant(
    "mma",
    _mma,
    source="attention/sparse/sdpa_block_sparse_mma.cu",
    elements=HALVES,
    guarantee=TENSOR_CORES,
    kernels=(*CUT.kernels(PARAMS), TABLES),
    may_spill=True,
)
SIMT_ROW = attention.simt_row(attention.Form(PARAMS, WORK.format("true"), _launch, before=(TABLES,)))


def _cut(p: Problem, queries: int, keys: int, sorted_: bool) -> Cut | str:
    cut, found = dense_cut(p, queries, keys, sorted_), borders(p)
    if isinstance(found, str):
        return found
    fields, steps, workspace = found
    return replace(cut, sizes={**cut.sizes, **fields}, steps=lambda segment: steps, start=workspace)


_FORM = Arrangement("VariableBlocks", WORK.format("true"), strides, _cut, FIELDS, before=(TABLES,), apart=True)
BACKWARD_MMA_ROW = mma_row(_FORM, FIELDS)
BACKWARD_SIMT_ROW = simt_row(_FORM)
