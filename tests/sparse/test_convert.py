"""Conversions, coalesce, sums, softmax, and products by places, against SciPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

S = bc.sparse
sp = pytest.importorskip("scipy.sparse")
SHAPES = [(6, 8), (1, 1), (1, 7), (7, 1), (13, 5), (0, 4), (4, 0), (0, 0)]
KINDS = ("coo", "csr", "csc")
ELEMENTS = ("float64", "float32", "complex128", "int32")


def dense(shape, element="float64", seed=0, filled=0.35):
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 10, shape).astype(np.float64)
    if element.startswith("complex"):
        x = x + 1j * rng.integers(-9, 10, shape)
    return (x * (rng.random(shape) < filled)).astype(element)


def as_kind(x, kind, index=np.int64):
    a = S.dense_to_csr(x)
    a = S.CSR(a.values, a.columns.astype(index), a.offsets.astype(index), a.shape)
    return {"coo": S.csr_to_coo, "csr": lambda a: a, "csc": S.csr_to_csc}[kind](a)


def messy(shape, kind, count, seed=0):
    """Entries in any order, several times, some outside, and what they come to."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(-2, shape[0] + 2, count), rng.integers(-2, shape[1] + 2, count)
    values = rng.integers(-9, 10, count).astype(np.float64)
    x, inside = np.zeros(shape), (rows >= 0) & (rows < shape[0]) & (columns >= 0) & (columns < shape[1])
    np.add.at(x, (rows[inside], columns[inside]), values[inside])
    return S.COO(values, rows, columns, shape), x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "element", "index"), list(itertools.product(SHAPES, ELEMENTS, (np.int32, np.int64))))
def test_round_trips(shape, element, index, kind):
    x = dense(shape, element)
    a = as_kind(x, kind, index)
    S.check(a)
    for made in (a, S.to_coo(a), S.to_csr(a), S.csr_to_csc(S.to_csr(a)), S.coalesce(a), S.coalesce(a, size=a.nnz + 2)):
        y = S.to_dense(made)
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(S.to_dense(S.sparse_transpose(a)), x.T)
    theirs = sp.csr_matrix(x)
    ours = S.to_csr(a)
    np.testing.assert_array_equal(ours.columns, theirs.indices)
    np.testing.assert_array_equal(ours.offsets, theirs.indptr)
    assert ours.columns.dtype == index


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(5, 4), (1, 1), (9, 2)])
def test_entries_in_any_order_several_times_and_outside(shape, kind):
    a, x = messy(shape, kind, 60)
    a = {"coo": lambda a: a, "csr": S.coo_to_csr, "csc": lambda a: S.csr_to_csc(S.coo_to_csr(a))}[kind](a)
    np.testing.assert_array_equal(S.to_dense(a), x)
    made = S.coalesce(a)
    S.check(made)
    assert made.nnz == len({(r, c) for r, c in zip(*held_places(made), strict=True)})
    np.testing.assert_array_equal(S.to_dense(made), x)
    b = np.random.default_rng(1).standard_normal((shape[1], 3))
    np.testing.assert_allclose(S.spmm(a, b), x @ b, atol=1e-12)
    np.testing.assert_array_equal(S.to_dense(S.mul(made, a)), x * x)
    np.testing.assert_array_equal(S.to_dense(S.add(a, made)), 2 * x)
    np.testing.assert_allclose(S.to_dense(S.spgemm(a, S.coo_to_csr(S.to_coo(a).T))), x @ x.T, atol=1e-12)


def held_places(a):
    coo = S.to_coo(a)
    return coo.rows.tolist(), coo.columns.tolist()


def test_offsets_that_leave_entries_out():
    a = S.CSR(np.arange(1.0, 7), np.array([0, 1, 2, 0, 1, 2]), np.array([1, 3, 3]), (2, 3))
    np.testing.assert_array_equal(S.to_dense(a), [[0, 2, 3], [0, 0, 0]])
    np.testing.assert_array_equal(S.spmm(a, np.eye(3)), [[0, 2, 3], [0, 0, 0]])
    assert S.coalesce(a).nnz == 2


