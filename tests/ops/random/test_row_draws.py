"""What a row draws follows from its seed, or from a seed and its number: never from how many rows are with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py.ops.random.multinomial import MultinomialPlan
from baracuda_py.ops.random.sampling import SamplingPlan
from baracuda_py.testing.places import call

V = 70
LOGITS = np.random.default_rng(3).standard_normal((9, V)).astype(np.float32)
CUTS: dict[str, Any] = {"temperature": 1.5, "top_k": 40, "top_p": 0.95}


def drawn(rows: np.ndarray, place: str, **given: Any) -> dict[str, np.ndarray]:
    desc = SamplingPlan.descriptor(batch_size=len(rows), vocab_size=V, element="float32")
    found: dict[str, np.ndarray] = call(SamplingPlan, desc, ("ids", "logprob"), place, logits=rows, **CUTS, **given)
    return found


def test_rows_with_seeds_draw_alike_in_any_batch_and_at_any_place(place: str) -> None:
    seeds = np.arange(9, dtype=np.int64) * 7919 - 3
    whole = drawn(LOGITS, place, seeds=seeds, offset=4, seed=0)
    for order in ([8, 0], [5, 3, 7, 1, 0, 2, 8, 6, 4], [2, 2, 2])[: 1 if place == "emulator" else 3]:
        part = drawn(LOGITS[order].copy(), place, seeds=seeds[order].copy(), offset=4, seed=0)
        for name, value in part.items():
            np.testing.assert_array_equal(value, whole[name][order])


def test_seeds_do_tell() -> None:
    alike = drawn(LOGITS[[2] * 9].copy(), "numpy", seeds=np.arange(9, dtype=np.int64), offset=4, seed=0)["ids"]
    assert len({*alike.tolist()}) > 3


def test_a_row_of_one_seed_draws_by_its_number(place: str) -> None:
    whole = drawn(LOGITS, place, seed=12, offset=5)
    for count in (2,) if place == "emulator" else (1, 2, 8):
        for name, value in drawn(LOGITS[:count], place, seed=12, offset=5).items():
            np.testing.assert_array_equal(value, whole[name][:count])


@pytest.mark.parametrize("replacement", [False, True])
def test_a_row_of_multinomial_draws_by_its_number(place: str, replacement: bool) -> None:
    def ids(rows: np.ndarray) -> np.ndarray:
        facts = {"vocab_size": V, "num_samples": 3, "replacement": replacement, "element": "float32"}
        desc = MultinomialPlan.descriptor(batch_size=len(rows), **facts)
        found: np.ndarray = call(MultinomialPlan, desc, ("ids",), place, probs=rows, seed=12, offset=5)["ids"]
        return found

    whole = ids(np.exp(LOGITS))
    for count in (2,) if place == "emulator" else (1, 2, 8):
        np.testing.assert_array_equal(ids(np.exp(LOGITS[:count])), whole[:count])
