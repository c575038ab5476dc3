"""The forward of block-sparse attention: rows like those of the dense one (docs/design/block-sparse.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....core import Geometry, Kernel, Params, Problem, Variant
from ..dense import forward as attention
from ..dense.forward import HALVES, TENSOR_CORES, head_dim
from ..dense.tilings import Tiling

FIELDS = {"pattern": "ptr", "pattern_stride": "i64[4]", "query_block": "i32", "key_block": "i32"}
PARAMS = Params("SdpaBlockSparseParams", **attention.FIELDS, **FIELDS)
WORK = "attention::BlockSparse<{}>"  # whether blocks of the pattern may end within a tile
_LIMIT = 2**30


@dataclass(frozen=True)
class Design:
    """Tilings by head_dim, and where a block of the pattern may end in their kernels (`Borders`)."""

    name: str
    borders: str
    tilings: Mapping[int, Tiling]

    def takes(self, d: int, query_block: int, key_block: int) -> bool:
        """Whether blocks end only there."""
        t = self.tilings.get(d)
        if t is None or self.borders == "anywhere":
            return t is not None
        rows = t.rows if self.borders == "between_tiles" else 16 * t.tiles
        return query_block % rows == 0 and key_block % t.keys == 0

    def kernels(self, params: Params = PARAMS) -> tuple[Kernel, ...]:
        """One for each head_dim."""
        return tuple(
            Kernel(
                f"{self.name}_{d}",
                t.call(d, f"Borders::{self.borders}", "sdpa_block_sparse_mma"),
                params,
                threads=32 * t.warps,
                min_blocks=t.blocks,
            )
            for d, t in self.tilings.items()
        )


# 64 queries, so that with blocks of 64 every tile is wanted whole or not at all; 32 a warp where registers allow. One
# to six registers are spilled around the branch that computes rows of huge scores again.
_FINE = {
    32: Tiling(4, 1, 64, 2, 4), 64: Tiling(2, 2, 64, 1, 4), 96: Tiling(2, 2, 64, 1, 4),
    128: Tiling(2, 2, 64, 1, 4), 192: Tiling(4, 1, 64, 1, 2), 256: Tiling(4, 1, 64, 1, 2),
}  # fmt: skip
# Three registers spilled are faster than 32 queries a warp without.
CUT = Design("cut", "anywhere", _FINE | {64: Tiling(4, 1, 64, 1, 3), 128: Tiling(4, 1, 64, 1, 3)})
DESIGNS = (
    Design("whole", "between_tiles", _FINE),
    Design(
        "warps",
        "between_warps",
        {
            32: Tiling(4, 1, 32, 2, 4),
            64: Tiling(4, 1, 32, 2, 4),
            96: Tiling(4, 1, 32, 2, 3),
            128: Tiling(2, 1, 32, 2, 6),
            192: Tiling(4, 1, 32, 2, 2),
            256: Tiling(4, 1, 32, 2, 2),
        },
    ),
    CUT,
)


def constants(p: Problem) -> dict[str, Any] | str:
    """The values of FIELDS. A pattern with one block along an axis counts it as longer than any tile."""
    desc = p.desc
    if max(desc.query_len, desc.key_len) >= _LIMIT:
        return "more than 2^30 queries or keys"
    whole = (desc.batch_size, desc.num_heads, desc.query_blocks, desc.key_blocks)
    return {
        "pattern_stride": p.pattern.broadcast_to(whole).strides,
        "query_block": desc.query_block if desc.query_blocks > 1 else _LIMIT,
        "key_block": desc.key_block if desc.key_blocks > 1 else _LIMIT,
    }


def _mma(p: Problem) -> Geometry | str:
    d, more = head_dim(p.desc, _FINE), constants(p)
    if isinstance(d, str):
        return d
    if isinstance(more, str):
        return more
    design = next(x for x in DESIGNS if x.takes(d, more["query_block"], more["key_block"]))
    t = design.tilings[d]
    return attention.dense(p, f"{design.name}_{d}", {}, t.rows, 32 * t.warps, t.smem(d), **more)


def _simt(p: Problem, kernel: str, axes: Mapping[str, Any], rows: int, threads: int, smem: int) -> Geometry | str:
    more = constants(p)
    return more if isinstance(more, str) else attention.dense(p, kernel, axes, rows, threads, smem, **more)


MMA_ROW = Variant(
    "mma",
    _mma,
    source="attention/sparse/sdpa_block_sparse_mma.cu",
    elements=HALVES,
    guarantee=TENSOR_CORES,
    kernels=tuple(kernel for design in DESIGNS for kernel in design.kernels()),
    may_spill=True,
)
SIMT_ROW = attention.simt_row(attention.Form(PARAMS, WORK.format("true"), _simt))
