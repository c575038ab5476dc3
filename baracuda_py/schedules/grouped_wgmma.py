"""Products of groups of rows on sm_90a (kernels/gemm/grouped_wgmma.cu): tiles of one group each, by TMA.

What is not multiplied as it lies (rows that are not whole 16 bytes, no dense axis) is left to `grouped`. Which it is
does not depend on how many rows there are, so that their bits do not either.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ..core.params import Params
from ..core.tensor import View
from ..core.variant import Kernel, Problem, Step
from .gemm import EPILOGUE, transposed
from .gemm_wgmma import HALVES, SLOWER, THREADS, operand_map, shared_memory, stored_map
from .grouped import BOUNDS, bound_values, most_tiles, rows_params, rows_values

ROWS_PARAMS = rows_params(
    "GroupedWgmmaParams", **dict.fromkeys(("a_map", "b_map", "up_map", "y_map"), "map"),
    **dict.fromkeys(("a_step", "b_step", "up_step", "plain"), "i32"),
)  # fmt: skip
SUMMED_PARAMS = Params(
    "GroupedProductWgmmaParams", **dict.fromkeys(("a_map", "b_map", "up_map", "y_map"), "map"), **BOUNDS, k="i64",
    **dict.fromkeys(("from_zero", "a_step", "b_step", "up_step", "tiles_m", "tiles_n", "band", "total"), "i32"),
    **EPILOGUE,
)  # fmt: skip
ELEMENTS = HALVES
_SOURCE = "gemm/grouped_wgmma.cu"
_BOTH = (False, True)
TILE = 128  # rows
COLUMNS = (256, 128)  # of a tile, those of both products together
_BESIDE = ("bias", "up", "scale_a", "residual", "pre")  # what more than a · b may be
_RASTER_ROWS = 16  # of a raster group: rows of tiles that share what they read in the L2 cache
_INT32 = 2**31


def _kernel(gated: str, **axes: tuple[bool, ...]) -> Kernel:
    return Kernel(
        "grouped_wgmma", f"grouped_wgmma<{{T}}, {{COLUMNS}}, {{A_ACROSS}}, {{B_ACROSS}}, {gated}>", ROWS_PARAMS,
        {**axes, "B_ACROSS": _BOTH, "COLUMNS": COLUMNS}, THREADS, 1, source=_SOURCE,
    )  # fmt: skip


ROWS_WGMMA = _kernel("false", A_ACROSS=(False,))
EPILOGUE_WGMMA = _kernel("{GATED}", A_ACROSS=(False,), GATED=_BOTH)
PRODUCT_WGMMA = Kernel(
    "grouped_product_wgmma", "grouped_product_wgmma<{T}, {COLUMNS}>", SUMMED_PARAMS, {"COLUMNS": COLUMNS}, THREADS, 1,
    source=_SOURCE,
)  # fmt: skip


def _maps(
    operands: Mapping[str, str], views: Mapping[str, View], columns: int
) -> tuple[dict[str, Any], dict[str, bool]] | str:  # fmt: skip
    """Maps of a and of the groups' matrices, and which of them are read across; or why there are none."""
    maps: dict[str, Any] = {"up_map": None, "up_step": 0}
    across: dict[str, bool] = {}
    share = columns // 2 if "up" in views else columns
    for name, rows in (("a", TILE), ("b", share), ("up", share)):
        if name not in views:
            continue
        view = views[name] if name == "a" else transposed(views[name])
        found = operand_map(operands[name], view, rows) if view.shape[-1] else (None, False, 0)
        if isinstance(found, str):
            return found
        maps[f"{name}_map"], across[name], maps[f"{name}_step"] = found
    if across.get("up", across["b"]) != across["b"]:
        return "b and up are dense along different axes"
    return maps, across


