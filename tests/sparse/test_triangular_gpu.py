"""spsolve_triangular on a device: long chains, many rows at once, empty rows' ends, the same bits in every run."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc

pytestmark = pytest.mark.gpu


def banded(n, per, dtype, reach):
    """Lower triangles of `per` entries a row, the diagonal among them."""
    rng = np.random.default_rng(n)
    rows = np.repeat(np.arange(n), per)
    columns = np.maximum(rows - rng.integers(1, reach, n * per), 0)
    values = rng.standard_normal(n * per) / (4 * per)
    if dtype.startswith("complex"):
        values = values + 1j * rng.standard_normal(n * per) / (4 * per)
    values[columns == rows] = 0
    columns[::per], values[::per] = np.arange(n), 1.5
    return values.astype(dtype), columns, np.arange(n + 1) * per


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_systems(dtype):
    import cupy
    from scipy.sparse import csr_matrix
    from scipy.sparse.linalg import spsolve_triangular

    for n, per, reach, k in ((1, 1, 2, 1), (5000, 1, 2, 3), (5000, 2, 2, 1), (20000, 40, 3000, 5), (3000, 70, 3000, 9)):
        values, columns, offsets = banded(n, per, dtype, reach)
        b = np.random.default_rng(0).standard_normal((n, k)).astype(dtype)
        wide = np.result_type(dtype, "float64")
        matrix = csr_matrix((values.astype(wide), columns, offsets), shape=(n, n))
        matrix.sum_duplicates()
        wanted = spsolve_triangular(matrix, b.astype(wide))
        a = bc.sparse.CSR(*map(cupy.asarray, (values, columns, offsets)), (n, n))
        found = bc.sparse.spsolve_triangular(a, cupy.asarray(b))
        eps = np.finfo(dtype).eps
        np.testing.assert_allclose(found.get(), wanted, rtol=2e3 * eps, atol=2e3 * eps)
        for _ in range(3):
            assert (bc.sparse.spsolve_triangular(a, cupy.asarray(b)) == found).all()
        turned = bc.sparse.spsolve_triangular(a, cupy.asarray(b), transpose=True)
        back = spsolve_triangular(matrix.T.tocsr(), b.astype(wide), lower=False)
        np.testing.assert_allclose(turned.get(), back, rtol=2e3 * eps, atol=2e3 * eps)


def test_a_graph_holds_it():
    import cupy

    values, columns, offsets = banded(500, 3, "float64", 50)
    a = bc.sparse.CSR(*map(cupy.asarray, (values, columns, offsets)), (500, 500))
    b = cupy.ones(500)
    wanted = bc.sparse.spsolve_triangular(a, b)
    replay = bc.graph(lambda: bc.sparse.spsolve_triangular(a, b))
    for _ in range(3):
        assert (replay() == wanted).all()


def test_named_functions():
    import cupy

    x = np.random.default_rng(0).standard_normal((40, 40)) + 20 * np.eye(40)
    a, b = bc.sparse.dense_to_csr(cupy.asarray(x)), cupy.ones((40, 2))
    np.testing.assert_allclose(bc.sparse.spsolve(a, b).get(), np.linalg.solve(x, np.ones((40, 2))))
    nested = bc.nested.nested_tensor([b[:3], b[:5]])
    assert bc.nested.to_padded_tensor(nested, 0.0).shape == (2, 5, 2)
    made = bc.nested.narrow(cupy.asarray(x), cupy.arange(40), cupy.zeros(40, int) + 1, 40)
    np.testing.assert_array_equal(made.values.get(), np.diag(x))
