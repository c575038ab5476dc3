"""The gradient of a gated unit of one array: one array in torch's autograd, and what it is where more is asked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
ORDERS = ("gate_first", "gate_last", "interleaved")


def operations(run: Any) -> set[str]:
    """torch's own operations that a call runs."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        run()
    return {event.key for event in found.key_averages() if event.key.startswith("aten::")}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", ["swiglu", "geglu", "glu", "swiglu_oai", "reglu"])
def test_it_is_that_of_views(name: str, order: str) -> None:
    unit = getattr(bc, name)
    x = torch.randn(3, 8, 5, dtype=torch.float64, requires_grad=True)
    dy = torch.randn(3, 4, 5, dtype=torch.float64)
    (made,) = torch.autograd.grad(unit(x, axis=1, order=order), x, dy)
    (wanted,) = torch.autograd.grad(unit(*bc.halves(x, order, -2)), x, dy)
    assert torch.equal(made, wanted)
    if name != "reglu":  # whose second half has a corner
        assert torch.autograd.gradcheck(lambda x: unit(x, axis=1, order=order), x)
        assert torch.autograd.gradgradcheck(lambda x: unit(x, axis=1, order=order), x)


@pytest.mark.parametrize("order", ORDERS)
def test_nothing_is_filled_copied_or_added(order: str) -> None:
    x, gate_up = torch.randn(20, 16, requires_grad=True), torch.randn(4, 24, 16, requires_grad=True)
    down, weights = torch.randn(4, 16, 12, requires_grad=True), torch.rand(20, 2, requires_grad=True)
    indices = torch.randint(0, 4, (20, 2))
    leaves = (x, weights, gate_up, down)
    y = bc.moe(x, indices, *leaves[1:], order=order)
    dy = torch.randn_like(y)
    found: list[Any] = []
    ran = operations(lambda: found.extend(torch.autograd.grad(y, leaves, dy)))
    assert not ran & {"aten::copy_", "aten::fill_", "aten::zero_", "aten::add", "aten::add_", "aten::slice_backward"}
    wide = [leaf.detach().double().requires_grad_() for leaf in leaves]
    h = torch.einsum("td,tkfd->tkf", wide[0], wide[2][indices])
    gate, up = bc.halves(h, order)
    z = torch.einsum("tkf,tkdf->tkd", torch.nn.functional.silu(gate) * up, wide[3][indices])
    wanted = torch.autograd.grad((z * wide[1][..., None]).sum(1), wide, dy.double())
    for made, known in zip(found, wanted, strict=True):
        np.testing.assert_allclose(made.numpy(), known.numpy(), rtol=1e-3, atol=1e-4)


def test_traces_and_transformations_see_the_views() -> None:
    x = torch.randn(4, 6, dtype=torch.float64)
    wanted = torch.stack([torch.func.grad(lambda row: bc.swiglu(row).sum())(row) for row in x])
    assert torch.equal(torch.func.vmap(torch.func.grad(lambda row: bc.swiglu(row).sum()))(x), wanted)
    _, moved = torch.func.jvp(bc.swiglu, (x,), (torch.ones_like(x),))
    assert torch.allclose(moved.sum(), wanted.sum())
    leaf = x.clone().requires_grad_()
    with torch.autocast("cpu"):
        bc.swiglu(leaf).sum().backward()
    assert torch.equal(leaf.grad, wanted)
