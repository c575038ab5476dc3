"""cross_entropy_terms_backward: the gradients of cross_entropy_terms by logits and probabilities.

dlogits = z'(x) (g (W p - w q' + 2 z_loss lse p) - dentropy p (entropy + log p))      W = Σ w q'
dprobabilities = g (1 - ε) w (lse - z)                                   g = dloss, divided as the mean was
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, ElementKind, Geometry, Guarantee, Params, Plan, Problem, Relative, Step, Variant,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.checked import require_some
from ...schedules.reduce import REDUCE
from ...schedules.loss_sums import total_weight
from ...schedules.row_groups import FLUSHED, group_params, group_rows
from .cross_entropy_terms import (
    FORWARD, OPTIONS, POINTERS, CrossEntropyTermsDescriptor, CrossEntropyTermsPlan, TargetKind, constants, entropy_of,
    finite_weights, group_of, losses_step, random_probabilities, scores, terms_case, terms_kernel,
)  # fmt: skip
from .row_loss import INTEGERS, THREADS
from .row_loss_backward import TOTAL_KERNELS

_LOGITS = "*batch_shape num_classes"


@dataclass(frozen=True, kw_only=True)
class CrossEntropyTermsBackwardDescriptor(CrossEntropyTermsDescriptor):
    """As `CrossEntropyTermsDescriptor`."""


@dataclass(slots=True, kw_only=True)
class CrossEntropyTermsBackwardArgs(Args):
    """Any strides. Operands are the forward's; dentropy may be None, as may either gradient."""

    dloss: Array = operand("*loss_shape", element="acc")
    dentropy: Array | None = operand("*batch_shape", element="acc", optional=True)
    logits: Array = operand(_LOGITS)
    targets: Array | None = operand(
        "*batch_shape", element=INTEGERS, kinds=(TargetKind.CLASSES,), values=(0, "num_classes")
    )
    probabilities: Array | None = operand(_LOGITS, kinds=(TargetKind.PROBABILITIES,), values=random_probabilities)
    weight: Array | None = operand("num_classes", optional=True, values=finite_weights)
    dlogits: Array | None = output(_LOGITS, optional=True)
    dprobabilities: Array | None = output(_LOGITS, optional=True, kinds=(TargetKind.PROBABILITIES,))


