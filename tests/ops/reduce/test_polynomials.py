"""Polynomials against NumPy's, and gradients against differences."""

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

RNG = np.random.default_rng(0)
KINDS = [np.float64, np.complex128]


def drawn(shape, dtype=np.float64):
    x = RNG.standard_normal(shape)
    return np.asarray(x + 1j * RNG.standard_normal(shape) if np.dtype(dtype).kind == "c" else x, dtype)


@pytest.mark.parametrize("dtype", KINDS)
def test_values(dtype):
    for n in (1, 2, 7, 8, 9, 16, 17, 19):
        p = drawn(n, dtype)
        for shape in ((), (3,), (2, 5), (0,)):
            x = drawn(shape, dtype)
            found = bc.polyval(p, x)
            assert found.shape == shape and found.dtype == dtype
            np.testing.assert_allclose(found, np.polyval(p, x), rtol=1e-9, atol=1e-12)


def test_values_of_integers_wrap_and_those_of_16_bits_are_rounded_once():
    for dtype in (np.int8, np.uint8, np.int32, np.int64):
        p, x = np.arange(1, 12, dtype=dtype), np.array([1, 2, 100], dtype)
        np.testing.assert_array_equal(bc.polyval(p, x), np.polyval(p, x))
    for dtype, eps in ((np.float16, 2**-11), (ml_dtypes.bfloat16, 2**-8)):
        p, x = drawn(19).astype(dtype), RNG.uniform(-1, 1, 40).astype(dtype)
        wanted = np.polyval(p.astype(float), x.astype(float))
        np.testing.assert_allclose(bc.polyval(p, x).astype(float), wanted, rtol=eps, atol=1e-5)


def test_values_go_to_out_through_strides():
    p, x, out = drawn(10), drawn((4, 6)).T, np.empty((6, 8))[:, ::2]
    assert bc.polyval(p[::-1], x, out=out) is out
    np.testing.assert_allclose(out, np.polyval(p[::-1], x), rtol=1e-12)


@pytest.mark.parametrize("dtype", KINDS)
def test_sums_products_derivatives_and_antiderivatives(dtype):
    for n in (1, 2, 5):
        p = drawn(n, dtype)
        for m in (1, 2, 3, 6):
            q = drawn(m, dtype)
            for name in ("polyadd", "polysub", "polymul"):
                np.testing.assert_allclose(getattr(bc, name)(p, q), getattr(np, name)(p, q), rtol=1e-9, atol=1e-12)
        for m in range(4):
            np.testing.assert_allclose(bc.polyder(p, m), np.polyder(p, m))
            np.testing.assert_allclose(bc.polyint(p, m), np.polyint(p, m))
        constants = [1.5, -2.0, 0.25]
        np.testing.assert_allclose(bc.polyint(p, 3, constants), np.polyint(p, 3, constants))
        np.testing.assert_allclose(bc.polyint(p, 3, 2.0), np.polyint(p, 3, [2.0] * 3))
        held = np.array(constants, dtype)
        np.testing.assert_allclose(bc.polyint(p, 3, held), np.polyint(p, 3, held))


def test_derivatives_of_integers_and_of_16_bits():
    for dtype in (np.int8, np.uint8, np.int64):
        p = np.array([3, 2, 7, 100], dtype)
        np.testing.assert_array_equal(bc.polyder(p), np.polyder(p.astype(np.int64)).astype(dtype))
    p = drawn(5000).astype(np.float16)  # factors beyond 2048 are no float16
    exact = np.polyder(p.astype(float)).astype(np.float16)
    np.testing.assert_array_equal(bc.polyder(p), exact)


