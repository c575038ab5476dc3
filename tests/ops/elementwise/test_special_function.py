"""Special functions of two and three numbers, and integrals: known values, identities, limits, gradients, refusals."""

import math

import numpy as np
import pytest
from mpmath import mp
from test_unary_kinds import at

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.ops.elementwise.special_function import SpecialFunctionPlan
from baracuda_py.ops.elementwise.special_function_backward import SpecialFunctionBackwardPlan
from baracuda_py.ops.elementwise.special_function_kinds import DIFFERENTIABLE, SpecialFunctionKind
from baracuda_py.testing.places import call

NAN, INF = math.nan, math.inf


def of(place, name, *operands):
    """f(a, b[, c]) on a backend, the argument first."""
    arrays = [np.array(x, np.float64) for x in np.broadcast_arrays(*operands)]
    desc = SpecialFunctionPlan.descriptor(kind=name, shape=arrays[0].shape, element="float64")
    return call(SpecialFunctionPlan, desc, ("y",), place, **dict(zip("abc", arrays, strict=False)))["y"]


@pytest.mark.parametrize(
    ("name", "a", "b", "y"),
    [
        ("gammainc", [0, 1, 2.5, INF, -1, 3], [1, 1, 1.5, 2, 1, -1],
         [0, 1 - math.exp(-1), 0.82820285570326686, 1, NAN, NAN]),
        ("gammaincc", [0, 1, 0.5, INF, 1e-3], [1, 1, 1e-10, 2, 1e-3],
         [1, math.exp(-1), 5.5977359480549881e-11, 0, 0.0063123532911397099]),
        ("beta", [1, 0.5, 3, 200], [1, 0.5, 4, 300], [1, math.pi, 1 / 60, 1.6485491608664746e-147]),
        ("zeta", [1, 1, 2, 0, -0.5, 1], [2, 4, 3, 2, 2, 1], [math.pi**2 / 6, math.pi**4 / 90, 0.2020569031595943, INF,
                                                            4 + math.pi**2 / 2, INF]),
        ("expn", [1, 0, 0, 2, -1, 1], [1, 3, 1, 0, 1, 1.5],
         [0.21938393439552029, 0.5, INF, math.exp(-2) / 2, NAN, NAN]),
        ("poch", [3, -2, -2, 0.5], [4, 1, 4, 0.5], [360, -2, 0, 1 / math.sqrt(math.pi)]),
        ("comb", [5, 10, 52, 3, 3], [2, 10, 5, 4, -1], [10, 1, 2598960, 0, 0]),
        ("rel_entr", [1, 0, -1, 1, 0], [2, 1, 1, 0, 0], [-math.log(2), 0, INF, INF, 0]),
        ("kl_div", [1, 0, 2, 1], [1, 3, 1, 0], [0, 3, 2 * math.log(2) - 1, INF]),
        ("boxcox", [1, 2, 4, 0, -1], [5, 0, 0.5, 2, 1], [0, math.log(2), 2, -0.5, NAN]),
        ("boxcox1p", [0, 1, 1e-20], [3, 0, 2], [0, math.log(2), 1e-20]),
        ("chebyshev_polynomial_t", [0.5, 2, 1, -1, 0.3], [3, 2, 50, 3, -1], [-1, 7, 1, -1, 0]),
        ("chebyshev_polynomial_u", [0.5, 1, 0.5], [2, 4, 0], [0, 5, 1]),
        ("chebyshev_polynomial_v", [1, -1, 0.5], [4, 2, 1], [1, 5, 0]),
        ("chebyshev_polynomial_w", [1, -1, 0.5], [4, 2, 1], [9, 1, 2]),
        ("shifted_chebyshev_polynomial_t", [0, 1, 0.75], [3, 3, 2], [-1, 1, -0.5]),
        ("hermite_polynomial_h", [1, 0.5, 10], [2, 3, 500], [2, -5, NAN]),
        ("hermite_polynomial_he", [1, 2, 2], [2, 3, 0], [0, 2, 1]),
        ("laguerre_polynomial_l", [0, 1, 2, -1e200], [7, 2, 1, 3], [1, -0.5, -1, INF]),
        ("legendre_polynomial_p", [1, -1, 0.5, 1e200], [9, 9, 2, 3], [1, -1, -0.125, INF]),
        ("legendre_polynomial_p", [0.5, 0.5, NAN, 0.5], [2.9, 65537, 1, NAN], [-0.125, NAN, NAN, NAN]),
    ],
)  # fmt: skip
def test_known_values(name, a, b, y, place):
    np.testing.assert_allclose(of(place, name, a, b), y, rtol=2e-13 if name == "beta" else 2e-14, atol=1e-300)


