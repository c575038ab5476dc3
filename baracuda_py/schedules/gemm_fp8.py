"""Matrix products of fp8 with scales (kernels/gemm/mma_fp8.cuh, wgmma_fp8.cuh): what their designs read.

The scales of blocks of k come in where sums of 128 terms are added; those of whole rows, columns and matrices, the
bias and all else in the epilogue that every product has, and the scale of y and its largest size behind that. Where
the latter is wanted a kernel of one thread makes it 0 first: then blocks take the maximum, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.element import FP8, HALVES, ElementKind
from ..core.params import Params
from ..core.tensor import View
from ..core.variant import Geometry, Kernel, Problem, Step
from .gemm import (
    BYTE_DEPTH,
    BYTE_STAGES,
    BYTE_THREADS,
    BYTE_TILE,
    MATRICES,
    VECTORS,
    dense,
    gemm_params,
    gemm_values,
    transposed,
    wide_view,
)
from .gemm_wgmma import operand_map, stored_map

OUTPUTS = (ElementKind.BF16, ElementKind.F16, ElementKind.F32, *FP8)
BLOCK = 128  # elements along k, and columns of b, that share a scale
_BLOCKS = {"block_a": "ptr", "block_b": "ptr", "a_blocks": "i64[2]", "b_blocks": "i64[2]"}
_BESIDE_Y = {"scale_y": "ptr", "amax": "ptr"}
_SIZES = (128, 64)  # of tiles by mma.sync
MMA = gemm_params("Fp8GemmParams", **_BLOCKS, **_BESIDE_Y, **BYTE_TILE)
WGMMA = gemm_params(
    "Fp8WgmmaParams", **_BLOCKS, **_BESIDE_Y, a_map="map", b_map="map", up_map="map", y_map="map", a_step="i32",
    b_step="i32", up_step="i32", rows="i32", cols="i32", band="i32", total="i32", plain="i32",
)  # fmt: skip

_ROWS, _LINE, _THREADS = 128, 128, 384  # rows of a tile, bytes of k in a stage
_STAGES = {128: 6, 64: 8}  # by columns of a tile
_STAGING = 8 * 2 * 2048  # what eight warps store by
_RASTER_ROWS = 8  # of a raster group: rows of tiles that share what they read in the L2 cache
_INT32 = 2**31
_WARP = 32
_BESIDE = ("c", "residual", "scale_y", "amax")  # what the tile's own way of storing y knows nothing of

_CLEARED = Params("AmaxClearParams", amax="ptr")
CLEAR = Kernel("amax_clear", "amax_clear", _CLEARED, threads=_WARP, source="gemm/amax_clear.cu")
_CALL = "fp8_gemm_wgmma<{T}, {B}, {OUT}, {COLUMNS}, {CLUSTER}>"


def _wgmma_kernel(columns: int, clusters: tuple[int, ...]) -> Kernel:
    axes = {"B": FP8, "OUT": OUTPUTS, "COLUMNS": (columns,), "CLUSTER": clusters}
    return Kernel(f"fp8_gemm_wgmma_{columns}", _CALL, WGMMA, axes, threads=_THREADS, min_blocks=1)


def _mma_kernel(size: int, native: bool) -> Kernel:
    """native: a and b are of one element, which the tensor cores multiply themselves."""
    name, right, more = ("native", "{T}", {}) if native else ("f16", "{B}", {"B": FP8})
    call = f"fp8_gemm_mma<{{T}}, {right}, {{OUT}}, {str(native).lower()}, {size}>"
    return Kernel(f"fp8_gemm_{name}_{size}", call, MMA, more | {"OUT": OUTPUTS}, min_blocks=128 // size)


WGMMA_KERNELS = (_wgmma_kernel(128, (2, 1)), _wgmma_kernel(64, (1,)))
NATIVE_KERNELS = tuple(_mma_kernel(size, True) for size in _SIZES)
MMA_KERNELS = tuple(_mma_kernel(size, False) for size in _SIZES)


def blocks_of(n: int) -> int:
    """How many blocks of 128 there are in n."""
    return -(-n // BLOCK)


def _scales(p: Problem) -> tuple[dict[str, Any], dict[str, View | None]]:
    """What kernels read of the scales of blocks, and the vectors of those that the epilogue multiplies by."""
    values: dict[str, Any] = {}
    vectors: dict[str, View | None] = {}
    for name, axis in (("a", 0), ("b", 1)):
        view = p.views[f"scale_{name}"]
        steps = (
            (0, 0) if view is None else tuple(0 if n == 1 else s for n, s in zip(view.shape, view.strides, strict=True))
        )
        blocked = view is not None and (view.shape[1 - axis] != 1 or (name == "b" and p.desc.b_in_blocks))
        values[f"{name}_blocks"] = steps
        values[f"block_{name}"] = f"scale_{name}" if blocked else "@null"
        values[f"scale_{name}"] = "@null" if blocked or view is None else f"scale_{name}"
        whole = None if blocked or view is None else View(view.ptr, (view.shape[axis],), (steps[axis],), view.element)
        vectors[f"scale_{name}"] = whole
    return values, vectors


def _values(p: Problem) -> tuple[Problem, dict[str, Any] | str]:
    """The problem as `gemm_values` has it, and the values of the kernels' common parameters."""
    values, vectors = _scales(p)
    p = Problem(p.desc, p.device, dict.fromkeys((*MATRICES, *VECTORS)) | dict(p.views) | vectors)
    found = gemm_values(p)
    if isinstance(found, str):
        return p, found
    absent = {name: "@null" for name in (*MATRICES, *VECTORS) if p.views[name] is None}
    return p, found | absent | values


