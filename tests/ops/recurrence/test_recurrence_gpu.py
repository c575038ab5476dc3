"""Recurrences on a GPU: the sizes of real models, every element, beside float64 and torch's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py.ops.recurrence.causal_conv1d import CausalConv1dDescriptor, CausalConv1dPlan
from baracuda_py.ops.recurrence.causal_conv1d_backward import CausalConv1dBackwardDescriptor, CausalConv1dBackwardPlan
from baracuda_py.ops.recurrence.recurrent_walk import RecurrentKind, RecurrentLayerDescriptor, RecurrentLayerPlan
from baracuda_py.ops.recurrence.selective import SelectiveScanDescriptor
from baracuda_py.ops.recurrence.selective_scan import SelectiveScanPlan
from baracuda_py.ops.recurrence.selective_scan_backward import SelectiveScanBackwardPlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import wrong_plan

pytestmark = pytest.mark.gpu
ELEMENTS = ("float16", "bfloat16", "float32", "float64")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("width", [2, 3, 4, 8])
@pytest.mark.parametrize("element", ELEMENTS)
def test_causal_conv1d(element: str, width: int, packed: bool) -> None:
    facts: dict[str, Any] = {
        "batch": 1, "channels": 192, "length": 2600 if packed else 5000, "width": width, "activation": "silu",
        "element": element, "packed": packed, "states": 5 if packed else 1,
    }  # fmt: skip
    desc = CausalConv1dDescriptor(**facts)
    case = fill(CausalConv1dPlan, desc, np.random.default_rng(1))
    assert wrong_plan(case, [CausalConv1dPlan.select(desc)]) is None
    back = CausalConv1dBackwardDescriptor(**facts)
    case = fill(CausalConv1dBackwardPlan, back, np.random.default_rng(2))
    assert wrong_plan(case, [CausalConv1dBackwardPlan.select(back)]) is None


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("element", ["bfloat16", "float32"])
def test_causal_conv1d_of_whole_tiles_after_states(element: str, last: bool) -> None:
    """Long rows with what precedes and follows them, beside torch's convolution in float64."""
    torch = pytest.importorskip("torch")
    bct = pytest.importorskip("baracuda_py.torch")
    kind = getattr(torch, element)
    made = torch.randn((2, 320, 4200), device="cuda").to(kind)
    x = (made.transpose(1, 2).contiguous().transpose(1, 2) if last else made).requires_grad_()
    weight, bias = (torch.randn(shape, device="cuda").to(kind).requires_grad_() for shape in ((320, 4), (320,)))
    state = torch.randn((2, 320, 3), device="cuda").to(kind).requires_grad_()
    given = (x, weight, bias, state)
    y, after = bct.causal_conv1d(
        x, weight, bias, initial_states=state, return_final_states=True, activation="silu"
    )  # fmt: skip
    dy, dafter = torch.randn_like(y), torch.randn_like(after)
    found = (y, after, *torch.autograd.grad((y, after), given, (dy, dafter)))
    wide = [one.detach().double().requires_grad_() for one in given]
    seen = torch.cat((wide[3], wide[0]), -1)
    z = torch.nn.functional.silu(torch.nn.functional.conv1d(seen, wide[1][:, None], wide[2], groups=320))
    wanted = (z, seen[..., -3:], *torch.autograd.grad((z, seen[..., -3:]), wide, (dy.double(), dafter.double())))
    for got, want in zip(found, wanted, strict=True):
        error = (got.double() - want).abs().max() / want.abs().max()
        assert error < (2**-8 if element == "bfloat16" else 2e-6), error


@pytest.mark.parametrize("states", [16, 64, 200])
@pytest.mark.parametrize("element", ELEMENTS)
def test_selective_scan(element: str, states: int) -> None:
    desc = SelectiveScanDescriptor(
        batch=1, dim=66, length=203, states=states, groups=2, softplus=True, element=element
    )  # fmt: skip
    for plan in (SelectiveScanPlan, SelectiveScanBackwardPlan):
        case = fill(plan, desc, np.random.default_rng(states))
        assert wrong_plan(case, [plan.select(desc)]) is None


@pytest.mark.parametrize("kind", list(RecurrentKind))
@pytest.mark.parametrize("hidden", [33, 128, 256])
@pytest.mark.parametrize("element", ELEMENTS)
def test_recurrent_layer(element: str, hidden: int, kind: RecurrentKind) -> None:
    desc = RecurrentLayerDescriptor(kind=kind, steps=24, batch=37, hidden=hidden, element=element)
    case = fill(RecurrentLayerPlan, desc, np.random.default_rng(hidden), {"bias": True})
    assert wrong_plan(case, [RecurrentLayerPlan.select(desc)]) is None


