"""cascade_attention: another state of attention merged into one, in place; see `cascade_merge_states`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core import (
    Args, Array, Descriptor, ElementKind, Plan, Problem, choice, element, extent, inout,
    operand,
)  # fmt: skip
from ....calls.functional import functional
from ....schedules.attention.cascade import BASES, Views, cascade_row, merged, random_lse
from ....core.benchmark import Benchmark
from ..in_torch import merge_in_torch


@dataclass(frozen=True, kw_only=True)
class CascadeAttentionDescriptor(Descriptor):
    """A state of every head of `seq_len` tokens; lse to base e, as attention here gives it, or 2."""

    seq_len: int = extent()
    num_heads: int = extent()
    head_dim: int = extent()
    lse_base: str = choice(BASES, "e")
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class CascadeAttentionArgs(Args):
    """v and lse are updated; tokens whose mask is False keep theirs. Any strides."""

    v: Array = inout("seq_len num_heads head_dim")
    lse: Array = inout("seq_len num_heads", element="acc", values=random_lse)
    v_other: Array = operand("seq_len num_heads head_dim")
    lse_other: Array = operand("seq_len num_heads", element="acc", values=random_lse)
    mask: Array | None = operand("seq_len", element=ElementKind.BOOL, optional=True)


def reference(
    desc: CascadeAttentionDescriptor, *, v: Any, lse: Any, v_other: Any, lse_other: Any, mask: Any
) -> Mapping[str, Any]:
    """NumPy in the dtype v comes in."""
    made, made_lse = merged(np.stack((v, v_other), 1), np.stack((lse, lse_other), 1), desc.lse_base)
    if mask is not None:
        made, made_lse = np.where(mask[:, None, None], made, v), np.where(mask[:, None], made_lse, lse)
    return {"v": made, "lse": made_lse}


def _operands(p: Problem) -> tuple[Views, Views, Mapping[str, Any]]:
    params = {
        "others": "v_other", "y": "v", "others_lse": "lse_other", "y_lse": "lse", "state_stride": 0,
        "state_lse_stride": 0, "mask_stride": 0 if p.mask is None else p.mask.strides[0], "states": 2,
    }  # fmt: skip
    return (p.v, p.v_other, p.v), (p.lse, p.lse_other, p.lse), params


def in_torch(
    torch: Any, desc: CascadeAttentionDescriptor, *, v: Any, lse: Any, v_other: Any, lse_other: Any, mask: Any
) -> Any:
    """The formula, in place."""
    states, weights = torch.stack((v, v_other), 1), torch.stack((lse, lse_other), 1)
    made, made_lse = merge_in_torch(torch, states, weights, desc.lse_base)
    if mask is not None:
        made = torch.where(mask[:, None, None], made, v)
        made_lse = torch.where(mask[:, None], made_lse, lse)
    return {"v": v.copy_(made), "lse": lse.copy_(made_lse)}


def _other(torch: Any, desc: Any) -> dict[str, Any]:
    """Both lse, far enough apart that a state may vanish."""
    return {name: 4 * torch.randn(desc.seq_len, desc.num_heads) for name in ("lse", "lse_other")}


class CascadeAttentionPlan(Plan):
    """(v, lse) merged with (v_other, lse_other), in place: lse' = log(exp lse + exp lse_other), v likewise weighted.

    A state of lse -inf adds nothing, whatever its v; where both are, zeros and -inf. As in a softmax, lse NaN or +inf
    makes v NaN; lse is then NaN where one is NaN, else +inf.
    """

    op = "attention.cascade_attention"
    descriptor = CascadeAttentionDescriptor
    args = CascadeAttentionArgs
    reference = staticmethod(reference)
    value_policy = "lse -inf: the state adds nothing; lse NaN or +inf: v NaN"
    variants = (cascade_row(2, 2, 2, _operands),)
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "[65536, 32, 128] bf16", seq_len=65536, num_heads=32, head_dim=128, element="bfloat16", make=_other,
            target=0.9,
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> CascadeAttentionDescriptor:
        return CascadeAttentionDescriptor(
            seq_len=draw.integer(0, 9), num_heads=draw.integer(0, 5), head_dim=draw.sizes(64, 8, 1, 17, 80, 128, 0),
            lse_base=draw.choice(BASES), element=draw.element,
        )  # fmt: skip


cascade_attention = functional(
    CascadeAttentionPlan,
    doc="""v [seq, heads, d] and lse [seq, heads] merged with v_other and lse_other of the same shapes, in place.

    lse' = log(exp lse + exp lse_other), v' = exp(lse - lse') v + exp(lse_other - lse') v_other, lse in float32 (float64
    for float64) to base e or 2 (`lse_base`); tokens whose mask [seq] is False keep theirs. FlashInfer's
    merge_state_in_place; a state of lse -inf adds nothing.
    """,
)
