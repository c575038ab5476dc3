"""ctc_beam_decode against all paths, against the textbook's search with every label, and against the loss."""

from __future__ import annotations

from collections import defaultdict
from itertools import product
from typing import Any

import numpy as np
import pytest
from call_placed import on

import baracuda_py as bc


def _log_probs(*shape: int, seed: int = 3, scale: float = 2.0) -> Any:
    x = np.random.default_rng(seed).standard_normal(shape) * scale
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def _decoded(place: str, lp: Any, **given: Any) -> Any:
    return on(place, bc.ctc_beam_decode, lp, plan=bc.CtcBeamDecodePlan, **given)


def _spelled(way: tuple[int, ...], blank: int) -> tuple[int, ...]:
    return tuple(c for t, c in enumerate(way) if c != blank and (t == 0 or way[t - 1] != c))


@pytest.mark.parametrize("blank", (0, 2))
def test_a_beam_that_holds_all_prefixes_sums_all_paths(place: str, blank: int) -> None:
    steps, batch, classes = 4, 3, 3  # 2 labels make 31 prefixes of at most 4
    lp = _log_probs(steps, batch, classes)
    tokens, counts, scores = _decoded(place, lp, blank=blank, beam_width=32, nbest=7)
    for n in range(batch):
        sums: dict[tuple[int, ...], float] = defaultdict(lambda: -np.inf)
        for way in product(range(classes), repeat=steps):
            spelling = _spelled(way, blank)
            sums[spelling] = np.logaddexp(sums[spelling], sum(lp[t, n, c] for t, c in enumerate(way)))
        best = sorted(sums, key=lambda one: -sums[one])[:7]
        for k, want in enumerate(best):
            assert tuple(tokens[n, k, : counts[n, k]]) == want and (tokens[n, k, counts[n, k] :] == -1).all()
            np.testing.assert_allclose(scores[n, k], sums[want], rtol=1e-12)


def _textbook(lp: Any, width: int) -> list[tuple[tuple[int, ...], float]]:
    """Hannun et al.'s search of one sequence with every label; the blank is 0."""
    beam = {(): (0.0, -np.inf)}
    for frame in lp:
        made: Any = defaultdict(lambda: [-np.inf, -np.inf])
        for prefix, (ends_blank, ends_label) in beam.items():
            for c, own in enumerate(frame):
                both = np.logaddexp(ends_blank, ends_label) + own
                if c == 0:
                    made[prefix][0] = np.logaddexp(made[prefix][0], both)
                elif prefix[-1:] == (c,):
                    made[prefix][1] = np.logaddexp(made[prefix][1], ends_label + own)
                    made[(*prefix, c)][1] = np.logaddexp(made[(*prefix, c)][1], ends_blank + own)
                else:
                    made[(*prefix, c)][1] = np.logaddexp(made[(*prefix, c)][1], both)
        best = sorted(made.items(), key=lambda item: -np.logaddexp(*item[1]))[:width]
        beam = {prefix: tuple(sums) for prefix, sums in best}
    return [(prefix, float(np.logaddexp(*sums))) for prefix, sums in beam.items()]


@pytest.mark.parametrize(("steps", "classes", "width"), ((30, 4, 5), (17, 40, 10), (12, 3, 32), (9, 9, 1)))
def test_the_textbooks_search(place: str, steps: int, classes: int, width: int) -> None:
    lp = _log_probs(steps, 2, classes, seed=steps, scale=1.0)
    lengths = np.array([steps, steps - 2])
    tokens, counts, scores = _decoded(
        place, np.moveaxis(lp, 0, 2).copy().transpose(2, 0, 1), beam_width=width, nbest=width
    )
    for n in range(2):
        for k, (want, score) in enumerate(_textbook(lp[:, n], width)):
            assert tuple(tokens[n, k, : counts[n, k]]) == want
            np.testing.assert_allclose(scores[n, k], score, rtol=1e-12)
    shorter = bc.ctc_beam_decode(lp, lengths, beam_width=width)
    assert tuple(shorter[0][1, 0, : shorter[1][1, 0]]) == _textbook(lp[:-2, 1], width)[0][0]


