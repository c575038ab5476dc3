"""paged_kv_append: placement token by token, both tables, the policy for bad ones, strides, moving lengths."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.attention.cache.paged_kv_append import (
    PagedKvAppendArgs,
    PagedKvAppendDescriptor,
    PagedKvAppendPlan,
    paged_kv_append,
)

RNG = np.random.default_rng(22)
PAGES, PAGE = 13, 4
TABLE = np.array([[3, 0, 7], [1, 9, 2], [12, 5, 4]])
EXTREMES = (2**63 - 1, -(2**63), 2**62, -1, 12, -7)


def fresh(tokens, dtype=np.float32, heads=2, d_k=8, d_v=6, page=PAGE):
    shapes = [(tokens, heads, d_k), (tokens, heads, d_v), (PAGES, heads, page, d_k), (PAGES, heads, page, d_v)]
    return [RNG.integers(0, 100, shape).astype(dtype) for shape in shapes]


def token_by_token(new, cache, table, places):
    """places: (sequence, position) of each token, or None."""
    expected = cache.copy()
    for token, place in enumerate(places):
        if place is None or not 0 <= place[1] < PAGE * len(table[place[0]]):
            continue
        page = int(table[place[0]][place[1] // PAGE])
        if 0 <= page < PAGES:
            expected[page, :, place[1] % PAGE] = new[token]
    return expected


def check(arrays, table, places, **tables):
    k_new, v_new, k_cache, v_cache = arrays
    wanted = token_by_token(k_new, k_cache, table, places), token_by_token(v_new, v_cache, table, places)
    result = paged_kv_append(k_new, v_new, k_cache, v_cache, **tables)
    assert result[0] is k_cache and result[1] is v_cache
    np.testing.assert_array_equal(k_cache, wanted[0])
    np.testing.assert_array_equal(v_cache, wanted[1])


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_one_token_a_sequence(dtype):
    offsets = np.array([0, 5, 11], dtype)
    check(fresh(3), TABLE, [(0, 0), (1, 5), (2, 11)], page_table=TABLE.astype(dtype), cache_offsets=offsets)


def test_several_tokens_cross_pages():
    places = [(b, o + i) for b, o in enumerate((3, 0, 6)) for i in range(5)]
    check(fresh(15), TABLE, places, page_table=TABLE, cache_offsets=np.array([3, 0, 6]))


def test_ragged_tokens_with_padding():
    places = [(0, 2), (0, 3), (0, 4), (2, 7), None, None]
    check(
        fresh(6), TABLE, places, page_table=TABLE, cache_offsets=np.array([2, 0, 7]),
        token_indptr=np.array([0, 3, 3, 4]),
    )  # fmt: skip


def test_compressed_table_and_last_page_len():
    """FlashInfer's tables: the new tokens are the last of what they describe."""
    indices, indptr = np.array([3, 0, 1, 12, 5, 4], np.int32), np.array([0, 2, 3, 6], np.int32)
    table = [[3, 0], [1], [12, 5, 4]]
    places = [(0, 4), (0, 5), (1, 2), (1, 3), (2, 7), (2, 8)]
    check(fresh(6), table, places, kv_indices=indices, kv_indptr=indptr, kv_last_page_len=np.array([2, 4, 1], np.int32))
    check(fresh(6), table, places, kv_indices=indices, kv_indptr=indptr, cache_offsets=np.array([4, 2, 7]))


@pytest.mark.parametrize("extreme", EXTREMES)
def test_tokens_without_a_place_are_skipped(extreme):
    check(fresh(3), TABLE, [(0, 1), None, (2, 3)], page_table=TABLE, cache_offsets=np.array([1, extreme, 3]))


@pytest.mark.parametrize("page", [-1, PAGES, 2**31 - 1, -(2**31)])
def test_pages_that_do_not_exist(page):
    table = TABLE.copy()
    table[1, 0] = page
    places = [(0, 1), (1, 2), (2, 3)]
    check(fresh(3), table, places, page_table=table.astype(np.int32), cache_offsets=np.array([1, 2, 3]))


