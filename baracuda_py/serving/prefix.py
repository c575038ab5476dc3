"""The pages of texts that were served before, found by what a new text begins with."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Any

from ..core.checked import whole
from ..core.errors import InvalidProblemError
from .pages import PageAllocator
from .sequence import token_list


class _Node:
    """A page of tokens behind those of its parent."""

    __slots__ = ("block", "children", "page", "parent")

    def __init__(self, parent: _Node | None, block: tuple[int, ...], page: int) -> None:
        self.parent, self.block, self.page = parent, block, page
        self.children: dict[tuple[int, ...], _Node] = {}


class PrefixTree:
    """A radix tree of full pages: a node is a page of tokens, its path from the root the text up to there.

    The tree holds a reference to each of its pages. Those that nobody else holds go when pages are needed, the ones
    that were used longest ago first, and never one that another in the tree continues.
    """

    def __init__(self, allocator: PageAllocator) -> None:
        self.allocator = allocator
        self._root = _Node(None, (), -1)
        self._nodes: OrderedDict[int, _Node] = OrderedDict()  # by page, the last used last; children before parents

    def __len__(self) -> int:
        """How many pages it has."""
        return len(self._nodes)

    def match(self, tokens: Iterable[int]) -> list[int]:
        """The pages of the longest prefix of full pages that is cached, each with a reference for the caller.

        O(tokens). A text of which every token is cached has nothing left whose logits say how it goes on: ask for all
        but its last token.
        """
        path = self._walk(self._blocks(token_list(tokens)))
        pages = [node.page for node in path]
        self.allocator.share(pages)
        self._touch(path)
        return pages

    def insert(self, tokens: Iterable[int], pages: list[int]) -> int:
        """Cache the full pages of a text, pages[i] holding its i-th; returns how many of them are new. O(tokens).

        Where the tree has a page of the same tokens it keeps that one, and the caller's stays the caller's.
        InvalidProblemError where pages are too few or free, or where one of them is cached with another text.
        """
        blocks = self._blocks(token_list(tokens))
        if len(pages) < len(blocks):
            raise InvalidProblemError(f"{len(blocks)} pages of tokens are full, and {len(pages)} pages given")
        path = self._walk(blocks)
        new = pages[len(path) : len(blocks)]
        for page, count in Counter(new).items():
            if page in self._nodes or count > 1:
                raise InvalidProblemError(f"page {page} holds the tokens of another place already")
        self.allocator.share(new)
        for block, page in zip(blocks[len(path) :], new, strict=True):
            parent = path[-1] if path else self._root
            node = _Node(parent, block, page)
            parent.children[block] = self._nodes[page] = node
            path.append(node)
        self._touch(path)
        return len(new)

    def evict(self, count: int) -> int:
        """Give up to `count` pages back to the allocator, the least recently used first; returns how many.

        Pages that others hold, and those that lead to them, stay. O(count + pages that stay and are older).
        """
        count, gone = whole("count", count, 0), list[int]()
        for page, node in self._nodes.items():
            if len(gone) == count:
                break
            if not node.children and self.allocator.references(page) == 1:
                assert node.parent is not None
                del node.parent.children[node.block]
                gone.append(page)
        for page in gone:
            del self._nodes[page]
        return self.allocator.free(gone)

    def clear(self) -> int:
        """Give back all pages that nobody else holds; returns how many."""
        return self.evict(len(self))

    def _blocks(self, tokens: list[int]) -> list[tuple[int, ...]]:
        """The full pages of a text."""
        size = self.allocator.page_size
        return [tuple(tokens[at : at + size]) for at in range(0, len(tokens) - size + 1, size)]

    def _walk(self, blocks: list[tuple[int, ...]]) -> list[_Node]:
        """The nodes of a text, as far as there are any."""
        path, node = [], self._root
        for block in blocks:
            found = node.children.get(block)
            if found is None:
                break
            path.append(found)
            node = found
        return path

    def _touch(self, path: list[Any]) -> None:
        """These nodes were used last; a parent after its children, so that it is not given up before them."""
        for node in reversed(path):
            self._nodes.move_to_end(node.page)
