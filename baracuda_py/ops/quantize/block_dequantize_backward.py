"""block_dequantize_backward: dscale = scale · the sum of dy (number - zero) over a group: learned scales of codes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Array, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem, Relative, Step, Variant,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from .block_dequantize import BlockDequantizeDescriptor, BlockDequantizePlan
from .format import PART
from .stored import (
    LEARNED, StoredArgs, format_header, in_threes, infer_stored, stored_case, stored_params, stored_values,
)  # fmt: skip

_THREADS, _WARP = 256, 32


@dataclass(frozen=True, kw_only=True)
class BlockDequantizeBackwardDescriptor(BlockDequantizeDescriptor):
    """The fields of `BlockDequantizeDescriptor`; dy holds `element`."""

    def validate(self) -> None:
        if self.kind not in LEARNED:
            known = ", ".join(kind.value for kind in LEARNED)
            raise InvalidProblemError(f"kind must be one of {known}, whose scales are learned; got {self.kind.value}")
        BlockDequantizeDescriptor.validate(self)


@dataclass(slots=True, kw_only=True)
class BlockDequantizeBackwardArgs(StoredArgs):
    """As `StoredArgs`; dy has any strides, but one for the batch, and so has dscales, which is as scales."""

    dy: Array = operand("*batch_shape n k")
    dscales: Array | None = output("*scales_shape", element="scale_element", optional=True)


def reference(
    desc: BlockDequantizeBackwardDescriptor, *, dy: Any, codes: Any, scales: Any, zeros: Any, index: Any, scale: Any,
    wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype dy comes in."""
    if "dscales" not in wanted:
        return {}
    groups, rows = desc.scales_shape[-1], np.arange(desc.n) // desc.row_group
    of = np.arange(desc.k) // desc.group if index is None else np.clip(index, 0, max(0, groups - 1))
    with np.errstate(all="ignore"):
        numbers = desc.kind.row.values(codes, desc.k).astype(dy.dtype)
        if zeros is not None:
            numbers = numbers - np.asarray(zeros).astype(dy.dtype)[..., rows, :][..., of]
        terms = dy * numbers
        columns = [np.sum(terms[..., of == group], axis=-1) for group in range(groups)]
        lines = np.stack(columns, axis=-1) if columns else np.zeros((*terms.shape[:-1], 0), dy.dtype)
        starts = np.arange(desc.scales_shape[-2]) * desc.row_group
        sums = np.add.reduceat(lines, starts, axis=-2) if desc.n else np.zeros(desc.scales_shape, dy.dtype)
        return {"dscales": dy.dtype.type(scale) * sums}


PARAMS = Params(
    "BlockDequantizeBackwardParams", dscales="ptr", dy="ptr", dy_steps="i64[3]", to_steps="i64[3]", count="i64",
    row_groups="i64", n="i64", k="i64", lane_bits="i32", wide="i32", scale_sums_threads=_THREADS,
    **stored_params(),
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc, values = p.desc, stored_values(p)
    if isinstance(values, str):
        return values
    if p.dscales is None or not math.prod(desc.scales_shape):
        return Geometry(())
    steps = {}
    for name, to in (("dy", "dy_steps"), ("dscales", "to_steps")):
        view = p.views[name]
        found = in_threes(view)
        if found is None:
            return f"{name} must have a batch of one stride, got strides {view.strides} of shape {view.shape}"
        steps[to] = found.strides
    parts = (desc.group if p.index is None else desc.k) // PART * min(desc.row_group, max(1, desc.n))
    lanes = next(size for size in (1, 2, 4, 8, 16, 32) if size >= parts or size == _WARP)
    count = math.prod(desc.scales_shape)
    values |= steps | {
        "count": count, "row_groups": desc.scales_shape[-2], "n": desc.n, "k": desc.k,
        "lane_bits": lanes.bit_length() - 1, "wide": p.dy.strides[-1] == 1 and p.dy.aligned(16),
    }  # fmt: skip
    step = Step("sums", (-(-count * lanes // _THREADS), 1, 1), values, {}, _THREADS)
    return Geometry((step,), layout="contiguous" if p.dy.dense else "strided")


class BlockDequantizeBackwardPlan(Plan):
    """dscales = scale · the sum of dy (number of the code - zero) over what shares a scale: of `BlockDequantizePlan`.

    Learned scales of frozen codes (PEQA, Kim et al., 2023; EfficientQAT, Chen et al., 2024). Of the formats whose
    scales are floats of any value; codes and zero points have no gradient. Products and sums are in float32, float64 of
    float64, in an order that the group, the rows that share a scale and whether there is an index alone fix.
    """

    op = "quantize.block_dequantize_backward"
    direction = "backward"
    kinds = LEARNED
    descriptor = BlockDequantizeBackwardDescriptor
    args = BlockDequantizeBackwardArgs
    reference = staticmethod(reference)
    value_policy = BlockDequantizePlan.value_policy
    variants = (
        Variant(
            "groups", _geometry, source="quantize/block_dequantize_backward.cu", elements=FLOATS, prelude=format_header,
            kernels=(Kernel("sums", "block_dequantize_backward<{KIND}, {T}>", PARAMS, threads=_THREADS),),
            guarantee=Guarantee(Relative(4), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = tuple(
        Benchmark(f"{kind} [14336, 4096] x 8, bf16", also=("dscales",), kind=kind, batch_shape=8, n=14336, k=4096,
                  group=group, element="bfloat16", peers=())
        for kind, group in (("int8", 4096), ("uint4", 128), ("nf4", 64))
    )  # fmt: skip
    bytes = BlockDequantizePlan.bytes

    @staticmethod
    def case(draw: Any) -> BlockDequantizeBackwardDescriptor:
        return BlockDequantizeBackwardDescriptor(**stored_case(draw), element=draw.element)

    complete = BlockDequantizePlan.complete

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_stored(shapes, facts)


block_dequantize_backward = functional(BlockDequantizeBackwardPlan)
