"""norm_cast_transpose: RMS or layer norm as fp8 by a given scale, and its transpose, for the product that follows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, PerOutput, Plan,
    Problem, Relative, Scalar, Step, Ulp, Variant, choice, extents, inout, number, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import FP8
from ...core.variant import aligned
from ...schedules.geometry import grid
from ...schedules.norms import affine_element, affine_elements
from ...schedules.rows import row_params
from ..quantize.fp8_cast import WIDE, cast_in_torch, raised, scaled, single
from ..quantize.fp8_cast_transpose import TURNED, CastTransposed, turning
from .norm_quantize import NormQuantizeKind, normalized, without_offset

E, K = ElementKind, NormQuantizeKind
LANES = (32, 256)
"""Threads of a row by growing row; a warp takes up to 8 chunks of 16 bytes a thread."""


@dataclass(frozen=True, kw_only=True)
class NormCastTransposeDescriptor(CastTransposed, Descriptor):
    """x and y have shape `shape` (*lead, cols), yt (cols, product of lead); y and yt hold `to_element`.

    The last axis is normalised. weight_element and weight_offset are as in `RMSNormDescriptor`; layer norm has no
    offset.
    """

    kind: NormQuantizeKind = choice(NormQuantizeKind)
    shape: tuple[int, ...] = extents()
    eps: float = number(1e-6, minimum=0.0)
    weight_offset: float = number(0.0)
    to_element: ElementKind = element_field(FP8, E.FP8E4M3)
    weight_element: ElementKind = affine_element()
    element: ElementKind = element_field(WIDE)

    def validate(self) -> None:
        super().validate()
        without_offset(self)

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """The shape of mean and rstd."""
        return self.shape[:-1]

    @property
    def normalized_shape(self) -> tuple[int, ...]:
        return self.shape[-1:]


@dataclass(slots=True, kw_only=True)
class NormCastTransposeArgs(Args):
    """Any strides of x, weight, bias, y and yt, which travel as uint8 or in a dtype of fp8.

    amax and scale are as in `Fp8CastArgs`. mean, of rms_norm 0, and rstd are what the backward of the norm takes.
    """

    x: Array = operand("*shape")
    weight: Array | None = operand("cols", element="weight_element", optional=True)
    bias: Array | None = operand("cols", element="weight_element", optional=True)
    amax: Array | None = inout("", element=E.F32, optional=True, values=(0.0, 4.0))
    y: Array = output("*shape", element="to_element")
    yt: Array = output("cols rows", element="to_element")
    mean: Array | None = output("*batch_shape", element=E.F32, optional=True, layout="dense")
    rstd: Array | None = output("*batch_shape", element=E.F32, optional=True, layout="dense")
    scale: Scalar = scalar(1.0)


def _statistics(desc: NormCastTransposeDescriptor, x: Any) -> dict[str, Any]:
    """mean and rstd of rows in the range of their own."""
    count, top = x.dtype.type(max(desc.cols, 1)), np.max(np.abs(x), axis=-1, initial=math.sqrt(desc.eps))
    factor = np.ldexp(x.dtype.type(1), -np.frexp(np.where(np.isfinite(top), top, 1))[1])
    z = x * factor[..., None]
    mean = np.sum(z, -1) / count if desc.kind is K.LAYER_NORM else np.zeros_like(factor)
    variance = np.sum(np.square(z - mean[..., None]), -1) / count
    return {"mean": mean / factor, "rstd": factor / np.sqrt(variance + x.dtype.type(desc.eps) * factor * factor)}


def reference(
    desc: NormCastTransposeDescriptor, *, x: Any, weight: Any, bias: Any, amax: Any, scale: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in; the norm and the product with the scale are float32 numbers."""
    with np.errstate(all="ignore"):
        u = single(normalized(desc, x, weight, bias), x.dtype)
        found = _statistics(desc, x) if {"mean", "rstd"} & wanted else {}
    y = scaled(desc, u, scale)
    return {"y": y, "yt": np.array(y.reshape(desc.rows, desc.cols).T), **raised(amax, u), **found}


