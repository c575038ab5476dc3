"""gather and take: NumPy and torch, the policy for indices out of range, words of a row, layouts on the emulator."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.indexing.gather import GatherDescriptor, GatherPlan
from baracuda_py.ops.indexing.take import TakeDescriptor, TakePlan
from baracuda_py.testing import emulator
from baracuda_py.testing.draw import fill
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import operands
from baracuda_py.testing.recording import pointer_view

RNG = np.random.default_rng(4)


def one_by_one(x, index, axis):
    y = np.zeros(index.shape, x.dtype)
    for at in np.ndindex(index.shape):
        if -x.shape[axis] <= index[at] < x.shape[axis]:
            y[at] = x[(*at[:axis], index[at], *at[axis + 1 :])]
    return y


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, np.complex128])
def test_gather(axis, dtype):
    x = (10 * RNG.standard_normal((3, 4, 5))).astype(dtype)
    shape = [3, 4, 5]
    shape[axis] = 7
    index = RNG.integers(0, x.shape[axis], shape)
    np.testing.assert_array_equal(bc.gather(x, index, axis=axis), np.take_along_axis(x, index, axis))
    less = index[:2, :3, :4].astype(np.int32)  # torch's rule: the index may reach over less of the other axes
    np.testing.assert_array_equal(bc.gather(x, less, axis=axis), one_by_one(x, less, axis % 3))


def test_gather_as_torch():
    torch = pytest.importorskip("torch")
    x, index = RNG.standard_normal((4, 6, 5)), RNG.integers(0, 6, (3, 9, 5))
    np.testing.assert_array_equal(bc.gather(x, index, axis=1), torch.gather(torch.tensor(x), 1, torch.tensor(index)))


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (0, 2)])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_take(axis, shape):
    x = RNG.standard_normal((3, 4, 5))
    indices = RNG.integers(0, x.shape[axis], shape)
    np.testing.assert_array_equal(bc.take(x, indices, axis=axis), np.take(x, indices, axis))


def test_index_select_as_torch():
    torch = pytest.importorskip("torch")
    x, indices = RNG.standard_normal((4, 6, 5)), RNG.integers(0, 6, 9)
    wanted = torch.index_select(torch.tensor(x), 1, torch.tensor(indices))
    np.testing.assert_array_equal(bc.index_select(x, indices, axis=1), wanted)


def test_out_of_range_reads_zero(monkeypatch):
    x = RNG.standard_normal((3, 2))
    index = np.array([[-1, 0], [3, -3], [2**62, -(2**63)]])
    np.testing.assert_array_equal(bc.gather(x, index, axis=0), one_by_one(x, index, 0))
    np.testing.assert_array_equal(bc.take(x, np.array([1, -1, 3, -4])), [x[1], x[2], [0, 0], [0, 0]])
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    with pytest.raises(InvalidProblemError, match=r"an index must lie in \[-3, 3\)"):
        bc.gather(x, index, axis=0)
    for wrong in (3, -4):
        with pytest.raises(InvalidProblemError, match=r"an index must lie in \[-3, 3\)"):
            bc.take(x, np.array([wrong]))
    for kind in (np.int64, np.int32):  # the least number is meant to name nothing
        np.testing.assert_array_equal(bc.take(x, np.array([np.iinfo(kind).min, -2], kind)), [[0, 0], x[1]])


def test_an_axis_of_no_element():
    np.testing.assert_array_equal(bc.take(np.zeros((0, 3)), np.array([0, 1])), np.zeros((2, 3)))
    np.testing.assert_array_equal(bc.gather(np.zeros((2, 0)), np.zeros((2, 1), int), axis=1), np.zeros((2, 1)))


@pytest.mark.parametrize(
    ("facts", "match"),
    [
        ({"axis": 2}, r"axis must be in \[-2, 1\]"),
        ({"index_shape": (4,)}, "index must have the rank of x"),
        ({"index_shape": (4, 9)}, "no longer axes but axis 0"),
        ({"shape": (), "index_shape": ()}, "of which there is none"),
    ],
)
def test_refused(facts, match):
    with pytest.raises(InvalidProblemError, match=match):
        GatherDescriptor(**{"shape": (3, 8), "index_shape": (5, 8), "axis": 0, "element": "float32"} | facts)


# ---- words ----------------------------------------------------------------------------------------------------------


def width(x, indices, y, axis):
    desc = TakeDescriptor(shape=x.shape, index_shape=indices.shape, axis=axis, element=x.dtype)
    plan = TakePlan.select(desc, device=emulator.emulated_device(9.0))
    args = TakePlan.args(x=pointer_view(x), indices=pointer_view(indices), y=pointer_view(y))
    return plan.plan_layout(args)[1].steps[0].axes["BYTES"]


def aligned(shape, dtype=np.float16):
    return lay_out(np.zeros(shape, dtype), Placement()).view


def test_rows_move_in_the_widest_words():
    indices = np.zeros(5, np.int64)
    assert width(aligned((9, 64)), indices, aligned((5, 64)), 0) == 16
    assert width(aligned((9, 12)), indices, aligned((5, 12)), 0) == 8
    assert width(aligned((9, 7)), indices, aligned((5, 7)), 0) == 2
    assert width(aligned((9, 65))[:, 1:], indices, aligned((5, 64)), 0) == 2
    assert width(aligned((3, 9, 2, 4)), indices, aligned((3, 5, 2, 4)), 1) == 16  # axes behind the indexed one merge
    assert width(aligned((64, 9)), indices, aligned((64, 5)), 1) == 2


def test_a_broadcast_index_moves_rows_whole():
    x, y = aligned((9, 64), np.float32), aligned((5, 64), np.float32)
    index = np.broadcast_to(np.zeros((5, 1), np.int64), (5, 64))
    plan = GatherPlan.select(
        GatherDescriptor(shape=(9, 64), index_shape=(5, 64), axis=0, element="float32"),
        device=emulator.emulated_device(9.0),
    )
    args = GatherPlan.args(x=pointer_view(x), index=pointer_view(index), y=pointer_view(y))
    assert plan.plan_layout(args)[1].steps[0].axes["BYTES"] == 16


LAYOUTS = {
    "dense": Placement(),
    "offset": Placement(offset=1),
    "padded": Placement(pads=(0, 3, 0)),
    "reversed": Placement(flips=(True, False, True)),
    "moved": Placement(order=(2, 0, 1)),
    "step": Placement(steps=(1, 1, 2)),
}


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(
    "layouts",
    [("dense", "dense"), ("offset", "dense"), ("padded", "offset"), ("reversed", "moved"), ("moved", "step")],
    ids="-".join,
)
def test_layouts_emulated(layouts, axis):
    kinds = (ElementKind.U8, ElementKind.F16, ElementKind.F32, ElementKind.C128)
    for n, row in enumerate((8, 24, 7, 4)):
        desc = TakeDescriptor(shape=(3, 5, row), index_shape=(6,), axis=axis, element=kinds[(n + axis) % 4])
        ready = operands(fill(TakePlan, desc, np.random.default_rng(n)))
        for name, layout in zip(("x", "y"), layouts, strict=True):
            ready.laid[name] = lay_out(ready.laid[name].view, LAYOUTS[layout], None if name == "x" else 0xFF)
        emulate(TakePlan.select(desc, device=emulator.emulated_device(9.0)), ready)
