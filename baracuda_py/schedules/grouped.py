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
from .gemm import ACTIVATIONS, EPILOGUE, MATRICES, MMA_TILE, VECTORS, dense, steps_of, transposed, wide_rows

THREADS = 256
TILE = 64  # of the kernels without tensor cores
_RESIDENT = 8  # blocks a multiprocessor has at most: more would only find that no tiles are left
_POINTERS = ("a", "b", "up", "residual", "y", "pre", "up_pre", "bias", "up_bias", "scale_a")
BOUNDS = {"offsets": "ptr", "groups": "i64", "rows": "i64", "offset_stride": "i64", "wide_offsets": "i32"}


def rows_params(name: str, **more: str | int) -> Params:
    """The struct that kernels of y[r] = a[r] b[g] read, and fields of a design's own."""
    return Params(
        name, **dict.fromkeys(_POINTERS, "ptr"), **BOUNDS, n="i64", k="i64", strides=f"i64[{len(MATRICES)}][2]",
        vectors=f"i64[{len(VECTORS)}]", group_strides="i64[4]", activation="i32", wide="i32", from_zero="i32",
        a_cols_dense="i32", b_cols_dense="i32", **EPILOGUE, **more,
    )  # fmt: skip


ROWS = rows_params("GroupedGemmParams", piece="i32", **MMA_TILE)
SUMMED = Params(
    "GroupedProductParams", a="ptr", b="ptr", y="ptr", **BOUNDS, m="i64", n="i64", strides="i64[3][2]",
    group_stride="i64", from_zero="i32", a_cols_dense="i32", b_cols_dense="i32", wide="i32", **EPILOGUE,
    **MMA_TILE,
)  # fmt: skip


GROUPED = Kernel("grouped_gemm", "grouped_gemm<{T}, {T}, false>", ROWS, {}, THREADS, 2)
GROUPED_EPILOGUE = Kernel(
    "grouped_gemm", "grouped_gemm<{T}, {T}, {GATED}>", ROWS, {"GATED": (False, True)}, THREADS, 2
)  # fmt: skip
PRODUCT = Kernel("grouped_product", "grouped_product<{T}, {T}>", SUMMED, {}, THREADS, 2)
SUMS = Kernel("grouped_sums", "grouped_sums<{T}, {T}>", SUMMED, {}, THREADS, source="gemm/grouped_sums.cu")


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


def rows_values(
    p: Problem, operands: Mapping[str, str], swapped: tuple[str, ...]
) -> tuple[dict[str, Any], dict[str, View]]:  # fmt: skip
    """Parameters of y[r] = a[r] b[g], and the views; `operands`: which of the problem's is which of the kernel's.

    swapped: those of the kernel's matrices that are taken transposed.
    """
    views = {field: p.views[name] for field, name in operands.items() if p.views[name] is not None}
    views |= {field: transposed(views[field]) for field in swapped}
    a, b = views["a"], views["b"]
    listed = [views.get(name) for name in MATRICES]
    values = {
        "n": b.shape[-1], "k": b.shape[-2], "strides": [steps_of(v) if v else (0, 0) for v in listed],
        "vectors": [v.strides[-1] if v else 0 for v in (views.get(name) for name in VECTORS)],
        "group_strides": [views[n].strides[0] if n in views else 0 for n in ("b", "up", "bias", "up_bias")],
        "activation": ACTIVATIONS.index(getattr(p.desc, "activation", "none")), "wide": wide_rows(listed),
        "a_cols_dense": a.strides[-1] == 1,
        "b_cols_dense": b.strides[-1] == 1, **bound_values(p, a.shape[0]),
    }  # fmt: skip
    return values | {field: operands[field] if field in views else "@null" for field in _POINTERS}, views


def rows_step(
    p: Problem, operands: Mapping[str, str], swapped: tuple[str, ...] = (), axes: Mapping[str, Any] | None = None
) -> Step:  # fmt: skip
    """y[r] = a[r] b[g] for any strides."""
    values, views = rows_values(p, operands, swapped)
    values["piece"] = 0
    tiles = most_tiles(views["a"].shape[0], p.desc.groups, TILE) * -(-views["b"].shape[-1] // TILE)
    return Step("grouped_gemm", (min(tiles, _RESIDENT * max(1, p.device.sms)), 1, 1), values, axes or {}, THREADS)


def product_values(
    p: Problem, operands: Mapping[str, str], swapped: tuple[str, ...]
) -> tuple[dict[str, Any], tuple[View, View, View]]:  # fmt: skip
    """Parameters of y[g] = a[:, r] b[r], and the views of a, b and y; `operands` and `swapped` as in `rows_values`."""
    a, b, y = (transposed(p.views[operands[n]]) if n in swapped else p.views[operands[n]] for n in ("a", "b", "y"))
    values = {
        "m": y.shape[-2], "n": y.shape[-1], "strides": [steps_of(v) for v in (a, b, y)],
        "group_stride": y.strides[0], "a_cols_dense": a.strides[-1] == 1, "b_cols_dense": b.strides[-1] == 1,
        "wide": 0, **bound_values(p, b.shape[0]), **operands,
    }  # fmt: skip
    return values, (a, b, y)


def product_step(p: Problem, operands: Mapping[str, str], swapped: tuple[str, ...] = ()) -> Step | str:
    """y[g] = a[:, r] b[r] over the rows r of each group, for any strides."""
    values, (_, _, y) = product_values(p, operands, swapped)
    return launched("grouped_product", p.desc.groups * -(-y.shape[-2] // TILE) * -(-y.shape[-1] // TILE), values)


def launched(kernel: str, blocks: int, values: Mapping[str, Any]) -> Step | str:
    """A launch of this many blocks, or why there is none."""
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    return Step(kernel, (blocks, 1, 1), values, {}, THREADS)


def sums_step(p: Problem, operands: Mapping[str, str]) -> Step | str:
    """y[g] = the sum of b's rows of each group."""
    b, y = p.views[operands["b"]], p.views[operands["y"]]
    values = {
        "m": 1, "n": y.shape[-1], "strides": [(0, 0), b.strides, (0, y.strides[-1])], "group_stride": y.strides[0],
        "a_cols_dense": 0, "b_cols_dense": 0, "wide": 0, **bound_values(p, b.shape[0]), "a": "@null", **operands,
    }  # fmt: skip
    return launched("grouped_sums", p.desc.groups * -(-y.shape[-1] // 32), values)


def launches(p: Problem, *steps: Step | str) -> Geometry | str:
    """The steps one after the other, without those of no blocks; or why one of them cannot be."""
    if refused := next((step for step in steps if isinstance(step, str)), None):
        return refused
    some = tuple(step for step in steps if isinstance(step, Step) and step.grid[0])
    return Geometry(some, layout="contiguous" if dense(p) else "strided")
