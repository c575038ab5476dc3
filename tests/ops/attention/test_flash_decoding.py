"""flash_decoding: one query against a cache is flash_sdpa of its first cells; lengths and their policy."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.core.dispatch import dense_problem
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.decoding.flash_decoding import FlashDecodingDescriptor, FlashDecodingPlan, flash_decoding
from baracuda_py.ops.attention.dense.flash_sdpa import flash_sdpa
from baracuda_py.schedules.attention.decoding import RINGS


def make(rng, batch=3, heads=6, kv_heads=2, cells=40, d_k=8, d_v=6, dtype=np.float64):
    """q and the two caches."""
    shapes = (batch, heads, d_k), (batch, kv_heads, cells, d_k), (batch, kv_heads, cells, d_v)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_is_attention_to_the_first_cells(index):
    q, k, v = make(np.random.default_rng(0))
    lengths = np.array([40, 1, 13], index)
    y, lse = flash_decoding(q, k, v, lengths, scale=0.3, return_lse=True)
    for b, n in enumerate(lengths):
        want, want_lse = flash_sdpa(
            q[b : b + 1, :, None], k[b : b + 1, :, :n], v[b : b + 1, :, :n], scale=0.3, return_lse=True
        )
        np.testing.assert_allclose(y[b], want[0, :, 0], rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(lse[b], want_lse[0, :, 0], rtol=1e-13)


def test_lengths_are_clamped_and_the_rest_is_never_read():
    q, k, v = make(np.random.default_rng(1))
    want = flash_decoding(q, k, v, np.array([40, 9, 0]))
    k[1, :, 9:], v[1, :, 9:], k[2], v[2] = np.nan, np.nan, np.nan, np.nan
    y, lse = flash_decoding(q, k, v, np.array([99, 9, -3]), return_lse=True)
    np.testing.assert_array_equal(y, want)
    assert not y[2].any()
    assert np.isneginf(lse[2]).all()


def test_a_row_without_weights_is_zero_whatever_the_values():
    q, k, v = make(np.random.default_rng(5))
    k[1], v[1] = -np.inf, np.nan
    y, lse = flash_decoding(np.abs(q), k, v, np.array([40, 9, 3]), return_lse=True)
    assert not y[1].any() and np.isneginf(lse[1]).all() and np.isfinite(y).all()


def test_a_checked_run_names_the_length(monkeypatch):
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    q, k, v = make(np.random.default_rng(2))
    with pytest.raises(InvalidProblemError, match="41"):
        flash_decoding(q, k, v, np.array([1, 41, 2]))


def test_bshd_caches():
    q, k, v = make(np.random.default_rng(3), dtype=np.float32)
    lengths = np.array([40, 2, 30])
    caches = [np.ascontiguousarray(a.swapaxes(1, 2)) for a in (k, v)]
    np.testing.assert_array_equal(flash_decoding(q, *caches, lengths, layout="bshd"), flash_decoding(q, k, v, lengths))


def test_splits_follow_the_cache_not_the_batch():
    grids = []
    for batch in (1, 64):
        desc = FlashDecodingDescriptor(
            batch_size=batch, num_heads=8, num_kv_heads=1, max_cache_len=1000, d_k=128, d_v=128, element="bfloat16"
        )
        plan = FlashDecodingPlan.select(desc, device=fake_device(8.6))
        geometry = plan.rows[0].geometry(plan._dense)
        grids.append(geometry.steps[0].grid[0])
        assert plan.workspace_size() % 256 == 0
    assert grids == [4, 4 * 64]


@pytest.mark.parametrize(("batch", "run"), [(1, 1), (7, 1), (8, 4), (9, 1), (64, 4)])  # 8: 0.97 waves
def test_blocks_fill_the_device_then_take_four_splits(batch, run):
    desc = FlashDecodingDescriptor(
        batch_size=batch, num_heads=16, num_kv_heads=4, max_cache_len=8192, d_k=128, d_v=100, element="float16"
    )
    plan = FlashDecodingPlan.select(desc, device=fake_device(9.0))
    step, merge = plan.rows[0].geometry(plan._dense).steps
    assert step.params["run"] == run
    assert step.grid[0] == batch * 4 * 32 // run and merge.grid[0] == batch * 16


def test_every_block_fits_the_smallest_device():
    for d in RINGS:
        for group in (1, 8, 16, 40):
            desc = FlashDecodingDescriptor(
                batch_size=999, num_heads=group, num_kv_heads=1, max_cache_len=9000, d_k=d, d_v=d, element="bfloat16"
            )
            plan = FlashDecodingPlan.select(desc, device=fake_device(8.6))
            assert plan.rows[0].geometry(plan._dense).steps[0].smem <= 99 << 10


def test_weights_are_the_softmax_of_the_first_cells():
    rng = np.random.default_rng(4)
    q, k, v = make(rng)
    lengths = np.array([40, 0, 13])
    k[2, :, 13:], v[2, :, 13:] = np.nan, np.nan
    y, weights, mean = flash_decoding(q, k, v, lengths, scale=0.3, return_weights=True, return_mean_weights=True)
    assert weights.shape == (3, 6, 40) and mean.shape == (3, 40)
    np.testing.assert_allclose(weights[[0, 2]].sum(-1), 1, rtol=1e-6)
    assert not weights[1].any() and not weights[2, :, 13:].any()
    values = np.nan_to_num(v).repeat(3, axis=1)
    np.testing.assert_allclose(np.einsum("bhs,bhsd->bhd", weights, values), y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(mean, weights.mean(axis=1), rtol=1e-6, atol=1e-9)


def test_weights_that_nobody_wants_cost_nothing():
    desc = FlashDecodingDescriptor(
        batch_size=2, num_heads=16, num_kv_heads=4, max_cache_len=4096, d_k=128, d_v=128, element="bfloat16"
    )
    plan = FlashDecodingPlan.select(desc, device=fake_device(9.0))
    steps = [step.kernel for step in plan.rows[0].geometry(plan._dense).steps]
    assert steps == ["mma_128", "merge"]
    with_all = plan.rows[0].geometry(dense_problem(FlashDecodingPlan, desc, plan.device, optional=True))
    assert [step.kernel for step in with_all.steps] == ["mma_128_terms_keep", "merge_terms_keep", "weights_terms_keep"]
    assert with_all.workspace - plan.workspace_size() == 256  # {maximum, sum} of every head
