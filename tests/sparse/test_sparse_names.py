"""torch.sparse's and torch.nested's names against torch, SciPy and dense products."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

S, N = bc.sparse, bc.nested


def square(n=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.5) + 3 * np.eye(n)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_diagonals_are_scipys(layout):
    sparse = pytest.importorskip("scipy.sparse")
    d, offsets = np.random.default_rng(0).standard_normal((3, 5)), (0, -1, 2)
    for shape in ((3, 3), (4, 6), (6, 4), (2, 2), (1, 9)):
        wanted = sparse.dia_matrix((d, np.array(offsets)), shape=shape).toarray()
        np.testing.assert_array_equal(S.to_dense(S.spdiags(d, offsets, shape, layout)), wanted)
    assert S.spdiags(np.ones((1, 3)), 9, (3, 3), layout).nnz == 0
    for bad in (lambda: S.spdiags(d, (0, 0, 1), (3, 3)), lambda: S.spdiags(d, (0, 1), (3, 3))):
        with pytest.raises(InvalidProblemError):
            bad()


def test_products():
    x, b = square(), np.random.default_rng(1).standard_normal((5, 2))
    a = S.dense_to_csr(x)
    np.testing.assert_allclose(S.mm(a, b), x @ b)
    np.testing.assert_allclose(S.to_dense(S.mm(a, S.dense_to_coo(x))), x @ x)
    np.testing.assert_allclose(S.addmm(b, a, b, beta=2, alpha=0.5), 2 * b + 0.5 * x @ b)
    np.testing.assert_allclose(S.to_dense(S.smm(a, b)), x @ b)
    np.testing.assert_allclose(S.to_dense(S.sspaddmm(a, a, x, beta=2, alpha=3)), 2 * x + 3 * x @ x)
    assert S.saddmm is S.addmm and S.dsmm is S.hsmm is S.mm and S.hspmm is S.smm
    with pytest.raises(InvalidProblemError):
        S.mm(a, a, out=b)


def test_systems():
    torch = pytest.importorskip("torch")
    x, b = square(), np.random.default_rng(1).standard_normal((5, 2))
    a = S.dense_to_csr(x)
    np.testing.assert_allclose(S.spsolve(a, b), np.linalg.solve(x, b))
    np.testing.assert_allclose(S.spsolve(a, b.T, left=False), np.linalg.solve(x.T, b).T)
    np.testing.assert_allclose(S.spsolve(a, b[:, 0], left=False), np.linalg.solve(x.T, b[:, 0]))
    t = S.CSR.from_torch(torch.tensor(x).to_sparse_csr())
    given = (t.values.clone().requires_grad_(), torch.tensor(b, requires_grad=True))
    assert torch.autograd.gradcheck(lambda v, b: S.spsolve(t.with_values(v), b), given)
    with pytest.raises(InvalidProblemError, match="square"):
        S.spsolve(S.dense_to_csr(np.ones((2, 3))), b)


def test_constructors_hold_torchs_arrays():
    torch = pytest.importorskip("torch")
    x = torch.tensor(square(4))
    coo, csr, csc = x.to_sparse_coo(), x.to_sparse_csr(), x.to_sparse_csc()
    bsr = x.to_sparse_bsr((2, 2))
    made = (
        S.sparse_coo_tensor(coo.indices(), coo.values(), (4, 4)),
        S.sparse_csr_tensor(csr.crow_indices(), csr.col_indices(), csr.values(), (4, 4)),
        S.sparse_csc_tensor(csc.ccol_indices(), csc.row_indices(), csc.values(), (4, 4)),
        S.sparse_bsr_tensor(bsr.crow_indices(), bsr.col_indices(), bsr.values(), (4, 4)),
        S.sparse_compressed_tensor(
            csr.crow_indices(), csr.col_indices(), csr.values(), (4, 4), layout=torch.sparse_csr
        ),
    )
    for one in made:
        assert torch.equal(S.to_dense(one), x)
    with pytest.raises(UnsupportedError, match="BSR"):
        S.sparse_compressed_tensor(None, None, None, (4, 4), layout="bsc")


def test_semi_structured():
    x = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float16)
    values, metadata = S.to_sparse_semi_structured(x)
    np.testing.assert_array_equal(bc.sparse24_decompress(values, metadata), bc.sparse24_prune(x))


def test_rows_of_different_lengths_are_torchs():
    torch = pytest.importorskip("torch")
    rows = [np.arange(6.0).reshape(3, 2), np.zeros((0, 2)), np.arange(10.0).reshape(5, 2)]
    nested = N.nested_tensor(rows)
    assert nested.offsets.tolist() == [0, 3, 3, 8] and N.as_nested_tensor(nested) is nested
    theirs = torch.nested.nested_tensor([torch.tensor(one) for one in rows])
    wanted = torch.nested.to_padded_tensor(theirs, -1.0).numpy()
    np.testing.assert_array_equal(N.to_padded_tensor(nested, -1.0), wanted)
    np.testing.assert_array_equal(N.to_padded_tensor(nested, -1.0, 2), wanted[:, :2])
    again = N.nested_tensor_from_jagged(nested.values, lengths=np.array([3, 0, 5]))
    assert again.offsets.tolist() == [0, 3, 3, 8]
    for bad in (lambda: N.nested_tensor([]), lambda: N.nested_tensor_from_jagged(nested.values)):
        with pytest.raises(InvalidProblemError):
            bad()


def test_parts_of_rows():
    x, lengths = np.arange(24.0).reshape(3, 4, 2), np.array([2, 0, 3])
    for start in (0, 1, np.array([2, 4, 0])):
        found = N.narrow(x, start, lengths)
        firsts = np.broadcast_to(start, 3)
        wanted = [row[s : s + n] for row, s, n in zip(x, firsts, lengths, strict=True)]
        np.testing.assert_array_equal(found.values, np.concatenate(wanted))
        assert found.offsets.tolist() == [0, 2, 2, 5]
    beyond = N.narrow(x, np.array([3, 0, 0]), np.array([2, 0, 0]))
    np.testing.assert_array_equal(beyond.values, [x[0, 3], [0, 0]])
    y = np.arange(12.0).reshape(3, 4)
    found = N.masked_select(y, y % 3 == 0)
    assert found.offsets.tolist() == [0, 2, 3, 4] and found.values[:4].tolist() == [0, 3, 6, 9]
