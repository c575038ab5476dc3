"""qkv_int8_backward: dx of three products by int8 matrices, which themselves have no gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import Array, Chained, Geometry, Guarantee, Plan, Problem, Variant, operand, output
from ...calls.functional import functional
from ...core.benchmark import FLOPS, Benchmark
from ...core.element import ElementKind, unrounded
from ...schedules.gemm import Operand, product_kernels, product_steps
from ...schedules.products import Place
from ..gemm.gemm import GemmArgs, GemmDescriptor
from .block_gemm import ELEMENTS
from .block_gemm_backward import ROUND
from .qkv_gemm import PARTS, layout_of, own_scales
from .qkv_gemm_backward import rounded_sum, summed
from .qkv_int8 import WIDEN, QkvInt8Descriptor, QkvInt8Matrices, QkvInt8Plan, int8_case, widened
from .unpacked import DENSE

E = ElementKind


@dataclass(frozen=True, kw_only=True)
class QkvInt8BackwardDescriptor(QkvInt8Descriptor):
    """The fields of `QkvInt8Descriptor`."""


@dataclass(slots=True, kw_only=True)
class QkvInt8BackwardArgs(QkvInt8Matrices):
    """Any strides."""

    dy_q: Array = operand("m n_q")
    dy_k: Array = operand("m n_k")
    dy_v: Array = operand("m n_v")
    dx: Array = output("m k")


def reference(desc: QkvInt8BackwardDescriptor, *, store: Any = unrounded, **given: Any) -> Mapping[str, Any]:
    """NumPy matmul in the dtype the gradients come in, by matrices times their scales, which are rounded."""
    total: Any = 0.0
    with np.errstate(all="ignore"):
        for part in PARTS:
            dy, scales = given[f"dy_{part}"], given[f"scales_{part}"]
            w = given[f"w_{part}"].astype(dy.dtype) * dy.dtype.type(np.float32(given[f"scale_{part}"]))
            w = w if scales is None else w * scales.astype(dy.dtype)
            total = total + np.matmul(dy, store(w).T)
    return {"dx": total}


def _geometry(row: Variant) -> Callable[[Problem], Geometry | str]:
    def geometry(p: Problem) -> Geometry | str:
        desc = p.desc
        total, base = summed(p)
        steps: list[Any] = []
        used = base
        known = [(part, n) for part, n in zip(PARTS, desc.widths, strict=True) if n]
        for part, n in known or [(PARTS[0], 0)]:
            w, before, free = widened(p, part, base, True)
            product = GemmDescriptor(m=desc.m, n=desc.k, k=n, out_element=E.F32, element=desc.element)
            dy = Operand(Place(f"dy_{part}"), p.views[f"dy_{part}"])
            given = {"a": dy, "b": w.t, "y": total} | ({"c": total} if steps else {})
            factors = (1.0, 1.0 if steps else 0.0)
            made = product_steps(p, QkvInt8BackwardArgs, (row,), GemmArgs, product, given, free, factors)
            if isinstance(made, str):
                return f"{part}: {made}"
            steps += [*before, *made[0]]
            used = max(used, free + made[1])
        return Geometry((*steps, *rounded_sum(p, total)), used, layout_of(p))

    return geometry


class QkvInt8BackwardPlan(Plan):
    """dx = dy_q @ W_qᵀ + dy_k @ W_kᵀ + dy_v @ W_vᵀ of `QkvInt8Plan`, each W times its scales, in the workspace.

    A weight is code · scale · scales in float32, rounded to x's element, as it is widened. The sum of all three is in
    float32, dx [m, k] rounded once. The matrices, scales and biases are constants: they have no gradient.
    """

    op = "quant_gemm.qkv_int8_backward"
    direction = "backward"
    descriptor = QkvInt8BackwardDescriptor
    args = QkvInt8BackwardArgs
    reference = staticmethod(reference)
    variants = tuple(
        Variant(
            row.name, _geometry(row), source="quant_gemm/qkv_int8_widen.cu",
            kernels=(WIDEN, *product_kernels(row), ROUND),
            elements=tuple(e for e in ELEMENTS if e in row.elements_for(None)), design=row.design, backend=row.backend,
            guarantee=Guarantee(Chained(4, mean=3), order=row.name), missing=row.missing,
        )
        for row in DENSE
    )  # fmt: skip
    benchmarks = (
        Benchmark("[4096, 4096 + 1024 + 1024] x [6144, 4096] bf16", m=4096, n_q=4096, n_k=1024, n_v=1024, k=4096,
                  element="bfloat16", work=FLOPS, target=None, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> QkvInt8BackwardDescriptor:
        return QkvInt8BackwardDescriptor(**int8_case(draw), element=draw.element)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        own_scales(desc, arrays)

    @classmethod
    def flops(cls, desc: Any) -> int:
        return QkvInt8Plan.flops(desc)


qkv_int8_backward = functional(QkvInt8BackwardPlan)