@pytest.mark.parametrize("indptr", [[0, 2, 9, 6], [-3, 2, 3, 6], [5, 1, 2**62, 3], [9, 9, 9, 9], [0, -5, 2, 2]])
def test_wild_bounds_stay_inside(indptr):
    """Whatever the bounds: no error, and nothing written but by the rule that both backends share."""
    arrays = fresh(3)
    before = arrays[2].copy()
    paged_kv_append(
        *arrays, kv_indices=TABLE.reshape(-1)[:6], kv_indptr=np.array(indptr), cache_offsets=np.array([1, 2, 3])
    )
    changed = np.flatnonzero((arrays[2] != before).any(axis=(1, 2, 3)))
    assert len(changed) <= 3


def test_nhd_pages_and_a_joint_cache():
    k_new, v_new, _, _ = fresh(3, d_v=8)
    joint = RNG.integers(0, 100, (PAGES, 2, PAGE, 2, 8)).astype(np.float32)
    k_cache, v_cache = (joint[:, i].swapaxes(1, 2) for i in (0, 1))
    check([k_new, v_new, k_cache, v_cache], TABLE, [(0, 4), (1, 4), (2, 4)], page_table=TABLE,
          cache_offsets=np.array([4, 4, 4]))  # fmt: skip


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_a_slot_mapping_names_page_and_cell(dtype):
    """vLLM's: negative slots are padding, slots beyond the cache are skipped."""
    k_new, v_new, k_cache, v_cache = fresh(6)
    slots = np.array([0, PAGES * PAGE - 1, -1, PAGES * PAGE, 9, np.iinfo(dtype).min], dtype)
    wanted = k_cache.copy(), v_cache.copy()
    for token, slot in ((0, 0), (1, PAGES * PAGE - 1), (4, 9)):
        wanted[0][slot // PAGE, :, slot % PAGE] = k_new[token]
        wanted[1][slot // PAGE, :, slot % PAGE] = v_new[token]
    paged_kv_append(k_new, v_new, k_cache, v_cache, slot_mapping=slots)
    np.testing.assert_array_equal(k_cache, wanted[0])
    np.testing.assert_array_equal(v_cache, wanted[1])


def test_a_slot_mapping_stands_alone():
    slots = np.zeros(3, int)
    with pytest.raises(InvalidProblemError, match=r"slot_mapping .* leave out cache_offsets, page_table"):
        paged_kv_append(*fresh(3), page_table=TABLE, cache_offsets=slots, slot_mapping=slots)
    with pytest.raises(InvalidProblemError, match="slot_mapping"):
        paged_kv_append(*fresh(3), slot_mapping=slots[:2])
    with pytest.raises((InvalidProblemError, UnsupportedError), match="slot_mapping"):
        paged_kv_append(*fresh(3), slot_mapping=slots.astype(np.float32))


def test_checked_run_refuses_slots_beyond_the_cache(monkeypatch):
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    paged_kv_append(*fresh(3), slot_mapping=np.array([-1, 5, PAGES * PAGE - 1]))
    with pytest.raises(InvalidProblemError, match="token 1 has no place"):
        paged_kv_append(*fresh(3), slot_mapping=np.array([-1, PAGES * PAGE, 5]))


def test_checked_run_names_the_token(monkeypatch):
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    offsets = np.array([0, 5, 11])
    paged_kv_append(*fresh(3), page_table=TABLE, cache_offsets=offsets)
    paged_kv_append(*fresh(3), page_table=TABLE, cache_offsets=offsets, token_indptr=np.array([0, 1, 1, 2]))
    with pytest.raises(InvalidProblemError, match="token 2 has no place"):
        paged_kv_append(*fresh(3), page_table=TABLE, cache_offsets=offsets + 1)


@pytest.mark.parametrize(
    "tables",
    [
        {"cache_offsets": np.zeros(3, int)},
        {"page_table": TABLE},
        {"page_table": TABLE, "cache_offsets": np.zeros(3, int), "kv_last_page_len": np.ones(3, int)},
        {"page_table": TABLE, "kv_last_page_len": np.ones(3, int)},
        {"kv_indices": TABLE[0], "cache_offsets": np.zeros(3, int)},
        {"page_table": TABLE, "kv_indices": TABLE[0], "kv_indptr": np.zeros(4, int), "cache_offsets": np.zeros(3, int)},
    ],
)
def test_tables_that_do_not_go_together(tables):
    with pytest.raises(InvalidProblemError, match=r"give (page_table|cache_offsets)"):
        paged_kv_append(*fresh(3), **tables)


def test_other_bad_input():
    with pytest.raises(InvalidProblemError, match="token_indptr"):
        paged_kv_append(*fresh(4), page_table=TABLE, cache_offsets=np.zeros(3, int))
    with pytest.raises(InvalidProblemError, match="page_size"):
        PagedKvAppendDescriptor(
            batch_size=1, num_tokens=1, num_heads=1, num_pages=1, page_size=0, d_k=1, d_v=1, element="float32"
        )
    arrays = fresh(3)
    arrays[2] = np.zeros((PAGES, 2, PAGE, 16), np.float32)[..., ::2]
    with pytest.raises(UnsupportedError, match="k_cache"):
        paged_kv_append(*arrays, page_table=TABLE, cache_offsets=np.zeros(3, int))


def test_sku_without_a_gpu():
    desc = PagedKvAppendDescriptor(
        batch_size=8, num_tokens=8, num_heads=8, num_pages=64, page_size=16, d_k=128, d_v=128, max_pages=8,
        element="float8_e4m3fn",
    )  # fmt: skip
    plan = PagedKvAppendPlan.select(desc, device=fake_device(8.6))
    name = "attention.paged_kv_append/words/float8_e4m3fn.float8_e4m3fn/contiguous/sm80/bespoke"
    assert str(plan.sku) == name and plan.workspace_size() == 0


def on_gpu(arrays, **tables):
    """The GPU's caches against the reference's."""
    import cupy as cp

    mine = [cp.asarray(a) for a in arrays]
    paged_kv_append(*mine, **{name: cp.asarray(t) for name, t in tables.items()})
    paged_kv_append(*arrays, **tables)
    np.testing.assert_array_equal(mine[2].get(), arrays[2])
    np.testing.assert_array_equal(mine[3].get(), arrays[3])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.uint8])