PARAMS = Params(
    "NormCastParams", y="ptr", yt="ptr", x="ptr", weight="ptr", bias="ptr", amax="ptr", mean="ptr", rstd="ptr",
    centres="ptr", scale="scalar", eps="f64", weight_offset="f32", wide="i32", **row_params(4), **TURNED,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    values = {
        "centres": ("@workspace", 0), "eps": desc.eps, "weight_offset": desc.weight_offset,
        "wide": desc.weight_element is not desc.element,
    }  # fmt: skip
    affine = (None if one is None else one.broadcast_to(desc.shape) for one in (p.weight, p.bias))
    found = turning(p, values, (p.y, p.x, *affine))
    if isinstance(found, str):
        return found
    (tiles, layout), width = found, 16 // desc.element.itemsize
    lanes = LANES[desc.cols > 8 * LANES[0] * width]
    threads = max(lanes, 128)
    blocks = grid(max(1, -(-desc.rows // (threads // lanes))))
    first = Step(f"statistics_{lanes}", blocks, tiles.params, tiles.axes, threads)
    return Geometry((first, tiles), aligned(16 * max(desc.rows, 1)), layout)


def in_torch(
    torch: Any, desc: NormCastTransposeDescriptor, *, x: Any, weight: Any, bias: Any, amax: Any, scale: Any,
    wanted: set[str],
) -> Any:  # fmt: skip
    """torch's norm and the formula; y and yt before they are rounded."""
    if 0 in desc.shape or wanted & {"mean", "rstd"}:
        return NotImplemented
    functions = torch.nn.functional
    if desc.kind is K.RMS_NORM:
        weight = None if weight is None else weight + desc.weight_offset
        u = functions.rms_norm(x, desc.normalized_shape, weight, desc.eps)
    else:
        u = functions.layer_norm(x, desc.normalized_shape, weight, bias, desc.eps)
    made = cast_in_torch(torch, desc, u.float().to(x.dtype), amax, scale)
    return {**made, "yt": made["y"].reshape(desc.rows, desc.cols).T}


class NormCastTransposePlan(Plan):
    """y = u · scale as fp8, yt = y transposed, amax = max(amax, |u|), u = rms_norm or layer_norm of x: two launches.

    u is in float32 and never rounded to the element; rounding, saturation and amax are those of `Fp8CastPlan`. NVIDIA's
    Transformer Engine does the same before a linear layer, whose dW wants the transpose. There is no gradient: that of
    the norm takes x, mean and rstd. A NaN of x makes its row, and amax, NaN.
    """

    op = "norm.norm_cast_transpose"
    kinds = NormQuantizeKind
    descriptor = NormCastTransposeDescriptor
    args = NormCastTransposeArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "tiles", _geometry, source="norm/norm_cast_transpose.cu", elements=WIDE,
            kernels=(
                *(Kernel(f"statistics_{n}", f"norm_cast_statistics<{{T}}, {{KIND}}, {n}, {{WIDE}}>", PARAMS,
                         {"WIDE": (True, False)}, threads=max(n, 128), min_blocks=1) for n in LANES),
                Kernel("tiles", "norm_cast_transpose<{T}, {KIND}, {WIDE}>", PARAMS, {"WIDE": (True, False)}),
            ),
            guarantee=Guarantee(PerOutput((
                ("y", Relative(2)), ("yt", Relative(2)), ("amax", Ulp(24)), ("mean", Relative(2)), ("rstd", Relative(2))
            ))),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("rms [32768, 4096] bf16 to e4m3", kind="rms_norm", shape=(32768, 4096), element="bfloat16",
                  also=("weight", "amax", "rstd"), peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> NormCastTransposeDescriptor:
        shape = (*draw.shape(0, 2, 0, 5), draw.sizes(1, 5, 16, 48, 64, 130, 0, rare=(1100, 2064)))
        if draw.flag():
            shape = (draw.choice((16, 48, 80)), draw.sizes(16, 64, 144, rare=(2064,)))
        return NormCastTransposeDescriptor(
            kind=draw.kind, shape=shape, eps=draw.number(1e-8, 1e-2), element=draw.element,
            to_element=draw.choice(FP8), weight_offset=draw.choice((0.0, 1.0)) if draw.kind is K.RMS_NORM else 0.0,
            weight_element=draw.choice(affine_elements(draw.element)),
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        arrays["scale"] = 0.75
        if desc.kind is K.RMS_NORM:
            arrays["bias"] = None

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        if desc.kind is K.RMS_NORM and views["bias"] is not None:
            raise InvalidProblemError("bias must be None: rms_norm has none")

    @classmethod
    def bytes(cls, desc: Any) -> int:
        """Of x read once, and both codes."""
        return int(desc.rows * desc.cols * (desc.element.itemsize + 2))


norm_cast_transpose = functional(NormCastTransposePlan)
