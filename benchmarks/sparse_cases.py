"""Benchmarked problems of attention under patterns of blocks."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from cases import Arrays, Case, case, make, randn

import baracuda_py as bc


def _problem(sparse: Any, dense: Any, block: int) -> tuple[Any, Any, Any, str]:
    """The descriptor of `sparse`, a pattern that sets a quarter of every row, `dense` in the same design."""
    heads, length, dim = 16, 8192, 128
    desc = sparse.descriptor(
        batch_size=1, num_heads=heads, query_len=length, key_len=length, d_k=dim, d_v=dim, query_block=block,
        key_block=block, element="bfloat16",
    )  # fmt: skip
    blocks = length // block
    pattern = torch.rand(1, heads, blocks, blocks, device="cuda").argsort(-1) < blocks // 4
    shared = {f.name: getattr(desc, f.name) for f in dataclasses.fields(dense.descriptor)}
    every = dense.select(dense.descriptor(**shared), bc.PlanPreference(max_arch=bc.ArchSku.SM80), device=0)
    return desc, pattern, every, f"{heads} x [8192, 128], 25 % of {block} x {block}, bf16"


def _random(desc: Any, *names: str) -> Arrays:
    return {name: randn(desc.batch_size, desc.num_heads, desc.query_len, desc.d_k) for name in names}


def _block_sparse(block: int, compiled: bool) -> Case:
    desc, pattern, every, shape = _problem(bc.SdpaBlockSparsePlan, bc.FlashSdpaPlan, block)

    def arrays() -> Arrays:
        made = _random(desc, "q", "k", "v")
        return made | {"pattern": pattern, "y": torch.empty_like(made["q"])}

    mask = pattern.repeat_interleave(block, 2).repeat_interleave(block, 3)

    def masked(s: Arrays) -> Any:
        return F.scaled_dot_product_attention(s["q"], s["k"], s["v"], attn_mask=mask)

    def dense(s: Arrays) -> Any:
        every(q=s["q"], k=s["k"], v=s["v"], y=torch.empty_like(s["y"]))

    peers = {"torch masked": masked, "dense, same design": dense}
    if compiled and block >= 128:
        peers |= {"flex_attention": _flex(pattern, block)}
    flops = bc.SdpaBlockSparsePlan.flops(desc) // 4
    return make(bc.SdpaBlockSparsePlan, desc, arrays, ["y"], shape, peers, flops=flops, target="0.35")


def _flex(pattern: Any, block: int) -> Any:
    """torch's flex_attention, compiled for the pattern as a mask of its own blocks."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def sees(b: Any, h: Any, i: Any, j: Any) -> Any:
        return pattern[b, h, i // block, j // block]

    batch, heads, blocks, _ = pattern.shape
    mask = create_block_mask(sees, batch, heads, blocks * block, blocks * block, device="cuda", BLOCK_SIZE=block)
    call = torch.compile(flex_attention)
    return lambda s: call(s["q"], s["k"], s["v"], block_mask=mask)


def _block_sparse_backward(block: int, compiled: bool) -> Case:
    desc, pattern, every, shape = _problem(bc.SdpaBlockSparseBackwardPlan, bc.FlashSdpaBackwardPlan, block)

    def arrays() -> Arrays:
        made = _random(desc, "q", "k", "v", "dy")
        made["y"], made["lse"] = bc.sdpa_block_sparse(
            made["q"], made["k"], made["v"], pattern, query_block=block, key_block=block, return_lse=True
        )
        return made | {"pattern": pattern} | {name: torch.empty_like(made["q"]) for name in ("dq", "dk", "dv")}

    def dense(s: Arrays) -> Any:
        every(**{name: x for name, x in s.items() if name != "pattern"})

    flops = bc.SdpaBlockSparseBackwardPlan.flops(desc) // 4
    peers = {"dense, same design": dense}
    return make(bc.SdpaBlockSparseBackwardPlan, desc, arrays, [], shape, peers, flops=flops, target="")


for _block in (64, 128, 32):
    case("attention.sdpa_block_sparse")(partial(_block_sparse, _block))
for _block in (64, 32):
    case("attention.sdpa_block_sparse_backward")(partial(_block_sparse_backward, _block))