@pytest.mark.parametrize("dtype", KINDS)
def test_roots_make_their_polynomial(dtype):
    for n in (0, 1, 2, 3, 4, 5, 8, 9, 16):
        x = drawn(n, dtype)
        found = bc.poly(x)
        assert found.shape == (n + 1,) and found.dtype == dtype
        np.testing.assert_allclose(found, np.poly(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", KINDS)
def test_quotients_and_remainders(dtype):
    for n in range(1, 8):
        for m in range(1, 8):
            u, v = drawn(n, dtype), drawn(m, dtype)
            v[0] = 2.0
            q, r = bc.polydiv(u, v)
            assert q.shape == (max(n - m + 1, 1),) and r.shape == (max(m - 1, 1),)
            whole, rest = np.polydiv(u, v)
            np.testing.assert_allclose(q, whole, rtol=1e-9, atol=1e-9)
            rest = np.concatenate([np.zeros(10), rest])[-len(r):]  # fmt: skip
            np.testing.assert_allclose(r, rest, rtol=1e-7, atol=1e-8)
            np.testing.assert_allclose(np.polyadd(np.polymul(q, v), r)[-n:], u, rtol=1e-9, atol=1e-9)


def test_results_go_to_out():
    a, b, out = drawn(5), drawn(3), np.empty(5)
    for name in ("polyadd", "polysub"):
        assert getattr(bc, name)(a, b, out=out) is out
        np.testing.assert_array_equal(out, getattr(np, name)(a, b))
    out = np.empty(7)
    assert bc.polymul(a, b, out=out) is out and bc.polyint(a, 2, out=out) is out
    out = np.empty(4)
    assert bc.poly(b, out=out) is out and bc.polyder(a, out=out) is out
    to = np.empty(3), np.empty(2)
    found = bc.polydiv(a, b, out=to)
    assert found[0] is to[0] and found[1] is to[1]
    np.testing.assert_array_equal(found[1], bc.polydiv(a, b)[1])
    to = np.empty(10), np.empty(4)
    found = bc.polyval_backward(np.ones(4), drawn(10), drawn(4), out=to)
    assert found[0] is to[0] and found[1] is to[1]


def test_gradients_are_those_of_differences():
    torch = pytest.importorskip("torch")

    def leaf(*shape, dtype=np.float64):
        return torch.tensor(drawn(shape, dtype), requires_grad=True)

    def right(function, *leaves):
        assert torch.autograd.gradcheck(function, leaves)

    for n, shape in ((11, (2, 3)), (1, (2, 3)), (3, ()), (2, (4,))):
        right(bc.polyval, leaf(n), leaf(*shape))
    right(bc.polyval, leaf(4, dtype=complex), leaf(3, dtype=complex))
    for name in ("polyadd", "polysub", "polymul"):
        right(getattr(bc, name), leaf(5), leaf(3))
    right(lambda p: bc.polyder(p, 2), leaf(5))
    right(lambda p, k: bc.polyint(p, 2, k), leaf(5), leaf(2))
    right(bc.poly, leaf(5))
    right(bc.poly, leaf(3, dtype=complex))
    for n, m in ((6, 3), (6, 1), (2, 4)):
        right(bc.polydiv, leaf(n), leaf(m))


def test_what_is_refused():
    p = drawn(3)
    for function in (bc.polyadd, bc.polysub, bc.polymul, bc.polydiv, bc.polyval):
        with pytest.raises(InvalidProblemError, match="a coefficient at least"):
            function(p[:0], p)
    for function in (bc.polyder, bc.polyint):
        with pytest.raises(InvalidProblemError, match="a coefficient at least"):
            function(p[None])
        with pytest.raises(InvalidProblemError, match="m must"):
            function(p, -1)
    with pytest.raises(InvalidProblemError, match="p must hold float64 as x does, got float32"):
        bc.polyval(p.astype(np.float32), p)
    with pytest.raises(InvalidProblemError, match="v must hold float64"):
        bc.polydiv(p, p.astype(np.float32))
    for function in (lambda x: bc.polydiv(x, x), bc.poly, bc.polyint):
        with pytest.raises(UnsupportedError, match="no integer"):
            function(np.array([1, 2]))
    with pytest.raises(InvalidProblemError, match="the roots"):
        bc.poly(np.eye(3))
    with pytest.raises(InvalidProblemError, match="k must"):
        bc.polyint(p, 3, [1.0, 2.0])
    with pytest.raises(InvalidProblemError, match="k must have shape"):
        bc.polyint(p, 3, drawn(2))
    with pytest.raises(InvalidProblemError, match="k must hold float64 as p does, got int64"):
        bc.polyint(p, 3, np.arange(3))
    with pytest.raises(InvalidProblemError, match=r"k\[0\]"):
        bc.polyint(p, 2, [1j, 2])
    with pytest.raises(UnsupportedError, match="p holds bool"):
        bc.polyder(np.array([True, False]))
    with pytest.raises(InvalidProblemError, match="out must have shape"):
        bc.polyval(p, p, out=np.empty(4))