def test_a_prefix_that_left_the_beam_is_itself_when_it_comes_back(place: str) -> None:
    lp = _log_probs(60, 1, 3, seed=11, scale=0.3)  # nearly even: prefixes come and go
    tokens, counts, _ = _decoded(place, lp, beam_width=6, nbest=6)
    spellings = [tuple(tokens[0, k, : counts[0, k]]) for k in range(6)]
    assert len(set(spellings)) == 6 and spellings == [prefix for prefix, _ in _textbook(lp[:, 0], 6)]


def test_scores_are_at_most_the_losses() -> None:
    lp = _log_probs(40, 3, 6).astype(np.float32)
    tokens, counts, scores = bc.ctc_beam_decode(lp, beam_width=16)
    loss = bc.ctc_loss(lp, tokens[:, 0], np.full(3, 40), counts[:, 0], reduction="none")
    assert (scores[:, 0] <= -loss + 1e-4).all() and np.isfinite(loss).all()


def test_of_equal_ones_the_lower_label_comes_first(place: str) -> None:
    lp = np.full((1, 1, 5), np.log(0.2), np.float32)
    tokens, counts, scores = _decoded(place, lp, blank=2, beam_width=4, nbest=4)
    assert counts.tolist() == [[0, 1, 1, 1]] and tokens[0, 1:, 0].tolist() == [0, 1, 3]
    np.testing.assert_allclose(scores, np.log(0.2), rtol=1e-6)


def test_what_has_no_probability_is_no_spelling(place: str) -> None:
    lp = np.full((3, 2, 4), -np.inf)
    lp[:, 0, 1] = 0.0
    lp[0, 1] = (np.nan, np.inf, np.nan, -1.0)
    lp[1:, 1] = 0.0
    tokens, counts, scores = _decoded(place, lp, beam_width=3, nbest=2)
    assert tokens[0].tolist() == [[1, -1, -1], [-1, -1, -1]] and counts[0].tolist() == [1, 0]
    assert scores[0].tolist() == [0.0, -np.inf]
    assert tokens[1, 0, 0] == 3 and np.isfinite(scores[1]).all()


def test_no_frames_spell_nothing() -> None:
    tokens, counts, scores = bc.ctc_beam_decode(np.zeros((0, 2, 3), np.float32), nbest=2)
    assert tokens.shape == (2, 2, 0) and not counts.any() and scores.tolist() == [[0.0, -np.inf]] * 2
    lengths = np.array([0, -5])
    assert (bc.ctc_beam_decode(np.zeros((4, 2, 3), np.float32), lengths)[0] == -1).all()


def test_batch_first_and_other_layouts() -> None:
    lp = _log_probs(12, 3, 7).astype(np.float32)
    want = bc.ctc_beam_decode(lp, nbest=3)
    for got in (
        bc.ctc_beam_decode(lp.swapaxes(0, 1).copy(), nbest=3, batch_first=True),
        bc.ctc_beam_decode(np.asfortranarray(lp), np.full(3, 12, np.int32), nbest=3, index_element="int32"),
    ):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


def test_what_is_refused() -> None:
    lp = np.zeros((4, 2, 3), np.float32)
    for given, words in (
        ({"blank": 3}, r"blank must be in \[0, 2\], got 3"),
        ({"beam_width": 33}, "beam_width must be at most 32, got 33"),
        ({"beam_width": 2, "nbest": 3}, "nbest must be at most the beam_width 2, got 3"),
    ):  # fmt: skip
        with pytest.raises(bc.InvalidProblemError, match=words):
            bc.ctc_beam_decode(lp, **given)
    with pytest.raises(bc.InvalidProblemError, match="steps, batch, classes"):
        bc.ctc_beam_decode(lp[0])
