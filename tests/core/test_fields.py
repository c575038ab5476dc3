"""Fields that depend on others: axes of a shape, numbers and pairs for each axis, defaults that other fields give."""

from __future__ import annotations

import dataclasses
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import (
    Descriptor,
    ElementKind,
    axes,
    choice,
    derived,
    element,
    extents,
    integer,
    number,
    pairs,
    per_axis,
    spread,
)
from baracuda_py.core.errors import InvalidProblemError


@dataclass(frozen=True, kw_only=True)
class Sample(Descriptor):
    shape: tuple[int, ...] = extents((2, 3, 4))
    axis: tuple[int, ...] = axes(None)
    order: tuple[int, ...] = axes((0,), ordered=True)
    last: tuple[int, ...] = axes(derived(lambda desc: (-1,)))
    rank: int = integer(2, minimum=0)
    kernel: tuple[int, ...] = per_axis(3, minimum=1, of="rank")
    stride: tuple[int, ...] = per_axis(derived(lambda desc: desc.kernel), minimum=1, of="rank")
    free: Any = per_axis(0)
    padding: tuple[tuple[int, int], ...] = pairs(0, of="rank")
    crop: tuple[tuple[int, int], ...] = pairs(0, minimum=-8)
    mode: str = choice(("a", "b"), "a")
    decay: float = number(derived(lambda desc: 0.5 if desc.mode == "a" else 0.0), minimum=0.0)
    most: int = integer(derived(lambda desc: desc.rank, lambda desc, given: min(given, desc.rank)), minimum=0)
    element: ElementKind = element(default=ElementKind.F32)


@pytest.mark.parametrize(
    ("given", "held"),
    [
        (None, (0, 1, 2)), (1, (1,)), (-1, (2,)), ((-1, 0), (0, 2)), ([2, 0, 1], (0, 1, 2)), ((), ()),
        (np.int64(-3), (0,)), (np.array([1, -1]), (1, 2)), ((-3, -2, -1), (0, 1, 2)),
    ],
)  # fmt: skip
def test_axes_are_numbers_of_the_shape(given: Any, held: tuple[int, ...]) -> None:
    assert Sample(axis=given).axis == held
    assert Sample(axis=given) == Sample(axis=held) and hash(Sample(axis=given)) == hash(Sample(axis=held))


def test_axes_of_no_axes() -> None:
    assert Sample(shape=(), order=(), last=()).axis == ()
    assert Sample(shape=(), order=(), last=(), axis=-1).axis == ()
    with pytest.raises(InvalidProblemError, match=r"axis must be in \[-1, 0\] for shape \(\), got 1"):
        Sample(shape=(), order=(), last=(), axis=1)


def test_an_order_of_axes_is_kept() -> None:
    assert Sample(order=(-1, 0, 1)).order == (2, 0, 1)
    assert Sample(order=None).order == (0, 1, 2)


@pytest.mark.parametrize(
    ("field", "given", "says"),
    [
        ("axis", 3, r"axis must be in \[-3, 2\] for shape \(2, 3, 4\), got 3"),
        ("axis", (0, -4), r"axis must be in \[-3, 2\] for shape \(2, 3, 4\), got -4"),
        ("axis", (1, -2), r"axis names axis 1 of shape \(2, 3, 4\) twice, got \(1, -2\)"),
        ("axis", (0, 0), "twice"), ("axis", 99, "axis must be an integer in"), ("axis", 10**30, "integer"),
        ("axis", True, "axis must be"), ("axis", 1.0, "axis must be"), ("axis", "0", "axis must be"),
        ("axis", {0, 1}, "axis must be a tuple of axes"), ("order", (0, 2, 0), "order names axis 0"),
        ("kernel", 0, "kernel must be an integer"), ("kernel", (3,), "one for each of the 2 axes, got"),
        ("kernel", (3, 0), "kernel must be"), ("kernel", (3, 3, 3), "each of the 2 axes"), ("kernel", "33", "kernel"),
        ("kernel", True, "kernel"), ("kernel", 2**31, "kernel"), ("stride", (1, 0), "stride must be"),
        ("padding", -1, "padding must be"), ("padding", ((1, 2, 3), 0), r"padding\[0\] must be an integer or a pair"),
        ("padding", ((1, 2),), "each of the 2 axes"), ("padding", ((1, -2), 0), r"padding\[0\]"),
        ("padding", ("ab", 1), r"padding\[0\]"), ("padding", None, "padding"), ("padding", 1.5, "padding"),
        ("crop", (0, 0), "each of the 3 axes"), ("decay", -1, "decay must be"), ("most", -1, "most must be"),
    ],
)  # fmt: skip
def test_what_no_field_holds(field: str, given: Any, says: str) -> None:
    with pytest.raises(InvalidProblemError, match=says) as info:
        Sample(**{field: given})
    assert field in str(info.value)


