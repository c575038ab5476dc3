"""gemm: y = act(alpha · a b + beta · c + bias) + residual, batched, any strides (torch.matmul, BLAS GEMM).

The table is read top-down: cuBLAS takes products in the layouts it can express (a row or a column stride of 1 in each
matrix, one batch axis), bare or with the epilogues it has (a bias, ReLU, GELU by tanh); kernels of our own take the
rest, the last of them any strides. TF32 is used only where `math_precision="tf32"` asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...backends.cublas import CUBLAS_LT
from ...core import (
    ArchSku, Args, Array, BackendKind, Descriptor, ElementKind, Forward, Geometry, Guarantee, InvalidProblemError,
    Kernel, Plan, Problem, Scalar, Step, Variant, Vjp, choice, derived, element, extent, extents, operand,
    output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark, EAGER, FLOPS
from ...schedules.gemm import ACTIVATIONS, batch_count, dense, for_precision, gemm_params, gemm_values
from ...schedules import gemm_copied, gemm_wgmma
from ..elementwise.unary_kinds import UnaryKind
from .library import library, refuses, refuses_epilogue
from . import mma, mma_f64

_TILE = 64


def check_elements(desc: Any, result: str = "out_element") -> None:
    """Refuses what products of `element` do not have: elements of the result, which a field names, and precisions."""
    if (got := getattr(desc, result)) not in (desc.element, desc.element.acc):
        raise InvalidProblemError(f"{result} must be {desc.element} or {desc.element.acc}, got {got}")
    if desc.math_precision == "tf32" and desc.element is not ElementKind.F32:
        raise InvalidProblemError(f"math_precision='tf32' is for float32 operands, got {desc.element}")


@dataclass(frozen=True, kw_only=True)
class GemmDescriptor(Descriptor):
    """a is [*batch_shape, m, k], b [*batch_shape, k, n]; y and c are [*batch_shape, m, n] in `out_element`.

    out_element: default `element`; float32 for 16-bit operands (gradients accumulated in full). math_precision:
    "element" (16-bit products exact in float32; float32 strict) or "tf32", for float32 operands. activation: none,
    relu, gelu, gelu_tanh or silu; with `up` it is that of the gate.
    """

    batch_shape: tuple[int, ...] = extents(())
    m: int = extent()
    n: int = extent()
    k: int = extent()
    activation: str = choice(ACTIVATIONS, "none")
    math_precision: str = choice(("element", "tf32"), "element")
    out_element: ElementKind = element(default=derived(lambda desc: desc.element))
    element: ElementKind = element()

    def validate(self) -> None:
        check_elements(self)


@dataclass(slots=True, kw_only=True)
class GemmArgs(Args):
    """An operand with stride 0 on a batch axis is shared by the batch. `c` may be `y` itself: accumulation.

    alpha, beta: numbers, or both 0-d device arrays (float32; float64 for float64). Without c, beta counts for nothing.
    up, with up_bias: the weights of a second product, which the activated first one gates: the halves of a packed
    projection are two views of it. bias and row_bias are added to every row and every column; scale_a and scale_b
    multiply rows and columns of both products. pre and up_pre: what the products are before the activation, rounded.
    """

    a: Array = operand("*batch_shape m k")
    b: Array = operand("*batch_shape k n")
    c: Array | None = operand("*batch_shape m n", element="out_element", optional=True)
    bias: Array | None = operand("n", optional=True)
    up: Array | None = operand("*batch_shape k n", optional=True)
    up_bias: Array | None = operand("n", optional=True)
    row_bias: Array | None = operand("m", optional=True)
    scale_a: Array | None = operand("m", element=ElementKind.F32, optional=True)
    scale_b: Array | None = operand("n", element=ElementKind.F32, optional=True)
    residual: Array | None = operand("*batch_shape m n", element="out_element", optional=True)
    y: Array = output("*batch_shape m n", element="out_element", inplace=("c", "residual"))
    pre: Array | None = output("*batch_shape m n", element="out_element", optional=True)
    up_pre: Array | None = output("*batch_shape m n", element="out_element", optional=True, needs="up")
    alpha: Scalar = scalar(1.0)
    beta: Scalar = scalar(1.0)


def activated(name: str, x: Any) -> Any:
    """The activation by name, in the dtype of x."""
    if name == "none":
        return x
    with np.errstate(all="ignore"):
        return UnaryKind(name).row.formula(x)  # type: ignore[call-arg]


def rows_apart(a: Any, b: Any) -> Any:
    """a @ b of matrices in any batch, each row of a by a call of its own: BLAS orders sums by the shape of a call."""
    shape = (*a.shape[:-1], b.shape[-1])
    right = np.broadcast_to(b, (*shape[:-2], *b.shape[-2:]))
    y = np.empty(shape, a.dtype)
    for at in np.ndindex(shape[:-1]):
        y[at] = np.matmul(a[at].copy(), right[at[:-1]])
    return y


def reference(
    desc: GemmDescriptor, *, a: Any, b: Any, up: Any, c: Any, bias: Any, up_bias: Any, row_bias: Any, scale_a: Any,
    scale_b: Any, residual: Any, alpha: Any, beta: Any, wanted: set[str], apart: bool = False,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy matmul in the dtype the operands come in."""
    del wanted

    def product(right: Any, vector: Any) -> Any:
        if alpha == 0.0:
            x = np.zeros((*desc.batch_shape, desc.m, desc.n), a.dtype)
        else:
            x = rows_apart(a, right) if apart else np.matmul(a, right)
        if alpha != 1.0:
            x = x * x.dtype.type(alpha)
        x = x if scale_a is None else x * scale_a[:, None]
        return x if scale_b is None else x * scale_b

    x = product(b, bias)
    x = x if c is None or beta == 0.0 else x + x.dtype.type(beta) * c
    x = x if row_bias is None else x + row_bias[:, None]
    made = {"pre": x if bias is None else x + bias}
    y = activated(desc.activation, made["pre"])
    if up is not None:
        factor = product(up, up_bias)
        made["up_pre"] = factor if up_bias is None else factor + up_bias
        y = y * made["up_pre"]
    return made | {"y": y if residual is None else y + residual}


