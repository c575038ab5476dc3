"""row_loss_backward: the gradients of `RowLossKind` by its operands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Geometry, Guarantee, Params, Plan, Problem, Relative, Step, Variant,
    operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.checked import require_some
from ...schedules.loss_sums import of_dense, total_weight
from ...schedules.reduce import REDUCE, reduce_kernels
from ...schedules.row_groups import group_params
from .pointwise_loss_backward import TOTAL
from .row_kinds import RowLossKind
from .row_loss import (
    INTEGERS, NAMED, OPTION_FIELDS, PARAMS, POINTERS, ROWS, THREADS, WEIGHTED, RowLossDescriptor, RowLossPlan,
    constants, fixed_for, group_of, losses_step, matrices, random_labels, random_parts, random_targets, row_case,
    row_kernel, rows_of, some_ignored,
)  # fmt: skip

K = RowLossKind


@dataclass(frozen=True, kw_only=True)
class RowLossBackwardDescriptor(RowLossDescriptor):
    """As `RowLossDescriptor`."""


@dataclass(slots=True, kw_only=True)
class RowLossBackwardArgs(Args):
    """Any strides. Operands are the forward's; each gradient may be None. Targets that are classes, and weights, have
    none."""

    dloss: Array = operand("*loss_shape", element="loss_element")
    x: Array = operand(ROWS)
    other: Array | None = operand(ROWS, kinds=(K.COSINE_EMBEDDING,))
    positive: Array | None = operand(ROWS, kinds=(K.TRIPLET_MARGIN,))
    negative: Array | None = operand(ROWS, kinds=(K.TRIPLET_MARGIN,))
    hits: Array | None = operand(ROWS, kinds=(K.MULTILABEL_SOFT_MARGIN,), values=random_parts)
    labels: Array | None = operand(ROWS, element=INTEGERS, kinds=(K.MULTILABEL_MARGIN,), values=random_labels)
    target: Array | None = operand("*batch_shape", element="target_element", kinds=NAMED, values=random_targets)
    weight: Array | None = operand("features", kinds=WEIGHTED, optional=True, values=random_parts)
    dx: Array | None = output(ROWS, optional=True)
    dother: Array | None = output(ROWS, optional=True, kinds=(K.COSINE_EMBEDDING,))
    dpositive: Array | None = output(ROWS, optional=True, kinds=(K.TRIPLET_MARGIN,))
    dnegative: Array | None = output(ROWS, optional=True, kinds=(K.TRIPLET_MARGIN,))
    dhits: Array | None = output(ROWS, optional=True, kinds=(K.MULTILABEL_SOFT_MARGIN,))


def gradients_of(desc: Any) -> tuple[str, ...]:
    """The outputs of a kind, in the order of the functor's operands."""
    return ("dx", *(f"d{name}" for name in desc.kind.row.operands))


def reference(desc: RowLossBackwardDescriptor, *, dloss: Any, wanted: set[str], **operands: Any) -> Mapping[str, Any]:
    """NumPy in the dtype the operands come in."""
    given = matrices(desc, **operands)
    with np.errstate(all="ignore"):
        g = np.broadcast_to(np.reshape(dloss, (-1, 1)), (desc.rows, 1))
        counted = np.asarray(desc.kind.row.losses(desc, *given)[1])
        if desc.reduction == "mean":
            g = g / counted.sum()
        g = np.where(counted[:, None] == 0, np.zeros_like(g), g)
        slopes = desc.kind.row.slopes(desc, *given)
        return {
            name: np.asarray(g * slope, operands["x"].dtype).reshape(operands["x"].shape)
            for name, slope in zip(gradients_of(desc), slopes, strict=False)
            if name in wanted
        }


_SLOTS = ("dx", "dother", "dnegative")
BACKWARD = Params(
    "RowLossBackwardParams", **dict.fromkeys((*POINTERS, "dloss", *_SLOTS, "total"), "ptr"), status="status",
    divisor="f64", per_row="i32", divided="i32", **OPTION_FIELDS, **group_params(7, 2),
    **REDUCE,
)  # fmt: skip


