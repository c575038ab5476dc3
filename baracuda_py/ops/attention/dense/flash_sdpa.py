"""flash_sdpa: softmax(scale · q kᵀ + …) v without the score matrix in memory (Dao 2023, FlashAttention-2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ....core import Args, Array, Plan, Scalar, Variant, Vjp, operand, output, registry, scalar
from ....calls.functional import functional
from ....core.element import unrounded
from ....calls.entries import entry
from ....core.keywords import unexpected
from ....schedules.attention.dense.forward import SIMT_ROW, SM80_ROW, SM89_ROW, SM90A_ROW, WIDER
from ....schedules.attention.extend import FAMILY
from ....schedules.attention.same_bits import DENSE_TABLES, dense, same_bits_rows
from ..fp8_output import asked, fp8_output
from ..layouts import Layouts, is_swapped
from ..paged.page_tables import READ_TABLES, table_fields
from ....schedules.attention.score_terms import drop_probability
from ..score_terms import ALIGNMENTS, ScoreTerms, batches, kept, restored, scores, weighted
from ....core.benchmark import Benchmark, EAGER, FLOPS
from ..in_torch import attention, terms
from .head_windows import by_head, head_windows, refuse_formulas

SCORES = "batch_size num_heads query_len key_len"


@dataclass(frozen=True, kw_only=True)
class FlashSdpaDescriptor(ScoreTerms):
    """See `AttentionDescriptor` for the sizes and causality, `ScoreTerms` for windows, soft cap and dropout."""


@dataclass(slots=True, kw_only=True)
class FlashSdpaArgs(Args):
    """`lse` = log Σ exp(s) over the keys and the sink, in the accumulator's element: the backward takes it.

    mask: True where a key is seen, or added to the scores; -inf hides a key. slopes: ALiBi's, [heads] or [batch,
    heads]. sinks: a logit a head that takes part in the sum and has no value. seed and offset: dropout's Philox stream,
    one element for each of [batch, heads, queries, keys]; give every call another offset. slopes and sinks are float32,
    for float64 operands float64.
    """

    q: Array = operand("batch_size num_heads query_len d_k", layout="inner")
    k: Array = operand("batch_size num_kv_heads key_len d_k", layout="inner")
    v: Array = operand("batch_size num_kv_heads key_len d_v", layout="inner")
    mask: Array | None = operand(SCORES, element="mask_elements", optional=True, broadcast=True)
    slopes: Array | None = operand("batch_size num_heads", element="acc", optional=True, broadcast=True)
    sinks: Array | None = operand("num_heads", element="acc", optional=True, layout="dense")
    y: Array = output("batch_size num_heads query_len d_v", layout="inner")
    lse: Array | None = output("batch_size num_heads query_len", element="acc", optional=True, layout="dense")
    seed: Scalar = scalar(integer=True, drawn="dropout_p")
    offset: Scalar = scalar(0, integer=True)


def reference(
    desc: FlashSdpaDescriptor, *, q: Any, k: Any, v: Any, mask: Any = None, slopes: Any = None, sinks: Any = None,
    seed: Any = 0, offset: Any = 0, wanted: set[str], store: Any = unrounded, change: Any = None, apart: bool = False,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in, a few batches at a time; the weights are what a kernel keeps in the element.

    change: as in `scores`. apart: each query alone.
    """
    if apart:
        return _queries_apart(desc, q=q, k=k, v=v, mask=mask, slopes=slopes, sinks=sinks, wanted=wanted, store=store)
    y = np.empty((*q.shape[:3], desc.d_v), q.dtype)
    lse = np.empty(q.shape[:3], q.dtype)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for b in batches(desc):
            made = scores(desc, b, q[b], k[b], mask, slopes, store, change)
            p = made.s
            top = p.max(axis=-1, initial=-np.inf)
            if sinks is not None:
                top = np.maximum(top, sinks[:, None])
            base = np.where(top == -np.inf, 0, top).astype(q.dtype)
            p -= base[..., None]
            np.exp(p, out=p)
            total = p.sum(axis=-1)
            if sinks is not None:
                total += np.exp(sinks[:, None] - base)
            keep = kept(desc, b, seed, offset)
            if keep is not None:
                p *= keep
            y[b] = weighted(desc, store(p), v[b], made.seen) / np.where(total == 0, 1, total)[..., None]
            lse[b] = base + np.log(total)
    if desc.dropout_p:
        y *= q.dtype.type(restored(desc))
    return {"y": y, "lse": lse}