def test_owens_t(place):
    h, a = [0, 1, -1, 2, 30, 0, 1, 0.5, INF, NAN], [1, 1, -1, 0.5, 0.5, INF, INF, 3, 1, 1]
    wanted = [
        0.125, 0.06674188216570097, -0.06674188216570097, 0.00862507798552151, 2.4533569635740935e-198, 0.25,
        0.07932762696572853, 0.15108404307601841, 0, NAN,
    ]  # fmt: skip
    np.testing.assert_allclose(of(place, "owens_t", h, a), wanted, rtol=4e-15)


def test_bessel_functions_of_whole_orders(place):
    x = [0, 0, 1, 10, 10, -10, 1, 50, 1e-3, 1e6, INF, 1, NAN]
    n = [0, 3, 2, 3, -3, 3, 20, 45, 4, 7, 2, 0.5, 1]
    wanted = [
        1, 0, 0.11490348493190048, 0.058379379305186815, -0.058379379305186815, -0.058379379305186815,
        3.873503008524658e-25, 0.13228035222445818, 2.6041665364583361e-15, 0.0007259604115723550, 0, NAN, NAN,
    ]  # fmt: skip
    np.testing.assert_allclose(of(place, "jn", x, n), wanted, rtol=4e-14)
    x, n = np.linspace(0.5, 90, 50), 17.0
    below, here, above = (of(place, "jn", x, n + k) for k in (-1, 0, 1))
    np.testing.assert_allclose(below + above, 2 * n / x * here, rtol=1e-11, atol=1e-14)


def test_spherical_legendre_functions(place):
    theta, n, m = np.meshgrid([0.3, 1.5, 2.9], [0.0, 1, 5, 40], [0.0, 1, -1, 4, -7])
    got = of(place, "sph_legendre_p", theta, n, m)
    sine, cosine, quarter = np.sin(theta), np.cos(theta), 1 / math.sqrt(4 * math.pi)
    np.testing.assert_allclose(got[n == 0], np.where(m[n == 0] == 0, quarter, 0))
    for order, sign in ((0, None), (1, -1), (-1, 1)):
        chosen = (n == 1) & (m == order)
        wanted = math.sqrt(3) * cosine if sign is None else sign * math.sqrt(1.5) * sine
        np.testing.assert_allclose(got[chosen], quarter * wanted[chosen], rtol=1e-14)
    np.testing.assert_array_equal(got[np.abs(m) > n], 0)
    order = np.arange(-40.0, 41)
    total = (of(place, "sph_legendre_p", np.full(81, 1.1), np.full(81, 40.0), order) ** 2).sum()
    np.testing.assert_allclose(total, 81 / (4 * math.pi), rtol=1e-13)  # Unsöld's theorem
    np.testing.assert_array_equal(of(place, "sph_legendre_p", [1, 1, 1, INF], [-1, 1.5, 65537, 1], [0, 0, 0, 0]), NAN)


