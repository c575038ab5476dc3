"""flash_sdpa_varlen on a GPU: bit for bit flash_sdpa of each sequence alone, whatever the bounds hold."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py import ArchSku, PlanPreference
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.dense.flash_sdpa import flash_sdpa
from baracuda_py.ops.attention.packed.flash_sdpa_varlen import (
    FlashSdpaVarlenArgs,
    FlashSdpaVarlenDescriptor,
    FlashSdpaVarlenPlan,
    flash_sdpa_varlen,
)
from baracuda_py.testing.draw import stored
from baracuda_py.core.element import ElementKind

pytestmark = pytest.mark.gpu
SM80 = PlanPreference(max_arch=ArchSku.SM80)
MIXED = [(64, 64), (0, 5), (1, 1), (300, 300), (65, 0), (129, 200), (7, 1000), (0, 0), (200, 77), (127, 128)]
MASKS = (
    {},
    {"is_causal": True},
    {"is_causal": True, "causal_alignment": "top_left"},
    {"window_left": 70, "window_right": 3},
)
GARBAGE = ([0, 90, 40, 130], [-7, 3, 2**40, 5], [200, 100, 3, 0], [0, -1, -(2**62), 170], [2**62, 1, 2, 3])


def bounds(lengths):
    """Bounds of queries and of keys, on the GPU."""
    import cupy as cp

    ends = np.cumsum([(0, 0), *lengths], axis=0)
    return cp.asarray(ends[:, 0].astype(np.int32)), cp.asarray(ends[:, 1])


def make(total_q, total_k, d_k, d_v=None, dtype="bfloat16", heads=4, kv_heads=2, seed=0):
    """Random packed q, k, v on the GPU."""
    import cupy as cp

    rng, kind = np.random.default_rng(seed), ElementKind.of(dtype)
    shapes = (total_q, heads, d_k), (total_k, kv_heads, d_k), (total_k, kv_heads, d_v or d_k)
    return tuple(cp.asarray(stored(rng.standard_normal(s, dtype=np.float32), kind)) for s in shapes)


def bits(x):
    """An array's bytes on the host."""
    return x.get().tobytes() if hasattr(x, "get") else x.tobytes()


def same_as_alone(q, k, v, cu_q, cu_k, preference=None, **facts):
    """Every sequence's y and lse are the bits that flash_sdpa gives, its last query at its last key by default."""
    y, lse = flash_sdpa_varlen(q, k, v, cu_q, cu_k, return_lse=True, preference=preference, **facts)
    ends_q, ends_k = cu_q.get(), cu_k.get()
    for b in range(len(ends_q) - 1):
        rows, keys = slice(int(ends_q[b]), int(ends_q[b + 1])), slice(int(ends_k[b]), int(ends_k[b + 1]))
        if rows.start == rows.stop:
            continue
        alone = [x.swapaxes(0, 1)[None] for x in (q[rows], k[keys], v[keys])]
        aligned = {"causal_alignment": "bottom_right"} | facts
        want, want_lse = flash_sdpa(*alone, return_lse=True, preference=preference, **aligned)
        assert bits(y[rows]) == bits(want[0].swapaxes(0, 1).copy()), (b, rows, keys)
        assert bits(lse[:, rows].copy()) == bits(want_lse[0]), (b, rows, keys)


@pytest.mark.parametrize(("preference", "facts"), [*((None, facts) for facts in MASKS), (SM80, MASKS[2])])
@pytest.mark.parametrize("d", [32, 64, 96, 128, 192, 256])
def test_bits_of_the_dense_rows(d, preference, facts):
    cu_q, cu_k = bounds(MIXED)
    same_as_alone(*make(int(cu_q[-1]), int(cu_k[-1]), d), cu_q, cu_k, preference, **facts)


