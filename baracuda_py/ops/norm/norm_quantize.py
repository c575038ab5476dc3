"""norm_quantize: residual add, RMS or layer norm, and a result in 8 bits with a scale, for the product that follows."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, PerOutput, Plan,
    Problem, Relative, Scalar, Step, Variant, View, choice, extents, flag, number, operand, output,
    scalar,
)  # fmt: skip
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import cast as cast_values
from ...schedules.geometry import grid
from ...schedules.norms import affine_element, affine_elements, infer_normalized_shape
from ...schedules.rows import merge_rows, row_params

E = ElementKind
TARGETS = (E.FP8E4M3, E.FP8E5M2, E.I8)
SOURCES = (E.F32, E.F16, E.BF16)
LANES = ((32, 4), (128, 4), (512, 4))
"""Threads of a row, and the chunks of 16 bytes that each of them holds, by growing row; the last take any row."""
LEAST_SCALE = 2.0**-126  # below it float32 has few digits
_X = "*batch_shape *normalized_shape"


class NormQuantizeKind(enum.Enum):
    """What is normalised by what."""

    RMS_NORM = "rms_norm"
    LAYER_NORM = "layer_norm"

    @property
    def cpp(self) -> str:
        """Whether the mean is subtracted, in C++."""
        return "true" if self is NormQuantizeKind.LAYER_NORM else "false"


K = NormQuantizeKind


def without_offset(desc: Any) -> None:
    """Refuses a weight_offset of layer norm."""
    if desc.kind is K.LAYER_NORM and desc.weight_offset:
        raise InvalidProblemError(
            f"weight_offset is of rms_norm; for layer_norm it must be 0, got {desc.weight_offset}"
        )


@dataclass(frozen=True, kw_only=True)
class NormQuantizeDescriptor(Descriptor):
    """x has shape (*batch_shape, *normalized_shape); y holds `to_element`.

    static: the scale is the operand `scale`, the same for all rows; else each row has its own. weight_element and
    weight_offset are as in `RMSNormDescriptor`; layer norm has no offset.
    """

    kind: NormQuantizeKind = choice(NormQuantizeKind)
    batch_shape: tuple[int, ...] = extents()
    normalized_shape: tuple[int, ...] = extents()
    eps: float = number(1e-6, minimum=0.0)
    weight_offset: float = number(0.0)
    static: bool = flag(False)
    to_element: ElementKind = element_field(TARGETS, E.FP8E4M3)
    weight_element: ElementKind = affine_element()
    element: ElementKind = element_field(SOURCES)

    def validate(self) -> None:
        without_offset(self)

    @property
    def aux_element(self) -> ElementKind:
        """The second element of the SKU."""
        return self.to_element


@dataclass(slots=True, kw_only=True)
class NormQuantizeArgs(Args):
    """Any strides of x, residual, h, weight, bias and y (float8 travels as uint8); scales are float32 and dense."""

    x: Array = operand(_X)
    weight: Array | None = operand("*normalized_shape", element="weight_element", optional=True)
    bias: Array | None = operand("*normalized_shape", element="weight_element", optional=True)
    residual: Array | None = operand(_X, optional=True)
    y: Array = output(_X, element="to_element")
    scales: Array | None = output("*batch_shape", element=E.F32, optional=True, layout="dense")
    h: Array | None = output(_X, optional=True, inplace=("x", "residual"), needs="residual")
    scale: Scalar = scalar(1.0)


def normalized(desc: Any, h: Any, weight: Any, bias: Any) -> Any:
    """u in the dtype h comes in, whose range its squares stay in."""
    axes = tuple(range(len(desc.batch_shape), h.ndim))
    count = h.dtype.type(max(math.prod(desc.normalized_shape), 1))
    top = np.max(np.abs(h), axis=axes, keepdims=True, initial=h.dtype.type(math.sqrt(desc.eps)))
    factor = np.ldexp(h.dtype.type(1), -np.frexp(np.where(np.isfinite(top), top, 1))[1])
    z = h * factor
    if desc.kind is K.LAYER_NORM:
        z = z - np.sum(z, axis=axes, keepdims=True) / count
    variance = np.sum(z * z, axis=axes, keepdims=True) / count + h.dtype.type(desc.eps) * factor * factor
    u = z / np.sqrt(variance)
    u = u if weight is None else u * (weight + h.dtype.type(desc.weight_offset))
    return u if bias is None else u + bias


def reference(
    desc: NormQuantizeDescriptor, *, x: Any, weight: Any, bias: Any, residual: Any, scale: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in; h is rounded to the element, u, the scale and the quotient are float32 numbers."""
    h = x if residual is None else cast_values(x + residual, desc.element).astype(x.dtype)
    axes, largest = tuple(range(len(desc.batch_shape), h.ndim)), desc.to_element.limits.max

    def single(value: Any) -> Any:
        return cast_values(np.asarray(value), E.F32).astype(x.dtype)

    with np.errstate(all="ignore"):
        u = single(normalized(desc, h, weight, None if desc.kind is K.RMS_NORM else bias))
        if desc.static:
            factor = np.broadcast_to(single(x.dtype.type(scale)), (*desc.batch_shape, *(1 for _ in axes)))
        else:
            most = np.max(np.abs(u), axis=axes, keepdims=True, initial=0)
            factor = single(np.where(most / largest < LEAST_SCALE, LEAST_SCALE, most / largest))
        y = single(u / factor)
        if desc.to_element is E.I8:
            y = np.where(np.isnan(y), 0, np.clip(np.rint(y), -128, 127))
        else:
            y = np.clip(y, -largest, largest)
    return {"y": y, "scales": factor.reshape(desc.batch_shape), "h": h}


