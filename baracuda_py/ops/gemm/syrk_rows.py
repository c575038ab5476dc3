"""The rows of `SyrkPlan`: the tiles of a aᵀ on and below the diagonal, whose results go to both triangles.

A tile is the one that the same design of `GemmPlan` has, with the same order of sums (kernels/gemm/syrk.cuh).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core import ElementKind, Geometry, Kernel, Params, Problem, Step
from ...core.tensor import AXES, merge_axes, pad
from ...schedules import gemm_wgmma
from ...schedules.gemm import MMA_THREADS, MMA_TILE, batch_count, dense, steps_of, transposed, wide_view
from .mma import HALVES, SIZES, TF32, k_first, pieces_of, ring_bytes

__all__ = ["HALVES", "MMA", "SIMT", "TF32", "WGMMA", "simt", "tensor_cores", "warpgroups"]

_MATRICES = ("a", "c", "y")
_TILE, _BAND = 64, 8


def params(name: str, **more: str | int) -> Params:
    """The struct of every design, and fields of its own. strides: of a, aᵀ, c and y; batch: of a, c and y."""
    return Params(
        name, **dict.fromkeys(_MATRICES, "ptr"), alpha="scalar", beta="scalar", m="i64", n="i64", k="i64",
        batch_shape=f"i64[{AXES}]", batch=f"i64[3][{AXES}]", strides="i64[4][2]", batch_rank="i32", wide="i32",
        band="i32", **more,
    )  # fmt: skip


def _outs(kind: ElementKind) -> Mapping[str, Any]:
    return {"OUT": tuple(dict.fromkeys((kind, kind.acc)))}


def _tiles(kind: ElementKind) -> Mapping[str, Any]:
    return {**_outs(kind), "A_K": (True, False), "SIZE": SIZES}


MMA = Kernel(
    "mma", "syrk_mma<{T}, {OUT}, {A_K}, {SIZE}>", params("SyrkMmaParams", tiles="i64", piece="i32", **MMA_TILE), _tiles,
    threads=MMA_THREADS, min_blocks=2,
)  # fmt: skip
SIMT = Kernel(
    "syrk", "syrk<{T}, {OUT}>",
    params("SyrkParams", tiles="i64", a_cols_dense="i32", b_cols_dense="i32"), _outs, min_blocks=2,
)  # fmt: skip
_WGMMA_ROWS, _WGMMA_COLUMNS, _INT32 = 128, (256, 128), 2**31


def _wgmma_tiles(kind: ElementKind) -> Mapping[str, Any]:
    return {**_outs(kind), "COLUMNS": _WGMMA_COLUMNS, "ACROSS": (False, True)}


WGMMA = Kernel(
    "wgmma", "syrk_wgmma<{T}, {OUT}, {COLUMNS}, {ACROSS}>",
    params("SyrkWgmmaParams", **dict.fromkeys(("a_map", "b_map", "up_map", "y_map"), "map"),
           **dict.fromkeys(("a_step", "b_step", "up_step", "tiles", "total"), "i32")),
    _wgmma_tiles, threads=gemm_wgmma.THREADS, min_blocks=1,
)  # fmt: skip


def values(p: Problem) -> dict[str, Any] | str:
    """The values of `params`, or why the kernels do not take these strides."""
    desc, views = p.desc, [p.views[name] for name in _MATRICES]
    rank = len(desc.batch_shape)
    shape, batch = merge_axes(desc.batch_shape, [v.strides[:rank] if v else (0,) * rank for v in views])
    if len(shape) > AXES:
        return f"more than {AXES} batch axes remain after merging"
    of_a, of_c, of_y = ((0, 0) if v is None else steps_of(v) for v in views)
    return {
        "m": desc.n, "n": desc.n, "k": desc.k, "batch_shape": pad(shape), "batch": [pad(s) for s in batch],
        "strides": [of_a, of_a[::-1], of_c, of_y], "batch_rank": len(shape), "band": _BAND,
        "wide": sum(1 << i for i, v in enumerate(views) if v is not None and wide_view(v)),
    }  # fmt: skip


def lower_tiles(n: int, rows: int, cols: int | None = None) -> int:
    """How many tiles of a matrix have a place on or below the diagonal."""
    cols = cols or rows
    most = -(-n // cols)
    return sum(min(((row + 1) * rows - 1) // cols + 1, most) for row in range(-(-n // rows)))


def _launch(
    p: Problem, kernel: str, size: int, more: dict[str, Any], axes: dict[str, Any], step: Any
) -> Geometry | str:
    found = values(p)
    if isinstance(found, str):
        return found
    tiles = lower_tiles(p.desc.n, size)
    blocks = tiles * batch_count(p)
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    given = found | {"tiles": tiles} | more
    threads, smem = step
    made = Step(kernel, (blocks, 1, 1), given, {"OUT": p.desc.out_element, **axes}, threads, smem)
    return Geometry((made,) if blocks else (), layout="contiguous" if dense(p) else "strided")


def tensor_cores(p: Problem) -> Geometry | str:
    """A block for every tile, of a size of which there is one wave at least."""
    major = k_first(p.a, -1)
    if major is None:
        return f"needs a stride of 1 in a, got strides {p.a.strides}"
    batch = batch_count(p)
    size = next((s for s in SIZES if lower_tiles(p.desc.n, s) * batch >= p.device.sms), SIZES[-1])
    found = values(p)
    if isinstance(found, str):
        return found
    whole = (p.a if major else transposed(p.a)).aligned(16)  # rows in memory run along the axis of stride 1
    more = {"piece": pieces_of(p.desc.n, p.desc.k, p.desc.element)[1], "wide": found["wide"] & ~1 | int(whole)}
    return _launch(p, "mma", size, more, {"A_K": major, "SIZE": size}, (MMA_THREADS, ring_bytes(size, False)))


def simt(p: Problem) -> Geometry | str:
    """A block for every tile of 64 x 64."""
    dense_rows, dense_columns = int(p.a.strides[-1] == 1), int(p.a.strides[-2] == 1)
    return _launch(p, "syrk", _TILE, {"a_cols_dense": dense_rows, "b_cols_dense": dense_columns}, {}, (256, 0))


def warpgroups(p: Problem) -> Geometry | str:
    """A block for every multiprocessor, which takes tiles of 128 x 256 or 128 x 128 in turn (sm_90a)."""
    desc, batch = p.desc, batch_count(p)
    found = values(p)
    if isinstance(found, str):
        return found

    def cost(columns: int) -> float:
        waves = -(-lower_tiles(desc.n, _WGMMA_ROWS, columns) * batch // max(1, p.device.sms))
        return float(waves * columns * gemm_wgmma.SLOWER[columns])

    columns = min(_WGMMA_COLUMNS, key=cost)
    tiles = lower_tiles(desc.n, _WGMMA_ROWS, columns)
    if max(desc.n, desc.k, tiles * batch) >= _INT32:
        return "an extent, or the number of tiles, passes 32 bits"
    across = False
    for name, rows in (("a", _WGMMA_ROWS), ("b", columns)):  # one matrix, read by rows and by columns of tiles
        made = gemm_wgmma.operand_map("a", p.a, rows) if desc.k else (None, False, 0)
        if isinstance(made, str):
            return made
        found[f"{name}_map"], across, found[f"{name}_step"] = made
    found |= {"up_map": None, "y_map": None, "up_step": 0, "tiles": tiles, "total": tiles * batch}
    axes = {"OUT": desc.out_element, "COLUMNS": columns, "ACROSS": across}
    grid, smem = (min(tiles * batch, max(1, p.device.sms)), 1, 1), gemm_wgmma.shared_memory(columns)
    step = Step("wgmma", grid, found, axes, gemm_wgmma.THREADS, smem)
    return Geometry((step,) if tiles * batch else (), layout="contiguous" if dense(p) else "strided")
