"""packed_gemm: exact products of integers of few bits, packed in bytes: signs, ternary weights, int4."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Guarantee, InvalidProblemError, Plan, Relative, Variant, choice,
    element, extent, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import FLOPS, Benchmark
from ...core.error_bound import ErrorBound
from ...schedules import packed_gemm as schedule

E = ElementKind
OUTPUTS = (E.I32, E.F32, E.F16, E.BF16)
_FLOATS = ("scale_a", "scale_b", "bias")
LARGEST_K = (1 << 23) - 1  # below it no sum passes 32 bits, whatever the bytes hold


class PackedGemmKind(enum.Enum):
    """What the operands hold, and how many numbers a byte of a and of b has."""

    BINARY = ("binary", "Binary", 8, 8)
    TERNARY = ("ternary", "Ternary", 1, 4)
    INT4 = ("int4", "Int4", 2, 2)
    UINT4 = ("uint4", "Uint4", 2, 2)

    cpp: str
    per_a: int
    per_b: int

    def __new__(cls, name: str, cpp: str, per_a: int, per_b: int) -> PackedGemmKind:
        kind = object.__new__(cls)
        kind._value_, kind.cpp, kind.per_a, kind.per_b = name, cpp, per_a, per_b
        return kind

    @property
    def slice_b(self) -> int:
        """Bytes of a line of b that go with 128 of one of a."""
        return 128 * self.per_a // self.per_b


K = PackedGemmKind


@dataclass(frozen=True, kw_only=True)
class PackedGemmDescriptor(Descriptor):
    """a has m lines of k numbers, b n of them, each line packed in whole bytes; y is [m, n] in `element`."""

    kind: PackedGemmKind = choice(PackedGemmKind)
    m: int = extent()
    n: int = extent()
    k: int = extent()
    element: ElementKind = element(OUTPUTS, E.I32)

    def validate(self) -> None:
        if self.k > LARGEST_K:
            raise InvalidProblemError(f"k must be at most {LARGEST_K}, so that sums have 32 bits, got {self.k}")

    @property
    def a_bytes(self) -> int:
        """Bytes of a line of a."""
        return -(-self.k // self.kind.per_a)

    @property
    def b_bytes(self) -> int:
        """Bytes of a line of b."""
        return -(-self.k // self.kind.per_b)

    @property
    def a_element(self) -> ElementKind:
        """What a travels as."""
        return E.I8 if self.kind.per_a == 1 else E.U8


def _factors(rng: Any, desc: Any, shape: tuple[int, ...]) -> Any:
    return rng.uniform(0.25, 2.0, shape)


@dataclass(slots=True, kw_only=True)
class PackedGemmArgs(Args):
    """Any strides. a is int8 of the kind ternary; all other packed operands are uint8. An int32 y has no scales."""

    a: Array = operand("m a_bytes", element="a_element")
    b: Array = operand("n b_bytes", element=E.U8)
    scale_a: Array | None = operand("m", element=E.F32, optional=True, values=_factors)
    scale_b: Array | None = operand("n", element=E.F32, optional=True, values=_factors)
    bias: Array | None = operand("n", element=E.F32, optional=True)
    y: Array = output("m n")


def unpacked(kind: PackedGemmKind, left: bool, x: Any) -> Any:
    """The numbers of packed lines, in float64; all that the bytes hold."""
    per = kind.per_a if left else kind.per_b
    if per == 1:
        return x.astype(np.float64)
    width = 8 // per
    fields = (x[..., None] >> (width * np.arange(per)).astype(np.uint8) & ((1 << width) - 1)).astype(np.float64)
    fields = fields.reshape(*x.shape[:-1], per * x.shape[-1])
    if kind is K.BINARY:
        return 1 - 2 * fields
    if kind is K.TERNARY:
        return fields - 1
    return fields - 16 * (fields > 7) if kind is K.INT4 else fields


def _sums(desc: PackedGemmDescriptor, a: Any, b: Any) -> Any:
    left, right = unpacked(desc.kind, True, a), unpacked(desc.kind, False, b)
    sums = left @ right[:, : left.shape[1]].T
    return sums - (left.shape[1] - desc.k) if desc.kind is K.BINARY else sums


def reference(desc: PackedGemmDescriptor, *, a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any) -> dict[str, Any]:
    """NumPy; sums are exact in float64, and scaled in the dtype that the scales come in."""
    y = _sums(desc, np.asarray(a), np.asarray(b))
    floats = [x.dtype for x in (scale_a, scale_b, bias) if x is not None]
    y = y.astype(floats[0]) if floats else y
    y = y if scale_a is None else y * scale_a[:, None]
    y = y if scale_b is None else y * scale_b
    return {"y": y if bias is None else y + bias}


def in_torch(torch: Any, desc: PackedGemmDescriptor, *, a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any) -> Any:
    """torch.matmul of the numbers in float64."""

    def numbers(x: Any, per: int) -> Any:
        if per == 1:
            return x.double()
        shifts = torch.arange(0, 8, 8 // per, device=x.device)
        fields = (x.long()[..., None] >> shifts & ((1 << 8 // per) - 1)).flatten(-2).double()
        signed = {K.BINARY: 1 - 2 * fields, K.TERNARY: fields - 1, K.INT4: torch.where(fields > 7, fields - 16, fields)}
        return signed.get(desc.kind, fields)

    left, right = numbers(a, desc.kind.per_a), numbers(b, desc.kind.per_b)
    y = left @ right[:, : left.shape[1]].T
    y = y - (left.shape[1] - desc.k) if desc.kind is K.BINARY else y
    y = y if scale_a is None else y * scale_a[:, None]
    y = y if scale_b is None else y * scale_b
    return y if bias is None else y + bias


def _bound(element: ElementKind, _: Any = None) -> ErrorBound:
    return Exact() if element is E.I32 else Relative(4)


def _row(name: str, geometry: Any, source: str, kernels: Any) -> Variant:
    guarantee = Guarantee(_bound, batch_invariant=True, math="int32")
    return Variant(name, geometry, source=source, kernels=kernels, elements=OUTPUTS, guarantee=guarantee)


class PackedGemmPlan(Plan):
    """y[m, n] = scale_a[m] · scale_b[n] · Σ_k a[m, k] b[n, k] + bias[n] of packed integers, summed exactly in int32.

    Kinds: `binary`, signs, of which 1 is -1, eight in a byte, the first in the lowest bit (XNOR-Net, Rastegari et al.
    2016: y = k - 2 · popcount(a xor b)); `ternary`, int8 by weights of {-1, 0, 1}, four codes in a byte, the first in
    the lowest two bits, code c being c - 1 (BitNet b1.58, Ma et al. 2024); `int4` and `uint4`, two in a byte, the first
    in the low half. y is int32, or float32, float16 or bfloat16, to which the sum goes through float32: times scale_a,
    times scale_b, plus bias, each rounded there, and rounded to the element.

    What a last byte has beyond k counts as packed: bits that agree cancel, and packers leave 0, which in int4 adds
    nothing; of ternary it meets no number of a. k is below 2²³. There is no gradient.
    """

    op = "quant_gemm.packed_gemm"
    kinds = PackedGemmKind
    descriptor = PackedGemmDescriptor
    args = PackedGemmArgs
    reference = staticmethod(reference)
    variants = (
        _row("few_rows", schedule.few_rows, "quant_gemm/packed_gemv.cu", schedule.GEMV_KERNELS),
        _row("mma", schedule.tiles, "quant_gemm/packed_gemm.cu", schedule.MMA_KERNELS),
    )
    torch = staticmethod(in_torch)
    benchmarks = (
        *(Benchmark(f"{kind} {m} × 8192 × 8192", kind=kind, m=m, n=8192, k=8192, element=to, work=work, target=None,
                    peers=())
          for kind, to in (("binary", "int32"), ("ternary", "bfloat16"), ("int4", "int32"))
          for m, work in ((1, "operands"), (8192, FLOPS))),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> PackedGemmDescriptor:
        return PackedGemmDescriptor(
            kind=draw.kind, m=draw.sizes(1, 5, 9, 70, 0, rare=(130,)), n=draw.sizes(1, 7, 64, 70, rare=(136,)),
            k=draw.sizes(0, 1, 16, 67, 256, 1100), element=draw.element,
        )  # fmt: skip

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        given = [name for name in _FLOATS if views[name] is not None]
        if desc.element is E.I32 and given:
            raise InvalidProblemError(
                f"{given[0]} must be None where y is int32, the sum itself; take float32, float16 or bfloat16"
            )

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """An int32 y has no scales; of a float one some operand shows the dtype that the reference computes in."""
        if desc.element is E.I32:
            arrays |= dict.fromkeys(_FLOATS)
        elif all(arrays[name] is None for name in _FLOATS):
            arrays["scale_a"] = np.linspace(0.25, 2.0, desc.m, dtype=np.float32)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        """k fills whole bytes of b, or is what a has; y is int32 without scales and float32 with some."""
        kind, wide = facts.get("kind"), shapes.get("b") if shapes.get("a") is None else shapes["a"]
        if facts.get("k") is None and isinstance(kind, PackedGemmKind) and wide:
            facts["k"] = wide[-1] * kind.per_a
        if facts.get("element") is None:
            scaled = any(shapes.get(name) is not None for name in _FLOATS)
            facts["element"] = E.F32 if scaled else E.I32

    @classmethod
    def flops(cls, desc: PackedGemmDescriptor) -> int:
        return 2 * desc.m * desc.n * desc.k


class BinaryGemmPlan(PackedGemmPlan, kind=K.BINARY):
    """`PackedGemmPlan` of signs."""


class TernaryGemmPlan(PackedGemmPlan, kind=K.TERNARY):
    """`PackedGemmPlan` of int8 by ternary weights."""


class Int4GemmPlan(PackedGemmPlan, kind=(K.INT4, K.UINT4)):
    """`PackedGemmPlan` of int4 by int4, or uint4 by uint4."""


packed_gemm = functional(PackedGemmPlan)
