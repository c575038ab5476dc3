"""What masks choose, in order: NumPy's and torch's functions, counts, sizes, several tiles, values that count as 0."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.indexing.masked_scatter import (
    MaskedScatterBackwardDescriptor, MaskedScatterBackwardPlan, MaskedScatterDescriptor, MaskedScatterPlan,
)  # fmt: skip
from baracuda_py.ops.indexing.masked_select import (
    MaskedSelectBackwardDescriptor, MaskedSelectBackwardPlan, MaskedSelectDescriptor, MaskedSelectPlan,
)  # fmt: skip
from baracuda_py.ops.indexing.nonzero import NonzeroDescriptor, NonzeroPlan
from baracuda_py.ops.indexing.place import PlaceDescriptor, PlacePlan
from baracuda_py.schedules.compact import tile_elements
from baracuda_py.testing.places import call

RNG = np.random.default_rng(3)
X = RNG.standard_normal((6, 7))


@pytest.mark.parametrize("shape", [(), (9,), (3, 4), (2, 0, 3), (4, 3, 2)])
def test_nonzero(shape):
    x = RNG.integers(0, 2, shape).astype(np.float32)
    wanted = np.atleast_1d(x).nonzero() if not shape else x.nonzero()
    y, count = bc.nonzero(x)
    assert y.shape == (len(shape), x.size) and count == len(wanted[0])
    np.testing.assert_array_equal(y[:, : int(count)], np.array(wanted)[: len(shape)])
    assert (y[:, int(count) :] == -1).all()
    y, count = bc.argwhere(x, size=3, fill_value=8)
    found = np.argwhere(x)[:3]
    np.testing.assert_array_equal(y, np.pad(found, ((0, 3 - len(found)), (0, 0)), constant_values=8))
    np.testing.assert_array_equal(bc.nonzero_static(x, size=3, fill_value=8), y)
    y, count = bc.flatnonzero(x)
    np.testing.assert_array_equal(y[: int(count)], np.flatnonzero(x))


def test_what_is_not_zero():
    least = np.float64(5e-324)
    for x in (np.array([0.0, -0.0, least, -least, np.nan, np.inf]), np.array([0, 0, 1, -1, 2**31 - 1, -(2**31)])):
        np.testing.assert_array_equal(bc.flatnonzero(x)[0][:4], [2, 3, 4, 5])
    x = np.array([0, -0.0 - 0.0j, 1j * least, least, np.nan, -1j])
    np.testing.assert_array_equal(bc.flatnonzero(x)[0][:4], [2, 3, 4, 5])


@pytest.mark.parametrize("kind", ["uint8", "float16", "float32", "int64", "complex128"])
def test_positions_of_several_tiles(kind, place):
    """More tiles than one look back takes in, in the narrowest element; the bits that count of every width."""
    tile = tile_elements(np.dtype(kind).itemsize)
    shape = (2, tile + 3)
    if kind == "uint8" and place != "emulator":
        shape = (135, tile - 1)
    x = (RNG.random(shape) < 0.3).astype(kind)
    if x.dtype.kind in "fc":
        x[0, ::5] = -0.0
        x[1, ::7] = np.nan
    wanted = np.array(np.nonzero(x))
    for size in (wanted.shape[1] - 5, wanted.shape[1] + 300):
        desc = NonzeroDescriptor(shape=shape, size=size, fill_value=-9, element=kind)
        found = call(NonzeroPlan, desc, ("y", "count"), place, x=x)
        padded = np.full((2, size), -9)
        padded[:, : wanted.shape[1]] = wanted[:, :size]
        np.testing.assert_array_equal(found["y"], padded)
        assert found["count"] == wanted.shape[1]


@pytest.mark.parametrize("kind", ["int8", "float16", "complex64"])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_select_and_scatter_of_several_tiles(kind, share, place):
    n = 2 * tile_elements(np.dtype(kind).itemsize) + 77
    x, mask = RNG.integers(-50, 50, n).astype(kind), RNG.random(n) < share
    count, size = int(mask.sum()), n - 100
    desc = MaskedSelectDescriptor(shape=(n,), size=size, element=kind, fill_value=3.0)
    found = call(MaskedSelectPlan, desc, ("y", "count"), place, x=x, mask=mask)
    wanted = np.full(size, 3, kind)
    wanted[: min(count, size)] = x[mask][:size]
    np.testing.assert_array_equal(found["y"], wanted)
    assert found["count"] == count
    source = RNG.integers(-50, 50, (2, size // 2)).astype(kind)
    desc = MaskedScatterDescriptor(shape=(n,), source_shape=source.shape, element=kind)
    y, places = x.copy(), np.flatnonzero(mask)[: source.size]
    y[places] = source.reshape(-1)[: places.size]
    np.testing.assert_array_equal(call(MaskedScatterPlan, desc, ("y",), place, x=x, mask=mask, source=source)["y"], y)
    desc = PlaceDescriptor(shape=(n,), source_shape=(7,), kind="rank", element=kind)
    y = x.copy()
    np.place(y, mask, source[0, :7])
    got = call(PlacePlan, desc, ("y",), place, x=x, mask=mask, source=source[0, :7])["y"]
    np.testing.assert_array_equal(got, y)


def test_gradients_of_several_tiles(place):
    n, size = 2 * tile_elements(4) + 77, 3000
    dy, mask = RNG.standard_normal(n).astype(np.float32), RNG.random(n) < 0.6
    chosen = np.flatnonzero(mask)[:size]
    desc = MaskedSelectBackwardDescriptor(shape=(n,), size=size, element="float32")
    dx = np.zeros(n, np.float32)
    dx[chosen] = dy[:size]
    found = call(MaskedSelectBackwardPlan, desc, ("dx",), place, dy=dy[:size], mask=mask)
    np.testing.assert_array_equal(found["dx"], dx)
    for room in (size, n):
        desc = MaskedScatterBackwardDescriptor(shape=(n,), source_shape=(room,), element="float32")
        taken = np.flatnonzero(mask)[:room]
        wanted = {"dx": dy.copy(), "dsource": np.zeros(room, np.float32)}
        wanted["dx"][taken], wanted["dsource"][: taken.size] = 0, dy[taken]
        for names in (("dx", "dsource"), ("dx",), ("dsource",)):
            found = call(MaskedScatterBackwardPlan, desc, names, place, dy=dy, mask=mask)
            for name in names:
                np.testing.assert_array_equal(found[name], wanted[name])


@pytest.mark.parametrize(
    "views", [(slice(1, None), slice(None)), (slice(None), slice(1, None)), (slice(None, None, 2),) * 2]
)
def test_views_that_no_wide_access_reads(views, place):
    """A mask and x one element off, or every second one: read one by one, with the same result."""
    n = 5000
    x, mask = (
        RNG.integers(-50, 50, 2 * n + 2).astype(np.int16)[views[0]][:n],
        (RNG.random(2 * n + 2) < 0.5)[views[1]][:n],
    )
    found = call(
        MaskedSelectPlan, MaskedSelectDescriptor(shape=(n,), element="int16"), ("y", "count"), place, x=x, mask=mask
    )
    np.testing.assert_array_equal(found["y"][: int(found["count"])], x[mask])
    source = RNG.integers(-50, 50, n).astype(np.int16)
    desc = MaskedScatterDescriptor(shape=(n,), source_shape=(n,), element="int16")
    y = x.copy()
    y[mask] = source[: int(mask.sum())]
    np.testing.assert_array_equal(call(MaskedScatterPlan, desc, ("y",), place, x=x, mask=mask, source=source)["y"], y)


def test_functions_are_numpy_s():
    y, count = bc.masked_select(X, X > 0)
    np.testing.assert_array_equal(y[: int(count)], X[X > 0])
    np.testing.assert_array_equal(bc.extract(X > 0, X, size=5)[0], X[X > 0][:5])
    row = X[0] > 0
    y, count = bc.masked_select(X, row, size=9, fill_value=-1)
    np.testing.assert_array_equal(y, np.pad(X[:, row].reshape(-1), (0, 9))[:9])
    for axis, condition in ((0, [1, 0, 1]), (-1, [0, 1, 1, 0, 0, 0, 1]), (None, [0, 1, 1])):
        wanted = np.compress(condition, X, axis=axis)
        y, count = bc.compress(np.array(condition), X, axis=axis)
        kept = np.moveaxis(y, 0 if axis is None else axis, 0)
        np.testing.assert_array_equal(kept[: int(count)], np.moveaxis(wanted, 0 if axis is None else axis, 0))
        assert not kept[int(count) :].any()
    values = np.array([1.0, 2.0, 3.0])
    for ours, theirs in ((bc.place, np.place), (bc.putmask, np.putmask)):
        y = X.copy()
        theirs(y, X > 0, values)
        np.testing.assert_array_equal(ours(X, X > 0, values), y)
        np.testing.assert_array_equal(ours(X, X > 0, np.zeros(0)), X)


def test_positions_are_written_in_part():
    """The positions alone, or their number alone, and into views of other strides."""
    number, rows = np.zeros((), np.int64), np.full((2, 20), 7, np.int64).T[::2]
    places, count = bc.argwhere(X > 0)
    assert bc.argwhere(X > 0, size=10, out=(rows, None))[0] is rows
    np.testing.assert_array_equal(rows, places[:10])
    flat = rows[:, 0]
    assert bc.flatnonzero(X > 0, size=10, out=(flat, None))[0] is flat
    np.testing.assert_array_equal(flat, bc.flatnonzero(X > 0, size=10)[0])
    mask = np.array([True, False, True])
    for function, found in (
        (bc.argwhere, count),
        (bc.flatnonzero, count),
        (lambda m, out: bc.compress(mask, X, axis=0, out=out), 2),
    ):
        assert function(X > 0, out=(None, number))[1] is number and number == found
    with pytest.raises(InvalidProblemError, match="two axes"):
        bc.nonzero_static(X, size=3, out=np.zeros(3, np.int64))
    with pytest.raises(InvalidProblemError, match="2 arrays"):
        bc.flatnonzero(X, out=number)


def test_a_source_that_is_short(monkeypatch):
    mask = np.array([True, False, True, True])
    x, source = np.zeros(4), np.array([5.0, 6.0])
    np.testing.assert_array_equal(bc.masked_scatter(x, mask, source), [5, 0, 6, 0])
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    with pytest.raises(InvalidProblemError, match="source must have the 3 elements"):
        bc.masked_scatter(x, mask, source)
    np.testing.assert_array_equal(bc.compress(mask, x + 1)[0], [1, 1, 1, 0])  # what fills up is no wrong index


def test_gradients_are_torch_s():
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    x, source = (torch.randn(5, 6, dtype=torch.float64, requires_grad=True) for _ in range(2))
    mask = torch.rand(6) < 0.5
    y, _ = bt.masked_select(bt.masked_scatter(x, mask, source), mask, size=int(5 * mask.sum()))
    theirs = [one.detach().clone().requires_grad_() for one in (x, source)]
    z = theirs[0].masked_scatter(mask, theirs[1])[:, mask].reshape(-1)
    torch.testing.assert_close(y, z)
    y.sin().sum().backward()
    z.sin().sum().backward()
    for ours, other in zip((x, source), theirs, strict=True):
        torch.testing.assert_close(ours.grad, torch.zeros_like(ours) if other.grad is None else other.grad)
