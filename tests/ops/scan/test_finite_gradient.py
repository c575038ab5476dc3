"""gradient: what NumPy and torch say, over spacings, orders and axes; its gradient against differences; the kernels."""

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import BaracudaError, InvalidProblemError
from baracuda_py.ops.scan.finite_gradient import (
    FiniteGradientBackwardPlan, FiniteGradientDescriptor, FiniteGradientPlan,
)  # fmt: skip
from baracuda_py.testing.places import call

X = np.random.default_rng(0).standard_normal((6, 7, 5))
PLACES = [np.sort(np.random.default_rng(n).standard_normal(n)) for n in X.shape]


def same(found, wanted):
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, (tuple, list)) else [(found, wanted)]
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("edge_order", [1, 2])
def test_what_numpy_says(edge_order):
    for spacing in ((), (0.5,), (1.0, 2.0, 3.0), PLACES, (0.5, PLACES[1], 3)):
        same(bc.gradient(X, *spacing, edge_order=edge_order), np.gradient(X, *spacing, edge_order=edge_order))
    for axis in (0, -1, (0, 2), (1,)):
        same(bc.gradient(X, axis=axis, edge_order=edge_order), np.gradient(X, axis=axis, edge_order=edge_order))
    same(bc.gradient(X, PLACES[2], axis=2), np.gradient(X, PLACES[2], axis=2))


def test_slopes_of_parabolas_are_exact_in_second_order():
    at = np.array([0.0, 1, 3, 3.5, 7])
    np.testing.assert_allclose(bc.gradient(at**2, at, edge_order=2), 2 * at, rtol=1e-14)
    np.testing.assert_array_equal(bc.gradient(np.array([1.0, 4]), 2.0), [1.5, 1.5])
    infinite = bc.gradient(np.array([1, 2, np.inf, 4, 5]))
    np.testing.assert_array_equal(infinite, [1, np.inf, 1, -np.inf, 1])


