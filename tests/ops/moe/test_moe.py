"""Mixtures of experts: routing against its formulas, and whole layers against loops over tokens."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.testing.places import call

RNG = np.random.default_rng(0)


def logits_of(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def route(place, x, bias=None, scale=1.0, **facts):  # type: ignore[no-untyped-def]
    """Weights and indices from a place."""
    more = {} if bias is None else {"bias": bias}
    desc = bc.MoeRouterDescriptor(tokens=len(x), experts=x.shape[1], element="float32", **facts)
    found = call(bc.MoeRouterPlan, desc, ("weights", "indices"), place, logits=x, scale=scale, **more)
    return found["weights"], found["indices"]


def test_deepseek_v3s_gate(place: str) -> None:
    """Sigmoids, a bias that only chooses, groups by their two best, weights that sum to the scale."""
    x, bias = logits_of(9, 64), 0.1 * logits_of(64)
    weights, indices = route(
        place, x, bias, 2.5, k=6, scoring="sigmoid", group_count=8, top_groups=3, group_scoring="top2", normalize=True
    )
    scores = 1 / (1 + np.exp(-x.astype(np.float64)))
    for t in range(9):
        keys = scores[t] + bias
        groups = np.sort(keys.reshape(8, 8), axis=1)[:, -2:].sum(1)
        allowed = np.isin(np.arange(64) // 8, np.argsort(-groups)[:3])
        wanted = np.argsort(-np.where(allowed, keys, -np.inf))[:6]
        np.testing.assert_array_equal(indices[t], wanted)
        own = scores[t, wanted]
        np.testing.assert_allclose(weights[t], 2.5 * own / own.sum(), rtol=1e-6)


def test_mixtrals_gate_is_a_softmax_of_what_is_chosen(place: str) -> None:
    x = logits_of(33, 8)
    weights, indices = route(place, x, k=2, normalize=True)
    order = np.argsort(-x, axis=1)[:, :2]
    np.testing.assert_array_equal(indices, order)
    own = np.exp(np.take_along_axis(x, order, 1).astype(np.float64))
    np.testing.assert_allclose(weights, own / own.sum(1, keepdims=True), rtol=1e-6)


def test_ties_nans_and_infinities(place: str) -> None:
    """The lowest of equal experts; NaN last; always k different ones."""
    x = np.zeros((5, 40), np.float32)
    x[1] = np.nan
    x[2, 7] = np.nan
    x[3, 39], x[3, 3] = np.inf, 1
    x[4] = -np.inf
    _, indices = route(place, x, k=4, scoring="sigmoid")
    np.testing.assert_array_equal(indices[[0, 1, 2, 4]], np.broadcast_to(np.arange(4), (4, 4)))
    np.testing.assert_array_equal(indices[3], [39, 3, 0, 1])
    weights, indices = route(place, x, k=40)
    assert all(len(set(row)) == 40 for row in indices)
    np.testing.assert_allclose(weights[0], 1 / 40, rtol=1e-6)
    assert np.isnan(weights[1:]).all()


def test_every_expert_and_one(place: str) -> None:
    x = logits_of(3, 1)
    weights, indices = route(place, x, k=1)
    assert not indices.any()
    np.testing.assert_array_equal(weights, 1)
    x = logits_of(2, 1024)
    weights, indices = route(place, x, k=1024)
    np.testing.assert_array_equal(indices, np.argsort(-x, axis=1, kind="stable"))
    np.testing.assert_allclose(weights.sum(1), 1, rtol=1e-5)


def test_the_gradient_leaves_out_experts_that_are_none(place: str) -> None:
    x, dweights = logits_of(2, 5), logits_of(2, 2)
    indices = np.array([[4, -1], [5, 0]])
    desc = bc.MoeRouterDescriptor(tokens=2, experts=5, k=2, scoring="sigmoid", element="float32")
    given = {"dweights": dweights, "logits": x, "indices": indices}
    found = call(bc.MoeRouterBackwardPlan, desc, ("dlogits",), place, **given)["dlogits"]
    s = 1 / (1 + np.exp(-x.astype(np.float64)))
    wanted = np.zeros((2, 5))
    wanted[0, 4], wanted[1, 0] = dweights[0, 0], dweights[1, 1]
    np.testing.assert_allclose(found, wanted * s * (1 - s), rtol=1e-5)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"k": 9}, "k must be at most 8"),
        ({"k": 2, "group_count": 3}, "group_count must divide 8"),
        ({"k": 2, "group_count": 2, "top_groups": 3}, "top_groups must be at most group_count = 2"),
        ({"k": 5, "group_count": 2, "top_groups": 1}, "k must be at most 4"),
        ({"k": 2, "scoring": "tanh"}, "scoring"),
    ],
)
def test_routers_that_are_none(facts: dict, message: str) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        bc.moe_router(logits_of(2, 8), **facts)


# ---- layers ---------------------------------------------------------------------------------------------------------


def act(name: str, h: np.ndarray, order: str) -> np.ndarray:
    """The unit of a token's row, in float64."""
    f = len(h) // 2
    gate, up = (h[::2], h[1::2]) if order == "interleaved" else (h[:f], h[f:])
    silu = lambda x: x / (1 + np.exp(-x))  # noqa: E731
    if name == "swiglu":
        return silu(gate) * up
    if name == "reglu":
        return np.maximum(gate, 0) * up
    if name == "swiglu_oai":
        gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
        return gate / (1 + np.exp(-1.702 * gate)) * (up + 1)
    return silu(h) if name == "silu" else np.maximum(h, 0)


