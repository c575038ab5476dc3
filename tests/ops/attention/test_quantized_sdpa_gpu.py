"""quantized_sdpa and what is made of it on a GPU: every element of shapes that models have, against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core import PlanPreference
from baracuda_py.ops.attention.quantized.quantized_sdpa import QuantizedSdpaDescriptor, QuantizedSdpaPlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import wrong_plan

pytestmark = pytest.mark.gpu
E4M3 = "float8_e4m3fn"
KINDS = [("float16", "int8", None), ("bfloat16", "int8", None), ("bfloat16", E4M3, None), (E4M3, E4M3, "float16"),
         (E4M3, E4M3, E4M3)]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [64, 128, 96, 40])
@pytest.mark.parametrize("causal", [False, True])
def test_rows(kind: tuple[str, str, str | None], d: int, causal: bool) -> None:
    """Every row that takes the problem, with more keys than the ring has tiles."""
    element, code, out = kind
    desc = QuantizedSdpaDescriptor(
        batch_size=1, num_heads=4, num_kv_heads=2, query_len=515, key_len=901, d_k=d, d_v=d, is_causal=causal,
        causal_alignment="bottom_right", q_block=16, k_block=128, element=element, code_element=code, out_element=out,
    )  # fmt: skip
    case = fill(QuantizedSdpaPlan, desc, np.random.default_rng(d))
    plan = QuantizedSdpaPlan.select(desc)
    every, plans = plan.rows, []
    for n in range(len(every)):
        own = PlanPreference(max_workspace_bytes=(1 << 50) + n)  # a plan of its own
        plans.append(QuantizedSdpaPlan.select(desc, own))
        plans[-1].rows = every[n:]
    assert wrong_plan(case, plans) is None


def exact(cupy: Any, q: Any, k: Any, v: Any, causal: bool) -> Any:
    """float64, a head at a time."""
    y = cupy.empty((*q.shape[:3], v.shape[-1]))
    for b, h in np.ndindex(*q.shape[:2]):
        kv = h * k.shape[1] // q.shape[1]
        s = q[b, h].astype("float64") @ k[b, kv].astype("float64").T / np.sqrt(q.shape[-1])
        if causal:
            s[cupy.arange(k.shape[2]) > cupy.arange(q.shape[2])[:, None]] = -np.inf
        s = cupy.exp(s - s.max(-1, keepdims=True))
        y[b, h] = s @ v[b, kv].astype("float64") / s.sum(-1, keepdims=True)
    return y


@pytest.mark.parametrize("d", [64, 128])
@pytest.mark.parametrize("qk", ["int8", "fp8"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [2048, 777])
def test_near_exact_attention(d: int, qk: str, causal: bool, queries: int) -> None:
    cupy = pytest.importorskip("cupy")
    rng = cupy.random.default_rng(d)
    q, k, v = (
        rng.standard_normal((1, h, n, d), dtype="float32").astype("float16")
        for h, n in ((8, queries), (2, 2048), (2, 2048))
    )
    y = bc.sage_attention(q, k, v, qk=qk, is_causal=causal).astype("float64")
    want = exact(cupy, q, k, v, causal)
    cosine = float((y * want).sum() / cupy.sqrt((y * y).sum() * (want * want).sum()))
    assert cosine > (0.9998 if qk == "int8" else 0.999)
    every = bc.flash_sdpa(q, k, v, is_causal=causal).astype("float64")
    assert float(abs(every - want).max()) < float(abs(y - want).max()) < (0.1 if qk == "int8" else 0.4)


def test_fifty_repeats() -> None:
    cupy = pytest.importorskip("cupy")
    q, k, v = (cupy.random.standard_normal((2, 4, 1000, 128), "float32").astype("float16") for _ in range(3))
    first = bc.sage_attention(q, k, v, is_causal=True).tobytes()
    assert all(bc.sage_attention(q, k, v, is_causal=True).tobytes() == first for _ in range(50))
