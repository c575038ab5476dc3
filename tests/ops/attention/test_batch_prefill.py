"""batch_ragged_prefill is flash_sdpa_varlen; batch_paged_prefill is that over the tokens which pages hold."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.core.dispatch import dense_problem
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.dense.flash_sdpa import flash_sdpa
from baracuda_py.ops.attention.paged.batch_paged_prefill import BatchPagedPrefillDescriptor, batch_paged_prefill
from baracuda_py.ops.attention.packed.batch_ragged_prefill import BatchRaggedPrefillPlan, batch_ragged_prefill
from baracuda_py.ops.attention.packed.flash_sdpa_varlen import flash_sdpa_varlen

PAGE, PAGES = 4, 9
TABLE = np.array([[7, 1, 4], [0, 8, 8], [2, 5, 3]])
LENGTHS = np.array([9, 3, 12])
INDPTR = np.array([0, 2, 2, 7])


def make(seed=0, dtype=np.float64):
    """Random queries and caches."""
    rng = np.random.default_rng(seed)
    shapes = (7, 4, 8), (PAGES, 2, PAGE, 8), (PAGES, 2, PAGE, 6)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def packed(cache, lengths=LENGTHS, table=TABLE):
    """The tokens one after the other, [tokens, heads, d]."""
    rows = [(row[p // PAGE], p % PAGE) for row, n in zip(table, lengths, strict=True) for p in range(n)]
    return np.array([cache[page, :, cell] for page, cell in rows])


SLOPES = np.random.default_rng(9).standard_normal((3, 4))
SINKS = np.array([0.5, -1.0, 2.0, 0.0])


@pytest.mark.parametrize(
    "facts",
    [
        {}, {"is_causal": True}, {"is_causal": True, "window_left": 2, "scale": 0.3}, {"softcap": 0.7},
        {"slopes": SLOPES, "is_causal": True}, {"sinks": SINKS}, {"slopes": SLOPES[0], "sinks": SINKS, "softcap": 2.0},
    ],
)  # fmt: skip
def test_pages_hold_what_is_packed(facts):
    q, k, v = make()
    ends = np.concatenate([[0], np.cumsum(LENGTHS)])
    want = batch_ragged_prefill(q, packed(k), packed(v), INDPTR, ends, return_lse=True, **facts)
    padded = {"page_table": TABLE, "lengths": LENGTHS.astype(np.int32)}
    compressed = {
        "kv_indices": np.array([7, 1, 4, 0, 2, 5, 3]), "kv_indptr": np.array([0, 3, 4, 7]),
        "kv_last_page_len": np.array([1, 3, 4]),
    }  # fmt: skip
    assert not facts or (want[0] != batch_ragged_prefill(q, packed(k), packed(v), INDPTR, ends)).any()
    for tables in (padded, compressed):
        for got, value in zip(
            batch_paged_prefill(q, k, v, INDPTR, **tables, return_lse=True, **facts), want, strict=True
        ):
            np.testing.assert_allclose(got, value, rtol=1e-14, atol=1e-14)
    nhd = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (k, v)]
    np.testing.assert_allclose(batch_paged_prefill(q, *nhd, INDPTR, **padded, layout="nhd", **facts), want[0])


def bits_of(masks, before=0):
    """Masks as bits, and where they begin, with so many bytes before the first."""
    packed_masks = [np.packbits(mask, bitorder="little") for mask in masks]
    starts = before + np.cumsum([0, *map(len, packed_masks)])
    return {"mask_bits": np.concatenate([np.full(before, 255, np.uint8), *packed_masks]), "mask_indptr": starts}


@pytest.mark.parametrize("facts", [{}, {"is_causal": True}, {"sinks": SINKS, "softcap": 1.5, "window_left": 4}])
def test_masks_of_bits(facts):
    """Of 9, 3 and 12 keys, so that rows begin at any bit of a byte."""
    q, k, v = make(7)
    rng = np.random.default_rng(8)
    masks = [rng.random((n, keys)) < 0.5 for n, keys in zip(np.diff(INDPTR), LENGTHS, strict=True)]
    masks[2][1] = False
    ends = np.concatenate([[0], np.cumsum(LENGTHS)])
    got = batch_ragged_prefill(q, packed(k), packed(v), INDPTR, ends, return_lse=True, **facts, **bits_of(masks, 3))
    for b, mask in enumerate(masks):
        rows, keys = slice(INDPTR[b], INDPTR[b + 1]), slice(ends[b], ends[b + 1])
        alone = [x.swapaxes(0, 1)[None] for x in (q[rows], packed(k)[keys], packed(v)[keys])]
        y, lse = flash_sdpa(*alone, mask, causal_alignment="bottom_right", return_lse=True, **facts)
        np.testing.assert_array_equal(got[0][rows], y[0].swapaxes(0, 1))
        np.testing.assert_array_equal(got[1][:, rows], lse[0])
    tables = {"page_table": TABLE, "lengths": LENGTHS}
    paged = batch_paged_prefill(q, k, v, INDPTR, **tables, return_lse=True, **facts, **bits_of(masks))
    for one, other in zip(paged, got, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-14, atol=1e-14)


def test_bits_that_are_not_there_hide():
    q, k, v = make(7)
    tables = {"page_table": TABLE, "lengths": LENGTHS}
    facts = {"mask_bits": np.full(4, 255, np.uint8), "mask_indptr": np.array([2, 0, -7, 0])}
    y, lse = batch_paged_prefill(q, k, v, INDPTR, **tables, return_lse=True, **facts)
    want = batch_paged_prefill(q, k, v, INDPTR, page_table=TABLE, lengths=LENGTHS)
    np.testing.assert_allclose(y[0], want[0], rtol=1e-14)  # 9 bits of 16
    assert np.isfinite(lse[:, 1]).all() and (y[1] != want[1]).any()  # 7
    assert np.isneginf(lse[:, 2:6]).all() and not y[2:6].any()  # the first 56 of 60 bits stand before the bytes
    assert np.isfinite(lse[:, 6]).all()


def test_a_mask_of_no_bytes_hides_all_keys():
    q, k, v = make(7)
    facts = {"mask_bits": np.zeros(0, np.uint8), "mask_indptr": np.zeros(4, np.int32)}
    y, lse = batch_paged_prefill(q, k, v, INDPTR, page_table=TABLE, lengths=LENGTHS, **facts, return_lse=True)
    assert not y.any() and np.isneginf(lse).all()
    desc = BatchRaggedPrefillPlan.descriptor(
        batch_size=3, total_q=7, total_k=24, num_heads=4, d_k=8, d_v=8, element="float32"
    )
    plan = BatchRaggedPrefillPlan.select(desc, device=fake_device(8.0))
    *_, last = plan.rows[0].geometry(dense_problem(BatchRaggedPrefillPlan, desc, plan.device, optional=True)).steps
    assert last.params["mask"] == "mask_indptr"  # whose address is never null


@pytest.mark.parametrize("one", ["mask_bits", "mask_indptr"])
def test_a_mask_of_bits_goes_with_its_starts(one):
    q, k, v = make(7)
    given = {one: bits_of([np.ones((2, 9), bool)] * 3)[one]}
    with pytest.raises(InvalidProblemError, match="both mask_bits and mask_indptr"):
        batch_paged_prefill(q, k, v, INDPTR, page_table=TABLE, lengths=LENGTHS, **given)
    with pytest.raises(InvalidProblemError, match="both mask_bits and mask_indptr"):
        batch_ragged_prefill(q, packed(k), packed(v), INDPTR, np.array([0, 9, 12, 24]), **given)


def test_the_last_query_stands_at_the_last_key():
    q, k, v = make(1)
    ends = np.concatenate([[0], np.cumsum(LENGTHS)])
    got = batch_ragged_prefill(q, packed(k), packed(v), INDPTR, ends, is_causal=True)
    facts = {"is_causal": True, "causal_alignment": "bottom_right"}
    np.testing.assert_array_equal(got, flash_sdpa_varlen(q, packed(k), packed(v), INDPTR, ends, **facts))
    free = batch_ragged_prefill(q, packed(k), packed(v), INDPTR, ends)
    np.testing.assert_allclose(got[[1, 6]], free[[1, 6]], rtol=1e-14)
    assert (got[0] != free[0]).any()


@pytest.mark.parametrize("bad", [-1, PAGES, 2**31])
def test_a_missing_page_ends_its_sequence(bad):
    q, k, v = make(2)
    table = TABLE.copy()
    table[2, 1] = bad
    got = batch_paged_prefill(q, k, v, INDPTR, page_table=table, lengths=LENGTHS, is_causal=True)
    shorter = np.array([9, 3, 4])
    np.testing.assert_array_equal(
        got, batch_paged_prefill(q, k, v, INDPTR, page_table=TABLE, lengths=shorter, is_causal=True)
    )


def test_lengths_are_clamped_to_the_table():
    q, k, v = make(3)
    got = batch_paged_prefill(q, k, v, INDPTR, page_table=TABLE, lengths=np.array([99, -3, 2**40]), return_lse=True)
    want = batch_paged_prefill(q, k, v, INDPTR, page_table=TABLE, lengths=np.array([12, 0, 12]), return_lse=True)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_checked_run_refuses_bad_tables(monkeypatch):
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    q, k, v = make(4)
    batch_paged_prefill(q, k, v, INDPTR, page_table=TABLE, lengths=LENGTHS)
    with pytest.raises(InvalidProblemError, match="room for 12"):
        batch_paged_prefill(q, k, v, INDPTR, page_table=TABLE, lengths=LENGTHS + 1)
    with pytest.raises(InvalidProblemError, match=r"qo_indptr\[2\]"):
        batch_paged_prefill(q, k, v, np.array([0, 5, 3, 7]), page_table=TABLE, lengths=LENGTHS)


@pytest.mark.parametrize(
    "tables",
    [
        {}, {"page_table": TABLE}, {"lengths": LENGTHS}, {"page_table": TABLE, "kv_last_page_len": LENGTHS},
        {"page_table": TABLE, "lengths": LENGTHS, "kv_indices": TABLE[0], "kv_indptr": np.zeros(4, int)},
    ],
)  # fmt: skip
def test_tables_that_do_not_go_together(tables):
    with pytest.raises(InvalidProblemError, match=r"give (page_table|lengths)|goes with"):
        batch_paged_prefill(*make(5), INDPTR, **tables)


def test_the_room_of_a_table_bounds_a_sequence():
    sizes = {"batch_size": 2, "total_q": 3, "num_heads": 1, "d_k": 8, "d_v": 8, "num_pages": 5, "page_size": 16}
    desc = BatchPagedPrefillDescriptor(**sizes, max_pages=3, element="float16")
    assert desc.max_cache_len == desc.key_len == 48
    assert BatchPagedPrefillDescriptor(**sizes, max_pages=3, max_cache_len=40, element="float16").total_k == 80
