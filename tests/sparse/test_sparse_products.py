"""spmm, spmv, sampled_addmm and spgemm against dense products, and their gradients against differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import BaracudaError, InvalidProblemError

S = bc.sparse
pytest.importorskip("scipy.sparse")
SHAPES = [(6, 8, 5), (1, 1, 1), (13, 2, 70), (4, 8, 0), (0, 4, 3), (4, 0, 3)]
KINDS = ("coo", "csr", "csc", "bsr")
TOLERANCE = {
    "float64": 1e-13,
    "float32": 1e-5,
    "float16": 2e-2,
    "bfloat16": 0.15,
    "complex64": 1e-5,
    "complex128": 1e-13,
}


def made(shape, element, seed=0, filled=1.0):
    import ml_dtypes

    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if element.startswith("complex"):
        x = x + 1j * rng.standard_normal(shape)
    x = x * (rng.random(shape) < filled)
    return x.astype(ml_dtypes.bfloat16 if element == "bfloat16" else element)


def wide(x):
    return x.astype(np.complex128 if np.dtype(x.dtype).kind == "c" else np.float64)


def as_kind(x, kind):
    a = S.dense_to_csr(x)
    if kind == "bsr":
        return S.csr_to_bsr(a, (1 if x.shape[0] % 2 else 2, 2 if x.shape[1] % 2 == 0 else 1))
    return {"coo": S.csr_to_coo, "csr": lambda a: a, "csc": S.csr_to_csc}[kind](a)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "element"), list(itertools.product(SHAPES, TOLERANCE)))
def test_spmm(kind, shape, element):
    m, k, n = shape
    x, b, c = made((m, k), element, 0, 0.4), made((k, n), element, 1), made((m, n), element, 2)
    a, near = as_kind(x, kind), TOLERANCE[element]
    want = wide(x) @ wide(b)
    y = S.spmm(a, b)
    assert y.dtype == x.dtype and y.shape == (m, n)
    np.testing.assert_allclose(wide(y), want, atol=near * 4, rtol=near)
    np.testing.assert_allclose(
        wide(S.spmm(a, b, c, alpha=0.5, beta=-2.0)), 0.5 * want - 2 * wide(c), atol=near * 4, rtol=near
    )
    out = np.empty_like(y)
    assert S.spmm(a, b, out=out) is out
    assert out.tobytes() == y.tobytes(), "the same bits"
    if n:
        np.testing.assert_allclose(wide(S.spmv(a, b[:, 0])), want[:, 0], atol=near * 4, rtol=near)
    if kind != "bsr":
        back = S.spmm(a, c, transpose=True, conjugate=True)
        np.testing.assert_allclose(wide(back), wide(x).conj().T @ wide(c), atol=near * 8, rtol=near)


@pytest.mark.parametrize(("ours", "theirs"), [("complex128", "float64"), ("float64", "complex128")])
def test_complex_by_real(ours, theirs):
    x, b = made((5, 6), ours, 0, 0.5), made((6, 3), theirs, 1)
    for kind in KINDS:
        np.testing.assert_allclose(S.spmm(as_kind(x, kind), b), x @ b, atol=1e-13)


@pytest.mark.parametrize("element", ["float64", "float32", "complex128"])
@pytest.mark.parametrize("kind", KINDS[:3])
def test_sampled_addmm(kind, element):
    x, a, b = made((6, 8), element, 0, 0.4), made((6, 5), element, 1), made((5, 8), element, 2)
    c, near = as_kind(x, kind), TOLERANCE[element]
    y = S.sampled_addmm(c, a, b, alpha=2.0, beta=0.5)
    want = np.where(x != 0, 2 * (wide(a) @ wide(b)) + 0.5 * wide(x), 0)
    assert type(y) is type(c)
    np.testing.assert_allclose(S.to_dense(y), want, atol=near * 10)
    out = np.empty_like(c.values)
    assert S.sampled_addmm(c, a, b, out=out).values is out


@pytest.mark.parametrize("shape", [(6, 8, 5), (1, 1, 1), (13, 2, 70), (4, 8, 0), (0, 4, 3), (4, 0, 3)])
@pytest.mark.parametrize("element", ["float64", "float32", "complex64"])
def test_spgemm(shape, element):
    m, k, n = shape
    x, y = made((m, k), element, 0, 0.4), made((k, n), element, 1, 0.4)
    want, near = wide(x) @ wide(y), TOLERANCE[element]
    for first, second in itertools.product(KINDS[:3], repeat=2):
        made_ = S.spgemm(as_kind(x, first), as_kind(y, second))
        S.check(made_)
        np.testing.assert_allclose(S.to_dense(made_), want, atol=near * 10)
    bounded = S.spgemm(as_kind(x, "csr"), as_kind(y, "csr"), size=m * n + 3, products=m * k * n + 4)
    assert bounded.nnz == m * n + 3 if m * k * n else True
    np.testing.assert_allclose(S.to_dense(bounded), want, atol=near * 10)
    assert S.spgemm(as_kind(x, "csr"), as_kind(y, "csr")).nnz == np.count_nonzero(
        (x != 0).astype(int) @ (y != 0).astype(int)
    )


def test_a_batch_of_columns_has_the_bits_of_one():
    x, b = made((40, 50), "float32", 0, 0.3), made((50, 64), "float32", 1)
    a = S.dense_to_csr(x)
    whole = S.spmm(a, b)
    for part in (slice(0, 1), slice(3, 20)):
        assert S.spmm(a, np.ascontiguousarray(b[:, part])).tobytes() == np.ascontiguousarray(whole[:, part]).tobytes()


BAD = {
    r"b must be \[8, n\]": lambda a: S.spmm(a, np.ones((7, 2))),
    r"b must be \[6, n\]": lambda a: S.spmm(a, np.ones((8, 2)), transpose=True),
    r"c must have shape \(6, 2\)": lambda a: S.spmm(a, np.ones((8, 2)), np.ones((2, 6))),
    "x must be a vector": lambda a: S.spmv(a, np.ones((8, 1))),
    "transpose": lambda a: S.spmm(a, np.ones((8, 2)), transpose=2),
    "BSR": lambda a: S.spmm(S.csr_to_bsr(a, 2), np.ones((6, 2)), transpose=True),
    r"a must be \[6, k\] and b \[k, 8\]": lambda a: S.sampled_addmm(a, np.ones((8, 2)), np.ones((2, 8))),
    "row_shape|shape": lambda a: S.sampled_addmm(a, np.ones((6, 2)), np.ones((3, 8))),
    "b must have 8 rows": lambda a: S.spgemm(a, a),
    "float32": lambda a: S.spmm(a, np.ones((8, 2), np.float32)),
}


@pytest.mark.parametrize("message", BAD)
def test_what_does_not_fit_is_refused(message):
    with pytest.raises(BaracudaError, match=message):
        BAD[message](S.dense_to_csr(made((6, 8), "float64", 0, 0.5)))


def test_torch_gradients_are_those_of_differences():
    torch = pytest.importorskip("torch")
    pattern = torch.tensor(made((7, 9), "float64", 0, 0.4)).to_sparse_csr()
    a = S.CSR.from_torch(pattern)

    def leaf(*shape, element=torch.float64):
        return torch.randn(*shape, dtype=element, generator=torch.Generator().manual_seed(sum(shape))).requires_grad_()

    v, w, x, c = leaf(a.nnz), leaf(a.nnz), leaf(9, 4), leaf(7, 4)
    check = torch.autograd.gradcheck
    assert check(lambda v, x, c: S.spmm(a.with_values(v), x, c, alpha=2.0, beta=0.5), (v, x, c))
    assert check(lambda v, x: S.spmm(S.csr_to_csc(a.with_values(v)), x), (v, x))
    assert check(lambda v, c: S.spmm(a.with_values(v), c, transpose=True), (v, c))
    assert check(
        lambda v, p, q: S.sampled_addmm(a.with_values(v), p, q, alpha=2.0, beta=0.5).values, (v, c, leaf(4, 9))
    )
    assert check(lambda v, w: S.to_dense(S.spgemm(a.with_values(v), a.with_values(w).T)), (v, w))
    assert check(lambda v, w: S.to_dense(S.mul(a.with_values(v), a.with_values(w))), (v, w))
    assert check(lambda v, w: S.to_dense(S.add(a.with_values(v), a.with_values(w), alpha=2)), (v, w))
    assert check(lambda v: S.softmax(a.with_values(v)).values, (v,))
    assert check(lambda v: S.log_softmax(a.with_values(v), 0).values, (v,))
    assert check(lambda v: S.coalesce(a.with_values(v)).values, (v,))
    assert check(lambda v: S.sum(a.with_values(v), 0), (v,))
    assert check(lambda d: S.sparse_mask(d, a).values, (leaf(7, 9),))
    complex_ = torch.complex128
    assert check(
        lambda v, x: S.spmm(a.with_values(v), x), (leaf(a.nnz, element=complex_), leaf(9, 2, element=complex_))
    )


def test_torch_sparse_tensors_are_operands():
    torch = pytest.importorskip("torch")
    d, x = torch.tensor(made((7, 9), "float64", 0, 0.4)), torch.tensor(made((9, 4), "float64", 1))
    for layout in (torch.sparse_csr, torch.sparse_coo, torch.sparse_csc):
        torch.testing.assert_close(S.spmm(d.to_sparse(layout=layout), x), d @ x)
    csr = d.to_sparse_csr()
    torch.testing.assert_close(S.spgemm(csr, d.T.to_sparse_csr()).to_torch().to_dense(), d @ d.T)
    ours = S.sampled_addmm(csr, x[:7], x[:, :4].T.contiguous(), beta=0.5)
    torch.testing.assert_close(
        ours.to_torch(), torch.sparse.sampled_addmm(csr, x[:7], x[:, :4].T.contiguous(), beta=0.5)
    )
    ours = S.softmax(csr)
    torch.testing.assert_close(ours.to_torch().to_dense(), torch.sparse.softmax(csr.to_sparse_coo(), 1).to_dense())


def test_jax_traces_and_differentiates():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        a, x = S.dense_to_csr(jax.numpy.asarray(made((6, 5), "float64", 0, 0.5))), made((5, 3), "float64", 1)

        def loss(v, x):
            m = S.CSR(v, a.columns, a.offsets, a.shape)
            y = S.spmm(m, x, alpha=2.0)
            scores = S.sampled_addmm(S.softmax(m), y, x.T)
            return S.to_dense(S.spgemm(scores, m.T, products=200, size=40)).sum()

        dv, dx = jax.jit(jax.grad(loss, (0, 1)))(a.values, x)
        step = made(a.values.shape, "float64", 3)
        moved = [loss(a.values + h * step, x) for h in (1e-6, -1e-6)]
        np.testing.assert_allclose((moved[0] - moved[1]) / 2e-6, (dv * step).sum(), rtol=1e-6)
        assert dx.shape == x.shape


def test_a_count_cannot_be_read_in_a_trace():
    jax = pytest.importorskip("jax")
    a = S.dense_to_csr(jax.numpy.ones((3, 3), np.float32))
    with pytest.raises(InvalidProblemError, match="say size="):
        jax.jit(lambda c: S.coalesce(S.CSR(a.values, c, a.offsets, a.shape)).values)(a.columns)
