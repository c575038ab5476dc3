"""Repetition penalties against transformers' and the original loops, XTC, Mirostat and draft trees by their papers."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

RNG = np.random.default_rng(7)
TEXT = RNG.integers(0, 4, (5, 60))
LOGITS = RNG.standard_normal((5, 6)).astype(np.float32)


def banned(row: list[int], n: int) -> set[int]:
    """transformers' NoRepeatNGramLogitsProcessor: what follows the last n - 1 tokens elsewhere."""
    if len(row) + 1 < n:
        return set()
    last = row[len(row) - n + 1 :]
    return {row[i + n - 1] for i in range(len(row) - n + 1) if row[i : i + n - 1] == last}


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [0, 1, 4, 60])
def test_no_ngram_comes_again(n: int, length: int) -> None:
    y = bc.repeat_penalties(LOGITS, TEXT[:, :length], ngram=n)
    for b in range(5):
        want = banned(TEXT[b, :length].tolist(), n)
        assert set(np.flatnonzero(np.isneginf(y[b]))) == want
    np.testing.assert_array_equal(y[~np.isneginf(y)], LOGITS[~np.isneginf(y)])


def dry(row: list[int], breakers: set[int]) -> dict[int, int]:
    """The loop of the author of DRY: how long the repetition is that each token would go on."""
    found: dict[int, int] = {}
    if not row or row[-1] in breakers:
        return dict.fromkeys(row, 0)
    for i, token in enumerate(row):
        n = 0
        while n < i and row[i - 1 - n] == row[-1 - n] and row[-1 - n] not in breakers:
            n += 1
        found[token] = max(found.get(token, 0), n)
    return found


@pytest.mark.parametrize("breakers", [[], [2]])
def test_dry_is_the_authors_loop(breakers: list[int]) -> None:
    y = bc.repeat_penalties(
        LOGITS, TEXT, multiplier=0.8, base=1.75, allowed_length=2, breakers=np.array(breakers, np.int64)
    )
    for b in range(5):
        want = LOGITS[b].astype(np.float64)
        for token, n in dry(TEXT[b].tolist(), set(breakers)).items():
            if n >= 2:
                want[token] -= 0.8 * 1.75 ** (n - 2)
        np.testing.assert_allclose(y[b], want, rtol=1e-6)


def test_options_by_row_and_lengths() -> None:
    options = {
        "ngram": np.array([0, 2, 0, 3, 0]), "multiplier": np.float32([0.5, 0, 1, 0, 2]),
        "base": np.float32([1.5, 2, 1, 2, 3]), "allowed_length": np.int32([1, 2, 3, 0, 2]),
    }  # fmt: skip
    lengths = np.array([60, 10, 33, 0, 2])
    y = bc.repeat_penalties(LOGITS, TEXT, lengths=lengths, **options)
    for b in range(5):
        own = {name: value[b].item() for name, value in options.items()}
        one = bc.repeat_penalties(LOGITS[b : b + 1], TEXT[b : b + 1, : lengths[b]], **own)
        np.testing.assert_array_equal(one[0], y[b])
    same = LOGITS.copy()
    assert bc.repeat_penalties(same, TEXT, ngram=2, out=same) is same
    with pytest.raises(InvalidProblemError, match="longest"):
        bc.repeat_penalties(LOGITS, TEXT, longest=0)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_xtc_leaves_the_least_of_the_top_choices() -> None:
    x = RNG.standard_normal((200, 8)).astype(np.float32) * 2
    p = softmax(x)
    y = bc.xtc_mask(x, 0.15, 1.0, seed=3)
    for b in range(200):
        top = np.flatnonzero(p[b] >= 0.15)
        gone = set(top) - {top[np.argmin(p[b, top])]} if len(top) else set()
        assert set(np.flatnonzero(np.isneginf(y[b]))) == gone
    np.testing.assert_array_equal(bc.xtc_mask(x, 0.15, 0.0, seed=3), x)
    cut = (np.isneginf(bc.xtc_mask(x, 0.05, 0.5, seed=5)).any(-1) & ((p >= 0.05).sum(-1) > 1)).mean()
    assert 0.35 < cut < 0.65
    some = bc.xtc_mask(x, 0.15, np.where(np.arange(200) % 2, 1, 0).astype(np.float32), seed=3)
    np.testing.assert_array_equal(some, np.where(np.arange(200)[:, None] % 2, y, x))
    with pytest.raises(InvalidProblemError, match=r"logits must be \[B, V\]"):
        bc.xtc_mask(x[0], seed=1)


def test_mirostat_holds_the_surprise() -> None:
    x = RNG.standard_normal((64, 50)).astype(np.float32)
    p = softmax(x)
    kept = ~np.isneginf(bc.mirostat_mask(x, 3.0))
    np.testing.assert_array_equal(kept, (-np.log2(p) <= 3.0) | (p == p.max(-1, keepdims=True)))
    mu, found = np.full(64, 6.0, np.float32), []
    for step in range(60):
        q = softmax(bc.mirostat_mask(x, mu))
        ids, following = bc.mirostat_sample(x, mu, tau=2.0, eta=0.2, seed=1, offset=1000 * step)
        surprise = -np.log2(q[np.arange(64), ids])
        np.testing.assert_allclose(following, mu - 0.2 * (surprise - 2.0), rtol=1e-4, atol=1e-4)
        mu = following
        found.append(surprise)
    assert abs(np.mean(found[20:]) - 2.0) < 0.15
    with pytest.raises(InvalidProblemError, match="mu must have shape"):
        bc.mirostat_sample(x, np.float32([1.0]), seed=1)


def test_a_draft_tree_is_verified() -> None:
    """Nodes come before their children; the mask is the closure of parents; verify_tree takes ids and parents."""
    n, batch = 40, 3
    parents = np.stack([np.concatenate([[-1, -1], RNG.integers(0, np.arange(2, n))]) for _ in range(batch)])
    step = -RNG.random((batch, n))
    scores = step.copy()
    for b in range(batch):
        for i in range(n):
            scores[b, i] += scores[b, parents[b, i]] if parents[b, i] >= 0 else 0
    tokens, roots = RNG.integers(0, 9, (batch, n)), RNG.integers(0, 9, batch)
    ids, above, depths, picked, mask = bc.draft_tree(roots, tokens, parents, scores, nodes=12)
    for b in range(batch):
        np.testing.assert_array_equal(picked[b], np.sort(np.argsort(-scores[b])[:11]))
        np.testing.assert_array_equal(ids[b], np.concatenate([[roots[b]], tokens[b, picked[b]]]))
        seen = np.eye(12, dtype=bool)
        for i in range(1, 12):
            assert above[b, i] < i and depths[b, i] == depths[b, above[b, i]] + 1
            seen[i] |= seen[above[b, i]]
        np.testing.assert_array_equal(mask[b], seen)
    assert (above[:, 0] == -1).all() and (depths[:, 0] == 0).all()
    target = softmax(RNG.standard_normal((batch, 12, 9)))
    out, _, accepted = bc.verify_tree(ids, above, target, seed=1)
    assert out.shape == (batch, 12) and (accepted >= 0).all()
    with pytest.raises(InvalidProblemError, match="nodes must be at most"):
        bc.draft_tree(roots, tokens, parents, scores, nodes=n + 2)
