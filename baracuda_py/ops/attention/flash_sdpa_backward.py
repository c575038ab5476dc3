"""flash_sdpa_backward: dq, dk, dv from q, k, v, y, lse and dy, the scores recomputed (Dao 2023, FlashAttention-2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core import (
    Args,
    Array,
    ElementKind,
    Geometry,
    Guarantee,
    Kernel,
    OpCategory,
    Params,
    Plan,
    Problem,
    Relative,
    Step,
    Variant,
    functional,
    operand,
    output,
)  # fmt: skip
from ...core.element import cast, unrounded
from ...core.variant import aligned
from ...schedules.attention import HEAD_DIMS, SINGLES, THREADS, head_dim, layout, strides, wide
from ...schedules.attention_backward import ROWS
from .flash_sdpa import FlashSdpaDescriptor, attention_case, batches, grouped, masked_scores, visible
from .flash_sdpa import reference as forward
from .layouts import is_swapped, swap, swapped_call

_Q, _K = "batch_size num_heads query_len d_k", "batch_size num_kv_heads key_len d_k"
_Y, _V = "batch_size num_heads query_len d_v", "batch_size num_kv_heads key_len d_v"
_ROW = "batch_size num_heads query_len"
_WARPS = 8  # rows of dy · y a block takes


@dataclass(frozen=True, kw_only=True)
class FlashSdpaBackwardDescriptor(FlashSdpaDescriptor):
    """As the forward's."""


@dataclass(slots=True, kw_only=True)
class FlashSdpaBackwardArgs(Args):
    """`y` and `lse` are the forward's; a gradient left None costs nothing."""

    q: Array = operand(_Q, layout="inner")
    k: Array = operand(_K, layout="inner")
    v: Array = operand(_V, layout="inner")
    y: Array = operand(_Y, layout="inner")
    lse: Array = operand(_ROW, element="acc", layout="dense")
    dy: Array = operand(_Y, layout="inner")
    dq: Array | None = output(_Q, optional=True, layout="inner")
    dk: Array | None = output(_K, optional=True, layout="inner")
    dv: Array | None = output(_V, optional=True, layout="inner")


