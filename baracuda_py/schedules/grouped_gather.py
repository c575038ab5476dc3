"""`grouped_gather_gemm`: products in groups of rows that an index names (kernels/gemm/grouped_gather_wgmma.cu)."""

from __future__ import annotations

from typing import Any

from ..core.element import ElementKind
from ..core.variant import Geometry, Kernel, Problem, Step
from .gemm import transposed, wide_view
from .gemm_wgmma import HALVES, THREADS, operand_map, shared_memory, stored_map
from .geometry import grid
from .grouped import bound_values, launches, most_tiles, rows_params, rows_values
from .grouped_wgmma import TILE, rows_columns

ELEMENTS = HALVES
_SIMT_THREADS = 256
_INT32 = 2**31
_BOTH = (False, True)
_INDEX = {"index": "ptr", "index_step": "i64", "sources": "i64", "index_wide": "i32"}

WGMMA = rows_params(
    "GroupedGatherParams", **dict.fromkeys(("b_map", "up_map", "y_map"), "map"),
    **dict.fromkeys(("b_step", "up_step", "plain"), "i32"), **_INDEX,
)  # fmt: skip
SIMT = rows_params("GroupedGatherSimtParams", **_INDEX, gather_threads=_SIMT_THREADS)
KERNEL = Kernel(
    "grouped_gather_wgmma", "grouped_gather_wgmma<{T}, {COLUMNS}, {B_ACROSS}, {GATED}>", WGMMA,
    {"B_ACROSS": _BOTH, "GATED": _BOTH, "COLUMNS": (256, 128)}, THREADS, 1, source="gemm/grouped_gather_wgmma.cu",
)  # fmt: skip
SIMT_KERNEL = Kernel(
    "grouped_gather_simt", "grouped_gather_simt<{T}, {GATED}>", SIMT, {"GATED": _BOTH}, _SIMT_THREADS,
    source="gemm/grouped_gather_simt.cu",
)  # fmt: skip
_OPERANDS = {"a": "x"} | {name: name for name in ("b", "up", "bias", "up_bias", "y")}


def _values(p: Problem) -> dict[str, Any]:
    values, _ = rows_values(p, _OPERANDS, ())
    return values | bound_values(p, p.desc.total) | {
        "index": "rows", "index_step": p.views["rows"].strides[0], "sources": p.desc.sources,
        "index_wide": p.views["rows"].element is ElementKind.I64,
    }  # fmt: skip


def wgmma(p: Problem) -> Geometry | str:
    """b by TMA, the rows by cp.async, or why not."""
    desc, x, gated = p.desc, p.x, p.up is not None
    if 0 in (desc.total, desc.groups, desc.n):
        return "there is nothing to multiply"
    if not wide_view(x) or x.strides[0] < 0:
        return f"needs rows of x along memory that start 16-byte aligned, got strides {x.strides}"
    if desc.k * x.element.itemsize % 16:
        return f"needs rows of whole 16 bytes, got {desc.k} of {x.element}"
    if max(desc.sources, 1) * x.strides[0] >= 2**34:  # elements: rows begin at 32-bit numbers of 16 bytes
        return "x passes 2**34 elements"
    columns = rows_columns(p, desc.total, desc.n * (1 + gated))
    share = columns // (1 + gated)
    maps: dict[str, Any] = {"up_map": None, "up_step": 0, "b_map": None, "b_step": 0}
    across = {}
    for name in ("b", "up") if gated else ("b",):
        found = operand_map(name, transposed(p.views[name]), share) if desc.k else (None, False, 0)
        if isinstance(found, str):
            return found
        maps[f"{name}_map"], across[name], maps[f"{name}_step"] = found
    if across.get("up", across["b"]) != across["b"]:
        return "b and up are dense along different axes"
    tiles = most_tiles(desc.total, desc.groups, TILE) * -(-desc.n // share)
    if not max(desc.total, desc.n, desc.groups, desc.k, tiles) < _INT32:
        return "an extent, or the number of tiles, passes 32 bits"
    plain = desc.activation == "none" and not gated and p.bias is None
    stored = stored_map("y", p.y) if plain else None
    values = _values(p) | maps | {"y_map": stored, "plain": stored is not None}
    chosen = {"B_ACROSS": across["b"], "GATED": gated, "COLUMNS": columns}
    blocks = (min(tiles, max(1, p.device.sms)), 1, 1)
    return launches(p, Step(KERNEL.name, blocks, values, chosen, THREADS, shared_memory(columns)))


def simt(p: Problem) -> Geometry | str:
    """For any strides: a warp makes one number."""
    numbers = p.desc.total * p.desc.n
    if numbers == 0:
        return launches(p)
    blocks = grid(-(-numbers // (_SIMT_THREADS // 32)))
    return launches(p, Step(SIMT_KERNEL.name, blocks, _values(p), {"GATED": p.up is not None}, _SIMT_THREADS))
