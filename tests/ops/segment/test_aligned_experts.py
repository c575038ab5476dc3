"""Rows of experts in whole tiles, chunks in another order, DeepSeek-V3's balance: against loops and autograd."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError

torch = pytest.importorskip("torch")
bct = pytest.importorskip("baracuda_py.torch")


def drawn(seed: int) -> tuple[Any, Any, int, int]:
    """Experts of tokens, some that are none, of which some have no token, and a size of tiles."""
    rng = np.random.default_rng(seed)
    tokens, k, count = int(rng.integers(0 if seed == 3 else 1, 30)), int(rng.integers(1, 5)), int(rng.integers(1, 40))
    ids = rng.integers(-2, count + 2, (tokens, k)) if seed % 2 else rng.integers(0, count, (tokens, k))
    if seed % 3 == 0:
        ids = np.where(ids % 2, ids, -1)  # experts without tokens
    return rng, ids.astype(np.int32 if seed % 4 else np.int64), count, int(rng.choice((1, 4, 16, 128)))


@pytest.mark.parametrize("seed", range(10))
def test_align_block_size(seed: int) -> None:
    rng, ids, count, block = drawn(seed)
    mapped = rng.integers(-1, 9, count).astype(np.int32) if seed % 2 else None
    found, whose, padded = bc.moe_align_block_size(ids, block, count, mapped, pad_sorted_ids=seed % 3 == 1)
    total = ids.size + count * (block - 1)
    total = -(-total // block) * block if seed % 3 == 1 else total
    total = min(ids.size * block, total) if ids.size < count else total
    wanted, experts = [], []
    for expert in range(count):
        own = np.nonzero(ids.ravel() == expert)[0].tolist()
        own += [ids.size] * (-len(own) % block)
        wanted += own
        experts += [expert if mapped is None else mapped[expert]] * (len(own) // block)
    assert found.dtype == whose.dtype == padded.dtype == np.int32 and padded.tolist() == [len(wanted)]
    assert found.tolist() == wanted + [ids.size] * (total - len(wanted))
    assert whose.tolist() == experts + [-1] * (-(-total // block) - len(experts))


@pytest.mark.parametrize("seed", range(10))
def test_permute_pad_with_probs(seed: int) -> None:
    rng, ids, count, block = drawn(seed)
    x, probs, scales = (torch.from_numpy(rng.standard_normal(s)) for s in ((len(ids), 3), ids.shape, (len(ids), 2)))
    leaves = [one.requires_grad_() for one in (x, probs, scales)]
    y, offsets, places, weights, beside = bct.moe_permute_pad_with_probs(
        x, torch.from_numpy(ids.copy()), probs, scales, num_experts=count, align_size=block
    )
    rows, at, where = [], [0], np.full(ids.shape, -1)
    for expert in range(count):
        own = list(zip(*np.nonzero(ids == expert), strict=True))
        for n, slot in enumerate(own):
            where[slot] = len(rows) + n
        rows += own + [None] * (-len(own) % block)
        at.append(len(rows))
    assert len(y) % block == 0 and len(y) >= len(rows) and offsets.tolist() == at
    np.testing.assert_array_equal(places.numpy(), where)
    rows += [None] * (len(y) - len(rows))
    nothing = torch.zeros(())
    for made, of in (
        (y, [x[r[0]] if r else nothing.expand(3) for r in rows]),
        (beside, [scales[r[0]] if r else nothing.expand(2) for r in rows]),
        (weights, [probs[r] if r else nothing for r in rows]),
    ):
        np.testing.assert_array_equal(made.detach(), torch.stack(of).detach() if of else made.detach())
    slopes = [torch.from_numpy(rng.standard_normal(tuple(one.shape))) for one in (y, weights, beside)]
    found = torch.autograd.grad((y, weights, beside), leaves, slopes)
    there = where >= 0
    of = np.where(there, where, 0)
    for n, slope in enumerate((slopes[0], slopes[2])):
        wanted = (slope.numpy()[of] * there[..., None]).sum(1) if len(y) else np.zeros(leaves[2 * n].shape)
        np.testing.assert_allclose(found[2 * n], wanted, atol=1e-12)
    np.testing.assert_array_equal(found[1], slopes[1].numpy()[of] * there if len(y) else 0)
    back = bct.moe_unpermute(y.detach(), places)
    np.testing.assert_allclose(back, x.detach().numpy() * there.sum(1)[:, None], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_sort_chunks(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chunks = int(rng.integers(1, 9))
    sizes, order = rng.integers(0, 5, chunks) * (rng.random(chunks) < 0.7), rng.permutation(chunks)
    kind = np.int32 if seed % 2 else np.int64
    sizes, order = sizes.astype(kind), np.repeat(order, 2).astype(kind)[::2]
    rows = int(sizes.sum()) + seed % 3
    x = torch.from_numpy(rng.standard_normal((4, rows)).T).requires_grad_()
    probs = torch.from_numpy(rng.standard_normal(rows)).requires_grad_()
    given = torch.from_numpy(sizes), torch.from_numpy(order.copy())
    y, moved = bct.moe_sort_chunks_by_index_with_probs(x, probs, *given)
    begins = np.cumsum(sizes) - sizes
    of = np.concatenate([np.arange(begins[c], begins[c] + sizes[c]) for c in order])
    end = len(of)
    np.testing.assert_array_equal(y.detach()[:end], x.detach()[of])
    np.testing.assert_array_equal(moved.detach()[:end], probs.detach()[of])
    assert not y.detach()[end:].any() and torch.equal(bct.moe_sort_chunks_by_index(x, *given), y)
    dy, dp = torch.from_numpy(rng.standard_normal((rows, 4))), torch.from_numpy(rng.standard_normal(rows))
    dx, dprobs = torch.autograd.grad((y, moved), (x, probs), (dy, dp))
    wanted, weights = np.zeros((rows, 4)), np.zeros(rows)
    wanted[of], weights[of] = dy[:end], dp[:end]
    np.testing.assert_array_equal(dx, wanted)
    np.testing.assert_array_equal(dprobs, weights)
    if rows:
        assert torch.autograd.gradgradcheck(lambda x: bct.moe_sort_chunks_by_index(x, *given).square(), x)


@pytest.mark.parametrize("scoring", ["sigmoid", "softmax", "none"])
@pytest.mark.parametrize("lead", [(), (3,), (2, 2)])
def test_sequence_balance(scoring: str, lead: tuple[int, ...]) -> None:
    rng = np.random.default_rng(len(lead))
    logits = torch.from_numpy(rng.standard_normal((*lead, 7, 5)))
    logits = (logits.abs() + 0.1 if scoring == "none" else logits).requires_grad_()
    indices = torch.from_numpy(rng.integers(-1, 6, (*lead, 7, 2)))
    loss = bct.sequence_balancing_loss(logits, indices, scoring, alpha=0.25)
    scores = {"sigmoid": logits.sigmoid(), "softmax": logits.softmax(-1), "none": logits}[scoring]
    p = (scores / scores.sum(-1, keepdim=True)).mean(-2)
    f = (indices[..., None] == torch.arange(5)).double().sum((-3, -2)) * 5 / (2 * 7)
    wanted = (0.25 * (f * p).sum(-1)).mean()
    torch.testing.assert_close(loss, wanted, check_dtype=False, rtol=1e-6, atol=1e-7)
    made = [torch.autograd.grad(one, logits)[0] for one in (loss, wanted)]
    torch.testing.assert_close(*made, rtol=1e-6, atol=1e-8)
    half = bc.sequence_balancing_loss(logits.detach().half().numpy(), indices.numpy(), scoring, alpha=0.25)
    assert abs(float(half) - wanted.item()) < 2e-3


def test_what_is_refused() -> None:
    ids, x = np.zeros((3, 2), np.int64), np.zeros((3, 4))
    for call, said in (
        (lambda: bc.moe_align_block_size(ids[0], 4, 2), r"topk_ids must be \[tokens, k\]"),
        (lambda: bc.moe_align_block_size(ids.astype(float), 4, 2), "topk_ids must be int64 or int32"),
        (lambda: bc.moe_align_block_size(ids, 0, 2), "block_size"),
        (lambda: bc.moe_align_block_size(np.zeros((2, 3), int).T, 4, 2), "topk_ids must be one run of memory"),
        (lambda: bc.moe_align_block_size(ids, 4, 2, ids[0, :1]), r"expert_map must be \[2\]"),
        (lambda: bc.moe_permute_pad_with_probs(x[:2], ids, num_experts=2), "x must begin with axes"),
        (lambda: bc.moe_permute_pad_with_probs(x, ids, x, num_experts=2), "probs must begin with axes"),
        (lambda: bc.moe_permute_pad_with_probs(x, ids, num_experts=2, align_size=0), "align_size"),
        (lambda: bc.moe_sort_chunks_by_index(x, ids[:, 0], ids[0]), r"sorted_index must be \(3,\)"),
        (lambda: bc.moe_sort_chunks_by_index(x, ids[:0, 0], ids[:0, 0]), "one chunk at least"),
        (lambda: bc.moe_sort_chunks_by_index_with_probs(x, x[:2], ids[:, 0], ids[:, 0]), "probs must have"),
        (lambda: bc.sequence_balancing_loss(x, ids[:2]), "indices must have shape"),
        (lambda: bc.sequence_balancing_loss(x, ids, "relu"), "scoring must be"),
    ):
        with pytest.raises(InvalidProblemError, match=said):
            call()