@pytest.mark.parametrize(("heads", "d_k", "d_v"), [(8, 128, 64), (1, 7, 3), (3, 20, 12), (2, 1, 1)])
def test_gpu_policies(dtype, heads, d_k, d_v):
    for extreme in EXTREMES:
        on_gpu(fresh(3, dtype, heads, d_k, d_v), page_table=TABLE, cache_offsets=np.array([1, extreme, 3]))
    for indptr in ([0, 2, 9, 6], [-3, 2, 3, 6], [5, 1, 2**62, 3], [9, 9, 9, 9], [0, -5, 2, 2]):
        on_gpu(
            fresh(3, dtype, heads, d_k, d_v), kv_indices=TABLE.reshape(-1)[:6], kv_indptr=np.array(indptr),
            cache_offsets=np.array([1, 2, 3]),
        )  # fmt: skip
    on_gpu(fresh(6, dtype, heads, d_k, d_v), slot_mapping=np.array([3, -1, PAGES * PAGE, 2**62, -(2**63), 7]))
    table = TABLE.copy()
    table[1, 0], table[2, 0] = -1, PAGES
    on_gpu(fresh(6, dtype, heads, d_k, d_v), page_table=table.astype(np.int32), cache_offsets=np.array([1, 2, 3]))
    for bounds in ([0, 3, 3, 4], [2, 4, 3, 6], [0, 2**40, -1, 6]):
        on_gpu(
            fresh(6, dtype, heads, d_k, d_v), page_table=TABLE, cache_offsets=np.array([1, 2, 3]),
            token_indptr=np.array(bounds),
        )  # fmt: skip


