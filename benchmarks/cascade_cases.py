"""Benchmarked problems of merged states of attention."""

from __future__ import annotations

from typing import Any

import torch
from cases import Arrays, Case, case, empty, make, optional, randn

import baracuda_py as bc


@case("attention.cascade_merge_states")
def cascade_merge_states(compiled: bool) -> Case:
    seq, sets, heads, dim = 16384, 4, 32, 128
    desc = bc.CascadeMergeStatesDescriptor(
        seq_len=seq, num_sets=sets, num_heads=heads, head_dim=dim, element="bfloat16"
    )

    def arrays() -> Arrays:
        return {
            "v": randn(seq, sets, heads, dim),
            "lse": 4 * randn(seq, sets, heads, dtype=torch.float32),
            "v_merged": empty(seq, heads, dim),
            "lse_merged": empty(seq, heads, dtype=torch.float32),
        }

    def peer(s: Arrays) -> Any:
        lse = torch.logsumexp(s["lse"], 1)
        return (torch.exp(s["lse"] - lse[:, None])[..., None] * s["v"]).sum(1).to(s["v"].dtype), lse

    return make(
        bc.CascadeMergeStatesPlan,
        desc,
        arrays,
        ["v_merged", "lse_merged"],
        "[16384, 4, 32, 128] bf16",
        {"torch": peer},
        compiled=optional(compiled, peer),
        target="0.90",
    )


@case("attention.cascade_attention")
def cascade_attention(compiled: bool) -> Case:
    seq, heads, dim = 65536, 32, 128
    desc = bc.CascadeAttentionDescriptor(seq_len=seq, num_heads=heads, head_dim=dim, element="bfloat16")

    def arrays() -> Arrays:
        return {
            "v": randn(seq, heads, dim),
            "lse": 4 * randn(seq, heads, dtype=torch.float32),
            "v_other": randn(seq, heads, dim),
            "lse_other": 4 * randn(seq, heads, dtype=torch.float32),
        }

    def peer(s: Arrays) -> Any:
        lse = torch.logaddexp(s["lse"], s["lse_other"])
        own, other = torch.exp(s["lse"] - lse)[..., None], torch.exp(s["lse_other"] - lse)[..., None]
        s["v"].copy_(own * s["v"] + other * s["v_other"])
        s["lse"].copy_(lse)

    return make(
        bc.CascadeAttentionPlan,
        desc,
        arrays,
        [],
        "[65536, 32, 128] bf16",
        {"torch": peer},
        compiled=optional(compiled, peer),
        nbytes=bc.CascadeAttentionPlan.bytes(desc),
        target="0.90",
    )