@pytest.mark.parametrize(
    ("given", "held"),
    [(3, (3, 3)), ((1, 2), (1, 2)), ([1, 2], (1, 2)), (np.int32(5), (5, 5)), (np.array([4, 1]), (4, 1))],
)
def test_a_number_for_each_axis(given: Any, held: tuple[int, ...]) -> None:
    desc = Sample(kernel=given)
    assert desc.kernel == held and desc.stride == held, "a default that another field gives"
    assert Sample(kernel=given, stride=1).stride == (1, 1)
    assert all(type(n) is int for n in desc.kernel)


def test_a_number_for_axes_that_the_page_counts() -> None:
    assert Sample(free=2).free == 2 and Sample(free=[1, 2, 3]).free == (1, 2, 3)
    assert spread("free", 2, 3) == (2, 2, 2) and spread("free", (1, 2), 2) == (1, 2)
    with pytest.raises(InvalidProblemError, match="free must be an integer or one for each of the 3 axes"):
        spread("free", (1, 2), 3)


@pytest.mark.parametrize(
    ("given", "held"),
    [
        (1, ((1, 1), (1, 1))), ((1, 2), ((1, 1), (2, 2))), (((1, 2), (0, 3)), ((1, 2), (0, 3))),
        ([[1, 2], 3], ((1, 2), (3, 3))), (np.array([[1, 0], [0, 1]]), ((1, 0), (0, 1))),
    ],
)  # fmt: skip
def test_pairs_are_before_and_after(given: Any, held: tuple[tuple[int, int], ...]) -> None:
    assert Sample(padding=given).padding == held
    assert hash(Sample(padding=given)) == hash(Sample(padding=held))
    assert Sample(crop=(-2, 0, (1, -1))).crop == ((-2, -2), (0, 0), (1, -1))


def test_defaults_that_other_fields_give() -> None:
    assert Sample().decay == 0.5 and Sample(mode="b").decay == 0.0 and Sample(mode="b", decay=2).decay == 2.0
    assert Sample().last == (2,) and Sample(shape=(5,), order=0, crop=0).last == (0,)
    assert Sample().most == 2 and Sample(most=1).most == 1 and Sample(most=7).most == 2, "a bound on what is given"
    assert Sample(decay=None) == Sample()


def test_a_descriptor_made_of_another_keeps_what_it_held() -> None:
    desc = Sample(kernel=5, axis=-1)
    assert dataclasses.replace(desc) == desc and pickle.loads(pickle.dumps(desc)) == desc
    assert dataclasses.replace(desc, kernel=3).stride == (5, 5), "what is held is given"


def test_a_default_is_shown_as_none() -> None:
    by_name = {f.name: f.default for f in dataclasses.fields(Sample)}
    assert by_name["decay"] is None and by_name["stride"] is None and by_name["most"] is None


def test_what_pages_derive() -> None:
    heads = {"batch_size": 1, "num_heads": 4, "query_len": 8, "key_len": 8, "d_k": 16, "d_v": 16, "element": "float16"}
    desc = bc.FlashSdpaDescriptor(**heads)
    assert desc.scale == 0.25 and desc.num_kv_heads == 4
    assert bc.FlashSdpaDescriptor(**heads, scale=2, num_kv_heads=2).scale == 2.0
    assert bc.SdpaDescriptor(**heads).mask_element is ElementKind.F16
    with pytest.raises(InvalidProblemError, match="num_heads must be a multiple of num_kv_heads, got 4 and 3"):
        bc.FlashSdpaDescriptor(**heads, num_kv_heads=3)
    norm = {"batch_shape": 2, "normalized_shape": 8}
    assert bc.RMSNormDescriptor(**norm, element="bfloat16").weight_element is ElementKind.BF16
    with pytest.raises(InvalidProblemError, match="weight_element must be float64 with element float64"):
        bc.RMSNormDescriptor(**norm, element="float64", weight_element="float32")
    assert bc.UnaryDescriptor(kind="elu", shape=3, element="float32").alpha == 1.0
    assert bc.UnaryDescriptor(kind="exp", shape=3, element="float32").alpha is None
    adam = bc.AdamStepDescriptor(shapes=((2,),), mode="adam", element="float32")
    assert (adam.weight_decay, adam.grad_element, adam.copy_element) == (0.0, ElementKind.F32, ElementKind.BF16)
