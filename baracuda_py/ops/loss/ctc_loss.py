"""ctc_loss: connectionist temporal classification (Graves et al. 2006, torch.nn.functional.ctc_loss)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, InvalidProblemError, Kernel, Params, Plan, Problem,
    Relative, Step, Variant, View, Vjp, choice, derived, element, extent, extents, flag, integer, operand,
    output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...calls.entries import entry
from ...core.tensor import Shape
from ...core.variant import aligned
from ...core.views import shape_of, with_axis
from ...core.arrays import read
from ...schedules.loss_sums import dense_launches, of_dense
from ...schedules.reduce import reduce_kernels, reduce_params
from .ctc_formulas import reference, sequences

REDUCTIONS = ("none", "mean", "sum")
INTEGERS = (ElementKind.I64, ElementKind.I32)
THREADS = 256
_ROWS = 40 << 10  # bytes of two rows that stay in shared memory


@dataclass(frozen=True, kw_only=True)
class CtcDescriptor(Descriptor):
    """Sequences of log_probs (input_length, batch, classes), and the labels that they are to spell.

    targets have shape (batch, length), or (length,) one after another. max_target_length: that of the longest target,
    by default `length`; memory goes by it. blank: the class between labels.
    """

    input_length: int = extent()
    batch: int = extent()
    classes: int = extent(minimum=1)
    target_shape: Shape = extents()
    max_target_length: int = extent(derived(lambda desc: desc.target_shape[-1] if desc.target_shape else 0))
    blank: int = integer(0)

    def validate(self) -> None:
        if not 0 <= self.blank < self.classes:
            raise InvalidProblemError(f"blank must be in [0, {self.classes - 1}], got {self.blank}")
        if self.max_target_length >= 2**30:
            raise InvalidProblemError(f"max_target_length must be below 2^30, got {self.max_target_length}")
        padded = len(self.target_shape) == 2
        if len(self.target_shape) not in (1, 2) or (padded and self.target_shape[0] != self.batch):
            raise InvalidProblemError(
                f"targets must have shape ({self.batch}, length) or (length,), got {self.target_shape}"
            )

    @property
    def states(self) -> int:
        """The longest target with blanks before, between and behind its labels."""
        return 2 * self.max_target_length + 1


@dataclass(frozen=True, kw_only=True)
class CtcLossDescriptor(CtcDescriptor):
    """log_probs has shape (input_length, batch, classes); targets (batch, length), or (length,) one after another.

    max_target_length: that of the longest target, by default `length`; memory of the gradient goes by it. blank: the
    class between labels. zero_infinity: a loss that is infinite, as no path is long enough, is 0 and has no gradient.
    normalized: whether the gradient counts on log_probs being logarithms of probabilities that sum to 1, and adds
    exp(log_probs) (PyTorch's); else it is the derivative as it is. After log_softmax both give the same.
    """

    reduction: str = choice(REDUCTIONS, "mean")
    zero_infinity: bool = flag(False)
    normalized: bool = flag(True)
    element: ElementKind = element()

    @property
    def loss_shape(self) -> Shape:
        """One loss a sequence, or one in all."""
        return (self.batch,) if self.reduction == "none" else ()

    @property
    def loss_element(self) -> ElementKind:
        """The element of log_probs for losses of sequences; their mean and sum are in the accumulator's."""
        return self.element if self.reduction == "none" else self.acc


def random_log_probs(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: logarithms of probabilities."""
    x = rng.standard_normal(shape)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def random_targets(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: classes that are not the blank, few of them, so that some repeat."""
    made = rng.integers(0, max(desc.classes - 1, 1), shape)
    return made + (made >= desc.blank) if desc.classes > 1 else made


def random_steps(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: most of the steps."""
    return rng.integers(min(1, desc.input_length), desc.input_length + 1, shape)


def random_lengths(rng: np.random.Generator, desc: Any, shape: tuple[int, ...]) -> Any:
    """Test data: lengths of targets, which lie in the array."""
    most = desc.max_target_length if desc.classes > 1 else 0
    if len(desc.target_shape) == 1:
        most = min(most, desc.target_shape[0] // max(desc.batch, 1))
    return rng.integers(0, most + 1, shape)


@dataclass(slots=True, kw_only=True)
class CtcLossArgs(Args):
    """Any strides. loss is in log_probs' element, its mean and sum in the accumulator's.

    log_alpha (the logarithms of the sums over all beginnings of paths) and nll (the losses of sequences as they are)
    are what the gradient takes.
    """

    log_probs: Array = operand("input_length batch classes", values=random_log_probs)
    targets: Array = operand("*target_shape", element=INTEGERS, values=random_targets)
    input_lengths: Array = operand("batch", element=INTEGERS, values=random_steps)
    target_lengths: Array = operand("batch", element=INTEGERS, values=random_lengths)
    loss: Array = output("*loss_shape", element="loss_element")
    log_alpha: Array | None = output("batch input_length states", element="acc", optional=True, layout="dense")
    nll: Array | None = output("batch", element="acc", optional=True)


def in_torch(
    torch: Any, desc: CtcLossDescriptor, *, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any,
    wanted: set[str],
) -> Any:  # fmt: skip
    """PyTorch's ctc_loss, whose gradient is the normalized one."""
    if not desc.normalized or 0 in log_probs.shape or (targets.ndim == 1 and int(target_lengths.sum()) != len(targets)):
        return NotImplemented

    def loss(reduction: str, zero_infinity: bool) -> Any:
        wide = torch.promote_types(log_probs.dtype, torch.float32)
        return torch.nn.functional.ctc_loss(
            log_probs.to(wide), targets.long(), input_lengths.long(), target_lengths.long(), desc.blank, reduction,
            zero_infinity,
        )  # fmt: skip

    made = {"loss": loss(desc.reduction, desc.zero_infinity)}
    if desc.reduction == "none":
        made["loss"] = made["loss"].to(log_probs.dtype)
    if "nll" in wanted:
        made["nll"] = loss("none", False)
    return made


FIELDS: dict[str, str | int] = {
    **dict.fromkeys(("targets", "input_lengths", "target_lengths", "log_probs"), "ptr"), "step": "i64[3]",
    "target_step": "i64[2]",
    **dict.fromkeys(
        ("steps", "batch", "classes", "total", "most", "states", "blank", "input_step", "length_step", "nll_step",
         "loss_step"), "i64"),
    **dict.fromkeys(("padded", "wide_targets", "wide_inputs", "wide_lengths", "zero_infinity", "by_length"), "i32"),
    "ctc_threads": THREADS,
}  # fmt: skip
PARAMS = Params(
    "CtcAlphaParams", **FIELDS, loss="ptr", log_alpha="ptr", nll="ptr", rows="workspace", shares="workspace",
    staged="i32", keep="i32",
)  # fmt: skip
SUM = reduce_params("CtcSumParams", ("shares",), divisor="f64", divided="i32")


def ctc_constants(p: Problem) -> dict[str, Any]:
    """What every kernel is told of the sequences."""
    desc = p.desc
    padded = len(desc.target_shape) == 2
    wide = {f"wide_{n}": int(v.element is ElementKind.I64) for n, v in
            (("targets", p.targets), ("inputs", p.input_lengths), ("lengths", p.target_lengths))}  # fmt: skip
    return {
        **wide, "step": list(p.log_probs.strides), "steps": desc.input_length, "batch": desc.batch,
        "target_step": list(p.targets.strides) if padded else [0, p.targets.strides[0]], "padded": int(padded),
        "classes": desc.classes, "total": desc.target_shape[-1], "states": desc.states, "blank": desc.blank,
        "most": min(desc.max_target_length, desc.target_shape[-1]), "input_step": p.input_lengths.strides[0],
        "length_step": p.target_lengths.strides[0],
    }  # fmt: skip


def constants(p: Problem) -> dict[str, Any]:
    """What the kernels of the loss are told of the problem."""
    return {
        **ctc_constants(p), "nll_step": 0 if p.nll is None else p.nll.strides[0],
        "zero_infinity": int(p.desc.zero_infinity), "by_length": int(p.desc.reduction == "mean"),
    }  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    reduced = desc.reduction != "none"
    size = desc.acc.itemsize
    rows = 2 * desc.states * size
    staged = rows <= min(_ROWS, p.device.smem)
    held = aligned(desc.batch * size) if reduced else 0
    used = held + (0 if staged else aligned(desc.batch * rows))
    at = {
        "loss": "@null" if reduced else "loss", "loss_step": 0 if reduced else p.loss.strides[0], "shares": 0,
        "rows": 0 if staged else held, "staged": int(staged), "keep": int(reduced),
    }  # fmt: skip
    first = Step("ctc_alpha", (desc.batch, 1, 1), {**constants(p), **at}, {}, THREADS, rows if staged else 0)
    steps = (first,) if desc.batch else ()
    layout = "contiguous" if p.log_probs.dense else "strided"
    if not reduced:
        return Geometry(steps, used, layout)
    values = {
        "shares": ("@workspace", 0), "y": "loss", "divisor": desc.batch, "divided": int(desc.reduction == "mean"),
    }  # fmt: skip
    view = View(0, (desc.batch,), (1,), desc.acc)
    found = dense_launches(
        p.device, (view,), (p.loss,), (0,), mapped=True, values=values, prefix="sum_", base=used
    )  # fmt: skip
    return found if isinstance(found, str) else Geometry((*steps, *found.steps), found.used, layout)


def benchmark_operands(torch: Any, desc: CtcLossDescriptor) -> dict[str, Any]:
    """Probabilities, and batches whose lengths are all whole: the loss of each is finite."""
    shape = (desc.input_length, desc.batch, desc.classes)
    return {
        "log_probs": torch.randn(shape).log_softmax(-1).to(getattr(torch, str(desc.element))),
        "targets": torch.randint(1, desc.classes, desc.target_shape),
        "input_lengths": torch.full((desc.batch,), desc.input_length),
        "target_lengths": torch.full((desc.batch,), desc.target_shape[-1]),
    }


class CtcLossPlan(Plan):
    """-log of the probability that log_probs spell each target, over all ways to put blanks between (torch's ctc_loss).

    The mean divides each loss by its target's length, 1 at least, and the sum of them by the batch; the mean of nothing
    is NaN. Sums are of logarithms, in float32 (float64 of float64), a state after another in the order of the steps, so
    that a sequence's loss depends on itself alone. Any length of inputs and targets, any number of classes.
    """

    op = "loss.ctc_loss"
    descriptor = CtcLossDescriptor
    args = CtcLossArgs
    reference = staticmethod(reference)
    value_policy = (
        "lengths are cut to what their array holds; a label that is no class has the probability 0; a target longer "
        "than max_target_length has a loss of NaN"
    )
    vjp = Vjp("CtcLossBackwardPlan", grads={"log_probs": "dlog_probs"})
    variants = (
        Variant(
            "block", _geometry, source="loss/ctc_loss.cu", guarantee=Guarantee(Relative(2), batch_invariant=True),
            kernels=(Kernel("ctc_alpha", "ctc_alpha<{T}>", PARAMS, threads=THREADS),
                     *of_dense(reduce_kernels("LossSum<{A}>", SUM, source="Mapped<LossShares<{A}>, {A}>", prefix="sum_",
                                            width=lambda element: 16 // element.acc.itemsize))),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("[512, 64, 5000] f32, targets of 64", input_length=512, batch=64, classes=5000, target_shape=(64, 64),
                  make=benchmark_operands, element="float32"),
        Benchmark("[1024, 128, 32] f32, targets of 200", input_length=1024, batch=128, classes=32,
                  target_shape=(128, 200), make=benchmark_operands, element="float32"),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> CtcLossDescriptor:
        return CtcLossDescriptor(**ctc_case(draw), element=draw.element)

    @staticmethod
    def gradient_case(draw: Any) -> CtcLossDescriptor:
        """The gradient is the derivative where it does not count on sums of probabilities."""
        return CtcLossDescriptor(**{**ctc_case(draw), "normalized": False}, element=draw.element)

    @classmethod
    def check_values(cls, desc: CtcLossDescriptor, arrays: Mapping[str, Any]) -> str | None:
        """Lengths lie in their arrays, and labels name classes that are not the blank."""
        return wrong_values(desc, arrays)


def wrong_values(desc: Any, arrays: Mapping[str, Any]) -> str | None:
    """What is wrong with lengths or labels."""
    steps, lengths = arrays["input_lengths"], arrays["target_lengths"]
    if np.any((steps < 0) | (steps > desc.input_length)):
        return f"an input length outside [0, {desc.input_length}]"
    if np.any((lengths < 0) | (lengths > desc.max_target_length)):
        return f"a target length outside [0, {desc.max_target_length}]"
    if len(desc.target_shape) == 1 and lengths.sum() > desc.target_shape[0]:
        return f"targets of {lengths.sum()} labels, where there are {desc.target_shape[0]}"
    for _, labels, _ in sequences(desc, arrays["targets"], steps, lengths):
        if np.any((labels < 0) | (labels >= desc.classes) | (labels == desc.blank)):
            return f"a label outside [0, {desc.classes}), or that is the blank"
    return None


def ctc_case(draw: Any) -> dict[str, Any]:
    """Short sequences; rarely one with more states than a block has threads, or than shared memory holds."""
    batch, classes = draw.integer(0, 3), draw.sizes(4, 1, 2, 7, 300)
    steps, length = draw.integer(0, 12), draw.integer(0, 5)
    if draw.rarely():
        batch, steps, length = 1, draw.choice((150, 5)), draw.choice((140, 6000))
    elif draw.rarely():  # losses of several segments
        batch, steps, length, classes = 9001, 2, 1, 2
    together = draw.flag() and batch > 0
    facts = {
        "input_length": steps, "batch": batch, "classes": classes, "blank": draw.integer(0, classes - 1),
        "target_shape": (batch * length,) if together else (batch, length), "reduction": draw.choice(REDUCTIONS),
        "zero_infinity": draw.flag(), "normalized": draw.integer(0, 3) > 0,
    }  # fmt: skip
    return facts | ({"max_target_length": length} if together else {})


_ctc: Any = functional(CtcLossPlan, "ctc_loss")


@entry(CtcLossPlan)
def ctc_loss(
    log_probs: Array, targets: Array, input_lengths: Array, target_lengths: Array, *, blank: int = 0,
    reduction: Any = "mean", zero_infinity: bool = False, max_target_length: int | None = None,
    normalized: bool = True, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """-log of the probability that log_probs spell the targets (torch.nn.functional.ctc_loss); see `CtcLossPlan`.

    log_probs: [steps, batch, classes], logarithms of probabilities, or [steps, classes] of one sequence. targets:
    [batch, length], or [length] one after another, then max_target_length saves memory: without it every target may be
    as long as all together. Lengths: arrays [batch] of int32 or int64 where log_probs are, or () for one sequence.
    """
    shape = shape_of(log_probs, "log_probs")
    if len(shape) not in (2, 3):
        raise InvalidProblemError(f"log_probs must have shape [steps, batch, classes] or [steps, classes], got {shape}")
    options: dict[str, Any] = {"blank": blank, "zero_infinity": zero_infinity, "normalized": normalized}
    options |= {"stream": stream, "preference": preference}
    if max_target_length is not None:
        options["max_target_length"] = max_target_length
    if len(shape) == 3:
        return _ctc(log_probs, targets, input_lengths, target_lengths, reduction=reduction, out=out, **options)
    lengths = [
        with_axis(x, 0, name) if not read(x, name).shape else x
        for x, name in ((input_lengths, "input_lengths"), (target_lengths, "target_lengths"))
    ]
    targets = with_axis(targets, 0, "targets") if len(shape_of(targets, "targets")) == 1 else targets
    out = out if out is None or reduction != "none" else with_axis(out, 0, "out")
    loss = _ctc(with_axis(log_probs, 1, "log_probs"), targets, *lengths, reduction=reduction, out=out, **options)
    return loss[0] if reduction == "none" else loss
