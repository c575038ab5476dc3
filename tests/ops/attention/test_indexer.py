"""indexer_logits and indexer_topk: against the formula written out and a stable sort; all their kernels."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.core.preference import PlanPreference
from baracuda_py.ops.attention.indexer.indexer_logits import IndexerLogitsDescriptor, IndexerLogitsPlan, indexer_logits
from baracuda_py.ops.attention.indexer.indexer_topk import IndexerTopkDescriptor, IndexerTopkPlan, indexer_topk
from baracuda_py.ops.attention.mla.mla_sparse import mla_sparse
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
DTYPES = (E4M3, np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64))


def make(seed: int, queries: int, heads: int, d: int, pages: int, page: int, dtype: Any = np.float64) -> Any:
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((queries, heads, d)), rng.standard_normal((pages, page, d))
    w = rng.standard_normal((queries, heads))
    return q.astype(dtype), k.astype(dtype), w.astype(np.float64 if dtype == np.float64 else np.float32)


def truth(q: Any, keys: Any, w: Any, scales: Any = None) -> Any:
    """Logits in float64 of all keys [keys, d]."""
    s = np.einsum("thd,sd->ths", q.astype(np.float64), keys.astype(np.float64))
    logits = np.einsum("ths,th->ts", np.maximum(s, 0), w.astype(np.float64))
    return logits if scales is None else logits * scales.astype(np.float64)


def within(logits: Any, starts: Any, ends: Any) -> Any:
    s = np.arange(logits.shape[1])
    return np.where((s >= np.asarray(starts)[:, None]) & (s < np.asarray(ends)[:, None]), logits, -np.inf)


def best(logits: Any, top_k: int) -> Any:
    """Numbers of the best keys, ascending, then -1."""
    lists = np.full((len(logits), top_k), -1)
    for t, row in enumerate(logits):
        ranked = sorted(np.flatnonzero(row != -np.inf), key=lambda s: (not np.isnan(row[s]), -row[s], s))
        chosen = sorted(ranked[:top_k])
        lists[t, : len(chosen)] = chosen
    return lists


def test_are_the_formula_and_its_best() -> None:
    q, k, w = make(0, 5, 3, 8, 4, 6)
    scales = np.exp2(np.random.default_rng(1).integers(-2, 3, (4, 6))).astype(np.float32)
    starts, ends = np.array([0, 3, -5, 20, 7]), np.array([24, 9, 99, 4, 8])
    want = within(truth(q, k.reshape(-1, 8), w, scales.reshape(-1)), starts, ends)
    given = {"k_scale": scales, "starts": starts, "ends": ends.astype(np.int32)}
    np.testing.assert_allclose(indexer_logits(q, k, w, **given), want, rtol=1e-12)
    for top_k in (0, 1, 6, 30):
        np.testing.assert_array_equal(indexer_topk(q, k, w, **given, top_k=top_k), best(want, top_k))


def test_keys_of_sequences_in_pages() -> None:
    """Numbers are positions; a page that does not exist has no keys, and a sequence that does not exist has none."""
    q, k, w = make(2, 4, 3, 8, 5, 4)
    table, sequences = np.array([[4, 0, 7], [2, -1, 1]]), np.array([1, 0, 2, 1])
    want = np.full((4, 12), -np.inf)
    full = truth(q, k.reshape(-1, 8), w)
    for t, b in ((0, 1), (1, 0), (3, 1)):
        for s in range(12):
            if 0 <= table[b, s // 4] < 5:
                want[t, s] = full[t, table[b, s // 4] * 4 + s % 4]
    lists = {"page_table": table, "batch_indices": sequences}
    np.testing.assert_allclose(indexer_logits(q, k, w, **lists), want, rtol=1e-12)
    np.testing.assert_array_equal(indexer_topk(q, k, w, **lists, top_k=5), best(want, 5))
    with pytest.raises(InvalidProblemError, match="give page_table and batch_indices, or neither"):
        indexer_logits(q, k, w, page_table=table)


def test_pages_of_bytes_are_views() -> None:
    """Of 128 + 4 bytes a token: each token's scale behind its codes, or all scales of a page behind all codes."""
    q, k, w = make(3, 3, 4, 128, 5, 16, E4M3)
    scales = np.exp2(np.random.default_rng(4).integers(-3, 1, (5, 16))).astype(np.float32)
    want = truth(q, k.reshape(-1, 128), w, scales.reshape(-1))
    records = np.zeros((5, 16, 132), np.uint8)
    records[..., :128], records[..., 128:] = k.view(np.uint8), scales[..., None].view(np.uint8)
    planes = np.zeros((5, 16 * 132), np.uint8)
    planes[:, : 16 * 128] = k.view(np.uint8).reshape(5, -1)
    planes[:, 16 * 128 :] = scales.view(np.uint8).reshape(5, -1)
    for codes, held in (
        (records[..., :128].view(E4M3), records.view(np.float32)[..., 32]),
        (planes[:, : 16 * 128].reshape(5, 16, 128).view(E4M3), planes[:, 16 * 128 :].view(np.float32)),
    ):
        np.testing.assert_allclose(indexer_logits(q, codes, w, held), want, rtol=1e-4, atol=1e-4)


# ---- kernels ---------------------------------------------------------------------------------------------------------


