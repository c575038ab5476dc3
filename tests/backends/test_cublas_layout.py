"""Strided views as cuBLASLt matrices, and the row-major product as the column-major one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_cublas import FakeCublas, install, run
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.lib.stride_tricks import as_strided

from baracuda_py.backends.cublas import GemmProblem, Matrix, describe, prepare
from baracuda_py.core.device import fake_device


@st.composite
def views(draw: st.DrawFn) -> np.ndarray:
    """A 2-D or 3-D view of a 1-D array: sliced, transposed, reversed, broadcast."""
    shape = draw(st.lists(st.integers(0, 4), min_size=2, max_size=3))
    array = np.arange(int(np.prod([2 * n + 1 for n in shape])), dtype=np.float32).reshape([2 * n + 1 for n in shape])
    view = array[tuple(slice(draw(st.integers(0, 1)), None, draw(st.sampled_from([1, 1, 1, 2, -1]))) for _ in shape)]
    view = view[tuple(slice(0, n) for n in shape)]
    view = view.transpose(draw(st.permutations(range(len(shape)))))
    if draw(st.booleans()):
        axis = draw(st.integers(0, view.ndim - 1))
        keep = view[tuple(slice(0, 1) if i == axis else slice(None) for i in range(view.ndim))]
        view = np.broadcast_to(keep, view.shape) if keep.shape[axis] else view
    return view


def _elements(view: np.ndarray) -> tuple[int, ...]:
    return tuple(s // view.itemsize for s in view.strides)


@given(views(), st.sampled_from([None, False, True]))
@settings(max_examples=400, deadline=None)
@example(np.zeros((1, 1), np.float32), None)
def test_describe_names_exactly_the_views_it_can(view: np.ndarray, trans: bool | None) -> None:
    rows, cols = view.shape[-2:]
    found = describe(view.shape, _elements(view), trans)
    readings = []
    for reading, inner, outer in ((False, -1, -2), (True, -2, -1)):
        n, step = view.shape[inner], _elements(view)[inner]
        pitch = _elements(view)[outer]
        if (n <= 1 or step == 1) and (view.shape[outer] <= 1 or pitch >= max(n, 1)) and trans in (None, reading):
            readings.append(reading)
    forward = view.ndim == 2 or view.shape[0] <= 1 or view.strides[0] >= 0
    assert (found is not None) == bool(readings and forward)
    if found is None:
        return
    reading, ld, batch_stride = found
    assert reading in readings and ld >= max(1, rows if reading else cols)
    if view.size:
        strides = (batch_stride, *((1, ld) if reading else (ld, 1)))
        rebuilt = as_strided(view, (*view.shape[:-2], rows, cols), [s * 4 for s in strides[-view.ndim :]])
        assert np.array_equal(rebuilt, view)


def test_describe_reads_a_vector_along_its_contiguous_axis_unless_told() -> None:
    assert describe((5, 1), (1, 1)) == (True, 5, 0)
    assert describe((5, 1), (1, 1), trans=False) == (False, 1, 0)
    assert describe((5, 1), (3, 99)) == (False, 3, 0)
    assert describe((1, 5), (-7, 1)) == (False, 5, 0)


@pytest.mark.parametrize(
    "strides",
    [(0, 1), (16, 2), (-8, 1), (3, 1), (1, 1)],
    ids=["repeated", "stepped", "reversed", "overlapping", "hankel"],
)
def test_describe_refuses(strides: tuple[int, int]) -> None:
    assert describe((4, 8), strides) is None


def _column_major(array: np.ndarray, layout: dict[str, Any]) -> np.ndarray:
    """What cuBLASLt sees at an array's first element: (batch, rows, cols), columns `ld` apart."""
    _, rows, cols, ld = layout["args"]
    strides = [s * array.itemsize for s in (layout["batch_stride"], 1, ld)]
    return as_strided(array, (layout["batch"], rows, cols), strides)


def _strided(rows: int, cols: int, batch: int, trans: bool, pad: int, broadcast: bool) -> tuple[np.ndarray, Matrix]:
    shape = (batch, cols, rows + pad) if trans else (batch, rows, cols + pad)
    data = np.random.default_rng(rows * 31 + cols).integers(-4, 5, shape).astype(np.float32)
    view = data.transpose(0, 2, 1)[:, :rows] if trans else data[:, :, :cols]
    view = np.broadcast_to(view[:1], view.shape) if broadcast else view
    found = describe(view.shape, _elements(view), trans)
    assert found is not None
    return view, Matrix("float32", *found)


@given(st.tuples(*[st.integers(1, 5)] * 4), st.tuples(*[st.booleans()] * 3), st.tuples(*[st.integers(0, 3)] * 3),
       st.tuples(st.booleans(), st.booleans()), st.booleans())  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_the_column_major_problem_is_the_row_major_one(
    sizes: Any, trans: Any, pads: Any, broadcasts: Any, in_place: bool
) -> None:
    m, n, k, batch = sizes
    a, a_matrix = _strided(m, k, batch, trans[0], pads[0], broadcasts[0])
    b, b_matrix = _strided(k, n, batch, trans[1], pads[1], broadcasts[1])
    c, c_matrix = _strided(m, n, batch, trans[2], 1, False)
    d, d_matrix = _strided(m, n, batch, trans[2], pads[2], False)
    with pytest.MonkeyPatch.context() as patch:
        lib = FakeCublas()
        install(lib, patch)
        gemm = prepare(GemmProblem(m=m, n=n, k=k, batch=batch, a=a_matrix, b=b_matrix, d=d_matrix,
                                   c=None if in_place else c_matrix), fake_device(9.0))  # fmt: skip
        arrays = {x.ctypes.data: x for x in (a, b, c, d)}
        run(gemm, a=a.ctypes.data, b=b.ctypes.data, c=0 if in_place else c.ctypes.data, d=d.ctypes.data)
    want = a @ b + 2 * (d if in_place else c)
    (call,) = lib.calls
    x, y, z, out = (_column_major(arrays[getattr(call, i)], getattr(call, f"{i}_layout")) for i in "abcd")
    op = [(lambda v: v.transpose(0, 2, 1)) if call.op[f"op_{i}"] else (lambda v: v) for i in "ab"]
    out[...] = op[0](x) @ op[1](y) + 2 * z
    assert np.array_equal(d, want)
