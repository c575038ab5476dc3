"""Products of numbers that are quantised row by row on the way: the launch that does so, and a row of `IntGemmPlan`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..core.element import ElementKind
from ..core.params import Params
from ..core.tensor import AXES, View, merge_axes, pad
from ..core.variant import Geometry, Kernel, Problem, Step, Variant, aligned
from .gemm import dense, moved_step, transposed
from .int_gemm import LINE_SUMS
from .products import NOWHERE, Place

E = ElementKind
ROWS = Params(
    "QuantizeRowsParams", x="ptr", smooth="ptr", codes="ptr", scales="ptr", x_scale="scalar", rows="i64", cols="i64",
    pitch="i64", x_step="i64", smooth_step="i64", outer_shape=f"i64[{AXES}]", outer=f"i64[1][{AXES}]", outer_rank="i32",
    is_static="i32", wide="i32", whole="i32", short_cols="i32",
)  # fmt: skip
KERNEL = Kernel("quantize_rows", "quantize_rows<{T}>", ROWS, source="quant_gemm/quantize_rows.cu")
_SHORT, _WARPS, _MOST_BLOCKS = 2048, 8, 1 << 16  # columns that a warp quantises alone
_LINE = 16  # bytes that rows of codes start at multiples of


def inner_kernels(row: Variant) -> tuple[Kernel, ...]:
    """The kernels of a row of `IntGemmPlan`, of scaled products of int8 alone."""

    def own(kernel: Kernel) -> Kernel:
        names = {"{T}": "signed char", "{B}": "signed char", "{KIND}": "IntGemm::scaled"}
        call = kernel.template
        for name, value in names.items():
            call = call.replace(name, value)
        axes = {name: values for name, values in kernel.axes_for(E.I8).items() if name != "B"}
        blocks = kernel.min_blocks
        given = blocks(E.I8, None) if callable(blocks) else blocks
        return replace(kernel, template=call, axes=axes, min_blocks=given, source=kernel.source or row.source or "")

    return tuple(own(kernel) for kernel in row.kernels if kernel is not LINE_SUMS)


def quantised(p: Problem) -> tuple[Step, View, View, dict[str, Place], int] | str:
    """The launch, the views and the places of the codes [rows, k] and the scales [rows], and their workspace."""
    desc = p.desc
    rows, k = math.prod(desc.batch_shape), desc.in_features
    shape, (outer,) = merge_axes(desc.batch_shape, [p.x.strides[:-1]])
    if len(shape) > AXES:
        return f"more than {AXES} axes of rows remain after merging"
    places, used = {}, 0
    pitch = k if p.quantized is not None else -(-k // _LINE) * _LINE
    for name, nbytes in (("quantized", rows * pitch), ("scales", rows * 4)):
        places[name] = Place(name) if p.views[name] is not None else Place("@workspace", used)
        used += 0 if p.views[name] is not None else aligned(nbytes)
    codes = View(0 if p.quantized is None else p.quantized.ptr, (rows, k), (pitch, 1), E.I8)
    scales = View(0, (rows, 1), (1, 1), E.F32)
    short = k <= _SHORT
    params = {
        "x": "x", "smooth": "@null" if p.smooth is None else "smooth", "codes": places["quantized"].slot,
        "scales": places["scales"].slot, "rows": rows, "cols": k, "pitch": pitch, "x_step": p.x.strides[-1],
        "smooth_step": 0 if p.smooth is None else p.smooth.strides[0], "outer_shape": pad(shape), "outer": [pad(outer)],
        "outer_rank": len(shape), "is_static": desc.static, "short_cols": _SHORT,
        "wide": p.x.strides[-1] == 1 and p.x.aligned(16), "whole": codes.aligned(8),
    }  # fmt: skip
    blocks = min(max(-(-rows // _WARPS) if short else rows, 1), _MOST_BLOCKS)
    return Step(KERNEL.name, (blocks, 1, 1), params), codes, scales, places, used


def geometry(row: Variant, product: Callable[[Any, int, int, int], Any]) -> Callable[[Problem], Geometry | str]:
    """Two launches: rows quantised, and their product by a row of `IntGemmPlan`.

    product(desc, m, n, k): the descriptor of a product of these extents.
    """

    def launches(p: Problem) -> Geometry | str:
        found = quantised(p)
        if isinstance(found, str):
            return found
        step, codes, scales, places, used = found
        (rows, k), n = codes.shape, p.desc.out_features
        y = p.y.reshaped((rows, n))
        if y is None:
            return f"rows of y with strides {p.y.strides} are no even steps apart"
        bias = None if p.bias is None else View(p.bias.ptr, (1, n), (0, p.bias.strides[0]), p.bias.element)
        by = View(p.scale.ptr, (1, p.scale.size), (0, p.scale.strides[0] if p.scale.shape else 0), E.F32)
        views = {"a": codes, "b": transposed(p.weight), "y": y, "scale_a": scales, "scale_b": by, "bias": bias}
        at = {
            "a": places["quantized"], "b": Place("weight"), "y": Place("y"), "scale_a": places["scales"],
            "scale_b": Place("scale"), "bias": NOWHERE if bias is None else Place("bias"),
        }  # fmt: skip
        desc = product(p.desc, rows, n, k)
        if row.refuses is not None and (why := row.refuses(desc)):
            return why
        made = row.geometry(Problem(desc, p.device, views))
        if isinstance(made, str):
            return made
        steps = [
            replace(moved, axes={name: value for name, value in one.axes.items() if name != "B"})
            for one in made.steps
            if rows * n
            and isinstance(one, Step)
            and (moved := moved_step(one, row.kernel(one.kernel), at, used, (1.0, 0.0)))
        ]
        layout = "contiguous" if dense(p) else "strided"
        return Geometry((step, *steps) if rows else (), used + made.workspace, layout)

    return launches
