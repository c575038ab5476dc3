"""w4a8_gemm: int8 rows by weights of 4 bits in groups, in exact sums of integers (W4A8)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    ArchSku, Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, InvalidProblemError, Plan, Problem,
    Variant, extent, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.args import Everywhere
from ...core.benchmark import FLOPS, Benchmark
from ...schedules import w4a8 as schedule
from ...schedules import w4a8_unpacked, w4a8_wgmma
from ..quantize.format import stream
from ..quantize.format_kinds import FormatKind
from ..quantize.stored import StoredFields, infer_stored, random_bytes, random_scales, random_zeros, stored_values

E = ElementKind
FLOATS = (E.F32, E.F16, E.BF16)
KINDS = (FormatKind.INT4, FormatKind.UINT4)
UNIT = 32  # of k, of which groups are multiples
LONGEST = 1 << 17  # a group whose sums are sure to fit 32 bits
MOST_ZERO = 127


@dataclass(frozen=True, kw_only=True)
class W4A8GemmDescriptor(StoredFields, Descriptor):
    """W is [*batch_shape, n, k] of int4 or uint4, see `StoredFields`; x is int8 [*batch_shape, m, k].

    y is [*batch_shape, m, n] in `element`. group: a multiple of 32, or all of k, and at most 131072. zero_element is
    uint8, row_group 1.
    """

    m: int = extent()
    element: ElementKind = element_field(FLOATS)

    def validate(self) -> None:
        if self.kind not in KINDS:
            raise InvalidProblemError(f"kind must be int4 or uint4, got {self.kind.value}")
        StoredFields.validate(self)
        if self.k and self.group % UNIT and self.group != self.k:
            raise InvalidProblemError(f"group must be a multiple of {UNIT}, or k = {self.k}, got {self.group}")
        if self.group > LONGEST:
            raise InvalidProblemError(f"group must be at most {LONGEST}, whose sums 32 bits hold, got {self.group}")
        if self.kind is FormatKind.UINT4 and self.zero_element is not E.U8:
            raise InvalidProblemError(f"zero_element must be uint8, got {self.zero_element}")
        if self.row_group != 1:
            raise InvalidProblemError(f"row_group must be 1: every row has scales of its own; got {self.row_group}")


@dataclass(slots=True, kw_only=True)
class W4A8GemmArgs(Args):
    """codes are dense bytes, the rest has any strides, but one for the batch. scale_x: 1 where absent."""

    x: Array = operand("*batch_shape m k", element=E.I8, values=Everywhere())
    codes: Array = operand("*codes_shape", element=E.U8, layout="dense", values=random_bytes)
    scales: Array = operand("*scales_shape", element="scale_element", values=random_scales)
    zeros: Array | None = operand(
        "*scales_shape", element="zero_element", kinds=(FormatKind.UINT4,), optional=True, values=random_zeros
    )
    scale_x: Array | None = operand("*batch_shape m", element=E.F32, optional=True, values=(0.25, 2.0))
    bias: Array | None = operand("n", optional=True)
    y: Array = output("*batch_shape m n")


def reference(
    desc: W4A8GemmDescriptor, *, x: Any, codes: Any, scales: Any, zeros: Any, scale_x: Any, bias: Any
) -> Mapping[str, Any]:
    """NumPy: sums of groups exact, then float32 in the order of k, whatever the floats come in."""
    single = np.float32
    w = stream(codes, 4, desc.k).astype(np.int64)
    w = (w ^ 8) - 8 if desc.kind is FormatKind.INT4 else w
    by = scales.astype(single)
    y = np.zeros((*desc.batch_shape, desc.m, desc.n), single)
    with np.errstate(all="ignore"):
        for g in range(desc.k // desc.group):
            part = w[..., g * desc.group : (g + 1) * desc.group]
            if zeros is not None:
                part = part - np.minimum(zeros[..., g : g + 1].astype(np.int64), MOST_ZERO)
            left = x[..., g * desc.group : (g + 1) * desc.group].astype(np.float64)  # whose sums are exact
            sums = np.matmul(left, np.swapaxes(part, -1, -2).astype(np.float64)).astype(single)
            y = y + sums * by[..., None, :, g]
        y = y if scale_x is None else y * scale_x.astype(single)[..., None]
        y = y if bias is None else y + bias.astype(single)
    return {"y": y.astype(np.result_type(single, *(v.dtype for v in (scales, scale_x, bias) if v is not None)))}


def in_torch(
    torch: Any, desc: W4A8GemmDescriptor, *, x: Any, codes: Any, scales: Any, zeros: Any, scale_x: Any, bias: Any
) -> Any:
    """Products of integers in float64, which are exact, and the groups' sums in float32 one after the other."""
    if 0 in (desc.m, desc.n, desc.k, *desc.batch_shape):
        return NotImplemented
    w = torch.stack((codes & 15, codes >> 4), -1).reshape(*desc.batch_shape, desc.n, desc.k).to(torch.int32)
    w = ((w ^ 8) - 8 if desc.kind is FormatKind.INT4 else w).double()
    if zeros is not None:
        w = w - zeros.double().clamp(max=MOST_ZERO).repeat_interleave(desc.group, -1)
    y = torch.zeros(())
    parts = zip(x.double().split(desc.group, -1), w.split(desc.group, -1), scales.float().unbind(-1), strict=True)
    for left, right, scale in parts:
        y = y + torch.matmul(left, right.transpose(-1, -2)).float() * scale[..., None, :]
    y = y if scale_x is None else y * scale_x.float()[..., None]
    return y if bias is None else y + bias.float()


