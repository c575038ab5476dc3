"""linear_kl: the divergence of a student's softmax from a teacher's, of layers whose logits are never whole in memory
(Hinton, Vinyals, Dean 2015; the generalised Jensen–Shannon divergence of Agarwal et al. 2024), with its gradients.

With p = softmax((x Wᵀ + b) / T), q = softmax((x' W'ᵀ + b') / T) of the teacher and m = β q + (1 - β) p, row i has

    forward   T² Σ q log(q / p)        reverse   T² Σ p log(p / q)
    jsd       T² (β Σ q log(q / m) + (1 - β) Σ p log(p / m))

A row whose target is ignore_index counts for nothing; targets are read for that alone. The mean is over the rows that
count. The teacher has no gradient. Rows are taken in chunks as in linear_cross_entropy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, InvalidProblemError, Kernel, Params, Plan, Problem, Step, Variant,
    Vjp, choice, element, extent, integer, number, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import FLOPS, Benchmark
from ...core.checked import require_some
from ...core.element import unrounded
from ...core.variant import aligned
from ...schedules.linear_loss import Chunks, chunk_rows
from ...schedules.loss_sums import finish_steps
from ...schedules.row_groups import LONG
from ..gemm.gemm import GemmArgs, GemmDescriptor
from .cross_entropy import REDUCTIONS
from .linear_logits import FINISH_TILE, INDICES, SUMS, gemm_variants, target_sums, without_loss
from .row_loss import some_ignored

RULES = ("forward", "reverse", "jsd")
_X, _TEACHER = "rows hidden", "rows teacher_hidden"


@dataclass(frozen=True, kw_only=True)
class LinearKlDescriptor(Descriptor):
    """x is [rows, hidden], weight [num_classes, hidden], the teacher's likewise with teacher_hidden; the loss has shape
    () or, with "none", (rows,). chunk: rows at a time, 0 for what fits."""

    rows: int = extent()
    hidden: int = extent()
    teacher_hidden: int = extent()
    num_classes: int = extent(minimum=1)
    divergence: str = choice(RULES, "forward")
    beta: float = number(0.5, minimum=0.0, maximum=1.0)
    temperature: float = number(1.0, above=0.0)
    ignore_index: int = integer(-100)
    reduction: str = choice(REDUCTIONS, "mean")
    chunk: int = extent(0)
    math_precision: str = choice(("element", "tf32"), "element")
    element: ElementKind = element()

    def validate(self) -> None:
        if self.math_precision == "tf32" and self.element is not ElementKind.F32:
            raise InvalidProblemError(f"math_precision='tf32' is for float32 operands, got {self.element}")
        if self.divergence == "jsd" and not 0 < self.beta < 1:
            raise InvalidProblemError(
                f"beta must be in (0, 1), got {self.beta}; at its ends the divergence is 0: give 'forward' or 'reverse'"
            )

    @property
    def loss_shape(self) -> tuple[int, ...]:
        """One loss a row, or one in all."""
        return (self.rows,) if self.reduction == "none" else ()

    def product(self, m: int, n: int, k: int, out: ElementKind) -> GemmDescriptor:
        """That of a plain product with the same elements and precision."""
        return GemmDescriptor(
            m=m, n=n, k=k, math_precision=self.math_precision, out_element=out, element=self.element
        )  # fmt: skip

    def chunk_rows(self, weights: bool) -> int:
        """Rows of a chunk."""
        return self.chunk or chunk_rows(self.rows, self.num_classes, self.hidden, self.element, weights)


@dataclass(slots=True, kw_only=True)
class LinearKlArgs(Args):
    """loss is in the accumulator's element; dx, dweight and dbias are the gradients for an upstream gradient of 1."""

    x: Array = operand(_X)
    weight: Array = operand("num_classes hidden")
    teacher_x: Array = operand(_TEACHER)
    teacher_weight: Array = operand("num_classes teacher_hidden")
    targets: Array | None = operand("rows", element=INDICES, optional=True, values=(0, "num_classes"))
    bias: Array | None = operand("num_classes", optional=True)
    teacher_bias: Array | None = operand("num_classes", optional=True)
    loss: Array = output("*loss_shape", element="acc")
    dx: Array | None = output(_X, optional=True)
    dweight: Array | None = output("num_classes hidden", optional=True)
    dbias: Array | None = output("num_classes", optional=True, needs="bias")


