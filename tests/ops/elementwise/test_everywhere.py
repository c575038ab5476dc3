"""Elementwise on NumPy over the whole range of each element, against mpmath: every kind keeps its bound everywhere."""

import math

import numpy as np
import pytest
from everywhere import coefficients, own
from binary_truth import PARTIAL, partials
import truth

from baracuda_py.calls.functional import functional
from baracuda_py.core.element import FLOATS, HALVES, INTS, cast
from baracuda_py.core.error_bound import Exact, Relative
from baracuda_py.ops.elementwise import binary_functions, unary, unary_backward
from baracuda_py.ops.elementwise.affine import INTEGERS, affine
from baracuda_py.ops.elementwise.binary_backward import BinaryBackwardPlan
from baracuda_py.ops.elementwise.binary_kinds import WITH_GRADIENT, BinaryKind
from baracuda_py.ops.elementwise.binary_kinds import slope_bound as partial_bound
from baracuda_py.ops.elementwise.unary_kinds import DIFFERENTIABLE, UnaryKind, slope_bound, unary_bound
from baracuda_py.testing.tolerance import assert_within

NAN, INF = math.nan, math.inf
COUNT = {2: 100, 4: 60, 8: 60}


def value(kind):
    return kind.value


def values(kind, element):
    named = [p for p in (*kind.row.points, *coefficients(kind, element)) if abs(p) < 1e30]
    return truth.off_poles(kind.value, truth.points(element, COUNT[element.itemsize], tuple(named) or (1.0,)))[::3]


@pytest.mark.parametrize("kind", UnaryKind, ids=value)
def test_forward(kind):
    for element in kind.row.elements:
        if element.is_float:
            x = values(kind, element)
            wanted = truth.forward(kind.value, x, *coefficients(kind, element))
            got = getattr(unary, kind.value)(x, **own(kind))
            bound = unary_bound(element, kind)
            if isinstance(bound, Relative):
                scale = truth.scale(kind.value, x, *coefficients(kind, element))
                assert (wrong := truth.within_terms(element, got, wanted, scale)) is None, wrong
            else:
                assert_within(bound, got, wanted, element=kind.row.result(element))


@pytest.mark.parametrize("kind", DIFFERENTIABLE, ids=value)
def test_gradient(kind):
    for element in FLOATS:
        x = values(kind, element)
        dy = truth.cotangents(element, x.size)
        wanted, scale = truth.gradient(kind.value, dy, x, *coefficients(kind, element))
        got = getattr(unary_backward, f"{kind.value}_backward")(dy, x, **own(kind))
        bound = slope_bound(element, kind)
        if isinstance(bound, Relative):
            assert (wrong := truth.within_terms(element, got, wanted, scale)) is None, wrong
        else:
            assert_within(bound, got, wanted, element=element)


@pytest.mark.parametrize("element", HALVES, ids=str)
def test_every_half_is_the_double_rounded_once(element):
    x = np.arange(2**16, dtype=np.uint16).view(element.dtype)
    with np.errstate(invalid="ignore"):  # signaling NaN
        wide = x.astype(np.float64)
    for kind in UnaryKind:
        if element not in kind.row.elements:
            continue
        known = zip(kind.row.coefficients, coefficients(kind, element), strict=True)
        given = {one.name: value for one, value in known if value != one.absent}  # as float32 has them
        got = getattr(unary, kind.value)(x, **given)
        wanted = cast(getattr(unary, kind.value)(wide, **given), kind.row.result(element))
        assert ((got == wanted) | ((got != got) & (wanted != wanted))).all(), kind


@pytest.mark.parametrize("kind", [kind for kind in BinaryKind if kind.value in truth.BINARY], ids=value)
def test_binary(kind):
    for element in FLOATS:
        a = truth.points(element, COUNT[element.itemsize])[::3]
        a = a[a != 0]
        order = np.random.default_rng(2).permutation(a.size)
        a, b = np.concatenate([a, a]), np.concatenate([a[order], np.roll(a, 1)])
        if kind.value in truth.LONG:
            a, b = a[::4], b[::4]
        bound = kind.row.error(element)
        bound = Exact() if isinstance(bound, Exact) else bound  # mpmath's zero has no sign
        given = (a[None, :, None], b) if kind is BinaryKind.PRELU else (a, b)  # which has channels
        got = getattr(binary_functions, kind.value)(*given).reshape(-1)
        scale = truth.binary(kind.value, np.abs(a), np.abs(b))
        assert_within(bound, got, truth.binary(kind.value, a, b), element=element, scale=scale)


@pytest.mark.parametrize("kind", [kind for kind in BinaryKind if kind.value in PARTIAL], ids=value)
def test_binary_gradient(kind):
    for element in FLOATS:
        a = truth.points(element, COUNT[element.itemsize])[::13]
        a = a[(a != 0) & (a != -1)]
        rng = np.random.default_rng(3)
        a, b = np.concatenate([a, a]), np.concatenate([rng.permutation(a), np.roll(a, 1)])
        dy = truth.cotangents(element, a.size)
        got = functional(BinaryBackwardPlan, kind=kind)(dy, a, b)
        bound = partial_bound(element, kind)
        bound = Exact() if isinstance(bound, Exact) else bound
        for one, wanted in zip(got, partials(kind.value, dy, a, b), strict=True):
            assert_within(bound, one, wanted, element=element)


