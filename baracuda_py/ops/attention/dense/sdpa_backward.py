"""sdpa_backward: dq, dk, dv and dmask of `sdpa` from its weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Args, Array, ElementKind, Geometry, Kernel, Params, Plan, Problem, Scalar, Step, operand,
    output, scalar,
)  # fmt: skip
from ....calls.functional import functional
from ....core.element import cast, unrounded
from ....core.errors import InvalidProblemError
from ....calls.entries import entry
from ....core.tensor import View
from ....schedules.products import NOWHERE, Heads, Products, refuse_library
from ....schedules.row_groups import LONG
from ..layouts import Layouts
from .sdpa import SdpaDescriptor, factors, mend, products_of, row_kernels, row_step, rows_of, sdpa_benchmarks, sdpa_case
from .sdpa import reference as forward
from ..score_terms import batches, grouped, weighted

_Q, _K = "batch_size num_heads query_len d_k", "batch_size num_kv_heads key_len d_k"
_Y, _V = "batch_size num_heads query_len d_v", "batch_size num_kv_heads key_len d_v"
_THREADS = 128
_PART = 32  # rows of ds at least that one block sums
_BLOCKS = 2048  # enough for any device; a constant, so that the order of a sum is the same on all


@dataclass(frozen=True, kw_only=True)
class SdpaBackwardDescriptor(SdpaDescriptor):
    """As the forward's; `dmask` has the shape and element of the mask."""


@dataclass(slots=True, kw_only=True)
class SdpaBackwardArgs(Args):
    """`attn` are the forward's weights; seed and offset its own, dlse the gradient that reaches its lse.

    A gradient left None costs nothing.
    """

    q: Array = operand(_Q, layout="inner")
    k: Array = operand(_K, layout="inner")
    v: Array = operand(_V, layout="inner")
    attn: Array = operand("batch_size num_heads query_len key_len", layout="inner")
    dy: Array = operand(_Y, layout="inner")
    dlse: Array | None = operand("batch_size num_heads query_len", element="acc", optional=True, layout="dense")
    dq: Array | None = output(_Q, optional=True, layout="inner")
    dk: Array | None = output(_K, optional=True, layout="inner")
    dv: Array | None = output(_V, optional=True, layout="inner")
    dmask: Array | None = output("*mask_shape", element="mask_element", optional=True)
    seed: Scalar = scalar(integer=True, drawn="dropout_p")
    offset: Scalar = scalar(0, integer=True)