def _with(design: Callable[..., Geometry | str]) -> Callable[[Problem], Geometry | str]:
    def geometry(p: Problem) -> Geometry | str:
        stored = stored_values(p)
        return stored if isinstance(stored, str) else design(p, stored, p.desc.kind is FormatKind.INT4)

    return geometry


_GUARANTEE = Guarantee(Exact(), math="int8", batch_invariant=True)


class W4A8GemmPlan(Plan):
    """y = scale_x · Σ over groups of k of scales · Σ x (w - zeros) + bias: int8 x, weights w of 4 bits (W4A8).

    x [*batch_shape, m, k] in int8, as `dynamic_quantize` makes it with a scale for each row, scale_x
    [*batch_shape, m] in float32; w [*batch_shape, n, k] of kind int4 or uint4, as `block_quantize` makes it, two codes
    in a byte, the first in its lower half, with scales, and zero points of uint4, for groups of k; bias [n] and y in
    `element`. Sums of a group are exact integers. Each is rounded to float32, multiplied by its scale, and added to the
    sum of those before it in the order of k; that is multiplied by scale_x, bias is added, every operation rounded once
    to float32, and y once more. So bits depend on neither batch nor design. Up to 16 rows of x read the weights once;
    many, on sm_90a, unpack them to a byte each in the workspace. There is no gradient: that of x is `block_gemm`'s by
    the same weights.
    """

    op = "quant_gemm.w4a8_gemm"
    kinds = KINDS
    descriptor = W4A8GemmDescriptor
    args = W4A8GemmArgs
    reference = staticmethod(reference)
    value_policy = "a zero point above 127 counts as 127"
    variants = (
        Variant(
            "few", _with(schedule.few), source="quant_gemm/w4a8_few.cu", elements=FLOATS, guarantee=_GUARANTEE,
            kernels=(schedule.FEW_KERNEL,),
        ),
        Variant(
            "wgmma", _with(w4a8_wgmma.geometry), source="quant_gemm/w4a8_wgmma.cu", elements=FLOATS,
            design=ArchSku.SM90A, guarantee=_GUARANTEE, kernels=(w4a8_wgmma.KERNEL,),
            first=schedule.few_in_fine_groups,
        ),
        Variant(
            "unpacked", _with(w4a8_unpacked.geometry), source="quant_gemm/w4a8_unpacked.cu", elements=FLOATS,
            design=ArchSku.SM90A, guarantee=_GUARANTEE, kernels=w4a8_unpacked.KERNELS, first=w4a8_unpacked.many,
        ),
        Variant(
            "tiles", _with(schedule.tiles), source="quant_gemm/w4a8_tile.cu", elements=FLOATS, guarantee=_GUARANTEE,
            kernels=schedule.TILES,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"[{m}, 4096] x [14336, 4096] uint4 to bf16", kind="uint4", m=m, n=14336, k=4096, group=128,
            element="bfloat16", also=("zeros", "scale_x"), work=FLOPS, target=None, peers=(),
        )
        for m in (1, 16, 4096)
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> W4A8GemmDescriptor:
        form = draw.kind.row
        group = draw.choice((32, 128, 64, 96, 256, 0))  # 0: a row
        k = (
            group * draw.sizes(1, 2, 3, 5) if group else 8 * draw.sizes(0, 1, 5, 6, 17, 160)
        )  # 6: rows of x, but not of codes, in whole 16 bytes
        m = draw.sizes(1, 5, 9, 16, 0, 17, 70)
        n = draw.sizes(1, 5, 33, 64, 0)
        if draw.rarely():  # tiles enough to be large
            m, n, group, k = 130, 200, 32, 64
        return W4A8GemmDescriptor(
            kind=draw.kind, batch_shape=draw.shape(0, 2, 0, 2), m=m, n=n, k=k, group=group or max(k, 8),
            scale_element=draw.choice(form.scales), zero_element=E.U8, element=draw.element,
        )  # fmt: skip

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        """Zero points are bytes, whatever else the format has."""
        infer_stored(shapes, facts)
        facts.setdefault("zero_element", E.U8)

    @classmethod
    def flops(cls, desc: Any) -> int:
        return int(2 * math.prod(desc.batch_shape) * desc.m * desc.n * desc.k)


w4a8_gemm = functional(W4A8GemmPlan)
