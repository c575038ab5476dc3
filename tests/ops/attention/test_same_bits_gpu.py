"""PlanPreference(same_bits=True) on a GPU: random lengths, dense, packed, in pages, in chunks and decoded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

pytestmark = pytest.mark.gpu

SHARED = bc.PlanPreference(same_bits=True)
HEADS, KV_HEADS = 8, 2


def pages_of(cupy: Any, x: Any, lengths: list[int], page: int) -> tuple[Any, Any]:
    """Packed [rows, heads, d] in pages that are dealt out backwards, with NaN where there is no token; the table."""
    each = -(-max(lengths) // page)
    table = cupy.arange(each * len(lengths), dtype="int32")[::-1].reshape(len(lengths), each).copy()
    cache = cupy.full((each * len(lengths), x.shape[1], page, x.shape[2]), cupy.nan, x.dtype)
    at = 0
    for b, n in enumerate(lengths):
        place = cupy.arange(n)
        cache[table[b, place // page], :, place % page] = x[at : at + n]
        at += n
    return cache, table


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("terms", ["plain", "window", "all"])
@pytest.mark.parametrize("seed", range(3))
def test_a_token_has_the_same_bits_everywhere(dtype: str, d: int, terms: str, seed: int) -> None:
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(seed)
    most = 1500 if dtype == "float32" else (3000, 6000, 40000)[seed]
    lengths = [int(n) for n in rng.integers(1, 900, 4)] + [most]
    total, ends = sum(lengths), np.cumsum([0, *lengths])
    cupy.random.seed(seed)
    q, k, v = (
        cupy.random.standard_normal((total, heads, d), "float32").astype(dtype) for heads in (HEADS, KV_HEADS, KV_HEADS)
    )
    facts: dict[str, Any] = {}
    if terms == "window":
        facts = {"window_left": int(rng.integers(0, most))}
    if terms == "all":
        facts = {"softcap": 9.0, "slopes": cupy.linspace(0.01, 0.6, HEADS, dtype="float32"),
                 "sinks": cupy.linspace(-1, 1, HEADS, dtype="float32")}  # fmt: skip
    bounds = cupy.array(ends, dtype="int32")
    asked = {"preference": SHARED, "return_lse": True, **facts}
    y, lse = bc.flash_sdpa_varlen(q, k, v, bounds, bounds, is_causal=True, **asked)
    plain, _ = bc.flash_sdpa_varlen(q, k, v, bounds, bounds, is_causal=True, return_lse=True, **facts)
    tolerance = 3e-3 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(y.get(), plain.get(), rtol=tolerance, atol=tolerance)

    def same(got: Any, rows: slice) -> None:
        for one, other in zip(got, (y[rows], lse[:, rows]), strict=True):
            assert one.tobytes() == cupy.ascontiguousarray(other).tobytes()

    for b in (0, 4):  # dense, as models have it, and its newest queries alone
        rows = slice(int(ends[b]), int(ends[b + 1]))
        one = [cupy.ascontiguousarray(x[rows])[None] for x in (q, k, v)]
        got = bc.flash_sdpa(*one, is_causal=True, layout="bshd", **asked)
        same((got[0][0], got[1][0]), rows)
        few = min(7, lengths[b])
        got = bc.flash_sdpa(
            one[0][:, -few:], *one[1:], is_causal=True, causal_alignment="bottom_right", layout="bshd", **asked
        )
        same((got[0][0], got[1][0]), slice(rows.stop - few, rows.stop))
        heads_first = [x.swapaxes(1, 2) for x in one[1:]]
        decoded = {n: x for n, x in asked.items() if n != "is_causal"}
        got = bc.flash_decoding(one[0][:, -1], *heads_first, **decoded)
        same((got[0], got[1].T), slice(rows.stop - 1, rows.stop))
    for page in (1, 16, 48):
        (k_cache, table), (v_cache, _) = (pages_of(cupy, x, lengths, page) for x in (k, v))
        caches = {"page_table": table, "lengths": cupy.array(lengths, dtype="int32")}
        same(bc.batch_paged_prefill(q, k_cache, v_cache, bounds, **caches, is_causal=True, **asked), slice(0, total))
        newest = [min(int(n), length) for n, length in zip(rng.integers(0, 30, 5), lengths, strict=True)]
        chosen = np.concatenate([np.arange(end - n, end) for n, end in zip(newest, ends[1:], strict=True)])
        got = bc.batch_paged_extend(
            q[chosen], k_cache, v_cache, cupy.array(np.cumsum([0, *newest]), dtype="int32"), **caches, return_lse=True,
            **facts,
        )  # fmt: skip
        assert got[0].tobytes() == y[chosen].tobytes()
        assert got[1].tobytes() == cupy.ascontiguousarray(lse[:, chosen]).tobytes()


def test_parts_of_a_long_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of q that a launch takes change no bit."""
    from baracuda_py.schedules.attention import extend

    cupy = pytest.importorskip("cupy")
    cupy.random.seed(0)
    q, k, v = (cupy.random.standard_normal((2, 4, 3000, 64), "float32").astype("float16") for _ in range(3))
    desc = bc.FlashSdpaDescriptor(
        batch_size=2, num_heads=4, query_len=3000, key_len=3000, d_k=64, d_v=64, is_causal=True, element="float16"
    )
    want, got = cupy.empty_like(q), cupy.full_like(q, cupy.nan)
    bc.FlashSdpaPlan.select(desc, SHARED).run(bc.FlashSdpaArgs(q=q, k=k, v=v, y=want))
    monkeypatch.setattr(extend, "PARTS_BYTES", 1 << 20)
    bc.FlashSdpaPlan(desc, SHARED, bc.FlashSdpaPlan.select(desc).device).run(bc.FlashSdpaArgs(q=q, k=k, v=v, y=got))
    assert got.tobytes() == want.tobytes()
