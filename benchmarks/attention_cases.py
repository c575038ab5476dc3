"""Benchmarked problems of the paged caches."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from cases import Arrays, Case, case, empty, make, randn

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
