"""The tensor-core row of `GemmPlan` for float64, for every target from sm_80 on: mma.sync, a ring of cp.async.

A sum is one chain in the order of k, whatever the tile, so that the bits of a row do not depend on how many there are.
"""

from __future__ import annotations

from ...core import Geometry, Kernel, Problem, Step
from ...schedules.gemm import batch_count, dense, gemm_params
from .mma import operands

SIZES = (128, 64)  # rows of a tile
_THREADS, _DEPTH = 128, 128  # bytes of k in a slice
_STAGES = {128: 3, 64: 4}

PARAMS = gemm_params(
    "GemmMmaF64Params", mma_f64_threads=_THREADS, mma_f64_slice_bytes=_DEPTH, mma_f64_stages_128=_STAGES[128],
    mma_f64_stages_64=_STAGES[64],
)  # fmt: skip
KERNELS = (
    Kernel(
        "mma_f64", "gemm_mma_f64<{A_K}, {B_K}, {GATED}, {SIZE}>", PARAMS,
        {"A_K": (True, False), "B_K": (True, False), "GATED": (False, True), "SIZE": SIZES}, threads=_THREADS,
        min_blocks=2,
    ),
)  # fmt: skip


def _tiles(p: Problem, size: int) -> int:
    columns = 64 if p.up is None else 32
    return batch_count(p) * int(-(-p.desc.m // size) * -(-p.desc.n // columns))


def geometry(p: Problem) -> Geometry | str:
    """A block for every tile, of a size of which there is one wave at least."""
    size = next((s for s in SIZES if _tiles(p, s) >= p.device.sms), SIZES[-1])
    blocks = _tiles(p, size)
    found = operands(p, blocks)
    if isinstance(found, str):
        return found
    axes, values = found
    ring = _STAGES[size] * (size + 64) * _DEPTH  # 64 columns of b, or 32 of b and of up
    step = Step("mma_f64", (blocks, 1, 1), values, axes | {"SIZE": size}, _THREADS, ring)
    return Geometry((step,), layout="contiguous" if dense(p) else "strided")
