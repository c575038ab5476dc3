"""pointwise_loss_backward: the gradients of `LossKind` by its operands, summed where one was broadcast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Geometry, Guarantee, Params, Plan, Problem, Relative, Step, Variant,
    View, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.checked import require_some
from ...core.tensor import broadcast_shape
from ...core.variant import aligned
from ...schedules.loss_sums import to_one
from ...schedules.map import map_geometry, map_kernels, map_params
from ...schedules.reduce import reduce_kernels, reduce_launches, reduce_params, sum_to
from .loss_kinds import LossKind, random_weights, values, with_slope
from .pointwise_loss import (
    NUMBERS, OPERANDS, PointwiseLossDescriptor, by_weight, constants, denominator, fixed_for, loss_case, names_of,
    operands_of, stand_in, third_of,
)  # fmt: skip

K = LossKind


@dataclass(frozen=True, kw_only=True)
class PointwiseLossBackwardDescriptor(PointwiseLossDescriptor):
    """As `PointwiseLossDescriptor`."""


@dataclass(slots=True, kw_only=True)
class PointwiseLossBackwardArgs(Args):
    """Any strides. Operands are the forward's; each gradient has its operand's shape, and may be None.

    Weights have no gradient.
    """

    dloss: Array = operand("*loss_shape", element="loss_element")
    x: Array = operand("*shape", broadcast=True, values=values("x"))
    other: Array | None = operand("*shape", broadcast=True, kinds=(K.MARGIN_RANKING,), values=values("v"))
    target: Array = operand("*shape", broadcast=True, values=values("t"))
    var: Array | None = operand("*shape", broadcast=True, optional=True, kinds=(K.GAUSSIAN_NLL,), values=values("v"))
    weight: Array | None = operand("*shape", broadcast=True, optional=True, values=random_weights)
    pos_weight: Array | None = operand(
        "*shape", broadcast=True, optional=True, kinds=(K.BCE_WITH_LOGITS,), values=values("v")
    )
    dx: Array | None = output("*shape", like="x", optional=True)
    dother: Array | None = output("*shape", like="other", optional=True, kinds=(K.MARGIN_RANKING,))
    dtarget: Array | None = output("*shape", like="target", optional=True, kinds=with_slope(1))
    dvar: Array | None = output("*shape", like="var", optional=True, kinds=(K.GAUSSIAN_NLL,))


def gradients_of(desc: Any) -> tuple[str, ...]:
    """The outputs of a kind, in the order of the functor's slopes."""
    third = {"other": "dother", "var": "dvar"}.get(desc.kind.row.third)
    return ("dx", "dtarget") if third is None else ("dx", "dtarget", third)