@pytest.mark.parametrize("edge_order", [1, 2])
@pytest.mark.parametrize("spacing", [(0.5,), (PLACES[1],)])
def test_the_gradient_is_torch_s(place, edge_order, spacing):
    torch = pytest.importorskip("torch")
    dy = np.random.default_rng(1).standard_normal(X.shape)
    leaf = torch.tensor(X, requires_grad=True)
    steps = tuple(torch.tensor(s) if isinstance(s, np.ndarray) else s for s in spacing)
    (y,) = torch.gradient(leaf, spacing=steps, dim=1, edge_order=edge_order)
    (dx,) = torch.autograd.grad(y, leaf, torch.tensor(dy))
    name = {"places": spacing[0]} if isinstance(spacing[0], np.ndarray) else {"spacing": spacing[0]}
    desc = FiniteGradientDescriptor(shape=X.shape, axis=1, edge_order=edge_order, element="float64")
    found = call(FiniteGradientPlan, desc, ("y",), place, x=X, **name)["y"]
    np.testing.assert_allclose(found, y.detach().numpy(), rtol=1e-9, atol=1e-9)
    found = call(FiniteGradientBackwardPlan, desc, ("dx",), place, dy=dy, **name)["dx"]
    np.testing.assert_allclose(found, dx.numpy(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(bc.gradient_backward(dy, *spacing, axis=1, edge_order=edge_order), dx.numpy(), atol=1e-9)


@pytest.mark.parametrize(
    ("args", "options", "what"),
    [((1.0, 2.0), {}, "one for all of 3"), ((PLACES[0],), {}, "those of one axis"), ((), {"axis": 3}, "axis must be"),
     ((), {"axis": (0, -3)}, "twice"), ((), {"edge_order": 3}, "edge_order"), ((PLACES[0],), {"axis": 1}, "places"),
     ((), {"axis": True}, "axis must be")],
)  # fmt: skip
def test_what_is_refused(args, options, what):
    with pytest.raises(BaracudaError, match=what):
        bc.gradient(X, *args, **options)
    with pytest.raises(InvalidProblemError, match="more than 2 elements"):
        bc.gradient(X[:2], axis=0, edge_order=2)


@pytest.mark.parametrize("edge_order", [1, 2])
def test_elements_at_one_place_spoil_only_the_slopes_that_read_them(place, edge_order):
    at = np.array([0.0, 1, 3, 3, 4, 7, 8, 9])
    desc = FiniteGradientDescriptor(shape=at.shape, edge_order=edge_order, element="float64")
    given = {"x": at**2 + 1, "places": at}
    with np.errstate(all="ignore"):
        wanted = np.gradient(given["x"], at, edge_order=edge_order)
    assert list(np.isfinite(wanted)) == [True, True, False, False, True, True, True, True]
    for y in (call(FiniteGradientPlan, desc, ("y",), place, **given)["y"], bc.gradient(*given.values())):
        assert not np.isfinite(y[2:4]).any()
        np.testing.assert_allclose(y[4:7], wanted[4:7], rtol=1e-14)
    dx = call(FiniteGradientBackwardPlan, desc, ("dx",), place, dy=np.ones(8), places=at)["dx"]
    made = FiniteGradientBackwardPlan.reference(desc, dy=np.ones(8), places=at, spacing=1.0)["dx"]
    np.testing.assert_array_equal(np.isfinite(dx), np.isfinite(made))
    np.testing.assert_allclose(dx[5:], made[5:], rtol=1e-14)


@pytest.mark.parametrize("edge_order", [1, 2])
def test_several_elements_at_one_place(place, edge_order):
    """A central slope between them is (x[2] - x[0]) / 0, which hands back as much with either sign."""
    at = np.array([0.0, 1, 1, 1, 2, 3])
    desc = FiniteGradientDescriptor(shape=at.shape, edge_order=edge_order, element="float64")
    y = call(FiniteGradientPlan, desc, ("y",), place, x=np.array([0.0, 1, 4, 3, 5, 6]), places=at)["y"]
    np.testing.assert_array_equal(y[1:4], [np.inf, np.inf, -np.inf])
    dy = np.zeros(6)
    dx = call(FiniteGradientBackwardPlan, desc, ("dx",), place, dy=dy + 1, places=at)["dx"]
    first = -np.inf if edge_order == 1 else np.nan  # the slope at the end reads three, with both signs
    np.testing.assert_array_equal(dx[1:4], [first, np.nan, np.inf])
    same = FiniteGradientDescriptor(shape=(3,), edge_order=1, element="float64")
    found = call(FiniteGradientBackwardPlan, same, ("dx",), place, dy=np.array([1.0, 2, 0.5]), places=np.ones(3))["dx"]
    np.testing.assert_array_equal(found, [-np.inf, np.nan, np.inf])


def test_a_distance_of_0(place):
    desc = FiniteGradientDescriptor(shape=(4,), element="float32")
    y = call(FiniteGradientPlan, desc, ("y",), place, x=np.array([1.0, 2, 5, 3]), spacing=0.0)["y"]
    np.testing.assert_array_equal(y, [np.inf, np.inf, np.inf, -np.inf])


@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("n", [3, 40, 300, 8192])
def test_drawn_places_are_apart(element, n):
    desc = FiniteGradientDescriptor(shape=(n,), element=element)
    arrays = {"places": np.zeros(n)}
    FiniteGradientPlan.complete(desc, arrays)
    assert arrays["places"].dtype == desc.element.dtype
    places = arrays["places"].astype(float)
    assert np.isfinite(places).all()
    assert (np.diff(places) > 0).all()


@pytest.mark.parametrize("element", ["float32", "float64", "float16"])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("plan", [FiniteGradientPlan, FiniteGradientBackwardPlan])
def test_chunks_have_the_bits_of_elements(place, element, axis, plan):
    """Aligned arrays go by chunks, rows of odd length by elements; of infinities and the ends of the range too."""
    x = np.random.default_rng(3).standard_normal((40, 64))
    x[5, 9], x[20, 20], x[0, 0], x[33, 62] = np.inf, 1e300, -np.inf, 1e-320
    with np.errstate(over="ignore"):
        x = x.astype(element)
    name, out = ("x", "y") if plan is FiniteGradientPlan else ("dy", "dx")

    def run(where, given, along):
        desc = FiniteGradientDescriptor(shape=given.shape, axis=along, edge_order=2, element=element)
        return call(plan, desc, (out,), where, **{name: given}, spacing=0.7)[out]

    rows = x if axis == 0 else x.T
    odd = np.concatenate([rows, rows[:, :1]], 1)
    one_by_one = run(place, odd, 0)[:, :-1]
    wide = run(place, x, axis)
    np.testing.assert_array_equal(wide, one_by_one if axis == 0 else one_by_one.T)
    close = {"rtol": 4 * np.finfo(x.dtype).eps, "atol": 1e-14 if element == "float64" else 1e-30}
    np.testing.assert_allclose(wide, run("numpy", x, axis), **close)
