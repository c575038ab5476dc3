"""Block masks of a mask's formula: the object that calls take, and what attention sees under one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..calls.exported import exported
from ..core.checked import shown
from ..core.errors import InvalidProblemError
from ..ops.attention.score_terms import Changed

BLOCK, LEAST_BLOCK = 128, 16
"""Queries and keys of a block by default, those of torch's BlockMask, and the least."""
EMPTY, PARTIAL, FULL = range(3)
"""What a byte says of its block."""


@exported
@dataclass(frozen=True)
class BlockMask:
    """What a mask says of blocks of pairs; `bc.attention(mask=…).block_mask(q, k)` makes it.

    kinds: bytes [batch or 1, heads or 1, query blocks, key blocks], 0 where no pair of the block is seen, 2 where all
    are, 1 where the formula is asked; any other array of such bytes serves too. It depends on the lengths and on what
    the formula reads, and may be used in any number of calls, and by any formula.
    """

    kinds: Any
    query_block: int = BLOCK
    key_block: int = BLOCK


def taken(given: Any) -> BlockMask | None:
    """What a call is given as block_mask: one, torch's BlockMask of flex_attention, or None."""
    if given is None or isinstance(given, BlockMask):
        return given
    if not all(hasattr(given, name) for name in ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "BLOCK_SIZE")):
        raise InvalidProblemError(f"block_mask must be a BlockMask, got {shown(given)}")
    columns = given.kv_indices.shape[-1]
    kinds = given.kv_indices.new_zeros((*given.kv_indices.shape[:-1], columns + 1)).byte()
    lists = [(given.kv_num_blocks, given.kv_indices, PARTIAL)]
    if given.full_kv_num_blocks is not None:
        lists.append((given.full_kv_num_blocks, given.full_kv_indices, FULL))
    for counts, indices, kind in lists:
        listed = indices.new_ones(columns).cumsum(-1) <= counts[..., None]
        kinds.scatter_(-1, indices.long().where(listed, columns), kind)  # what is not listed goes to the column behind
    return BlockMask(kinds[..., :columns], *given.BLOCK_SIZE)


def check_blocks(*sizes: int) -> None:
    """Blocks that tiles of kernels lie in, or are made of."""
    for size in sizes:
        if size & size - 1 or size < LEAST_BLOCK:
            raise InvalidProblemError(f"a block mask's blocks are powers of 2 from {LEAST_BLOCK} on, got {size}")


def under_block_mask(
    desc: Any, change: Callable[[slice, np.ndarray], Changed], block_mask: np.ndarray | None
) -> Callable[[slice, np.ndarray], Changed]:
    """A formula's `change` of scores where a block mask, or None, says of whole blocks what is seen."""
    if block_mask is None:
        return change
    every = np.broadcast_to(block_mask, desc.block_mask_shape)
    rows, columns = np.arange(desc.query_len) // desc.query_block, np.arange(desc.key_len) // desc.key_block

    def masked(b: slice, s: np.ndarray) -> Changed:
        made, kinds = change(b, s), every[b][:, :, rows[:, None], columns]
        inner = True if made.seen is None else made.seen
        return replace(made, seen=np.where(kinds == PARTIAL, inner, kinds != EMPTY))

    return masked
