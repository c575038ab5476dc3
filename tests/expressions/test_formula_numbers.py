"""Numbers of formulas: exact among themselves, and refused where an integer operand does not have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.expressions.errors import ExpressionError
from baracuda_py.testing import emulated_device
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view

F4, F8 = np.array([1.5, -2.0], np.float32), np.array([1.5, -2.0])
U8, I4, I8 = np.array([1, 200], np.uint8), np.array([1, -5], np.int32), np.array([1, 2**62], np.int64)
U64 = np.array([1, 2**63], np.uint64)


@pytest.mark.parametrize("x", [F4, F8], ids=["float32", "float64"])
@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("x * 10**20", lambda x: x * 1e20),
        ("x / 10**19", lambda x: x / 1e19),
        ("x + 2**64", lambda x: x + 2.0**64),
        ("x + 2**63", lambda x: x + 2.0**63),
        ("x - 2**63", lambda x: x - 2.0**63),
        ("x + (2**63 - 1) * 2", lambda x: x + 2.0**64),
        ("x * (10**20 / 10**19)", lambda x: x * 10.0),
        ("x + (2**70 - 2**70 + 1)", lambda x: x + 1),
        ("x * 123456789012345678901234567890", lambda x: x * 123456789012345678901234567890.0),
        ("where(x < 2**65, x, 0)", lambda x: x),
        ("maximum(x, -(10**30))", lambda x: x),
    ],
)  # fmt: skip
def test_integers_of_any_size_beside_floats(text: str, truth: Any, x: np.ndarray) -> None:
    wanted = truth(x.astype(np.float64)).astype(x.dtype)
    np.testing.assert_allclose(bc.elementwise(text)(x), wanted, rtol=2 * np.finfo(x.dtype).eps)


def test_traced_constants_are_exact_too() -> None:
    np.testing.assert_allclose(bc.elementwise(lambda x: x * 10**20)(F8), F8 * 1e20, rtol=1e-15)
    np.testing.assert_allclose(bc.elementwise(lambda x: x + 2**63)(F8), F8 + 2.0**63, rtol=1e-15)


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**20, 2**62 + 1, -7])
def test_integers_of_a_call_beside_floats(number: int) -> None:
    for x in (F4, F8):
        wanted = (x.astype(np.float64) + float(number)).astype(x.dtype)
        np.testing.assert_allclose(bc.elementwise("x + a")(x, number), wanted, rtol=2 * np.finfo(x.dtype).eps)


@pytest.mark.parametrize(
    ("text", "x"),
    [
        ("x * 10**20", I8), ("x + 2**64", I8), ("x + 2**63", I8), ("x + 2**63", I4), ("x + 300", U8), ("x - 300", U8),
        ("x < 2**40", I4), ("x == 300", U8), ("where(x > 0, x, -1)", U8), ("x + (2**63 - 1) * 2", I4),
        ("maximum(x, 2**40)", I4), ("x + -1", U64),
    ],
)  # fmt: skip
def test_constants_that_an_integer_does_not_have_are_refused(text: str, x: np.ndarray) -> None:
    with pytest.raises(ExpressionError, match=f"is no {x.dtype}"):
        bc.elementwise(text)(x)


@pytest.mark.parametrize(
    ("text", "x", "numbers"),
    [
        ("x + a", U8, (300,)), ("x + a", U8, (-1,)), ("x < a", I4, (2**40,)), ("x == a", I4, (2**62 + 1,)),
        ("x + a", I4, (2**63,)), ("x + a", I8, (2**63,)), ("where(x > 0, x, a)", U8, (256,)),
        ("maximum(x, a)", I4, (-(2**31) - 1,)), ("x + a * b", I8, (2**40, 2**40)), ("x + 3 * a", F4, (2**62,)),
        ("x + a ** b", I8, (10, 10**9)), ("x + (a << b)", I8, (1, 200)), ("x + (a - b)", U8, (1, 2)),
        ("x + -a", I8, (-(2**63),)), ("x + a", U64, (-1,)), ("clamp(x, a, b)", U8, (-1, 7)),
    ],
)  # fmt: skip
def test_numbers_of_a_call_that_an_integer_does_not_have_are_refused(text: str, x: Any, numbers: Any) -> None:
    with pytest.raises(InvalidProblemError, match="must lie in"):
        bc.elementwise(text)(x, *numbers)


def test_what_fits_is_exact() -> None:
    f = bc.elementwise
    assert f("x + a")(I8, 2**62 + 1).tolist() == [2**62 + 2, -(2**63) + 1]
    assert f("x == a")(np.array([2**62, 2**62 + 1]), 2**62 + 1).tolist() == [False, True]
    assert f("x + a")(U64, 2**63 + 5).tolist() == [2**63 + 6, 5]
    assert f("x + (2**63 + 5)")(U64).tolist() == [2**63 + 6, 5]
    assert f("x + (a - b)")(I8, 2**62 + 1, 2**62).tolist() == [2, 2**62 + 1]
    assert f("x - a")(U8, 200).tolist() == [57, 0]
    assert f("x + (a * b) // b")(I4, 7, 2**40).tolist() == [8, 2]
    assert f("x + int8(a)")(np.array([1], np.int8), 300).tolist() == [45]  # a cast that is written wraps


def test_coefficients_wrap() -> None:
    assert bc.elementwise("add_scaled(x, y, a)")(U8, U8, -3).tolist() == [254, 112]
    assert bc.elementwise("add_scaled(x, y, -3)")(U8, U8).tolist() == [254, 112]
    assert bc.elementwise("addcmul(x, y, y, -2)")(U8, U8).tolist() == [255, 72]


def test_arrays_of_the_device_are_modulo_2_n() -> None:
    assert bc.elementwise("x + a")(U8, np.array(300)).tolist() == [45, 244]
    assert bc.elementwise("x + a")(U8, np.array(-1)).tolist() == [0, 199]


@pytest.mark.parametrize("place", ["numpy", "emulator"])
def test_every_call_of_a_plan_checks_its_numbers(place: str) -> None:
    """Also those that the code of the steady state serves."""
    plan = bc.elementwise("x + a").plan(a=int)
    y, put = np.zeros(2, np.uint8), pointer_view if place == "emulator" else (lambda x: x)
    device = emulated_device(9.0) if place == "emulator" else "cpu"
    with emulating(1):
        chosen = plan.select(plan.descriptor(shape=(2,), element="uint8"), device=device)
        for number, wanted in ((3, [4, 203]), (255, [0, 199]), (0, [1, 200]), (0, [1, 200])):
            chosen(x=put(U8), a=number, result=put(y))
            assert y.tolist() == wanted
        for wrong in (256, -1, 256):
            with pytest.raises(InvalidProblemError, match=r"a must lie in \[0, 255\] as it meets uint8"):
                chosen(x=put(U8), a=wrong, result=put(y))
        chosen(x=put(U8), a=put(np.array(300)), result=put(y))
        assert y.tolist() == [45, 244]


def test_reductions_scans_products_and_scores_check_too() -> None:
    with pytest.raises(InvalidProblemError, match="a must lie in"):
        bc.reduce("sum(x + a)")(U8, 300)
    with pytest.raises(InvalidProblemError, match="a must lie in"):
        bc.scan("cumsum(x + a)")(U8, 300)
    a, b, gate = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32), np.ones((2, 2), np.uint8)
    with pytest.raises(InvalidProblemError, match="w must lie in"):
        bc.product("where(gate < w, x, 0)")(a, b, gate=gate, w=300)
    with pytest.raises(ExpressionError, match="is no uint8"):
        bc.product("where(gate < 300, x, 0)")(a, b, gate=gate)
    q = np.ones((1, 1, 4, 32), np.float32)
    with pytest.raises(InvalidProblemError, match="window must lie in"):
        bc.attention(mask="q - k < window")(q, q, q, window=2**40)
    np.testing.assert_allclose(bc.product("x * w")(a, b, w=2**63), (a @ b) * 2.0**63)
    np.testing.assert_allclose(bc.reduce("sum(x * 10**20)")(F8), -0.5e20)
