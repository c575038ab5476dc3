"""Filters against SciPy's, over random orders and options; gradients against differences."""

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError

scipy = pytest.importorskip("scipy.signal")


def _stable(rng: Any, order: int) -> np.ndarray:
    poles = rng.uniform(0.2, 0.97, order) * np.exp(1j * rng.uniform(0, np.pi, order))
    poles[order // 2 * 2 :] = poles[order // 2 * 2 :].real
    for k in range(0, order - 1, 2):
        poles[k + 1] = poles[k].conj()
    return np.atleast_1d(np.poly(poles).real) * rng.uniform(0.5, 2)


@pytest.mark.parametrize("seed", range(30))
def test_random_filters_are_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    b, a = rng.standard_normal(rng.integers(1, 6)), _stable(rng, int(rng.integers(0, 6)))
    axis, n = int(rng.integers(-2, 2)), int(rng.choice([1, 2, 5, 64, 65, 200, 1000]))
    x = rng.standard_normal((n, 3) if axis % 2 == 0 else (3, n))
    truth = scipy.lfilter(b, a, x, axis)
    y = bc.lfilter(b, a, x, axis)
    np.testing.assert_allclose(y, truth, atol=1e-10 * max(1, np.abs(truth).max()))
    out = np.empty_like(y)
    assert bc.lfilter(list(b), tuple(a), x, axis, out=out) is out
    np.testing.assert_array_equal(out, y)
    order = max(len(a), len(b)) - 1
    zi = rng.standard_normal((order, 3) if axis % 2 == 0 else (3, order))
    truth, after = scipy.lfilter(b, a, x, axis, zi)
    y, zf = bc.lfilter(b, a, x, axis, zi)
    np.testing.assert_allclose(y, truth, atol=1e-10 * max(1, np.abs(truth).max()))
    np.testing.assert_allclose(zf, after, atol=1e-10 * max(1, np.abs(truth).max()))
    outs = np.empty_like(y), np.empty_like(zf)
    made = bc.lfilter(b, a, x, axis, zi, out=outs)
    assert made[0] is outs[0] and made[1] is outs[1]
    np.testing.assert_array_equal(outs[1], zf)
    if order:
        np.testing.assert_allclose(bc.lfilter_zi(b, a), scipy.lfilter_zi(b, a), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("seed", range(12))
def test_random_filters_there_and_back_are_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    b, a = rng.standard_normal(rng.integers(1, 5)), _stable(rng, int(rng.integers(1, 5)))
    x, axis = rng.standard_normal((40, 50)), int(rng.integers(-2, 2))
    kind, size = ["odd", "even", "constant", None][rng.integers(4)], [None, 0, 5][rng.integers(3)]
    truth = scipy.filtfilt(b, a, x, axis, kind, size)
    y = bc.filtfilt(b, a, x, axis, kind, size)
    np.testing.assert_allclose(y, truth, atol=1e-9 * max(1, np.abs(truth).max()))
    out = np.empty_like(y)
    assert bc.filtfilt(b, a, x, axis, kind, size, out=out) is out


@pytest.mark.parametrize("seed", range(10))
def test_random_cascades_are_scipys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    order = int(rng.integers(1, 7))
    sos = (
        scipy.butter(order, [0.1, 0.4], "bandpass", output="sos")
        if seed % 2
        else scipy.butter(order, 0.3, output="sos")
    )
    axis = int(rng.integers(-2, 2))
    x = rng.standard_normal((70, 80))
    np.testing.assert_allclose(bc.sosfilt(sos, x, axis), scipy.sosfilt(sos, x, axis), atol=1e-11)
    shape = [len(sos), 70, 80]
    shape[axis % 2 + 1] = 2
    zi = rng.standard_normal(shape)
    y, zf = bc.sosfilt(sos, x, axis, zi)
    truth, after = scipy.sosfilt(sos, x, axis, zi)
    np.testing.assert_allclose(y, truth, atol=1e-11)
    np.testing.assert_allclose(zf, after, atol=1e-11)
    outs = np.empty_like(y), np.empty_like(zf)
    assert bc.sosfilt(sos, x, axis, zi, out=outs)[1] is outs[1]
    six = sos[0] * 2
    np.testing.assert_allclose(bc.biquad(x, *six), scipy.lfilter(six[:3], six[3:], x), atol=1e-11)


def test_emphasis() -> None:
    x = np.random.default_rng(0).standard_normal((2, 30))
    y = bc.preemphasis(x, 0.9)
    np.testing.assert_allclose(y, scipy.lfilter([1, -0.9], [1], x), atol=1e-13)
    np.testing.assert_allclose(bc.deemphasis(y, 0.9), x, atol=1e-12)
    assert bc.preemphasis(x[:, :0]).shape == (2, 0)


def test_float32_of_poles_near_the_circle_and_no_elements() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 5000)).astype(np.float32)
    for order, edge in ((4, 0.02), (2, 0.01), (6, 0.1), (8, 0.2)):
        b, a = (np.float32(one) for one in scipy.butter(order, edge))
        truth = scipy.lfilter(b.astype(float), a.astype(float), x.astype(float))
        y, theirs = bc.lfilter(b, a, x), scipy.lfilter(b, a, x)
        assert y.dtype == np.float32
        assert np.abs(y - truth).max() < np.abs(theirs - truth).max()
    b, a = scipy.butter(4, 0.02)
    assert bc.lfilter(b, a, np.zeros((0, 9))).shape == (0, 9)
    y, zf = bc.lfilter(b, a, np.zeros((3, 0)), zi=np.ones((3, 4)))
    assert y.shape == (3, 0) and (zf == 1).all()


