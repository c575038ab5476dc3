"""PrefixTree: random texts against a model that keeps every prefix and when it was used."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from baracuda_py import InvalidProblemError
from baracuda_py.serving import OutOfPagesError, PageAllocator, PrefixTree

PAGES, SIZE = 9, 2
TEXTS = st.lists(st.integers(0, 1), max_size=9)


class Texts(RuleBasedStateMachine):
    """The model: cached prefixes of full pages, with their pages and the time of their last use; lists users hold."""

    def __init__(self) -> None:
        super().__init__()
        self.allocator = PageAllocator(PAGES, SIZE)
        self.tree = PrefixTree(self.allocator)
        self.cached: dict[tuple[int, ...], int] = {}
        self.used: dict[tuple[int, ...], int] = {}
        self.held: list[list[int]] = []
        self.time = 0

    def prefixes(self, tokens: list[int]) -> list[tuple[int, ...]]:
        return [tuple(tokens[:end]) for end in range(SIZE, len(tokens) + 1, SIZE)]

    def use(self, prefixes: list[tuple[int, ...]]) -> None:
        for prefix in reversed(prefixes):
            self.time += 1
            self.used[prefix] = self.time

    @rule(tokens=TEXTS)
    def match(self, tokens: list[int]) -> None:
        known = []
        for prefix in self.prefixes(tokens):
            if prefix not in self.cached:
                break
            known.append(prefix)
        pages = self.tree.match(np.array(tokens, np.int64))
        assert pages == [self.cached[prefix] for prefix in known]
        self.use(known)
        self.held.append(pages)

    @rule(tokens=TEXTS)
    def serve(self, tokens: list[int]) -> None:
        """As a loop does: what is cached, pages for the rest, and then all of it is cached."""
        pages = self.tree.match(tokens)
        known = self.prefixes(tokens)[: len(pages)]
        self.use(known)
        missing = self.allocator.pages_for(len(tokens)) - len(pages)
        try:
            pages += self.allocator.allocate(missing)
        except OutOfPagesError:
            self.allocator.free(pages)
            return
        new = self.prefixes(tokens)[len(known) :]
        assert self.tree.insert(tokens, pages) == len(new)
        self.cached |= dict(zip(new, pages[len(known) :], strict=False))
        self.use(self.prefixes(tokens))
        self.held.append(pages)

    @rule(tokens=TEXTS)
    def insert_again(self, tokens: list[int]) -> None:
        """Pages of the same tokens that somebody else computed stay theirs."""
        if self.allocator.available < len(self.prefixes(tokens)):
            return
        pages = self.allocator.allocate(len(self.prefixes(tokens)))
        new = [prefix for prefix in self.prefixes(tokens) if prefix not in self.cached]
        assert self.tree.insert(tokens, pages) == len(new)
        for prefix, page in zip(self.prefixes(tokens), pages, strict=True):
            self.cached.setdefault(prefix, page)
        self.use(self.prefixes(tokens))
        self.held.append(pages)

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        if self.held:
            self.allocator.free(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

    @rule(data=st.data())
    def keep_the_end(self, data: st.DataObject) -> None:
        """Whoever holds a page need not hold those before it."""
        held = [pages for pages in self.held if pages]
        if held:
            self.allocator.free([data.draw(st.sampled_from(held)).pop(0)])

    @rule(count=st.integers(0, 4))
    def evict(self, count: int) -> None:
        gone = 0
        while gone < count:
            in_use = {page for pages in self.held for page in pages}
            leaves = [
                prefix for prefix, page in self.cached.items()
                if page not in in_use and not any(o[: len(prefix)] == prefix and o != prefix for o in self.cached)
            ]  # fmt: skip
            if not leaves:
                break
            oldest = min(leaves, key=lambda prefix: self.used[prefix])
            del self.cached[oldest]
            gone += 1
        assert self.tree.evict(count) == gone

    @invariant()
    def pages_have_their_holders(self) -> None:
        assert len(self.tree) == len(self.cached) == len({*self.cached.values()})
        for page in range(PAGES):
            holders = sum(page in pages for pages in self.held) + (page in self.cached.values())
            assert self.allocator.references(page) == holders

    def teardown(self) -> None:
        for pages in self.held:
            self.allocator.free(pages)
        assert self.tree.clear() == len(self.cached)
        assert self.allocator.available == PAGES and not len(self.tree)


TestTexts = Texts.TestCase


def test_a_page_is_cached_once_and_only_while_somebody_holds_it() -> None:
    allocator = PageAllocator(4, 2)
    tree = PrefixTree(allocator)
    pages = allocator.allocate(2)
    for text, given, said in (
        ([1, 2, 3, 4], pages[:1], "2 pages of tokens are full, and 1 pages given"),
        ([1, 2, 3, 4], [pages[0], pages[0]], "another place"),
        ([1, 2, 3, 4], [pages[0], 3], "page 3 is free"),
    ):
        with pytest.raises(InvalidProblemError, match=said):
            tree.insert(text, given)
        assert len(tree) == 0 and tree.match([1, 2]) == []
    tree.insert([1, 2], pages[:1])
    with pytest.raises(InvalidProblemError, match="another place"):
        tree.insert([5, 6], pages[:1])
