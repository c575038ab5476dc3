"""Complex reductions and scans: known values, what NumPy and torch give, gradients."""

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import UnsupportedError

NAN = np.nan


def numbers(*shape, seed=0, dtype=np.complex128):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_reductions(dtype):
    z, rtol = numbers(5, 40, 3, dtype=dtype), 2e-5 if dtype is np.complex64 else 1e-12
    for axis in (None, 1, (0, 2)):
        np.testing.assert_allclose(bc.sum(z, axis=axis), z.sum(axis), rtol=rtol)
        np.testing.assert_allclose(bc.mean(z, axis=axis), z.mean(axis), rtol=rtol)
        np.testing.assert_allclose(bc.prod(z, axis=axis), z.astype(complex).prod(axis), rtol=rtol)
        norms = bc.l2_norm(z, axis=axis)
        assert norms.dtype == z.real.dtype
        np.testing.assert_allclose(norms, np.sqrt((np.abs(z) ** 2).sum(axis)), rtol=rtol)
        np.testing.assert_allclose(bc.l1_norm(z, axis=axis), np.abs(z).sum(axis), rtol=rtol)
    z[0] = 0
    np.testing.assert_array_equal(bc.count_nonzero(z, axis=(1, 2)), [0, 120, 120, 120, 120])
    np.testing.assert_array_equal(bc.any(z, axis=(1, 2)), [False, True, True, True, True])
    np.testing.assert_array_equal(bc.all(z, axis=(1, 2)), [False, True, True, True, True])


def test_ends_of_the_range():
    large = np.full(4, 1e300 + 1e300j)
    np.testing.assert_allclose(bc.l2_norm(large), np.sqrt(8) * 1e300)
    np.testing.assert_allclose(bc.l2_norm(large * 1e-600), 0)
    np.testing.assert_allclose(bc.prod(np.array([1e30 + 0j, 1e30j, 1e-30, 1e-30], np.complex64)), 1j, rtol=1e-6)
    assert bc.sum(np.zeros(0, complex)) == 0 and bc.prod(np.zeros(0, complex)) == 1
    assert np.isnan(bc.mean(np.zeros(0, complex)))


def test_a_product_with_an_infinity_is_nan_in_both_parts():
    for bad in (np.inf, complex(0, -np.inf), NAN):
        y = bc.prod(np.array([1 + 1j, bad, 0]))
        assert np.isnan(y.real) and np.isnan(y.imag)


def test_what_is_of_real_numbers_is_refused():
    for name in ("amax", "argmin", "nanvar", "logsumexp", "nansum"):
        with pytest.raises(UnsupportedError, match="take the real part or the magnitude"):
            getattr(bc, name)(numbers(3))


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("reverse", [False, True])
def test_scans(dtype, reverse):
    z, rtol = numbers(3, 50, dtype=dtype), 2e-5 if dtype is np.complex64 else 1e-12
    turn = (slice(None), slice(None, None, -1 if reverse else 1))
    wide = z.astype(complex)
    np.testing.assert_allclose(bc.cumsum(z, axis=1, reverse=reverse), wide[turn].cumsum(1)[turn], rtol=rtol)
    np.testing.assert_allclose(bc.cumprod(z, axis=1, reverse=reverse), wide[turn].cumprod(1)[turn], rtol=rtol)


def test_a_decaying_rotation():
    """h[t] = a h[t - 1] with |a| < 1 is a spiral, as a damped oscillator's or a state-space model's."""
    a = 0.99 * np.exp(0.1j)
    h = bc.linear_scan(np.full((1, 300), a), np.zeros((1, 300), complex), np.ones(1, complex), axis=1)
    np.testing.assert_allclose(h[0], a ** np.arange(1, 301), rtol=1e-12)


def test_streams_go_on():
    z = numbers(2, 30)
    first, carry = bc.cumsum(z[:, :13], axis=1, return_carry=True)
    np.testing.assert_allclose(np.concatenate([first, bc.cumsum(z[:, 13:], 1, carry)], 1), z.cumsum(1))


def test_gradients_of_recurrences_are_those_of_torch():
    torch = pytest.importorskip("torch")
    a, b, dh = (numbers(4, 20, seed=s) for s in range(3))
    first = numbers(4, seed=3)
    leaves = [torch.from_numpy(x).requires_grad_() for x in (a, b, first)]
    state, states = leaves[2], []
    for t in range(20):
        state = leaves[0][:, t] * state + leaves[1][:, t]
        states.append(state)
    wanted = torch.autograd.grad(torch.stack(states, 1), leaves, torch.from_numpy(dh))
    h = bc.linear_scan(a, b, first, axis=1)
    got = bc.linear_scan_backward(dh, a, h, first, axis=1)
    for ours, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs.resolve_conj().numpy(), rtol=1e-9)


def test_gradients_of_products_are_those_of_torch():
    torch = pytest.importorskip("torch")
    x, dy = numbers(3, 12), numbers(3, 12, seed=1)
    x[0, 4] = 0
    leaf = torch.from_numpy(x).requires_grad_()
    (wanted,) = torch.autograd.grad(leaf.cumprod(1), leaf, torch.from_numpy(dy))
    got = bc.scan_backward(dy, x, bc.cumprod(x, axis=1), kind="cumprod", axis=1)
    np.testing.assert_allclose(got, wanted.resolve_conj().numpy(), rtol=1e-9, atol=1e-12)
