"""moba_attention: against the paper written out query by query, and its gradients against torch's."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.sparse.moba_attention import moba_attention


def problem(rng, queries=37, tokens=41, heads=4, kv_heads=2):
    """q, k and v."""
    shapes = (2, heads, queries, 8), (2, kv_heads, tokens, 8), (2, kv_heads, tokens, 6)
    return [rng.standard_normal(shape) for shape in shapes]


def written_out(q, k, v, block_size, top_k):
    """The paper, query by query: y, and the keys that each sees."""
    y, seen = np.zeros((*q.shape[:3], v.shape[3])), np.zeros((*q.shape[:3], k.shape[2]), bool)
    start, group = k.shape[2] - q.shape[2], q.shape[1] // k.shape[1]
    for b, h, i in np.ndindex(*q.shape[:3]):
        t, key, value = i + start, k[b, h // group], v[b, h // group]
        own = t // block_size
        likes = [key[j * block_size : (j + 1) * block_size].mean(0) @ q[b, h, i] for j in range(own)]
        best = [own, *np.argsort(-np.array(likes), kind="stable")[: top_k - 1]]
        keys = [j for j in range(t + 1) if j // block_size in best]
        p = np.exp(key[keys] @ q[b, h, i] / 8**0.5)
        y[b, h, i], seen[b, h, i, keys] = p @ value[keys] / p.sum(), True
    return y, seen


@pytest.mark.parametrize(("block_size", "top_k"), [(8, 3), (8, 1), (7, 2), (64, 3), (1, 5), (8, 20)])
@pytest.mark.parametrize("queries", [41, 37, 1, 0])
def test_query_by_query(block_size, top_k, queries):
    arrays = problem(np.random.default_rng(block_size), queries)
    want, _ = written_out(*arrays, block_size, top_k)
    got = moba_attention(*arrays, block_size=block_size, top_k=top_k)
    np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-13)


def test_bshd_and_lse():
    q, k, v = problem(np.random.default_rng(1), heads=2)
    want, lse = moba_attention(q, k, v, block_size=8, return_lse=True)
    turned = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v))
    got, same = moba_attention(*turned, block_size=8, layout="bshd", return_lse=True)
    np.testing.assert_allclose(got.swapaxes(1, 2), want, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(same, lse, rtol=1e-13)


def test_what_does_not_fit_is_refused():
    q, k, v = problem(np.random.default_rng(2))
    for wrong in ({"top_k": 0}, {"block_size": 0}, {"layout": "sbhd"}):
        with pytest.raises(InvalidProblemError):
            moba_attention(q, k, v, **wrong)
    for operands in ((q, k[:, :, :5], v[:, :, :5]), (q[:, :, :0], k[:, :, :0], v[:, :, :0]), (q[:, :3], k, v)):
        with pytest.raises(InvalidProblemError):
            moba_attention(*operands)


def test_gradients_are_those_of_dense_attention_in_torch():
    torch = pytest.importorskip("torch")
    from baracuda_py import torch as bt

    rng = np.random.default_rng(4)
    arrays = problem(rng)
    seen = torch.from_numpy(written_out(*arrays, 8, 3)[1])
    way = torch.from_numpy(rng.standard_normal((2, 4, 37, 6)))
    results = []
    for dense in (False, True):
        q, k, v = leaves = [torch.from_numpy(x.copy()).requires_grad_() for x in arrays]
        if dense:
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
        else:
            y = bt.moba_attention(q, k, v, block_size=8, top_k=3)
        results.append((y, *torch.autograd.grad((y * way).sum(), leaves)))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)