def reference(
    desc: CrossEntropyTermsBackwardDescriptor, *, dloss: Any, dentropy: Any, logits: Any, targets: Any,
    probabilities: Any, weight: Any, wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype the logits come in."""
    with np.errstate(all="ignore"):
        s = scores(desc, logits, targets, probabilities, weight)
        g = np.reshape(dloss, (-1, 1)) / (s.own.sum() if desc.reduction == "mean" else 1)
        p = np.exp(-s.low)
        made = {}
        if "dlogits" in wanted:
            pull = s.share.sum(1, keepdims=True) + 2 * desc.z_loss * s.lse
            found = np.where(s.counts, g * (pull * p - s.share), 0)
            if dentropy is not None:
                away = entropy_of(s) - s.low
                found = found - dentropy.reshape(-1, 1) * np.where(p == 0, np.where(np.isnan(away), away, 0), p * away)
            made["dlogits"] = (found * s.slope).astype(logits.dtype).reshape(logits.shape)
        if "dprobabilities" in wanted:
            w = np.ones(desc.num_classes, logits.dtype) if weight is None else weight
            made["dprobabilities"] = (g * (1 - desc.label_smoothing) * w * s.low).reshape(logits.shape)
    return made


BACKWARD = Params(
    "CrossEntropyTermsBackwardParams", **POINTERS, dloss="ptr", dentropy="ptr", dlogits="ptr", dprobabilities="ptr",
    total="ptr", status="status", divisor="f64", per_row="i32", divided="i32", **OPTIONS, **group_params(7, 3),
    **REDUCE,
)  # fmt: skip


def _total(p: Problem) -> tuple[tuple[Step, ...], int] | str:
    """The launches that leave the sum of the targets' weights at byte 0 of the workspace."""
    rows = group_rows((p.logits, None, None, None), (p.targets, None, None, None))
    return total_weight(p, rows, losses_step, ("loss", "entropy", "argmax"))


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    per_row = desc.reduction == "none"
    rows = group_rows(
        (p.logits, p.probabilities, None, None, p.dlogits, p.dprobabilities, None),
        (p.targets, p.dloss if per_row else None, p.dentropy),
    )
    if isinstance(rows, str):
        return rows
    if not rows.rows:
        return Geometry((), layout=rows.layout_class)
    by_weight = desc.reduction == "mean" and desc.kind is TargetKind.CLASSES
    total = _total(p) if by_weight else ((), 0)
    if isinstance(total, str):
        return total
    at = {
        "total": ("@workspace", 0) if by_weight else "@null", "divisor": desc.rows, "per_row": int(per_row),
        "divided": int(desc.reduction == "mean"),
    }  # fmt: skip
    group = group_of(desc)
    blocks = -(-rows.rows // (THREADS // group))
    last = Step(
        "cross_entropy_terms_backward", (blocks, 1, 1), {**constants(p, rows), **at}, {"G": group}, THREADS
    )  # fmt: skip
    return Geometry((*total[0], last), total[1], rows.layout_class)


def _error(kind: ElementKind, _: Any) -> Relative:
    """Exponentials and logarithms of doubles are less exact than NumPy's, which are nearly those of long doubles."""
    return Relative(3, mean=2) if kind is ElementKind.F64 else Relative(2)


class CrossEntropyTermsBackwardPlan(Plan):
    """dlogits and dprobabilities of `CrossEntropyTermsPlan`; nothing is saved, a row's sums are made again."""

    op = "loss.cross_entropy_terms_backward"
    direction = "backward"
    kinds = TargetKind
    descriptor = CrossEntropyTermsBackwardDescriptor
    args = CrossEntropyTermsBackwardArgs
    reference = staticmethod(reference)
    value_policy = CrossEntropyTermsPlan.value_policy
    variants = (
        Variant(
            "rows", _geometry, source="loss/cross_entropy_terms.cu",
            kernels=(terms_kernel("cross_entropy_terms_backward", BACKWARD), FORWARD, *TOTAL_KERNELS),
            guarantee=Guarantee(_error, batch_invariant=True, flushes=FLUSHED), may_spill=True,
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("probabilities [65536, 1024] bf16", kind="probabilities", batch_shape=65536, num_classes=1024,
                  element="bfloat16", also=("dlogits",)),
    )  # fmt: skip

    @classmethod
    def coupled(cls, desc: Any) -> bool:
        """A mean divides by the number of all items."""
        return desc.reduction not in ("none", "sum")

    @staticmethod
    def case(draw: Any) -> CrossEntropyTermsBackwardDescriptor:
        return CrossEntropyTermsBackwardDescriptor(kind=draw.kind, **terms_case(draw), element=draw.element)

    @classmethod
    def complete(cls, desc: CrossEntropyTermsBackwardDescriptor, arrays: dict[str, Any]) -> None:
        """Every fifth row of classes is ignored."""
        CrossEntropyTermsPlan.complete(desc, arrays)

    @classmethod
    def check_values(cls, desc: CrossEntropyTermsBackwardDescriptor, arrays: Mapping[str, Any]) -> str | None:
        """As of the forward op."""
        return CrossEntropyTermsPlan.check_values(desc, arrays)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        require_some(views, "dlogits", "dprobabilities")


cross_entropy_of_classes_backward = functional(
    CrossEntropyTermsBackwardPlan, "cross_entropy_of_classes_backward", kind=TargetKind.CLASSES,
    doc="The gradient of cross_entropy_of_classes; see `CrossEntropyTermsBackwardPlan`.",
)  # fmt: skip
cross_entropy_of_probabilities_backward = functional(
    CrossEntropyTermsBackwardPlan, "cross_entropy_of_probabilities_backward", kind=TargetKind.PROBABILITIES,
    ignore_index=-100, doc="The gradients of cross_entropy_of_probabilities; see `CrossEntropyTermsBackwardPlan`.",
)  # fmt: skip