def reference(
    desc: PointwiseLossBackwardDescriptor, *, dloss: Any, x: Any, other: Any, target: Any, var: Any, weight: Any,
    pos_weight: Any, wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype the operands come in."""
    given = {"dx": x, "dtarget": target, "dother": other, "dvar": var}
    v = third_of(desc, {"other": other, "var": var, "pos_weight": pos_weight}, x.dtype)
    made = {}
    with np.errstate(all="ignore"):
        g = dloss / denominator(desc, weight, x.dtype)
        g = g if weight is None else g * weight
        for name, slope in zip(gradients_of(desc), desc.kind.row.slopes, strict=False):
            if name in wanted and slope is not None:
                whole = np.broadcast_to(np.asarray(g * slope(desc, x, target, v), x.dtype), desc.shape)
                made[name] = _summed(whole, given[name].shape)
    return made


def _summed(whole: Any, shape: tuple[int, ...]) -> Any:
    """Over the axes along which `shape` broadcasts."""
    lead = whole.ndim - len(shape)
    away = tuple(range(lead)) + tuple(lead + i for i, n in enumerate(shape) if n == 1 and whole.shape[lead + i] != 1)
    return np.asarray(np.sum(whole, axis=away)).reshape(shape) if away else np.array(whole)


_MORE = {**NUMBERS, "per_element": "i32", "total": "ptr"}
MAP = Params(
    "PointwiseLossBackwardParams", dx="ptr", dtarget="ptr", dthird="ptr", dloss="ptr", **dict.fromkeys(OPERANDS, "ptr"),
    **_MORE, **map_params(8),
)  # fmt: skip
SUM = reduce_params("PointwiseLossSlopeParams", ("each", *OPERANDS), dloss="ptr", which="i32", present="i32", **_MORE)
TOTAL = reduce_params("LossWeightParams", ("weight",), divisor="f64", divided="i32")
_MAP = map_kernels("pointwise_loss_backward<{KIND}<{A}>, {T}, {LAYOUT}>", MAP)
_TOTAL = tuple(
    replace(kernel, source="loss/pointwise_loss_total.cu")
    for kernel in to_one(reduce_kernels("LossSum<{T}>", TOTAL, source="Mapped<LossWeight<{T}>, {T}>", prefix="total_"))
)
_SUM = tuple(
    replace(kernel, source="loss/pointwise_loss_slope.cu")
    for kernel in reduce_kernels(
        "kinds::Sum<{T}>", SUM, source="Mapped<LossSlope<{KIND}<{A}>, {T}>, {T}, {T}, {T}, {T}, {T}>"
    )
)


def _whole(p: Problem, name: str) -> bool:
    """Whether a gradient is wanted, and has nothing to sum."""
    view = p.views[name]
    return view is not None and math.prod(view.shape) == math.prod(p.desc.shape)


def _summed_ones(p: Problem) -> list[str]:
    return [n for n in gradients_of(p.desc) if p.views[n] is not None and not _whole(p, n)]


def _total(p: Problem) -> tuple[tuple[Any, ...], int] | str:
    """The launches that leave the sum of the weights at byte 0 of the workspace, where the mean is divided by it."""
    if not by_weight(p.desc, p.weight):
        return (), 0
    y, axes = View(0, (), (), p.desc.acc), tuple(range(len(p.desc.shape)))
    values = {"y": ("@workspace", 0), "divisor": 0.0, "divided": 0}
    weight = p.weight.broadcast_to(p.desc.shape)
    found = reduce_launches(
        p.device, (weight,), (y,), axes, mapped=True, values=values, prefix="total_", base=aligned(8)
    )
    return found if isinstance(found, str) else (found.steps, found.used)


def _values(p: Problem) -> dict[str, Any]:
    """What every launch is told."""
    scaled = by_weight(p.desc, p.weight)
    return {
        **constants(p.desc), "per_element": int(p.desc.reduction == "none"),
        "total": ("@workspace", 0) if scaled else "@null",
    }  # fmt: skip


_SLOTS = ("dx", "dtarget", "dthird")


def _map_step(p: Problem) -> Geometry | str:
    """The launch of those gradients that are maps."""
    views = operands_of(p)
    names = {slot: n for slot, n in zip(_SLOTS, gradients_of(p.desc), strict=False) if _whole(p, n)}
    at = {**_values(p), **names_of(p.desc, views, "@null"), **dict.fromkeys(_SLOTS, "@null"), **names}
    made = [p.views[names[slot]].broadcast_to(p.desc.shape) if slot in names else None for slot in _SLOTS]
    dloss = p.dloss if p.desc.reduction == "none" else None  # else one number
    return map_geometry(p, (*made, dloss, *views.values()), at)


def _sum_steps(p: Problem, used: int) -> tuple[list[Any], int, bool] | str:
    """The launches of those that are summed, the end of their workspace from byte `used` on, whether reads coalesce."""
    steps: list[Any] = []
    coalesced, per_element = True, p.desc.reduction == "none"
    views, still = operands_of(p), stand_in(p.x, p.desc.shape)
    held = [still if v is None else v for v in views.values()]
    at = {
        **_values(p), **names_of(p.desc, views, "x"), "each": "dloss" if per_element else "x",
        "present": (views["third"] is not None) + 2 * (views["weight"] is not None),
    }  # fmt: skip
    for name in _summed_ones(p):
        own = {**at, "y": name, "which": gradients_of(p.desc).index(name)}
        found = sum_to(p, (p.dloss if per_element else still, *held), p.views[name], own, used)
        if isinstance(found, str):
            return found
        steps, used, coalesced = [*steps, *found.steps], found.used, coalesced and found.coalesced
    return steps, used, coalesced


def _geometry(p: Problem, summing: bool) -> Geometry | str:
    if _summed_ones(p) and not summing:
        return "a gradient is summed over the axes its operand was broadcast along"
    total = _total(p)
    summed = total if isinstance(total, str) else _sum_steps(p, total[1])
    if isinstance(total, str) or isinstance(summed, str):
        return str(summed)
    steps, used, coalesced = summed
    layout = "inner_contiguous" if coalesced else "strided"
    if any(_whole(p, name) for name in gradients_of(p.desc)):
        rest = _map_step(p)
        if isinstance(rest, str):
            return rest
        steps += [step for step in rest.steps if isinstance(step, Step)]
        layout = layout if _summed_ones(p) else rest.layout
    return Geometry((*total[0], *steps), used, layout)


def _row(name: str, summing: bool, by_weights: bool) -> Variant:
    """by_weights: of the kinds whose mean may be divided by the sum of the weights."""
    return Variant(
        name, lambda p: _geometry(p, summing), source="loss/pointwise_loss_backward.cu",
        kernels=(*_MAP, *(_SUM if summing else ()), *(_TOTAL if by_weights else ())),
        kinds=tuple(kind for kind in LossKind if kind.row.by_weight == by_weights),
        guarantee=Guarantee(Relative(2), batch_invariant=True), may_spill=True,
    )  # fmt: skip


class PointwiseLossBackwardPlan(Plan):
    """dx, dtarget, dother and dvar of `LossKind`, each summed over the axes along which its operand was broadcast.

    dloss has the loss's shape and element; what a mean divides by is inside. Where nothing was broadcast it is one
    launch. hinge_embedding_loss and soft_margin_loss have no gradient of the target, as in PyTorch; at a kink the
    gradient is PyTorch's. Sums are in float32, float64 of float64, in an order that shapes alone fix.
    """

    op = "loss.pointwise_loss_backward"
    direction = "backward"
    kinds = LossKind
    descriptor = PointwiseLossBackwardDescriptor
    args = PointwiseLossBackwardArgs
    reference = staticmethod(reference)
    variants = (
        _row("map", False, False),
        _row("sum", True, False),
        _row("map_by_weight", False, True),
        _row("sum_by_weight", True, True),
    )
    benchmarks = tuple(
        Benchmark(
            f"{kind} 134M bf16, mean", shape=1 << 27, kind=kind, reduction="mean", element="bfloat16", also=("dx",)
        )
        for kind in ("mse_loss", "binary_cross_entropy_with_logits", "kl_div_loss")
    )

    @classmethod
    def coupled(cls, desc: Any) -> bool:
        """A mean divides by the number of all items."""
        return desc.reduction not in ("none", "sum")

    @staticmethod
    def case(draw: Any) -> PointwiseLossBackwardDescriptor:
        return PointwiseLossBackwardDescriptor(kind=draw.kind, **loss_case(draw), element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        facts.setdefault("shape", broadcast_shape(shapes, ("x", "other", "target", "var", "weight", "pos_weight")))

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        require_some(views, *(name for name in gradients_of(desc) if name in views))


def _function(kind: LossKind) -> Any:
    doc = f"The gradients of {kind.value} by its operands; see `PointwiseLossBackwardPlan`."
    return functional(PointwiseLossBackwardPlan, f"{kind.value}_backward", doc, kind=kind, **fixed_for(kind))


mse_loss_backward = _function(K.MSE)
l1_loss_backward = _function(K.L1)
smooth_l1_loss_backward = _function(K.SMOOTH_L1)
huber_loss_backward = _function(K.HUBER)
binary_cross_entropy_backward = _function(K.BCE)
binary_cross_entropy_with_logits_backward = _function(K.BCE_WITH_LOGITS)
kl_div_loss_backward = _function(K.KL_DIV)
poisson_nll_loss_backward = _function(K.POISSON_NLL)
gaussian_nll_loss_backward = _function(K.GAUSSIAN_NLL)
hinge_embedding_loss_backward = _function(K.HINGE_EMBEDDING)
soft_margin_loss_backward = _function(K.SOFT_MARGIN)
margin_ranking_loss_backward = _function(K.MARGIN_RANKING)
sigmoid_focal_loss_backward = _function(K.SIGMOID_FOCAL)
generalized_jsd_loss_backward = _function(K.JSD)
