"""Cut-offs by row, logprobs, renormalised rows, penalties, multinomial draws, beams, verification: against plain loops.

Tests of frequencies have fixed seeds, of which one in 10⁶ would fail.
"""

from __future__ import annotations

import numpy as np
import pytest
from call_placed import on

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

stats = pytest.importorskip("scipy.stats")
LOGITS = np.random.default_rng(0).standard_normal((6, 40)) * 2
F32 = np.float32


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def alike(counts: np.ndarray, p: np.ndarray) -> None:
    keep = p * counts.sum() > 5
    assert not counts[p == 0].any()
    assert stats.chisquare(counts[keep], p[keep] / p[keep].sum() * counts[keep].sum()).pvalue > 1e-6


def keeps(mask: np.ndarray, row: np.ndarray) -> list[int]:
    assert np.array_equal(mask[mask > -np.inf], row[mask > -np.inf])
    return np.flatnonzero(mask > -np.inf).tolist()


def test_cut_offs_by_definition() -> None:
    p = softmax(LOGITS)
    for b, (row, q) in enumerate(zip(LOGITS, p, strict=True)):
        entropy = -(q * np.log(q)).sum()
        nearest = np.argsort(np.abs(-np.log(q) - entropy))
        count = int(np.searchsorted(np.cumsum(q[nearest]), 0.7)) + 1
        limit = min(0.02, np.sqrt(0.02) * np.exp(-entropy))
        one = slice(b, b + 1)
        assert keeps(bc.min_p_mask(LOGITS[one], 0.1)[0], row) == np.flatnonzero(q >= 0.1 * q.max()).tolist()
        assert keeps(bc.epsilon_mask(LOGITS[one], 0.02)[0], row) == np.flatnonzero(q >= 0.02).tolist()
        assert keeps(bc.eta_mask(LOGITS[one], 0.02)[0], row) == np.flatnonzero(q >= limit).tolist()
        assert (
            keeps(bc.top_n_sigma_mask(LOGITS[one], 1.5)[0], row)
            == np.flatnonzero(row >= row.max() - 1.5 * row.std()).tolist()
        )
        assert keeps(bc.typical_p_mask(LOGITS[one], 0.7)[0], row) == sorted(nearest[:count].tolist())
        assert keeps(bc.top_k_mask(LOGITS[one], 5)[0], row) == sorted(np.argsort(-row)[:5].tolist())


def test_rows_of_options_are_rows_alone() -> None:
    options = {
        "temperature": np.array([1, 0.5, 2, 0, 1, 1], F32), "top_k": np.array([0, 5, 1, 9, 7, 0]),
        "top_p": np.array([1, 0.9, 0.5, 0.3, 0, 0.8], F32), "min_p": np.array([0, 0.01, 0, 0.2, 0, 0.1], F32),
        "typical_p": np.array([1, 0.5, 1, 1, 0.9, 0.2], F32), "eta": np.array([0, 0, 0.1, 0, 0.01, 0], F32),
        "seed": np.array([5, 6, 7, 8, 9, 5]),
    }  # fmt: skip
    ids, logprob, probs = bc.sample(LOGITS, **options, offset=3, return_logprob=True, return_probs=True)
    for b in range(6):
        own = {name: value[b].item() for name, value in options.items()}
        one = bc.sample(LOGITS[b : b + 1], **own, offset=3, return_logprob=True, return_probs=True)
        assert one[0][0] == ids[b] and one[1][0] == logprob[b]
        np.testing.assert_array_equal(one[2][0], probs[b])
        np.testing.assert_allclose(np.log(probs[b, ids[b]]), logprob[b], atol=1e-12)
        np.testing.assert_allclose(probs[b].sum(), 1)


def test_logprobs_of_the_best_and_of_given_tokens() -> None:
    p, tokens = softmax(LOGITS), np.array([0, 39, 5, 7, -1, 40])
    logprob, ids, best = bc.token_logprobs(LOGITS, tokens, top_n=4)
    np.testing.assert_allclose(logprob[:4], np.log(p[np.arange(4), tokens[:4]]))
    assert (logprob[4:] == -np.inf).all()
    np.testing.assert_array_equal(ids, np.argsort(-LOGITS, axis=1)[:, :4])
    np.testing.assert_allclose(best, np.log(np.sort(p, axis=1)[:, :-5:-1]))
    _, ids, best = bc.sample(LOGITS, top_k=2, top_n=4, seed=1)
    assert (ids[:, 2:] == -1).all() and (best[:, 2:] == -np.inf).all()
    np.testing.assert_allclose(np.exp(best[:, :2]).sum(1), 1)