def test_derivatives_by_the_parameter_of_gamma(place):
    a = [1, 1, 0.5, 2, 1e-3, 100, 100, 1e4, 1, 0, -1, 2, 2]
    x = [1, 0.1, 3, 0.5, 1e-3, 90, 130, 1e4, 0, 1, 1, INF, NAN]
    wanted = [float(v) for v in _slopes()] + [0, -0.21938393439552029, NAN, 0, NAN]
    np.testing.assert_allclose(of(place, "igamma_grad_a", x, a), wanted, rtol=1e-13)
    np.testing.assert_array_equal(of(place, "gammaincc", [1e200, 2000.5], [2, 9.9]), 0)
    np.testing.assert_array_equal(of(place, "igamma_grad_a", [1e200, 2.0, 1e-300], [2, 1.7e308, 1e300]), 0)
    a, x = np.array([0.3, 1.0, 7.5, 300.0, 5.0]), np.array([0.2, 2.5, 7.0, 350.0, 0.01])
    slope, density = of(place, "igamma_grad_a", x, a), np.exp((a - 1) * np.log(x) - x - np.vectorize(math.lgamma)(a))
    np.testing.assert_allclose(of(place, "random_gamma_grad", x, a), -slope / density, rtol=1e-12)


def _slopes():
    """dP/da by mpmath, for the first parameters and arguments above."""
    with mp.workdps(40):
        for a, x in zip((1, 1, 0.5, 2, 1e-3, 100, 100, 1e4), (1, 0.1, 3, 0.5, 1e-3, 90, 130, 1e4), strict=True):
            yield mp.diff(lambda t, x=x: mp.gammainc(t, 0, x, regularized=True), mp.mpf(a), h=mp.mpf(10) ** -12)


def test_gradients_of_three_operands_and_of_numbers():
    x, one = np.array([0.25, 0.5]), np.ones(2)
    np.testing.assert_allclose(bc.betainc_backward(one, 2.0, 1.0, x), 2 * x, rtol=1e-14)
    np.testing.assert_allclose(
        bc.sph_legendre_p_backward(one, 1, 0, x), -math.sqrt(0.75 / math.pi) * np.sin(x), rtol=1e-14
    )
    np.testing.assert_allclose(bc.jn_backward(one, 1, x), (bc.jn(0, x) - bc.jn(2, x)) / 2, rtol=1e-14)
    with pytest.raises(bc.InvalidProblemError, match="is an array"):
        bc.zeta_backward(one, x + 1, 2.0)
    with pytest.raises(bc.InvalidProblemError, match="is an array"):
        bc.beta_backward(one, x, x, return_da=False, return_db=False)


def test_spherical_harmonics():
    theta, phi = np.array([0.3, 1.1, 2.9]), np.array([0.2, 3.0, 5.5])
    wanted = 0.25 * math.sqrt(7.5 / math.pi) * np.sin(theta) ** 2 * np.exp(2j * phi)
    np.testing.assert_allclose(bc.sph_harm_y(2, 2, theta, phi), wanted, rtol=1e-14)
    np.testing.assert_allclose(bc.sph_harm_y(2, -2, theta, phi), np.conj(wanted), rtol=1e-14)
    both = bc.sph_harm_y(2, 2, theta[:, None], phi)
    assert both.shape == (3, 3)
    np.testing.assert_allclose(np.diagonal(both), wanted, rtol=1e-14)


def test_degrees_and_orders_may_be_integers():
    theta, phi, n, m = np.array([0.3, 1.1, 2.9]), np.array([0.2, 3.0, 5.5]), np.array([1, 2, 3]), np.array([0, -1, 2])
    for dtype in ("float32", "float64"):
        x, y, k, l = theta.astype(dtype), phi.astype(dtype), n.astype(dtype), m.astype(dtype)  # noqa: E741
        np.testing.assert_array_equal(bc.sph_harm_y(n, m, x, y), bc.sph_harm_y(k, l, x, y))
        np.testing.assert_array_equal(bc.sph_legendre_p(n, m.astype(np.int32), x), bc.sph_legendre_p(k, l, x))
        np.testing.assert_array_equal(bc.jn(n, x), bc.jn(k, x))
        np.testing.assert_array_equal(bc.legendre_polynomial_p(x, n), bc.legendre_polynomial_p(x, k))
        got = bc.legendre_polynomial_p_backward(np.ones_like(x), x, n)
        np.testing.assert_array_equal(got, bc.legendre_polynomial_p_backward(np.ones_like(x), x, k))
        assert got.dtype == dtype
    special = pytest.importorskip("scipy.special")
    want = np.reshape(special.sph_legendre_p(n, m, theta), 3)
    np.testing.assert_allclose(bc.sph_legendre_p(n, m, theta), want, rtol=1e-12)


