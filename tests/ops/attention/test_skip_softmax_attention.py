"""skip_softmax_attention: what is left out is small, what is kept is exact, gradients, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

RNG = np.random.default_rng(0)
FLASH: Any = bc.flash_sdpa


def problem(queries: int = 70, tokens: int = 90, spread: float = 0.1) -> list[np.ndarray]:
    """Blocks of 16 keys that are near each other, so that bounds tell them apart."""
    centres = 4 * RNG.standard_normal((2, 2, -(-tokens // 16), 8))
    k = centres.repeat(16, 2)[:, :, :tokens] + spread * RNG.standard_normal((2, 2, tokens, 8))
    return [RNG.standard_normal((2, 4, queries, 8)), k, RNG.standard_normal((2, 2, tokens, 6))]


def weights(q: np.ndarray, k: np.ndarray, causal: bool) -> np.ndarray:
    """exp(s - max) of each row."""
    s = q @ k.repeat(2, 1).swapaxes(-1, -2) / 8**0.5
    if causal:
        hidden = np.arange(k.shape[2]) > np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
        s = np.where(hidden, -np.inf, s)
    return np.exp(s - s.max(-1, keepdims=True))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("queries", [90, 70, 1, 0])
@pytest.mark.parametrize("threshold", [1e-2, 1e-5])
def test_what_is_left_out_is_less_than_promised(causal: bool, queries: int, threshold: float) -> None:
    q, k, v = problem(queries)
    y, lse = bc.skip_softmax_attention(q, k, v, threshold, block_size=16, is_causal=causal, return_lse=True)
    wanted = FLASH(q, k, v, is_causal=causal, causal_alignment="bottom_right")
    bound = 2 * 90 * threshold * np.abs(v).max()
    assert (np.abs(y - wanted) <= bound).all()
    p = weights(q, k, causal)
    if p.size:
        total = np.exp(lse - np.log(1.0))  # of what was kept, beside that of all
        s = q @ k.repeat(2, 1).swapaxes(-1, -2) / 8**0.5
        lost = p.sum(-1) - total / np.exp(np.where(p == 1, s, -np.inf).max(-1))
        assert (lost > -1e-9).all() and (lost <= 90 * threshold).all()
        if queries > 1:
            assert (lost > 1e-12).any()  # something is left out


def test_of_equal_keys_nothing_is_left_out() -> None:
    q, k, v = problem(spread=1.0)
    k = np.broadcast_to(k[:, :, :1], k.shape)
    for causal in (False, True):
        facts = {"is_causal": causal, "causal_alignment": "bottom_right"}
        np.testing.assert_allclose(
            bc.skip_softmax_attention(q, k, v, 0.9, block_size=16, is_causal=causal),
            FLASH(q, k, v, **facts),
            rtol=1e-11,
        )


def test_layouts_out_and_halves() -> None:
    arrays = [x.astype(np.float16) for x in problem()]
    y, out = bc.skip_softmax_attention(*arrays, 1e-3, block_size=16), np.empty((2, 70, 4, 6), np.float16)
    turned = [x.swapaxes(1, 2) for x in arrays]
    assert bc.skip_softmax_attention(*turned, 1e-3, block_size=16, layout="bshd", out=out) is out
    np.testing.assert_array_equal(out.swapaxes(1, 2), y)


def test_gradients_are_those_of_the_kept() -> None:
    torch = pytest.importorskip("torch")
    arrays = problem()
    y = bc.skip_softmax_attention(*arrays, 1e-9, block_size=16, is_causal=True)
    leaves = [torch.from_numpy(x).requires_grad_() for x in arrays]
    got = bc.skip_softmax_attention(*leaves, 1e-9, block_size=16, is_causal=True)
    np.testing.assert_array_equal(got.detach(), y)
    mask = torch.ones(70, 90, dtype=torch.bool).tril(20)
    wanted = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=mask, enable_gqa=True)
    way = torch.from_numpy(RNG.standard_normal((2, 4, 70, 6)))
    for one, other in zip(*(torch.autograd.grad((x * way).sum(), leaves) for x in (got, wanted)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_infinite_keys_keep_their_blocks() -> None:
    q, k, v = problem()
    k[0, 0, 5, 3] = np.nan
    assert np.isnan(bc.skip_softmax_attention(q, k, v, 1e-3, block_size=16)[0, :2]).all()


def test_what_does_not_fit_is_refused() -> None:
    q, k, v = problem()
    for operands, given, said in (
        ((q, k, v, 0.0), {}, "threshold"), ((q, k, v, 1.0), {}, "threshold"), ((q, k, v, "a"), {}, "threshold"),
        ((q, k, v, 0.1), {"scale": -1.0}, "scale"), ((q, k, v, 0.1), {"block_size": 0}, "block_size"),
        ((q[:, :3], k, v, 0.1), {}, "divide"), ((q, k[:, :, :9], v[:, :, :9], 0.1), {}, "the last of the tokens"),
        ((q[:, :, :0], k[:, :, :0], v[:, :, :0], 0.1), {}, "at least one token"),
    ):  # fmt: skip
        with pytest.raises(bc.InvalidProblemError, match=said):
            bc.skip_softmax_attention(*operands, **given)
