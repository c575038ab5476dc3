"""flash_sdpa_varlen_backward: dq, dk, dv of `flash_sdpa_varlen`, the scores recomputed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import Args, Array, Plan, Scalar, number, operand, output, scalar
from ....calls.functional import functional
from ....core.element import unrounded
from ....core.errors import InvalidProblemError
from ....calls.entries import entry
from ....schedules.attention.dense.backward import tensor_core_rows
from ....schedules.attention.dense.backward_simt import simt_row
from ....schedules.attention.packed import packed_arrangement
from ....schedules.attention.packed_slopes import KERNELS, packed_slopes
from ..dense.flash_sdpa_backward import add_summed
from ..dense.flash_sdpa_backward import reference as dense
from .flash_sdpa_varlen import BOUNDS, FlashSdpaVarlenPlan
from .flash_sdpa_varlen import reference as forward
from .ragged import (
    INDEX, POLICY, PackedDescriptor, heads_first, packed_benchmarks, ragged_case, random_bounds, sequences, terms_of,
)  # fmt: skip
from ..layouts import asked
from ..score_terms import finite, give_forward, replayed

_FORM = packed_arrangement(BOUNDS, KERNELS, packed_slopes)


@dataclass(frozen=True, kw_only=True)
class FlashSdpaVarlenBackwardDescriptor(PackedDescriptor):
    """As the forward's."""

    dropout_p: float = number(0.0, minimum=0.0, maximum=1.0)


@dataclass(slots=True, kw_only=True)
class FlashSdpaVarlenBackwardArgs(Args):
    """`y` and `lse` are the forward's, slopes, sinks, seed and offset what it was given; a None gradient costs nothing.

    dlse, and what is not finite: as flash_sdpa_backward's.
    """

    q: Array = operand("total_q num_heads d_k", layout="inner", values=finite)
    k: Array = operand("total_k num_kv_heads d_k", layout="inner", values=finite)
    v: Array = operand("total_k num_kv_heads d_v", layout="inner", values=finite)
    y: Array = operand("total_q num_heads d_v", layout="inner")
    lse: Array = operand("num_heads total_q", element="acc", layout="dense")
    dy: Array = operand("total_q num_heads d_v", layout="inner", values=finite)
    cu_seqlens_q: Array = operand("num_bounds", element=INDEX, values=random_bounds("total_q"))
    cu_seqlens_k: Array = operand("num_bounds", element=INDEX, values=random_bounds("total_k"))
    slopes: Array | None = operand("batch_size num_heads", element="acc", optional=True, broadcast=True, values=finite)
    sinks: Array | None = operand("num_heads", element="acc", optional=True, layout="dense", values=finite)
    dlse: Array | None = operand("num_heads total_q", element="acc", optional=True, layout="dense", values=finite)
    dq: Array | None = output("total_q num_heads d_k", optional=True, layout="inner")
    dk: Array | None = output("total_k num_kv_heads d_k", optional=True, layout="inner")
    dv: Array | None = output("total_k num_kv_heads d_v", optional=True, layout="inner")
    dslopes: Array | None = output("batch_size num_heads", element="acc", optional=True, like="slopes")
    dsinks: Array | None = output("num_heads", element="acc", optional=True, needs="sinks", layout="dense")
    seed: Scalar = scalar(integer=True, drawn="dropout_p")
    offset: Scalar = scalar(0, integer=True)


