"""scatter_reduce: torch's kinds with and without what was there, means of integers, and the gradients of torch."""

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.ops.indexing.scatter import ScatterDescriptor, ScatterPlan
from baracuda_py.testing.places import call

KINDS = ("sum", "prod", "mean", "amax", "amin")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((4, 6))
SRC = RNG.standard_normal((4, 9))
INDEX = RNG.integers(0, 5, SRC.shape)  # nothing names the last element


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("include_self", [True, False])
def test_what_torch_says(place, kind, include_self):
    torch = pytest.importorskip("torch")
    wanted = torch.scatter_reduce(
        torch.tensor(X), 1, torch.tensor(INDEX), torch.tensor(SRC), kind, include_self=include_self
    ).numpy()
    desc = ScatterDescriptor(
        kind="add" if kind == "sum" else kind, include_self=include_self, shape=X.shape, index_shape=SRC.shape, axis=1,
        element="float64",
    )  # fmt: skip
    np.testing.assert_allclose(call(ScatterPlan, desc, ("y",), place, x=X, index=INDEX, src=SRC)["y"], wanted)
    found = bc.scatter_reduce(X, INDEX, SRC, kind, axis=1, include_self=include_self)
    np.testing.assert_allclose(found, wanted)


def test_long_lines_and_integers(place):
    """More tokens than an element looks through are sorted; means are divided downwards, of sums that do not wrap."""
    x, src = np.array([-7, 100, 3], np.int8), np.full(200, 100, np.int8)
    src[:4] = (-1, 0, -1, -1)
    index = np.full(200, 1)
    index[:4] = 0
    for include_self, wanted in ((True, [-2, 100, 3]), (False, [-1, 100, 3])):
        desc = ScatterDescriptor(
            kind="mean", include_self=include_self, shape=(3,), index_shape=(200,), axis=0, element=ElementKind.I8
        )
        y = call(ScatterPlan, desc, ("y",), place, x=x, index=index, src=src)["y"]
        np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("include_self", [True, False])
def test_gradients_are_torch_s(kind, include_self):
    torch = pytest.importorskip("torch")
    x, src = X.copy(), SRC.copy()
    if kind == "prod":
        x[0, 0], src[1, 2], src[2, :4], x[3] = 0, 0, 0, 0
    if kind in ("amax", "amin"):
        src[0, INDEX[0] == 1] = 3.0 if kind == "amax" else -3.0  # ties of tokens
        same = src[1, INDEX[1] == INDEX[1, 0]]
        if include_self:  # else torch shares with an x that has no part, and its share is lost
            x[1, INDEX[1, 0]] = same.max() if kind == "amax" else same.min()
    leaves = [torch.tensor(x, requires_grad=True), torch.tensor(src, requires_grad=True)]
    y = torch.scatter_reduce(leaves[0], 1, torch.tensor(INDEX), leaves[1], kind, include_self=include_self)
    dy = RNG.standard_normal(x.shape)
    wanted = torch.autograd.grad(y, leaves, torch.tensor(dy))
    given = y.detach().numpy() if kind.startswith("am") else None
    found = bc.scatter_reduce_backward(dy, x, INDEX, src, given, kind, axis=1, include_self=include_self)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other.numpy(), rtol=1e-12, atol=1e-12)
    single = [None if a is None else a.astype(np.float16) for a in (dy, x, src, given)]
    made = bc.scatter_reduce_backward(
        single[0], single[1], INDEX, single[2], single[3], kind, axis=1, include_self=include_self
    )
    assert all(g.dtype == np.float16 for g in made)


def test_what_is_refused():
    with pytest.raises(InvalidProblemError, match="reduce must be one of sum"):
        bc.scatter_reduce(X, INDEX, SRC, "max", axis=1)
    with pytest.raises(InvalidProblemError, match="y, the result"):
        bc.scatter_reduce_backward(X, X, INDEX, SRC, reduce="amax", axis=1)
    with pytest.raises(UnsupportedError, match="no gradient"):
        bc.scatter_reduce_backward(INDEX, INDEX, INDEX, INDEX, reduce="mean", axis=1)
    with pytest.raises(InvalidProblemError, match="include_self must be True for set"):
        ScatterDescriptor(kind="set", include_self=False, shape=(3,), index_shape=(3,), axis=0, element="float32")


@pytest.mark.parametrize("include_self", [True, False])
@pytest.mark.parametrize(("reduce", "combine"), [("sum", any), ("amax", any), ("prod", all), ("amin", all)])
def test_truths(reduce, combine, include_self):
    rng = np.random.default_rng(3)
    x, index, src = rng.random(40) < 0.5, rng.integers(-50, 50, 60), rng.random(60) < 0.5
    wanted = x.copy()
    for place in range(40):
        tokens = src[(index == place) | (index == place - 40)].tolist()
        if tokens:
            wanted[place] = combine([*tokens, *([x[place]] if include_self else [])])
    got = bc.scatter_reduce(x, index, src, reduce, axis=0, include_self=include_self)
    np.testing.assert_array_equal(got, wanted)
    if include_self and reduce == "sum":
        known = (index >= -40) & (index < 40)
        put = bc.index_put(x, (index[known],), src[known], accumulate=True)
        np.testing.assert_array_equal(put, wanted)


@pytest.mark.parametrize(
    ("reduce", "dtype"), [("mean", bool), ("prod", np.complex64), ("amax", np.complex64), ("sum", "float8_e5m2")]
)
def test_elements_that_no_device_combines(reduce, dtype):
    x = np.ones(3, getattr(ml_dtypes, dtype) if isinstance(dtype, str) else dtype)
    with pytest.raises(bc.UnsupportedError):
        bc.scatter_reduce(x, np.array([0]), x[:1], reduce, axis=0)