def test_probabilities() -> None:
    p = softmax(LOGITS) * 3  # of any sum
    largest = np.argsort(-p, axis=1)[:, :5]
    y = bc.top_k_renorm(p, 5)
    np.testing.assert_array_equal(np.flatnonzero(y[0]), np.sort(largest[0]))
    np.testing.assert_allclose(y.sum(1), 1)
    np.testing.assert_allclose(bc.top_p_renorm(p, 1.0), p / p.sum(1, keepdims=True))
    drawn = bc.sample(np.broadcast_to(p[0], (20000, 40)), probabilities=True, seed=2)
    alike(np.bincount(drawn, minlength=40), p[0] / p[0].sum())
    none = np.array([[0.0, 0.0], [np.nan, -1.0], [0.0, 1.0]])
    ids, logprob = bc.sample(none, probabilities=True, seed=1, return_logprob=True)
    assert ids.tolist() == [-1, -1, 1] and np.isnan(logprob[:2]).all() and logprob[2] == 0
    assert bc.multinomial(none, 2, True, seed=1).tolist() == [[-1, -1], [-1, -1], [1, 1]]


def test_penalties_biases_and_masks() -> None:
    logits, history = np.array([[2.0, -2.0, 1.0, 0.5] * 10]), np.array([[0, 0, 1, -1, 99]])
    mask = np.array([[~(1 << 3), 1]], np.int32)
    y = bc.adjust_logits(logits, history, np.array([[2]]), repetition=2.0, frequency=0.5, presence=0.25, mask=mask,
                         bias=np.full((1, 40), 10.0))[0]  # fmt: skip
    assert y[:4].tolist() == [1 - 1.25 + 10, -4 - 0.75 + 10, 0.5 + 10, -np.inf]
    assert y[4] == 12 and y[32] == 12 and (y[33:] == -np.inf).all()
    rows = bc.adjust_logits(np.ones((2, 3)), np.zeros((2, 1), np.int64), presence=np.array([0, 5], F32))
    assert rows.tolist() == [[1, 1, 1], [-4, 1, 1]]


def test_multinomial() -> None:
    w = np.array([0.0, 1.0, 2.0, 3.0, np.nan, 4.0])
    ids = bc.multinomial(w, 20000, True, seed=3)
    alike(np.bincount(ids, minlength=6), np.array([0, 0.1, 0.2, 0.3, 0, 0.4]))
    pairs = bc.multinomial(np.broadcast_to(w, (20000, 6)), 2, seed=4)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    p = np.array([0, 0.1, 0.2, 0.3, 0, 0.4])
    both = np.outer(p, p) / (1 - p)[:, None]
    np.fill_diagonal(both, 0)
    alike(np.bincount(pairs[:, 0] * 6 + pairs[:, 1], minlength=36), both.reshape(-1))
    assert bc.multinomial(w, 6, seed=1)[4:].tolist() == [-1, -1]
    with pytest.raises(InvalidProblemError, match="num_samples must be at most vocab_size = 6"):
        bc.multinomial(w, 7, seed=1)


def test_choices_of_weights_that_do_not_fit_and_of_nothing() -> None:
    with pytest.raises(InvalidProblemError, match="p must have a weight for each of the 3"):
        bc.choice(3, 2, p=np.ones(4), seed=1)
    assert bc.choice(0, (0, 2), seed=1).shape == (0, 2)
    assert bc.choice(np.zeros(0), 0, seed=1).shape == (0,)


def test_balls_of_offsets_in_arrays() -> None:
    facts = {"shape": (4,), "seed": 3}
    np.testing.assert_array_equal(bc.ball(2, offset=np.array(4), **facts), bc.ball(2, offset=4, **facts))
    with pytest.raises(InvalidProblemError, match="p must be above 0 and finite, got -1"):
        bc.ball(2, -1, seed=1)


def test_orders() -> None:
    seen = [tuple(bc.randperm(4, seed=s).tolist()) for s in range(3000)]
    places = {one: i for i, one in enumerate(sorted(set(seen)))}
    assert len(places) == 24
    alike(np.bincount([places[one] for one in seen]), np.full(24, 1 / 24))
    for n in (0, 1, 4096, 4097, 70000):
        assert np.array_equal(np.sort(bc.randperm(n, seed=n)), np.arange(n))
    large = bc.randperm(70000, seed=1)
    assert stats.kstest(large[:5000] / 70000, "uniform").pvalue > 1e-6
    assert abs(np.corrcoef(large, np.arange(70000))[0, 1]) < 5 / np.sqrt(70000)
    x = np.arange(12).reshape(3, 4)
    assert np.array_equal(np.sort(bc.permutation(x, axis=1, seed=2), axis=1), x)


