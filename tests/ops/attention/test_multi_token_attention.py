"""multi_token_attention: the paper's sums written out, torch's convolutions, gradients, 16 bits, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
F = torch.nn.functional
RNG = np.random.default_rng(0)


def drawn(*shape: int, grad: bool = True) -> Any:
    return torch.from_numpy(RNG.standard_normal(shape)).requires_grad_(grad)


def in_torch(q: Any, k: Any, v: Any, pre: Any, post: Any, scale: float | None = None) -> Any:
    group, n = q.shape[1] // k.shape[1], q.shape[2]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    hidden = torch.ones(n, n, dtype=torch.bool).triu(1)

    def mixed(x: Any, weight: Any) -> Any:
        if weight is None:
            return x
        rows, cols = weight.shape[2:]
        x = F.pad(x.masked_fill(hidden, 0), ((cols - 1) // 2, cols // 2, rows - 1, 0))
        return F.conv2d(x, weight, groups=x.shape[1] // weight.shape[1])

    scores = (q @ k.mT) * (q.shape[-1] ** -0.5 if scale is None else scale)
    weights = mixed(scores, pre).masked_fill(hidden, -torch.inf).softmax(-1)
    return mixed(weights, post).masked_fill(hidden, 0) @ v


@pytest.mark.parametrize(
    ("pre", "post"),
    [
        ((4, 1, 3, 5), (4, 2, 1, 1)), ((4, 2, 1, 4), None), (None, (4, 4, 2, 3)), ((4, 1, 20, 21), (4, 1, 1, 2)),
        (None, None),
    ],
)  # fmt: skip
def test_it_is_torchs_convolutions_and_so_are_gradients(pre: Any, post: Any) -> None:
    q, k, v = drawn(2, 4, 13, 8), drawn(2, 2, 13, 8), drawn(2, 2, 13, 6)
    weights = [None if shape is None else drawn(*shape) for shape in (pre, post)]
    leaves = [x for x in (q, k, v, *weights) if x is not None]
    way, results = drawn(2, 4, 13, 6, grad=False), []
    for f in (bc.multi_token_attention, in_torch):
        y = f(q, k, v, *weights, scale=0.7)  # type: ignore[operator]
        results.append((y, *torch.autograd.grad((y * way).sum(), leaves)))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-11)


def test_it_is_the_papers_sum_over_earlier_queries_and_near_keys() -> None:
    n, rows, cols = 7, 2, 3
    q, k, v = RNG.standard_normal((3, 1, 1, n, 4))
    theta = RNG.standard_normal((rows, cols))  # by queries back, and by keys back from one ahead
    s, scores = q[0, 0] @ k[0, 0].T / 2, np.full((n, n), -np.inf)
    for i in range(n):
        for j in range(i + 1):
            scores[i, j] = sum(
                theta[u, c + 1] * s[i - u, j - c]
                for u in range(rows) for c in (-1, 0, 1) if 0 <= j - c <= i - u
            )  # fmt: skip
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    wanted = weights / weights.sum(-1, keepdims=True) @ v[0, 0]
    got = bc.multi_token_attention(q, k, v, theta[::-1, ::-1][None, None])
    np.testing.assert_allclose(got[0, 0], wanted, rtol=1e-12)


def test_a_later_token_changes_nothing_before_it() -> None:
    q, k, v = RNG.standard_normal((3, 1, 2, 9, 4))
    pre, post = RNG.standard_normal((2, 1, 3, 5)), RNG.standard_normal((2, 2, 3, 3))
    first = bc.multi_token_attention(q, k, v, pre, post)
    for x in (q, k, v):
        x[:, :, 6:] += 1
    np.testing.assert_array_equal(bc.multi_token_attention(q, k, v, pre, post)[:, :, :6], first[:, :, :6])


def test_layouts_out_and_empty_axes() -> None:
    q, k, v = RNG.standard_normal((3, 2, 4, 6, 8))
    weights = RNG.standard_normal((4, 1, 2, 3)), RNG.standard_normal((4, 2, 1, 1))
    y, out = bc.multi_token_attention(q, k, v, *weights), np.empty((2, 6, 4, 8))
    turned = [x.swapaxes(1, 2) for x in (q, k, v)]
    assert bc.multi_token_attention(*turned, *weights, layout="bshd", out=out) is out
    np.testing.assert_allclose(out.swapaxes(1, 2), y, rtol=1e-12)
    for empty in ((q[:0], k[:0], v[:0]), (q[:, :, :0], k[:, :, :0], v[:, :, :0])):
        assert bc.multi_token_attention(*empty, *weights).shape == empty[2].shape
        learned = [torch.from_numpy(x).requires_grad_() for x in weights]
        bc.multi_token_attention(*map(torch.from_numpy, empty), *learned).sum().backward()
        assert not any(x.grad.any() for x in learned)


def test_halves_are_summed_in_float32() -> None:
    import ml_dtypes

    half = ml_dtypes.bfloat16
    q, k, v = RNG.standard_normal((3, 1, 2, 33, 16)).astype(half)
    pre, post = RNG.standard_normal((2, 1, 3, 5)).astype(np.float32), RNG.standard_normal((2, 2, 1, 1)).astype(half)
    exact = bc.multi_token_attention(*(x.astype(float) for x in (q, k, v, pre, post)))
    for other in (pre, pre.astype(half)):
        y = bc.multi_token_attention(q, k, v, other, post)
        assert y.dtype == half
        if other is pre:
            np.testing.assert_allclose(y.astype(float), exact, rtol=0.02, atol=0.03)


def test_what_does_not_fit_is_refused() -> None:
    q, k, v = RNG.standard_normal((3, 1, 4, 6, 8))
    good = RNG.standard_normal((4, 1, 2, 3))
    for operands, facts, said in (
        ((q, k, v, good[:3]), {}, "pre_weight must have shape"),
        ((q, k, v, None, good[0]), {}, "post_weight must have"),
        ((q, k, v, RNG.standard_normal((4, 3, 1, 1))), {}, "dividing 4"), ((q, k, v, good[:, :, :0]), {}, "pre_weight"),
        ((q, k, v, good.astype(np.float32)), {}, "pre_weight must hold float64"),
        ((q[:, :, 1:], k, v), {}, "as many tokens"),
        ((q, k[:, :3], v[:, :3]), {}, "K dividing H"), ((q, k[..., :7], v), {}, "K dividing H"),
        ((q, k, v), {"layout": "sbhd"}, "layout"), ((q, k, v), {"out": np.empty((1, 4, 6, 7))}, "out must have shape"),
    ):  # fmt: skip
        with pytest.raises(bc.InvalidProblemError, match=said):
            bc.multi_token_attention(*operands, **facts)  # type: ignore[arg-type]