def test_incomplete_beta(place):
    x = [0, 1, 0.5, 0.25, 0.9, 0.5, 1.5, 0.5]
    a = [2, 2, 3, 1, 2, -1, 1, 0]
    b = [3, 3, 3, 4, 1, 1, 1, 2]
    wanted = [0, 1, 0.5, 1 - 0.75**4, 0.81, NAN, NAN, 1]
    np.testing.assert_allclose(of(place, "betainc", x, a, b), wanted, rtol=1e-14)


def test_complements(place):
    rng = np.random.default_rng(1)
    a, x = 10 ** rng.uniform(-3, 6, 300), 10 ** rng.uniform(-3, 6, 300)
    x[::2] = a[::2] * rng.uniform(0.7, 1.4, 150)
    lower, upper = of(place, "gammainc", x, a), of(place, "gammaincc", x, a)
    np.testing.assert_allclose(lower + upper, 1, rtol=1e-13)
    p, b = rng.uniform(0, 1, 300), 10 ** rng.uniform(-1, 3, 300)
    a = 10 ** rng.uniform(-1, 3, 300)
    total = of(place, "betainc", p, a, b) + of(place, "betainc", 1 - p, b, a)
    np.testing.assert_allclose(total, 1, rtol=1e-10)


def test_recurrences(place):
    x = np.linspace(0.1, 12, 40)
    for n in (1, 2, 5):
        left = n * of(place, "expn", x, n + 1.0)
        np.testing.assert_allclose(left, np.exp(-x) - x * of(place, "expn", x, float(n)), rtol=1e-11)
    step = of(place, "gammainc", x, 2.5) - of(place, "gammainc", x, 3.5)
    np.testing.assert_allclose(step, x**2.5 * np.exp(-x) / math.gamma(3.5), rtol=1e-12)
    np.testing.assert_allclose(of(place, "zeta", x, 3.0) - of(place, "zeta", x + 1, 3.0), x**-3.0, rtol=1e-11)


def test_integrals(place):
    x = np.array([0.0, 1.0, -1.0, 3.0, INF])
    for name, wanted in {
        "exp1": [INF, 0.21938393439552029, NAN, 0.013048381094197037, 0],
        "expi": [-INF, 1.8951178163559368, -0.21938393439552029, 9.933832570625416, INF],
        "dawsn": [0, 0.5380795069127684, -0.5380795069127684, 0.1782710306105583, 0],
        "fresnel_s": [0, 0.4382591473903548, -0.4382591473903548, 0.49631299896737494, 0.5],
        "fresnel_c": [0, 0.7798934003768228, -0.7798934003768228, 0.6057207892976857, 0.5],
        "sine_integral": [0, 0.946083070367183, -0.946083070367183, 1.8486525279994683, math.pi / 2],
        "cosine_integral": [-INF, 0.33740392290096813, 0.33740392290096813, 0.11962978600800032, 0],
        "spence": [math.pi**2 / 6, 0, NAN, -1.4367463668836812, -INF],
        "gamma": [INF, 1, NAN, 2, INF],
        "factorial": [1, 1, NAN, 6, INF],
        "gammasgn": [1, 1, NAN, 1, 1],
    }.items():
        np.testing.assert_allclose(at(place, getattr(bc, name), x), wanted, rtol=4e-15, err_msg=name)
    got = at(place, bc.multigammaln, np.array([3.0, 0.9]), p=3)
    np.testing.assert_allclose(got, [2.6949248798069647, NAN], rtol=1e-14)


