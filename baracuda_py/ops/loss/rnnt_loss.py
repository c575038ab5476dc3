"""rnnt_loss: the loss of the RNN transducer (Graves 2012, torchaudio.functional.rnnt_loss)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem,
    Relative, Step, Variant, View, Vjp, choice, element, extent, flag, integer, number, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...calls.entries import entry
from ...core.tensor import Shape
from ...core.variant import aligned
from ...core.views import shape_of
from ...schedules.geometry import grid
from ...schedules.loss_sums import dense_launches, of_dense
from ...schedules.reduce import reduce_kernels, reduce_params
from ...schedules.rows import merge_rows, row_params

REDUCTIONS = ("none", "mean", "sum")
INTEGERS = (ElementKind.I64, ElementKind.I32)
THREADS = 256
_DIAGONALS = 16 << 10  # bytes of two diagonals that stay in shared memory


@dataclass(frozen=True, kw_only=True)
class RnntLossDescriptor(Descriptor):
    """logits have shape (batch, steps, labels + 1, classes), targets (batch, labels).

    blank: the class that goes to the next step; negative ones count from the last. clamp: where above 0, the largest
    size of a derivative of a sequence's loss. fused_log_softmax: whether logits are any numbers; else they are
    logarithms of probabilities, and the gradient is that of the loss by them.
    """

    batch: int = extent()
    steps: int = extent()
    labels: int = extent()
    classes: int = extent(minimum=1)
    blank: int = integer(-1)
    clamp: float = number(-1.0)
    reduction: str = choice(REDUCTIONS, "mean")
    fused_log_softmax: bool = flag(True)
    element: ElementKind = element()

    def validate(self) -> None:
        if not -self.classes <= self.blank < self.classes:
            raise InvalidProblemError(f"blank must be in [{-self.classes}, {self.classes - 1}], got {self.blank}")

    @property
    def positions(self) -> int:
        """Before the first label, and behind each."""
        return self.labels + 1

    @property
    def blank_class(self) -> int:
        """The blank, counted from the first class."""
        return self.blank % self.classes

    @property
    def loss_shape(self) -> Shape:
        """One loss a sequence, or one in all."""
        return (self.batch,) if self.reduction == "none" else ()

    @property
    def loss_element(self) -> ElementKind:
        """The element of the logits for losses of sequences; their mean and sum are in the accumulator's."""
        return self.element if self.reduction == "none" else self.acc


