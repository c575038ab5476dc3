"""Gradients of scans: products with zeros, infinities of logcumsumexp, and what the functional layer gives."""

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import UnsupportedError
from baracuda_py.ops.scan.scan_backward import ScanBackwardDescriptor, ScanBackwardPlan
from baracuda_py.ops.scan.scan_kinds import ScanKind
from baracuda_py.testing.places import call

torch = pytest.importorskip("torch")


def product_gradient(x: np.ndarray, dy: np.ndarray) -> list[float]:
    """By the definition: dx[i] is the sum of dy[j] times the product of the other x up to j."""
    n = len(x)
    return [sum(dy[j] * np.prod(np.delete(x[: j + 1], i)) for j in range(i, n)) for i in range(n)]


@pytest.mark.parametrize("zeros", [(), (0,), (3,), (6,), (1, 4), (0, 1, 2), range(7)], ids=str)
def test_products_with_zeros(zeros):
    rng = np.random.default_rng(len(list(zeros)))
    x, dy = rng.uniform(0.5, 2, 7), rng.standard_normal(7)
    x[list(zeros)] = 0
    dx = bc.scan_backward(dy, x, bc.cumprod(x), kind="cumprod")
    np.testing.assert_allclose(dx, product_gradient(x, dy), rtol=1e-12, atol=1e-12)
    leaf = torch.tensor(x, requires_grad=True)
    torch.cumprod(leaf, 0).backward(torch.tensor(dy))
    np.testing.assert_allclose(dx, leaf.grad.numpy(), rtol=1e-12, atol=1e-12)


def test_logcumsumexp_of_infinities():
    x = np.array([-np.inf, -np.inf, 0.5, 2.0, -np.inf, 800.0, 801.0, -3.0])
    dy = np.array([1.0, 0.0, -2.0, 0.0, 3.0, 1.0, -1.0, 2.0])
    y = bc.logcumsumexp(x)
    dx = bc.scan_backward(dy, x, y, kind="logcumsumexp")
    with np.errstate(over="ignore"):
        weights = np.exp(np.subtract.outer(x, np.where(y == -np.inf, np.inf, y)))  # of x[i] in y[j]
    np.testing.assert_allclose(dx, (np.triu(weights) * dy).sum(1), rtol=1e-9, atol=1e-300)
    assert dx[[0, 1, 4]].tolist() == [0, 0, 0]


def test_nan_that_a_scan_passed_over_get_no_gradient():
    x = np.array([2.0, np.nan, 3.0, 5.0])
    assert bc.nancumprod(x).tolist() == [2, 2, 6, 30]
    assert bc.nancumsum(x).tolist() == [2, 2, 5, 10]
    dy = np.ones(4)
    assert bc.scan_backward(dy, x, kind="nancumsum").tolist() == [4, 0, 2, 1]
    assert bc.scan_backward(dy, x, bc.nancumprod(x), kind="nancumprod").tolist() == [20, 0, 12, 6]


def test_extremes_hand_back_to_where_they_stood():
    x = np.array([[1.0, 3.0, 3.0, 2.0, 5.0, 4.0]])
    dy = np.array([[1.0, 10.0, 100.0, 1000.0, 1e4, 1e5]])
    y, indices = bc.cummax(x)
    dx, dinitial = bc.scan_extreme_backward(dy, indices, kind="cummax")
    assert dx.tolist() == [[1, 10, 1100, 0, 110000, 0]]  # of equals the last
    assert dinitial.tolist() == [0]
    y, indices = bc.cummax(x, -1, np.array([2.5]), np.array([-4]), offset=3)
    assert (y[0, 0], indices.tolist()) == (2.5, [[-4, 4, 5, 5, 7, 7]])
    dx, dinitial = bc.scan_extreme_backward(dy, indices, np.array([1e6]), kind="cummax", offset=3)
    assert dx.tolist() == [[0, 10, 1100, 0, 1110000, 0]]
    assert dinitial.tolist() == [1]


def test_gradients_of_what_a_row_began_with():
    rng = np.random.default_rng(5)
    x, dy = rng.standard_normal((2, 3, 6))
    first, dlast = rng.standard_normal((2, 3))
    for name in ("cumsum", "cumprod", "logcumsumexp"):
        for exclusive in (False, True):
            y = getattr(bc, name)(x, initial=first, exclusive=exclusive)
            saved = {"cumsum": (None, None), "cumprod": (x, y), "logcumsumexp": (x, y)}[name]
            dx, dinitial = bc.scan_backward(dy, *saved, first, dlast, kind=name, exclusive=exclusive)
            leaves = [torch.tensor(v, requires_grad=True) for v in (x, first)]
            full = getattr(torch, name)(torch.cat((leaves[1][:, None], leaves[0]), 1), 1)
            shown = full[:, :-1] if exclusive else full[:, 1:]
            torch.autograd.backward((shown, full[:, -1]), (torch.tensor(dy), torch.tensor(dlast)))
            np.testing.assert_allclose(dx, leaves[0].grad.numpy(), rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(dinitial, leaves[1].grad.numpy(), rtol=1e-10, atol=1e-12)


def test_integers_have_no_gradient():
    with pytest.raises(UnsupportedError, match="int64 is not supported"):
        ScanBackwardDescriptor(kind=ScanKind.CUMSUM, shape=(3,), element="int64")
    with pytest.raises(UnsupportedError, match="has no NaN: cumsum is the same"):
        bc.nancumsum(np.ones(3, np.int64))
    assert ScanBackwardPlan.direction == "backward"


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 50), 1), ((300, 40), 0), ((2, 9000), 1)])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
def test_logcumsumexp_far_from_zero(place, element, shape, axis, exclusive, reverse):
    """The rounding of y, which is 4 beside 1000 in bfloat16, is none of the gradient's."""
    if reverse and shape[0] != 3:
        shape, axis = (5, 70), 0
    rng = np.random.default_rng(5)
    x = (1000 + 4 * rng.standard_normal(shape)).astype(element).astype(np.float64)
    dy = rng.standard_normal(shape).astype(element).astype(np.float64)
    rows, slopes = (np.moveaxis(one, axis, -1)[..., :: -1 if reverse else 1] for one in (x, dy))
    y = np.logaddexp.accumulate(rows, axis=-1)
    if exclusive:
        y = np.concatenate([np.full_like(y[..., :1], -np.inf), y[..., :-1]], -1)
    weights = np.where(np.isfinite(y), slopes * np.exp(1000 - y), 0)
    sums = np.cumsum(weights[..., ::-1], -1)[..., ::-1]
    size = np.cumsum(np.abs(weights)[..., ::-1], -1)[..., ::-1]
    if exclusive:
        sums, size = (np.concatenate([one[..., 1:], np.zeros_like(one[..., :1])], -1) for one in (sums, size))
    wanted, scale = (np.exp(rows - 1000) * one for one in (sums, size))
    desc = ScanBackwardPlan.descriptor(
        kind="logcumsumexp", shape=shape, axis=axis, exclusive=exclusive, reverse=reverse, element=element
    )
    stored = np.moveaxis(y[..., :: -1 if reverse else 1], -1, axis)
    dx = call(ScanBackwardPlan, desc, ("dx",), place, dy=dy, x=x, y=stored)["dx"].astype(np.float64)
    found = np.moveaxis(dx, axis, -1)[..., :: -1 if reverse else 1]
    eps = 2.0**-10 if element == "float16" else 2.0**-7
    assert (np.abs(found - wanted) <= eps * np.abs(wanted) + 1e-3 * scale + 1e-7).all()