def test_functions_take_numbers_and_broadcast():
    x = np.array([[0.5, 2.0, 3.0]])
    a = np.array([[1.0], [2.0]])
    np.testing.assert_allclose(bc.gammainc(2.0, x), bc.igamma(np.full_like(x, 2.0), x))
    np.testing.assert_allclose(bc.gammainc(a, 2.0), bc.gammainc(a, np.full_like(a, 2.0)))
    np.testing.assert_allclose(bc.zeta(2, x), bc.zeta(np.full_like(x, 2.0), x))
    np.testing.assert_allclose(bc.chebyshev_polynomial_t(x, 3), 4 * x**3 - 3 * x, rtol=1e-14)
    assert bc.betainc(a, 2 * a, x / 4).shape == (2, 3)
    s, c = bc.fresnel(x)
    np.testing.assert_array_equal(s, bc.fresnel_s(x))
    np.testing.assert_array_equal(c, bc.fresnel_c(x))
    np.testing.assert_array_equal(bc.sici(x)[1], bc.cosine_integral(x))
    with pytest.raises(bc.InvalidProblemError, match="one operand must be an array"):
        bc.beta(1.0, 2.0)


def test_gradients_are_summed_to_their_operands():
    rng = np.random.default_rng(2)
    a, b, dy = rng.uniform(1, 3, (2, 1)), rng.uniform(1, 3, (1, 3)), rng.standard_normal((2, 3))
    da, db = bc.beta_backward(dy, a, b)
    h = 1e-6
    wanted = ((bc.beta(a + h, b) - bc.beta(a - h, b)) / (2 * h) * dy).sum(1, keepdims=True)
    np.testing.assert_allclose(da, wanted, rtol=1e-7)
    assert db.shape == b.shape
    np.testing.assert_allclose(bc.beta_backward(dy, 2.0, np.broadcast_to(b, (2, 3))).shape, (2, 3))
    da, db = bc.gammainc_backward(dy, a, b)
    np.testing.assert_allclose(db, (dy * b ** (a - 1) * np.exp(-b) / np.vectorize(math.gamma)(a)).sum(0)[None])
    wanted = ((bc.gammainc(a + h, b) - bc.gammainc(a - h, b)) / (2 * h) * dy).sum(1, keepdims=True)
    np.testing.assert_allclose(da, wanted, rtol=1e-7)
    np.testing.assert_array_equal(bc.gammainc_backward(dy, a, b, return_da=False), db)
    np.testing.assert_array_equal(bc.gammainc_backward(dy, 2.0, b), bc.gammainc_backward(dy, a * 0 + 2, b)[1])


@pytest.mark.parametrize("kind", [kind for kind in SpecialFunctionKind if kind not in DIFFERENTIABLE])
def test_what_has_no_gradient_is_refused(kind):
    with pytest.raises(bc.InvalidProblemError, match="has no gradient"):
        SpecialFunctionBackwardPlan.descriptor(kind=kind, shape=(2,), element=ElementKind.F64)


def test_a_gradient_by_a_parameter_is_refused():
    desc = SpecialFunctionBackwardPlan.descriptor(kind="zeta", shape=(2,), element="float64")
    plan = SpecialFunctionBackwardPlan.select(desc, device="cpu")
    x = np.ones(2)
    with pytest.raises(bc.InvalidProblemError, match="db"):
        plan(dy=x, a=x, b=x, da=np.empty(2), db=np.empty(2))


def test_bessel_functions_of_all_orders() -> None:
    scipy = pytest.importorskip("scipy.special")
    x = np.random.default_rng(7).standard_normal((2, 3)) * 4
    np.testing.assert_allclose(bc.bessel_jn(x, 5), [scipy.jv(n, x) for n in range(6)], rtol=1e-12, atol=1e-15)
    assert bc.bessel_jn(x, 0).shape == (1, 2, 3)
