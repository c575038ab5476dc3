"""gemv: y = act(alpha · a b + beta · c + bias) + residual for at most 16 rows of a, each weight read once.

Decoding: the weights are far larger than anything else, so that a product takes as long as reading them. A row of a
gives the same bits whatever the other rows are and however many.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ...core import (
    Descriptor, ElementKind, Forward, Geometry, Guarantee, InvalidProblemError, Kernel, Plan, Problem, Step,
    Variant, Vjp, choice, derived, element, extent, extents,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import HALVES
from ...schedules.gemm import ACTIVATIONS, batch_count, dense, gemm_params, gemm_values, transposed, wide_view
from .gemm import GemmArgs, GemmPlan, in_torch, reference

ROWS = 16
_WIDE = (ElementKind.F32, ElementKind.F64)
_NARROW, _ALONG_K, _ALONG_N = range(3)  # how right matrices are read: element by element, or along k or n


@dataclass(frozen=True, kw_only=True)
class GemvDescriptor(Descriptor):
    """a is [*batch_shape, m, k], m <= 16, b [*batch_shape, k, n]; y and c are [*batch_shape, m, n] in `out_element`.

    out_element and activation: as in `GemmDescriptor`.
    """

    batch_shape: tuple[int, ...] = extents(())
    m: int = extent()
    n: int = extent()
    k: int = extent()
    activation: str = choice(ACTIVATIONS, "none")
    out_element: ElementKind = element(default=derived(lambda desc: desc.element))
    element: ElementKind = element()

    def validate(self) -> None:
        if self.m > ROWS:
            raise InvalidProblemError(f"m must be at most {ROWS}, got {self.m}; `gemm` takes any number of rows")
        if self.out_element not in (self.element, self.element.acc):
            raise InvalidProblemError(
                f"out_element must be {self.element} or {self.element.acc}, got {self.out_element}"
            )


PARAMS = gemm_params("GemvParams", right="i32", gemv_narrow=_NARROW, gemv_along_k=_ALONG_K, gemv_along_n=_ALONG_N)


def _right(p: Problem) -> int:
    """How the right matrices are read."""
    views = [view for view in (p.b, p.up) if view is not None]
    if all(wide_view(transposed(view)) for view in views):
        return _ALONG_K
    return _ALONG_N if all(wide_view(view) for view in views) else _NARROW


def _launch(p: Problem, kernel: str, rows: int, columns: int, right: int, axes: Mapping[str, Any]) -> Geometry | str:
    desc = p.desc
    blocks = batch_count(p) * -(-desc.m // rows) * -(-desc.n // columns)
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    values = gemm_values(p)
    if isinstance(values, str):
        return values
    step = Step(kernel, (blocks, 1, 1), values | {"right": right}, axes)
    return Geometry((step,), layout="contiguous" if dense(p) else "strided")


def _tensor_cores(p: Problem) -> Geometry | str:
    right = _right(p)
    along_k = right == _ALONG_K if right else abs(p.b.strides[-2]) <= abs(p.b.strides[-1])
    rows = 8 if p.desc.m <= 8 else 16
    axes = {"OUT": p.desc.out_element, "GATED": p.up is not None, "ROWS": rows, "K_MAJOR": along_k}
    return _launch(p, "gemv_mma", rows, 32, right, axes)


def _rows(kind: ElementKind) -> tuple[int, ...]:
    return (1, 4, 16) if kind is ElementKind.F32 else (1, 4)


def _fused(p: Problem) -> Geometry | str:
    served = _rows(p.desc.element)
    rows = next((n for n in served if n >= p.desc.m), served[-1])
    return _launch(p, "gemv", rows, 8, _right(p), {"GATED": p.up is not None, "ROWS": rows})


def _tensor_core_axes(kind: ElementKind) -> Mapping[str, Any]:
    return {"OUT": (kind, kind.acc), "GATED": (False, True), "ROWS": (8, 16), "K_MAJOR": (True, False)}


def _fused_axes(kind: ElementKind) -> Mapping[str, Any]:
    return {"GATED": (False, True), "ROWS": _rows(kind)}


@dataclass(slots=True, kw_only=True)
class GemvArgs(GemmArgs):
    """As `GemmArgs`: b may be a transposed view, such as the weights [n, k] of a linear layer."""


class _OfGemm:
    """What a plan takes over from `GemmPlan`, whose gradient serves it, too."""

    vjp: ClassVar[Vjp | None] = GemmPlan.vjp
    check = GemmPlan.check
    complete = GemmPlan.complete
    flops = GemmPlan.flops


class GemvPlan(_OfGemm, Plan):
    """`GemmPlan` for at most 16 rows of a, with its epilogue: y = act(alpha · a @ b + beta · c + bias) + residual.

    a [*batch_shape, m, k], m <= 16, b [*batch_shape, k, n], y [*batch_shape, m, n]; f16, bf16, f32, f64; accumulation
    in float32 (float64 for float64). The order of sums depends on k alone: a row gives the same bits alone and beside
    others. alpha = 0 leaves a, b and up unread, beta = 0 leaves out c.
    """

    op = "gemm.gemv"
    descriptor = GemvDescriptor
    args = GemvArgs
    reference = staticmethod(reference)
    apart = True
    variants = (
        Variant(
            "tensor_cores", _tensor_cores, source="gemm/gemv_mma.cu", elements=HALVES,
            kernels=(
                Kernel("gemv_mma", "gemv_mma<{T}, {OUT}, {GATED}, {ROWS}, {K_MAJOR}>", PARAMS, _tensor_core_axes),
            ),
            guarantee=Guarantee(Forward(128), batch_invariant=True, order="mma"),
        ),
        Variant(
            "fused", _fused, source="gemm/gemv.cu", elements=_WIDE,
            kernels=(Kernel("gemv", "gemv<{T}, {GATED}, {ROWS}>", PARAMS, _fused_axes),),
            guarantee=Guarantee(Forward(128), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(f"[{m}, 4096] x [4096, {n}] bf16", m=m, n=n, k=4096, element="bfloat16", target=None, peers=())
        for m in (1, 8, 16)
        for n in (4096, 14336)
    )

    @staticmethod
    def case(draw: Any) -> GemvDescriptor:
        kind = draw.element
        return GemvDescriptor(
            batch_shape=draw.shape(0, 2, 0, 3), m=draw.sizes(1, 2, 5, 8, 11, 16), n=draw.sizes(1, 5, 16, 32, 72, 129),
            k=draw.sizes(0, 1, 16, 67, 256, 520, rare=(2500,)), activation=draw.choice(ACTIVATIONS), element=kind,
            out_element=draw.choice((kind, kind.acc)),
        )  # fmt: skip


class GemvDensePlan(GemvPlan):
    """`GemvPlan` by another name."""

    pinned = True


gemv = functional(GemvPlan)
