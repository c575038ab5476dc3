"""The importance of blocks: a warp for each query of each key head; on tensor cores some share tiles of keys."""

from __future__ import annotations

from typing import Any

from ....core import Geometry, Guarantee, Kernel, Params, Problem, Step, Variant
from ....core.error_bound import Chained
from ..dense.forward import HALVES, SINGLES, TENSOR_CORES, layout, strides, wide
from ..score_terms import WINDOW
from .selected import DIMS, ROWS, WARPS

_FIELDS: dict[str, Any] = WINDOW | {
    **dict.fromkeys(("q", "k", "lse", "importance"), "ptr"), "stride": "i64[3][3]", "scale": "f64",
    **dict.fromkeys(("query_len", "key_len", "query_start", "blocks", "size", "stride_tokens", "block_size"), "i64"),
    **dict.fromkeys(("initial", "local"), "i64"),
    **dict.fromkeys(("num_heads", "kv_heads", "group", "d_k", "wide"), "i32"),
}  # fmt: skip
PARAMS = Params("BlockImportanceParams", **_FIELDS)


def _keys(d: int) -> int:
    return 64 if d <= 128 else 32


def _geometry(p: Problem, tensor_cores: bool) -> Geometry | str:
    desc = p.desc
    d = next((d for d in DIMS if desc.d_k <= d), 0)
    if tensor_cores and not d:
        return f"head_dim {desc.d_k} is beyond {max(DIMS)}"
    rows = desc.batch_size * desc.num_kv_heads * desc.query_len
    sizes = (desc.query_len, desc.key_len, desc.tokens, desc.query_start, desc.block_size, desc.compress_size)
    if max(*sizes, desc.compress_stride) >= 2**30 or rows >= 2**31:
        return "2^30 queries, keys or tokens, or 2^31 rows or more"
    params = {
        "stride": strides(p.q, p.k, p.importance), "scale": desc.scale, "query_len": desc.query_len,
        "key_len": desc.key_len, "query_start": desc.query_start, "blocks": desc.blocks, "size": desc.compress_size,
        "stride_tokens": desc.compress_stride, "block_size": desc.block_size, "initial": desc.initial,
        "local": desc.local, "num_heads": desc.num_heads, "kv_heads": desc.num_kv_heads, "group": desc.group,
        "d_k": desc.d_k, "wide": wide(p.q, p.k),
    }  # fmt: skip
    if not (rows and desc.blocks):
        return Geometry((), layout=layout(p.q, p.k, p.importance))
    step = Step("rows", (rows, 1, 1), params, {}, 32)
    if tensor_cores:
        grid = (desc.batch_size * desc.num_kv_heads * -(-desc.query_len // WARPS), 1, 1)
        step = Step(f"rows_{d}", grid, params, {}, 32 * WARPS, 2 * d * (WARPS * ROWS + 2 * _keys(d)))
    return Geometry((step,), layout=layout(p.q, p.k, p.importance))


MMA_ROW = Variant(
    "mma",
    lambda p: _geometry(p, True),
    source="attention/sparse/block_importance_mma.cu",
    elements=HALVES,
    guarantee=TENSOR_CORES,
    kernels=tuple(
        Kernel(
            f"rows_{d}",
            f"block_importance_mma<{{T}}, {d}, {_keys(d)}, {WARPS}>",
            PARAMS,
            threads=32 * WARPS,
            min_blocks=3,
        )
        for d in DIMS
    ),
)
SIMT_ROW = Variant(
    "simt",
    lambda p: _geometry(p, False),
    source="attention/sparse/block_importance_simt.cu",
    elements=SINGLES,
    guarantee=Guarantee(Chained(2), batch_invariant=True),
    kernels=(Kernel("rows", "block_importance_simt<{T}>", PARAMS, threads=32),),
)
