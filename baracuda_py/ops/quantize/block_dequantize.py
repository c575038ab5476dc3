"""block_dequantize: the values of a matrix in a low-bit format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    FLOATS, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant,
    Vjp, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import cast as cast_values
from ...core.element import encode
from .format import PART, decode
from .format_kinds import FormatKind
from .stored import (
    LEARNED, StoredArgs, StoredFields, format_header, infer_stored, rows_of, stored_case, stored_params, stored_values,
)  # fmt: skip

THREADS, _WARP = 256, 32
_PARTS, _PART = 4, _WARP * PART  # parts of a strip, and values of a part


@dataclass(frozen=True, kw_only=True)
class BlockDequantizeDescriptor(StoredFields, Descriptor):
    """A stored matrix [*batch_shape, n, k], see `StoredFields`; y has its shape, in `element`."""

    element: ElementKind = element_field()

    @property
    def shape(self) -> tuple[int, ...]:
        """That of y."""
        return (*self.batch_shape, self.n, self.k)


@dataclass(slots=True, kw_only=True)
class BlockDequantizeArgs(StoredArgs):
    """As `StoredArgs`; rows of y are contiguous."""

    y: Array = output("*batch_shape n k", layout="inner")


def reference(
    desc: BlockDequantizeDescriptor, *, codes: Any, scales: Any, zeros: Any, index: Any, scale: Any
) -> Mapping[str, Any]:
    """The format's own float32 arithmetic, rounded once more."""
    values = decode(desc, codes, scales, zeros, index, float(scale))
    return {"y": np.array(encode(cast_values(values, desc.element), desc.element))}


PARAMS = Params(
    "BlockDequantizeParams", y="ptr", y_step="i64", rows="i64", n="i64", k="i64", wide="i32", strips="i32",
    part_bytes="i32", part_groups="i32", part_rest="i32", dequantize_threads=THREADS,
    dequantize_parts=_PARTS, **stored_params(),
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc, values = p.desc, stored_values(p)
    if isinstance(values, str):
        return values
    rows = rows_of(p.y, "y")
    if isinstance(rows, str):
        return rows
    wide = rows.aligned(min(16, PART * desc.element.itemsize))
    strips = -(-desc.k // (_PART * _PARTS)) if wide and values["whole"] and desc.k >= _PART else 0
    values |= {
        "y_step": rows.strides[0], "rows": rows.shape[0], "n": desc.n, "k": desc.k, "wide": wide, "strips": strips,
        "part_bytes": desc.kind.row.bytes(_PART), "part_groups": _PART // desc.group, "part_rest": _PART % desc.group,
    }  # fmt: skip
    threads = rows.shape[0] * (strips * _WARP if strips else desc.k // PART)
    steps = (Step("dequantize", (-(-threads // THREADS), 1, 1), values, {}, THREADS),) if threads else ()
    return Geometry(steps, layout="contiguous" if p.y.dense else "strided")


class BlockDequantizePlan(Plan):
    """y = the values of `codes`: (number of the code - zero) · (scales · scale), in any format of `FormatKind`.

    A value is what the format's own document says, in float32 arithmetic in the order stated there, then rounded to the
    element, to nearest even. Scales have a gradient where they are floats of any value, see
    `BlockDequantizeBackwardPlan`; codes and zero points have none.
    """

    op = "quantize.block_dequantize"
    kinds = FormatKind
    descriptor = BlockDequantizeDescriptor
    args = BlockDequantizeArgs
    reference = staticmethod(reference)
    raw = True
    value_policy = "an entry of index outside the groups counts as the nearest of them"
    variants = (
        Variant(
            "rows", _geometry, source="quantize/block_dequantize.cu", elements=FLOATS, prelude=format_header,
            kernels=(Kernel("dequantize", "block_dequantize<{KIND}, {T}>", PARAMS, threads=THREADS,
                            min_blocks=lambda element, _: 3 if element is ElementKind.F64 else 4),),
            guarantee=Guarantee(Exact(), batch_invariant=True),
        ),
    )  # fmt: skip
    vjp = Vjp("BlockDequantizeBackwardPlan", grads={"scales": "dscales"}, kinds=LEARNED)
    benchmarks = tuple(
        Benchmark(f"{kind} [14336, 4096] x 8 to bf16", kind=kind, batch_shape=8, n=14336, k=4096, group=group,
                  element="bfloat16", peers=())
        for kind, group in (("int8", 4096), ("uint4", 128), ("nf4", 64), ("q4_0", None))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> BlockDequantizeDescriptor:
        return BlockDequantizeDescriptor(**stored_case(draw), element=draw.element)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Some matrices have a scale of their own."""
        arrays["scale"] = 0.40625 if desc.n % 2 else 1.0

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_stored(shapes, facts)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        values = int(np.prod(desc.shape, dtype=object))
        return int(values * desc.kind.row.bits / 8) + values * int(desc.element.itemsize)


block_dequantize = functional(BlockDequantizePlan)