@dataclass(slots=True, kw_only=True)
class LinearKlBackwardArgs(Args):
    """The operands of the forward; of dx, dweight and dbias those that are None cost nothing."""

    dloss: Array = operand("*loss_shape", element="acc")
    x: Array = operand(_X)
    weight: Array = operand("num_classes hidden")
    teacher_x: Array = operand(_TEACHER)
    teacher_weight: Array = operand("num_classes teacher_hidden")
    targets: Array | None = operand("rows", element=INDICES, optional=True, values=(0, "num_classes"))
    bias: Array | None = operand("num_classes", optional=True)
    teacher_bias: Array | None = operand("num_classes", optional=True)
    dx: Array | None = output(_X, optional=True)
    dweight: Array | None = output("num_classes hidden", optional=True)
    dbias: Array | None = output("num_classes", optional=True, needs="bias")


def _evaluated(
    desc: LinearKlDescriptor, up: Any, store: Any, *, x: Any, weight: Any, teacher_x: Any, teacher_weight: Any,
    targets: Any, bias: Any, teacher_bias: Any,
) -> dict[str, Any]:  # fmt: skip
    """The loss, and the gradients for an upstream gradient of `up` a row or in all, by NumPy in the dtype of x."""

    def logs(x: Any, weight: Any, bias: Any) -> Any:
        z = store(x @ weight.T)
        z = (z if bias is None else z + bias) / z.dtype.type(desc.temperature)
        z = z - z.max(axis=1, keepdims=True)
        return z - np.log(np.exp(z).sum(axis=1, keepdims=True))

    lp, lq = logs(x, weight, bias), logs(teacher_x, teacher_weight, teacher_bias)
    p, q, b = np.exp(lp), np.exp(lq), x.dtype.type(desc.beta)
    lm = np.logaddexp(lq + np.log(b), lp + np.log1p(-b)) if desc.divergence == "jsd" else lq

    def weighted(a: Any, by: Any) -> Any:
        return np.where(a > 0, a * by, 0 * a)

    inner = weighted(p, lp - lm)
    mean = inner.sum(axis=1, keepdims=True)
    terms, slopes = weighted(q, lq - lp), p - q
    if desc.divergence == "reverse":
        terms, slopes = inner, weighted(p, lp - lm - mean)
    elif desc.divergence == "jsd":
        terms, slopes = b * weighted(q, lq - lm) + (1 - b) * inner, (1 - b) * weighted(p, lp - lm - mean)
    counts = np.ones(desc.rows, bool)
    if targets is not None:
        counts = (targets != desc.ignore_index) & (targets >= 0) & (targets < desc.num_classes)
    t = x.dtype.type(desc.temperature)
    loss, total = np.where(counts, terms.sum(axis=1) * t * t, 0), x.dtype.type(counts.sum())
    up = np.broadcast_to(up, (desc.rows,)) / (total if desc.reduction == "mean" else 1)
    g = store(np.asarray(np.where(counts[:, None], slopes * (up * t)[:, None], 0), x.dtype))
    if desc.reduction != "none":
        loss = loss.sum() / (total if desc.reduction == "mean" else 1)
    return {"loss": loss, "dx": g @ weight, "dweight": g.T @ x, "dbias": g.sum(axis=0)}


def reference(desc: LinearKlDescriptor, *, wanted: set[str], store: Any = unrounded, **given: Any) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    with np.errstate(all="ignore"):
        made = _evaluated(desc, given["x"].dtype.type(1), store, **given)
    return {name: value for name, value in made.items() if name in wanted | {"loss"}}


