"""repeat_penalties: logits of tokens that would go on a repetition: n-grams that must not come again, and DRY."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args, Array, Descriptor, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative, Scalar, Step,
    Variant, element, extent, operand, output, scalar,
)  # fmt: skip
from ...calls.functional import functional
from ...core.benchmark import Benchmark
from ...calls.entries import entry
from ...core.variant import aligned as rounded
from .draws import by_row

THREADS, TILE = 256, 4096
F32, I32, I64 = ElementKind.F32, ElementKind.I32, ElementKind.I64
LONGEST = 64


@dataclass(frozen=True, kw_only=True)
class RepeatPenaltiesDescriptor(Descriptor):
    """logits are [batch_size, vocab_size], histories [batch_size, length]; `longest` ends the count of equal tokens."""

    batch_size: int = extent()
    vocab_size: int = extent()
    length: int = extent()
    breaker_count: int = extent(0)
    longest: int = extent(LONGEST, minimum=1)
    element: ElementKind = element()


def _history(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    """Test data: few tokens, so that there are repetitions, and some that are none."""
    return rng.integers(-1, min(desc.vocab_size, 2) + 1, shape)


def _of_rows(low: float, high: float, kinds: Any = F32) -> Any:
    return operand("batch_size", element=kinds, optional=True, layout="dense", values=(low, high))


@dataclass(slots=True, kw_only=True)
class RepeatPenaltiesArgs(Args):
    """Any strides; y may be logits. The options are scalars, or dense arrays [B] of the plural names."""

    logits: Array = operand("batch_size vocab_size")
    history: Array = operand("batch_size length", element=(I32, I64), values=_history)
    lengths: Array | None = operand("batch_size", element=(I32, I64), optional=True, layout="dense",
                                    values=(-1, "length"))  # fmt: skip
    breakers: Array | None = operand("breaker_count", element=(I32, I64), optional=True, layout="dense",
                                     values=(-1, 3))  # fmt: skip
    ngrams: Array | None = _of_rows(0, 4, (I32, I64))
    multipliers: Array | None = _of_rows(0.5, 2.0)
    bases: Array | None = _of_rows(1.0, 2.0)
    allowed_lengths: Array | None = _of_rows(0, 3, (I32, I64))
    y: Array = output("batch_size vocab_size", inplace=("logits",))
    ngram: Scalar = scalar(0, integer=True)
    multiplier: Scalar = scalar(0.0)
    base: Scalar = scalar(1.75)
    allowed_length: Scalar = scalar(2, integer=True)


def _matches(history: Any, lengths: Any, breakers: set[int], desc: RepeatPenaltiesDescriptor) -> Any:
    """How many tokens before each are the row's last ones; -1 behind the row's end."""
    found = np.full(history.shape, -1, np.int64)
    for b, row in enumerate(history.tolist()):
        end = desc.length if lengths is None else min(max(int(lengths[b]), 0), desc.length)
        for i in range(end):
            n = 0
            while n < min(i, desc.longest) and row[i - 1 - n] == row[end - 1 - n]:
                token = row[end - 1 - n]
                if not 0 <= token < desc.vocab_size or token in breakers:
                    break
                n += 1
            found[b, i] = n
    return found


def reference(
    desc: RepeatPenaltiesDescriptor, *, logits: Any, history: Any, lengths: Any, breakers: Any, ngrams: Any,
    multipliers: Any, bases: Any, allowed_lengths: Any, ngram: Any, multiplier: Any, base: Any, allowed_length: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy, token by token of the histories; powers in float64."""
    stops = set() if breakers is None else {int(token) for token in breakers}
    matches = _matches(history, lengths, stops, desc)
    best = np.full((desc.batch_size, desc.vocab_size), -1, np.int64)
    row, at = np.nonzero((history >= 0) & (history < desc.vocab_size))
    np.maximum.at(best, (row, history[row, at].astype(np.int64)), matches[row, at])

    def column(rows: Any, value: Any, kind: Any) -> Any:
        return np.broadcast_to(np.asarray(value if rows is None else rows).astype(kind), desc.batch_size)[:, None]

    n, allowed = column(ngrams, ngram, np.int64), column(allowed_lengths, allowed_length, np.int64)
    factor, power = column(multipliers, multiplier, np.float64), column(bases, base, np.float64)
    with np.errstate(all="ignore"):
        penalty = (factor * power ** np.maximum(best - allowed, 0).astype(np.float64)).astype(logits.dtype)
        y = np.where((factor > 0) & (best >= np.maximum(allowed, 0)), logits - penalty, logits)
    y = np.where((n > 0) & (best >= n - 1) & (best >= 0), -np.inf, y)
    return {"y": y.astype(logits.dtype)}


ROWS = ("lengths", "ngrams", "allowed_lengths", "history", "breakers")  # of whole numbers, of either width
PARAMS = Params(
    "RepeatPenaltiesParams", y="ptr", logits="ptr", history="ptr", lengths="ptr", breakers="ptr", ngrams="ptr",
    multipliers="ptr", bases="ptr", allowed_lengths="ptr", matches="workspace", ngram="iscalar", multiplier="scalar",
    base="scalar", allowed_length="iscalar", cols="i64", length="i64", breaker_count="i64", strides="i64[2][2]",
    history_strides="i64[2]", longest="i32", wide_lengths="i32", wide_ngrams="i32", wide_allowed_lengths="i32",
    wide_history="i32", wide_breakers="i32", repeat_tile=TILE,
)  # fmt: skip


