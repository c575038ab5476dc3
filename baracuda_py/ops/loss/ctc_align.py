"""ctc_align: the likeliest way in which log_probs spell a target, class by class and step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.entries import entry
from ...calls.functional import functional
from ...core import (
    Args, Array, ElementKind, Exact, Forward, Geometry, Guarantee, Kernel, Params,
    PerOutput, Plan, Problem, Step, Variant, element, operand, output,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...core.variant import aligned
from .ctc_formulas import sequences, state_log_probs, states_of
from .ctc_loss import (
    FIELDS, INTEGERS, THREADS, CtcDescriptor, benchmark_operands, ctc_case, ctc_constants, random_lengths,
    random_log_probs, random_steps, random_targets, wrong_values,
)  # fmt: skip

I32, I64 = ElementKind.I32, ElementKind.I64


@dataclass(frozen=True, kw_only=True)
class CtcAlignDescriptor(CtcDescriptor):
    """As `CtcDescriptor`."""

    index_element: ElementKind = element((I32, I64), I64)
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class CtcAlignArgs(Args):
    """Any strides."""

    log_probs: Array = operand("input_length batch classes", values=random_log_probs)
    targets: Array = operand("*target_shape", element=INTEGERS, values=random_targets)
    input_lengths: Array = operand("batch", element=INTEGERS, values=random_steps)
    target_lengths: Array = operand("batch", element=INTEGERS, values=random_lengths)
    path: Array = output("batch input_length", element="index_element")
    labels: Array | None = output("batch input_length", element="index_element", optional=True)
    score: Array | None = output("batch", element="acc", optional=True)


def reference(
    desc: CtcAlignDescriptor, *, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any,
    wanted: set[str],
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the accumulator of the element, as the kernel: every comparison comes out alike."""
    kind = np.float64 if desc.element is ElementKind.F64 else np.float32
    given = np.array(np.asarray(log_probs, np.float64), kind)
    path, labels = np.full((2, desc.batch, desc.input_length), -1, np.int64)
    score = np.full(desc.batch, -np.inf, kind)

    def probable(sums: Any) -> Any:
        return np.where(np.isnan(sums), kind(-np.inf), sums)

    for n, (steps, own, fits) in enumerate(sequences(desc, targets, input_lengths, target_lengths)):
        classes, skips = states_of(desc, own)
        here = state_log_probs(desc, given, n, classes)
        best, back = np.full(len(classes), kind(-np.inf)), np.zeros((steps, len(classes)), np.int64)
        for t in range(steps):
            if t == 0:
                best[:2] = probable(here[0, :2])
                continue
            before = np.concatenate([[kind(-np.inf)] * 2, best])
            ways = np.stack([before[2:], before[1:-1], np.where(skips, before[:-2], kind(-np.inf))])
            back[t] = np.argmax(ways, 0)
            best = probable(here[t] + np.take_along_axis(ways, back[t][None], 0)[0])
        if steps == 0:
            score[n] = 0 if len(own) == 0 and fits else -np.inf
            continue
        last = len(classes) - 1
        state = last - 1 if last > 0 and best[last - 1] > best[last] else last
        score[n] = best[state] if fits else -np.inf
        if not score[n] > -np.inf:
            score[n] = -np.inf
            continue
        for t in range(steps - 1, -1, -1):
            path[n, t], labels[n, t] = classes[state], state // 2 if state % 2 else -1
            state -= int(back[t, state])
    return {"path": path, "labels": labels, "score": score}


PARAMS = Params(
    "CtcAlignParams", **FIELDS, path="ptr", labels="ptr", score="ptr", rows="workspace", back="workspace",
    path_steps="i64[2]", labels_steps="i64[2]", score_step="i64", wide="i32",
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    """Two rows of sums in turn, and where each state came from: a byte a step and state."""
    desc = p.desc
    rows = aligned(2 * desc.batch * desc.states * desc.acc.itemsize)
    params = {
        **ctc_constants(p), "rows": 0, "back": rows, "path_steps": p.path.strides,
        "labels_steps": (0, 0) if p.labels is None else p.labels.strides,
        "score_step": 0 if p.score is None else p.score.strides[0], "wide": desc.index_element is I64,
        "nll_step": 0, "loss_step": 0, "zero_infinity": 0, "by_length": 0,
    }  # fmt: skip
    step = Step("align", (desc.batch, 1, 1), params, {}, THREADS)
    size = rows + aligned(desc.batch * desc.input_length * desc.states)
    return Geometry((step,), size, "contiguous" if p.log_probs.dense else "strided")


class CtcAlignPlan(Plan):
    """path [batch, steps]: the class at each step of the likeliest path that spells the target, -1 behind its steps.

    labels: which label of the target a step is in, -1 of blanks; score: the path's sum of log_probs. Of equally likely
    ways the one that stays in its state, then the one that goes on by one. Where no path has a probability above 0 path
    and labels are -1 and the score -inf. Sums are in float32, or float64 of float64, in the order of steps (Viterbi).
    """

    op = "loss.ctc_align"
    descriptor = CtcAlignDescriptor
    args = CtcAlignArgs
    raw = True
    reference = staticmethod(reference)
    value_policy = (
        "lengths are cut to what their array holds; a label that is no class, and NaN, has the probability 0; a target "
        "longer than max_target_length has no path"
    )
    variants = (
        Variant(
            "block", _geometry, source="loss/ctc_align.cu",
            guarantee=Guarantee(PerOutput((("path", Exact()), ("labels", Exact()), ("score", Forward(2)))),
                                batch_invariant=True),
            kernels=(Kernel("align", "ctc_align<{T}>", PARAMS, threads=THREADS),),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("[1024, 128, 32] f32, targets of 200", input_length=1024, batch=128, classes=32,
                  target_shape=(128, 200), make=benchmark_operands, element="float32", peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> CtcAlignDescriptor:
        facts = ctc_case(draw)
        return CtcAlignDescriptor(
            **{n: v for n, v in facts.items() if n not in ("reduction", "zero_infinity", "normalized")},
            index_element=draw.choice((I32, I64)), element=draw.element,
        )  # fmt: skip

    @classmethod
    def check_values(cls, desc: CtcAlignDescriptor, arrays: Mapping[str, Any]) -> str | None:
        """Lengths lie in their arrays, and labels name classes that are not the blank."""
        return wrong_values(desc, arrays)


_align = functional(CtcAlignPlan, "ctc_align", returns=("path", "score"))


@entry(CtcAlignPlan)
def ctc_align(
    log_probs: Array, targets: Array, input_lengths: Array, target_lengths: Array, *, blank: int = 0,
    max_target_length: int | None = None, return_labels: bool = False, index_element: Any = "int64", out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """The likeliest path of classes that spells each target (torchaudio.functional.forced_align, of whole batches).

    log_probs: [steps, batch, classes], logarithms of probabilities; targets: [batch, length], or [length] one after
    another, then max_target_length saves memory; lengths: [batch] of int32 or int64. Returns path [batch, steps] and
    score [batch], with return_labels also labels [batch, steps] before the score: the places of the target's labels,
    -1 of blanks. See `CtcAlignPlan`.
    """
    more = {} if max_target_length is None else {"max_target_length": max_target_length}
    return _align(
        log_probs, targets, input_lengths, target_lengths, blank=blank, return_labels=return_labels,
        index_element=index_element, out=out, stream=stream, preference=preference, **more,
    )  # fmt: skip
