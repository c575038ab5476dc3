"""swizzle_scales, unswizzle_scales: the scales of MXFP8, MXFP4 and NVFP4 in the order of Blackwell's tensor cores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.memo import cached_property
from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant,
    View, extent, extents, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import BYTES, Benchmark
from ...core.tensor import Shape
from .format import E
from .stored import in_threes

ELEMENTS = (E.U8, E.E8M0, E.FP8E4M3)
TILE_ROWS, TILE_COLUMNS = 128, 4
_THREADS, _WARP = 256, 32
_WARP_ROWS = 4  # of each quarter of a tile, that a warp has
_WARP_TILES = _WARP // _WARP_ROWS


@dataclass(frozen=True, kw_only=True)
class SwizzleScalesDescriptor(Descriptor):
    """Scales are [*batch_shape, rows, columns], a column for each block of k; swizzled ones fill whole tiles."""

    batch_shape: Shape = extents(())
    rows: int = extent()
    columns: int = extent()
    element: ElementKind = element_field(ELEMENTS)

    @cached_property
    def tiles(self) -> Shape:
        """How many tiles of 128 × 4 there are along rows and columns."""
        return (-(-self.rows // TILE_ROWS), -(-self.columns // TILE_COLUMNS))

    @property
    def tiled_shape(self) -> Shape:
        """Of swizzled scales: as many as whole tiles have."""
        return (*self.batch_shape, self.tiles[0] * TILE_ROWS, self.tiles[1] * TILE_COLUMNS)


@dataclass(slots=True, kw_only=True)
class SwizzleScalesArgs(Args):
    """Scales have any strides, but one for the batch; y is dense."""

    x: Array = operand("*batch_shape rows columns")
    y: Array = output("*tiled_shape", layout="dense")


@dataclass(slots=True, kw_only=True)
class UnswizzleScalesArgs(Args):
    """x is dense; scales have any strides, but one for the batch."""

    x: Array = operand("*tiled_shape", layout="dense")
    y: Array = output("*batch_shape rows columns")


def reference(desc: SwizzleScalesDescriptor, *, x: Any) -> Mapping[str, Any]:
    """NumPy's transposes on the stored values."""
    down, across = desc.tiles
    padded = np.zeros(desc.tiled_shape, x.dtype)
    padded[..., : desc.rows, : desc.columns] = x
    each = padded.reshape(*desc.batch_shape, down, 4, 32, across, 4)
    return {"y": np.moveaxis(each, (-2, -4), (-4, -2)).reshape(desc.tiled_shape)}


def unswizzled(desc: SwizzleScalesDescriptor, *, x: Any) -> Mapping[str, Any]:
    """The inverse; what pads the tiles is left out."""
    down, across = desc.tiles
    each = x.reshape(*desc.batch_shape, down, across, 32, 4, 4)
    y = np.moveaxis(each, (-4, -2), (-2, -4)).reshape(desc.tiled_shape)
    return {"y": y[..., : desc.rows, : desc.columns]}


PARAMS = Params(
    "SwizzleScalesParams", plain="ptr", tiled="ptr", steps="i64[3]", rows="i64", columns="i64", down="u32",
    across="u32", groups="u32", warps="u32", wide="i32", whole="i32",
    swizzle_warp_rows=_WARP_ROWS,
)  # fmt: skip


