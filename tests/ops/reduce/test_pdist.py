"""pdist: what torch says, with gradients, by the kernels; near rows, ends of the range, many pairs."""

import math

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.reduce.pdist import PdistBackwardPlan, PdistDescriptor, PdistPlan
from baracuda_py.testing.places import call

ORDERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf)


@pytest.mark.parametrize("p", ORDERS)
@pytest.mark.parametrize("shape", [(9, 5), (4, 300), (2, 1)])
def test_values_and_gradients_are_torch_s(place, p, shape):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape)
    x[1, 0] = x[0, 0]  # a feature in common
    leaf = torch.tensor(x, requires_grad=True)
    wanted = torch.nn.functional.pdist(leaf, p)
    desc = PdistDescriptor(rows=shape[0], features=shape[1], p=p, element="float64")
    y = call(PdistPlan, desc, ("y",), place, x=x)["y"]
    np.testing.assert_allclose(y, wanted.detach().numpy(), rtol=1e-12)
    dy = rng.standard_normal(y.shape)
    (truth,) = torch.autograd.grad(wanted, leaf, torch.tensor(dy))
    found = call(PdistBackwardPlan, desc, ("dx",), place, dy=dy, x=x, y=y)["dx"]
    np.testing.assert_allclose(found, truth.numpy(), rtol=1e-11, atol=1e-12)


def test_every_pair_is_found(place):
    """The row of a pair is a rounded root; integers along a line say which rows were taken."""
    for rows in (2, 3, 64, 211):
        x = np.arange(rows, dtype=np.float64)[:, None] ** 2
        desc = PdistDescriptor(rows=rows, features=1, p=1.0, element="float64")
        i, j = np.triu_indices(rows, 1)
        np.testing.assert_array_equal(call(PdistPlan, desc, ("y",), place, x=x)["y"], (x[j] - x[i])[:, 0])


def test_rows_that_are_near_or_far(place):
    far = np.array([[1e200, 1e200], [-1e200, 1e200], [1e-200, 0]])
    desc = PdistDescriptor(rows=3, features=2, element="float64")
    y = call(PdistPlan, desc, ("y",), place, x=far)["y"]
    np.testing.assert_allclose(y, np.array([2, math.sqrt(2), math.sqrt(2)]) * 1e200, rtol=1e-15)
    near = np.array([[1, 1], [1 + 2**-23, 1]], np.float32)
    assert bc.pdist(near) == np.float32(2**-23)
    same = np.ones((3, 4))
    for p in ORDERS:
        desc = PdistDescriptor(rows=3, features=4, p=p, element="float64")
        dx = call(PdistBackwardPlan, desc, ("dx",), place, dy=np.ones(3), x=same, y=np.zeros(3))["dx"]
        np.testing.assert_array_equal(dx, np.zeros((3, 4)))


def test_few_rows_and_bad_orders():
    assert bc.pdist(np.ones((1, 4))).shape == (0,)
    assert bc.pdist(np.ones((0, 4))).shape == (0,)
    np.testing.assert_array_equal(bc.pdist(np.ones((3, 0))), [0, 0, 0])
    for bad in (-1.0, math.nan):
        with pytest.raises(InvalidProblemError, match="p"):
            bc.pdist(np.ones((3, 2)), p=bad)
