"""Trees of tokens that a text suggests to go on with, for speculative decoding."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import numpy as np

LONGEST = 8  # bytes at the end of the text that are looked up, at most
LOOKS = 64  # earlier occurrences that a draft looks at, at most


class Tree:
    """Tokens to verify in one pass. Node 0 is the last token of the text; every other node follows its parent."""

    def __init__(self, root: int, *paths: Iterable[int]) -> None:
        self.tokens, self.parents, self.depths = [root], [-1], [0]
        self.children: dict[tuple[int, int], int] = {}  # by (parent, token)
        for path in paths:
            self.add(path)

    def add(self, path: Iterable[int]) -> None:
        """Tokens that follow the root; as far as they are in the tree they share its nodes."""
        at = 0
        for token in path:
            node = self.children.setdefault((at, token), len(self.tokens))
            if node == len(self.tokens):
                self.tokens.append(token)
                self.parents.append(at)
                self.depths.append(self.depths[at] + 1)
            at = node

    def mask(self, size: int) -> np.ndarray:
        """bool [size, size]: a node sees itself and its ancestors; what pads the tree to `size` sees itself."""
        seen = np.eye(size, dtype=bool)
        for node in range(1, len(self.tokens)):  # a parent comes before its children
            seen[node] |= seen[self.parents[node]]
        return seen

    def follow(self, best: list[int]) -> list[int]:
        """The path from the root that takes at every node the token `best` has for it, as far as it is in the tree."""
        path = [0]
        while (node := self.children.get((path[-1], best[path[-1]]))) is not None:
            path.append(node)
        return path


def occurrences(text: bytes | bytearray) -> Iterator[int]:
    """Places after earlier occurrences of the end of the text: the longest ends first, of these the latest first."""
    for length in range(min(LONGEST, len(text) - 1), 0, -1):
        suffix, end = text[-length:], len(text) - 1
        while (start := text.rfind(suffix, 0, end)) >= 0:
            yield start + length
            end = start + length - 1


def draft(text: bytes | bytearray, branches: int, depth: int) -> Tree:
    """The tree of up to `branches` continuations of `depth` bytes that the text itself suggests."""
    tree, taken = Tree(text[-1]), 0
    for at in itertools.islice(occurrences(text), LOOKS):
        period, size = len(text) - at, len(tree.tokens)  # a continuation that meets the text's end repeats itself
        tree.add(text[at + i % period] for i in range(depth))
        taken += len(tree.tokens) > size
        if taken == branches:
            break
    return tree
