"""kv_cache_append: placement, the policy for rows outside the cache, strides, carriers."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.attention.cache.kv_cache_append import (
    KvCacheAppendArgs,
    KvCacheAppendDescriptor,
    KvCacheAppendPlan,
    kv_cache_append,
)

RNG = np.random.default_rng(6)
EXTREMES = np.array([0, 3, -2, 9, 11, -5, 2**63 - 1, -(2**63), 2**62])


def cell_by_cell(new, offsets, cache):
    expected = cache.copy()
    for b, h, i in np.ndindex(new.shape[:3]):
        place = int(offsets[b]) + i
        if 0 <= place < cache.shape[2]:
            expected[b, h, place] = new[b, h, i]
    return expected


def random_case(batch, dtype=np.float32, d_k=8, d_v=6):
    shapes = [(batch, 2, 4, d_k), (batch, 2, 4, d_v), (batch, 2, 11, d_k), (batch, 2, 11, d_v)]
    return [RNG.integers(0, 100, shape).astype(dtype) for shape in shapes]


def test_rows_outside_the_cache_are_skipped():
    k_new, v_new, k_cache, v_cache = random_case(len(EXTREMES))
    expected = cell_by_cell(k_new, EXTREMES, k_cache), cell_by_cell(v_new, EXTREMES, v_cache)
    kept = EXTREMES.copy()
    result = kv_cache_append(k_new, v_new, EXTREMES, k_cache, v_cache)
    assert result[0] is k_cache and result[1] is v_cache
    np.testing.assert_array_equal(k_cache, expected[0])
    np.testing.assert_array_equal(v_cache, expected[1])
    np.testing.assert_array_equal(EXTREMES, kept)


def test_float8_travels_as_bytes():
    k_new, v_new, k_cache, v_cache = random_case(2, np.uint8)
    expected = cell_by_cell(k_new, [1, 7], k_cache)
    kv_cache_append(k_new, v_new, np.array([1, 7], np.int32), k_cache, v_cache, element="float8_e4m3fn")
    np.testing.assert_array_equal(k_cache, expected)


def test_nan_payloads_survive():
    bits = RNG.integers(0x7F800001, 0x7FFFFFFF, (1, 1, 2, 4), dtype=np.uint32)
    cache = np.zeros((1, 1, 3, 4), np.float32)
    kv_cache_append(bits.view(np.float32), bits.view(np.float32), np.array([1]), cache, cache.copy())
    np.testing.assert_array_equal(cache[:, :, 1:].view(np.uint32), bits)


def test_checked_run_names_the_offsets(monkeypatch):
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    k_new, v_new, k_cache, v_cache = random_case(2)
    kv_cache_append(k_new, v_new, np.array([0, 7]), k_cache, v_cache)
    with pytest.raises(InvalidProblemError, match=r"cache_offsets must lie in \[0, 7\]"):
        kv_cache_append(k_new, v_new, np.array([0, 8]), k_cache, v_cache)


def test_inner_axis_must_be_dense():
    k_new, v_new, k_cache, v_cache = random_case(1)
    wide = np.zeros((1, 2, 4, 16), np.float32)[..., ::2]
    with pytest.raises(UnsupportedError, match="k_new"):
        kv_cache_append(wide, v_new, np.array([0]), k_cache, v_cache)
    strided = np.ascontiguousarray(k_cache.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    expected = cell_by_cell(k_new, [2], strided)
    kv_cache_append(k_new, v_new, np.array([2]), strided, v_cache)
    np.testing.assert_array_equal(strided, expected)


def test_sku_without_a_gpu():
    desc = KvCacheAppendDescriptor(
        batch_size=2, num_heads=8, new_len=1, max_cache_len=64, d_k=128, d_v=64, element="float8_e5m2"
    )
    plan = KvCacheAppendPlan.select(desc, device=fake_device(8.6))
    assert str(plan.sku) == "attention.kv_cache_append/words/float8_e5m2.float8_e5m2/contiguous/sm80/bespoke"
    assert plan.workspace_size() == 0


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.uint8])
@pytest.mark.parametrize(("d_k", "d_v"), [(128, 64), (7, 3), (20, 12)])
def test_gpu_policy(dtype, d_k, d_v):
    import cupy as cp

    arrays = random_case(len(EXTREMES), dtype, d_k, d_v)
    k_new, v_new, k_cache, v_cache = map(cp.asarray, arrays)
    kv_cache_append(k_new, v_new, cp.asarray(EXTREMES), k_cache, v_cache)
    np.testing.assert_array_equal(k_cache.get(), cell_by_cell(arrays[0], EXTREMES, arrays[2]))
    np.testing.assert_array_equal(v_cache.get(), cell_by_cell(arrays[1], EXTREMES, arrays[3]))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_gpu_64_bit_indices(dtype, monkeypatch):
    """The kernel of tensors beyond 31 bits, made to serve a small one; keys and values of either being wider."""
    import cupy as cp

    monkeypatch.setattr("baracuda_py.ops.attention.cache.kv_cache_append.reach", lambda *_: 2**31)
    for d_k, d_v in ((36, 12), (12, 36)):
        arrays = random_case(len(EXTREMES), dtype, d_k, d_v)
        k_new, v_new, k_cache, v_cache = map(cp.asarray, arrays)
        kv_cache_append(k_new, v_new, cp.asarray(EXTREMES), k_cache[:, ::-1], v_cache)
        np.testing.assert_array_equal(k_cache.get(), cell_by_cell(arrays[0][:, ::-1], EXTREMES, arrays[2]))
        np.testing.assert_array_equal(v_cache.get(), cell_by_cell(arrays[1], EXTREMES, arrays[3]))


@pytest.mark.gpu
def test_gpu_capture_with_moving_offsets():
    import cupy as cp

    arrays = random_case(3)
    k_new, v_new, k_cache, v_cache = map(cp.asarray, arrays)
    offsets = cp.zeros(3, cp.int64)
    desc = KvCacheAppendDescriptor(
        batch_size=3, num_heads=2, new_len=4, max_cache_len=11, d_k=8, d_v=6, element="float32"
    )
    plan = KvCacheAppendPlan.select(desc, device=0)
    args = KvCacheAppendArgs(k_new=k_new, v_new=v_new, cache_offsets=offsets, k_cache=k_cache, v_cache=v_cache)
    plan.prepare(args)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        plan.run(args)
        graph = stream.end_capture()
    for values in ([0, 4, 7], [5, 1, 3]):
        offsets[...] = cp.asarray(values)
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        arrays[2] = cell_by_cell(arrays[0], values, arrays[2])
        np.testing.assert_array_equal(k_cache.get(), arrays[2])
