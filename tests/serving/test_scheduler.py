"""Scheduler: random requests on a simulated cache, in which every cell says what text its token stands behind."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import baracuda_py as bc
from baracuda_py import InvalidProblemError
from baracuda_py.serving import OutOfPagesError, PageAllocator, PrefixTree, Request, Scheduler, Sequence

SIZE = 3


def follower(tokens: Any, salt: int = 0) -> int:
    """The token that "the model" has after a text."""
    return (hash((*map(int, tokens), salt)) >> 5) % 4


class Loop:
    """A model whose next token is a hash of the text as the cache has it, read through the page table."""

    def __init__(self, pages: int, prefixes: bool = True, drafts: bool = False, **limits: Any) -> None:
        self.draft = self.drafted if drafts else None
        self.allocator = PageAllocator(pages, SIZE)
        self.tree = PrefixTree(self.allocator) if prefixes else None
        self.scheduler = Scheduler(self.allocator, self.tree, **limits)
        self.cells = np.full((pages * SIZE, 2), -1.0)  # token and position

    def drafted(self, sequence: Sequence, most: int) -> list[int]:
        """What follows, often not to the end: the hash of the text says where it goes wrong."""
        text, wrong = list(sequence.tokens), follower(sequence.tokens, 7)
        for at in range(min(most, 5)):
            text.append(follower(text, sequence.params.seed) if at < wrong else 9)
        return text[len(sequence.tokens) :]

    def step(self) -> bool:
        batch = self.scheduler.schedule(self.draft)
        if batch is None:
            return False
        held = self.cells.reshape(-1, SIZE, 2)
        bc.copy_pages([held], batch.copies)
        assert not {*batch.copies[:, 0].tolist()} & {*batch.copies[:, 1].tolist()}
        assert len({*batch.slot_mapping.tolist()}) == len(batch.tokens) <= self.scheduler.max_tokens
        self.cells[batch.slot_mapping] = np.stack([batch.tokens, batch.positions], axis=1)
        ids = []
        for b, sequence in enumerate(batch.sequences):
            length = int(batch.lengths[b])
            at = np.arange(length)
            seen = self.cells[batch.page_table[b, at // SIZE].astype(int) * SIZE + at % SIZE]
            draft = dict(zip(batch.sampling, batch.drafts, strict=True)).get(sequence, ())
            np.testing.assert_array_equal(seen[:, 0], [*sequence.tokens, *draft][:length])
            np.testing.assert_array_equal(seen[:, 1], at)
            assert (sequence in batch.sampling) == (length == len(sequence.tokens) + len(draft))
        last = dict(zip(batch.sequences, (batch.qo_indptr[1:] - 1).tolist(), strict=True))
        wanted = []
        for sequence, draft in zip(batch.sampling, batch.drafts, strict=True):
            for tried in range(len(draft) + 1):
                wanted.append(last[sequence] - len(draft) + tried)
                ids.append(follower([*sequence.tokens, *draft[:tried]], sequence.params.seed))
        assert batch.rows.tolist() == wanted
        finished = self.scheduler.update(batch, ids)
        assert all(sequence.finished and not sequence.pages for sequence in finished)
        return True

    def check(self) -> None:
        """Pages have the references that their holders make, and only full pages of one text are held by several."""
        held = [*self.scheduler.running, *self.scheduler.waiting]
        counts = Counter(page for sequence in held for page in sequence.pages)
        cached = len(self.tree) if self.tree is not None else 0
        references = [self.allocator.references(page) for page in range(self.allocator.num_pages)]
        assert sum(references) == sum(counts.values()) + cached
        assert all(references[page] - count in (0, 1) for page, count in counts.items())
        for sequence in held:
            assert len(sequence.pages) == self.allocator.pages_for(sequence.cached)
            assert len({*sequence.pages}) == len(sequence.pages)
        for sequence in self.scheduler.waiting:
            assert not sequence.pages and not sequence.cached


def expected(request: Request, start: list[int] | None = None) -> list[int]:
    """What a request gets when it is alone."""
    tokens, prompt = list(start or request.prompt), len(list(request.prompt))
    while len(tokens) - prompt < request.max_tokens:
        tokens.append(follower(tokens, request.params.seed))
        if tokens[-1] in request.stop:
            break
    return tokens[prompt:]


REQUESTS = st.builds(
    Request, st.lists(st.integers(0, 1), min_size=1, max_size=11), st.integers(1, 8),
    stop=st.sampled_from([frozenset[int](), frozenset({3})]),
)  # fmt: skip


class Serving(RuleBasedStateMachine):
    @initialize(
        pages=st.integers(6, 14), prefixes=st.booleans(), drafts=st.booleans(), sequences=st.integers(1, 4),
        tokens=st.integers(1, 9),
    )  # fmt: skip
    def start(self, pages: int, prefixes: bool, drafts: bool, sequences: int, tokens: int) -> None:
        self.loop = Loop(pages, prefixes, drafts, max_sequences=sequences, max_tokens=tokens)
        self.served: list[tuple[Sequence, list[int]]] = []

    @rule(request=REQUESTS)
    def add(self, request: Request) -> None:
        try:
            self.served.append((self.loop.scheduler.add(request), expected(request)))
        except OutOfPagesError:
            longest = len(list(request.prompt)) + request.max_tokens - 1
            assert self.loop.allocator.pages_for(longest) > self.loop.allocator.num_pages

    @rule(count=st.integers(1, 4))
    def step(self, count: int) -> None:
        for _ in range(count):
            self.loop.step()

    @rule(data=st.data(), seed=st.integers(0, 3))
    def fork(self, data: st.DataObject, seed: int) -> None:
        running = self.loop.scheduler.running
        if running and len(running) < self.loop.scheduler.max_sequences:
            parent = data.draw(st.sampled_from(running))
            params = bc.serving.SamplingParams(seed=seed)
            request = Request(parent.request.prompt, parent.request.max_tokens, params, parent.request.stop)
            twin = self.loop.scheduler.fork(parent, request)
            self.served.append((twin, expected(request, parent.tokens)))

    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        going = [*self.loop.scheduler.running, *self.loop.scheduler.waiting]
        if going:
            sequence = data.draw(st.sampled_from(going))
            self.loop.scheduler.abort(sequence)
            assert sequence.finished == "aborted"

    @invariant()
    def nothing_leaks(self) -> None:
        if hasattr(self, "loop"):
            self.loop.check()

    def teardown(self) -> None:
        if not hasattr(self, "loop"):
            return
        steps = 0
        while self.loop.step():
            self.loop.check()
            steps += 1
            assert steps < 3000, "somebody waits for ever"
        for sequence, wanted in self.served:
            if sequence.finished != "aborted":
                assert sequence.generated == wanted
                stopped = bool(sequence.request.stop) and wanted[-1] in sequence.request.stop
                assert sequence.finished == ("stop" if stopped else "length")
        if self.loop.tree is not None:
            self.loop.tree.clear()
        assert self.loop.allocator.available == self.loop.allocator.num_pages


TestServing = Serving.TestCase
TestServing.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)


def test_a_prompt_in_chunks_beside_one_that_is_generated() -> None:
    loop = Loop(20, max_tokens=4)
    first = loop.scheduler.add(Request([1, 2], 5))
    assert loop.step() and len(first.generated) == 1
    second = loop.scheduler.add(Request(range(10), 2))
    batch = loop.scheduler.schedule()
    assert batch is not None and batch.qo_indptr.tolist() == [0, 1, 4] and batch.lengths.tolist() == [3, 3]
    assert batch.sampling == (first,) and batch.rows.tolist() == [0] and batch.longest == 3
    loop.scheduler.update(batch, [0])
    assert second.cached == 3 and second.pending == 7


def test_a_second_text_starts_where_the_first_is_cached() -> None:
    loop = Loop(20)
    prompt = list(range(8))
    one = loop.scheduler.add(Request(prompt, 1))
    while loop.step():
        pass
    two = loop.scheduler.add(Request([*prompt[:7], 9, 9], 1))
    batch = loop.scheduler.schedule()
    assert batch is not None and batch.positions.tolist() == [6, 7, 8]
    loop.scheduler.update(batch, [0])
    whole = loop.scheduler.add(Request(prompt[:6], 1))  # of which every page is cached: its last token is seen again
    batch = loop.scheduler.schedule()
    assert batch is not None and batch.positions.tolist() == [3, 4, 5] and whole.pages[0] in range(20)
    loop.scheduler.update(batch, [0])
    assert one.finished == two.finished == whole.finished == "length"


def test_the_youngest_waits_where_pages_run_out_and_keeps_its_tokens() -> None:
    loop = Loop(4, prefixes=False, max_tokens=6)
    old, young = (loop.scheduler.add(Request([1, 2, 3], 7)) for _ in range(2))
    while loop.scheduler.running != [old]:
        assert loop.step()
    assert loop.scheduler.waiting[0] is young and young.generated and not young.pages
    while loop.step():
        pass
    assert old.generated == young.generated == expected(old.request)


def test_a_page_that_is_copied_is_not_written_in_the_same_step() -> None:
    """The second copy of the step needs a page; the one that the youngest gives back is still read by the first."""
    loop = Loop(5, prefixes=False)
    one, two = (loop.scheduler.add(Request([1, 2, first], 5)) for first in (0, 1))
    assert loop.step() and loop.step()  # each has a full page, and one with a token; one page is free
    twins = [loop.scheduler.fork(of, Request([1], 2)) for of in (two, one)]
    while loop.step():
        loop.check()
    for sequence in (one, two):
        assert sequence.generated == expected(sequence.request)
    assert all(twin.finished for twin in twins)


def test_misuse_is_refused() -> None:
    loop = Loop(6)
    with pytest.raises(OutOfPagesError, match="up to 7 pages, and can have 6"):
        loop.scheduler.add(Request([1] * 10, 10))
    with pytest.raises(OutOfPagesError, match="can have 2"):
        Scheduler(loop.allocator, table_width=2).add(Request([1] * 7))
    with pytest.raises(InvalidProblemError, match="same allocator"):
        Scheduler(PageAllocator(3, 2), loop.tree)
    sequence = loop.scheduler.add(Request([1] * 4, 2))
    with pytest.raises(InvalidProblemError, match="runs"):
        loop.scheduler.fork(sequence)
    batch = loop.scheduler.schedule()
    assert batch is not None
    for call in (
        loop.scheduler.schedule,
        lambda: loop.scheduler.abort(sequence),
        lambda: loop.scheduler.fork(sequence),
    ):
        with pytest.raises(InvalidProblemError, match="between two steps"):
            call()
    for ids in ([], [1, 2], [1.5], [-1]):
        with pytest.raises(InvalidProblemError, match="ids"):
            loop.scheduler.update(batch, ids)
    loop.scheduler.update(batch.placed(np.array), np.array([2]))
    with pytest.raises(InvalidProblemError, match="once"):
        loop.scheduler.update(batch, [2])
    loop.scheduler.abort(sequence)
    with pytest.raises(InvalidProblemError, match="finished"):
        loop.scheduler.abort(sequence)


def test_pages_that_others_hold_stop_it() -> None:
    loop = Loop(6)
    loop.allocator.allocate(6)
    loop.scheduler.add(Request([1]))
    with pytest.raises(OutOfPagesError, match="0 of 6 pages are free"):
        loop.scheduler.schedule()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"prompt": []}, "at least one token"), ({"prompt": [-1]}, "prompt"), ({"prompt": [1.5]}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"), ({"stop": {"a"}}, "stop"),
    ],
)  # fmt: skip
def test_bad_requests(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidProblemError, match=said):
        Request(**{"prompt": [1]} | fields)
