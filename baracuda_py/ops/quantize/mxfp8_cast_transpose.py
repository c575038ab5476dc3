"""mxfp8_cast_transpose: a matrix as MXFP8 with blocks along its rows and, transposed, along its columns; one read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Exact, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem, Variant,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import FP8, cast as cast_values, decode, encode
from ...schedules.rows import row_params
from ..norm.norm_quantize_blocks import block_scale
from .fp8_cast import WIDE
from .fp8_cast_transpose import TILE, Fp8CastTransposeDescriptor, transposing

E = ElementKind
BLOCK = 32


@dataclass(frozen=True, kw_only=True)
class Mxfp8CastTransposeDescriptor(Fp8CastTransposeDescriptor):
    """x and y have shape `shape` (*lead, cols), yt (cols, rows), rows the product of lead; both multiples of 32."""

    def validate(self) -> None:
        super().validate()
        if self.rows % BLOCK or self.cols % BLOCK:
            raise InvalidProblemError(
                f"rows and columns must be blocks of {BLOCK}, got {self.rows} rows and {self.cols} columns of shape "
                f"{self.shape}"
            )

    @property
    def scales_shape(self) -> tuple[int, ...]:
        """One for each block of a row of y."""
        return (*self.shape[:-1], self.cols // BLOCK)

    @property
    def scales_t_shape(self) -> tuple[int, ...]:
        """One for each block of a row of yt."""
        return (self.cols, self.rows // BLOCK)


@dataclass(slots=True, kw_only=True)
class Mxfp8CastTransposeArgs(Args):
    """Any strides of x, y and yt; scales are dense. fp8 and float8_e8m0fnu travel as uint8, or in dtypes of theirs."""

    x: Array = operand("*shape")
    y: Array = output("*shape", element="to_element")
    scales: Array = output("*scales_shape", element=E.E8M0, layout="dense")
    yt: Array = output("cols rows", element="to_element")
    scales_t: Array = output("*scales_t_shape", element=E.E8M0, layout="dense")


def _blocks(desc: Any, x: Any) -> tuple[Any, Any]:
    """Rows of blocks of 32, and the scale of each."""
    parts = x.reshape(*x.shape[:-1], x.shape[-1] // BLOCK, BLOCK)
    with np.errstate(all="ignore"):
        most = np.max(np.abs(parts), axis=-1, initial=0)
        factor, scales = block_scale(E.E8M0, most, float(desc.to_element.limits.max), 1.0)
        return (parts / factor[..., None]).astype(np.float32).astype(np.float64).reshape(x.shape), scales


def reference(desc: Mxfp8CastTransposeDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy in float64; a quotient by a power of two is a float32 number."""
    x = decode(x, desc.element).astype(np.float64)
    y, scales = _blocks(desc, x)
    yt, scales_t = _blocks(desc, np.ascontiguousarray(x.reshape(desc.rows, desc.cols).T))
    made = {
        "y": (y, desc.to_element), "yt": (yt, desc.to_element), "scales": (scales, E.E8M0),
        "scales_t": (scales_t, E.E8M0),
    }  # fmt: skip
    return {name: np.array(encode(cast_values(v, e, True), e)) for name, (v, e) in made.items()}


PARAMS = Params(
    "Mxfp8TransposeParams", y="ptr", scales="ptr", yt="ptr", scales_t="ptr", x="ptr", **row_params(2),
    yt_column="i64", yt_row="i64", code="i32", largest="f32", **TILE,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    return transposing(p, {"largest": p.desc.to_element.limits.max})


class Mxfp8CastTransposePlan(Plan):
    """y and yt as MXFP8: fp8 with a power of two for each 32 numbers of a row, of x and of x transposed; one launch.

    The scale of a block is the power of two that brings the exponent of its largest |x| to that of the largest fp8
    number, 2⁻¹²⁷ of zeros, NaN where a number is not finite (OCP Microscaling Formats 1.0, 6.3), and y is x over it,
    rounded to nearest, ties to even, and saturating. Blocks of yt run along columns of x: yt is not y transposed.
    """

    op = "quantize.mxfp8_cast_transpose"
    descriptor = Mxfp8CastTransposeDescriptor
    args = Mxfp8CastTransposeArgs
    reference = staticmethod(reference)
    raw = True
    variants = (
        Variant(
            "tiles", _geometry, source="quantize/mxfp8_cast_transpose.cu", elements=WIDE,
            guarantee=Guarantee(Exact(), batch_invariant=True),
            kernels=(
                Kernel("tiles", "mxfp8_cast_transpose<{T}, {WIDE}>", PARAMS, {"WIDE": (True, False)}),
            ),
        ),
    )  # fmt: skip
    benchmarks = (Benchmark("[16384, 8192] bf16 to e4m3", shape=(16384, 8192), element="bfloat16", peers=()),)

    @staticmethod
    def case(draw: Any) -> Mxfp8CastTransposeDescriptor:
        lead = draw.choice(((32,), (2, 16), (96,), (0,)))
        shape = (*lead, draw.choice((32, 64, 96)))
        return Mxfp8CastTransposeDescriptor(shape=shape, to_element=draw.choice(FP8), element=draw.element)


mxfp8_cast_transpose = functional(Mxfp8CastTransposePlan)
