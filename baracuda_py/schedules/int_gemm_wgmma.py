"""Products of integers of 8 bits on sm_90a, by TMA and the tensor cores of warpgroups.

The kernels are those of kernels/quant_gemm/int8_wgmma.cuh, whose tiles and clusters are those of `gemm_wgmma`.
"""

from __future__ import annotations

import math
from typing import Any

from ..core.element import ElementKind
from ..core.variant import Geometry, Kernel, Problem, Step
from .gemm import batch_count, dense, transposed
from .gemm_wgmma import AHEAD, CLUSTERS, RASTER_ROWS, ROWS, SLOWER, THREADS, operand_map, shared_memory
from .int_gemm import int_params, int_values

PARAMS = int_params(
    "IntWgmmaParams", a_map="map", b_map="map", up_map="map", a_step="i32", b_step="i32", up_step="i32", rows="i32",
    cols="i32", band="i32", total="i32", lead="i32",
)  # fmt: skip

_INT32 = 2**31

_CALL = "int_gemm_wgmma<{T}, signed char, {KIND}, {COLUMNS}>"
KERNELS = (
    Kernel("int_gemm_wgmma", _CALL, PARAMS, {"COLUMNS": (256, 128)}, threads=THREADS, min_blocks=1),
    Kernel("int_gemm_wgmma_narrow", _CALL, PARAMS, {"COLUMNS": (64,)}, threads=THREADS, min_blocks=1),
)


def refuses(desc: Any) -> str | None:
    """Why the design does not serve a descriptor, or None."""
    return None if desc.b_element is ElementKind.I8 else f"multiplies by int8, b is {desc.b_element}"


def geometry(p: Problem) -> Geometry | str:
    """Persistent blocks, which take work tiles."""
    desc, batch = p.desc, batch_count(p)
    if not desc.m < _INT32 > desc.n or desc.k >= _INT32:
        return "an extent passes 32 bits"
    found = int_values(p)
    if isinstance(found, str):
        return found
    values, first, workspace = found
    columns = _columns(p, batch)
    cluster = CLUSTERS[columns]
    maps: dict[str, Any] = {"up_map": None, "up_step": 0}
    for name, view, rows in (("a", p.a, ROWS), ("b", transposed(p.b), columns // cluster)):
        made = operand_map(name, view, rows) if desc.k else (None, False, 0)
        if isinstance(made, str):
            return (
                f"{made}; it must have k along memory, in rows of whole 16 bytes (b as the transposed view of [n, k])"
            )
        maps[f"{name}_map"], _, maps[f"{name}_step"] = made
    rows, cols = -(-desc.m // (cluster * ROWS)), -(-desc.n // columns)
    total = rows * cols * batch
    if total >= _INT32:
        return f"needs {total} tiles, which pass 32 bits"
    values |= maps | {"rows": rows, "cols": cols, "band": RASTER_ROWS, "total": total, "lead": AHEAD[True]}
    blocks = min(total, max(1, p.device.sms // cluster)) * cluster
    name, axes = KERNELS[columns == 64].name, {"COLUMNS": columns}
    step = Step(name, (blocks, 1, 1), values, axes, THREADS, shared_memory(columns), cluster)
    return Geometry((*first, step), workspace, "contiguous" if dense(p) else "strided")


def _columns(p: Problem, batch: int) -> int:
    """The width of tile with which the last multiprocessor is done first."""

    def cost(columns: int) -> float:
        cluster = CLUSTERS[columns]
        tiles = -(-p.desc.m // (cluster * ROWS)) * -(-p.desc.n // columns) * batch
        return float(math.ceil(tiles / max(1, p.device.sms // cluster)) * columns * SLOWER[columns])

    return min(CLUSTERS, key=cost)
