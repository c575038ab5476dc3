"""Products of groups of rows whose bounds stand on the device (kernels/gemm/grouped.cuh, groups.cuh).

Blocks find their group by themselves, so the host never waits: a launch has a fixed number of blocks, which walk the
tiles that the bounds make.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import View
from ..core.variant import Geometry, Kernel, Problem, Step
from .gemm import ACTIVATIONS, MATRICES, VECTORS, dense, wide_rows

THREADS = 256
TILE = 64  # of the kernels without tensor cores
_RESIDENT = 8  # blocks a multiprocessor has at most: more would only find that no tiles are left
_POINTERS = ("a", "b", "up", "residual", "y", "pre", "up_pre", "bias", "up_bias", "scale_a")
_BOUNDS = {"offsets": "ptr", "groups": "i64", "rows": "i64", "offset_stride": "i64", "wide_offsets": "i32"}

ROWS = Params(
    "GroupedGemmParams", **dict.fromkeys(_POINTERS, "ptr"), **_BOUNDS, n="i64", k="i64",
    strides=f"i64[{len(MATRICES)}][2]", vectors=f"i64[{len(VECTORS)}]", group_strides="i64[4]", activation="i32",
    wide="i32", from_zero="i32", a_cols_dense="i32", b_cols_dense="i32",
)  # fmt: skip
SUMMED = Params(
    "GroupedProductParams", a="ptr", b="ptr", y="ptr", **_BOUNDS, m="i64", n="i64", strides="i64[3][2]",
    group_stride="i64", from_zero="i32", a_cols_dense="i32", b_cols_dense="i32",
)  # fmt: skip


GROUPED = Kernel("grouped_gemm", "grouped_gemm<{T}, {T}, false>", ROWS, {}, THREADS, 2)
PRODUCT = Kernel("grouped_product", "grouped_product<{T}, {T}>", SUMMED, {}, THREADS, 2)
SUMS = Kernel("grouped_sums", "grouped_sums<{T}, {T}>", SUMMED, {}, THREADS)


def bound_values(p: Problem, rows: int) -> dict[str, Any]:
    """What kernels read of `offsets`, a bound for each of the descriptor's groups, or one more."""
    offsets = p.offsets
    return {
        "groups": p.desc.groups, "rows": rows, "offset_stride": offsets.strides[0],
        "wide_offsets": offsets.element is ElementKind.I64, "from_zero": offsets.shape[0] == p.desc.groups,
    }  # fmt: skip


def most_tiles(rows: int, groups: int, tile: int) -> int:
    """Tiles along the rows, at most, of any groups; two pieces more are in none."""
    some = min(rows, groups + 2)
    return (rows + some * (tile - 1)) // tile


def turned(view: View) -> View:
    """The view with its last two axes exchanged."""
    *lead, m, n = range(len(view.shape))
    order = (*lead, n, m)
    strides = tuple(view.strides[i] for i in order)
    return View(view.ptr, tuple(view.shape[i] for i in order), strides, view.element)


def rows_step(
    p: Problem, operands: Mapping[str, str], *, turn: tuple[str, ...] = (), activation: str = "none"
) -> Step:  # fmt: skip
    """y[r] = a[r] b[g]; `operands` says which of the problem's stands for which of the kernel's.

    turn: those of the kernel's matrices that are taken transposed.
    """
    views = {field: p.views[name] for field, name in operands.items() if p.views[name] is not None}
    views |= {field: turned(views[field]) for field in turn}
    a, b = views["a"], views["b"]
    listed = [views.get(name) for name in MATRICES]
    values = {
        "n": b.shape[-1], "k": b.shape[-2], "strides": [v.strides[-2:] if v else (0, 0) for v in listed],
        "vectors": [v.strides[-1] if v else 0 for v in (views.get(name) for name in VECTORS)],
        "group_strides": [views[n].strides[0] if n in views else 0 for n in ("b", "up", "bias", "up_bias")],
        "activation": ACTIVATIONS.index(activation), "wide": wide_rows(listed),
        "a_cols_dense": a.strides[-1] == 1, "b_cols_dense": b.strides[-1] == 1,
    }  # fmt: skip
    pointers = {field: operands[field] if field in views else "@null" for field in _POINTERS}
    rows, n = a.shape[0], b.shape[-1]
    tiles = most_tiles(rows, p.desc.groups, TILE) * -(-n // TILE)
    grid = (min(tiles, _RESIDENT * max(1, p.device.sms)), 1, 1)
    return Step("grouped_gemm", grid, values | bound_values(p, rows) | pointers, {}, THREADS)


def product_step(p: Problem, operands: Mapping[str, str], *, turn: tuple[str, ...] = ()) -> Step | str:
    """y[g] = a[:, r] b[r] over the rows r of each group; `operands` and `turn` as in `rows_step`."""
    a, b, y = (turned(p.views[operands[n]]) if n in turn else p.views[operands[n]] for n in ("a", "b", "y"))
    m, n = y.shape[-2:]
    blocks = p.desc.groups * -(-m // TILE) * -(-n // TILE)
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    values = {
        "m": m, "n": n, "strides": [v.strides[-2:] for v in (a, b, y)], "group_stride": y.strides[0],
        "a_cols_dense": a.strides[-1] == 1, "b_cols_dense": b.strides[-1] == 1,
    }  # fmt: skip
    return Step("grouped_product", (blocks, 1, 1), values | bound_values(p, b.shape[0]) | {**operands}, {}, THREADS)


def sums_step(p: Problem, operands: Mapping[str, str]) -> Step | str:
    """y[g] = the sum of b's rows of each group."""
    b, y = p.views[operands["b"]], p.views[operands["y"]]
    blocks = p.desc.groups * -(-y.shape[-1] // 32)
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    values = {
        "m": 1, "n": y.shape[-1], "strides": [(0, 0), b.strides, (0, y.strides[-1])], "group_stride": y.strides[0],
        "a_cols_dense": 0, "b_cols_dense": 0,
    }  # fmt: skip
    pointers = {"a": "@null", **operands}
    return Step("grouped_sums", (blocks, 1, 1), values | bound_values(p, b.shape[0]) | pointers, {}, THREADS)


def launches(p: Problem, *steps: Step | str) -> Geometry | str:
    """The steps one after the other, without those of no blocks; or why one of them cannot be."""
    if refused := next((step for step in steps if isinstance(step, str)), None):
        return refused
    some = tuple(step for step in steps if isinstance(step, Step) and step.grid[0])
    return Geometry(some, layout="contiguous" if dense(p) else "strided")
