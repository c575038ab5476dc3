"""dot_product_attention against its formula in float64 and against jax.nn's, with gradients; and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnknownKeywordError
from tests.steps_emulated import by_kernels

RNG = np.random.default_rng(4)
Q, K, V = (RNG.standard_normal(s) for s in ((2, 5, 6, 8), (2, 7, 3, 8), (2, 7, 3, 8)))
BIAS = RNG.standard_normal((1, 6, 5, 7))
MASK = RNG.random((2, 1, 5, 7)) < 0.7
MASK[..., 0] = True  # a query that sees no key is another thing here than in JAX
TAKEN, SOME = np.array([7, 4], np.int32), np.array([5, 2], np.int32)
FACTS: dict[str, dict[str, Any]] = {
    "plain": {}, "scale": {"scale": -0.3}, "causal": {"is_causal": True}, "bias": {"bias": BIAS},
    "bias of a head": {"bias": BIAS[:, :, :1, :1]}, "mask": {"mask": MASK}, "both": {"bias": BIAS, "mask": MASK},
    "keys": {"key_value_seq_lengths": TAKEN}, "queries": {"query_seq_lengths": SOME},
    "lengths": {"key_value_seq_lengths": TAKEN, "query_seq_lengths": SOME, "bias": BIAS, "mask": MASK},
    "window": {"local_window_size": 1}, "uneven window": {"local_window_size": (2, 4), "bias": BIAS},
    "causal window": {"local_window_size": (2, 3), "is_causal": True, "key_value_seq_lengths": TAKEN + 1},
}  # fmt: skip


def formula(q: Any, k: Any, v: Any, **facts: Any) -> Any:
    """Every score in float64, in torch."""
    torch = pytest.importorskip("torch")
    q, k, v = (torch.as_tensor(x, dtype=torch.float64) for x in (q, k, v))
    group, (t, s) = q.shape[2] // k.shape[2], (q.shape[1], k.shape[1])
    k, v = (x.repeat_interleave(group, 2) for x in (k, v))
    scores = torch.einsum("btnh,bsnh->bnts", q, k) * facts.get("scale", q.shape[3] ** -0.5)
    scores = scores + torch.as_tensor(facts.get("bias", 0.0), dtype=torch.float64)
    ahead = torch.arange(s) - torch.arange(t)[:, None]
    window = facts.get("local_window_size", max(s, t))
    left, right = window if isinstance(window, tuple) else (window, window)
    seen = (ahead >= -left) & (ahead <= (0 if facts.get("is_causal") else right))
    seen = seen & torch.as_tensor(facts.get("mask", True))
    lengths = torch.as_tensor(facts.get("key_value_seq_lengths", [s]))
    seen = seen & (torch.arange(s) < lengths[:, None])[:, None, None]
    y = torch.einsum("bnts,bsnh->btnh", torch.softmax(scores.masked_fill(~seen, -torch.inf), -1), v)
    live = torch.arange(t) < torch.as_tensor(facts.get("query_seq_lengths", [t]))[:, None]
    return torch.where(live[:, :, None, None], y, 0.0)


@pytest.mark.parametrize("name", FACTS)
def test_values(name: str) -> None:
    facts = FACTS[name]
    want = formula(Q, K, V, **facts).numpy()
    np.testing.assert_allclose(bc.dot_product_attention(Q, K, V, **facts), want, rtol=1e-12, atol=1e-13)
    out = np.full(Q.shape, np.nan)
    assert bc.dot_product_attention(Q, K, V, **facts, out=out) is out
    np.testing.assert_allclose(out, want, rtol=1e-12, atol=1e-13)
    low = bc.dot_product_attention(*(x.astype(np.float32) for x in (Q, K, V)), **_in(facts, np.float32))
    np.testing.assert_allclose(low, want, rtol=2e-5, atol=2e-6)


def _in(facts: dict[str, Any], dtype: Any) -> dict[str, Any]:
    return {n: x.astype(dtype) if n == "bias" else x for n, x in facts.items()}


@pytest.mark.parametrize("name", ["plain", "causal", "mask", "bias"])
def test_without_a_batch(name: str) -> None:
    facts = {n: x[:1] if isinstance(x, np.ndarray) else x for n, x in FACTS[name].items()}
    want = formula(Q[:1], K[:1], V[:1], **facts)[0].numpy()
    y, out = bc.dot_product_attention(Q[0], K[0], V[0], **facts), np.empty(Q.shape[1:])
    assert bc.dot_product_attention(Q[0], K[0], V[0], **facts, out=out) is out
    for one in (y, out):
        np.testing.assert_allclose(one, want, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", FACTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gradients_in_torch(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    kind, results = getattr(torch, dtype), []
    for function, wide in ((bc.dot_product_attention, kind), (formula, torch.float64)):
        given = {n: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for n, x in FACTS[name].items()}
        leaves = [torch.tensor(x, dtype=wide, requires_grad=True) for x in (Q, K, V)]
        if "bias" in given:
            given["bias"] = given["bias"].to(wide).requires_grad_()
            leaves.append(given["bias"])
        results.append(torch.autograd.grad(function(*leaves[:3], **given).sin().sum(), leaves))
    fine = {"rtol": 1e-10, "atol": 1e-12} if dtype == "float64" else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(results[0], results[1], check_dtype=False, **fine)


@pytest.mark.parametrize("name", FACTS)
def test_values_and_gradients_in_jax(name: str) -> None:
    """Against jax.nn's own, whose softmax is in float32."""
    jax = pytest.importorskip("jax")
    facts = _in(FACTS[name], np.float32)
    values = [jax.numpy.asarray(x, dtype="float32") for x in (Q, K, V)]
    values += [jax.numpy.asarray(facts["bias"])] if "bias" in facts else []
    facts.pop("bias", None)

    def both(function: Any) -> Any:
        def loss(*arrays: Any) -> Any:
            y = function(*arrays, **facts)
            return jax.numpy.sin(y).sum(), y

        return jax.jit(jax.grad(loss, tuple(range(len(values))), has_aux=True))(*values)

    made, want = (jax.tree.leaves(both(f)) for f in (bc.dot_product_attention, jax.nn.dot_product_attention))
    for one, other in zip(made, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_on_the_emulator() -> None:
    facts = _in(FACTS["lengths"], np.float32)
    with by_kernels() as launched:
        y = bc.dot_product_attention(*(x.astype(np.float32) for x in (Q, K, V)), **facts)
    assert sum("flash_sdpa" in name for name in launched) == 1
    np.testing.assert_allclose(y, formula(Q, K, V, **FACTS["lengths"]).numpy(), rtol=1e-4, atol=1e-5)


def test_a_query_that_sees_nothing_gives_zeros() -> None:
    mask = MASK.copy()
    mask[0, 0, 3] = False
    y = bc.dot_product_attention(Q, K, V, mask=mask)
    assert not y[0, 3].any() and y[0, :3].all()
    assert not bc.dot_product_attention(Q, K, V, key_value_seq_lengths=np.array([0, 7]))[0].any()


BAD: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    r"must be \[B, T, N, H\]": ((Q, K[0], V), {}), "do not fit together": ((Q, K[:, :5], V), {}),
    "heads of key and value must divide": ((Q[:, :, :5], K, V), {}),
    "value must hold float64 as query": ((Q, K, V.astype(np.float32)), {}),
    "bias must hold": ((Q, K, V), {"bias": MASK}), "mask must hold bool": ((Q, K, V), {"mask": BIAS}),
    "bias .* do not broadcast": ((Q, K, V), {"bias": BIAS[..., :3]}),
    "mask must broadcast": ((Q, K, V), {"mask": np.ones((2, 2, 6, 5, 7), bool)}),
    "query_seq_lengths must be int32": ((Q, K, V), {"query_seq_lengths": SOME.astype(np.float32)}),
    r"key_value_seq_lengths must be .* \[2\]": ((Q, K, V), {"key_value_seq_lengths": TAKEN[:1]}),
    "local_window_size must be": ((Q, K, V), {"local_window_size": (1, 2, 3)}),
    "local_window_size must": ((Q, K, V), {"local_window_size": -1}),
}  # fmt: skip


@pytest.mark.parametrize("said", BAD)
def test_refusals(said: str) -> None:
    arrays, facts = BAD[said]
    with pytest.raises(InvalidProblemError, match=said):
        bc.dot_product_attention(*arrays, **facts)


def test_unknown_keywords() -> None:
    with pytest.raises(UnknownKeywordError, match="implementation"):
        bc.dot_product_attention(Q, K, V, implementation="cudnn")
