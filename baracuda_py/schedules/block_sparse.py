"""Attention that leaves out blocks of scores: the forward's rows, after those of `attention`."""

from __future__ import annotations

from typing import Any

from ..core import Geometry, Kernel, Params, Problem, Variant
from . import attention
from .attention import HALVES, TENSOR_CORES, Tiling, head_dim

FIELDS = {"pattern": "ptr", "pattern_stride": "i64[4]", "query_block": "i32", "key_block": "i32"}
PARAMS = Params("SdpaBlockSparseParams", **attention.FIELDS, **FIELDS)
_LIMIT = 2**30

# 64 queries, so that with blocks of 64 every tile is wanted whole or not at all.
FINE = {
    32: Tiling(4, 1, 64, 2, 4), 64: Tiling(4, 1, 64, 1, 4), 96: Tiling(2, 2, 64, 1, 4), 128: Tiling(2, 2, 64, 1, 4),
    192: Tiling(4, 1, 64, 1, 2), 256: Tiling(4, 1, 64, 1, 2),
}  # fmt: skip
# 128 queries, as the dense row's, where blocks are as long.
COARSE = {64: Tiling(4, 2, 64, 2, 2), 128: Tiling(4, 2, 64, 1, 2)}


def constants(p: Problem) -> dict[str, Any] | str:
    """The values of FIELDS. One block along an axis counts as longer than any tile."""
    desc = p.desc
    if max(desc.query_len, desc.key_len) >= _LIMIT:
        return "more than 2^30 queries or keys"
    whole = (desc.batch_size, desc.num_heads, desc.query_blocks, desc.key_blocks)
    return {
        "pattern_stride": p.pattern.broadcast_to(whole).strides,
        "query_block": desc.query_block if desc.query_blocks > 1 else _LIMIT,
        "key_block": desc.key_block if desc.key_blocks > 1 else _LIMIT,
    }  # fmt: skip


def _mma(p: Problem) -> Geometry | str:
    d, more = head_dim(p.desc, FINE), constants(p)
    if isinstance(d, str) or isinstance(more, str):
        return d if isinstance(d, str) else str(more)
    coarse = d in COARSE and whole(more, COARSE[d])
    name, t = ("coarse", COARSE[d]) if coarse else ("whole" if whole(more, FINE[d]) else "cut", FINE[d])
    return attention.forward(p, f"{name}_{d}", {}, t.rows, 32 * t.warps, t.smem(d), **more)


def whole(constants: dict[str, Any], t: Tiling) -> bool:
    """Whether every tile lies in one block of the pattern."""
    return constants["query_block"] % t.rows == 0 and constants["key_block"] % t.keys == 0


def _kernel(name: str, d: int, t: Tiling) -> Kernel:
    cuts = str(name == "cut").lower()
    call = f"sdpa_block_sparse_mma<{{T}}, {d}, {t.warps}, {t.tiles}, {t.keys}, {t.stages}, {cuts}>"
    return Kernel(f"{name}_{d}", call, PARAMS, threads=32 * t.warps, min_blocks=t.blocks, spills=t.spills)


def _simt(p: Problem) -> Geometry | str:
    more = constants(p)
    return more if isinstance(more, str) else attention.simt(p, **more)


MMA_ROW = Variant(
    "mma", _mma, source="attention/sdpa_block_sparse_mma.cu", elements=HALVES, guarantee=TENSOR_CORES,
    kernels=tuple(
        _kernel(name, d, t)
        for name, tilings in (("whole", FINE), ("cut", FINE), ("coarse", COARSE))
        for d, t in tilings.items()
    ),
)  # fmt: skip
SIMT_ROW = attention.simt_row(_simt, "flash_sdpa<{T}, {D}, baracuda::attention::BlockPattern>", PARAMS)
