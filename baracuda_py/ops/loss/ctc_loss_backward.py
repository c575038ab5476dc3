"""ctc_loss_backward: the gradient of ctc_loss by log_probs."""

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
from .ctc_formulas import alpha_of, log_sum, sequences, state_log_probs, states_of
from .ctc_formulas import reference as forward
from .ctc_loss import (
    FIELDS, INTEGERS, THREADS, CtcLossDescriptor, CtcLossPlan, benchmark_operands, constants, ctc_case, random_lengths,
    random_log_probs, random_steps, random_targets, wrong_values,
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class CtcLossBackwardDescriptor(CtcLossDescriptor):
    """As `CtcLossDescriptor`."""


@dataclass(slots=True, kw_only=True)
class CtcLossBackwardArgs(Args):
    """Any strides. dloss has the loss's shape and element; log_alpha and nll are the forward's."""

    dloss: Array = operand("*loss_shape", element="loss_element")
    log_probs: Array = operand("input_length batch classes", values=random_log_probs)
    targets: Array = operand("*target_shape", element=INTEGERS, values=random_targets)
    input_lengths: Array = operand("batch", element=INTEGERS, values=random_steps)
    target_lengths: Array = operand("batch", element=INTEGERS, values=random_lengths)
    log_alpha: Array = operand("batch input_length states", element="acc", layout="dense")
    nll: Array = operand("batch", element="acc")
    dlog_probs: Array = output("input_length batch classes")


def reference(
    desc: CtcLossBackwardDescriptor, *, dloss: Any, log_probs: Any, targets: Any, input_lengths: Any,
    target_lengths: Any, log_alpha: Any, nll: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype log_probs come in."""
    dtype, made = log_probs.dtype, np.zeros_like(log_probs)
    with np.errstate(all="ignore"):
        for n, (steps, labels, _) in enumerate(sequences(desc, targets, input_lengths, target_lengths)):
            if steps == 0 or (desc.zero_infinity and np.isposinf(nll[n])):
                continue
            classes, skips = states_of(desc, labels)
            here = state_log_probs(desc, log_probs, n, classes)
            back = np.zeros_like(skips)  # the same paths from the last step to the first
            back[:-2] = skips[2:]
            beta = alpha_of(here[:steps][::-1, ::-1], back[::-1], steps)[::-1, ::-1]
            both, lp = log_alpha[n, :steps, : len(classes)] + beta, log_probs[:steps, n]
            sums = np.full((steps, desc.classes), -np.inf, dtype)
            for s, c in enumerate(classes):
                if 0 <= c < desc.classes:
                    sums[:, c] = log_sum(sums[:, c], both[:, s])
            share = np.where(np.isneginf(sums) & np.isfinite(nll[n]), 0, np.exp(sums + nll[n] - lp))
            g = dloss[n] if desc.reduction == "none" else dloss
            g = g / (dtype.type(desc.batch) * max(len(labels), 1)) if desc.reduction == "mean" else g
            made[:steps, n] = g * (np.exp(lp) - share if desc.normalized else -share)
    return {"dlog_probs": made}


BETA = Params("CtcBetaParams", **FIELDS, log_beta="workspace", next="workspace", heads="workspace")
GRADIENT = Params(
    "CtcGradientParams", **FIELDS, dloss="ptr", log_alpha="ptr", nll="ptr", dlog_probs="ptr", log_beta="workspace",
    next="workspace", heads="workspace", dstep="i64[3]", per_item="i32", normalized="i32",
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    layout = "contiguous" if p.log_probs.dense and p.dlog_probs.dense else "strided"
    if not (desc.batch and desc.input_length):
        return Geometry((), layout=layout)
    facts, per_item = constants(p), desc.reduction == "none"
    whole = aligned(desc.batch * desc.input_length * desc.states * desc.acc.itemsize)
    chain = aligned(max(desc.batch * facts["most"] * 4, 1))
    places = {"log_beta": 0, "next": whole, "heads": whole + chain}
    at = {**facts, **places, "loss_step": p.dloss.strides[0] if per_item else 0}
    more = {"dstep": list(p.dlog_probs.strides), "per_item": int(per_item), "normalized": int(desc.normalized)}
    steps = (
        Step("ctc_beta", (desc.batch, 1, 1), at, {}, THREADS),
        Step("ctc_gradient", (desc.batch * desc.input_length, 1, 1), {**at, **more}, {}, THREADS),
    )
    return Geometry(steps, whole + 2 * chain, layout)


class CtcLossBackwardPlan(Plan):
    """dlog_probs of `CtcLossPlan`: PyTorch's, which adds exp(log_probs) for what is a log_softmax, or the derivative.

    Steps beyond a sequence's length have 0, as has a sequence whose infinite loss zero_infinity made 0. The workspace
    has as many elements as log_alpha. A class's states are added in the order of its labels, the blank's as a tree:
    sequences alone fix the order of every sum.
    """

    op = "loss.ctc_loss_backward"
    direction = "backward"
    descriptor = CtcLossBackwardDescriptor
    args = CtcLossBackwardArgs
    reference = staticmethod(reference)
    value_policy = CtcLossPlan.value_policy
    variants = (
        Variant(
            "block", _geometry, source="loss/ctc_loss_backward.cu",
            guarantee=Guarantee(Relative(2), batch_invariant=True),
            kernels=(Kernel("ctc_beta", "ctc_beta<{T}>", BETA, threads=THREADS),
                     Kernel("ctc_gradient", "ctc_gradient<{T}>", GRADIENT, threads=THREADS)),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("[512, 64, 5000] f32, targets of 64", input_length=512, batch=64, classes=5000, target_shape=(64, 64),
                  make=benchmark_operands, element="float32"),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> CtcLossBackwardDescriptor:
        return CtcLossBackwardDescriptor(**ctc_case(draw), element=draw.element)

    @classmethod
    def complete(cls, desc: CtcLossBackwardDescriptor, arrays: dict[str, Any]) -> None:
        """log_alpha and nll become what the forward makes."""
        names = ("targets", "input_lengths", "target_lengths")
        log_probs = decode(arrays["log_probs"], desc.element).astype(np.float64)
        made = forward(desc, log_probs=log_probs, wanted=set(), **{name: arrays[name] for name in names})
        arrays["log_alpha"], arrays["nll"] = (np.array(cast(made[name], desc.acc)) for name in ("log_alpha", "nll"))

    @classmethod
    def check_values(cls, desc: CtcLossBackwardDescriptor, arrays: Mapping[str, Any]) -> str | None:
        """As of the forward op."""
        return wrong_values(desc, arrays)


ctc_loss_backward = functional(CtcLossBackwardPlan)
