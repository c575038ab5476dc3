"""Products of int8 by weights of 4 bits on sm_90a, by TMA and the tensor cores of warpgroups.

The kernel is kernels/quant_gemm/w4a8_wgmma.cu. A tile is 128 rows of weights, decoded once, by 128 or 64 rows of x,
whichever needs less time for the problem.
"""

from __future__ import annotations

import math
from typing import Any

from ..core.checked import INT32
from ..core.element import ElementKind
from ..core.tensor_map import TensorMap
from ..core.variant import Geometry, Kernel, Problem, Step
from .gemm_wgmma import operand_map
from .w4a8 import params, values_of

ROWS, SLICE, RUN = 128, 128, 32  # of weights in a tile; of k in a slice, in a run
STAGING, BARRIERS = 8 * 2 * 2048, 256  # bytes by which warps finish their rows, and that all barriers take
_CLUSTERS, _AHEAD, _STAGES = {128: 2, 64: 1}, 6, 4  # blocks, by rows of x in a tile; slices whose codes are ahead
_DECODERS = 2  # warpgroups; two others multiply
_THREADS = (_DECODERS + 2) * 128
SUMS = {"w4a8_barriers": BARRIERS, "w4a8_runs": SLICE // RUN}
"""Params fields of kernels that include `kernels/quant_gemm/w4a8_sums.cuh`."""
PARAMS = params(
    "W4A8WgmmaParams", x_map="map", codes_map="map", x_step="i32", rows="i32", cols="i32", band="i32", total="i32",
    lead="i32", w4a8_stages=_STAGES, w4a8_ahead=_AHEAD, w4a8_decoders=_DECODERS, w4a8_cluster_128=_CLUSTERS[128],
    w4a8_cluster_64=_CLUSTERS[64], **SUMS,
)  # fmt: skip
RASTER_ROWS, AHEAD = 8, 1  # of a raster group; slices by which one warpgroup is ahead of the other
# In clocks: a slice by rows of x in a tile, of which two warpgroups decode one each in a chain of waits and stores;
# what numbers of groups add to it; the scaled sums of a row of x and group; the end of a tile.
# Fitted to the figures in docs/design/quant_gemm.md.
_CHAIN, _NUMBERS, _SCALED, _END = {128: 1250, 64: 1300}, 270, 3.4, 1500

KERNEL = Kernel(
    "w4a8_wgmma", "w4a8_wgmma<{T}, {COLUMNS}>", PARAMS, {"COLUMNS": tuple(_CLUSTERS)}, threads=_THREADS, min_blocks=1,
    kindless=True,
)  # fmt: skip
_SMEM = 1024 + BARRIERS + STAGING + _AHEAD * ROWS * SLICE // 2  # and the stages, with scales of all runs


def _shared_memory(columns: int) -> int:
    """Bytes; up to 1024 come before the ring."""
    return _SMEM + _STAGES * ((ROWS + columns) * SLICE + ROWS * 4 * (SLICE // RUN))


def _tiles(desc: Any, columns: int) -> tuple[int, int]:
    """Rows and columns of tiles, or of clusters of them, of a batch index."""
    return -(-desc.n // (_CLUSTERS[columns] * ROWS)), -(-desc.m // columns)


def _codes_map(desc: Any, batch: int) -> TensorMap:
    """What TMA is told of the codes: boxes are the rows of a tile by a slice of k."""
    pitch = desc.kind.row.bytes(desc.k)
    extents, box = (pitch, desc.n, batch), (SLICE // 2, ROWS, 1)
    return TensorMap("codes", ElementKind.U8, extents, (pitch, pitch * desc.n), box, swizzle=0)


def groups_of_slice(desc: Any) -> float:
    """Groups that end in a slice, in the mean."""
    return float(min(SLICE // RUN, SLICE / max(desc.group, 1)))


def _clocks(p: Problem, columns: int) -> float:
    """Until the last multiprocessor is done, about, with so many rows of x in a tile."""
    desc = p.desc
    rows, cols = _tiles(desc, columns)
    numbers = _NUMBERS if desc.group < desc.k else 0
    slice_ = _CHAIN[columns] + numbers + _SCALED * groups_of_slice(desc) * columns
    waves = math.ceil(rows * cols * math.prod(desc.batch_shape) / max(1, p.device.sms // _CLUSTERS[columns]))
    return float(waves * (-(-desc.k // SLICE) * slice_ + _END))


def clocks(p: Problem) -> float:
    """Until the last multiprocessor is done, about."""
    return min(_clocks(p, columns) for columns in _CLUSTERS)


def geometry(p: Problem, stored: dict[str, Any], is_signed: bool) -> Geometry | str:
    """Persistent blocks, which take work tiles."""
    desc, batch = p.desc, math.prod(p.desc.batch_shape)
    if max(desc.m, desc.n, desc.k) > INT32 - 2 * ROWS:
        return "an extent passes 32 bits"
    values = values_of(p, stored, is_signed)
    if isinstance(values, str):
        return values
    columns = min(_CLUSTERS, key=lambda one: _clocks(p, one))
    rows, cols = _tiles(desc, columns)
    total, slices, cluster = rows * cols * batch, -(-desc.k // SLICE), _CLUSTERS[columns]
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
        "codes_map": codes, "x_map": made[0], "x_step": made[2], "rows": rows, "cols": cols, "band": RASTER_ROWS,
        "total": total, "lead": min(AHEAD, slices),
    }  # fmt: skip
    blocks = min(total, max(1, p.device.sms // cluster)) * cluster
    axes, smem = {"COLUMNS": columns}, _shared_memory(columns)
    step = Step(KERNEL.name, (blocks, 1, 1), values, axes, _THREADS, smem, cluster)
    return Geometry((step,), layout="contiguous" if all(view.dense for view in p.flat()) else "strided")