@pytest.mark.parametrize("facts", MASKS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_bits_at_odd_sizes(dtype, facts):
    cu_q, cu_k = bounds(MIXED)
    for d_k, d_v in ((17, 19), (80, 8), (1, 130)):
        same_as_alone(*make(int(cu_q[-1]), int(cu_k[-1]), d_k, d_v, dtype), cu_q, cu_k, scale=-0.3, **facts)


def test_many_short_sequences():
    rng = np.random.default_rng(1)
    lengths = list(zip(rng.integers(0, 4, 3000), rng.integers(0, 6, 3000), strict=True))
    cu_q, cu_k = bounds(lengths)
    q, k, v = make(int(cu_q[-1]), int(cu_k[-1]), 64, dtype="float32")
    got = flash_sdpa_varlen(q, k, v, cu_q, cu_k, return_lse=True, is_causal=True)
    want = flash_sdpa_varlen(*(x.get() for x in (q, k, v, cu_q, cu_k)), return_lse=True, is_causal=True)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.get(), b, rtol=1e-5, atol=1e-5)


def test_keys_beyond_the_cache_and_one_long_among_short_ones():
    lengths = [(64, 9000)] * 9 + [(3, 5)] * 40 + [(5000, 5000)] + [(1, 2)] * 7
    cu_q, cu_k = bounds(lengths)
    same_as_alone(*make(int(cu_q[-1]), int(cu_k[-1]), 64, heads=2, kv_heads=1), cu_q, cu_k, is_causal=True)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("garbage", GARBAGE)
def test_whatever_the_bounds_hold(garbage, dtype):
    import cupy as cp

    q, k, v = make(170, 170, 64, dtype=dtype)
    bad, good = cp.asarray(np.array(garbage)), cp.asarray(np.array([0, 50, 51, 160]))
    for cu_q, cu_k in ((bad, good), (good, bad), (bad, bad)):
        y, lse = flash_sdpa_varlen(q, k, v, cu_q, cu_k, is_causal=True, return_lse=True)
        want = flash_sdpa_varlen(*(x.get() for x in (q, k, v, cu_q, cu_k)), is_causal=True, return_lse=True)
        tolerance = 1e-5 if dtype == "float32" else 2e-2
        np.testing.assert_allclose(y.get().astype(np.float64), want[0].astype(np.float64), rtol=0, atol=tolerance)
        np.testing.assert_allclose(lse.get(), want[1], rtol=1e-5, atol=1e-5)


def test_a_checked_run(monkeypatch):
    import cupy as cp

    monkeypatch.setenv("BARACUDA_CHECK", "1")
    q, k, v = make(170, 170, 64)
    good = cp.asarray(np.array([3, 50, 51, 160]))
    flash_sdpa_varlen(q, k, v, good, good, max_seqlen_q=109, max_seqlen_k=109)
    for bad in GARBAGE:
        with pytest.raises(InvalidProblemError):
            flash_sdpa_varlen(q, k, v, cp.asarray(np.array(bad)), good)
    with pytest.raises(InvalidProblemError):
        flash_sdpa_varlen(q, k, v, good, good, max_seqlen_q=108)


def test_a_graph_serves_any_lengths():
    import cupy as cp

    q, k, v = make(400, 400, 128)
    cu = cp.zeros(5, cp.int32)
    y, lse = cp.empty_like(q), cp.empty((4, 400), cp.float32)
    desc = FlashSdpaVarlenDescriptor(
        batch_size=4, total_q=400, total_k=400, num_heads=4, num_kv_heads=2, d_k=128, d_v=128, is_causal=True,
        element="bfloat16",
    )  # fmt: skip
    plan = FlashSdpaVarlenPlan.select(desc)
    args = FlashSdpaVarlenArgs(q=q, k=k, v=v, cu_seqlens_q=cu, cu_seqlens_k=cu, y=y, lse=lse)
    workspace = cp.empty(plan.workspace_size(args), cp.uint8)
    plan.prepare(args)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        plan.run(args, workspace)
        graph = stream.end_capture()
    for ends in ([0, 100, 200, 300, 400], [0, 0, 399, 399, 400], [5, 6, 7, 8, 9], [0, 400, 400, 400, 400]):
        cu[...] = cp.asarray(ends)
        y.fill(7), lse.fill(7)
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        want, want_lse = flash_sdpa_varlen(q, k, v, cu, cu, is_causal=True, return_lse=True)
        assert bits(y) == bits(want) and bits(lse) == bits(want_lse)
