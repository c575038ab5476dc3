"""Areas by the trapezoidal rule, against formulas that it is exact for and against NumPy's."""

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.scan.cumulative_trapezoid_backward import CumulativeTrapezoidBackwardPlan
from baracuda_py.ops.scan.trapezoid import TrapezoidDescriptor
from baracuda_py.testing.places import call


def test_lines_have_exact_areas():
    x = np.array([0.0, 1.0, 4.0, 6.0])
    assert float(bc.trapezoid(2 * x + 1, x)) == 42  # x^2 + x at 6
    assert bc.cumulative_trapezoid(2 * x + 1, x).tolist() == [2, 20, 42]
    assert float(bc.trapezoid(2 * x + 1, x[::-1])) == float(np.trapezoid(2 * x + 1, x[::-1]))
    assert float(bc.trapezoid(np.array([1.0, 2.0, 3.0]), dx=0.5)) == 2
    assert bc.trapezoid(np.ones((3, 1))).tolist() == [0] * 3
    assert bc.cumulative_trapezoid(np.ones((3, 1))).shape == (3, 0)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_places_lie_along_the_axis(axis):
    rng = np.random.default_rng(0)
    y = rng.standard_normal((4, 5, 6))
    n = y.shape[axis]
    line, across = rng.standard_normal(n), rng.standard_normal(y.shape)
    along = line.reshape([n if a == axis % 3 else 1 for a in range(3)])
    for x, whole in ((line, along), (along, along), (across, across)):
        wanted = np.trapezoid(y, np.broadcast_to(whole, y.shape), axis=axis)
        np.testing.assert_allclose(bc.trapezoid(y, x, axis=axis), wanted, rtol=1e-12, atol=1e-13)
        parts = bc.cumulative_trapezoid(y, x, axis=axis)
        np.testing.assert_allclose(np.take(parts, -1, axis), wanted, rtol=1e-12, atol=1e-13)


def test_what_is_refused():
    with pytest.raises(InvalidProblemError, match="dx is the step where there is no x"):
        bc.trapezoid(np.ones(3), np.ones(3), dx=2.0)
    with pytest.raises(InvalidProblemError, match="x must broadcast"):
        bc.trapezoid(np.ones((3, 4)), np.ones(3))


def test_gradients_by_differences():
    rng = np.random.default_rng(1)
    y, slopes = rng.standard_normal((3, 4, 5)), rng.standard_normal((3, 5))
    for x in (None, rng.standard_normal(y.shape), rng.standard_normal((4, 1)), rng.standard_normal((3, 1, 5))):
        found = bc.trapezoid_backward(slopes, y, x, axis=1, return_dx=x is not None)
        gradients = (found,) if x is None else found
        for i, gradient in enumerate(gradients):
            for at in np.ndindex(gradient.shape):
                sides = []
                for step in (1e-6, -1e-6):
                    moved = [y.copy(), None if x is None else x.copy()]
                    moved[i][at] += step
                    sides.append(float((bc.trapezoid(*moved, axis=1) * slopes).sum()))
                assert abs((sides[0] - sides[1]) / 2e-6 - gradient[at]) < 1e-8


@pytest.mark.parametrize(("shape", "axis", "x_shape"), [
    ((3, 40), 1, None), ((3, 40), 1, (40,)), ((300, 9), 0, (300, 1)), ((2, 700), 1, (2, 700)), ((4, 5), 1, (4, 1)),
    ((6, 1), 1, (1,)), ((6, 2), 1, (2,)),
])  # fmt: skip
def test_gradients_of_areas_so_far_are_torch_s(place, shape, axis, x_shape):
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    y = rng.standard_normal(shape)
    x = None if x_shape is None else rng.standard_normal(x_shape)
    leaves = [torch.tensor(one, requires_grad=True) for one in (y, x) if one is not None]
    steps = {"dx": 0.5} if x is None else {"x": leaves[1].expand(shape)}
    area = torch.cumulative_trapezoid(leaves[0], **steps, dim=axis)
    darea = rng.standard_normal(tuple(area.shape))
    wanted = torch.autograd.grad(area, leaves, torch.tensor(darea))
    desc = TrapezoidDescriptor(shape=shape, axis=axis, element="float64")
    given = {"darea": darea, "y": y, "x": x, "spacing": 0.5 if x is None else 1.0}
    found = call(CumulativeTrapezoidBackwardPlan, desc, ("dy",) if x is None else ("dy", "dx"), place, **given)
    for name, one in zip(("dy", "dx"), wanted, strict=False):
        np.testing.assert_allclose(found[name], one.numpy(), rtol=1e-10, atol=1e-11)
