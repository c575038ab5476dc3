"""sdpa_block_sparse: against the mask written out, blocks of any size, shared patterns, rows that see nothing."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.dense.flash_sdpa import flash_sdpa
from baracuda_py.ops.attention.sparse.sdpa_block_sparse_backward import SdpaBlockSparseBackwardPlan
from baracuda_py.ops.attention.sparse.sdpa_block_sparse import (
    SdpaBlockSparseDescriptor,
    SdpaBlockSparsePlan,
    sdpa_block_sparse,
)


def make(rng, batch=2, heads=4, kv_heads=2, queries=10, keys=13, d_k=8, d_v=6, dtype=np.float64):
    """Random q, k, v."""
    shapes = (batch, heads, queries, d_k), (batch, kv_heads, keys, d_k), (batch, kv_heads, keys, d_v)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def grid(rng, shape, queries, keys, query_block, key_block):
    """A random pattern, half of it set."""
    return rng.random((*shape, -(-queries // query_block), -(-keys // key_block))) < 0.5


def one_by_one(q, k, v, scale, sees):
    """Attention row by row; `sees(b, h, i)` is the list of keys."""
    y = np.zeros((*q.shape[:3], v.shape[3]))
    lse = np.full(q.shape[:3], -np.inf)
    group = q.shape[1] // k.shape[1]
    for b, h, i in np.ndindex(q.shape[:3]):
        if keys := sees(b, h, i):
            weights = np.exp(scale * (k[b, h // group, keys] @ q[b, h, i]))
            y[b, h, i] = weights @ v[b, h // group, keys] / weights.sum()
            lse[b, h, i] = np.log(weights.sum())
    return y, lse


@pytest.mark.parametrize("causal", [None, "top_left", "bottom_right"])
@pytest.mark.parametrize(("query_block", "key_block"), [(4, 4), (1, 1), (3, 5), (64, 2), (10, 13)])
@pytest.mark.parametrize("shape", [(2, 4), (1, 4), (2, 1), (1, 1), ()])
def test_row_by_row(causal, query_block, key_block, shape):
    rng = np.random.default_rng(query_block)
    q, k, v = make(rng)
    pattern = grid(rng, shape, 10, 13, query_block, key_block)
    full = np.broadcast_to(pattern, (2, 4, *pattern.shape[-2:]))
    shift = {"top_left": 0, "bottom_right": 3, None: 13}[causal]

    def sees(b, h, i):
        return [j for j in range(min(13, i + shift + 1)) if full[b, h, i // query_block, j // key_block]]

    want, want_lse = one_by_one(q, k, v, 0.4, sees)
    y, lse = sdpa_block_sparse(
        q, k, v, pattern, query_block=query_block, key_block=key_block, scale=0.4, is_causal=causal is not None,
        causal_alignment=causal or "top_left", return_lse=True,
    )  # fmt: skip
    np.testing.assert_allclose(y, want, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(lse, want_lse, rtol=1e-13)


@pytest.mark.parametrize("facts", [{}, {"is_causal": True}, {"is_causal": True, "causal_alignment": "bottom_right"}])
def test_every_block_set_is_dense(facts):
    q, k, v = make(np.random.default_rng(0))
    pattern = np.full((1, 1, 5, 4), 7, np.uint8)  # any byte but 0
    want = flash_sdpa(q, k, v, return_lse=True, **facts)
    got = sdpa_block_sparse(q, k, v, pattern, query_block=2, key_block=4, return_lse=True, **facts)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_stands_in_blocks_not_set_adds_nothing():
    rng = np.random.default_rng(1)
    q, k, v = make(rng)
    pattern = grid(rng, (), 10, 13, 2, 3)
    pattern[:, 1] = False
    want = sdpa_block_sparse(q, k, v, pattern, query_block=2, key_block=3)
    k[:, :, 3:6], v[:, :, 3:6] = np.nan, np.inf
    np.testing.assert_array_equal(sdpa_block_sparse(q, k, v, pattern, query_block=2, key_block=3), want)


def test_nothing_set_gives_zeros_and_minus_infinity():
    q, k, v = make(np.random.default_rng(2))
    y, lse = sdpa_block_sparse(q, k, v, np.zeros((1, 1, 1, 1), bool), return_lse=True)
    assert not y.any()
    assert np.isneginf(lse).all()


def test_bshd_is_the_same_memory_order_for_outputs():
    rng = np.random.default_rng(3)
    q, k, v = make(rng, dtype=np.float32)
    pattern = grid(rng, (2, 4), 10, 13, 4, 4)
    want, want_lse = sdpa_block_sparse(q, k, v, pattern, query_block=4, key_block=4, return_lse=True)
    swapped = [np.ascontiguousarray(a.swapaxes(1, 2)) for a in (q, k, v)]
    y, lse = sdpa_block_sparse(*swapped, pattern, query_block=4, key_block=4, return_lse=True, layout="bshd")
    assert y.flags.c_contiguous
    np.testing.assert_array_equal(y.swapaxes(1, 2), want)
    np.testing.assert_array_equal(lse, want_lse)


def test_the_pattern_must_fit_the_blocks():
    q, k, v = make(np.random.default_rng(4))
    with pytest.raises(InvalidProblemError, match="pattern"):
        sdpa_block_sparse(q, k, v, np.ones((2, 4, 3, 3), bool), query_block=4, key_block=4)
    with pytest.raises(InvalidProblemError, match="query_block"):
        sdpa_block_sparse(q, k, v, np.ones((2, 4, 3, 3), bool), query_block=0)


@pytest.mark.parametrize(
    ("query_block", "key_block", "d", "kernel"),
    [
        (64, 64, 128, "whole_128"), (128, 64, 256, "whole_256"), (256, 128, 40, "whole_64"),
        (1000, 1000, 64, "whole_64"), (32, 64, 64, "warps_64"), (16, 32, 128, "warps_128"),
        (64, 96, 64, "warps_64"), (16, 16, 64, "cut_64"), (7, 5, 200, "cut_256"),
    ],
)  # fmt: skip
def test_the_kernel_that_blocks_take(query_block, key_block, d, kernel):
    desc = SdpaBlockSparseDescriptor(
        batch_size=1, num_heads=1, query_len=700, key_len=800, d_k=d, d_v=d, query_block=query_block,
        key_block=key_block, element="bfloat16",
    )  # fmt: skip
    plan = SdpaBlockSparsePlan.select(desc, device=fake_device(8.6))
    (step,) = plan.rows[0].geometry(plan._dense).steps
    assert step.kernel == kernel


@pytest.mark.parametrize("plan", [SdpaBlockSparsePlan, SdpaBlockSparseBackwardPlan])
@pytest.mark.parametrize("element", ["float32", "float64", "float16", "bfloat16"])
def test_every_head_dim_fits_small_shared_memory(plan, element):
    for d in (1, 32, 64, 96, 128, 192, 256):
        for block in (128, 64, 16):
            desc = plan.descriptor(
                batch_size=1, num_heads=1, query_len=700, key_len=700, d_k=d, d_v=257 - d, query_block=block,
                key_block=block, element=element,
            )  # fmt: skip
            assert plan.select(desc, device=fake_device(8.6)).sku.backend.value == "bespoke"
