"""block_select_attention_varlen: each sequence is what it is alone, gradients alike, rows of no sequence, refusals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

RNG = np.random.default_rng(0)
VARLEN: Any = bc.block_select_attention_varlen
BACK: Any = bc.block_select_attention_varlen_backward
ALONE: Any = bc.block_select_attention


def problem(total: int, heads: int = 4, kv_heads: int = 2, n: int = 3) -> list[Any]:
    shapes = (total, heads, 8), (total, kv_heads, 8), (total, kv_heads, 6)
    return [*(RNG.standard_normal(shape) for shape in shapes), RNG.integers(-2, 9, (total, kv_heads, n))]


@pytest.mark.parametrize("size", [16, 5, 1, 64])
@pytest.mark.parametrize("bounds", [(0, 17, 17, 18, 60), (3, 20, 47), (0, 60), (0,), (0, 0), (60, 60)])
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_each_sequence_is_what_it_is_alone(size: int, bounds: tuple[int, ...], kind: Any) -> None:
    q, k, v, blocks = problem(60)
    cu = np.array(bounds, kind)
    dy, dlse = RNG.standard_normal((60, 4, 6)), RNG.standard_normal((4, 60))
    y, lse = VARLEN(q, k, v, blocks, cu, block_size=size, scale=0.7, return_lse=True)
    slopes = BACK(q, k, v, blocks, cu, y, lse, dy, dlse, block_size=size, scale=0.7)
    own = np.zeros(60, bool)
    facts = {"block_size": size, "scale": 0.7, "is_causal": True, "layout": "bshd"}
    for start, stop in itertools.pairwise(bounds):
        own[start:stop] = True
        part = [x[None, start:stop] for x in (q, k, v, blocks)]
        one, other = ALONE(*part, **facts, return_lse=True)
        np.testing.assert_allclose(y[start:stop], one[0], rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(lse[:, start:stop], other[0], rtol=1e-12, atol=1e-14)
        alone = bc.block_select_attention_backward(
            *part, one, other, dy[None, start:stop], np.ascontiguousarray(dlse[None, :, start:stop]), **facts
        )
        for x, want in zip(slopes, alone, strict=True):
            np.testing.assert_allclose(x[start:stop], want[0], rtol=1e-12, atol=1e-13)
    assert not y[~own].any()
    assert np.isneginf(lse[:, ~own]).all()
    assert not any(x[~own].any() for x in slopes)


@pytest.mark.parametrize("with_lse", [False, True])
def test_torch_differentiates_it(with_lse: bool) -> None:
    torch = pytest.importorskip("torch")
    q, k, v, blocks = problem(40)
    cu = np.array([0, 13, 40], np.int32)
    leaves = [torch.from_numpy(x).requires_grad_() for x in (q, k, v)]
    made = VARLEN(*leaves, torch.from_numpy(blocks), torch.from_numpy(cu), block_size=8, return_lse=with_lse)
    y, lse = made if with_lse else (made, None)
    dy, dlse = RNG.standard_normal(tuple(y.shape)), RNG.standard_normal((4, 40)) if with_lse else None
    loss = (y * torch.from_numpy(dy)).sum()
    if with_lse:
        loss = loss + torch.where(torch.isneginf(lse), 0.0, lse * torch.from_numpy(dlse)).sum()
    loss.backward()
    y, lse = VARLEN(q, k, v, blocks, cu, block_size=8, return_lse=True)
    for leaf, want in zip(leaves, BACK(q, k, v, blocks, cu, y, lse, dy, dlse, block_size=8), strict=True):
        np.testing.assert_allclose(leaf.grad.numpy(), want, rtol=1e-11, atol=1e-12)


def test_those_asked_for_and_out() -> None:
    q, k, v, blocks = problem(20)
    cu = np.array([0, 9, 20])
    out, lse_out = np.empty((20, 4, 6)), np.empty((4, 20))
    made = VARLEN(q, k, v, blocks, cu, block_size=4, return_lse=True, out=(out, lse_out))
    assert made[0] is out
    assert made[1] is lse_out
    every = BACK(q, k, v, blocks, cu, out, lse_out, out, block_size=4)
    dk = np.empty_like(k)
    assert BACK(q, k, v, blocks, cu, out, lse_out, out, block_size=4, return_dq=False, return_dv=False, out=dk) is dk
    np.testing.assert_array_equal(dk, every[1])
    assert VARLEN(*(x[:0] for x in (q, k, v, blocks)), np.zeros(1, np.int32)).shape == (0, 4, 6)


def test_what_does_not_fit_is_refused() -> None:
    q, k, v, blocks = problem(20)
    cu = np.array([0, 20])
    for operands, facts, said in (
        ((q, k, v, blocks[:19], cu), {}, "must be"), ((q[0], k, v, blocks, cu), {}, "must be"),
        ((q, k, v, blocks, cu[:0]), {}, "cu_seqlens must be"), ((q, k, v, blocks, cu * 1.0), {}, "cu_seqlens must be"),
        ((q, k, v, blocks * 1.0, cu), {}, "block_indices must hold"),
        ((q, k, v, blocks, cu), {"block_size": 0}, "block_size"),
        ((q[:, :3], k, v, blocks, cu), {}, "heads"),
    ):  # fmt: skip
        with pytest.raises(bc.InvalidProblemError, match=said):
            VARLEN(*operands, **facts)
