"""batch_indices_positions: FlashInfer's numbers, tokens of no sequence, wild bounds, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.testing import emulated_device
from baracuda_py.testing.recording import pointer_view


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_tokens_are_the_last_of_their_sequences(dtype: Any) -> None:
    """The example of flashinfer.get_batch_indices_positions."""
    indptr, lengths = np.array([0, 1, 3, 6, 10], dtype), np.array([5, 5, 5, 5], dtype)
    batch, positions = bc.batch_indices_positions(indptr, lengths, num_tokens=10)
    assert batch.dtype == positions.dtype == dtype
    np.testing.assert_array_equal(batch, [0, 1, 1, 2, 2, 2, 3, 3, 3, 3])
    np.testing.assert_array_equal(positions, [4, 3, 4, 2, 3, 4, 1, 2, 3, 4])


def test_padding_and_sequences_without_a_token() -> None:
    indptr, lengths = np.array([1, 1, 3, 3, 4]), np.array([7, 2, 9, 30])
    batch, positions = bc.batch_indices_positions(indptr, lengths, num_tokens=6)
    np.testing.assert_array_equal(batch, [-1, 1, 1, 3, -1, -1])
    np.testing.assert_array_equal(positions, [-1, 0, 1, 29, -1, -1])
    none = bc.batch_indices_positions(np.array([0]), np.zeros(0, int), num_tokens=2)
    np.testing.assert_array_equal(none, [[-1, -1], [-1, -1]])


def test_positions_are_what_an_append_takes() -> None:
    """The positions name the slots that the tables of `paged_kv_append` lead to."""
    rng = np.random.default_rng(0)
    table, page = rng.permutation(12).reshape(3, 4), 4
    indptr, lengths = np.array([0, 5, 5, 7]), np.array([9, 3, 14])
    k = rng.standard_normal((7, 2, 8), dtype=np.float32)
    one, other = ([np.zeros((12, 2, page, 8), np.float32) for _ in range(2)] for _ in range(2))
    bc.paged_kv_append(k, k, *one, page_table=table, cache_offsets=lengths - np.diff(indptr), token_indptr=indptr)
    batch, positions = bc.batch_indices_positions(indptr, lengths, num_tokens=7)
    bc.paged_kv_append(k, k, *other, slot_mapping=table[batch, positions // page] * page + positions % page)
    np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("indptr", [[0, 9, 2, 6], [-3, 2, 3, 6], [5, 1, 2**62, 3], [-(2**63), 2**63 - 1, 0, 6]])
def test_wild_bounds_give_the_same_numbers_on_a_device(indptr: list[int]) -> None:
    from baracuda_py.testing.emulator import emulating

    bounds, lengths = np.array(indptr), np.array([2**63 - 1, -(2**63), 4])
    wanted = bc.batch_indices_positions(bounds, lengths, num_tokens=6)
    assert ((wanted[0] >= -1) & (wanted[0] < 3)).all()
    made = np.full((2, 6), 99)
    desc = bc.BatchIndicesPositionsDescriptor(batch_size=3, num_tokens=6, element="int64")
    with emulating():
        plan = bc.BatchIndicesPositionsPlan.select(desc, device=emulated_device(9.0))
        views = [pointer_view(one) for one in (bounds, lengths, *made)]
        names = ("token_indptr", "lengths", "batch_indices", "positions")
        plan.run(bc.BatchIndicesPositionsArgs(**dict(zip(names, views, strict=True))))
    np.testing.assert_array_equal(made, wanted)


def test_what_does_not_go_together_is_refused() -> None:
    with pytest.raises(bc.InvalidProblemError, match="token_indptr must have shape"):
        bc.batch_indices_positions(np.array([0, 1, 2]), np.array([1, 2, 3]), num_tokens=2)
    with pytest.raises((bc.InvalidProblemError, bc.UnsupportedError), match="float32"):
        bc.batch_indices_positions(np.zeros(3, np.float32), np.zeros(2, np.float32), num_tokens=2)
    with pytest.raises(bc.InvalidProblemError, match="num_tokens"):
        bc.batch_indices_positions(np.array([0, 1]), np.array([1]), num_tokens=-1)
