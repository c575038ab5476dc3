"""sdpa_block_sparse on a GPU: blocks round the tiles, every head_dim, values that are not finite, bits."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.ops.attention.dense.flash_sdpa import flash_sdpa
from baracuda_py.ops.attention.sparse.sdpa_block_sparse import (
    SdpaBlockSparseArgs,
    SdpaBlockSparseDescriptor,
    SdpaBlockSparsePlan,
    sdpa_block_sparse,
)
from baracuda_py.testing.draw import fill, stored
from baracuda_py.testing.gpu import wrong_plan

pytestmark = pytest.mark.gpu
HALVES = ("float16", "bfloat16")
ELEMENTS = (*HALVES, "float32", "float64")


def wrong(queries: int, keys: int, d: int, element: str, spread: float = 1.0, **facts: object) -> str | None:
    """What the plan gets wrong with random operands, or None; `spread` multiplies q, and with it the scores."""
    sizes = {"batch_size": 1, "num_heads": 2, "num_kv_heads": 1, "d_k": d, "d_v": d} | facts
    desc = SdpaBlockSparseDescriptor(query_len=queries, key_len=keys, element=element, **sizes)
    case = fill(SdpaBlockSparsePlan, desc, np.random.default_rng(queries))
    case.arrays["q"] = stored(case.arrays["q"].astype(np.float64) * spread, desc.element)
    return wrong_plan(case, [SdpaBlockSparsePlan.select(desc)])


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("d", [32, 64, 96, 128, 192, 256])
@pytest.mark.parametrize("block", [64, 16])
def test_every_head_dim(element: str, d: int, block: int) -> None:
    facts = {"query_block": block, "key_block": block}
    assert wrong(131, 470, d, element, 10, **facts, is_causal=True, causal_alignment="bottom_right") is None
    assert wrong(270, 259, d, element, **facts) is None


@pytest.mark.parametrize("element", ["bfloat16", "float32"])
@pytest.mark.parametrize(
    ("query_block", "key_block"), [(64, 128), (128, 64), (32, 64), (64, 32), (1, 1), (17, 23), (100, 1000), (256, 96)]
)
@pytest.mark.parametrize("causal", [False, True])
def test_blocks_of_any_size(element: str, query_block: int, key_block: int, causal: bool) -> None:
    facts = {"query_block": query_block, "key_block": key_block, "is_causal": causal, "batch_size": 2}
    assert wrong(331, 397, 64, element, 10, **facts) is None


@pytest.mark.parametrize("element", ["bfloat16", "float32"])
def test_more_tiles_than_a_warp_tests_at_once(element: str) -> None:
    assert wrong(200, 70 * 64 + 5, 32, element, num_heads=1, num_kv_heads=1) is None


@pytest.mark.parametrize("block", [64, 16, 10])
@pytest.mark.parametrize("element", ["float16", "float32"])
def test_values_of_blocks_not_set_add_nothing(element: str, block: int) -> None:
    import cupy

    length, d = 300, 64
    rng = np.random.default_rng(3)
    q, k, v = (cupy.asarray(rng.standard_normal((1, 2, length, d)).astype(element)) for _ in range(3))
    v[0, 0, 77, 5], v[0, 0, 201, 6], v[0, 1, 255, 7] = np.inf, np.nan, -np.inf
    blocks = -(-length // block)
    for causal in (False, True):
        pattern = rng.random((1, 2, blocks, blocks)) < 0.5
        facts = {
            "batch_size": 1, "num_heads": 2, "query_len": length, "key_len": length, "d_k": d, "d_v": d,
            "query_block": block, "key_block": block, "is_causal": causal, "element": element,
        }  # fmt: skip
        desc = SdpaBlockSparseDescriptor(**facts)
        host = {"q": q.get(), "k": k.get(), "v": v.get()}
        want = SdpaBlockSparsePlan.reference(desc, **host, pattern=pattern, wanted={"y"})["y"]
        y = cupy.empty_like(q)
        SdpaBlockSparsePlan.select(desc).run(SdpaBlockSparseArgs(q=q, k=k, v=v, pattern=cupy.asarray(pattern), y=y))
        np.testing.assert_array_equal(np.isfinite(y.get()), np.isfinite(want))
        np.testing.assert_array_equal(np.isnan(y.get()), np.isnan(want))


@pytest.mark.parametrize("element", ELEMENTS)
def test_every_block_set_is_dense_and_none_zero(element: str) -> None:
    import cupy

    rng = np.random.default_rng(4)
    q, k, v = (cupy.asarray(rng.standard_normal((2, 3, 515, 64)).astype(element)) for _ in range(3))
    want, want_lse = flash_sdpa(q, k, v, is_causal=True, return_lse=True)
    every = cupy.ones((1, 1, 9, 9), bool)
    y, lse = sdpa_block_sparse(q, k, v, every, is_causal=True, return_lse=True)
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5, "float64": 1e-13}[element]
    cupy.testing.assert_allclose(y.astype("f8"), want.astype("f8"), rtol=tolerance, atol=tolerance)
    cupy.testing.assert_allclose(lse, want_lse, rtol=1e-5)
    y, lse = sdpa_block_sparse(q, k, v, ~every, return_lse=True)
    assert not y.any()
    assert (lse == -np.inf).all()


@pytest.mark.parametrize("element", ["float16", "float32"])
@pytest.mark.parametrize(("block", "d"), [(64, 64), (128, 128), (24, 96)])
def test_alignment_strides_batch_and_repetition_do_not_change_bits(element: str, block: int, d: int) -> None:
    import cupy

    rng = np.random.default_rng(9)
    q, k, v = (cupy.asarray(rng.standard_normal((3, 4, 515, d)).astype(element)) for _ in range(3))
    blocks = -(-515 // block)
    pattern = cupy.asarray(rng.random((3, 4, blocks, blocks)) < 0.4)
    facts = {"query_block": block, "key_block": block, "is_causal": True}
    want = sdpa_block_sparse(q, k, v, pattern, **facts)

    def shifted(a: cupy.ndarray) -> cupy.ndarray:
        room = cupy.empty((a.shape[0], a.shape[2], a.shape[1], a.shape[3] + 1), a.dtype)[..., 1:].swapaxes(1, 2)
        room[...] = a
        return room

    out = shifted(cupy.zeros_like(want))
    sdpa_block_sparse(shifted(q), shifted(k), shifted(v), shifted(pattern), **facts, out=out)
    assert (out == want).all()
    for b in range(3):
        one = slice(b, b + 1)
        assert (sdpa_block_sparse(q[one], k[one], v[one], pattern[one], **facts) == want[one]).all()
    for _ in range(20):
        assert (sdpa_block_sparse(q, k, v, pattern, **facts) == want).all()
