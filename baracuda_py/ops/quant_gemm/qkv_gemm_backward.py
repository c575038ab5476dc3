"""qkv_gemm_backward: dx of three products by weights in a low-bit format, which themselves have no gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...core import Array, Chained, ElementKind, Geometry, Guarantee, Kernel, Plan, Problem, Step, Variant
from ...core import operand, output
from ...calls.functional import functional
from ...core.benchmark import FLOPS, Benchmark
from ...core.element import unrounded
from ...core.variant import aligned
from ...schedules.gemm import Operand
from ...schedules.products import Place
from ..gemm.gemm import GemmDescriptor
from ..quantize.stored import format_header
from . import block_gemm_backward
from .block_gemm import ELEMENTS
from .block_gemm_backward import ROUND, round_step, rounding
from .qkv_gemm import (
    KINDS, PARTS, QkvGemmDescriptor, QkvGemmPlan, QkvStoredArgs, infer_products, layout_of, of_part, own_scales,
    parts_of, qkv_case,
)  # fmt: skip
from .unpacked import DENSE, dense_kernels, held_view, refuses, unpacked

E = ElementKind


@dataclass(frozen=True, kw_only=True)
class QkvGemmBackwardDescriptor(QkvGemmDescriptor):
    """The fields of `QkvGemmDescriptor`."""


@dataclass(slots=True, kw_only=True)
class QkvGemmBackwardArgs(QkvStoredArgs):
    """dx has any strides, and so have dy_q, dy_k and dy_v where they have x's element; float32 beside 16-bit x in even
    rows along memory."""

    dy_q: Array = operand("m n_q", element="out_element")
    dy_k: Array = operand("m n_k", element="out_element")
    dy_v: Array = operand("m n_v", element="out_element")
    dx: Array = output("m k")


def reference(desc: QkvGemmBackwardDescriptor, *, store: Any = unrounded, **given: Any) -> Mapping[str, Any]:
    """NumPy matmul in the dtype the gradients come in, which are rounded where they have another element than x."""
    return {
        "dx": sum(
            block_gemm_backward.reference(product, store=store, **parts_of(given, part, "scale", "dy"))["dx"]
            for part, product in zip(PARTS, desc.products, strict=True)
        )
    }


def summed(p: Problem) -> tuple[Operand, int]:
    """Where the three products of a gradient dx add up in float32, and the first byte of workspace that is free."""
    desc = p.desc
    if desc.element is E.F32:
        return Operand(Place("dx"), p.dx), 0
    held = held_view(E.F32, (desc.m, desc.k))
    return Operand(Place("@workspace"), held), aligned(desc.m * held.strides[0] * held.element.itemsize)


def rounded_sum(p: Problem, total: Operand) -> tuple[Step, ...]:
    """The launch that rounds such a sum to dx, where they are not the same."""
    if total.place.name == "dx":
        return ()
    return (round_step(total.place.name, total.view, "dx", p.dx),)


def _geometry(row: Variant, kernels: tuple[Kernel, ...]) -> Callable[[Problem], Geometry | str]:
    def geometry(p: Problem) -> Geometry | str:
        total, base = summed(p)
        steps: list[Any] = []
        used = base
        known = [(part, one) for part, one in zip(PARTS, p.desc.products, strict=True) if one.n]
        for part, one in known or [(PARTS[0], p.desc.products[0])]:
            own = Problem(one, p.device, parts_of(p.views, part, "dy"))
            found = rounding(own, f"dy_{part}", base)
            if isinstance(found, str):
                return found
            dy, before, free = found
            product = GemmDescriptor(m=one.m, n=one.k, k=one.n, out_element=E.F32, element=one.element)
            given = {"a": dy, "y": total} | ({"c": total} if steps else {})
            made = unpacked(own, QkvGemmBackwardArgs, row, given, "n", product, free, (1.0, 1.0 if steps else 0.0))
            if isinstance(made, str):
                return f"{part}: {made}"
            steps += of_part(kernels, part, (*before, *made.steps))
            used = max(used, made.workspace)
        return Geometry((*steps, *rounded_sum(p, total)), used, layout_of(p))

    return geometry


class QkvGemmBackwardPlan(Plan):
    """dx = dy_q @ W_q + dy_k @ W_k + dy_v @ W_v of `QkvGemmPlan`, each W unpacked into the workspace.

    The gradients dy_… [m, n_…] have the element of the results; products read them, and the weights, rounded to x's.
    The sum of all three is in float32, dx [m, k] rounded once. The stored weights are constants: they have no gradient.
    """

    op = "quant_gemm.qkv_gemm_backward"
    direction = "backward"
    kinds = KINDS
    descriptor = QkvGemmBackwardDescriptor
    args = QkvGemmBackwardArgs
    reference = staticmethod(reference)
    variants = tuple(
        Variant(
            row.name, _geometry(row, kernels), source="quantize/block_dequantize.cu", kernels=kernels,
            elements=tuple(e for e in ELEMENTS if e in row.elements_for(None)), design=row.design, backend=row.backend,
            prelude=format_header, guarantee=Guarantee(Chained(4, mean=3), order=row.name), refuses=refuses(row),
            missing=row.missing,
        )
        for row in DENSE
        for kernels in [(*dense_kernels(row), ROUND)]
    )  # fmt: skip
    benchmarks = (
        Benchmark("nf4 [4096, 4096 + 1024 + 1024] x [6144, 4096] bf16", kind="nf4", m=4096, n_q=4096, n_k=1024,
                  n_v=1024, k=4096, group=64, element="bfloat16", work=FLOPS, target=None, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> QkvGemmBackwardDescriptor:
        return QkvGemmBackwardDescriptor(**qkv_case(draw), element=draw.element)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        own_scales(desc, arrays)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_products(shapes, facts)

    @classmethod
    def flops(cls, desc: Any) -> int:
        return QkvGemmPlan.flops(desc)


qkv_gemm_backward = functional(QkvGemmBackwardPlan)
