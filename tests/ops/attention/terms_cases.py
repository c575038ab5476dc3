"""Operands for the tests of attention's score terms on a GPU: each term alone, all of them, masks of any shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from baracuda_py.core.plan import Plan
from baracuda_py.testing.draw import Case, fill, stored

# Fields of the descriptor, and the operands that are given.
TERMS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "left": ({"window_left": 40}, set()),
    "right": ({"window_right": 5}, set()),
    "band": ({"window_left": 9, "window_right": 70, "causal_alignment": "bottom_right"}, set()),
    "diagonal": ({"window_left": 0, "is_causal": True}, set()),
    "softcap": ({"softcap": 2.0}, set()),
    "slopes": ({"causal_alignment": "bottom_right"}, {"slopes"}),
    "mask": ({}, {"mask"}),
    "sinks": ({"is_causal": True}, {"sinks"}),
    "dropout": ({"dropout_p": 0.3}, set()),
    "all": (
        {"window_left": 90, "window_right": 20, "softcap": 3.0, "dropout_p": 0.2, "causal_alignment": "bottom_right"},
        {"mask", "slopes", "sinks"},
    ),
}
BROADCASTS = [tuple(bool(bits >> n & 1) for n in range(4)) for bits in range(16)]  # the axes along which a mask is 1


def terms_case(
    plan: type[Plan], desc: Any, given: set[str], *, mask: str = "float32", once: tuple[bool, ...] = (False,) * 4,
    every_head: bool = False, spread: float = 1.0,
) -> Case:  # fmt: skip
    """Random operands, of the optional inputs those `given`, all outputs wanted; `spread` multiplies q.

    mask: its element. once: the axes along which it has one element. every_head: slopes [heads], not [batch, heads].
    """
    rng = np.random.default_rng(desc.query_len + desc.key_len)
    case = fill(plan, desc, rng, {name: name in given for name in ("mask", "slopes", "sinks")})
    arrays = case.arrays
    arrays["q"] = stored(arrays["q"].astype(np.float64) * spread, desc.element)
    if "slopes" in given:  # weights that fade over some hundred keys
        arrays["slopes"] = stored(rng.uniform(0, 0.1, arrays["slopes"].shape[every_head:]), desc.acc)
    if "mask" in given:
        every = (desc.batch_size, desc.num_heads, desc.query_len, desc.key_len)
        arrays["mask"] = _mask(rng, tuple(1 if one else n for one, n in zip(once, every, strict=True)), mask)
    if desc.dropout_p:
        arrays["seed"], arrays["offset"] = 2**40 + 7, 11
    plan.complete(desc, arrays)
    wanted = {spec for spec in case.wanted if spec not in ("dmask", "dslopes", "dsinks") or spec[1:] in given}
    return Case(plan, desc, arrays, frozenset(wanted - ({"dmask"} if mask == "bool" else set())))


def _mask(rng: np.random.Generator, shape: tuple[int, ...], element: str) -> np.ndarray:
    """A fifth of the keys hidden, and all keys of some queries."""
    seen = rng.random(shape) < 0.8
    if shape[2] > 1:
        seen[..., ::19, :] = False
    if element == "bool":
        return seen
    made: np.ndarray = stored(np.where(seen, rng.standard_normal(shape), -np.inf), _kind(element))
    return made


def _kind(element: str) -> Any:
    from baracuda_py.core.element import ElementKind

    return ElementKind.of(element)
