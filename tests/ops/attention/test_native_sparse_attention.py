"""native_sparse_attention: against the paper written out query by query, and its gradients against torch's."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.sparse.native_sparse_attention import native_sparse_attention

FACTS = {"block_size": 8, "compress_size": 4, "compress_stride": 2, "selected": 4, "window": 6}
GATES = ("gate_compressed", "gate_selected", "gate_window")


def problem(rng, queries=37, tokens=41, heads=4, kv_heads=2):
    """q, k, v and gates."""
    shapes = [(2, heads, queries, 8), (2, kv_heads, tokens, 8), (2, kv_heads, tokens, 6)]
    return [rng.standard_normal(shape) for shape in shapes] + [rng.random((2, heads, queries)) for _ in range(3)]


def softmax(s):
    """Of one row; nothing of nothing."""
    p = np.exp(s - s.max(initial=-np.inf)) if len(s) else s
    return p / p.sum() if len(s) else p


def importance(p, own, size, step, block):
    """Equation 9: what each of a query's compressed blocks gives to the blocks its strides lie in."""
    total = np.zeros(own + 1)
    for c, weight in enumerate(p):
        for stride in range(size // step):
            j = (c * step + stride * step) // block
            total[j] += weight
    return total


def written_out(q, k, v, *gates, block_size, compress_size, compress_stride, selected, window, initial=1, local=2):
    """The paper, query by query: y, and the blocks that each query and key head selects."""
    batch, heads, queries, d = q.shape
    tokens, group = k.shape[2], heads // k.shape[1]
    y = np.zeros((batch, heads, queries, v.shape[3]))
    chosen = np.full((batch, k.shape[1], queries, selected), -1)
    for b, kv, i in np.ndindex(batch, k.shape[1], queries):
        t = i + tokens - queries
        own, at = t // block_size, range(0, t + 2 - compress_size, compress_stride)
        ck = np.array([k[b, kv, c : c + compress_size].mean(0) for c in at]).reshape(-1, d)
        cv = np.array([v[b, kv, c : c + compress_size].mean(0) for c in at]).reshape(-1, v.shape[3])
        mine = range(kv * group, (kv + 1) * group)
        weights = [softmax(ck @ q[b, h, i] / d**0.5) for h in mine]
        total = importance(sum(weights), own, compress_size, compress_stride, block_size)
        total[:initial], total[max(own + 1 - local, 0) :] = np.inf, np.inf
        best = np.argsort(-total, kind="stable")[:selected]
        chosen[b, kv, i, : len(best)] = best
        inside = [j for j in range(t + 1) if j // block_size in best]
        near = list(range(max(0, t + 1 - window), t + 1))
        for h, p in zip(mine, weights, strict=True):
            parts = [p @ cv]
            parts += [softmax(k[b, kv, keys] @ q[b, h, i] / d**0.5) @ v[b, kv, keys] for keys in (inside, near)]
            y[b, h, i] = sum(g[b, h, i] * part for g, part in zip(gates, parts, strict=True))
    return y, chosen


@pytest.mark.parametrize("facts", [{}, {"compress_size": 8}, {"selected": 3, "initial": 0}, {"local": 0, "initial": 2}])
@pytest.mark.parametrize("queries", [41, 37, 1])
def test_query_by_query(facts, queries):
    arrays = problem(np.random.default_rng(queries), queries)
    want, _ = written_out(*arrays, **FACTS | facts)
    np.testing.assert_allclose(native_sparse_attention(*arrays, **FACTS | facts), want, rtol=1e-12, atol=1e-13)


def test_more_blocks_than_there_are_and_tokens_too_few_to_compress():
    q, k, v, *gates = problem(np.random.default_rng(0), 3, 3)
    want, _ = written_out(q, k, v, *gates, **FACTS)
    np.testing.assert_allclose(native_sparse_attention(q, k, v, *gates, **FACTS), want, rtol=1e-12, atol=1e-13)


def test_bshd_and_compressed_keys_that_are_given():
    q, k, v, *gates = problem(np.random.default_rng(1))
    ck, cv = (np.stack([x[:, :, c : c + 4].mean(2) for c in range(0, 38, 2)], 2) for x in (k, v))
    want = native_sparse_attention(q, k, v, *gates, **FACTS)
    np.testing.assert_allclose(native_sparse_attention(q, k, v, *gates, ck, cv, **FACTS), want, rtol=1e-12, atol=1e-13)
    turned = (np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v, *gates))
    got = native_sparse_attention(*turned, **FACTS, layout="bshd")
    np.testing.assert_allclose(got.swapaxes(1, 2), want, rtol=1e-12, atol=1e-13)


def test_without_gates_the_branches_are_added():
    q, k, v, *gates = problem(np.random.default_rng(2))
    want = native_sparse_attention(q, k, v, *map(np.ones_like, gates), **FACTS)
    np.testing.assert_array_equal(native_sparse_attention(q, k, v, **FACTS), want)


def test_what_does_not_fit_is_refused():
    q, k, v, gate, *_ = problem(np.random.default_rng(3))
    for wrong in ({"selected": 2}, {"window": 0}, {"compress_stride": 0}, {"k_compressed": k}, {"layout": "sbhd"}):
        with pytest.raises(InvalidProblemError):
            native_sparse_attention(q, k, v, **FACTS | wrong)
    with pytest.raises(InvalidProblemError, match="gate_compressed"):
        native_sparse_attention(q, k, v, gate[:, :1], **FACTS)
    with pytest.raises(InvalidProblemError, match="last of the tokens"):
        native_sparse_attention(q, k[:, :, :5], v[:, :, :5], **FACTS)


def dense_in_torch(torch, q, k, v, gates, chosen):
    """The three branches as torch's dense attention under masks, for the blocks that were chosen."""
    size, step, block = FACTS["compress_size"], FACTS["compress_stride"], FACTS["block_size"]
    queries, tokens = q.shape[2], k.shape[2]
    t = torch.arange(queries)[:, None] + tokens - queries
    j = torch.arange(tokens)
    ck, cv = (x.unfold(2, size, step).mean(-1) for x in (k, v))
    ends = torch.arange(ck.shape[2]) * step + size
    selected = (torch.from_numpy(chosen)[..., None] == j // block).any(-2).repeat_interleave(2, 1) & (j <= t)
    masks = (ends <= t + 1, selected, (j <= t) & (j > t - FACTS["window"]))
    total = 0
    for gate, mask, (key, value) in zip(gates, masks, ((ck, cv), (k, v), (k, v)), strict=True):
        key, value = (x.repeat_interleave(2, 1) for x in (key, value))
        s = (q @ key.transpose(-1, -2) / 8**0.5).masked_fill(~mask, -torch.inf)
        none = (s == -torch.inf).all(-1, keepdim=True)
        total = total + gate[..., None] * (torch.softmax(s.masked_fill(none, 0), -1).masked_fill(none, 0) @ value)
    return total


def test_gradients_are_those_of_dense_attention_in_torch():
    torch = pytest.importorskip("torch")
    from baracuda_py import torch as bt

    rng = np.random.default_rng(4)
    arrays = problem(rng)
    _, chosen = written_out(*arrays, **FACTS)
    way = torch.from_numpy(rng.standard_normal((2, 4, 37, 6)))
    results = []
    for dense in (False, True):
        leaves = [torch.from_numpy(x.copy()).requires_grad_() for x in arrays]
        y = (dense_in_torch(torch, *leaves[:3], leaves[3:], chosen) if dense
             else bt.native_sparse_attention(*leaves, **FACTS))  # fmt: skip
        results.append((y, *torch.autograd.grad((y * way).sum(), leaves)))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-11)
