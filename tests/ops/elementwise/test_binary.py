"""Binary functions: numbers as operands, integers at their ends, what is refused and how, gradients at kinks."""

import math

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import BaracudaError, InvalidProblemError, UnsupportedError
from baracuda_py.ops.elementwise.binary import BinaryPlan
from baracuda_py.ops.elementwise.binary_kinds import WITH_GRADIENT, BinaryKind
from baracuda_py.testing.places import call

NAN, INF = math.nan, math.inf
X = np.array([-2.0, -0.5, 0.0, 1.0, 3.0], np.float32)
I8 = np.array([-128, -127, -1, 0, 1, 5, 127], np.int8)


def same(got, wanted):
    np.testing.assert_array_equal(np.asarray(got, np.float64), np.asarray(wanted, np.float64))


# ---- numbers in the place of an operand -----------------------------------------------------------------------------


def test_a_number_on_either_side():
    same(bc.add(X, 2.5), X + 2.5)
    same(bc.sub(1, X), 1 - X)
    same(bc.pow(2, X), 2.0**X)
    same(bc.lt(X, 0), X < 0)
    same(bc.gt(0, X), X < 0)
    same(bc.rsub(X, 1), 1 - X)
    same(bc.div(1, X[3:]), 1 / X[3:])
    same(bc.maximum(X, NAN), [NAN] * 5)
    same(bc.fmin(-INF, X), [-INF] * 5)
    same(bc.floor_divide(I8, 2), [-64, -64, -1, 0, 0, 2, 63])
    same(bc.bitwise_left_shift(1, np.arange(-1, 9).astype(np.int8)), [0, 1, 2, 4, 8, 16, 32, 64, -128, 0])
    same(bc.logical_xor(np.array([True, False]), True), [False, True])
    assert bc.add(X, True).dtype == np.float32


@pytest.mark.parametrize("value", [np.float64(2.5), np.float32(2.5), np.int8(2), ml_dtypes.bfloat16(2.5), 2, True])
def test_numpys_scalars_are_numbers(value):
    same(bc.mul(X, value), X * float(value))
    assert bc.mul(X, value).dtype == np.float32


def test_a_number_is_rounded_to_the_arithmetic_and_where_it_is_compared_to_the_element():
    x = np.array([0.1, 0.2], np.float16)
    same(bc.eq(x, 0.1), [True, False])
    same(bc.isclose(x, 0.1, rtol=0, atol=0), [True, False])
    wanted = (x.astype(np.float32) * np.float32(0.1)).astype(np.float16)  # a half would give other bits
    same(bc.mul(x, 0.1), wanted)
    assert bc.nextafter(x, 1.0)[0] == np.nextafter(x[0], np.float16(1))


def test_integers_hold_all_their_bits():
    x = np.array([2**63 + 1, 3], np.uint64)
    same(bc.eq(x, 2**63 + 1), [True, False])
    assert bc.bitwise_and(x, 2**64 - 1).tolist() == x.tolist()
    assert bc.add(np.array([2**53], np.int64), 1)[0] == 2**53 + 1
    assert bc.sub(np.array([-(2**63)]), 1)[0] == 2**63 - 1


