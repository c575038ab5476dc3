"""hstu_attention: token by token, sequences on their own, tokens of none, differences; kernels over several tiles."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from attention_rows import MMA, rounded, run

from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.packed.hstu_attention import HstuAttentionDescriptor, HstuAttentionPlan, hstu_attention
from baracuda_py.ops.attention.packed.hstu_attention_backward import (
    HstuAttentionBackwardDescriptor, HstuAttentionBackwardPlan, hstu_attention_backward,
)  # fmt: skip

GRADS = ("dq", "dk", "dv")
BOUNDS = np.array([2, 7, 7, 16])  # of 19 tokens


def problem(rng, total=19, heads=2):
    """q, k and v."""
    return [rng.standard_normal((total, heads, d)) for d in (8, 8, 6)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 0, 3])
def test_token_by_token(causal, window):
    q, k, v = problem(np.random.default_rng(0))
    want = np.zeros(v.shape)
    for first, last in itertools.pairwise(BOUNDS):
        for i in range(first, last):
            for j in range(first, last):
                if (causal and j > i) or (window is not None and i - j > window):
                    continue
                s = (q[i] * k[j]).sum(-1) * 0.4
                want[i] += (s / (1 + np.exp(-s)))[:, None] * v[j] / 11
    got = hstu_attention(q, k, v, BOUNDS, max_seqlen=11, is_causal=causal, window_left=window, scale=0.4)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("facts", [{}, {"is_causal": False}, {"window_left": 2}, {"scale": -0.7}])
def test_directional_differences(facts):
    rng = np.random.default_rng(1)
    q, k, v = problem(rng)
    facts = {"max_seqlen": 5} | facts
    dy = rng.standard_normal(v.shape)
    grads = hstu_attention_backward(q, k, v, BOUNDS, dy, **facts)
    for n, x in enumerate((q, k, v)):
        way = rng.standard_normal(x.shape)
        ends = [
            hstu_attention(*(x + s * way if i == n else a for i, a in enumerate((q, k, v))), BOUNDS, **facts)
            for s in (1e-6, -1e-6)
        ]
        want = ((ends[0] - ends[1]) * dy).sum() / 2e-6
        np.testing.assert_allclose((grads[n] * way).sum(), want, rtol=1e-6, atol=1e-8)


def test_bounds_out_of_order_and_out_of_range_are_clamped():
    q, k, v = problem(np.random.default_rng(2))
    want = hstu_attention(q, k, v, np.array([0, 9, 9, 19]), max_seqlen=5)
    np.testing.assert_array_equal(hstu_attention(q, k, v, np.array([-4, 9, 3, 90]), max_seqlen=5), want)


def test_what_does_not_fit_is_refused():
    q, k, v = problem(np.random.default_rng(3))
    for operands in ((q, k[:4], v, BOUNDS), (q, k, v[:, :1], BOUNDS), (q, k, v, BOUNDS.astype(float))):
        with pytest.raises(InvalidProblemError):
            hstu_attention(*operands, max_seqlen=5)
    for wrong in ({"max_seqlen": 0}, {"max_seqlen": 5, "window_left": -1}):
        with pytest.raises(InvalidProblemError):
            hstu_attention(q, k, v, BOUNDS, **wrong)


@pytest.mark.parametrize("element", ["float16", "float32"])
@pytest.mark.parametrize(("causal", "window"), [(True, None), (False, None), (True, 70)])
def test_kernels_over_several_tiles(element, causal, window):
    rng = np.random.default_rng(4)
    sizes = {
        "total": 230, "num_heads": 2, "d_k": 48, "d_v": 64, "num_bounds": 5, "max_seqlen": 150, "is_causal": causal,
        "window_left": window, "element": element,
    }  # fmt: skip
    q, k, v, dy = rounded(element, *(rng.standard_normal((230, 2, d)) for d in (48, 48, 64, 64)))
    arrays = {"q": q, "k": k, "v": v, "seq_offsets": np.array([3, 20, 30, 180, 225])}
    desc = HstuAttentionDescriptor(**sizes)
    got = run("emulator", HstuAttentionPlan, desc, arrays, {"y"}, MMA)
    wide = {n: x.astype(np.float64) if x.dtype.kind == "f" else x for n, x in arrays.items()}
    want = dict(HstuAttentionPlan.reference(desc, **wide))
    desc = HstuAttentionBackwardDescriptor(**sizes)
    got |= run("emulator", HstuAttentionBackwardPlan, desc, arrays | {"dy": dy}, set(GRADS), MMA)
    want |= HstuAttentionBackwardPlan.reference(desc, **wide, dy=dy.astype(np.float64), wanted=set(GRADS))
    for name, x in want.items():
        limit = (2e-3 if element == "float16" else 1e-5) * np.abs(x).max()
        np.testing.assert_allclose(got[name], x, rtol=0, atol=limit, err_msg=name)
