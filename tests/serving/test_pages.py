"""PageAllocator: random sequences of calls against counts, and every refusal, after which nothing has changed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from baracuda_py import BaracudaError, InvalidProblemError
from baracuda_py.serving import OutOfPagesError, PageAllocator

PAGES = 7


class Holders(RuleBasedStateMachine):
    """Lists of pages that somebody holds; a page has as many references as lists have it."""

    def __init__(self) -> None:
        super().__init__()
        self.allocator = PageAllocator(PAGES, 4)
        self.lists: list[list[int]] = []

    @rule(count=st.integers(0, PAGES + 1))
    def allocate(self, count: int) -> None:
        free = self.allocator.available
        if count > free:
            with pytest.raises(OutOfPagesError, match=f"{count} pages are needed, {free} of {PAGES} are free"):
                self.allocator.allocate(count)
        else:
            self.lists.append(self.allocator.allocate(count))

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        if self.lists:
            pages = data.draw(st.sampled_from(self.lists))
            self.allocator.share(pages)
            self.lists.append(list(pages))

    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        if self.lists:
            pages = self.lists.pop(data.draw(st.integers(0, len(self.lists) - 1)))
            left = {page for held in self.lists for page in held}
            assert self.allocator.free(pages) == len({*pages} - left)

    @rule(data=st.data())
    def write(self, data: st.DataObject) -> None:
        held = [pages for pages in self.lists if pages]
        if not held:
            return
        pages = data.draw(st.sampled_from(held))
        at = data.draw(st.integers(0, len(pages) - 1))
        before, alone = list(pages), sum(pages[at] in other for other in self.lists) == 1
        if not alone and not self.allocator.available:
            with pytest.raises(OutOfPagesError):
                self.allocator.copy_on_write(pages, at)
            assert pages == before
            return
        pair = self.allocator.copy_on_write(pages, at)
        assert pair == (None if alone else (before[at], pages[at]))
        assert pages[:at] + pages[at + 1 :] == before[:at] + before[at + 1 :]
        assert self.allocator.references(pages[at]) == 1

    @rule(page=st.integers(-2, PAGES + 1))
    def misuse(self, page: int) -> None:
        count = sum(page in pages for pages in self.lists)
        with pytest.raises(BaracudaError):
            self.allocator.free([page] * (count + 1))
        if not count:
            with pytest.raises(BaracudaError):
                self.allocator.share([*(self.lists[0] if self.lists else []), page])

    @invariant()
    def references_are_counted(self) -> None:
        counts = Counter(page for pages in self.lists for page in pages)
        assert [self.allocator.references(page) for page in range(PAGES)] == [counts[page] for page in range(PAGES)]
        assert self.allocator.available == PAGES - len(counts)

    def teardown(self) -> None:
        for pages in self.lists:
            self.allocator.free(pages)
        assert sorted(self.allocator.allocate(PAGES)) == list(range(PAGES))


TestHolders = Holders.TestCase


@pytest.mark.parametrize(("pages", "size"), [(-1, 4), (4, 0), (2.5, 4), ("4", 4)])
def test_bad_sizes(pages: object, size: int) -> None:
    with pytest.raises(InvalidProblemError, match=r"num_pages|page_size"):
        PageAllocator(pages, size)  # type: ignore[arg-type]


def test_errors_are_errors_of_memory() -> None:
    with pytest.raises(MemoryError):
        PageAllocator(1, 4).allocate(2)
    with pytest.raises(InvalidProblemError, match="page 0 is free"):
        PageAllocator(1, 4).copy_on_write([0], 0)


def test_pages_for() -> None:
    assert [PageAllocator(1, 4).pages_for(n) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
