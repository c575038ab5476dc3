"""mla_decode: attention over cells that are key and value; tables and their policy; bits without company."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from paged_caches import compressed, deal

from baracuda_py.core.preference import PlanPreference
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.mla.mla_decode import MlaDecodeDescriptor, MlaDecodePlan, mla_decode
from baracuda_py.testing.emulator import emulated_device, emulating
from baracuda_py.testing.recording import pointer_view

LENGTHS = np.array([40, 1, 13])


def truth(q: Any, cells: Any, lengths: Any, scale: float, d_latent: int) -> tuple[np.ndarray, np.ndarray]:
    """y and lse in float64, a row at a time; cells [batch, tokens, width]."""
    y, lse = np.zeros((*q.shape[:3], d_latent)), np.full(q.shape[:3], -np.inf)
    for b, i, h in np.ndindex(q.shape[:3]):
        c = cells[b, : max(0, int(lengths[b]) - q.shape[1] + i + 1)].astype(np.float64)
        if not len(c):
            continue
        s = scale * (c @ q[b, i, h].astype(np.float64))
        w = np.exp(s - s.max())
        y[b, i, h], lse[b, i, h] = w @ c[:, :d_latent] / w.sum(), s.max() + np.log(w.sum())
    return y, lse


def make(seed: int, batch: int = 3, queries: int = 2, heads: int = 5, cells: int = 40, width: int = 12) -> Any:
    rng = np.random.default_rng(seed)
    return rng, rng.standard_normal((batch, queries, heads, width)), rng.standard_normal((batch, cells, width))


def paged(rng: Any, cells: Any, page: int, fill: Any = np.nan, lengths: Any = None) -> tuple[Any, Any]:
    """The cells as pages in random order, and the padded table."""
    (cache,), table = deal(rng, [cells[:, None]], page, fill, lengths=lengths)
    return cache[:, 0], table


@pytest.mark.parametrize("page", [1, 3, 16, 64])
@pytest.mark.parametrize("queries", [1, 2, 7])
def test_is_attention_to_the_cells(page: int, queries: int) -> None:
    rng, q, cells = make(0, queries=queries)
    y, lse = truth(q, cells, LENGTHS, 0.3, 8)
    cache, table = paged(rng, cells, page, lengths=LENGTHS)
    used = -(-LENGTHS // page)
    padded = np.where(np.arange(table.shape[1]) < used[:, None], table, -7)
    for tables in (
        {"page_table": padded, "lengths": LENGTHS},
        {"page_table": padded.astype(np.int64), "lengths": LENGTHS.astype(np.int32)},
        compressed(table, LENGTHS, page, spare=2),
    ):
        got = mla_decode(q, cache, **tables, scale=0.3, d_rope=4, return_lse=True)
        np.testing.assert_allclose(got[0], y, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(got[1], lse, rtol=1e-12)


def test_sequences_without_tokens_and_lengths_beyond() -> None:
    rng, q, cells = make(1)
    cache, table = paged(rng, cells, 8)
    given = {"scale": 0.3, "d_rope": 4, "return_lse": True}
    y, lse = mla_decode(q, cache, page_table=table, lengths=np.array([-3, 1, 0]), **given)
    assert not y[[0, 2]].any() and np.isneginf(lse[[0, 2]]).all()
    assert not y[1, 0].any() and np.isneginf(lse[1, 0]).all() and np.isfinite(lse[1, 1]).all()
    want = mla_decode(q, cache, page_table=table, lengths=np.full(3, 40), **given)
    got = mla_decode(q, cache, page_table=table, lengths=np.array([99, 2**40, 41]), **given)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)
    got = mla_decode(q, cache, page_table=table, lengths=np.array([99, 2**40, 41]), max_cache_len=17, **given)
    np.testing.assert_allclose(got[0], truth(q, cells, [17] * 3, 0.3, 8)[0], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("page", [-1, 17, 2**31 - 1, 2**40, -(2**63)])
def test_tokens_of_pages_that_do_not_exist_are_left_out(page: int) -> None:
    rng, q, cells = make(3, queries=1)
    cache, table = paged(rng, cells, 8)
    table = table.astype(np.int64)
    table[1, 2] = page
    want, _ = truth(q[1:2], cells[1:2, np.r_[0:16, 24:40]], [32], 0.3, 8)
    got = mla_decode(q, cache, page_table=table, lengths=np.full(3, 40), scale=0.3, d_rope=4)
    np.testing.assert_allclose(got[1], want[0], rtol=1e-12)


@pytest.mark.parametrize("indptr", [[0, 2, 9, 6], [-3, 2, 3, 6], [5, 1, 2**62, 3], [9, 9, 9, 9], [0, -5, 2, 2]])
def test_wild_bounds_stay_inside(indptr: list[int]) -> None:
    rng, q, cells = make(4)
    cache, table = paged(rng, cells, 8, 0.5)
    for length in ({"lengths": np.full(3, 40)}, {"kv_last_page_len": np.full(3, 5)}):
        tables: Any = {"kv_indices": table.reshape(-1)[:6], "kv_indptr": np.array(indptr), **length}
        assert np.isfinite(mla_decode(q, cache, **tables, scale=0.3, d_rope=4)).all()


def test_a_checked_run_names_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    rng, q, cells = make(5)
    cache, table = paged(rng, cells, 8)
    with pytest.raises(InvalidProblemError, match="sequence 1 has 41 tokens and room for 40"):
        mla_decode(q, cache, page_table=table, lengths=np.array([1, 41, 2]), scale=0.3, d_rope=4)
    table[2, 1] = 17
    with pytest.raises(InvalidProblemError, match="position 8 of sequence 2 is in page 17 of 17"):
        mla_decode(q, cache, page_table=table, lengths=np.array([40, 40, 9]), scale=0.3, d_rope=4)


def test_what_is_refused() -> None:
    _, q, _ = make(6)
    cache, tables = np.zeros((17, 8, 12)), {"page_table": np.zeros((3, 5), int), "lengths": LENGTHS}
    with pytest.raises(InvalidProblemError, match="d_rope must be <= width"):
        mla_decode(q, cache, **tables, scale=0.3)
    with pytest.raises(InvalidProblemError, match="pass scale="):
        mla_decode(q, cache, **tables, d_rope=4)
    with pytest.raises(InvalidProblemError, match="give lengths"):
        mla_decode(q, cache, page_table=tables["page_table"], scale=0.3, d_rope=4)
    with pytest.raises(InvalidProblemError, match="width"):
        mla_decode(q, np.zeros((17, 8, 11)), **tables, scale=0.3, d_rope=4)


# ---- kernels ---------------------------------------------------------------------------------------------------------


def descriptor(q: Any, cache: Any, table: Any, d_rope: int, element: str, scale: float) -> MlaDecodeDescriptor:
    batch, queries, heads, width = q.shape
    return MlaDecodeDescriptor(
        batch_size=batch, num_queries=queries, num_heads=heads, num_pages=cache.shape[0], page_size=cache.shape[1],
        width=width, scale=scale, d_rope=d_rope, max_pages=table.shape[1], element=element,
    )  # fmt: skip


def emulate(row: str, q: Any, cache: Any, table: Any, lengths: Any, d_rope: int, scale: float) -> Any:
    """y and lse of a row's kernels."""
    desc = descriptor(q, cache, table, d_rope, str(q.dtype), scale)
    y, lse = np.full((*q.shape[:3], desc.d_latent), 7, q.dtype), np.full(q.shape[:3], 7, np.float32)
    chosen = MlaDecodePlan(desc, PlanPreference(), emulated_device(9.0))
    chosen.rows = tuple(variant for variant in chosen.rows if variant.name == row)
    tables = {"page_table": table.astype(np.int32), "lengths": np.asarray(lengths, np.int32)}
    arrays = {name: pointer_view(x) for name, x in {"q": q, "cache": cache, **tables, "y": y, "lse": lse}.items()}
    with emulating(1):
        chosen.run(MlaDecodePlan.args(**arrays))
    return y, lse


