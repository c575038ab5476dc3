"""block_quantize: a matrix in a low-bit format, with the scales of its groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Everywhere, Exact, Geometry, Guarantee, InvalidProblemError, Kernel, Params,
    Plan, Problem, Scalar, Step, Variant, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import decode, encode as encode_elements
from ...core.element import cast as cast_values
from ...calls.entries import entry
from .block_dequantize import BlockDequantizePlan
from .encoders import ENCODERS, encode
from .format import PART, RUNS, E
from .format_kinds import FormatKind
from .gguf_encoders import BLOCK_ENCODERS, encode_blocks
from .stored import StoredFields, kind_of, rows_of, stored_case, stored_params, stored_values

GROUPED, BLOCKS = tuple(ENCODERS), tuple(BLOCK_ENCODERS)
KINDS = (*GROUPED, *BLOCKS)
ZEROED = tuple(kind for kind in KINDS if kind.row.zeros)
SOURCES = (E.F32, E.F16, E.BF16)
THREADS = 256


@dataclass(frozen=True, kw_only=True)
class BlockQuantizeDescriptor(StoredFields, Descriptor):
    """x is [*batch_shape, n, k] in `element`, and becomes a stored matrix, see `StoredFields`. row_group is 1."""

    element: ElementKind = element_field(SOURCES)

    def validate(self) -> None:
        if self.kind not in KINDS:
            known = ", ".join(k.value for k in KINDS)
            why = "GGML seeks the points by weights of a calibration: take the blocks that it makes"
            if self.kind.row.lattice is None:
                why = "mxfp4 has the numbers, with scales beside the codes: take that"
            raise InvalidProblemError(
                f"kind must be one of {known}; got {self.kind.value}, which has no encoder: {why}"
            )
        super().validate()
        if self.row_group != 1:
            raise InvalidProblemError(f"row_group must be 1: every row has scales of its own; got {self.row_group}")

    @property
    def shape(self) -> tuple[int, ...]:
        """That of x."""
        return (*self.batch_shape, self.n, self.k)


@dataclass(slots=True, kw_only=True)
class BlockQuantizeArgs(Args):
    """Rows of x are contiguous, codes dense. scale: of the whole matrix, which `nvfp4` has beside its scales.

    The blocks of GGUF's kinds hold everything: they have codes alone.
    """

    x: Array = operand("*batch_shape n k", layout="inner", values=Everywhere())
    codes: Array = output("*codes_shape", element=E.U8, layout="dense")
    scales: Array | None = output("*scales_shape", element="scale_element", kinds=GROUPED)
    zeros: Array | None = output("*scales_shape", element="zero_element", kinds=ZEROED)
    scale: Scalar = scalar(1.0)


def reference(desc: BlockQuantizeDescriptor, *, x: Any, scale: Any, wanted: set[str]) -> Mapping[str, Any]:
    """Float32 arithmetic in the order of `encoders` and `gguf_encoders`."""
    if desc.kind in BLOCKS:
        return {"codes": encode_blocks(desc, decode(x, desc.element).astype(np.float32))}
    codes, scales, zeros = encode(desc, decode(x, desc.element).astype(np.float32), float(scale))
    numbers = {"scales": (scales, desc.scale_element), "zeros": (zeros, desc.zero_element)}
    made = {name: np.array(encode_elements(cast_values(v, e), e)) for name, (v, e) in numbers.items() if name in wanted}
    return {"codes": codes, **made}


HELD = 2 * PART  # values that a lane has at once
PARAMS = Params(
    "BlockQuantizeParams", x="ptr", x_step="i64", rows="i64", n="i64", lane_bits="i32", wide="i32", flat="i32",
    **stored_params(),
)  # fmt: skip
BLOCK_PARAMS = Params(
    "GgufQuantizeParams", x="ptr", codes="ptr", x_step="i64", rows="i64", groups="i64", wide="i32", whole="i32",
    **RUNS,
)  # fmt: skip


def _together(p: Problem) -> int:
    """How many parts of 8 codes are written together: 2, 1, or 0 where bytes are written one by one."""
    desc, bits = p.desc, ENCODERS[p.desc.kind].bits
    pitch = desc.kind.row.bytes(desc.k)
    for parts in (2, 1):
        size = parts * bits
        if (p.codes.ptr | pitch) % (size & -size) == 0 and desc.group % (parts * PART) == 0:
            return parts
    return 0


def _geometry(p: Problem) -> Geometry | str:
    desc, values = p.desc, stored_values(p)
    if isinstance(values, str):
        return values
    rows = rows_of(p.x, "x")
    if isinstance(rows, str):
        return rows
    parts = -(-desc.group // HELD)
    lanes = next(size for size in (1, 2, 4, 8, 16, 32) if size >= parts or size == 32)
    dense = all(p.views[name] is None or p.views[name].dense for name in ("scales", "zeros"))
    values |= {
        "x_step": rows.strides[0], "rows": rows.shape[0], "n": max(1, desc.n), "lane_bits": lanes.bit_length() - 1,
        "index": "@null", "wide": rows.aligned(min(16, PART * desc.element.itemsize)), "whole": _together(p),
        "flat": dense and (rows.strides[0] == desc.k or rows.shape[0] == 1),
    }  # fmt: skip
    count = rows.shape[0] * (desc.k // desc.group) * lanes
    step = Step("quantize", (max(1, -(-count // THREADS)), 1, 1), values, {}, THREADS)
    return Geometry((step,), layout="contiguous" if p.x.dense else "strided")


def _blocks(p: Problem) -> Geometry | str:
    desc, rows = p.desc, rows_of(p.x, "x")
    if isinstance(rows, str):
        return rows
    values = {
        "x_step": rows.strides[0], "rows": rows.shape[0], "groups": desc.k // desc.group,
        "wide": rows.aligned(min(16, PART * desc.element.itemsize)), "whole": p.codes.aligned(16),
    }  # fmt: skip
    lanes = rows.shape[0] * desc.k // HELD
    step = Step("blocks", (max(1, -(-lanes // THREADS)), 1, 1), values, {}, THREADS)
    return Geometry((step,), layout="contiguous" if p.x.dense else "strided")


def _prelude(element: Any, kind: FormatKind) -> str:
    encoder = ENCODERS[kind] if kind in ENCODERS else BLOCK_ENCODERS[kind]
    return f'#include "quantize/encoders/{encoder.header}.cuh"\nnamespace baracuda {{ using Own = {encoder.cpp}; }}'


class BlockQuantizePlan(Plan):
    """codes, scales and zeros of x by groups of a row; x ≈ (number of the code - zero) · scales · scale.

    With m the largest |x| of a group: int8, int4: scales = m / 127, m / 7. uint8 … uint2: scales = (max - min) / (2ⁿ -
    1) over the numbers and 0, zeros = round(-min / scales). nf4, fp4: scales = m, codes the nearest numbers of the
    table, the lower of equals. fp8: scales = m / largest. mxfp: scales are the power of two that brings the exponent of
    m to that of the largest number (OCP Microscaling Formats 1.0). nvfp4: scales = m / 6 / scale as float8_e4m3fn.
    Scales are rounded to what holds them before anything is divided by them. Quotients are rounded to nearest even and
    saturate; a scale of 0 makes codes of 0. NaN is 0 in formats of integers and tables, NaN in 8-bit floats, and the
    largest number in those of 6 and 4 bits, which have none, as in CUDA's conversions. There is no gradient.

    q4_0, q4_1, q5_0, q5_1, q8_0, q8_1, q8_k, iq4_nl: the blocks that GGML's reference quantisers make
    (quantize_row_*_ref of ggml-quants.c), bit for bit; NaN counts as 0. q2_k to q6_k, iq4_xs, tq1_0, tq2_0: by the same
    quantisers, see `gguf_searches`. iq1_s to iq3_s, whose points a search with calibrated weights finds, and gguf_mxfp4
    are refused.
    """

    op = "quantize.block_quantize"
    kinds = KINDS
    descriptor = BlockQuantizeDescriptor
    args = BlockQuantizeArgs
    reference = staticmethod(reference)
    raw = True
    variants = (
        Variant(
            "groups", _geometry, source="quantize/block_quantize.cu", elements=SOURCES, prelude=_prelude,
            kinds=GROUPED,
            kernels=(Kernel("quantize", "block_quantize<Own, {T}>", PARAMS, threads=THREADS),),
            guarantee=Guarantee(Exact(), batch_invariant=True),
        ),
        Variant(
            "blocks", _blocks, source="quantize/gguf_quantize.cu", elements=SOURCES, prelude=_prelude, kinds=BLOCKS,
            kernels=(Kernel("blocks", "gguf_quantize<Own, {T}>", BLOCK_PARAMS, threads=THREADS),),
            guarantee=Guarantee(Exact(), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = tuple(
        Benchmark(f"bf16 [14336, 4096] x 8 to {kind}", kind=kind, batch_shape=8, n=14336, k=4096, group=group,
                  element="bfloat16", peers=())
        for kind, group in (("int8", 4096), ("int4", 128), ("nf4", 64), ("mxfp4", None), ("q4_0", None), ("q8_0", None))
    )  # fmt: skip
    bytes = BlockDequantizePlan.bytes

    @staticmethod
    def case(draw: Any) -> BlockQuantizeDescriptor:
        return BlockQuantizeDescriptor(**stored_case(draw) | {"row_group": 1}, element=draw.element)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """Some matrices have a scale of their own."""
        arrays["scale"] = 0.40625 if desc.kind is FormatKind.NVFP4 and desc.n % 2 else 1.0


_quantize = functional(BlockQuantizePlan)


@entry(BlockQuantizePlan)
def block_quantize(
    x: Array, *, kind: Any = "nf4", group: int | None = None, scale: Scalar = 1.0, scale_element: Any = None,
    zero_element: Any = None, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(codes, scales), of asymmetric formats (codes, scales, zeros), of GGUF's codes alone, of x [*, n, k].

    See `BlockQuantizePlan`.

    group: neighbours of a row with one scale, by default that of the format, or a whole row. scale: of the whole matrix
    (nvfp4). scale_element, zero_element: what scales and zero points are held in. `block_dequantize` takes the results.
    """
    form = kind_of(kind)
    given = {"group": group, "scale_element": scale_element, "zero_element": zero_element}
    facts = {name: value for name, value in given.items() if value is not None}
    returns = {"return_scales": form in GROUPED, "return_zeros": form in ZEROED}
    return _quantize(x, kind=form, scale=scale, **facts, **returns, out=out, stream=stream, preference=preference)
