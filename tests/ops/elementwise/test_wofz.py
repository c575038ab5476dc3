"""Faddeeva's function: each part on and above the real axis, identities, infinities, its gradient beside its zeros."""

import numpy as np
import pytest
from mpmath import mp

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.ops.elementwise.complex_unary import ComplexUnaryPlan
from baracuda_py.testing.places import call


def of(place, z):
    desc = ComplexUnaryPlan.descriptor(kind="wofz", shape=z.shape, element=str(ElementKind.of(z.dtype)))
    return call(ComplexUnaryPlan, desc, ("y",), place, x=z)["y"]


def known(z):
    with mp.workdps(60):
        z = mp.mpc(complex(z))
        return complex(mp.exp(-z * z) * mp.erfc(-1j * z))


def test_the_real_part_keeps_its_digits_beside_the_real_axis(place):
    x = np.array([0, 0.1, 0.25, 1, 2.5, 3.1, 4.75, 5.5, 6.1, 7, 9, 11])
    z = np.concatenate([x + 1j * y for y in (1e-250, 1e-30, 1e-12, 1e-4, 0.1)])
    w, wanted = of(place, z), np.array([known(one) for one in z])
    np.testing.assert_allclose(w.real, wanted.real, rtol=1e-13)
    np.testing.assert_allclose(w.imag, wanted.imag, rtol=1e-14, atol=1e-300)
    np.testing.assert_allclose(of(place, x + 0j).real, np.exp(-x * x), rtol=1e-14)


def test_identities(place):
    rng = np.random.default_rng(1)
    z = 3 * (rng.standard_normal(100) + 1j * rng.standard_normal(100))
    w = of(place, z)
    np.testing.assert_allclose(of(place, -np.conj(z)), np.conj(w), rtol=1e-15)
    size = np.abs(2 * np.exp(-z * z)) + np.abs(w)
    assert (np.abs(w + of(place, -z) - 2 * np.exp(-z * z)) <= 1e-13 * size).all()
    y = np.abs(z.imag)
    np.testing.assert_allclose(of(place, 1j * y), bc.erfcx(y), rtol=4e-15)
    np.testing.assert_allclose(of(place, z.real + 0j).imag, 2 / np.sqrt(np.pi) * bc.dawsn(z.real), rtol=1e-14)


def test_infinities_and_what_is_no_number(place):
    inf, nan = np.inf, np.nan
    z = np.array([complex(0, inf), complex(-inf, 3), complex(inf, -3), complex(inf, inf), complex(0, -inf),
                  complex(0, -30), complex(1, nan), complex(nan, 1), 1e300j, 1e300], np.complex128)  # fmt: skip
    w = of(place, z)
    np.testing.assert_array_equal(w[:4], 0)
    np.testing.assert_array_equal(w[4:6], inf)
    assert np.isnan(w[6:8]).all()
    np.testing.assert_allclose(w[8:], np.array([1, 1j]) / (np.sqrt(np.pi) * 1e300), rtol=1e-15)
    with np.errstate(over="ignore", invalid="ignore"):
        narrow = of(place, z[:8].astype(np.complex64))
    np.testing.assert_array_equal(narrow[:6], w[:6])


def test_far_on_the_diagonals_the_phase_is_that_of_the_whole_square(place):
    z = np.array([12345.678 - 12345.678j, -1e5 - 100000.0000001j, 3e9 - 3e9j])
    with mp.workdps(80):
        wanted = [complex(mp.exp(-(mp.mpc(complex(one)) ** 2)) * mp.erfc(-1j * mp.mpc(complex(one)))) for one in z]
    np.testing.assert_allclose(of(place, z), wanted, rtol=1e-13)


def test_zeros_have_an_absolute_error(place):
    zero = np.array([1.9914668428 - 1.3548101281j, 2.6911490241 - 2.1770449049j])
    assert (np.abs(of(place, zero)) < 2e-9).all()
    value = known(zero[0])
    assert abs(of(place, zero)[0] - value) < 1e-14


@pytest.mark.parametrize("scale", [0.5, 3.0, 30.0])
def test_the_gradient_is_that_of_differences(scale):
    rng = np.random.default_rng(2)
    z = scale * (rng.standard_normal(40) + 1j * np.abs(rng.standard_normal(40)))
    h = 1e-4 * scale
    change = sum(s * bc.wofz(z + k * h) for k, s in ((-2, 1), (-1, -8), (1, 8), (2, -1))) / (12 * h)
    np.testing.assert_allclose(bc.wofz_backward(np.full(40, 1 + 0j), z), np.conj(change), rtol=1e-8, atol=1e-11)
