"""Large products on sm_90a whose operands TMA cannot read: their rows are copied to a pitch of 16 bytes.

Rows that start at odd addresses cost every other kernel, and cuBLAS's, most of its time; the copies cost what reading
and writing the operands twice costs. Which problems are copied depends on all extents, so the row promises no bits of
other batches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..core.tensor import View
from ..core.tensor_map import TensorMap
from ..core.variant import Geometry, Problem, Step, aligned
from . import gemm_skinny, gemm_wgmma
from .gemm import batch_count, transposed
from .products import COPY_KERNEL

KERNELS = (*gemm_wgmma.KERNELS, replace(COPY_KERNEL, source="gemm/copy.cu"))

# What a multiprocessor has to multiply before the copies pay, whose time does not depend on how many of them there are:
# so many products in all, and for each element that is copied.
_PRODUCTS, _REUSE = 2**23, 2
_PIECE, _THREADS = 16, 256  # bytes that a thread of a copy moves


def geometry(p: Problem) -> Geometry | str:
    """The copies and the product, or why the row does not take these operands."""
    desc = p.desc
    sms = p.device.sms
    few = batch_count(p) * desc.m * desc.n * desc.k < _PRODUCTS * sms
    if few or desc.m <= gemm_skinny.MOST or desc.m * desc.n < _REUSE * sms * (desc.m + desc.n):
        return f"m = {desc.m}, n = {desc.n}, k = {desc.k}: copies would cost more than they save"
    views, steps, begin, used = dict(p.views), [], {}, 0
    for name in ("a", "b", "up"):
        if p.views[name] is None or gemm_wgmma.readable(p, name):
            continue
        made = _copy(name, p.views[name], used)
        if isinstance(made, str):
            return made
        step, views[name], nbytes = made
        steps.append(step)
        begin[name], used = used, used + nbytes
    if not steps:
        return "every operand can be read where it is"
    found = gemm_wgmma.geometry(Problem(desc, p.device, views))
    if isinstance(found, str):
        return found
    (product,) = (step for step in found.steps if isinstance(step, Step))
    return Geometry((*steps, replace(product, params=_moved(product.params, begin))), used, "strided")


def first(p: Problem) -> bool:
    """Whether an operand has rows at odd addresses, where cuBLAS takes several times as long."""
    return any(not (view.aligned(4) or transposed(view).aligned(4)) for view in (p.a, p.b))


def _copy(name: str, view: View, at: int) -> tuple[Step, View, int] | str:
    """The launch that copies an operand to byte `at` of the workspace, its view there, and the bytes it takes."""
    turned = view.strides[-1] != 1
    rows = transposed(view) if turned else view
    if rows.strides[-1] != 1:
        return f"{name} with strides {view.strides} is dense along neither axis"
    found = gemm_wgmma.one_batch(rows)
    if isinstance(found, str):
        return f"{name} {found}"
    matrix, count, apart = found
    size, (lines, cols) = view.element.itemsize, matrix.shape
    pitch = -(-cols * size // _PIECE) * _PIECE // size
    params = {
        "x": name, "y": ("@workspace", at), "stride": [(apart, 0, matrix.strides[0]), (lines * pitch, 0, pitch)],
        "rows": count * lines, "row_count": lines, "cols": cols, "num_heads": 1, "wide": rows.aligned(_PIECE) | 2,
    }  # fmt: skip
    blocks = math.ceil(count * lines * (pitch * size // _PIECE) / _THREADS)
    steps = tuple(batch_steps(rows.shape[:-2], rows.strides[:-2], lines * pitch if count > 1 else 0))
    copied = View(0, rows.shape, (*steps, pitch, 1), view.element)
    step = Step(COPY_KERNEL.name, (blocks, 1, 1), params, block=_THREADS)
    return step, transposed(copied) if turned else copied, aligned(count * lines * pitch * size)


def batch_steps(shape: tuple[int, ...], strides: tuple[int, ...], step: int) -> list[int]:
    """Strides of batch axes whose matrices lie one after the other, 0 where they are shared."""
    steps: list[int] = []
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        steps.insert(0, step if stride else 0)
        step *= extent
    return steps


def _moved(params: Mapping[str, Any], begin: Mapping[str, int]) -> dict[str, Any]:
    """A launch's parameters with the maps of copied operands."""

    def moved(value: Any) -> Any:
        if isinstance(value, TensorMap) and value.operand in begin:
            return replace(value, operand="@workspace", offset=begin[value.operand])
        return value

    return {name: moved(value) for name, value in params.items()}
