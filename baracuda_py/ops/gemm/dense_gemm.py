"""dense_gemm: y = alpha · a b + beta · c, batched, any strides (torch.matmul, torch.baddbmm, BLAS GEMM).

cuBLAS takes every layout it can express (a row or a column stride of 1 in each matrix, one batch axis); a SIMT row
takes the rest. TF32 is used only where `math_precision="tf32"` asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from ...backends import cublas
from ...core import (
    ArchSku, Args, Array, BackendKind, Descriptor, ElementKind, Forward, Geometry, Guarantee, InvalidProblemError,
    Kernel, LibraryStep, Params, Plan, Problem, Scalar, Step, Variant, View, choice, derived, element, extent,
    extents, functional, operand, output, scalar,
)  # fmt: skip
from ...core.device import Device
from ...core.tensor import AXES, merge_axes, pad
from ...core.variant import aligned
from ...core.benchmark import Benchmark, EAGER, FLOPS

_WORKSPACE = 32 << 20  # what torch gives cuBLAS on Hopper; less keeps it from its split-k kernels
_TILE = 64
# Where c is y and beta is exactly 1, cuBLAS rounds a 16-bit product before it adds (read on an H200). One ulp of
# float32 above 1 keeps the sum in the epilogue, rounded once, at a cost of eps(float32) |c|.
_ALMOST_ONE = 1.0 + 2.0**-23


@dataclass(frozen=True, kw_only=True)
class DenseGemmDescriptor(Descriptor):
    """a is [*batch_shape, m, k], b [*batch_shape, k, n]; y and c are [*batch_shape, m, n] in `out_element`.

    out_element: default `element`; float32 for 16-bit operands (gradients accumulated in full). math_precision:
    "element" (16-bit products exact in float32; float32 strict) or "tf32", for float32 operands.
    """

    batch_shape: tuple[int, ...] = extents(())
    m: int = extent()
    n: int = extent()
    k: int = extent()
    math_precision: str = choice(("element", "tf32"), "element")
    out_element: ElementKind = element(default=derived(lambda desc: desc.element))
    element: ElementKind = element()

    def validate(self) -> None:
        if self.out_element not in (self.element, self.element.acc):
            raise InvalidProblemError(
                f"out_element must be {self.element} or {self.element.acc}, got {self.out_element}"
            )
        if self.math_precision == "tf32" and self.element is not ElementKind.F32:
            raise InvalidProblemError(f"math_precision='tf32' is for float32 operands, got {self.element}")


@dataclass(slots=True, kw_only=True)
class DenseGemmArgs(Args):
    """An operand with stride 0 on a batch axis is shared by the batch. `c` may be `y` itself: accumulation.

    alpha, beta: numbers, or both 0-d device arrays (float32; float64 for float64). Without c, beta counts for nothing.
    """

    a: Array = operand("*batch_shape m k")
    b: Array = operand("*batch_shape k n")
    c: Array | None = operand("*batch_shape m n", element="out_element", optional=True)
    y: Array = output("*batch_shape m n", element="out_element", inplace=("c",))
    alpha: Scalar = scalar(1.0)
    beta: Scalar = scalar(1.0)


def reference(desc: DenseGemmDescriptor, *, a: Any, b: Any, c: Any, alpha: Any, beta: Any) -> Mapping[str, Any]:
    """NumPy matmul in the dtype the operands come in."""
    y = np.matmul(a, b) if alpha != 0.0 else np.zeros((*desc.batch_shape, desc.m, desc.n), a.dtype)
    if alpha != 1.0:
        y = y * y.dtype.type(alpha)
    return {"y": y if c is None or beta == 0.0 else y + y.dtype.type(beta) * c}


PARAMS = Params(
    "DenseGemmParams", a="ptr", b="ptr", c="ptr", y="ptr", alpha="scalar", beta="scalar", m="i64", n="i64", k="i64",
    batch_shape="i64[8]", batch="i64[4][8]", strides="i64[4][2]", batch_rank="i32", a_cols_dense="i32",
    b_cols_dense="i32",
)  # fmt: skip


def _outputs(kind: ElementKind) -> Mapping[str, Any]:
    return {"OUT": tuple(dict.fromkeys((kind, kind.acc)))}


def _views(p: Problem) -> tuple[View | None, ...]:
    return p.a, p.b, p.c, p.y


def _simt(p: Problem) -> Geometry | str:
    rank = len(p.desc.batch_shape)
    views = _views(p)
    batch_shape, batch = merge_axes(p.desc.batch_shape, [v.strides[:rank] if v else (0,) * rank for v in views])
    if len(batch_shape) > AXES:
        return f"more than {AXES} batch axes remain after merging"
    count = int(np.prod(p.desc.batch_shape, dtype=np.int64))
    blocks = count * -(-p.desc.m // _TILE) * -(-p.desc.n // _TILE)
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    params = {
        "m": p.desc.m, "n": p.desc.n, "k": p.desc.k, "batch_shape": pad(batch_shape), "batch": [pad(s) for s in batch],
        "strides": [v.strides[rank:] if v else (0, 0) for v in views], "batch_rank": len(batch_shape),
        "a_cols_dense": p.a.strides[-1] == 1, "b_cols_dense": p.b.strides[-1] == 1,
    }  # fmt: skip
    step = Step("dense_gemm", (blocks, 1, 1), params, {"OUT": p.desc.out_element}, 256)
    return Geometry((step,), layout="contiguous" if all(v.dense for v in views if v) else "strided")


def _batched(view: View, rank: int) -> View | None:
    """The view with its batch axes merged into one."""
    shape, (strides,) = merge_axes(view.shape[:rank], [view.strides[:rank]])
    if len(shape) > 1:
        return None
    return View(view.ptr, (*shape, *view.shape[rank:]), (*strides, *view.strides[rank:]), view.element)


def _alignment(view: View, ld: int, batch_stride: int) -> int:
    """The power of two, at most 16 bytes, that every row of the matrix starts at a multiple of."""
    spots = view.ptr | ld * view.element.itemsize | batch_stride * view.element.itemsize
    return min(16, spots & -spots) if spots else 16


def _library(precision: str) -> Callable[[Problem], Geometry | str]:
    def geometry(p: Problem) -> Geometry | str:
        desc = p.desc
        if desc.math_precision != precision:
            return f"math_precision {desc.math_precision!r} was asked for"
        if not p.device.fake and not cublas.available():
            return cublas.unavailable_reason()
        if 0 in (desc.m, desc.n, desc.k):
            return "cuBLAS takes no empty extents"
        rank = len(desc.batch_shape)
        matrices: dict[str, cublas.Matrix | None] = {"c": None}
        count, order = int(np.prod(desc.batch_shape, dtype=np.int64)), None
        for name, view in (("d", p.y), ("a", p.a), ("b", p.b), ("c", p.c)):
            if view is None:
                continue
            merged = _batched(view, rank)
            found = merged and cublas.describe(merged.shape, merged.strides, order if name == "c" else None)
            if not found:
                return f"cuBLAS cannot express {'y' if name == 'd' else name} with strides {view.strides}"
            trans, ld, step = found
            order = trans if name == "d" else order
            matrices[name] = cublas.Matrix(str(view.element), trans, ld, step, _alignment(view, ld, step))
        compute = "tf32" if precision == "tf32" else str(desc.element.acc)
        problem = {
            "m": desc.m,
            "n": desc.n,
            "k": desc.k,
            "batch": count,
            "compute": compute,
            "max_workspace": _WORKSPACE,
        }
        dense = all(v.dense for v in _views(p) if v)
        workspace = max(_WORKSPACE, sum(_zeros(desc.m, desc.n, desc.element.itemsize)))
        return Geometry((LibraryStep(_caller(problem | matrices)),), workspace, "contiguous" if dense else "strided")

    return geometry


def _zeros(m: int, n: int, itemsize: int) -> tuple[int, int]:
    """Bytes of a column of m zeros and of a row of n."""
    return aligned(m * itemsize), aligned(n * itemsize)


def _without_product(problem: Mapping[str, Any], device: Device) -> Callable[..., None]:
    """y = beta c, as a product of zeros: of alpha = 0 cuBLAS makes NaN where a or b has one, but for float32."""
    from cupy.cuda.runtime import memsetAsync

    m, n, element = problem["m"], problem["n"], problem["a"].element
    column, row = _zeros(m, n, ElementKind.of(element).itemsize)
    zeros: dict[str, Any] = {"a": cublas.Matrix(element, True, m), "b": cublas.Matrix(element, False, n)}
    gemm = cublas.prepare(cublas.GemmProblem(**{**problem, **zeros, "k": 1, "max_workspace": 0}), device)

    def call(c: int, y: int, beta: float, workspace: int, stream: int) -> None:
        memsetAsync(workspace, 0, column + row, stream)
        gemm.run(workspace, workspace + column, c, y, 0.0, beta, 0, 0, stream)

    return call


def _caller(problem: Mapping[str, Any]) -> Callable[[Device], Callable[..., None]]:
    """The prepared call of a problem: host and device scalars each have an algorithm of their own."""
    beta_counts = problem["c"] is not None
    halves = problem["d"].element in ("float16", "bfloat16")

    def prepare(device: Device) -> Callable[..., None]:
        gemms = {
            mode: cublas.prepare(cublas.GemmProblem(**problem, device_scalars=mode), device) for mode in (False, True)
        }
        tag = 1.0 if problem["compute"] == "float64" else 0.0
        without_product = cache(partial(_without_product, problem, device))

        def call(pointers: tuple[int, ...], scalars: Any, workspace: int, nbytes: int, stream: int) -> None:
            a, b, c, y = pointers
            (alpha_at, alpha), (beta_at, beta) = scalars
            if not alpha_at and not beta_at:
                if c == y and halves and beta == 1.0:
                    beta = _ALMOST_ONE
                beta = beta if beta_counts else 0.0
                if alpha == 0.0:
                    without_product()(c, y, beta, workspace, stream)
                else:
                    gemms[False].run(a, b, c, y, alpha, beta, workspace, nbytes, stream)
                return
            if not (alpha_at and beta_at) or (alpha, beta) != (tag, tag):
                kind = "float64" if tag else "float32"
                raise InvalidProblemError(f"alpha and beta must both be numbers or both be 0-d {kind} device arrays")
            gemms[True].run(a, b, c, y, alpha_at, beta_at, workspace, nbytes, stream)

        return call

    return prepare


# A float32 sum of k products strays by about sqrt(k) ulp of the sum of magnitudes; tensor cores truncate partial sums.
_STRICT = Guarantee(Forward(128))


def in_torch(torch: Any, desc: DenseGemmDescriptor, *, a: Any, b: Any, c: Any, alpha: Any, beta: Any) -> Any:
    """torch.matmul; plain where there is nothing to add."""
    y = torch.matmul(a, b)
    y = y if alpha == 1.0 else alpha * y
    return y if c is None else y + beta * c


class DenseGemmPlan(Plan):
    """y = alpha · a @ b + beta · c over any batch axes and strides (torch.matmul, torch.baddbmm).

    a [*batch_shape, m, k], b [*batch_shape, k, n], c and y [*batch_shape, m, n]; f16, bf16, f32, f64; accumulation in
    float32 (float64 for float64). k = 0 gives beta · c, or zeros. As in BLAS, alpha = 0 leaves a and b out: NaN and
    infinities in them do not reach y; likewise beta = 0 and c. Of a zero that stands on the device only the bespoke row
    promises that: cuBLAS multiplies by it.
    """

    op = "gemm.dense_gemm"
    descriptor = DenseGemmDescriptor
    args = DenseGemmArgs
    reference = staticmethod(reference)
    variants = (
        Variant("cublas", _library("element"), design=ArchSku.SM80, backend=BackendKind.CUBLAS, guarantee=_STRICT),
        Variant(
            "cublas_tf32", _library("tf32"), elements=(ElementKind.F32,), backend=BackendKind.CUBLAS,
            guarantee=Guarantee(Forward(2.0**14), math="tf32"),
        ),
        Variant(
            "simt", _simt, source="gemm/dense_gemm.cu",
            kernels=(Kernel("dense_gemm", "dense_gemm<{T}, {OUT}>", PARAMS, _outputs, min_blocks=2),),
            guarantee=Guarantee(Forward(128), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(f"{size}^3 bf16", m=size, n=size, k=size, element="bfloat16", work=FLOPS, target=None, peers=(EAGER,))
        for size in (4096, 8192)
    )

    @staticmethod
    def case(draw: Any) -> DenseGemmDescriptor:
        kind = draw.element
        return DenseGemmDescriptor(
            batch_shape=draw.shape(0, 2, 0, 3), m=draw.sizes(1, 7, 64, 130), n=draw.sizes(1, 5, 64, 129),
            k=draw.sizes(0, 1, 16, 67, 256), element=kind, out_element=draw.choice((kind, kind.acc)),
        )  # fmt: skip

    @classmethod
    def flops(cls, desc: DenseGemmDescriptor) -> int:
        return 2 * int(np.prod(desc.batch_shape, dtype=np.int64)) * desc.m * desc.n * desc.k


dense_gemm = functional(DenseGemmPlan)
