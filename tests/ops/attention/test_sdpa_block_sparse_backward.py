"""sdpa_block_sparse_backward: differences of the forward, blocks not set, single gradients; on a GPU many tiles."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.ops.attention.dense.flash_sdpa_backward import flash_sdpa_backward
from baracuda_py.ops.attention.sparse.sdpa_block_sparse import sdpa_block_sparse
from baracuda_py.ops.attention.sparse.sdpa_block_sparse_backward import (
    SdpaBlockSparseBackwardDescriptor,
    SdpaBlockSparseBackwardPlan,
    sdpa_block_sparse_backward,
)
from baracuda_py.testing.draw import fill, stored
from baracuda_py.testing.gpu import wrong_plan

GRADS = ("dq", "dk", "dv")
BLOCKS = {"query_block": 3, "key_block": 4}


def problem(rng, queries=10, keys=13, heads=4, kv_heads=2, d_k=8, d_v=6, dtype=np.float64, density=0.5, **facts):
    """q, k, v, pattern, y, lse, dy of one problem with blocks of 3 x 4."""
    shapes = (2, heads, queries, d_k), (2, kv_heads, keys, d_k), (2, kv_heads, keys, d_v)
    q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    pattern = rng.random((2, heads, -(-queries // 3), -(-keys // 4))) < density
    y, lse = sdpa_block_sparse(q, k, v, pattern, return_lse=True, **BLOCKS, **facts)
    return q, k, v, pattern, y, lse, rng.standard_normal(y.shape).astype(dtype)


@pytest.mark.parametrize("facts", [{}, {"is_causal": True}, {"is_causal": True, "causal_alignment": "bottom_right"}])
def test_directional_differences(facts):
    rng = np.random.default_rng(0)
    q, k, v, pattern, y, lse, dy = problem(rng, **facts)
    grads = sdpa_block_sparse_backward(q, k, v, pattern, y, lse, dy, **BLOCKS, **facts)
    for n, x in enumerate((q, k, v)):
        way = rng.standard_normal(x.shape)
        ends = [
            sdpa_block_sparse(
                *(x + s * way if i == n else a for i, a in enumerate((q, k, v))), pattern, **BLOCKS, **facts
            )
            for s in (1e-6, -1e-6)
        ]
        np.testing.assert_allclose(
            (grads[n] * way).sum(), ((ends[0] - ends[1]) * dy).sum() / 2e-6, rtol=1e-6, atol=1e-8
        )


def test_every_block_set_is_dense():
    q, k, v, pattern, y, lse, dy = problem(np.random.default_rng(1), density=2)
    want = flash_sdpa_backward(q, k, v, y, lse, dy)
    for a, b in zip(sdpa_block_sparse_backward(q, k, v, pattern, y, lse, dy, **BLOCKS), want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_what_is_never_seen_has_no_gradient():
    q, k, v, pattern, _, _, dy = problem(np.random.default_rng(2))
    pattern[:, :, 1], pattern[..., 2] = False, False
    y, lse = sdpa_block_sparse(q, k, v, pattern, return_lse=True, **BLOCKS)
    dq, dk, dv = sdpa_block_sparse_backward(q, k, v, pattern, y, lse, dy, **BLOCKS)
    assert not dq[:, :, 3:6].any()
    assert not dk[:, :, 8:12].any()
    assert not dv[:, :, 8:12].any()
    assert dq[:, :, :3].any()
    assert dk[:, :, :8].any()


@pytest.mark.parametrize("only", GRADS)
def test_one_gradient_alone(only):
    arrays = problem(np.random.default_rng(3), is_causal=True)
    every = dict(zip(GRADS, sdpa_block_sparse_backward(*arrays, is_causal=True, **BLOCKS), strict=True))
    flags = {f"return_{name}": name == only for name in GRADS}
    np.testing.assert_array_equal(sdpa_block_sparse_backward(*arrays, is_causal=True, **BLOCKS, **flags), every[only])


def test_bshd_gradients_have_the_layout_of_their_inputs():
    q, k, v, pattern, y, lse, dy = problem(np.random.default_rng(4), dtype=np.float32)
    want = sdpa_block_sparse_backward(q, k, v, pattern, y, lse, dy, **BLOCKS)
    q, k, v, y, dy = (np.ascontiguousarray(a.swapaxes(1, 2)) for a in (q, k, v, y, dy))
    got = sdpa_block_sparse_backward(q, k, v, pattern, y, lse, dy, layout="bshd", **BLOCKS)
    for a, b, x in zip(got, want, (q, k, v), strict=True):
        assert a.shape == x.shape
        np.testing.assert_array_equal(a.swapaxes(1, 2), b)


# ---- on a GPU --------------------------------------------------------------------------------------------------------


def wrong(queries: int, keys: int, d: int, element: str, spread: float = 1.0, **facts: object) -> str | None:
    """What the plan gets wrong with random operands, or None; `spread` multiplies q, and with it the scores."""
    sizes = {"batch_size": 1, "num_heads": 2, "num_kv_heads": 1, "d_k": d, "d_v": d} | facts
    desc = SdpaBlockSparseBackwardDescriptor(query_len=queries, key_len=keys, element=element, **sizes)
    case = fill(SdpaBlockSparseBackwardPlan, desc, np.random.default_rng(queries))
    case.arrays["q"] = stored(case.arrays["q"].astype(np.float64) * spread, desc.element)
    SdpaBlockSparseBackwardPlan.complete(desc, case.arrays)
    return wrong_plan(case, [SdpaBlockSparseBackwardPlan.select(desc)])


@pytest.mark.gpu
@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("d", [32, 64, 96, 128, 192, 256])
@pytest.mark.parametrize("block", [64, 16])
def test_gpu_every_head_dim(element, d, block):
    facts = {"query_block": block, "key_block": block}
    assert wrong(131, 270, d, element, 10, **facts, is_causal=True, causal_alignment="bottom_right") is None
    assert wrong(270, 259, d, element, **facts) is None


@pytest.mark.gpu
@pytest.mark.parametrize("element", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    ("query_block", "key_block"), [(64, 128), (128, 64), (32, 64), (64, 32), (1, 1), (17, 23), (100, 1000), (256, 96)]
)
@pytest.mark.parametrize("causal", [False, True])
def test_gpu_blocks_of_any_size(element, query_block, key_block, causal):
    facts = {"query_block": query_block, "key_block": key_block, "is_causal": causal, "num_heads": 6, "num_kv_heads": 2}
    assert wrong(331, 297, 64, element, **facts) is None


@pytest.mark.gpu
@pytest.mark.parametrize("element", ["bfloat16", "float32"])
def test_gpu_more_tiles_than_a_warp_tests_at_once(element):
    assert wrong(100, 40 * 64 + 5, 32, element, num_heads=1) is None
    assert wrong(40 * 64 + 5, 100, 32, element) is None


@pytest.mark.gpu
@pytest.mark.parametrize(("d_k", "d_v"), [(17, 72), (80, 8), (200, 250)])
@pytest.mark.parametrize("element", ["float16", "float32"])
def test_gpu_unequal_and_odd_head_dims(element, d_k, d_v):
    facts = {"query_block": 32, "key_block": 64, "d_k": d_k, "d_v": d_v, "num_heads": 3, "scale": -0.3}
    assert wrong(150, 297, 0, element, **facts, is_causal=True) is None


@pytest.mark.gpu
@pytest.mark.parametrize("block", [64, 24])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_gpu_alignment_strides_batch_and_repetition_do_not_change_bits(d, block):
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(9)
    q, k, v, dy = (cupy.asarray(rng.standard_normal((3, h, 515, d)).astype("float16")) for h in (4, 2, 2, 4))
    blocks = -(-515 // block)
    pattern = cupy.asarray(rng.random((3, 4, blocks, blocks)) < 0.4)
    facts = {"query_block": block, "key_block": block, "is_causal": True}
    y, lse = sdpa_block_sparse(q, k, v, pattern, return_lse=True, **facts)
    arrays = [q, k, v, pattern, y, lse, dy]
    want = sdpa_block_sparse_backward(*arrays, **facts)

    def shifted(a):
        room = cupy.empty((a.shape[0], a.shape[2], a.shape[1], a.shape[3] + 1), a.dtype)[..., 1:].swapaxes(1, 2)
        room[...] = a
        return room

    out = tuple(shifted(cupy.zeros_like(x)) for x in want)
    sdpa_block_sparse_backward(*(a if n == 5 else shifted(a) for n, a in enumerate(arrays)), **facts, out=out)
    assert all((a == b).all() for a, b in zip(out, want, strict=True))
    for b in range(3):
        alone = sdpa_block_sparse_backward(*(a[b : b + 1] for a in arrays), **facts)
        assert all((a == w[b : b + 1]).all() for a, w in zip(alone, want, strict=True))
    for _ in range(20):
        assert all((a == b).all() for a, b in zip(sdpa_block_sparse_backward(*arrays, **facts), want, strict=True))
    for name, grad in zip(GRADS, want, strict=True):
        flags = {f"return_{other}": other == name for other in GRADS}
        assert (sdpa_block_sparse_backward(*arrays, **facts, **flags) == grad).all()
