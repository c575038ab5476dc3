"""Routers and experts of real sizes on a GPU, against float64."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import wrong_plan


pytestmark = pytest.mark.gpu
DEEPSEEK = {"scoring": "sigmoid", "group_count": 8, "top_groups": 4, "group_scoring": "top2", "normalize": True}


@pytest.mark.parametrize("element", ["float32", "bfloat16", "float16", "float64"])
@pytest.mark.parametrize(
    ("experts", "k", "facts"),
    [(8, 2, {"normalize": True}), (60, 4, {}), (128, 8, {"normalize": True}), (256, 8, DEEPSEEK),
     (384, 8, {"scoring": "sigmoid"}), (512, 10, {"normalize": True}), (1024, 16, DEEPSEEK)],
)  # fmt: skip
def test_routers(experts: int, k: int, facts: dict, element: str) -> None:
    for plan in (bc.MoeRouterPlan, bc.MoeRouterBackwardPlan):
        desc = plan.descriptor(tokens=1031, experts=experts, k=k, element=element, **facts)
        case = fill(plan, desc, np.random.default_rng(experts))
        assert wrong_plan(case, [plan.select(desc)]) is None


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_layer_in_torch(dtype: str) -> None:
    """Forward, also without a gradient recorded, and every gradient, beside torch's operations in float64."""
    torch = pytest.importorskip("torch")
    bct = pytest.importorskip("baracuda_py.torch")
    torch.manual_seed(0)
    tokens, d, f, experts, k = 300, 256, 320, 16, 4
    made = [
        torch.randn(s, device="cuda") for s in ((tokens, d), (tokens, experts), (experts, 2 * f, d), (experts, d, f))
    ]
    scales = (1, 1, d**-0.5, f**-0.5)
    leaves = [(x * s).to(getattr(torch, dtype)).requires_grad_() for x, s in zip(made, scales, strict=True)]
    x, logits, gate_up, down = leaves
    weights, indices = bct.moe_router(logits, k=k, normalize=True)
    y = bct.moe(x, indices, weights, gate_up, down)
    way = torch.randn_like(y)
    found = (y, *torch.autograd.grad((y * way).sum(), leaves))
    wide = [one.detach().double().requires_grad_() for one in leaves]
    p = wide[1].gather(1, indices).softmax(-1)
    h = torch.einsum("td,tkfd->tkf", wide[0], wide[2][indices])
    h = torch.nn.functional.silu(h[..., :f]) * h[..., f:]
    z = torch.einsum("tk,tkf,tkdf->td", p, h, wide[3][indices])
    wanted = (z, *torch.autograd.grad((z * way).sum(), wide))
    most = 2e-2 if dtype == "bfloat16" else 1e-5
    for one, other in zip(found, wanted, strict=True):
        assert float((one.double() - other).norm() / other.norm()) < most
    with torch.no_grad():
        y = bct.moe(x, indices, weights.detach(), gate_up, down)
        assert float((y.double() - z).norm() / z.norm()) < most
        alone = bct.moe(x[7:8], indices[7:8], weights[7:8].detach(), gate_up, down)
        assert torch.equal(alone, y[7:8])