ROWS = {"split_k_wgmma": np.float16, "split_k_mma": np.float16, "split_k": np.float32}


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize(
    ("heads", "queries", "page", "sizes"),
    [(16, 1, 64, (512, 64)), (20, 4, 16, (512, 64)), (3, 1, 1, (200, 40)), (1, 16, 3, (64, 64)), (128, 1, 16, (96, 8))],
)
def test_kernels(row: str, heads: int, queries: int, page: int, sizes: tuple[int, int]) -> None:
    rng, q, cells = make(8, batch=2, queries=queries, heads=heads, cells=75, width=sum(sizes))
    q, cells, lengths = q.astype(ROWS[row]), cells.astype(ROWS[row]), [75, 2]
    cache, table = paged(rng, cells, page, lengths=lengths)
    y, lse = emulate(row, q, cache, table, lengths, sizes[1], 0.05)
    want = truth(q, cells, lengths, 0.05, sizes[0])
    tolerance = 3e-3 if row != "split_k" else 1e-5
    np.testing.assert_allclose(y, want[0], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(lse, want[1], rtol=1e-4)


@pytest.mark.parametrize("row", ROWS)
def test_bits_of_a_query_do_not_depend_on_company(row: str) -> None:
    """Other queries, sequences, pages, strides and bounds; over two splits, of which some queries see one."""
    rng, q, cells = make(9, batch=1, queries=5, heads=7, cells=1027, width=72)
    q, cells = q.astype(ROWS[row]), cells.astype(ROWS[row])
    cache, table = paged(rng, cells, 64)
    y, lse = emulate(row, q, cache, table, [1027], 8, 0.3)
    for i in (0, 2, 4):
        length = 1027 - 4 + i
        alone, other = paged(rng, cells[:, :length], 3)
        strided = np.full((*alone.shape[:2], 75), np.nan, alone.dtype)
        strided[..., 1:73] = alone
        got = emulate(row, q[:, i : i + 1], strided[..., 1:73], other, [length], 8, 0.3)
        assert got[0].tobytes() == y[:, i : i + 1].tobytes() and got[1].tobytes() == lse[:, i : i + 1].tobytes()


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_cells_that_a_query_does_not_see_add_nothing(row: str, bad: float) -> None:
    _, q, cells = make(10, batch=1, queries=4, heads=3, cells=40, width=72)
    q, cells = q.astype(ROWS[row]), cells.astype(ROWS[row])
    clean = emulate(row, q, *paged(np.random.default_rng(1), cells, 16), [40], 8, 0.3)
    cells[0, 38] = bad  # queries 0 and 1 do not see it
    y, lse = emulate(row, q, *paged(np.random.default_rng(1), cells, 16), [40], 8, 0.3)
    assert y[:, :2].tobytes() == clean[0][:, :2].tobytes() and lse[:, :2].tobytes() == clean[1][:, :2].tobytes()
    assert not np.isfinite(y[:, 2:]).any()


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("page", [-1, 7, 2**31 - 1])
def test_kernels_leave_missing_pages_out(row: str, page: int) -> None:
    """And a length beyond the table is clamped to it, a negative one to nothing."""
    rng, q, cells = make(12, batch=2, queries=1, heads=5, cells=80, width=72)
    q, cells = q.astype(ROWS[row]), cells.astype(ROWS[row])
    cache, table = paged(rng, cells[:1], 16)
    table = np.concatenate([table, table])
    table[0, 2] = page
    y, lse = emulate(row, q, cache, table, [999, -5], 8, 0.3)
    want = truth(q[:1], cells[:1, np.r_[0:32, 48:80]], [64], 0.3, 64)
    np.testing.assert_allclose(y[:1], want[0], rtol=3e-3, atol=3e-3)
    np.testing.assert_allclose(lse[:1], want[1], rtol=1e-4)
    assert not y[1].any() and np.isneginf(lse[1]).all()


@pytest.mark.parametrize(("cc", "row"), [(8.0, "split_k_mma"), (8.9, "split_k_mma"), (9.0, "split_k_wgmma")])
def test_rows_by_device(cc: float, row: str) -> None:
    _, q, _ = make(11, width=72)
    desc = descriptor(q, np.zeros((9, 4, 72)), np.zeros((3, 3)), 8, "bfloat16", 0.3)
    assert MlaDecodePlan.select(desc, device=emulated_device(cc)).rows[0].name == row