@pytest.mark.gpu
@pytest.mark.parametrize("page", [1, 16, 256])
def test_gpu_long_prompts(page):
    batch, new, heads = 3, 1000, 4
    each = -(-(new + 50) // page)
    table = RNG.permutation(batch * each).reshape(batch, each)
    shapes = [(batch * new, heads, 64)] * 2 + [(batch * each, heads, page, 64)] * 2
    arrays = [RNG.standard_normal(shape).astype(np.float16) for shape in shapes]
    on_gpu(arrays, page_table=table, cache_offsets=np.array([0, 50, 17]), token_indptr=np.array([0, 999, 1000, 2000]))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_gpu_64_bit_indices(dtype, monkeypatch):
    """The kernel of tensors beyond 31 bits, made to serve a small one."""
    monkeypatch.setattr("baracuda_py.ops.attention.cache.paged_kv_append.reach", lambda *_: 2**31)
    for extreme in EXTREMES:
        on_gpu(fresh(3, dtype, 5, 36, 12), page_table=TABLE, cache_offsets=np.array([1, extreme, 3]))
    for indptr in ([0, 2, 9, 6], [-3, 2, 3, 6], [5, 1, 2**62, 3]):
        on_gpu(
            fresh(6, dtype, 5, 12, 36), kv_indices=TABLE.reshape(-1)[:6], kv_indptr=np.array(indptr),
            cache_offsets=np.array([1, 2, 3]), token_indptr=np.array([0, 3, 3, 4]),
        )  # fmt: skip


@pytest.mark.gpu
def test_gpu_slot_mapping_in_64_bits(monkeypatch):
    monkeypatch.setattr("baracuda_py.ops.attention.cache.paged_kv_append.reach", lambda *_: 2**31)
    on_gpu(fresh(6, np.float32, 5, 36, 12), slot_mapping=np.array([3, -1, PAGES * PAGE, 2**62, -(2**63), 7]))


@pytest.mark.gpu
def test_gpu_checked_run(monkeypatch):
    import cupy as cp

    monkeypatch.setenv("BARACUDA_CHECK", "1")
    tables = {"page_table": cp.asarray(TABLE), "cache_offsets": cp.asarray([0, 5, 11])}
    paged_kv_append(*map(cp.asarray, fresh(3)), **tables)
    tables["cache_offsets"] += 1
    with pytest.raises(InvalidProblemError):
        paged_kv_append(*map(cp.asarray, fresh(3)), **tables)


@pytest.mark.gpu
def test_gpu_capture_with_moving_offsets():
    import cupy as cp

    arrays = fresh(3)
    mine = [cp.asarray(a) for a in arrays]
    offsets, table = cp.zeros(3, cp.int64), cp.asarray(TABLE)
    desc = PagedKvAppendDescriptor(
        batch_size=3, num_tokens=3, num_heads=2, num_pages=PAGES, page_size=PAGE, d_k=8, d_v=6, max_pages=3,
        element="float32",
    )  # fmt: skip
    plan = PagedKvAppendPlan.select(desc, device=0)
    names = ("k_new", "v_new", "k_cache", "v_cache")
    args = PagedKvAppendArgs(**dict(zip(names, mine, strict=True)), page_table=table, cache_offsets=offsets)
    plan.prepare(args)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        plan.run(args)
        graph = stream.end_capture()
    for values in ([0, 4, 7], [5, 1, 3], [11, 12, 2]):
        offsets[...] = cp.asarray(values)
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        paged_kv_append(*arrays, page_table=TABLE, cache_offsets=np.array(values))
        np.testing.assert_array_equal(mine[2].get(), arrays[2])
