"""Benchmarked problems of positions and of the paged caches."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from cases import BF16, Arrays, Case, case, empty, make, optional, randn

import baracuda_py as bc

_SCORES = (2, 16, 2048, 2048)


def _distances() -> torch.Tensor:
    place = torch.arange(_SCORES[2], device="cuda")
    return (place[None, :] - place[:, None]).float()


def _scores(descriptor: type[bc.Descriptor]) -> bc.Descriptor:
    batch, heads, queries, keys = _SCORES
    return descriptor(batch_size=batch, num_heads=heads, query_len=queries, key_len=keys, element="bfloat16")


@case("attention.alibi")
def alibi(compiled: bool) -> Case:
    distances, slopes = _distances(), torch.from_numpy(bc.alibi_slopes(_SCORES[1])).cuda()

    def peer(s: Arrays) -> Any:
        return (s["scores"] + s["slopes"][:, None, None] * distances).to(BF16)

    return make(
        bc.AlibiPlan,
        _scores(bc.AlibiDescriptor),
        lambda: {"scores": randn(*_SCORES), "slopes": slopes, "y": empty(*_SCORES)},
        ["y"],
        "[2, 16, 2048, 2048] bf16",
        {"torch": peer},
        compiled=optional(compiled, peer),
        target="0.90",
    )


def _alibi_backward(both: bool, compiled: bool) -> Case:
    distances = _distances()

    def arrays() -> Arrays:
        made = {"dy": randn(*_SCORES), "dslopes": empty(_SCORES[1], dtype=torch.float32)}
        return {**made, "dscores": empty(*_SCORES)} if both else made

    def peer(s: Arrays) -> Any:
        dslopes = (s["dy"] * distances).sum((0, 2, 3))
        return (dslopes, s["dy"].clone()) if both else dslopes

    return make(
        bc.AlibiBackwardPlan,
        _scores(bc.AlibiBackwardDescriptor),
        arrays,
        ["dslopes", "dscores"] if both else ["dslopes"],
        f"{'dscores, dslopes' if both else 'dslopes'} of [2, 16, 2048, 2048] bf16",
        {"torch": peer},
        compiled=optional(compiled, peer),
        target="0.90",
    )


case("attention.alibi_backward")(partial(_alibi_backward, False))
case("attention.alibi_backward")(partial(_alibi_backward, True))


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
