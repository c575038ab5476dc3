"""Many tensors a launch: lists of tensors cut into chunks, the chunks numbered across the list.

A launch carries up to `capacity` tensors in its parameter struct, with a table of the first chunk of each; block b
works on the last tensor whose first chunk is <= b. Chunks are counted in elements, so they depend on shapes alone.
`kernels/include/baracuda/multi_tensor.cuh` finds the tensor of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Group(NamedTuple):
    """Tensors `start`…`stop` of a list in one launch of `blocks` blocks; `first[i]`: where tensor start + i begins."""

    start: int
    stop: int
    blocks: int
    first: list[int]


def chunk_counts(sizes: Sequence[int], chunk: int) -> list[int]:
    """How many chunks each tensor has."""
    return [-(-size // chunk) for size in sizes]


def groups(counts: Sequence[int], capacity: int) -> Iterator[Group]:
    """Launches for tensors of `counts` chunks (0: not in this launch); launches of no chunk are left out."""
    for start in range(0, len(counts), capacity):
        stop = min(start + capacity, len(counts))
        first, blocks = [], 0
        for count in counts[start:stop]:
            first.append(blocks)
            blocks += count
        if blocks:
            yield Group(start, stop, blocks, first)
