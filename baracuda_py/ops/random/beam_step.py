"""beam_step: the best continuations over beams and vocabulary, with pointers back to their beams."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, PerOutput, Plan, Problem,
    Relative, Step, Variant, element, extent, operand, output,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...core.errors import InvalidProblemError
from ...core.variant import aligned
from ...schedules.geometry import MOST_BLOCKS

I32, I64 = ElementKind.I32, ElementKind.I64
MOST = 256  # of beams that go on
_PART = 4096  # tokens of a part at least
_CHUNK = 16  # of a part's tokens, which 16 bytes divide


@dataclass(frozen=True, kw_only=True)
class BeamStepDescriptor(Descriptor):
    """logprobs are [batch_size, beams, vocab_size]; `width` continuations of each item go on, at most 256."""

    batch_size: int = extent()
    beams: int = extent(minimum=1)
    vocab_size: int = extent(minimum=1)
    width: int = extent(minimum=1)
    index_element: ElementKind = element((I32, I64), I64)
    element: ElementKind = element()

    def validate(self) -> None:
        if self.width > min(MOST, self.beams * self.vocab_size):
            most = min(MOST, self.beams * self.vocab_size)
            raise InvalidProblemError(f"width must be at most {most}, got {self.width}")


@dataclass(slots=True, kw_only=True)
class BeamStepArgs(Args):
    """Any strides. scores and next_scores in the accumulator's element, float32 or float64."""

    logprobs: Array = operand("batch_size beams vocab_size")
    scores: Array = operand("batch_size beams", element="acc")
    next_scores: Array = output("batch_size width", element="acc")
    parents: Array = output("batch_size width", element=I32)
    tokens: Array = output("batch_size width", element="index_element")


def reference(desc: BeamStepDescriptor, *, logprobs: Any, scores: Any) -> Mapping[str, Any]:
    """NumPy: sums in the accumulator's type, ordered."""
    acc = desc.element.acc.dtype
    sums = scores.astype(acc)[:, :, None] + logprobs.astype(acc)
    flat = sums.reshape(desc.batch_size, desc.beams * desc.vocab_size)
    flat = np.where(np.isnan(flat), -np.inf, flat)
    order = np.argsort(-flat, axis=1, kind="stable")[:, : desc.width]
    best = np.take_along_axis(flat, order, axis=1).astype(logprobs.dtype)
    return {"next_scores": best, "parents": (order // desc.vocab_size).astype(np.int32),
            "tokens": order % desc.vocab_size}  # fmt: skip


PARAMS = Params(
    "BeamStepParams", logprobs="ptr", scores="ptr", next_scores="ptr", parents="ptr", tokens="ptr", keys="ptr",
    places="ptr", cols="i64", strides="i64[3]", score_strides="i64[2]", out_strides="i64[2]", parent_strides="i64[2]",
    token_strides="i64[2]", beams="i32", width="i32", wide="i32", parts="i32", share="i32",
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    """The best of every part of a beam, then those of an item: parts enough for two blocks a multiprocessor."""
    desc, vocab, strides = p.desc, p.desc.vocab_size, p.logprobs.strides
    rows = desc.batch_size * desc.beams
    if desc.beams * vocab >= 2**31:
        return f"{desc.beams} beams of {vocab} tokens; an item has at most 2^31 - 1 continuations"
    most = max(1, min(-(-2 * p.device.sms // max(rows, 1)), vocab // max(_PART, 16 * desc.width)))
    share = -(-vocab // (_CHUNK * most)) * _CHUNK
    parts = -(-vocab // share)
    if rows * parts > MOST_BLOCKS:
        return f"{rows} beams; more than 2^31 blocks"
    held = rows * parts * desc.width
    keys = aligned(held * desc.element.acc.itemsize)
    params = {
        "keys": ("@workspace", 0), "places": ("@workspace", keys), "parts": parts, "share": share,
        "cols": vocab, "strides": strides, "score_strides": p.scores.strides, "out_strides": p.next_scores.strides,
        "parent_strides": p.parents.strides, "token_strides": p.tokens.strides, "beams": desc.beams,
        "width": desc.width, "wide": desc.index_element is I64,
    }  # fmt: skip
    dense = (vocab == 1 or strides[2] == 1) and p.logprobs.aligned()
    first = Step("parts", (rows * parts, 1, 1), params, {"WIDE": dense}, 1024)
    last = Step("beams", (desc.batch_size, 1, 1), params, {}, 1024)
    return Geometry((first, last), keys + aligned(4 * held), layout="contiguous" if p.logprobs.dense else "strided")


def in_torch(torch: Any, desc: BeamStepDescriptor, *, logprobs: Any, scores: Any) -> Any:
    """topk of the sums, where none are equal."""
    sums = (scores[:, :, None] + logprobs).flatten(1)
    if desc.batch_size and any(len(row.unique()) < row.numel() for row in sums):
        return NotImplemented
    best, at = torch.topk(sums, desc.width, dim=1)
    return {"next_scores": best, "parents": (at // desc.vocab_size).to(torch.int32), "tokens": at % desc.vocab_size}


class BeamStepPlan(Plan):
    """next_scores [B, W] = the largest of scores[b, k] + logprobs[b, k, v] in descending order; parents, tokens: k, v.

    Sums are float32 (float64 for float64); of equal ones the lower k V + v comes first. NaN counts as -inf. For the
    first step, when all beams are alike, give one beam.
    """

    op = "random.beam_step"
    descriptor = BeamStepDescriptor
    args = BeamStepArgs
    reference = staticmethod(reference)
    value_policy = "NaN counts as -inf"
    variants = (
        Variant(
            "items", _geometry, source="random/beam_step.cu",
            guarantee=Guarantee(PerOutput((("next_scores", Relative(2)), ("parents", Exact()), ("tokens", Exact())))),
            kernels=(
                Kernel("parts", "beam_parts<{T}, {WIDE}>", PARAMS, {"WIDE": (True, False)}, 1024),
                Kernel("beams", "beam_step<{T}>", PARAMS, {}, 1024),
            ),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark("8 beams of 131072, 32 items, f32", batch_size=32, beams=8, vocab_size=131072, width=8,
                  element="float32", peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> BeamStepDescriptor:
        beams, vocab = draw.integer(1, 4), draw.sizes(1, 5, 64, 1100)
        return BeamStepDescriptor(
            batch_size=draw.integer(0, 3), beams=beams, vocab_size=vocab,
            width=min(draw.sizes(1, 4, 40), beams * vocab), index_element=draw.choice((I32, I64)), element=draw.element,
        )  # fmt: skip

    @classmethod
    def infer(cls, shapes: Mapping[str, Any], facts: dict[str, Any]) -> None:
        if facts.get("width") is None and shapes.get("scores") is not None and len(shapes["scores"]) == 2:
            facts["width"] = shapes["scores"][1]


beam_step = functional(BeamStepPlan)
