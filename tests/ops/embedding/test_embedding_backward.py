"""embedding_backward: against np.add.at, padding, the fixed order of sums, skewed and long rows."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.ops.embedding.embedding import embedding
from baracuda_py.ops.embedding.embedding_backward import (
    CHUNK,
    EmbeddingBackwardDescriptor,
    EmbeddingBackwardPlan,
    embedding_backward,
)

RNG = np.random.default_rng(8)


def added(dy, indices, rows, padding=-1):
    expected = np.zeros((rows, dy.shape[-1]), np.float64)
    known = (indices >= 0) & (indices < rows) & (indices != padding)
    np.add.at(expected, indices[known], dy[known].astype(np.float64))
    return expected


@pytest.mark.parametrize("shape", [(), (7,), (3, 5), (0,)])
@pytest.mark.parametrize("padding", [None, 2, -1])
def test_sums(shape, padding):
    indices = RNG.integers(-1, 6, shape)
    dy = RNG.standard_normal((*shape, 4))
    row = -1 if padding is None else padding % 5
    got = embedding_backward(dy, indices, num_embeddings=5, padding_idx=padding)
    np.testing.assert_allclose(got, added(dy, indices, 5, row), atol=1e-14)


def test_adjoint_of_the_look_up():
    weight, indices = RNG.standard_normal((11, 3)), RNG.integers(-2, 13, (4, 6))
    dy = RNG.standard_normal((4, 6, 3))
    grad = embedding_backward(dy, indices, num_embeddings=11)
    np.testing.assert_allclose(np.vdot(dy, embedding(indices, weight)), np.vdot(grad, weight), rtol=1e-12)


def test_workspace_without_a_gpu():
    desc = EmbeddingBackwardDescriptor(
        index_shape=(32768,), num_embeddings=128000, embedding_dim=512, element="bfloat16"
    )
    plan = EmbeddingBackwardPlan.select(desc, device=fake_device(9.0))
    assert plan.workspace_size() % 256 == 0
    assert plan.workspace_size() < 2 * desc.tokens // CHUNK * desc.embedding_dim * 4 + 2**22


def whole_numbers(shape, dtype):
    """Sums of these are exact in every order, so that the result is known to the bit."""
    return RNG.integers(-4, 5, shape).astype(dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 3, 256, 5000, 130_000])
@pytest.mark.parametrize("tokens", [1, 32, 33, 1025, 5000])
def test_gpu_whole_numbers(rows, tokens):
    import cupy as cp

    spread = RNG.integers(-1, rows + 1, tokens)
    skewed = np.where(RNG.random(tokens) < 0.7, rows // 2, spread)
    for indices in (spread, skewed.astype(np.int32)):
        dy = whole_numbers((tokens, 24), np.float32)
        got = embedding_backward(cp.asarray(dy), cp.asarray(indices), num_embeddings=rows, padding_idx=rows - 1)
        np.testing.assert_array_equal(got.get(), added(dy, indices, rows, rows - 1))


@pytest.mark.gpu
def test_gpu_extreme_indices_and_strides():
    import cupy as cp

    indices = RNG.integers(0, 9, (50, 6))
    indices[::7, 0] = [2**62, -(2**63), 2**63 - 1, 9, -1, 0, 0, 1]
    dy = whole_numbers((6, 50, 70), np.float64)
    view = cp.asarray(dy).transpose(1, 0, 2)[..., ::2]
    got = embedding_backward(view, cp.asarray(indices), num_embeddings=9)
    np.testing.assert_array_equal(got.get(), added(dy.transpose(1, 0, 2)[..., ::2], indices, 9))


@pytest.mark.gpu
def test_gpu_bits_are_stable_and_depend_on_the_row_alone():
    import cupy as cp

    indices = RNG.integers(0, 40, 20_000) ** 2 // 40
    dy = RNG.standard_normal((20_000, 72)).astype(np.float32)
    first = embedding_backward(cp.asarray(dy), cp.asarray(indices), num_embeddings=40).get()
    for _ in range(20):
        again = embedding_backward(cp.asarray(dy), cp.asarray(indices), num_embeddings=40).get()
        np.testing.assert_array_equal(again, first)
    own = indices == 0
    alone = embedding_backward(cp.asarray(dy[own]), cp.asarray(indices[own]), num_embeddings=1).get()
    np.testing.assert_array_equal(alone[0], first[0])
    unaligned = cp.zeros((20_000, 73), np.float32)[:, 1:]
    unaligned[...] = cp.asarray(dy)
    narrow = embedding_backward(unaligned, cp.asarray(indices), num_embeddings=40).get()
    np.testing.assert_array_equal(narrow, first)
    np.testing.assert_allclose(first, added(dy, indices, 40), rtol=1e-5, atol=1e-3)