def test_gradients() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = torch.tensor(rng.standard_normal((1, 66)), requires_grad=True)
    for poles, taps in ((1, 3), (3, 2)):
        b = torch.tensor(rng.standard_normal(taps), requires_grad=True)
        a = torch.tensor(_stable(rng, poles), requires_grad=True)
        zi = torch.tensor(rng.standard_normal((1, max(taps - 1, poles))), requires_grad=True)
        check = lambda f, given: torch.autograd.gradcheck(f, given, fast_mode=True)  # noqa: E731
        assert check(lambda b, a, x: bc.lfilter(b, a, x), (b, a, x))
        assert check(lambda b, a, x, zi: bc.lfilter(b, a, x, zi=zi), (b, a, x, zi))
        assert check(lambda b, a, x: bc.filtfilt(b, a, x), (b, a, x))
    sos = torch.tensor(scipy.butter(3, 0.3, output="sos"), requires_grad=True)
    assert check(lambda s, x: bc.sosfilt(s, x), (sos, x))
    assert check(lambda x: bc.biquad(x, 1.0, 0.3, 0.2, 2.0, -0.5, 0.3), (x,))
    assert check(bc.preemphasis, (x,)) and check(bc.deemphasis, (x,))


def test_what_is_refused() -> None:
    x = np.zeros((2, 9))
    with pytest.raises(InvalidProblemError, match="a must have one axis"):
        bc.lfilter([1.0], np.zeros(0), x)
    with pytest.raises(InvalidProblemError, match="b must hold float64"):
        bc.lfilter(np.ones(2, np.float32), [1.0], x)
    with pytest.raises(InvalidProblemError, match=r"zi must have shape \(2, 2\)"):
        bc.lfilter([1.0, 2, 3], [1.0], x, zi=np.zeros((2, 3)))
    with pytest.raises(UnsupportedError, match="lfilter takes x of float32"):
        bc.lfilter([1.0], [1.0], x + 0j)
    with pytest.raises(InvalidProblemError, match="more than padlen 9"):
        bc.filtfilt([1.0, 2, 3], [1.0], x)
    with pytest.raises(InvalidProblemError, match="padtype must be one of"):
        bc.filtfilt([1.0], [1.0], x, padtype="wrap")
    with pytest.raises(InvalidProblemError, match=r"sos must have shape \[sections, 6\]"):
        bc.sosfilt(np.ones((2, 5)), x)
    with pytest.raises(InvalidProblemError, match="a0 must not be 0"):
        bc.biquad(x, 1, 0, 0, 0, 0, 0)
