"""Unary kinds of integers, bool and coefficients: known values, torch's answers, refusals."""

import math

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import HALVES, INTS, ElementKind
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.elementwise.unary_formulas import by_parts
from baracuda_py.ops.elementwise.unary_kinds import DIFFERENTIABLE, UnaryKind
from baracuda_py.testing.places import call

NAN, INF = math.nan, math.inf


def at(place, function, *given, **coefficients):
    """A function's result on a backend."""
    x, plan = given[-1], function.plan
    desc = plan.descriptor(shape=x.shape, element=ElementKind.of(x.dtype), **function.fixed | coefficients)
    (name,) = ("y",) if len(given) == 1 else ("dx",)
    return call(plan, desc, (name,), place, **dict(zip(("dy", "x")[-len(given) :], given, strict=True)))[name]


def test_each_part_of_a_formula_is_computed_of_its_own_elements():
    """Also of one number, of none, and of a factor that is shared."""
    seen = []

    def part(sign):
        return lambda a, b: seen.append(b.tolist()) or sign * a * b

    b = np.array([[3.0, -1, 2], [0, NAN, -4]])
    np.testing.assert_array_equal(by_parts(b > 0, part(1), part(-1), np.float64(2), b), [[6, 2, 4], [0, NAN, 8]])
    assert seen[0] == [3, 2] and str(seen[1]) == "[-1.0, 0.0, nan, -4.0]"
    assert by_parts(np.True_, part(1), part(-1), np.array(2.0), np.array(5.0)).shape == ()
    assert by_parts(b[:0] > 0, part(1), part(-1), b[:0], b[:0]).shape == (0, 3)


@pytest.mark.parametrize("element", INTS, ids=str)
def test_integers_stay_what_they_are(element, place):
    low, high = int(element.limits.min), int(element.limits.max)
    x = np.array([low, low + 1, 0, 1, 2, 7, high - 1, high], element.dtype)
    for name in ("floor", "ceil", "round", "trunc", "positive", "nan_to_num"):
        np.testing.assert_array_equal(at(place, getattr(bc, name), x), x, err_msg=name)
    np.testing.assert_array_equal(at(place, bc.relu6, x), np.clip(x, 0, 6))
    np.testing.assert_array_equal(at(place, bc.hardtanh, x, min_val=1, max_val=5), np.clip(x, 1, 5))
    np.testing.assert_array_equal(at(place, bc.threshold, x, threshold=1, value=9), np.where(x <= 1, 9, x))
    np.testing.assert_array_equal(at(place, bc.bitwise_not, x), ~x)


