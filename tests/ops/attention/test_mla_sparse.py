"""mla_sparse: queries that list the cells they see, against the softmax over those cells written out; its kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.core.preference import PlanPreference
from baracuda_py.ops.attention.mla.mla_decode import mla_decode
from baracuda_py.ops.attention.mla.mla_sparse import MlaSparseDescriptor, MlaSparsePlan, mla_sparse
from baracuda_py.schedules.attention import mla
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view

ROWS = {"split_k_wgmma": np.float16, "split_k_mma": np.float16, "split_k": np.float32}


def truth(q: Any, cells: Any, lists: Any, scale: float, d_latent: int, sinks: Any = None) -> tuple[Any, Any]:
    """y and lse in float64, a row at a time; cells [cells, width], a list of cell numbers for each query."""
    y, lse = np.zeros((*q.shape[:2], d_latent)), np.full(q.shape[:2], -np.inf)
    for t, h in np.ndindex(q.shape[:2]):
        c = cells[[n for n in lists[t] if 0 <= n < len(cells)]].astype(np.float64)
        s = scale * (c @ q[t, h].astype(np.float64))
        s = s if sinks is None else np.append(s, sinks[h])
        if len(s):
            w = np.exp(s - s.max())
            y[t, h], lse[t, h] = w[: len(c)] @ c[:, :d_latent] / w.sum(), s.max() + np.log(w.sum())
    return y, lse


def make(seed: int, queries: int, heads: int, pages: int, page: int, width: int, top_k: int) -> Any:
    """Queries, a cache, and lists without duplicates of which some numbers are no cells."""
    rng = np.random.default_rng(seed)
    cells = pages * page
    lists = np.stack([np.resize(rng.permutation(cells), top_k) for _ in range(queries)]).astype(np.int32)
    lists[rng.random(lists.shape) < 0.1] = -1
    lists[rng.random(lists.shape) < 0.05] = cells
    return rng.standard_normal((queries, heads, width)), rng.standard_normal((pages, page, width)), lists


def test_is_attention_to_the_listed_cells() -> None:
    q, cache, lists = make(0, 4, 3, 5, 7, 12, 20)
    sinks = np.array([0.3, -np.inf, 2.0])
    cells = cache.reshape(-1, 12)
    for given in (None, sinks):
        y, lse = mla_sparse(q, cache, lists, sinks=given, scale=0.3, d_rope=4, return_lse=True)
        want = truth(q, cells, lists, 0.3, 8, given)
        np.testing.assert_allclose(y, want[0], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(lse, want[1], rtol=1e-12)
    lengths = np.array([-1, 0, 3, 99])
    y, lse = mla_sparse(q, cache, lists, lengths=lengths, scale=0.3, d_rope=4, return_lse=True)
    want = truth(q, cells, [x[: max(n, 0)] for x, n in zip(lists, lengths, strict=True)], 0.3, 8)
    np.testing.assert_allclose(y, want[0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(lse, want[1], rtol=1e-12)
    assert not y[:2].any() and np.isneginf(lse[:2]).all()


def test_positions_through_a_page_table() -> None:
    """Of sequences: a page that does not exist, and a sequence that does not, are left out."""
    q, cache, _ = make(1, 4, 3, 9, 4, 12, 6)
    table = np.array([[3, 1, 9, 8], [0, -1, 2, 7]])
    positions = np.array([[0, 15, 9, 4, 16, -1], [0, 5, 9, 15, 3, 14], [1] * 6, [1] * 6], np.int32)
    sequences = np.array([0, 1, 2, -1])
    y, lse = mla_sparse(
        q, cache, positions, page_table=table, batch_indices=sequences, scale=0.3, d_rope=4, return_lse=True
    )
    want = truth(q, cache.reshape(-1, 12), [[12, 35, 4], [0, 9, 31, 3, 30], [], []], 0.3, 8)
    np.testing.assert_allclose(y, want[0], rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(lse, want[1], rtol=1e-12)


def test_what_is_refused() -> None:
    q, cache, lists = make(2, 2, 3, 5, 4, 12, 6)
    with pytest.raises(InvalidProblemError, match="give page_table and batch_indices, or neither"):
        mla_sparse(q, cache, lists, batch_indices=np.zeros(2, int), scale=0.3, d_rope=4)
    with pytest.raises(InvalidProblemError, match="indices"):
        mla_sparse(q, cache, lists.astype(np.int64), scale=0.3, d_rope=4)
    with pytest.raises(InvalidProblemError, match="d_rope must be <= width"):
        mla_sparse(q, cache, lists, scale=0.3)


# ---- kernels ---------------------------------------------------------------------------------------------------------


def emulate(row: str, q: Any, cache: Any, lists: Any, d_rope: int, scale: float, **given: Any) -> Any:
    """y and lse of a row's kernels."""
    table = given.get("page_table")
    desc = MlaSparseDescriptor(
        num_queries=len(q), num_heads=q.shape[1], num_pages=cache.shape[0], page_size=cache.shape[1],
        width=q.shape[2], top_k=lists.shape[1], scale=scale, d_rope=d_rope, element=str(q.dtype),
        batch_size=0 if table is None else len(table), max_pages=0 if table is None else table.shape[1],
    )  # fmt: skip
    y, lse = np.full((*q.shape[:2], desc.d_latent), 7, q.dtype), np.full(q.shape[:2], 7, np.float32)
    chosen = MlaSparsePlan(desc, PlanPreference(), emulated_device(9.0))
    chosen.rows = tuple(variant for variant in chosen.rows if variant.name == row)
    arrays = {"q": q, "cache": cache, "indices": lists, **given, "y": y, "lse": lse}
    with emulating(1):
        chosen.run(MlaSparsePlan.args(**{name: pointer_view(x) for name, x in arrays.items()}))
    return y, lse


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize(
    ("queries", "heads", "page", "sizes"), [(1, 128, 64, (512, 64)), (3, 5, 16, (200, 40)), (2, 16, 1, (96, 8))]
)
def test_kernels(row: str, queries: int, heads: int, page: int, sizes: tuple[int, int]) -> None:
    q, cache, lists = make(3, queries, heads, 130 // page, page, sum(sizes), 75)
    q, cache = q.astype(ROWS[row]), cache.astype(ROWS[row])
    sinks = np.linspace(-1, 2, heads).astype(np.float32)
    y, lse = emulate(row, q, cache, lists, sizes[1], 0.05, sinks=sinks)
    want = truth(q, cache.reshape(-1, sum(sizes)), lists, 0.05, sizes[0], sinks)
    tolerance = 3e-3 if row != "split_k" else 1e-5
    np.testing.assert_allclose(y, want[0], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(lse, want[1], rtol=1e-4)


@pytest.mark.parametrize("row", ROWS)
def test_bits_of_a_query_do_not_depend_on_company(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other queries, launches of few queries, the list's room, positions in place of cells; over two splits."""
    q, cache, lists = make(4, 4, 7, 41, 27, 72, 1100)
    q, cache = q.astype(ROWS[row]), cache.astype(ROWS[row])
    y, lse = emulate(row, q, cache, lists, 8, 0.3)
    monkeypatch.setattr("baracuda_py.ops.attention.mla.mla_sparse.PARTS", 1)  # a launch for each query
    few = emulate(row, q, cache, lists, 8, 0.3)
    assert few[0].tobytes() == y.tobytes() and few[1].tobytes() == lse.tobytes()
    for t, length in ((0, 1100), (2, 1060), (3, 40)):
        roomy = np.append(lists[t : t + 1, :length], np.full((1, 60), 5, np.int32), 1)
        table, one = np.arange(41, dtype=np.int64)[None], np.zeros(1, np.int32)
        got = emulate(
            row, q[t : t + 1], cache, roomy, 8, 0.3, lengths=np.array([length]), page_table=table, batch_indices=one
        )
        alone = emulate(row, q[t : t + 1], cache, np.ascontiguousarray(lists[t : t + 1, :length]), 8, 0.3)
        assert got[0].tobytes() == alone[0].tobytes() and got[1].tobytes() == alone[1].tobytes()
        if length == 1100:
            assert got[0].tobytes() == y[t : t + 1].tobytes() and got[1].tobytes() == lse[t : t + 1].tobytes()


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_cells_that_are_not_listed_are_not_read(row: str, bad: float) -> None:
    q, cache, lists = make(5, 2, 3, 10, 8, 72, 40)
    q, cache = q.astype(ROWS[row]), cache.astype(ROWS[row])
    lists[0][lists[0] == 33], lists[1, 0] = -1, 33
    clean = emulate(row, q, cache, lists, 8, 0.3)
    cache.reshape(-1, 72)[33] = bad
    y, lse = emulate(row, q, cache, lists, 8, 0.3)
    assert y[0].tobytes() == clean[0][0].tobytes() and lse[0].tobytes() == clean[1][0].tobytes()
    assert not np.isfinite(y[1]).any()


@pytest.mark.parametrize("row", ROWS)
def test_the_list_of_a_whole_sequence_is_its_attention(row: str) -> None:
    """Within the rounding of weights, whose splits are others."""
    q, cache, _ = make(6, 1, 5, 6, 16, 72, 1)
    q, cache = q.astype(ROWS[row]), cache.astype(ROWS[row])
    lists = np.arange(90, dtype=np.int32)[None]
    y, lse = emulate(row, q, cache, lists, 8, 0.3)
    given = {"page_table": np.arange(6)[None], "lengths": np.array([90])}
    want = mla_decode(q[None].astype(float), cache.astype(float), **given, scale=0.3, d_rope=8, return_lse=True)
    np.testing.assert_allclose(y, want[0][0, 0][None], rtol=3e-3, atol=3e-3)
    np.testing.assert_allclose(lse, want[1][0, 0][None], rtol=1e-4)


def test_splits_are_whole_tiles() -> None:
    for split in (mla.SPLIT, mla.LIST_SPLIT):
        assert split % mla.MMA_KEYS == 0 == split % mla.WGMMA_KEYS
