"""Drafts by lookup, and steps that try them: the text is the one without drafts."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py import InvalidProblemError
from baracuda_py.serving import PageAllocator, Request, SamplingParams, Scheduler, prompt_lookup


def longest_match(text: list[int], longest: int) -> tuple[int, int]:
    """(tokens that agree, place behind them) of the best earlier place, by looking at each."""
    best = (0, 0)
    for at in range(1, len(text)):
        agree = 0
        while agree < min(longest, at) and text[at - 1 - agree] == text[len(text) - 1 - agree]:
            agree += 1
        best = max(best, (agree, at))
    return best


def test_lookup_takes_the_place_that_agrees_most() -> None:
    rng = np.random.default_rng(0)
    for _ in range(300):
        text = rng.integers(0, 3, rng.integers(1, 20)).tolist()
        longest, count = int(rng.integers(1, 6)), int(rng.integers(0, 7))
        agree, at = longest_match(text, longest)
        want = [text[at + i % (len(text) - at)] for i in range(count)] if agree else []
        assert prompt_lookup(text, count, longest=longest) == want
    assert prompt_lookup(b"abcX abcY abc", 2) == list(b"Y ")
    assert prompt_lookup([], 3) == []


@pytest.mark.parametrize("wrong", [{"count": -1}, {"count": 1, "longest": 0}])
def test_lookup_refuses_bad_numbers(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidProblemError):
        prompt_lookup([1, 2, 1], **wrong)


def scheduler(pages: int = 9, **limits: int) -> Scheduler:
    return Scheduler(PageAllocator(pages, 2), **limits)


def test_a_step_tries_drafts_and_takes_those_that_were_drawn() -> None:
    server = scheduler()
    one = server.add(Request([5, 6, 7], 8, SamplingParams(seed=1, presence=0.5)))
    batch = server.schedule(lambda sequence, most: [1, 2, 3])
    assert batch is not None and batch.tokens.tolist() == [5, 6, 7, 1, 2, 3] and batch.drafts == ((1, 2, 3),)
    assert batch.rows.tolist() == [2, 3, 4, 5] and batch.lengths.tolist() == [6] and batch.longest == 6
    samplers = batch.samplers()
    np.testing.assert_array_equal(samplers.history[0], [[-1, -1, -1], [1, -1, -1], [1, 2, -1], [1, 2, 3]])
    server.update(batch, np.array([1, 2, 9, 4]), np.array([-0.5, -1.5, -2.5, -3.5], np.float32))
    assert one.generated == [1, 2, 9] and one.logprobs == [-0.5, -1.5, -2.5]
    assert one.cached == 5 and len(one.pages) == 3, "the page of what was not taken is given back"
    batch = server.schedule()
    assert batch is not None and batch.tokens.tolist() == [9] and batch.drafts == ((),) and batch.rows.tolist() == [0]
    server.update(batch, [0])
    assert one.logprobs == [-0.5, -1.5, -2.5], "no more than were told"


def test_drafts_take_what_is_left() -> None:
    """Of the budget, of the text's length, and of the pages that are free."""
    asked = []

    def draft(sequence: object, most: int) -> list[int]:
        asked.append(most)
        return [1] * 99

    for limits, max_tokens, want in (({}, 4, 3), ({"max_tokens": 5}, 9, 2), ({"pages": 2}, 2, 1), ({}, 1, None)):
        asked.clear()
        server = scheduler(**limits)
        server.add(Request([1, 2, 3], max_tokens))
        batch = server.schedule(draft)
        assert batch is not None and asked == ([] if want is None else [want])
        assert len(batch.tokens) == 3 + (want or 0)
    server = scheduler(4)
    server.add(Request([1, 2, 3], 6))
    server.allocator.allocate(2)
    batch = server.schedule(draft)
    assert batch is not None and batch.tokens.tolist() == [1, 2, 3, 1], "there is no page for more"


def test_a_stop_among_drafts_ends_the_text() -> None:
    server = scheduler()
    one = server.add(Request([5], 8, stop={2}))
    batch = server.schedule(lambda sequence, most: (token for token in (1, 2, 3)))
    assert batch is not None and server.update(batch, [1, 2, 3, 4]) == [one]
    assert one.generated == [1, 2] and one.finished == "stop" and server.allocator.available == 9


def test_a_draft_that_fails_leaves_nothing_behind() -> None:
    server = scheduler()
    one = server.add(Request([5, 5, 5], 8))
    batch = server.schedule()
    assert batch is not None
    server.update(batch, [1])
    twin = server.fork(one)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            server.schedule(lambda sequence, most: [1 // 0])
        assert server.allocator.available == 9 and list(server.waiting) == [one, twin] and not server.running
    batch = server.schedule()
    assert batch is not None and batch.tokens.tolist() == [5, 5, 5, 1] * 2 and not len(batch.copies)


def test_bad_drafts_and_logprobs_are_refused() -> None:
    server = scheduler()
    server.add(Request([5], 8))
    with pytest.raises(InvalidProblemError, match="draft"):
        server.schedule(lambda sequence, most: [-1])
    batch = server.schedule(lambda sequence, most: [1])
    assert batch is not None
    with pytest.raises(InvalidProblemError, match="3 ids were given, and 2 rows"):
        server.update(batch, [1, 2, 3])
    with pytest.raises(InvalidProblemError, match="1 logprobs were given, and 2 rows"):
        server.update(batch, [1, 2], [0.5])
    server.update(batch, [1, 2], [0.5, 0.5])
