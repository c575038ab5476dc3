"""rnnt_loss_backward: the gradient of rnnt_loss by its logits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Step, Variant, operand,
    output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.element import cast, decode
from ...core.variant import aligned
from ...schedules.rows import row_params
from .rnnt_loss import (
    FIELDS, INTEGERS, THREADS, Inside, RnntLossDescriptor, RnntLossPlan, constants, random_labels, random_steps,
    random_targets, rnnt_case, row_step, wrong_values,
)  # fmt: skip
from .rnnt_loss import reference as forward

_SAVED = ("lse", "log_steps", "log_alpha", "nll")


@dataclass(frozen=True, kw_only=True)
class RnntLossBackwardDescriptor(RnntLossDescriptor):
    """As `RnntLossDescriptor`."""


@dataclass(slots=True, kw_only=True)
class RnntLossBackwardArgs(Args):
    """Any strides; dlogits may be the logits. dloss has the loss's shape; lse and what follows are the forward's."""

    dloss: Array = operand("*loss_shape", element="loss_element")
    logits: Array = operand("batch steps positions classes")
    targets: Array = operand("batch labels", element=INTEGERS, values=random_targets)
    logit_lengths: Array = operand("batch", element=INTEGERS, values=random_steps)
    target_lengths: Array = operand("batch", element=INTEGERS, values=random_labels)
    lse: Array = operand("batch steps positions", element="acc", layout="dense")
    log_steps: Array = operand("batch steps positions 2", element="acc", layout="dense")
    log_alpha: Array = operand("batch steps positions", element="acc", layout="dense")
    nll: Array = operand("batch", element="acc")
    dlogits: Array = output("batch steps positions classes", inplace=("logits",))


def _then(step: Any, beta: Any) -> Any:
    """log of a step and of what follows; of a step from which no path goes on, whatever it is itself, -inf."""
    return np.where(beta == -np.inf, beta, step + beta)


def reference(
    desc: RnntLossBackwardDescriptor, *, dloss: Any, logits: Any, targets: Any, logit_lengths: Any, target_lengths: Any,
    lse: Any, log_steps: Any, log_alpha: Any, nll: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype the logits come in."""
    dtype, inside = logits.dtype, Inside.of(desc, targets, logit_lengths, target_lengths)
    shape = desc.batch, desc.steps + 1, desc.positions + 1
    beta, steps = np.full(shape, -np.inf, dtype), np.pad(log_steps, ((0, 0), (0, 1), (0, 1), (0, 0)))
    with np.errstate(all="ignore"):
        for t, u in ((t, u) for t in reversed(range(desc.steps + 1)) for u in reversed(range(desc.positions))):
            if t < desc.steps:
                ways = _then(steps[:, t, u, 0], beta[:, t + 1, u]), _then(steps[:, t, u, 1], beta[:, t, u + 1])
                beta[:, t, u] = np.logaddexp(*ways)
            beta[(inside.steps == t) & (inside.labels == u), t, u] = 0
        a = log_alpha + nll[:, None, None]
        g = np.zeros_like(logits)
        if desc.fused_log_softmax:
            g = np.exp((logits - lse[..., None]) + (a + beta[:, :-1, :-1])[..., None])
        g[..., desc.blank_class] -= np.exp(a + _then(log_steps[..., 0], beta[:, 1:, :-1]))
        hits = inside.label[..., None] == np.arange(desc.classes)
        own = np.exp(a + _then(log_steps[..., 1], beta[:, :-1, 1:]))[:, :, :-1, None]
        g[:, :, :-1] -= np.where(hits, own, 0).astype(dtype)
        g = np.clip(g, -desc.clamp, desc.clamp) if desc.clamp > 0 else g
        upstream = np.broadcast_to(dloss, (desc.batch,))[:, None, None, None]
        upstream = upstream / dtype.type(desc.batch) if desc.reduction == "mean" else upstream
    return {"dlogits": np.where(inside.positions[..., None], upstream * g, dtype.type(0))}


BETA = Params("RnntBetaParams", **FIELDS, log_steps="ptr", log_beta="workspace")
GRADIENT = Params(
    "RnntGradientParams", **FIELDS, dloss="ptr", logits="ptr", lse="ptr", log_steps="ptr", log_alpha="ptr", nll="ptr",
    dlogits="ptr", log_beta="workspace", clamp="f64", **row_params(2), per_item="i32", divided="i32",
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    layout = "contiguous" if p.logits.dense and p.dlogits.dense else "strided"
    if not desc.batch * desc.steps:
        return Geometry((), layout=layout)
    per_item = desc.reduction == "none"
    at = {**constants(p), "log_beta": 0, "loss_step": p.dloss.strides[0] if per_item else 0}
    more = {"clamp": desc.clamp, "per_item": int(per_item), "divided": int(desc.reduction == "mean")}
    last = row_step(p, "rnnt_gradient", (p.logits, p.dlogits), {**at, **more})
    if isinstance(last, str):
        return last
    first = Step("rnnt_beta", (desc.batch, 1, 1), at, {}, THREADS)
    return Geometry((first, last), aligned(desc.batch * desc.steps * desc.positions * desc.acc.itemsize), layout)


class RnntLossBackwardPlan(Plan):
    """dlogits of `RnntLossPlan`: the derivative, cut to [-clamp, clamp] where that is above 0, times dloss.

    Positions beyond a sequence's lengths have 0. The logits are read once, and the workspace has a number for each
    position. The sequences alone fix the order of every sum.
    """

    op = "loss.rnnt_loss_backward"
    direction = "backward"
    descriptor = RnntLossBackwardDescriptor
    args = RnntLossBackwardArgs
    reference = staticmethod(reference)
    value_policy = RnntLossPlan.value_policy
    variants = (
        Variant(
            "block", _geometry, source="loss/rnnt_loss_backward.cu",
            guarantee=Guarantee(Relative(2), batch_invariant=True),
            kernels=(Kernel("rnnt_beta", "rnnt_beta<{T}>", BETA, threads=THREADS),
                     Kernel("rnnt_gradient", "rnnt_gradient<{T}, {WIDE}>", GRADIENT, {"WIDE": (True, False)},
                            threads=THREADS)),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("[16, 200, 61, 1024] f32", batch=16, steps=200, labels=60, classes=1024, element="float32", peers=()),
    )

    @staticmethod
    def case(draw: Any) -> RnntLossBackwardDescriptor:
        return RnntLossBackwardDescriptor(**rnnt_case(draw), element=draw.element)

    @classmethod
    def complete(cls, desc: RnntLossBackwardDescriptor, arrays: dict[str, Any]) -> None:
        """What was saved becomes what the forward makes."""
        names = ("targets", "logit_lengths", "target_lengths")
        logits = decode(arrays["logits"], desc.element).astype(np.float64)
        made = forward(desc, logits=logits, wanted=set(), **{name: arrays[name] for name in names})
        arrays.update({name: np.array(cast(made[name], desc.acc)) for name in _SAVED})

    @classmethod
    def check_values(cls, desc: RnntLossBackwardDescriptor, arrays: Mapping[str, Any]) -> str | None:
        """As of the forward op."""
        return wrong_values(desc, arrays)


rnnt_loss_backward = functional(RnntLossBackwardPlan)