@pytest.mark.parametrize(
    ("act", "error", "said"),
    [
        (lambda: bc.add(I8, 2.5), UnsupportedError, "write add(cast(a, 'float32'), 2.5)"),
        (lambda: bc.pow(2.0, I8), UnsupportedError, "write pow(2.0, cast(b, 'float32'))"),
        (lambda: bc.add(I8 > 0, 1), UnsupportedError, "write add(cast(a, 'int64'), 1)"),
        (lambda: bc.add(I8, 128), InvalidProblemError, "b must lie in [-128, 127] as a is int8, got 128"),
        (lambda: bc.lt(np.zeros(2, np.uint8), -1), InvalidProblemError, "b must lie in [0, 255]"),
        (lambda: bc.pow(I8, -2), UnsupportedError, "write pow(cast(a, 'float32'), -2)"),
        (lambda: bc.add(X, 10**400), InvalidProblemError, "b must fit a float64"),
        (lambda: bc.add(1, 2), InvalidProblemError, "a or b must be an array"),
        (lambda: bc.add(X, None), InvalidProblemError, "b is required"),
        (lambda: bc.add(X, "2"), InvalidProblemError, "b must be an array"),
        (lambda: bc.add(X, 2j), UnsupportedError, "write add(cast(a, 'complex64'), 2j)"),
        (lambda: bc.mul(X, I8[:5]), InvalidProblemError, "write mul(a, cast(b, 'float32'))"),
        (lambda: bc.eq(X, X.astype(np.float16)), InvalidProblemError, "write eq(a, cast(b, 'float32'))"),
        (lambda: bc.lt(X.astype(np.float16), X.astype(ml_dtypes.bfloat16)), InvalidProblemError,
         "write lt(cast(a, 'float32'), cast(b, 'float32'))"),
        (lambda: bc.bitwise_or(I8, I8.view(np.uint8)), InvalidProblemError,
         "write bitwise_or(cast(a, 'int16'), cast(b, 'int16'))"),
        (lambda: bc.div(I8, I8), UnsupportedError, "floor_divide or trunc_divide"),
        (lambda: bc.sub(I8 > 0, I8 > 0), UnsupportedError, "sub of bool"),
        (lambda: bc.gcd(X, X), UnsupportedError, "gcd of float32 is not defined; it takes int8"),
        (lambda: bc.div(X, X, rounding_mode="up"), InvalidProblemError, "rounding_mode"),
        (lambda: bc.add(I8, I8, alpha=0.5), InvalidProblemError, "alpha must be an integer"),
        (lambda: bc.sub(I8, I8, alpha=2**63), InvalidProblemError, f"alpha must lie in [{-(2**63)}, {2**63 - 1}]"),
        (lambda: bc.add(X, X, alpha=1j), InvalidProblemError, "alpha must be a real number"),
        (lambda: bc.sub(X, X, alpha=np.array(2.0)), UnsupportedError, "negative of alpha"),
        (lambda: bc.prelu(np.zeros((2, 3)), np.ones(2)), InvalidProblemError, "x's channels"),
        (lambda: bc.mul_backward(I8, I8, 2), InvalidProblemError, "integers have no gradient"),
        (lambda: bc.mul_backward(X, X, 2.0, return_da=False), InvalidProblemError, "a number has no gradient"),
    ],
)  # fmt: skip
def test_refusals_say_what_to_write(act, error, said):
    with pytest.raises(error) as raised:
        act()
    assert said in str(raised.value)


def test_a_plan_takes_a_number_or_an_array_as_its_descriptor_says():
    plan = BinaryPlan.select(bc.BinaryDescriptor(kind="pow", shape=(5,), with_number=True, reverse=True,
                                                 element="float32"), device="cpu")  # fmt: skip
    y = np.empty_like(X)
    for base in (2.0, 3.0):  # another number is no other plan
        plan(a=X, y=y, number=base)
        same(y, np.float32(base) ** X)
    with pytest.raises(InvalidProblemError, match="b has a number in its place"):
        plan(a=X, b=X, y=y, number=2.0)
    both = BinaryPlan.select(bc.BinaryDescriptor(kind="pow", shape=(5,), element="float32"), device="cpu")
    with pytest.raises(InvalidProblemError, match="b is required"):
        both(a=X, y=y, number=2.0)


# ---- known values ---------------------------------------------------------------------------------------------------


