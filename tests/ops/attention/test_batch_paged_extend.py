"""batch_paged_extend: a token's bits follow from its position alone; trees; blocks of keys far and near."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from paged_caches import compressed, deal

from baracuda_py.core.args import arrays_of
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.core.preference import PlanPreference
from baracuda_py.ops.attention.paged.batch_paged_extend import (
    BatchPagedExtendArgs,
    BatchPagedExtendDescriptor,
    BatchPagedExtendPlan,
    batch_paged_extend,
)
from baracuda_py.ops.attention.paged.batch_paged_prefill import batch_paged_prefill
from baracuda_py.schedules.attention import extend
from baracuda_py.testing import emulated_device
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view

HEADS, GROUP = 2, 4  # key heads, and query heads of each


def made(lengths: list[int], queries: list[int], d: int = 64, page: int = 16, seed: int = 0, dtype: Any = np.float64):
    """q of each sequence's last tokens, pages, and tables."""
    rng = np.random.default_rng(seed)
    most = max(lengths)
    k, v = (rng.standard_normal((len(lengths), HEADS, most, d)).astype(dtype) for _ in range(2))
    rows = rng.standard_normal((sum(queries), HEADS * GROUP, d)).astype(dtype)
    caches, table = deal(rng, [k, v], page, np.nan, lengths=lengths)
    bounds = np.concatenate([[0], np.cumsum(queries)]).astype(np.int32)
    return rows, caches, {"page_table": table, "lengths": np.array(lengths, np.int32)}, bounds


def run(q: Any, caches: Any, tables: Any, bounds: Any, arch: float, units: int = 0, **facts: Any) -> Any:
    """y and lse as the kernels for `arch` leave them; units: blocks of keys that a thread block takes, 0 its choice."""
    optional = {n: facts.pop(n, None) for n in ("tree_mask", "slopes", "sinks")}
    k, v = caches
    desc = BatchPagedExtendDescriptor(
        batch_size=len(bounds) - 1, total_q=len(q), num_heads=q.shape[1], num_kv_heads=k.shape[1], d_k=q.shape[2],
        d_v=v.shape[3], num_pages=k.shape[0], page_size=k.shape[2], element=ElementKind.of(q.dtype),
        max_pages=tables["page_table"].shape[1] if "page_table" in tables else 0,
        num_indices=len(tables["kv_indices"]) if "kv_indices" in tables else 0,
        **{"is_causal": True, "max_seqlen_q": int(np.diff(bounds).max(initial=0)), **facts},
    )  # fmt: skip
    acc = desc.element.acc.dtype
    y, lse = np.full((*q.shape[:2], v.shape[3]), np.nan, q.dtype), np.full((q.shape[1], len(q)), np.nan, acc)
    given = {"q": q, "k_cache": k, "v_cache": v, "qo_indptr": bounds, **optional, **tables, "y": y, "lse": lse}
    names = {spec.name for spec in arrays_of(BatchPagedExtendArgs)}
    seen = {n: None if given.get(n) is None else pointer_view(given[n]) for n in names}
    with pytest.MonkeyPatch.context() as patch, emulating(1):
        if units:
            patch.setattr(extend, "run_of", lambda groups, at_once: units)
        BatchPagedExtendPlan.select(desc, device=emulated_device(arch)).run(BatchPagedExtendArgs(**seen))
    return y, lse


def truth(q: Any, caches: Any, tables: Any, bounds: Any, **facts: Any) -> Any:
    """The same on NumPy, in float64."""
    wide = [x.astype(np.float64) for x in (q, *caches)]
    for name in ("slopes", "sinks"):
        facts[name] = None if facts.get(name) is None else facts[name].astype(np.float64)
    return batch_paged_extend(*wide, bounds, facts.pop("tree_mask", None), **tables, return_lse=True, **facts)


def close(got: Any, want: Any) -> None:
    """Within the rounding of the element, and of float32 sums."""
    tight = got[0].dtype == np.float32
    np.testing.assert_allclose(got[0], want[0], rtol=0, atol=2e-6 if tight else 2e-3)
    np.testing.assert_allclose(got[1], want[1], rtol=2e-6, atol=2e-6)


ROWS = [(np.float16, 9.0), (np.float16, 8.0), (np.float32, 8.0)]


# ---- on NumPy --------------------------------------------------------------------------------------------------------


