"""sdpa: softmax(softcap(scale · q kᵀ) + mask) v with the weights in memory, for those who want to see or change them.

    scores = scale · q kᵀ;  scores = softcap · tanh(scores / softcap)  where softcap > 0;  scores += mask;  causal: -inf
    attn = softmax(scores);  y = dropout(attn) v

Three steps: a product, one pass over the rows of scores, a product. The scores between them are of the element, in the
memory of `scores` or `attn` where its rows are 16-byte aligned, else in the workspace: for 16-bit elements the weights
have the accuracy of the formula done in that element (`flash_sdpa` keeps its scores in float32).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....backends.cublas import CUBLAS_LT
from ....core import (
    Args, Array, BackendKind, Chained, ElementKind, Geometry, Guarantee, Kernel, Params, Plan, Problem, Relative,
    Scalar, Step, Variant, Vjp, choice, derived, element, extents, number, operand, output, scalar,
)  # fmt: skip
from ....calls.functional import functional
from ....core.args import broadcasts_to
from ....core.element import unrounded
from ....core.errors import InvalidProblemError
from ....calls.entries import entry
from ....schedules.attention.dense.forward import HALVES, SINGLES
from ....schedules.products import COPY_KERNEL, NOWHERE, PIECE, PRODUCT_KERNEL, Heads, Products, refuse_library
from ....schedules.row_groups import LONG, group_kernels, group_of, launch
from ....schedules.attention.score_terms import dropout
from .flash_sdpa import attention_case
from ..layouts import Layouts
from ..score_terms import AttentionDescriptor, batches, grouped, kept, restored, visible, weighted
from ....core.benchmark import EAGER, Benchmark
from ..in_torch import attention, terms

STAGES = ("raw", "softcap", "mask")
_SCORES = "batch_size num_heads query_len key_len"


@dataclass(frozen=True, kw_only=True)
class SdpaDescriptor(AttentionDescriptor):
    """softcap (0: none); dropout_p, of the weights; mask_shape broadcasts to the scores'.

    mask_element: the element or float32, added to the scores, where -inf hides a key whatever its score; or bool, True
    where a key is seen. scores_stage: what `scores` holds, "raw" scale · q kᵀ, "softcap" capped, "mask" capped, masked.
    """

    softcap: float = number(0.0, minimum=0.0)
    dropout_p: float = number(0.0, minimum=0.0, maximum=1.0)
    scores_stage: str = choice(STAGES, "raw")
    mask_shape: tuple[int, ...] = extents(())
    mask_element: ElementKind = element((ElementKind.BOOL, *HALVES, *SINGLES), derived(lambda desc: desc.element))

    def validate(self) -> None:
        AttentionDescriptor.validate(self)
        allowed = tuple(dict.fromkeys((self.element, ElementKind.F32, ElementKind.BOOL)))
        if self.mask_element not in allowed:
            raise InvalidProblemError(
                f"mask_element must be one of {', '.join(map(str, allowed))}, got {self.mask_element}"
            )
        full = (self.batch_size, self.num_heads, self.query_len, self.key_len)
        if not broadcasts_to(self.mask_shape, full):
            raise InvalidProblemError(f"mask_shape must broadcast to {full}, got {self.mask_shape}")


@dataclass(slots=True, kw_only=True)
class SdpaArgs(Args):
    """`attn` are the weights before dropout. `lse` = log Σ exp of the masked scores. seed, offset: those of dropout."""

    q: Array = operand("batch_size num_heads query_len d_k", layout="inner")
    k: Array = operand("batch_size num_kv_heads key_len d_k", layout="inner")
    v: Array = operand("batch_size num_kv_heads key_len d_v", layout="inner")
    mask: Array | None = operand("*mask_shape", element="mask_element", optional=True)
    y: Array = output("batch_size num_heads query_len d_v", layout="inner")
    attn: Array | None = output(_SCORES, optional=True, layout="inner")
    scores: Array | None = output(_SCORES, optional=True, layout="inner")
    lse: Array | None = output("batch_size num_heads query_len", element="acc", optional=True, layout="dense")
    seed: Scalar = scalar(integer=True, drawn="dropout_p")
    offset: Scalar = scalar(0, integer=True)


def factors(desc: SdpaDescriptor, b: slice, seed: Any, offset: Any, dtype: Any) -> np.ndarray | None:
    """What dropout multiplies the weights of some batches by: 0 or 1 / (1 - p); None without dropout."""
    keep = kept(desc, b, seed, offset)
    return None if keep is None else np.where(keep, dtype.type(restored(desc)), dtype.type(0))


def products_of(desc: SdpaDescriptor, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x [b, num_heads, rows, d] times y [b, num_kv_heads, d, cols], a key head for each group of query heads."""
    z: np.ndarray = grouped(x, desc) @ y
    return z.reshape(*x.shape[:3], y.shape[3])


