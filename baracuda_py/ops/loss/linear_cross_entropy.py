"""linear_cross_entropy: cross entropy of logits x Wᵀ + b that are never whole in memory, with its gradients on request
(torch.nn.functional.linear_cross_entropy; Wijmans et al. 2024).

With l = cap tanh((x Wᵀ + b) / cap) (or x Wᵀ + b), lse = log Σ exp(l), w the class weights (1 without), ε the label
smoothing, ζ the z-loss (Chowdhery et al. 2022) and t the target of row i

    loss_i = (1 - ε) w[t] (lse - l[t]) + ε / C Σ_c w[c] (lse - l[c]) + ζ lse²        0 where t is ignore_index
    mean   = Σ loss_i / Σ w[t]    sum = Σ loss_i             both sums over the rows not ignored

Rows are taken in chunks: a product, one pass that makes of its logits the losses and, in their place, their gradient,
and two products for dx and dW, which is added in the accumulator's element and rounded once. Logits are rounded to
`logits_element` between the product and the pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import Args, Array, Geometry, Plan, Problem, Step, Variant, Vjp, operand, output
from ...core.benchmark import FLOPS, Benchmark
from ...core.element import unrounded
from ...schedules.linear_loss import Chunks
from ...schedules.loss_sums import finish_steps
from ..gemm.gemm import GemmArgs
from .cross_entropy import random_weights
from .row_loss import some_ignored
from .linear_logits import (
    FINISH_TILE, INDICES, LinearCrossEntropyDescriptor, Logits, case, gradients, prepared, row_constants, variants,
)  # fmt: skip


@dataclass(slots=True, kw_only=True)
class LinearCrossEntropyArgs(Args):
    """loss, lse, target_logit and total_weight are in the accumulator's element: float32, float64 for float64.

    dx, dweight and dbias are the gradients for an upstream gradient of 1: with them training takes three products.
    lse = log Σ exp(l) of each row and target_logit = l[t], 0 for an ignored row.
    """

    x: Array = operand("rows hidden")
    weight: Array = operand("num_classes hidden")
    targets: Array = operand("rows", element=INDICES, values=(0, "num_classes"))
    bias: Array | None = operand("num_classes", optional=True)
    class_weight: Array | None = operand("num_classes", optional=True, values=random_weights)
    loss: Array = output("*loss_shape", element="acc")
    lse: Array | None = output("rows", element="acc", optional=True)
    target_logit: Array | None = output("rows", element="acc", optional=True)
    total_weight: Array | None = output(element="acc", optional=True)
    dx: Array | None = output("rows hidden", optional=True)
    dweight: Array | None = output("num_classes hidden", optional=True)
    dbias: Array | None = output("num_classes", optional=True, needs="bias")


def reference(
    desc: LinearCrossEntropyDescriptor, *, x: Any, weight: Any, targets: Any, bias: Any, class_weight: Any,
    wanted: set[str], store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype x comes in."""
    with np.errstate(all="ignore"):
        made = Logits.of(desc, x=x, weight=weight, targets=targets, bias=bias, class_weight=class_weight, store=store)
        lse, eps = made.lse, desc.label_smoothing
        loss = (1 - eps) * made.own * (lse - made.target)
        if eps:
            loss = loss + eps / desc.num_classes * ((lse[:, None] - made.all) * made.weights).sum(axis=1)
        loss = np.where(made.counts, loss + desc.z_loss * lse * lse, 0)
        total = made.own.sum()
        found = {"lse": lse, "target_logit": made.target, "total_weight": total}
        mean = desc.reduction == "mean"
        found["loss"] = loss if desc.reduction == "none" else loss.sum() / total if mean else loss.sum()
        if wanted & {"dx", "dweight", "dbias"}:
            up = np.ones_like(lse) / (total if mean else 1)
            found |= gradients(made.slopes(desc, lse, up, 0, 0), x, weight, store)
    return {name: value for name, value in found.items() if name in wanted | {"loss"}}


def _geometry(rows: tuple[Variant, ...]) -> Callable[[Problem], Geometry | str]:
    """The launches whose products go to the first of `rows` that takes them; one has to go to the very first."""

    def geometry(p: Problem) -> Geometry | str:
        desc = p.desc
        mean, per_row = desc.reduction == "mean", desc.reduction == "none"
        wanted = any(p.views[name] is not None for name in ("dx", "dweight", "dbias"))
        fields, steps, used = prepared(p, mean and wanted)
        keep = not per_row or p.total_weight is not None
        constants = {
            **row_constants(p), **fields, "sums": used, "keep_sums": int(keep), "backward": 0, "lse_out": "lse",
            "lse": "@null", "dloss": "@null", "dlse": "@null", "dtarget": "@null", "total_weight": "@null",
        }  # fmt: skip
        finish: list[Step] = []
        if keep:
            last = {"mean": int(mean), "reduced": int(not per_row)}
            finish, used = finish_steps(used, desc.rows, FINISH_TILE, last)
        chunks = Chunks(
            p, LinearCrossEntropyArgs, GemmArgs, rows, desc.product, desc.chunk_rows(p.dweight is not None), used
        )
        chunks.steps += steps
        failed = chunks.run("rows", constants, desc.logits_element, {"L": desc.logits_element})
        chunks.steps += finish
        return failed or chunks.geometry()

    return geometry


