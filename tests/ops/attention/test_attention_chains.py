"""Sums in one chain: attention in float32 keeps its bound at every head_dim and for equal values, and comes near it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from call_emulated import by_last_row

from baracuda_py import FlashSdpaPlan, SdpaPlan
from baracuda_py.core.error_bound import Chained
from baracuda_py.core.plan import Plan
from baracuda_py.testing import fill
from baracuda_py.testing.chains import chain, in_chains
from baracuda_py.testing.truth import Truth

SIZES = {"batch_size": 1, "num_heads": 1, "query_len": 7, "d_v": 8, "element": "float32"}


def results(plan: type[Plan], seed: int, alike: bool, **facts: Any) -> tuple[Truth, Any, Chained]:
    """The truth, y by the kernels, and what they promise; `alike`: all keys have one value."""
    desc = plan.descriptor(**SIZES, **facts)
    optional = ("mask", "slopes", "sinks", "attn", "scores", "lse")
    case = fill(plan, desc, np.random.default_rng(seed), dict.fromkeys(optional, False))
    if alike:
        case.arrays["v"][:] = case.arrays["v"][..., :1, :]
    written, bound = by_last_row(case)
    return Truth(case), written["y", 0], bound


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("plan", "alike", "facts"),
    [(FlashSdpaPlan, False, {"key_len": 13, "d_k": d}) for d in (16, 64, 128, 256, 512)]
    + [(SdpaPlan, False, {"key_len": 13, "d_k": 512}), (SdpaPlan, True, {"key_len": 700, "d_k": 16})],
)  # fmt: skip
def test_the_bound_holds_and_a_tenth_of_it_does_not(plan: type[Plan], alike: bool, facts: dict[str, int]) -> None:
    far = 0
    for seed in range(9000, 9005):
        truth, y, bound = results(plan, seed, alike, **facts)
        assert isinstance(bound, Chained)
        assert (wrong := truth.wrong({("y", 0): y}, bound)) is None, f"seed {seed}: {wrong}"
        far += truth.wrong({("y", 0): y}, Chained(bound.k / 10, bound.mean, bound.piece)) is not None
    assert far > 0


def rounded(exact: Fraction) -> Fraction:
    """The nearest float32."""
    near = np.float32(float(exact))
    by = (near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, -np.float32(np.inf)))
    return min((Fraction(float(x)) for x in by), key=lambda x: abs(x - exact))


@pytest.mark.parametrize("piece", [5, 1000])
def test_a_chain_rounds_after_every_term(piece: int) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal(17).astype(np.float32), rng.standard_normal(17).astype(np.float32)
    sums = []
    for start in range(0, 17, piece):
        total = Fraction(0)
        for a, b in zip(x[start : start + piece].tolist(), y[start : start + piece].tolist(), strict=True):
            total = rounded(total + Fraction(a) * Fraction(b))
        sums.append(total)
    wanted = np.sum(np.array([float(s) for s in sums], np.float32))
    assert chain(x[None], y[:, None], piece=piece) == wanted


def test_operands_in_chains_change_matrix_products_alone() -> None:
    rng = np.random.default_rng(4)
    x, y = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 400), (2, 400, 5)))
    first, *_ = in_chains(None, 3)
    a = first(x.copy())
    np.testing.assert_array_equal(np.asarray(np.swapaxes(a, 0, 1)[1:].swapaxes(0, 1) @ y), chain(x[:, 1:], y))
    np.testing.assert_array_equal(np.asarray(np.where(x > 0, x, 0) @ first(y.copy())), chain(np.maximum(x, 0), y))
    for got, wanted in ((np.exp(a), np.exp(x)), (a.sum(-1), x.sum(-1)), (np.frexp(a)[1], np.frexp(x)[1])):
        np.testing.assert_array_equal(np.asarray(got), wanted)
    a -= x
    assert type(a) is not np.ndarray and not np.asarray(a).any()


def test_a_chain_of_no_terms_is_zero() -> None:
    assert chain(np.ones((2, 3, 0), np.float32), np.ones((0, 5), np.float32)).tolist() == np.zeros((2, 3, 5)).tolist()