def _queries_apart(desc: FlashSdpaDescriptor, *, q: Any, k: Any, v: Any, mask: Any, **rest: Any) -> Mapping[str, Any]:
    """Each causal query as a problem of its own, over the keys up to its own one: BLAS adds in an order that follows
    from the shapes, and from how far apart rows lie."""
    made = {"y": np.empty((*q.shape[:3], desc.d_v), q.dtype), "lse": np.empty(q.shape[:3], q.dtype)}
    k, v = np.ascontiguousarray(k), np.ascontiguousarray(v)
    if mask is not None:
        mask = np.broadcast_to(mask, (*q.shape[:3], desc.key_len))
    for i in range(desc.query_len):
        row, keys = np.s_[:, :, i : i + 1], max(0, i + 1 + desc.shift)
        one = replace(desc, query_len=1, key_len=keys, causal_alignment="bottom_right")
        seen = None if mask is None else mask[row][..., :keys]
        found = reference(one, q=q[row], k=k[:, :, :keys], v=v[:, :, :keys], mask=seen, **rest)
        for name, whole in made.items():
            whole[row] = found[name]
    return made


def refuse_apart(desc: Any) -> str | None:
    """Why NumPy does not compute the queries of a problem apart, or None."""
    if drop_probability(desc):
        return "not for dropout"
    last = desc.causal_alignment == "bottom_right" or getattr(desc, "query_len", -1) == desc.key_len
    return None if desc.is_causal and last else "only for causal attention whose last query stands at the last key"


def in_torch(
    torch: Any, desc: FlashSdpaDescriptor, *, q: Any, k: Any, v: Any, mask: Any, slopes: Any, sinks: Any, seed: Any,
    offset: Any, wanted: set[str],
) -> Any:  # fmt: skip
    """torch's scaled_dot_product_attention, composed where it lacks a term; its dropout is another stream."""
    if desc.dropout_p:
        return NotImplemented
    made = attention(torch, q, k, v, **terms(desc), mask=mask, slopes=slopes, sinks=sinks, only_y="lse" not in wanted)
    return {name: made[name] for name in ("y", "lse") if name in made}


class FlashSdpaPlan(Plan):
    """y = softmax(s) v with scores s = scale · q kᵀ, causal or not (torch.nn.functional.scaled_dot_product_attention).

    Windows, soft cap, ALiBi, masks, sinks and dropout by the formulas of `ScoreTerms`' page. A query that sees no key
    gives zeros and, without a sink, lse -inf. Products of 16 bits take weights in the element: one that rounds to 0
    (in float16 below 2⁻²⁵ of the row's largest) makes NaN of an infinite value of its key, where the exact sum is
    infinite: beside other infinities, too.
    """

    op = "attention.flash_sdpa"
    same_bits = FAMILY
    apart = True
    refuse_apart = staticmethod(refuse_apart)
    descriptor = FlashSdpaDescriptor
    args = FlashSdpaArgs
    reference = staticmethod(reference)
    variants: ClassVar[tuple[Variant, ...]] = (
        SM90A_ROW, SM80_ROW, SM89_ROW, SIMT_ROW, *same_bits_rows(table_fields(READ_TABLES), dense, DENSE_TABLES),
    )  # fmt: skip
    vjp = Vjp(
        "FlashSdpaBackwardPlan",
        grads={"q": "dq", "k": "dk", "v": "dv", "mask": "dmask", "slopes": "dslopes", "sinks": "dsinks"},
    )
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "causal [4, 16, 2048, 128] bf16", batch_size=4, num_heads=16, query_len=2048, key_len=2048, d_k=128,
            d_v=128, is_causal=True, element="bfloat16", work=FLOPS, target=None, peers=(EAGER,),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> FlashSdpaDescriptor:
        facts = terms_case(draw, (300,))
        if draw.integer(0, 3) == 0:  # rows of whole pieces, as models have
            facts["d_k"] = facts["d_v"] = draw.choice((64, 128, 192, 256))
            facts["query_len"] = draw.choice((7, 67))
            facts["dropout_p"] = 0.0
        return FlashSdpaDescriptor(**facts)

    @classmethod
    def flops(cls, desc: FlashSdpaDescriptor) -> int:
        return 2 * desc.batch_size * desc.num_heads * desc.pairs * (desc.d_k + desc.d_v)


def attention_case(draw: Any, long: tuple[int, ...] = ()) -> dict[str, Any]:
    """Fields of an `AttentionDescriptor` for tests: sizes round the tiles, primes, empty axes, grouped heads."""
    kv_heads = draw.integer(1, 2)
    return {
        "batch_size": draw.integer(0, 2), "num_heads": kv_heads * draw.integer(1, 3), "num_kv_heads": kv_heads,
        "query_len": draw.sizes(1, 7, 32, 61, 67), "key_len": draw.sizes(0, 1, 13, 64, 65, 97, rare=long),
        "d_k": draw.sizes(1, 8, 17, 32, 64, 80, rare=WIDER), "d_v": draw.sizes(1, 8, 19, 32, 72, rare=WIDER),
        "scale": draw.choice((None, 0.3, -0.5)), "is_causal": draw.flag(),
        "causal_alignment": draw.choice(ALIGNMENTS), "element": draw.element,
    }  # fmt: skip


