"""aqlm_gemv: few rows by weights that are sums of vectors of codebooks, read as they are stored (AQLM)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core import (
    Args, Array, Chained, Descriptor, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem, Step,
    Variant, extent, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import BYTES, Benchmark
from ..quantize.aqlm_dequantize import (
    CODES, ELEMENTS, AqlmFields, aqlm_case, aqlm_fields, aqlm_values, summed, width, widths,
)  # fmt: skip

MOST = 8  # rows of x
_THREADS, _WARP = 128, 32


@dataclass(frozen=True, kw_only=True)
class AqlmGemvDescriptor(AqlmFields, Descriptor):
    """x is [m, k], m at most 8, W as in `AqlmFields`, y [m, n]."""

    m: int = extent()

    def validate(self) -> None:
        AqlmFields.validate(self)
        if self.m > MOST:
            raise InvalidProblemError(f"m must be at most {MOST}, got {self.m}; aqlm_linear takes more rows")


@dataclass(slots=True, kw_only=True)
class AqlmGemvArgs(Args):
    """codes and codebooks are dense, rows of x contiguous; the others have any strides."""

    x: Array = operand("m k", layout="inner")
    codes: Array = operand("out_groups in_groups books", element=CODES, layout="dense")
    codebooks: Array = operand("books entries out_group in_group", layout="dense")
    scales: Array | None = operand("out_groups", optional=True)
    bias: Array | None = operand("n", optional=True)
    y: Array = output("m n")


def reference(
    desc: AqlmGemvDescriptor, *, x: Any, codes: Any, codebooks: Any, scales: Any, bias: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    y = x @ summed(desc, codes, codebooks, scales).T
    return {"y": y if bias is None else y + bias}


PARAMS = Params(
    "AqlmGemvParams", x="ptr", bias="ptr", y="ptr", x_step="i64", y_steps="i64[2]", bias_step="i64", m="i32",
    **aqlm_fields(),
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc, each = p.desc, width(p, p.x)
    blocks = -(-desc.n // (_THREADS // _WARP)) if desc.m else 0
    if blocks >= 2**31:
        return f"needs {blocks} blocks, a grid has 2**31 - 1"
    values = {
        "x_step": p.x.strides[0], "y_steps": p.y.strides, "m": desc.m,
        "bias_step": 0 if p.bias is None else p.bias.strides[0], **aqlm_values(p),
    }  # fmt: skip
    axes = {"N": each, "ROWS": next(rows for rows in (1, 4, MOST) if desc.m <= rows)}
    steps = (Step("gemv", (blocks, 1, 1), values, axes, _THREADS),) if blocks else ()
    return Geometry(steps, layout="contiguous" if all(view.dense for view in p.flat()) else "strided")


class AqlmGemvPlan(Plan):
    """y = x @ Wᵀ + bias of up to 8 rows of x, W of AQLM's codes, codebooks and scales as in `AqlmDequantizePlan`.

    Products and sums are float32: a lane of a warp takes every 32nd piece of 16 bytes along k in turn, and lanes are
    added by halves; a weight is multiplied by its scale in float32, and y is rounded once. One launch, which reads
    codes and codebooks alone. The gradient for x is `aqlm_linear`'s.
    """

    op = "quant_gemm.aqlm_gemv"
    descriptor, args, reference = AqlmGemvDescriptor, AqlmGemvArgs, staticmethod(reference)
    value_policy = "codes count modulo the entries of a codebook, a power of two"
    variants = (
        Variant(
            "rows", _geometry, source="quant_gemm/aqlm_gemv.cu", elements=ELEMENTS,
            kernels=(Kernel("gemv", "aqlm_gemv<{T}, {N}, {ROWS}>", PARAMS,
                            lambda element: {**widths(element), "ROWS": (1, 4, MOST)}, threads=_THREADS,
                            min_blocks=4),),
            guarantee=Guarantee(Chained(8, mean=3), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = tuple(
        Benchmark(f"{m} rows by [14336, 4096], {books} x {bits} bits, f16", m=m, out_groups=14336, in_groups=512,
                  books=books, entries=1 << bits, out_group=1, in_group=8, element="float16", work=BYTES, target=None,
                  peers=())
        for m, books, bits in ((1, 1, 16), (8, 1, 16), (1, 2, 8))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> AqlmGemvDescriptor:
        return AqlmGemvDescriptor(m=draw.sizes(1, 3, 8, 0), **aqlm_case(draw), element=draw.element)

    @classmethod
    def flops(cls, desc: Any) -> int:
        return int(2 * desc.m * desc.n * desc.k)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        codes = desc.out_groups * desc.in_groups * desc.books * (1 if desc.entries <= 256 else 2)
        return int(codes + desc.m * (desc.n + desc.k) * desc.element.itemsize)


aqlm_gemv = functional(AqlmGemvPlan)
