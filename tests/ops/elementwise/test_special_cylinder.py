"""Bessel functions J, Y and K: known values, identities, limits, in PyTorch's way."""

import math

import numpy as np
import pytest
from test_unary_kinds import at
from truth_cylinder import mp, second

import baracuda_py as bc

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("name", "x", "y"),
    [
        ("bessel_j0", [0, 1, 10, INF, -INF], [1, 0.7651976865579666, -0.2459357644513483, 0, 0]),
        ("bessel_j1", [0, 1, -1, 10, INF], [0, 0.4400505857449335, -0.4400505857449335, 0.04347274616886144, 0]),
        ("bessel_y0", [0, 1, -1, 10, INF], [-INF, 0.08825696421567697, NAN, 0.05567116728359939, 0]),
        ("bessel_y1", [0, 1, -1, 10, INF], [-INF, -0.7812128213002887, NAN, 0.2490154242069539, 0]),
        ("modified_bessel_k0", [0, 1, -1, 10, INF], [INF, 0.42102443824070834, NAN, 1.778006231616765e-05, 0]),
        ("modified_bessel_k1", [0, 1, -1, 10, INF], [INF, 0.6019072301972346, NAN, 1.8648773453825584e-05, 0]),
        (
            "airy_ai",
            [0, 1, -1, 5, -10, 103, INF, -INF, -1e11],
            [
                0.3550280538878172,
                0.13529241631288141,
                0.5355608832923521,
                1.0834442813607442e-4,
                0.04024123848644319,
                1.9562320229339223e-304,
                0,
                0,
                NAN,
            ],
        ),
        ("scaled_modified_bessel_k0", [0, 1, -1, INF], [INF, 1.1444630798068949, NAN, 0]),
        ("scaled_modified_bessel_k1", [0, 1, -1, INF], [INF, 1.636153486263258, NAN, 0]),
    ],
)
def test_known_values(name, x, y, place):
    got = at(place, getattr(bc, name), np.array([*x, NAN], np.float64))
    np.testing.assert_allclose(got, [*y, NAN], rtol=4e-15, atol=1e-300)


def test_the_truth_of_other_tests_is_mpmaths():
    for x in map(mp.mpf, ("0.001", "1.7", "31.5", "59.9")):
        for order in (0, 1):
            for sign, function in ((-1, mp.bessely), (1, mp.besselk)):
                wanted = function(order, x)
                assert abs(second(x, order, sign) - wanted) <= mp.mpf(10) ** -50 * abs(wanted)


def test_wronskians(place):
    x = np.concatenate([np.geomspace(1e-3, 1e6, 60), [2.0, 8.0, 25.0, 7.9999, 24.9999]])
    j0, j1, y0, y1 = (at(place, getattr(bc, f"bessel_{name}"), x) for name in ("j0", "j1", "y0", "y1"))
    np.testing.assert_allclose((j1 * y0 - j0 * y1) * math.pi * x / 2, 1, rtol=2e-14)
    x = np.concatenate([np.geomspace(1e-3, 600, 60), [2.0, 1.9999]])
    i0, i1, k0, k1 = (
        at(place, getattr(bc, name), x)
        for name in ("modified_bessel_i0", "modified_bessel_i1", "modified_bessel_k0", "modified_bessel_k1")
    )
    np.testing.assert_allclose((i0 * k1 + i1 * k0) * x, 1, rtol=1e-14)


def test_gradients_that_are_functions_too(place):
    x, dy = np.array([1e-200, 0.3, 1.4, 2.5, 9.0, 40.0]), np.array([1e-50, 1.0, -2.0, 0.5, 3.0, 1.0])
    for name, slope in (("bessel_j0", "bessel_j1"), ("bessel_y0", "bessel_y1"), ("modified_bessel_k0",
                        "modified_bessel_k1")):  # fmt: skip
        got = at(place, getattr(bc, f"{name}_backward"), dy, x)
        np.testing.assert_allclose(got, -dy * at(place, getattr(bc, slope), x), rtol=2e-14, err_msg=name)


def test_slopes_at_zero(place):
    zero, one = np.array([0.0, -0.0]), np.ones(2)
    np.testing.assert_array_equal(at(place, bc.bessel_j0_backward, one, zero), [0, 0])
    np.testing.assert_array_equal(at(place, bc.bessel_j1_backward, one, zero), [0.5, 0.5])
    np.testing.assert_array_equal(at(place, bc.bessel_y0_backward, one, zero), [INF, INF])
    np.testing.assert_array_equal(at(place, bc.modified_bessel_k1_backward, one, zero), [-INF, -INF])


def test_a_huge_cotangent_of_a_function_that_has_vanished(place):
    x, dy = np.array([1000.0]), np.array([1e300])
    got = at(place, bc.modified_bessel_k0_backward, dy, x)
    np.testing.assert_allclose(got, -math.sqrt(math.pi / 2000) * math.exp(300 * math.log(10) - 1000), rtol=1e-3)
