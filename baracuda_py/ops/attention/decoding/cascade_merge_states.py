"""cascade_merge_states: attention over parts of a sequence merged to attention over all of it (FlashInfer's cascade).

A state is attention over some keys, v, and the log Σ exp of its scores, lse. Merging weighs each v by its part of the
sum: lse = log Σ exp(lse_i), v = Σ exp(lse_i - lse) v_i. So keys that many sequences share, a prompt's prefix, are
attended to once for all of them, on tensor cores:

    prefix, prefix_lse = bc.flash_sdpa(q_of_all, prefix_k, prefix_v, return_lse=True)     # one head's queries together
    own, own_lse = bc.flash_decoding(q, k_cache, v_cache, lengths, return_lse=True)       # each sequence's own keys
    y, lse = bc.cascade_attention(own, own_lse, prefix, prefix_lse)                       # in place

where q [batch, heads, d] is q_of_all [1, heads, batch, d] with its axes swapped, and prefix and prefix_lse are swapped
back; more levels of a tree of prefixes are merged in one pass by `cascade_merge_states`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....core import (
    Args, Array, Descriptor, ElementKind, Plan, Problem, View, choice, element, extent, operand,
    output,
)  # fmt: skip
from ....calls.functional import functional
from ....schedules.attention.cascade import BASES, Views, cascade_row, merged, random_lse
from ....core.benchmark import Benchmark
from ..in_torch import merge_in_torch


@dataclass(frozen=True, kw_only=True)
class CascadeMergeStatesDescriptor(Descriptor):
    """`num_sets` states of every head of `seq_len` tokens; lse to base e, as attention here gives it, or 2."""

    seq_len: int = extent()
    num_sets: int = extent()
    num_heads: int = extent()
    head_dim: int = extent()
    lse_base: str = choice(BASES, "e")
    element: ElementKind = element()


@dataclass(slots=True, kw_only=True)
class CascadeMergeStatesArgs(Args):
    """Any strides."""

    v: Array = operand("seq_len num_sets num_heads head_dim")
    lse: Array = operand("seq_len num_sets num_heads", element="acc", values=random_lse)
    v_merged: Array = output("seq_len num_heads head_dim")
    lse_merged: Array = output("seq_len num_heads", element="acc")


def reference(desc: CascadeMergeStatesDescriptor, *, v: Any, lse: Any) -> Mapping[str, Any]:
    """NumPy in the dtype v comes in."""
    v_merged, lse_merged = merged(v, lse, desc.lse_base)
    return {"v_merged": v_merged, "lse_merged": lse_merged}


def _state(view: View) -> View:
    """One state: [seq, sets, …] without the sets."""
    return View(view.ptr, (view.shape[0], *view.shape[2:]), (view.strides[0], *view.strides[2:]), view.element)


def _operands(p: Problem) -> tuple[Views, Views, Mapping[str, Any]]:
    params = {
        "others": ("v", p.v.strides[1] * p.v.element.itemsize), "y": "v_merged",
        "others_lse": ("lse", p.lse.strides[1] * p.lse.element.itemsize), "y_lse": "lse_merged",
        "state_stride": p.v.strides[1], "state_lse_stride": p.lse.strides[1], "states": p.desc.num_sets,
    }  # fmt: skip
    return (_state(p.v), _state(p.v), p.v_merged), (_state(p.lse), _state(p.lse), p.lse_merged), params


def in_torch(torch: Any, desc: CascadeMergeStatesDescriptor, *, v: Any, lse: Any) -> Any:
    """The formula, states of lse -inf left out."""
    return merge_in_torch(torch, v, lse, desc.lse_base)


class CascadeMergeStatesPlan(Plan):
    """v_merged = Σ exp(lse_i - lse_merged) v_i, lse_merged = log Σ exp(lse_i), over the sets.

    A state of lse -inf adds nothing, whatever its v; where all are, or there is none, zeros and -inf. As in a softmax,
    lse NaN or +inf makes v_merged NaN; lse_merged is then NaN where one is NaN, else +inf.
    """

    op = "attention.cascade_merge_states"
    descriptor = CascadeMergeStatesDescriptor
    args = CascadeMergeStatesArgs
    autocast = "widest"
    reference = staticmethod(reference)
    value_policy = "lse -inf: the state adds nothing; lse NaN or +inf: v_merged NaN"
    variants = (cascade_row(0, 4, 2, _operands),)
    torch = staticmethod(in_torch)
    benchmarks = (
        Benchmark(
            "[16384, 4, 32, 128] bf16", seq_len=16384, num_sets=4, num_heads=32, head_dim=128, element="bfloat16",
            make=lambda torch, desc: {"lse": 4 * torch.randn(desc.seq_len, desc.num_sets, desc.num_heads)}, target=0.9,
        ),
    )  # fmt: skip

    @staticmethod
    def case(draw: Any) -> CascadeMergeStatesDescriptor:
        return CascadeMergeStatesDescriptor(
            seq_len=draw.integer(0, 9), num_sets=draw.sizes(4, 1, 0, 2, 3, 5, 11), num_heads=draw.integer(0, 5),
            head_dim=draw.sizes(64, 8, 1, 17, 80, 128, 0), lse_base=draw.choice(BASES), element=draw.element,
        )  # fmt: skip


cascade_merge_states = functional(
    CascadeMergeStatesPlan,
    doc="""(v_merged [seq, heads, d], lse_merged [seq, heads]) of v [seq, sets, heads, d] and lse [seq, sets, heads].

    lse_merged = log Σ exp(lse_i), v_merged = Σ exp(lse_i - lse_merged) v_i, lse in float32 (float64 for float64) to
    base e or 2 (`lse_base`). FlashInfer's merge_states; a state of lse -inf adds nothing.
    """,
)
