"""softmax and log_softmax: independent formulas and identities, the rows' schedules, bits across layouts."""

from __future__ import annotations

import math

import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.core.tensor import View, dense_strides
from baracuda_py.core.variant import Problem
from baracuda_py.ops.softmax.softmax import SoftmaxDescriptor, SoftmaxPlan
from baracuda_py.ops.softmax.softmax_functions import log_softmax, softmax
from baracuda_py.ops.softmax.softmax_backward import softmax_backward
from baracuda_py.schedules.row_groups import GROUPS, STRIDED, TILE, WIDE, group_of


def test_against_the_definition() -> None:
    """One row by math.exp and math.fsum."""
    row = [0.5, -1.25, 3.0, 88.0, 87.5]
    weights = [math.exp(v - 88.0) for v in row]
    expected = [w / math.fsum(weights) for w in weights]
    x = np.array([row], np.float64)
    np.testing.assert_allclose(softmax(x)[0], expected, rtol=1e-15)
    np.testing.assert_allclose(log_softmax(x)[0], np.log(expected), rtol=1e-14)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_any_axis_is_the_last_one_moved(axis: int) -> None:
    """Bit for bit."""
    x = np.random.default_rng(axis + 5).standard_normal((4, 5, 6)).astype(np.float32)
    moved = np.ascontiguousarray(np.moveaxis(x, axis, -1))
    np.testing.assert_array_equal(np.moveaxis(softmax(x, axis=axis), axis, -1), softmax(moved))


def test_rows_without_a_finite_maximum_are_nan() -> None:
    """As in PyTorch: only -inf, a NaN, or a +inf; a single -inf is a zero."""
    inf = np.inf
    x = np.array([[-inf, -inf], [np.nan, 0], [inf, 0], [-inf, 0]], np.float32)
    y = softmax(x)
    assert np.isnan(y[:3]).all()
    np.testing.assert_array_equal(y[3], [0, 1])
    np.testing.assert_array_equal(log_softmax(x)[3], [-inf, 0])


def test_scalar_and_empty() -> None:
    """A 0-d array is a row of one; an empty one stays empty."""
    x = np.full((), 3, np.float32)
    assert softmax(x) == 1
    assert log_softmax(x) == 0 and _step((), -1).grid == (1, 1, 1)
    assert softmax(np.empty((3, 0), np.float32)).shape == (3, 0)


def test_in_place() -> None:
    """y may be x, and dx either input."""
    x = np.random.default_rng(0).standard_normal((7, 9)).astype(np.float32)
    y, dy = softmax(x), np.ones_like(x)
    dx = softmax_backward(dy, y)
    assert softmax(x, out=x) is x
    np.testing.assert_array_equal(x, y)
    softmax_backward(dy, y, out=dy)
    np.testing.assert_array_equal(dy, dx)


def test_axis_out_of_range() -> None:
    """The message names the range."""
    with pytest.raises(InvalidProblemError, match=r"axis must be in \[-2, 1\]"):
        softmax(np.zeros((2, 3), np.float32), axis=2)


@pytest.mark.parametrize("element", [ElementKind.BF16, ElementKind.F32, ElementKind.F64])
def test_a_group_holds_its_row(element: ElementKind) -> None:
    """Every row up to 32 KB has the first group that holds it; longer rows have none."""
    width = 16 // element.itemsize
    for g, k, _ in GROUPS:
        assert group_of(g * k * width, element)[:2] == (g, k)
    assert group_of(GROUPS[-1][0] * GROUPS[-1][1] * width + 1, element) is None


def _step(shape: tuple[int, ...], axis: int, cc: float = 9.0, strides: tuple[int, ...] | None = None, ptr: int = 256):
    desc = SoftmaxDescriptor(shape=shape, axis=axis, element="bfloat16")
    x = View(ptr, shape, strides or dense_strides(shape), ElementKind.BF16)
    y = View(1 << 40, shape, dense_strides(shape), ElementKind.BF16)
    problem = Problem(desc, fake_device(cc), {"x": x, "y": y})
    geometry = SoftmaxPlan.variants[0].geometry(problem)
    assert not isinstance(geometry, str)
    (step,) = geometry.steps
    return step


def test_schedules() -> None:
    """Which kernel takes a row follows from its length; how it is read, from alignment and strides."""
    assert (_step((8, 4096), 1).kernel, _step((8, 4096), 1).axes["MODE"]) == ("rows_128x4", WIDE)
    assert _step((8, 4096), 1, ptr=258).axes["MODE"] == STRIDED
    assert _step((8, 4095), 1).axes["MODE"] == STRIDED
    assert _step((8, 100_000), 1).kernel == "long"
    column = _step((3, 100, 64), 1)
    assert (column.kernel, column.axes["MODE"], column.params["tile_wide"]) == ("tile_32x1", TILE, 1)
    assert column.grid == (3 * 2, 1, 1)
    assert _step((3, 100, 65), 1).params["tile_wide"] == 0
    assert _step((3, 100, 3), 1).axes["MODE"] == STRIDED


@pytest.mark.parametrize("cc", [8.0, 8.6, 9.0, 12.0])
def test_shared_memory_fits_two_long_rows(cc: float) -> None:
    """Half a multiprocessor's shared memory for each of two blocks."""
    assert 2 * (_step((8, 1_000_000), 1, cc).smem + 1024) <= fake_device(cc).smem + 1024
    for rows in (100, 1000, 3000, 12000):
        assert _step((rows, 64), 0, cc).smem <= fake_device(cc).smem


@pytest.mark.gpu
@pytest.mark.parametrize("cols", [3, 200, 1000, 4001, 16000, 70001])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_gpu_bits_do_not_depend_on_the_layout(cols: int, dtype: str) -> None:
    """A row alone, misaligned, strided, or as a column gives the bits it has in a dense batch."""
    import cupy

    x = cupy.random.default_rng(cols).standard_normal((24, cols)).astype(dtype)
    for function in (softmax, log_softmax):
        y = function(x)
        cupy.testing.assert_array_equal(function(x[5:6]), y[5:6])
        shifted = cupy.empty((24, cols + 1), dtype)[:, 1:]
        shifted[...] = x
        cupy.testing.assert_array_equal(function(shifted), y)
        spread = cupy.empty((24, cols, 2), dtype)[..., 1]
        spread[...] = x
        cupy.testing.assert_array_equal(function(spread), y)
        column = cupy.ascontiguousarray(x.T)
        cupy.testing.assert_array_equal(function(column, axis=0).T, y)
        cupy.testing.assert_array_equal(function(cupy.ascontiguousarray(column[:, :23]), axis=0).T, y[:23])
        copy = x.copy()
        function(copy, out=copy)
        cupy.testing.assert_array_equal(copy, y)


@pytest.mark.gpu
@pytest.mark.parametrize("cols", [200, 4001, 70001, 300_000])
def test_gpu_rows_of_infinities(cols: int) -> None:
    """A maximum that comes late, rows of -inf with one finite element, and rows of -inf alone."""
    import cupy

    x = np.full((4, cols), -np.inf, np.float32)
    x[0, cols - 1] = 1
    x[1, 0], x[1, cols // 2] = -1e30, 2
    x[2, :] = np.linspace(-50, 50, cols)
    y = cupy.asnumpy(softmax(cupy.asarray(x)))
    np.testing.assert_allclose(y, softmax(x), rtol=2e-6, atol=1e-12)
    assert np.isnan(y[3]).all()
