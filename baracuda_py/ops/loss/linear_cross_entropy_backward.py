"""Gradient of linear_cross_entropy from the saved lse: logits are made again, a chunk of rows at a time.

With p = exp(l - lse), W = Σ w and g = dloss, divided by total_weight under "mean", that of the logits is

    dl = p (g ((1 - ε) w[t] + ε / C W + 2 ζ lse) + dlse) - onehot(t) (g (1 - ε) w[t] - dtarget_logit) - g ε / C w

without the terms in g and dtarget_logit where t is ignore_index, times 1 - (l / cap)² under a softcap; dx, dweight and
dbias follow from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Geometry, Plan, Problem, Variant, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.args import finite_only
from ...core.benchmark import FLOPS, Benchmark
from ...core.checked import require_some
from ...core.element import cast, decode, unrounded
from ...schedules.linear_loss import Chunks
from ..gemm.gemm import GemmArgs
from .cross_entropy import random_weights
from .linear_cross_entropy import LinearCrossEntropyPlan
from .linear_logits import (
    INDICES, LinearCrossEntropyDescriptor, Logits, gradients, prepared, row_constants, variants,
)  # fmt: skip


@finite_only  # as the policy says
def _gradients(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Test data."""
    return rng.standard_normal(shape)


@dataclass(slots=True, kw_only=True)
class LinearCrossEntropyBackwardArgs(Args):
    """lse and total_weight are outputs of the forward; without total_weight it is summed again from the targets.

    dloss, dlse and dtarget_logit are the gradients of the forward's outputs; those of lse and target_logit are 0 where
    they are absent. Of dx, dweight and dbias those that are None cost nothing.
    """

    dloss: Array = operand("*loss_shape", element="acc", values=_gradients)
    x: Array = operand("rows hidden")
    weight: Array = operand("num_classes hidden")
    targets: Array = operand("rows", element=INDICES, values=(0, "num_classes"))
    lse: Array = operand("rows", element="acc")
    bias: Array | None = operand("num_classes", optional=True)
    class_weight: Array | None = operand("num_classes", optional=True, values=random_weights)
    total_weight: Array | None = operand(element="acc", optional=True)
    dlse: Array | None = operand("rows", element="acc", optional=True, values=_gradients)
    dtarget_logit: Array | None = operand("rows", element="acc", optional=True, values=_gradients)
    dx: Array | None = output("rows hidden", optional=True)
    dweight: Array | None = output("num_classes hidden", optional=True)
    dbias: Array | None = output("num_classes", optional=True, needs="bias")


def reference(
    desc: LinearCrossEntropyDescriptor, *, dloss: Any, x: Any, weight: Any, targets: Any, lse: Any, bias: Any,
    class_weight: Any, total_weight: Any, dlse: Any, dtarget_logit: Any, wanted: set[str], store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype x comes in."""
    with np.errstate(all="ignore"):
        made = Logits.of(desc, x=x, weight=weight, targets=targets, bias=bias, class_weight=class_weight, store=store)
        up = np.broadcast_to(dloss, (desc.rows,))
        if desc.reduction == "mean":
            up = up / (made.own.sum() if total_weight is None else total_weight)
        given = [0 if d is None else d for d in (dlse, dtarget_logit)]
        found = gradients(made.slopes(desc, lse, up, *given), x, weight, store)
    return {name: value for name, value in found.items() if name in wanted}


def _geometry(rows: tuple[Variant, ...]) -> Callable[[Problem], Geometry | str]:
    """The launches whose products go to the first of `rows` that takes them; one has to go to the very first."""

    def geometry(p: Problem) -> Geometry | str:
        desc = p.desc
        fields, steps, used = prepared(p, desc.reduction == "mean" and p.total_weight is None)
        constants = {
            **row_constants(p), **fields, "sums": 0, "keep_sums": 0, "backward": 1, "loss": "@null",
            "lse_out": "@null", "target_logit": "@null", "dtarget": "dtarget_logit",
        }  # fmt: skip
        chunk = desc.chunk_rows(p.dweight is not None)
        chunks = Chunks(p, LinearCrossEntropyBackwardArgs, GemmArgs, rows, desc.product, chunk, used)
        chunks.steps += steps
        failed = chunks.run("rows", constants, desc.logits_element, {"L": desc.logits_element})
        return failed or chunks.geometry()

    return geometry


class LinearCrossEntropyBackwardPlan(Plan):
    """dx, dweight and dbias of linear_cross_entropy."""

    op = "loss.linear_cross_entropy_backward"
    direction = "backward"
    descriptor = LinearCrossEntropyDescriptor
    args = LinearCrossEntropyBackwardArgs
    reference = staticmethod(reference)
    value_policy = (
        LinearCrossEntropyPlan.value_policy
        + "; gradients are finite: an infinite one is NaN where it meets a slope of "
        "the softcap that rounds to 0"
    )
    variants = variants(_geometry, False)
    benchmarks = (
        Benchmark(
            "[8192, 4096] × 128256 bf16", rows=8192, hidden=4096, num_classes=128256, element="bfloat16",
            also=("total_weight", "dx", "dweight"), work=FLOPS, target=None, peers=(),
        ),
    )  # fmt: skip
    case = staticmethod(LinearCrossEntropyPlan.case)
    check_values = LinearCrossEntropyPlan.check_values
    flops = LinearCrossEntropyPlan.flops

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        require_some(views, "dx", "dweight", "dbias")

    @classmethod
    def complete(cls, desc: LinearCrossEntropyDescriptor, arrays: dict[str, Any]) -> None:
        """Some rows are ignored; lse and total_weight become what the forward gives."""
        LinearCrossEntropyPlan.complete(desc, arrays)
        given = {
            name: None if arrays[name] is None else decode(arrays[name], desc.element).astype(np.float64)
            for name in ("x", "weight", "bias", "class_weight")
        }
        with np.errstate(all="ignore"):
            made = Logits.of(desc, targets=arrays["targets"], store=unrounded, **given)
            arrays["lse"] = np.array(cast(made.lse, desc.acc))
        if arrays["total_weight"] is not None:
            arrays["total_weight"] = np.array(cast(made.own.sum(), desc.acc))


linear_cross_entropy_backward = functional(LinearCrossEntropyBackwardPlan)