def in_torch(
    torch: Any, desc: LinearCrossEntropyDescriptor, *, x: Any, weight: Any, targets: Any, bias: Any, class_weight: Any,
    wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """torch's linear and cross_entropy, in float32 at least, and their autograd; the statistics by their formulas."""
    wide = torch.promote_types(x.dtype, torch.float32)
    grads = [n for n in ("dx", "dweight", "dbias") if n in wanted]
    with torch.set_grad_enabled(bool(grads) or torch.is_grad_enabled()):
        given = {"dx": x, "dweight": weight, "dbias": bias}
        leaves = {n: v.detach().requires_grad_() if grads and v is not None else v for n, v in given.items()}
        wides = {n: None if v is None else v.to(wide) for n, v in leaves.items()}
        z = torch.nn.functional.linear(wides["dx"], wides["dweight"], wides["dbias"])
        z = desc.softcap * torch.tanh(z / desc.softcap) if desc.softcap else z
        t = targets.long() - (desc.class_start or 0)
        counts = (targets != desc.ignore_index) & (t >= 0) & (t < desc.num_classes)
        t = torch.where(counts, t, -100)
        per_row = torch.nn.functional.cross_entropy(
            z, t, None if class_weight is None else class_weight.to(wide), reduction="none",
            label_smoothing=desc.label_smoothing,
        )  # fmt: skip
        lse = torch.logsumexp(z, -1)
        per_row = per_row + torch.where(counts, desc.z_loss * lse * lse, 0)
        own = counts.to(wide) if class_weight is None else torch.where(counts, class_weight.to(wide)[t.clamp(min=0)], 0)
        total, loss = own.sum(), per_row if desc.reduction == "none" else per_row.sum()
        if grads:
            scale = torch.where(total > 0, 1 / total, 0) if desc.reduction == "mean" else torch.ones_like(loss)
            found = torch.autograd.grad(loss, [leaves[n] for n in grads], scale)
    made = {"loss": loss / total if desc.reduction == "mean" else loss, "lse": lse, "total_weight": total}
    made["target_logit"] = torch.where(counts, z.gather(1, t.clamp(min=0)[:, None])[:, 0], 0)
    made = {n: v.detach() if grads else v for n, v in made.items()} | (
        dict(zip(grads, found, strict=True)) if grads else {}
    )
    return {n: v for n, v in made.items() if n in wanted | {"loss"}}


class LinearCrossEntropyPlan(Plan):
    """Cross entropy of x Wᵀ + b against class indices, by chunks of rows, with its gradients on request.

    With l = softcap tanh((x Wᵀ + b) / softcap), or x Wᵀ + b, lse = log Σ exp(l), w the class weights (1 without), ε the
    label smoothing and t a row's target, the row's loss is (1 - ε) w[t] (lse - l[t]) + ε / C Σ w[c] (lse - l[c]) +
    z_loss lse², and 0 where t is ignore_index. The mean is over Σ w[t] of the rows that count, that of none NaN, with
    gradients of 0. chunk: rows at a time, 0 for what fits. logits_element: what logits are rounded to in between.

    class_start: weight has the classes from there on, a shard of the vocabulary. Each shard then gives lse and
    target_logit with reduction "none": the loss is the log of the sum of exp(lse), less the sum of target_logit.
    (Wijmans et al. 2024; z_loss of Chowdhery et al. 2022.)
    """

    op = "loss.linear_cross_entropy"
    descriptor = LinearCrossEntropyDescriptor
    args = LinearCrossEntropyArgs
    reference = staticmethod(reference)
    vjp = Vjp("LinearCrossEntropyBackwardPlan", grads={"x": "dx", "weight": "dweight", "bias": "dbias"})
    value_policy = (
        "a target outside [0, num_classes) that is not ignore_index counts as ignored; an ignored row has the gradient "
        "0, whatever its logits are; class weights are finite: what those that are not make is unspecified"
    )
    variants = variants(_geometry, True)
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(
            f"[{rows}, {hidden}] × {classes} bf16", rows=rows, hidden=hidden, num_classes=classes, element="bfloat16",
            also=("dx", "dweight"), work=FLOPS, target=None, peers=(),
        )
        for rows, hidden, classes in ((8192, 4096, 128256), (16384, 2048, 248320))
    )  # fmt: skip
    case = staticmethod(case)

    @classmethod
    def complete(cls, desc: LinearCrossEntropyDescriptor, arrays: dict[str, Any]) -> None:
        """Some rows are ignored, or all; logits are of the size of a few."""
        arrays["targets"] = some_ignored(arrays["targets"], desc.ignore_index)

    @classmethod
    def check_values(cls, desc: LinearCrossEntropyDescriptor, arrays: Mapping[str, Any]) -> str | None:
        """Targets must name a class or be ignore_index; those of a shard may lie elsewhere."""
        t = arrays["targets"]
        bad = (t != desc.ignore_index) & ((t < 0) | (t >= desc.num_classes))
        if desc.class_start is not None or not bad.any():
            return None
        return f"{np.count_nonzero(bad)} targets outside [0, {desc.num_classes})"

    @classmethod
    def flops(cls, desc: LinearCrossEntropyDescriptor) -> int:
        """Of the three products."""
        return 6 * desc.rows * desc.hidden * desc.num_classes
