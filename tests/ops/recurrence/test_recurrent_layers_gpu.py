"""Layers of recurrences on a GPU at sizes of models, beside themselves in float64 on the host, and decoded."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
nn = pytest.importorskip("baracuda_py.torch.nn")
pytestmark = pytest.mark.gpu

LAYERS: dict[str, Callable[[], Any]] = {
    "mamba": lambda: nn.Mamba(256, layer_idx=0),
    "mamba2": lambda: nn.Mamba2(256, d_state=64, layer_idx=0),
    "delta": lambda: nn.DeltaNet(hidden_size=256, num_heads=2, layer_idx=0),
    "gated-delta": lambda: nn.GatedDeltaNet(256, expand_v=1, head_dim=128, num_heads=1, num_v_heads=2, layer_idx=0),
    "kimi": lambda: nn.KimiDeltaAttention(256, head_dim=128, num_heads=2, layer_idx=0),
    "gla": lambda: nn.GatedLinearAttention(hidden_size=256, num_heads=2, layer_idx=0),
    "retention": lambda: nn.MultiScaleRetention(hidden_size=256, num_heads=2, layer_idx=0),
    "rwkv7": lambda: nn.RWKV7Attention(hidden_size=256, head_dim=64, layer_idx=0),
}


def first(made: Any) -> Any:
    return made[0] if isinstance(made, tuple) else made


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_layers_and_gradients(name: str, dtype: Any) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name]().to(dtype)
    truth = copy.deepcopy(layer).double()
    x = torch.randn(2, 150, 256).to(dtype)
    wide, ours = x.double().requires_grad_(), x.cuda().requires_grad_()
    wanted, got = first(truth(wide)), first(layer.cuda()(ours))
    unit = 1e-4 if dtype == torch.float32 else 4e-2
    assert float((got.cpu().double() - wanted).norm()) <= unit * float(wanted.norm())
    wanted.square().sum().backward()
    got.float().square().sum().backward()
    assert float((ours.grad.cpu().double() - wide.grad).norm()) <= 4 * unit * float(wide.grad.norm())
    for (which, p), q in zip(layer.named_parameters(), truth.parameters(), strict=True):
        if q.grad is not None:
            error = float((p.grad.cpu().double() - q.grad).norm())
            assert error <= 4 * unit * max(float(q.grad.norm()), 1e-3 * float(wide.grad.norm())), which


@pytest.mark.parametrize("name", LAYERS)
def test_decoding(name: str) -> None:
    torch.manual_seed(0)
    layer, x = LAYERS[name]().cuda().eval(), torch.randn(3, 70, 256, device="cuda")
    state_space = name.startswith("mamba")
    params, cache = nn.InferenceParams(), nn.RecurrentCache()
    with torch.no_grad():
        wanted, parts = first(layer(x)), []
        for start, end in ((0, 66), *((t, t + 1) for t in range(66, 70))):
            params.seqlen_offset = start
            given = {"inference_params": params} if state_space else {"past_key_values": cache, "use_cache": True}
            parts.append(first(layer(x[:, start:end], **given)))
    got = torch.cat(parts, 1)
    assert float((got - wanted).abs().max()) <= 1e-4 * float(wanted.abs().max())
