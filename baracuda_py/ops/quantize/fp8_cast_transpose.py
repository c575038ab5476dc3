"""fp8_cast_transpose: a matrix as fp8 and its transpose from one read, for products and their gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan,
    Problem, Scalar, Step, Variant, View, extents, inout, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import FP8
from ...schedules.geometry import grid
from ...schedules.hadamard import in_chunks
from ...schedules.rows import merge_rows, row_params
from .fp8_cast import WIDE, cast_in_torch, raised, scaled

E = ElementKind
SIDE, EACH = 64, 16  # of a tile, and of a thread's piece of it
TILE = {"transposing_side": SIDE, "transposing_each": EACH}
"""Params fields of kernels that include `kernels/quantize/transpose_tile.cuh`."""
TURNED: dict[str, Any] = {"yt_column": "i64", "yt_row": "i64", "code": "i32", **TILE}
"""The same, and those of the codes."""


class CastTransposed:
    """What descriptors of a matrix as fp8 and of its transpose share: `shape` is (*lead, cols), codes `to_element`."""

    shape: tuple[int, ...]
    to_element: ElementKind

    def validate(self) -> None:
        """There is a last axis."""
        if not self.shape:
            raise InvalidProblemError("a transpose needs at least one axis, got shape ()")

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.to_element

    @property
    def rows(self) -> int:
        """Of what is cast as a matrix of its last axis."""
        return math.prod(self.shape[:-1])

    @property
    def cols(self) -> int:
        return self.shape[-1]


def upright_shape(draw: Any) -> tuple[int, ...]:
    """For tests: any shape, and often one of whole tiles."""
    shape = (*draw.shape(0, 2, 0, 5), draw.sizes(1, 5, 16, 48, 64, 130, 0))
    if draw.flag():
        return (draw.choice((16, 48, 80)), draw.choice((16, 64, 144)))
    return shape


@dataclass(frozen=True, kw_only=True)
class Fp8CastTransposeDescriptor(CastTransposed, Descriptor):
    """x and y have shape `shape` (*lead, cols), yt (cols, product of lead); y and yt hold `to_element`."""

    shape: tuple[int, ...] = extents()
    to_element: ElementKind = element_field(FP8, E.FP8E4M3)
    element: ElementKind = element_field(WIDE)


@dataclass(slots=True, kw_only=True)
class Fp8CastTransposeArgs(Args):
    """Any strides; y and yt travel as uint8, or in a dtype of fp8. amax and scale are as in `Fp8CastArgs`."""

    x: Array = operand("*shape")
    amax: Array | None = inout("", element=E.F32, optional=True, values=(0.0, 4.0))
    y: Array = output("*shape", element="to_element")
    yt: Array = output("cols rows", element="to_element")
    scale: Scalar = scalar(1.0)


def reference(desc: Fp8CastTransposeDescriptor, *, x: Any, amax: Any, scale: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in; the product is a float32 number."""
    y = scaled(desc, x, scale)
    return {"y": y, "yt": np.array(y.reshape(desc.rows, desc.cols).T), **raised(amax, x)}


PARAMS = Params(
    "Fp8TransposeParams", y="ptr", yt="ptr", x="ptr", amax="ptr", scale="scalar", **row_params(2), **TURNED,
)  # fmt: skip


def turning(p: Problem, values: Mapping[str, Any], views: Sequence[View | None]) -> tuple[Step, str] | str:
    """The launch of tiles of y and yt, and the layout class; views: y and what is read."""
    desc = p.desc
    found = merge_rows(views, len(desc.shape) - 1)
    if isinstance(found, str):
        return found
    yt, (column, row) = p.yt, p.yt.strides
    upright = (row == 1 or desc.rows == 1) and yt.ptr % EACH == 0 and column % EACH == 0 and desc.rows % EACH == 0
    wide = in_chunks(found, EACH) and upright
    tiles = -(-desc.rows // SIDE) * -(-desc.cols // SIDE)
    own = {"yt_column": column, "yt_row": row, "code": FP8.index(desc.to_element), **values}
    step = Step("tiles", grid(tiles), {**found.params(), **own}, {"WIDE": wide})
    return step, found.layout_class


def transposing(p: Problem, values: Mapping[str, Any], *given: View | None) -> Geometry | str:
    """Tiles of y and yt of what is read, by default x, and nothing else."""
    found = turning(p, values, (p.y, *(given or (p.x,))))
    return found if isinstance(found, str) else Geometry((found[0],), layout=found[1])


def _geometry(p: Problem) -> Geometry | str:
    return transposing(p, {})


def in_torch(torch: Any, desc: Fp8CastTransposeDescriptor, *, x: Any, amax: Any, scale: Any) -> Any:
    """The formula; y and yt before they are rounded."""
    made = cast_in_torch(torch, desc, x, amax, scale)
    return {**made, "yt": made["y"].reshape(desc.rows, desc.cols).T}


class Fp8CastTransposePlan(Plan):
    """y = x · scale as fp8, yt = y transposed, amax = max(amax, |x|): one read of x, one launch.

    Products of fp8 want both operands with the summed axis along memory: of y = x Wᵀ, x and W as they are; of
    dx = dy W and dW = dyᵀ x the transposes of W, dy and x. Rounding and amax are those of `Fp8CastPlan`.
    """

    op = "quantize.fp8_cast_transpose"
    descriptor = Fp8CastTransposeDescriptor
    args = Fp8CastTransposeArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "tiles", _geometry, source="quantize/fp8_cast_transpose.cu", elements=WIDE, guarantee=Guarantee(Exact()),
            kernels=(Kernel("tiles", "fp8_cast_transpose<{T}, {WIDE}>", PARAMS, {"WIDE": (True, False)}),),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("[16384, 8192] bf16 to e4m3, amax", shape=(16384, 8192), element="bfloat16", also=("amax",),
                  peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> Fp8CastTransposeDescriptor:
        shape = upright_shape(draw)
        return Fp8CastTransposeDescriptor(shape=shape, to_element=draw.choice(FP8), element=draw.element)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        arrays["scale"] = 0.75


fp8_cast_transpose = functional(Fp8CastTransposePlan)