def reference(
    desc: FlashSdpaBackwardDescriptor, *, q: Any, k: Any, v: Any, y: Any, lse: Any, dy: Any, wanted: set[str],
    store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in: p = exp(s - lse), ds = p (dy vᵀ - rowsum(dy y)), groups summed by the product."""
    mask = visible(desc)
    return gradients(desc, q, k, v, y, lse, dy, lambda b: mask, wanted, store)


def gradients(
    desc: FlashSdpaDescriptor, q: Any, k: Any, v: Any, y: Any, lse: Any, dy: Any,
    mask_of: Callable[[slice], np.ndarray | None], wanted: set[str], store: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """Those wanted, under a mask given for slices of the batch."""
    grads = {name: np.zeros(x.shape, x.dtype) for name, x in (("dq", q), ("dk", k), ("dv", v)) if name in wanted}
    scale = q.dtype.type(desc.scale)
    with np.errstate(invalid="ignore", over="ignore"):
        for b in batches(desc):
            mask = mask_of(b)
            p = masked_scores(desc, q[b], k[b], mask)
            unseen = lse[b] == -np.inf
            p -= np.where(unseen, 0, lse[b])[..., None]
            np.exp(p, out=p)
            if unseen.any():
                p[unseen] = 0
            rows = grouped(dy[b], desc)
            if "dv" in wanted:
                grads["dv"][b] = grouped(store(p), desc).swapaxes(-1, -2) @ rows
            if wanted & {"dq", "dk"}:
                ds = (rows @ v[b].swapaxes(-1, -2)).reshape(p.shape)
                ds -= (dy[b] * y[b]).sum(axis=-1)[..., None]
                ds *= p
                if mask is not None:
                    np.copyto(ds, 0, where=~mask)
                ds = grouped(store(ds), desc)
                if "dq" in wanted:
                    grads["dq"][b] = ((ds @ k[b]) * scale).reshape(q[b].shape)
                if "dk" in wanted:
                    grads["dk"][b] = ds.swapaxes(-1, -2) @ grouped(q[b] * scale, desc)
    return grads


_SIZES = {"query_len": "i64", "key_len": "i64", "shift": "i64", "tiles": "i64", "scale": "f64"} | dict.fromkeys(
    ("num_heads", "group", "d_k", "d_v", "causal", "wide"), "i32"
)
_INPUTS = dict.fromkeys(("q", "k", "v", "dy", "lse"), "ptr")
DELTA = Params(
    "FlashDeltaParams", y="ptr", dy="ptr", delta="workspace", stride="i64[2][3]", query_len="i64", rows="i64",
    num_heads="i32", d_v="i32", wide="i32",
)  # fmt: skip


def simt_row(
    geometry: Callable[[Problem], Geometry | str], more: Mapping[str, str], name: str = "Flash", policy: str = "",
    worst: float = 2,
) -> Variant:  # fmt: skip
    """The row of multiply-adds.

    `more` are fields of the kernels' parameters, `policy` is a template argument, `worst` the k of its `Relative`.
    """
    facts: dict[str, Any] = {"axes": {"D": HEAD_DIMS}, "threads": THREADS, "min_blocks": 2, "split": ("D",)}
    dq = Params(f"{name}DqParams", **_INPUTS, dq="ptr", delta="workspace", stride="i64[5][3]", **_SIZES, **more)
    dkv = Params(
        f"{name}DkvParams", **_INPUTS, dk="ptr", dv="ptr", delta="workspace", stride="i64[6][3]", **_SIZES, **more
    )
    return Variant(
        "simt", geometry, source="attention/flash_sdpa_backward.cu", elements=SINGLES,
        kernels=(
            Kernel("delta", "flash_delta<{T}>", DELTA, {}, threads=32 * _WARPS),
            Kernel("dq", f"flash_dq<{{T}}, {{D}}{policy}>", dq, **facts),
            Kernel("dkv", f"flash_dkv<{{T}}, {{D}}{policy}>", dkv, **facts),
        ),
        guarantee=Guarantee(Relative(worst), batch_invariant=True),
    )  # fmt: skip


def simt(p: Problem, **more: Any) -> Geometry | str:
    """Its geometry; `more` are the values of those fields."""
    desc, d = p.desc, head_dim(p.desc)
    if isinstance(d, str):
        return d
    views = (p.q, p.k, p.v, p.dy, p.y, p.dq, p.dk, p.dv)
    size = desc.element.acc.itemsize
    rows, smem = block_rows(d, size), shared_bytes(d, size)
    heads, kv_heads = desc.batch_size * desc.num_heads, desc.batch_size * desc.num_kv_heads
    sizes = {
        "query_len": desc.query_len, "key_len": desc.key_len, "shift": desc.shift, "scale": desc.scale,
        "num_heads": desc.num_heads, "group": desc.group, "d_k": desc.d_k, "d_v": desc.d_v,
        "causal": int(desc.is_causal), **more,
    }  # fmt: skip
    steps = []
    if (p.dq is not None or p.dk is not None) and heads * desc.query_len:
        params = {
            "delta": 0, "stride": strides(p.y, p.dy), "query_len": desc.query_len, "rows": heads * desc.query_len,
            "num_heads": desc.num_heads, "d_v": desc.d_v, "wide": wide(p.y, p.dy),
        }  # fmt: skip
        steps.append(Step("delta", (-(-heads * desc.query_len // _WARPS), 1, 1), params, {}, 32 * _WARPS))
    if p.dq is not None and p.dq.size:
        tiles = -(-desc.query_len // rows)
        params = {"delta": 0, "stride": strides(p.q, p.k, p.v, p.dy, p.dq), "tiles": tiles, **sizes}
        params["wide"] = wide(p.q, p.k, p.v, p.dy, p.dq)
        steps.append(Step("dq", (tiles * heads, 1, 1), params, {"D": d}, THREADS, smem))
    if any(g is not None and g.size for g in (p.dk, p.dv)):
        tiles = -(-desc.key_len // rows)
        params = {"delta": 0, "stride": strides(p.q, p.k, p.v, p.dy, p.dk, p.dv), "tiles": tiles, **sizes}
        params["wide"] = wide(p.q, p.k, p.v, p.dy, p.dk, p.dv)
        steps.append(Step("dkv", (tiles * kv_heads, 1, 1), params, {"D": d}, THREADS, smem))
    workspace = aligned(heads * desc.query_len * size) if p.dq is not None or p.dk is not None else 0
    return Geometry(tuple(steps), workspace, layout(*views))


def block_rows(d: int, size: int) -> int:
    """Rows a block owns (`BackwardTile` in attention.cuh): what two sets of accumulators leave registers for."""
    return (64 if d <= 128 else 32) if size == 4 else (32 if d <= 64 else 16)


def shared_bytes(d: int, size: int) -> int:
    """The two chunks of a score product, or the rows of values, and two tiles of scores (`BackwardTile`)."""
    stage, pad = (64 if d % 64 == 0 else 32, 4) if size == 4 else (32, 2)
    rows = block_rows(d, size)
    chunks = max((rows + 64) * (stage + pad), min(64, 1 << ((32768 // (d * size)).bit_length() - 1)) * d)
    return size * (chunks + 2 * rows * (64 + pad))


class FlashSdpaBackwardPlan(Plan):
    """The gradients of `FlashSdpaPlan`; dk and dv are summed over the query heads that share a key head.

    rowsum(dy y) first. On tensor cores then blocks of keys, which own dk and dv and add to dq in turn; else blocks of
    queries for dq and of keys for dk and dv. The order of every sum is fixed, unless
    `PlanPreference(deterministic=False)` lets blocks of keys add to dq as they come.
    """

    op = "attention.flash_sdpa_backward"
    category = OpCategory.ATTENTION
    direction = "backward"
    descriptor = FlashSdpaBackwardDescriptor
    args = FlashSdpaBackwardArgs
    reference = staticmethod(reference)
    variants = (*ROWS, simt_row(simt, {}))

    @staticmethod
    def case(draw: Any) -> FlashSdpaBackwardDescriptor:
        return FlashSdpaBackwardDescriptor(**attention_case(draw))

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """y and lse as the forward gives them, rounded to their elements."""
        compute = np.longdouble if desc.element is ElementKind.F64 else np.float64
        inputs = {name: arrays[name].astype(compute) for name in ("q", "k", "v")}
        made = forward(desc, **inputs, wanted={"y", "lse"})
        arrays["y"], arrays["lse"] = cast(made["y"], desc.element), cast(made["lse"], desc.acc)

    @classmethod
    def flops(cls, desc: FlashSdpaDescriptor) -> int:
        return 2 * desc.batch_size * desc.num_heads * desc.pairs * (3 * desc.d_k + 2 * desc.d_v)


_call = functional(FlashSdpaBackwardPlan)


def flash_sdpa_backward(
    q: Any, k: Any, v: Any, y: Any, lse: Any, dy: Any, *, scale: float | None = None, is_causal: bool = False,
    causal_alignment: str = "top_left", layout: str = "bhsd", return_dq: bool = True, return_dk: bool = True,
    return_dv: bool = True, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(dq, dk, dv), those asked for; arrays in `layout` as for `flash_sdpa`, lse [batch, heads, queries] in either."""
    flags = {"dq": return_dq, "dk": return_dk, "dv": return_dv}
    facts = {"scale": scale, "is_causal": is_causal, "causal_alignment": causal_alignment}
    facts |= {f"return_{name}": flag for name, flag in flags.items()}
    if not is_swapped(layout):
        return _call(q, k, v, y, lse, dy, **facts, out=out, stream=stream, preference=preference)
    shapes = {name: tuple(x.shape) for name, x in (("dq", q), ("dk", k), ("dv", v)) if flags[name]}
    operands = [swap(q), swap(k), swap(v), swap(y), lse, swap(dy)]
    return swapped_call(_call, operands, facts, tuple(shapes), shapes, out, stream, preference)


flash_sdpa_backward.plan = FlashSdpaBackwardPlan  # type: ignore[attr-defined]
flash_sdpa_backward.fixed = {}  # type: ignore[attr-defined]
