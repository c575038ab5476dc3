"""What a mask or causality hides has no part in sdpa, whatever it holds: as in flash_sdpa, forward and backward."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from baracuda_py.core.preference import PlanPreference
from baracuda_py.core.sku import BackendKind
from baracuda_py.ops.attention.dense.flash_sdpa import FlashSdpaDescriptor, FlashSdpaPlan
from baracuda_py.ops.attention.dense.sdpa import SdpaDescriptor, SdpaPlan
from baracuda_py.ops.attention.dense.sdpa_backward import SdpaBackwardDescriptor, SdpaBackwardPlan
from baracuda_py.testing.places import call

SIMT = PlanPreference(prefer_backend=BackendKind.BESPOKE)
B, HEADS, KV, QUERIES, KEYS, D, DV = 2, 4, 2, 9, 13, 8, 20
FULL = (B, HEADS, QUERIES, KEYS)
BOUND = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 3e-6, "float64": 1e-13}
TERMS: dict[str, dict[str, Any]] = {
    "padding": {"mask_shape": (B, 1, 1, KEYS)}, "each": {"mask_shape": FULL}, "causal": {"is_causal": True},
    "both": {"mask_shape": (1, 1, QUERIES, KEYS), "is_causal": True, "causal_alignment": "bottom_right"},
    "capped": {"mask_shape": (KEYS,), "softcap": 3.0},
}  # fmt: skip


def _problem(name: str, element: str, boolean: bool, bad: float) -> tuple[dict[str, Any], dict[str, Any], np.ndarray]:
    """(descriptor fields, operands whose last four keys are `bad`, where a key is seen); queries see some key each."""
    rng = np.random.default_rng(7)
    dtype = np.dtype(getattr(ml_dtypes, element, element))
    facts = dict(TERMS[name])
    made = {
        "q": rng.standard_normal((B, HEADS, QUERIES, D)), "k": rng.standard_normal((B, KV, KEYS, D)),
        "v": rng.standard_normal((B, KV, KEYS, DV)), "dy": rng.standard_normal((B, HEADS, QUERIES, DV)),
    }  # fmt: skip
    seen = np.ones(FULL, bool)
    given: dict[str, Any] = {n: x.astype(dtype) for n, x in made.items()}
    if "mask_shape" in facts:
        own = np.ones(facts["mask_shape"], bool)
        own[..., KEYS - 4 :] = False
        own[..., 1::3] = rng.random(own[..., 1::3].shape) < 0.5
        seen &= own
        given["mask"] = own if boolean else np.where(own, 0.25, -np.inf).astype(dtype)
        facts["mask_element"] = "bool" if boolean else element
    if facts.get("is_causal"):
        shift = KEYS - QUERIES if "causal_alignment" in facts else 0
        seen &= np.arange(KEYS) <= np.arange(QUERIES)[:, None] + shift
    unseen = ~seen.any(axis=(1, 2))  # of a sample: these keys are nobody's
    for n in ("k", "v"):
        given[n][np.broadcast_to(unseen[:, None, :], given[n].shape[:3])] = bad
    fields = {
        "batch_size": B, "num_heads": HEADS, "num_kv_heads": KV, "query_len": QUERIES, "key_len": KEYS, "d_k": D,
        "d_v": DV, "scale": 0.4, "element": element,
    }  # fmt: skip
    assert unseen.any()
    return fields | facts, given, seen


def _truth(fields: dict[str, Any], given: dict[str, Any], seen: np.ndarray) -> dict[str, np.ndarray]:
    """Attention and its gradients in float64, of clean operands: what is hidden is 0."""
    q, k, v, dy = (np.where(np.isfinite(x := given[n].astype(np.float64)), x, 0) for n in ("q", "k", "v", "dy"))
    k, v = (np.repeat(x, HEADS // KV, axis=1) for x in (k, v))
    raw = fields["scale"] * np.einsum("bhqd,bhkd->bhqk", q, k)
    cap = fields.get("softcap", 0.0)
    s = cap * np.tanh(raw / cap) if cap else raw
    e = np.where(seen, np.exp(s), 0)
    p = e / np.maximum(e.sum(axis=-1, keepdims=True), 1e-300)
    dp = np.einsum("bhqd,bhkd->bhqk", dy, v)
    ds = p * (dp - (p * dp).sum(axis=-1, keepdims=True))
    dmask, ds = ds, ds * (1 - np.tanh(raw / cap) ** 2 if cap else 1)
    shared = (B, KV, HEADS // KV)
    return {
        "attn": p, "y": np.einsum("bhqk,bhkd->bhqd", p, v), "dmask": dmask,
        "dq": fields["scale"] * np.einsum("bhqk,bhkd->bhqd", ds, k),
        "dk": fields["scale"] * np.einsum("bhqk,bhqd->bhkd", ds, q).reshape(*shared, KEYS, D).sum(axis=2),
        "dv": np.einsum("bhqk,bhqd->bhkd", p, dy).reshape(*shared, KEYS, DV).sum(axis=2),
    }  # fmt: skip


FILLS = (
    (True, np.nan),
    (False, np.inf),
    (False, np.nan),
    (True, -np.inf),
)  # whether the mask is boolean, what is hidden
CASES = [
    pytest.param(name, element, *FILLS[(2 * i + j + k) % 4], id=f"{name}-{element}-{k}")
    for i, name in enumerate(TERMS) for j, element in enumerate(BOUND) for k in (0, 2)
]  # fmt: skip


@pytest.mark.parametrize(("name", "element", "boolean", "bad"), CASES)
def test_hidden_keys_have_no_part(place: str, name: str, element: str, boolean: bool, bad: float) -> None:
    for preference in (None, SIMT) if place == "gpu" else (None,):
        check_hidden(place, preference, name, element, boolean, bad)


def check_hidden(place: str, preference: Any, name: str, element: str, boolean: bool, bad: float) -> None:
    fields, given, seen = _problem(name, element, boolean, bad)
    truth, bound = _truth(fields, given, seen), BOUND[element]
    operands = {n: x for n, x in given.items() if n != "dy"}
    made = call(SdpaPlan, SdpaDescriptor(**fields), ("y", "attn"), place, preference, **operands)
    for n in ("y", "attn"):
        np.testing.assert_allclose(made[n].astype(np.float64), truth[n], rtol=bound, atol=bound)
    flash = {n: x for n, x in fields.items() if not n.startswith("mask")}
    y = call(FlashSdpaPlan, FlashSdpaDescriptor(**flash), ("y",), "numpy", **operands)["y"]
    np.testing.assert_allclose(y.astype(np.float64), truth["y"], rtol=bound, atol=bound)

    mask = {"mask_shape": fields.get("mask_shape", ()), "mask_element": element}
    desc = SdpaBackwardDescriptor(**fields | mask)
    wanted = ("dq", "dk", "dv") + (("dmask",) if fields.get("mask_shape") == FULL else ())
    grads = call(SdpaBackwardPlan, desc, wanted, place, preference, attn=made["attn"],
                 **{n: given[n] for n in ("q", "k", "v", "dy")})  # fmt: skip
    for n in wanted:
        np.testing.assert_allclose(grads[n].astype(np.float64), truth[n], rtol=8 * bound, atol=8 * bound)


def test_a_seen_value_spreads_what_it_holds(place: str) -> None:
    """Infinite with a weight of 0, and NaN: NaN in the queries that see it, as flash_sdpa gives; none in the others."""
    q, k = np.zeros((1, 1, 5, 8), np.float32), np.zeros((1, 1, 5, 8), np.float32)
    q[..., 0], k[0, 0, 2, 0] = 1.0, -2000.0
    v = np.ones((1, 1, 5, 4), np.float32)
    v[0, 0, 2, 1], v[0, 0, 3, 2], v[0, 0, 1, 3] = np.inf, np.nan, -np.inf
    facts = {"batch_size": 1, "num_heads": 1, "query_len": 5, "key_len": 5, "d_k": 8, "d_v": 4, "scale": 1.0,
             "is_causal": True, "element": "float32"}  # fmt: skip
    y = call(SdpaPlan, SdpaDescriptor(**facts), ("y",), place, q=q, k=k, v=v)["y"]
    flash = call(FlashSdpaPlan, FlashSdpaDescriptor(**facts), ("y",), place, q=q, k=k, v=v)["y"]
    expected = np.ones((5, 4))
    expected[2:, 1], expected[3:, 2], expected[1:, 3] = np.nan, np.nan, -np.inf
    np.testing.assert_allclose(y[0, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(flash[0, 0], expected, rtol=1e-6)