def random_targets(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: classes that are not the blank."""
    made = rng.integers(0, max(desc.classes - 1, 1), shape)
    return made + (made >= desc.blank_class) if desc.classes > 1 else made


def random_steps(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: some of the steps."""
    return rng.integers(min(1, desc.steps), desc.steps + 1, shape)


def random_labels(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: some of the labels."""
    return rng.integers(0, desc.labels + 1, shape)


@dataclass(slots=True, kw_only=True)
class RnntLossArgs(Args):
    """Any strides. loss is in the logits' element, its mean and sum in the accumulator's.

    lse (the logsumexp of the logits of each position, 0 of those that are logarithms of probabilities and of those
    beyond the lengths), log_steps (the logarithms of the probabilities of the blank and of the label there), log_alpha
    (those of the sums over all beginnings of paths) and nll (the losses of sequences) are what the gradient takes.
    """

    logits: Array = operand("batch steps positions classes")
    targets: Array = operand("batch labels", element=INTEGERS, values=random_targets)
    logit_lengths: Array = operand("batch", element=INTEGERS, values=random_steps)
    target_lengths: Array = operand("batch", element=INTEGERS, values=random_labels)
    loss: Array = output("*loss_shape", element="loss_element")
    lse: Array | None = output("batch steps positions", element="acc", optional=True, layout="dense")
    log_steps: Array | None = output("batch steps positions 2", element="acc", optional=True, layout="dense")
    log_alpha: Array | None = output("batch steps positions", element="acc", optional=True, layout="dense")
    nll: Array | None = output("batch", element="acc", optional=True)


@dataclass
class Inside:
    """Lengths of all sequences, and which positions lie within them."""

    steps: Any
    labels: Any
    positions: Any  # [batch, steps, positions]
    label: Any  # [batch, 1, labels]: those that are classes, else -1

    @classmethod
    def of(cls, desc: Any, targets: Any, logit_lengths: Any, target_lengths: Any) -> Inside:
        """That of the operands."""
        count, last = np.clip(logit_lengths, 0, desc.steps), np.clip(target_lengths, 0, desc.labels)
        t, u = np.arange(desc.steps)[:, None], np.arange(desc.positions)
        classes = (targets >= 0) & (targets < desc.classes) & (u[:-1] < last[:, None])
        return cls(
            count,
            last,
            (t < count[:, None, None]) & (u <= last[:, None, None]),
            np.where(classes, targets, -1)[:, None],
        )


def log_steps_of(desc: Any, logits: Any, inside: Inside) -> tuple[Any, Any]:
    """lse and log_steps of all positions."""
    none = logits.dtype.type(-np.inf)
    lse = np.zeros(logits.shape[:3], logits.dtype)
    if desc.fused_log_softmax:
        top = logits.max(-1, initial=none)
        zero = np.where(np.isneginf(top), np.zeros_like(top), top)
        lse = np.where(inside.positions, top + np.log(np.exp(logits - zero[..., None]).sum(-1)), np.zeros_like(top))
    made = np.full((*lse.shape, 2), none)
    made[..., 0] = logits[..., desc.blank_class] - lse
    label = np.broadcast_to(inside.label, (desc.batch, desc.steps, desc.labels))
    own = np.take_along_axis(logits[:, :, :-1], np.maximum(label, 0)[..., None], -1)[..., 0] - lse[:, :, :-1]
    made[:, :, :-1, 1] = np.where(label >= 0, own, none)
    return lse, np.where(inside.positions[..., None], made, none)


def alpha_of(steps: Any) -> Any:
    """log_alpha of all positions from their log_steps."""
    made = np.zeros(steps.shape[:3], steps.dtype)
    for t, u in np.ndindex(steps.shape[1:3]):
        ways = [made[:, t - 1, u] + steps[:, t - 1, u, 0]] if t else []
        ways += [made[:, t, u - 1] + steps[:, t, u - 1, 1]] if u else []
        if ways:
            made[:, t, u] = np.logaddexp.reduce(ways)
    return made


def reference(
    desc: RnntLossDescriptor, *, logits: Any, targets: Any, logit_lengths: Any, target_lengths: Any, wanted: set[str]
) -> Mapping[str, Any]:
    """NumPy in the dtype the logits come in."""
    dtype, inside = logits.dtype, Inside.of(desc, targets, logit_lengths, target_lengths)
    with np.errstate(all="ignore"):
        lse, steps = log_steps_of(desc, logits, inside)
        alpha = np.where(inside.positions, alpha_of(steps), dtype.type(-np.inf))
        nll = np.where(inside.labels > 0, np.inf, 0).astype(dtype)  # of no steps
        if desc.steps:
            last = np.arange(desc.batch), np.maximum(inside.steps, 1) - 1, inside.labels
            nll = np.where(inside.steps > 0, -(alpha[last] + steps[..., 0][last]), nll)
        made = {"lse": lse, "log_steps": steps, "log_alpha": alpha, "nll": nll, "loss": nll}
        if desc.reduction != "none":
            made["loss"] = nll.sum() / dtype.type(desc.batch if desc.reduction == "mean" else 1)
    return made


def in_torch(
    torch: Any, desc: RnntLossDescriptor, *, logits: Any, targets: Any, logit_lengths: Any, target_lengths: Any,
    wanted: set[str],
) -> Any:  # fmt: skip
    """The sum over paths, by torch's own operations, which autograd differentiates; PyTorch itself has no such loss."""
    if 0 in logits.shape or desc.clamp > 0 or desc.batch * desc.steps * desc.positions > 256:
        return NotImplemented
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    p = wide.log_softmax(-1) if desc.fused_log_softmax else wide
    losses = []
    for n, (count, labels) in enumerate(zip(logit_lengths.tolist(), target_lengths.tolist(), strict=True)):
        alpha: dict[tuple[int, int], Any] = {}
        for t, u in np.ndindex(count, labels + 1):
            ways = [alpha[t - 1, u] + p[n, t - 1, u, desc.blank_class]] if t else []
            ways += [alpha[t, u - 1] + p[n, t, u - 1, int(targets[n, u - 1])]] if u else []
            alpha[t, u] = torch.stack(ways).logsumexp(0) if ways else p.new_zeros(())
        losses.append(-(alpha[count - 1, labels] + p[n, count - 1, labels, desc.blank_class]))
    made = torch.stack(losses)
    if desc.reduction == "none":
        return {"loss": made.to(logits.dtype), "nll": made}
    return {"loss": made.mean() if desc.reduction == "mean" else made.sum(), "nll": made}


FIELDS: dict[str, str | int] = {
    **dict.fromkeys(("targets", "logit_lengths", "target_lengths"), "ptr"), "target_step": "i64[2]",
    **dict.fromkeys(
        ("steps", "batch", "positions", "blank", "input_step", "length_step", "nll_step", "loss_step"), "i64"),
    **dict.fromkeys(("wide_targets", "wide_inputs", "wide_lengths", "fused"), "i32"),
    "rnnt_threads": THREADS,
}  # fmt: skip
ROWS = Params("RnntRowsParams", **FIELDS, logits="ptr", lse="ptr", log_steps="ptr", **row_params(1))
ALPHA = Params(
    "RnntAlphaParams", **FIELDS, loss="ptr", log_steps="ptr", log_alpha="ptr", nll="ptr", diagonals="workspace",
    shares="workspace", staged="i32", keep="i32",
)  # fmt: skip
SUM = reduce_params("RnntSumParams", ("shares",), divisor="f64", divided="i32")


def constants(p: Problem) -> dict[str, Any]:
    """What every kernel is told of the problem."""
    desc = p.desc
    wide = {f"wide_{n}": int(v.element is ElementKind.I64) for n, v in
            (("targets", p.targets), ("inputs", p.logit_lengths), ("lengths", p.target_lengths))}  # fmt: skip
    return {
        **wide, "target_step": list(p.targets.strides), "steps": desc.steps, "batch": desc.batch,
        "positions": desc.positions, "blank": desc.blank_class, "input_step": p.logit_lengths.strides[0],
        "length_step": p.target_lengths.strides[0], "nll_step": 0 if p.nll is None else p.nll.strides[0],
        "loss_step": 0, "fused": int(desc.fused_log_softmax),
    }  # fmt: skip


def row_step(p: Problem, kernel: str, views: tuple[View, ...], values: Mapping[str, Any]) -> Step | str:
    """A launch of a warp for each position."""
    found, width = merge_rows(views, 3), 16 // p.desc.element.itemsize
    if isinstance(found, str):
        return found
    wide = found.run and found.cols % width == 0 and found.access(width)
    return Step(kernel, grid(-(-found.rows // (THREADS // 32))), {**values, **found.params()}, {"WIDE": wide}, THREADS)


def _geometry(p: Problem) -> Geometry | str:
    desc, given = p.desc, constants(p)
    reduced, size = desc.reduction != "none", desc.acc.itemsize
    steps: list[Step] = []
    layout = "contiguous" if p.logits.dense else "strided"
    shares = aligned(desc.batch * size) if reduced else 0
    pairs = 0 if p.log_steps is not None else aligned(2 * desc.batch * desc.steps * desc.positions * size)
    staged = 2 * desc.positions * size <= min(_DIAGONALS, p.device.smem)
    used = shares + pairs + (0 if staged else aligned(2 * desc.batch * desc.positions * size))
    at = {**given, "log_steps": "log_steps" if p.log_steps is not None else ("@workspace", shares)}
    if desc.batch * desc.steps:
        first = row_step(p, "rnnt_rows", (p.logits,), at)
        if isinstance(first, str):
            return first
        steps.append(first)
    if desc.batch:
        held = {
            "loss": "@null" if reduced else "loss", "loss_step": 0 if reduced else p.loss.strides[0], "shares": 0,
            "diagonals": 0 if staged else shares + pairs, "staged": int(staged), "keep": int(reduced),
        }  # fmt: skip
        smem = 2 * desc.positions * size if staged else 0
        steps.append(Step("rnnt_alpha", (desc.batch, 1, 1), {**at, **held}, {}, THREADS, smem))
    if not reduced:
        return Geometry(tuple(steps), used, layout)
    values = {
        "shares": ("@workspace", 0), "y": "loss", "divisor": desc.batch, "divided": int(desc.reduction == "mean"),
    }  # fmt: skip
    view = View(0, (desc.batch,), (1,), desc.acc)
    found = dense_launches(
        p.device, (view,), (p.loss,), (0,), mapped=True, values=values, prefix="sum_", base=used
    )  # fmt: skip
    return found if isinstance(found, str) else Geometry((*steps, *found.steps), found.used, layout)


class RnntLossPlan(Plan):
    """-log of the probability of each target, over all ways to spread its labels over the steps (as torchaudio).

    The mean is over the batch; that of nothing is NaN. Logits are read once. Sums are of logarithms, in float32
    (float64 of float64); a sequence's loss depends on itself alone. Without steps it is 0 where there are no labels,
    else infinity. Any number of steps, labels and classes.
    """

    op = "loss.rnnt_loss"
    descriptor = RnntLossDescriptor
    args = RnntLossArgs
    reference = staticmethod(reference)
    value_policy = "lengths are cut to what their array holds; a label that is no class has the probability 0"
    vjp = Vjp("RnntLossBackwardPlan", grads={"logits": "dlogits"})
    variants = (
        Variant(
            "block", _geometry, source="loss/rnnt_loss.cu", guarantee=Guarantee(Relative(2), batch_invariant=True),
            kernels=(
                Kernel("rnnt_rows", "rnnt_rows<{T}, {WIDE}>", ROWS, {"WIDE": (True, False)}, threads=THREADS),
                Kernel("rnnt_alpha", "rnnt_alpha<{T}>", ALPHA, threads=THREADS),
                *of_dense(reduce_kernels("LossSum<{A}>", SUM, source="Mapped<LossShares<{A}>, {A}>", prefix="sum_",
                                         width=lambda element: 16 // element.acc.itemsize)),
            ), may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("[16, 200, 61, 1024] f32", batch=16, steps=200, labels=60, classes=1024, element="float32", peers=()),
    )

    @staticmethod
    def case(draw: Any) -> RnntLossDescriptor:
        return RnntLossDescriptor(**rnnt_case(draw), element=draw.element)

    @staticmethod
    def gradient_case(draw: Any) -> RnntLossDescriptor:
        """A gradient that is cut is no derivative."""
        return RnntLossDescriptor(**{**rnnt_case(draw), "clamp": 0.0}, element=draw.element)

    @classmethod
    def check_values(cls, desc: RnntLossDescriptor, arrays: Mapping[str, Any]) -> str | None:
        """Lengths lie in their arrays, and labels name classes that are not the blank."""
        return wrong_values(desc, arrays)


def wrong_values(desc: Any, arrays: Mapping[str, Any]) -> str | None:
    """What is wrong with lengths or labels."""
    steps, lengths = arrays["logit_lengths"], arrays["target_lengths"]
    if np.any((steps < 0) | (steps > desc.steps)):
        return f"a logit length outside [0, {desc.steps}]"
    if np.any((lengths < 0) | (lengths > desc.labels)):
        return f"a target length outside [0, {desc.labels}]"
    labels = arrays["targets"]
    wrong = (labels < 0) | (labels >= desc.classes) | (labels == desc.blank_class)
    if np.any(wrong & (np.arange(desc.labels) < lengths[:, None])):
        return f"a label outside [0, {desc.classes}), or that is the blank"
    return None


def rnnt_case(draw: Any) -> dict[str, Any]:
    """Short sequences; rarely one of more labels than a block has threads, or than shared memory holds."""
    batch, classes = draw.integer(0, 3), draw.sizes(4, 1, 2, 7, 16, 300)
    steps, labels = draw.integer(0, 6), draw.integer(0, 5)
    if draw.rarely():
        batch, steps, labels, classes = 1, 2, draw.choice((300, 2100)), 2
    elif draw.rarely():  # losses of several segments
        batch, steps, labels, classes = 9001, 1, 1, 2
    return {
        "batch": batch, "steps": steps, "labels": labels, "classes": classes,
        "blank": draw.integer(-classes, classes - 1), "clamp": draw.choice((-1.0, 0.0, 0.05)),
        "reduction": draw.choice(REDUCTIONS), "fused_log_softmax": draw.integer(0, 3) > 0,
    }  # fmt: skip


_rnnt: Any = functional(RnntLossPlan, "rnnt_loss")


@entry(RnntLossPlan)
def rnnt_loss(
    logits: Array, targets: Array, logit_lengths: Array, target_lengths: Array, *, blank: int = -1,
    clamp: float = -1.0, reduction: Any = "mean", fused_log_softmax: bool = True, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """-log of the probability of targets under a transducer (torchaudio.functional.rnnt_loss); see `RnntLossPlan`.

    logits: [batch, steps, labels + 1, classes]; targets [batch, labels] and the lengths [batch] of int32 or int64,
    where the logits are. clamp, where above 0, cuts the derivatives of each sequence's loss to [-clamp, clamp].
    """
    shape, given = shape_of(logits, "logits"), shape_of(targets, "targets")
    if len(shape) != 4 or len(given) != 2 or shape[2] != given[1] + 1:
        raise InvalidProblemError(
            f"logits must have shape [batch, steps, labels + 1, classes] with targets [batch, labels], got {shape} and "
            f"{given}"
        )
    return _rnnt(
        logits, targets, logit_lengths, target_lengths, blank=blank, clamp=clamp, reduction=reduction,
        fused_log_softmax=fused_log_softmax, out=out, stream=stream, preference=preference,
    )  # fmt: skip