def backward_reference(
    desc: LinearKlDescriptor, *, dloss: Any, wanted: set[str], store: Any = unrounded, **given: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype x comes in."""
    with np.errstate(all="ignore"):
        made = _evaluated(desc, dloss, store, **given)
    return {name: value for name, value in made.items() if name in wanted}


ROWS = Params(
    "LinearKlParams", logits="ptr", teacher="ptr", grad="ptr", targets="ptr", bias="ptr", teacher_bias="ptr",
    loss="ptr", dloss="ptr", sums="workspace", prepared="workspace", status="status", first="i64", cols="i64",
    pitch="i64", teacher_pitch="i64", grad_pitch="i64", ignore="i64", parts="i64", targets_step="i64", bias_step="i64",
    teacher_bias_step="i64", loss_step="i64", dloss_step="i64", rate="f64", beta="f64", count="f64", rule="i32",
    wide_targets="i32", mean="i32", per_row="i32", backward="i32",
    long_group=LONG, DivergenceRule=RULES,
)  # fmt: skip
SOURCE = "loss/linear_kl.cu"
KERNELS = (Kernel("rows", "linear_kl_rows<{T}>", ROWS, threads=LONG, min_blocks=1, source=SOURCE), *SUMS)


def _geometry(rows: tuple[Variant, ...], args: type[Args]) -> Callable[[Problem], Geometry | str]:
    """The launches whose products go to the first of `rows` that takes them; one has to go to the very first."""

    def geometry(p: Problem) -> Geometry | str:
        desc, backward = p.desc, args is LinearKlBackwardArgs
        mean, per_row = desc.reduction == "mean", desc.reduction == "none"
        wanted = any(p.views[name] is not None for name in ("dx", "dweight", "dbias"))
        steps: list[Step] = []
        used = parts = 0
        if mean and wanted and p.targets is not None:
            parts, step = target_sums(p, None, True, False)
            steps, used = [step], aligned(16 * (parts + 1))

        def pace(name: str) -> int:
            view = p.views.get(name)
            return 0 if view is None or not view.strides else view.strides[0]

        constants = {
            "sums": used, "prepared": 0, "parts": parts, "cols": desc.num_classes, "ignore": desc.ignore_index,
            "targets_step": pace("targets"), "bias_step": pace("bias"), "teacher_bias_step": pace("teacher_bias"),
            "loss_step": pace("loss"), "dloss_step": pace("dloss"), "rate": 1 / desc.temperature, "beta": desc.beta,
            "count": desc.rows, "rule": RULES.index(desc.divergence), "mean": int(mean), "per_row": int(per_row),
            "wide_targets": int(p.targets is not None and p.targets.element is ElementKind.I64),
            "backward": int(backward), **({"loss": "@null"} if backward else {"dloss": "@null"}),
        }  # fmt: skip
        finish: list[Step] = []
        if not per_row and not backward:
            last = {"mean": int(mean), "reduced": 1, "total_weight": "@null"}
            finish, used = finish_steps(used, desc.rows, FINISH_TILE, last)
        chunks = Chunks(p, args, GemmArgs, rows, desc.product, desc.chunk_rows(p.dweight is not None), used)
        chunks.steps += steps
        failed = chunks.run("rows", constants, desc.element, {}, ("teacher_x", "teacher_weight"))
        chunks.steps += finish
        return failed or chunks.geometry()

    return geometry


def _case(draw: Any) -> LinearKlDescriptor:
    kind = draw.element
    rows, hidden = draw.sizes(0, 1, 3, 7, 20), draw.sizes(0, 1, 8, 17, 64)
    classes = draw.sizes(5, 1, 10, 64, 130, rare=(4100,))
    if draw.rarely():  # tiles of full width
        rows, hidden, classes = 260, 64, 264
    return LinearKlDescriptor(
        rows=rows, hidden=hidden, teacher_hidden=draw.sizes(1, 8, 24), num_classes=classes,
        divergence=draw.choice(RULES), beta=draw.choice((0.5, 0.1)), temperature=draw.choice((1.0, 2.0)),
        reduction=draw.choice(REDUCTIONS),
        chunk=draw.choice((0, 0, 3, 8)) if rows <= 20 else 0, element=kind,
        math_precision=draw.choice(("element", "tf32")) if kind is ElementKind.F32 else "element",
    )  # fmt: skip


def in_torch(
    torch: Any, desc: LinearKlDescriptor, *, x: Any, weight: Any, teacher_x: Any, teacher_weight: Any, targets: Any,
    bias: Any, teacher_bias: Any, wanted: set[str],
) -> Any:  # fmt: skip
    """torch's linear, log_softmax and kl_div, in float32 at least, and their autograd."""
    wide = torch.promote_types(x.dtype, torch.float32)
    names = [n for n in ("dx", "dweight", "dbias") if n in wanted]
    with torch.set_grad_enabled(bool(names) or torch.is_grad_enabled()):
        given = {"dx": x, "dweight": weight, "dbias": bias}
        leaves = {n: v.detach().requires_grad_() if names and v is not None else v for n, v in given.items()}

        def logs(x: Any, w: Any, b: Any) -> Any:
            z = torch.nn.functional.linear(x.to(wide), w.to(wide), None if b is None else b.to(wide))
            return torch.log_softmax(z / desc.temperature, -1)

        lp, lq = logs(leaves["dx"], leaves["dweight"], leaves["dbias"]), logs(teacher_x, teacher_weight, teacher_bias)

        def kl(input: Any, target: Any) -> Any:
            return torch.nn.functional.kl_div(input, target, reduction="none", log_target=True).sum(-1)

        if desc.divergence == "jsd":
            beta = torch.tensor(desc.beta, dtype=wide, device=x.device)
            lm = torch.logaddexp(lq + beta.log(), lp + torch.log1p(-beta))
            loss = desc.beta * kl(lm, lq) + (1 - desc.beta) * kl(lm, lp)
        else:
            loss = kl(lp, lq) if desc.divergence == "forward" else kl(lq, lp)
        counts = torch.ones(desc.rows, dtype=torch.bool, device=x.device)
        if targets is not None:
            counts = (targets != desc.ignore_index) & (targets >= 0) & (targets < desc.num_classes)
        loss, total = torch.where(counts, loss * desc.temperature**2, 0), counts.sum().to(wide)
        loss = loss if desc.reduction == "none" else loss.sum()
        if names:
            scale = torch.where(total > 0, 1 / total, 0) if desc.reduction == "mean" else torch.ones_like(loss)
            found = dict(zip(names, torch.autograd.grad(loss, [leaves[n] for n in names], scale), strict=True))
    made = {"loss": loss / total if desc.reduction == "mean" else loss}
    return {n: v.detach() for n, v in made.items()} | found if names else made


def _variants(args: type[Args]) -> tuple[Variant, ...]:
    kernels = without_loss(KERNELS) if args is LinearKlBackwardArgs else KERNELS
    return gemm_variants(lambda rows: _geometry(rows, args), SOURCE, kernels)


class LinearKlPlan(Plan):
    """The divergence of softmax(x Wᵀ + b) from a teacher's, by chunks of rows, with its gradients on request.

    With p = softmax((x Wᵀ + b) / T), q the teacher's likewise and m = β q + (1 - β) p, T the temperature, a row has T²
    times: Σ q log(q / p) ("forward"), Σ p log(p / q) ("reverse"), or β Σ q log(q / m) + (1 - β) Σ p log(p / m)
    ("jsd"). Targets, where given, only say by ignore_index which rows count for nothing; the mean is over the others.
    The teacher has no gradient. (Hinton et al. 2015; Agarwal et al. 2024)
    """

    op = "loss.linear_kl"
    descriptor = LinearKlDescriptor
    args = LinearKlArgs
    reference = staticmethod(reference)
    vjp = Vjp("LinearKlBackwardPlan", grads={"x": "dx", "weight": "dweight", "bias": "dbias"})
    value_policy = "a target outside [0, num_classes) that is not ignore_index counts as ignored"
    variants = _variants(LinearKlArgs)
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "[4096, 2048] × 128256 bf16", rows=4096, hidden=2048, teacher_hidden=4096, num_classes=128256,
            element="bfloat16", also=("dx", "dweight"), work=FLOPS, target=None, peers=(),
        ),
    )  # fmt: skip
    case = staticmethod(_case)

    @classmethod
    def complete(cls, desc: LinearKlDescriptor, arrays: dict[str, Any]) -> None:
        """Some rows are ignored, or all."""
        if arrays["targets"] is not None:
            arrays["targets"] = some_ignored(arrays["targets"], desc.ignore_index)

    @classmethod
    def check_values(cls, desc: LinearKlDescriptor, arrays: Mapping[str, Any]) -> str | None:
        """Targets must name a class or be ignore_index."""
        t = arrays["targets"]
        if t is None:
            return None
        bad = (t != desc.ignore_index) & ((t < 0) | (t >= desc.num_classes))
        return f"{np.count_nonzero(bad)} targets outside [0, {desc.num_classes})" if bad.any() else None

    @classmethod
    def flops(cls, desc: LinearKlDescriptor) -> int:
        """Of the four products."""
        return (6 * desc.hidden + 2 * desc.teacher_hidden) * desc.rows * desc.num_classes


class LinearKlBackwardPlan(Plan):
    """dx, dweight and dbias of linear_kl, whose logits are made again."""

    op = "loss.linear_kl_backward"
    direction = "backward"
    descriptor = LinearKlDescriptor
    args = LinearKlBackwardArgs
    reference = staticmethod(backward_reference)
    value_policy = LinearKlPlan.value_policy
    variants = _variants(LinearKlBackwardArgs)
    benchmarks = LinearKlPlan.benchmarks
    case = staticmethod(_case)
    complete = LinearKlPlan.complete
    check_values = LinearKlPlan.check_values
    flops = LinearKlPlan.flops

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        require_some(views, "dx", "dweight", "dbias")


linear_kl_backward = functional(LinearKlBackwardPlan)
