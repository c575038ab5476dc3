"""On a GPU: preconditioned steps, subspaces, L-BFGS, sparse rows, averages beside float64 on the host; kept codes."""

from __future__ import annotations

from typing import Any

import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
from baracuda_py.torch import nn as bcn  # noqa: E402
from baracuda_py.torch import optim  # noqa: E402

pytestmark = pytest.mark.gpu
SHAPES = ((96, 96), (300,), (12, 10, 9))
MADE: dict[str, Any] = {
    "Shampoo": lambda p: optim.Shampoo(p, 0.01, momentum=0.9, update_freq=2),
    "SOAP": lambda p: optim.SOAP(p, 0.003, precondition_frequency=2),
    "GaLore": lambda p: optim.GaLore(
        [{"params": p[:1], "rank": 16}, {"params": p[1:]}], optim.AdamW, lr=0.01, update_proj_gap=2, weight_decay=0.0
    ),
    "AdamW8bit": lambda p: optim.AdamW8bit(p, 1e-3, min_8bit_size=64, state_code="fp8"),
    "SGD8bit": lambda p: optim.SGD8bit(p, 1e-2, min_8bit_size=64, state_code="linear"),
}


def walked(name: str, device: str, dtype: Any, steps: int = 5) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    params = [
        torch.nn.Parameter(torch.randn(s, generator=generator, dtype=torch.float64).to(device, dtype)) for s in SHAPES
    ]
    made = MADE[name](params)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, generator=generator, dtype=torch.float64).to(device, dtype)
        made.step()
    return [p.detach().cpu().double() for p in params]


@pytest.mark.parametrize("name", MADE)
def test_steps_are_those_of_the_host(name: str) -> None:
    """Of the way that is gone a hundredth; signs of singular vectors are of no matter to a step."""
    host = torch.float32 if name.endswith("8bit") else torch.float64
    begun = walked(name, "cpu", host, 0)
    for a, b, first in zip(walked(name, "cuda", torch.float32), walked(name, "cpu", host), begun, strict=True):
        assert float((a - b).norm() / (b - first).norm()) < (0.05 if host == torch.float32 else 0.01)


def test_lbfgs_finds_the_least() -> None:
    torch.manual_seed(0)
    half = torch.randn(200, 200, dtype=torch.float64)
    bowl, goal = half @ half.T / 200 + torch.eye(200), torch.randn(200, dtype=torch.float64)
    p = torch.nn.Parameter(torch.zeros(200, dtype=torch.float64, device="cuda"))
    a, b = bowl.cuda(), goal.cuda()
    made = optim.LBFGS([p], max_iter=60, line_search_fn="strong_wolfe", history_size=20)

    def closure() -> Any:
        made.zero_grad()
        loss = 0.5 * (p - b) @ a @ (p - b)
        loss.backward()
        return loss

    made.step(closure)
    torch.testing.assert_close(p.detach().cpu(), goal, rtol=1e-4, atol=1e-4)


def test_sparse_rows_and_averages() -> None:
    found = []
    for m, device, dtype in ((optim, "cuda", torch.float32), (torch.optim, "cpu", torch.float64)):
        generator = torch.Generator().manual_seed(0)
        p = torch.nn.Parameter(torch.randn(5000, 64, generator=generator, dtype=torch.float64).to(device, dtype))
        made = m.SparseAdam([p], lr=0.01)
        for _ in range(4):
            places = torch.randint(0, 5000, (1, 700), generator=generator)
            values = torch.randn(700, 64, generator=generator, dtype=torch.float64)
            p.grad = torch.sparse_coo_tensor(places.to(device), values.to(device, dtype), p.shape)
            made.step()
        found.append(p.detach().cpu().double())
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
    average, p = [torch.zeros(1000, device="cuda")], [torch.ones(1000, device="cuda")]
    optim.get_ema_multi_avg_fn(0.75)(average, p, 0)
    optim.get_swa_multi_avg_fn()(average, p, torch.tensor(2, device="cuda"))
    torch.testing.assert_close(average[0].cpu(), torch.full((1000,), 0.5))


def test_inverse_roots() -> None:
    half = torch.randn(3, 128, 128, dtype=torch.float64)
    a = half @ half.mT / 128 + 0.1 * torch.eye(128)
    x = bc.inverse_root(a.cuda(), 4).cpu()
    torch.testing.assert_close(torch.linalg.matrix_power(x, 4) @ a, torch.eye(128).double().expand(3, -1, -1))


@pytest.mark.parametrize("recipe", ["tensor", "rows", "blocks"])
def test_codes_that_are_kept_give_the_same_bits(recipe: str) -> None:
    torch.manual_seed(0)
    layer = bcn.Fp8Linear(768, 2304, recipe=recipe, always=True).cuda().bfloat16()
    x, way = (torch.randn(2, 520, n, device="cuda", dtype=torch.bfloat16) for n in (768, 2304))
    found = []
    for kept in (True, False):
        layer.keep_codes, leaf = kept, x.clone().requires_grad_()
        y = layer(leaf)
        found.append((y, *torch.autograd.grad((y * way).sum(), (leaf, layer.weight, layer.bias))))
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
    wanted = x.double() @ layer.weight.double().T + layer.bias.double()
    assert float((found[0][0].double() - wanted).norm() / wanted.norm()) < 0.06


def test_nvfp4_is_that_of_the_host() -> None:
    torch.manual_seed(0)
    x = torch.randn(256, 512)
    for square in (False, True):
        here, scale = bcn.nvfp4_emulated(x, square=square)
        there, of_device = bcn.nvfp4_emulated(x.cuda(), square=square)
        torch.testing.assert_close(of_device.cpu(), scale)
        assert float((there.cpu() != here).double().mean()) < 1e-3  # an element that is a tie
    layer = bcn.Nvfp4Linear(512, 256).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        y = layer(x.cuda())
    y.float().sum().backward()
    wanted = x.double() @ layer.weight.detach().cpu().double().T
    assert float((y.detach().cpu().double() - wanted).norm() / wanted.norm()) < 0.25
    assert layer.weight.grad.isfinite().all()