def _total(p: Problem) -> tuple[tuple[Step, ...], int] | str:
    """The launches that leave the sum of the rows' weights at byte 0 of the workspace."""
    return total_weight(p, rows_of(p, (), None), losses_step)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    per_row = desc.reduction == "none"
    names = dict(zip(_SLOTS, (n for n in gradients_of(desc)), strict=False))
    views = [p.views[names[slot]] if slot in names else None for slot in _SLOTS]
    rows = rows_of(p, tuple(views), p.dloss if per_row else None)
    if isinstance(rows, str):
        return rows
    if not rows.rows:
        return Geometry((), layout=rows.layout_class)
    by_weight = desc.reduction == "mean" and desc.kind.row.by_weight
    total = _total(p) if by_weight else ((), 0)
    if isinstance(total, str):
        return total
    at: dict[str, Any] = {
        slot: names[slot] if view is not None else "@null" for slot, view in zip(_SLOTS, views, strict=True)
    }
    at |= {
        "total": ("@workspace", 0) if by_weight else "@null", "divisor": desc.rows, "per_row": int(per_row),
        "divided": int(desc.reduction == "mean"),
    }  # fmt: skip
    group = group_of(desc)
    blocks = -(-rows.rows // (THREADS // group))
    last = Step("row_loss_backward", (blocks, 1, 1), {**constants(p, rows), **at}, {"G": group}, THREADS)
    return Geometry((*total[0], last), total[1], rows.layout_class)


TOTAL_KERNELS = tuple(
    replace(kernel, source="loss/pointwise_loss_total.cu")
    for kernel in of_dense(
        reduce_kernels("LossSum<{A}>", TOTAL, source="Mapped<LossWeight<{A}>, {A}>", prefix="total_",
                       width=lambda element: 16 // element.acc.itemsize)
    )
)  # fmt: skip


class RowLossBackwardPlan(Plan):
    """The gradients of the kinds of `RowLossKind`, one launch (of the mean of nll_loss a few more, for its weights).

    dloss has the loss's shape and element; what a mean divides by is inside. At a kink the gradient is PyTorch's. A row
    that counts for nothing has a gradient of 0, also where all do and the mean is NaN.
    Everything is in float32, float64 of float64, in an order that extents alone fix.
    """

    op = "loss.row_loss_backward"
    direction = "backward"
    kinds = RowLossKind
    descriptor = RowLossBackwardDescriptor
    args = RowLossBackwardArgs
    reference = staticmethod(reference)
    value_policy = RowLossPlan.value_policy
    variants = (
        Variant(
            "rows", _geometry, source="loss/row_loss.cu", guarantee=Guarantee(Relative(2), batch_invariant=True),
            kinds=tuple(kind for kind in RowLossKind if not kind.row.by_weight),
            kernels=(row_kernel("row_loss_backward", BACKWARD),), may_spill=True,
        ),
        Variant(
            "rows_by_weight", _geometry, source="loss/row_loss.cu",
            guarantee=Guarantee(Relative(2), batch_invariant=True),
            kinds=tuple(kind for kind in RowLossKind if kind.row.by_weight),
            kernels=(row_kernel("row_loss_backward", BACKWARD), row_kernel("row_loss", PARAMS), *TOTAL_KERNELS),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark(
            "triplet_margin_loss [65536, 1024] bf16", kind="triplet_margin_loss", batch_shape=65536, features=1024,
            element="bfloat16", also=("dx", "dpositive", "dnegative"),
        ),
    )  # fmt: skip

    @classmethod
    def coupled(cls, desc: Any) -> bool:
        """A mean divides by the number of all items."""
        return desc.reduction not in ("none", "sum")

    @staticmethod
    def case(draw: Any) -> RowLossBackwardDescriptor:
        return RowLossBackwardDescriptor(kind=draw.kind, **row_case(draw), element=draw.element)

    @classmethod
    def complete(cls, desc: RowLossBackwardDescriptor, arrays: dict[str, Any]) -> None:
        """Some rows of nll_loss are ignored, or all."""
        if desc.kind is K.NLL:
            arrays["target"] = some_ignored(arrays["target"], desc.ignore_index)

    @classmethod
    def check_values(cls, desc: RowLossBackwardDescriptor, arrays: Mapping[str, Any]) -> str | None:
        """As of the forward op."""
        return RowLossPlan.check_values(desc, arrays)

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        require_some(views, *gradients_of(desc))


def _function(kind: RowLossKind) -> Any:
    doc = f"The gradients of {kind.value}, of rows along the last axis; see `RowLossBackwardPlan`."
    return functional(RowLossBackwardPlan, f"{kind.value}_backward", doc, kind=kind, **fixed_for(kind))


nll_loss_backward = _function(K.NLL)
multi_margin_loss_backward = _function(K.MULTI_MARGIN)
multilabel_margin_loss_backward = _function(K.MULTILABEL_MARGIN)
multilabel_soft_margin_loss_backward = _function(K.MULTILABEL_SOFT_MARGIN)
cosine_embedding_loss_backward = _function(K.COSINE_EMBEDDING)
triplet_margin_loss_backward = _function(K.TRIPLET_MARGIN)
