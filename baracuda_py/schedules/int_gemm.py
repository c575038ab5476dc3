"""Products of integers of 8 bits: what every design reads (kernels/quant_gemm/epilogue.cuh), and tiles by mma.sync.

Every operand is a matrix of the batch in any strides, 0 where it broadcasts. Where there are zero points a launch
before the product sums the lines of the other operand along k, which the epilogue subtracts multiples of.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from ..core.element import ElementKind
from ..core.params import Field, Params
from ..core.tensor import AXES, View, merge_axes, pad
from ..core.variant import Geometry, Kernel, Problem, Step, aligned
from .gemm import BYTE_DEPTH, BYTE_STAGES, BYTE_THREADS, BYTE_TILE, batch_count, dense, steps_of, transposed, wide_view

E = ElementKind
BYTES = (E.I8, E.U8)
OUTPUTS = (E.F32, E.F16, E.BF16, E.I8, E.U8, E.I32)
MATRICES = ("a", "b", "y", "scale_a", "scale_b", "zero_a", "zero_b", "bias", "scale_y", "zero_y")
_SUM = 8  # bytes of a line's sum
_INT32 = 2**31
_WARP, _THREADS = 32, 256

SIZES = (128, 64)  # of tiles by mma.sync
FEW, FEW_COLUMNS = 16, 8  # rows and columns of a block of the kernels for few rows
_CONSTANTS: dict[str, Field] = {
    "IntOut": tuple(kind.name.lower() for kind in OUTPUTS), "IntMatrix": MATRICES,
    "int_matrices": len(MATRICES), **BYTE_TILE, "int_few_rows": FEW,
    "int_few_columns": FEW_COLUMNS, "int_few_threads": _THREADS,
}  # fmt: skip


def int_params(name: str, **more: str | int) -> Params:
    """The struct that kernels with this epilogue read, and fields of a design's own."""
    return Params(
        name, **dict.fromkeys(MATRICES, "ptr"), row_sums="workspace", column_sums="workspace", alpha="scalar",
        m="i64", n="i64", k="i64", group="i64", groups="i64", batch_shape=f"i64[{AXES}]",
        batch=f"i64[{len(MATRICES)}][{AXES}]", strides=f"i64[{len(MATRICES)}][2]", batch_rank="i32", wide="i32",
        is_unsigned="i32", out="i32", **_CONSTANTS, **more,
    )  # fmt: skip


MMA = int_params("IntGemmParams")
SUMS = Params(
    "LineSumsParams", x="ptr", sums="workspace", batch_shape=f"i64[{AXES}]", batch=f"i64[1][{AXES}]", line_step="i64",
    k_step="i64", items="i64", lines="i64", k="i64", group="i64", groups="i64", batch_rank="i32", across="i32",
    wide="i32", is_unsigned="i32",
)  # fmt: skip
LINE_SUMS = Kernel("line_sums", "line_sums", SUMS, source="quant_gemm/line_sums.cu")


def mma_kernels(long: bool) -> tuple[Kernel, ...]:
    """Of tiles of each size; long: whose sums pass 32 bits."""
    word = str(long).lower()
    return tuple(
        Kernel(
            f"int_gemm_mma{'_long' if long else ''}_{size}", f"int_gemm_mma<{{T}}, {{B}}, {{KIND}}, {word}, {size}>",
            MMA, {"B": BYTES}, min_blocks=1 if long else partial(_blocks, size),
        )
        for size in (SIZES[1:] if long else SIZES)
    )  # fmt: skip


def _blocks(size: int, element: ElementKind, kind: Any) -> int:
    """Blocks for a multiprocessor: the accumulators of groups take registers of their own."""
    return 1 if getattr(kind, "value", None) == "grouped" else 128 // size


def longest(left: ElementKind, right: ElementKind) -> int:
    """The largest k of which every sum fits 32 bits."""
    sizes = [255 if kind is E.U8 else 128 for kind in (left, right)]
    return (_INT32 - 1) // (sizes[0] * sizes[1])


def spread(p: Problem) -> dict[str, View | None]:
    """The views of `MATRICES` with every axis, and None where an operand is absent."""
    desc = p.desc
    batch_shape, k_axis = desc.batch_shape, (desc.k,)
    scales = {"a": (desc.m, desc.groups), "b": (desc.groups, desc.n)}
    shapes = {"a": (desc.m, *k_axis), "b": (*k_axis, desc.n)}
    shapes |= {f"{what}_{name}": shape for what in ("scale", "zero") for name, shape in scales.items()}
    found = {}
    for name in MATRICES:
        view = p.views.get(name)
        found[name] = None if view is None else view.broadcast_to((*batch_shape, *shapes.get(name, (desc.m, desc.n))))
    return found


