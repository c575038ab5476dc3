"""Products of int8 by weights of 4 bits on sm_90a, by the copy engine and the tensor cores of warpgroups.

The kernel is kernels/quant_gemm/w4a8_wgmma.cu. A tile is 128 rows of weights, decoded once, by 128, 64 or 16 rows of x,
whichever needs least time for the problem.
"""

from __future__ import annotations

import math
from typing import Any

from ..core.checked import INT32
from ..core.element import ElementKind
from ..core.tensor_map import TensorMap
from ..core.variant import Geometry, Kernel, Problem, Step
from .gemm_wgmma import THREADS, operand_map
from .w4a8 import FEW, params, values_of

PARAMS = params(
    "W4A8WgmmaParams",
    x_map="map",
    codes_map="map",
    x_step="i32",
    rows="i32",
    cols="i32",
    band="i32",
    total="i32",
    lead="i32",
)
# What the kernel's file has too: rows of weights, and of k in a slice and in a run; by rows of x in a tile blocks of a
# cluster, and slices whose codes are under way; stages.
_ROWS, _SLICE, _RUN = 128, 128, 32
_CLUSTERS, _AHEAD, _STAGES = {128: 2, 64: 1, 16: 1}, {128: 6, 64: 6, 16: 8}, 4
_STAGING, _BARRIERS = 8 * 2 * 2048, 256  # bytes by which warps finish their rows, and that all barriers take
_BAND, _LEAD = 8, 1
# In clocks: decoding a slice; for a group in it the scaled sums of each row of x; the products of a row of x; the end
# of a tile. docs/design/quant_gemm.md derives them.
_DECODE, _SCALED, _PRODUCTS, _END = 260, 3, 4, 1500

KERNEL = Kernel(
    "w4a8_wgmma", "w4a8_wgmma<{T}, {COLUMNS}>", PARAMS, {"COLUMNS": tuple(_CLUSTERS)}, threads=THREADS, min_blocks=1,
    kindless=True,
)  # fmt: skip


def _shared_memory(columns: int) -> int:
    """Bytes: up to 1024 before the ring, stages with scales, codes under way, parts of eight warps, barriers."""
    stage = (_ROWS + columns) * _SLICE + _ROWS * 4 * (_SLICE // _RUN)
    return 1024 + _STAGES * stage + _AHEAD[columns] * _ROWS * _SLICE // 2 + _STAGING + _BARRIERS


def _tiles(desc: Any, columns: int) -> tuple[int, int]:
    """Rows and columns of tiles, or of clusters of them, in an item of the batch."""
    return -(-desc.n // (_CLUSTERS[columns] * _ROWS)), -(-desc.m // columns)


def _codes_map(desc: Any, batch: int) -> TensorMap:
    """What the copy engine is told of the codes: boxes are the rows of a tile by a slice of k."""
    pitch = desc.kind.row.bytes(desc.k)
    extents, box = (pitch, desc.n, batch), (_SLICE // 2, _ROWS, 1)
    return TensorMap("codes", ElementKind.U8, extents, (pitch, pitch * desc.n), box, swizzle=0)


def _columns(p: Problem) -> int:
    """The rows of x in a tile with which the last multiprocessor is done first."""
    desc, slices = p.desc, -(-p.desc.k // _SLICE)
    scaled = _SCALED * min(_SLICE // _RUN, _SLICE / desc.group)

    def cost(columns: int) -> float:
        rows, cols = _tiles(desc, columns)
        tiles = rows * cols * math.prod(desc.batch_shape)
        slice_ = max(_PRODUCTS * columns, _DECODE + scaled * columns)
        return float(math.ceil(tiles / max(1, p.device.sms // _CLUSTERS[columns])) * (slices * slice_ + _END))

    return min(_CLUSTERS, key=cost)


def geometry(p: Problem, stored: dict[str, Any], is_signed: bool) -> Geometry | str:
    """Resident blocks that take tiles in turn."""
    desc, batch = p.desc, math.prod(p.desc.batch_shape)
    if max(desc.m, desc.n, desc.k) > INT32 - 2 * _ROWS:
        return "an extent passes 32 bits"
    values = values_of(p, stored, is_signed)
    if isinstance(values, str):
        return values
    columns = _columns(p)
    rows, cols = _tiles(desc, columns)
    total, slices, cluster = rows * cols * batch, -(-desc.k // _SLICE), _CLUSTERS[columns]
    if desc.m <= FEW and slices > 4 * total + 16:
        return f"{total} tiles are too few for a k of {desc.k}, which several warps then should share"
    made = operand_map("x", p.x, columns // cluster, (False,)) if desc.k else (None, False, 0)
    if isinstance(made, str):
        return f"{made}; it must have k along memory, in rows of whole 16 bytes"
    codes = _codes_map(desc, batch) if desc.k else None
    refused = codes.refusal(p.codes.ptr) if codes else None
    if refused is not None:
        return refused
    if total >= INT32:
        return f"needs {total} tiles, which pass 32 bits"
    values |= {
        "codes_map": codes, "x_map": made[0], "x_step": made[2], "rows": rows, "cols": cols, "band": _BAND,
        "total": total, "lead": 0 if columns == 16 else min(_LEAD, slices),
    }  # fmt: skip
    blocks = min(total, max(1, p.device.sms // cluster)) * cluster
    axes, smem = {"COLUMNS": columns}, _shared_memory(columns)
    step = Step(KERNEL.name, (blocks, 1, 1), values, axes, THREADS, smem, cluster)
    return Geometry((step,), layout="contiguous" if all(view.dense for view in p.flat()) else "strided")
