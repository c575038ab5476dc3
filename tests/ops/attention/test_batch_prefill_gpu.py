"""batch_paged_prefill on a GPU: bit for bit batch_ragged_prefill of the same tokens packed, and its policies."""

from __future__ import annotations

import numpy as np
import pytest
from test_flash_sdpa_varlen_gpu import SM80, bits, bounds, make

from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.paged.batch_paged_prefill import (
    BatchPagedPrefillArgs,
    BatchPagedPrefillDescriptor,
    BatchPagedPrefillPlan,
    batch_paged_prefill,
)
from baracuda_py.ops.attention.packed.batch_ragged_prefill import batch_ragged_prefill
from baracuda_py.testing.draw import stored

pytestmark = pytest.mark.gpu
MIXED = [(64, 64), (0, 5), (1, 1), (300, 333), (65, 0), (129, 200), (7, 1000), (0, 0), (200, 77), (127, 128)]
MASKS = ({}, {"is_causal": True}, {"is_causal": True, "window_left": 70})
SIZES = [(32, 16), (64, 1), (64, 16), (96, 64), (128, 16), (128, 100), (192, 7), (256, 256)]
CASES = [(d, page, "bfloat16", None, MASKS[n % 3]) for n, (d, page) in enumerate(SIZES)]
CASES += [(d, page, "float32", None, MASKS[n % 3]) for n, (d, page) in enumerate(SIZES[1:5])]
CASES += [(d, page, "float16", SM80, MASKS[n % 3]) for n, (d, page) in enumerate(SIZES[2:6:2])]


