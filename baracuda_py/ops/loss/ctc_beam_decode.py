"""ctc_beam_decode: the likeliest spellings of log_probs by a search over their beginnings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...calls.entries import entry
from ...calls.functional import functional
from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Forward, Geometry, Guarantee, Kernel, Params, PerOutput, Plan, Problem,
    Step, Variant, element, extent, integer, operand, output,
)  # fmt: skip
from ...core.benchmark import Benchmark
from ...core.element import INDICES
from ...core.errors import InvalidProblemError
from ...core.variant import aligned
from ...core.views import permuted, shape_of
from ...schedules.geometry import MOST_BLOCKS
from .ctc_loss import random_log_probs

I32, I64 = ElementKind.I32, ElementKind.I64
MOST = 32  # prefixes: a lane has one


@dataclass(frozen=True, kw_only=True)
class CtcBeamDecodeDescriptor(Descriptor):
    """log_probs are [steps, batch, classes]; blank: the class between labels.

    beam_width: how many prefixes are kept, at most 32; nbest: how many of them are handed back.
    """

    steps: int = extent()
    batch: int = extent()
    classes: int = extent(minimum=1)
    blank: int = integer(0)
    beam_width: int = extent(10, minimum=1)
    nbest: int = extent(1, minimum=1)
    index_element: ElementKind = element((I32, I64), I64)
    element: ElementKind = element()

    def validate(self) -> None:
        if not 0 <= self.blank < self.classes:
            raise InvalidProblemError(f"blank must be in [0, {self.classes - 1}], got {self.blank}")
        if self.beam_width > MOST:
            raise InvalidProblemError(f"beam_width must be at most {MOST}, got {self.beam_width}")
        if self.nbest > self.beam_width:
            raise InvalidProblemError(f"nbest must be at most the beam_width {self.beam_width}, got {self.nbest}")


@dataclass(slots=True, kw_only=True)
class CtcBeamDecodeArgs(Args):
    """Any strides; lengths are int64 or int32."""

    log_probs: Array = operand("steps batch classes", values=random_log_probs)
    lengths: Array | None = operand("batch", element=INDICES[::-1], optional=True, values=(-1, "steps"))
    tokens: Array = output("batch nbest steps", element="index_element")
    counts: Array = output("batch nbest", element=I32)
    scores: Array = output("batch nbest", element="acc")


_Prefix = tuple[int, ...]


def _next_beam(
    beam: dict[_Prefix, tuple[float, float]], frame: Any, labels: list[int], blank: int, width: int
) -> dict[_Prefix, tuple[float, float]]:
    """The prefixes after one more frame, the likeliest first, and the sums of their paths' ends."""
    none = -np.inf
    found: list[tuple[_Prefix, float, float]] = []
    for prefix, (blanks, others) in beam.items():
        total = np.logaddexp(blanks, others)
        own = prefix[-1] if prefix else blank
        stays = others + frame[own] if prefix else none
        if prefix and prefix[:-1] in beam:
            shorter = beam[prefix[:-1]]
            came = shorter[0] if prefix[-2:-1] == prefix[-1:] else np.logaddexp(*shorter)
            stays = np.logaddexp(stays, came + frame[own])
        found.append((prefix, total + frame[blank], stays))
        ways = [(own, blanks), *((c, total) for c in labels if c != own)] if prefix else [(c, total) for c in labels]
        found += [((*prefix, c), none, before + frame[c]) for c, before in ways if (*prefix, c) not in beam]
    scores = np.array([np.logaddexp(blanks, others) for _, blanks, others in found]).astype(np.float32)
    order = [i for i in np.argsort(-scores, kind="stable")[:width] if scores[i] > none]
    return {found[i][0]: found[i][1:] for i in order}


def reference(desc: CtcBeamDecodeDescriptor, *, log_probs: Any, lengths: Any) -> Mapping[str, Any]:
    """NumPy in float64, as the kernel, and compared in float32: every comparison comes out alike."""
    given = np.asarray(log_probs, np.float64)
    given = np.where(given < np.inf, given, -np.inf)
    tokens = np.full((desc.batch, desc.nbest, desc.steps), -1, np.int64)
    counts = np.zeros((desc.batch, desc.nbest), np.int32)
    scores = np.full((desc.batch, desc.nbest), -np.inf)
    with np.errstate(all="ignore"):
        for n in range(desc.batch):
            beam: dict[_Prefix, tuple[float, float]] = {(): (0.0, -np.inf)}
            for frame in given[: desc.steps if lengths is None else max(int(lengths[n]), 0), n]:
                labels = [int(c) for c in np.argsort(-frame, kind="stable") if c != desc.blank][: desc.beam_width]
                beam = _next_beam(beam, frame, labels, desc.blank, desc.beam_width)
            for k, (prefix, sums) in enumerate(list(beam.items())[: desc.nbest]):
                tokens[n, k, : len(prefix)], counts[n, k] = prefix, len(prefix)
                scores[n, k] = np.logaddexp(*sums)
    return {"tokens": tokens, "counts": counts, "scores": scores.astype(desc.acc.dtype)}


