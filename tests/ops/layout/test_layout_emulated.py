"""Kernels that move parts, boxes and rows, on the emulator, where they have several bands, chunks and segments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from call_emulated import call

import baracuda_py as bc
from baracuda_py.ops.layout import view_scatter
from baracuda_py.ops.layout.walk import Walk, around, box

pytestmark = pytest.mark.usefixtures("emulation")
RNG = np.random.default_rng(3)


@pytest.mark.parametrize("widths", [(1024, 512, 1536), (96, 32, 400), (3, 5, 2)], ids=str)
def test_parts_in_bands(widths: Any) -> None:
    rows = 11 if widths[0] > 100 else 300
    x = RNG.integers(0, 2**15, (rows, sum(widths))).astype(np.int16)
    desc = bc.SplitCopyPlan.descriptor(shapes=tuple((rows, n) for n in widths), axis=1, element="int16")
    made = {"ys": [np.zeros((rows, n), np.int16) for n in widths]}
    got = call(bc.SplitCopyPlan, desc, made, x=x)["ys"]
    for one, want in zip(got, np.split(x, np.cumsum(widths)[:-1], 1), strict=True):
        np.testing.assert_array_equal(one, want)


@pytest.mark.parametrize("shapes", [((16, 3200), (3, 6400), (5, 64)), ((3, 2101), (70, 3), (8, 64))], ids=str)
def test_matrices_along_a_diagonal(shapes: Any) -> None:
    matrices = [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]
    whole = (sum(r for r, _ in shapes), sum(c for _, c in shapes))
    want, at = np.zeros(whole, np.float32), np.zeros(2, int)
    for x in matrices:
        want[at[0] : at[0] + x.shape[0], at[1] : at[1] + x.shape[1]] = x
        at += x.shape
    desc = bc.BlockDiagPlan.descriptor(shapes=shapes, element="float32")
    got = call(bc.BlockDiagPlan, desc, {"y": np.ones(whole, np.float32)}, matrices=matrices)["y"]
    np.testing.assert_array_equal(got, want)
    back = bc.BlockDiagBackwardPlan.descriptor(shapes=shapes, element="float32")
    for step in (1, 2):  # rows, and matrices of other strides
        made = {"dmatrices": [np.zeros((r, c * step), np.float32)[:, ::step] for r, c in shapes]}
        for one, x in zip(call(bc.BlockDiagBackwardPlan, back, made, dy=want)["dmatrices"], matrices, strict=True):
            np.testing.assert_array_equal(one, x)


@pytest.mark.parametrize("element", ["uint8", "int16", "float32", "float64"])
def test_classes_in_rows(element: str) -> None:
    classes, index = 512, RNG.integers(-2, 515, 21)
    index[:2] = 0, 511
    desc = bc.OneHotPlan.descriptor(shape=(21,), classes=classes, on=3, off=1, element=element)
    got = call(bc.OneHotPlan, desc, {"y": np.zeros((21, classes), element)}, index=index)["y"]
    np.testing.assert_array_equal(got, np.where(index[:, None] == np.arange(classes), 3, 1))


@pytest.mark.parametrize("form", ["equal", "below"])
def test_ones_on_a_diagonal_or_below(form: str) -> None:
    for element in ("uint8", "float16"):
        for diagonal in (-3, 0, 5):
            desc = bc.GeneratePlan.descriptor(
                shape=(30, 96), steps=(-1, 1), form=form, diagonal=diagonal, element=element
            )
            got = call(bc.GeneratePlan, desc, {"y": np.full((30, 96), 7, element)})["y"]
            want = np.eye(30, 96, diagonal) if form == "equal" else np.tri(30, 96, diagonal)
            np.testing.assert_array_equal(got, want)


def test_boxes() -> None:
    shape = (4, 5, 6)
    walk = Walk.of(shape).sliced(0, 1, 2).sliced(1, 4, 3, -1).permuted((2, 0, 1))
    fields = walk.fields
    found = box(fields["start"], fields["loops"], fields["steps"])
    assert found == ((1, 2, 0), (2, 3, 6))
    seen = np.zeros(shape, int)
    for begin, extents in (found, *around(shape, *found)):
        seen[tuple(slice(at, at + n) for at, n in zip(begin, extents, strict=True))] += 1
    assert (seen == 1).all()
    for other in (Walk.of(shape).sliced(2, 0, 3, 2), Walk.of((4, 4)).diagonal(0, 0, 1), Walk.of(shape).sliced(0, 1, 0)):
        fields = other.fields
        assert box(fields["start"], fields["loops"], fields["steps"]) is None


@pytest.mark.parametrize("place", [(0, 3, 4), (1, 2, 3), (2, 8, 16), (0, 0, 9), (1, 0, 1)], ids=str)
def test_what_is_left_alone_is_moved_once(monkeypatch: Any, place: Any) -> None:
    monkeypatch.setattr(view_scatter, "_LAUNCH", 0)  # boxes, however small
    shape, (axis, start, count) = (9, 6, 32), place
    walk, x = Walk.of(shape).sliced(axis, start, count), RNG.standard_normal((9, 6, 32)).astype(np.float32)
    where = tuple(slice(start, start + count) if a == axis else slice(None) for a in range(3))
    src = RNG.standard_normal(x[where].shape).astype(np.float32)
    for given in (x, None):
        want = np.zeros_like(x) if given is None else x.copy()
        want[where] = src
        desc = bc.ViewScatterPlan.descriptor(shape=shape, element="float32", **walk.fields)
        got = call(bc.ViewScatterPlan, desc, {"y": np.ones(shape, np.float32)}, src=src, x=given)["y"]
        np.testing.assert_array_equal(got, want)
    desc = bc.ViewScatterBackwardPlan.descriptor(shape=shape, element="float32", **walk.fields)
    made = {"dx": np.ones(shape, np.float32), "dsrc": np.ones(src.shape, np.float32)}
    got, want = call(bc.ViewScatterBackwardPlan, desc, made, dy=x), x.copy()
    want[where] = 0
    np.testing.assert_array_equal(got["dx"], want)
    np.testing.assert_array_equal(got["dsrc"], x[where])
