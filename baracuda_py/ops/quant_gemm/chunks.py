"""What kernels by stored weights have of chunks of k, and the blocks of those that decode in registers.

The constants of kernels/quant_gemm/chunk_ring.cuh, block_gemm_rows.cuh and block_gemm_simt.cuh.
"""

from __future__ import annotations

from typing import Any

CHUNK = 128  # elements of k
WARPS = 8  # of a block by tensor cores
SIMT_ROWS, SIMT_WARPS = 8, 8
STAGES, SHORT_STAGES = 2, 4  # chunks of codes in a ring; of at most four bits, for few rows of x
BLOCK_STAGES, SHORT_BLOCK_STAGES, SHORT_BLOCK = 2, 3, 24  # the same of blocks, and bytes up to which one is short

CHUNKS = {"chunk_k": CHUNK}
BLOCKS = {
    **CHUNKS, "block_gemm_warps": WARPS, "block_gemm_simt_rows": SIMT_ROWS, "block_gemm_simt_warps": SIMT_WARPS,
    "block_gemm_long_stages": STAGES, "block_gemm_short_stages": SHORT_STAGES, "block_gemm_short_block": SHORT_BLOCK,
    "block_gemm_long_block_stages": BLOCK_STAGES, "block_gemm_short_block_stages": SHORT_BLOCK_STAGES,
}  # fmt: skip


def chunk_bytes(desc: Any) -> int:
    """Bytes of the codes of a row in a chunk."""
    return int(desc.kind.row.bytes(desc.k) * CHUNK // max(desc.k, 1))