PARAMS = Params(
    "NormQuantizeParams", y="ptr", x="ptr", weight="ptr", bias="ptr", residual="ptr", h="ptr", scales="ptr",
    scale="scalar", eps="f64", **row_params(6), code="i32", scale_code="i32", block="i32", is_static="i32", wide="i32",
    largest="f32", weight_offset="f32",
)  # fmt: skip


def row_geometry(p: Problem, y: View, values: Mapping[str, Any]) -> Geometry | str:
    """A launch for rows of x and of y, which is p.y, or what stands for it."""
    desc, width, shape = p.desc, 16 // p.desc.element.itemsize, p.x.shape
    inner = [None if v is None else v.broadcast_to(shape) for v in (p.weight, p.bias)]
    found = merge_rows((y, p.x, *inner, p.residual, p.h), len(desc.batch_shape))
    if isinstance(found, str):
        return found
    wide, chunks = found.run and found.cols % width == 0 and found.access(width), -(-found.cols // width)
    lanes, held = next((one for one in LANES if chunks <= one[0] * one[1]), (LANES[-1][0], 0))
    given = {
        **found.params(), "eps": desc.eps, "wide": desc.weight_element is not desc.element,
        "largest": desc.to_element.limits.max, "weight_offset": desc.weight_offset, **values,
    }  # fmt: skip
    kernel, threads = f"rows_{lanes}x{held}" if wide else f"rows_{lanes}_any", max(lanes, 128)
    step = Step(kernel, grid(-(-found.rows // (threads // lanes))), given, {}, threads)
    return Geometry((step,), layout=found.layout_class)


def row_kernels(blocks: bool) -> tuple[Kernel, ...]:
    """Rows held, rows read again, and rows of any strides, whose sums have the same order.

    The last two have registers for one block a multiprocessor named, without which the assembler spills.
    """
    made = []
    for lanes, held, wide in (
        *((*one, True) for one in LANES),
        (LANES[-1][0], 0, True),
        *((n, 0, False) for n, _ in LANES),
    ):
        call = f"norm_quantize<{{T}}, {{KIND}}, {lanes}, {held}, {str(wide).lower()}, {str(blocks).lower()}>"
        name = f"rows_{lanes}x{held}" if wide else f"rows_{lanes}_any"
        few = lanes == LANES[-1][0] or not wide
        made.append(Kernel(name, call, PARAMS, threads=max(lanes, 128), min_blocks=int(few)))
    return tuple(made)


def _geometry(p: Problem) -> Geometry | str:
    code = TARGETS.index(p.desc.to_element)
    return row_geometry(p, p.y, {"code": code, "is_static": p.desc.static, "scale_code": 0, "block": 0})


def in_torch(
    torch: Any, desc: NormQuantizeDescriptor, *, x: Any, weight: Any, bias: Any, residual: Any, scale: Any,
    wanted: set[str],
) -> Any:  # fmt: skip
    """torch's norm and the formula; y before it is rounded."""
    if not desc.normalized_shape or 0 in (*desc.batch_shape, *desc.normalized_shape):
        return NotImplemented
    stored, functions = getattr(torch, str(desc.element)), torch.nn.functional
    h = x if residual is None else (x + residual).to(stored).to(x.dtype)
    if desc.kind is K.RMS_NORM:
        weight = None if weight is None else weight + desc.weight_offset
        u = functions.rms_norm(h, desc.normalized_shape, weight, desc.eps)
    else:
        u = functions.layer_norm(h, desc.normalized_shape, weight, bias, desc.eps)
    u, largest = u.float().to(h.dtype), desc.to_element.limits.max
    axes = tuple(range(len(desc.batch_shape), h.ndim))
    if desc.static:
        factor = torch.full((*desc.batch_shape, *(1 for _ in axes)), float(scale), dtype=h.dtype, device=h.device)
    else:
        factor = (u.abs().amax(axes, keepdim=True) / largest).clamp(min=LEAST_SCALE).float().to(h.dtype)
    y = (u / factor).float().to(h.dtype)
    y = y.round().clamp(-128, 127) if desc.to_element is E.I8 else y.clamp(-largest, largest)
    return {"y": y, "scales": factor.reshape(desc.batch_shape), "h": h}


class NormQuantizePlan(Plan):
    """y = u / scale in 8 bits, u = rms_norm or layer_norm of h = x + residual, one launch.

    u is in float32 and never rounded to the element. scale is max |u| / largest of each row, at least 2⁻¹²⁶ (`largest`
    is 448, 57344 or 127), and comes back as `scales`; or (`static`) a number for all rows. y is rounded to nearest,
    ties to even, and saturates; y · scales[..., None] is u but for that. As float8 a NaN of x makes its row NaN, as
    int8 it is 0. There is no gradient: take that of the norm.
    """

    op = "norm.norm_quantize"
    kinds = NormQuantizeKind
    descriptor = NormQuantizeDescriptor
    args = NormQuantizeArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "rows", _geometry, source="norm/norm_quantize.cu", elements=SOURCES,
            kernels=row_kernels(False),
            guarantee=Guarantee(
                PerOutput((("y", Relative(2)), ("scales", Relative(2)), ("h", Relative(2)))), batch_invariant=True
            ),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("rms [32768, 4096] bf16 to e4m3", kind="rms_norm", batch_shape=32768, normalized_shape=4096,
                  element="bfloat16", also=("weight", "residual", "h", "scales"), peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> NormQuantizeDescriptor:
        rms = draw.kind is K.RMS_NORM
        cols = draw.sizes(1, 7, 8, 33, 64, 257, 1000, 2048, 4100, 0, rare=(2056, 8192, 20000))
        return NormQuantizeDescriptor(
            kind=draw.kind, batch_shape=draw.shape(0, 3, 0, 5 if cols < 5000 else 2),
            normalized_shape=draw.choice(((cols,), (2, 3, 4))), element=draw.element, eps=draw.number(1e-8, 1e-2),
            static=draw.flag(), to_element=draw.choice(TARGETS), weight_offset=draw.choice((0.0, 1.0)) if rms else 0.0,
            weight_element=draw.choice(affine_elements(draw.element)),
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        arrays["scale"] = 0.03125
        if desc.kind is K.RMS_NORM:
            arrays["bias"] = None

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        if desc.kind is K.RMS_NORM and views["bias"] is not None:
            raise InvalidProblemError("bias must be None: rms_norm has none")

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        infer_normalized_shape(shapes, facts)