def int_values(p: Problem) -> tuple[dict[str, Any], tuple[Step, ...], int] | str:
    """The values of `int_params`, the launches that come first and their workspace, or why strides are refused."""
    desc, views = p.desc, spread(p)
    rank = len(desc.batch_shape)
    shape, batch = merge_axes(
        desc.batch_shape, [(0,) * rank if v is None else v.strides[:rank] for v in views.values()]
    )
    if len(shape) > AXES:
        return f"more than {AXES} batch axes remain after merging"
    wide = {"a": views["a"], "b": transposed(p.b), "y": views["y"]}
    values: dict[str, Any] = {
        "m": desc.m, "n": desc.n, "k": desc.k, "group": desc.group or max(desc.k, 1), "groups": desc.groups,
        "batch_shape": pad(shape), "batch": [pad(s) for s in batch], "batch_rank": len(shape),
        "strides": [(0, 0) if v is None else steps_of(v) for v in views.values()],
        "wide": sum(1 << MATRICES.index(name) for name, view in wide.items() if view is not None and wide_view(view)),
        "is_unsigned": (desc.element is E.U8) | (desc.b_element is E.U8) << 1, "out": OUTPUTS.index(desc.out_element),
        "row_sums": 0, "column_sums": 0,
    }  # fmt: skip
    steps, used = [], 0
    for zero, name, sums, lines in (("zero_b", "a", "row_sums", desc.m), ("zero_a", "b", "column_sums", desc.n)):
        if views[zero] is None:
            continue
        view = p.a if name == "a" else transposed(p.b)
        steps.append(_line_sums(name, view, lines, values, used))
        values[sums] = used
        used += aligned(batch_count(p) * lines * desc.groups * _SUM)
    return values, tuple(steps), used


def _line_sums(name: str, view: View, lines: int, values: dict[str, Any], at: int) -> Step:
    """The sums of an operand's lines, [*batch, lines, k], to byte `at` of the workspace."""
    rank = len(view.shape) - 2
    shape, (strides,) = merge_axes(view.shape[:rank], [view.strides[:rank]])
    line, along = steps_of(view)
    batch, groups = math.prod(view.shape[:rank]), values["groups"]
    across = abs(line) < abs(along) and lines > 1
    params = {
        "x": name, "sums": at, "batch_shape": pad(shape), "batch": [pad(strides)], "batch_rank": len(shape),
        "line_step": line, "k_step": along, "items": batch, "lines": lines, "k": view.shape[-1],
        "group": values["group"], "groups": groups, "across": across, "is_unsigned": view.element is E.U8,
        "wide": wide_view(view) and (groups == 1 or values["group"] % 16 == 0),
    }  # fmt: skip
    warps = batch * groups * (-(-lines // _WARP) if across else lines)
    blocks = min(max(-(-warps // (_THREADS // _WARP)), 1), 1 << 16)
    return Step(LINE_SUMS.name, (blocks, 1, 1), params)


def ring_bytes(size: int) -> int:
    """Shared memory of a tile by mma.sync."""
    return BYTE_STAGES * 2 * size * BYTE_DEPTH


def mma(long: bool) -> Callable[[Problem], Geometry | str]:
    """A block for every tile, any strides; long: whose sums pass 32 bits, else those of short k, and of 32 bits."""

    def geometry(p: Problem) -> Geometry | str:
        desc = p.desc
        sizes = SIZES[1:] if long else SIZES
        size = next((s for s in sizes if _tiles(p, s) >= p.device.sms), sizes[-1])
        blocks = _tiles(p, size)
        if blocks >= _INT32:
            return f"needs {blocks} blocks, a grid has 2**31 - 1"
        found = int_values(p)
        if isinstance(found, str):
            return found
        values, first, workspace = found
        kernel = f"int_gemm_mma{'_long' if long else ''}_{size}"
        step = Step(kernel, (blocks, 1, 1), values, {"B": desc.b_element}, BYTE_THREADS, ring_bytes(size))
        return Geometry((*first, step), workspace, "contiguous" if dense(p) else "strided")

    return geometry


FEW_KERNEL = Kernel("int_gemm_few", "int_gemm_few<{T}, {B}, {KIND}>", MMA, {"B": BYTES}, min_blocks=2)


def few(p: Problem) -> Geometry | str:
    """A block for every few columns, which are read once for all rows."""
    desc = p.desc
    if desc.m > FEW:
        return f"m = {desc.m} rows are not few, at most {FEW}"
    blocks = batch_count(p) * -(-desc.n // FEW_COLUMNS)
    if blocks >= _INT32:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    found = int_values(p)
    if isinstance(found, str):
        return found
    values, first, workspace = found
    for name, view in (("a", p.a), ("b", transposed(p.b))):
        if not values["wide"] >> MATRICES.index(name) & 1:
            return (
                f"{name} with strides {view.strides} must have k along memory, in rows at multiples of 16 bytes (b as "
                "the transposed view of [n, k])"
            )
    step = Step(FEW_KERNEL.name, (blocks, 1, 1), values, {"B": desc.b_element}, _THREADS)
    return Geometry((*first, step), workspace, "contiguous" if dense(p) else "strided")


def _tiles(p: Problem, size: int) -> int:
    return int(batch_count(p) * -(-p.desc.m // size) * -(-p.desc.n // size))
