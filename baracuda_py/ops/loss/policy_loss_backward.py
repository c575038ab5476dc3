"""policy_loss_backward: the gradients of policy_loss by `policy` (or the values) and by `entropy`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Step,
    Variant, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.checked import require_some
from ...core.tensor import broadcast_shape
from .policy_loss import (
    TOKEN_KINDS, COUNTS, FIELDS, FORWARD_KERNELS, LEVELS, SCALE, SLOPES, THREADS, TOKENS, PolicyLossDescriptor,
    PolicyLossKind, constants, counted, divisor_of, finish_step, part_bytes, policy_case, random_logs, rows_step,
    terms_of,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class PolicyLossBackwardDescriptor(PolicyLossDescriptor):
    """As `PolicyLossDescriptor`."""


@dataclass(slots=True, kw_only=True)
class PolicyLossBackwardArgs(Args):
    """Any strides. dloss has the loss's shape and element; the operands are the forward's. old, advantages and
    reference have no gradient: they are what the model is compared with."""

    dloss: Array = operand("*loss_shape", element="loss_element")
    policy: Array = operand(TOKENS, values=random_logs)
    old: Array = operand(TOKENS, values=random_logs)
    advantages: Array = operand(TOKENS, broadcast=True)
    reference: Array | None = operand(TOKENS, kinds=TOKEN_KINDS, optional=True, values=random_logs)
    mask: Array | None = operand(TOKENS, element=ElementKind.BOOL, optional=True)
    entropy: Array | None = operand(TOKENS, kinds=TOKEN_KINDS, optional=True, values=random_logs)
    dpolicy: Array | None = output(TOKENS, optional=True)
    dentropy: Array | None = output(TOKENS, optional=True, kinds=TOKEN_KINDS, needs="entropy")


def reference(
    desc: PolicyLossBackwardDescriptor, *, dloss: Any, policy: Any, old: Any, advantages: Any, reference: Any,
    mask: Any, entropy: Any, wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype policy comes in."""
    with np.errstate(all="ignore"):
        found = terms_of(desc, policy, old, advantages, reference, mask, entropy)
        seen, count = counted(desc, mask)
        count, dtype = count.astype(policy.dtype), policy.dtype
        if desc.reduction == "sequence_mean":
            g = dloss / (count * dtype.type(desc.batch))
        else:
            g = dloss / dtype.type(divisor_of(desc, max(int(seen.sum()), 1)))
        g = np.broadcast_to(g, policy.shape)
        slope = g * found.slope
        if desc.per_sequence:  # every token moves the ratio of all
            slope = np.where(seen, slope, 0).sum(1, keepdims=True) / count
        if reference is not None and desc.beta:
            slope = slope + g * dtype.type(desc.beta) * found.kl_slope
        made = {"dpolicy": np.where(seen, slope, 0), "dentropy": np.where(seen, -g * dtype.type(desc.entropy_coef), 0)}
    return {name: made[name].astype(dtype) for name in wanted}


GRADIENT = Params(
    "PolicyGradientParams", **FIELDS, **SCALE, dpolicy="ptr", dentropy="ptr", slopes="ptr",
    out_step="i64[2][2]",
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    layout = "contiguous" if all(v.dense for v in p.flat()) else "strided"
    if not (desc.batch and desc.tokens):
        return Geometry((), layout=layout)
    size, by_count = part_bytes(desc), desc.reduction == "token_mean"
    per_token = desc.reduction == "none"
    masked = p.mask is not None
    facts: dict[str, Any] = {"dloss": "dloss", "dstep": list(p.dloss.strides) if per_token else [0, 0]}
    steps: list[Step] = []
    used = 0
    if desc.per_sequence or (masked and (by_count or desc.reduction == "sequence_mean")):
        steps.append(rows_step(p, COUNTS, {"parts": 0}))
        facts["counts"], used = ("@workspace", 0), size
    if by_count and masked:
        steps.append(finish_step(p, {"parts": 0, "total": ("@workspace", used)}))
        facts["total"], used = ("@workspace", used), used + 256
    slopes: Any = "@null"
    if desc.per_sequence:
        steps.append(rows_step(p, SLOPES, {**facts, "parts": used}))
        slopes, used = ("@workspace", used), used + size
    outs = [p.dpolicy, p.dentropy]
    at = {
        **constants(p), "counts": "@null", "total": "@null", **facts, "slopes": slopes,
        "out_step": [[0, 0] if v is None else list(v.strides) for v in outs],
    }  # fmt: skip
    steps.append(Step("policy_gradient", (desc.batch * desc.chunks, 1, 1), at, {}, THREADS))
    return Geometry(tuple(steps), used, layout)


class PolicyLossBackwardPlan(Plan):
    """dpolicy and dentropy of `PolicyLossPlan`; of the kind "value" dpolicy is the gradient of the values.

    dloss has the loss's shape and element; what a mean divides by is inside. Where two terms of a minimum are equal the
    slope is the mean of theirs, and a bound belongs to the range it closes (PyTorch's). A token that is clipped has a
    slope of 0, even where its ratio overflows. One launch of ratios a token without a mask; with one, or of ratios a
    sequence, one to three more. Sums are in float32, float64 of float64, in an order that extents alone fix.
    """

    op = "loss.policy_loss_backward"
    direction = "backward"
    kinds = PolicyLossKind
    descriptor = PolicyLossBackwardDescriptor
    args = PolicyLossBackwardArgs
    reference = staticmethod(reference)
    variants = (
        Variant(
            "chunks", _geometry, source="loss/policy_loss.cu", guarantee=Guarantee(Relative(2), batch_invariant=True),
            kernels=(*FORWARD_KERNELS,
                     Kernel("policy_gradient", "policy_gradient<{T}>", GRADIENT, threads=THREADS, kindless=True)),
        ),
    )  # fmt: skip
    benchmarks = tuple(
        Benchmark(f"policy, {level} ratios, [512, 8192] f32", kind="policy", batch=512, tokens=8192, beta=0.04,
                  importance_sampling_level=level, element="float32", also=("reference", "mask", "dpolicy"))
        for level in LEVELS
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> PolicyLossBackwardDescriptor:
        return PolicyLossBackwardDescriptor(kind=draw.kind, **policy_case(draw), element=draw.element)

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        whole = broadcast_shape(shapes, ("policy", "old"))
        facts.setdefault("batch", whole[0] if len(whole) == 2 else 0)
        facts.setdefault("tokens", whole[1] if len(whole) == 2 else 0)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        require_some(views, "dpolicy", "dentropy")

    @classmethod
    def coupled(cls, desc: Any) -> bool:
        """A mean divides by the number of all items."""
        return desc.reduction not in ("none", "sum")


policy_loss_backward = functional(PolicyLossBackwardPlan)
