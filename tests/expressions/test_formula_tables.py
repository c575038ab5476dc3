"""Gradients of the tables of score formulas: against torch, by differences, which are refused, exact in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.testing.places import call

RNG = np.random.default_rng(0)
B, H, KV, Q, K, D = 2, 4, 2, 19, 70, 16
QUERY, KEY, VALUE = (RNG.standard_normal(s) for s in ((B, H, Q, D), (B, KV, K, D), (B, KV, K, D)))
BIAS, GAIN, BUCKET = RNG.standard_normal((H, Q + K - 9)), RNG.random(H) + 0.5, RNG.integers(0, 9, Q + K)
SCORE = "softcap(s * gain[h], cap) + bias[h, q - k] - 0.1 * gain[bucket[q - k] - 6]"
TABLES: dict[str, Any] = {"bias": BIAS, "gain": GAIN, "bucket": BUCKET, "cap": 5.0}


def in_torch(torch: Any, q: Any, k: Any, v: Any, bias: Any, gain: Any) -> Any:
    k, v = (x.repeat_interleave(H // KV, 1) for x in (k, v))
    s = q @ k.transpose(-1, -2) * D**-0.5
    i, j = torch.arange(Q)[:, None], torch.arange(K)[None]
    s = 5 * torch.tanh(s * gain[:, None, None] / 5)
    away, inside = i - j, i - j >= -bias.shape[1]
    s = s + torch.where(inside, bias[:, torch.where(inside, away, 0)], 0)
    place = torch.tensor(BUCKET)[away] - 6
    there = (place < H) & (place >= -H)
    s = s - 0.1 * torch.where(there, gain[torch.where(there, place, 0)], 0)
    return torch.softmax(s.masked_fill(j > i + 20, -torch.inf), -1) @ v


def test_they_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    given = {**TABLES, "mask": "k <= q + 20"}
    mask = given.pop("mask")
    leaves = [torch.tensor(x, requires_grad=True) for x in (QUERY, KEY, VALUE, BIAS, GAIN)]
    wanted = in_torch(torch, *leaves)
    f = bc.attention(SCORE, mask)
    y, lse = f(QUERY, KEY, VALUE, return_lse=True, **given)
    np.testing.assert_allclose(y, wanted.detach(), rtol=1e-12, atol=1e-13)
    dy = RNG.standard_normal(y.shape)
    grads = torch.autograd.grad(wanted, leaves, torch.tensor(dy))
    made = f.vjp(dy, QUERY, KEY, VALUE, wrt=("q", "k", "v", "bias", "gain"), **given)
    for one, other in zip(made, grads, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)
    alone = f.backward(
        QUERY, KEY, VALUE, y, lse, dy, return_dq=False, return_dk=False, return_dv=False, return_dgain=True, **given
    )
    np.testing.assert_array_equal(alone, made[4])
    dv, dbias = bc.flash_sdpa_backward(
        QUERY, KEY, VALUE, y, lse, dy, score=SCORE, mask=mask, return_dq=False, return_dk=False, return_dbias=True,
        **given,
    )  # fmt: skip
    np.testing.assert_array_equal(dv, made[2])
    np.testing.assert_array_equal(dbias, made[3])


def test_what_has_none_is_refused() -> None:
    f = bc.attention("s + bias[h, t[q]]", mask="u[k] > 0.5")
    given: dict[str, Any] = {"bias": BIAS, "t": np.arange(Q), "u": np.ones(K)}
    y = f(QUERY, KEY, VALUE, **given)
    for name in ("t", "u"):
        with pytest.raises(bc.InvalidProblemError, match=f"{name} has no gradient"):
            f.vjp(y, QUERY, KEY, VALUE, wrt=name, **given)
    whole = {**given, "bias": np.ones(BIAS.shape, np.int32)}
    with pytest.raises(bc.InvalidProblemError, match="dbias is wanted but bias holds int32"):
        f.vjp(y, QUERY, KEY, VALUE, wrt="bias", **whole)
    with pytest.raises(bc.ExpressionError, match="dt is the gradient of t"):
        bc.attention("s + t[q] * dt").vjp(y, QUERY, KEY, VALUE, t=np.ones(Q), dt=1.0)


def problem(element: str, **more: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """The gradient's plan, and its operands."""
    plan = bc.attention("s * gain[h] + bias[h, q - k]").plan().vjp.plan  # type: ignore[union-attr]
    facts = {"batch_size": 2, "num_heads": 4, "query_len": Q, "key_len": K, "d_k": D, "d_v": D, "element": element}
    facts |= {"num_kv_heads": 2, "is_causal": True, "causal_alignment": "bottom_right"} | more
    kind = bc.ElementKind.of(element)
    acc = kind.acc
    desc = plan.descriptor(**facts, gain_shape=GAIN.shape, bias_shape=(H, Q + K), gain_element=acc, bias_element=kind)
    arrays = {n: x.astype(kind.dtype) for n, x in (("q", QUERY), ("k", KEY), ("v", VALUE))}
    arrays["dy"] = RNG.standard_normal((2, H, Q, D)).astype(kind.dtype)
    arrays |= {"gain": GAIN.astype(acc.dtype), "bias": RNG.standard_normal((H, Q + K)).astype(kind.dtype)}
    wide = {n: x.astype(np.float64) for n, x in arrays.items()}
    keep = {n: facts[n] for n in ("is_causal", "causal_alignment")} | more | {"seed": 0}
    y, lse = bc.flash_sdpa(*(wide[n] for n in "qkv"), score="s * gain[h] + bias[h, q - k]", gain=wide["gain"],
                           bias=wide["bias"], return_lse=True, **keep)  # fmt: skip
    return (plan, desc), arrays | {"y": y.astype(kind.dtype), "lse": lse.astype(acc.dtype)}


@pytest.mark.parametrize("element", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("more", [{}, {"dropout_p": 0.3}], ids=["plain", "dropout"])
def test_kernels_add_them_exactly(element: str, more: dict[str, Any], place: str) -> None:
    (plan, desc), arrays = problem(element, **more)
    arrays |= {"seed": 0} if more else {}
    found = call(plan, desc, ("dgain", "dbias"), place, **arrays)
    exact = call(plan, desc, ("dgain", "dbias"), "numpy", **arrays)
    tolerance = {"float32": 2e-5, "float64": 1e-12, "bfloat16": 2e-2}[element]
    for name, wanted in exact.items():
        size = np.abs(wanted.astype(np.float64)).max()
        error = np.abs(found[name].astype(np.float64) - wanted.astype(np.float64)).max()
        assert error <= tolerance * size, (name, error, size)
