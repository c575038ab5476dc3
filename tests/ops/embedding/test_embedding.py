"""embedding: look-up, policy for indices out of range, padding_idx, strides."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.embedding.embedding import EmbeddingDescriptor, EmbeddingPlan, embedding
from baracuda_py.testing.places import call

RNG = np.random.default_rng(7)


def row_by_row(indices, weight):
    y = np.zeros((*indices.shape, weight.shape[1]), weight.dtype)
    for at in np.ndindex(indices.shape):
        if 0 <= indices[at] < len(weight):
            y[at] = weight[indices[at]]
    return y


@pytest.mark.parametrize("shape", [(), (5,), (2, 3), (0, 4)])
@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_look_up(shape, index):
    weight = RNG.standard_normal((9, 4)).astype(np.float32)
    indices = RNG.integers(0, 9, shape).astype(index)
    np.testing.assert_array_equal(embedding(indices, weight), weight[indices])


def test_out_of_range_is_a_zero_row():
    weight = RNG.standard_normal((3, 2))
    indices = np.array([-1, 0, 2, 3, 2**62, -(2**63)])
    np.testing.assert_array_equal(embedding(indices, weight), row_by_row(indices, weight))


def test_padding_row_is_returned_as_it_is():
    weight = RNG.standard_normal((3, 2))
    for padding in (1, -2):
        np.testing.assert_array_equal(embedding(np.array([1, 2]), weight, padding_idx=padding), weight[1:])
    with pytest.raises(InvalidProblemError, match="padding_idx"):
        embedding(np.array([1, 2]), weight, padding_idx=3)


def test_padding_row_counts_from_the_end():
    facts = {"index_shape": (1,), "num_embeddings": 5, "embedding_dim": 1, "element": "float32"}
    assert EmbeddingDescriptor(padding_idx=-2, **facts).padding_row == 3
    assert EmbeddingDescriptor(**facts).padding_row == -1


def test_checked_run(monkeypatch):
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    weight = np.ones((3, 2), np.float32)
    embedding(np.array([0, 2]), weight)
    with pytest.raises(InvalidProblemError, match=r"indices must lie in \[0, 3\)"):
        embedding(np.array([0, 3]), weight)


def test_table_without_rows():
    np.testing.assert_array_equal(embedding(np.array([0, 1]), np.zeros((0, 3), np.float32)), np.zeros((2, 3)))


@pytest.mark.gpu
@pytest.mark.parametrize("dim", [1, 6, 64, 1000])
@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_gpu_policy_and_strides(dim, dtype):
    import cupy as cp

    weight = RNG.standard_normal((40, dim)).astype(dtype)
    indices = RNG.integers(-3, 44, (6, 5, 4))
    indices[0, 0] = [2**62, -(2**63), 2**63 - 1, 40]
    expected = row_by_row(indices, weight)
    device = cp.asarray(indices)
    np.testing.assert_array_equal(embedding(device, cp.asarray(weight)).get(), expected)
    by_column = cp.asarray(np.asfortranarray(weight), order="F")
    swapped = embedding(device.transpose(2, 0, 1), by_column)
    np.testing.assert_array_equal(swapped.get(), expected.transpose(2, 0, 1, 3))


@pytest.mark.parametrize("place", ["numpy", "emulator"])
@pytest.mark.parametrize("dtype", ["int8", "bool", "uint16", "int64"])
def test_tables_that_are_no_floats(dtype, place):
    """They are moved by their bytes, in words as wide as rows allow; a gradient is refused."""
    weight, indices = (np.arange(32).reshape(4, 8) % 3).astype(dtype), np.array([[3, -1], [0, 4]])
    for table in (weight, weight[::-1, ::-2]):
        known = (indices >= 0) & (indices < len(table))
        want = np.where(known[..., None], table[np.where(known, indices, 0)], table.dtype.type(0))
        desc = EmbeddingDescriptor(
            index_shape=indices.shape, num_embeddings=len(table), embedding_dim=table.shape[1], element=dtype
        )
        np.testing.assert_array_equal(call(EmbeddingPlan, desc, ["y"], place, indices=indices, weight=table)["y"], want)
    with pytest.raises(UnsupportedError, match=f"element {dtype} is not supported"):
        bc.embedding_backward(want, indices, num_embeddings=4)