PARAMS = Params(
    "CtcBeamParams", log_probs="ptr", lengths="ptr", tokens="ptr", counts="ptr", scores="ptr", labels="workspace",
    nodes="workspace", step="i64[3]", token_step="i64[3]", count_step="i64[2]", score_step="i64[2]", steps="i64",
    classes="i64", blank="i64", length_step="i64", width="i32", best="i32", wide="i32", wide_lengths="i32",
    ctc_threads=MOST,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    """The likeliest labels of every frame, then a warp for each sequence with the tree of its prefixes."""
    desc = p.desc
    frames = desc.steps * desc.batch
    if desc.steps * desc.beam_width >= 2**31 - 1 or desc.classes >= 2**31 or frames > MOST_BLOCKS:
        return f"{desc.steps} steps, {desc.batch} sequences, {desc.classes} classes; places are in 32 bits"
    labels = aligned(4 * frames * desc.beam_width)
    params = {
        "labels": 0, "nodes": labels, "step": p.log_probs.strides, "token_step": p.tokens.strides,
        "count_step": p.counts.strides, "score_step": p.scores.strides, "steps": desc.steps, "classes": desc.classes,
        "blank": desc.blank, "length_step": 0 if p.lengths is None else p.lengths.strides[0],
        "width": desc.beam_width, "best": desc.nbest, "wide": desc.index_element is I64,
        "wide_lengths": p.lengths is not None and p.lengths.element is I64,
    }  # fmt: skip
    dense = (desc.classes == 1 or p.log_probs.strides[2] == 1) and p.log_probs.aligned()
    first = Step("frames", (frames, 1, 1), params, {"WIDE": dense}, 1024)
    last = Step("decode", (desc.batch, 1, 1), params, {}, MOST)
    steps = ((first,) if frames else ()) + ((last,) if desc.batch else ())
    size = labels + aligned(16 * desc.batch * (desc.steps * desc.beam_width + 1))
    return Geometry(steps, size, "contiguous" if p.log_probs.dense else "strided")


class CtcBeamDecodePlan(Plan):
    """tokens [batch, nbest, steps]: the likeliest spellings found by keeping `beam_width` prefixes, then -1.

    counts: how many tokens each has; scores: the logarithm of the sum over those of its paths that the search kept. A
    prefix is the collapsed beginning of paths (`ctc_collapse`), with one sum of those that end in the blank and one of
    the others, in float64 in the order of steps (prefix beam search, Graves & Jaitly 2014, Hannun et al. 2014). At each
    step a prefix stays, repeats its label behind a blank, or goes on by one of the frame's beam_width likeliest labels,
    of equal ones the lowest. Scores are compared in float32; of equal ones the earlier prefix comes first, and of one
    prefix staying, repeating, then the likelier label. Spellings of no probability are none: no tokens, the score -inf.
    """

    op = "loss.ctc_beam_decode"
    descriptor = CtcBeamDecodeDescriptor
    args = CtcBeamDecodeArgs
    raw = True
    reference = staticmethod(reference)
    value_policy = "lengths are cut to those that there are; NaN and +inf have the probability 0"
    variants = (
        Variant(
            "warp", _geometry, source="loss/ctc_beam_decode.cu",
            guarantee=Guarantee(PerOutput((("tokens", Exact()), ("counts", Exact()), ("scores", Forward(8)))),
                                math="float64", batch_invariant=True),
            kernels=(
                Kernel("frames", "ctc_frames<{T}, {WIDE}>", PARAMS, {"WIDE": (True, False)}, 1024),
                Kernel("decode", "ctc_beam_decode<{T}>", PARAMS, {}, MOST),
            ),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("[1000, 64, 500] f32, 10 prefixes", steps=1000, batch=64, classes=500, beam_width=10,
                  element="float32", make=lambda torch, desc: {
                      "log_probs": torch.randn(desc.steps, desc.batch, desc.classes).log_softmax(-1)}, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> CtcBeamDecodeDescriptor:
        classes, width = draw.sizes(4, 1, 2, 7, 70), draw.sizes(1, 3, 10, 32)
        return CtcBeamDecodeDescriptor(
            steps=draw.integer(0, 9), batch=draw.integer(0, 2), classes=classes, blank=draw.integer(0, classes - 1),
            beam_width=width, nbest=draw.integer(1, min(width, 4)), index_element=draw.choice((I32, I64)),
            element=draw.element,
        )  # fmt: skip


_decode = functional(CtcBeamDecodePlan, "ctc_beam_decode")


@entry(CtcBeamDecodePlan)
def ctc_beam_decode(
    log_probs: Array, lengths: Any = None, *, blank: int = 0, beam_width: int = 10, nbest: int = 1,
    batch_first: bool = False, index_element: Any = "int64", out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The nbest likeliest spellings of each sequence: tokens [batch, nbest, steps], counts and scores [batch, nbest].

    log_probs: [steps, batch, classes], or [batch, steps, classes] with batch_first, logarithms of probabilities;
    lengths: [batch], int64 or int32, of which sequences are the first steps. tokens are of index_element, -1 behind the
    last; counts int32; scores float32 (float64 of float64), in descending order. Without a language model; what
    torchaudio.models.decoder.cuda_ctc_decoder and tf.nn.ctc_beam_search_decoder search. See `CtcBeamDecodePlan`.
    """
    shape = shape_of(log_probs, "log_probs")
    if len(shape) != 3:
        raise InvalidProblemError(f"log_probs must have shape [steps, batch, classes], got {shape}")
    return _decode(
        permuted(log_probs, (1, 0, 2), "log_probs") if batch_first else log_probs, lengths=lengths, blank=blank,
        beam_width=beam_width, nbest=nbest, index_element=index_element, out=out, stream=stream, preference=preference,
    )  # fmt: skip
