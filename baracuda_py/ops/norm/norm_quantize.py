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
    Problem, Relative, Scalar, Step, Variant, choice, extents, flag, functional, number, operand, output, scalar,
)  # fmt: skip
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import cast as cast_values
from ...core.keywords import entry, unexpected
from ...schedules.geometry import grid
from ...schedules.norms import affine_element, affine_elements, infer_normalized_shape
from ...schedules.rows import merge_rows, row_params

E = ElementKind
TARGETS = (E.FP8E4M3, E.FP8E5M2, E.I8)
SOURCES = (E.F32, E.F16, E.BF16)
THREADS = 256
_LEAST = 2.0**-126  # of a scale: below it float32 has few digits
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
        if self.kind is K.LAYER_NORM and self.weight_offset:
            raise InvalidProblemError(
                f"weight_offset is of rms_norm; for layer_norm it must be 0, got {self.weight_offset}"
            )

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


def _normalized(desc: NormQuantizeDescriptor, h: Any, weight: Any, bias: Any) -> Any:
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
        u = single(_normalized(desc, h, weight, None if desc.kind is K.RMS_NORM else bias))
        if desc.static:
            factor = np.broadcast_to(single(x.dtype.type(scale)), (*desc.batch_shape, *(1 for _ in axes)))
        else:
            most = np.max(np.abs(u), axis=axes, keepdims=True, initial=0)
            factor = single(np.where(most / largest < _LEAST, _LEAST, most / largest))
        y = single(u / factor)
        if desc.to_element is E.I8:
            y = np.where(np.isnan(y), 0, np.clip(np.rint(y), -128, 127))
        else:
            y = np.clip(y, -largest, largest)
    return {"y": y, "scales": factor.reshape(desc.batch_shape), "h": h}


PARAMS = Params(
    "NormQuantizeParams", y="ptr", x="ptr", weight="ptr", bias="ptr", residual="ptr", h="ptr", scales="ptr",
    scale="scalar", eps="f64", **row_params(6), code="i32", is_static="i32", wide="i32", largest="f32",
    weight_offset="f32",
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc, width, shape = p.desc, 16 // p.desc.element.itemsize, p.x.shape
    inner = [None if v is None else v.broadcast_to(shape) for v in (p.weight, p.bias)]
    found = merge_rows((p.y, p.x, *inner, p.residual, p.h), len(desc.batch_shape))
    if isinstance(found, str):
        return found
    wide = found.run and found.cols % width == 0 and found.access(width)
    values = {
        **found.params(), "eps": desc.eps, "code": TARGETS.index(desc.to_element), "is_static": desc.static,
        "wide": desc.weight_element is not desc.element, "largest": desc.to_element.limits.max,
        "weight_offset": desc.weight_offset,
    }  # fmt: skip
    step = Step("rows", grid(found.rows), values, {"WIDE": wide}, THREADS)
    return Geometry((step,), layout=found.layout_class)


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
        factor = (u.abs().amax(axes, keepdim=True) / largest).clamp(min=_LEAST).float().to(h.dtype)
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
            kernels=(
                Kernel("rows", f"norm_quantize<{{T}}, {{KIND}}, {THREADS}, {{WIDE}}>", PARAMS, {"WIDE": (True, False)},
                       threads=THREADS),
            ),
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
        cols = draw.sizes(1, 7, 8, 33, 64, 257, 1000, 2048, 4100, 0)
        normalized = draw.choice(((cols,), (2, 3, 4)))
        return NormQuantizeDescriptor(
            kind=draw.kind, batch_shape=draw.shape(0, 3, 0, 5), normalized_shape=normalized, element=draw.element,
            eps=draw.number(1e-8, 1e-2), static=draw.flag(), to_element=draw.choice(TARGETS),
            weight_offset=draw.choice((0.0, 1.0)) if rms else 0.0,
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


_rms = functional(NormQuantizePlan, kind=K.RMS_NORM)
_layer = functional(NormQuantizePlan, kind=K.LAYER_NORM)


@entry(NormQuantizePlan, kind=K.RMS_NORM)
def rms_norm_quantize(
    x: Array, weight: Array | None = None, residual: Array | None = None, *, scale: Scalar = None,
    to_element: Any = "float8_e4m3fn", normalized_shape: Any = None, eps: float = 1e-6, weight_offset: float = 0.0,
    return_h: bool = False, out: Any = None, stream: Any = None, preference: Any = None, **unknown: Any,
) -> Any:  # fmt: skip
    """(y, scales): rms_norm(x + residual) in 8 bits with a scale for each row; see `NormQuantizePlan`.

    With `scale`, a number or a 0-d array, that is the scale of all rows, and y alone is returned. return_h: also
    x + residual, last. to_element: float8_e4m3fn, float8_e5m2 or int8.
    """
    if unknown:
        raise unexpected(rms_norm_quantize, unknown)
    given = {} if normalized_shape is None else {"normalized_shape": normalized_shape}
    return _rms(
        x, weight, None, residual, eps=eps, weight_offset=weight_offset, to_element=to_element,
        static=scale is not None, scale=1.0 if scale is None else scale, return_scales=scale is None,
        return_h=return_h, out=out, stream=stream, preference=preference, **given,
    )  # fmt: skip


@entry(NormQuantizePlan, kind=K.LAYER_NORM)
def layer_norm_quantize(
    x: Array, weight: Array | None = None, bias: Array | None = None, residual: Array | None = None, *,
    scale: Scalar = None, to_element: Any = "float8_e4m3fn", normalized_shape: Any = None, eps: float = 1e-5,
    return_h: bool = False, out: Any = None, stream: Any = None, preference: Any = None, **unknown: Any,
) -> Any:  # fmt: skip
    """(y, scales): layer_norm(x + residual) in 8 bits with a scale for each row; see `rms_norm_quantize`."""
    if unknown:
        raise unexpected(layer_norm_quantize, unknown)
    given = {} if normalized_shape is None else {"normalized_shape": normalized_shape}
    return _layer(
        x, weight, bias, residual, eps=eps, to_element=to_element, static=scale is not None,
        scale=1.0 if scale is None else scale, return_scales=scale is None, return_h=return_h, out=out, stream=stream,
        preference=preference, **given,
    )  # fmt: skip