@pytest.mark.parametrize(
    ("shape", "block"), [((6, 8), (2, 4)), ((6, 8), 2), ((6, 8), (6, 8)), ((4, 4), 1), ((0, 4), 2)]
)
def test_blocks(shape, block):
    x = dense(shape)
    for a in (S.dense_to_csr(x), S.dense_to_coo(x)):
        made = S.csr_to_bsr(a, block)
        S.check(made)
        theirs = sp.csr_matrix(x).tobsr(blocksize=block if isinstance(block, tuple) else (block, block))
        theirs.sort_indices()
        np.testing.assert_array_equal(made.values, theirs.data)
        np.testing.assert_array_equal(made.columns, theirs.indices)
        padded = S.csr_to_bsr(a, block, size=made.values.shape[0] + 2)
        for one in (made, padded):
            np.testing.assert_array_equal(S.to_dense(one), x)
            np.testing.assert_array_equal(S.to_dense(S.to_csr(one)), x)
            for axis in (0, 1, None):
                np.testing.assert_array_equal(S.sum(one, axis), x.sum(axis))
    with pytest.raises(InvalidProblemError, match="block must divide the shape"):
        S.csr_to_bsr(S.dense_to_csr(np.ones((3, 4))), 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("element", ELEMENTS)
def test_sums(kind, element):
    x = dense((6, 9), element)
    a = as_kind(x, kind)
    for axis in (0, 1, -1, -2, None):
        y = S.sum(a, axis)
        np.testing.assert_array_equal(y, x.sum(axis))
    out = np.empty(9, S.sum(a, 0).dtype)
    assert S.sum(a, 0, out=out) is out
    with pytest.raises(InvalidProblemError, match="axis must be 0 or 1"):
        S.sum(a, 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("axis", [0, 1])
def test_softmax(kind, axis):
    x = dense((6, 9)) / 4
    a = as_kind(x, kind)
    e = np.where(x != 0, np.exp(x), 0)
    with np.errstate(all="ignore"):
        wanted = np.where(x != 0, e / e.sum(axis, keepdims=True), 0)
    np.testing.assert_allclose(S.to_dense(S.softmax(a, axis)), wanted)
    np.testing.assert_allclose(np.exp(S.log_softmax(a, axis).values), S.softmax(a, axis).values)


@pytest.mark.parametrize("kind", KINDS)
def test_products_and_sums_by_places(kind):
    x, y = dense((6, 9)), dense((6, 9), seed=1)
    a, b = as_kind(x, kind), as_kind(y, "csr")
    np.testing.assert_array_equal(S.to_dense(S.add(a, b, alpha=2, beta=-3.0)), 2 * x - 3 * y)
    assert type(S.add(a, b)) is type(a)
    assert S.add(a, b).nnz == ((x != 0) | (y != 0)).sum()
    for other in (b, y):
        made = S.mul(a, other)
        assert made.nnz == a.nnz
        np.testing.assert_array_equal(S.to_dense(made), x * y)
    np.testing.assert_array_equal(S.mul(a, 3).values, 3 * a.values)
    out = np.empty(a.nnz)
    assert S.mul(a, b, out=out).values is out
    np.testing.assert_array_equal(S.sparse_mask(y, a).values, y[tuple(map(np.array, held_places(a)))])
    with pytest.raises(InvalidProblemError, match="b must have the shape"):
        S.add(a, as_kind(x.T.copy(), "csr"))
    with pytest.raises(InvalidProblemError, match="b must be float64"):
        S.mul(a, as_kind(x.astype(np.float32), "csr"))


def test_an_infinity_beside_nothing_is_no_nan():
    a = S.dense_to_csr(np.array([[np.inf, 2.0]]))
    b = S.dense_to_csr(np.array([[0.0, 3.0]]))
    np.testing.assert_array_equal(S.mul(a, b).values, [0, 6])


def test_dense_in_and_out():
    x = np.array([[0.0, np.nan], [-0.0, 1.0]])
    assert S.from_dense(x, "coo").nnz == 2
    padded = S.from_dense(x, size=3)
    assert padded.nnz == 3
    np.testing.assert_array_equal(S.to_dense(padded), x)
    out = np.empty((2, 2))
    assert S.to_dense(padded, out=out) is out
    for bad, message in (
        (lambda: S.to_dense(padded, out=np.empty((3, 2))), r"out must have shape \(2, 2\)"),
        (lambda: S.to_dense(padded, out=np.empty((2, 4))[:, :2]), "out must be one run of memory"),
        (lambda: S.from_dense(np.ones(3)), "x must be a matrix"),
        (lambda: S.from_dense(x, "dok"), "format must be one of"),
        (lambda: S.from_dense(x, size=-1), "size"),
        (lambda: S.sparse_mask(np.ones((3, 3)), padded), r"x must have shape \(2, 2\)"),
        (lambda: S.to_dense(S.COO(x[0], np.arange(2), np.arange(2), (2**40, 2**40))), "more than 2\\^62 places"),
    ):
        with pytest.raises(InvalidProblemError, match=message):
            bad()
