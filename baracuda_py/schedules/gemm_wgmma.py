"""Matrix products on sm_90a: TMA, clusters and the tensor cores of warpgroups (kernels/gemm/wgmma.cuh).

A grid of one block a multiprocessor takes tiles of 128 x 256 (clusters of two blocks), 128 x 128 or 128 x 64, whichever
needs least time for the problem. Where y is dense along its rows, or has few of them, the transposed problem is solved:
yᵀ = bᵀ aᵀ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..core.element import ElementKind
from ..core.tensor import View, merge_axes
from ..core.tensor_map import TensorMap
from ..core.variant import Geometry, Kernel, Problem, Step
from . import gemm_skinny
from .gemm import VECTORS, batch_count, dense, gemm_params, gemm_values, transposed

PARAMS = gemm_params(
    "GemmWgmmaParams", a_map="map", b_map="map", up_map="map", y_map="map", a_step="i32", b_step="i32", up_step="i32",
    rows="i32", cols="i32", band="i32", total="i32", plain="i32", pairs="i32", lead="i32",
)  # fmt: skip
HALVES, TF32 = (ElementKind.F16, ElementKind.BF16), (ElementKind.F32,)  # elements of the two rows

ROWS, _LINE, _PANEL, THREADS = 128, 128, 64, 384  # a line: bytes of k in a stage; a panel: 16-bit elements across it
_STAGES = {256: 4, 128: 6, 64: 8}  # by columns of a tile
_STORES = 2  # buffers of 2048 bytes that each of eight warps stores by
RASTER_ROWS = 8  # of a raster group: rows of tiles that share what they read in the L2 cache
CLUSTERS = {256: 2, 128: 1, 64: 1}
SLOWER = {256: 1.0, 128: 1.15, 64: 1.4}  # products of a narrow tile, which reads more of shared memory for each
_SKINNY = 64  # rows up to which they are the tile's columns
_SWAPS = {"bias": "row_bias", "row_bias": "bias", "scale_a": "scale_b", "scale_b": "scale_a", "a": "b", "b": "a"}
_BIASES = ("bias", "up_bias", "row_bias")  # what registers hold beside the accumulators
_BESIDE = ("c", "scale_a", "scale_b", "residual", "pre", "up_pre")  # what more there may be, finished row by row
AHEAD = (0, 2)  # stages by which one warpgroup is ahead of the other: of plain products, and of those with an epilogue
_INT32 = 2**31


_CALL = "gemm_wgmma<{T}, {OUT}, {COLUMNS}, {A_ACROSS}, {B_ACROSS}, {GATED}>"


def _instances(columns: tuple[int, ...], gated: tuple[bool, ...]) -> Callable[[ElementKind], Mapping[str, Any]]:
    def axes(kind: ElementKind) -> Mapping[str, Any]:
        out, across = ((kind,), (False,)) if kind in TF32 else ((kind, ElementKind.F32), (False, True))
        return {"OUT": out, "COLUMNS": columns, "A_ACROSS": across, "B_ACROSS": across, "GATED": gated}

    return axes


KERNELS = (
    Kernel("gemm_wgmma", _CALL, PARAMS, _instances((256, 128), (False, True)), threads=THREADS, min_blocks=1),
    Kernel("gemm_wgmma_narrow", _CALL, PARAMS, _instances((64,), (False,)), threads=THREADS, min_blocks=1),
)

HALF_KERNELS = (*KERNELS, gemm_skinny.KERNEL)


def shared_memory(columns: int) -> int:
    """Bytes, as `gemm::Memory` takes them: up to 1024 before the ring, what eight warps store by, barriers."""
    stage = (ROWS + columns) * _LINE
    return 1024 + _STAGES[columns] * (stage + 16) + 8 * _STORES * 2048 + 8


def geometry(p: Problem) -> Geometry | str:
    """The launch, or why the row does not take these operands."""
    if p.desc.element in HALVES and p.desc.m <= gemm_skinny.MOST:
        few = gemm_skinny.geometry(p, operand_map)
        if not isinstance(few, str):
            return few
    names: dict[str, str] = {}
    if _better_transposed(p):
        p, names = _transposed(p), dict(_SWAPS)
    desc, batch = p.desc, batch_count(p)
    if not desc.m < _INT32 > desc.n or desc.k >= _INT32:
        return "an extent passes 32 bits"
    values = gemm_values(p)
    if isinstance(values, str):
        return values
    columns = _columns(p, batch)
    cluster = CLUSTERS[columns]
    share = columns // (2 if cluster == 2 or p.up is not None else 1)
    width = columns if p.up is None else share
    maps: dict[str, Any] = {}
    across: dict[str, bool] = {}
    up = None if p.up is None else transposed(p.up)
    sides = {"a": (p.a, ROWS), "b": (transposed(p.b), share), "up": (up, share)}
    for name, (view, rows) in sides.items():
        found = operand_map(names.get(name, name), view, rows) if view is not None and desc.k else (None, False, 0)
        if isinstance(found, str):
            return found
        maps[f"{name}_map"], across[name], maps[f"{name}_step"] = found
    if p.up is not None and across["up"] != across["b"]:
        return "b and up are dense along different axes"
    stored = stored_map("y", p.y, batch) if all(p.views[name] is None for name in _BESIDE) else None
    bare = desc.activation == "none" and p.up is None and all(p.views[name] is None for name in _BIASES)
    plain = 0 if stored is None else 1 if bare else 2
    rows, cols = -(-desc.m // (cluster * ROWS)), -(-desc.n // width)
    total = rows * cols * batch
    if total >= _INT32:
        return f"needs {total} tiles, which pass 32 bits"
    values |= maps | {
        "y_map": stored, "plain": plain, "pairs": _pairs(p), "lead": AHEAD[not bare], "rows": rows, "cols": cols,
        "band": RASTER_ROWS, "total": total, **names,
    }  # fmt: skip
    axes = {
        "OUT": desc.out_element, "COLUMNS": columns, "A_ACROSS": across["a"], "B_ACROSS": across["b"],
        "GATED": p.up is not None,
    }  # fmt: skip
    blocks = min(total, max(1, p.device.sms // cluster)) * cluster
    kernel = KERNELS[columns == 64]
    step = Step(kernel.name, (blocks, 1, 1), values, axes, THREADS, shared_memory(columns), cluster)
    return Geometry((step,), layout="contiguous" if dense(p) else "strided")


def _better_transposed(p: Problem) -> bool:
    """Whether few rows, or else the dense axis of y, are better the columns of tiles."""
    rows, columns = p.desc.m <= _SKINNY, p.desc.n <= _SKINNY
    dense_rows = bool(p.y.strides[-1] != 1 and p.y.strides[-2] == 1)
    return p.up is None and (rows if rows != columns else dense_rows)


def _transposed(p: Problem) -> Problem:
    """The problem of yᵀ, with the views of matrices turned and those of vectors exchanged."""
    views = {name: p.views[_SWAPS.get(name, name)] for name in p.views}
    matrices = ("a", "b", "c", "residual", "y", "pre")
    turned = {n: transposed(v) if v is not None and n in matrices else v for n, v in views.items()}
    return Problem(replace(p.desc, m=p.desc.n, n=p.desc.m), p.device, turned)


def _columns(p: Problem, batch: int) -> int:
    """The width of tile with which the last multiprocessor is done first."""

    def cost(columns: int) -> float:
        cluster = CLUSTERS[columns]
        width = columns if p.up is None else columns // 2
        tiles = -(-p.desc.m // (cluster * ROWS)) * -(-p.desc.n // width) * batch
        waves = math.ceil(tiles / max(1, p.device.sms // cluster))
        return float(waves * columns * SLOWER[columns])

    return min((columns for columns in _STAGES if p.up is None or columns > 64), key=cost)


def operand_map(
    name: str, view: View, rows: int, ways: tuple[bool, ...] = (False, True)
) -> tuple[TensorMap, bool, int] | str:
    """The map of an operand whose last axis is k, whether it is read across, and how a step of the batch moves it.

    rows: of a box along k; across, boxes are 64 wide. ways: whether it may be read along k, or across, or both.
    """
    found = one_batch(view)
    if isinstance(found, str):
        return f"{name} {found}"
    matrix, count, apart = found
    reason = f"{name} with strides {view.strides} is dense along no axis that can be read"
    line = _LINE // view.element.itemsize
    for across in ways if view.element in HALVES else (False,):
        extents = matrix.shape[::-1] if not across else matrix.shape
        steps = matrix.strides[::-1] if not across else matrix.strides
        if extents[0] > 1 and steps[0] != 1:
            continue
        box = (line, rows, 1) if not across else (_PANEL, line, 1)
        made = _map(name, matrix, extents, steps, (count, apart), box)
        if not isinstance(made, str):
            return made, across, int(count > 1)
        reason = made
    return reason


def readable(p: Problem, name: str) -> bool:
    """Whether TMA reads an operand, a, b or up, where it is."""
    view = p.views[name] if name == "a" else transposed(p.views[name])
    return not isinstance(operand_map(name, view, _PANEL), str)


def faster_than_cublas(p: Problem) -> bool:
    """Bare dense products for which the row measured at least as fast as cuBLAS in every run (docs/design/gemm.md)."""
    m, n, k = p.desc.m, p.desc.n, p.desc.k
    square = m == n and (k == n >= 4096 or k > n >= 8192)
    bare = p.desc.activation == "none" and p.views.get("bias") is None and p.views.get("c") is None
    plain = batch_count(p) == 1 and p.desc.out_element is p.desc.element
    return square and bare and plain and all(_plain_rows(view) for view in (p.a, p.b, p.y))


def _plain_rows(view: View) -> bool:
    """Whether a matrix is dense, or its transpose is, in rows that start at multiples of 16 bytes."""
    return (view.dense and view.aligned(16)) or (transposed(view).dense and transposed(view).aligned(16))


def stored_map(name: str, view: View, batch: int = 1) -> TensorMap | None:
    """The map that a batch of `batch` results is stored by, where its rows are dense and in 16-byte pieces."""
    found = one_batch(view)
    if isinstance(found, str) or view.element is ElementKind.F32:
        return None
    matrix, count, apart = found
    if count != batch or (matrix.shape[-1] > 1 and matrix.strides[-1] != 1):
        return None
    made = _map(name, matrix, matrix.shape[::-1], matrix.strides[::-1], (count, apart), (_PANEL, 16, 1))
    return None if isinstance(made, str) else made


def _pairs(p: Problem) -> int:
    """A bit for each vector whose elements 2 k and 2 k + 1 may be read together."""
    even = p.desc.n % 2 == 0
    views = [p.views[name] for name in VECTORS]
    return sum(1 << i for i, v in enumerate(views) if even and v is not None and v.strides[0] == 1 and v.ptr % 4 == 0)


def one_batch(view: View) -> tuple[View, int, int] | str:
    """The matrix of a batch index, how many different ones there are, and their distance; 1 where all share one."""
    *shape, m, n = view.shape
    merged, (steps,) = merge_axes(tuple(shape), [view.strides[:-2]])
    if len(merged) > 1:
        return f"with strides {view.strides} has more than one batch axis"
    count = merged[0] if merged and steps[0] != 0 else 1
    return View(view.ptr, (m, n), view.strides[-2:], view.element), count, steps[0] if count > 1 else 0


def _map(
    name: str, view: View, extents: tuple[int, ...], steps: tuple[int, ...], batch: tuple[int, int],
    box: tuple[int, int, int],
) -> TensorMap | str:  # fmt: skip
    """Extents and steps (in elements) innermost first.

    A row alone has the step that it has in a batch, or the one of dense rows where its stride says nothing: else it
    would be taken here, and the batch elsewhere, with other bits.
    """
    inner, outer = extents
    size, whole = view.element.itemsize, 16 // view.element.itemsize
    step = steps[1] if outer > 1 or steps[1] >= inner else inner
    count, apart = batch if batch[0] > 1 else (1, whole * math.ceil(step * outer / whole))
    made = TensorMap(name, view.element, (inner, outer, count), (step * size, apart * size), box)
    if step < inner or apart <= 0:
        return f"{name} with strides {view.strides} runs backwards or overlaps itself"
    return made.refusal(view.ptr) or made
