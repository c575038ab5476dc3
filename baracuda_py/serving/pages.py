"""Which pages of a paged cache are free, and who holds the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..core.checked import whole
from ..core.errors import InvalidProblemError, OutOfMemoryError


class OutOfPagesError(OutOfMemoryError):
    """More pages were asked for than are free, or than a cache has."""


class PageAllocator:
    """Hands out the pages 0 … num_pages - 1 of a cache, and counts who holds on to each of them.

    A page that is allocated has one reference; `share` adds one and `free` takes one away; without any it can be
    allocated again. A page is a number here: the caches of all layers have it, and none is touched.
    """

    def __init__(self, num_pages: int, page_size: int) -> None:
        self.num_pages, self.page_size = whole("num_pages", num_pages, 0), whole("page_size", page_size, 1)
        self._references = [0] * self.num_pages
        self._free = list(range(self.num_pages - 1, -1, -1))  # the last one is handed out next

    @property
    def available(self) -> int:
        """How many pages are free."""
        return len(self._free)

    def pages_for(self, tokens: int) -> int:
        """How many pages hold so many tokens."""
        return -(-tokens // self.page_size)

    def references(self, page: int) -> int:
        """How many hold a page; 0: it is free. O(1)."""
        return self._references[whole("page", page, 0, self.num_pages - 1)]

    def allocate(self, count: int = 1) -> list[int]:
        """So many free pages, each with one reference. O(count).

        Raises OutOfPagesError, with nothing allocated, where fewer are free.
        """
        count = whole("count", count, 0)
        if count > len(self._free):
            raise OutOfPagesError(f"{count} pages are needed, {len(self._free)} of {self.num_pages} are free")
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._references[page] = 1
        return pages

    def share(self, pages: Iterable[int]) -> None:
        """One more reference to each page. O(1) a page; InvalidProblemError, with nothing shared, if one is free."""
        pages = list(pages)
        for page in pages:
            if not self.references(page):
                raise InvalidProblemError(f"page {page} is free: only pages that somebody holds can be shared")
        for page in pages:
            self._references[page] += 1

    def free(self, pages: Iterable[int]) -> int:
        """One reference less to each page; returns how many pages nobody holds any more. O(1) a page.

        InvalidProblemError, with nothing freed, where a page has fewer references than are given back.
        """
        pages = list(pages)
        for page, count in Counter(pages).items():
            if count > self.references(page):
                raise InvalidProblemError(
                    f"page {page} is freed {count} times and has {self.references(page)} references"
                )
        before = len(self._free)
        for page in pages:
            self._references[page] -= 1
            if not self._references[page]:
                self._free.append(page)
        return len(self._free) - before

    def copy_on_write(self, pages: list[int], index: int) -> tuple[int, int] | None:
        """Make pages[index] one that its holder alone has, before it is written to. O(1).

        Where others hold the page, a new one takes its place in the list, and (old, new) is what `copy_pages` has to
        copy; the reference to the old one is given back. None where the page was the holder's own. Raises
        OutOfPagesError, with nothing changed, where no page is free.
        """
        old = pages[index]
        if self.references(old) == 1:
            return None
        if not self.references(old):
            raise InvalidProblemError(f"page {old} is free: nobody may write to it")
        (new,) = self.allocate()
        self.free([old])
        pages[index] = new
        return old, new
