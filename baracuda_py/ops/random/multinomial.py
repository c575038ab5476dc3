"""multinomial: ids of rows of weights, drawn with or without replacement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, Plan, Problem, Scalar, Step,
    Variant, element, extent, flag, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.args import no_subnormals
from ...core.benchmark import Benchmark
from ...core.errors import InvalidProblemError
from ...core.variant import aligned
from .draws import streams
from .row_draw import fixed, scale_bits, upper
from .words import open_interval, words64

I32, I64 = ElementKind.I32, ElementKind.I64


@dataclass(frozen=True, kw_only=True)
class MultinomialDescriptor(Descriptor):
    """probs are [batch_size, vocab_size], ids [batch_size, num_samples]."""

    batch_size: int = extent()
    vocab_size: int = extent(minimum=1)
    num_samples: int = extent()
    replacement: bool = flag(False)
    index_element: ElementKind = element((I32, I64), I64)
    element: ElementKind = element()

    def validate(self) -> None:
        if not self.replacement and self.num_samples > self.vocab_size:
            most = f"num_samples must be at most vocab_size = {self.vocab_size} without replacement"
            raise InvalidProblemError(f"{most}, got {self.num_samples}")


@no_subnormals  # shares of one are as large as it is itself
def _weights(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    return np.maximum(rng.standard_normal(shape), 0) + (rng.random(shape) < 0.3)


@dataclass(slots=True, kw_only=True)
class MultinomialArgs(Args):
    """Any strides. probs: weights that need not sum to 1; NaN and negative ones count as 0. seed, offset: 64-bit."""

    probs: Array = operand("batch_size vocab_size", values=_weights)
    ids: Array = output("batch_size num_samples", element="index_element")
    seed: Scalar = scalar(integer=True)
    offset: Scalar = scalar(0, integer=True)


def reference(desc: MultinomialDescriptor, *, probs: Any, seed: Any, offset: Any) -> Mapping[str, Any]:
    """NumPy: sums of fixed-point weights, or arrivals in their order."""
    batch, vocab, draws = desc.batch_size, desc.vocab_size, desc.num_samples
    held = np.asarray(probs, np.float64)
    if desc.replacement:
        sums = np.cumsum(fixed(held, scale_bits(vocab)), axis=1, dtype=np.uint64)
        words = words64(seed, offset, batch * draws).reshape(batch, draws)
        targets = upper(sums[:, -1:], words)
        rows = [np.searchsorted(s, t, side="right") if s[-1] else np.full(draws, -1) for s, t in zip(sums, targets)]  # noqa: B905
        return {"ids": np.array(rows, np.int64).reshape(batch, draws)}
    with np.errstate(all="ignore"):
        waiting = -np.log(open_interval(words64(seed, offset, batch * vocab))).reshape(batch, vocab)
        arrival = np.where(held > 0, waiting / np.where(held > 0, held, 1), np.inf)
    order = np.argsort(arrival, axis=1, kind="stable")[:, :draws]
    return {"ids": np.where(np.isfinite(np.take_along_axis(arrival, order, axis=1)), order, -1)}


PARAMS = Params(
    "MultinomialParams", probs="ptr", ids="ptr", work="workspace", status="status", seed="iscalar", offset="iscalar",
    rows="i64", cols="i64", draws="i64", strides="i64[2]", ids_strides="i64[2]", bits="i32", wide="i32",
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    desc = p.desc
    batch, vocab, draws = desc.batch_size, desc.vocab_size, desc.num_samples
    if batch > 65535:
        return f"{batch} rows; a launch has 65535"
    params = {
        "work": 0, "rows": batch, "cols": vocab, "draws": draws, "strides": p.probs.strides,
        "ids_strides": p.ids.strides, "bits": scale_bits(vocab), "wide": desc.index_element is I64,
    }  # fmt: skip
    if desc.replacement:
        steps = (
            Step("cumulate", (batch, 1, 1), params, {}, 1024),
            Step("pick", (max(1, -(-batch * draws // 256)), 1, 1), params, {}, 256),
        )
    else:
        steps = (
            Step("race", (batch, 1, 1), params, {}, 1024),
            Step("rank", (-(-vocab // 256), batch, 1), params, {}, 256),
        )
    return Geometry(steps, aligned(8 * batch * (vocab + 1)), layout="contiguous" if p.probs.dense else "strided")


class MultinomialPlan(Plan):
    """ids [B, n] of rows of weights [B, V] (torch.multinomial), each id with a probability in proportion to its weight.

    With replacement an id is the first whose sum of weights passes the draw's part of the total: 64-bit word b n + j of
    the Philox stream is that part. Without, id i arrives at E / w, E exponential of word b V + i, and ids come in the
    order of their arrival, each in proportion to its weight among those left. Where fewer weights are above 0 than
    samples are wanted, the others are -1.
    """

    op = "random.multinomial"
    descriptor = MultinomialDescriptor
    args = MultinomialArgs
    reference = staticmethod(reference)
    value_policy = "NaN and negative weights count as 0; where no weight above 0 is left the id is -1"
    variants = (
        Variant(
            "rows", _geometry, source="random/multinomial.cu", guarantee=Guarantee(Exact()),
            kernels=(
                Kernel("cumulate", "multinomial_cumulate<{T}>", PARAMS, {}, 1024),
                Kernel("pick", "multinomial_pick<{T}>", PARAMS, {}, 256),
                Kernel("race", "multinomial_race<{T}>", PARAMS, {}, 1024),
                Kernel("rank", "multinomial_rank<{T}>", PARAMS, {}, 256),
            ),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("1M of 1024 rows of 4096", batch_size=1024, vocab_size=4096, num_samples=1024, replacement=True,
                  element="float32", make=lambda torch, desc: {"seed": 1}, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> MultinomialDescriptor:
        vocab, replacement = draw.sizes(1, 7, 64, 300, 1030), draw.flag()
        count = draw.sizes(0, 1, 5, 40)
        return MultinomialDescriptor(
            batch_size=draw.integer(0, 3), vocab_size=vocab, num_samples=count if replacement else min(count, vocab),
            replacement=replacement, index_element=draw.choice((I32, I64)), element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        streams((desc.vocab_size, desc.num_samples), arrays)


_multinomial = functional(MultinomialPlan, "multinomial")