def test_every_float_kind_has_a_truth():
    assert {kind.value for kind in WITH_GRADIENT} - {"add_scaled"} == set(PARTIAL)
    own = {"add_scaled", "nextafter"}  # with coefficients
    floats = {kind.value for kind in BinaryKind if kind.row.elements[0].is_float and not kind.row.predicate}
    assert floats - own == set(truth.BINARY)


def test_zeros_have_an_order():
    zeros = np.array([0.0, -0.0])
    a, b = np.repeat(zeros, 2), np.tile(zeros, 2)
    for element in FLOATS:
        for name in ("maximum", "fmax"):
            got = getattr(binary_functions, name)(cast(a, element), cast(b, element))
            np.testing.assert_array_equal(np.signbit(got.astype(float)), [False, False, False, True])
        for name in ("minimum", "fmin"):
            got = getattr(binary_functions, name)(cast(a, element), cast(b, element))
            np.testing.assert_array_equal(np.signbit(got.astype(float)), [False, True, True, True])


@pytest.mark.parametrize(
    ("name", "outside"),
    [
        ("sqrt", [-1, -1e-4]), ("rsqrt", [-1, -1e-4]), ("log", [-1, -1e-4]), ("log2", [-1, -1e30]),
        ("log10", [-1, -1e30]), ("log1p", [-1.5, -1e30]), ("asin", [1.5, -2]), ("acos", [1.5, -2]),
        ("acosh", [0.5, -0.5, -2]), ("atanh", [1.5, -2]), ("logit", [-0.5, 1.5, 1e30]),
    ],
)  # fmt: skip
def test_no_gradient_where_there_is_no_value(name, outside):
    for element in FLOATS:
        x = cast(np.array([*outside, NAN]), element)
        assert np.isnan(getattr(unary, name)(x).astype(float)).all()
        assert np.isnan(getattr(unary_backward, f"{name}_backward")(np.ones_like(x), x).astype(float)).all()


@pytest.mark.parametrize(
    ("name", "x", "dx"),
    [
        ("reciprocal", 0.0, -INF), ("rsqrt", 0.0, -INF), ("sqrt", 0.0, INF), ("cbrt", 0.0, INF), ("log", 0.0, INF),
        ("log", -0.0, -INF), ("log2", 0.0, INF), ("log10", 0.0, INF), ("log1p", -1.0, INF), ("asin", 1.0, INF),
        ("acos", 1.0, -INF), ("acosh", 1.0, INF), ("atanh", -1.0, INF), ("logit", 0.0, INF), ("logit", 1.0, INF),
    ],
)  # fmt: skip
def test_gradients_at_poles(name, x, dx):
    for element in FLOATS:
        one = cast(np.array([1.0]), element)
        got = getattr(unary_backward, f"{name}_backward")(one, cast(np.array([x]), element))
        assert float(got[0]) == dx


@pytest.mark.parametrize("name", ["silu", "gelu", "gelu_tanh", "mish"])
def test_gradients_of_activations_at_infinity(name):
    for element in FLOATS:
        x = cast(np.array([-INF, NAN]), element)
        assert np.isnan(getattr(unary_backward, f"{name}_backward")(np.ones_like(x), x).astype(float)).all()


def test_a_threshold_is_rounded_as_its_array_is():
    for element in FLOATS:
        x = cast(np.array([0.1, -0.1]), element.acc)
        np.testing.assert_array_equal(unary.softshrink(x, lambd=0.1), [0, 0])
        np.testing.assert_array_equal(unary.hardshrink(x, lambd=0.1), [0, 0])


@pytest.mark.parametrize("element", INTS, ids=str)
def test_integers_wrap_over_their_whole_range(element):
    """Python's integers, cut to the element's bits."""
    info, rng = np.iinfo(element.dtype), np.random.default_rng(3)
    ends = np.array([info.min, info.min + 1, info.max - 1, info.max, 0, 1, 2, info.max // 2], object)
    drawn = rng.integers(info.min, info.max, 200, element.dtype, endpoint=True)
    a = np.concatenate([np.repeat(ends, ends.size), drawn.astype(object), np.array([info.min, info.max], object)])
    b = np.concatenate([np.tile(ends, ends.size), np.roll(drawn, 1).astype(object), [-1 if info.min else 1] * 2])

    def wrapped(values):
        return [(int(v) - info.min) % 2**element.bits + info.min for v in values]

    x, y = a.astype(element.dtype), b.astype(element.dtype)
    divided = [(p // q, p % q, int(math.copysign(1, p)) * (abs(p) % abs(q))) if q else (0, 0, 0)
               for p, q in zip(a, b, strict=True)]  # fmt: skip
    for name, wanted in {
        "add": a + b, "sub": a - b, "mul": a * b, "maximum": np.maximum(a, b), "minimum": np.minimum(a, b),
        "floor_divide": [d[0] for d in divided], "remainder": [d[1] for d in divided], "fmod": [d[2] for d in divided],
    }.items():  # fmt: skip
        got = getattr(binary_functions, name)(x, y)
        np.testing.assert_array_equal(got, np.array(wrapped(wanted), element.dtype), err_msg=name)
    for name, wanted in {"neg": -a, "abs": abs(a), "square": a * a, "relu": np.maximum(a, 0)}.items():
        got = getattr(unary, name)(x)
        np.testing.assert_array_equal(got, np.array(wrapped(wanted), element.dtype), err_msg=name)
    if element in INTEGERS:
        np.testing.assert_array_equal(affine(x, 3, -7), wrapped(3 * a - 7))
