"""multi_head_attention_forward against torch.nn.functional's, with the gradients of all operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from tests.steps_emulated import by_kernels

torch = pytest.importorskip("torch")

L, S, N, E, H = 5, 7, 3, 12, 4
RNG = np.random.default_rng(5)
FULL = np.triu(np.ones((L, S), bool), 1)
HIDES = RNG.random((N * H, L, S)) < 0.3
HIDES[..., 0] = False
PADS = np.arange(S) >= np.array([[7], [4], [1]])
NUMBERS = RNG.standard_normal((N * H, L, S))


def x(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape) * 0.5


Weights = dict[str, np.ndarray]
PACKED: Weights = {"query": x(L, N, E), "key": x(S, N, E), "value": x(S, N, E), "in_proj_weight": x(3 * E, E),
                   "in_proj_bias": x(3 * E), "out_proj_weight": x(E, E), "out_proj_bias": x(E)}  # fmt: skip
APART: Weights = {n: v for n, v in PACKED.items() if n != "in_proj_weight"} | {
    "key": x(S, N, 6), "value": x(S, N, 9), "q_proj_weight": x(E, E), "k_proj_weight": x(E, 6),
    "v_proj_weight": x(E, 9),
}  # fmt: skip
NO_BIAS: Weights = {n: v for n, v in PACKED.items() if n not in ("in_proj_bias", "out_proj_bias")}
MORE: Weights = PACKED | {"bias_k": x(1, 1, E), "bias_v": x(1, 1, E)}
CASES: dict[str, tuple[Weights, dict[str, Any]]] = {
    "plain": (PACKED, {}), "no bias": (NO_BIAS, {}), "apart": (APART, {"use_separate_proj_weight": True}),
    "causal": (PACKED, {"attn_mask": FULL, "is_causal": True}),
    "hidden": (PACKED, {"attn_mask": HIDES}), "added": (PACKED, {"attn_mask": NUMBERS}),
    "added to all": (PACKED, {"attn_mask": NUMBERS[0]}), "padding": (PACKED, {"key_padding_mask": PADS}),
    "both": (PACKED, {"key_padding_mask": PADS, "attn_mask": HIDES}),
    "mixed": (PACKED, {"key_padding_mask": NUMBERS[0, :N], "attn_mask": NUMBERS}),
    "more": (MORE, {"attn_mask": HIDES, "key_padding_mask": PADS}),
    "more, causal": (MORE, {"attn_mask": FULL}),
    "zeros": (PACKED, {"add_zero_attn": True, "attn_mask": NUMBERS}),
    "more and zeros": (MORE, {"add_zero_attn": True, "key_padding_mask": PADS}),
}  # fmt: skip
NAMES = ("query", "key", "value")


def arguments(weights: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    absent = ("in_proj_weight", "in_proj_bias", "bias_k", "bias_v", "out_proj_bias")
    start = {"embed_dim_to_check": E, "num_heads": H, "add_zero_attn": False, "dropout_p": 0.0}
    return start | dict.fromkeys(absent) | weights | facts


@pytest.mark.parametrize("need_weights", [False, True, "each head"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_against_torch(name: str, dtype: str, need_weights: Any) -> None:
    weights, facts = CASES[name]
    kind = getattr(torch, dtype)
    leaves = {n: torch.tensor(v, dtype=kind, requires_grad=True) for n, v in weights.items()}
    given = {n: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for n, v in facts.items()}
    given = {n: v.to(kind) if getattr(v, "dtype", None) is torch.float64 else v for n, v in given.items()}
    given |= {"need_weights": bool(need_weights), "average_attn_weights": need_weights is True}
    call, results = arguments(leaves, given), []
    for function in (bc.multi_head_attention_forward, torch.nn.functional.multi_head_attention_forward):
        y, attn = function(**call)
        loss = y.sin().sum() + (0 if attn is None else attn.square().sum())
        results.append((y, attn, torch.autograd.grad(loss, leaves.values())))
    torch.testing.assert_close(*results)
    plain = {n: v.detach().numpy() if isinstance(v, torch.Tensor) else v for n, v in call.items()}
    y, attn = bc.multi_head_attention_forward(**plain)
    torch.testing.assert_close(torch.from_numpy(np.array(y)), results[1][0].detach())
    assert (attn is None) is (not need_weights)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("same", [NAMES, ("key", "value")])
def test_one_array_is_projected_once(
    same: tuple[str, ...], need_weights: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from baracuda_py.ops.attention.dense import multi_head_attention as module

    own = torch.from_numpy(x(L, N, E))
    weights = {n: torch.from_numpy(v) for n, v in PACKED.items()} | dict.fromkeys(same, own)
    call, products = arguments(weights, {"need_weights": need_weights}), []
    linear = module.linear
    monkeypatch.setattr(module, "linear", lambda *a, **k: products.append(1) or linear(*a, **k))
    made = bc.multi_head_attention_forward(**call)
    torch.testing.assert_close(made, torch.nn.functional.multi_head_attention_forward(**call))
    assert len(products) == (2 if len(same) == 3 else 3)


@pytest.mark.parametrize("need_weights", [False, True])
def test_without_a_batch(need_weights: bool) -> None:
    call = arguments({n: torch.from_numpy(v[:, 0] if n in NAMES else v) for n, v in PACKED.items()}, {})
    call |= {"need_weights": need_weights, "key_padding_mask": torch.from_numpy(PADS[1])}
    made = bc.multi_head_attention_forward(**call)
    torch.testing.assert_close(made, torch.nn.functional.multi_head_attention_forward(**call))


def test_in_jax() -> None:
    jax = pytest.importorskip("jax")
    arrays = {n: jax.numpy.asarray(v, dtype="float32") for n, v in PACKED.items()}
    call, names = arguments(arrays, {"attn_mask": jax.numpy.asarray(HIDES)}), list(PACKED)

    def loss(need_weights: bool, *values: Any) -> Any:
        made = bc.multi_head_attention_forward(
            **(call | dict(zip(names, values, strict=True))), need_weights=need_weights
        )
        return (made[0] ** 2).sum()

    grads = jax.jit(jax.grad(loss, tuple(range(1, 1 + len(names)))), static_argnums=0)
    leaves = {n: torch.tensor(v, requires_grad=True) for n, v in PACKED.items()}
    y, _ = torch.nn.functional.multi_head_attention_forward(**arguments(leaves, {"attn_mask": torch.from_numpy(HIDES)}))
    want = torch.autograd.grad(y.square().sum(), leaves.values())
    for need_weights in (False, True):
        for one, other in zip(grads(need_weights, *arrays.values()), want, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("apart", [False, True])
def test_results_are_written_where_they_are_wanted(apart: bool, average: bool) -> None:
    call = arguments({n: v[:, 0] if apart and n in NAMES else v for n, v in PACKED.items()}, {})
    call["average_attn_weights"] = average
    want, (alone, none) = bc.multi_head_attention_forward(**call), bc.multi_head_attention_forward(
        **call, need_weights=False
    )  # fmt: skip
    outs = tuple(np.full_like(one, np.nan) for one in want)
    made = bc.multi_head_attention_forward(**call, out=outs)
    assert made[0] is outs[0] and made[1] is outs[1] and none is None
    for one, other in zip(made, want, strict=True):
        np.testing.assert_array_equal(one, other)
    assert bc.multi_head_attention_forward(**call, need_weights=False, out=outs[0])[0] is outs[0]
    np.testing.assert_array_equal(outs[0], alone)
    with pytest.raises(InvalidProblemError, match="out must have shape"):
        bc.multi_head_attention_forward(**call, need_weights=False, out=outs[0][:2])


@pytest.mark.parametrize("need_weights", [False, True])
def test_on_the_emulator(need_weights: bool) -> None:
    weights, facts = CASES["more and zeros"]
    call = arguments(weights, facts | {"need_weights": need_weights})
    want = bc.multi_head_attention_forward(**call)
    low = {n: v.astype(np.float32) if getattr(v, "dtype", None) == np.float64 else v for n, v in call.items()}
    with by_kernels() as launched:
        made = bc.multi_head_attention_forward(**low)
    assert any("flash_sdpa" in name for name in launched) is not need_weights
    for one, other in zip(made[: 1 + need_weights], want, strict=False):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_dropout_is_of_its_stream() -> None:
    call = arguments(PACKED, {"dropout_p": 0.4})
    plain, _ = bc.multi_head_attention_forward(**call, training=False)
    for need_weights in (False, True):
        made = [bc.multi_head_attention_forward(**call, need_weights=need_weights, seed=s)[0] for s in (1, 1, 2)]
        np.testing.assert_array_equal(made[0], made[1])
        assert abs(made[0] - made[2]).max() > 1e-3 < abs(made[0] - plain).max()
    _, weights = bc.multi_head_attention_forward(**call, seed=1, average_attn_weights=False)
    assert 0.2 < (weights == 0).mean() < 0.6


def test_a_query_that_sees_nothing_has_no_weights() -> None:
    hides = HIDES.copy()
    hides[:, 2] = True
    for need_weights in (False, True):
        call = arguments(PACKED, {"attn_mask": hides, "need_weights": need_weights})
        y, attn = bc.multi_head_attention_forward(**call)
        np.testing.assert_allclose(y[2], np.broadcast_to(PACKED["out_proj_bias"], (N, E)), atol=1e-14)
        assert attn is None or not attn[:, 2].any()


BAD: dict[str, dict[str, Any]] = {
    "query must have 8 features": {"embed_dim_to_check": 8}, "num_heads must divide": {"num_heads": 5},
    "in_proj_weight must have shape": {"in_proj_weight": x(E, E)}, "out_proj_bias must have": {"out_proj_bias": x(3)},
    "q_proj_weight is None": {"use_separate_proj_weight": True}, "in_proj_weight is None": {"in_proj_weight": None},
    "is_causal says what": {"is_causal": True}, "bias_k and bias_v": {"bias_k": x(1, 1, E)},
    "attn_mask must have shape": {"attn_mask": HIDES[:3]}, "key_padding_mask must have": {"key_padding_mask": PADS[:2]},
    "out_proj_bias must hold float64": {"out_proj_bias": x(E).astype(np.float32)},
    "attn_mask must hold bool": {"attn_mask": FULL.astype(np.int32)}, "seed is None": {"dropout_p": 0.1},
    "one length and the batch 3": {"value": x(S - 1, N, E)}, "must have 3 axes each": {"query": x(L, E)},
    "key and value must have 12 features": {"key": x(S, N, 6)},
}  # fmt: skip


@pytest.mark.parametrize("said", BAD)
def test_refusals(said: str) -> None:
    with pytest.raises(InvalidProblemError, match=said):
        bc.multi_head_attention_forward(**(arguments(PACKED, {}) | BAD[said]))


def test_static_keys_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="static_k and static_v must be None"):
        bc.multi_head_attention_forward(**arguments(PACKED, {"static_k": x(N * H, S, E // H)}))
