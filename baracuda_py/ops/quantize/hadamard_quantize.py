"""hadamard_quantize: a Hadamard transform whose result is 8 or 4 bits with a scale for each row or group of columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, PerOutput, Plan, Problem,
    Relative, Scalar, Step, Ulp, Variant, View, derived, flag, integer, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.checked import truth, whole
from ...core.element import cast as cast_values, decode, encode
from ...calls.entries import entry
from ...core.views import shape_of
from ...schedules import hadamard as tiles
from ...schedules.geometry import grid
from ...schedules.rows import merge_rows, row_params
from ..elementwise.cast import carrier_shape
from ..norm.norm_quantize_blocks import SCALES, TARGETS, block_scale, over_scales
from .fp8_cast import single
from .hadamard import MOST, WIDE, HadamardDescriptor, rotated
from .hadamard_matrix import BASES

E = ElementKind
SOURCES = (E.F32, E.F16, E.BF16)
PIECE = 16  # codes that a thread writes together


@dataclass(frozen=True, kw_only=True)
class HadamardQuantizeDescriptor(HadamardDescriptor):
    """As `HadamardDescriptor`; y holds `to_element`, two float4 a byte along the last axis.

    group: columns that share a scale, all of a row by default; a divisor of block, or several blocks. static: the scale
    of all groups is `y_scale`, and `group` says only what lies in shared memory at once. scale_element: what a scale is
    held in, float32, float8_e8m0fnu or float8_e4m3fn.
    """

    group: int = integer(derived(lambda desc: max(desc.shape[-1], 1) if desc.shape else 1), minimum=1)
    static: bool = flag(False)
    scale_element: ElementKind = element_field(SCALES, E.F32)
    to_element: ElementKind = element_field(TARGETS, E.FP8E4M3)
    element: ElementKind = element_field(SOURCES)

    def validate(self) -> None:
        super().validate()
        if self.shape[-1] % self.group:
            raise InvalidProblemError(f"the last extent must be groups of {self.group}, got shape {self.shape}")
        if self.block % self.group and self.group % self.block:
            raise InvalidProblemError(f"group must divide block {self.block} or be blocks of it, got {self.group}")
        if self.static and self.scale_element is not E.F32:
            raise InvalidProblemError(f"static scales are float32, got scale_element {self.scale_element}")
        if self.to_element is E.FP4E2M1 and self.shape[-1] % 2:
            raise InvalidProblemError(f"float4 is two a byte: the last extent must be even, got shape {self.shape}")

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.to_element

    @property
    def y_shape(self) -> tuple[int, ...]:
        """The shape of the array that holds y."""
        return carrier_shape(self.shape, self.to_element)

    @property
    def scales_shape(self) -> tuple[int, ...]:
        """One for each group."""
        return (*self.shape[:-1], self.shape[-1] // self.group)


@dataclass(slots=True, kw_only=True)
class HadamardQuantizeArgs(Args):
    """Any strides of x, signs and y, but that the last axis of a y of float4 is contiguous; scales are dense.

    y travels as uint8, unless it is int8, and so do scales of 8 bits. scale: of the transform. y_scale: of all of y
    where the plan is static, or a number beside scales of float8_e4m3fn.
    """

    x: Array = operand("*shape")
    signs: Array | None = operand("*cols", optional=True)
    y: Array = output("*y_shape", element="to_element")
    scales: Array | None = output("*scales_shape", element="scale_element", optional=True, layout="dense")
    scale: Scalar = scalar(1.0)
    y_scale: Scalar = scalar(1.0)


def reference(
    desc: HadamardQuantizeDescriptor, *, x: Any, signs: Any, scale: Any, y_scale: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in float64; u, scales and quotients are float32 numbers."""
    x, signs = (None if v is None else decode(v, desc.element).astype(np.float64) for v in (x, signs))
    largest = float(desc.to_element.limits.max)
    with np.errstate(all="ignore"):
        factor = float(np.float32(float(scale) * desc.unit)) / desc.unit  # which `rotated` multiplies by again
        u = single(rotated(desc, x, signs, None, factor), np.float64).reshape(*desc.scales_shape, desc.group)
        if desc.static:
            by = stored = np.full(desc.scales_shape, float(np.float32(float(y_scale))))
        else:
            most = np.max(np.abs(u), axis=-1, initial=0)
            by, stored = block_scale(desc.scale_element, most, largest, float(y_scale))
        y = over_scales(u, by[..., None]).reshape(desc.shape)
        y = np.where(np.isnan(y), 0, np.rint(y)) if desc.to_element is E.I8 else y
    made = {"y": (y, desc.to_element), "scales": (stored, desc.scale_element)}
    return {name: np.array(encode(cast_values(v, e, True), e)) for name, (v, e) in made.items()}


