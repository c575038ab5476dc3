"""row_loss: a loss of every row of features by one of `RowLossKind`, or their mean or sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem,
    Relative, Step, Variant, View, Vjp, choice, derived, element, extent, extents, flag, integer,
    number, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.tensor import Shape
from ...schedules.loss_sums import of_dense, rows_and_sum
from ...schedules.reduce import reduce_kernels, reduce_params
from ...schedules.row_groups import GroupRows, group_params, group_rows
from .row_kinds import OPTIONS, RowLossKind

K = RowLossKind
REDUCTIONS = ("none", "mean", "sum")
INTEGERS = (ElementKind.I64, ElementKind.I32)
THREADS = 256
ROWS = "*batch_shape features"


def _default(name: str) -> Any:
    """What a kind has for a field that is not given."""
    return derived(lambda desc: desc.kind.row.takes.get(name, OPTIONS[name]))


@dataclass(frozen=True, kw_only=True)
class RowLossDescriptor(Descriptor):
    """Operands have shape (*batch_shape, features); the loss has shape () or, with reduction "none", batch_shape.

    ignore_index: of nll_loss. p: 1 or 2 for multi_margin_loss, of triplet_margin_loss the order of its norm, from 0 on.
    margin: of multi_margin_loss, cosine_embedding_loss and triplet_margin_loss. eps (added to every difference) and
    swap: of triplet_margin_loss.
    """

    kind: RowLossKind = choice(RowLossKind)
    batch_shape: Shape = extents()
    features: int = extent(minimum=1)
    reduction: str = choice(REDUCTIONS, "mean")
    ignore_index: int = integer(_default("ignore_index"))
    p: float = number(_default("p"), minimum=0.0, infinite=True)
    margin: float = number(_default("margin"))
    eps: float = number(_default("eps"))
    swap: bool = flag(_default("swap"))
    element: ElementKind = element()

    def validate(self) -> None:
        for option, usual in OPTIONS.items():
            value = getattr(self, option)
            if option not in self.kind.row.takes and value != usual:
                raise InvalidProblemError(f"{self.kind.value} has no {option}; it must be {usual}, got {value}")
        if self.kind is K.MULTI_MARGIN and self.p not in (1, 2):
            raise InvalidProblemError(f"p of multi_margin_loss must be 1 or 2, got {self.p}")

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return math.prod(self.batch_shape)

    @property
    def loss_shape(self) -> Shape:
        """One loss a row, or one in all."""
        return self.batch_shape if self.reduction == "none" else ()

    @property
    def loss_element(self) -> ElementKind:
        """The operands' element for losses of rows; their means and sums are in the accumulator's."""
        return self.element if self.reduction == "none" else self.acc

    @property
    def target_element(self) -> tuple[ElementKind, ...]:
        """Classes are integers; the signs of cosine_embedding_loss may be numbers of x's element."""
        return (self.element, *INTEGERS) if self.kind is K.COSINE_EMBEDDING else INTEGERS


