"""Alignments and best paths of CTC against all paths, edit distances against the textbook's table."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import baracuda_py as bc

RNG = np.random.default_rng(5)


def collapsed(path: tuple[int, ...], blank: int) -> list[int]:
    return [c for t, c in enumerate(path) if c != blank and (t == 0 or path[t - 1] != c)]


@pytest.mark.parametrize("blank", [0, 2])
def test_an_alignment_is_the_best_of_all_paths(blank: int) -> None:
    steps, batch, classes = 6, 12, 3
    lp = bc.log_softmax(RNG.standard_normal((steps, batch, classes)) * 2)
    labels = np.array([c for c in range(classes) if c != blank])
    targets = labels[RNG.integers(0, 2, (batch, 3))]
    lengths, input_lengths = RNG.integers(0, 4, batch), RNG.integers(0, 7, batch)
    path, which, score = bc.ctc_align(lp, targets, input_lengths, lengths, blank=blank, return_labels=True)
    for n in range(batch):
        t, want = int(input_lengths[n]), targets[n, : lengths[n]].tolist()
        sums = {
            way: sum(lp[i, n, c] for i, c in enumerate(way))
            for way in product(range(classes), repeat=t) if collapsed(way, blank) == want
        }  # fmt: skip
        if not sums:
            assert score[n] == -np.inf and (path[n] == -1).all()
            continue
        best = max(sums, key=lambda way: sums[way])
        np.testing.assert_allclose(score[n], sums[best])
        assert path[n, :t].tolist() == list(best) and (path[n, t:] == -1).all()
        spelled = [want[k] for k in which[n, :t] if k >= 0]
        assert spelled == [c for c in best if c != blank]


def test_an_alignments_score_is_at_most_all_paths() -> None:
    lp = bc.log_softmax(RNG.standard_normal((50, 4, 9), dtype=np.float32))
    targets, lengths = RNG.integers(1, 9, (4, 12)), np.array([12, 5, 0, 12])
    steps = np.array([50, 30, 50, 24])
    _, score = bc.ctc_align(lp, targets, steps, lengths)
    loss = bc.ctc_loss(lp, targets, steps, lengths, reduction="none")
    assert (score <= -loss + 1e-4).all()


def test_greedy_decoding_and_collapsing() -> None:
    lp = RNG.standard_normal((30, 5, 4), dtype=np.float32)
    lengths = np.array([30, 0, 7, 1, 29])
    tokens, counts = bc.ctc_greedy_decode(lp, lengths, blank=1)
    _, _, starts = bc.ctc_collapse(lp.argmax(-1), lengths=lengths, blank=1, return_starts=True)
    for n in range(5):
        way = tuple(lp[: lengths[n], n].argmax(-1).tolist())
        want = collapsed(way, 1)
        assert counts[n] == len(want) and tokens[n].tolist() == want + [-1] * (30 - len(want))
        assert [way[t] for t in starts[n, : counts[n]]] == want


def table(a: list[int], b: list[int]) -> int:
    d = np.zeros((len(a) + 1, len(b) + 1), int)
    d[:, 0], d[0] = np.arange(len(a) + 1), np.arange(len(b) + 1)
    for i, x in enumerate(a, 1):
        for j, y in enumerate(b, 1):
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (x != y))
    return int(d[-1, -1])


def test_edit_distances() -> None:
    a, b = RNG.integers(0, 3, (6, 17)), RNG.integers(0, 3, (6, 11))
    la, lb = np.array([17, 0, 5, 16, 1, 9]), np.array([11, 4, 0, 11, 1, 10])
    assert bc.edit_distance(a, b).tolist() == [table(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    found = bc.edit_distance(a, b, a_lengths=la, b_lengths=lb)
    assert found.tolist() == [table(a[n, : la[n]].tolist(), b[n, : lb[n]].tolist()) for n in range(6)]
    words = [np.array([[ord(c) for c in word]]) for word in ("kitten", "sitting")]
    assert bc.edit_distance(*words).tolist() == [3]
