"""flash_sdpa_varlen: each sequence is flash_sdpa of it alone; bounds of every kind."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.dense.flash_sdpa import flash_sdpa
from baracuda_py.ops.attention.packed.flash_sdpa_varlen import (
    FlashSdpaVarlenDescriptor,
    FlashSdpaVarlenPlan,
    flash_sdpa_varlen,
)
from baracuda_py.ops.attention.packed.ragged import settled
from baracuda_py.schedules.attention.packed import AS_THEY_STAND, KEYS, QUERIES, TileList

LENGTHS = [(5, 7), (0, 4), (1, 1), (3, 0), (13, 11), (0, 0), (2, 29)]


def bounds(lengths, index=np.int32):
    """Bounds of queries and of keys."""
    ends = np.cumsum([(0, 0), *lengths], axis=0).astype(index)
    return ends[:, 0], ends[:, 1]


def make(rng, total_q, total_k, heads=4, kv_heads=2, d_k=8, d_v=6, dtype=np.float64):
    """Random packed q, k, v."""
    shapes = (total_q, heads, d_k), (total_k, kv_heads, d_k), (total_k, kv_heads, d_v)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def one_by_one(q, k, v, cu_q, cu_k, *, slopes=None, sinks=None, offset=0, **facts):
    """flash_sdpa of every sequence, its last query at its last key by default; nothing elsewhere."""
    facts = {"causal_alignment": "bottom_right"} | facts
    y, lse = np.zeros((*q.shape[:2], v.shape[2])), np.full(q.shape[1::-1], -np.inf)
    lse = lse if sinks is None else np.broadcast_to(sinks[:, None], lse.shape).copy()
    for b in range(len(cu_q) - 1):
        rows, keys = slice(cu_q[b], cu_q[b + 1]), slice(cu_k[b], cu_k[b + 1])
        alone = [x.swapaxes(0, 1)[None] for x in (q[rows], k[keys], v[keys])]
        tilts = slopes if slopes is None or slopes.ndim == 1 else slopes[b : b + 1]
        stream = {"offset": offset + (b << 32)} if facts.get("dropout_p") else {}
        made = flash_sdpa(*alone, slopes=tilts, sinks=sinks, return_lse=True, **stream, **facts)
        y[rows], lse[:, rows] = made[0][0].swapaxes(0, 1), made[1][0]
    return y, lse


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("facts", [{}, {"is_causal": True}, {"is_causal": True, "causal_alignment": "top_left"}])
def test_sequences_do_not_see_each_other(facts, index):
    cu_q, cu_k = bounds(LENGTHS, index)
    q, k, v = make(np.random.default_rng(0), cu_q[-1], cu_k[-1])
    y, lse = flash_sdpa_varlen(q, k, v, cu_q, cu_k, scale=0.4, return_lse=True, **facts)
    want, want_lse = one_by_one(q, k, v, cu_q, cu_k, scale=0.4, **facts)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(lse, want_lse)
    assert y.any(axis=(1, 2))[:5].all()


RNG = np.random.default_rng(7)
TERMS = {
    "softcap": {"softcap": 0.8}, "slopes": {"slopes": np.array([0.5, 0.2, -0.3, 0.0])},
    "slopes of each": {"slopes": RNG.standard_normal((len(LENGTHS), 4))},
    "sinks": {"sinks": RNG.standard_normal(4), "is_causal": True},
    "dropout": {"dropout_p": 0.4, "seed": 5, "offset": 3},
    "all": {
        "softcap": 2.0, "slopes": RNG.standard_normal((len(LENGTHS), 4)), "sinks": RNG.standard_normal(4),
        "dropout_p": 0.2, "seed": 2**40, "offset": -1, "window_left": 9, "causal_alignment": "top_left",
    },
}  # fmt: skip


@pytest.mark.parametrize("facts", TERMS.values(), ids=TERMS)
def test_score_terms_are_those_of_each_sequence_alone(facts):
    cu_q, cu_k = bounds(LENGTHS)
    q, k, v = make(np.random.default_rng(8), cu_q[-1] + 2, cu_k[-1])
    y, lse = flash_sdpa_varlen(q, k, v, cu_q, cu_k, return_lse=True, **facts)
    want, want_lse = one_by_one(q, k, v, cu_q, cu_k, **facts)
    np.testing.assert_array_equal(y, want)
    np.testing.assert_array_equal(lse, want_lse)
    plain = flash_sdpa_varlen(q, k, v, cu_q, cu_k)
    assert (y != plain).any()


def test_sequences_of_one_length_draw_different_numbers():
    cu = np.array([0, 9, 18])
    q, k, v = (np.concatenate([x, x]) for x in make(np.random.default_rng(9), 9, 9))
    y = flash_sdpa_varlen(q, k, v, cu, cu, dropout_p=0.5, seed=1)
    assert (y[:9] != y[9:]).any()


def test_dropout_needs_a_seed():
    q, k, v = make(np.random.default_rng(9), 9, 9)
    with pytest.raises(InvalidProblemError, match="seed"):
        flash_sdpa_varlen(q, k, v, np.array([0, 9]), np.array([0, 9]), dropout_p=0.5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"slopes": np.ones(3)}, {"slopes": np.ones((3, 4))}, {"sinks": np.ones(3)}, {"sinks": np.ones((1, 4))},
        {"slopes": np.ones(4, np.float32)}, {"softcap": -1.0}, {"dropout_p": 1.5},
    ],
    ids=str,
)  # fmt: skip
def test_terms_that_do_not_fit_are_refused(wrong):
    q, k, v = make(np.random.default_rng(10), 9, 9)
    with pytest.raises(InvalidProblemError):
        flash_sdpa_varlen(q, k, v, np.array([0, 4, 9]), np.array([0, 4, 9]), seed=1, **wrong)


def test_rows_of_no_sequence_get_nothing():
    q, k, v = make(np.random.default_rng(1), 12, 9)
    y, lse = flash_sdpa_varlen(q, k, v, np.array([2, 5, 9]), np.array([0, 4, 6]), return_lse=True)
    outside = [0, 1, 9, 10, 11]
    assert not y[outside].any() and np.isneginf(lse[:, outside]).all()
    assert np.isfinite(lse[:, 2:9]).all()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([0, 10, 4, 12], [0, 10, 10, 12]),
        ([-5, 3, 2**40, 7], [0, 3, 12, 12]),
        ([12, 11, 3, 0], [12, 12, 12, 12]),
        ([0, -1, -2, 5], [0, 0, 0, 5]),
        ([20, 30, -(2**62), 2**62], [12, 12, 12, 12]),
    ],
)
def test_bounds_are_clamped_to_the_range_and_to_those_before(given, kept):
    np.testing.assert_array_equal(settled(given, 12), kept)
    q, k, v = make(np.random.default_rng(2), 12, 12)
    got = flash_sdpa_varlen(q, k, v, np.array(given), np.array(kept))
    np.testing.assert_array_equal(got, flash_sdpa_varlen(q, k, v, np.array(kept), np.array(kept)))


@pytest.mark.parametrize(
    ("cu_q", "longest", "match"),
    [([0, 9, 4, 12], 12, r"\[2\] is 4"), ([0, 3, 5, 13], 12, r"\[3\] is 13"), ([0, 1, 7, 12], 5, "of 6 rows")],
)
def test_a_checked_run_refuses_them(monkeypatch, cu_q, longest, match):
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    q, k, v = make(np.random.default_rng(3), 12, 12)
    good = np.array([0, 3, 3, 12])
    flash_sdpa_varlen(q, k, v, good, good)
    with pytest.raises(InvalidProblemError, match=match):
        flash_sdpa_varlen(q, k, v, np.array(cu_q), good, max_seqlen_q=longest)


def test_nothing_at_all():
    q, k, v = make(np.random.default_rng(4), 3, 0)
    y, lse = flash_sdpa_varlen(q, k, v, np.array([0]), np.array([0]), return_lse=True)
    assert not y.any() and np.isneginf(lse).all()
    y = flash_sdpa_varlen(q[:0], k, v, np.array([0, 0]), np.array([0, 0]))
    assert y.shape == (0, 4, 6)


def test_batch_size_follows_from_the_bounds():
    q, k, v = make(np.random.default_rng(5), 4, 4)
    with pytest.raises(InvalidProblemError, match="cu_seqlens_k"):
        flash_sdpa_varlen(q, k, v, np.array([0, 2, 4]), np.array([0, 4]))


def test_a_list_has_place_for_any_bounds():
    rng = np.random.default_rng(6)
    for _ in range(300):
        batch, total, rows = rng.integers(0, 9), rng.integers(0, 200), int(rng.choice([1, 16, 64]))
        desc = FlashSdpaVarlenDescriptor(
            batch_size=int(batch), total_q=int(total), total_k=int(total), num_heads=1, d_k=8, d_v=8, element="float32"
        )
        ends = np.sort(rng.integers(0, total + 1, batch + 1))
        pieces = np.diff(np.concatenate([[0], ends, [total]]))
        for side in (QUERIES, KEYS):
            assert (-(-pieces // rows)).sum() <= TileList(side, rows, AS_THEY_STAND).capacity(desc)


@pytest.mark.parametrize(("cc", "d", "row"), [(9.0, 64, "wgmma"), (9.0, 32, "mma"), (8.6, 128, "mma")])
def test_the_row_a_device_takes(cc, d, row):
    desc = FlashSdpaVarlenDescriptor(
        batch_size=3, total_q=64, total_k=80, num_heads=2, d_k=d, d_v=d, element="bfloat16"
    )
    plan = FlashSdpaVarlenPlan.select(desc, device=fake_device(cc))
    assert plan.sku.variant == row
    assert plan.workspace_size() < 4096