def test_drafted_ids_outside_the_row_do_not_stay(place) -> None:
    alike_rows = {"draft_probs": np.full((4, 2, 3), 1 / 3), "target_probs": np.full((4, 3, 3), 1 / 3)}
    drafted = np.array([[3, 1], [1, 2**40], [-1, 1], [1, 2]])
    ids, accepted = on(place, bc.verify_chain, drafted, *alike_rows.values(), seed=1)
    assert accepted.tolist() == [0, 1, 0, 2]
    assert ((ids >= 0).sum(1) == accepted + 1).all() and (ids < 3).all()
    with pytest.raises(InvalidProblemError, match="draft_ids"):
        bc.verify_chain(drafted.astype(F32), *alike_rows.values(), seed=1)


def test_beams() -> None:
    logprobs, scores = LOGITS.reshape(2, 3, 40), np.array([[0.0, 1, -1], [-np.inf, 0, 0]])
    best, parents, tokens = bc.beam_step(logprobs, scores, width=5)
    sums = (scores[:, :, None] + logprobs).reshape(2, -1)
    np.testing.assert_array_equal(best, -np.sort(-sums, axis=1)[:, :5])
    np.testing.assert_array_equal(np.take_along_axis(sums, parents * 40 + tokens, axis=1), best)
    assert not (parents[1] == 0).any()
    _, parents, tokens = bc.beam_step(np.zeros((1, 2, 3)), np.zeros((1, 2)), width=4)
    assert parents.tolist() == [[0, 0, 0, 1]] and tokens.tolist() == [[0, 1, 2, 0]]


@pytest.mark.parametrize(("beams", "vocab", "equal"), [(2, 8204, False), (1, 1100, True)])
def test_beams_of_parts_and_of_equals(place: str, beams: int, vocab: int, equal: bool) -> None:
    rng = np.random.default_rng(4)
    logprobs = np.zeros((1, beams, vocab)) if equal else np.round(4 * rng.standard_normal((1, beams, vocab))) / 4
    scores = np.arange(beams, dtype=np.float64)[None] / 4
    best, parents, tokens = on(place, bc.beam_step, logprobs, scores, width=5)
    sums = (scores[:, :, None] + logprobs).reshape(-1)
    order = np.argsort(-sums, kind="stable")[:5]
    np.testing.assert_array_equal(best[0], sums[order])
    np.testing.assert_array_equal(parents[0] * vocab + tokens[0], order)


def test_a_verified_chain_has_the_distribution_of_the_target() -> None:
    rng, count = np.random.default_rng(1), 20000
    p, q = softmax(rng.standard_normal((3, 5))), softmax(rng.standard_normal((2, 5)))
    drafts = np.stack([rng.choice(5, count, p=row) for row in q], axis=1)
    ids, accepted = bc.verify_chain(
        drafts, np.broadcast_to(q, (count, 2, 5)), np.broadcast_to(p, (count, 3, 5)), seed=2
    )
    alike(np.bincount(ids[:, 0], minlength=5), p[0])
    alike(np.bincount(ids[accepted >= 1, 1], minlength=5), p[1])
    alike(np.bincount(ids[accepted == 2, 2], minlength=5), p[2])
    assert ((ids >= 0).sum(1) == accepted + 1).all() and 0 < accepted.mean() < 2
    same = bc.verify_chain(drafts[:9], *[np.broadcast_to(p[:2], (9, 2, 5)), np.broadcast_to(p, (9, 3, 5))], seed=2)
    assert (same[1] == 2).all()


def test_a_verified_tree_has_the_distribution_of_the_target() -> None:
    rng, count = np.random.default_rng(2), 20000
    p = softmax(rng.standard_normal((4, 5)))
    tokens, parents = np.array([9, 1, 3, 2]), np.array([-1, 0, 0, 1])
    ids, path, accepted = bc.verify_tree(*(np.broadcast_to(x, (count, 4)) for x in (tokens, parents)),
                                         np.broadcast_to(p, (count, 4, 5)), seed=3)  # fmt: skip
    alike(np.bincount(ids[:, 0], minlength=5), p[0])
    for node, token in ((1, 1), (2, 3)):
        there = ids[:, 0] == token
        assert (path[there, 1] == node).all() and (accepted[there] >= 1).all()
        alike(np.bincount(ids[there, 1], minlength=5), p[node])
    deep = accepted == 2
    assert (ids[deep, 1] == 2).all() and (path[deep, 2] == 3).all()
    alike(np.bincount(ids[deep, 2], minlength=5), p[3])
    assert (ids[accepted == 0, 1:] == -1).all()