def loop(x, indices, weights, gate_up, down, first, second, name, order, capacity=None):  # type: ignore[no-untyped-def]
    """Token by token, in float64."""
    y, taken = np.zeros((len(x), down.shape[1])), np.zeros(len(gate_up), int)
    for t, row in enumerate(indices):
        for j, e in enumerate(row):
            if not 0 <= e < len(gate_up):
                continue
            taken[e] += 1
            if capacity is not None and taken[e] > capacity:
                continue
            h = act(name, gate_up[e] @ x[t] + (0 if first is None else first[e]), order)
            y[t] += weights[t, j] * (down[e] @ h + (0 if second is None else second[e]))
    return y


@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize(
    ("name", "order"),
    [("swiglu", "gate_first"), ("swiglu", "interleaved"), ("swiglu", "gate_last"), ("swiglu_oai", "interleaved"),
     ("reglu", "gate_first"), ("silu", "gate_first"), ("relu", "gate_first")],
)  # fmt: skip
def test_layers_are_loops_over_tokens(name: str, order: str, biases: bool) -> None:
    tokens, d, f, experts, k = 13, 6, 5, 4, 3
    rows = f if name in ("silu", "relu") else 2 * f
    x, weights = RNG.standard_normal((tokens, d)), RNG.random((tokens, k))
    indices = np.argsort(RNG.random((tokens, experts + 1)), axis=1)[:, :k] - RNG.integers(0, 2)  # -1 or 4 is no expert
    gate_up, down = RNG.standard_normal((experts, rows, d)), RNG.standard_normal((experts, d + 1, f))
    bias = (RNG.standard_normal((experts, rows)), RNG.standard_normal((experts, d + 1))) if biases else (None, None)
    shown = np.roll(gate_up, f, axis=1) if order == "gate_last" else gate_up  # the loop's gate stands first
    first = bias[0] if bias[0] is None or order != "gate_last" else np.roll(bias[0], f, axis=1)
    y = bc.moe(x, indices, weights, gate_up, down, *bias, activation=name, order=order)
    wanted = loop(x, indices, weights, shown, down, first, bias[1], name, order)
    np.testing.assert_allclose(y, wanted, rtol=1e-10, atol=1e-11)
    y = bc.moe(x, indices, weights, gate_up, down, *bias, activation=name, order=order, capacity=4)
    wanted = loop(x, indices, weights, shown, down, first, bias[1], name, order, 4)
    np.testing.assert_allclose(y, wanted, rtol=1e-10, atol=1e-11)


def test_layouts_and_empty_ones() -> None:
    """gpt-oss's [experts, in, out] by transposed views; no tokens; experts without any."""
    x, weights = RNG.standard_normal((4, 6)), np.ones((4, 1))
    gate_up, down = RNG.standard_normal((3, 6, 10)), RNG.standard_normal((3, 5, 6))
    seen = gate_up.transpose(0, 2, 1), down.transpose(0, 2, 1)
    indices, out = np.full((4, 1), 1), np.empty((4, 6))
    assert bc.moe(x, indices, weights, *seen, out=out) is out
    np.testing.assert_allclose(out, loop(x, indices, weights, *seen, None, None, "swiglu", "gate_first"), rtol=1e-11)
    assert bc.moe(x[:0], indices[:0], weights[:0], *seen).shape == (0, 6)
    assert not bc.moe(x, indices, weights, *seen, capacity=0).any()


