"""dynamic_quantize_transpose: a matrix as fp8 and its transpose as fp8, each with scales of its own, from one read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.functional import functional
from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant,
    choice, extent, operand, output,
)  # fmt: skip
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import FP8, HALVES, decode, encode
from ...core.element import cast as cast_values
from ...core.variant import aligned
from ...schedules.geometry import grid

E = ElementKind
SCOPES = ("tensor", "rows", "groups", "blocks")
SIDE, THREADS = 128, 256  # of a tile
_LEAST = np.float32(2.0**-126)  # of a scale: below it float32 has few digits


def scales_shape(rows: int, cols: int, scope: str) -> tuple[int, int]:
    """How many scales a matrix has."""
    down, across = -(-rows // SIDE), -(-cols // SIDE)
    return {"tensor": (1, 1), "rows": (rows, 1), "groups": (rows, across), "blocks": (down, across)}[scope]


@dataclass(frozen=True, kw_only=True)
class DynamicQuantizeTransposeDescriptor(Descriptor):
    """x and y are [rows, cols], yt [cols, rows]; y and yt hold `to_element`.

    scope: what of x has a scale: the tensor, each row, groups of 128 neighbours of a row, or blocks of 128 x 128, of
    which the last ones may be shorter; scope_t: the same of x transposed. Scales are [1, 1], [rows, 1], [rows, cols /
    128] or [rows / 128, cols / 128], rounded up.
    """

    rows: int = extent()
    cols: int = extent()
    scope: str = choice(SCOPES, "tensor")
    scope_t: str = choice(SCOPES, "tensor")
    to_element: ElementKind = element_field(FP8, E.FP8E4M3)
    element: ElementKind = element_field(HALVES)

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.to_element

    @property
    def scales_shape(self) -> tuple[int, int]:
        """Those of y."""
        return scales_shape(self.rows, self.cols, self.scope)

    @property
    def scales_t_shape(self) -> tuple[int, int]:
        """Those of yt."""
        return scales_shape(self.cols, self.rows, self.scope_t)


@dataclass(slots=True, kw_only=True)
class DynamicQuantizeTransposeArgs(Args):
    """Any strides of x, y and yt, which travel as uint8 or in a dtype of fp8; scales are dense float32."""

    x: Array = operand("rows cols")
    y: Array | None = output("rows cols", element="to_element", optional=True)
    scales: Array | None = output("*scales_shape", element=E.F32, layout="dense", optional=True)
    yt: Array | None = output("cols rows", element="to_element", optional=True)
    scales_t: Array | None = output("*scales_t_shape", element=E.F32, layout="dense", optional=True)


def _quantized(desc: DynamicQuantizeTransposeDescriptor, x: Any, scope: str) -> tuple[Any, Any]:
    """Codes and scales of a matrix of float32."""
    rows, cols = x.shape
    high = {"tensor": rows, "blocks": SIDE}.get(scope, 1)
    wide = SIDE if scope in ("groups", "blocks") else cols
    shape = scales_shape(rows, cols, scope)
    padded = np.zeros((shape[0] * max(high, 1), shape[1] * max(wide, 1)), np.float32)
    padded[:rows, :cols] = np.abs(x)
    parts = padded.reshape(shape[0], max(high, 1), shape[1], max(wide, 1))
    with np.errstate(all="ignore"):
        quotient = parts.max((1, 3), initial=0) / np.float32(desc.to_element.limits.max)
        scales = np.where(quotient < _LEAST, _LEAST, quotient).astype(np.float32)
        spread = np.repeat(np.repeat(scales, max(high, 1), 0), max(wide, 1), 1)[:rows, :cols]
        return np.array(encode(cast_values(x / spread, desc.to_element, saturate=True), desc.to_element)), scales


def reference(desc: DynamicQuantizeTransposeDescriptor, *, x: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy in float32."""
    values, made = decode(x, desc.element).astype(np.float32), {}
    if {"y", "scales"} & wanted:
        made["y"], made["scales"] = _quantized(desc, values, desc.scope)
    if {"yt", "scales_t"} & wanted:
        made["yt"], made["scales_t"] = _quantized(desc, np.ascontiguousarray(values.T), desc.scope_t)
    return {name: value for name, value in made.items() if name in wanted}


PARAMS = Params(
    "QuantizeTurnedParams", x="ptr", y="ptr", scales="ptr", yt="ptr", scales_t="ptr", sizes="ptr", rows="i64",
    cols="i64", x_steps="i64[2]", y_steps="i64[2]", yt_steps="i64[2]", scope="i32", scope_t="i32", same="i32",
    upright="i32", code="i32", largest="f32", turned_side=SIDE, Scope=SCOPES,
)  # fmt: skip
CLEAR = Params("QuantizeTurnedClearParams", sizes="ptr", count="i64", turned_side=SIDE)


def _steps(view: Any) -> tuple[int, int]:
    return (0, 0) if view is None else view.strides


