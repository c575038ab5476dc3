"""fp8_gemm: products of fp8 with scales of matrices, rows and columns, or blocks (torch.nn.functional.scaled_mm)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from ...backends.cublas import CUBLAS_LT
from ...core import (
    ArchSku, Args, Array, BackendKind, Descriptor, ElementKind, Forward, Guarantee, InvalidProblemError, Plan, Scalar,
    Variant, choice, derived, element, extent, extents, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.args import finite_only
from ...core.benchmark import FLOPS, Benchmark
from ...core.element import FP8
from ...calls.entries import entry
from ...core.views import reshaped, shape_of, with_axis
from ...schedules import gemm_fp8
from ...schedules.gemm import ACTIVATIONS
from ...schedules.gemm_fp8 import BLOCK, OUTPUTS, blocks_of
from . import fp8_library
from .gemm import activated, in_torch as product_in_torch, rows_apart


@dataclass(frozen=True, kw_only=True)
class Fp8GemmDescriptor(Descriptor):
    """a is [m, k] in `element`, b [k, n] in `b_element`; y, c and residual are [m, n] in `out_element`.

    a_scales, b_scales: the shapes of the scales, (1, 1) of a matrix; of a also (m, 1) and (m, k / 128 rounded up), of b
    (1, n) and (k / 128, n / 128), both rounded up. activation: none, relu, gelu, gelu_tanh or silu.
    """

    m: int = extent()
    n: int = extent()
    k: int = extent()
    a_scales: tuple[int, ...] = extents((1, 1))
    b_scales: tuple[int, ...] = extents((1, 1))
    activation: str = choice(ACTIVATIONS, "none")
    out_element: ElementKind = element(OUTPUTS, ElementKind.BF16)
    b_element: ElementKind = element(FP8, derived(lambda desc: desc.element))
    element: ElementKind = element(FP8)

    batch_shape: ClassVar[tuple[int, ...]] = ()

    def validate(self) -> None:
        depth, across = blocks_of(self.k), blocks_of(self.n)
        shapes = {
            "a_scales": (self.a_scales, {(1, 1), (self.m, 1), (self.m, depth)}),
            "b_scales": (self.b_scales, {(1, 1), (1, self.n), (depth, across)}),
        }  # fmt: skip
        for name, (got, allowed) in shapes.items():
            if got not in allowed:
                raise InvalidProblemError(
                    f"{name} must be {' or '.join(map(str, sorted(allowed)))}, got {got}; m, n, k are {self.m}, "
                    f"{self.n}, {self.k}, and blocks have {BLOCK} of k"
                )

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.b_element

    @property
    def bias_element(self) -> ElementKind:
        """That of y, or float32 where that is fp8."""
        return ElementKind.F32 if self.out_element in FP8 else self.out_element

    @property
    def b_in_blocks(self) -> bool:
        """Whether columns of b share scales by blocks of 128."""
        return self.b_scales != (1, 1) and self.b_scales == (blocks_of(self.k), blocks_of(self.n))


@finite_only
def _scales(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Finite ones: infinity times a sum that is 0 is NaN on a kernel, and no term is infinite where k is 0."""
    return rng.uniform(0.25, 2.0, shape)


@dataclass(slots=True, kw_only=True)
class Fp8GemmArgs(Args):
    """Any strides; fp8 travels as uint8, or in a dtype of fp8. `c` and `residual` may be `y` itself.

    The scales are what stored numbers of a and b are multiplied by, float32, and scale_y, 0-d, what y is multiplied by
    before it is stored. amax, 0-d float32: the largest |y| before scale_y and rounding, 0 of an empty y; NaN wins.
    alpha, beta: numbers or 0-d device arrays.
    """

    a: Array = operand("m k")
    b: Array = operand("k n", element="b_element")
    scale_a: Array | None = operand("*a_scales", element=ElementKind.F32, optional=True, values=_scales)
    scale_b: Array | None = operand("*b_scales", element=ElementKind.F32, optional=True, values=_scales)
    c: Array | None = operand("m n", element="out_element", optional=True)
    bias: Array | None = operand("n", element="bias_element", optional=True)
    residual: Array | None = operand("m n", element="out_element", optional=True)
    scale_y: Array | None = operand("", element=ElementKind.F32, optional=True, values=_scales)
    y: Array = output("m n", element="out_element", inplace=("c", "residual"))
    amax: Array | None = output("", element=ElementKind.F32, optional=True)
    alpha: Scalar = scalar(1.0)
    beta: Scalar = scalar(1.0)