def test_layers_that_are_none() -> None:
    x, indices, weights = RNG.standard_normal((4, 6)), np.zeros((4, 1), int), np.ones((4, 1))
    gate_up, down = np.ones((3, 10, 6)), np.ones((3, 6, 5))
    for more, message in (
        ((x[0], indices, weights, gate_up, down), r"x must be \[tokens, d\]"),
        ((x, indices, weights, gate_up[..., :5], down), r"gate_up must be \[experts, rows, 6\]"),
        ((x, indices, weights, gate_up[:, :9], down), "even number of rows"),
        ((x, indices, weights, gate_up, down[:2]), r"down must be \[3, d_out, 5\]"),
        ((x, indices[:3], weights, gate_up, down), r"indices must be \[4, k\]"),
    ):
        with pytest.raises(InvalidProblemError, match=message):
            bc.moe(*more)
    with pytest.raises(InvalidProblemError, match="activation must be one of"):
        bc.moe(x, indices, weights, gate_up, down, activation="mish")
    with pytest.raises(InvalidProblemError, match="indices must be int64 or int32, got float64"):
        bc.moe(x, indices.astype(float), weights, gate_up, down)


def test_a_tokens_bits_are_those_it_gets_alone() -> None:
    x, gate_up, down = logits_of(17, 6), logits_of(3, 10, 6), logits_of(3, 6, 5)
    weights, indices = bc.moe_router(logits_of(17, 3), k=2)
    y = bc.moe(x, indices, weights, gate_up, down)
    for t in (0, 7, 16):
        one = slice(t, t + 1)
        np.testing.assert_array_equal(bc.moe(x[one], indices[one], weights[one], gate_up, down), y[one])


def test_expert_choice_and_sinkhorn() -> None:
    x = RNG.standard_normal((7, 3))
    p = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    weights, indices = bc.expert_choice(x, 4)
    np.testing.assert_array_equal(indices, np.argsort(-p, axis=0)[:4].T)
    np.testing.assert_allclose(weights, np.take_along_axis(p, indices.T, 0).T)
    square = RNG.standard_normal((2, 5, 5))
    y = bc.sinkhorn_normalize(square, 200)
    np.testing.assert_allclose(y.sum(-1), 1, rtol=1e-8)
    np.testing.assert_allclose(y.sum(-2), 1, rtol=1e-12)
    ratio = np.log(y) - square  # is that of a row plus that of a column
    np.testing.assert_allclose(ratio - ratio[:, :1] - ratio[:, :, :1] + ratio[:, :1, :1], 0, atol=1e-10)
    with pytest.raises(InvalidProblemError, match="iterations"):
        bc.sinkhorn_normalize(square, 0)


@pytest.mark.parametrize("kind", ["mxfp4", "int4", "fp8_e4m3"])
@pytest.mark.parametrize("activation", ["swiglu", "swiglu_oai", "silu"])
def test_stored_experts_are_those_they_decode_to(kind: str, activation: str) -> None:
    tokens, d, f, experts = 9, 64, 32, 3
    rows = f if activation == "silu" else 2 * f
    x, wide = logits_of(tokens, d), [logits_of(experts, rows, d) / 8, logits_of(experts, d, f) / 6]
    weights, indices = bc.moe_router(logits_of(tokens, experts), k=2, normalize=True)
    stored, decoded = [], []
    for w in wide:
        codes, scales, *_ = bc.block_quantize(w, kind=kind)
        stored.append((codes, scales))
        decoded.append(bc.block_dequantize(codes, scales, kind=kind, element="float32"))
    order = "interleaved" if activation == "swiglu_oai" else "gate_first"
    (first, first_scales), (second, second_scales) = stored
    given = (first, second, first_scales, second_scales)
    y = bc.moe_quantized(x, indices, weights, *given, kind=kind, activation=activation, order=order)
    wanted = bc.moe(x, indices, weights, *decoded, activation=activation, order=order)
    np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4)
    with pytest.raises(InvalidProblemError, match="activation must be one of"):
        bc.moe_quantized(x, indices, weights, *given, kind=kind, activation="mish")
