"""block_select_attention: as a pattern, orders and repeats of lists, blocks that do not exist, bits."""

from __future__ import annotations

import numpy as np
import pytest
from attention_rows import MMA, rounded, run

from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.sparse.block_select_attention import (
    BlockSelectAttentionDescriptor, BlockSelectAttentionPlan, block_select_attention,
)  # fmt: skip
from baracuda_py.ops.attention.sparse.block_select_attention_backward import (
    BlockSelectAttentionBackwardDescriptor, BlockSelectAttentionBackwardPlan, block_select_attention_backward,
)  # fmt: skip
from baracuda_py.ops.attention.sparse.sdpa_block_sparse import sdpa_block_sparse
from baracuda_py.ops.attention.sparse.sdpa_block_sparse_backward import sdpa_block_sparse_backward
from baracuda_py.schedules.attention.sparse import selected

GRADS = ("dq", "dk", "dv")


def problem(rng, heads=4, kv_heads=2, queries=10, keys=13, n=3, size=4, dtype=np.float64):
    """q, k, v and lists with repeats and numbers of no block."""
    shapes = (2, heads, queries, 8), (2, kv_heads, keys, 8), (2, kv_heads, keys, 6)
    q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    return q, k, v, rng.integers(-1, -(-keys // size) + 1, (2, kv_heads, queries, n)).astype(np.int32)


def as_pattern(blocks, group, count):
    """The lists as a pattern of `sdpa_block_sparse` with one query a block."""
    return (blocks[..., None] == np.arange(count)).any(-2).repeat(group, 1)


@pytest.mark.parametrize("facts", [{}, {"is_causal": True}, {"is_causal": True, "causal_alignment": "bottom_right"}])
@pytest.mark.parametrize("size", [1, 4, 5, 64])
def test_as_a_pattern(facts, size):
    q, k, v, blocks = problem(np.random.default_rng(size), size=size)
    pattern, sizes = as_pattern(blocks, 2, -(-13 // size)), {"query_block": 1, "key_block": size}
    want = sdpa_block_sparse(q, k, v, pattern, return_lse=True, **sizes, **facts)
    got = block_select_attention(q, k, v, blocks, block_size=size, return_lse=True, **facts)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    dy = np.random.default_rng(0).standard_normal(want[0].shape)
    grads = block_select_attention_backward(q, k, v, blocks, *got, dy, block_size=size, **facts)
    for a, b in zip(grads, sdpa_block_sparse_backward(q, k, v, pattern, *want, dy, **sizes, **facts), strict=True):
        np.testing.assert_array_equal(a, b)


def test_directional_differences():
    rng = np.random.default_rng(0)
    q, k, v, blocks = problem(rng)
    facts = {"block_size": 4, "is_causal": True}
    y, lse = block_select_attention(q, k, v, blocks, return_lse=True, **facts)
    dy = rng.standard_normal(y.shape)
    grads = block_select_attention_backward(q, k, v, blocks, y, lse, dy, **facts)
    for n, x in enumerate((q, k, v)):
        way = rng.standard_normal(x.shape)
        ends = [
            block_select_attention(*(x + s * way if i == n else a for i, a in enumerate((q, k, v))), blocks, **facts)
            for s in (1e-6, -1e-6)
        ]
        want = ((ends[0] - ends[1]) * dy).sum() / 2e-6
        np.testing.assert_allclose((grads[n] * way).sum(), want, rtol=1e-6, atol=1e-8)


def test_bshd_exchanges_the_axes_of_lists_too():
    q, k, v, blocks = problem(np.random.default_rng(1))
    want = block_select_attention(q, k, v, blocks, block_size=4)
    turned = (np.ascontiguousarray(a.swapaxes(1, 2)) for a in (q, k, v, blocks))
    got = block_select_attention(*turned, block_size=4, layout="bshd")
    np.testing.assert_array_equal(got.swapaxes(1, 2), want)


def test_no_lists_and_no_blocks_give_zeros():
    q, k, v, blocks = problem(np.random.default_rng(2))
    for none in (blocks[..., :0], np.full_like(blocks, -1), np.full_like(blocks, 2**31 - 1)):
        y, lse = block_select_attention(q, k, v, none, block_size=4, return_lse=True)
        assert not y.any()
        assert (lse == -np.inf).all()


def test_what_does_not_fit_is_refused():
    q, k, v, blocks = problem(np.random.default_rng(3))
    for wrong in (blocks[:, :1], blocks[:, :, :9], blocks.astype(np.float32), blocks[0]):
        with pytest.raises(InvalidProblemError):
            block_select_attention(q, k, v, wrong, block_size=4)
    with pytest.raises(InvalidProblemError):
        block_select_attention(q, k, v, blocks, block_size=0)


SIZES = {"batch_size": 1, "num_heads": 4, "num_kv_heads": 2, "query_len": 41, "key_len": 70, "d_k": 64, "d_v": 40}


def on_rows(element, blocks, spread=1.0, seed=4, block_size=16, **facts):
    """y, lse and the gradients that the emulated kernels and NumPy give for operands of 16 bits or float32."""
    rng = np.random.default_rng(seed)
    sizes = SIZES | {"selected": blocks.shape[-1], "block_size": block_size, "element": element} | facts
    shapes = [(1, 4, 41, 64), (1, 2, 70, 64), (1, 2, 70, 40), (1, 4, 41, 40)]
    q, k, v, dy = rounded(element, *(rng.standard_normal(shape) for shape in shapes))
    arrays = {"q": rounded(element, q * spread)[0], "k": k, "v": v, "block_indices": blocks}
    desc = BlockSelectAttentionDescriptor(**sizes)
    got = run("emulator", BlockSelectAttentionPlan, desc, arrays, {"y", "lse"}, MMA)
    wide = {n: x.astype(np.float64) for n, x in arrays.items()} | {"block_indices": blocks}
    want = dict(BlockSelectAttentionPlan.reference(desc, **wide, wanted={"y", "lse"}))
    saved = {"y": rounded(element, want["y"])[0], "lse": want["lse"].astype(np.float32), "dy": dy}
    desc = BlockSelectAttentionBackwardDescriptor(**sizes)
    got |= run("emulator", BlockSelectAttentionBackwardPlan, desc, arrays | saved, set(GRADS), MMA)
    wide |= {n: x.astype(np.float64) for n, x in saved.items()}
    want |= BlockSelectAttentionBackwardPlan.reference(desc, **wide, wanted=set(GRADS))
    return got, want


def close(got, want, tolerance):
    """All results, relative to the largest of each."""
    for name, x in want.items():
        np.testing.assert_allclose(got[name], x, rtol=0, atol=tolerance * np.abs(x[np.isfinite(x)]).max(), err_msg=name)


@pytest.mark.parametrize("element", ["float16", "float32"])
def test_bits_do_not_depend_on_the_order_of_lists(element):
    blocks = np.random.default_rng(4).integers(-1, 6, (1, 2, 41, 6))
    turned = np.concatenate([blocks[..., ::-1], blocks[..., 2:5]], -1)
    first, second = (on_rows(element, lists, is_causal=True)[0] for lists in (blocks, turned))
    for name, x in first.items():
        np.testing.assert_array_equal(second[name], x)


@pytest.mark.parametrize("element", ["bfloat16", "float32"])
@pytest.mark.parametrize("causal", [False, True])
def test_a_block_that_all_queries_choose_is_worked_on_in_parts(element, causal):
    blocks = np.zeros((1, 2, 41, 1), np.int64)
    assert blocks.size // 2 > selected.part_of(41, 1, 18, 2)
    got, want = on_rows(element, blocks, block_size=4, is_causal=causal)
    close(got, want, 2e-2 if element == "bfloat16" else 1e-5)


@pytest.mark.parametrize("element", ["float16", "float32"])
def test_huge_scores(element):
    blocks = np.random.default_rng(4).integers(0, 5, (1, 2, 41, 3))
    got, want = on_rows(element, blocks, spread=1000.0 if element == "float16" else 30.0)
    close(got, want, 4e-3 if element == "float16" else 1e-3)


@pytest.mark.parametrize(("block_size", "keys"), [(64, 64), (128, 64), (48, 16), (32, 32), (16, 16), (5, 16), (24, 32)])
def test_tiles_follow_the_block_size(block_size, keys):
    assert selected.tile_keys(block_size, 128) == keys
    assert selected.tile_keys(block_size, 256) == min(keys, 32)
