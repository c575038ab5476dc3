"""Numbers that meet an integer: the right value modulo 2ⁿ by Python's own integers, or refused, on every backend."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.elementwise.affine import AffineDescriptor, AffinePlan
from baracuda_py.ops.elementwise.binary import BinaryDescriptor, BinaryPlan
from baracuda_py.ops.elementwise.fill import FillDescriptor, FillPlan
from baracuda_py.ops.elementwise.ternary import TernaryDescriptor, TernaryPlan
from baracuda_py.ops.segment.segment_reduce import SegmentReduceDescriptor, SegmentReducePlan
from baracuda_py.testing import emulated_device
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.places import call
from baracuda_py.testing.recording import pointer_view

UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = ("int8", "int16", "int32", "int64", *UNSIGNED)
WHOLE = (-1, -3, 2, 300, -(2**31) - 5, 2**62 + 1, 2**63 - 1, -(2**63))
# What a kernel makes of a float that it reads: cut toward zero, within int64, NaN being 0.
READ = {
    -2.9: -2, 1e30: 2**63 - 1, -1e30: -(2**63), math.inf: 2**63 - 1, -math.inf: -(2**63), math.nan: 0, 300.5: 300,
}  # fmt: skip
ARRAYS = [
    *((np.array(x), READ[x]) for x in READ), (np.array(-7, np.int32), -7), (np.array(2**62 + 1), 2**62 + 1),
    (np.array(-2.5, np.float32), -2),
]  # fmt: skip


def wrapped(value: int, element: str) -> int:
    """value modulo 2ⁿ, within the element's range."""
    low = int(np.iinfo(element).min)
    return (value - low) % 2 ** (8 * np.dtype(element).itemsize) + low


def drawn(element: str, count: int = 9) -> list[np.ndarray]:
    rng, ends = np.random.default_rng(7), np.iinfo(element)
    return [rng.integers(ends.min, ends.max, count, element, endpoint=True) for _ in range(3)]


def held(number: Any, place: str) -> Any:
    """A 0-d array where it is asked for: of the host, of an emulated device, of a GPU."""
    if not isinstance(number, np.ndarray) or place == "numpy":
        return number
    if place == "emulator":
        return pointer_view(number)
    import cupy

    return cupy.asarray(number)


def numbers() -> list[tuple[Any, int]]:
    """Numbers of the host and of a device, and the integers that they stand for."""
    return [*((n, n) for n in WHOLE), *ARRAYS]


def test_a_sum_with_a_coefficient_is_the_one_that_was_reported() -> None:
    a, b = np.array([1, 200, 3, 250], np.uint8), np.array([3, 100, 2, 9], np.uint8)
    assert bc.sub(a, b, alpha=2).tolist() == [251, 0, 255, 232]
    assert bc.add(a, b, alpha=-3).tolist() == [248, 156, 253, 223]


@pytest.mark.parametrize("element", INTEGERS)
def test_coefficients_of_sums_are_modulo_2_n(place: str, element: str) -> None:
    a, b, _ = drawn(element)
    desc = BinaryDescriptor(kind="add_scaled", shape=a.shape, element=element)
    for number, means in numbers():
        got = call(BinaryPlan, desc, ("y",), place, a=a, b=b, alpha=held(number, place))["y"]
        wanted = [wrapped(int(x) + means * int(y), element) for x, y in zip(a, b, strict=True)]
        assert got.tolist() == wanted, (number, element)


@pytest.mark.parametrize("element", INTEGERS)
def test_coefficients_of_products_are_modulo_2_n(place: str, element: str) -> None:
    a, b, c = drawn(element)
    desc = TernaryDescriptor(kind="addcmul", shape=a.shape, element=element)
    for number, means in numbers():
        got = call(TernaryPlan, desc, ("y",), place, a=a, b=b, c=c, value=held(number, place))["y"]
        wanted = [wrapped(int(x) + means * int(y) * int(z), element) for x, y, z in zip(a, b, c, strict=True)]
        assert got.tolist() == wanted, (number, element)


