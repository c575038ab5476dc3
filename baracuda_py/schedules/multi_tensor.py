"""Many tensors a launch: lists of tensors cut into chunks, the chunks numbered across the list.

A launch carries up to `capacity` tensors in its parameter struct, with a table of the first chunk of each; block b
works on the last tensor whose first chunk is <= b. Chunks are counted in elements, so they depend on shapes alone.
`kernels/include/baracuda/multi_tensor.cuh` finds the tensor of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..core.tensor import AXES, View, merge_axes, pad


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


class Steps(NamedTuple):
    """Merged axes that several operands step through together."""

    shape: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]

    @property
    def dense(self) -> bool:
        """Every operand is one run of memory, in the same order."""
        return len(self.shape) <= 1 and all(s in ((), (1,)) for s in self.strides)

    def padded(self) -> dict[str, object]:
        """Fields `shape`, `strides`, `rank` of a parameter struct for up to 8 axes."""
        return {"shape": pad(self.shape), "strides": [pad(s) for s in self.strides], "rank": len(self.shape)}


def merge(views: Sequence[View], *, reorder: bool) -> Steps | str:
    """Merge the axes of operands of one shape; a string says why not.

    reorder: elements may be visited in any order, so axes are taken from the widest stride of the first operand to
    the narrowest, and operands that are transposed alike come out dense.
    """
    axes = list(range(len(views[0].shape)))
    if reorder:
        axes.sort(key=lambda axis: -abs(views[0].strides[axis]))
    shape, strides = merge_axes(
        tuple(views[0].shape[a] for a in axes), [tuple(v.strides[a] for a in axes) for v in views]
    )
    if len(shape) > AXES:
        return f"more than {AXES} axes remain after merging"
    return Steps(shape, strides)
