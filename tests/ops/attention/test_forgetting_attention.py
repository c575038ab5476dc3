"""forgetting_attention: attention under sums of gates written out, gradients, layouts, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(0)


def drawn(*shape: int, grad: bool = True) -> Any:
    return torch.from_numpy(RNG.standard_normal(shape)).requires_grad_(grad)


def written_out(q: Any, k: Any, v: Any, g: Any, scale: float | None = None) -> Any:
    """By the products of the gates between key and query, each a sum of its own."""
    group, start = q.shape[1] // k.shape[1], k.shape[2] - q.shape[2]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = (q @ k.mT) * (q.shape[-1] ** -0.5 if scale is None else scale)
    rows = []
    for i in range(q.shape[2]):
        fade = [g[..., j + 1 : i + start + 1].sum(-1) for j in range(i + start + 1)]
        p = (scores[:, :, i, : i + start + 1] + torch.stack(fade, -1)).softmax(-1)
        rows.append(torch.einsum("bhj,bhjd->bhd", p, v[:, :, : i + start + 1]))
    return torch.stack(rows, 2)


@pytest.mark.parametrize("queries", [17, 5, 1])
def test_it_is_the_sum_of_gates_between_key_and_query(queries: int) -> None:
    q, k, v = drawn(2, 4, queries, 8), drawn(2, 2, 17, 8), drawn(2, 2, 17, 6)
    gates, way, results = drawn(2, 4, 17), drawn(2, 4, queries, 6, grad=False), []
    for f in (bc.forgetting_attention, written_out):
        y = f(q, k, v, torch.nn.functional.logsigmoid(gates), scale=0.6)  # type: ignore[operator]
        results.append((y, *torch.autograd.grad((y * way).sum(), [q, k, v, gates])))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def test_gates_of_one_are_causal_attention() -> None:
    q, k, v = RNG.standard_normal((3, 1, 2, 9, 8))
    got, lse = bc.forgetting_attention(q, k, v, np.zeros((1, 2, 9)), return_lse=True)
    wanted, other = bc.flash_sdpa(q, k, v, is_causal=True, return_lse=True)
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(lse, other)


def test_layouts_halves_and_out() -> None:
    q, k, v = RNG.standard_normal((3, 2, 3, 9, 8)).astype(np.float16)
    g = np.log(RNG.uniform(0.5, 1, (2, 3, 9))).astype(np.float32)
    y = bc.forgetting_attention(q, k, v, g)
    exact = bc.forgetting_attention(*(x.astype(float) for x in (q, k, v, g)))
    np.testing.assert_allclose(y.astype(float), exact, rtol=0.01, atol=0.005)
    turned, out = [x.swapaxes(1, 2) for x in (q, k, v, g)], np.empty((2, 9, 3, 8), np.float16)
    assert bc.forgetting_attention(*turned, layout="bshd", out=out) is out
    np.testing.assert_array_equal(out.swapaxes(1, 2), y)
    assert bc.forgetting_attention(q, k, v, g.astype(np.float16)).dtype == np.float16
    assert bc.forgetting_attention(q[:0], k[:0], v[:0], g[:0]).shape == (0, 3, 9, 8)


def test_what_does_not_fit_is_refused() -> None:
    q, k, v = RNG.standard_normal((3, 1, 2, 6, 8))
    g = np.zeros((1, 2, 6))
    for operands, said in (
        ((q, k, v, g[..., :5]), "g must have shape"), ((q, k, v, g[..., None]), "g must have shape"),
        ((q, k, v, g.astype(np.float32)), "g must hold float64"), ((q, k[:, :, :5], v[:, :, :5], g), "the last of the"),
        ((q[0], k[0], v[0], g), "four axes"),
    ):  # fmt: skip
        with pytest.raises(bc.InvalidProblemError, match=said):
            bc.forgetting_attention(*operands)
