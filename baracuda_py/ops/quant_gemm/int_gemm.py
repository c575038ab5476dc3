"""int_gemm: products of integers of 8 bits with zero points, scales of rows, columns and groups of k, and a bias."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...backends.cublas import CUBLAS_LT
from ...core import (
    ArchSku, Args, Array, BackendKind, Descriptor, ElementKind, Exact, Guarantee, InvalidProblemError, Plan, Relative,
    Scalar, Ulp, Variant, choice, derived, element, extent, extents, integer, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.args import Everywhere
from ...core.benchmark import FLOPS, Benchmark
from ...schedules import int_gemm as schedule
from ...schedules import int_gemm_copied, int_gemm_wgmma
from ...schedules.int_gemm import BYTES, OUTPUTS
from . import int_library

E = ElementKind
_FLOATS = OUTPUTS[:3]
GROUPS = (0, 32, 64, 128)  # elements along k that share a scale; 0: all


class IntGemmKind(enum.Enum):
    """What y is of the sums."""

    SUMS = "sums"
    SCALED = "scaled"
    REQUANTIZED = "requantized"
    GROUPED = "grouped"

    @property
    def cpp(self) -> str:
        """Its name in kernels/quant_gemm/epilogue.cuh."""
        return f"IntGemm::{self.value}"

    @property
    def outputs(self) -> tuple[ElementKind, ...]:
        """The elements that y may have."""
        return {K.SUMS: (E.I32,), K.REQUANTIZED: BYTES}.get(self, _FLOATS)


K = IntGemmKind
_SCALED = (K.SCALED, K.REQUANTIZED, K.GROUPED)


@dataclass(frozen=True, kw_only=True)
class IntGemmDescriptor(Descriptor):
    """a is [*batch_shape, m, k] in `element`, b [*batch_shape, k, n] in `b_element`, int8 or uint8 each.

    y is [*batch_shape, m, n] in `out_element`: int32 of sums, float32, float16 or bfloat16 of scaled and grouped
    products, int8 or uint8 of requantized ones, whose default is `element`. group: of grouped products, how many
    elements along k share a scale: 32, 64 or 128; the last group may be shorter.
    """

    kind: IntGemmKind = choice(IntGemmKind)
    batch_shape: tuple[int, ...] = extents(())
    m: int = extent()
    n: int = extent()
    k: int = extent()
    group: int = integer(0, minimum=0)
    out_element: ElementKind = element(OUTPUTS, derived(lambda desc: desc.default_output))
    b_element: ElementKind = element(BYTES, derived(lambda desc: desc.element))
    element: ElementKind = element(BYTES)

    def validate(self) -> None:
        allowed = GROUPS[1:] if self.kind is K.GROUPED else GROUPS[:1]
        if self.group not in allowed:
            raise InvalidProblemError(
                f"group must be {' or '.join(map(str, allowed))} for {self.kind.value} products, got {self.group}"
            )
        if self.out_element not in self.kind.outputs:
            known = " or ".join(map(str, self.kind.outputs))
            raise InvalidProblemError(
                f"out_element must be {known} for {self.kind.value} products, got {self.out_element}"
            )

    @property
    def default_output(self) -> ElementKind:
        """y's element where none is asked for."""
        return self.element if self.kind is K.REQUANTIZED else self.kind.outputs[0]

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.b_element

    @property
    def bias_element(self) -> ElementKind:
        """That of y, or float32 where that is an integer."""
        return self.out_element if self.out_element in _FLOATS else E.F32

    @property
    def groups(self) -> int:
        """How many scales there are along k."""
        return -(-self.k // self.group) if self.group else 1


_SCALES = (0.25, 2.0)


@dataclass(slots=True, kw_only=True)
class IntGemmArgs(Args):
    """Any strides. Scales, zero points and bias broadcast: one number, one a row, one a column, one of each batch item.

    scale_a [*batch_shape, m, groups] and scale_b [*batch_shape, groups, n] are float32, 1 where absent; there is one
    group unless products are grouped. zero_a and zero_b have their shapes and the elements of a and b, zero_y
    that of y. scale_y: what y's integers stand for, float32. bias: in y's element, or float32 where y is integers; it
    is added to the scaled sums. alpha: a number or a 0-d device array that scaled sums are multiplied by; those of kind
    `sums` are not.
    """

    a: Array = operand("*batch_shape m k", values=Everywhere())
    b: Array = operand("*batch_shape k n", element="b_element", values=Everywhere())
    scale_a: Array | None = operand(
        "*batch_shape m groups", element=E.F32, optional=True, broadcast=True, kinds=_SCALED, values=_SCALES
    )
    scale_b: Array | None = operand(
        "*batch_shape groups n", element=E.F32, optional=True, broadcast=True, kinds=_SCALED, values=_SCALES
    )
    zero_a: Array | None = operand("*batch_shape m groups", optional=True, broadcast=True, values=Everywhere())
    zero_b: Array | None = operand(
        "*batch_shape groups n", element="b_element", optional=True, broadcast=True, values=Everywhere()
    )
    bias: Array | None = operand(
        "*batch_shape m n", element="bias_element", optional=True, broadcast=True, kinds=_SCALED
    )
    scale_y: Array | None = operand(
        "*batch_shape m n", element=E.F32, broadcast=True, kinds=(K.REQUANTIZED,), values=(64.0, 4096.0)
    )
    zero_y: Array | None = operand(
        "*batch_shape m n", element="out_element", optional=True, broadcast=True, kinds=(K.REQUANTIZED,)
    )
    y: Array = output("*batch_shape m n", element="out_element")
    alpha: Scalar = scalar(1.0)


def _sums(a: Any, b: Any, zero_a: Any, zero_b: Any) -> Any:
    """Σ (a - zero_a) (b - zero_b), exact in float64 for any k below 2³⁶."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    left = left if zero_a is None else left - zero_a.astype(np.float64)
    right = right if zero_b is None else right - zero_b.astype(np.float64)
    return np.matmul(left, right)


def _grouped(desc: IntGemmDescriptor, a: Any, b: Any, given: Mapping[str, Any], like: Any) -> Any:
    """The scaled sums of groups, one after the other."""

    def part(name: str, g: int, axis: int) -> Any:
        x = given[name]
        if x is None:
            return None
        last = x.ndim + axis
        return x if last < 0 or x.shape[last] == 1 else np.take(x, [g], axis=last)

    y = np.zeros((*desc.batch_shape, desc.m, desc.n), like)
    for g in range(desc.groups):
        k = slice(g * desc.group, (g + 1) * desc.group)
        s = _sums(a[..., k], b[..., k, :], part("zero_a", g, -1), part("zero_b", g, -2)).astype(like)
        for scale in (part("scale_a", g, -1), part("scale_b", g, -2)):
            s = s if scale is None else s * scale
        y = y + s
    return y


def reference(
    desc: IntGemmDescriptor, *, a: Any, b: Any, scale_a: Any, scale_b: Any, zero_a: Any, zero_b: Any, bias: Any,
    scale_y: Any, zero_y: Any, alpha: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy: sums exact, scaled in the dtype of the scales, or wider."""
    if desc.kind is K.SUMS:
        return {"y": _sums(a, b, zero_a, zero_b).astype(np.int64)}
    floats = [x for x in (scale_a, scale_b, bias, scale_y) if x is not None]
    single = any(x.dtype == np.float32 for x in floats)
    with np.errstate(all="ignore"):
        if desc.kind is K.GROUPED:
            given = {"scale_a": scale_a, "scale_b": scale_b, "zero_a": zero_a, "zero_b": zero_b}
            x = _grouped(desc, a, b, given, np.float32 if single else np.float64)
        else:
            x = _sums(a, b, zero_a, zero_b).astype(np.float32 if single else np.longdouble)
            for scale in (scale_a, scale_b):
                x = x if scale is None else x * scale
        x = x if alpha == 1.0 else x * x.dtype.type(alpha)
        x = x if bias is None else x + bias
        if desc.kind is K.REQUANTIZED:
            x = np.rint(x / scale_y)
            x = x if zero_y is None else x + zero_y
            x = np.clip(np.where(np.isnan(x), 0, x), desc.out_element.limits.min, desc.out_element.limits.max)
    return {"y": x}


def in_torch(
    torch: Any, desc: IntGemmDescriptor, *, a: Any, b: Any, scale_a: Any, scale_b: Any, zero_a: Any, zero_b: Any,
    bias: Any, scale_y: Any, zero_y: Any, alpha: Any,
) -> Any:  # fmt: skip
    """The definition: operands less their zero points, times their scales, and torch.matmul in float64."""

    def real(x: Any, zero: Any, scale: Any, axis: int) -> Any:
        def along(v: Any) -> Any:
            if v.ndim < -axis or v.shape[axis] in (1, desc.k):
                return v
            return v.repeat_interleave(desc.group, axis).narrow(axis, 0, desc.k)

        x = x.double() if zero is None else x.double() - along(zero.double())
        return x if scale is None else x * along(scale.double())

    if 0 in (desc.m, desc.n, *desc.batch_shape):
        return NotImplemented
    y = torch.matmul(real(a, zero_a, scale_a, -1), real(b, zero_b, scale_b, -2))
    if desc.kind is K.SUMS:
        return y.long().int()
    y = alpha * y if bias is None else alpha * y + bias.double()
    if desc.kind is not K.REQUANTIZED:
        return y
    y = torch.round(y / scale_y.double())
    y = y if zero_y is None else y + zero_y.double()
    limits = desc.out_element.limits
    return y.nan_to_num(0.0, float("inf"), float("-inf")).clamp(limits.min, limits.max).to(torch.int32)


def _bound(_: Any, kind: Any) -> Any:
    return {K.SCALED: Ulp(0.51), K.GROUPED: Relative(2)}.get(kind, Exact())


_ANY = Guarantee(_bound, math="int8", batch_invariant=True)


def _weights(torch: Any, desc: IntGemmDescriptor) -> Mapping[str, Any]:
    """b as the transposed view of weights [n, k]."""
    return {"b": torch.randint(-128, 128, (desc.n, desc.k), dtype=torch.int8).T, "scale_a": torch.ones(desc.m, 1)}


def _too_long(desc: IntGemmDescriptor) -> str | None:
    """Why sums of 32 bits do not serve a descriptor."""
    if desc.kind in (K.SUMS, K.GROUPED) or desc.k <= (most := schedule.longest(desc.element, desc.b_element)):
        return None
    return f"sums of k = {desc.k} products may pass 32 bits, which hold those of {most}"


_WGMMA = Variant(
    "wgmma", int_gemm_wgmma.geometry, source="quant_gemm/int_gemm_wgmma.cu",
    kernels=(*int_gemm_wgmma.KERNELS, schedule.LINE_SUMS), elements=BYTES, design=ArchSku.SM90A, guarantee=_ANY,
    kinds=(K.SUMS, K.SCALED, K.REQUANTIZED), refuses=lambda desc: int_gemm_wgmma.refuses(desc) or _too_long(desc),
)  # fmt: skip
_MMA = Variant(
    "mma", schedule.mma(False), source="quant_gemm/int_gemm_mma.cu",
    kernels=(*schedule.mma_kernels(False), schedule.LINE_SUMS), elements=BYTES, guarantee=_ANY, refuses=_too_long,
)  # fmt: skip


def _copied(row: Variant) -> Variant:
    """A row whose operands are copied first."""
    kernels = (*row.kernels, int_gemm_copied.KERNEL)
    return replace(row, name=f"{row.name}_copied", geometry=int_gemm_copied.geometry(row), kernels=kernels)


class IntGemmPlan(Plan):
    """y = alpha · scale_a · scale_b · Σ (a - zero_a) (b - zero_b) + bias of int8 and uint8 (torch._int_mm).

    a [*batch_shape, m, k], b [*batch_shape, k, n], one of int8 and one of uint8 too. `sums` are int32, modulo 2³² where
    k is large. `scaled` results are the exact number rounded to double and then to y, at any k; `requantized` ones are
    divided by scale_y, rounded to nearest, ties to even, moved by zero_y and saturate (QLinearMatMul); `grouped` ones
    scale and add the sums of groups of k in float32, in the order of k. Zero points take a launch more, in which the
    other operand's lines are summed. Integers have no order of sums: bits depend on neither batch nor design. The
    design for sm_90 takes operands with k along memory, b as the transposed view of weights [n, k]. There is no
    gradient: take that of `QuantizedLinearPlan`.
    """

    op = "quant_gemm.int_gemm"
    kinds = IntGemmKind
    descriptor = IntGemmDescriptor
    args = IntGemmArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "few", schedule.few, source="quant_gemm/int_gemm_few.cu",
            kernels=(schedule.FEW_KERNEL, schedule.LINE_SUMS), elements=BYTES, guarantee=_ANY,
            kinds=(K.SUMS, K.SCALED, K.REQUANTIZED), refuses=_too_long,
        ),
        _WGMMA,
        _copied(_WGMMA),
        Variant(
            "cublas", int_library.geometry, elements=(E.I8,), backend=BackendKind.CUBLAS, guarantee=_ANY,
            kinds=(K.SUMS,), refuses=int_library.refuses, missing=CUBLAS_LT.unavailable,
        ),
        _copied(_MMA),
        _MMA,
        Variant(
            "mma_long", schedule.mma(True), source="quant_gemm/int_gemm_mma.cu",
            kernels=(*schedule.mma_kernels(True), schedule.LINE_SUMS), elements=BYTES, guarantee=_ANY,
            kinds=(K.SCALED, K.REQUANTIZED),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "8192^3 int8", kind="sums", m=8192, n=8192, k=8192, element="int8", work=FLOPS, target=None, peers=(),
            make=_weights,
        ),
        *(
            Benchmark(
                f"[{m}, 4096] x [4096, 14336] int8 to bf16", kind="scaled", m=m, n=14336, k=4096, element="int8",
                out_element="bfloat16", also=("scale_b",), make=_weights, work=FLOPS, target=None, peers=(),
            )
            for m in (1, 16, 4096)
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> IntGemmDescriptor:
        if draw.rarely() and draw.kind in (K.SCALED, K.REQUANTIZED):  # past sums of 32 bits
            k = 1 + schedule.longest(draw.element, E.U8)
            return IntGemmDescriptor(
                kind=draw.kind, m=2, n=9, k=k, out_element=draw.kind.outputs[0], b_element=E.U8, element=draw.element
            )
        k = draw.sizes(0, 1, 16, 67, 256, 272, rare=(1063, 1072))
        return IntGemmDescriptor(
            kind=draw.kind, batch_shape=draw.shape(0, 2 if k < 1000 else 0, 0, 2), m=draw.sizes(1, 7, 17, 64, 130),
            n=draw.sizes(1, 5, 64, 129, rare=(264,)), k=k,
            group=draw.choice(GROUPS[1:]) if draw.kind is K.GROUPED else 0, out_element=draw.choice(draw.kind.outputs),
            b_element=draw.choice(BYTES), element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        if desc.kind in _SCALED and arrays["scale_a"] is None:  # whose dtype says what the reference computes in
            arrays["scale_a"] = np.ones((), np.float32)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        """What is asked for says what kind of product it is."""
        if facts.get("kind") is not None:
            return
        given = {name for name, shape in shapes.items() if shape is not None}
        scaled = given & {"scale_a", "scale_b", "bias"}
        facts["kind"] = (
            K.REQUANTIZED if "scale_y" in given else K.GROUPED if facts.get("group") else K.SCALED if scaled else K.SUMS
        )

    @classmethod
    def flops(cls, desc: IntGemmDescriptor) -> int:
        return 2 * int(np.prod(desc.batch_shape, dtype=np.int64)) * desc.m * desc.n * desc.k


int_gemm = functional(IntGemmPlan)


class SmoothQuantLinearPlan(IntGemmPlan, kind=IntGemmKind.SCALED):
    """`IntGemmPlan` of kind scaled by another name: int8 activations with one scale, weights with one for each row."""