def random_labels(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: classes up to a place that differs from row to row, then -1."""
    made = rng.integers(0, desc.features, shape)
    return np.where(np.arange(desc.features) < rng.integers(0, desc.features + 1, (*shape[:-1], 1)), made, -1)


def random_targets(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: classes, or signs."""
    if desc.kind is K.COSINE_EMBEDDING:
        return rng.choice((-1, 1), shape)
    return rng.integers(0, desc.features, shape)


def random_parts(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: weights and targets of labels."""
    return rng.uniform(0.25, 1.0, shape)


WEIGHTED = (K.NLL, K.MULTI_MARGIN, K.MULTILABEL_SOFT_MARGIN)
NAMED = (K.NLL, K.MULTI_MARGIN, K.COSINE_EMBEDDING)


@dataclass(slots=True, kw_only=True)
class RowLossArgs(Args):
    """Any strides. loss is in the operands' element, means and sums in the accumulator's.

    target: the classes of nll_loss and multi_margin_loss, 1 or -1 for cosine_embedding_loss. labels: the classes of
    multilabel_margin_loss, which end before the first that is none. hits: the targets of multilabel_soft_margin_loss,
    in [0, 1]. other: the second input of cosine_embedding_loss. positive, negative: of triplet_margin_loss, whose
    anchor is x. weight: of the classes.
    """

    x: Array = operand(ROWS)
    other: Array | None = operand(ROWS, kinds=(K.COSINE_EMBEDDING,))
    positive: Array | None = operand(ROWS, kinds=(K.TRIPLET_MARGIN,))
    negative: Array | None = operand(ROWS, kinds=(K.TRIPLET_MARGIN,))
    hits: Array | None = operand(ROWS, kinds=(K.MULTILABEL_SOFT_MARGIN,), values=random_parts)
    labels: Array | None = operand(ROWS, element=INTEGERS, kinds=(K.MULTILABEL_MARGIN,), values=random_labels)
    target: Array | None = operand("*batch_shape", element="target_element", kinds=NAMED, values=random_targets)
    weight: Array | None = operand("features", kinds=WEIGHTED, optional=True, values=random_parts)
    loss: Array = output("*loss_shape", element="loss_element")


def matrices(desc: Any, **given: Any) -> tuple[Any, ...]:
    """x, the kind's other operands (None for those it has not), labels, target and weight as the formulas take them."""
    names = (*desc.kind.row.operands, "", "")[:2]
    whole = [given["x"], *(given[n] if n else None for n in names), given["labels"]]
    rows = [None if one is None else one.reshape(desc.rows, desc.features) for one in whole]
    target = None if given["target"] is None else given["target"].reshape(desc.rows)
    return (*rows, target, given["weight"])


def reference(
    desc: RowLossDescriptor, *, x: Any, other: Any, positive: Any, negative: Any, hits: Any, labels: Any, target: Any,
    weight: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype the operands come in."""
    given = matrices(
        desc, x=x, other=other, positive=positive, negative=negative, hits=hits, labels=labels, target=target,
        weight=weight,
    )  # fmt: skip
    with np.errstate(all="ignore"):
        losses, weights = desc.kind.row.losses(desc, *given)
        losses = np.asarray(losses, x.dtype)
        if desc.reduction == "none":
            return {"loss": losses.reshape(desc.batch_shape)}
        return {"loss": losses.sum() / weights.sum() if desc.reduction == "mean" else losses.sum()}


OPTION_FIELDS: dict[str, str | int] = {
    **dict.fromkeys(("margin", "eps", "order"), "f64"), **dict.fromkeys(("ignore", "weight_step", "label_step"), "i64"),
    **dict.fromkeys(("swap", "wide_targets", "whole_target", "wide"), "i32"),
    "row_loss_threads": THREADS,
}  # fmt: skip
POINTERS = ("x", "other", "negative", "labels", "target", "weight")
PARAMS = Params(
    "RowLossParams", **dict.fromkeys(POINTERS, "ptr"), loss="ptr", losses="workspace", weights="workspace",
    status="status", keep="i32", keep_weights="i32", **OPTION_FIELDS, **group_params(4, 2),
)  # fmt: skip
SUM = reduce_params("RowLossSumParams", ("losses", "weights"), divisor="f64", divided="i32", present="i32")


SUMS = of_dense(
    reduce_kernels(
        "WeightedLossSum<{T}>", SUM, prefix="sum_",
        source="Mapped<RowLosses<{T}>, {A}, {A}>", width=lambda element: 16 // element.acc.itemsize,
    )
)  # fmt: skip
"""The kernels that add up the losses of rows."""


def group_of(desc: Any) -> int:
    """Threads of a row: they follow from its length, and so does the order of its sums."""
    return 1 if desc.features <= 32 else 32 if desc.features <= 4096 else THREADS


def row_kernel(name: str, params: Params) -> Kernel:
    """One for each size of a group."""
    call = f"{name}<{{KIND}}, {{T}}, {{G}}>"
    return Kernel(name, call, params, {"G": (1, 32, THREADS)}, threads=THREADS)


def rows_of(p: Problem, gradients: tuple[View | None, ...], loss: View | None) -> GroupRows | str:
    """Operands, labels and gradients; one element a row of target and loss."""
    first, second = operand_views(p)
    return group_rows((p.x, first, second, p.labels, *gradients), (p.target, loss))


def operand_views(p: Problem) -> tuple[View | None, View | None]:
    """The operands besides x, in the functor's order."""
    first, second = (*(p.views[n] for n in p.desc.kind.row.operands), None, None)[:2]
    return first, second


def constants(p: Problem, rows: GroupRows) -> dict[str, Any]:
    """What every kernel of rows is told."""
    desc = p.desc
    whole = p.target if p.target is not None else p.labels
    names = (*desc.kind.row.operands, "@null", "@null")
    return {
        **rows.params(), "other": names[0], "negative": names[1], "margin": desc.margin, "eps": desc.eps,
        "order": desc.p, "ignore": desc.ignore_index if desc.kind is K.NLL else -1, "swap": int(desc.swap),
        "weight_step": 0 if p.weight is None else p.weight.strides[0],
        "label_step": 0 if p.labels is None else p.labels.strides[-1],
        "wide_targets": int(whole is not None and whole.element is ElementKind.I64),
        "whole_target": int(p.target is not None and p.target.element is not desc.element), "wide": int(rows.wide),
    }  # fmt: skip


def losses_step(p: Problem, rows: GroupRows, at: Mapping[str, Any]) -> Step:
    """The launch that makes the losses of rows, and their weights."""
    group = 1 if p.desc.kind.row.alone else group_of(p.desc)
    blocks = -(-rows.rows // (THREADS // group))
    return Step("row_loss", (blocks, 1, 1), {**constants(p, rows), **at}, {"G": group}, THREADS)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    per_row = desc.reduction == "none"
    rows = rows_of(p, (), p.loss if per_row else None)
    if isinstance(rows, str):
        return rows
    by_weight = desc.reduction == "mean" and desc.kind.row.by_weight
    return rows_and_sum(p, rows, by_weight, losses_step)


def in_torch(torch: Any, desc: RowLossDescriptor, *, x: Any, target: Any, weight: Any, **more: Any) -> Any:
    """PyTorch's function of the kind, some of which refuse what has no rows."""
    if desc.rows == 0:
        return NotImplemented
    operands = {n: None if v is None else v.reshape(desc.rows, desc.features) for n, v in {"x": x, **more}.items()}
    operands |= {"target": None if target is None else target.reshape(desc.rows), "weight": weight}
    made = desc.kind.row.torch(torch.nn.functional, desc, operands, desc.reduction)
    wide = torch.promote_types(made.dtype, torch.float32)
    return made.reshape(desc.batch_shape) if desc.reduction == "none" else made.to(wide)


def _error(element: ElementKind, kind: RowLossKind) -> Relative:
    """A row of multilabel_margin is a sum of features times labels terms, a chain for each thread."""
    return Relative(8, mean=4) if kind is K.MULTILABEL_MARGIN else Relative(2)


class RowLossPlan(Plan):
    """A loss of every row of features by `RowLossKind`, or their mean or sum (torch.nn.functional's losses).

    nll_loss: -weight[t] x[t], whose mean is over the sum of the weights. multi_margin_loss: weight[t] Σ max(0, margin -
    x[t] + x[c])^p / features over the columns c but t. multilabel_margin_loss: Σ max(0, 1 - x[t] + x[c]) / features
    over the labels t and the columns c that are none. multilabel_soft_margin_loss: the mean of weight[c] times the
    cross entropy of logits. cosine_embedding_loss: 1 - cos for a target of 1, max(0, cos - margin) for -1, else 0.
    triplet_margin_loss: max(0, margin + d(x, positive) - d(x, negative)), d the norm of order p of the difference plus
    eps; with swap the negative's distance from the positive where that is less. The mean of no rows is NaN.

    Everything is computed and added in float32 (float64 of float64): a row's loss depends on its elements alone, the
    order in which losses are added on their number.
    """

    op = "loss.row_loss"
    kinds = RowLossKind
    descriptor = RowLossDescriptor
    args = RowLossArgs
    reference = staticmethod(reference)
    value_policy = (
        "a class outside [0, features) that is not ignore_index counts as ignored, and in multi_margin_loss has a loss "
        "of 0; labels end before the first that is no class"
    )
    vjp = Vjp(
        "RowLossBackwardPlan",
        grads={"x": "dx", "other": "dother", "positive": "dpositive", "negative": "dnegative", "hits": "dhits"},
    )
    variants = (
        Variant(
            "rows", _geometry, source="loss/row_loss.cu",
            kernels=(row_kernel("row_loss", PARAMS),
                     *SUMS),
            guarantee=Guarantee(_error, batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = tuple(
        Benchmark(f"{kind} [65536, 1024] bf16", kind=kind, batch_shape=65536, features=1024, element="bfloat16")
        for kind in ("nll_loss", "multilabel_soft_margin_loss", "cosine_embedding_loss", "triplet_margin_loss")
    )

    @staticmethod
    def case(draw: Any) -> RowLossDescriptor:
        return RowLossDescriptor(kind=draw.kind, **row_case(draw), element=draw.element)

    @classmethod
    def complete(cls, desc: RowLossDescriptor, arrays: dict[str, Any]) -> None:
        """Some rows of nll_loss are ignored."""
        if desc.kind is K.NLL:
            arrays["target"] = some_ignored(arrays["target"], desc.ignore_index)

    @classmethod
    def check_values(cls, desc: RowLossDescriptor, arrays: Mapping[str, Any]) -> str | None:
        """Targets must name a class or be ignored."""
        if desc.kind not in (K.NLL, K.MULTI_MARGIN):
            return None
        t = arrays["target"]
        bad = (t < 0) | (t >= desc.features)
        bad &= (t != desc.ignore_index) if desc.kind is K.NLL else True
        return f"{np.count_nonzero(bad)} targets outside [0, {desc.features})" if bad.any() else None


def some_ignored(targets: Any, ignore_index: int) -> Any:
    """Test data: targets of which every fifth is ignored, of some problems all."""
    made = targets.copy()
    every = targets.sum() % 6 == 0
    made.flat[slice(None) if every else slice(4, None, 5)] = ignore_index
    return made


def row_case(draw: Any) -> dict[str, Any]:
    """Rows of every group, every reduction, options of the kind."""
    few = draw.kind is K.MULTILABEL_MARGIN
    features = draw.sizes(5, 1, 3, 32, 33, 70, rare=(130, 4200) if few else (130, 1000, 5001))
    batch = draw.shape(0, 3 if features < 200 else 1, 0, 5 if features < 200 else 2)
    if features <= 5 and draw.rarely():  # losses of several segments
        batch = (9001,)
    facts: dict[str, Any] = {
        "batch_shape": batch, "features": features,
        "reduction": draw.choice(REDUCTIONS),
    }  # fmt: skip
    orders = (1.0, 2.0) if draw.kind is K.MULTI_MARGIN else (2.0, 1.0, 3.0, math.inf)
    choices = {
        "ignore_index": (-100, 1), "p": orders, "margin": (1.0, 0.25), "eps": (1e-6, 1e-2), "swap": (False, True),
    }  # fmt: skip
    return facts | {name: draw.choice(choices[name]) for name in draw.kind.row.takes}


def fixed_for(kind: RowLossKind) -> dict[str, Any]:
    """What the function of a kind does not ask."""
    return {name: usual for name, usual in OPTIONS.items() if name not in kind.row.takes}


def _function(kind: RowLossKind, of: str) -> Callable[..., Any]:
    doc = f"{kind.value} of every row along the last axis{of}, or their mean or sum; see `RowLossPlan`."
    return functional(RowLossPlan, kind.value, doc, kind=kind, **fixed_for(kind))


nll_of_rows: Any = functional(
    RowLossPlan,
    "nll_of_rows",
    "nll_loss of rows along the last axis; see `RowLossPlan`.",
    kind=K.NLL,
    **fixed_for(K.NLL),
)
multi_margin_loss = _function(K.MULTI_MARGIN, " (p, margin, class weights)")
multilabel_margin_loss = _function(K.MULTILABEL_MARGIN, "")
multilabel_soft_margin_loss = _function(K.MULTILABEL_SOFT_MARGIN, " (class weights)")
cosine_embedding_loss = _function(K.COSINE_EMBEDDING, " (margin)")
triplet_margin_loss = _function(K.TRIPLET_MARGIN, " (margin, p, eps, swap)")
