"""block_importance: what weights give to blocks in all, forced and later blocks, layouts; kernels over many tiles."""

from __future__ import annotations

import numpy as np
import pytest
from attention_rows import MMA, rounded, run

from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.dense.flash_sdpa import flash_sdpa
from baracuda_py.ops.attention.sparse.block_importance import (
    BlockImportanceDescriptor, BlockImportancePlan, block_importance,
)  # fmt: skip

FREE = {"block_size": 8, "compress_size": 4, "compress_stride": 2, "initial": 0, "local": 0}


def problem(rng, queries=40, compressed=19, heads=6, kv_heads=2, d=8):
    """q, compressed k, and the lse of what each query sees."""
    q, k = rng.standard_normal((2, heads, queries, d)), rng.standard_normal((2, kv_heads, compressed, d))
    return q, k, flash_sdpa(q, k, k, mask="k * 2 + 4 <= q + 1", return_lse=True)[1]


def test_weights_of_a_query_are_shared_out_among_blocks():
    q, k, lse = problem(np.random.default_rng(0))
    made = block_importance(q, k, lse, **FREE)
    assert made.shape == (2, 2, 40, 5)
    total = np.where(made == -np.inf, 0, made).sum(-1)
    np.testing.assert_allclose(total[:, :, 3:], 3 * 2, rtol=1e-12)  # three heads, two strides a compressed key
    assert not total[:, :, :3].any()  # these see no compressed key


def test_blocks_that_are_forced_and_blocks_behind_the_query():
    q, k, lse = problem(np.random.default_rng(1))
    made = block_importance(q, k, lse, **FREE | {"initial": 1, "local": 2})
    own = np.arange(40)[:, None] // 8
    blocks = np.arange(5)
    np.testing.assert_array_equal(made == -np.inf, np.broadcast_to(blocks > own, made.shape))
    forced = ((blocks == 0) | (blocks > own - 2)) & (blocks <= own)
    np.testing.assert_array_equal(made == np.inf, np.broadcast_to(forced, made.shape))


def test_queries_that_are_the_last_of_the_tokens_and_bshd():
    q, k, lse = problem(np.random.default_rng(2))
    want = block_importance(q, k, lse, **FREE)
    last = block_importance(q[:, :, -7:], k, np.ascontiguousarray(lse[:, :, -7:]), tokens=40, **FREE)
    np.testing.assert_allclose(last, want[:, :, -7:], rtol=1e-12)
    turned = block_importance(q.swapaxes(1, 2), k.swapaxes(1, 2), lse, layout="bshd", **FREE)
    np.testing.assert_array_equal(turned.swapaxes(1, 2), want)


def test_what_does_not_fit_is_refused():
    q, k, lse = problem(np.random.default_rng(3))
    for wrong in ({"block_size": 0}, {"compress_stride": 0}, {"initial": -1}, {"tokens": -1}):
        with pytest.raises(InvalidProblemError):
            block_importance(q, k, lse, **FREE | wrong)
    with pytest.raises(InvalidProblemError):
        block_importance(q, k[:, :1].repeat(4, 1), lse, **FREE)


@pytest.mark.parametrize("element", ["float16", "float32"])
@pytest.mark.parametrize("group", [1, 18])
def test_kernels_over_several_tiles_of_keys_and_heads(element, group):
    rng = np.random.default_rng(4)
    q, k = rounded(element, rng.standard_normal((1, group, 9, 64)), rng.standard_normal((1, 1, 150, 64)))
    facts = {"num_heads": group, "num_kv_heads": 1, "query_len": 9, "key_len": 150, "d_k": 64, "tokens": 2500}
    desc = BlockImportanceDescriptor(batch_size=1, **facts, element=element)
    arrays = {"q": q.astype(np.float64), "k": k.astype(np.float64)}
    BlockImportancePlan.complete(desc, arrays)
    got = run("emulator", BlockImportancePlan, desc, {"q": q, "k": k, "lse": arrays["lse"]}, {"importance"}, MMA)
    lse = arrays["lse"].astype(np.float64)
    want = BlockImportancePlan.reference(desc, **arrays | {"lse": lse})["importance"]
    np.testing.assert_allclose(got["importance"], want, rtol=1e-4 if element == "float32" else 2e-3, atol=1e-6)