@pytest.mark.parametrize("element", ("int8", "int16", "int32", "int64", "uint8"))
def test_both_coefficients_of_affine_are_modulo_2_n(place: str, element: str) -> None:
    x, _, _ = drawn(element)
    desc = AffineDescriptor(shape=x.shape, element=element)
    for number, means in numbers():
        given = held(number, place)
        got = call(AffinePlan, desc, ("y",), place, x=x, alpha=given, beta=given)["y"]
        assert got.tolist() == [wrapped(means * int(v) + means, element) for v in x], (number, element)


@pytest.mark.parametrize("element", (*INTEGERS, "bool"))
def test_a_number_that_fills_is_exact_or_refused(place: str, element: str) -> None:
    desc, x = FillDescriptor(shape=(3,), element=element), np.zeros(3, element)
    low, high = (0, 1) if element == "bool" else (int(np.iinfo(element).min), int(np.iinfo(element).max))
    for value in {low, high, 1, max(low, high - 1)}:
        assert call(FillPlan, desc, (), place, x=x, value=value)["x"].tolist() == [value] * 3
    for value in (low - 1, high + 1, 0.5, math.nan, math.inf):
        with pytest.raises(InvalidProblemError, match="value must"):
            call(FillPlan, desc, (), place, x=x, value=value)
    for array, means in ARRAYS:
        wanted = means != 0 if element == "bool" else wrapped(means, element)
        assert call(FillPlan, desc, (), place, x=x, value=held(array, place))["x"].tolist() == [wanted] * 3


@pytest.mark.parametrize("element", INTEGERS)
def test_a_number_beside_arrays_is_modulo_2_n_where_a_device_holds_it(place: str, element: str) -> None:
    a, _, _ = drawn(element)
    binary = BinaryDescriptor(kind="add", shape=a.shape, with_number=True, element=element)
    chosen = TernaryDescriptor(kind="where", shape=a.shape, element=element)
    for array in (np.array(-7, np.int32), np.array(2**62 + 300)):
        given, means = held(array, place), int(array)
        got = call(BinaryPlan, binary, ("y",), place, a=a, whole=given)["y"]
        assert got.tolist() == [wrapped(int(x) + means, element) for x in a]
        got = call(TernaryPlan, chosen, ("y",), place, a=np.arange(9) % 2 == 0, c=a, b_whole=given)["y"]
        assert got.tolist() == [wrapped(means, element) if i % 2 == 0 else x for i, x in enumerate(a.tolist())]


@pytest.mark.parametrize(("element", "kind"), [("int8", "max"), ("uint64", "sum")])
def test_numbers_of_segments_are_exact(place: str, element: str, kind: str) -> None:
    high = int(np.iinfo(element).max)
    desc = SegmentReduceDescriptor(
        kind=kind, tokens=2, num_segments=2, row_shape=(1,), by="ids", with_initial=True, with_empty=True,
        element=element,
    )  # fmt: skip
    given: dict[str, Any] = {"x": np.array([[3], [1]], element), "index": np.array([0, 0])}
    got = call(SegmentReducePlan, desc, ("y",), place, **given, initial=high - 3, empty=high)["y"]
    assert got.tolist() == [[wrapped(high + 1, element) if kind == "sum" else high - 3], [high]]
    with pytest.raises(InvalidProblemError, match="initial must lie in"):
        call(SegmentReducePlan, desc, ("y",), place, **given, initial=high + 1, empty=high)


def test_coefficients_that_no_integer_has_are_refused(place: str) -> None:
    a = np.array([1, 2], np.uint8)
    desc = BinaryDescriptor(kind="add_scaled", shape=(2,), element="uint8")
    for wrong in (0.5, math.nan, math.inf, 2**63, -(2**63) - 1, 1e19):
        with pytest.raises(InvalidProblemError, match="alpha must"):
            call(BinaryPlan, desc, ("y",), place, a=a, b=a, alpha=wrong)