def _pieces(view: Any, nbytes: int, across: int) -> bool:
    """Whether a matrix, if there is one, lies in aligned pieces of so many bytes along its second axis."""
    if view is None:
        return True
    size = view.element.itemsize
    dense = view.strides[1] == 1 or view.shape[1] <= 1
    apart = view.strides[0] * size if view.shape[0] > 1 else 0
    return dense and across * size % nbytes == 0 and view.ptr % nbytes == 0 and apart % nbytes == 0


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    scopes = [
        SCOPES.index(scope) if view is not None or scales is not None else -1
        for scope, view, scales in ((desc.scope, p.y, p.scales), (desc.scope_t, p.yt, p.scales_t))
    ]
    wide = _pieces(p.x, 16, desc.cols) and _pieces(p.y, 8, desc.cols)
    whole = any(0 <= scope < 2 for scope in scopes)
    count = 1 + desc.rows + desc.cols
    values = {
        "rows": desc.rows, "cols": desc.cols, "x_steps": p.x.strides, "y_steps": _steps(p.y),
        "yt_steps": _steps(p.yt), "scope": scopes[0], "scope_t": scopes[1],
        "same": scopes[0] == scopes[1] and desc.scope in ("tensor", "blocks"), "upright": _pieces(p.yt, 16, desc.rows),
        "code": FP8.index(desc.to_element), "largest": desc.to_element.limits.max,
        "sizes": ("@workspace", 0) if whole else "@null",
    }  # fmt: skip
    tiles = grid(max(1, -(-desc.rows // SIDE)) * max(1, -(-desc.cols // SIDE)))
    made = Step("tiles", tiles, values, {"WIDE": wide}, THREADS)
    dense = all(view is None or view.dense for view in (p.x, p.y, p.yt))
    layout = "contiguous" if dense else "strided"
    if not whole:
        return Geometry((made,), layout=layout)
    clear = Step("clear", grid(-(-count // THREADS)), {"sizes": ("@workspace", 0), "count": count}, {}, THREADS)
    return Geometry((clear, Step("sizes", tiles, values, {"WIDE": wide}, THREADS), made), aligned(4 * count), layout)


_WIDE = {"WIDE": (True, False)}


class DynamicQuantizeTransposePlan(Plan):
    """y = the fp8 codes of x over its scales, yt = those of x transposed over scales of its own, from one read of x.

    A scale is the largest size of what has it over the largest number of the format, in float32, at least 2⁻¹²⁶; a code
    is the quotient by it, rounded to float32 and then to the format, to nearest, ties to even: y and scales are those
    of `DynamicQuantizePlan`. Products of fp8 want both operands with the summed axis along memory: of y = x Wᵀ, x and W
    as they are, of dx = dy W and dW = dyᵀ x the transposes of W, dy and x. Where a tensor, or rows, have a scale, sizes
    come by a read before. NaN makes its scale NaN, and the codes that share it NaN; infinity makes the scale infinite,
    finite numbers 0 and itself NaN.
    """

    op = "quantize.dynamic_quantize_transpose"
    descriptor = DynamicQuantizeTransposeDescriptor
    args = DynamicQuantizeTransposeArgs
    reference = staticmethod(reference)
    raw = True
    variants = (
        Variant(
            "tiles", _geometry, source="quantize/dynamic_quantize_transpose.cu", elements=HALVES,
            guarantee=Guarantee(Exact(), math="float32"),
            kernels=(
                Kernel("clear", "quantize_turned_clear", CLEAR, threads=THREADS),
                Kernel("sizes", "quantize_turned_sizes<{T}, {WIDE}>", PARAMS, _WIDE, threads=THREADS),
                Kernel("tiles", "quantize_turned<{T}, {WIDE}>", PARAMS, _WIDE, threads=THREADS, min_blocks=3),
            ),
        ),
    )  # fmt: skip
    benchmarks = tuple(
        Benchmark(f"[16384, 8192] bf16 to e4m3, {scope} and {scope_t}", rows=16384, cols=8192, scope=scope,
                  scope_t=scope_t, element="bfloat16", also=("y", "scales", "yt", "scales_t"), peers=())
        for scope, scope_t in (("tensor", "tensor"), ("rows", "rows"), ("groups", "blocks"))
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> DynamicQuantizeTransposeDescriptor:
        rows, cols = draw.sizes(0, 1, 5, 16, 48, 130, rare=(256,)), draw.sizes(0, 1, 7, 16, 40, 136, rare=(144,))
        return DynamicQuantizeTransposeDescriptor(
            rows=rows, cols=cols, scope=draw.choice(SCOPES), scope_t=draw.choice(SCOPES),
            to_element=draw.choice(FP8), element=draw.element,
        )  # fmt: skip

    @classmethod
    def bytes(cls, desc: Any) -> int:
        """Of one read, both codes and scales."""
        scales = sum(a * b for a, b in (desc.scales_shape, desc.scales_t_shape))
        return int(desc.rows * desc.cols * (desc.element.itemsize + 2) + 4 * scales)


dynamic_quantize_transpose = functional(
    DynamicQuantizeTransposePlan, "dynamic_quantize_transpose", returns=("y", "scales", "yt", "scales_t")
)
