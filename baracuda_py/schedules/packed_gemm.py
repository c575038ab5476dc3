"""Products of packed integers (kernels/quant_gemm/packed.cuh): tiles on tensor cores, pairs of columns for few rows.

Both operands are lines of bytes along k, a [m, …] and b [n, …]. A line that is dense and starts 16-byte aligned is
copied in accesses of 16 bytes, any other byte by byte; sums are integers and the same either way.
"""

from __future__ import annotations

from typing import Any

from ..core.params import Params
from ..core.variant import Geometry, Kernel, Problem, Step
from .gemm import steps_of, wide_view

SIZES = (128, 64)  # of tiles
THREADS, STAGES, SLICE = 256, 3, 128  # of a block; of its ring; bytes of a line of a in a slice
FEW = 8  # rows that columns taken apart are faster for
_GEMV_THREADS, _GEMV_ROWS, _GEMV_COLS = 128, 4, 2
_WARP, _INT32 = 32, 2**31

LINES = {"line_threads": THREADS, "line_stages": STAGES}
"""Params fields of kernels that include `kernels/quant_gemm/byte_lines.cuh`."""
PARAMS = Params(
    "PackedGemmParams", y="ptr", a="ptr", b="ptr", scale_a="ptr", scale_b="ptr", bias="ptr", m="i64", n="i64", k="i64",
    a_strides="i64[2]", b_strides="i64[2]", y_strides="i64[2]", vectors="i64[3]", wide="i32",
    packed_gemv_rows=_GEMV_ROWS, packed_gemv_cols=_GEMV_COLS, **LINES,
)  # fmt: skip

MMA_KERNELS = (
    Kernel("mma", "packed_gemm<quant::{KIND}, {T}, {SIZE}>", PARAMS, {"SIZE": SIZES}, threads=THREADS, min_blocks=1),
)
GEMV_KERNELS = (Kernel("gemv", "packed_gemv<quant::{KIND}, {T}>", PARAMS, threads=_GEMV_THREADS),)


def staging_bytes(size: int, across: bool) -> int:
    """Shared memory that the accumulators of a tile leave by, eight warps at once."""
    rows = 64 if size == 128 else 16
    return 8 * 4 * (32 * (rows + 4) if across else rows * (32 + 8))


def tile_size(m: int, n: int, sms: int) -> tuple[int, int]:
    """The largest tile of which there is one for each multiprocessor, and how many there are."""
    counts = {size: -(-m // size) * -(-n // size) for size in SIZES}
    size = next((s for s in SIZES if counts[s] >= sms), SIZES[-1])
    return size, counts[size]


def _values(p: Problem) -> tuple[dict[str, Any], str]:
    """The constants of the kernels, and the class of the layout."""
    desc = p.desc
    vectors = [0 if v is None or v.shape[0] == 1 else v.strides[0] for v in (p.scale_a, p.scale_b, p.bias)]
    values = {
        "m": desc.m, "n": desc.n, "k": desc.k, "a_strides": steps_of(p.a), "b_strides": steps_of(p.b),
        "y_strides": steps_of(p.y), "vectors": vectors,
        "wide": sum(1 << n for n, view in enumerate((p.a, p.b, p.y)) if wide_view(view)),
    }  # fmt: skip
    return values, "contiguous" if all(view.dense for view in p.flat()) else "strided"


def tiles(p: Problem) -> Geometry | str:
    """A block for every tile."""
    desc = p.desc
    size, blocks = tile_size(desc.m, desc.n, p.device.sms)
    if blocks >= _INT32:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    values, layout = _values(p)
    shared = max(STAGES * size * (SLICE + desc.kind.slice_b), staging_bytes(size, False))
    return Geometry((Step("mma", (blocks, 1, 1), values, {"SIZE": size}, THREADS, shared),), layout=layout)


def few_rows(p: Problem) -> Geometry | str:
    """A warp for every two columns of four rows."""
    desc = p.desc
    if desc.m > FEW:
        return f"m is {desc.m}, more than {FEW} rows"
    columns = _GEMV_THREADS // _WARP * _GEMV_COLS
    blocks = max(1, -(-desc.n // columns))
    if blocks >= _INT32:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    values, layout = _values(p)
    grid = (blocks, max(1, -(-desc.m // _GEMV_ROWS)), 1)
    return Geometry((Step("gemv", grid, values, {}, _GEMV_THREADS),), layout=layout)
