"""syrk: y = alpha · a aᵀ + beta · c, symmetric to the bit (BLAS SYRK, with both triangles of the result)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ...core import (
    ArchSku, Args, Array, Descriptor, ElementKind, Forward, Guarantee, InvalidProblemError, Plan, Scalar, Variant,
    choice, derived, element, extent, extents, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import EAGER, FLOPS, Benchmark
from ...calls.composed import composed
from ...calls.entries import entry
from ...core.checked import truth
from ...core.outputs import each_of
from ...core.views import shape_of, transposed
from ...expressions.elementwise import Expression, elementwise
from ...core.arrays import read
from ...schedules.gemm import for_precision
from ..elementwise.cast import cast
from ..layout.triangle import tril
from . import syrk_rows as rows
from .gemm import check_elements, gemm


@dataclass(frozen=True, kw_only=True)
class SyrkDescriptor(Descriptor):
    """a is [*batch_shape, n, k]; c and y are [*batch_shape, n, n] in `out_element`.

    out_element: default `element`; float32 for 16-bit operands. math_precision: "element", or "tf32" for float32.
    """

    batch_shape: tuple[int, ...] = extents(())
    n: int = extent()
    k: int = extent()
    math_precision: str = choice(("element", "tf32"), "element")
    out_element: ElementKind = element(default=derived(lambda desc: desc.element))
    element: ElementKind = element()

    def validate(self) -> None:
        check_elements(self)


@dataclass(slots=True, kw_only=True)
class SyrkArgs(Args):
    """Any strides: of the product aᵀ a, a is a transposed view. Of c the lower triangle is read; y may be c itself.

    alpha, beta: numbers, or both 0-d device arrays. Without c, beta counts for nothing.
    """

    a: Array = operand("*batch_shape n k")
    c: Array | None = operand("*batch_shape n n", element="out_element", optional=True)
    y: Array = output("*batch_shape n n", element="out_element", inplace=("c",))
    alpha: Scalar = scalar(1.0)
    beta: Scalar = scalar(1.0)


def mirrored(x: Any) -> Any:
    """The lower triangle, and the same above."""
    lower = np.tri(x.shape[-1], dtype=bool)
    return np.where(lower, x, x.swapaxes(-1, -2))


def reference(desc: SyrkDescriptor, *, a: Any, c: Any, alpha: Any, beta: Any) -> Mapping[str, Any]:
    """NumPy matmul in the dtype a comes in."""
    shape = (*desc.batch_shape, desc.n, desc.n)
    x = np.zeros(shape, a.dtype) if alpha == 0.0 else np.matmul(a, a.swapaxes(-1, -2))
    x = x if alpha == 1.0 else x * x.dtype.type(alpha)
    return {"y": mirrored(x if c is None or beta == 0.0 else x + x.dtype.type(beta) * c)}


def in_torch(torch: Any, desc: SyrkDescriptor, *, a: Any, c: Any, alpha: Any, beta: Any) -> Any:
    """The product by torch.matmul, its lower triangle in both."""
    x = alpha * (a @ a.mT)
    x = x if c is None else x + beta * c
    return torch.tril(x) + torch.tril(x, -1).mT


_MMA = Guarantee(Forward(128), batch_invariant=True, order="mma")
_TF32 = Guarantee(Forward(2.0**14), math="tf32", batch_invariant=True, order="mma")


class SyrkPlan(Plan):
    """y = alpha · a @ aᵀ + beta · c, computed below the diagonal and mirrored: half the work (BLAS SYRK).

    y[i, j] and y[j, i] are the same bits. Of c only the lower triangle is read. f16, bf16, f32 (TF32 where it is asked
    for), f64; sums in float32 (float64 of float64), in the order that the same design of `GemmPlan` has. alpha = 0
    leaves a out, beta = 0 leaves c out. Muon's Newton–Schulz steps (Jordan et al. 2024) are such products.
    """

    op = "gemm.syrk"
    descriptor = SyrkDescriptor
    args = SyrkArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "wgmma", rows.warpgroups, source="gemm/syrk_wgmma.cu", kernels=(rows.WGMMA,), elements=rows.HALVES,
            design=ArchSku.SM90A, guarantee=replace(_MMA, order="wgmma", roundings=lambda desc: desc.k // 8),
        ),
        Variant(
            "mma", rows.tensor_cores, source="gemm/syrk_mma.cu", kernels=(rows.MMA,), elements=rows.HALVES,
            guarantee=_MMA,
        ),
        Variant(
            "mma_tf32", rows.tensor_cores, source="gemm/syrk_mma.cu", kernels=(rows.MMA,), elements=rows.TF32,
            guarantee=_TF32, refuses=for_precision("tf32"),
        ),
        Variant(
            "simt", rows.simt, source="gemm/syrk.cu", kernels=(rows.SIMT,),
            guarantee=Guarantee(Forward(128), batch_invariant=True, roundings=lambda desc: desc.k),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(f"{n} x {k} bf16", n=n, k=k, element="bfloat16", work=FLOPS, target=None, peers=(EAGER,))
        for n, k in ((2048, 8192), (4096, 4096), (8192, 8192))
    )

    @staticmethod
    def case(draw: Any) -> SyrkDescriptor:
        return SyrkDescriptor(**syrk_case(draw))

    @classmethod
    def flops(cls, desc: SyrkDescriptor) -> int:
        return int(np.prod(desc.batch_shape, dtype=np.int64)) * desc.n * (desc.n + 1) * desc.k


def syrk_case(draw: Any) -> dict[str, Any]:
    """Problems of one tile and of several, whole and partial."""
    kind = draw.element
    return {
        "batch_shape": draw.shape(0, 2, 0, 3), "n": draw.sizes(1, 7, 64, 130), "k": draw.sizes(0, 1, 16, 67, 256),
        "element": kind, "out_element": draw.choice((kind, kind.acc)),
        "math_precision": draw.choice(("element", "tf32")) if kind is ElementKind.F32 else "element",
    }  # fmt: skip


_syrk: Any = functional(SyrkPlan)


@composed("syrk_backward", "a", "c", reads=("a",))
@entry(SyrkPlan)
def syrk(
    a: Array, c: Array | None = None, *, alpha: Any = 1.0, beta: Any = 1.0, trans: bool = False,
    math_precision: str = "element", out_element: Any = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """alpha · a @ aᵀ + beta · c of matrices [*, n, k], or with `trans` alpha · aᵀ @ a + beta · c of [*, k, n].

    Both triangles of the result are there, with the same bits; of c [*, n, n] the lower one is read. `out` may be c.
    See `SyrkPlan` (scipy.linalg.blas.dsyrk has one triangle).
    """
    shape = shape_of(a, "a")
    if len(shape) < 2:
        raise InvalidProblemError(f"a must have shape [*, n, k], got {shape}")
    facts: dict[str, Any] = {"math_precision": math_precision, "stream": stream, "preference": preference}
    if out_element is not None:
        facts["out_element"] = ElementKind.of(out_element)
    return _syrk(transposed(a, "a") if trans else a, c, alpha=alpha, beta=beta, out=out, **facts)


@entry(SyrkPlan)
def symmetric_product(
    a: Array, c: Array, *, alpha: Any = 1.0, beta: Any = 0.0, symmetrize_output: bool = False,
    math_precision: str = "element", out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """alpha · a @ aᵀ + beta · c of matrices a [*, n, k] and symmetric c [*, n, n] (jax.lax.linalg.symmetric_product).

    `syrk` in JAX's words: both triangles are always there, with the same bits, so that symmetrize_output changes
    nothing; of c the lower one is read.
    """
    truth("symmetrize_output", symmetrize_output)
    options = {"math_precision": math_precision, "stream": stream, "preference": preference}
    return syrk(a, c, alpha=alpha, beta=beta, out=out, **options)


@cache
def _both_triangles() -> Expression:
    return elementwise("x + z")


@cache
def _scaled() -> Expression:
    return elementwise("beta * (x + z)", beta=1.0)


@entry(SyrkPlan)
def syrk_backward(
    dy: Array, a: Array, c: Array | None = None, *, alpha: Any = 1.0, beta: Any = 1.0, trans: bool = False,
    math_precision: str = "element", out_element: Any = None, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(da, dc) of `syrk`: alpha (dy + dyᵀ) @ a, and beta (dy + dyᵀ) below the diagonal, beta dy on it, 0 above.

    dc is None without c. dy + dyᵀ is rounded to the element of a before it is multiplied; two launches, and three for
    dc.
    """
    del out_element
    options = {"stream": stream, "preference": preference}
    to = each_of(out, 2)
    kind = read(a, "a").element
    turned = transposed(dy, "dy")
    both = _both_triangles()(x=dy, z=turned, **options)
    both = both if read(both, "dy").element is kind else cast(both, kind, **options)
    left, right = (a, both) if trans else (both, a)
    da = gemm(left, right, alpha=alpha, math_precision=math_precision, out=to[0], **options)
    if c is None:
        return da, None
    below, beside = tril(dy, **options), tril(turned, -1, **options)
    return da, _scaled()(x=below, z=beside, beta=beta, out=to[1], **options)
