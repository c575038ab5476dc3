"""ctc_collapse and ctc_greedy_decode: a path of classes without its repetitions and blanks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ...calls.entries import entry
from ...calls.functional import functional
from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Step, Variant,
    element, extent, integer, operand, output,
)  # fmt: skip
from ...core.arrays import read
from ...core.benchmark import Benchmark
from ...core.element import INDICES
from ...core.errors import InvalidProblemError
from ...core.outputs import each_of
from ...core.views import shape_of
from ...expressions.reduce import reduce

THREADS = 256
I32, I64 = ElementKind.I32, ElementKind.I64


@dataclass(frozen=True, kw_only=True)
class CtcCollapseDescriptor(Descriptor):
    """path is [steps, batch]; blank: the class between labels."""

    steps: int = extent()
    batch: int = extent()
    blank: int = integer(0)
    element: ElementKind = element(INDICES, I64)


def _classes(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    return rng.integers(0, 3, shape)


@dataclass(slots=True, kw_only=True)
class CtcCollapseArgs(Args):
    """Any strides; lengths are int64 or int32."""

    path: Array = operand("steps batch", values=_classes)
    lengths: Array | None = operand("batch", element=INDICES[::-1], optional=True, layout="dense", values=(-1, "steps"))
    tokens: Array = output("batch steps")
    counts: Array = output("batch", element=I32)
    starts: Array | None = output("batch steps", element=I32, optional=True)


def reference(desc: CtcCollapseDescriptor, *, path: Any, lengths: Any, wanted: set[str]) -> Mapping[str, Any]:
    """NumPy, sequence by sequence."""
    tokens, starts = np.full((2, desc.batch, desc.steps), -1, np.int64)
    counts = np.zeros(desc.batch, np.int32)
    for n in range(desc.batch):
        row = path[:, n] if lengths is None else path[: max(int(lengths[n]), 0), n]
        new = row != desc.blank
        new[1:] &= row[1:] != row[:-1]
        at = np.flatnonzero(new)
        counts[n] = len(at)
        tokens[n, : len(at)], starts[n, : len(at)] = row[at], at
    return {"tokens": tokens, "counts": counts, "starts": starts.astype(np.int32)}


PARAMS = Params(
    "CollapseParams", path="ptr", lengths="ptr", tokens="ptr", counts="ptr", starts="ptr", steps="i64", blank="i64",
    path_steps="i64[2]", token_steps="i64[2]", start_steps="i64[2]", counts_step="i64", wide_lengths="i32",
    collapse_threads=THREADS,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry:
    params = {
        "steps": p.desc.steps, "blank": p.desc.blank, "path_steps": p.path.strides, "token_steps": p.tokens.strides,
        "start_steps": (0, 0) if p.starts is None else p.starts.strides, "counts_step": p.counts.strides[0],
        "wide_lengths": p.lengths is not None and p.lengths.element is I64,
    }  # fmt: skip
    step = Step("collapse", (p.desc.batch, 1, 1), params, {}, THREADS)
    return Geometry((step,), layout="contiguous" if p.path.dense and p.tokens.dense else "strided")


class CtcCollapsePlan(Plan):
    """tokens [batch, steps]: of each path the classes that are not the one before nor the blank, then -1.

    counts [batch]: how many; starts [batch, steps]: the step at which each begins, then -1. A repetition is one token
    unless a blank is between (Graves et al. 2006).
    """

    op = "loss.ctc_collapse"
    descriptor = CtcCollapseDescriptor
    args = CtcCollapseArgs
    reference = staticmethod(reference)
    value_policy = "lengths are cut to those that there are"
    variants = (
        Variant(
            "block", _geometry, source="loss/ctc_collapse.cu", elements=INDICES,
            guarantee=Guarantee(Exact(), batch_invariant=True),
            kernels=(Kernel("collapse", "ctc_collapse<{T}>", PARAMS, threads=THREADS),),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("[1024, 128]", steps=1024, batch=128, peers=(),
                  make=lambda torch, desc: {"path": torch.randint(0, 4, (desc.steps, desc.batch))}),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> CtcCollapseDescriptor:
        return CtcCollapseDescriptor(
            steps=draw.sizes(0, 1, 5, 40, 600), batch=draw.integer(0, 3), blank=draw.integer(0, 2), element=draw.element
        )


ctc_collapse = functional(
    CtcCollapsePlan, "ctc_collapse", returns=("tokens", "counts"),
    doc="""Tokens [batch, steps] of paths [steps, batch] of classes, without repetitions and blanks, then -1; counts.

    lengths [batch] (int64 or int32): of which paths are the first steps. return_starts: also the step at which each
    token begins, int32. See `CtcCollapsePlan`.
    """,
)  # fmt: skip


@cache
def _best() -> Any:
    return reduce("p", "argmax", axis=2)


@entry(CtcCollapsePlan)
def ctc_greedy_decode(
    log_probs: Array, lengths: Any = None, *, blank: int = 0, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """The tokens [batch, steps] of the likeliest class of every step, without repetitions and blanks, and their counts.

    log_probs: [steps, batch, classes]; of equally likely classes the lowest. lengths: [batch], int64 or int32. tokens
    are int64, -1 behind the last; counts int32. tf.nn.ctc_greedy_decoder, the best-path decoding of Graves et al. 2006.
    """
    shape = shape_of(log_probs, "log_probs")
    if len(shape) != 3 or shape[2] == 0 or not read(log_probs, "log_probs").element.is_float:
        raise InvalidProblemError(f"log_probs must be floating [steps, batch, classes], got shape {shape}")
    options = {"stream": stream, "preference": preference}
    tokens, counts = each_of(out, 2)
    given = None if tokens is None and counts is None else (tokens, counts)
    path = _best()(p=log_probs, **options)
    return ctc_collapse(path, lengths=lengths, blank=blank, out=given, **options)
