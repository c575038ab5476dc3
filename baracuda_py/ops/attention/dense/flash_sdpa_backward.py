"""flash_sdpa_backward: the gradients of flash_sdpa, its scores recomputed (Dao 2023, FlashAttention-2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import Args, Array, Plan, Scalar, operand, output, scalar
from ....calls.functional import functional
from ....core.element import unrounded
from ....core.errors import InvalidProblemError
from ....calls.entries import entry
from ....core.keywords import unexpected
from ....core.arrays import read
from ....schedules.attention.dense.backward import DENSE, ROWS
from ....schedules.attention.dense.backward_simt import simt_row
from .flash_sdpa import SCORES, FlashSdpaDescriptor, attention_case, formulas, terms_case
from .flash_sdpa import reference as forward
from .head_windows import by_head, head_windows, refuse_formulas
from ..layouts import Layouts, asked
from ..score_terms import (
    batches, biases, distance, finite, give_forward, grouped, kept, replayed, restored, rests, scores, shared,
)  # fmt: skip
from ....core.benchmark import Benchmark, EAGER, FLOPS

_Q, _K = "batch_size num_heads query_len d_k", "batch_size num_kv_heads key_len d_k"
_Y, _V = "batch_size num_heads query_len d_v", "batch_size num_kv_heads key_len d_v"
_ROW = "batch_size num_heads query_len"


@dataclass(frozen=True, kw_only=True)
class FlashSdpaBackwardDescriptor(FlashSdpaDescriptor):
    """As the forward's."""


@dataclass(slots=True, kw_only=True)
class FlashSdpaBackwardArgs(Args):
    """`y` and `lse` are the forward's, mask, slopes, sinks, seed and offset what it was given.

    dlse is the gradient that reaches lse; in a row that sees no key it counts as 0. dmask has the mask's shape and
    element, dslopes the shape of slopes: summed where they broadcast. A gradient left None costs nothing.
    What is not finite, but a bias of -inf, which hides, makes gradients NaN that it reaches, or that a hidden neighbour
    in its tile of scores reaches.
    """

    q: Array = operand(_Q, layout="inner", values=finite)
    k: Array = operand(_K, layout="inner", values=finite)
    v: Array = operand(_V, layout="inner", values=finite)
    y: Array = operand(_Y, layout="inner")
    lse: Array = operand(_ROW, element="acc", layout="dense")
    dy: Array = operand(_Y, layout="inner", values=finite)
    mask: Array | None = operand(SCORES, element="mask_elements", optional=True, broadcast=True, values=biases)
    slopes: Array | None = operand("batch_size num_heads", element="acc", optional=True, broadcast=True, values=finite)
    sinks: Array | None = operand("num_heads", element="acc", optional=True, layout="dense", values=finite)
    dlse: Array | None = operand(_ROW, element="acc", optional=True, layout="dense", values=finite)
    dq: Array | None = output(_Q, optional=True, layout="inner")
    dk: Array | None = output(_K, optional=True, layout="inner")
    dv: Array | None = output(_V, optional=True, layout="inner")
    dmask: Array | None = output(SCORES, element="mask_elements", optional=True, like="mask")
    dslopes: Array | None = output("batch_size num_heads", element="acc", optional=True, like="slopes")
    dsinks: Array | None = output("num_heads", element="acc", optional=True, needs="sinks", layout="dense")
    seed: Scalar = scalar(integer=True, drawn="dropout_p")
    offset: Scalar = scalar(0, integer=True)


