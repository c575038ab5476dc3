"""Gradients under a formula on a GPU, by wgmma where there is one and by mma.sync, against torch's in float64."""

from __future__ import annotations

from typing import Any

import pytest

import baracuda_py as bc

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
HEADS, KV_HEADS, TOKENS = 8, 2, 1024


def wanted(q: Any, k: Any, v: Any, dy: Any, bias: Any, doc: Any) -> list[Any]:
    """dq, dk, dv and dbias of softmax(scale q kᵀ + bias[h, i - j]) v within documents, causal."""
    leaves = [x.detach().double().requires_grad_() for x in (q, k, v, bias)]
    q, k, v, table = leaves
    k, v = (x.repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    at = torch.arange(TOKENS, device="cuda")
    apart = (at[:, None] - at[None, :]).clamp(min=0)
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + table[:, apart][None]
    seen = (at[:, None] >= at[None, :]) & (doc[:, None, :, None] == doc[:, None, None, :])
    y = torch.softmax(s.masked_fill(~seen, -torch.inf), -1) @ v
    return list(torch.autograd.grad(y, leaves, dy.double()))


@pytest.mark.parametrize("arch", [None, "sm80"])
@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize(("d", "dtype"), [(64, "bfloat16"), (128, "bfloat16"), (128, "float16"), (256, "bfloat16")])
def test_gradients(d: int, dtype: str, blocks: bool, arch: str | None) -> None:
    torch.manual_seed(d)
    kind = getattr(torch, dtype)
    q, dy = (torch.randn((2, HEADS, TOKENS, d), device="cuda", dtype=kind) for _ in range(2))
    k, v = (torch.randn((2, KV_HEADS, TOKENS, d), device="cuda", dtype=kind) for _ in range(2))
    bias = torch.randn((HEADS, TOKENS), device="cuda")
    doc = torch.randint(0, 3, (2, TOKENS), device="cuda", dtype=torch.int32).sort(-1).values
    f: Any = bc.attention("s + bias[h, q - k]", "q >= k and doc[b, q] == doc[b, k]")
    more: dict[str, Any] = {"bias": bias, "doc": doc, "preference": bc.PlanPreference(max_arch=arch)}
    if blocks:
        more["block_mask"] = f.block_mask(q, k, doc=doc, query_block=64, key_block=128)
    y, lse = f(q, k, v, return_lse=True, **more)
    got = f.backward(q, k, v, y, lse, dy, return_dbias=True, **more)
    for one, other in zip(got, wanted(q, k, v, dy, bias, doc), strict=True):
        error = (one.double() - other).abs()
        assert error.max() <= 2e-2 * other.abs().max() and error.square().mean() <= 1e-4 * other.square().mean()
