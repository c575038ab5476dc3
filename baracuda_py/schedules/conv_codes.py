"""Convolutions of elements of 8 bits, integers and fp8 (kernels/conv/codes.cuh): what their designs read.

They are the products of `schedules.conv` with other instructions and another epilogue. Where integers have a zero
point of x, tensor cores read it for what lies outside of x, and a launch before sums each filter, which the epilogue
takes off as often.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..core.element import FP8, ElementKind
from ..core.params import Params
from ..core.variant import Geometry, Kernel, Problem, Step
from .conv import Launches, channels_inner
from .conv_boxes import tile_step
from .conv_formula import in_pieces
from .conv_kernels import BOX_FIELDS, BOX_THREADS, PACK, PARAMS, THREADS, WGMMA_COLS, WGMMA_THREADS, wgmma_bytes
from .conv_problem import Convolution, Field, Filter, Six, convolution_of, field_of, filter_of
from .gemm import ACTIVATIONS, BYTE_DEPTH, BYTE_STAGES, BYTE_THREADS, BYTE_TILE
from .products import Place

E = ElementKind
BYTES = (E.I8, E.U8)
FLOATS = (E.F32, E.F16, E.BF16)
OUTPUTS = (*FLOATS, *BYTES, E.I32, *FP8)
_VECTORS = ("scale_x", "zero_x", "scale_w", "zero_w", "scale_y", "zero_y")
CODES = Params(
    "ConvParams", **PARAMS.fields, **dict.fromkeys(_VECTORS, "ptr"), w_sums="ptr", none="ptr", scale_step="i64",
    zero_step="i64", bias_whole="i32", is_unsigned="i32", out="i32", **BYTE_TILE,
    ConvOut=("f32", "f16", "bf16", "i8", "u8", "i32", "e4m3", "e5m2"),
)  # fmt: skip
BOX_CODES = Params("ConvParams", **CODES.fields, **BOX_FIELDS)
_INTEGERS, _FP8 = "conv/quantized_conv.cu", "conv/scaled_conv.cu"
_TILES = {"SIZE": (128, 64)}


def _kernel(name: str, template: str, source: str, axes: Mapping[str, Any], **more: Any) -> Kernel:
    return Kernel(name, template, CODES, axes, source=source, kindless=True, **more)


PACK_BYTES = replace(PACK, template="conv_pack<u8>", shared="conv_bytes")
SUMS = _kernel("filter_sums", "conv_filter_sums<{W}>", _INTEGERS, {"W": BYTES})
INTEGER_TILES = _kernel(
    "mma", "quantized_conv_mma<{T}, {W}, {SIZE}>", _INTEGERS, {"W": BYTES, **_TILES}, threads=BYTE_THREADS,
)  # fmt: skip
INTEGERS = _kernel("each", "quantized_conv_each<{T}, {W}>", _INTEGERS, {"W": BYTES})
FP8_NATIVE = _kernel("mma", "scaled_conv_mma<{T}, {T}, true, {SIZE}>", _FP8, _TILES, threads=BYTE_THREADS)
FP8_TILES = _kernel("mma", "scaled_conv_mma<{T}, {W}, false, {SIZE}>", _FP8, {"W": FP8, **_TILES}, threads=BYTE_THREADS)
_WGMMA: dict[str, Any] = {"threads": WGMMA_THREADS, "min_blocks": 1}
_PANELS = {"COLS": WGMMA_COLS}
_WARPGROUPS = "conv/quantized_conv_wgmma.cu"
INTEGER_WGMMA = _kernel(
    "wgmma", "quantized_conv_wgmma<{T}, {W}, {COLS}>", _WARPGROUPS, {"W": BYTES, **_PANELS}, **_WGMMA
)
FP8_WGMMA = _kernel("wgmma", "scaled_conv_wgmma<{T}, {W}, {COLS}>", _WARPGROUPS, {"W": FP8, **_PANELS}, **_WGMMA)
_FP8_COLS = (128, 64)  # whose sums have room for those of a slice beside them
_BOX: dict[str, Any] = {
    "params": BOX_CODES, "source": "conv/quantized_conv_boxes.cu", "threads": BOX_THREADS, "min_blocks": 1,
    "kindless": True,
}  # fmt: skip
INTEGER_BOXES = Kernel(
    "boxes", "quantized_conv_boxes<{T}, {W}, {COLS}>", axes={"W": BYTES, "COLS": (256, 128, 64)}, **_BOX
)  # fmt: skip
FP8_BOXES = Kernel("boxes", "scaled_conv_boxes<{T}, {W}, {COLS}>", axes={"W": FP8, "COLS": _FP8_COLS}, **_BOX)
INTEGER_WARPGROUPS = (INTEGER_BOXES, INTEGER_WGMMA, SUMS, PACK_BYTES)
FP8_WARPGROUPS = (FP8_BOXES, FP8_WGMMA, PACK_BYTES)
FP8_EACH = _kernel("each", "scaled_conv_each<{T}, {W}>", _FP8, {"W": FP8})
INTEGER_MMA, FP8_MMA_NATIVE, FP8_MMA = (
    (INTEGER_TILES, SUMS, PACK_BYTES),
    (FP8_NATIVE, PACK_BYTES),
    (FP8_TILES, PACK_BYTES),
)


def longest(desc: Any) -> int:
    """The most terms of which every sum, of x with its zero point too, fits 32 bits."""
    sizes = [255 if kind is E.U8 else 128 for kind in (desc.element, desc.w_element)]
    return (2**31 - 1) // (sizes[0] * sizes[1])


class CodeLaunches(Launches):
    """Collects those of a convolution of elements of 8 bits; native: whose tensor cores take one element alone."""

    def __init__(self, p: Problem, native: bool, warpgroups: bool) -> None:
        super().__init__(p, warpgroups)
        self.native = native

    def tile(self, size: int, blocks: int, params: Mapping[str, Any], _: bool = False) -> Step:
        """The launch of a product, behind that of the filters' sums where there is a zero point."""
        w = {} if self.native else {"W": self.p.desc.w_element}
        params = self.summed(params, w)
        if self.warpgroups:
            return Step("wgmma", (blocks, 1, 1), params, {"COLS": size, **w}, WGMMA_THREADS, wgmma_bytes(size))
        shared = BYTE_STAGES * 2 * size * BYTE_DEPTH
        return Step("mma", (blocks, 1, 1), params, {"SIZE": size, **w}, BYTE_THREADS, shared)

    def boxes(self, conv: Convolution, x: Field, w: tuple[Place, Six], params: Mapping[str, Any]) -> Step | None:
        """The launch by boxes, likewise."""
        if self.p.views.get("zero_x") is not None and not conv.inside:
            return None
        widths = _FP8_COLS if self.element in FP8 else (256, 128, 64)
        step = tile_step(conv, x, w, params, self.element, self.p.device.sms, widths)
        if step is None:
            return None
        other = {"W": self.p.desc.w_element}
        return replace(step, params=self.summed(step.params, other), axes={**step.axes, **other})

    def summed(self, params: Mapping[str, Any], w: Mapping[str, Any]) -> Mapping[str, Any]:
        """The parameters, with the filters' sums where there is a zero point."""
        if self.p.views.get("zero_x") is not None:
            outputs = params["groups"] * params["cols"]
            places = {"w_sums": self.reserve(4 * outputs).slot, "none": self.reserve(16).slot}
            params = {**params, **places}
            own = {name: value for name, value in params.items() if name not in BOX_FIELDS}
            self.steps.append(Step(SUMS.name, (-(-outputs * 32 // THREADS), 1, 1), own, w, THREADS))
        return params

    def each_output(
        self, conv: Convolution, x: Field, w: Filter, values: Mapping[str, Any], inner: bool
    ) -> str | None:  # fmt: skip
        """A thread for each output of a phase."""
        blocks = -(-conv.rows * conv.cols * conv.groups // THREADS)
        if blocks >= 2**31:
            return f"needs {blocks} blocks, a grid has 2**31 - 1"
        params = conv.values() | {"x": x.place.slot, "x_steps": x.steps, "w": "w", "w_steps": w.steps}
        params |= {**values, "w_start": w.start, "channels_inner": inner}
        if blocks:
            self.steps.append(Step("each", (blocks, 1, 1), params, {"W": self.p.desc.w_element}, THREADS))
        return None


def _values(p: Problem, conv: Convolution) -> dict[str, Any]:
    """Fields of `CODES` for what is done with the sums."""
    y = field_of("y", p.y, len(p.desc.kernel_size), conv.cols)
    found: dict[str, Any] = {name: "@null" if p.views.get(name) is None else name for name in _VECTORS}

    def step(name: str) -> int:
        view = p.views.get(name)
        return 0 if view is None or view.shape in ((), (1,)) else view.strides[0]

    def pieces(name: str) -> bool:
        view = p.views.get(name)
        return view is not None and conv.cols % 8 == 0 and step(name) == 1 and bool(view.ptr % 16 == 0)

    wide = in_pieces(y, conv, False) | pieces("scale_w") << 1 | pieces("bias") << 2
    return found | {
        "y": "y", "y_steps": [y.steps, (0,) * 6, (0,) * 6], "wide": wide, "w_sums": "@null",
        "none": "@null", "scale_step": step("scale_w"), "zero_step": step("zero_w"), "bias_step": step("bias"),
        "bias": "@null" if p.bias is None else "bias",
        "bias_whole": p.bias is not None and p.bias.element is E.I32, "out": OUTPUTS.index(p.desc.out_element),
        "is_unsigned": (p.desc.element is E.U8) | (p.desc.w_element is E.U8) << 1,
        "activation": ACTIVATIONS.index(p.desc.activation),
    }  # fmt: skip


def forward(tensor_cores: bool, native: bool = False, warpgroups: bool = False) -> Callable[[Problem], Geometry | str]:
    """The geometry of a row."""

    def geometry(p: Problem) -> Geometry | str:
        conv, launches = convolution_of(p.desc), CodeLaunches(p, native, warpgroups)
        rank = len(p.desc.kernel_size)
        if tensor_cores and p.views.get("zero_w") is not None:
            return "zero points of w are for threads"
        x, values = field_of("x", p.x, rank, conv.channels), _values(p, conv)
        if tensor_cores and conv.few:
            return "groups of few channels are for threads"
        if tensor_cores and conv.rows and conv.cols:
            x = launches.ready(x, conv)
        launch = launches.product if tensor_cores else launches.each_output
        why = launches.by_phases(launch, conv, x, filter_of(p.w, conv), values, channels_inner(p.y, rank))
        return why or launches.geometry()

    return geometry