def _spread(scales: Any, rows: int, cols: int, high: int, wide: int) -> Any:
    """Scales as a matrix of rows x cols, each of `high` x `wide` of its elements where there are several."""
    full = scales if scales.shape[0] in (1, rows) else np.repeat(scales, high, 0)[:rows]
    return full if full.shape[1] in (1, cols) else np.repeat(full, wide, 1)[:, :cols]


def reference(
    desc: Fp8GemmDescriptor, *, a: Any, b: Any, scale_a: Any, scale_b: Any, c: Any, bias: Any, residual: Any,
    scale_y: Any, alpha: Any, beta: Any, wanted: set[str], apart: bool = False,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy matmul in the dtype the operands come in; an fp8 result is clipped to the range."""
    del wanted
    with np.errstate(all="ignore"):
        left = a if scale_a is None else a * _spread(scale_a, desc.m, desc.k, 1, BLOCK)
        right = b if scale_b is None else b * _spread(scale_b, desc.k, desc.n, BLOCK, BLOCK)
        if alpha == 0.0:
            x = np.zeros((desc.m, desc.n), a.dtype)
        else:
            x = rows_apart(left, right) if apart else np.matmul(left, right)
        x = x if alpha == 1.0 else x * x.dtype.type(alpha)
        x = x if c is None or beta == 0.0 else x + x.dtype.type(beta) * c
        x = activated(desc.activation, x if bias is None else x + bias)
        x = x if residual is None else x + residual
        amax = np.max(np.abs(x), initial=0)
        x = x if scale_y is None else x * scale_y
        largest = desc.out_element.limits.max
        return {"y": np.clip(x, -largest, largest) if desc.out_element in FP8 else x, "amax": np.asarray(amax, x.dtype)}


def in_torch(torch: Any, desc: Fp8GemmDescriptor, *, scale_a: Any, scale_b: Any, scale_y: Any, **given: Any) -> Any:
    """The formula, the product of scaled operands by torch.matmul."""

    def spread(scales: Any, shape: tuple[int, int]) -> Any:
        for axis, n in enumerate(shape):
            if scales.shape[axis] not in (1, n):
                scales = scales.repeat_interleave(BLOCK, axis).narrow(axis, 0, n)
        return scales

    for name, scales, shape in (("a", scale_a, (desc.m, desc.k)), ("b", scale_b, (desc.k, desc.n))):
        if scales is not None:
            given[name] = given[name] * spread(scales, shape)
    absent = dict.fromkeys(("up", "up_bias", "row_bias", "scale_a", "scale_b"))
    y = product_in_torch(torch, desc, **given, **absent)["y"]  # type: ignore[arg-type]
    amax = y.abs().amax() if y.numel() else y.new_zeros(())
    y = y if scale_y is None else y * scale_y
    largest = desc.out_element.limits.max
    return {"y": y.clamp(-largest, largest) if desc.out_element in FP8 else y, "amax": amax}


# Of 128 terms the tensor cores keep 13 bits below the largest: each loses less than 2^-13 of it, together less than
# 2^-6 of their absolute sum. Random data is off by some 2^-12 of it.
_FP8 = Guarantee(Forward(2.0**17), math="fp8", batch_invariant=True, order="wgmma")


class Fp8GemmPlan(Plan):
    """y = act(alpha · (scale_a · a) @ (scale_b · b) + beta · c + bias) + residual of fp8 (torch's scaled_mm).

    a [m, k] and b [k, n] are float8_e4m3fn or float8_e5m2, one of each too; y is bfloat16, float16, float32 or fp8,
    where too large a number becomes the largest finite one. Scales (float32, optional) are of a whole matrix, of each
    row of a and column of b, or of blocks of 128 of k: scale_a [m, k / 128], scale_b [k / 128, n / 128] (Liu et al.,
    DeepSeek-V3, 2024). Sums of 128 terms are scaled and added in float32, in the order of k. y may have a scale of its
    own, and amax, the largest |y| before it, gives the one of the next step (delayed scaling: Micikevicius et al.,
    2022). Designs for sm_90 take operands with k along memory, b as the transposed view of weights [n, k]; those for
    sm_89, and for sm_80, which multiplies fp8 as f16, take any. alpha = 0 leaves a and b unread, beta = 0 leaves out c.
    There is no gradient: take `GemmPlan`'s. cuBLAS is first, where it has the scales and outputs: it measured faster.
    """

    op = "gemm.fp8_gemm"
    descriptor = Fp8GemmDescriptor
    args = Fp8GemmArgs
    reference = staticmethod(reference)
    apart = True
    variants = (
        Variant(
            "cublas", fp8_library.geometry, elements=FP8, backend=BackendKind.CUBLAS,
            guarantee=replace(_FP8, batch_invariant=False, order=""), refuses=fp8_library.refuses,
            missing=CUBLAS_LT.unavailable,
        ),
        Variant(
            "wgmma", gemm_fp8.wgmma, source="gemm/fp8_gemm_wgmma.cu",
            kernels=(*gemm_fp8.WGMMA_KERNELS, gemm_fp8.CLEAR), elements=FP8, design=ArchSku.SM90A, guarantee=_FP8,
        ),
        Variant(
            "mma_fp8", gemm_fp8.mma(gemm_fp8.NATIVE_KERNELS), source="gemm/fp8_gemm_mma.cu",
            kernels=(*gemm_fp8.NATIVE_KERNELS, gemm_fp8.CLEAR), elements=FP8, design=ArchSku.SM89,
            guarantee=replace(_FP8, order="mma"), refuses=gemm_fp8.mixed,
        ),
        Variant(
            "mma", gemm_fp8.mma(gemm_fp8.MMA_KERNELS), source="gemm/fp8_gemm_mma.cu",
            kernels=(*gemm_fp8.MMA_KERNELS, gemm_fp8.CLEAR), elements=FP8,
            guarantee=Guarantee(Forward(128), batch_invariant=True, order="mma"),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(f"{n}^3 e4m3", m=n, n=n, k=n, element="float8_e4m3fn", work=FLOPS, target=None, peers=())
        for n in (4096, 8192)
    )

    @staticmethod
    def case(draw: Any) -> Fp8GemmDescriptor:
        m, n = draw.sizes(1, 7, 64, 130, 200), draw.sizes(1, 5, 64, 129, 200)
        k = draw.sizes(0, 1, 16, 67, 256, 272, rare=(1063,))
        depth, across = blocks_of(k), blocks_of(n)
        return Fp8GemmDescriptor(
            m=m, n=n, k=k, a_scales=draw.choice(((1, 1), (m, 1), (m, depth))),
            b_scales=draw.choice(((1, 1), (1, n), (depth, across))), activation=draw.choice(ACTIVATIONS),
            out_element=draw.choice(OUTPUTS), b_element=draw.choice(FP8), element=draw.element,
        )  # fmt: skip

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        """Where bytes are said to hold an element, those of b hold it too."""
        if facts.get("b_element") is None and facts.get("element") is not None:
            facts["b_element"] = facts["element"]

    @classmethod
    def flops(cls, desc: Fp8GemmDescriptor) -> int:
        return 2 * desc.m * desc.n * desc.k


fp8_gemm = functional(Fp8GemmPlan)


@entry(Fp8GemmPlan)
def scaled_mm(
    a: Array, b: Array, scale_a: Array | None = None, scale_b: Array | None = None, *, bias: Array | None = None,
    scale_result: Array | None = None, out_element: Any = "bfloat16", use_fast_accum: bool = False,
    element: Any = None, b_element: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(scale_a · a) @ (scale_b · b) + bias of fp8 (torch._scaled_mm, torch.nn.functional.scaled_mm): see `Fp8GemmPlan`.

    The shapes of scales say what they are of: one number of a matrix, [m] or [m, 1] of rows of a, [n] or [1, n] of
    columns of b, [m, k / 128] and [k / 128, n / 128], both rounded up, of blocks. scale_result: one number, what the
    result is multiplied by before it is rounded. use_fast_accum: sums may be less exact; they are as exact with it.
    element, b_element: what uint8 operands hold, b the same as a by default.
    """
    more = {name: kind for name, kind in (("element", element), ("b_element", b_element)) if kind is not None}
    scales = (_matrix(scale_a, "scale_a", -1), _matrix(scale_b, "scale_b", 0))
    scale_y = None if scale_result is None else reshaped(scale_result, (), "scale_result")
    return fp8_gemm(
        a, b, *scales, bias=bias, scale_y=scale_y, out_element=out_element, **more, out=out, stream=stream,
        preference=preference,
    )  # fmt: skip


def _matrix(scales: Array | None, name: str, axis: int) -> Array | None:
    """Scales of one axis or none with two, the new one at `axis`."""
    if scales is None:
        return None
    shape = shape_of(scales, name)
    if len(shape) == 1:
        return with_axis(scales, axis, name)
    return reshaped(scales, (1, 1), name) if not shape else scales