def _launch(p: Problem, plain: View, tiled: View, values: dict[str, Any]) -> Geometry | str:
    found = in_threes(plain)
    if found is None:
        return f"scales must have a batch of one stride, got strides {plain.strides} of shape {plain.shape}"
    down, across = p.desc.tiles
    groups = -(-across // _WARP_TILES)
    warps = math.prod(p.desc.batch_shape) * down * (32 // _WARP_ROWS) * groups
    if warps >= 2**31:
        return f"needs {warps} warps, a grid takes 2**31 - 1"
    values |= {
        "steps": found.strides, "rows": p.desc.rows, "columns": p.desc.columns, "down": down, "across": across,
        "groups": groups, "warps": warps, "wide": found.strides[2] == 1 and found.aligned(4),
        "whole": tiled.aligned(16),
    }  # fmt: skip
    blocks = max(1, -(-warps * _WARP // _THREADS))
    step = Step("scales", (blocks, 1, 1), values, {}, _THREADS)
    return Geometry((step,), layout="contiguous" if plain.dense else "strided")


def _row(geometry: Any, into: bool) -> tuple[Variant, ...]:
    kernel = Kernel("scales", f"swizzle_scales<{str(into).lower()}>", PARAMS, threads=_THREADS)
    return (
        Variant(
            "tiles", geometry, source="quantize/swizzle_scales.cu", kernels=(kernel,), elements=ELEMENTS,
            guarantee=Guarantee(Exact(), native=True, batch_invariant=True),
        ),
    )  # fmt: skip


def _case(draw: Any) -> SwizzleScalesDescriptor:
    return SwizzleScalesDescriptor(
        batch_shape=draw.shape(0, 2, 0, 3), rows=draw.sizes(1, 33, 128, 200, 0), columns=draw.sizes(1, 4, 7, 40, 0),
        element=draw.element,
    )  # fmt: skip


def _in_torch(torch: Any, desc: SwizzleScalesDescriptor, *, x: Any) -> Any:
    """Tiles, and rows 32 apart beside each other, as torchao's to_blocked makes them."""
    down, across = desc.tiles
    if 0 in desc.tiled_shape or x.dtype is not torch.uint8:
        return NotImplemented
    more = (0, TILE_COLUMNS * across - desc.columns, 0, TILE_ROWS * down - desc.rows)
    each = torch.nn.functional.pad(x, more).reshape(-1, down, TILE_ROWS, across, TILE_COLUMNS).transpose(2, 3)
    return each.reshape(-1, 4, 32, 4).transpose(1, 2).reshape(desc.tiled_shape)


class SwizzleScalesPlan(Plan):
    """y = the scales x [*, rows, columns] in tiles of 128 × 4, as block-scaled products on Blackwell read them.

    cuBLASLt's layout of 1-D block scaling factors (VEC32_UE8M0 of MXFP8 and MXFP4, VEC16_UE4M3 of NVFP4), torchao's
    `to_blocked`: tiles follow one another along a row of tiles, then the next row; within a tile the scale of row r and
    column c is byte 16 (r % 32) + 4 (r / 32) + c. y has the shape that whole tiles have, [*, rows rounded up to 128,
    columns rounded up to 4], with its bytes in that order; what fills the tiles is 0. Bytes of uint8, float8_e8m0fnu or
    float8_e4m3fn are moved as they are. There is no gradient.
    """

    op = "quantize.swizzle_scales"
    descriptor, args, reference = SwizzleScalesDescriptor, SwizzleScalesArgs, staticmethod(reference)
    raw = True
    variants = _row(lambda p: _launch(p, p.x, p.y, {"plain": "x", "tiled": "y"}), True)
    torch = staticmethod(_in_torch)
    benchmarks = (
        Benchmark("[131072, 512] uint8", rows=131072, columns=512, element="uint8", work=BYTES, target=None, peers=()),
    )
    case = staticmethod(_case)

    @classmethod
    def bytes(cls, desc: Any) -> int:
        return int(math.prod(desc.batch_shape) * desc.rows * desc.columns + math.prod(desc.tiled_shape))


class UnswizzleScalesPlan(Plan):
    """y [*, rows, columns] = the scales whose tiles are x: the inverse of `SwizzleScalesPlan` (from_blocked)."""

    op = "quantize.unswizzle_scales"
    descriptor, args, reference = SwizzleScalesDescriptor, UnswizzleScalesArgs, staticmethod(unswizzled)
    raw = True
    variants = _row(lambda p: _launch(p, p.y, p.x, {"plain": "y", "tiled": "x"}), False)
    benchmarks = (
        Benchmark("[131072, 512] uint8", rows=131072, columns=512, element="uint8", work=BYTES, target=None, peers=()),
    )
    case = staticmethod(_case)
    bytes = SwizzleScalesPlan.bytes

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        if facts.get("batch_shape") is None:
            facts["batch_shape"] = tuple(shapes["x"])[:-2]


swizzle_scales = functional(SwizzleScalesPlan)
unswizzle_scales = functional(UnswizzleScalesPlan)
