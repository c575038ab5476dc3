"""cascade_paged_attention: the attention of flat tables, whatever the levels; bits free of company."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.paged.batch_paged_extend import batch_paged_extend
from baracuda_py.ops.attention.paged.cascade_paged_attention import cascade_paged_attention

PAGE, HEADS, KV_HEADS, D = 4, 4, 2, 16
# Pages of a tree of depth 3: a prefix of all, one of the first two sequences, and what each has alone.
ROOT, BRANCH, OWN = [3, 0], [5], [[1, 7], [2], [6, 4, 8]]
LENGTHS, QUERIES = [6, 3, 12], [2, 1, 3]  # of what each has alone


def tree(dtype: Any = np.float64) -> tuple[Any, Any, Any, Any]:
    """q, k_cache, v_cache, and the levels."""
    rng = np.random.default_rng(0)
    q = rng.standard_normal((sum(QUERIES), HEADS, D)).astype(dtype)
    k, v = (rng.standard_normal((9, KV_HEADS, PAGE, D)).astype(dtype) for _ in range(2))
    own = np.full((3, 3), -1, np.int32)
    for b, pages in enumerate(OWN):
        own[b, : len(pages)] = pages
    ints = [np.array(x, np.int32) for x in ([0, 6], [0, 3, 6], [0, 2, 3, 6])]
    tables = [np.array([ROOT], np.int32), np.array([BRANCH, [-1]], np.int32), own]
    lengths = [np.array(x, np.int32) for x in ([8], [4, 0], LENGTHS)]
    return q, k, v, {"qo_indptr": ints, "page_table": tables, "lengths": lengths}


def flat() -> dict[str, Any]:
    """The same sequences in one table."""
    whole = [ROOT + BRANCH + OWN[0], ROOT + BRANCH + OWN[1], ROOT + OWN[2]]
    table = np.full((3, 5), -1, np.int32)
    for b, pages in enumerate(whole):
        table[b, : len(pages)] = pages
    lengths = np.array([12 + LENGTHS[0], 12 + LENGTHS[1], 8 + LENGTHS[2]], np.int32)
    return {"qo_indptr": np.array([0, 2, 3, 6], np.int32), "page_table": table, "lengths": lengths}


@pytest.mark.parametrize("facts", [{}, {"softcap": 2.0, "scale": -0.3}, {"sinks": np.linspace(-1, 2, HEADS)}])
def test_levels_are_the_flat_tables(facts):
    q, k, v, levels = tree()
    got = cascade_paged_attention(q, k, v, **levels, **facts, return_lse=True)
    want = batch_paged_extend(q, k, v, **flat(), **facts, return_lse=True)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(cascade_paged_attention(q, k, v, **levels, **facts), got[0])


def test_results_are_written_where_they_are_wanted():
    q, k, v, levels = tree()
    want = cascade_paged_attention(q, k, v, **levels, return_lse=True)
    y, lse = np.empty_like(want[0]), np.empty_like(want[1])
    got = cascade_paged_attention(q, k, v, **levels, return_lse=True, out=(y, lse))
    assert got[0] is y and got[1] is lse
    np.testing.assert_array_equal(y, want[0])
    np.testing.assert_array_equal(lse, want[1])


def test_one_level_is_batch_paged_extend():
    q, k, v, _ = tree()
    one = {name: [array] for name, array in flat().items()}
    np.testing.assert_array_equal(cascade_paged_attention(q, k, v, **one), batch_paged_extend(q, k, v, **flat()))


def test_compressed_tables_and_pages_with_heads_behind_tokens():
    q, k, v, levels = tree()
    want = cascade_paged_attention(q, k, v, **levels)
    pages = [ROOT, BRANCH, [page for own in OWN for page in own]]
    bounds = [[0, 2], [0, 1, 1], [0, 2, 3, 6]]
    lists = {
        "qo_indptr": levels["qo_indptr"],
        "kv_indices": [np.array(x, np.int32) for x in pages],
        "kv_indptr": [np.array(x, np.int32) for x in bounds],
        "kv_last_page_len": [np.array(x, np.int32) for x in ([4], [4, 0], [2, 3, 4])],
    }
    np.testing.assert_array_equal(cascade_paged_attention(q, k, v, **lists), want)
    turned = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in (k, v))
    np.testing.assert_array_equal(cascade_paged_attention(q, *turned, **lists, layout="nhd"), want)


def test_a_query_has_the_bits_that_it_has_alone():
    q, k, v, levels = tree(np.float32)
    y = cascade_paged_attention(q, k, v, **levels)
    alone = {
        "qo_indptr": [np.array([0, 1], np.int32)] * 3,
        "page_table": [t[:1] for t in levels["page_table"]],
        "lengths": [levels["lengths"][0], levels["lengths"][1][:1], np.array([5], np.int32)],
    }
    np.testing.assert_array_equal(cascade_paged_attention(q[:1], k, v, **alone), y[:1])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lengths": [np.array([8], np.int32)]}, "lengths"),
        ({"page_table": np.zeros((3, 2), np.int32)}, "page_table"),
        ({"qo_indptr": []}, "qo_indptr"),
        ({"max_seqlen_q": [3, 3]}, "max_seqlen_q"),
        ({"lengths": None}, "lengths"),
    ],
)
def test_bad_input_is_named(change, words):
    q, k, v, levels = tree()
    with pytest.raises(InvalidProblemError, match=words):
        cascade_paged_attention(q, k, v, **levels | change)
