"""Special functions of two and three numbers, and integrals: known values, identities, limits, gradients, refusals."""

import math

import numpy as np
import pytest
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
    np.testing.assert_allclose(
        bc.gammainc_backward(dy, a, b), (dy * b ** (a - 1) * np.exp(-b) / np.vectorize(math.gamma)(a)).sum(0)[None]
    )


@pytest.mark.parametrize("kind", [kind for kind in SpecialFunctionKind if kind not in DIFFERENTIABLE])
def test_what_has_no_gradient_is_refused(kind):
    with pytest.raises(bc.InvalidProblemError, match="has no gradient"):
        SpecialFunctionBackwardPlan.descriptor(kind=kind, shape=(2,), element=ElementKind.F64)


def test_a_gradient_by_a_parameter_is_refused():
    desc = SpecialFunctionBackwardPlan.descriptor(kind="gammainc", shape=(2,), element="float64")
    plan = SpecialFunctionBackwardPlan.select(desc, device="cpu")
    x = np.ones(2)
    with pytest.raises(bc.InvalidProblemError, match="db"):
        plan(dy=x, a=x, b=x, da=np.empty(2), db=np.empty(2))