def paged(k, ends, page, seed=3):
    """Packed rows as a cache whose pages are dealt out at random; the padded table, and the compressed one."""
    import cupy as cp

    lengths = np.diff(ends)
    used = -(-lengths // page)
    order = np.random.default_rng(seed).permutation(int(used.sum()) + 3)
    starts = np.concatenate([[0], np.cumsum(used)])
    table = np.full((len(lengths), max(1, used.max())), -1)
    cache = cp.full((len(order), k.shape[1], page, k.shape[2]), np.nan, k.dtype)
    for b in range(len(lengths)):
        table[b, : used[b]] = order[starts[b] : starts[b + 1]]
        for slot in range(used[b]):
            cells = k[ends[b] + slot * page : min(ends[b] + (slot + 1) * page, ends[b + 1])]
            cache[table[b, slot], :, : len(cells)] = cells.swapaxes(0, 1)
    last = lengths - (used - 1) * page
    compressed = {"kv_indices": order[: starts[-1]], "kv_indptr": starts, "kv_last_page_len": last}
    return cache, {"page_table": table, "lengths": lengths}, compressed


def on_gpu(tables, dtype=np.int32):
    """Tables on the GPU."""
    import cupy as cp

    return {name: cp.asarray(np.asarray(t).astype(dtype)) for name, t in tables.items()}


@pytest.mark.parametrize(("d", "page", "dtype", "preference", "facts"), CASES)
def test_bits_of_the_packed_tokens(d, page, dtype, preference, facts):
    cu_q, cu_k = bounds(MIXED)
    q, k, v = make(int(cu_q[-1]), int(cu_k[-1]), d, dtype=dtype)
    want = batch_ragged_prefill(q, k, v, cu_q, cu_k, return_lse=True, preference=preference, **facts)
    k_cache, padded, compressed = paged(k, cu_k.get(), page)
    v_cache = paged(v, cu_k.get(), page)[0]
    for tables, index in ((padded, np.int32), (compressed, np.int64)):
        more = {"return_lse": True, "preference": preference, **facts}
        got = batch_paged_prefill(q, k_cache, v_cache, cu_q, **on_gpu(tables, index), **more)
        assert bits(got[0]) == bits(want[0]) and bits(got[1]) == bits(want[1])
    nhd = [x.swapaxes(1, 2).copy() for x in (k_cache, v_cache)]
    got = batch_paged_prefill(q, *nhd, cu_q, **on_gpu(padded), layout="nhd", preference=preference, **facts)
    assert bits(got) == bits(want[0])


def test_rows_that_are_not_whole_pieces():
    cu_q, cu_k = bounds(MIXED)
    for dtype in ("float16", "float32", "float64"):
        q, k, v = make(int(cu_q[-1]), int(cu_k[-1]), 17, 19, dtype=dtype)
        want = batch_ragged_prefill(q, k, v, cu_q, cu_k, is_causal=True)
        k_cache, padded, _ = paged(k, cu_k.get(), 16)
        v_cache = paged(v, cu_k.get(), 16)[0]
        got = batch_paged_prefill(q, k_cache, v_cache, cu_q, **on_gpu(padded), is_causal=True)
        assert bits(got) == bits(want)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_bad_tables(dtype):
    import cupy as cp

    rng, kind = np.random.default_rng(5), ElementKind.of(dtype)
    caches = [cp.asarray(stored(rng.standard_normal((20, 2, 16, 64), dtype=np.float32), kind)) for _ in range(2)]
    q = make(90, 1, 64, dtype=dtype)[0]
    table = rng.integers(0, 20, (3, 6))
    hole, far = table.copy(), table.copy()
    hole[1, 2], hole[0, 0], far[2, 5] = -1, 20, 2**40
    indptr = [np.array([0, 30, 31, 90]), np.array([-4, 99, 3, 60]), np.array([80, 20, 2**50, -(2**50)])]
    cases = [{"page_table": t, "lengths": n} for t in (table, hole, far) for n in ([96, 33, 5], [2**60, -7, 97])]
    for kv_indptr in ([0, 6, 4, 17], [-3, 2, 9, 99], [17, 2**62, -(2**62), 5], [0, 0, 0, 0]):
        for last in ([16, 1, 7], [2**60, -(2**60), 40]):
            lists = {"kv_indices": rng.integers(-1, 21, 17), "kv_indptr": kv_indptr, "kv_last_page_len": last}
            cases.append(lists)
    for tables in cases:
        for bounds_ in indptr:
            given = on_gpu({"qo_indptr": bounds_, **tables}, np.int64)
            got = batch_paged_prefill(q, *caches, **given, is_causal=True, return_lse=True)
            host = {name: x.get() for name, x in given.items()}
            want = batch_paged_prefill(*(x.get() for x in (q, *caches)), **host, is_causal=True, return_lse=True)
            tolerance = 1e-5 if dtype == "float32" else 3e-2
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(
                    a.get().astype(np.float64), b.astype(np.float64), rtol=1e-5, atol=tolerance, err_msg=str(tables)
                )


def test_a_checked_run(monkeypatch):
    import cupy as cp

    monkeypatch.setenv("BARACUDA_CHECK", "1")
    q, k, v = make(6, 40, 64)
    caches = [x.reshape(5, 8, 2, 64).swapaxes(1, 2) for x in (k, v)]
    indptr = cp.asarray([0, 2, 6])
    good = {"page_table": np.array([[0, 1], [2, 4]]), "lengths": np.array([9, 16])}
    batch_paged_prefill(q, *caches, indptr, **on_gpu(good))
    for bad in ({"lengths": np.array([9, 17])}, {"page_table": np.array([[0, 5], [2, 4]])}):
        with pytest.raises(InvalidProblemError):
            batch_paged_prefill(q, *caches, indptr, **on_gpu(good | bad))


def test_a_graph_serves_a_growing_cache():
    import cupy as cp

    q, k, v = make(24, 640, 128)
    caches = [x.reshape(40, 16, 2, 128).swapaxes(1, 2) for x in (k, v)]
    table = cp.asarray(np.random.default_rng(0).permutation(40).reshape(2, 20).astype(np.int32))
    indptr, lengths = cp.asarray(np.array([0, 8, 24], np.int32)), cp.zeros(2, cp.int32)
    y, lse = cp.empty_like(q), cp.empty((4, 24), cp.float32)
    desc = BatchPagedPrefillDescriptor(
        batch_size=2, total_q=24, num_heads=4, num_kv_heads=2, d_k=128, d_v=128, num_pages=40, page_size=16,
        max_pages=20, is_causal=True, element="bfloat16",
    )  # fmt: skip
    plan = BatchPagedPrefillPlan.select(desc)
    tables = {"qo_indptr": indptr, "page_table": table, "lengths": lengths}
    args = BatchPagedPrefillArgs(q=q, k_cache=caches[0], v_cache=caches[1], **tables, y=y, lse=lse)
    workspace = cp.empty(plan.workspace_size(args), cp.uint8)
    plan.prepare(args)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        plan.run(args, workspace)
        graph = stream.end_capture()
    for tokens, ends in (([8, 16], [0, 8, 24]), ([300, 17], [0, 1, 24]), ([0, 320], [0, 0, 20])):
        lengths[...], indptr[...] = cp.asarray(tokens), cp.asarray(ends)
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        want, want_lse = batch_paged_prefill(q, *caches, **tables, is_causal=True, return_lse=True)
        assert bits(y) == bits(want) and bits(lse) == bits(want_lse)
