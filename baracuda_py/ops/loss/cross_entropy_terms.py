"""cross_entropy_terms: cross entropy against classes or probabilities, with a z-loss, soft caps, entropy and argmax.

With x = logits, z = softcap tanh(logit_scale x / softcap), or logit_scale x, w the class weights (1 without), ε the
label smoothing, q the target (1 at its class) and q' = (1 - ε) q + ε / C

    loss    = Σ_c w[c] q'[c] (lse - z[c]) + z_loss lse²       lse = log Σ exp(z); 0 where the class is ignore_index
    mean    = Σ loss / Σ w[t] of classes, over the rows that count; Σ loss / rows of probabilities
    entropy = -Σ p log p, p = softmax(z);  argmax = the place of the largest z
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem,
    Relative, Step, Variant, Vjp, choice, element, extent, extents, integer, number, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.args import finite_only
from ...core.benchmark import Benchmark
from ...core.kinds import TableKind
from ...core.tensor import Shape
from ...schedules.loss_sums import rows_and_sum
from ...schedules.row_groups import GroupRows, group_params, group_rows
from .loss_kinds import random_weights
from .row_loss import INTEGERS, REDUCTIONS, SUMS, THREADS, some_ignored

_LOGITS = "*batch_shape num_classes"


@dataclass(frozen=True)
class Target:
    """A row: what the kernel is told."""

    cpp: str


class TargetKind(TableKind):
    """What a row is compared with."""

    CLASSES = "classes", Target("false")
    PROBABILITIES = "probabilities", Target("true")


_CLASSES, _SOFT = (TargetKind.CLASSES,), (TargetKind.PROBABILITIES,)


@dataclass(frozen=True, kw_only=True)
class CrossEntropyTermsDescriptor(Descriptor):
    """logits (*batch_shape, num_classes); the loss has shape () or, with "none", batch_shape.

    z_loss: the factor of lse². softcap: 0 for none. logit_scale: what logits are multiplied by first.
    """

    kind: TargetKind = choice(TargetKind)
    batch_shape: Shape = extents()
    num_classes: int = extent(minimum=1)
    ignore_index: int = integer(-100)
    label_smoothing: float = number(0.0, minimum=0.0, maximum=1.0)
    z_loss: float = number(0.0)
    softcap: float = number(0.0, minimum=0.0)
    logit_scale: float = number(1.0)
    reduction: str = choice(REDUCTIONS, "mean")
    element: ElementKind = element()

    def validate(self) -> None:
        if self.kind is TargetKind.PROBABILITIES and self.ignore_index != -100:
            raise InvalidProblemError(f"probabilities have no ignore_index; it must be -100, got {self.ignore_index}")

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(np.prod(self.batch_shape, dtype=np.int64))

    @property
    def loss_shape(self) -> Shape:
        """One loss a row, or one in all."""
        return self.batch_shape if self.reduction == "none" else ()

    @property
    def features(self) -> int:
        """The length of a row."""
        return self.num_classes


@finite_only  # as the policy says
def finite_weights(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: weights are positive."""
    return random_weights(rng, desc, shape)


