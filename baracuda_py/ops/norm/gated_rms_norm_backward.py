"""gated_rms_norm_backward: the gradients of gated_rms_norm in x, the gate and the weight; nothing is saved for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Step, Variant, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.element import unrounded
from ...core.variant import aligned
from ...schedules.geometry import strides_of
from ...schedules.norms import _wide, affine_elements
from ...schedules.rows import row_params
from ..elementwise.unary_formulas import sigmoid
from .gated_rms_norm import (
    WEIGHT, Gated, GatedRMSNormDescriptor, X, gated_benchmarks, gated_case, rows_of, rung_kernels, rung_of,
)  # fmt: skip

RUNGS = ((8, 1, 128), (16, 1, 128), (32, 1, 128), (128, 2, 128), (256, 2, 256), (512, 2, 512), (512, 0, 512))
FOLD_THREADS = 256
_RESIDENT = {128: 5, 256: 2, 512: 1}  # blocks of a multiprocessor by their threads: as many are launched at most
_SHARE = 8  # rows of a group of lanes, at least where there are more


@dataclass(slots=True, kw_only=True)
class GatedRMSNormBackwardArgs(Args):
    """Any strides; operands of the forward. Each output may be None."""

    dy: Array = operand(X)
    x: Array = operand(X)
    z: Array = operand(X)
    weight: Array | None = operand(WEIGHT, element="weight_element", optional=True)
    dx: Array | None = output(X, optional=True)
    dz: Array | None = output(X, optional=True)
    dweight: Array | None = output(WEIGHT, element="weight_element", optional=True, needs="weight")


def reference(
    desc: GatedRMSNormDescriptor, *, dy: Any, x: Any, z: Any, weight: Any, wanted: set[str], store: Any = unrounded
) -> Mapping[str, Any]:
    """NumPy in the dtype dy comes in: with g the slope of n · weight, da = rstd (g w - n mean(g w n)).

    Over few columns the two terms of da nearly cancel (over one they leave eps / (a² + eps) of g w), so that a rounding
    of n is a large part of it. Where n is kept in the element, it passes through `store`.
    """
    with np.errstate(all="ignore"):
        s = sigmoid(z)
        silu, bend = z * s, s * (1 + z * (1 - s))
        row = Gated.of(desc, x, z)
        if desc.element is desc.acc:
            row.n = store(row.n)
        g = dy * silu if desc.norm_before_gate else dy
        slope = g if weight is None else g * weight
        count = x.dtype.type(max(desc.cols, 1))
        da = row.rstd * (slope - row.n * (np.sum(slope * row.n, axis=-1, keepdims=True) / count))
        dweight = np.sum(g * row.n, axis=tuple(range(len(desc.batch_shape))))
        if desc.norm_before_gate:
            return {"dx": da, "dz": dy * (row.n if weight is None else row.n * weight) * bend, "dweight": dweight}
        return {"dx": da * silu, "dz": da * x * bend, "dweight": dweight}


PARAMS = Params(
    "GatedRMSNormBackwardParams", **dict.fromkeys(("dy", "x", "z", "weight", "dx", "dz", "parts"), "ptr"), eps="f64",
    groups="i64", share="i64", before="i32", **row_params(6),
)  # fmt: skip
FOLD = Params(
    "GatedRMSNormFoldParams", parts="ptr", dweight="ptr", groups="i64", cols="i64", splits="i64", strides="i64[2]"
)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    rows = rows_of(p, ("dy", "x", "z", "weight", "dx", "dz"))
    if isinstance(rows, str):
        return rows
    lanes, chunks, threads = rung_of(desc, RUNGS)
    shares, subs = rows.rows // max(desc.groups, 1), threads // lanes
    most = max(1, p.device.sms * _RESIDENT[threads] // max(desc.groups, 1))
    share = max(-(-shares // most), min(shares, _SHARE * subs), 1)
    splits = -(-shares // share)
    summed, size = p.dweight is not None, desc.acc.itemsize
    values = {
        **rows.params(), "eps": desc.eps, "before": desc.norm_before_gate, "groups": desc.groups, "share": share,
        "parts": ("@workspace", 0) if summed else "@null",
    }  # fmt: skip
    axes = {"W": desc.weight_element, "WIDE": _wide(rows, desc)}
    steps = []
    if splits and desc.groups and desc.cols:
        steps.append(Step(f"slopes_{lanes}_{chunks}", (splits * desc.groups, 1, 1), values, axes, threads))
    if summed and desc.groups * desc.cols:
        fold = {
            "parts": ("@workspace", 0), "groups": desc.groups, "cols": desc.cols, "splits": splits,
            "strides": strides_of(p.dweight, 2),
        }  # fmt: skip
        blocks = -(-desc.groups * desc.cols * 8 // FOLD_THREADS)
        steps.append(Step("fold", (blocks, 1, 1), fold, {"W": desc.weight_element}, FOLD_THREADS))
    used = aligned(splits * desc.groups * desc.cols * size) if summed else 0
    return Geometry(tuple(steps), used, layout=rows.layout_class)


class GatedRMSNormBackwardPlan(Plan):
    """Gradients of `GatedRMSNormPlan`: da = rstd (g w - n mean(g w n)), dweight = Σ rows g n, n the normalised rows.

    dy, x, z, dx, dz (*batch_shape, groups, cols); weight, dweight (groups, cols). Statistics are made anew. dweight is
    summed in a fixed order: the rows that a lane takes, the lanes of a block, then the blocks.
    """

    op = "norm.gated_rms_norm_backward"
    direction = "backward"
    descriptor = GatedRMSNormDescriptor
    args = GatedRMSNormBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "rows", _geometry, source="norm/gated_rms_norm_backward.cu",
            kernels=(
                *rung_kernels("slopes", "gated_rms_norm_slopes", PARAMS, RUNGS, {256: 2}),
                Kernel("fold", f"gated_rms_norm_fold<{{T}}, {{W}}, {FOLD_THREADS}>", FOLD,
                       lambda kind: {"W": affine_elements(kind)}, threads=FOLD_THREADS),
            ),
            guarantee=Guarantee(Relative(3)), may_spill=True,
        ),
    )  # fmt: skip
    benchmarks = gated_benchmarks("weight", "dx", "dz", "dweight")

    @staticmethod
    def case(draw: Any) -> GatedRMSNormDescriptor:
        made: GatedRMSNormDescriptor = gated_case(draw, GatedRMSNormDescriptor)
        return made


gated_rms_norm_backward = functional(GatedRMSNormBackwardPlan)