def reference(
    desc: SdpaDescriptor, *, q: Any, k: Any, v: Any, mask: Any, seed: Any, offset: Any, wanted: set[str],
    store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in, a few batches at a time; scores and weights are kept in the element."""
    full = (desc.batch_size, desc.num_heads, desc.query_len, desc.key_len)
    results = {name: np.empty(full, q.dtype) for name in wanted & {"attn", "scores"}}
    y, lse = np.empty((*full[:3], desc.d_v), q.dtype), np.empty(full[:3], q.dtype)
    added = None if mask is None else np.broadcast_to(mask, full)
    reach = visible(desc)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for b in batches(desc):
            scores = store(products_of(desc, q[b], k[b].swapaxes(-1, -2)) * q.dtype.type(desc.scale))
            stages = {"raw": scores}
            if desc.softcap:
                scores = desc.softcap * np.tanh(scores / desc.softcap)
            stages["softcap"] = scores
            seen = reach
            if added is not None:
                own = added[b] if added.dtype == np.bool_ else ~np.isneginf(added[b])
                seen = own if reach is None else own & reach
                scores = scores if added.dtype == np.bool_ else scores + added[b]
            if seen is not None:
                scores = np.where(seen, scores, -np.inf)
            stages["mask"] = scores = scores.astype(q.dtype, copy=False)
            top = scores.max(axis=-1, initial=-np.inf)
            base = np.where(top == -np.inf, 0, top).astype(q.dtype)
            weights = np.exp(scores - base[..., None])
            total = weights.sum(axis=-1)
            weights = weights / np.where(total == 0, 1, total)[..., None]
            keep = factors(desc, b, seed, offset, q.dtype)
            y[b] = weighted(desc, store(weights if keep is None else weights * keep), v[b], seen)
            lse[b] = base + np.log(total)
            for name, value in (("attn", weights), ("scores", stages[desc.scores_stage])):
                if name in results:
                    results[name][b] = value
    return results | {"y": y, "lse": lse}


PARAMS = Params(
    "SdpaParams", source="ptr", scores="ptr", attn="ptr", weights="ptr", mask="ptr", lse="ptr", stride="i64[4][3]",
    mask_stride="i64[4]", rows="i64", num_heads="i64", query_len="i64", key_len="i64", shift="i64", keep_from="i64",
    keep_scale="f64", softcap="f64", causal="i32", stage="i32", mask_kind="i32", mask_wide="i32", wide="i32",
    seed="iscalar", offset="iscalar", long_group=LONG,
)  # fmt: skip


MEND = Params(
    "SdpaMendParams", y="ptr", weights="ptr", values="ptr", mask="ptr", stride="i64[3][3]", mask_stride="i64[4]",
    rows="i64", num_heads="i64", query_len="i64", key_len="i64", cols="i64", group="i64", shift="i64", alpha="f64",
    causal="i32", mask_kind="i32", by_zero="i32", wide="i32",
)  # fmt: skip
MEND_KERNEL = Kernel("mend", "sdpa_mend<{T}>", MEND)


def mend(products: Products, to: str, weights: Heads, values: str, facts: Mapping[str, Any]) -> None:
    """Output `to` = weights · values again where it came out NaN, without what is hidden: 0 times NaN is NaN."""
    desc, y, x = products.p.desc, products.operand(to), products.operand(values)
    batch, heads, rows, cols = y.view.shape
    chunks = batch * heads * rows * -(-cols * y.view.element.itemsize // 16)
    if chunks:
        params = {
            "mask": NOWHERE.slot, "mask_stride": [0] * 4, "mask_kind": 0, "shift": 0, "causal": 0, "by_zero": 0,
            "alpha": 1.0,
            "y": y.place.slot, "weights": weights.place.slot, "values": x.place.slot,
            "stride": [y.strides, weights.strides, x.strides], "rows": batch * heads * rows, "num_heads": heads,
            "query_len": rows, "key_len": desc.key_len, "cols": cols, "group": desc.group, "wide": int(y.wide),
        }  # fmt: skip
        products.steps.append(Step("mend", (-(-chunks // 256), 1, 1), params | dict(facts)))


def row_kernels(name: str, params: Params, threads: int) -> tuple[Kernel, ...]:
    """The kernels of rows: those in registers, without options and with all (and dropout or not), and those beyond.

    Without options a multiprocessor holds `threads` at least. Beyond registers, float64's calls of tanh spill a little.
    """
    plain, full = {"FULL": (False,), "DROP": (False,)}, {"FULL": (True,), "DROP": (False, True)}
    rows = f"{name}_rows<{{T}}, {{GROUP}}, {{FULL}}, {{DROP}}>"
    return (
        *group_kernels(rows, params, plain, most=1, threads=threads, name="plain"),
        *group_kernels(rows, params, full, most=1, threads=512),
        Kernel("long", f"{name}_long<{{T}}, {{FULL}}, {{DROP}}>", params, full, threads=LONG),
    )


def row_step(p: Problem, params: Mapping[str, Any], full: bool) -> Step:
    """One pass over every row of the scores; `full` where it has any option but the causal mask."""
    desc = p.desc
    rows = desc.batch_size * desc.num_heads * desc.query_len
    keep_from, keep_scale = dropout(desc.dropout_p)
    params = {
        "rows": rows, "num_heads": desc.num_heads, "query_len": desc.query_len, "key_len": desc.key_len,
        "keep_from": keep_from, "keep_scale": keep_scale, **params,
    }  # fmt: skip
    drop = desc.dropout_p > 0
    axes = {"FULL": True, "DROP": drop}
    group = group_of(desc.key_len, desc.element, 1)
    if group is None:
        return Step("long", (rows, 1, 1), params, axes, LONG)
    kernel, block, blocks = launch(rows, group)
    if not full and not drop:
        kernel, axes = kernel.replace("rows", "plain"), {"FULL": False, "DROP": False}
    return Step(kernel, (blocks, 1, 1), params, axes, block)


def _mask(p: Problem) -> dict[str, Any]:
    """How the row kernels read the mask."""
    if p.mask is None:
        return {"mask_stride": [0] * 4, "mask_kind": 0, "mask_wide": 0}
    desc, kind = p.desc, p.mask.element
    view = p.mask.broadcast_to((desc.batch_size, desc.num_heads, desc.query_len, desc.key_len))
    chunk = min(16, 16 // desc.element.itemsize * kind.itemsize)  # bytes of the access beside 16 bytes of scores
    number = 3 if kind is ElementKind.BOOL else 1 if kind is desc.element else 2
    wide = view.strides[3] == 1 and view.aligned(chunk)
    return {"mask_stride": view.strides, "mask_kind": number, "mask_wide": int(wide)}


def _geometry(p: Problem, library: bool) -> Geometry | str:
    desc = p.desc
    why = refuse_library(p) if library else None
    if why or desc.key_len >= 2**30:
        return why or "more than 2^30 keys"
    products = Products(p, SdpaArgs, library=library)
    scores, attn = products.room("scores"), products.room("attn")
    source = scores or attn
    weights = None if desc.dropout_p else attn
    held = products.hold(desc.num_heads, desc.query_len, desc.key_len) if source is None or weights is None else None
    source, weights = source or held, weights or held
    assert source is not None and weights is not None
    q, k = products.read("q"), products.read("k")
    products.product(q, k.t, products.even(source), desc.scale)
    given = [products.operand(n) if p.views[n] is not None else None for n in ("scores", "attn")]
    stage = STAGES.index(desc.scores_stage)
    if given[0] is not None and stage == 0 and source is not scores:
        products.copy(source, given[0])
    places = (source, given[0], given[1], held if weights is held else None)
    params = {
        **dict(zip(("source", "scores", "attn", "weights"), ((x.place if x else NOWHERE).slot for x in places),
                   strict=True)),
        "stride": [x.strides if x else (0, 0, 0) for x in places],
        "wide": sum(1 << i for i, x in enumerate(places) if x is not None and x.wide),
        "shift": desc.shift, "softcap": desc.softcap, "causal": int(desc.is_causal),
        "stage": stage if given[0] is not None else 0, **_mask(p),
    }  # fmt: skip
    if desc.batch_size * desc.num_heads * desc.query_len and (desc.key_len or p.lse is not None):
        products.steps.append(row_step(p, params, p.mask is not None or desc.softcap > 0 or params["stage"] > 0))
    products.multiply(products.even(weights), products.read("v"), "y")
    if desc.is_causal or p.mask is not None:
        hidden = {name: params[name] for name in ("shift", "causal", "mask_stride", "mask_kind")}
        mend(products, "y", weights, "v", hidden | {"mask": NOWHERE.slot if p.mask is None else "mask"})
    views = [v for v in (p.q, p.k, p.v, p.y, p.attn, p.scores) if v is not None]
    return products.geometry("contiguous" if all(v.dense for v in views) else "inner_contiguous")


def _error(kind: ElementKind, _: Any) -> Relative:
    """Tensor cores cut low bits off, so errors of a 16-bit sum lean to one side. A sum of floats is one chain, or
    several of `PIECE` terms, with a few times the error of NumPy's."""
    return Relative(2, mean=2) if kind in HALVES else Chained(4, mean=2, piece=PIECE)


def rows_of(geometry: Any, source: str, kernels: tuple[Kernel, ...]) -> tuple[Variant, Variant]:
    """The table of a plan with products: through cuBLAS, or multiply-adds for machines and sizes without."""
    made = (*kernels, MEND_KERNEL, COPY_KERNEL, PRODUCT_KERNEL)
    return (
        Variant(
            "cublas", lambda p: geometry(p, True), source=source, kernels=made, backend=BackendKind.CUBLAS,
            guarantee=Guarantee(_error), missing=CUBLAS_LT.unavailable,
        ),
        Variant(
            "simt", lambda p: geometry(p, False), source=source, kernels=made,
            guarantee=Guarantee(_error, batch_invariant=True),
        ),
    )  # fmt: skip


def in_torch(
    torch: Any, desc: SdpaDescriptor, *, q: Any, k: Any, v: Any, mask: Any, seed: Any, offset: Any, wanted: set[str]
) -> Any:
    """Composed, for the weights."""
    if desc.dropout_p:
        return NotImplemented
    made = attention(torch, q, k, v, **terms(desc), mask=mask, only_y=not wanted - {"y"}, lse="lse" in wanted)
    return made | {"scores": made.get(desc.scores_stage)}


def sdpa_benchmarks(label: str, *also: str) -> tuple[Benchmark, ...]:
    """16 heads of two widths."""
    return tuple(
        Benchmark(
            f"{label} weights [4, 16, 1024, {dim}] bf16", batch_size=4, num_heads=16, query_len=1024, key_len=1024,
            d_k=dim, d_v=dim, element="bfloat16", also=also, target=None, peers=(EAGER,),
        )
        for dim in (64, 128)
    )  # fmt: skip


class SdpaPlan(Plan):
    """y = attn v, attn = softmax of the capped and masked scale · q kᵀ (torch's scaled_dot_product_attention, MATH).

    A query that sees no key has weights and y of zero and lse -inf. What is hidden, by a boolean False, a mask of -inf
    or causality, has no part in y, be its key, value or score infinite or NaN, as in `flash_sdpa`; of a key that is
    seen, a weight of 0 times such a value is NaN, also where it is 0 since the element has no number so small (float16
    below 2⁻²⁵) and the exact sum is infinite. Operands with uneven heads or rows are copied to the workspace.
    """

    op = "attention.sdpa"
    descriptor = SdpaDescriptor
    args = SdpaArgs
    reference = staticmethod(reference)
    variants = rows_of(_geometry, "attention/dense/sdpa.cu", row_kernels("sdpa", PARAMS, 1024))
    vjp = Vjp("SdpaBackwardPlan", grads={"q": "dq", "k": "dk", "v": "dv", "mask": "dmask"})
    torch = staticmethod(in_torch)
    benchmarks = sdpa_benchmarks("with", "attn")

    @staticmethod
    def case(draw: Any) -> SdpaDescriptor:
        return SdpaDescriptor(**sdpa_case(draw))

    @classmethod
    def complete(cls, desc: SdpaDescriptor, arrays: dict[str, Any]) -> None:
        """No infinite value in float16: a weight that vanishes there would make it NaN, which no exact formula does."""
        if desc.element is ElementKind.F16:
            arrays["v"] = np.where(np.isinf(arrays["v"]), np.sign(arrays["v"]), arrays["v"])

    @classmethod
    def bytes(cls, desc: SdpaDescriptor) -> int:
        scores = desc.batch_size * desc.num_heads * desc.query_len * desc.key_len
        return super().bytes(desc) + scores * desc.element.itemsize

    @classmethod
    def flops(cls, desc: SdpaDescriptor) -> int:
        return 2 * desc.batch_size * desc.num_heads * desc.query_len * desc.key_len * (desc.d_k + desc.d_v)


def sdpa_case(draw: Any) -> dict[str, Any]:
    """Descriptor fields for tests: attention's, a mask of every broadcast, and each option."""
    facts = attention_case(draw, long=(300, 1500, 6000, 17000))
    if facts["key_len"] > 1000:
        facts |= {"batch_size": 1, "query_len": min(facts["query_len"], 7)}
    full = tuple(facts[n] for n in ("batch_size", "num_heads", "query_len", "key_len"))
    shape = tuple(n if draw.flag() else 1 for n in full)[draw.integer(0, 4) :]
    return facts | {
        "mask_shape": shape, "mask_element": draw.choice((draw.element, ElementKind.F32, ElementKind.BOOL)),
        "softcap": draw.choice((0.0, 0.0, 2.5)), "dropout_p": draw.choice((0.0, 0.0, 0.3, 1.0)),
        "scores_stage": draw.choice(STAGES),
    }  # fmt: skip


_call = functional(SdpaPlan, layouts=Layouts(("q", "k", "v", "y")))


@entry(SdpaPlan)
def sdpa(
    q: Any, k: Any, v: Any, mask: Any = None, *, scale: float | None = None, is_causal: bool = False,
    causal_alignment: str = "top_left", softcap: float = 0.0, dropout_p: float = 0.0, seed: Any = None, offset: Any = 0,
    scores_stage: str = "raw", layout: str = "bhsd", return_attn: bool = False, return_scores: bool = False,
    return_lse: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """softmax(softcap(scale · q kᵀ) + mask) v; causal, query i sees the keys up to i (top left, torch's) by default.

    With return_attn the weights, too, before dropout.
    q [batch, heads, queries, d] or, layout "bshd", [batch, queries, heads, d]; mask and what is returned beside y are
    [batch, heads, queries, keys] (lse [batch, heads, queries]) in either, the mask in any shape that broadcasts to it.
    Order of results: y, attn, scores, lse, as asked for.
    """
    flags = {"attn": return_attn, "scores": return_scores, "lse": return_lse}
    facts = {
        "scale": scale, "is_causal": is_causal, "causal_alignment": causal_alignment, "softcap": softcap,
        "dropout_p": dropout_p, "scores_stage": scores_stage, "seed": seed, "offset": offset,
        **{f"return_{name}": flag for name, flag in flags.items()},
    }  # fmt: skip
    return _call(q, k, v, mask, **facts, layout=layout, out=out, stream=stream, preference=preference)