def emulate(plan: Any, q: Any, k: Any, w: Any, top_k: int | None = None, **given: Any) -> Any:
    """What the kernels of the first row that takes the problem make."""
    table = given.get("page_table")
    facts: dict[str, Any] = {
        "num_queries": len(q), "num_heads": q.shape[1], "d": q.shape[2], "num_pages": k.shape[0],
        "page_size": k.shape[1], "batch_size": 0 if table is None else len(table),
        "max_pages": 0 if table is None else table.shape[1], "element": str(q.dtype),
    }  # fmt: skip
    if top_k is None:
        desc = IndexerLogitsDescriptor(**facts)
        name, made = "logits", np.full((len(q), desc.num_keys), 7, w.dtype)
    else:
        name, made = "indices", np.full((len(q), top_k), 7, np.int32)
        desc = IndexerTopkDescriptor(**facts, top_k=top_k)
    chosen = plan(desc, PlanPreference(), emulated_device(9.0))
    arrays = {"q": q, "k": k, "w": w, **given, name: made}
    with emulating(1):
        chosen.run(plan.args(**{name: pointer_view(x) for name, x in arrays.items()}))
    return made


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("queries", "heads", "d"), [(3, 64, 128), (2, 70, 40), (35, 3, 128)])
def test_kernels(dtype: Any, queries: int, heads: int, d: int) -> None:
    page = 60 if dtype.itemsize < 4 else 11
    q, k, w = make(5, queries, heads, d, 5, page, dtype)
    ends = np.linspace(1, 5 * page, queries).astype(np.int32)
    logits = emulate(IndexerLogitsPlan, q, k, w, ends=ends)
    want = within(truth(q, k.reshape(-1, d), w), np.zeros(queries), ends)
    np.testing.assert_allclose(logits, want, rtol=1e-4, atol=1e-4 * d)
    lists = emulate(IndexerTopkPlan, q, k, w, top_k=17, ends=ends)
    np.testing.assert_array_equal(lists, best(logits, 17))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bits_do_not_depend_on_company(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other queries of other sequences, launches of few queries, pages, unaligned rows, and room."""
    q, k, w = make(6, 5, 5, 24, 7, 50 if dtype.itemsize < 8 else 7, dtype)
    keys = 4 * k.shape[1]
    table, sequences = np.array([[4, 0, 6, 1], [2, 5, 3, 1]], np.int32), np.array([0, 0, 1, 0, 1], np.int32)
    lists = {"page_table": table, "batch_indices": sequences}
    logits, indices = emulate(IndexerLogitsPlan, q, k, w, **lists), emulate(IndexerTopkPlan, q, k, w, 9, **lists)
    monkeypatch.setattr("baracuda_py.schedules.attention.indexer.LOGITS", 1)  # a launch for each query
    np.testing.assert_array_equal(emulate(IndexerTopkPlan, q, k, w, 9, **lists), indices)
    for t in (0, 2, 4):
        own = np.zeros((1, keys + 3, 26), dtype)
        own[0, 3:, 1:25] = k[table[sequences[t]]].reshape(keys, 24)
        rows = own[..., 1:25]
        starts = np.array([3], np.int32)
        alone = emulate(IndexerLogitsPlan, q[t : t + 1], rows, w[t : t + 1], starts=starts)
        assert alone[:, 3:].tobytes() == logits[t : t + 1].tobytes() and np.isneginf(alone[:, :3]).all()


@pytest.mark.parametrize("dtype", [E4M3, np.dtype(np.float32)], ids=str)
def test_equal_logits_and_numbers_that_are_none(dtype: Any) -> None:
    """The lowest numbers of equals, over several tiles of keys; NaN first, -inf never."""
    q, k, w = make(7, 2, 1, 16, 1, 1500, dtype)
    q[:], k[:], w[:] = 0, 0, 1
    q[:, :, 0] = 1
    k[0, ::3, 0], k[0, 700, 0], k[0, 1400, 0] = 1, 2, np.nan
    want = [*range(0, 3 * 38, 3), 700, 1400]
    lists = emulate(IndexerTopkPlan, q, k, w, 40)
    np.testing.assert_array_equal(lists, [want, want])
    k[0, :, 0], scales = 1, np.ones((1, 1500), np.float32)
    scales[0, 3:] = -np.inf
    lists = emulate(IndexerTopkPlan, q, k, w, 5, k_scale=scales)
    np.testing.assert_array_equal(lists, [[0, 1, 2, -1, -1]] * 2)


def test_a_list_is_what_sparse_attention_takes() -> None:
    """Of all keys that a query sees it is attention to them."""
    rng = np.random.default_rng(8)
    q, k, w = make(8, 3, 2, 8, 4, 5)
    queries, cache = rng.standard_normal((3, 4, 12)), rng.standard_normal((4, 5, 12))
    lists = {"page_table": np.array([[2, 0], [3, 1]]), "batch_indices": np.array([0, 1, 1])}
    ends = np.array([7, 2, 9])
    indices = indexer_topk(q, k, w, ends=ends, **lists, top_k=16)
    every = np.where(np.arange(16) < ends[:, None], np.arange(16), -1).astype(np.int32)
    given = {**lists, "scale": 0.3, "d_rope": 4}
    np.testing.assert_array_equal(
        mla_sparse(queries, cache, indices, **given), mla_sparse(queries, cache, every, **given)
    )
