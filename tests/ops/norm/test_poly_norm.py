"""PolyNorm: the formula in float64, gradients by torch's autograd, wide ranges, refusals."""

import numpy as np
import pytest

import baracuda_py as bc


def formula(x, weight, bias, eps=1e-6):
    def normalised(z):
        return z / np.sqrt(np.mean(z * z, -1, keepdims=True) + eps)

    return weight[0] * normalised(x**3) + weight[1] * normalised(x**2) + weight[2] * normalised(x) + bias


@pytest.mark.parametrize("shape", [(5, 7), (33,), (2, 3, 129), (0, 4), (3, 1)])
def test_values(shape):
    rng = np.random.default_rng(0)
    x, weight, bias = rng.standard_normal(shape), rng.standard_normal(3), rng.standard_normal(1)
    np.testing.assert_allclose(bc.poly_norm(x, weight, bias), formula(x, weight, bias), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(bc.poly_norm(x, weight, eps=0.5), formula(x, weight, 0, 0.5), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("dtype", "size"), [("float16", 100), ("float32", 1e30), ("float32", 1e-30), ("float16", 1e-7)]
)
def test_nothing_leaves_the_range(dtype, size):
    x = (size * np.random.default_rng(1).standard_normal((4, 64))).astype(dtype)
    weight = np.array([1, -2, 0.5], dtype)
    got = bc.poly_norm(x, weight)
    assert got.dtype == x.dtype
    wanted = formula(x.astype(np.longdouble), weight.astype(np.float64), 0)
    np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=2e-3 if dtype == "float16" else 1e-5, atol=1e-7)


def test_gradients():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(2)
    x, weight, bias = (torch.tensor(rng.standard_normal(n), requires_grad=True) for n in ((3, 2, 17), 3, 1))
    assert torch.autograd.gradcheck(bc.poly_norm, (x, weight, bias))
    dy = torch.tensor(rng.standard_normal(x.shape))
    wanted = torch.autograd.grad(bc.poly_norm(x, weight, bias), (x, weight, bias), dy)
    got = bc.poly_norm_backward(dy.numpy(), x.detach().numpy(), weight.detach().numpy())
    for ours, theirs in zip(got, wanted, strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-10, atol=1e-12)
    leaf, slopes = x.detach()[0, 0].requires_grad_(), dy[0, 0]
    wanted = torch.autograd.grad(bc.poly_norm(leaf, weight, bias), (leaf, weight, bias), slopes)
    got = bc.poly_norm_backward(slopes.numpy(), leaf.detach().numpy(), weight.detach().numpy())
    for ours, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs.numpy(), rtol=1e-10, atol=1e-12)


def test_refusals():
    x, weight = np.ones((2, 3)), np.ones(3)
    with pytest.raises(bc.InvalidProblemError, match=r"weight must have shape \(3,\)"):
        bc.poly_norm(x, np.ones(2))
    with pytest.raises(bc.UnsupportedError, match="cast to one first"):
        bc.poly_norm(np.ones((2, 3), np.int32), weight)
    with pytest.raises(bc.InvalidProblemError, match="must not be negative"):
        bc.poly_norm(x, weight, eps=-1)
    with pytest.raises(bc.UnknownKeywordError):
        bc.poly_norm(x, weight, dim=-1)
