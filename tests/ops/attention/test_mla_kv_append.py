"""mla_kv_append: what rms_norm, rope and paged_kv_append do one after the other; what mla_decode then reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from call_emulated import call

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.mla.mla_kv_append import MlaKvAppendDescriptor, MlaKvAppendPlan, mla_kv_append
from baracuda_py.ops.attention.rope.rope import RopeDescriptor, RopePlan

OFFSETS = np.array([3, 0, 9])
BOUNDS = np.array([0, 4, 4, 6])  # of seven tokens: the last is padding


def make(seed: int, page: int, d_latent: int = 12, d_rope: int = 6) -> Any:
    """Tokens, an empty cache of sequences of 16 tokens, and its table."""
    rng = np.random.default_rng(seed)
    each = -(-16 // page)
    cache = rng.standard_normal((3 * each + 2, page, d_latent + d_rope))
    table = rng.permutation(len(cache))[: 3 * each].reshape(3, each)
    return rng.standard_normal((7, d_latent)), rng.standard_normal((7, d_rope)), cache, table


def places() -> list[tuple[int, int, int]]:
    """(token, sequence, position) of each token that has a place."""
    return [(t, b, OFFSETS[b] + t - BOUNDS[b]) for b in range(3) for t in range(BOUNDS[b], BOUNDS[b + 1])]


@pytest.mark.parametrize("page", [1, 3, 16])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_is_norm_and_rope_and_scatter(page: int, pairing: str) -> None:
    latent, k_rope, cache, table = make(0, page)
    weight, want, got = np.linspace(0.5, 2, 12), cache.copy(), cache.copy()
    x = latent / np.sqrt((latent**2).mean(-1, keepdims=True) + 1e-6) * weight
    for t, b, place in places():
        angle = place * 10000.0 ** (-np.arange(0, 6, 2) / 6)
        first, second = (slice(0, 3), slice(3, 6)) if pairing == "half" else (slice(0, 6, 2), slice(1, 6, 2))
        cell, row = want[table[b, place // page], place % page], k_rope[t]
        cell[:12] = x[t]
        cell[12:][first] = row[first] * np.cos(angle) - row[second] * np.sin(angle)
        cell[12:][second] = row[second] * np.cos(angle) + row[first] * np.sin(angle)
    tables = {"page_table": table, "cache_offsets": OFFSETS, "token_indptr": BOUNDS}
    mla_kv_append(latent, k_rope, got, weight=weight, **tables, pairing=pairing)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


def test_positions_and_copies() -> None:
    latent, k_rope, cache, table = make(1, 4)
    tables = {"page_table": table, "cache_offsets": OFFSETS, "token_indptr": BOUNDS}
    mla_kv_append(latent, k_rope, cache=cache, **tables, positions=np.zeros(7, int), scale=2.0)
    for t, b, place in places():
        cell = cache[table[b, place // 4], place % 4]
        np.testing.assert_array_equal(cell, np.concatenate([latent[t], 2 * k_rope[t]]))


def test_tokens_without_a_place_are_skipped() -> None:
    latent, k_rope, cache, table = make(2, 4)
    before = cache.copy()
    bad = np.full_like(table, len(cache))
    mla_kv_append(latent, k_rope, cache=cache, page_table=bad, cache_offsets=OFFSETS, token_indptr=BOUNDS)
    mla_kv_append(latent, k_rope, cache=cache, page_table=table, cache_offsets=OFFSETS - 99, token_indptr=BOUNDS)
    np.testing.assert_array_equal(cache, before)


def test_what_is_refused() -> None:
    latent, k_rope, cache, table = make(3, 4)
    with pytest.raises(InvalidProblemError, match="latent has 7 for batch_size 3"):
        mla_kv_append(latent, k_rope, cache=cache, page_table=table, cache_offsets=OFFSETS)
    with pytest.raises(InvalidProblemError, match="d_rope must be even"):
        mla_kv_append(
            latent, k_rope[:, :5], cache=cache[..., :17], page_table=table, cache_offsets=OFFSETS, token_indptr=BOUNDS
        )
    with pytest.raises(InvalidProblemError, match="give page_table"):
        mla_kv_append(latent, k_rope, cache=cache, cache_offsets=OFFSETS, token_indptr=BOUNDS)


def test_decoding_reads_what_was_appended() -> None:
    rng = np.random.default_rng(4)
    latent, k_rope = rng.standard_normal((2, 5, 8)), rng.standard_normal((2, 5, 4))
    cache, table, q = np.full((6, 2, 12), np.nan), np.arange(6).reshape(2, 3), rng.standard_normal((2, 1, 3, 12))
    for start, end in ((0, 3), (3, 5)):  # a prompt in two chunks
        new = (x[:, start:end].reshape(-1, x.shape[-1]) for x in (latent, k_rope))
        mla_kv_append(*new, cache=cache, page_table=table, cache_offsets=np.full(2, start))
    y = bc.mla_decode(q, cache, page_table=table, lengths=np.full(2, 5), scale=0.4, d_rope=4)
    keys = np.concatenate([latent, bc.rope(k_rope[:, None])[:, 0]], -1)[:, None]
    want = bc.flash_decoding(q[:, 0], keys, keys[..., :8], np.full(2, 5), scale=0.4)
    np.testing.assert_allclose(y[:, 0], want, rtol=1e-12)


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_the_kernel_rotates_with_the_bits_of_rope(pairing: str) -> None:
    latent, k_rope, cache, table = (x.astype(np.float16) for x in make(5, 4, 512, 64))
    desc = MlaKvAppendDescriptor(
        batch_size=3, num_tokens=7, num_pages=len(cache), page_size=4, d_latent=512, d_rope=64, pairing=pairing,
        element="float16", max_pages=table.shape[1],
    )  # fmt: skip
    tables = {"page_table": table, "cache_offsets": OFFSETS, "token_indptr": BOUNDS}
    given = {name: x.astype(np.int32) for name, x in tables.items()}
    call(MlaKvAppendPlan, desc, {"cache": cache}, latent=latent, k_rope=k_rope, **given)
    where = np.zeros(7, np.int32)
    for t, _, place in places():
        where[t] = place
    turned = np.zeros((1, 1, 7, 64), np.float16)
    rope = RopeDescriptor(batch_size=1, num_heads=1, seq_len=7, head_dim=64, pairing=pairing, element="float16")
    call(RopePlan, rope, {"y": turned}, x=k_rope[None, None], positions=where)
    for t, b, place in places():
        cell = cache[int(table[b, place // 4]), place % 4]
        np.testing.assert_array_equal(cell, np.concatenate([latent[t], turned[0, 0, t]]))