PARAMS = Params(
    "HadamardQuantizeParams", y="ptr", x="ptr", signs="ptr", scales="ptr", scale="scalar", y_scale="scalar", unit="f64",
    **row_params(3), **tiles.PARAMS, group="i32", group_bits="i32", code="i32", scale_code="i32",
    is_static="i32", largest="f32",
)  # fmt: skip
_CALL = "hadamard_quantize<{{T}}, {{E}}, {}, {{WIDE}}>"
_KERNELS = (
    Kernel("tile", _CALL.format("1"), PARAMS, lambda e: {"E": tiles.held_by(e)[-1:], "WIDE": WIDE}, MOST["tile"], 1),
    # Bounds of more threads than it has leave registers for six blocks of 128.
    Kernel("short", _CALL.format("1"), PARAMS, lambda e: {"E": tiles.held_by(e)[:-1], "WIDE": WIDE}, 768, 1),
    Kernel("base", _CALL.format("{BASE}"), PARAMS,
           lambda e: {"E": tiles.held_by(e)[:1], "BASE": BASES, "WIDE": WIDE}, MOST["base"], 2),
)  # fmt: skip


def _codes(p: Problem) -> View | None:
    """y by elements: of float4 with strides in halves of bytes; None where pairs are not side by side."""
    y: View = p.y
    if p.desc.to_element is not E.FP4E2M1:
        return y
    if y.shape[-1] > 1 and y.strides[-1] != 1:
        return None
    return View(y.ptr, p.x.shape, (*(2 * step for step in y.strides[:-1]), 1), E.U8)