def mixed(desc: Any) -> str | None:
    """Why a row whose tensor cores multiply one element does not serve a descriptor, or None."""
    return None if desc.b_element is desc.element else f"multiplies {desc.element} by itself, b is {desc.b_element}"


def mma(kernels: Sequence[Kernel]) -> Callable[[Problem], Geometry | str]:
    """A block for every tile, any strides; a kernel for each of `_SIZES`."""

    def geometry(p: Problem) -> Geometry | str:
        desc = p.desc
        at = next((n for n, s in enumerate(_SIZES) if _tiles(desc, s) >= p.device.sms), len(_SIZES) - 1)
        size, kernel = _SIZES[at], kernels[at]
        blocks = _tiles(desc, size)
        if blocks >= _INT32:
            return f"needs {blocks} blocks, a grid has 2**31 - 1"
        _, values = _values(p)
        if isinstance(values, str):
            return values
        bit = 1 << MATRICES.index("b")  # whose lines in memory are columns
        values["wide"] = values["wide"] & ~bit | (bit if wide_view(transposed(p.b)) else 0)
        shared = BYTE_STAGES * 2 * size * BYTE_DEPTH
        axes = {name: value for name, value in _elements(p).items() if name in kernel.axes_for(desc.element)}
        return _launches(p, Step(kernel.name, (blocks, 1, 1), values, axes, BYTE_THREADS, shared))

    return geometry


def _tiles(desc: Any, size: int) -> int:
    return int(-(-desc.m // size) * -(-desc.n // size))


def _launches(p: Problem, step: Step) -> Geometry:
    """A product, and before it the amax of nothing where one is wanted; of no outputs that is all."""
    clear = (Step(CLEAR.name, (1, 1, 1), {}, block=_WARP),) if p.amax is not None else ()
    steps = (*clear, step) if step.grid[0] else clear
    return Geometry(steps, layout="contiguous" if dense(p) else "strided")


def wgmma(p: Problem) -> Geometry | str:
    """Persistent blocks, which take work tiles; the order of their sums is the same for every size of tile."""
    desc = p.desc
    if not desc.m < _INT32 > desc.n or desc.k >= _INT32:
        return "an extent passes 32 bits"
    whole, values = _values(p)
    if isinstance(values, str):
        return values
    columns, cluster = _tile(p)
    maps: dict[str, Any] = {"up_map": None, "up_step": 0}
    for name, view, rows in (("a", p.a, _ROWS), ("b", transposed(p.b), columns // cluster)):
        found = operand_map(name, view, rows) if desc.k else (None, False, 0)
        if isinstance(found, str):
            return (
                f"{found}; it must have k along memory, in rows of whole 16 bytes (b as the transposed view of [n, k])"
            )
        maps[f"{name}_map"], _, maps[f"{name}_step"] = found
    plain = desc.out_element in HALVES and desc.activation == "none" and all(p.views[n] is None for n in _BESIDE)
    stored = stored_map("y", whole.y) if plain else None
    rows, cols = -(-desc.m // (cluster * _ROWS)), -(-desc.n // columns)
    if rows * cols >= _INT32:
        return f"needs {rows * cols} tiles, which pass 32 bits"
    values |= maps | {
        "y_map": stored, "plain": stored is not None, "rows": rows, "cols": cols, "band": _RASTER_ROWS,
        "total": rows * cols,
    }  # fmt: skip
    blocks = min(rows * cols, max(1, p.device.sms // cluster)) * cluster
    axes = _elements(p) | {"COLUMNS": columns, "CLUSTER": cluster}
    shared = 1024 + _STAGES[columns] * ((_ROWS + columns) * _LINE + 16) + _STAGING + 8
    return _launches(p, Step(f"fp8_gemm_wgmma_{columns}", (blocks, 1, 1), values, axes, _THREADS, shared, cluster))


def _elements(p: Problem) -> dict[str, Any]:
    return {"B": p.desc.b_element, "OUT": p.desc.out_element}


def _tile(p: Problem) -> tuple[int, int]:
    """Columns of a tile, and blocks of a cluster, whose tiles share these columns."""
    rows = -(-p.desc.m // _ROWS)
    if rows * -(-p.desc.n // 128) * 2 <= p.device.sms:  # narrow tiles fill more of the device
        return 64, 1
    return 128, 2 if rows > 1 else 1