def test_without_terms_it_is_prefill():
    q, caches, tables, bounds = made([40, 3, 0, 70], [2, 1, 1, 3])
    got = batch_paged_extend(q, *caches, bounds, **tables, return_lse=True)
    want = batch_paged_prefill(q, *caches, bounds, **tables, is_causal=True, return_lse=True)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)
    used = [-(-int(n) // 16) for n in tables["lengths"]]
    lists = compressed(tables["page_table"], [40, 3, 16, 70], 16)
    assert len(lists["kv_indices"]) == sum(used) + 1
    lists["kv_last_page_len"] = np.array([8, 3, 0, 6], np.int32)
    np.testing.assert_array_equal(batch_paged_extend(q, *caches, bounds, **lists), want[0])


def test_a_chain_of_drafts_is_a_tree_and_siblings_do_not_see_each_other():
    q, caches, tables, bounds = made([20], [3])
    chain = np.tril(np.ones((3, 3), bool))
    want = batch_paged_extend(q, *caches, bounds, **tables)
    np.testing.assert_array_equal(batch_paged_extend(q, *caches, bounds, chain, **tables), want)
    siblings = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1]], bool)
    got = batch_paged_extend(q, *caches, bounds, siblings, **tables)
    np.testing.assert_array_equal(got[:2], want[:2])
    # the last query as if the second token were not there: the pages of the third in its place
    k, v = (np.delete(tokens(cache, tables, 20), 18, 0) for cache in caches)
    alone = batch_paged_extend(
        q[2:], *(pages(x) for x in (k, v)), np.array([0, 1]), page_table=np.arange(2)[None], lengths=np.array([19])
    )  # fmt: skip
    np.testing.assert_allclose(got[2], alone[0], rtol=1e-13, atol=1e-13)


