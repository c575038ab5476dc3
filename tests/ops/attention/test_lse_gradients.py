"""dlse, the gradient that reaches lse: of every backward of attention, by differences, torch's autograd and JAX's."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

RNG = np.random.default_rng
TERMS: list[dict[str, Any]] = [
    {}, {"is_causal": True}, {"window_left": 2, "window_right": 1}, {"softcap": 0.9}, {"slopes": (4,)},
    {"mask": (1, 4, 5, 7)}, {"sinks": (4,)}, {"dropout_p": 0.4, "seed": 3, "is_causal": True},
    {"slopes": (2, 4), "sinks": (4,), "softcap": 2.0, "dropout_p": 0.2, "seed": 1, "mask": (5, 7)},
]  # fmt: skip
OPERANDS = ("mask", "slopes", "sinks")


def heads(rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.standard_normal(shape) for shape in ((2, 4, 5, 8), (2, 2, 7, 8), (2, 2, 7, 6))]


def agree(forward: Any, backward: Any, arrays: list[np.ndarray], rng: np.random.Generator) -> None:
    """backward(y, lse, dy, dlse) has a gradient of each array: that of ⟨dy, y⟩ + ⟨dlse, lse⟩, by differences."""
    y, lse = forward(*arrays)
    dy, dlse = rng.standard_normal(y.shape), rng.standard_normal(lse.shape)
    for n, grad in enumerate(backward(y, lse, dy, dlse)):
        way = rng.standard_normal(arrays[n].shape)
        ends = [forward(*(x + s * way if i == n else x for i, x in enumerate(arrays))) for s in (1e-6, -1e-6)]
        slope = sum(((a - b) * d).sum() for a, b, d in zip(*ends, (dy, dlse), strict=True)) / 2e-6
        np.testing.assert_allclose((grad * way).sum(), slope, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("facts", TERMS, ids=lambda f: "-".join(f) or "plain")
def test_flash_sdpa(facts: dict[str, Any]) -> None:
    rng = RNG(0)
    given = {n: rng.standard_normal(facts[n]) for n in OPERANDS if n in facts}
    rest = {n: x for n, x in facts.items() if n not in OPERANDS}
    arrays = [*heads(rng), *given.values()]

    def forward(q: Any, k: Any, v: Any, *more: Any) -> Any:
        return bc.flash_sdpa(q, k, v, **dict(zip(given, more, strict=True)), **rest, return_lse=True)

    def backward(y: Any, lse: Any, dy: Any, dlse: Any) -> Any:
        wanted = {f"return_d{n}": True for n in given}
        return bc.flash_sdpa_backward(*arrays[:3], y, lse, dy, dlse=dlse, **given, **rest, **wanted)

    agree(forward, backward, arrays, rng)


def test_formulas() -> None:
    rng = RNG(1)
    f = bc.attention("s + bias[h, k - q + 5] * s", "k - q < 3")
    arrays = [*heads(rng), rng.standard_normal((4, 13))]

    def backward(y: Any, lse: Any, dy: Any, dlse: Any) -> Any:
        wanted = {"return_dbias": True}
        return f.backward(*arrays[:3], y, lse, dy, dlse=dlse, bias=arrays[3], **wanted)

    agree(lambda q, k, v, bias: f(q, k, v, bias=bias, return_lse=True), backward, arrays, rng)
    y, lse = f(*arrays[:3], bias=arrays[3], return_lse=True)
    dy, dlse = rng.standard_normal(y.shape), rng.standard_normal(lse.shape)
    both = [f.vjp(dy, *arrays[:3], bias=arrays[3], wrt="bias", dlse=d) for d in (None, dlse)]
    assert not np.allclose(*both)


@pytest.mark.parametrize("facts", [{}, {"is_causal": True, "sinks": (4,)}, {"window_left": 3, "dropout_p": 0.3}])
def test_packed(facts: dict[str, Any]) -> None:
    rng = RNG(2)
    bounds = np.array([1, 4, 4, 9], np.int32), np.array([0, 5, 7, 7], np.int32)  # the last sequence has no keys
    given = {n: rng.standard_normal(facts[n]) for n in ("sinks",) if n in facts}
    rest = {n: x for n, x in facts.items() if n not in given} | ({"seed": 5} if "dropout_p" in facts else {})
    arrays = [rng.standard_normal(s) for s in ((10, 4, 8), (9, 2, 8), (9, 2, 6))]
    everything = [*arrays, *given.values()]

    def forward(q: Any, k: Any, v: Any, *more: Any) -> Any:
        made = dict(zip(given, more, strict=True))
        y, lse = bc.flash_sdpa_varlen(q, k, v, *bounds, **made, **rest, return_lse=True)
        return y, np.where(np.isneginf(lse), 0, lse)

    def backward(y: Any, lse: Any, dy: Any, dlse: Any) -> Any:
        lse = bc.flash_sdpa_varlen(*arrays, *bounds, **given, **rest, return_lse=True)[1]
        wanted = {f"return_d{n}": True for n in given}
        return bc.flash_sdpa_varlen_backward(*arrays, y, lse, dy, *bounds, dlse=dlse, **given, **rest, **wanted)

    agree(forward, backward, everything, rng)


def test_block_sparse() -> None:
    rng = RNG(3)
    arrays = [rng.standard_normal(s) for s in ((2, 4, 6, 8), (2, 2, 8, 8), (2, 2, 8, 6))]
    pattern = rng.random((4, 3, 4)) < 0.7
    pattern[:, :, 0] = True
    facts = {"query_block": 2, "key_block": 2}

    def backward(y: Any, lse: Any, dy: Any, dlse: Any) -> Any:
        return bc.sdpa_block_sparse_backward(*arrays, pattern, y, lse, dy, dlse=dlse, **facts)

    agree(lambda *x: bc.sdpa_block_sparse(*x, pattern, **facts, return_lse=True), backward, arrays, rng)


@pytest.mark.parametrize("facts", [{}, {"is_causal": True, "softcap": 1.5}, {"dropout_p": 0.3, "seed": 2}])
def test_sdpa(facts: dict[str, Any]) -> None:
    rng = RNG(4)
    arrays = heads(rng)

    def backward(y: Any, lse: Any, dy: Any, dlse: Any) -> Any:
        attn = bc.sdpa(*arrays, **facts, return_attn=True)[1]
        rest = {n: x for n, x in facts.items() if n != "is_causal"}  # attn says it
        return bc.sdpa_backward(*arrays, attn, dy, dlse=dlse, **rest)

    agree(lambda *x: bc.sdpa(*x, **facts, return_lse=True), backward, arrays, rng)


def test_a_row_that_sees_no_key_takes_no_gradient_of_its_lse() -> None:
    rng = RNG(5)
    facts: dict[str, Any] = {"is_causal": True, "causal_alignment": "bottom_right"}
    q, k, v = rng.standard_normal((1, 1, 7, 8)), *rng.standard_normal((2, 1, 1, 5, 8))
    y, lse = bc.flash_sdpa(q, k, v, **facts, return_lse=True)
    assert np.isneginf(lse[0, 0, :2]).all()
    with np.errstate(invalid="ignore"):
        grads = bc.flash_sdpa_backward(q, k, v, y, lse, np.ones_like(y), dlse=2 * lse, **facts)
    assert all(np.isfinite(g).all() for g in grads)


def test_torch_differentiates_a_loss_of_the_lse() -> None:
    torch = pytest.importorskip("torch")
    import baracuda_py.torch as bt

    rng = RNG(6)
    leaves = [torch.tensor(x, requires_grad=True) for x in heads(rng)]

    def theirs(q: Any, k: Any, v: Any) -> Any:
        k, v = k.repeat_interleave(2, 1), v.repeat_interleave(2, 1)
        s = (q @ k.mT * 8**-0.5).masked_fill(torch.ones(5, 7).triu(1).bool(), -torch.inf)
        return s.softmax(-1) @ v, s.logsumexp(-1)

    found = []
    for f in (lambda *x: bt.flash_sdpa(*x, is_causal=True, return_lse=True), theirs):
        y, lse = f(*leaves)
        found.append(torch.autograd.grad((y * y).sum() + (lse * lse).sum(), leaves))
        y, lse = f(*leaves)
        found[-1] += torch.autograd.grad((lse * lse).sum(), leaves[:2])
    for ours, wished in zip(*found, strict=True):
        torch.testing.assert_close(ours, wished, rtol=1e-9, atol=1e-10)


def test_jax_differentiates_parts_that_are_merged_by_their_lse() -> None:
    jax = pytest.importorskip("jax")
    import baracuda_py.jax as bj

    arrays = heads(RNG(7))
    with jax.enable_x64(True):

        def merged(q: Any, k: Any, v: Any) -> Any:
            spans = [(k[:, :, a:b], v[:, :, a:b]) for a, b in itertools.pairwise((0, 3, 7))]
            parts = [bj.flash_sdpa(q, *span, return_lse=True) for span in spans]
            weights = jax.nn.softmax(jax.numpy.stack([lse for _, lse in parts]), 0)[..., None]
            return (sum(w * y for w, (y, _) in zip(weights, parts, strict=True)) ** 2).sum()

        whole = jax.grad(lambda *x: (bj.flash_sdpa(*x) ** 2).sum(), (0, 1, 2))(*arrays)
        for ours, wished in zip(jax.grad(merged, (0, 1, 2))(*arrays), whole, strict=True):
            np.testing.assert_allclose(ours, wished, rtol=1e-9, atol=1e-11)
