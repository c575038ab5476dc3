"""COO, CSR, CSC and BSR: what they refuse, arrays of other packages in and out, `check`."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

S = bc.sparse
scipy_sparse = pytest.importorskip("scipy.sparse")
DENSE = np.array([[0, 2.0, 0, 1], [0, 0, 0, 0], [3, 0, 4, 0]])
FORMATS = ("coo", "csr", "csc", "bsr")


def of(kind):
    return getattr(S, kind.upper())


def held(matrix):
    """The arrays that a matrix has."""
    return [getattr(matrix, name) for name in ("values", "rows", "columns", "offsets") if hasattr(matrix, name)]


@pytest.mark.parametrize("kind", FORMATS)
def test_scipy_in_and_out_shares_memory(kind):
    theirs = scipy_sparse.coo_matrix(DENSE).asformat(kind)
    ours = of(kind).from_scipy(theirs)
    assert (ours.shape, ours.nnz, ours.dtype) == (theirs.shape, theirs.data.size, theirs.dtype)
    back = ours.to_scipy()
    np.testing.assert_array_equal(back.toarray(), DENSE)
    assert np.shares_memory(ours.values, theirs.data) and np.shares_memory(back.data, theirs.data)
    np.testing.assert_array_equal(S.to_dense(theirs), DENSE)
    S.check(theirs)


@pytest.mark.parametrize("kind", FORMATS)
def test_torch_in_and_out_shares_memory(kind):
    torch = pytest.importorskip("torch")
    block = {"blocksize": (1, 2)} if kind == "bsr" else {}
    theirs = torch.tensor(DENSE).to_sparse(layout=getattr(torch, f"sparse_{kind}"), **block)
    ours = of(kind).from_torch(theirs)
    back = ours.to_torch()
    np.testing.assert_array_equal(back.to_dense(), DENSE)
    assert ours.values.data_ptr() == theirs.values().data_ptr() == back._values().data_ptr() if kind == "coo" else True
    np.testing.assert_array_equal(S.to_dense(theirs), DENSE)


def test_torch_with_entries_twice():
    torch = pytest.importorskip("torch")
    twice = torch.sparse_coo_tensor(torch.tensor([[1, 1, 0], [0, 0, 2]]), torch.tensor([1.0, 2.0, 5.0]), (2, 3))
    np.testing.assert_array_equal(S.to_dense(twice), twice.to_dense())
    made = S.coalesce(twice)
    np.testing.assert_array_equal(made.to_torch().to_dense(), twice.to_dense())
    assert made.nnz == 2


def test_views_that_cost_nothing():
    a = S.from_dense(DENSE)
    turned = S.sparse_transpose(a)
    assert isinstance(turned, S.CSC) and turned.values is a.values and turned.shape == (4, 3)
    assert isinstance(turned.T, S.CSR) and turned.T.offsets is a.offsets
    assert a.with_values(a.values * 2).columns is a.columns
    assert repr(a) == "CSR(shape=(3, 4), nnz=4, values=float64)"


I2, I3, F2 = np.arange(2), np.arange(3), np.ones(2)
BAD = {
    "shape must be (rows, columns)": lambda: S.COO(F2, I2, I2, (3,)),
    "shape": lambda: S.COO(F2, I2, I2, (3, -1)),
    "rows must have 2 elements, got 3": lambda: S.COO(F2, I3, I2, (3, 3)),
    "columns must be int64 or int32, got float64": lambda: S.COO(F2, I2, F2, (3, 3)),
    "values must be an array of 1 axes, got shape (1, 2)": lambda: S.COO(F2[None], I2, I2, (3, 3)),
    "values must be an array of 1 axes": lambda: S.CSR([1.0], I2, I2, (3, 3)),
    "offsets must have 4 elements, got 3": lambda: S.CSR(F2, I2, I3, (3, 3)),
    "rows must have 2 elements": lambda: S.CSC(F2, I3, I3, (3, 2)),
    "offsets must have 3 elements, got 2": lambda: S.CSC(F2, I2, I2, (3, 2)),
    "do not divide": lambda: S.BSR(np.ones((2, 2, 2)), I2, I2, (3, 4)),
    "values must be an array of 3 axes": lambda: S.BSR(F2, I2, I2, (3, 4)),
    "must be COO, CSR, CSC or BSR": lambda: S.to_dense(DENSE),
    "must be CSR, got COO": lambda: S.csr_to_coo(S.COO(F2, I2, I2, (3, 3))),
    "expected a csr matrix": lambda: S.CSR.from_scipy(scipy_sparse.coo_matrix(DENSE)),
    "torch's layout sparse_csr": lambda: S.CSR.from_torch(DENSE),
    "to_torch takes torch tensors": lambda: S.from_dense(DENSE).to_torch(),
}


@pytest.mark.parametrize("message", BAD)
def test_what_does_not_fit_is_refused(message):
    with pytest.raises(InvalidProblemError) as raised:
        BAD[message]()
    assert message in str(raised.value)


def test_other_formats_name_the_conversion():
    with pytest.raises(UnsupportedError, match="tocsr"):
        S.to_dense(scipy_sparse.lil_matrix(DENSE))


def test_check_tells_what_is_wrong():
    good = S.from_dense(DENSE)
    S.check(good)
    for bad, message in (
        (S.CSR(good.values, good.columns + 2, good.offsets, good.shape), r"columns must lie in \[0, 4\), 2 do not"),
        (S.CSR(good.values, good.columns, good.offsets[::-1].copy(), good.shape), "offsets must ascend from 0 to 4"),
        (S.CSR(good.values, good.columns, np.array([0, 2, 2, 3]), good.shape), "offsets must ascend from 0 to 4"),
        (S.COO(F2, I2 - 1, I2, (3, 3)), r"rows must lie in \[0, 3\), 1 do not"),
        (S.CSC(F2, I2 + 2, np.array([0, 1, 2]), (3, 2)), "rows must lie"),
    ):
        with pytest.raises(InvalidProblemError, match=message):
            S.check(bad)
