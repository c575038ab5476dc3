"""sddmm and spmm on a device at the sizes of graphs, every element, against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc

pytestmark = pytest.mark.gpu
S = bc.sparse
NEAR = {"float64": 1e-11, "float32": 2e-4, "float16": 2e-2, "bfloat16": 0.1}


def graph(nodes, edges, seed=0):
    """Offsets and columns of random rows, the first of which is long."""
    rng = np.random.default_rng(seed)
    rows = np.sort(np.where(rng.random(edges) < 0.1, 0, rng.integers(0, nodes, edges)))
    return rng.integers(0, nodes, edges), np.searchsorted(rows, np.arange(nodes + 1)), rows


@pytest.mark.parametrize("element", NEAR)
@pytest.mark.parametrize("width", [16, 64, 128])
def test_products_of_a_graph(element, width):
    cp = pytest.importorskip("cupy")
    nodes, edges = 5000, 60000
    columns, offsets, rows = graph(nodes, edges)
    rng = np.random.default_rng(1)
    kind = ml_dtypes.bfloat16 if element == "bfloat16" else np.dtype(element)
    a, b = (rng.standard_normal((nodes, width)).astype(kind) for _ in range(2))
    values = rng.standard_normal(edges).astype(kind)
    on = [bc.cast(cp.asarray(x.astype(np.float64)), element) for x in (a, b, values)]
    at, edges = cp.asarray(columns), cp.asarray(offsets)

    def seen(y):
        return bc.cast(y, "float64").get()

    dots = bc.sddmm(*on[:2], at, edges, on[2], alpha=0.5)
    want = 0.5 * np.einsum("ek,ek->e", a[rows].astype(float), b[columns].astype(float)) + values.astype(float)
    scale = NEAR[element] * width**0.5
    np.testing.assert_allclose(seen(dots), want, rtol=NEAR[element], atol=scale)
    assert bc.sddmm(*on[:2], at, edges, on[2], alpha=0.5).tobytes() == dots.tobytes()
    y = S.spmm(S.CSR(on[2], at, edges, (nodes, nodes)), on[1])
    sums = np.zeros((nodes, width))
    some = np.flatnonzero(np.diff(offsets))
    weighted = values.astype(float)[:, None] * b[columns].astype(float)
    sums[some] = np.add.reduceat(weighted, offsets[some], axis=0)
    made = seen(y)
    np.testing.assert_allclose(made[1:], sums[1:], rtol=NEAR[element], atol=scale)
    np.testing.assert_allclose(made[0], sums[0], rtol=NEAR[element], atol=NEAR[element] * 800)


def test_conversions_on_a_device():
    cp = pytest.importorskip("cupy")
    rng = np.random.default_rng(2)
    x = rng.integers(-9, 10, (600, 400)) * (rng.random((600, 400)) < 0.05)
    for element in ("float32", "float64", "complex64"):
        d = cp.asarray(x.astype(element))
        a = S.dense_to_csr(d)
        S.check(a)
        made = (a, S.csr_to_coo(a), S.csr_to_csc(a), S.csr_to_bsr(a, 20), S.coalesce(a), S.coalesce(a, size=a.nnz + 9))
        for one in made:
            np.testing.assert_array_equal(S.to_dense(one).get(), x.astype(element))
        np.testing.assert_array_equal(S.to_dense(S.spgemm(a, S.csr_to_csc(a).T)).get(), (x @ x.T).astype(element))
        np.testing.assert_array_equal(S.to_dense(S.add(a, a)).get(), 2 * x.astype(element))
        np.testing.assert_array_equal(S.to_dense(S.mul(a, a)).get(), (x * x).astype(element))
    back = a.to_scipy()
    np.testing.assert_array_equal(back.toarray().get(), x.astype(element))
    np.testing.assert_array_equal(S.to_dense(back).get(), x.astype(element))


def test_a_stream_of_its_own():
    cp = pytest.importorskip("cupy")
    x = cp.asarray(np.random.default_rng(3).standard_normal((300, 300)) * (np.arange(300) % 3 == 0))
    cp.cuda.Device().synchronize()
    stream = cp.cuda.Stream(non_blocking=True)
    a = S.dense_to_csr(x, stream=stream)
    y = S.spmm(a, x, stream=stream)
    stream.synchronize()
    np.testing.assert_allclose(y.get(), (x @ x).get(), atol=1e-10)
