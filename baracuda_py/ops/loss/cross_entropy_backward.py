"""Gradient of cross_entropy from its saved statistics (torch's log_softmax and nll_loss backward in one pass).

With p = exp(logits - max) / sum, W = Σ w and g = dloss, divided by total_weight under "mean",

    dlogits = g ((1 - ε) w[t] (p - onehot(t)) + ε / C (W p - w))        0 where t is ignore_index
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
from ...core.element import cast, decode
from ...core.variant import aligned
from ...schedules.row_groups import FLUSHED, GROUPS, STRIDED, WIDE, group_kernels, group_of, group_params, launch
from .cross_entropy import (
    PREPARE_KERNEL, CrossEntropyLossDescriptor, CrossEntropyLossPlan, common, prepare_step, random_weights, target_rows,
)  # fmt: skip
from .cross_entropy_formulas import gradient, target_terms
from .cross_entropy_formulas import reference as forward
from ...core.benchmark import Benchmark

_LOGITS = "*batch_shape num_classes"
_AT_ONCE = 2


@dataclass(slots=True, kw_only=True)
class CrossEntropyLossBackwardArgs(Args):
    """`stats` and `total_weight` are outputs of the forward; without total_weight it is summed again from the targets.

    stats[..., 0] is the maximum of a row, stats[..., 1] its Σ exp(logits - maximum): no probability exceeds 1, however
    far from 0 the logits are.
    """

    dloss: Array = operand("*loss_shape", element="acc")
    logits: Array = operand(_LOGITS)
    targets: Array = operand("*batch_shape", element=(ElementKind.I64, ElementKind.I32), values=(0, "num_classes"))
    stats: Array = operand("*batch_shape 2", element="acc", layout="dense")
    weight: Array | None = operand("num_classes", optional=True, values=random_weights)
    total_weight: Array | None = operand(element="acc", optional=True)
    dlogits: Array = output(_LOGITS, inplace=("logits",))


def reference(
    desc: CrossEntropyLossDescriptor, *, dloss: Any, logits: Any, targets: Any, stats: Any, weight: Any,
    total_weight: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype the logits come in."""
    rows = logits.reshape(-1, desc.num_classes)
    terms = target_terms(desc, targets, weight, rows.dtype)
    scale = np.broadcast_to(dloss.reshape(-1), terms[2].shape)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        if desc.reduction == "mean":
            scale = scale / (terms[2].sum() if total_weight is None else total_weight)
        top, total = np.split(stats.reshape(-1, 2), 2, axis=1)
        return {"dlogits": gradient(desc, np.exp(rows - top) / total, terms, weight, scale)}


PARAMS = Params(
    "CrossEntropyBackwardParams", dloss="ptr", logits="ptr", targets="ptr", stats="ptr", weight="ptr",
    total_weight="ptr", dlogits="ptr", prepared="workspace", status="status", smoothing="f64", parts="i64",
    segments="i64", ignore="i64", weight_step="i64", wide_targets="i32", mean="i32", wide_weight="i32",
    **group_params(2, 2),
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    rows = target_rows(p, (p.dloss if desc.reduction == "none" else None,))
    if isinstance(rows, str):
        return rows
    mean = desc.reduction == "mean"
    parts, prepare = prepare_step(p, rows, mean and p.total_weight is None)
    weight = p.weight
    group = group_of(desc.num_classes, desc.element, _AT_ONCE)
    segments = 1
    if group is None:
        group = GROUPS[-1]
        segments = -(-desc.num_classes * desc.element.itemsize // (group[0] * group[1] * 16))
    name, block, blocks = launch(rows.rows, group)
    constants = {
        **rows.params(), **common(p), "prepared": 0, "smoothing": desc.label_smoothing, "parts": parts,
        "mean": int(mean), "segments": segments,
        "wide_weight": int(weight is not None and weight.dense and weight.ptr % 16 == 0),
    }  # fmt: skip
    step = Step(name, (blocks * segments, 1, 1), constants, {"MODE": WIDE if rows.wide else STRIDED}, block)
    steps = (step,) if prepare is None else (prepare, step)
    return Geometry(steps, aligned(16 * (parts + 1)) if prepare else 0, rows.layout_class)


def _row(name: str, elements: tuple[ElementKind, ...], threads: int) -> Variant:
    call, modes = "cross_entropy_backward<{T}, {GROUP}, {MODE}>", {"MODE": (WIDE, STRIDED)}
    return Variant(
        name, _geometry, source="loss/cross_entropy_backward.cu", elements=elements,
        kernels=(*group_kernels(call, PARAMS, modes, _AT_ONCE, threads), PREPARE_KERNEL),
        guarantee=Guarantee(Relative(2), batch_invariant=True, flushes=FLUSHED),
    )  # fmt: skip


class CrossEntropyLossBackwardPlan(Plan):
    """dlogits of cross_entropy, from the statistics that it saved.

    With p = exp(logits - max) / sum, W = Σ w and g = dloss, over total_weight with "mean", a row has
    g ((1 - ε) w[t] (p - onehot(t)) + ε / C (W p - w)), and 0 where t is ignore_index.
    """

    op = "loss.cross_entropy_backward"
    direction = "backward"
    descriptor = CrossEntropyLossDescriptor
    args = CrossEntropyLossBackwardArgs
    reference = staticmethod(reference)
    value_policy = CrossEntropyLossPlan.value_policy
    variants = (
        _row("row", (ElementKind.F32, ElementKind.F16, ElementKind.BF16), 1024),
        _row("row_f64", (ElementKind.F64,), 512),
    )
    benchmarks = (
        Benchmark(
            "[8192, 128256] bf16", batch_shape=8192, num_classes=128256, element="bfloat16", also=("total_weight",),
            peers=(),
        ),
    )  # fmt: skip

    case = staticmethod(CrossEntropyLossPlan.case)
    check_values = CrossEntropyLossPlan.check_values

    @classmethod
    def coupled(cls, desc: CrossEntropyLossDescriptor) -> bool:
        """A mean divides by the weights of all items."""
        return desc.reduction == "mean"

    @classmethod
    def complete(cls, desc: CrossEntropyLossDescriptor, arrays: dict[str, Any]) -> None:
        """Some rows are ignored; stats and total_weight become what the forward gives."""
        CrossEntropyLossPlan.complete(desc, arrays)
        given = {
            name: None if arrays[name] is None else decode(arrays[name], desc.element).astype(np.float64)
            for name in ("logits", "weight")
        }
        results = forward(desc, targets=arrays["targets"], wanted=set(), **given)
        arrays["stats"] = np.array(cast(results["stats"], desc.acc))
        if arrays["total_weight"] is not None:
            arrays["total_weight"] = np.array(cast(results["total_weight"], desc.acc))

    @classmethod
    def bytes(cls, desc: CrossEntropyLossDescriptor) -> int:
        """The logits read and their gradient written once, with int64 targets and statistics."""
        rows = int(np.prod(desc.batch_shape, dtype=np.int64))
        return rows * (2 * desc.num_classes * desc.element.itemsize + 8 + 2 * desc.acc.itemsize)


cross_entropy_backward = functional(CrossEntropyLossBackwardPlan)