def test_alpha_and_rounding_modes():
    same(bc.add(X, X, alpha=2), 3 * X)
    same(bc.sub(X, 1, alpha=3), X - 3)
    same(bc.rsub(X, X, alpha=0.5), X / 2)
    same(bc.add(I8, I8, alpha=-1), [0] * 7)
    tie = np.float32(2**24)  # a + alpha b in one rounding: 2^24 + 1.5 would be a tie in two
    assert bc.add(np.array([tie]), np.array([np.float32(1.0000001)]), alpha=1.5)[0] == tie + 2
    a, b = np.array([7.0, -7.0, 7.0, 5.0]), np.array([2.0, 2.0, -2.0, 0.0])
    same(bc.div(a, b, rounding_mode="trunc"), [3, -3, -3, INF])
    same(bc.div(a, b, rounding_mode="floor"), [3, -4, -4, INF])
    same(bc.true_divide(a, b), [3.5, -3.5, -3.5, INF])
    same(bc.trunc_divide(I8, np.int8(-1)), [-128, 127, 1, 0, -1, -5, -127])
    same(bc.trunc_divide(I8, 0), [0] * 7)
    same(bc.float_power(np.array([2, 3]), -1), [0.5, 1 / 3])


def test_whole_powers():
    a = np.array([2, -2, 1, -1, -1, 0, 0, 3], np.int32)
    b = np.array([-1, -3, -5, -2, -3, -1, 0, 21], np.int32)
    same(bc.pow(a, b), [0, 0, 1, 1, -1, 0, 1, _wrap(3**21, 32)])
    assert bc.pow(np.array([3], np.uint8), 200)[0] == pow(3, 200, 256)


def _wrap(value, bits):
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


def test_divisors_of_the_lowest_integer():
    low = np.full(4, -128, np.int8)
    same(bc.gcd(low, np.array([-128, 0, 96, 1], np.int8)), [-128, -128, 32, 1])
    same(bc.lcm(low, np.array([1, 0, 3, -128], np.int8)), [-128, 0, -128, -128])
    assert bc.gcd(np.array([-(2**63)]), np.array([2**62]))[0] == 2**62
    same(bc.gcd(I8[1:], 0), np.abs(I8[1:].astype(int)))


