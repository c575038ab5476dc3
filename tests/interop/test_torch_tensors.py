"""Kinds of tensors: views, memory formats, subclasses, transformations, lazy bits, meta."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
from torch_leaves import leaf, same_gradients  # noqa: E402

import baracuda_py.torch as bt  # noqa: E402

F = torch.nn.functional


def test_views_expanded_and_0d() -> None:
    base = leaf(6, 8)
    same_gradients(lambda a: bt.silu(a.T[::2]), lambda a: F.silu(a.T[::2]), base)
    same_gradients(lambda a: bt.silu(a.expand(3, 6, 8)), lambda a: F.silu(a.expand(3, 6, 8)), base)
    same_gradients(lambda a: bt.silu(a), lambda a: F.silu(a), leaf())
    y = bt.softmax(base)
    (g,) = torch.autograd.grad(y.sum(), base)  # an expanded cotangent
    assert torch.allclose(g, torch.zeros_like(g), atol=1e-12)
    q = leaf(1, 2, 3, 4)
    way = torch.ones(()).double().expand(1, 2, 3, 4)
    (g,) = torch.autograd.grad(bt.flash_sdpa(q, q, q), q, way)
    (want,) = torch.autograd.grad(F.scaled_dot_product_attention(q, q, q), q, way)
    assert torch.allclose(g, want)


def test_channels_last_stays_so() -> None:
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64).to(memory_format=torch.channels_last).requires_grad_()
    y = bt.max_pool2d(x, kernel_size=2)
    assert y.is_contiguous(memory_format=torch.channels_last)
    same_gradients(lambda a: bt.max_pool2d(a, kernel_size=2), lambda a: F.max_pool2d(a, 2), x)


def test_inference_mode() -> None:
    x = leaf(3)
    with torch.inference_mode():
        y = bt.exp(x)
        assert y.is_inference() and not y.requires_grad
    inside = bt.exp(y)  # made by inference, read outside
    assert not inside.requires_grad and torch.allclose(inside, x.detach().exp().exp())


class Wrapper(torch.Tensor):
    """A tensor whose operations are intercepted."""

    @staticmethod
    def __new__(cls, held: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError


class Plain(torch.Tensor):
    pass


def test_subclasses() -> None:
    x = torch.randn(3)
    assert torch.allclose(bt.exp(torch.nn.Parameter(x)), x.exp())
    assert torch.allclose(bt.exp(x.as_subclass(Plain)), x.exp())
    assert bt.exp(x.as_subclass(Plain).requires_grad_()).requires_grad
    for function in (bt.exp, bc.exp):
        with pytest.raises(
            bc.UnsupportedError, match="x: a Wrapper is a torch tensor whose operations are intercepted"
        ):
            function(Wrapper(x))


@pytest.mark.parametrize("function", [bt.exp, bc.exp], ids=["torch", "plain"])
def test_tangents_are_followed(function: Any) -> None:
    x = torch.ones(3)
    assert torch.equal(torch.func.jvp(function, (x,), (2 * x,))[1], 2 * function(x))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, 2 * x)
        for one in (dual, torch.autograd.forward_ad.make_dual(x.clone().requires_grad_(), 2 * x)):
            y, change = torch.autograd.forward_ad.unpack_dual(function(one))
            assert torch.equal(change, 2 * function(x)) and y.requires_grad == one.requires_grad
        with pytest.raises(bc.UnsupportedError, match=r"x: .*tangent.*detach"):
            function(dual, out=torch.empty(3))


def test_lazy_bits_are_refused_and_lazy_cotangents_taken() -> None:
    z = torch.randn(3, dtype=torch.complex128, requires_grad=True)
    with pytest.raises(bc.InvalidProblemError, match="resolve_conj"):
        bt.exp(z.conj())
    way = torch.randn(3, dtype=torch.complex128)
    (g,) = torch.autograd.grad(bt.exp(z), z, way.conj())
    assert torch.allclose(g, torch.autograd.grad(z.exp(), z, way.conj())[0])


def test_other_packages_beside_tensors() -> None:
    with pytest.raises(bc.InvalidProblemError, match="weight must be a torch tensor"):
        bt.rms_norm(leaf(2, 3), np.ones(3))
    assert isinstance(bt.exp(np.ones(3)), np.ndarray)


def test_meta_tensors() -> None:
    x = torch.empty(2, 8, device="meta", requires_grad=True)
    y, rstd = bt.rms_norm(x, return_rstd=True)
    assert y.is_meta and y.requires_grad and rstd.shape == (2,)
    y.sum().backward()
    assert x.grad.is_meta and x.grad.shape == (2, 8)
    with pytest.raises(bc.InvalidProblemError, match="must have shape"):
        bt.rms_norm(x, torch.empty(7, device="meta"))


def test_gradients_of_matrices_that_lie_transposed_lie_so_too() -> None:
    """As torch keeps the gradient of a leaf; a pass prepared for one order is not taken for another."""
    x, w = leaf(4, 6), leaf(6, 5)
    turned = torch.empty_strided((6, 5), (1, 6), dtype=torch.float64).normal_().requires_grad_()
    for leaves in ((x, turned), (x, w), (x, turned)):
        same_gradients(bt.matmul, torch.matmul, *leaves)
        assert torch.autograd.grad(bt.matmul(*leaves).sum(), leaves[1])[0].stride() == leaves[1].stride()
        same_gradients(bt.silu, F.silu, leaves[1])


def test_the_order_of_channels_is_that_of_each_call() -> None:
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64, requires_grad=True)
    last = x.detach().to(memory_format=torch.channels_last).requires_grad_()
    for one in (x, last, x, last):
        same_gradients(lambda a: bt.avg_pool2d(a, kernel_size=2), lambda a: F.avg_pool2d(a, 2), one)
        y = bt.avg_pool2d(one, kernel_size=2)
        assert y.is_contiguous(memory_format=torch.channels_last) == (one is last)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
def test_a_call_leaves_a_storage_resizable(dtype: Any) -> None:
    """As FSDP resizes those of gathered parameters; a tensor without elements has none, and is taken."""
    x, y = torch.ones(4, 3, dtype=dtype), torch.empty(4, 3, dtype=dtype)
    assert torch.equal(bc.concat([x, x]), torch.cat([x, x])) and torch.equal(bc.concat([x.T[:0]]), x.T[:0])
    bc.copy(x, out=y)
    bc.CastPlan.select(bc.CastDescriptor(shape=(4, 3), element=dtype, to_element=dtype)).run(bc.CastArgs(x=x, y=y))
    assert torch.equal(x, y)
    for tensor in (x, y):
        tensor.untyped_storage().resize_(0)
