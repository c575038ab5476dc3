"""Composed forms of embedding: parts of a vocabulary, tables added, quantised ones, bags of several tables."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

RNG = np.random.default_rng(14)


def test_parts_of_a_vocabulary_add_up():
    weight, indices = RNG.standard_normal((10, 3)), RNG.integers(0, 10, (4, 5))
    parts = [bc.vocab_parallel_embedding(indices, weight[n : n + 5], n) for n in (0, 5)]
    np.testing.assert_array_equal(parts[0] + parts[1], weight[indices])


def test_tables_added():
    tables = [RNG.standard_normal((7, 3)) for _ in range(3)]
    indices, positions, types = RNG.integers(0, 7, (2, 4)), np.arange(4), RNG.integers(0, 2, (2, 4))
    y = bc.embedding_add(indices, tables[0], positions, tables[1])
    np.testing.assert_array_equal(y, tables[0][indices] + tables[1][positions])
    y = bc.embedding_add(indices, tables[0], positions, tables[1], types, tables[2])
    np.testing.assert_allclose(y, tables[0][indices] + tables[1][positions] + tables[2][types], rtol=1e-14)
    with pytest.raises(InvalidProblemError, match="go together"):
        bc.embedding_add(indices, tables[0], positions, tables[1], types)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("zero", [None, np.int32, np.float32])
def test_quantized(dtype, zero):
    limits = np.iinfo(dtype)
    q, scale = RNG.integers(limits.min, limits.max + 1, (6, 5)).astype(dtype), RNG.random(6).astype(np.float32)
    z = None if zero is None else RNG.integers(0, 100, 6).astype(zero)
    indices = RNG.integers(0, 6, (3, 2))
    wanted = scale[indices][..., None] * (q[indices].astype(np.float32) - (0 if z is None else z[indices][..., None]))
    np.testing.assert_allclose(bc.quantized_embedding(indices, q, scale, z), wanted, rtol=1e-6)
    with pytest.raises(InvalidProblemError, match=r"scale must be \[rows\]"):
        bc.quantized_embedding(indices, q, scale[:5])


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_several_tables(mode):
    weight, edges = RNG.standard_normal((9, 4)), np.array([0, 3, 9])
    indices = np.stack([RNG.integers(0, 3, (5, 6)), RNG.integers(0, 6, (5, 6))])
    own = RNG.standard_normal(indices.shape)
    y = bc.embedding_bag_tables(indices, weight, edges, own, mode=mode)
    for table in range(2):
        rows = weight[edges[table] :][indices[table]] * own[table][..., None]
        np.testing.assert_allclose(y[table], getattr(rows, mode)(axis=1))
    indices[0, 0] = (3, -1, 7, 3, 4, 5)  # rows of the other table are none of its own
    np.testing.assert_array_equal(bc.embedding_bag_tables(indices, weight, edges, mode=mode)[0, 0], np.zeros(4))


@pytest.mark.parametrize("code", ["uint4", "int4"])
@pytest.mark.parametrize("zero", [None, np.float32, np.int8])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_two_codes_a_byte(code, zero, dtype):
    codes = RNG.integers(0, 16, (6, 10)).astype(np.uint8)
    packed = codes[:, 0::2] | codes[:, 1::2] << 4
    q = codes.astype(np.int32) if code == "uint4" else (codes.astype(np.int32) ^ 8) - 8
    scale, z = RNG.random(6).astype(dtype), None if zero is None else RNG.integers(0, 9, 6).astype(zero)
    indices = RNG.integers(0, 6, (3, 2))
    wide = scale.astype(np.float64)
    wanted = wide[indices][..., None] * (q[indices] - (0 if z is None else z[indices][..., None].astype(np.int32)))
    y = bc.quantized_embedding(indices, packed, scale, z, code=code)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, wanted, rtol=2e-3 if dtype is np.float16 else 1e-6)
    out = np.zeros((3, 2, 10), dtype)
    assert bc.quantized_embedding(indices, packed, scale, z, code=code, out=out) is out and (out == y).all()
    assert not bc.quantized_embedding(np.array([-7, 6]), packed, scale, z, code=code).any()
    with pytest.raises(InvalidProblemError, match="uint8, two codes a byte"):
        bc.quantized_embedding(indices, packed.astype(np.int8), scale, code=code)
    with pytest.raises(InvalidProblemError, match="code must be"):
        bc.quantized_embedding(indices, packed, scale, code="int2")


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_bags_of_a_quantized_table(mode):
    q, scale, z = RNG.integers(-128, 128, (6, 4)).astype(np.int8), RNG.random(6), RNG.integers(0, 9, 6).astype(float)
    indices, own = RNG.integers(0, 6, (5, 3)), RNG.standard_normal((5, 3))
    rows = scale[:, None] * (q - z[:, None])
    want = getattr(rows[indices] * own[..., None], mode)(axis=1)
    np.testing.assert_allclose(bc.quantized_embedding_bag(indices, q, scale, z, None, own, mode=mode), want)
    flat, offsets = indices.reshape(-1), np.array([0, 4, 4, 9])
    y = bc.quantized_embedding_bag(flat, q, scale, z, offsets, mode=mode)
    np.testing.assert_allclose(y, bc.embedding_bag(flat, rows, offsets, mode=mode))
    strange = np.array([[1, -1, 6], [2, 3, 2]])
    y = bc.quantized_embedding_bag(strange, q, scale, z, mode=mode, padding_idx=3)
    np.testing.assert_allclose(y, [rows[1], rows[2] * (2 if mode == "sum" else 1)])


def test_scales_of_bags_have_gradients():
    torch = pytest.importorskip("torch")
    q = torch.from_numpy(RNG.integers(0, 256, (6, 2)).astype(np.uint8))
    scale = torch.rand(6, dtype=torch.float64, requires_grad=True)
    z, own = (torch.rand(n, dtype=torch.float64, requires_grad=True) for n in (6, (2, 3)))
    indices = torch.tensor([[0, 1, 1], [5, 0, 2]])
    for code in (None, "uint4", "int4"):
        assert torch.autograd.gradcheck(
            lambda s, z, w, code=code: bc.quantized_embedding_bag(indices, q, s, z, None, w, mode="sum", code=code),
            (scale, z, own),
        )


def test_rows_of_other_parts_and_tables_are_no_mistake(monkeypatch):
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    weight = RNG.standard_normal((4, 3))
    indices = np.array([0, 5, 9, -1, 2**31 - 1], np.int32)
    wanted = np.zeros((5, 3))
    wanted[1] = weight[1]
    np.testing.assert_array_equal(bc.vocab_parallel_embedding(indices, weight, 4), wanted)
    bags = np.array([[[0, -1]], [[1, 2]]])
    np.testing.assert_array_equal(bc.embedding_bag_tables(bags, weight, np.array([0, 2, 4])), weight[[[0], [3]]])
    for wrong in (weight[0], weight.reshape(4, 3, 1)):
        with pytest.raises(InvalidProblemError, match="weight must be"):
            bc.vocab_parallel_embedding(indices, wrong, 4)
    with pytest.raises(InvalidProblemError, match="indices int64 or int32"):
        bc.vocab_parallel_embedding(indices.astype(np.float32), weight, 4)