def tokens(cache: Any, tables: Any, n: int) -> Any:
    """The first n tokens of the first sequence, [n, heads, d]."""
    page = cache.shape[2]
    row = tables["page_table"][0]
    return np.array([cache[row[i // page], :, i % page] for i in range(n)])


def pages(x: Any, page: int = 16) -> Any:
    """Tokens [n, heads, d] in pages, one after the other."""
    whole = np.zeros((-(-len(x) // page) * page, *x.shape[1:]), x.dtype)
    whole[: len(x)] = x
    return whole.reshape(-1, page, *x.shape[1:]).swapaxes(1, 2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tree_mask": np.ones((6, 4), bool)}, "tree_mask"),
        ({"tree_mask": np.ones((7, 3), np.float64)}, "tree_mask"),
        ({"slopes": np.ones(3)}, "slopes"),
        ({"sinks": np.ones((8, 1))}, "sinks"),
        ({"lengths": None}, "lengths"),
        ({"softcap": -1.0}, "softcap"),
        ({"max_seqlen_q": -1}, "max_seqlen_q"),
    ],
)
def test_bad_input_is_named(change, words):
    q, caches, tables, bounds = made([40, 3, 0, 70], [2, 1, 1, 3])
    with pytest.raises(InvalidProblemError, match=words):
        batch_paged_extend(q, *caches, bounds, **{**tables, **change})


# ---- kernels ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("dtype", "arch"), ROWS)
@pytest.mark.parametrize(
    "facts",
    [
        {"d": 128, "lengths": [300, 5], "queries": [3, 2]},
        {"d": 64, "lengths": [90, 40], "queries": [20, 1]},  # more than 64 rows
        {"d": 192, "lengths": [70], "queries": [2]},
        {"d": 256, "lengths": [70, 20], "queries": [30, 1], "scale": -0.05},
        {"d": 59, "lengths": [70], "queries": [2], "page": 3},  # rows that are not whole 16-byte pieces
        {"d": 64, "lengths": [90, 1], "queries": [4, 3], "window_left": 20},
        {"d": 32, "lengths": [40, 9], "queries": [3, 20], "causal_alignment": "top_left", "is_causal": False},
        {"d": 64, "lengths": [700, 0], "queries": [5, 1], "softcap": 3.0, "terms": True},
    ],
)
def test_kernels(dtype, arch, facts):
    facts = dict(facts)
    shape = {n: facts.pop(n) for n in ("lengths", "queries", "d", "page") if n in facts}
    q, caches, tables, bounds = made(**shape, dtype=dtype)
    if facts.pop("terms", False):
        rng = np.random.default_rng(3)
        facts["tree_mask"] = rng.random((len(q), max(shape["queries"]))) < 0.5
        facts["slopes"] = np.linspace(0.01, 0.3, HEADS * GROUP, dtype=np.float32)
        facts["sinks"] = np.linspace(-1, 3, HEADS * GROUP, dtype=np.float32)
    want = truth(q, caches, tables, bounds, **facts)
    close(run(q, caches, tables, bounds, arch, **facts), want)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("dtype", "arch"), ROWS)
def test_bits_follow_from_the_position_alone(dtype, arch):
    """Alone, in a chunk, beside others, in pages of another size, by blocks or by groups of them."""
    q, caches, tables, bounds = made([2600, 300], [5, 70], dtype=dtype)
    y, lse = run(q, caches, tables, bounds, arch, units=1)
    others = run(q, caches, tables, bounds, arch, units=extend.FOLD)
    np.testing.assert_array_equal(y, others[0])
    np.testing.assert_array_equal(lse, others[1])
    for i in (0, 4):
        one = {"page_table": tables["page_table"][:1], "lengths": np.array([2596 + i], np.int32)}
        alone = run(q[i : i + 1], caches, one, np.array([0, 1], np.int32), arch, units=extend.FOLD)
        np.testing.assert_array_equal(alone[0][0], y[i])
        np.testing.assert_array_equal(alone[1][:, 0], lse[:, i])
    again = [pages(tokens(cache, tables, 2600), 64) for cache in caches]
    wide = {"page_table": np.arange(len(again[0]), dtype=np.int32)[None], "lengths": np.array([2600], np.int32)}
    np.testing.assert_array_equal(run(q[:5], again, wide, np.array([0, 5], np.int32), arch)[0], y[:5])


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("dtype", "arch"), ROWS)
def test_sequences_that_are_a_page_each(dtype, arch):
    """A trainer's call, on views of a packed projection: the bits of a server's, in small pages and a token a step."""
    count, heads, d = 130, HEADS * GROUP, 64
    packed = np.random.default_rng(0).standard_normal((2 * count, heads + 2 * HEADS, d)).astype(dtype)
    q, k, v = packed[:, :heads], packed[:, heads:-HEADS], packed[:, -HEADS:]
    whole = [x.reshape(2, count, HEADS, d).transpose(0, 2, 1, 3) for x in (k, v)]
    each = np.arange(3, dtype=np.int32)
    tables = {"page_table": each[:2, None], "lengths": np.full(2, count, np.int32)}
    y, lse = run(q, whole, tables, each * count, arch)
    small = [pages(x[1].transpose(1, 0, 2), 16) for x in whole]
    for begin, end in ((0, 1), (1, 40), (129, 130)):
        one = {"page_table": np.arange(9, dtype=np.int32)[None], "lengths": np.array([end], np.int32)}
        part = run(q[count + begin : count + end], small, one, np.array([0, end - begin], np.int32), arch)
        np.testing.assert_array_equal(part[0], y[count + begin : count + end])
        np.testing.assert_array_equal(part[1], lse[:, count + begin : count + end])


@pytest.mark.parametrize("facts", [{}, {"window_left": 40, "softcap": 5.0, "scale": -0.3}])
def test_bits_follow_from_the_position_alone_on_numpy(facts):
    """In float64, where BLAS shows how it adds: chunks, tokens alone, other pages, as a chain of drafts."""
    facts = facts | {"preference": PlanPreference(same_bits=True)}
    q, caches, tables, bounds = made([130, 33], [100, 33])
    chain = np.tri(133, 100, dtype=bool)
    chain[100:] = np.tri(33, 100, dtype=bool)
    y, lse = truth(q, caches, tables, bounds, **facts)
    drafted = truth(q, caches, tables, bounds, tree_mask=chain, **facts)
    np.testing.assert_array_equal(drafted[0], y)
    np.testing.assert_array_equal(drafted[1], lse)
    again = [pages(tokens(cache, tables, 130), 64) for cache in caches]
    table = np.arange(len(again[0]), dtype=np.int32)[None]
    for begin, end in ((0, 1), (17, 18), (40, 77), (99, 100)):
        one = {"page_table": table, "lengths": np.array([30 + end], np.int32)}
        part = truth(q[begin:end], again, one, np.array([0, end - begin], np.int32), **facts)
        np.testing.assert_array_equal(part[0], y[begin:end])
        np.testing.assert_array_equal(part[1], lse[:, begin:end])


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("dtype", "arch"), ROWS)
def test_decoding_beside_chunks_of_prompts(dtype, arch):
    """In one launch every token has the bits that it has in one of decoding, or of its chunk, alone."""
    lengths, queries = [300, 17, 1, 290, 70], [1, 1, 1, 40, 70]
    q, caches, tables, bounds = made(lengths, queries, dtype=dtype)
    y, lse = run(q, caches, tables, bounds, arch)
    for some in (slice(0, 3), slice(3, 4), slice(4, 5)):
        rows = slice(bounds[some.start], bounds[some.stop])
        own = {name: table[some] for name, table in tables.items()}
        alone = run(q[rows], caches, own, bounds[some.start : some.stop + 1] - bounds[some.start], arch)
        np.testing.assert_array_equal(alone[0], y[rows])
        np.testing.assert_array_equal(alone[1], lse[:, rows])


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("dtype", "arch"), ROWS)
def test_values_that_no_row_sees(dtype, arch):
    """NaN beside what is seen, in cells beyond the length and in tokens that a tree hides."""
    q, caches, tables, bounds = made([90], [4], dtype=dtype)
    tree = np.tril(np.ones((4, 4), bool))
    tree[2:, 1] = False
    page, cell = tables["page_table"][0][87 // 16], 87 % 16
    for cache in caches:
        cache[page, :, cell] = np.nan
    y, lse = run(q, caches, tables, bounds, arch, tree_mask=tree)
    assert np.isnan(y[1]).all() and np.isnan(lse[:, 1]).all()
    assert np.isfinite(y[[0, 2, 3]]).all() and np.isfinite(lse[:, [0, 2, 3]]).all()


def test_blocks_far_and_near():
    assert [extend.blocks_of(n) for n in (0, 1, 256, 257, 32768, 32769, 33792, 33793)] == [
        0,
        1,
        1,
        2,
        128,
        129,
        129,
        130,
    ]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("units", [1, extend.FOLD])
def test_far_blocks(units):
    q, caches, tables, bounds = made([34000], [2], page=256, dtype=np.float16)
    got = run(q, caches, tables, bounds, 9.0, units)
    close(got, truth(q, caches, tables, bounds))
    one = {**tables, "lengths": np.array([33999], np.int32)}
    alone = run(q[:1], caches, one, np.array([0, 1], np.int32), 9.0, extend.FOLD)
    np.testing.assert_array_equal(alone[0][0], got[0][0])


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("dtype", "arch"), ROWS)
def test_what_tables_promise_in_vain(dtype, arch):
    """Pages end before the first that is missing; bounds that decrease, lengths beyond the table, long sequences."""
    q, caches, tables, bounds = made([90, 90], [4, 3], dtype=dtype)
    tables["page_table"][0, 3] = 10**6
    tables["lengths"][1] = 10**6
    for given in (bounds, np.array([5, 2, 7], np.int32), np.array([-3, 4, 99], np.int32)):
        want = truth(q, caches, {**tables, "lengths": np.array([90, 96], np.int32)}, given)
        filled = [np.nan_to_num(cache) for cache in caches]
        want = truth(q, filled, {**tables, "lengths": np.array([90, 96], np.int32)}, given)
        close(run(q, filled, tables, given, arch, max_seqlen_q=1), want)


def test_units_that_are_launched_do_not_grow_with_rows_that_no_sequence_has():
    desc = BatchPagedExtendDescriptor(
        batch_size=32, total_q=32 * 8, max_seqlen_q=8, num_heads=64, num_kv_heads=8, d_k=128, d_v=128, num_pages=16384,
        page_size=16, max_pages=512, is_causal=True, element="bfloat16",
    )  # fmt: skip
    plan = BatchPagedExtendPlan.select(desc, device=emulated_device(9.0))
    steps = plan.rows[0].geometry(plan._dense).steps
    assert [s.kernel for s in steps] == ["sequences", "wgmma_128", "merge"]
    assert steps[1].grid[0] == 4 * 8 * 32  # groups of 2048 keys, heads, sequences
    assert steps[1].smem <= 112 << 10
