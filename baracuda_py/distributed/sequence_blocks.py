"""A sequence in blocks over ranks: which a rank has, what of a block a query sees, the order in which they merge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeVar

from ..core.checked import shown, whole
from ..core.errors import InvalidProblemError

T = TypeVar("T")
LAYOUTS = ("zigzag", "contiguous")
BLOCKS = 16
"""Blocks of a sequence where nothing else is asked for: 2, 4 and 8 ranks have whole ones in either layout."""


@dataclass(frozen=True)
class Blocks:
    """`count` blocks of `length` positions; a rank has chunks of `each` neighbouring blocks.

    Contiguous: chunk r. Zigzag: chunks r and 2 size - 1 - r, so that under a causal mask all ranks have as much to do.
    """

    size: int
    zigzag: bool
    each: int
    length: int

    @property
    def parts(self) -> int:
        """Chunks of a rank."""
        return 2 if self.zigzag else 1

    @property
    def count(self) -> int:
        """Blocks of all ranks."""
        return self.size * self.parts * self.each

    def chunks(self, rank: int) -> tuple[int, ...]:
        """The numbers of a rank's chunks, in the order in which it holds them."""
        return (rank, 2 * self.size - 1 - rank) if self.zigzag else (rank,)

    def of(self, rank: int) -> list[int]:
        """The numbers of a rank's blocks, in the order in which it holds them."""
        return [chunk * self.each + n for chunk in self.chunks(rank) for n in range(self.each)]

    def rows(self, place: int) -> slice:
        """Where a rank's shard has its block number `place`."""
        return slice(place * self.length, (place + 1) * self.length)


def blocks_of(shard: int, size: int, layout: str, blocks: int | None) -> Blocks:
    """The blocks of a sequence of which each of `size` ranks has `shard` positions."""
    if layout not in LAYOUTS:
        raise InvalidProblemError(f"layout must be one of {list(LAYOUTS)}, got {shown(layout)}")
    parts = 2 if layout == "zigzag" and size > 1 else 1
    if shard % parts:
        raise InvalidProblemError(f'layout "zigzag" takes shards of an even length, got {shard}; pad, or "contiguous"')
    chunk, chunks = shard // parts, size * parts
    if blocks is None:
        each = 1
        while size > 1 and chunks * each < BLOCKS and chunk % (2 * each) == 0 and chunk:
            each *= 2
    else:
        each, left = divmod(whole("blocks", blocks, 1), chunks)
        if left or each & (each - 1) or chunk % max(each, 1):
            raise InvalidProblemError(
                f"blocks must be {chunks} times a power of two that divides the {chunk} positions of a chunk, "
                f"got {blocks}"
            )
    return Blocks(size, parts == 2, each, chunk // each)


class Piece(NamedTuple):
    """What queries of a block see of a block of keys: some rows of both, and the mask among these."""

    queries: slice
    keys: slice
    facts: dict[str, Any]


@dataclass(frozen=True)
class Sight:
    """Query i sees key j where i - left <= j <= i + right; None is no bound."""

    left: int | None
    right: int | None

    def piece(self, blocks: Blocks, query: int, key: int) -> Piece | None:
        """What block `query` sees of block `key`; None: nothing."""
        n, far = blocks.length, (query - key) * blocks.length
        low = -n if self.left is None else max(far - self.left, -n)
        high = n if self.right is None else min(far + self.right, n)
        if low >= n or high <= -n or low > high or not n:
            return None
        if low > 0:  # the first keys are hidden from all: the mask is that of rows from there on
            return Piece(slice(0, n - low), slice(low, n), _facts(0, high - low, n - low))
        if high < 0:  # the first queries see nothing
            return Piece(slice(-high, n), slice(0, n + high), _facts(high - low, 0, n + high))
        return Piece(slice(0, n), slice(0, n), _facts(-low, high, n))


@lru_cache(4096)
def _visible(sight: Sight, blocks: Blocks, query: int, key: int) -> Piece | None:
    return sight.piece(blocks, query, key)


def visible(sight: Sight, blocks: Blocks, query: int, key: int) -> Piece | None:
    """`Sight.piece`, kept."""
    return _visible(sight, blocks, query, key)


def _facts(left: int, right: int, n: int) -> dict[str, Any]:
    """The mask as attention takes it; a bound that hides nothing is none."""
    facts: dict[str, Any] = {"is_causal": True} if right == 0 else {}
    if 0 < right < n - 1:
        facts["window_right"] = right
    if left < n - 1:
        facts["window_left"] = left
    return facts


def sight_of(is_causal: bool, window_left: Any, window_right: Any) -> Sight:
    """What a query sees, by attention's arguments."""
    bounds = {
        name: None if value is None else whole(name, value, 0)
        for name, value in (("window_left", window_left), ("window_right", window_right))
    }
    return Sight(bounds["window_left"], 0 if is_causal else bounds["window_right"])


class FixedTree(Generic[T]):
    """Leaves merged in the one binary tree over their numbers, whatever the order in which they come.

    Neighbours 2n and 2n + 1 merge, the lower first, on every level; the last of an odd number waits for the next level.
    What is kept is what has no neighbour yet: some log2 of the count for each run of leaves that come in order. A leaf
    None is one that adds nothing.
    """

    def __init__(self, count: int, merge: Callable[[T, T], T]) -> None:
        self.count, self.merge = count, merge
        self._pending: dict[tuple[int, int], T | None] = {}
        self.total: T | None = None
        self.complete = False

    def add(self, place: int, value: T | None, level: int = 0) -> None:
        """Node `place` of a level; level 0 has the leaves."""
        while (width := -(-self.count // (1 << level))) > 1:
            other = place ^ 1
            if other < width:
                if (level, other) not in self._pending:
                    self._pending[level, place] = value
                    return
                neighbour = self._pending.pop((level, other))
                first, second = (neighbour, value) if other < place else (value, neighbour)
                value = second if first is None else first if second is None else self.merge(first, second)
            place, level = place >> 1, level + 1
        self.total, self.complete = value, True