def _geometry(p: Problem) -> Geometry | str:
    desc, y = p.desc, _codes(p)
    if y is None:
        return f"y holds pairs of {desc.to_element}, and its last axis must be contiguous"
    base, k = desc.order
    tiling = tiles.Tiling(desc.element, base, k, max(1, desc.group // desc.block))
    smem = tiling.smem + 4 * (tiling.size // desc.group)
    if smem > p.device.smem:
        return f"groups of {desc.group} take {smem} bytes of shared memory, the device has {p.device.smem}"
    parts = (desc.shape[-1] // desc.block, desc.block)
    signs = None if p.signs is None else p.signs.broadcast_to(p.x.shape)
    found = merge_rows([tiles.split_last(v, *parts) for v in (y, p.x, signs)], len(desc.shape))
    if isinstance(found, str):
        return found
    wide = desc.group % PIECE == 0 and tiles.in_chunks(found, PIECE)
    kernel, axes = tiling.kernel, {} if tiling.base == 1 else {"BASE": tiling.base}
    values = {
        **found.params(), **tiling.params(), "unit": desc.unit, "group": desc.group,
        "group_bits": -1 if desc.group & (desc.group - 1) else desc.group.bit_length() - 1,
        "code": TARGETS.index(desc.to_element), "scale_code": SCALES.index(desc.scale_element),
        "is_static": desc.static, "largest": desc.to_element.limits.max,
    }  # fmt: skip
    step = Step(
        kernel, grid(-(-found.rows // tiling.rows)), values, {"E": tiling.held, **axes, "WIDE": wide},
        tiling.threads(MOST[kernel]), smem,
    )  # fmt: skip
    return Geometry((step,), layout=found.layout_class)


class HadamardQuantizePlan(Plan):
    """y = u / scales in 8 or 4 bits, u = scale H (signs · x) as of `HadamardPlan`, one launch.

    u is in float32 and never rounded to the element. Of the largest |u| of a group and the largest number of to_element
    (448, 57344, 127, 6 of float4_e2m1fn), scales of float32 are the quotient, at least 2⁻¹²⁶; those of float8_e8m0fnu
    the power of two that brings the one to the exponent of the other (OCP Microscaling Formats 1.0, groups of 32); and
    those of float8_e4m3fn the quotient over `y_scale`, rounded (NVFP4, groups of 16). y is rounded to nearest, ties to
    even, and saturates; a NaN is NaN as float8, 0 as int8, 6 as float4. A group of several blocks, as a whole row is,
    lies in shared memory in float32 at once: with 99 KB up to 20480 columns, with 227 KB 49152. There is no gradient.
    """

    op = "quantize.hadamard_quantize"
    descriptor = HadamardQuantizeDescriptor
    args = HadamardQuantizeArgs
    reference = staticmethod(reference)
    raw = True
    variants = (
        Variant(
            "tile", _geometry, source="quantize/hadamard_quantize.cu", elements=SOURCES, kernels=_KERNELS,
            guarantee=Guarantee(PerOutput((("y", Relative(2)), ("scales", Ulp(16)))), batch_invariant=True),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("[32768, 4096] bf16 to e4m3, rows", shape=(1 << 15, 4096), element="bfloat16", also=("scales",),
                  target=0.9, peers=()),
        Benchmark("[32768, 4096] bf16 to MXFP4, blocks of 128", shape=(1 << 15, 4096), block=128, group=32,
                  to_element="float4_e2m1fn", scale_element="float8_e8m0fnu", element="bfloat16", also=("scales",),
                  target=0.9, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> HadamardQuantizeDescriptor:
        block = draw.sizes(2, 8, 12, 32, 40, 64, 112, 256, 1024, rare=(3072, 5120, 7168, 8192, 16384))
        cols, static = block * draw.integer(1, 3 if block <= 1024 else 1), draw.flag()
        group = draw.choice((cols, block, *(g for g in (16, 32) if not block % g)))
        return HadamardQuantizeDescriptor(
            shape=(*draw.shape(0, 2, 0, 2), cols), block=block, group=block if static else group, static=static,
            normalized=draw.flag(), to_element=draw.choice(TARGETS),
            scale_element=E.F32 if static else draw.choice(SCALES), element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        arrays["y_scale"] = 0.03125


_quantize = functional(HadamardQuantizePlan)


@entry(HadamardQuantizePlan)
def hadamard_quantize(
    x: Array, signs: Array | None = None, *, block: int | None = None, scale: Scalar = 1.0, normalized: bool = False,
    to_element: Any = "float8_e4m3fn", group: int | None = None, scale_element: Any = None, y_scale: Scalar = None,
    out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(y, scales): scale H (signs · x) along the last axis in 8 or 4 bits; see `HadamardQuantizePlan`.

    block, scale, normalized: as of `hadamard_transform`. to_element: float8_e4m3fn, float8_e5m2 or int8, with a float32
    scale for each row or `group` of columns, or, with `y_scale`, that for all, and y alone is returned. float4_e2m1fn,
    two a byte, is NVFP4: groups of 16 with scales of float8_e4m3fn, times `y_scale` where that is given; with group=32
    it is MXFP4, as float8 with scale_element="float8_e8m0fnu" is MXFP8.
    """
    goal, held = E.of(to_element), None if scale_element is None else E.of(scale_element)
    cols = (shape_of(x, "x") or (1,))[-1]
    if group is None:
        group = 32 if held is E.E8M0 else 16 if goal is E.FP4E2M1 else max(cols, 1)
    group = whole("group", group, 1)
    if held is None:
        held = E.F32 if goal is not E.FP4E2M1 else E.E8M0 if group == 32 else E.FP8E4M3
    if y_scale is not None and held is E.E8M0:
        raise InvalidProblemError(f"y_scale must be None with scale_element {held}")
    static = y_scale is not None and held is E.F32
    if static and block is not None and not group % whole("block", block, 1):
        group = block  # which may be any, and long rows then need not fit shared memory
    facts = {} if block is None else {"block": whole("block", block, 1)}
    return _quantize(
        x, signs, **facts, scale=scale, normalized=truth("normalized", normalized), to_element=goal, group=group,
        scale_element=held, static=static, y_scale=1.0 if y_scale is None else y_scale, return_scales=not static,
        out=out, stream=stream, preference=preference,
    )  # fmt: skip
