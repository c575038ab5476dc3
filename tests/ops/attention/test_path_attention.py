"""path_attention: the products of the maps written out token by token, gradients, gates, layouts, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

torch = pytest.importorskip("torch")
RNG = np.random.default_rng(0)


def drawn(*shape: int, grad: bool = True) -> Any:
    return torch.from_numpy(RNG.standard_normal(shape)).requires_grad_(grad)


def problem(b: int = 2, heads: int = 4, kv_heads: int = 2, n: int = 11, d: int = 8, d_v: int = 6) -> list[Any]:
    """q, k, v, w of length 1, beta in (0, 2), logs of gates."""
    w = torch.nn.functional.normalize(drawn(b, kv_heads, n, d, grad=False), dim=-1).requires_grad_()
    beta = (2 * torch.sigmoid(drawn(b, kv_heads, n, grad=False))).requires_grad_()
    g = torch.nn.functional.logsigmoid(drawn(b, heads, n, grad=False)).requires_grad_()
    return [drawn(b, heads, n, d), drawn(b, kv_heads, n, d), drawn(b, kv_heads, n, d_v), w, beta, g]


def written_out(q: Any, k: Any, v: Any, w: Any, beta: Any, g: Any = None, scale: float | None = None) -> Any:
    """Each key walks to each query, one map after the other."""
    group, (n, d) = q.shape[1] // k.shape[1], q.shape[2:]
    k, v, w, beta = (x.repeat_interleave(group, 1) for x in (k, v, w, beta))
    columns = []
    for j in range(n):
        at, column = k[:, :, j], [torch.full(q.shape[:2], -torch.inf, dtype=q.dtype)] * j
        for i in range(j, n):
            if i > j:
                at = at - (beta[:, :, i] * (w[:, :, i] * at).sum(-1))[..., None] * w[:, :, i]
            s = (q[:, :, i] * at).sum(-1) * (d**-0.5 if scale is None else scale)
            column = [*column, s if g is None else s + g[:, :, j + 1 : i + 1].sum(-1)]
        columns.append(torch.stack(column, -1))
    return torch.stack(columns, -1).softmax(-1) @ v


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("n", [11, 1])
def test_it_is_the_walk_of_each_key_and_so_are_gradients(gated: bool, n: int) -> None:
    leaves = problem(n=n)[: 6 if gated else 5]
    way, results = drawn(2, 4, n, 6, grad=False), []
    for f in (bc.path_attention, written_out):
        y = f(*leaves, scale=0.8)  # type: ignore[operator]
        results.append(
            (y, *torch.autograd.grad((y * way).sum(), leaves, allow_unused=n == 1, materialize_grads=n == 1))
        )
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def test_without_maps_it_is_causal_attention() -> None:
    q, k, v, w, beta, _ = (x.detach().numpy() for x in problem())
    got, lse = bc.path_attention(q, k, v, w, 0 * beta, return_lse=True)
    wanted, other = bc.flash_sdpa(q, k, v, is_causal=True, return_lse=True)
    np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(lse, other, rtol=1e-13, atol=1e-14)


def test_layouts_halves_and_out() -> None:
    arrays = [x.detach().numpy() for x in problem(d_v=8)]
    exact = bc.path_attention(*arrays)
    half = [x.astype(np.float16) for x in arrays[:4]] + [x.astype(np.float32) for x in arrays[4:]]
    y = bc.path_attention(*half)
    assert y.dtype == np.float16
    np.testing.assert_allclose(y.astype(float), exact, rtol=0.02, atol=0.01)
    assert bc.path_attention(*half[:4], *(x.astype(np.float16) for x in half[4:])).dtype == np.float16
    turned, out = [x.swapaxes(1, 2) for x in half], np.empty((2, 11, 4, 8), np.float16)
    assert bc.path_attention(*turned, layout="bshd", out=out) is out
    np.testing.assert_array_equal(out.swapaxes(1, 2), y)
    assert bc.path_attention(*(x[:0] for x in arrays)).shape == (0, 4, 11, 8)
    assert bc.path_attention(*(x[:, :, :0] for x in arrays)).shape == (2, 4, 0, 8)


def test_what_does_not_fit_is_refused() -> None:
    q, k, v, w, beta, g = (x.detach().numpy() for x in problem())
    for operands, said in (
        ((q, k, v, w[..., :7], beta), "w must have shape"), ((q, k, v, w, beta[..., :5]), "beta must have shape"),
        ((q, k, v, w, beta[..., None]), "beta must have shape"), ((q, k, v, w, beta, g[:, :2]), "g must have shape"),
        ((q, k, v, w.astype(np.float32), beta), "w must hold float64, got float32"),
        ((q, k, v, w, beta.astype(np.float32)), "beta must hold float64"),
        ((q[:, :, 1:], k, v, w, beta), "as many tokens"),
        ((q[:, :3], k, v, w, beta), "K dividing H"),
    ):  # fmt: skip
        with pytest.raises(bc.InvalidProblemError, match=said):
            bc.path_attention(*operands)