def test_later_calls_of_a_plan_check_their_numbers_too() -> None:
    """The code of the steady state, which looks at types alone, packs no number that the first call's check refuses."""
    a, y = np.array([1, 200], np.uint8), np.zeros(2, np.uint8)
    with emulating(1):
        plan = BinaryPlan.select(
            BinaryDescriptor(kind="add_scaled", shape=(2,), element="uint8"), device=emulated_device(9.0)
        )
        for alpha, wanted in ((2, [3, 88]), (-3, [254, 112]), (4.0, [5, 232]), (True, [2, 144]), (1, [2, 144])):
            plan(a=pointer_view(a), b=pointer_view(a), y=pointer_view(y), alpha=alpha)
            assert y.tolist() == wanted
        for wrong in (2.5, 2**63, math.nan):
            with pytest.raises(InvalidProblemError, match="alpha must"):
                plan(a=pointer_view(a), b=pointer_view(a), y=pointer_view(y), alpha=wrong)
        fill = FillPlan.select(FillDescriptor(shape=(2,), element="uint8"), device=emulated_device(9.0))
        for value in (7, 255, 0.0):
            fill(x=pointer_view(y), value=value)
            assert y.tolist() == [value] * 2
        for wrong in (256, -1, 0.5):
            with pytest.raises(InvalidProblemError, match="value must"):
                fill(x=pointer_view(y), value=wrong)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda x: bc.pad(x, (1, 1), value=300), r"value must lie in \[0, 255\] as it meets uint8, got 300"),
        (lambda x: bc.pad(x, (1, 1), value=-1), "value must lie in"),
        (lambda x: bc.put(x, np.array([0]), 300), "values must lie in"),
        (lambda x: bc.full_like(x, -1), "value must lie in"),
        (lambda x: bc.full((2,), 2.5, "int64"), "value must be an integer"),
        (lambda x: bc.masked_select(x, x > 0, size=3, fill_value=300), "fill_value must lie in"),
        (lambda x: bc.masked_select(x.astype(np.int64), x > 0, size=3, fill_value=2**62), "53 bits"),
        (lambda x: bc.clamp(x, 300, 400), "min must lie in"),
        (lambda x: bc.clamp(x, None, -1), "max must lie in"),
        (lambda x: bc.arange(0, 2**40, 2**39, element="int32"), "the last number must lie in"),
        (lambda x: bc.arange(0, 2, 0.5, element="int32"), "step must be an integer"),
        (lambda x: bc.addcmul(x, x, x, value=2.5), "value must be an integer"),
        (lambda x: bc.affine(x, 1.5), "alpha must be an integer"),
        (lambda x: bc.where(x > 0, x, np.int64(300)), "b must lie in"),
    ],
)  # fmt: skip
def test_what_stands_for_an_element_is_one(act: Any, said: str) -> None:
    with pytest.raises(InvalidProblemError, match=said):
        act(np.array([1, 200, 7], np.uint8))


def test_bounds_beyond_the_range_bound_nothing() -> None:
    x = np.array([1, 200, 7], np.uint8)
    assert bc.clamp(x, -5, 300).tolist() == [1, 200, 7]
    assert bc.clamp(x, -5, 100).tolist() == [1, 100, 7]


def test_int64_numbers_keep_their_bits() -> None:
    x = np.array([0, 1], np.int64)
    assert bc.affine(x, 1, 2**62 + 1).tolist() == [2**62 + 1, 2**62 + 2]
    assert bc.full((2,), 2**62 + 1, "int64").tolist() == [2**62 + 1] * 2
    assert bc.full((1,), 2**64 - 1, "uint64").tolist() == [2**64 - 1]
    assert bc.add(x, x, alpha=2**62 + 1).tolist() == [0, 2**62 + 2]
    assert bc.sub(x, x, alpha=-(2**63)).tolist() == [0, -(2**63) + 1]


def test_the_rule_itself() -> None:
    from baracuda_py.core.numbers import met, modulo

    u8, boolean, f32 = (ElementKind.of(name) for name in ("uint8", "bool", "float32"))
    assert met("x", 255.0, u8, "element") == 255 and isinstance(met("x", 255.0, u8, "element"), int)
    assert met("x", np.int64(-3), u8, "coefficient") == -3
    assert met("x", 10**20, f32, "element") == 1e20
    assert modulo(-3, u8) == 253 and modulo(np.array(256), u8) == 0
    assert modulo(np.array(256), boolean) and not modulo(0, boolean)
    for wrong in (np.float32(2.5), 256, -1):
        with pytest.raises(InvalidProblemError, match="x must"):
            met("x", wrong, u8, "element")
