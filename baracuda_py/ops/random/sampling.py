"""sample: a token id per row of logits or probabilities, the cut-offs each a number or one for each row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...core import (
    Args, Array, Descriptor, ElementKind, Exact, Geometry, Guarantee, Kernel, Params, PerOutput, Plan, Problem,
    Relative, Scalar, Step, Variant, element, extent, flag, integer, operand, output, scalar,
)  # fmt: skip
from ...core.benchmark import Benchmark
from .sampling_reference import check_rows, likely_rows, reference

THREADS = 1024
MOST = 256  # of top_n
F32, I32, I64 = ElementKind.F32, ElementKind.I32, ElementKind.I64


@dataclass(frozen=True, kw_only=True)
class SamplingDescriptor(Descriptor):
    """logits are [batch_size, vocab_size]; index_element is that of the ids, int64 (the default) or int32.

    probabilities: they are no logits but probabilities, which need not sum to 1. top_n: how many of the most likely ids
    come with their logprobs, at most 256.
    """

    batch_size: int = extent()
    vocab_size: int = extent(minimum=1)
    probabilities: bool = flag(False)
    top_n: int = integer(0, minimum=0, maximum=MOST)
    index_element: ElementKind = element((I32, I64), I64)
    element: ElementKind = element()


def _rows(low: float, high: float, kinds: Any = F32) -> Any:
    return operand("batch_size", element=kinds, optional=True, layout="dense", values=(low, high))


@dataclass(slots=True, kw_only=True)
class SamplingArgs(Args):
    """A cut-off is a scalar, a number or a 0-d device array, or the dense array [B] of the plural name.

    Arrays are float32, of top_k int32 or int64, of seeds int64. Row b draws element b of the Philox stream (seed,
    offset), with seeds of its own element 0 of (seeds[b], offset): give every call another offset. tokens: ids whose
    logprob is asked for; nothing is drawn then, and ids are these.
    """

    logits: Array = operand("batch_size vocab_size")
    tokens: Array | None = operand("batch_size", element=(I32, I64), optional=True, layout="dense",
                                   values=(0, "vocab_size"))  # fmt: skip
    temperatures: Array | None = _rows(0.3, 2.0)
    top_ks: Array | None = _rows(-1, 40, (I32, I64))
    top_ps: Array | None = _rows(0.3, 1.1)
    min_ps: Array | None = _rows(0.0, 0.3)
    typical_ps: Array | None = _rows(0.3, 1.3)
    epsilons: Array | None = _rows(-0.02, 0.05)
    etas: Array | None = _rows(-0.02, 0.05)
    sigmas: Array | None = _rows(-1.0, 3.0)
    seeds: Array | None = _rows(-90, 90, I64)
    ids: Array | None = output("batch_size", element="index_element", optional=True)
    logprob: Array | None = output("batch_size", element="acc", optional=True)
    top_ids: Array | None = output("batch_size top_n", element="index_element", optional=True)
    top_logprobs: Array | None = output("batch_size top_n", element="acc", optional=True)
    probs: Array | None = output("batch_size vocab_size", optional=True)
    masked: Array | None = output("batch_size vocab_size", optional=True, inplace=("logits",))
    temperature: Scalar = scalar(1.0)
    top_k: Scalar = scalar(0, integer=True)
    top_p: Scalar = scalar(1.0)
    min_p: Scalar = scalar(0.0)
    typical_p: Scalar = scalar(1.0)
    epsilon: Scalar = scalar(0.0)
    eta: Scalar = scalar(0.0)
    top_n_sigma: Scalar = scalar(0.0)
    seed: Scalar = scalar(integer=True)
    offset: Scalar = scalar(0, integer=True)


ROWS = ("temperatures", "top_ks", "top_ps", "min_ps", "typical_ps", "epsilons", "etas", "sigmas", "seeds", "tokens")
PARAMS = Params(
    "SamplingParams", logits="ptr", ids="ptr", logprob="ptr", top_ids="ptr", top_logprobs="ptr", probs="ptr",
    masked="ptr", status="status", **dict.fromkeys(ROWS, "ptr"),
    **dict.fromkeys(("temperature", "top_p", "min_p", "typical_p", "epsilon", "eta", "top_n_sigma"), "scalar"),
    top_k="iscalar", seed="iscalar", offset="iscalar", row_stride="i64", col_stride="i64", ids_stride="i64",
    logprob_stride="i64", top_strides="i64[2][2]", probs_strides="i64[2]", masked_strides="i64[2]", cols="i32",
    scale_bits="i32", wide_ids="i32", wide_ks="i32", wide_tokens="i32", likely="i32", top_n="i32",
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
        "row_stride": row, "col_stride": col, "ids_stride": _strides(p.ids, 1)[0],
        "logprob_stride": _strides(p.logprob, 1)[0],
        "top_strides": (_strides(p.top_ids, 2), _strides(p.top_logprobs, 2)), "probs_strides": _strides(p.probs, 2),
        "masked_strides": _strides(p.masked, 2), "cols": vocab, "scale_bits": 62 - vocab.bit_length(),
        "wide_ids": p.desc.index_element is I64, "wide_ks": p.top_ks is not None and p.top_ks.element is I64,
        "wide_tokens": p.tokens is not None and p.tokens.element is I64, "likely": p.desc.probabilities,
        "top_n": p.desc.top_n if p.top_ids is not None or p.top_logprobs is not None else 0,
    }  # fmt: skip
    step = Step("sample", (batch, 1, 1), params, {"WIDE": wide}, THREADS)
    return Geometry((step,), layout="contiguous" if p.logits.dense else "inner_contiguous" if inner else "strided")


def _strides(view: Any, rank: int) -> tuple[int, ...]:
    return (0,) * rank if view is None else tuple(view.strides)


def in_torch(torch: Any, desc: SamplingDescriptor, *, wanted: set[str], **given: Any) -> Any:
    """The argmax, which temperature 0 asks for, alone of its row; torch draws by no Philox of ours."""
    if given["temperature"] > 0 or desc.probabilities or any(given[name] is not None for name in ROWS):
        return NotImplemented
    logits = given["logits"]
    ids = torch.argmax(logits, 1)
    alone = torch.nn.functional.one_hot(ids, desc.vocab_size).to(logits.dtype)
    logprob = torch.zeros_like(logits[:, 0])
    rest = (ids.shape[0], max(desc.top_n - 1, 0))
    top = torch.cat([ids[:, None], torch.full(rest, -1)], 1)[:, : desc.top_n]
    best = torch.cat([logprob[:, None], torch.full(rest, -torch.inf, dtype=logits.dtype)], 1)[:, : desc.top_n]
    masked = torch.where(alone > 0, logits, -torch.inf)
    return {"ids": ids, "logprob": logprob, "top_ids": top, "top_logprobs": best, "probs": alone, "masked": masked}


def _bound(kind: ElementKind, _: Any) -> PerOutput:
    near, same = Relative(2), Exact()
    return PerOutput((("ids", same), ("logprob", near), ("top_ids", same), ("top_logprobs", near), ("probs", near),
                      ("masked", same)))  # fmt: skip


def _options(**more: Any) -> Any:
    return lambda torch, desc: {"temperature": 0.8, "seed": 1, "offset": 0, **more}


class SamplingPlan(Plan):
    """ids[b] ~ softmax(logits[b] / temperature) restricted by the cut-offs, each on what those before it left.

    logits: [B, V], any strides; with `probabilities` p instead, without a temperature. ids: [B] int64 or int32.
    logprob: [B] float32 (float64 for float64), the log of the probability the id was drawn with. top_ids,
    top_logprobs: [B, top_n], the most likely of those kept, then -1 and -inf. probs: [B, V], the probabilities drawn
    with. masked: [B, V], logits where kept, else -inf (probabilities: else 0).

    In this order: top_n_sigma keeps logits of at least max - n σ, σ the deviation of the row's finite ones (Tang et al.
    2024; not of probabilities); min_p probabilities of at least min_p times the largest (Nguyen et al. 2024); top_k
    the k largest; top_p the shortest descending prefix whose probability reaches top_p; epsilon and eta those of at
    least epsilon, and of at least min(eta, √eta exp(-H)), H the entropy of what is left (Hewitt et al. 2022);
    typical_p those whose -log p is nearest to H, until they reach typical_p (Meister et al. 2023). Each leaves one at
    least; among equals the lower index goes first. Off are top_k <= 0 or >= V, top_p and typical_p >= 1 or NaN, the
    others at <= 0.

    The draw is the inverse CDF in index order: the first id whose cumulative probability exceeds the uniform of Philox
    element b. temperature <= 0 (or NaN), top_k = 1 and top_p <= 0 are the argmax, lowest index first.

    On the device weights are exp((x - max) / temperature) in fixed point, 62 - log2 V bits: sums are integers, so
    no order of summation exists to depend on. An id equals the reference's unless two candidates lie within a few ulp.
    """

    op = "random.sample"
    descriptor = SamplingDescriptor
    args = SamplingArgs
    reference = staticmethod(reference)
    value_policy = (
        "NaN logits count as -inf, NaN and negative probabilities as 0; a row with no logit above -inf, or no "
        "probability above 0, gives id -1, logprob NaN and probabilities 0"
    )
    variants = (
        Variant(
            "row", _geometry, source="random/sampling.cu", guarantee=Guarantee(_bound),
            kernels=(Kernel("sample", f"sample<{{T}}, {THREADS}, {{WIDE}}>", PARAMS, AXES, THREADS, 0),),
            may_spill=True,
        ),
    )  # fmt: skip
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "top-k 50, top-p 0.9 of [256, 128256] bf16", batch_size=256, vocab_size=128256, element="bfloat16",
            make=_options(top_k=50, top_p=0.9), peers=(), also=("ids",),
        ),
        Benchmark(
            "top-k 50, top-p 0.9 of [128, 131072] f32", batch_size=128, vocab_size=131072, element="float32",
            make=_options(top_k=50, top_p=0.9), peers=(), also=("ids",),
        ),
        Benchmark(
            "top-p 0.9 of [128, 131072] f32", batch_size=128, vocab_size=131072, element="float32",
            make=_options(top_p=0.9), peers=(), also=("ids",),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> SamplingDescriptor:
        return SamplingDescriptor(
            batch_size=draw.integer(0, 5), vocab_size=draw.sizes(1, 7, 64, 257, 511, 1000, 2051),
            probabilities=draw.integer(0, 3) == 0, top_n=draw.choice((0, 1, 5)), element=draw.element,
            index_element=draw.choice((I32, I64)),
        )  # fmt: skip

    @classmethod
    def complete(cls, desc: SamplingDescriptor, arrays: dict[str, Any]) -> None:
        """Restrictions that differ from case to case, by the descriptor alone: a captured graph keeps them."""
        pick = desc.batch_size + desc.vocab_size
        arrays["temperature"] = (1.0, 0.7, 2.0, 0.0)[pick % 4]
        arrays["top_k"] = (0, 5, desc.vocab_size // 2)[pick % 3]
        arrays["top_p"] = (1.0, 0.9)[pick // 3 % 2]
        arrays["min_p"] = (0.0, 0.05)[pick // 2 % 2]
        arrays["typical_p"] = (1.0, 0.8)[pick // 5 % 2]
        arrays["epsilon"], arrays["eta"] = ((0.0, 0.0), (0.003, 0.0), (0.0, 0.01))[pick // 7 % 3]
        arrays["top_n_sigma"] = (0.0, 2.0)[pick // 11 % 2]
        if desc.probabilities:
            arrays["logits"] = likely_rows(desc, arrays["logits"])
        elif not arrays["temperature"]:
            arrays.update(dict.fromkeys(ROWS))

    @classmethod
    def check_values(cls, desc: SamplingDescriptor, arrays: Mapping[str, Any]) -> str | None:
        return check_rows(desc, arrays["logits"])
