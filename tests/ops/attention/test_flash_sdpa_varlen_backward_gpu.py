"""flash_sdpa_varlen_backward on a GPU: the bits of flash_sdpa_backward of each sequence alone; bounds of any kind."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py import ArchSku, PlanPreference
from baracuda_py.ops.attention.dense.flash_sdpa_backward import flash_sdpa_backward
from baracuda_py.ops.attention.packed.flash_sdpa_varlen import flash_sdpa_varlen
from baracuda_py.ops.attention.packed.flash_sdpa_varlen_backward import flash_sdpa_varlen_backward

from test_flash_sdpa_varlen_gpu import GARBAGE, MASKS, MIXED, SM80, bits, bounds, make

pytestmark = pytest.mark.gpu
ANY_ORDER = PlanPreference(deterministic=False)
SM80_ANY_ORDER = PlanPreference(deterministic=False, max_arch=ArchSku.SM80)


def problem(cu_q, cu_k, *sizes, facts, **more):
    """q, k, v, y, lse and dy."""
    import cupy as cp

    q, k, v = make(int(cu_q.max()), int(cu_k.max()), *sizes, **more)
    y, lse = flash_sdpa_varlen(q, k, v, cu_q, cu_k, return_lse=True, **facts)
    dy = cp.asarray(np.random.default_rng(9).standard_normal(y.shape, dtype=np.float32).astype(y.dtype))
    return q, k, v, y, lse, dy


def one_by_one(q, k, v, y, lse, dy, cu_q, cu_k, preference, facts):
    """flash_sdpa_backward of each sequence, last query at last key by default; zeros where there is nothing to sum."""
    import cupy as cp

    facts = {"causal_alignment": "bottom_right"} | facts
    grads = [cp.zeros_like(x) for x in (q, k, v)]
    ends_q, ends_k = cu_q.get(), cu_k.get()
    for b in range(len(ends_q) - 1):
        rows, keys = slice(int(ends_q[b]), int(ends_q[b + 1])), slice(int(ends_k[b]), int(ends_k[b + 1]))
        if rows.start == rows.stop or keys.start == keys.stop:
            continue
        alone = [x.swapaxes(0, 1)[None] for x in (q[rows], k[keys], v[keys], y[rows], dy[rows])]
        saved = lse[:, rows].copy()[None]
        made = flash_sdpa_backward(*alone[:4], saved, alone[4], preference=preference, **facts)
        for grad, part, where in zip(grads, made, (rows, keys, keys), strict=True):
            grad[where] = part[0].swapaxes(0, 1)
    return grads


@pytest.mark.parametrize(
    ("preference", "facts"),
    [*((None, facts) for facts in MASKS), *((other, MASKS[2]) for other in (SM80, ANY_ORDER, SM80_ANY_ORDER))],
)
@pytest.mark.parametrize("d", [32, 64, 96, 128, 192, 256])
def test_bits_of_the_dense_rows(d, preference, facts):
    cu_q, cu_k = bounds(MIXED)
    arrays = problem(cu_q, cu_k, d, facts=facts)
    got = flash_sdpa_varlen_backward(*arrays, cu_q, cu_k, preference=preference, **facts)
    want = one_by_one(*arrays, cu_q, cu_k, preference, facts)
    for name, a, b in zip(("dq", "dk", "dv"), got, want, strict=True):
        if name != "dq" or preference in (None, SM80):
            assert bits(a) == bits(b), name
        else:
            np.testing.assert_allclose(a.get().astype(np.float32), b.get().astype(np.float32), rtol=0, atol=4e-2)


@pytest.mark.parametrize("facts", MASKS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_bits_at_odd_sizes(dtype, facts):
    cu_q, cu_k = bounds(MIXED)
    for d_k, d_v in ((17, 19), (80, 8), (1, 130)):
        arrays = problem(cu_q, cu_k, d_k, d_v, dtype, facts=facts)
        got = flash_sdpa_varlen_backward(*arrays, cu_q, cu_k, **facts)
        for a, b in zip(got, one_by_one(*arrays, cu_q, cu_k, None, facts), strict=True):
            assert bits(a) == bits(b)


def test_one_long_among_short_ones_again_and_again():
    facts = {"is_causal": True}
    cu_q, cu_k = bounds([(3, 3)] * 40 + [(5000, 5000)] + [(64, 9000)] * 3 + [(1, 2)] * 7)
    arrays = problem(cu_q, cu_k, 64, facts=facts, heads=2, kv_heads=1)
    first = flash_sdpa_varlen_backward(*arrays, cu_q, cu_k, **facts)
    for a, b in zip(first, one_by_one(*arrays, cu_q, cu_k, None, facts), strict=True):
        assert bits(a) == bits(b)
    for _ in range(10):
        again = flash_sdpa_varlen_backward(*arrays, cu_q, cu_k, **facts)
        assert all(bits(a) == bits(b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("preference", [None, ANY_ORDER])
def test_many_short_sequences(preference):
    rng = np.random.default_rng(1)
    lengths = list(zip(rng.integers(0, 4, 3000), rng.integers(0, 6, 3000), strict=True))
    cu_q, cu_k = bounds(lengths)
    arrays = problem(cu_q, cu_k, 64, facts={})
    got = flash_sdpa_varlen_backward(*arrays, cu_q, cu_k, preference=preference)
    want = flash_sdpa_varlen_backward(*(x.get() for x in (*arrays, cu_q, cu_k)))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.get().astype(np.float32), b.astype(np.float32), rtol=0, atol=6e-2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("garbage", GARBAGE)
def test_whatever_the_bounds_hold(garbage, dtype):
    import cupy as cp

    bad, good = cp.asarray(np.array(garbage)), cp.asarray(np.array([0, 50, 51, 160]))
    whole = cp.asarray(np.array([0, 170]))
    arrays = problem(whole, whole, 64, dtype=dtype, facts={})
    for cu_q, cu_k in ((bad, good), (good, bad), (bad, bad)):
        got = flash_sdpa_varlen_backward(*arrays, cu_q, cu_k, is_causal=True)
        want = flash_sdpa_varlen_backward(*(x.get() for x in (*arrays, cu_q, cu_k)), is_causal=True)
        for a, b in zip(got, want, strict=True):
            scale = max(1.0, float(np.abs(b.astype(np.float32)).max()))
            tolerance = (1e-5 if dtype == "float32" else 4e-2) * scale
            np.testing.assert_allclose(a.get().astype(np.float64), b.astype(np.float64), rtol=0, atol=tolerance)