def rows_wgmma_step(
    p: Problem, operands: Mapping[str, str], swapped: tuple[str, ...] = (), turned: bool = False,
    axes: Mapping[str, bool] | None = None,
) -> Step | str:  # fmt: skip
    """`rows_step` by TMA; turned: whether there are kernels for a whose rows are not along memory."""
    values, views = rows_values(p, operands, swapped)
    (rows, _), n, groups, gated = views["a"].shape, views["b"].shape[-1], p.desc.groups, "up" in views
    if groups == 0:
        return "there are no groups"
    columns = rows_columns(p, rows, n * (1 + gated))
    maps = _maps(operands, views, columns)
    if isinstance(maps, str):
        return maps
    found, across = maps
    if across["a"] and not turned:
        return f"needs rows of a along memory, got strides {views['a'].strides}"
    width = columns // (1 + gated)
    tiles = most_tiles(rows, groups, TILE) * -(-n // width)
    if not max(rows, n, groups, values["k"], tiles) < _INT32:
        return "an extent, or the number of tiles, passes 32 bits"
    plain = values["activation"] == 0 and not any(name in views for name in _BESIDE)
    stored = stored_map(operands["y"], views["y"]) if plain else None
    values |= found | {"y_map": stored, "plain": stored is not None}
    chosen = {**(axes or {}), "A_ACROSS": across["a"], "B_ACROSS": across["b"], "COLUMNS": columns}
    grid = (min(tiles, max(1, p.device.sms)), 1, 1)
    return Step("grouped_wgmma", grid, values, chosen, THREADS, shared_memory(columns))


def product_wgmma_step(p: Problem, operands: Mapping[str, str], swapped: tuple[str, ...] = ()) -> Step | str:
    """`product_step` by TMA: a is dense along m, b along n, y along either, as yᵀ = bᵀ aᵀ has the same bits."""
    a, b, y = (transposed(p.views[operands[n]]) if n in swapped else p.views[operands[n]] for n in ("a", "b", "y"))
    if stored_map(operands["y"], y, p.desc.groups) is None:
        a, b, y = transposed(b), transposed(a), transposed(y)
        operands = {**operands, "a": operands["b"], "b": operands["a"]}
    (m, rows), n, groups = a.shape, b.shape[-1], p.desc.groups
    if 0 in (m, rows, n, groups):
        return "there is nothing to add"
    values: dict[str, Any] = {"up_map": None, "a_step": 0, "b_step": 0, "up_step": 0, "k": rows, "band": _RASTER_ROWS}
    for name, view in (("a", a), ("b", transposed(b))):
        found = operand_map(operands[name], view, TILE, (True,))
        if isinstance(found, str):
            return f"{found}; its rows must be along memory, in whole 16 bytes"
        values[f"{name}_map"] = found[0]
    if (stored := stored_map(operands["y"], y, groups)) is None:
        return f"{operands['y']} with strides {y.strides} has no rows along memory in whole 16 bytes"
    along = -(-m // TILE)
    columns = _columns(p, along * groups, n)
    across = -(-n // columns)
    total = groups * along * across
    if not max(m, rows, n, total) < _INT32:
        return "an extent, or the number of tiles, passes 32 bits"
    values |= {"y_map": stored, "tiles_m": along, "tiles_n": across, "total": total, **bound_values(p, rows)}
    grid = (min(total, max(1, p.device.sms)), 1, 1)
    return Step("grouped_product_wgmma", grid, values, {"COLUMNS": columns}, THREADS, shared_memory(columns))


def rows_columns(p: Problem, rows: int, columns: int) -> int:
    """The width of tile of so many rows in groups."""
    along = -(-rows // TILE) + min(rows, p.desc.groups) // 2  # if a group ends in the middle of a tile
    return _columns(p, along, columns)


def _columns(p: Problem, along: int, columns: int) -> int:
    """The width of tile with which the last multiprocessor is done first, of so many tiles along the rows."""

    def cost(width: int) -> float:
        waves = math.ceil(along * -(-columns // width) / max(1, p.device.sms))
        return float(SLOWER[width] * width * waves)

    return min(COLUMNS, key=cost)
