"""scatter and the gradients of gather and take: NumPy, torch, the order of sums, long, skewed and short lines."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.indexing.gather_backward import (
    GatherBackwardDescriptor, GatherBackwardPlan, TakeBackwardDescriptor, TakeBackwardPlan,
)  # fmt: skip
from baracuda_py.ops.indexing.scatter import ScatterDescriptor, ScatterPlan
from baracuda_py.ops.indexing.scatter_backward import ScatterBackwardDescriptor, ScatterBackwardPlan
from baracuda_py.schedules.scatter import FEW
from baracuda_py.testing import emulator
from baracuda_py.testing.places import call

RNG = np.random.default_rng(5)


COMBINE = {"set": lambda own, token: token, "add": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def named(index, extent, axis):
    """Each token's place, and the element that it names."""
    for at in np.ndindex(index.shape):
        if -extent <= index[at] < extent:
            yield at, (*at[:axis], index[at] % extent, *at[axis + 1 :])


def one_by_one(x, index, src, axis, kind):
    y = np.array(x)
    with np.errstate(over="ignore"):
        for at, to in named(index, x.shape[axis], axis):
            y[to] = COMBINE[kind](y[to], src[at])
    return y


def gradients_one_by_one(dy, index, axis, kind):
    dx, dsrc, winner = np.array(dy), np.zeros(index.shape, dy.dtype), {}
    for at, to in named(index, dy.shape[axis], axis):
        dsrc[at] = dy[to]
        if kind == "set":
            dx[to] = 0
            if to in winner:
                dsrc[winner[to]] = 0
            winner[to] = at
    return {"dx": dx, "dsrc": dsrc}


FUNCTIONS = {
    "set": bc.scatter,
    "add": bc.scatter_add,
    "prod": bc.scatter_prod,
    "amax": bc.scatter_amax,
    "amin": bc.scatter_amin,
}


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(7, 3, 4), (2, 9, 3), (1, 1, 70)])
@pytest.mark.parametrize("dtype", [np.float64, np.int8, np.uint64])
def test_scatter(axis, shape, dtype):
    x = (10 * RNG.standard_normal([max(n, 4) for n in shape])).astype(dtype)
    src = (100 * RNG.standard_normal(shape)).astype(dtype)  # sums of int8 wrap
    index = RNG.integers(-1, x.shape[axis] + 1, shape)
    for kind, function in FUNCTIONS.items():
        wanted = one_by_one(x, index, src, axis % 3, kind)
        np.testing.assert_array_equal(function(x, index, src, axis=axis), wanted)
        y = np.array(x)
        function(y, index, src, axis=axis, out=y)  # in place
        np.testing.assert_array_equal(y, wanted)


def test_as_torch():
    torch = pytest.importorskip("torch")
    x, src = RNG.standard_normal((6, 5)), RNG.standard_normal((4, 5))
    index = np.stack([RNG.permutation(6)[:4] for _ in range(5)], 1)  # each place once: torch leaves the rest open
    t, i, s = torch.tensor(x), torch.tensor(index), torch.tensor(src)
    np.testing.assert_array_equal(bc.scatter(x, index, src, axis=0), t.scatter(0, i, s))
    index = RNG.integers(0, 6, (4, 5))
    wanted = t.scatter_add(0, torch.tensor(index), s)
    np.testing.assert_allclose(bc.scatter_add(x, index, src, axis=0), wanted, atol=1e-14)
    src[1, 2], src[0, 3], x[2] = np.nan, np.inf, -0.0
    for kind in ("prod", "amax", "amin"):
        wanted = torch.tensor(x).scatter_reduce(0, torch.tensor(index), torch.tensor(src), kind)
        np.testing.assert_allclose(FUNCTIONS[kind](x, index, src, axis=0), wanted, rtol=1e-14)


def test_checked_run(monkeypatch):
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    x, src = np.zeros((3, 2)), np.ones((1, 2))
    np.testing.assert_array_equal(bc.scatter_add(x, np.array([[0, 2]]), src, axis=0), [[1, 0], [0, 0], [0, 1]])
    with pytest.raises(InvalidProblemError, match=r"an index must lie in \[-3, 3\)"):
        bc.scatter_add(x, np.array([[0, -4]]), src, axis=0)