def test_upper_halves_of_products():
    for element in (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64):
        info = np.iinfo(element)
        a = np.array([info.min, info.max, info.max, info.max // 3, 0], element)
        b = np.array([info.min, info.max, info.min, 7, info.max], element)
        wanted = [int(x) * int(y) >> info.bits for x, y in zip(a, b, strict=True)]
        np.testing.assert_array_equal(bc.mulhi(a, b), np.array(wanted, element))


def test_shifts_beyond_the_width():
    x, by = np.array([-3, -3, -3, -3, 5, 5], np.int16), np.array([1, 15, 16, -1, 16, 2], np.int16)
    same(bc.bitwise_right_shift(x, by), [-2, -1, -1, -1, 0, 1])
    same(bc.left_shift(x, by), [-6, -(2**15), 0, 0, 0, 20])
    same(bc.right_shift(np.array([200], np.uint8), np.array([8], np.uint8)), [0])


def test_truth_values():
    a, b = np.array([NAN, 0.0, -0.0, INF]), np.array([NAN, -0.0, 1.0, INF])
    same(bc.eq(a, b), [0, 1, 0, 1])
    same(bc.ne(a, b), [1, 0, 1, 0])
    same(bc.le(a, b), [0, 1, 1, 1])
    same(bc.logical_and(a, b), [1, 0, 0, 1])
    same(bc.isclose(a, b), [0, 1, 0, 1])
    same(bc.isclose(a, b, equal_nan=True), [1, 1, 0, 1])
    same(bc.isclose(np.array([100.0, -INF]), np.array([101.0, INF]), rtol=0.01), [1, 0])
    same(bc.isclose(np.array([2**62]), np.array([2**62 + 1]), rtol=0, atol=0), [0])
    assert bc.eq(a, b).dtype == bool
    for kind in (bc.BinaryKind.ADD, bc.BinaryKind.MUL):  # of bool: or, and
        p, q = np.array([True, True, False]), np.array([True, False, False])
        same(getattr(bc, kind.value)(p, q), p | q if kind is bc.BinaryKind.ADD else p & q)


def test_compositions():
    q, r = bc.divmod(np.array([7, -7]), 2)
    same((q, r), [[3, -4], [1, 1]])
    assert bc.allclose(X, X + np.float32(1e-6), atol=1e-5).shape == () and bc.allclose(X, X)
    assert not bc.allclose(X, 1.0)


def test_steps_and_neighbours():
    same(bc.heaviside(np.array([NAN, -1.0, 0.0, -0.0, 2.0]), 0.5), [0, 0, 0.5, 0.5, 1])
    for dtype in (np.float16, np.float32, np.float64):
        x = np.array([0, -0.0, 1, -1, np.finfo(dtype).max, 5], dtype)
        for to in (INF, -INF, 0.0):
            with np.errstate(over="ignore"):
                wanted = np.nextafter(x, dtype(to))
            np.testing.assert_array_equal(bc.nextafter(x, to), wanted)
    low = bc.nextafter(np.zeros(1, ml_dtypes.bfloat16), -1.0)
    assert low.view(np.uint16)[0] == 0x8001
    same(bc.ldexp(np.array([3.0, 2.0**-1074, 1.0]), np.array([2.0, 1074.0, 0.5])), [12, 1, math.sqrt(2)])
    same(bc.logaddexp(np.array([-INF, INF, 1000.0]), np.array([-INF, INF, 1000.0])), [-INF, INF, 1000 + math.log(2)])
    same(bc.xlogy(np.zeros(3), np.array([0.0, -1.0, NAN])), [0, 0, NAN])


def test_identities():
    rng = np.random.default_rng(0)
    a, b = rng.integers(-100, 100, (2, 500))
    same(bc.add(bc.mul(bc.floor_divide(a, b), b), bc.remainder(a, b)), np.where(b == 0, 0, a))
    same(bc.add(bc.mul(bc.trunc_divide(a, b), b), bc.fmod(a, b)), np.where(b == 0, 0, a))
    same(bc.mul(bc.gcd(a, b), bc.lcm(a, b)), np.abs(a * b))
    same(bc.bitwise_xor(a, b), bc.sub(bc.bitwise_or(a, b), bc.bitwise_and(a, b)))
    x, y = rng.standard_normal((2, 500))
    same(bc.logical_or(bc.lt(x, y), bc.ge(x, y)), np.ones(500))
    np.testing.assert_allclose(bc.logaddexp(x, y), np.log(np.exp(x) + np.exp(y)), atol=1e-14)
    same(bc.squared_difference(x, y), bc.mul(bc.absolute_difference(x, y), bc.absolute_difference(y, x)))


def test_names_of_a_row_are_names_of_its_function():
    for kind in BinaryKind:
        for alias in kind.row.aliases:
            assert getattr(bc, alias) is getattr(bc, kind.value)


def test_numpys_names_are_the_same_functions():
    for ours, theirs in {
        "pow": "power", "sub": "subtract", "mul": "multiply", "div": "divide", "gt": "greater", "eq": "equal",
        "remainder": "mod", "atan2": "arctan2", "bitwise_left_shift": "left_shift", "le": "less_equal",
    }.items():  # fmt: skip
        assert getattr(bc, ours) is getattr(bc, theirs)


# ---- gradients ------------------------------------------------------------------------------------------------------


def test_ties_halve_and_the_first_of_equals_wins():
    a, b, dy = np.array([1.0, 2.0, NAN, 1.0]), np.array([1.0, 1.0, 1.0, NAN]), np.full(4, 2.0)
    da, db = bc.maximum_backward(dy, a, b)
    same(da, [1, 2, 2, 2])
    same(db, [1, 0, 2, 2])
    da, db = bc.fmax_backward(dy, a, b)
    same(da, [2, 2, 0, 2])
    same(db, [0, 0, 2, 0])


def test_kinks():
    zero, one = np.zeros(1), np.ones(1)
    same(bc.atan2_backward(one, zero, zero), [[0], [0]])
    same(bc.hypot_backward(one, zero, zero), [[NAN], [NAN]])
    same(bc.pow_backward(one, zero, 0.0), [0])
    same(bc.pow_backward(np.ones(3), np.zeros(3), np.array([0.0, 2.0, -1.0]))[1], [0, 0, -INF])
    same(bc.xlogy_backward(one, zero, zero), [[0], [NAN]])
    same(bc.copysign_backward(one, zero, -one), [[0], [0]])
    same(bc.prelu_backward(one, zero, np.array([0.25])), [[0.25], [0]])


def test_gradients_have_the_shapes_of_their_operands():
    rng = np.random.default_rng(1)
    dy, a, b = rng.standard_normal((4, 3, 5)), rng.standard_normal((3, 1)), rng.standard_normal((4, 1, 5))
    da, db = bc.mul_backward(dy, a, b)
    np.testing.assert_allclose(da, (dy * b).sum((0, 2))[:, None])
    np.testing.assert_allclose(db, (dy * a).sum(1, keepdims=True))
    assert bc.mul_backward(dy, a, b, return_db=False).shape == (3, 1)
    np.testing.assert_allclose(bc.div_backward(dy, 2.0, b), -(dy * 2 / b**2).sum(1, keepdims=True))
    np.testing.assert_allclose(bc.add_scaled_backward(dy, a, b, 3)[1], 3 * dy.sum(1, keepdims=True))
    same(bc.add_backward(np.zeros((0, 3)), np.ones(3), np.ones((0, 1)))[0], [0, 0, 0])


def test_products_survive_where_their_factors_do_not():
    dy, a, b = np.array([1e-300]), np.array([1e300]), np.array([1e-150])
    np.testing.assert_allclose(bc.div_backward(dy, a, b)[1], [-1e300])
    tiny = np.array([3e-310])
    np.testing.assert_allclose(bc.hypot_backward(np.ones(1), tiny, tiny)[0], [math.sqrt(0.5)])


def test_every_kind_without_a_gradient_says_so():
    for kind in set(BinaryKind) - set(WITH_GRADIENT):
        with pytest.raises(BaracudaError, match=r"fill da and db with 0|is not supported"):
            bc.BinaryBackwardDescriptor(kind=kind, shape=(2,), element="float32")


@pytest.mark.parametrize("kind", [BinaryKind.DIV, BinaryKind.POW, BinaryKind.MAXIMUM], ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_numbers_and_broadcasting_on_every_backend(place, kind, reverse):
    """The kernels with a number on either side, forward and backward, of a vector along rows."""
    rng = np.random.default_rng(2)
    a = np.exp(rng.uniform(-1, 1, (1, 37))).astype(np.float32)
    dy = rng.standard_normal((41, 37)).astype(np.float32)
    fields = {"kind": kind, "shape": (41, 37), "with_number": True, "reverse": reverse, "element": "float32"}
    y = call(BinaryPlan, bc.BinaryDescriptor(**fields), ["y"], place, a=a, number=1.5)["y"]
    left, right = (1.5, a.astype(float)) if reverse else (a.astype(float), 1.5)
    formula = {BinaryKind.DIV: np.divide, BinaryKind.POW: np.power, BinaryKind.MAXIMUM: np.maximum}[kind]
    np.testing.assert_allclose(y, np.broadcast_to(formula(left, right), y.shape), rtol=1e-6)
    da = call(bc.BinaryBackwardPlan, bc.BinaryBackwardDescriptor(**fields), ["da"], place, dy=dy, a=a, number=1.5)["da"]
    slope = _slope(formula, a.astype(float), reverse)
    np.testing.assert_allclose(da, (dy * slope).sum(0, keepdims=True), rtol=2e-5, atol=1e-5)


def _slope(formula, a, reverse):
    step = 1e-6
    high, low = (formula(1.5, a + s) if reverse else formula(a + s, 1.5) for s in (step, -step))
    return (high - low) / (2 * step)
