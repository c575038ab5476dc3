"""The backward of attention that leaves out blocks of scores, on tensor cores.

dk and dv by blocks of keys, as in `attention_backward`; dq by blocks of queries. Each walks the tiles with a set block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..core import Geometry, Kernel, Params, Problem, Step, Variant
from . import attention_backward, block_sparse
from .attention import HALVES, TENSOR_CORES, chunk, head_dim
from .attention_backward import NARROW, PREPARE, Blocks, Frame

PARAMS = Params("SdpaBlockSparseGradientsParams", **attention_backward.FIELDS, **block_sparse.FIELDS)
# Tiles of up to 64 keys by 64 queries, so that with blocks of 64 every one is wanted whole or not at all.
KEYS = {32: Blocks(4, 1, 1, 64, 32, 2, 2, 2), 64: Blocks(4, 1, 1, 64, 32, 2, 2, 2), **NARROW}


@dataclass(frozen=True)
class QueryTiling:
    """A block of `sdpa_block_sparse_dq` for one head_dim: 16 queries a warp, keys a tile, blocks an SM."""

    keys: int
    blocks: int
    warps: int = 4

    @property
    def rows(self) -> int:
        """Queries a block takes."""
        return 16 * self.warps

    def smem(self, d: int) -> int:
        """Bytes: queries and their dy, keys and values."""
        return 4 * d * (self.rows + self.keys)


QUERIES = {
    32: QueryTiling(64, 3), 64: QueryTiling(64, 2), 96: QueryTiling(64, 2), 128: QueryTiling(64, 2),
    192: QueryTiling(32, 2), 256: QueryTiling(32, 2),
}  # fmt: skip
SHORT = QueryTiling(32, 2)  # where blocks end within tiles of 64 keys


def _geometry(p: Problem) -> Geometry | str:
    d, more = head_dim(p.desc, KEYS), block_sparse.constants(p)
    if isinstance(d, str) or isinstance(more, str):
        return d if isinstance(d, str) else str(more)
    t, own = KEYS[d], QUERIES[d]
    frame = Frame(p, d, t, str(d))
    steps = frame.steps
    params = frame.gradients | more
    if frame.kv_heads * frame.key_tiles and any(g is not None and g.size for g in (p.dk, p.dv)):
        name = f"{'whole' if _whole(more, t.queries, t.keys) else 'cut'}_{d}"
        grid = (frame.kv_heads * frame.key_tiles, 1, 1)
        steps.append(Step(f"gradients_{name}", grid, params, {}, 32 * t.warps, t.smem(d)))
    if p.dq is not None and p.dq.size:
        name = f"whole_{d}"
        if not _whole(more, own.rows, own.keys):
            name, own = f"cut_{d}", SHORT
        tiles = -(-p.desc.query_len // own.rows)
        params = params | {"tiles": tiles, "chunk": chunk(p.desc)}
        steps.append(Step(f"dq_{name}", (tiles * frame.heads, 1, 1), params, {}, 32 * own.warps, own.smem(d)))
    return Geometry(tuple(steps), frame.workspace, frame.layout)


def _whole(constants: dict[str, Any], queries: int, keys: int) -> bool:
    return constants["query_block"] % queries == 0 and constants["key_block"] % keys == 0


def _kernels(d: int) -> tuple[Kernel, ...]:
    t, unit = KEYS[d], f"mma_{d}"
    made = [Kernel(f"prepare_{d}", f"flash_prepare<{{T}}, {d}, {t.queries}, {t.keys}>", PREPARE, unit=unit)]
    for name, cuts, own in (("whole", "false", QUERIES[d]), ("cut", "true", SHORT)):
        call = f"{t.call(d)[:-1]}, baracuda::attention::BlockPattern, {cuts}>"
        made += [
            Kernel(
                f"gradients_{name}_{d}", call, PARAMS, threads=32 * t.warps, min_blocks=t.blocks, unit=unit,
                spills=t.spills,
            ),
            Kernel(
                f"dq_{name}_{d}", f"sdpa_block_sparse_dq<{{T}}, {d}, {own.warps}, {own.keys}, {cuts}>", PARAMS,
                threads=32 * own.warps, min_blocks=own.blocks, unit=unit,
            ),
        ]  # fmt: skip
    return tuple(made)


MMA_ROW = Variant(
    "mma", _geometry, source="attention/sdpa_block_sparse_backward_mma.cu", elements=HALVES, guarantee=TENSOR_CORES,
    kernels=tuple(kernel for d in KEYS for kernel in _kernels(d)),
)  # fmt: skip