def test_gradients_are_adjoint():
    x, index = RNG.standard_normal((4, 6, 3)), RNG.integers(-2, 8, (3, 9, 3))
    dy = RNG.standard_normal(index.shape)
    dx = bc.gather_backward(dy, index, shape=x.shape, axis=1)
    np.testing.assert_allclose(np.vdot(dy, bc.gather(x, index, axis=1)), np.vdot(dx, x), rtol=1e-12)
    indices = RNG.integers(-2, 8, (5, 2))
    dy = RNG.standard_normal((4, 5, 2, 3))
    dx = bc.take_backward(dy, indices, shape=x.shape, index_shape=indices.shape, axis=1)
    np.testing.assert_allclose(np.vdot(dy, bc.take(x, indices, axis=1)), np.vdot(dx, x), rtol=1e-12)


def test_gradients_of_scatter():
    dy = RNG.standard_normal((3, 5))
    index = np.array([[0, 2, 0, 5], [-6, 1, 1, 1]])  # 5 and -6 write nothing
    dx, dsrc = bc.scatter_backward(dy, index, axis=1)
    np.testing.assert_array_equal(dx, dy * [[0, 1, 0, 1, 1], [1, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    np.testing.assert_array_equal(dsrc, [[0, dy[0, 2], dy[0, 0], 0], [0, 0, 0, dy[1, 1]]])
    dx, dsrc = bc.scatter_add_backward(dy, index, axis=1)
    np.testing.assert_array_equal(dx, dy)
    np.testing.assert_array_equal(dsrc, [[dy[0, 0], dy[0, 2], dy[0, 0], 0], [0, *dy[1, [1, 1, 1]]]])
    with pytest.raises(UnsupportedError, match="no gradient for kind amax"):
        ScatterBackwardDescriptor(kind="amax", shape=(3, 5), index_shape=(2, 4), axis=1, element="float64")


def test_gradient_of_a_table_is_that_of_embedding():
    indices, dy = RNG.integers(0, 12, (50, 3)), RNG.standard_normal((50, 3, 8))
    wanted = bc.embedding_backward(dy, indices, num_embeddings=11)
    got = bc.take_backward(dy, indices, shape=(11, 8), index_shape=indices.shape, axis=0)
    np.testing.assert_allclose(got, wanted, atol=1e-13)


# ---- kernels --------------------------------------------------------------------------------------------------------

LINES = [  # shape, index_shape, axis: tokens of a line around the limit, around a range's positions, several parts
    ((5, 3), (FEW, 3), 0),
    ((5, 3), (FEW + 1, 3), 0),
    ((3, 9), (2, 200), 1),
    ((4096,), (1025,), 0),
    ((4097,), (2100,), 0),
    ((9001,), (70,), 0),
    ((2, 7, 16), (2, 80, 16), 1),
    ((3, 8, 2), (2, 80, 1), 1),
    ((9,), (8200,), 0),  # longer than a block holds, sorted by counts and by a radix sort
    ((66000,), (8200,), 0),
]


@pytest.mark.parametrize("lines", LINES, ids=str)
@pytest.mark.parametrize("kind", COMBINE)
def test_lines(kind, lines, place):
    """Whole numbers: their sums are exact in every order."""
    shape, index_shape, axis = lines
    x = RNG.integers(-9, 9, shape).astype(np.float32)
    src = (RNG.choice((-1, 1, 2), index_shape) if kind == "prod" else RNG.integers(-9, 9, index_shape)).astype(
        np.float32
    )
    spread = RNG.integers(-2, shape[axis] + 2, index_shape)
    skewed = np.where(RNG.random(index_shape) < 0.8, shape[axis] // 2, spread)
    desc = ScatterDescriptor(kind=kind, shape=shape, index_shape=index_shape, axis=axis, element="float32")
    for index in (spread, skewed.astype(np.int32)):
        got = call(ScatterPlan, desc, ["y"], place, x=x, index=index, src=src)["y"]
        np.testing.assert_array_equal(got, one_by_one(x, index, src, axis, kind))


@pytest.mark.parametrize("lines", LINES, ids=str)
@pytest.mark.parametrize("kind", ["set", "add"])
def test_gradients_of_lines(kind, lines, place):
    shape, index_shape, axis = lines
    desc = ScatterBackwardDescriptor(kind=kind, shape=shape, index_shape=index_shape, axis=axis, element="float16")
    dy, index = RNG.standard_normal(shape).astype(np.float16), RNG.integers(-2, shape[axis] + 2, index_shape)
    wanted = gradients_one_by_one(dy, index, axis, kind)
    for names in (["dx", "dsrc"], ["dsrc"], ["dx"]):
        got = call(ScatterBackwardPlan, desc, names, place, dy=dy, index=index)
        for name in names:
            np.testing.assert_array_equal(got[name], wanted[name])


@pytest.mark.parametrize("rows", [(3, 16), (64 + 5, 2), (1500,)], ids=str)
@pytest.mark.parametrize("shape", [(2, 9, 16), (5, 1, 3), (5000,)], ids=str)
def test_slices(shape, rows, place):
    axis = 1 if len(shape) > 1 else 0
    desc = TakeBackwardDescriptor(shape=shape, index_shape=rows, axis=axis, element="float16")
    indices = RNG.integers(-1, shape[axis] + 1, rows)
    dy = RNG.integers(0, 2, desc.out_shape).astype(np.float16) * (RNG.random(desc.out_shape) < 0.3)
    wanted = np.zeros((shape[axis], *shape[:axis], *shape[axis + 1 :]))
    for at in np.ndindex(rows):
        if -shape[axis] <= indices[at] < shape[axis]:
            wanted[indices[at]] += dy[(slice(None),) * axis + at].astype(np.float64)
    got = call(TakeBackwardPlan, desc, ["dx"], place, dy=dy, indices=indices)["dx"]
    np.testing.assert_array_equal(got, np.moveaxis(wanted, 0, axis))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("each", [1, 2, 32, 33])
def test_lists_of_every_length_are_in_order(each):
    """As many tokens of each position, in no order: a thread takes short lists, a warp long ones."""
    extent = 12
    index = RNG.permutation(np.repeat(np.arange(extent), each * np.arange(extent) % 40 + each))
    dy = (RNG.standard_normal(index.size) * 10.0 ** RNG.integers(-4, 5, index.size)).astype(np.float32)
    wanted = np.zeros(extent, np.float32)
    for at, value in zip(index, dy, strict=True):
        wanted[at] += value
    desc = GatherBackwardDescriptor(shape=(extent,), index_shape=index.shape, axis=0, element="float32")
    got = call(GatherBackwardPlan, desc, ["dx"], "emulator", dy=dy, index=index)["dx"]
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("count", [FEW, 300, 8200])
def test_sums_are_in_the_order_of_the_tokens(count):
    """1 is lost behind 2^24 in float32: a sum in another order, or in pairs, is another number."""
    dy = np.ones(count, np.float32)
    dy[0] = dy[count // 2] = 2.0**24
    dy[count // 2] *= -1
    desc = GatherBackwardDescriptor(shape=(3,), index_shape=(count,), axis=0, element="float32")
    got = call(GatherBackwardPlan, desc, ["dx"], "emulator", dy=dy, index=np.ones(count, np.int64))["dx"]
    total = np.float32(0)
    for value in dy:
        total += value
    np.testing.assert_array_equal(got, [0, total, 0])
    assert total == count - count // 2 - 1


def test_workspace_is_of_the_size_of_the_index():
    """Many short lines do not each take a whole range of counts."""
    desc = GatherBackwardDescriptor(shape=(4096, 128), index_shape=(4096, 128), axis=1, element="float32")
    plan = GatherBackwardPlan.select(desc, device=emulator.emulated_device(9.0))
    assert plan.workspace_size() < 4 * 4096 * 128 * 4
    few = GatherBackwardDescriptor(shape=(4096, 128), index_shape=(4096, FEW), axis=1, element="float32")
    assert GatherBackwardPlan.select(few, device=emulator.emulated_device(9.0)).workspace_size() == 0
