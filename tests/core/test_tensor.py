"""Views: spans, density, alignment, merging of axes and overlap, each against an enumeration of addresses."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from baracuda_py.core import ElementKind, TensorRef, View
from baracuda_py.core.arrays import to_numpy
from baracuda_py.core.errors import BufferTooSmallError, InvalidProblemError
from baracuda_py.core.tensor import dense_strides, merge_axes, shares_memory

Shape = tuple[int, ...]
F32 = ElementKind.F32


@st.composite
def views(draw: Any, max_rank: int = 3, low: int = 0) -> View:
    shape = draw(st.lists(st.integers(low, 3), max_size=max_rank).map(tuple))
    strides = dense_strides(shape) if draw(st.booleans()) else tuple(draw(st.integers(-6, 6)) for _ in shape)
    return View(draw(st.integers(0, 30)) * 4 + 4096, shape, strides, F32)


def addresses(view: View) -> set[int]:
    """Every byte the view touches."""
    size = view.element.itemsize
    found: set[int] = set()
    for index in itertools.product(*map(range, view.shape)):
        at = view.ptr + size * sum(i * s for i, s in zip(index, view.strides, strict=True))
        found.update(range(at, at + size))
    return found


@given(views())
def test_span_is_the_bytes_touched(view: View) -> None:
    touched = addresses(view)
    low, high = view.span
    assert (low, high) == ((min(touched) - view.ptr, max(touched) + 1 - view.ptr) if touched else (0, 0))


@given(views())
def test_dense_means_row_major_without_gaps(view: View) -> None:
    offsets = [
        sum(i * s for i, s in zip(index, view.strides, strict=True))
        for index in itertools.product(*map(range, view.shape))
    ]
    assert view.dense == (offsets == list(range(len(offsets))))
    assert View(0, view.shape, dense_strides(view.shape), F32).dense


@given(views(), views())
def test_overlap_is_exact(a: View, b: View) -> None:
    assert shares_memory(a, b) == bool(addresses(a) & addresses(b))


def test_interleaved_views_do_not_overlap() -> None:
    evens, odds = View(0x1000, (8,), (2,), F32), View(0x1004, (8,), (2,), F32)
    assert not shares_memory(evens, odds)
    assert shares_memory(evens, View(0x1008, (1,), (1,), F32))


def test_overlap_gives_up_on_the_safe_side() -> None:
    """The exact test is exponential: views built to be hard are called overlapping, in bounded time."""
    strides = tuple(1009 * 2**i + i * i + 1 for i in range(10))
    a = View(0x10000, (20,) * 10, strides, F32)
    b = View(0x10000 + 4 * 13, (20,) * 10, tuple(s + 1 for s in strides), F32)
    assert shares_memory(a, b) in (True, False)


@st.composite
def operands(draw: Any) -> tuple[Shape, list[Shape]]:
    shape = draw(st.lists(st.integers(1, 4), max_size=5).map(tuple))
    count = draw(st.integers(1, 3))
    strides = []
    for _ in range(count):
        if draw(st.booleans()):
            strides.append(dense_strides(shape))
        else:
            strides.append(tuple(draw(st.integers(-4, 4)) for _ in shape))
    return shape, strides


def walk(shape: Shape, strides: list[Shape]) -> list[tuple[int, ...]]:
    return [
        tuple(sum(i * s for i, s in zip(index, one, strict=True)) for one in strides)
        for index in itertools.product(*map(range, shape))
    ]


@given(operands())
def test_merging_keeps_every_address_in_order(problem: tuple[Shape, list[Shape]]) -> None:
    shape, strides = problem
    merged, kept = merge_axes(shape, strides)
    assert walk(shape, strides) == walk(merged, list(kept))
    assert 1 not in merged
    for i in range(len(merged) - 1):  # nothing more can be merged
        assert not all(k[i] == merged[i + 1] * k[i + 1] for k in kept)


def test_a_dense_view_merges_to_one_axis() -> None:
    shape = (2, 1, 3, 4)
    assert merge_axes(shape, [dense_strides(shape)] * 2) == ((24,), ((1,), (1,)))
    assert merge_axes((), [()]) == ((), ((),))
    assert merge_axes((2, 3), [(0, 0)]) == ((6,), ((0,),))
    assert merge_axes((2, 3), [(3, 1), (1, 2)])[0] == (2, 3)


@pytest.mark.parametrize(
    ("ptr", "shape", "strides", "aligned"),
    [(0x100, (4, 4), (4, 1), True), (0x104, (4, 4), (4, 1), False), (0x100, (4, 4), (5, 1), False),
     (0x100, (1, 4), (5, 1), True), (0x100, (0, 4), (5, 1), False),
     (0x100, (4,), (3,), True)],
)  # fmt: skip
def test_alignment_is_of_pointer_and_pitches(ptr: int, shape: Shape, strides: Shape, aligned: bool) -> None:
    assert View(ptr, shape, strides, F32).aligned(16) == aligned


def test_wide_index_begins_at_two_to_the_31() -> None:
    assert not View(0, (2**31,), (1,), F32).wide_index
    assert View(0, (2**31 + 1,), (1,), F32).wide_index
    assert View(0, (2, 2), (-(2**30), 2**30), F32).wide_index
    assert not View(0, (0, 2**40), (2**40, 1), F32).wide_index


def test_broadcast_and_reshape_look_at_the_same_memory() -> None:
    row = View(0x1000, (3,), (2,), F32)
    assert row.broadcast_to((4, 3)).strides == (0, 2)
    assert View(0, (4, 1), (1, 7), F32).broadcast_to((4, 5)).strides == (1, 0)
    dense = View(0x1000, (2, 6), (6, 1), F32)
    assert dense.reshaped((3, 4)) == View(0x1000, (3, 4), (4, 1), F32)
    assert View(0x1000, (2, 6), (7, 1), F32).reshaped((12,)) is None
    assert row.inner_dense is False and View(0, (2, 1), (1, 9), F32).inner_dense


def test_tensor_ref_checks_what_it_owns() -> None:
    ref = TensorRef(0x1000, (2, 3), None, "bfloat16", 12)
    assert ref.strides == (3, 1) and ref.element is ElementKind.BF16
    with pytest.raises(BufferTooSmallError) as caught:
        TensorRef(0x1000, (2, 3), (4, 1), "float32", 24)
    assert (caught.value.needed, caught.value.got) == (28, 24)
    with pytest.raises(BufferTooSmallError):
        TensorRef(0x1000, (4,), (-1,), "float32", 12)
    TensorRef(0x1000, (0, 3), None, "float32", 0)
    with pytest.raises(InvalidProblemError, match="2 extents but 1 strides"):
        TensorRef(0x1000, (2, 3), (1,))


@pytest.mark.parametrize("strides", [None, (1, 2), (-3, 1), (0, 1)])
def test_a_host_tensor_ref_is_the_memory(strides: Shape | None) -> None:
    base = np.arange(40, dtype=np.float32)
    ref = TensorRef(base.ctypes.data + 80, (2, 3), strides, "float32", device=-1)
    seen = to_numpy(ref)
    steps = strides or (3, 1)
    assert seen.tolist() == [[20.0 + i * steps[0] + j * steps[1] for j in range(3)] for i in range(2)]
    seen[0, 0] = -1
    assert base[20] == -1


def test_an_empty_host_tensor_ref_has_no_memory() -> None:
    assert to_numpy(TensorRef(0, (3, 0), None, "float32", device=-1)).shape == (3, 0)
