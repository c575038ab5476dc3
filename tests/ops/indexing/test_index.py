"""Advanced indexing: every key of NumPy's, read, written and added to; functions by coordinates and along axes."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.plan import Plan
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.indexing.index import IndexBackwardDescriptor, IndexBackwardPlan, IndexDescriptor, IndexPlan
from baracuda_py.ops.indexing.index_put import IndexPutDescriptor, IndexPutPlan
from baracuda_py.testing.places import call

RNG = np.random.default_rng(8)
X = RNG.standard_normal((4, 5, 6, 7))
P, Q, R = RNG.integers(-4, 4, (3, 1)), RNG.integers(-5, 5, 2), RNG.integers(-6, 6, (3, 2))
ALL = slice(None)
KEYS = [
    (P, Q), (P, ALL, R), (ALL, Q, R), (ALL, Q, ALL, np.array([1, -1])), (P, 0), (0, ALL, R), (ALL, 1, R),
    (P, slice(1, 4), R), (P, ALL, slice(0, 6, 2)), (..., np.array([3])), (np.array(2),), (ALL, np.array(2), 1),
    (P, Q, R, 3), (P, ..., Q), (P, Q, slice(None, None, -1)), (P, slice(4, 0, -2), ..., 2), (P.astype(np.int32), Q),
    (np.zeros((0, 2), int), Q), (slice(2, 2), Q),
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS, ids=range(len(KEYS)))
def test_keys_are_numpy_s(key):
    wanted = X[key]
    np.testing.assert_array_equal(bc.index(X, key), wanted)
    values = RNG.standard_normal(wanted.shape)
    y = X.copy()
    y[key] = values
    np.testing.assert_array_equal(bc.index_put(X, key, values), y)
    y = X.copy()
    np.add.at(y, key, values)
    np.testing.assert_allclose(bc.index_put(X, key, values, accumulate=True), y, rtol=1e-12)
    y = X.copy()
    y[key] = 2.5
    np.testing.assert_array_equal(bc.index_put(X, key, 2.5), y)


def test_axes_that_are_put_in():
    for key in ((P, None, Q), (None, np.array([1, 2])), (ALL, None, Q)):
        np.testing.assert_array_equal(bc.index(X, key), X[key])


def test_masks():
    mask, wide = RNG.random((4, 5)) < 0.4, RNG.random((5, 6)) < 0.5
    n = int(mask.sum())
    np.testing.assert_array_equal(bc.index(X, mask, size=n), X[mask])
    np.testing.assert_array_equal(bc.index(X, mask, size=n + 2)[n:], 0)
    np.testing.assert_array_equal(bc.index(X, (ALL, wide), size=int(wide.sum())), X[:, wide])
    y = X.copy()
    y[mask] = 7
    np.testing.assert_array_equal(bc.index_put(X, mask, 7), y)
    y[mask] = -X[mask]
    np.testing.assert_array_equal(bc.index_put(X, mask, -X[mask], size=n), y)


def test_out_of_range(monkeypatch):
    x = np.arange(6.0).reshape(2, 3)
    i, j = np.array([0, 2, 1, -3]), np.array([1, 1, -4, 0])
    np.testing.assert_array_equal(bc.index(x, (i, j)), [1, 0, 0, 0])
    np.testing.assert_array_equal(bc.index_put(x, (i, j), 9.0), [[0, 9, 2], [3, 4, 5]])
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    for function in (lambda: bc.index(x, (i, j)), lambda: bc.index_put(x, (i, j), 9.0)):
        with pytest.raises(InvalidProblemError, match=r"an index of axis 0 must lie in \[-2, 2\)"):
            function()


@pytest.mark.parametrize(
    ("key", "match"),
    [
        ((ALL, 1), "must have an index array"),
        ((P, Q, R, 3, 1), "names 5 axes"),
        ((..., P, ...), "its dots twice"),
        (([0, 1],), r"key\[0\] must be an index array"),
        ((np.zeros(2),), "must be int64, int32 or bool"),
        ((RNG.random((4, 5)) < 0.4,), "give size="),
        ((P, 5), "names 5 of axis 1"),
        ((P, np.zeros((2, 4), int)), "must broadcast together"),
    ],
)
def test_refused(key, match):
    with pytest.raises(InvalidProblemError, match=match):
        bc.index(X, key)


AT = np.array([0, 2])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (
            lambda x: bc.index_add(x, AT.astype(np.int16), x[:2], axis=0, alpha=2),
            "index must be int64 or int32, got int16",
        ),
        (lambda x: bc.index_add(x, AT, x[:1], axis=0, alpha=2), r"src must have shape \(2, 4\), .* got \(1, 4\)"),
        (lambda x: bc.index_copy(x, AT, x[:2].astype(int), axis=0), "src must be float64, as x is, got int64"),
        (lambda x: bc.index_copy(x, AT, x[:2], axis=2), r"axis must be an integer in \[-2, 1\], got 2"),
        (lambda x: bc.index_fill(x, AT, 1, axis="rows"), "axis must be an integer, got 'rows'"),
        (lambda x: bc.index_fill(x, AT + 0.5, 1, axis=0), "index must be int64 or int32, got float64"),
        (lambda x: bc.index_reduce(x, AT, x[:2], "sum", axis=None), "axis must be an integer, got None"),
        (lambda x: bc.index_reduce(x, AT[None], x[:2], "sum", axis=0), r"index must be a vector, got shape \(1, 2\)"),
    ],
)
def test_refused_along_an_axis(call, match, monkeypatch, long_way):
    """By the names of the function, before src is scaled."""
    ran, run = [], Plan.run
    monkeypatch.setattr(Plan, "run", lambda self, *args: (run(self, *args), ran.append(self.op)))
    with pytest.raises(InvalidProblemError, match=match):
        call(np.ones((3, 4)))
    assert not ran


def test_the_last_value_wins():
    x, i = np.zeros((3, 70)), np.arange(200) % 3
    values = RNG.standard_normal((200, 70))
    np.testing.assert_array_equal(bc.index_put(x, i, values), values[[198, 199, 197]])


def test_along_an_axis():
    x, index, src = X[0, 0], np.array([1, -2, 1]), RNG.standard_normal((6, 3))
    y = x.copy()
    np.add.at(y, (ALL, index), 2 * src)
    np.testing.assert_allclose(bc.index_add(x, index, src, axis=1, alpha=2), y)
    y = x.copy()
    y[:, index] = src
    np.testing.assert_array_equal(bc.index_copy(x, index, src, axis=1), y)
    y[:, index] = 3
    np.testing.assert_array_equal(bc.index_fill(x, index, 3, axis=-1), np.where(y == 3, 3, x))
    order = np.argsort(x, 1)
    np.testing.assert_array_equal(bc.take_along_axis(x, order, 1), np.sort(x, 1))
    np.testing.assert_array_equal(bc.take_along_axis(x, order[:1], 1), np.take_along_axis(x, order[:1], 1))
    np.testing.assert_array_equal(bc.take_along_axis(x, np.array([5, -1]), None), x.reshape(-1)[[5, -1]])
    y = x.copy()
    np.put_along_axis(y, order[:, :1], 9, 1)
    np.testing.assert_array_equal(bc.put_along_axis(x, order[:, :1], 9, 1), y)


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_index_reduce_is_torch_s(reduce, include_self):
    torch = pytest.importorskip("torch")
    x, index, src = RNG.standard_normal((5, 4)), np.array([1, 3, 1]), RNG.standard_normal((3, 4))
    wanted = torch.tensor(x).index_reduce(0, torch.tensor(index), torch.tensor(src), reduce, include_self=include_self)
    found = bc.index_reduce(x, index, src, reduce, axis=0, include_self=include_self)
    np.testing.assert_allclose(found, wanted)


def test_put():
    x, places, values = X[0, 0], RNG.integers(-42, 42, (3, 4)), RNG.standard_normal((3, 4))
    for view in (x, x.T, np.ascontiguousarray(x)[::-1]):
        y = view.copy()
        np.put(y, places, values)
        np.testing.assert_array_equal(bc.put(view, places, values), y)
    out = np.zeros_like(x)
    assert bc.put(x, places, values, out=out) is out
    np.testing.assert_array_equal(out, bc.put(x, places, values))
    y = x.copy()
    np.add.at(y.reshape(-1), places, 1.0)
    np.testing.assert_allclose(bc.put(x, places, 1.0, accumulate=True), y)


def test_positions():
    dims, (i, j) = (4, 5), (RNG.integers(0, 4, (3, 1)), RNG.integers(0, 5, 6))
    for order, first in (("C", False), ("F", True)):
        places = np.ravel_multi_index((i, j), dims, order=order)
        np.testing.assert_array_equal(bc.ravel_multi_index([i, j], dims=dims, first_fastest=first), places)
        np.testing.assert_array_equal(
            bc.unravel_index(places, dims=dims, first_fastest=first), np.unravel_index(places, dims, order=order)
        )
    for mode in ("wrap", "clip"):
        far = np.ravel_multi_index((i - 9, j + 9), dims, mode=mode)
        np.testing.assert_array_equal(bc.ravel_multi_index([i - 9, j + 9], dims=dims, mode=mode), far)
    least = np.iinfo(np.int64).min
    np.testing.assert_array_equal(bc.ravel_multi_index([np.array([4, 0]), np.array([0, -1])], dims=dims), [least] * 2)
    np.testing.assert_array_equal(bc.unravel_index(np.array([20, -1]), dims=dims), [[least, 3], [least, 4]])


def test_gradients_are_torch_s():
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    for number in (1, 7, 12):
        key = tuple(torch.tensor(one) if isinstance(one, np.ndarray) else one for one in KEYS[number])
        place = torch.arange(X.size).reshape(X.shape)[key]  # of each element that the key names
        leaves = [
            torch.tensor(X, requires_grad=True),
            torch.randn(place.shape, dtype=torch.float64, requires_grad=True),
        ]
        theirs = [one.detach().clone().requires_grad_() for one in leaves]
        way = torch.randn(X.shape, dtype=torch.float64)
        made = bt.index_put(leaves[0], key, leaves[1], accumulate=True)
        (bt.index(made, key).sin().sum() + (made * way).sum()).backward()
        flat = theirs[0].reshape(-1).index_add(0, place.reshape(-1), theirs[1].reshape(-1))
        (flat[place].sin().sum() + (flat * way.reshape(-1)).sum()).backward()
        for ours, other in zip(leaves, theirs, strict=True):
            torch.testing.assert_close(ours.grad, other.grad)


def test_a_descriptor_says_what_is_wrong():
    facts = {"shape": (2, 3, 4), "index_shapes": ((2, 5), (1, 5)), "axes": (1, 2), "element": "float32"}
    assert IndexDescriptor(**facts, batch=1).out_shape == (2, 5)
    assert IndexDescriptor(**facts | {"axes": (0, 2)}).out_shape == (2, 5, 3)
    assert IndexDescriptor(**facts | {"axes": (2, 1), "place": 1}).out_shape == (2, 2, 5)
    for wrong, match in (
        ({"axes": (1,)}, "axes must name an axis for each"), ({"batch": 2}, "batch must be at most 1"),
        ({"index_shapes": ((3, 5), (5,)), "batch": 1}, "indices must begin with the axes"),
        ({"place": 2}, "place must be at most 1"),
    ):  # fmt: skip
        with pytest.raises(InvalidProblemError, match=match):
            IndexDescriptor(**facts | wrong)
    with pytest.raises(UnsupportedError):
        IndexBackwardDescriptor(**facts | {"element": "int32"})


@pytest.mark.parametrize("atomic", [False, True])
def test_sums_of_many_tokens(atomic, place):
    """Whole numbers, whose sums are exact in any order: of two axes that do not lie together, in both rows."""
    shape, tokens = (9, 3, 7), 130
    i, j = RNG.integers(-10, 10, tokens), RNG.integers(-7, 7, (tokens, 1))[:, 0]
    known = (i >= -9) & (i < 9)
    x, values = (RNG.integers(-9, 9, s).astype(np.float32) for s in (shape, (tokens, 3)))
    wanted = x.copy()
    np.add.at(wanted, (i[known], ALL, j[known]), values[known])
    facts = {"shape": shape, "index_shapes": ((tokens,), (tokens,)), "axes": (0, 2), "element": "float32"}
    preference = bc.PlanPreference(deterministic=not atomic)
    desc = IndexPutDescriptor(kind="add", **facts)
    found = call(IndexPutPlan, desc, ("y",), place, preference, x=x, indices=[i, j], values=values)["y"]
    np.testing.assert_array_equal(found, wanted)
    desc = IndexBackwardDescriptor(**facts)
    found = call(IndexBackwardPlan, desc, ("dx",), place, preference, dy=values, indices=[i, j])["dx"]
    np.testing.assert_array_equal(found, wanted - x)


def test_many_keys(place):
    x = RNG.integers(-9, 9, (2, 3) * 4).astype(np.int16)
    keys = [RNG.integers(0, 2 + k % 2, (5,) if k % 3 else (2, 1)) for k in range(8)]
    desc = IndexDescriptor(
        shape=x.shape, index_shapes=tuple(k.shape for k in keys), axes=tuple(range(8)), element="int16"
    )
    np.testing.assert_array_equal(call(IndexPlan, desc, ("y",), place, x=x, indices=keys)["y"], x[tuple(keys)])


def test_positions_take_numpy_s_parameters_in_its_order() -> None:
    at, keys = np.array([5, 7]), [np.array([1, 5]), np.array([2, 2])]
    for order in "CF":
        np.testing.assert_array_equal(bc.unravel_index(at, (3, 4), order), np.unravel_index(at, (3, 4), order))
        want = np.ravel_multi_index(keys, (3, 4), "clip", order)
        np.testing.assert_array_equal(bc.ravel_multi_index(keys, (3, 4), "clip", order), want)
    with pytest.raises(InvalidProblemError, match="first_fastest must be True or False, got 'G'"):
        bc.unravel_index(at, (3, 4), "G")
    with pytest.raises(TypeError, match="did you mean first_fastest="):
        bc.unravel_index(at, (3, 4), order="F")
