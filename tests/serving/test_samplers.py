"""Samplers: each row is drawn as its parameters say, whatever stands beside it; what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.serving import Samplers, SamplingParams
from baracuda_py.serving.samplers import mixed, padded

VOCAB = 40
ROWS = [
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.7, top_k=5, seed=3),
    SamplingParams(top_p=0.6, min_p=0.02, seed=-7),
    SamplingParams(repetition=1.4, frequency=0.3, presence=0.2, seed=2**63 - 1),
]
TEXTS = [[1, 2], [], [3, 3, 9], [5, 5, 5, 0]]
PROMPTS = [[0], [1], [2, 4], [7]]


def logits() -> np.ndarray:
    return 3 * np.random.default_rng(0).standard_normal((len(ROWS), VOCAB), dtype=np.float32)


def drawn(rows: list[int], position: int) -> Any:
    samplers = Samplers(
        [ROWS[i] for i in rows], [position] * len(rows), prompts=[PROMPTS[i] for i in rows],
        texts=[TEXTS[i] for i in rows],
    )  # fmt: skip
    return samplers(logits()[rows], return_logprob=True)


def test_a_row_is_drawn_alike_alone_and_beside_others() -> None:
    seen = [set[int]() for _ in ROWS]
    for position in range(50):
        ids, logprobs = drawn([0, 1, 2, 3], position)
        for i in range(len(ROWS)):
            alone = drawn([i], position)
            assert (int(ids[i]), float(logprobs[i])) == (int(alone[0][0]), float(alone[1][0]))
            seen[i].add(int(ids[i]))
    assert seen[0] == {int(logits()[0].argmax())}
    assert 1 < len(seen[1]) <= 5 and len(seen[2]) > 1 and len(seen[3]) > 5


def test_parameters_are_those_of_the_ops() -> None:
    ids, logprobs = drawn([3, 1], 4)
    row = bc.adjust_logits(
        logits()[3:4], np.array([TEXTS[3]]), np.array([PROMPTS[3]]), repetition=1.4, frequency=0.3, presence=0.2
    )
    assert logprobs[0] == bc.token_logprobs(row, ids[:1])[0]
    want = bc.sample(logits()[1:2], temperature=0.7, top_k=5, seed=mixed([3], [4]))
    assert ids[1] == want[0]


def test_columns_at_their_defaults_are_left_out() -> None:
    plain = Samplers([SamplingParams(), SamplingParams(temperature=0.5)], [1, 2])
    assert {*plain.cuts} == {"temperature", "seed"} and not plain.penalties
    assert {name: one.dtype for name, one in plain.cuts.items()} == {"temperature": np.float32, "seed": np.int64}
    allowed = np.array([[1 << 3, 0]], np.int32)
    assert plain(logits()[:2], mask=allowed).tolist() == [3, 3]


def test_seeds_differ_by_place_and_request() -> None:
    seeds = mixed(np.arange(-50, 50)[:, None], np.arange(100))
    assert seeds.dtype == np.int64 and len(np.unique(seeds)) == 10_000


def test_lists_are_padded() -> None:
    np.testing.assert_array_equal(padded([[1, 2], [], [3]]), [[1, 2], [-1, -1], [3, -1]])
    assert padded([]).shape == (0, 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"temperature": -0.1}, {"temperature": float("nan")}, {"top_k": -1}, {"top_k": 1.5}, {"top_p": 0.0},
        {"top_p": 1.1}, {"min_p": -0.1}, {"repetition": 0.0}, {"presence": float("inf")}, {"seed": 2**63},
    ],
)  # fmt: skip
def test_bad_parameters(fields: dict[str, Any]) -> None:
    with pytest.raises(bc.InvalidProblemError, match=next(iter(fields))):
        SamplingParams(**fields)


def test_rows_go_together() -> None:
    with pytest.raises(bc.InvalidProblemError, match="2 rows, positions of 1"):
        Samplers(ROWS[:2], [1])
    with pytest.raises(bc.InvalidProblemError, match="prompts and texts"):
        Samplers(ROWS[3:], [1])
