"""batch_paged_decode: attention over pages is attention over the cells they stand for; tables and their policy."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.paged.batch_paged_decode import (
    BatchPagedDecodeDescriptor,
    BatchPagedDecodePlan,
    batch_paged_decode,
)
from baracuda_py.ops.attention.decoding.flash_decoding import flash_decoding
from paged_caches import compressed, deal

LENGTHS = np.array([40, 1, 13])


def make(seed, batch=3, heads=6, kv_heads=2, cells=40, d_k=8, d_v=6):
    rng = np.random.default_rng(seed)
    shapes = (batch, heads, d_k), (batch, kv_heads, cells, d_k), (batch, kv_heads, cells, d_v)
    return rng, *(rng.standard_normal(shape) for shape in shapes)


@pytest.mark.parametrize("page", [1, 3, 16, 64])
@pytest.mark.parametrize("nhd", [False, True])
def test_is_attention_to_the_dense_cells(page, nhd):
    rng, q, k, v = make(0)
    want = flash_decoding(q, k, v, LENGTHS, scale=0.3, return_lse=True)
    (k_cache, v_cache), table = deal(rng, [k, v], page, np.nan, lengths=LENGTHS, nhd=nhd)
    given = {"layout": "nhd" if nhd else "hnd", "scale": 0.3, "return_lse": True}
    used = -(-LENGTHS // page)
    padded = np.where(np.arange(table.shape[1]) < used[:, None], table, -7)
    for tables in (
        {"page_table": padded, "lengths": LENGTHS},
        {"page_table": padded.astype(np.int64), "lengths": LENGTHS.astype(np.int32)},
        compressed(table, LENGTHS, page, spare=2),
    ):
        got = batch_paged_decode(q, k_cache, v_cache, **tables, **given)
        np.testing.assert_array_equal(got[0], want[0])
        np.testing.assert_array_equal(got[1], want[1])


@pytest.mark.parametrize("window", [0, 9, 39, 2**40])
def test_a_window_leaves_the_last_tokens(window):
    rng, q, k, v = make(7)
    caches, table = deal(rng, [k, v], 8, np.nan, lengths=LENGTHS)
    got = batch_paged_decode(q, *caches, page_table=table, lengths=LENGTHS, window_left=window)
    for b, n in enumerate(LENGTHS.tolist()):
        first = max(0, n - 1 - window)
        want = flash_decoding(q[b : b + 1], k[b : b + 1, :, first:n], v[b : b + 1, :, first:n], np.array([n - first]))
        np.testing.assert_array_equal(got[b], want[0])


def test_softcap():
    rng, q, k, v = make(8)
    caches, table = deal(rng, [k, v], 8, np.nan)
    y, lse = batch_paged_decode(
        q, *caches, page_table=table, lengths=np.full(3, 40), scale=0.9, softcap=0.7, return_lse=True
    )
    s = 0.7 * np.tanh(0.9 * np.einsum("bhd,bhsd->bhs", q, k.repeat(3, axis=1)) / 0.7)
    assert abs(s).max() < 0.7
    weights = np.exp(s) / np.exp(s).sum(-1, keepdims=True)
    np.testing.assert_allclose(y, np.einsum("bhs,bhsd->bhd", weights, v.repeat(3, axis=1)), rtol=1e-12)
    np.testing.assert_allclose(lse, np.log(np.exp(s).sum(-1)), rtol=1e-12)


def test_sequences_without_tokens():
    rng, q, k, v = make(1)
    caches, table = deal(rng, [k, v], 4, np.nan, lengths=[0, 5, 0])
    for tables in ({"page_table": table, "lengths": np.array([-3, 5, 0])}, compressed(table, [0, 5, 0], 4)):
        y, lse = batch_paged_decode(q, *caches, **tables, return_lse=True)
        assert not y[[0, 2]].any() and np.isfinite(y[1]).all()
        assert np.isneginf(lse[[0, 2]]).all()


def test_lengths_end_with_the_pages():
    rng, q, k, v = make(2)
    want = flash_decoding(q, k, v, np.full(3, 40))
    caches, table = deal(rng, [k, v], 8, np.nan)
    np.testing.assert_array_equal(
        batch_paged_decode(q, *caches, page_table=table, lengths=np.array([99, 2**40, 41])), want
    )
    bounded = batch_paged_decode(q, *caches, page_table=table, lengths=np.array([99, 2**40, 41]), max_cache_len=17)
    np.testing.assert_array_equal(bounded, flash_decoding(q, k, v, np.full(3, 17)))
    tables = compressed(table, [40, 40, 40], 8) | {"kv_last_page_len": np.array([8, 99, 8])}
    np.testing.assert_array_equal(batch_paged_decode(q, *caches, **tables), want)


@pytest.mark.parametrize("page", [-1, 17, 2**31 - 1, 2**40, -(2**63)])
def test_tokens_of_pages_that_do_not_exist_are_left_out(page):
    rng, q, k, v = make(3)
    caches, table = deal(rng, [k, v], 8, np.nan)
    table = table.astype(np.int64)
    table[1, 2] = page
    keep = np.r_[0:16, 24:40]
    want = flash_decoding(q[1:2], k[1:2, :, keep], v[1:2, :, keep], np.array([32]))
    got = batch_paged_decode(q, *caches, page_table=table, lengths=np.full(3, 40))
    np.testing.assert_array_equal(got[1], want[0])
    table[1] = page
    y, lse = batch_paged_decode(q, *caches, page_table=table, lengths=np.full(3, 40), return_lse=True)
    assert not y[1].any() and np.isneginf(lse[1]).all()


@pytest.mark.parametrize("indptr", [[0, 2, 9, 6], [-3, 2, 3, 6], [5, 1, 2**62, 3], [9, 9, 9, 9], [0, -5, 2, 2]])
def test_wild_bounds_stay_inside(indptr):
    rng, q, k, v = make(4)
    caches, table = deal(rng, [k, v], 8, 0.5)
    for length in ({"lengths": np.full(3, 40)}, {"kv_last_page_len": np.full(3, 5)}):
        y = batch_paged_decode(q, *caches, kv_indices=table.reshape(-1)[:6], kv_indptr=np.array(indptr), **length)
        assert np.isfinite(y).all()


def test_a_checked_run_names_what_is_wrong(monkeypatch):
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    rng, q, k, v = make(5)
    caches, table = deal(rng, [k, v], 8, np.nan)
    batch_paged_decode(q, *caches, page_table=table, lengths=LENGTHS)
    batch_paged_decode(q, *caches, **compressed(table, [0, 5, 0], 8))
    with pytest.raises(InvalidProblemError, match="sequence 1 has 41 tokens and room for 40"):
        batch_paged_decode(q, *caches, page_table=table, lengths=np.array([1, 41, 2]))
    table[2, 1] = 17
    batch_paged_decode(q, *caches, page_table=table, lengths=np.array([40, 40, 8]))
    with pytest.raises(InvalidProblemError, match="position 8 of sequence 2 is in page 17 of 17"):
        batch_paged_decode(q, *caches, page_table=table, lengths=np.array([40, 40, 9]))


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"lengths": LENGTHS},
        {"page_table": np.zeros((3, 5), int)},
        {"page_table": np.zeros((3, 5), int), "kv_last_page_len": np.ones(3, int)},
        {"page_table": np.zeros((3, 5), int), "lengths": LENGTHS, "kv_last_page_len": np.ones(3, int)},
        {"kv_indices": np.zeros(5, int), "lengths": LENGTHS},
        {"kv_indices": np.zeros(5, int), "kv_indptr": np.zeros(4, int)},
    ],
)
def test_tables_that_do_not_go_together(tables):
    rng, q, k, v = make(6)
    caches, _ = deal(rng, [k, v], 8, 0.0)
    with pytest.raises(InvalidProblemError, match=r"give (page_table|lengths)|goes with kv_indices"):
        batch_paged_decode(q, *caches, **tables)


def test_splits_follow_the_table_and_its_bound():
    sizes = []
    for bound in (None, 4096):
        desc = BatchPagedDecodeDescriptor(
            batch_size=64, num_heads=8, num_kv_heads=1, num_pages=4096, page_size=16, num_indices=4096, d_k=128,
            d_v=128, max_cache_len=bound, element="float32",
        )  # fmt: skip
        plan = BatchPagedDecodePlan.select(desc, device=fake_device(8.6))
        sizes.append(plan.workspace_size())
        assert str(plan.sku) == "attention.batch_paged_decode/split_k/float32.float32/contiguous/sm80/bespoke"
    assert sizes[0] > 15 * sizes[1]