def reference(
    desc: PackedDescriptor, *, q: Any, k: Any, v: Any, y: Any, lse: Any, dy: Any, cu_seqlens_q: Any, cu_seqlens_k: Any,
    slopes: Any = None, sinks: Any = None, dlse: Any = None, wanted: set[str], store: Any = unrounded, **terms: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """NumPy in the dtype q comes in: `flash_sdpa_backward` of each sequence; zeros where there is none."""
    inputs = {"q": q, "k": k, "v": v, "slopes": slopes, "sinks": sinks}
    grads = {f"d{n}": np.zeros(x.shape, q.dtype) for n, x in inputs.items() if f"d{n}" in wanted}
    alone = np.ones(desc.total_q, np.bool_)  # rows without keys, whose lse is their sink
    for b, (rows, keys) in enumerate(sequences(cu_seqlens_q, cu_seqlens_k, desc.total_q, desc.total_k)):
        one = desc.alone(rows.stop - rows.start, keys.stop - keys.start)
        if one.query_len and one.key_len:
            alone[rows] = False
            queries = {n: heads_first(x, rows) for n, x in (("q", q), ("y", y), ("dy", dy))}
            others = {n: heads_first(x, keys) for n, x in (("k", k), ("v", v))}
            more = terms_of(desc, b, one, slopes=slopes, sinks=sinks, **terms)
            stats = {n: None if x is None else x[None, :, rows] for n, x in (("lse", lse), ("dlse", dlse))}
            made = dense(one, **queries, **others, **more, **stats, wanted=wanted, store=store)
            for name, grad in made.items():
                if name == "dslopes":
                    add_summed(grads[name], grad, slice(b, b + 1))
                elif name == "dsinks":
                    grads[name] += grad
                else:
                    grads[name][rows if name == "dq" else keys] = grad[0].swapaxes(0, 1)
    if "dsinks" in wanted and dlse is not None:
        own = lse[:, alone, None]
        logits = np.broadcast_to(sinks[:, None, None], own.shape).astype(lse.dtype)
        grads["dsinks"] += (replayed(logits, own, desc.acc)[..., 0] * dlse[:, alone]).sum(axis=1)
    return grads


class FlashSdpaVarlenBackwardPlan(Plan):
    """The gradients of `FlashSdpaVarlenPlan`, by the kernels of `FlashSdpaBackwardPlan`.

    Those of rows of no sequence, and of a sequence with no queries or no keys, are zeros. The order of every sum is
    fixed, unless `PlanPreference(deterministic=False)` lets blocks of keys add to dq as they come.
    """

    op = "attention.flash_sdpa_varlen_backward"
    direction = "backward"
    descriptor = FlashSdpaVarlenBackwardDescriptor
    args = FlashSdpaVarlenBackwardArgs
    reference = staticmethod(reference)
    value_policy = POLICY
    variants = (*tensor_core_rows(_FORM), simt_row(_FORM))
    benchmarks = packed_benchmarks("cu_seqlens_q", "cu_seqlens_k", also=("dq", "dk", "dv"))

    infer = FlashSdpaVarlenPlan.infer
    check_values = FlashSdpaVarlenPlan.check_values

    @staticmethod
    def case(draw: Any) -> FlashSdpaVarlenBackwardDescriptor:
        facts = ragged_case(draw) | {"dropout_p": draw.choice((0.0, 0.0, 0.1, 0.75))}
        if facts["d_k"] == 256:  # as models have
            facts |= {"d_v": 256, "is_causal": True}
            if facts["total_k"] > 90:
                facts |= {"softcap": 0.0, "dropout_p": 0.0, "window_left": None, "window_right": None}
                facts |= {"total_k": 720, "num_heads": 2, "num_kv_heads": 2}
        return FlashSdpaVarlenBackwardDescriptor(**facts)

    @classmethod
    def complete(cls, desc: Any, arrays: dict[str, Any]) -> None:
        give_forward(desc, forward, arrays, ("q", "k", "v", *BOUNDS, "slopes", "sinks", "seed", "offset"))

    @classmethod
    def flops(cls, desc: PackedDescriptor) -> int:
        return 2 * desc.num_heads * desc.pairs * (3 * desc.d_k + 2 * desc.d_v)


_call = functional(FlashSdpaVarlenBackwardPlan)


@entry(FlashSdpaVarlenBackwardPlan)
def flash_sdpa_varlen_backward(
    q: Any, k: Any, v: Any, y: Any, lse: Any, dy: Any, cu_seqlens_q: Any, cu_seqlens_k: Any, *,
    max_seqlen_q: int | None = None, max_seqlen_k: int | None = None, scale: float | None = None,
    is_causal: bool = False, causal_alignment: str = "bottom_right", window_left: int | None = None,
    window_right: int | None = None, softcap: float = 0.0, slopes: Any = None, sinks: Any = None, dlse: Any = None,
    dropout_p: float = 0.0, seed: Any = None, offset: Any = 0, return_dq: bool = True, return_dk: bool = True,
    return_dv: bool = True, return_dslopes: bool = False, return_dsinks: bool = False, out: Any = None,
    stream: Any = None, preference: Any = None,
) -> Any:  # fmt: skip
    """(dq, dk, dv, dslopes, dsinks), those asked for, of `flash_sdpa_varlen`, last query at last key (bottom right).

    Packed as q, k and v are, dslopes of the shape of slopes, summed where that broadcasts, dsinks [heads]; every
    attribute, seed and offset as in the forward call. lse must be of the sinks too; dlse [heads, total_q] is the
    gradient that reaches it, as in `flash_sdpa_backward`.
    """
    wanted = asked({"dslopes": return_dslopes, "dsinks": return_dsinks})
    for name, given in (("dslopes", slopes), ("dsinks", sinks)):
        if wanted[name] and given is None:
            raise InvalidProblemError(f"{name} is wanted but no {name[1:]} is given")
    return _call(
        q, k, v, y, lse, dy, cu_seqlens_q, cu_seqlens_k, slopes, sinks, dlse, max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k, scale=scale, is_causal=is_causal, causal_alignment=causal_alignment,
        window_left=window_left, window_right=window_right, softcap=softcap, dropout_p=dropout_p, seed=seed,
        offset=offset, return_dq=return_dq, return_dk=return_dk, return_dv=return_dv,
        return_dslopes=wanted["dslopes"], return_dsinks=wanted["dsinks"], out=out, stream=stream, preference=preference,
    )  # fmt: skip
