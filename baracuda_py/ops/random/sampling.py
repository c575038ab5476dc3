"""sample: a token id per row of logits: temperature, top-k, top-p, inverse CDF, with no sort on the device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args,
    Array,
    Descriptor,
    ElementKind,
    Geometry,
    Guarantee,
    Kernel,
    Params,
    Plan,
    Problem,
    Relative,
    Scalar,
    Step,
    Variant,
    element,
    extent,
    functional,
    operand,
    output,
    scalar,
)
from .philox import philox_uniform
from ...core.benchmark import Benchmark

THREADS = 1024
SHORT = (256, 512)  # columns up to which a thread has one; beyond, counting each pair costs more than histograms
I32, I64 = ElementKind.I32, ElementKind.I64


@dataclass(frozen=True, kw_only=True)
class SamplingDescriptor(Descriptor):
    """logits are [batch_size, vocab_size]; index_element is that of the ids, int64 (the default) or int32."""

    batch_size: int = extent()
    vocab_size: int = extent(minimum=1)
    index_element: ElementKind = element((I32, I64), I64)
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class SamplingArgs(Args):
    """All scalars may be 0-d device arrays, so a captured decode step can vary them. `seed` and `offset` are 64-bit.

    temperature 0: the argmax. top_k 0 and top_p 1: off. Row b draws element b of the Philox stream (seed, offset):
    give every call another offset.
    """

    logits: Array = operand("batch_size vocab_size")
    ids: Array = output("batch_size", element="index_element")
    logprob: Array | None = output("batch_size", element="acc", optional=True)
    temperature: Scalar = scalar(1.0)
    top_k: Scalar = scalar(0, integer=True)
    top_p: Scalar = scalar(1.0)
    seed: Scalar = scalar(integer=True)
    offset: Scalar = scalar(0, integer=True)


def reference(desc: SamplingDescriptor, *, logits: Any, temperature: Any, top_k: Any, top_p: Any, seed: Any,
              offset: Any, wanted: set[str]) -> Mapping[str, Any]:  # fmt: skip
    """NumPy: weights in the dtype of the logits, their sums in float64 at least."""
    batch, vocab = logits.shape
    t, k, nucleus = float(temperature), int(top_k), float(top_p)
    x = np.where(np.isnan(logits), -np.inf, logits)
    top = x.max(axis=1, keepdims=True)
    possible = x > -np.inf
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        scaled = (x - top) / x.dtype.type(t if t > 0 else 1)
        weight = np.where(x == top, x.dtype.type(1), np.exp(scaled))
    weight = np.where(possible & ~np.isnan(weight), weight, 0).astype(np.promote_types(x.dtype, np.float64))
    if not t > 0 or nucleus <= 0:
        k = 1
    if 0 < k < vocab or nucleus < 1:
        order = np.argsort(-x, axis=1, kind="stable")
        ranked = np.take_along_axis(weight, order, axis=1)
        if 0 < k < vocab:
            ranked[:, k:] = 0
        if nucleus < 1:
            before = np.cumsum(ranked, axis=1) - ranked
            before[:, 0] = 0
            ranked = np.where(
                (before < nucleus * ranked.sum(axis=1, keepdims=True)) | (np.arange(vocab) == 0), ranked, 0
            )
        np.put_along_axis(weight, order, ranked, axis=1)
    mass = np.cumsum(weight, axis=1)
    u = philox_uniform(seed, offset, batch).astype(mass.dtype)
    ids = np.argmax(mass > u[:, None] * mass[:, -1:], axis=1)
    chosen = np.take_along_axis(weight, ids[:, None], axis=1)[:, 0]
    none = ~possible.any(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        logprob = np.where(none, np.nan, np.log(chosen / mass[:, -1]))
    return {"ids": np.where(none, -1, ids).astype(np.int64), "logprob": logprob.astype(x.dtype)}


PARAMS = Params(
    "SamplingParams", logits="ptr", ids="ptr", logprob="ptr", status="status", temperature="scalar", top_p="scalar",
    top_k="iscalar", seed="iscalar", offset="iscalar", row_stride="i64", col_stride="i64", ids_stride="i64",
    logprob_stride="i64", cols="i32", scale_bits="i32", wide_ids="i32",
)  # fmt: skip
AXES = {"WIDE": (True, False)}  # 16-byte accesses: rows dense and aligned


def _geometry(p: Problem) -> Geometry | str:
    batch, vocab = p.logits.shape
    if vocab >= 2**31:
        return f"{vocab} columns; a row holds 2^31 - 1"
    row, col = p.logits.strides
    width = 16 // p.desc.element.itemsize
    inner = vocab == 1 or col == 1
    wide = inner and p.logits.ptr % 16 == 0 and (batch == 1 or row % width == 0)
    params = {
        "row_stride": row, "col_stride": col, "ids_stride": p.ids.strides[0],
        "logprob_stride": p.logprob.strides[0] if p.logprob is not None else 0, "cols": vocab,
        "scale_bits": 62 - vocab.bit_length(), "wide_ids": p.desc.index_element is I64,
    }  # fmt: skip
    short = next((n for n in SHORT if vocab <= n), None)
    step = (
        Step(f"sample_{short}", (batch, 1, 1), params, {}, short)
        if short
        else Step("sample", (batch, 1, 1), params, {"WIDE": wide}, THREADS)
    )
    return Geometry((step,), layout="contiguous" if p.logits.dense else "inner_contiguous" if inner else "strided")


def in_torch(
    torch: Any, desc: SamplingDescriptor, *, logits: Any, temperature: Any, top_k: Any, top_p: Any, seed: Any,
    offset: Any, wanted: set[str],
) -> Any:  # fmt: skip
    """The argmax, which temperature 0 asks for, and the log of its probability; torch draws by no Philox of ours."""
    if temperature > 0:
        return NotImplemented
    return {"ids": torch.argmax(logits, 1), "logprob": torch.zeros_like(logits[:, 0])}


class SamplingPlan(Plan):
    """ids[b] ~ softmax(logits[b] / temperature) restricted by top_k, then top_p, and renormalised.

    logits: [B, V], any strides. ids: [B] int64 or int32. logprob: [B] float32 (float64 for float64), the log of the
    probability the id was drawn with, after the restrictions.

    top_k keeps the k largest logits, top_p the shortest descending prefix of those whose probability reaches top_p, one
    at least; among equal logits the lower index goes first. The draw is the inverse CDF in index order: the first
    id whose cumulative probability exceeds the uniform of Philox element b. temperature <= 0 (or NaN), top_k = 1 and
    top_p <= 0 are the argmax, lowest index first. top_k <= 0 or >= V and top_p >= 1 (or NaN) are off.

    On the device weights are exp((x − max) / temperature) in fixed point, 62 − log2 V bits: sums are integers, so
    no order of summation exists to depend on. An id equals the reference's unless two candidates lie within a few ulp.
    """

    op = "random.sample"
    descriptor = SamplingDescriptor
    args = SamplingArgs
    reference = staticmethod(reference)
    value_policy = "NaN logits count as -inf; a row with no logit above -inf gives id -1 and logprob NaN"
    variants = (
        Variant(
            "row", _geometry, source="random/sampling.cu",
            kernels=(
                Kernel("sample", f"sample<{{T}}, {THREADS}, {{WIDE}}>", PARAMS, AXES, THREADS, 0),
                *(Kernel(f"sample_{n}", f"sample_short<{{T}}, {n}>", PARAMS, {}, n, 0) for n in SHORT),
            ),
            guarantee=Guarantee(Relative(2)),
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "top-k 50, top-p 0.9 of [256, 128256] bf16", batch_size=256, vocab_size=128256, element="bfloat16",
            make=lambda torch, desc: {"temperature": 0.8, "top_k": 50, "top_p": 0.9, "seed": 1, "offset": 0},
            target=None, peers=(),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> SamplingDescriptor:
        return SamplingDescriptor(
            batch_size=draw.integer(0, 9), vocab_size=draw.sizes(1, 7, 64, 257, 511, 1000, 4099),
            element=draw.element, index_element=draw.choice((I32, I64)),
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: SamplingDescriptor, arrays: dict[str, Any]) -> None:
        """Restrictions that differ from case to case, by the descriptor alone: a captured graph keeps them."""
        pick = desc.batch_size + desc.vocab_size
        arrays["temperature"] = (1.0, 0.7, 2.0, 0.0)[pick % 4]
        arrays["top_k"] = (0, 5, desc.vocab_size // 2)[pick % 3]
        arrays["top_p"] = (1.0, 0.9)[pick // 3 % 2]

    @classmethod
    def check_values(cls, desc: SamplingDescriptor, arrays: Mapping[str, Any]) -> str | None:
        rows = np.asarray(arrays["logits"]).astype(np.float64)
        bad = ~(rows > -np.inf).any(axis=1)
        return f"row {int(np.argmax(bad))} has no logit above -inf" if bad.any() else None


sample = functional(SamplingPlan)