def reference(
    desc: SdpaBackwardDescriptor, *, q: Any, k: Any, v: Any, attn: Any, dy: Any, dlse: Any = None, seed: Any,
    offset: Any, wanted: set[str], store: Any = unrounded,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in; what stands between products is kept in the element."""
    grads = {name: np.zeros(x.shape, x.dtype) for name, x in (("dq", q), ("dk", k), ("dv", v)) if name in wanted}
    dmask = np.zeros((1,) * (4 - len(desc.mask_shape)) + desc.mask_shape, q.dtype)
    scale = q.dtype.type(desc.scale)
    with np.errstate(invalid="ignore", over="ignore"):
        for b in batches(desc):
            keep = factors(desc, b, seed, offset, q.dtype)
            if "dv" in wanted:
                weights = attn[b] if keep is None else store(attn[b] * keep)
                grads["dv"][b] = grouped(weights, desc).swapaxes(-1, -2) @ grouped(dy[b], desc)
            if not wanted - {"dv"}:
                continue
            ds = store(products_of(desc, dy[b], v[b].swapaxes(-1, -2)))
            ds = ds if keep is None else ds * keep
            ds = np.where(attn[b] == 0, 0, ds)
            taken = (attn[b] * ds).sum(axis=-1, keepdims=True)
            if dlse is not None:
                taken -= dlse[b][..., None]
            ds = np.where(attn[b] == 0, 0, attn[b] * (ds - taken))
            if "dmask" in wanted:
                axes = tuple(i for i, n in enumerate(dmask.shape) if n == 1)
                part = dmask if dmask.shape[0] == 1 else dmask[b]
                part += store(ds).sum(axis=axes, keepdims=True)
            if desc.softcap and wanted & {"dq", "dk"}:
                scores = store(products_of(desc, q[b], k[b].swapaxes(-1, -2)) * scale)
                ds = np.where(attn[b] == 0, 0, ds * (1 - np.tanh(scores / desc.softcap) ** 2))
            ds = store(ds)
            if "dq" in wanted:
                grads["dq"][b] = weighted(desc, ds, k[b], ds != 0) * scale
            if "dk" in wanted:
                grads["dk"][b] = (grouped(ds, desc).swapaxes(-1, -2) @ grouped(q[b], desc)) * scale
    return grads | {"dmask": dmask.reshape(desc.mask_shape)} if "dmask" in wanted else grads


ROWS = Params(
    "SdpaBackwardParams", attn="ptr", dlse="ptr", dscores="ptr", scores="ptr", masked="ptr", weights="ptr",
    stride="i64[5][3]", rows="i64", num_heads="i64", query_len="i64", key_len="i64", keep_from="i64", keep_scale="f64",
    softcap="f64", wide="i32", seed="iscalar", offset="iscalar", long_group=LONG,
)  # fmt: skip
DMASK = Params(
    "SdpaDmaskParams", source="ptr", partial="ptr", dmask="ptr", kept="i64[3]", summed="i64[3]", stride="i64[3]",
    out_stride="i64[4]", key_len="i64", columns="i64", outputs="i64", tiles="i64", parts="i64", part_rows="i64",
    summed_rows="i64", out_f32="i32",
)  # fmt: skip


def _geometry(p: Problem, library: bool) -> Geometry | str:
    desc = p.desc
    why = refuse_library(p) if library else None
    if why or desc.key_len >= 2**30:
        return why or "more than 2^30 keys"
    products = Products(p, SdpaBackwardArgs, library=library)
    attn = products.operand("attn")
    room = (desc.num_heads, desc.query_len, desc.key_len)
    wants_scores = any(g is not None and g.size for g in (p.dq, p.dk, p.dmask))
    wants_v = p.dv is not None and p.dv.size > 0
    ds = scores = masked = weights = None
    if wants_scores:
        ds = products.hold(*room)
        products.product(products.read("dy"), products.read("v").t, products.even(ds))
    if desc.softcap and any(g is not None and g.size for g in (p.dq, p.dk)):
        scores = products.hold(*room)
        products.product(products.read("q"), products.read("k").t, products.even(scores), desc.scale)
        masked = products.hold(*room) if p.dmask is not None else None
    if desc.dropout_p and wants_v:
        weights = products.hold(*room)
    if (ds or weights) and desc.batch_size * desc.num_heads * desc.query_len * desc.key_len:
        places = (attn, ds, scores, masked, weights)
        names = ("attn", "dscores", "scores", "masked", "weights")
        params = {
            **{n: (x.place if x else NOWHERE).slot for n, x in zip(names, places, strict=True)},
            "stride": [x.strides if x else (0, 0, 0) for x in places], "softcap": desc.softcap or 1.0,
            "wide": sum(1 << i for i, x in enumerate(places) if x is not None and x.wide),
        }  # fmt: skip
        products.steps.append(row_step(p, params, scores is not None))
    if wants_v:
        kept_weights = products.even(weights) if weights else products.read("attn")
        products.multiply(kept_weights.t, products.read("dy"), "dv")
    if ds and p.dq is not None:
        products.multiply(products.even(ds), products.read("k"), "dq", desc.scale)
        mend(products, "dq", ds, "k", {"alpha": desc.scale, "by_zero": 1})
    if ds and p.dk is not None:
        products.multiply(products.even(ds).t, products.read("q"), "dk", desc.scale)
    if ds and p.dmask is not None and p.dmask.size:
        _add_dmask(products, masked or ds, p.dmask)
    views = [v for v in p.flat() if len(v.shape) == 4]
    return products.geometry("contiguous" if all(v.dense for v in views) else "inner_contiguous")


def _add_dmask(products: Products, ds: Heads, dmask: View) -> None:
    """The sum of ds over the axes that the mask is broadcast along."""
    full = ds.view.shape
    shape = (1,) * (4 - len(dmask.shape)) + dmask.shape
    kept_shape = tuple(n if n > 1 else 1 for n in shape[:3])
    summed = tuple(1 if m > 1 else n for m, n in zip(shape[:3], full[:3], strict=True))
    rows, kept_rows = int(np.prod(summed, dtype=np.int64)), int(np.prod(kept_shape, dtype=np.int64))
    keys = shape[3] > 1
    columns = shape[3] if keys else 1
    each = _THREADS * 16 // products.p.desc.element.itemsize  # a thread takes 16 bytes of a row
    tiles = max(1, -(-columns // each)) if keys else 1
    parts = max(1, min(rows // _PART, _BLOCKS // (tiles * kept_rows)))
    part_rows = -(-rows // parts)
    outputs = kept_rows * columns
    acc = products.p.desc.acc.itemsize
    partial = products.reserve(parts * outputs * acc) if parts > 1 else NOWHERE
    strides = (0,) * (4 - len(dmask.shape)) + dmask.strides
    params = {
        "source": ds.place.slot, "partial": partial.slot, "dmask": "dmask", "kept": kept_shape, "summed": summed,
        "stride": ds.strides, "out_stride": strides, "key_len": full[3], "columns": columns, "outputs": outputs,
        "tiles": tiles, "parts": parts, "part_rows": part_rows, "summed_rows": rows,
        "out_f32": int(dmask.element is ElementKind.F32 and products.p.desc.element is not ElementKind.F32),
    }  # fmt: skip
    products.steps.append(Step("dmask", (tiles * parts * kept_rows, 1, 1), params, {"KEYS": keys}, _THREADS))
    if parts > 1:
        products.steps.append(Step("dmask_finish", (-(-outputs // 256), 1, 1), params))


class SdpaBackwardPlan(Plan):
    """The gradients of `SdpaPlan` with respect to q, k, v and an added mask; heads that share a key head are summed.

    A weight of 0, as of a hidden key, has no part in any gradient of the queries, keys and mask, be the key or value
    infinite or NaN. Every sum has a fixed order; there are no atomics. The weights and scores that the forward
    returns carry no gradient, lse does. With a softcap the scores are computed again.
    """

    op = "attention.sdpa_backward"
    direction = "backward"
    descriptor = SdpaBackwardDescriptor
    args = SdpaBackwardArgs
    reference = staticmethod(reference)
    variants = rows_of(
        _geometry, "attention/dense/sdpa_backward.cu",
        (
            *row_kernels("sdpa_backward", ROWS, 512),
            Kernel("dmask", "sdpa_dmask<{T}, {KEYS}>", DMASK, {"KEYS": (True, False)}, threads=_THREADS),
            Kernel("dmask_finish", "sdpa_dmask_finish<{T}>", DMASK),
        ),
    )  # fmt: skip
    benchmarks = sdpa_benchmarks("from", "dq", "dk", "dv")

    @staticmethod
    def case(draw: Any) -> SdpaBackwardDescriptor:
        facts = sdpa_case(draw)
        return SdpaBackwardDescriptor(**facts | {"mask_element": draw.choice((draw.element, ElementKind.F32))})

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        """attn as the forward gives it without a mask."""
        inputs = {name: arrays[name].astype(np.float64) for name in ("q", "k", "v")}
        made = forward(desc, **inputs, mask=None, seed=0, offset=0, wanted={"attn"})
        arrays["attn"] = np.array(cast(made["attn"], desc.element))

    @classmethod
    def check(cls, desc: Any, views: Mapping[str, Any]) -> None:
        if views["dmask"] is not None and desc.mask_element is ElementKind.BOOL:
            raise InvalidProblemError("dmask is wanted, but a boolean mask has no gradient")

    @classmethod
    def flops(cls, desc: SdpaDescriptor) -> int:
        return 4 * desc.batch_size * desc.num_heads * desc.query_len * desc.key_len * (desc.d_k + desc.d_v)


_call = functional(SdpaBackwardPlan, layouts=Layouts(("q", "k", "v", "dy", "dq", "dk", "dv")))


@entry(SdpaBackwardPlan)
def sdpa_backward(
    q: Any, k: Any, v: Any, attn: Any, dy: Any, dlse: Any = None, *, scale: float | None = None, softcap: float = 0.0,
    dropout_p: float = 0.0, seed: Any = None, offset: Any = 0, mask_shape: Any = (), mask_element: Any = None,
    layout: str = "bhsd", return_dq: bool = True, return_dk: bool = True, return_dv: bool = True,
    return_dmask: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(dq, dk, dv, dmask), those asked for, of `sdpa` from its weights `attn`; arrays in `layout` as there.

    The mask itself is in `attn` already, causal or given. dmask needs its shape, and its element where that is float32
    beside 16-bit operands: it is summed over the axes along which the mask was broadcast. dlse
    [batch, heads, queries] is the gradient that reaches lse, where the forward returned it.
    """
    flags = {"dq": return_dq, "dk": return_dk, "dv": return_dv, "dmask": return_dmask}
    facts = {
        "scale": scale, "softcap": softcap, "dropout_p": dropout_p, "seed": seed, "offset": offset,
        "mask_shape": tuple(mask_shape) if isinstance(mask_shape, list) else mask_shape, "mask_element": mask_element,
        **{f"return_{name}": flag for name, flag in flags.items()},
    }  # fmt: skip
    return _call(q, k, v, attn, dy, dlse, **facts, layout=layout, out=out, stream=stream, preference=preference)
