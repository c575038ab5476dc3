"""Codes of a matrix and of its transpose on a GPU, at sizes of layers."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import wrong_plan

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("element", ["bfloat16", "float16"])
@pytest.mark.parametrize(
    ("rows", "cols", "scope", "scope_t"),
    [(1024, 2048, "tensor", "tensor"), (1000, 1536, "rows", "rows"), (512, 2176, "groups", "blocks"),
     (1536, 640, "blocks", "groups"), (257, 1001, "tensor", "rows")],
)  # fmt: skip
def test_of_layers(rows: int, cols: int, scope: str, scope_t: str, element: str) -> None:
    plan = bc.DynamicQuantizeTransposePlan
    for to in ("float8_e4m3fn", "float8_e5m2"):
        desc = plan.descriptor(rows=rows, cols=cols, scope=scope, scope_t=scope_t, to_element=to, element=element)
        case = fill(plan, desc, np.random.default_rng(rows))
        assert wrong_plan(case, [plan.select(desc)]) is None


@pytest.mark.parametrize("recipe", ["tensor", "rows", "blocks"])
def test_a_linear_layer(recipe: str) -> None:
    """Forward and gradients of fp8 beside float64: errors of the formats, and each gradient has its place."""
    torch = pytest.importorskip("torch")
    bct = pytest.importorskip("baracuda_py.torch")
    torch.manual_seed(0)
    m, n, k = 512, 768, 1024
    x, w, b = (torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in ((m, k), (n, k), (n,)))
    leaves = [one.requires_grad_() for one in (x, (w / 32).detach(), b)]
    y = bct.fp8_linear(*leaves, recipe=recipe)
    way = torch.randn_like(y)
    found = (y, *torch.autograd.grad(y, leaves, way))
    wide = [one.detach().double().requires_grad_() for one in leaves]
    z = torch.nn.functional.linear(*wide)
    wanted = (z, *torch.autograd.grad(z, wide, way.double()))
    for one, other, most in zip(found, wanted, (0.04, 0.07, 0.07, 0.01), strict=True):
        assert float((one.double() - other).norm() / other.norm()) < most
