"""fp8_scale_update: the scales of a step from the largest sizes of the steps before it, for many tensors at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Ulp, Variant,
    choice, extent, inout, integer,
)  # fmt: skip
from ...calls.functional import functional
from ...core import element as element_field
from ...core.benchmark import Benchmark
from ...core.element import FP8

E = ElementKind
MAX, NEWEST = "max", "most_recent"
_COLUMNS = 32  # tensors of a block


@dataclass(frozen=True, kw_only=True)
class Fp8ScaleUpdateDescriptor(Descriptor):
    """history is [slots, tensors]; scale and scale_inv have one number a tensor.

    to_element: the format that is scaled to. algorithm: amax is the largest of the history ("max") or what slot 0 has
    ("most_recent"). margin: scales are 2^-margin of what would fill the range.
    """

    slots: int = extent(minimum=1)
    tensors: int = extent()
    algorithm: str = choice((MAX, NEWEST), MAX)
    margin: int = integer(0, minimum=-64, maximum=64)
    to_element: ElementKind = element_field(FP8, E.FP8E4M3)
    element: ElementKind = element_field((E.F32,), E.F32)


@dataclass(slots=True, kw_only=True)
class Fp8ScaleUpdateArgs(Args):
    """Any strides, float32. What casts found in this step is in slot 0; sizes are not negative."""

    history: Array = inout("slots tensors", values=(0.0, 100.0))
    scale: Array = inout("tensors", values=(0.25, 4.0))
    scale_inv: Array = inout("tensors", values=(0.25, 4.0))


def reference(desc: Fp8ScaleUpdateDescriptor, *, history: Any, scale: Any, scale_inv: Any) -> Mapping[str, Any]:
    """NumPy in the dtype the operands come in."""
    real = history.dtype.type
    with np.errstate(all="ignore"):
        amax = np.max(history, axis=0) if desc.algorithm == MAX else history[0]
        usual = (amax > 0) & np.isfinite(amax)
        found = np.ldexp(real(desc.to_element.limits.max) / np.where(usual, amax, real(1)), -desc.margin)
        found = np.minimum(found, real(E.F32.limits.max))
        moved = np.concatenate([history[1:], history[:1]])
        moved[0] = 0
        inverse = np.where(usual, real(1) / found, scale_inv)
        return {"history": moved, "scale": np.where(usual, found, scale), "scale_inv": inverse}


PARAMS = Params(
    "Fp8ScaleUpdateParams", history="ptr", scale="ptr", scale_inv="ptr", slots="i64", tensors="i64",
    history_strides="i64[2]", scale_stride="i64", inverse_stride="i64", newest="i32", margin="i32", largest="f32",
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    values = {
        "slots": desc.slots, "tensors": desc.tensors, "history_strides": p.history.strides,
        "scale_stride": p.scale.strides[0], "inverse_stride": p.scale_inv.strides[0],
        "newest": desc.algorithm == NEWEST, "margin": desc.margin, "largest": desc.to_element.limits.max,
    }  # fmt: skip
    layout = "contiguous" if all(v.dense for v in p.flat()) else "strided"
    step = Step("update", (max(1, -(-desc.tensors // _COLUMNS)), 1, 1), values)
    return Geometry((step,), layout=layout)


def in_torch(torch: Any, desc: Fp8ScaleUpdateDescriptor, *, history: Any, scale: Any, scale_inv: Any) -> Any:
    """The steps of Transformer Engine's update, one after another."""
    if not desc.tensors:
        return NotImplemented
    amax = history.amax(0) if desc.algorithm == MAX else history[0]
    found = desc.to_element.limits.max / amax * 2.0**-desc.margin
    found = torch.where((amax > 0) & torch.isfinite(amax), found.clamp(max=float(E.F32.limits.max)), scale)
    inverse = torch.where((amax > 0) & torch.isfinite(amax), 1 / found, scale_inv)
    moved = torch.roll(history, -1, 0).clone()
    moved[0] = 0
    return {"history": moved, "scale": found, "scale_inv": inverse}


class Fp8ScaleUpdatePlan(Plan):
    """scale = largest / amax · 2^-margin and scale_inv = 1 / scale of all tensors; the history goes on by a slot.

    Delayed scaling as NVIDIA's Transformer Engine documents it (`DelayedScaling`): amax is the largest of a tensor's
    history or its newest number, `largest` 448 of float8_e4m3fn and 57344 of float8_e5m2. Where amax is 0, infinite or
    NaN the old scale stays; a scale beyond float32 is its largest number. Then slot i takes what slot i + 1 had, the
    last slot what slot 0 had, and slot 0 becomes 0, for the casts of the next step to raise. One launch, in place.
    """

    op = "quantize.fp8_scale_update"
    descriptor = Fp8ScaleUpdateDescriptor
    args = Fp8ScaleUpdateArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "columns", _geometry, source="quantize/fp8_scale_update.cu", elements=(E.F32,),
            kernels=(Kernel("update", "fp8_scale_update", PARAMS),),
            guarantee=Guarantee(Ulp(1.51), batch_invariant=True),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (Benchmark("[1024, 512]", slots=1024, tensors=512, element="float32", target=None, peers=()),)

    @staticmethod
    def case(draw: Any) -> Fp8ScaleUpdateDescriptor:
        return Fp8ScaleUpdateDescriptor(
            slots=draw.sizes(1, 2, 7, 8, 17), tensors=draw.sizes(1, 3, 0, 40), algorithm=draw.choice((MAX, NEWEST)),
            margin=draw.integer(-2, 3), to_element=draw.choice(FP8),
        )  # fmt: skip


fp8_scale_update = functional(Fp8ScaleUpdatePlan)