@finite_only
def random_probabilities(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: rows that sum to 1."""
    made = rng.uniform(0.05, 1.0, shape)
    return made / made.sum(-1, keepdims=True)


@dataclass(slots=True, kw_only=True)
class CrossEntropyTermsArgs(Args):
    """Any strides. loss and entropy are in the accumulator's element: float32, float64 for float64 logits."""

    logits: Array = operand(_LOGITS)
    targets: Array | None = operand("*batch_shape", element=INTEGERS, kinds=_CLASSES, values=(0, "num_classes"))
    probabilities: Array | None = operand(_LOGITS, kinds=_SOFT, values=random_probabilities)
    weight: Array | None = operand("num_classes", optional=True, values=finite_weights)
    loss: Array = output("*loss_shape", element="acc")
    entropy: Array | None = output("*batch_shape", element="acc", optional=True)
    argmax: Array | None = output("*batch_shape", element=ElementKind.I64, optional=True)


@dataclass
class Scores:
    """What a row's loss and its derivative are made of, in NumPy: [rows, classes] and [rows, 1]."""

    z: Any
    slope: Any  # of z by the logits
    low: Any  # lse - z
    lse: Any
    share: Any  # w q'
    counts: Any
    own: Any  # what a row counts in a mean


def scores(desc: Any, logits: Any, targets: Any, probabilities: Any, weight: Any) -> Scores:
    """Of operands of any batch shape."""
    x = logits.reshape(-1, desc.num_classes)
    z, slope = desc.logit_scale * x, np.full_like(x, desc.logit_scale)
    if desc.softcap > 0:
        t = np.tanh(z / desc.softcap)
        z, slope = desc.softcap * t, desc.logit_scale * (1 - t * t)
    top = z.max(1, keepdims=True)
    log_s = np.log(np.exp(z - top).sum(1, keepdims=True))
    w = np.ones(desc.num_classes, x.dtype) if weight is None else weight
    if desc.kind is TargetKind.CLASSES:
        t = targets.reshape(-1)
        counts = (t != desc.ignore_index) & (t >= 0) & (t < desc.num_classes)
        index = np.where(counts, t, 0)
        q, own = np.zeros_like(x), np.where(counts, w[index], 0).astype(x.dtype)
        q[np.arange(len(t)), index] = 1
    else:
        q, counts, own = probabilities.reshape(x.shape), np.ones(len(x), bool), np.ones(len(x), x.dtype)
    share = w * ((1 - desc.label_smoothing) * q + desc.label_smoothing / desc.num_classes)
    return Scores(z, slope, (top - z) + log_s, top + log_s, share.astype(x.dtype), counts[:, None], own)


def entropy_of(s: Scores) -> Any:
    """[rows, 1]"""
    p = np.exp(-s.low)
    return np.where(p == 0, np.where(np.isnan(s.low), s.low, 0), p * s.low).sum(1, keepdims=True)


def reference(
    desc: CrossEntropyTermsDescriptor, *, logits: Any, targets: Any, probabilities: Any, weight: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype the logits come in."""
    with np.errstate(all="ignore"):
        s = scores(desc, logits, targets, probabilities, weight)
        terms = np.where(s.share == 0, np.where(np.isnan(s.low), s.low, 0), s.share * s.low)
        loss = terms.sum(1, keepdims=True) + (desc.z_loss * s.lse * s.lse if desc.z_loss else 0)
        loss = np.where(s.counts, loss, 0)[:, 0].astype(logits.dtype)
        made = {"loss": loss.reshape(desc.batch_shape)}
        if desc.reduction != "none":
            made["loss"] = loss.sum() / s.own.sum() if desc.reduction == "mean" else loss.sum()
        if "entropy" in wanted:
            made["entropy"] = entropy_of(s).reshape(desc.batch_shape)
        made["argmax"] = s.z.argmax(1).reshape(desc.batch_shape)
    return made


POINTERS = {"x": "ptr", "other": "ptr", "negative": "ptr", "labels": "ptr", "target": "ptr", "weight": "ptr"}
OPTIONS: dict[str, str | int] = {
    **dict.fromkeys(("smoothing", "z_loss", "softcap", "logit_scale"), "f64"),
    **dict.fromkeys(("ignore", "weight_step"), "i64"), **dict.fromkeys(("wide_targets", "wide"), "i32"),
    "row_loss_threads": THREADS,
}  # fmt: skip
PARAMS = Params(
    "CrossEntropyTermsParams", **POINTERS, loss="ptr", entropy="ptr", argmax="ptr", losses="workspace",
    weights="workspace", status="status", keep="i32", keep_weights="i32", **OPTIONS, **group_params(4, 4),
)  # fmt: skip


def group_of(desc: Any) -> int:
    """Threads of a row: they follow from its length, and so does the order of its sums."""
    return 1 if desc.num_classes <= 32 else 32 if desc.num_classes <= 2048 else THREADS


def _blocks(kind: ElementKind, _: Any) -> int:
    """Of 16-bit logits so many blocks a multiprocessor keep enough loads on their way."""
    return 3 if kind.itemsize == 2 else 0


def terms_kernel(name: str, params: Params) -> Kernel:
    """One for each size of a group."""
    call = f"{name}<{{KIND}}, {{T}}, {{G}}>"
    return Kernel(name, call, params, {"G": (1, 32, THREADS)}, threads=THREADS, min_blocks=_blocks)


FORWARD = terms_kernel("cross_entropy_terms", PARAMS)


def constants(p: Problem, rows: GroupRows) -> dict[str, Any]:
    """What every kernel is told."""
    desc = p.desc
    soft = desc.kind is TargetKind.PROBABILITIES
    return {
        **rows.params(), "x": "logits", "other": "probabilities" if soft else "@null", "negative": "@null",
        "labels": "@null", "target": "@null" if soft else "targets", "smoothing": desc.label_smoothing,
        "z_loss": desc.z_loss, "softcap": desc.softcap, "logit_scale": desc.logit_scale, "ignore": desc.ignore_index,
        "weight_step": 0 if p.weight is None else p.weight.strides[0], "wide": int(rows.wide),
        "wide_targets": int(p.targets is not None and p.targets.element is ElementKind.I64),
    }  # fmt: skip


def losses_step(p: Problem, rows: GroupRows, at: Mapping[str, Any]) -> Step:
    """The launch that makes the losses of rows, and their weights."""
    group = group_of(p.desc)
    blocks = -(-rows.rows // (THREADS // group))
    return Step("cross_entropy_terms", (blocks, 1, 1), {**constants(p, rows), **at}, {"G": group}, THREADS)


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    per_row = desc.reduction == "none"
    rows = group_rows(
        (p.logits, p.probabilities, None, None), (p.targets, p.loss if per_row else None, p.entropy, p.argmax)
    )
    if isinstance(rows, str):
        return rows
    by_weight = desc.reduction == "mean" and desc.kind is TargetKind.CLASSES
    return rows_and_sum(p, rows, by_weight, losses_step)


def in_torch(
    torch: Any, desc: CrossEntropyTermsDescriptor, *, logits: Any, targets: Any, probabilities: Any, weight: Any,
    wanted: set[str],
) -> Any:  # fmt: skip
    """PyTorch's cross_entropy of the logits as they are scaled and capped, the other terms by their formulas."""
    x = logits.to(torch.promote_types(logits.dtype, torch.float32)).reshape(-1, desc.num_classes)
    z = desc.logit_scale * x
    z = desc.softcap * torch.tanh(z / desc.softcap) if desc.softcap > 0 else z
    soft = desc.kind is TargetKind.PROBABILITIES
    target = probabilities.to(z.dtype).reshape(z.shape) if soft else targets.reshape(-1).long()
    weight = None if weight is None else weight.to(z.dtype)
    loss = torch.nn.functional.cross_entropy(
        z, target, weight, ignore_index=desc.ignore_index, label_smoothing=desc.label_smoothing, reduction="none"
    )
    counted = torch.ones(len(z), dtype=torch.bool, device=z.device) if soft else target != desc.ignore_index
    loss = loss + torch.where(counted, desc.z_loss * torch.logsumexp(z, 1) ** 2, 0)
    if desc.reduction == "mean":
        own = counted.to(z.dtype) if weight is None or soft else torch.where(counted, weight[target.clamp(min=0)], 0)
        loss = loss.sum() / own.sum()
    made = {"loss": loss.sum() if desc.reduction == "sum" else loss.reshape(desc.loss_shape)}
    if "entropy" in wanted:
        made["entropy"] = torch.distributions.Categorical(logits=z, validate_args=False).entropy()
        made["entropy"] = made["entropy"].reshape(desc.batch_shape)
    if "argmax" in wanted:
        made["argmax"] = z.argmax(1).reshape(desc.batch_shape)
    return made


class CrossEntropyTermsPlan(Plan):
    """Cross entropy against classes or probabilities, with a z-loss, soft caps and a scale of the logits.

    With z = softcap tanh(logit_scale x / softcap), or logit_scale x, lse = log Σ exp(z), w the class weights (1
    without), ε the label smoothing and q the target (1 at its class), a row's loss is
    Σ w[c] ((1 - ε) q[c] + ε / C) (lse - z[c]) + z_loss lse², and 0 where the class is ignore_index. The mean is over
    Σ w[t] of the rows that count, of probabilities over the rows.

    entropy and argmax of the scaled and capped logits are made on request, of ignored rows, too. Rows are read
    once. Sums are in float32 (float64 of float64): a row's results depend on it alone.
    """

    op = "loss.cross_entropy_terms"
    kinds = TargetKind
    descriptor = CrossEntropyTermsDescriptor
    args = CrossEntropyTermsArgs
    reference = staticmethod(reference)
    value_policy = (
        "a target outside [0, num_classes) that is not ignore_index counts as ignored; weights and probabilities are "
        "finite: what those that are not make of their rows is unspecified"
    )
    vjp = Vjp("CrossEntropyTermsBackwardPlan", grads={"logits": "dlogits", "probabilities": "dprobabilities"})
    variants = (
        Variant(
            "rows", _geometry, source="loss/cross_entropy_terms.cu",
            kernels=(FORWARD, *SUMS),
            guarantee=Guarantee(Relative(2), batch_invariant=True), may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("probabilities [65536, 1024] bf16", kind="probabilities", batch_shape=65536, num_classes=1024,
                  element="bfloat16"),
        Benchmark("z-loss, softcap [8192, 128256] bf16", kind="classes", batch_shape=8192, num_classes=128256,
                  z_loss=1e-4, softcap=30.0, element="bfloat16"),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> CrossEntropyTermsDescriptor:
        return CrossEntropyTermsDescriptor(kind=draw.kind, **terms_case(draw), element=draw.element)

    @classmethod
    def complete(cls, desc: CrossEntropyTermsDescriptor, arrays: dict[str, Any]) -> None:
        """Every fifth row of classes is ignored."""
        if arrays["targets"] is not None:
            arrays["targets"] = some_ignored(arrays["targets"], desc.ignore_index)

    @classmethod
    def check_values(cls, desc: CrossEntropyTermsDescriptor, arrays: Mapping[str, Any]) -> str | None:
        """Targets must name a class or be ignore_index, probabilities not be negative."""
        if desc.kind is TargetKind.PROBABILITIES:
            return "a probability is negative" if np.any(arrays["probabilities"] < 0) else None
        t = arrays["targets"]
        bad = (t != desc.ignore_index) & ((t < 0) | (t >= desc.num_classes))
        return f"{np.count_nonzero(bad)} targets outside [0, {desc.num_classes})" if bad.any() else None


def terms_case(draw: Any) -> dict[str, Any]:
    """Rows of every group, every option."""
    classes = draw.sizes(5, 1, 10, 32, 33, 70, rare=(200, 1000, 3001))
    batch = draw.shape(0, 3 if classes < 200 else 1, 0, 5 if classes < 200 else 2)
    if classes <= 5 and draw.rarely():  # losses of several segments
        batch = (9001,)
    return {
        "batch_shape": batch, "num_classes": classes,
        "ignore_index": draw.choice((-100, 0, 3)) if draw.kind is TargetKind.CLASSES else -100,
        "label_smoothing": draw.choice((0.0, 0.1)),
        "z_loss": draw.choice((0.0, 0.01)), "softcap": draw.choice((0.0, 2.0)), "logit_scale": draw.choice((1.0, 0.5)),
        "reduction": draw.choice(REDUCTIONS),
    }  # fmt: skip


cross_entropy_of_classes: Any = functional(
    CrossEntropyTermsPlan, "cross_entropy_of_classes", kind=TargetKind.CLASSES,
    doc="Cross entropy against classes, with further terms; see `CrossEntropyTermsPlan`.",
)  # fmt: skip
cross_entropy_of_probabilities: Any = functional(
    CrossEntropyTermsPlan, "cross_entropy_of_probabilities", kind=TargetKind.PROBABILITIES, ignore_index=-100,
    doc="Cross entropy against probabilities of the classes; see `CrossEntropyTermsPlan`.",
)  # fmt: skip
