"""The map schedule without a GPU: every element is visited once, and a wide access is always aligned."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baracuda_py.core.element import ElementKind
from baracuda_py.core.tensor import View, dense_strides
from baracuda_py.schedules.map import THREADS, divider, lay_out, map_geometry, widths

DEVICE = SimpleNamespace(device=SimpleNamespace(sms=132))
ELEMENTS = (ElementKind.F16, ElementKind.F32, ElementKind.F64, ElementKind.I8)


@st.composite
def views(draw):
    """Three operands of one shape: the first an output, the others perhaps broadcast; permuted, padded, reversed."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 8, 16]), max_size=3)))
    found = []
    for position in range(3):
        kind = draw(st.sampled_from(ELEMENTS))
        own = [1 if position and draw(st.integers(0, 3)) == 0 else n for n in shape]
        strides, step = [0] * len(shape), 1
        for axis in draw(st.permutations(range(len(shape)))):
            strides[axis] = step * draw(st.sampled_from([1, 1, 1, 2, -1]))
            step = abs(strides[axis]) * (own[axis] + draw(st.sampled_from([0, 0, 1, 8])))
        pointer = draw(st.sampled_from([0, 16, 8, 4, 2])) // kind.itemsize * kind.itemsize
        found.append(View(pointer, tuple(own), tuple(strides), kind).broadcast_to(shape))
    return found


def offsets(chunk, params):
    """What `map_offsets` of kernels/include/baracuda/map.cuh computes, with the host's dividers."""
    found, rest = [0] * len(params["strides"]), chunk
    for axis in range(params["rank"] - 1, -1, -1):
        coordinate = rest
        if axis:
            divisor, magic, shift = params["dividers"][axis]
            rest = ((rest * magic >> 32) + rest) >> shift
            coordinate -= rest * divisor
        found = [f + coordinate * s[axis] for f, s in zip(found, params["strides"], strict=True)]
    return found


@given(views())
@settings(max_examples=60, deadline=None)
def test_every_element_once(operands):
    shape = operands[0].shape
    (step,) = map_geometry(DEVICE, operands).steps
    params, vec = step.params, step.axes["VEC"]
    wanted = {tuple(int(np.dot(at, v.strides)) for v in operands) for at in np.ndindex(*shape)}
    got = []
    for chunk in range(params["chunks"]):
        starts = [chunk * vec] * 3 if step.kernel == "flat" else offsets(chunk, params)
        for k, (start, view) in enumerate(zip(starts, operands, strict=True)):
            moved = view.element.itemsize * (1 if params["splat"] >> k & 1 else vec)
            assert (view.ptr + start * view.element.itemsize) % moved == 0
        got += [tuple(s if params["splat"] >> k & 1 else s + e for k, s in enumerate(starts)) for e in range(vec)]
    if step.kernel == "flat":
        got += [(e,) * 3 for e in range(params["chunks"] * vec, params["count"])]
    assert len(got) == params["count"] == np.prod(shape, dtype=int)
    assert set(got) == wanted
    each = 1 if step.kernel == "flat" else 2 if vec > 1 else 4  # these are too small for more chunks a thread
    assert step.grid[0] * THREADS * each >= params["chunks"]


def test_operands_transposed_alike_are_dense():
    view = View(0, (64, 32), (1, 64), ElementKind.F16)
    assert lay_out((view, view)).dense
    assert map_geometry(DEVICE, (view, view)).layout == "contiguous"


def test_large_dense_operands_take_a_chunk_a_thread():
    views = [View(0, (2**26 + 3,), (1,), ElementKind.F16)] * 2
    (step,) = map_geometry(DEVICE, views).steps
    assert step.axes == {"VEC": 8}
    assert step.grid[0] == -(-(2**23) // (THREADS))


def test_halves_of_a_packed_row_keep_wide_accesses():
    half = View(0, (10, 64), (128, 1), ElementKind.BF16)
    out = View(0, (10, 64), dense_strides((10, 64)), ElementKind.BF16)
    found = map_geometry(DEVICE, (out, half, View(128, (10, 64), (128, 1), ElementKind.BF16)))
    assert found.layout == "inner_contiguous"
    assert found.steps[0].axes == {"VEC": 8} and found.steps[0].params["narrow"]


def test_more_than_2_31_elements_take_64_bit_indices():
    big = View(0, (2**16, 2**16), (2**17, 1), ElementKind.I8)
    (step,) = map_geometry(DEVICE, (big, big)).steps
    assert not step.params["narrow"]
    assert step.params["count"] == 2**32


def test_axes_beyond_eight_are_refused():
    shape = (2,) * 10
    sparse = View(0, shape, tuple(3**k for k in range(10)), ElementKind.F32)
    assert "8 axes" in map_geometry(DEVICE, (sparse, sparse))


@pytest.mark.parametrize("extent", [1, 2, 3, 5, 7, 8, 1000, 65537, 2**31 - 1])
def test_division_by_multiplication(extent):
    divisor, magic, shift = divider(extent)
    assert divisor == extent and magic < 2**32
    for n in itertools.chain(range(5), (extent - 1, extent, 2**31 - 1)):
        assert ((n * magic >> 32) + n) >> shift == n // extent


def test_widths():
    assert [widths(n) for n in (1, 2, 4, 8)] == [(16, 1), (8, 1), (4, 1), (2, 1)]
