"""Every tolerance tier passes a right answer and fails each kind of wrong one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py.core.element import ElementKind, cast
from baracuda_py.core.error_bound import ErrorBound, Exact, Forward, PerOutput, Relative, Ulp
from baracuda_py.testing.tolerance import assert_within, check, ulp

K = ElementKind
FLOATS = (K.F16, K.BF16, K.F32, K.F64, K.FP8E4M3, K.FP8E5M2)
BOUNDS: tuple[ErrorBound, ...] = (Exact(), Ulp(0.5), Ulp(1), Relative(), Forward(1))
SHAPE = (7, 7)
Array = Any


def problem(kind: K) -> tuple[Array, dict[str, Any]]:
    """A truth in float64 with every magnitude from 1/2 to 8, and the yardsticks the bounds ask for."""
    rng = np.random.default_rng(1)
    truth = rng.choice([-1, 1], SHAPE) * 2 ** rng.uniform(-1, 3, SHAPE)
    return truth, {"element": kind, "low": cast(truth, kind), "scale": np.abs(truth)}


def steps(y: Array, kind: K, n: int) -> Array:
    """`y` moved n representable values away from zero."""
    code = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[y.dtype.itemsize]
    return (y.view(code) + code(n)).view(kind.dtype)


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
@pytest.mark.parametrize("kind", FLOATS)
def test_right_answers_pass(kind: K, bound: ErrorBound) -> None:
    truth, yard = problem(kind)
    right = cast(truth, kind)
    assert check(bound, right, truth, **yard) is None
    assert check(bound, right.view(kind.carrier), truth, **yard) is None
    assert_within(bound, right[::-1, ::2], truth[::-1, ::2], element=kind, low=right[::-1, ::2], scale=4)


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize(
    "damage", ["one off", "dropped tail", "nan", "inf", "transposed", "sign", "shape", "dtype", "scaled"]
)
def test_wrong_answers_fail(kind: K, bound: ErrorBound, damage: str) -> None:
    truth, yard = problem(kind)
    wrong = cast(truth, kind).copy()
    if damage == "one off":
        wrong[2, 3] = steps(wrong[2:3, 3:4], kind, 5)[0, 0]
    elif damage == "dropped tail":
        wrong[-1, -1] = 0
    elif damage in ("nan", "inf"):
        wrong[2, 3] = cast(float(damage), kind)
    elif damage == "transposed":
        wrong = wrong.T
    elif damage == "sign":
        wrong = -wrong
    elif damage == "shape":
        wrong = wrong[:-1]
    elif damage == "dtype":
        wrong = wrong.astype(np.complex64)
    else:
        wrong = cast(truth * (1 + 8 * kind.limits.eps), kind)
    message = check(bound, wrong, truth, **yard)
    assert message is not None
    if damage in ("one off", "nan", "inf"):
        assert "1 of 49" in message and "(2, 3)" in message and str(kind) in message
    with pytest.raises(AssertionError, match=str(kind)):
        assert_within(bound, wrong, truth, **yard)


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
def test_empty_and_0d(bound: ErrorBound) -> None:
    for shape in ((0,), (3, 0), ()):
        y = np.ones(shape, np.float32)
        assert check(bound, y, y.astype("f8"), element=K.F32, low=y, scale=y) is None
    assert check(bound, np.float32(2), np.float64(1), element=K.F32, low=np.float32(1), scale=1) is not None


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
@pytest.mark.parametrize("kind", [K.F16, K.F64, K.C64, K.C128])
def test_special_values_must_match(kind: K, bound: ErrorBound) -> None:
    truth = np.array([np.nan, np.inf, -np.inf, 1.0])
    right = cast(truth, kind)
    assert check(bound, right, truth, element=kind, low=right, scale=np.abs(truth)) is None
    for index in range(4):
        for value in (np.nan, np.inf, -np.inf, 1.0, kind.limits.max):
            wrong = right.copy()
            wrong[index] = value
            message = check(bound, wrong, truth, element=kind, low=right, scale=np.abs(truth))
            same = value == truth[index] or (np.isnan(value) and np.isnan(truth[index]))
            assert (message is None) == same, (index, value, message)


def test_a_worthless_yardstick_excuses_nothing() -> None:
    truth, right = np.ones(4), np.ones(4, np.float32)
    wrong, blown = right + np.float32(0.5), np.array([np.inf, np.nan, 1, 1], np.float32)
    assert check(Relative(), wrong, truth, element=K.F32, low=blown) is not None
    assert check(Relative(), right, truth, element=K.F32, low=blown) is None


# --- the tiers, one by one -------------------------------------------------------------------------------------------


def test_exact_zeros_and_nans() -> None:
    y, truth = np.array([-0.0, np.nan], np.float32), np.array([0.0, -np.nan])
    assert check(Exact(), y, truth, element=K.F32) is None
    assert "(0,)" in str(check(Exact(signed_zero=True), y, truth, element=K.F32))
    assert check(Exact(signed_zero=True), y, -truth, element=K.F32) is None


@pytest.mark.parametrize("kind", [*(k for k in K if k.is_integer), K.BOOL])
@pytest.mark.parametrize("bound", [Exact(), Forward(3)], ids=str)
def test_exact_integers(kind: K, bound: ErrorBound) -> None:
    high = int(kind.limits.max)
    y = cast(np.array([high, 0, high - 1]), kind) if kind is not K.U64 else np.array([high, 0, high - 1], np.uint64)
    assert check(bound, y, y, element=kind, scale=1) is None
    message = check(bound, y[[2, 1, 0]], y, element=kind, scale=1)
    assert message is not None and "2 of 3" in message


def test_exact_rounds_the_truth() -> None:
    trap = np.array([1 + 2.0**-8 + 2.0**-40])
    assert check(Exact(), cast([1 + 2.0**-7], K.BF16), trap, element=K.BF16) is None
    assert check(Exact(), cast([1.0], K.BF16), trap, element=K.BF16) is not None


@pytest.mark.parametrize("kind", FLOATS)
def test_ulp_counts(kind: K) -> None:
    for exponent in (0, 3, kind.limits.min_exponent, kind.limits.min_exponent - kind.limits.digits):
        truth = np.array([2.0**exponent])
        for n in range(4):
            y = steps(cast(truth, kind), kind, n)
            step = n * ulp(truth, kind)[0]
            if abs(float(y[0]) - truth[0]) == step:  # still in the same binade
                assert check(Ulp(n), y, truth, element=kind) is None
                assert n == 0 or check(Ulp(n - 0.5), y, truth, element=kind) is not None


@pytest.mark.parametrize("kind", FLOATS)
def test_ulp_is_the_gap_to_the_next_value(kind: K) -> None:
    tiny, top = kind.limits.tiny, kind.limits.max
    x = np.array([0, tiny, 3 * tiny, 2.0**kind.limits.min_exponent, 0.75, 1, 1.5, 3])
    gap = steps(cast(x, kind), kind, 1).astype("f8") - x
    assert (ulp(x, kind) == gap).all() and (ulp(-x, kind) == gap).all()
    below = float(steps(cast([top], kind), kind, -1 % (1 << kind.bits))[0]) if kind.bits < 16 else None
    assert below is None or ulp(top, kind) == top - below
    assert ulp(np.inf, kind) == ulp(np.nan, kind) == ulp(top, kind) and ulp(5, K.I32) == 1


@pytest.mark.parametrize("kind", [K.F16, K.BF16, K.F32, K.FP8E5M2, K.FP8E4M3])
def test_ulp_at_the_edge_of_the_range(kind: K) -> None:
    top, step = kind.limits.max, float(ulp(kind.limits.max, kind))
    infinite = cast([1e300], kind)  # NaN where the kind has no infinity
    for truth, n, ok in (
        *((1e300, 0.5, True), (top + step / 2, 0.5, True), (top + step / 4, 0.5, False), (top + step / 4, 1, True)),
        *((top, 0.75, False), (top, 1, True), (top - step, 1, False), (1.0, 50, False), (top + step, 0, True)),
    ):
        assert (check(Ulp(n), infinite, np.array([truth]), element=kind) is None) == ok, (truth, n)
        wrong_sign = check(Ulp(n), infinite, np.array([-truth]), element=kind)
        assert (wrong_sign is None) == (ok and kind is K.FP8E4M3)  # whose NaN has no sign
    assert check(Ulp(2), cast([top], kind), np.array([1e300]), element=kind) is not None
    assert check(Ulp(2), -cast([top], kind), np.array([top]), element=kind) is not None


def test_ulp_in_float64_needs_longdouble() -> None:
    truth = np.longdouble(1) / np.longdouble(3) * np.ones(3, np.longdouble)
    assert check(Ulp(0.5), truth.astype("f8"), truth, element=K.F64) is None
    assert check(Ulp(1), truth.astype("f8") * (1 + 2**-51), truth, element=K.F64) is not None
    big = np.array([2**62], np.int64)
    assert check(Ulp(1), big + 1, big, element=K.I64) is None
    if np.finfo(np.longdouble).nmant > 52:
        assert check(Ulp(0.25), truth.astype("f8"), truth, element=K.F64) is not None
        assert check(Ulp(1), big + 2, big, element=K.I64) is not None


def test_relative_is_k_times_the_low_precision_error() -> None:
    truth = np.full(100, 1.0)
    low = truth.astype("f4")
    low[7] += np.float32(1e-3)
    for error, ok in ((1.9e-3, True), (2.1e-3, False)):
        y = truth.astype("f4")
        y[50] += np.float32(error)
        message = check(Relative(mean=10.0), y, truth, element=K.F32, low=low)
        assert (message is None) == ok
    mean = check(Relative(), truth.astype("f4") + np.float32(1e-3), truth, element=K.F32, low=low)
    assert mean is not None and "mean error" in mean  # each element is within 2x, all together are not
    off = steps(low * 0 + np.float32(1), K.F32, 1)  # all of them, by the 1 ulp that one of them may be
    assert "mean error" in str(check(Relative(), off, truth, element=K.F32, low=truth.astype("f4")))
    off[1:] = 1
    assert check(Relative(), off, truth, element=K.F32, low=truth.astype("f4")) is None
    with pytest.raises(TypeError, match="low="):
        check(Relative(), low, truth, element=K.F32)
    with pytest.raises(ValueError, match="shape"):
        check(Relative(), low, truth, element=K.F32, low=low[:3])


def test_forward_grows_with_the_absolute_sum() -> None:
    rng = np.random.default_rng(0)
    terms = rng.standard_normal((64, 4096)).astype("f4")
    truth, scale = terms.sum(1, dtype="f8"), np.abs(terms).sum(1, dtype="f8")
    y = terms.sum(1, dtype="f4")
    assert check(Forward(12), y, truth, element=K.F32, scale=scale) is None
    assert check(Forward(12), terms[:, :-1].sum(1, dtype="f4"), truth, element=K.F32, scale=scale) is not None
    assert check(Forward(0.001), y, truth, element=K.F32, scale=np.abs(truth)) is not None
    assert check(Forward(12), y, truth, element=K.F32, scale=scale * 0) is not None
    half = terms.astype("f2").sum(1, dtype="f2")
    assert check(Forward(12), half, truth, element=K.F16, scale=scale) is not None
    assert check(Forward(12), half, truth, element=K.F16, scale=scale, acc=K.F16) is None
    with pytest.raises(TypeError, match="scale="):
        check(Forward(1), y, truth, element=K.F32)


def test_forward_keeps_zeros_and_subnormals() -> None:
    assert check(Forward(4), np.float16([0]), np.array([1e-9]), element=K.F16, scale=1e-9) is None
    assert check(Forward(4), np.float16([6e-8]), np.array([0.0]), element=K.F16, scale=0) is not None


def test_complex_by_distance() -> None:
    truth = np.array([1 + 1e-3j, np.inf + 1j])
    y = truth.astype(np.complex64)
    assert check(Ulp(1), y, truth, element=K.C64) is None
    assert check(Ulp(1), y + np.complex64(1e-8j), truth, element=K.C64) is None  # small beside |truth|
    assert check(Ulp(1), y + np.complex64(1e-6j), truth, element=K.C64) is not None
    assert check(Ulp(1), y.conj(), truth, element=K.C64) is not None


def test_bounds_are_ordered_hashable_and_readable() -> None:
    bounds = [Exact(signed_zero=True), Exact(), Ulp(1), Ulp(2), Forward(3), Relative(2), Relative(3)]
    ranks = [b.looseness for b in bounds]
    assert ranks == sorted(ranks) and len(set(ranks)) == len(ranks)
    assert len({*bounds, Ulp(1)}) == len(bounds) and str(Ulp(0.5)) == "0.5 ulp" and all(map(str, bounds))


def test_outputs_may_have_bounds_of_their_own() -> None:
    bound = PerOutput((("y", Ulp(3)), ("z", Forward(2))))
    assert bound.of("y") == Ulp(3) and bound.of("z") == Forward(2)
    assert bound.looseness == Forward(2).looseness
    assert str(bound) == f"y {Ulp(3)}, z {Forward(2)}"
    with pytest.raises(KeyError):
        bound.of("x")
