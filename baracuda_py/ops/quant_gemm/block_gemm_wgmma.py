"""Products of many rows by stored weights on sm_90a: W is decoded where TMA would load it.

The kernel is kernels/quant_gemm/block_gemm_wgmma.cu. A tile is 128 rows of W by 128 of x, or in clusters of two blocks
by 256. Where there are fewer tiles than multiprocessors k is summed in parts, which a second launch adds in order.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from ...core import ElementKind, Geometry, Kernel, Params, Problem, Step, View
from ...core.checked import INT32
from ...schedules.gemm import wide_view
from ...schedules.gemm_wgmma import AHEAD, RASTER_ROWS, operand_map, shared_memory
from ..quantize.stored import in_threes, stored_params, stored_values
from .chunks import chunk_bytes

Y_FIELDS = {"y": "ptr", "bias": "ptr", "y_steps": "i64[3]", "bias_step": "i64", "wide": "i32", "wide_out": "i32"}
_PARAMS = Params(
    "BlockGemmWgmmaParams", x_map="map", m="i64", n="i64", k="i64", chunk_bytes="i64", x_step="i32", rows="i32",
    cols="i32", band="i32", total="i32", lead="i32", parts="i32", each="i32", **Y_FIELDS, **stored_params(),
)  # fmt: skip
_SUMS_PARAMS = Params(
    "BlockGemmSumsParams", sums="ptr", batch="i64", parts="i64", m="i64", n="i64", pitch="i64", **Y_FIELDS
)

_ROWS, _DEPTH = 128, 64  # of W in a tile, of k in a stage
_CLUSTERS = {256: 2, 128: 1}  # by columns of a tile
_THREADS = {256: 384, 128: 512}
_LEAST, _TURN = 4, 2  # stages in a part of k, and that are decoded at once
_PARTS = (1, 2, 3, 4, 6, 8)
# What parts are chosen for, and tiles and parts by: multiprocessors, and in clocks a stage by columns, the end of a
# tile, a second launch, and a float that is written and read again.
_SMS, _STAGE, _END, _LAUNCH, _FLOAT = 132, {256: 1060, 128: 780}, 3000, 4000, 1 / 250
WIDE = 256  # rows of x for which W is decoded once

SUMS = Kernel(
    "sums", "block_gemm_sums<{T}>", _SUMS_PARAMS, source="quant_gemm/block_gemm_sums.cu", min_blocks=2, kindless=True
)
KERNELS = (
    *(
        Kernel(f"wgmma_{n}", f"block_gemm_wgmma<{{KIND}}, {{T}}, {n}>", _PARAMS, threads=_THREADS[n], min_blocks=1)
        for n in _CLUSTERS
    ),
    SUMS,
)


def _cost(p: Problem, columns: int, parts: int, sms: int) -> float:
    """Clocks until the last multiprocessor is done, about."""
    desc, batch, cluster = p.desc, math.prod(p.desc.batch_shape), _CLUSTERS[columns]
    tiles = -(-desc.n // (cluster * _ROWS)) * -(-desc.m // columns) * batch * parts
    each = _stages(desc.k, parts) * _STAGE[columns] + _END
    added = 0.0 if parts == 1 else _LAUNCH + parts * batch * desc.m * desc.n * _FLOAT
    return float(math.ceil(tiles / max(1, sms // cluster)) * each + added)


def _stages(k: int, parts: int) -> int:
    """Stages of a part of k, the last of which may have fewer: whole turns of the warps that decode."""
    return -(-k // (_TURN * parts * _DEPTH)) * _TURN if parts > 1 else -(-k // _DEPTH)


def _chosen(p: Problem) -> tuple[int, int]:
    """Columns of a tile and parts of k; the order of sums, which parts are, depends on extents alone."""
    stages = _stages(p.desc.k, 1)

    def some(parts: int) -> bool:  # whether all parts have enough, and none is empty
        return parts == 1 or (stages >= parts * _LEAST and (parts - 1) * _stages(p.desc.k, parts) < stages)

    both = itertools.product(_CLUSTERS, filter(some, _PARTS))
    parts = min(both, key=lambda one: _cost(p, one[0], one[1], _SMS))[1]
    return min(_CLUSTERS, key=lambda columns: _cost(p, columns, parts, p.device.sms)), parts


def to_y(p: Problem, y: View, place: Any, bias: bool) -> dict[str, Any]:
    """The parameters of `Y_FIELDS`; y: [items, m, n]."""
    return {
        "y": place, "y_steps": y.strides, "wide": wide_view(y), "wide_out": y.element is not p.desc.element,
        "bias_step": p.bias.strides[0] if bias and p.bias is not None else 0,
    } | ({} if bias else {"bias": "@null"})  # fmt: skip


def added(p: Problem, y: View, batch: int, parts: int, pitch: int) -> Step:
    """The launch that adds the parts of k."""
    desc = p.desc
    values = {"sums": ("@workspace", 0), "batch": batch, "parts": parts, "m": desc.m, "n": desc.n, "pitch": pitch}
    blocks = -(-batch * desc.m * -(-desc.n // 8) // 256)
    return Step("sums", (blocks, 1, 1), values | to_y(p, y, "y", True))


def geometry(p: Problem) -> Geometry | str:
    """Resident blocks that take tiles in turn, and what adds parts of k."""
    desc, values = p.desc, stored_values(p)
    if isinstance(values, str):
        return values
    y, batch = in_threes(p.y), math.prod(desc.batch_shape)
    if y is None:
        return f"y must have a batch of one stride, got strides {p.y.strides} of shape {p.y.shape}"
    if max(desc.m, desc.n, desc.k) > INT32 - 2 * WIDE:
        return "an extent passes 32 bits"
    columns, parts = _chosen(p)
    cluster = _CLUSTERS[columns]
    made = operand_map("x", p.x, columns // cluster, (False,)) if desc.k else (None, False, 0)
    if isinstance(made, str):
        return f"{made}; it must have k along memory, in rows of whole 16 bytes"
    rows, cols = -(-desc.n // (cluster * _ROWS)), -(-desc.m // columns)
    pitch = -(-desc.n // 8) * 8
    total, nbytes = rows * cols * batch * parts, 4 * batch * parts * desc.m * pitch if parts > 1 else 0
    if max(total, batch * desc.m * pitch // 2048) >= INT32:
        return f"needs {total} tiles, which pass 32 bits"
    each = _stages(desc.k, parts)
    last = _stages(desc.k, 1) - (parts - 1) * each  # stages of the last part
    held = View(0, (batch * parts, desc.m, desc.n), (desc.m * pitch, pitch, 1), ElementKind.F32)
    written = to_y(p, y, "y", True) if parts == 1 else to_y(p, held, ("@workspace", 0), False)
    values |= written | _tiles(p, rows, cols, total) | {
        "x_map": made[0], "x_step": made[2], "parts": parts, "each": each, "lead": min(AHEAD[True], last),
    }  # fmt: skip
    blocks = min(total, max(1, p.device.sms // cluster)) * cluster
    step = Step(
        f"wgmma_{columns}", (blocks, 1, 1), values, {}, _THREADS[columns], shared_memory(columns), cluster
    )  # fmt: skip
    steps = (step,) if parts == 1 else (step, added(p, y, batch, parts, pitch))
    return Geometry(steps, nbytes, "contiguous" if all(view.dense for view in p.flat()) else "strided")


def _tiles(p: Problem, rows: int, cols: int, total: int) -> dict[str, Any]:
    desc = p.desc
    return {
        "m": desc.m, "n": desc.n, "k": desc.k, "rows": rows, "cols": cols, "band": RASTER_ROWS, "total": total,
        "chunk_bytes": chunk_bytes(desc),
    }  # fmt: skip