@pytest.mark.parametrize("element", INTS, ids=str)
def test_bits_of_integers(element, place):
    low, high = int(element.limits.min), int(element.limits.max)
    x = np.array([low, -1 if low else high, 0, 1, 2, 40, high, high // 2 + 1], element.dtype)
    words = [int(v) % 2**element.bits for v in x]
    wanted = {
        "popcount": [bin(w).count("1") for w in words],
        "clz": [element.bits - w.bit_length() for w in words],
        "ctz": [(w & -w).bit_length() - 1 if w else element.bits for w in words],
    }
    for name, values in wanted.items():
        got = at(place, getattr(bc, name), x)
        assert got.dtype == x.dtype
        np.testing.assert_array_equal(got, np.array(values).astype(x.dtype), err_msg=name)


PREDICATES = {
    "isnan": [0, 0, 0, 0, 0, 0, 1, 1], "isinf": [0, 0, 0, 0, 1, 1, 0, 0], "isfinite": [1, 1, 1, 1, 0, 0, 0, 0],
    "isposinf": [0, 0, 0, 0, 1, 0, 0, 0], "isneginf": [0, 0, 0, 0, 0, 1, 0, 0], "isreal": [1] * 8,
    "signbit": [0, 1, 0, 1, 0, 1, 0, 1], "logical_not": [1, 1, 0, 0, 0, 0, 0, 0],
}  # fmt: skip


@pytest.mark.parametrize("element", [ElementKind.F32, ElementKind.F64, *HALVES], ids=str)
def test_predicates_of_floats(element, place):
    """-NaN has a sign, too."""
    x = np.array([0.0, -0.0, 1.5, -2.5, INF, -INF, NAN, -NAN]).astype(element.dtype)
    x[-1] = np.copysign(np.float32(NAN), -1).astype(element.dtype)
    word = np.dtype(f"u{element.itemsize}")
    x.view(word)[-2:] = [(1 << (element.bits - 1)) - 1, (1 << element.bits) - 1]
    for name, wanted in PREDICATES.items():
        got = at(place, getattr(bc, name), x)
        assert got.dtype == np.bool_
        np.testing.assert_array_equal(got, np.array(wanted, bool), err_msg=name)


@pytest.mark.parametrize("element", [ElementKind.I8, ElementKind.U64, ElementKind.BOOL], ids=str)
def test_predicates_of_integers(element, place):
    x = np.array([0, 1, 5, -3 if element is ElementKind.I8 else 9]).astype(element.dtype)
    for name, wanted in {
        "isnan": [0] * 4, "isinf": [0] * 4, "isposinf": [0] * 4, "isneginf": [0] * 4, "isfinite": [1] * 4,
        "isreal": [1] * 4, "signbit": [0, 0, 0, element is ElementKind.I8], "logical_not": [1, 0, 0, 0],
    }.items():  # fmt: skip
        np.testing.assert_array_equal(at(place, getattr(bc, name), x), np.array(wanted, bool), err_msg=name)


def test_bool(place):
    x = np.array([True, False, True])
    np.testing.assert_array_equal(at(place, bc.bitwise_not, x), ~x)
    np.testing.assert_array_equal(at(place, bc.nan_to_num, x), x)


def test_nan_to_num(place):
    x = np.array([NAN, INF, -INF, 2.5], np.float32)
    ends = np.finfo(np.float32)
    np.testing.assert_array_equal(at(place, bc.nan_to_num, x), np.array([0, ends.max, ends.min, 2.5], np.float32))
    got = at(place, bc.nan_to_num, x, nan=1, posinf=INF, neginf=-7)
    np.testing.assert_array_equal(got, np.array([1, INF, -7, 2.5], np.float32))
    half = at(place, bc.nan_to_num, x.astype(np.float16))
    np.testing.assert_array_equal(half, np.array([0, 65504, -65504, 2.5], np.float16))


@pytest.mark.parametrize("element", [ElementKind.F32, ElementKind.F64], ids=str)
def test_round_to_decimals_is_that_of_the_number_itself(element, place):
    """2.675 is below the tie that its product with 100 rounds to; Python's round agrees for float64."""
    rng = np.random.default_rng(0)
    near = np.concatenate([np.arange(-400, 400) / 8, (np.arange(-300, 300) + 0.5) / 100, [2.675, 1.005, 0.285]])
    x = np.concatenate([near, rng.standard_normal(500) * 10.0 ** rng.integers(-6, 12, 500)]).astype(element.dtype)
    for decimals in (1, 2, 5, -1, -3, 12):
        got = at(place, bc.round, x, decimals=decimals)
        wanted = np.array([round(float(v), decimals) for v in x]).astype(element.dtype)
        np.testing.assert_array_equal(got, wanted, err_msg=str(decimals))


def test_round_keeps_what_has_no_fraction(place):
    x = np.array([INF, -INF, NAN, 1e300, -0.0, 5e-324, -0.2])
    np.testing.assert_array_equal(at(place, bc.round, x, decimals=3), [INF, -INF, NAN, 1e300, 0, 0, -0.2])
    assert np.signbit(at(place, bc.round, x, decimals=0)[-1])


def test_coefficients_are_torchs(place):
    x = np.array([-2.0, -0.3, 0.0, 0.4, 3.0, 50.0])
    for name, given, formula in (
        ("hardtanh", {"min_val": -0.2, "max_val": 2}, lambda v: min(max(v, -0.2), 2)),
        ("leaky_relu", {"negative_slope": 0.5}, lambda v: v if v > 0 else v / 2),
        ("elu", {"alpha": 2, "scale": 3, "input_scale": 0.5}, lambda v: 3 * (v if v > 0 else 2 * math.expm1(v / 2))),
        ("celu", {"alpha": 2}, lambda v: v if v > 0 else 2 * math.expm1(v / 2)),
        ("softplus", {"beta": 2, "threshold": 4}, lambda v: v if 2 * v > 4 else math.log1p(math.exp(2 * v)) / 2),
        ("threshold", {"threshold": 0.4, "value": -INF}, lambda v: v if v > 0.4 else -INF),
        ("tanhshrink", {}, lambda v: v - math.tanh(v)),
        ("exp10", {}, lambda v: 10.0**v), ("deg2rad", {}, math.radians), ("degrees", {}, math.degrees),
    ):  # fmt: skip
        got = at(place, getattr(bc, name), x, **given)
        np.testing.assert_allclose(got, [formula(float(v)) for v in x], rtol=1e-14, err_msg=name)
    inside = np.array([-1.0, 0.0, 0.05, 0.5, 0.97, 2.0])
    kept = np.clip(inside, 0.1, 0.9)
    np.testing.assert_allclose(at(place, bc.logit, inside, eps=0.1), np.log(kept / (1 - kept)), atol=1e-15)
    np.testing.assert_array_equal(
        at(place, bc.logit_backward, np.ones(6), inside, eps=0.1) != 0, [False, False, False, True, False, False]
    )


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda x: bc.threshold(x), InvalidProblemError, "threshold of threshold has no default and must be given"),
        (lambda x: bc.hardtanh(x, min_val=2), InvalidProblemError, "needs min_val <= max_val, got 2.0 and 1.0"),
        (lambda x: bc.logit(x, eps=0.7), InvalidProblemError, r"eps of logit must be in \[0, 0.5\], got 0.7"),
        (lambda x: bc.softplus(x, beta=0), InvalidProblemError, "beta of softplus must not be 0"),
        (lambda x: bc.hardshrink(x, lambd=-1), InvalidProblemError, "lambd of hardshrink must be in"),
        (lambda x: bc.nan_to_num(x, nan=NAN), InvalidProblemError, "nan must be a number, got nan"),
        (lambda x: bc.elu(x, alpha=INF), InvalidProblemError, "alpha of elu must be in"),
        (lambda x: bc.round(x, decimals=1.5), InvalidProblemError, "decimals of round must be a whole number"),
        (lambda x: bc.round(x.astype(int), decimals=1), InvalidProblemError, "decimals of round must be 0 for int64"),
        (lambda x: bc.hardtanh(x.astype(np.uint8)), InvalidProblemError, "a whole number that uint8 holds, got -1.0"),
        (lambda x: bc.exp(x.astype(np.int8)), UnsupportedError, "exp of int8 is not an integer in general; cast"),
        (lambda x: bc.frac(x.astype(np.int8)), UnsupportedError, "frac of int8 .*cast to a float first"),
        (lambda x: bc.relu(x > 0), UnsupportedError, "relu of bool is not defined; cast to an integer or a float"),
        (lambda x: bc.popcount(x), UnsupportedError, "popcount is a function of integers"),
        (lambda x: bc.popcount(x > 0), UnsupportedError, "popcount is a function of integers, got bool"),
    ],
)
def test_refusals_say_what_would_do(make, error, says):
    with pytest.raises(error, match=says):
        make(np.ones(3))


def test_no_gradient_of_predicates_and_integers():
    for kind in UnaryKind:
        if kind not in DIFFERENTIABLE:
            assert not hasattr(bc, f"{kind.value}_backward")
            with pytest.raises(InvalidProblemError, match="derivative"):
                bc.UnaryBackwardDescriptor(kind=kind, shape=(1,), element="float32")
