"""quantized_linear: a layer of int8 weights whose input is quantised on the way (W8A8), and its gradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Guarantee, PerOutput, Plan, Scalar, Ulp, Variant, element, extent,
    extents, flag, operand, output, scalar,
)  # fmt: skip
from ...core.args import Everywhere
from ...core.benchmark import FLOPS, Benchmark
from ...core.element import cast as cast_values
from ...schedules import quantized_linear as schedule
from .int_gemm import IntGemmDescriptor, IntGemmKind, IntGemmPlan

E = ElementKind
_FLOATS = (E.F32, E.F16, E.BF16)
_LEAST, _LARGEST = 2.0**-126, 127.0  # of a scale, below which float32 has few digits, and of a code


@dataclass(frozen=True, kw_only=True)
class QuantizedLinearDescriptor(Descriptor):
    """x is [*batch_shape, in_features], y [*batch_shape, out_features].

    static: the scale of x is the number `x_scale`, the same for all rows; else each row has its own.
    """

    batch_shape: tuple[int, ...] = extents()
    in_features: int = extent()
    out_features: int = extent()
    static: bool = flag(False)
    element: ElementKind = element(_FLOATS)


@dataclass(slots=True, kw_only=True)
class QuantizedLinearArgs(Args):
    """weight is int8, scale float32, one number or one for each row of it; smooth, float32, divides x by columns.

    Any strides, but y's rows must be even steps apart. quantized and scales, dense, are what x became.
    """

    x: Array = operand("*batch_shape in_features")
    weight: Array = operand("out_features in_features", element=E.I8, values=Everywhere())
    scale: Array = operand("out_features", element=E.F32, broadcast=True, values=(0.25, 2.0))
    bias: Array | None = operand("out_features", optional=True)
    smooth: Array | None = operand("in_features", element=E.F32, optional=True, values=(0.25, 4.0))
    y: Array = output("*batch_shape out_features")
    quantized: Array | None = output("*batch_shape in_features", element=E.I8, optional=True, layout="dense")
    scales: Array | None = output("*batch_shape", element=E.F32, optional=True, layout="dense")
    x_scale: Scalar = scalar(1.0)


def reference(
    desc: QuantizedLinearDescriptor, *, x: Any, weight: Any, scale: Any, bias: Any, smooth: Any, x_scale: Any,
    wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy: the quotients are float32 numbers, the sums exact, and y is in the dtype x comes in, or wider."""
    del wanted

    def single(value: Any) -> Any:
        return cast_values(np.asarray(value), E.F32).astype(x.dtype)

    with np.errstate(all="ignore"):
        u = x if smooth is None else single(x / smooth)
        if desc.static:
            factor = np.broadcast_to(single(x.dtype.type(x_scale)), (*desc.batch_shape, 1))
        else:
            factor = single(np.max(np.abs(u), axis=-1, keepdims=True, initial=0) / x.dtype.type(_LARGEST))
            factor = np.where(factor < _LEAST, x.dtype.type(_LEAST), factor)
        codes = np.rint(single(u / factor))
        codes = np.where(np.isnan(codes), 0, np.clip(codes, -128, 127)).astype(np.int8)
        sums = np.matmul(codes.astype(np.float64), weight.T.astype(np.float64))
        wide = np.float32 if x.dtype == np.float32 else np.longdouble
        y = sums.astype(wide) * factor * scale
        y = y if bias is None else y + bias
    return {"y": y, "quantized": codes, "scales": factor[..., 0]}


def in_torch(
    torch: Any, desc: QuantizedLinearDescriptor, *, x: Any, weight: Any, scale: Any, bias: Any, smooth: Any,
    x_scale: Any, wanted: set[str],
) -> Any:  # fmt: skip
    """The formula."""
    if 0 in (*desc.batch_shape, desc.in_features):
        return NotImplemented

    def single(value: Any) -> Any:
        return value.float().to(x.dtype)

    u = x if smooth is None else single(x / smooth)
    if desc.static:
        factor = torch.full((*desc.batch_shape, 1), float(x_scale), dtype=x.dtype, device=x.device)
        factor = single(factor)
    else:
        factor = single(u.abs().amax(-1, keepdim=True) / _LARGEST)
        factor = factor.clamp(min=_LEAST)
    codes = single(u / factor).round().nan_to_num(0.0, float("inf"), float("-inf")).clamp(-128, 127)
    y = torch.matmul(codes.double(), weight.double().T) * factor * scale
    y = y if bias is None else y + bias
    return {"y": y, "quantized": codes.to(torch.int8), "scales": factor[..., 0]}


def _product(desc: QuantizedLinearDescriptor, m: int, n: int, k: int) -> IntGemmDescriptor:
    return IntGemmDescriptor(kind=IntGemmKind.SCALED, m=m, n=n, k=k, out_element=desc.element, element=E.I8)


def _variants() -> tuple[Variant, ...]:
    """A row for each of `IntGemmPlan` that scales operands as they lie."""
    bound = PerOutput((("y", Ulp(0.51)), ("quantized", Exact()), ("scales", Exact())))
    return tuple(
        Variant(
            row.name, schedule.geometry(row, _product), source="quant_gemm/quantize_rows.cu", elements=_FLOATS,
            kernels=(schedule.KERNEL, *schedule.inner_kernels(row)), design=row.design,
            guarantee=Guarantee(bound, math="int8", batch_invariant=True),
        )
        for row in IntGemmPlan.variants
        if row.serves(IntGemmKind.SCALED, E.I8) and not row.name.endswith("copied")
    )  # fmt: skip


class QuantizedLinearPlan(Plan):
    """y = scales · scale · (quantized @ weightᵀ) + bias: int8 weights, and x quantised to int8 row by row (W8A8).

    u = x / smooth (Xiao et al., SmoothQuant, 2023), scales = max |u| / 127 of each row, at least 2⁻¹²⁶, or `static` the
    number x_scale, and quantized = u / scales, rounded to nearest, ties to even, saturating; NaN becomes 0. All that is
    in float32, the sums are exact, and y is rounded once. A row with a NaN or an infinity is NaN, unless static. Two
    launches. The gradient is straight through: that of `quantized_linear`.
    """

    op = "quant_gemm.quantized_linear"
    descriptor = QuantizedLinearDescriptor
    args = QuantizedLinearArgs
    reference = staticmethod(reference)
    variants = _variants()
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"[{m}, 4096] x [14336, 4096] bf16", batch_shape=m, in_features=4096, out_features=14336,
            element="bfloat16", work=FLOPS, target=None, peers=(),
        )
        for m in (1, 16, 4096)
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> QuantizedLinearDescriptor:
        if draw.rarely():  # past sums of 32 bits
            return QuantizedLinearDescriptor(
                batch_shape=(2,), in_features=131_088, out_features=9, element=draw.element
            )
        return QuantizedLinearDescriptor(
            batch_shape=draw.shape(0, 2, 0, 17), in_features=draw.sizes(1, 16, 67, 256, 0, rare=(2080,)),
            out_features=draw.sizes(1, 5, 64, 129, rare=(264,)), static=draw.flag(), element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        arrays["x_scale"] = 0.03125

    @classmethod
    def flops(cls, desc: QuantizedLinearDescriptor) -> int:
        rows = int(np.prod(desc.batch_shape, dtype=np.int64))
        return 2 * rows * desc.in_features * desc.out_features