def terms_case(draw: Any, long: tuple[int, ...] = ()) -> dict[str, Any]:
    """Fields of `ScoreTerms`: half the time windows, a soft cap, dropout."""
    if draw.flag():
        return attention_case(draw, long)
    return attention_case(draw, long) | {
        "window_left": draw.choice((None, 0, 9, 40, 200)), "window_right": draw.choice((None, 0, 5, 70)),
        "softcap": draw.choice((0.0, 0.7, 30.0)), "dropout_p": draw.choice((0.0, 0.1, 0.75, 1.0)),
    }  # fmt: skip


TURNED = Layouts(("q", "k", "v", "y"))  # by `layout=`
_call = functional(FlashSdpaPlan, layouts=TURNED)


@entry(FlashSdpaPlan)
def flash_sdpa(
    q: Any, k: Any, v: Any, mask: Any = None, slopes: Any = None, sinks: Any = None, *, scale: float | None = None,
    is_causal: bool = False, causal_alignment: str = "top_left", window_left: Any = None,
    window_right: Any = None, softcap: float = 0.0, dropout_p: float = 0.0, seed: Any = None, offset: Any = 0,
    score: Any = None, out_element: Any = None, out_scale: Scalar = 1.0, layout: str = "bhsd",
    return_lse: bool = False, out: Any = None, stream: Any = None, preference: Any = None, **unknown: Any,
) -> Any:  # fmt: skip
    """softmax(s) v with s = scale · q kᵀ and its terms; query i stands at key i (top left, torch's) by default.

    layout "bhsd": q is [batch, heads, queries, d]; "bshd": [batch, queries, heads, d], no array is copied.
    mask broadcasts to [batch, heads, queries, keys] in either layout: bool (True is seen) or added to the scores.
    Query i stands at key position i + shift, shift 0 or (causal_alignment "bottom_right") keys - queries, and sees the
    keys from window_left before to window_right after it: numbers, or one for each head, as a tuple (None for no
    bound), which is copied to the device, or as an array [heads] of int32 or int64 (below 0 for none); then a mask's
    formula says so, with gradients of q, k and v alone. softcap: s = softcap tanh(s / softcap), on tensor cores by
    the hardware's tanh (2^-11). slopes [heads] or [batch, heads] (ALiBi): s -= slopes |i + shift - j|. sinks [heads]:
    logits that join the sum without a value. dropout_p of the weights become 0, by the Philox stream (seed, offset):
    a seed is needed but for torch tensors, whose device's generator of torch gives one; in JAX key= stands for both.
    With return_lse also log Σ exp(s), [batch, heads, queries].

    score and mask may be formulas, as texts or Python functions, of the score s and of the numbers b, h, q, k of its
    batch, head, query and key: score="s + bias[h, q - k]", mask="q - k < window". What else they name is given by
    keyword, bias=bias, window=128; see `attention`.

    out_element "float8_e4m3fn" or "float8_e5m2": y, rounded to q's element, times out_scale as fp8, as `fp8_cast` does:
    what is too large becomes the largest number, NaN stays NaN (FlashInfer's o_scale). out_scale is a number, or a
    float32 array, 0-d or with one for each head. Such an output has no gradient.
    """
    facts = {
        "scale": scale, "is_causal": is_causal, "causal_alignment": causal_alignment, "window_left": window_left,
        "window_right": window_right, "softcap": softcap, "dropout_p": dropout_p, "seed": seed, "offset": offset,
        "return_lse": return_lse,
    }  # fmt: skip
    if asked(out_element, out_scale):
        del facts["return_lse"]
        attend = partial(flash_sdpa, q, k, v, mask, slopes, sinks, **facts, score=score, layout=layout, **unknown)
        return fp8_output(
            attend, (q, k, v), out_element, out_scale, heads=2 if is_swapped(layout) else 1, return_lse=return_lse,
            out=out, stream=stream, preference=preference,
        )  # fmt: skip
    if score is not None or type(mask) is str or callable(mask):
        if by_head(window_left) or by_head(window_right):
            raise refuse_formulas()
        made, mask = formulas(score, mask)
        return made(
            q, k, v, mask, slopes, sinks, **facts, **unknown, layout=layout, out=out, stream=stream,
            preference=preference,
        )  # fmt: skip
    if unknown:
        raise unexpected(flash_sdpa, unknown)
    if by_head(window_left) or by_head(window_right):
        made, facts = head_windows(q, k, facts, layout, stream, preference)
        return made(q, k, v, mask, slopes, sinks, **facts, layout=layout, out=out, stream=stream, preference=preference)
    return _call(q, k, v, mask, slopes, sinks, **facts, layout=layout, out=out, stream=stream, preference=preference)


def formulas(score: Any, mask: Any) -> tuple[Any, Any]:
    """Attention by the formulas among score and mask, and the mask that is an array, or None."""
    is_formula = type(mask) is str or callable(mask)
    made = registry.public("attention")(score, mask if is_formula else None)
    return made, None if is_formula else mask
