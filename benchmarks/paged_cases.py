"""Benchmarked problems of the paged caches: pages are dealt out at random, as after a while of serving."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from cases import Arrays, Case, case, empty, make, randn

import baracuda_py as bc


def _append(batch: int, new: int, page: int, ragged: bool, compiled: bool) -> Case:
    heads, dim, before = 8, 128, 100
    each = -(-(before + new) // page)
    desc = bc.PagedKvAppendDescriptor(
        batch_size=batch, num_tokens=batch * new, num_heads=heads, num_pages=batch * each, page_size=page, d_k=dim,
        d_v=dim, element="bfloat16", **({"num_indices": batch * each} if ragged else {"max_pages": each}),
    )  # fmt: skip
    table = torch.randperm(batch * each, device="cuda").reshape(batch, each).int()
    place = before + torch.arange(new, device="cuda")
    pages, cells = table[:, place // page].flatten().long(), (place % page).repeat(batch)
    tables = {"page_table": table}
    if ragged:
        bounds = torch.arange(batch + 1, device="cuda", dtype=torch.int32)
        tables = {"kv_indices": table.flatten(), "kv_indptr": bounds * each, "token_indptr": bounds * new}

    def arrays() -> Arrays:
        return {
            "k_new": randn(batch * new, heads, dim),
            "v_new": randn(batch * new, heads, dim),
            **tables,
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
        f"{batch} x {new} tokens, pages of {page}{', ragged' if ragged else ''}, bf16",
        {"torch": peer},
        nbytes=8 * batch * new * heads * dim,
        target="0.90",
    )


for _sizes in ((64, 512, 16), (64, 512, 1), (8, 4096, 256), (64, 2048, 16), (64, 2048, 1), (8, 16384, 256)):
    case("attention.paged_kv_append")(partial(_append, *_sizes, False))
case("attention.paged_kv_append")(partial(_append, 64, 2048, 16, True))


def _decode(batch: int, length: int, page: int, fp8: bool, compiled: bool) -> Case:
    heads, kv_heads, dim = 64, 8, 128
    each = -(-length // page)
    plan = bc.BatchPagedDecodeFp8Plan if fp8 else bc.BatchPagedDecodePlan
    desc = plan.descriptor(
        batch_size=batch, num_heads=heads, num_kv_heads=kv_heads, num_pages=batch * each, page_size=page, d_k=dim,
        d_v=dim, max_pages=each, element="bfloat16", **({"aux_element": "float8_e4m3fn"} if fp8 else {}),
    )  # fmt: skip

    def cache() -> Any:
        made = randn(batch * each, kv_heads, page, dim)
        return made.to(torch.float8_e4m3fn) if fp8 else made

    table = torch.randperm(batch * each, device="cuda").reshape(batch, each).int()

    def arrays() -> Arrays:
        return {
            "q": randn(batch, heads, dim),
            "k_cache": cache(),
            "v_cache": cache(),
            "page_table": table,
            "lengths": torch.full((batch,), length, device="cuda", dtype=torch.int32),
            "y": empty(batch, heads, dim),
        }

    raw = torch.uint8 if fp8 else torch.bfloat16

    def peer(s: Arrays) -> Any:
        k, v = (s[n].view(raw)[table].view(s[n].dtype) for n in ("k_cache", "v_cache"))
        k, v = (x.to(s["q"].dtype).transpose(1, 2).flatten(2, 3)[:, :, :length] for x in (k, v))
        return F.scaled_dot_product_attention(s["q"][:, :, None], k, v, enable_gqa=True)[:, :, 0]

    return make(
        plan,
        desc,
        arrays,
        ["y"],
        f"{heads}/{kv_heads} heads, batch {batch}, context {length}, pages of {page} bf16{' e4m3' if fp8 else ''}",
        {"torch, gathered": peer},
        nbytes=(2 if fp8 else 4) * batch * kv_heads * length * dim,
        target="0.85",
    )


for _sizes in ((64, 8192, 16), (64, 4096, 16), (8, 32768, 16), (2, 131072, 16), (64, 8192, 1), (64, 8192, 64)):
    case("attention.batch_paged_decode")(partial(_decode, *_sizes, False))
for _sizes in ((64, 8192, 16), (64, 8192, 1), (8, 32768, 64)):
    case("attention.batch_paged_decode_fp8")(partial(_decode, *_sizes, True))
