"""adjust_logits: penalties for tokens of a history, a bias, and a mask of allowed tokens, before sampling."""

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
from .draws import by_row

THREADS, TILE = 256, 4096
F32, I32, I64 = ElementKind.F32, ElementKind.I32, ElementKind.I64


@dataclass(frozen=True, kw_only=True)
class AdjustLogitsDescriptor(Descriptor):
    """logits are [batch_size, vocab_size]; a row's history has `length` tokens, its prompt `prompt_length`."""

    batch_size: int = extent()
    vocab_size: int = extent()
    length: int = extent(0)
    prompt_length: int = extent(0)
    element: ElementKind = element()

    @property
    def words(self) -> int:
        """Words of 32 bits that a row's mask has."""
        return -(-self.vocab_size // 32)


def _tokens(name: str) -> Any:
    def values(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
        return rng.integers(-2, desc.vocab_size + 2, shape)

    return operand(f"batch_size {name}", element=(I32, I64), optional=True, values=values)


def _bits(rng: np.random.Generator, desc: Any, shape: Any) -> Any:
    return rng.integers(-(2**31), 2**31, shape)


@dataclass(slots=True, kw_only=True)
class AdjustLogitsArgs(Args):
    """Any strides; y may be logits. Tokens outside the row, as -1, are none. repetition, frequency and presence are
    scalars, or dense arrays [B] of float32 of the plural names."""

    logits: Array = operand("batch_size vocab_size")
    history: Array | None = _tokens("length")
    prompt: Array | None = _tokens("prompt_length")
    bias: Array | None = operand("batch_size vocab_size", optional=True, broadcast=True)
    mask: Array | None = operand("batch_size words", element=I32, optional=True, broadcast=True, values=_bits)
    repetitions: Array | None = operand("batch_size", element=F32, optional=True, layout="dense", values=(0.5, 2.0))
    frequencies: Array | None = operand("batch_size", element=F32, optional=True, layout="dense", values=(-1.0, 2.0))
    presences: Array | None = operand("batch_size", element=F32, optional=True, layout="dense", values=(-1.0, 2.0))
    y: Array = output("batch_size vocab_size", inplace=("logits",))
    repetition: Scalar = scalar(1.0)
    frequency: Scalar = scalar(0.0)
    presence: Scalar = scalar(0.0)


def reference(
    desc: AdjustLogitsDescriptor, *, logits: Any, history: Any, prompt: Any, bias: Any, mask: Any, repetitions: Any,
    frequencies: Any, presences: Any, repetition: Any, frequency: Any, presence: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype the logits come in."""
    counts, asked = (_counts(desc, tokens) for tokens in (history, prompt))

    def of_rows(rows: Any, value: Any) -> Any:
        held = np.asarray(np.float32(value) if rows is None and desc.element is not ElementKind.F64 else
                          value if rows is None else rows)  # fmt: skip
        return np.broadcast_to(held.astype(logits.dtype), desc.batch_size)[:, None]

    r, f, p = of_rows(repetitions, repetition), of_rows(frequencies, frequency), of_rows(presences, presence)
    with np.errstate(all="ignore"):
        y = np.where((counts > 0) | (asked > 0), np.where(logits > 0, logits / r, logits * r), logits)
        y = np.where(counts > 0, y - f * counts.astype(y.dtype) - p, y)
        y = y if bias is None else y + bias
    if mask is not None:
        words = np.broadcast_to(mask, (desc.batch_size, desc.words)).astype(np.uint32)
        at = np.arange(desc.vocab_size)
        y = np.where(words[:, at // 32] >> (at % 32).astype(np.uint32) & 1, y, -np.inf)
    return {"y": y.astype(logits.dtype)}


def _counts(desc: AdjustLogitsDescriptor, tokens: Any) -> Any:
    counts = np.zeros((desc.batch_size, desc.vocab_size), np.int64)
    if tokens is not None:
        row, at = np.nonzero((tokens >= 0) & (tokens < desc.vocab_size))
        np.add.at(counts, (row, tokens[row, at].astype(np.int64)), 1)
    return counts


PARAMS = Params(
    "AdjustLogitsParams", y="ptr", logits="ptr", bias="ptr", mask="ptr", history="ptr", prompt="ptr",
    repetitions="ptr", frequencies="ptr", presences="ptr", repetition="scalar", frequency="scalar", presence="scalar",
    cols="i64", lengths="i64[2]", strides="i64[3][2]", token_strides="i64[2][2]", mask_strides="i64[2]", wide="i32[2]",
    adjust_tile=TILE,
)  # fmt: skip


def _strides(view: Any, shape: Any) -> tuple[int, ...]:
    return (0, 0) if view is None else tuple(view.broadcast_to(shape).strides)


def _geometry(p: Problem) -> Geometry | str:
    desc, shape = p.desc, p.logits.shape
    width = 16 // desc.element.itemsize
    if desc.batch_size > 65535:
        return f"{desc.batch_size} rows; a launch has 65535"

    def aligned(view: Any) -> bool:
        rows = desc.batch_size == 1 or view.strides[0] % width == 0
        return bool(view.ptr % 16 == 0 and rows and (shape[1] == 1 or view.strides[1] == 1))

    tokens = (p.history, p.prompt)
    params = {
        "cols": desc.vocab_size, "lengths": [0 if t is None else t.shape[1] for t in tokens],
        "strides": [_strides(v, shape) for v in (p.logits, p.y, p.bias)],
        "token_strides": [(0, 0) if t is None else t.strides for t in tokens],
        "mask_strides": _strides(p.mask, (desc.batch_size, desc.words)),
        "wide": [t is not None and t.element is I64 for t in tokens],
    }  # fmt: skip
    grid = (max(1, -(-desc.vocab_size // TILE)), desc.batch_size, 1)
    step = Step("adjust", grid, params, {"WIDE": aligned(p.logits) and aligned(p.y)}, THREADS)
    return Geometry((step,), layout="contiguous" if p.logits.dense and p.y.dense else "strided")


class AdjustLogitsPlan(Plan):
    """y = logits with penalties for tokens that were there, a bias, and -inf for tokens that are not allowed.

    A token of the history or the prompt: x / repetition where x > 0, else x repetition (Keskar et al. 2019). A token
    that the history has n > 0 times: then less n frequency + presence. Then the bias is added, and a token v whose bit
    v % 32 of word v // 32 of the mask (int32 [B, V / 32 rounded up], or one row for all) is 0 becomes -inf.
    """

    op = "random.adjust_logits"
    descriptor = AdjustLogitsDescriptor
    args = AdjustLogitsArgs
    reference = staticmethod(reference)
    value_policy = "tokens outside the row count as none"
    variants = (
        Variant(
            "tiles", _geometry, source="random/adjust_logits.cu",
            guarantee=Guarantee(Relative(2), batch_invariant=True),
            kernels=(Kernel("adjust", "adjust_logits<{T}, {WIDE}>", PARAMS, {"WIDE": (True, False)}, THREADS),),
        ),
    )  # fmt: skip
    benchmarks = (
        Benchmark("[128, 131072] f32, 2048 tokens", batch_size=128, vocab_size=131072, length=2048, element="float32",
                  make=lambda torch, desc: {"repetition": 1.1, "frequency": 0.2}, peers=()),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> AdjustLogitsDescriptor:
        return AdjustLogitsDescriptor(
            batch_size=draw.integer(0, 3), vocab_size=draw.sizes(1, 33, 64, 4099), length=draw.integer(0, 40),
            prompt_length=draw.integer(0, 5), element=draw.element,
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        arrays["repetition"], arrays["frequency"], arrays["presence"] = 1.25, 0.5, 0.25


_adjust = functional(AdjustLogitsPlan, "adjust_logits")
_ROWS = {"repetition": "repetitions", "frequency": "frequencies", "presence": "presences"}


@entry(AdjustLogitsPlan)
def adjust_logits(
    logits: Array, history: Any = None, prompt: Any = None, *, bias: Any = None, mask: Any = None,
    repetition: Scalar = 1.0, frequency: Scalar = 0.0, presence: Scalar = 0.0, out: Any = None, stream: Any = None,
    preference: Any = None,
) -> Any:  # fmt: skip
    """Logits [B, V] with penalties for tokens of histories [B, L] and prompts, a bias and a bit mask.

    repetition, frequency and presence are numbers, 0-d device arrays or arrays [B] of float32. See `AdjustLogitsPlan`.
    """
    given = {"repetition": repetition, "frequency": frequency, "presence": presence}
    return _adjust(
        logits, history=history, prompt=prompt, bias=bias, mask=mask, **by_row(given, _ROWS), out=out, stream=stream,
        preference=preference,
    )  # fmt: skip