def reference(
    desc: FlashSdpaDescriptor, *, q: Any, k: Any, v: Any, y: Any, lse: Any, dy: Any, mask: Any = None,
    slopes: Any = None, sinks: Any = None, dlse: Any = None, seed: Any = 0, offset: Any = 0, wanted: set[str],
    store: Any = unrounded, change: Any = None,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in: p = exp(s - lse), ds = p (dy vᵀ - rowsum(dy y) + dlse), groups summed.

    The weights are what `replayed` makes of the lse, and under a mask of numbers or a formula of its `rests`.
    change: as in `scores`.
    """
    inputs = {"q": q, "k": k, "v": v, "mask": mask, "slopes": slopes, "sinks": sinks}
    grads = {f"d{n}": np.zeros(x.shape, q.dtype) for n, x in inputs.items() if f"d{n}" in wanted}
    scale = q.dtype.type(desc.scale)
    adds = change is not None or (mask is not None and mask.dtype != np.bool_)  # numbers of any size
    with np.errstate(invalid="ignore", over="ignore"):
        for b in batches(desc):
            made = scores(desc, b, q[b], k[b], mask, slopes, store, change)
            own = lse[b][..., None]
            rest = rests(made.s, own, sinks) if adds else None
            p = replayed(made.s, own, desc.acc, rest)
            if made.seen is not None:
                np.copyto(p, 0, where=~made.seen)  # whatever the lse is
            keep, rows = kept(desc, b, seed, offset), grouped(dy[b], desc)
            again = q.dtype.type(restored(desc))
            delta = (dy[b] * y[b]).sum(axis=-1)
            if dlse is not None:
                delta -= np.where(lse[b] == -np.inf, 0, dlse[b])
            if "dsinks" in wanted:
                logits = np.broadcast_to(sinks[:, None, None], own.shape).astype(lse.dtype)
                grads["dsinks"] -= (replayed(logits, own, desc.acc, rest)[..., 0] * delta).sum(axis=(0, 2))
            if "dv" in wanted:
                dropped = store(p if keep is None else np.where(keep, p, 0))
                grads["dv"][b] = (grouped(dropped, desc).swapaxes(-1, -2) @ rows) * again
            if not wanted - {"dv", "dsinks"}:
                continue
            ds = (rows @ v[b].swapaxes(-1, -2)).reshape(p.shape)
            if keep is not None:
                ds *= keep * again
            ds -= delta[..., None]
            ds *= p if dlse is not None else shared(desc, p, own, rest)
            if made.seen is not None:
                np.copyto(ds, 0, where=~made.seen)
            if "dmask" in wanted:
                add_summed(grads["dmask"], store(ds), b)
            if "dslopes" in wanted:
                add_summed(grads["dslopes"], -(store(ds) * distance(desc).astype(ds.dtype)).sum(axis=(2, 3)), b)
            if made.spread is not None:
                made.spread(ds, made.seen)
            if made.slope is not None:
                ds *= made.slope
            ds = grouped(store(ds), desc)
            if "dq" in wanted:
                grads["dq"][b] = ((ds @ k[b]) * scale).reshape(q[b].shape)
            if "dk" in wanted:
                grads["dk"][b] = ds.swapaxes(-1, -2) @ grouped(q[b] * scale, desc)
    return grads


def add_summed(total: np.ndarray, part: np.ndarray, b: slice) -> None:
    """total += part of the batches b, summed over the axes along which total broadcasts."""
    shape = (1,) * (part.ndim - total.ndim) + total.shape
    axes = tuple(a for a, n in enumerate(shape) if n == 1 and part.shape[a] != 1)
    into = total.reshape(shape)
    into[b if shape[0] > 1 else slice(None)] += part.sum(axis=axes, keepdims=True)


class FlashSdpaBackwardPlan(Plan):
    """The gradients of `FlashSdpaPlan`; dk and dv are summed over the query heads that share a key head.

    rowsum(dy y), less dlse, first. On tensor cores then blocks of keys, which own dk and dv and add to dq in turn; else
    blocks of queries for dq and of keys for dk and dv. The order of every sum is fixed, unless
    `PlanPreference(deterministic=False)` lets blocks of keys add to dq as they come. Of 16-bit elements,
    without masks and dropout, a key that has all of its row gets no gradient from an lse of more than 5600 either way.
    """

    op = "attention.flash_sdpa_backward"
    direction = "backward"
    descriptor = FlashSdpaBackwardDescriptor
    args = FlashSdpaBackwardArgs
    reference = staticmethod(reference)
    variants = (*ROWS, simt_row(DENSE))
    benchmarks = (
        Benchmark(
            "causal [4, 16, 2048, 128] bf16", batch_size=4, num_heads=16, query_len=2048, key_len=2048, d_k=128,
            d_v=128, is_causal=True, element="bfloat16", also=("dq", "dk", "dv"), work=FLOPS, target=None,
            peers=(EAGER,),
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> FlashSdpaBackwardDescriptor:
        made = terms_case(draw, long=(150,))
        if draw.rarely():  # tiles of keys in their turn although any order is allowed, walked up
            made = attention_case(draw) | {"key_len": 400, "d_k": 256, "d_v": 256, "is_causal": True}
            made |= {"batch_size": 2, "num_heads": 2, "num_kv_heads": 2}
        return FlashSdpaBackwardDescriptor(**made)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        give_forward(desc, forward, arrays, ("q", "k", "v", "mask", "slopes", "sinks", "seed", "offset"))

    @classmethod
    def flops(cls, desc: FlashSdpaDescriptor) -> int:
        return 2 * desc.batch_size * desc.num_heads * desc.pairs * (3 * desc.d_k + 2 * desc.d_v)


TURNED = Layouts(("q", "k", "v", "y", "dy", "dq", "dk", "dv"))  # by `layout=`
_call = functional(FlashSdpaBackwardPlan, layouts=TURNED)


@entry(FlashSdpaBackwardPlan)
def flash_sdpa_backward(
    q: Any, k: Any, v: Any, y: Any, lse: Any, dy: Any, mask: Any = None, slopes: Any = None, sinks: Any = None,
    dlse: Any = None, *, scale: float | None = None, is_causal: bool = False, causal_alignment: str = "top_left",
    window_left: Any = None, window_right: Any = None, softcap: float = 0.0, dropout_p: float = 0.0,
    seed: Any = None, offset: Any = 0, score: Any = None, layout: str = "bhsd", return_dq: bool = True,
    return_dk: bool = True, return_dv: bool = True, return_dmask: bool = False, return_dslopes: bool = False,
    return_dsinks: bool = False, out: Any = None, stream: Any = None, preference: Any = None,
    **unknown: Any,
) -> Any:  # fmt: skip
    """(dq, dk, dv, dmask, dslopes, dsinks), those asked for, of `flash_sdpa`; query i at key i (top left) by default.

    Facts, seed and offset are the forward's. Arrays in `layout` as there, lse [batch, heads, queries] in either. dlse
    is the gradient that reaches lse: ds = p (dy vᵀ - rowsum(dy y) + dlse), where the row sees a key. dmask,
    dslopes and dsinks have the shapes of what they are the gradients of, summed where that broadcasts. A boolean mask
    has none. score and mask may be formulas, or windows be by head, as there; then dq, dk and dv are made,
    and of a table `bias` that the score has a derivative by dbias where return_dbias is True.
    """
    facts = {
        "scale": scale, "is_causal": is_causal, "causal_alignment": causal_alignment, "window_left": window_left,
        "window_right": window_right, "softcap": softcap, "dropout_p": dropout_p, "seed": seed, "offset": offset,
        "return_dq": return_dq, "return_dk": return_dk, "return_dv": return_dv,
    }  # fmt: skip
    others = asked({"dmask": return_dmask, "dslopes": return_dslopes, "dsinks": return_dsinks})
    heads = by_head(window_left) or by_head(window_right)
    is_formula = score is not None or type(mask) is str or callable(mask)
    if heads or is_formula:
        if heads and is_formula:
            raise refuse_formulas()
        if heads and unknown:
            raise unexpected(flash_sdpa_backward, unknown)
        if heads:
            made, facts = head_windows(q, k, facts, layout, stream, preference)
        else:
            made, mask = formulas(score, mask)
        more = {f"return_{name}": True for name, flag in others.items() if flag}
        return made.backward(
            q, k, v, y, lse, dy, mask, slopes, sinks, dlse, **facts, **more, **unknown, layout=layout, out=out,
            stream=stream, preference=preference,
        )  # fmt: skip
    if unknown:
        raise unexpected(flash_sdpa_backward, unknown)
    facts |= {f"return_{name}": flag for name, flag in others.items()}
    for name, x in (("dmask", mask), ("dslopes", slopes), ("dsinks", sinks)):
        if others[name] and (x is None or not read(x).element.is_float):
            what = f"no {name[1:]} is given" if x is None else f"a mask of {read(x).element} has no gradient"
            raise InvalidProblemError(f"{name} is wanted but {what}")
    operands = (q, k, v, y, lse, dy, mask, slopes, sinks, dlse)
    return _call(*operands, **facts, layout=layout, out=out, stream=stream, preference=preference)