def _geometry(p: Problem) -> Geometry | str:
    """The matches of every place of the histories, then tiles of the rows, which read them."""
    desc, width = p.desc, 16 // p.desc.element.itemsize
    if desc.batch_size > 65535:
        return f"{desc.batch_size} rows; a launch has 65535"

    def aligned(view: Any) -> bool:
        rows = desc.batch_size == 1 or view.strides[0] % width == 0
        return bool(view.ptr % 16 == 0 and rows and (desc.vocab_size == 1 or view.strides[1] == 1))

    params = {
        "matches": 0, "cols": desc.vocab_size, "length": desc.length, "breaker_count": desc.breaker_count,
        "strides": [p.logits.strides, p.y.strides], "history_strides": p.history.strides, "longest": desc.longest,
        **{f"wide_{name}": (view := getattr(p, name)) is not None and view.element is I64 for name in ROWS},
    }  # fmt: skip
    places, tiles = (max(1, -(-extent // each)) for extent, each in ((desc.length, THREADS), (desc.vocab_size, TILE)))
    steps = (
        Step("matches", (places, desc.batch_size, 1), params, {}, THREADS),
        Step("repeats", (tiles, desc.batch_size, 1), params, {"WIDE": aligned(p.logits) and aligned(p.y)}, THREADS),
    )
    size = rounded(4 * desc.batch_size * desc.length)
    return Geometry(steps, size, layout="contiguous" if p.logits.dense and p.y.dense else "strided")


class RepeatPenaltiesPlan(Plan):
    """y = logits with -inf for tokens that end an n-gram again, and less a penalty for those that go on a repetition.

    n(t) is the largest number of tokens before a t of the history that are also the history's last ones, in order, up
    to `longest`; a breaker, and a token outside the row, is equal to none. ngram > 0: -inf where n(t) >= ngram - 1
    (no_repeat_ngram_size of transformers). Else, with a multiplier above 0, where n(t) >= allowed_length: less
    multiplier base^(n(t) - allowed_length) (DRY, p-e-w 2024; llama.cpp, text-generation-webui).
    """

    op = "random.repeat_penalties"
    descriptor = RepeatPenaltiesDescriptor
    args = RepeatPenaltiesArgs
    reference = staticmethod(reference)
    value_policy = "tokens outside the row count as none; lengths are cut to those that there are"
    variants = (
        Variant(
            "tiles", _geometry, source="random/repeat_penalties.cu",
            guarantee=Guarantee(Relative(2), batch_invariant=True),
            kernels=(
                Kernel("matches", "repeat_matches<{T}>", PARAMS, threads=THREADS),
                Kernel("repeats", "repeat_penalties<{T}, {WIDE}>", PARAMS, {"WIDE": (True, False)}, THREADS),
            ),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("[128, 131072] f32, 2048 tokens", batch_size=128, vocab_size=131072, length=2048, element="float32",
                  make=lambda torch, desc: {"multiplier": 0.8, "history": torch.randint(
                      0, 1000, (desc.batch_size, desc.length))}, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> RepeatPenaltiesDescriptor:
        return RepeatPenaltiesDescriptor(
            batch_size=draw.integer(0, 3), vocab_size=draw.sizes(1, 33, 64, 4099), length=draw.integer(0, 300),
            breaker_count=draw.integer(0, 2), longest=draw.choice((1, 3, 64)), element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        arrays["multiplier"], arrays["base"] = 1.25, 1.5
        arrays["ngram"], arrays["allowed_length"] = (0, 5)[desc.length % 2], 1


_repeats = functional(RepeatPenaltiesPlan, "repeat_penalties")
_OPTIONS = {
    "ngram": "ngrams", "multiplier": "multipliers", "base": "bases", "allowed_length": "allowed_lengths",
}  # fmt: skip


@entry(RepeatPenaltiesPlan)
def repeat_penalties(
    logits: Array, history: Array, *, lengths: Any = None, breakers: Any = None, ngram: Scalar = 0,
    multiplier: Scalar = 0.0, base: Scalar = 1.75, allowed_length: Scalar = 2, longest: int = LONGEST, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """Logits [B, V] against repetitions of the token histories [B, L] (int64 or int32): DRY and blocked n-grams.

    lengths: [B], of which histories are the first tokens (default: all L); breakers: [K], tokens at which a repetition
    ends. ngram: no n-gram of so many tokens comes twice (0: any may; transformers' no_repeat_ngram_size); multiplier,
    base, allowed_length: DRY's, a token that would make a repetition of n > allowed_length tokens longer has
    multiplier base^(n - allowed_length) less, n up to `longest`. These four are numbers, 0-d device arrays or arrays
    [B] (float32; of ngram and allowed_length int64 or int32). See `RepeatPenaltiesPlan`. In place by out=logits.
    """
    given = {"ngram": ngram, "multiplier": multiplier, "base": base, "allowed_length": allowed_length}
    return _repeats(
        logits, history, lengths=lengths, breakers=breakers, longest=longest, **by_row(given, _OPTIONS), out=out,
        stream=stream, preference=preference,
    )  # fmt: skip
