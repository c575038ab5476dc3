"""block_gemm_backward: dx = dy W through weights in a low-bit format, which themselves have no gradient (QLoRA)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import Array, Chained, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant, View
from ...calls.functional import functional
from ...core import operand, output
from ...core.benchmark import FLOPS, Benchmark
from ...core.element import ElementKind, unrounded
from ...core.variant import aligned
from ...schedules.gemm import Operand, wide_view
from ...schedules.products import Place
from ..quantize.format_kinds import FormatKind
from ..quantize.stored import StoredArgs, format_header, in_threes, infer_stored
from .block_gemm import ELEMENTS, BlockGemmDescriptor, BlockGemmPlan, weights
from .unpacked import DENSE, dense_kernels, held_view, product_problem, refuses, unpacked, weights_view

E = ElementKind


@dataclass(frozen=True, kw_only=True)
class BlockGemmBackwardDescriptor(BlockGemmDescriptor):
    """The fields of `BlockGemmDescriptor`."""


@dataclass(slots=True, kw_only=True)
class BlockGemmBackwardArgs(StoredArgs):
    """dx has any strides, and dy where it has x's element; float32 beside 16-bit x in even rows along memory."""

    dy: Array = operand("*batch_shape m n", element="out_element")
    dx: Array = output("*batch_shape m k")


def reference(desc: BlockGemmDescriptor, *, dy: Any, store: Any = unrounded, **parts: Any) -> Mapping[str, Any]:
    """NumPy matmul in the dtype dy comes in; dy of another element is rounded for it."""
    with np.errstate(all="ignore"):
        g = dy if desc.out_element is desc.element else store(dy)
        return {"dx": np.matmul(g, weights(desc, dy.dtype, **parts))}


def rounding(p: Problem, name: str = "dy", at: int = 0) -> tuple[Operand, tuple[Step, ...], int] | str:
    """dy, the operand `name`, in the element: itself, or rounded into the workspace from byte `at` on.

    With it the launch that this takes, and the first byte that is free then.
    """
    desc = p.desc
    if desc.out_element is desc.element:
        return Operand(Place(name), p.dy), (), at
    threes = in_threes(p.dy)
    rows = None if threes is None else threes.reshaped((threes.shape[0] * desc.m, desc.n))
    if rows is None or rows.strides[1] != 1:
        return f"{name} of float32 must have even rows along memory, got strides {p.dy.strides} of shape {p.dy.shape}"
    held, place = held_view(desc.element, (*desc.batch_shape, desc.m, desc.n)), Place("@workspace", at)
    if not held.size:
        return Operand(place, held), (), at
    to = View(0, rows.shape, held.strides[-2:], held.element)
    used = at + aligned(rows.shape[0] * held.strides[-2] * desc.element.itemsize)
    return Operand(place, held), (round_step(name, rows, ("@workspace", at), to),), used


def round_step(x: Any, rows: View, y: Any, to: View) -> Step:
    """The launch that rounds float32 rows along memory: from place x to place y."""
    params = {
        "x": x, "y": y, "rows": rows.shape[0], "cols": rows.shape[1], "x_pitch": rows.strides[0],
        "y_pitch": to.strides[0], "y_step": to.strides[1], "wide": wide_view(to),
    }  # fmt: skip
    return Step("round", (-(-rows.shape[0] * -(-rows.shape[1] // 8) // 256), 1, 1), params, {"SUM": E.F32})


def _geometry(row: Variant) -> Callable[[Problem], Geometry | str]:
    def geometry(p: Problem) -> Geometry | str:
        desc, found = p.desc, rounding(p)
        if isinstance(found, str):
            return found
        dy, steps, used = found
        views: dict[str, View | None] = {"a": dy.view, "b": weights_view(desc), "y": p.dx}
        product = product_problem(p, views, desc.m, desc.k, desc.n, desc.element)
        given = {"a": dy, "y": Operand(Place("dx"), p.dx)}
        made = unpacked(p, BlockGemmBackwardArgs, row, given, "n", product.desc, used)
        return made if isinstance(made, str) else replace(made, steps=(*steps, *made.steps))

    return geometry


def _narrow(kind: ElementKind) -> dict[str, tuple[ElementKind, ...]]:
    """float32 itself needs no rounding."""
    return {"SUM": (E.F32,) if kind is not E.F32 else ()}


_PARAMS = Params(
    "BlockGemmRoundParams", x="ptr", y="ptr", rows="i64", cols="i64", x_pitch="i64", y_pitch="i64", y_step="i64",
    wide="i32",
)  # fmt: skip
ROUND = Kernel(
    "round", "block_gemm_round<{T}>", _PARAMS, _narrow, source="quant_gemm/block_gemm_round.cu", kindless=True
)  # fmt: skip


class BlockGemmBackwardPlan(Plan):
    """dx = dy @ W of `BlockGemmPlan`, W unpacked into the workspace and rounded to x's element.

    dy [*batch_shape, m, n] is the gradient of y, in y's element; the product reads it rounded to x's. Sums are in
    float32, dx [*batch_shape, m, k] rounded once. The stored weights are constants: they have no gradient.
    """

    op = "quant_gemm.block_gemm_backward"
    direction = "backward"
    kinds = FormatKind
    descriptor = BlockGemmBackwardDescriptor
    args = BlockGemmBackwardArgs
    reference = staticmethod(reference)
    variants = tuple(
        Variant(
            row.name, _geometry(row), source="quantize/block_dequantize.cu", kernels=(*dense_kernels(row), ROUND),
            elements=tuple(e for e in ELEMENTS if e in row.elements_for(None)), design=row.design, backend=row.backend,
            prelude=format_header, guarantee=Guarantee(Chained(4, mean=3), order=row.name),
            refuses=refuses(row), missing=row.missing,
        )
        for row in DENSE
    )  # fmt: skip
    benchmarks = (
        Benchmark("nf4 [4096, 14336] x [14336, 4096] bf16", kind="nf4", m=4096, n=14336, k=4096, group=64,
                  element="bfloat16", work=FLOPS, target=None, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> BlockGemmBackwardDescriptor:
        desc = BlockGemmPlan.case(draw)
        return BlockGemmBackwardDescriptor(**{name: getattr(desc, name) for name in desc.__dataclass_fields__})

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Some matrices have a scale of their own."""
        BlockGemmPlan.complete(desc, arrays)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_stored(shapes, facts)

    @classmethod
    def flops(cls, desc: Any) -> int:
        return BlockGemmPlan.flops(desc)


block_gemm_backward = functional(BlockGemmBackwardPlan)