PARAMS = gemm_params("GemmParams", a_cols_dense="i32", b_cols_dense="i32")


def _instances(kind: ElementKind) -> Mapping[str, Any]:
    return {"OUT": tuple(dict.fromkeys((kind, kind.acc))), "GATED": (False, True)}


def _simt(p: Problem) -> Geometry | str:
    desc = p.desc
    blocks = batch_count(p) * -(-desc.m // _TILE) * -(-desc.n // _TILE)
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    values = gemm_values(p)
    if isinstance(values, str):
        return values
    values |= {"a_cols_dense": p.a.strides[-1] == 1, "b_cols_dense": p.b.strides[-1] == 1}
    axes = {"OUT": desc.out_element, "GATED": p.up is not None}
    return Geometry((Step("gemm", (blocks, 1, 1), values, axes),), layout="contiguous" if dense(p) else "strided")


# A float32 sum of k products strays by about sqrt(k) ulp of the sum of magnitudes; tensor cores truncate partial sums.
_STRICT = Guarantee(Forward(128), roundings=lambda desc: desc.k)
_MMA = Guarantee(Forward(128), batch_invariant=True, order="mma")
_WGMMA = replace(_MMA, order="wgmma", roundings=lambda desc: desc.k // 8)
_MMA_TF32 = Guarantee(Forward(2.0**14), math="tf32", batch_invariant=True, order="mma")
_WGMMA_TF32 = replace(_MMA_TF32, order="wgmma")


def in_torch(torch: Any, desc: GemmDescriptor, **given: Any) -> Any:
    """The formula, the products by torch.matmul."""
    act = {
        "none": lambda x: x, "relu": torch.relu, "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu,
        "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    }  # fmt: skip

    def product(right: Any) -> Any:
        x = torch.matmul(given["a"], right)
        x = x if given["alpha"] == 1.0 else given["alpha"] * x
        x = x if given["scale_a"] is None else x * given["scale_a"][:, None]
        return x if given["scale_b"] is None else x * given["scale_b"]

    x = product(given["b"])
    x = x if given["c"] is None else x + given["beta"] * given["c"]
    x = x if given["row_bias"] is None else x + given["row_bias"][:, None]
    pre = x if given["bias"] is None else x + given["bias"]
    made, y = {"pre": pre}, act[desc.activation](pre)
    if given["up"] is not None:
        factor = product(given["up"])
        made["up_pre"] = factor if given["up_bias"] is None else factor + given["up_bias"]
        y = y * made["up_pre"]
    return made | {"y": y if given["residual"] is None else y + given["residual"]}


class GemmPlan(Plan):
    """y = act(alpha · a @ b + beta · c + bias) + residual over any batch axes and strides (torch.matmul, torch.addmm).

    a [*batch_shape, m, k], b [*batch_shape, k, n], c, residual and y [*batch_shape, m, n]; f16, bf16, f32, f64;
    accumulation in float32 (float64 for float64). Bias, activation, gate and residual come before the one rounding, see
    `GemmArgs`. k = 0 gives what beta · c and the biases give, or zeros. As in BLAS, alpha = 0 leaves a, b and up out:
    NaN and infinities in them do not reach y; likewise beta = 0 and c. Of a zero that stands on the device only our own
    rows promise that: cuBLAS multiplies by it.
    """

    op = "gemm.gemm"
    descriptor = GemmDescriptor
    args = GemmArgs
    reference = staticmethod(reference)
    apart = True
    variants = (
        Variant(
            "cublas", library("element"), backend=BackendKind.CUBLAS, guarantee=_STRICT, refuses=refuses("element"),
            missing=CUBLAS_LT.unavailable,
        ),
        Variant(
            "cublas_tf32", library("tf32"), elements=(ElementKind.F32,), backend=BackendKind.CUBLAS,
            guarantee=Guarantee(Forward(2.0**14), math="tf32"), refuses=refuses("tf32"), missing=CUBLAS_LT.unavailable,
        ),
        Variant(
            "cublas_epilogue", library("element", epilogue=True), backend=BackendKind.CUBLAS,
            elements=(*gemm_wgmma.HALVES, ElementKind.F32), guarantee=_STRICT, refuses=refuses_epilogue,
            missing=CUBLAS_LT.unavailable,
        ),
        Variant(
            "wgmma", gemm_wgmma.geometry, source="gemm/gemm_wgmma.cu", kernels=gemm_wgmma.HALF_KERNELS,
            elements=gemm_wgmma.HALVES, design=ArchSku.SM90A, guarantee=_WGMMA, first=gemm_wgmma.faster_than_cublas,
        ),
        Variant(
            "wgmma_copied", gemm_copied.geometry, source="gemm/gemm_wgmma.cu", kernels=gemm_copied.KERNELS,
            elements=gemm_wgmma.HALVES, design=ArchSku.SM90A, guarantee=replace(_WGMMA, batch_invariant=False),
            first=gemm_copied.first,
        ),
        Variant(
            "wgmma_tf32", gemm_wgmma.geometry, source="gemm/gemm_wgmma.cu", kernels=gemm_wgmma.KERNELS,
            elements=gemm_wgmma.TF32, design=ArchSku.SM90A,
            guarantee=_WGMMA_TF32, refuses=for_precision("tf32"),
        ),
        Variant(
            "mma_split", mma.split_k, source="gemm/gemm_mma.cu", kernels=mma.SPLIT_KERNELS, elements=mma.HALVES,
            guarantee=_MMA,
        ),
        Variant(
            "mma", mma.tensor_cores, source="gemm/gemm_mma.cu", kernels=mma.KERNELS, elements=mma.HALVES,
            guarantee=_MMA,
        ),
        Variant(
            "mma_split_tf32", mma.split_k, source="gemm/gemm_mma.cu", kernels=mma.SPLIT_KERNELS, elements=mma.TF32,
            guarantee=_MMA_TF32, refuses=for_precision("tf32"), may_spill=True,
        ),
        Variant(
            "mma_tf32", mma.tensor_cores, source="gemm/gemm_mma.cu", kernels=mma.KERNELS, elements=mma.TF32,
            guarantee=_MMA_TF32, refuses=for_precision("tf32"), may_spill=True,
        ),
        Variant(
            "mma_f64", mma_f64.geometry, source="gemm/gemm_mma_f64.cu", kernels=mma_f64.KERNELS,
            elements=(ElementKind.F64,), guarantee=replace(_MMA, roundings=lambda desc: desc.k),
        ),
        Variant(
            "simt", _simt, source="gemm/gemm.cu",
            kernels=(Kernel("gemm", "gemm<{T}, {OUT}, {GATED}>", PARAMS, _instances, min_blocks=2),),
            guarantee=Guarantee(Forward(128), batch_invariant=True, roundings=lambda desc: desc.k),
        ),
    )  # fmt: skip
    vjp = Vjp(
        "GemmBackwardPlan",
        grads={
            "a": "da", "b": "db", "up": "dup", "c": "dc", "bias": "dbias", "up_bias": "dup_bias",
            "row_bias": "drow_bias", "residual": "dresidual",
        },
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(f"{size}^3 bf16", m=size, n=size, k=size, element="bfloat16", work=FLOPS, target=None, peers=(EAGER,))
        for size in (4096, 8192)
    )

    @staticmethod
    def case(draw: Any) -> GemmDescriptor:
        kind = draw.element
        return GemmDescriptor(
            batch_shape=draw.shape(0, 2, 0, 3), m=draw.sizes(1, 7, 64, 130), n=draw.sizes(1, 5, 64, 129),
            k=draw.sizes(0, 1, 16, 67, 256, rare=(1063,)), activation=draw.choice(ACTIVATIONS), element=kind,
            out_element=draw.choice((kind, kind.acc)),
            math_precision=draw.choice(("element", "tf32")) if kind is ElementKind.F32 else "element",
        )  # fmt: skip

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        if views["up"] is None and views["up_bias"] is not None:
            raise InvalidProblemError("up_bias is given without up, the weights that it goes with")

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        if arrays["up"] is None:
            arrays["up_bias"] = None

    @classmethod
    def flops(cls, desc: GemmDescriptor) -> int:
        return 2 * int(np.prod(desc.batch_shape, dtype=np.int64)) * desc.m * desc.n * desc.k


# The rows that the products inside of other plans take: bare, of any number of rows, and of float64 few instances.
_ITS_OWN = ("cublas_epilogue", "wgmma_copied", "mma_f64")
INNER = tuple(v for v in GemmPlan.variants if v.name not in _ITS_OWN)


class DenseGemmPlan(GemmPlan):
    """`GemmPlan` by another name."""

    pinned = True


class BatchedGemmPlan(GemmPlan):
    """`GemmPlan` by another name: batches of any axes and strides, those of 0 too. Of lists see `MultiGemmPlan`."""

    pinned = True


gemm = functional(GemmPlan)
dense_gemm = gemm
