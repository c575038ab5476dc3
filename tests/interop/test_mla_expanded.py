"""Latent attention expanded to heads of 192 and 128 columns: the same as absorbed; kernels and gradients of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py import (
    FlashSdpaBackwardPlan,
    FlashSdpaPlan,
    FlashSdpaVarlenBackwardPlan,
    FlashSdpaVarlenPlan,
    flash_sdpa,
)
from baracuda_py.core.plan import Plan
from baracuda_py.ops.attention.mla.mla_decode import MlaDecodeDescriptor, MlaDecodePlan, mla_decode
from baracuda_py.testing import emulate, emulated_device, fill, operands
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view

NOPE, ROPE, VALUE = 128, 64, 128
SCALE = (NOPE + ROPE) ** -0.5
DENSE = {"query_len": 130, "key_len": 130}
PACKED = {"batch_size": 3, "total_q": 150, "total_k": 150, "max_seqlen_q": 100, "max_seqlen_k": 100}


def problem(seed: int, heads: int, tokens: int, latent: int, dtype: Any) -> Any:
    """Queries of the last token, cells, and the weights that make keys and values of a latent."""
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((1, heads, 1, NOPE + ROPE))
    cells = rng.standard_normal((tokens, latent + ROPE)).astype(dtype)
    to_k, to_v = (rng.standard_normal((heads, n, latent)) * latent**-0.5 for n in (NOPE, VALUE))
    return q, cells, to_k, to_v


def expanded(cells: Any, to_k: Any, to_v: Any) -> tuple[Any, Any]:
    """Keys of a head: its own 128 columns of the latent, and the rotated ones that all heads share. And values."""
    latent, rope = cells[:, : to_k.shape[2]], cells[:, to_k.shape[2] :]
    k = np.einsum("sc,hnc->hsn", latent, to_k)
    shared = np.broadcast_to(rope, (len(to_k), *rope.shape))
    return np.concatenate([k, shared], -1)[None], np.einsum("sc,hvc->hsv", latent, to_v)[None]


def absorbed(q: Any, to_k: Any) -> Any:
    """Queries for cells, [batch, queries, heads, latent + rope]."""
    nope, rope = q[..., :NOPE], q[..., NOPE:]
    return np.concatenate([np.einsum("bhqn,hnc->bqhc", nope, to_k), rope.transpose(0, 2, 1, 3)], -1)


def test_absorbed_is_expanded() -> None:
    q, cells, to_k, to_v = problem(0, 5, 70, 48, np.float64)
    k, v = expanded(cells, to_k, to_v)
    want, want_lse = flash_sdpa(q, k, v, scale=SCALE, return_lse=True)
    given = {"page_table": np.arange(7)[None], "lengths": np.array([70]), "scale": SCALE}
    o, lse = mla_decode(absorbed(q, to_k), cells.reshape(7, 10, -1), **given, return_lse=True)
    y = np.einsum("bqhc,hvc->bhqv", o, to_v)
    np.testing.assert_allclose(y, want, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(lse.transpose(0, 2, 1), want_lse, rtol=1e-10)


@pytest.mark.parametrize(("cc", "row"), [(9.0, "split_k_wgmma"), (8.0, "split_k_mma")])
def test_absorbed_kernels_are_expanded_attention(cc: float, row: str) -> None:
    """At DeepSeek's sizes, within what rounding queries to float16 costs."""
    q, cells, to_k, to_v = problem(1, 16, 130, 512, np.float16)
    want = flash_sdpa(q, *expanded(cells.astype(np.float64), to_k, to_v), scale=SCALE)
    queries, cache = absorbed(q, to_k).astype(np.float16), cells.reshape(13, 10, -1)
    o = np.empty((1, 1, 16, 512), np.float16)
    desc = MlaDecodeDescriptor(
        batch_size=1, num_queries=1, num_heads=16, num_pages=13, page_size=10, width=576, scale=SCALE, max_pages=13,
        element="float16",
    )  # fmt: skip
    chosen = MlaDecodePlan.select(desc, device=emulated_device(cc))
    assert chosen.rows[0].name == row
    tables = {"page_table": np.arange(13, dtype=np.int32)[None], "lengths": np.array([130], np.int32)}
    arrays = {"q": queries, "cache": cache, **tables, "y": o}
    with emulating(1):
        chosen.run(MlaDecodePlan.args(**{name: pointer_view(x) for name, x in arrays.items()}))
    y = np.einsum("bqhc,hvc->bhqv", o.astype(np.float64), to_v)
    np.testing.assert_allclose(y, want, rtol=3e-3, atol=3e-3)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("cc", [8.0, 9.0])
@pytest.mark.parametrize(
    ("plan", "sizes"),
    [
        (FlashSdpaPlan, DENSE), (FlashSdpaBackwardPlan, DENSE), (FlashSdpaVarlenPlan, PACKED),
        (FlashSdpaVarlenBackwardPlan, PACKED),
    ],
)  # fmt: skip
def test_kernels_of_192_and_128_columns(plan: type[Plan], sizes: dict[str, int], cc: float) -> None:
    facts = {"batch_size": 1, "num_heads": 2, "num_kv_heads": 2} | sizes
    desc = plan.descriptor(
        d_k=NOPE + ROPE, d_v=VALUE, scale=SCALE, is_causal=True, causal_alignment="bottom_right", element="bfloat16",
        **facts,
    )  # fmt: skip
    absent = dict.fromkeys(("mask", "slopes", "sinks", "dmask", "dslopes", "dsinks"), False)
    case = fill(plan, desc, np.random.default_rng(2), absent)
    emulate(plan.select(desc, device=emulated_device(cc)), operands(case))


@pytest.mark.parametrize("packed", [False, True])
def test_shared_columns_get_the_sum_of_heads(packed: bool) -> None:
    """Through torch's concatenation of each head's columns with an expanded view of the shared ones."""
    torch, bt = pytest.importorskip("torch"), pytest.importorskip("baracuda_py.torch")
    torch.manual_seed(0)
    shape = (9, 3, NOPE + ROPE), (9, 3, NOPE), (9, 1, ROPE), (9, 3, VALUE)
    q, nope, rope, v = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shape)
    dy = torch.randn(9, 3, VALUE, dtype=torch.float64)
    k = torch.cat([nope, rope.expand(9, 3, ROPE)], -1)
    if packed:
        bounds = torch.tensor([0, 9])
        y = bt.flash_sdpa_varlen(q, k, v, bounds, bounds, scale=SCALE, is_causal=True)
    else:
        rows = (x.transpose(0, 1)[None] for x in (q, k, v))
        y = bt.flash_sdpa(*rows, scale=SCALE, is_causal=True)[0].transpose(0, 1)
    got = torch.autograd.grad(y, (q, nope, rope, v), dy)
    s = SCALE * torch.einsum("qhd,khd->hqk", q, torch.cat([nope, rope.expand(9, 3, ROPE)], -1))
    s = s.masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf)
    want = torch.autograd.grad(torch.einsum("hqk,khv->qhv", s.softmax(-1), v), (q, nope, rope, v), dy)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