@pytest.mark.parametrize("element", ELEMENTS)
def test_packed_selective_scan(element: str) -> None:
    desc = SelectiveScanDescriptor(
        batch=1, dim=66, length=203, states=16, groups=2, softplus=True, num_states=7, element=element
    )  # fmt: skip
    for plan in (SelectiveScanPlan, SelectiveScanBackwardPlan):
        case = fill(plan, desc, np.random.default_rng(3), {"cu_seqlens": True})
        assert wrong_plan(case, [plan.select(desc)]) is None


@pytest.mark.parametrize("shape", [(2, 1024, 2048), (3, 200, 999)])
def test_channels_first_and_last_agree_with_torch(shape: tuple[int, int, int]) -> None:
    torch = pytest.importorskip("torch")
    bct = pytest.importorskip("baracuda_py.torch")
    made = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn((shape[1], 4), device="cuda", dtype=torch.bfloat16, requires_grad=True)
    dy = torch.randn_like(made)
    results = []
    for last in (False, True):
        x = made.transpose(1, 2).contiguous().transpose(1, 2) if last else made.clone()
        x.requires_grad_()
        y = bct.causal_conv1d(x, weight, activation="silu")
        results.append((y, *torch.autograd.grad(y, (x, weight), dy)))
    wide, kernel = made.double().requires_grad_(), weight.detach().double().requires_grad_()
    z = torch.nn.functional.conv1d(torch.nn.functional.pad(wide, (3, 0)), kernel[:, None], groups=shape[1])
    y = torch.nn.functional.silu(z)
    wanted = (y, *torch.autograd.grad(y, (wide, kernel), dy.double()))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
    for found in results:
        for got, want in zip(found, wanted, strict=True):
            error = (got.double() - want).abs().max() / want.abs().max()
            assert error < 2**-8, error


@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_networks_agree_with_torch(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    nn = pytest.importorskip("baracuda_py.torch.nn")
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    facts = {"num_layers": 2, "bidirectional": True, "dtype": kind, "device": "cuda"}
    theirs, ours = getattr(torch.nn, name)(96, 128, **facts), getattr(nn, name)(96, 128, **facts)
    ours.load_state_dict(theirs.state_dict())
    true = getattr(torch.nn, name)(96, 128, **{**facts, "dtype": torch.float64})
    true.load_state_dict({n: p.double() for n, p in theirs.state_dict().items()})
    x = torch.randn(20, 32, 96, dtype=kind, device="cuda")
    got, wanted = ours(x)[0], true(x.double())[0]
    bound = 1e-5 if dtype == "float32" else 1e-12
    assert (got - wanted).abs().max() < bound
    got.sum().backward()
    wanted.sum().backward()
    for p, q in zip(ours.parameters(), true.parameters(), strict=True):
        assert (p.grad - q.grad).abs().max() < 100 * bound * q.grad.abs().max().clamp(min=1)


def test_decoding_has_the_bits_of_the_whole() -> None:
    torch = pytest.importorskip("torch")
    bct = pytest.importorskip("baracuda_py.torch")
    x = torch.randn((4, 512, 12), device="cuda", dtype=torch.bfloat16)
    weight, bias = torch.randn((512, 4), device="cuda").bfloat16(), torch.randn(512, device="cuda").bfloat16()
    whole = bct.causal_conv1d(x, weight, bias, activation="silu")
    state = torch.zeros((4, 512, 3), device="cuda", dtype=torch.bfloat16)
    steps = [bct.causal_conv1d_update(x[..., t], state, weight, bias, activation="silu") for t in range(12)]
    assert torch.equal(torch.stack(steps, -1), whole)
    u, dt = torch.randn((2, 4, 512, 9), device="cuda").bfloat16()
    b, c = torch.randn((2, 4, 16, 9), device="cuda").bfloat16()
    a = -torch.rand((512, 16), device="cuda")
    whole = bct.selective_scan(u, dt, a, b, c, delta_softplus=True)
    state = torch.zeros((4, 512, 16), device="cuda")
    for t in range(9):
        y = bct.selective_state_update(
            state, u[..., t], dt[..., t], a, b[..., t], c[..., t], dt_softplus=True
        )  # fmt: skip
        assert torch.equal(y, whole[..., t])
