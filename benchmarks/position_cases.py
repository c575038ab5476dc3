"""Benchmarked problems of positions: ALiBi, RoPE into a cache."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from cases import BF16, Arrays, Case, case, empty, make, optional, randn

import baracuda_py as bc

_SCORES = (4, 16, 2048, 2048)


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
        "[4, 16, 2048, 2048] bf16",
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
        f"{'dscores, dslopes' if both else 'dslopes'} of [4, 16, 2048, 2048] bf16",
        {"torch": peer},
        compiled=optional(compiled, peer),
        target="0.90",
    )


case("attention.alibi_backward")(partial(_alibi_backward, False))
case("attention.alibi_backward")(partial(_alibi_backward, True))


def _rope_kv_append(batch: int, new: int, heads: int, kv_heads: int, length: int, compiled: bool) -> Case:
    """Queries and keys as they come out of one projection; rows `before` … of the caches."""
    dim, before = 128, 100
    desc = bc.RopeKvAppendDescriptor(
        batch_size=batch, num_heads=heads, num_kv_heads=kv_heads, new_len=new, max_cache_len=length, d_k=dim, d_v=dim,
        element="bfloat16",
    )  # fmt: skip
    place = torch.arange(before, before + new, device="cuda")
    angles = torch.outer(place, 10000.0 ** (-torch.arange(0, dim, 2, device="cuda") / dim))
    cos, sin = angles.cos().to(BF16), angles.sin().to(BF16)

    def arrays() -> Arrays:
        packed = randn(batch, new, heads + 2 * kv_heads, dim).transpose(1, 2)
        return {
            "q": packed[:, :heads],
            "k_new": packed[:, heads : heads + kv_heads],
            "v_new": packed[:, heads + kv_heads :],
            "cache_offsets": torch.full((batch,), before, device="cuda"),
            "k_cache": empty(batch, kv_heads, length, dim),
            "v_cache": empty(batch, kv_heads, length, dim),
            "y": empty(batch, heads, new, dim),
        }

    def turn(x: Any) -> Any:
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def peer(s: Arrays) -> Any:
        s["k_cache"][:, :, before : before + new] = turn(s["k_new"])
        s["v_cache"][:, :, before : before + new] = s["v_new"]
        return turn(s["q"])

    return make(
        bc.RopeKvAppendPlan,
        desc,
        arrays,
        ["y"],
        f"{batch} x {new} tokens, {heads}/{kv_heads} heads, bf16",
        {"torch": peer},
        compiled=optional(compiled, peer),
        nbytes=4 * batch * new * (heads + 2 * kv_heads) * dim,
        target="0.90",
    )


case("attention.rope_kv_append")(partial(_rope_kv_append, 8, 4096, 32, 8, 4224))
case("attention.rope_kv_append")(partial(_rope_kv_append, 256, 1, 32, 8, 512))
