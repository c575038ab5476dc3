"""Benchmarked problems of attention beside `attention.py`: paged caches, merged states, block-sparse masks."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from cases import Arrays, Case, case, empty, make, optional, randn

import baracuda_py as bc


def _paged(batch: int, new: int, page: int, compiled: bool) -> Case:
    """Pages dealt out at random, as after a while of serving."""
    heads, dim, before = 8, 128, 100
    each = -(-(before + new) // page)
    desc = bc.PagedKvAppendDescriptor(
        batch_size=batch, num_tokens=batch * new, num_heads=heads, num_pages=batch * each, page_size=page, d_k=dim,
        d_v=dim, max_pages=each, element="bfloat16",
    )  # fmt: skip
    table = torch.randperm(batch * each, device="cuda").reshape(batch, each).int()
    place = before + torch.arange(new, device="cuda")
    pages, cells = table[:, place // page].flatten().long(), (place % page).repeat(batch)

    def arrays() -> Arrays:
        return {
            "k_new": randn(batch * new, heads, dim),
            "v_new": randn(batch * new, heads, dim),
            "page_table": table,
            "cache_offsets": torch.full((batch,), before, device="cuda", dtype=torch.int32),
            "k_cache": empty(batch * each, heads, page, dim),
            "v_cache": empty(batch * each, heads, page, dim),
        }

    def peer(s: Arrays) -> Any:
        s["k_cache"][pages, :, cells] = s["k_new"]
        s["v_cache"][pages, :, cells] = s["v_new"]

    return make(
        bc.PagedKvAppendPlan,
        desc,
        arrays,
        [],
        f"{batch} x {new} tokens, pages of {page}, bf16",
        {"torch": peer},
        nbytes=8 * batch * new * heads * dim,
        target="0.85",
    )


case("attention.paged_kv_append")(partial(_paged, 64, 512, 16))
case("attention.paged_kv_append")(partial(_paged, 64, 512, 1))
case("attention.paged_kv_append")(partial(_paged, 8, 4096, 256))


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


def _block_sparse(block: int, compiled: bool) -> Case:
    """A quarter of the blocks set, the same number in every row of them."""
    batch, heads, length, dim = 1, 16, 8192, 128
    blocks = length // block
    desc = bc.SdpaBlockSparseDescriptor(
        batch_size=batch, num_heads=heads, query_len=length, key_len=length, d_k=dim, d_v=dim, query_block=block,
        key_block=block, element="bfloat16",
    )  # fmt: skip
    pattern = torch.rand(batch, heads, blocks, blocks, device="cuda").argsort(-1) < blocks // 4

    def arrays() -> Arrays:
        q, k, v = (randn(batch, heads, length, dim) for _ in range(3))
        return {"q": q, "k": k, "v": v, "pattern": pattern, "y": empty(batch, heads, length, dim)}

    shared = {f.name: getattr(desc, f.name) for f in dataclasses.fields(bc.FlashSdpaDescriptor)}
    every = bc.FlashSdpaPlan.select(
        bc.FlashSdpaDescriptor(**shared), bc.PlanPreference(max_arch=bc.ArchSku.SM80), device=0
    )
    mask = pattern.repeat_interleave(block, 2).repeat_interleave(block, 3)

    def masked(s: Arrays) -> Any:
        return F.scaled_dot_product_attention(s["q"], s["k"], s["v"], attn_mask=mask)

    def dense(s: Arrays) -> Any:
        every(q=s["q"], k=s["k"], v=s["v"], y=torch.empty_like(s["y"]))

    peers = {"torch masked": masked, "dense, same design": dense}
    if compiled and block >= 128:
        peers |= {"flex_attention": _flex(pattern, block)}
    return make(
        bc.SdpaBlockSparsePlan,
        desc,
        arrays,
        ["y"],
        f"{heads} x [8192, 128], 25 % of {block} x {block}, bf16",
        peers,
        flops=bc.SdpaBlockSparsePlan.flops(desc) // 4,
        target="0.35",
    )


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
    """The same pattern's gradients, beside the dense backward of the same design."""
    batch, heads, length, dim = 1, 16, 8192, 128
    blocks = length // block
    desc = bc.SdpaBlockSparseBackwardDescriptor(
        batch_size=batch, num_heads=heads, query_len=length, key_len=length, d_k=dim, d_v=dim, query_block=block,
        key_block=block, element="bfloat16",
    )  # fmt: skip
    pattern = torch.rand(batch, heads, blocks, blocks, device="cuda").argsort(-1) < blocks // 4
    shared = {f.name: getattr(desc, f.name) for f in dataclasses.fields(bc.FlashSdpaBackwardDescriptor)}
    every = bc.FlashSdpaBackwardPlan.select(
        bc.FlashSdpaBackwardDescriptor(**shared), bc.PlanPreference(max_arch=bc.ArchSku.SM80), device=0
    )

    def arrays() -> Arrays:
        made = {name: randn(batch, heads, length, dim) for name in ("q", "k", "v", "dy")}
        made["y"], made["lse"] = bc.sdpa_block_sparse(
            made["q"], made["k"], made["v"], pattern, query_block=block, key_block=block, return_lse=True
        )
        return made | {"pattern": pattern} | {name: torch.empty_like(made["q"]) for name in ("dq", "dk", "dv")}

    def dense(s: Arrays) -> Any:
        every(**{name: x for name, x in s.items() if name != "pattern"})

    return make(
        bc.SdpaBlockSparseBackwardPlan,
        desc,
        arrays,
        [],
        f"{heads} x [8192, 128], 25 % of {block} x {block}, bf16",
        {"dense, same design": dense},
        flops=bc.SdpaBlockSparseBackwardPlan.flops(desc) // 4,
        target="",
    )


for _block in (64, 128, 32):
    case("attention.sdpa_block_sparse")(partial(_block_sparse, _block))
for _block in (64, 32):
    case("attention.sdpa_block_sparse_backward")(partial(_block_sparse_backward, _block))
