"""Leaves of autograd's graph, what compares gradients, and a part of a model, for tests of `baracuda_py.torch`."""

from __future__ import annotations

from typing import Any

import torch

import baracuda_py.torch as bt


def leaf(*shape: int, dtype: Any = torch.float64) -> Any:
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def same_gradients(ours: Any, theirs: Any, *leaves: Any) -> None:
    """The results and gradients of two functions of the same tensors, whatever the cotangent."""
    y, z = ours(*leaves), theirs(*leaves)
    assert torch.allclose(y, z)
    way = torch.randn_like(z)
    for a, b in zip(torch.autograd.grad(y, leaves, way), torch.autograd.grad(z, leaves, way), strict=True):
        assert a.shape == b.shape and torch.allclose(a, b)


def block(x: Any, w: Any, up: Any) -> Any:
    """A part of a Llama block."""
    h = bt.rms_norm(x, w)
    q = h.reshape(1, 4, 2, 4)
    y = bt.flash_sdpa(q, q, q, is_causal=True, layout="bshd").reshape(4, 8)
    y, h = bt.rms_norm(y, w, residual=x, return_h=True)
    return h + bt.swiglu(y @ up) + bt.quick_gelu(bt.dropout(y, 0.25, seed=3)) + bt.softmax(h)
