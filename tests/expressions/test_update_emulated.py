"""The kernel of updates on the emulator: every way of storing a list, strides, tails, several launches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.expressions.update_codes import KINDS, code_map, encoded, words_of_halves
from baracuda_py.expressions.update_plan import CHUNK, CODED_CHUNK, capacity_of, update_plan_of
from baracuda_py.expressions.update_shape import UpdateShape
from baracuda_py.ops.random.philox import philox_bits
from baracuda_py.testing import emulated_device
from baracuda_py.testing.emulator import emulating
from baracuda_py.testing.recording import pointer_view

SHAPES = ((3, 5), (), (0, 2), (257,), (2, 9), (1,))
BF16 = ml_dtypes.bfloat16


def lists(names: str, dtypes: Mapping[str, Any], shapes: Any = SHAPES, seed: int = 0) -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    return {n: [np.asarray(rng.standard_normal(s)).astype(dtypes.get(n, np.float32)) for s in shapes] for n in names}


def on_emulator(rule: Any, given: dict[str, list[np.ndarray]], singles: tuple[str, ...] = (), **numbers: Any) -> None:
    """The rule's kernel, in place."""
    words = {n: type(numbers[n]) for n in rule.inputs if n in numbers}
    found: UpdateShape = rule.plan(**words).shape
    shape = UpdateShape(found.formula, found.roles, found.stochastic, found.coded, singles)
    plan = update_plan_of(shape)
    first, *rest = shape.lists
    elements = {f"{n}_element": str(given[n][0].dtype) for n in rest}
    desc = plan.descriptor(
        shapes=[x.shape for x in given[shape.whole[0]]], element=str(given[first][0].dtype), **elements
    )
    with emulating(1):
        chosen = plan.select(desc, device=emulated_device(9.0))
        chosen(**{n: [pointer_view(x) for x in one] for n, one in given.items()}, **numbers)


def both(rule: Any, given: dict[str, list[np.ndarray]], **numbers: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What NumPy's backend and the kernel make of copies."""
    host, device = ({n: [x.copy(order="K") for x in one] for n, one in given.items()} for _ in range(2))
    rule(**host, **numbers)
    on_emulator(rule, device, **numbers)
    return host, device


def test_strides_and_tails() -> None:
    rule = bc.optimizer("m = b * m + g; p = p - lr * m; copy = p", b=0.5)
    given = lists("pgm", {}, ((4, 6), (7, 3), (33,), (5,))) | lists(
        ["copy"], {"copy": BF16}, ((4, 6), (7, 3), (33,), (5,))
    )
    given["p"][0] = np.asfortranarray(given["p"][0])
    given["g"][1] = np.repeat(given["g"][1], 2, axis=0)[::2]
    given["m"][2] = np.concatenate([np.zeros(1, np.float32), given["m"][2]])[1:]
    given["p"][3] = given["p"][3][::-1]
    want = {n: [x.copy() for x in one] for n, one in given.items()}
    rule(**want, lr=0.25)
    on_emulator(rule, given, b=0.5, lr=0.25)
    for n in ("p", "m", "copy"):
        for a, b in zip(given[n], want[n], strict=True):
            np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=1e-6, atol=1e-7)


def test_long_lists_and_chunks() -> None:
    rule = bc.optimizer("p = p - lr * g")
    shapes = [(CHUNK + 5,), *[(3,)] * (capacity_of(rule.plan(lr=float).shape) + 2)]
    host, device = both(rule, lists("pg", {}, shapes), lr=0.5)
    for a, b in zip(host["p"], device["p"], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("found_inf", [1.0, float("nan"), float("inf")])
def test_found_inf_writes_nothing(found_inf: float) -> None:
    rule = bc.optimizer("lion")
    given = lists("pgm", {})
    numbers = {"lr": 0.1, "b1": 0.9, "b2": 0.99, "weight_decay": 0.1, "found_inf": found_inf}
    host, device = both(rule, given, **numbers)
    for made in (host, device):
        for n in "pm":
            assert all(np.array_equal(a, b) for a, b in zip(made[n], given[n], strict=True))


@pytest.mark.parametrize("dtype", [BF16, np.float16])
@pytest.mark.parametrize("dense", [True, False])
def test_rounding_at_random_has_the_draws_of_numpy(dtype: Any, dense: bool) -> None:
    """Products of few digits are exact, so that both round the same numbers."""
    rule = bc.optimizer("p = p + lr * g", stochastic="p")
    given = lists("pg", dict.fromkeys("pg", dtype), SHAPES)
    for n in "pg":
        given[n] = [np.asarray(np.round(x.astype(float) * 8)).astype(dtype) for x in given[n]]
    if not dense:
        given["p"][0] = np.asfortranarray(given["p"][0])
        given["g"][3] = np.repeat(given["g"][3], 2)[::2]
    for number in ({"seed": 3}, {"seed": -1, "offset": 2**40 + 1}):
        host, device = both(rule, given, lr=2.0**-9, **number)
        for a, b, old in zip(host["p"], device["p"], given["p"], strict=True):
            np.testing.assert_array_equal(a.view(np.uint16), b.view(np.uint16))
            assert old.size < 100 or not np.array_equal(a, old)


def test_a_word_is_drawn_for_two_bfloat16() -> None:
    """Even elements take the upper half of a word, odd ones the lower; a float16 takes a word of its own."""
    words = philox_bits(5, 9, 12, 8)
    shares = words_of_halves(5, 9, 7, 17) >> 16
    whole = np.stack([words >> 16, words & 0xFFFF], -1).reshape(-1)
    np.testing.assert_array_equal(shares, whole[1:8])


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_codes_of_8_bits(dtype: Any) -> None:
    rule = bc.optimizer("adamw", states8bit={"m": "signed", "v": "unsigned"})
    shapes = ((3, 5), (), (0, 2), (513,), (30, 20))
    given = lists("pg", dict.fromkeys("pg", dtype), shapes)
    for n in "mv":
        given[n] = [np.zeros(s, np.uint8) for s in shapes]
        given[f"{n}_scale"] = [np.zeros(-(-x.size // 256), np.float32) for x in given[n]]
    numbers = {**rule.defaults, "t": 1}
    for t in (1, 2):
        numbers["t"] = t
        host, device = both(rule, given, **numbers)
        for a, b in zip(host["p"], device["p"], strict=True):
            np.testing.assert_allclose(a.astype(float), b.astype(float), rtol=1e-5 if dtype is np.float32 else 8e-3)
        for n in ("m_scale", "v_scale"):
            for a, b in zip(host[n], device[n], strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)
        for n in "mv":
            whole = [np.concatenate([x.reshape(-1) for x in made[n]]).astype(int) for made in (host, device)]
            assert np.max(np.abs(whole[0] - whole[1])) <= 1 and np.mean(whole[0] != whole[1]) < 0.01
        given = host


@pytest.mark.parametrize("eps", [0.0, 1e-8])
def test_roots_and_quotients_out_of_the_usual_range(eps: float) -> None:
    """Beside states of 8 bits roots and quotients of four neighbours have no branches; where they may not, they do."""
    rule = bc.optimizer("adamw", states8bit={"m": "signed", "v": "unsigned"})
    rng = np.random.default_rng(7)
    size = 3 * 256 + 5
    slopes = (rng.standard_normal(size) * 10.0 ** rng.integers(-30, 18, size)).astype(np.float32)
    slopes[rng.random(size) < 0.2] = 0
    slopes[:256] = rng.standard_normal(256)  # a block of usual numbers, with one that has none
    slopes[[9, 30]] = 0.0, np.float32(1e-25)
    slopes[-3:] = np.inf, -np.inf, np.nan
    given: dict[str, list[np.ndarray]] = {"p": [rng.standard_normal(size).astype(np.float32)], "g": [slopes]}
    for n in "mv":
        given[n] = [np.full(size, 127 if n == "m" else 0, np.uint8)]
        given[f"{n}_scale"] = [np.zeros(-(-size // 256), np.float32)]
    numbers = {**rule.defaults, "t": 1, "eps": eps, "lr": 0.1}
    old, single = given["p"][0].astype(float), np.float32
    on_emulator(rule, given, **numbers)
    with np.errstate(all="ignore"):  # the steps of the kernel, each rounded to float32
        m, v = (1 - single(0.9)) * slopes, (single(1 - 0.999) * slopes) * slopes
        root = (np.sqrt(v).astype(float) * single(1 / np.sqrt(1 - 0.999)) + single(eps)).astype(single)
        wanted = old * (1 - 0.1 * numbers["weight_decay"]) - 0.1 / (1 - 0.9) * (m / root)
    np.testing.assert_allclose(given["p"][0], wanted.astype(single), rtol=2e-6, atol=1e-7)
    assert np.isfinite(wanted[:256]).all() == (eps > 0)


@pytest.mark.parametrize("coded", [False, True])
def test_whole_chunks_draw_as_short_ones_do(coded: bool) -> None:
    """The second tensor's words follow the first one's; whole chunks are read without ends."""
    shapes = ((CODED_CHUNK if coded else CHUNK) + 24,), (300,)
    rule = bc.optimizer("p = p + lr * g; m = m", stochastic="p", states8bit={"m": "signed"} if coded else None)
    given = lists("pgm", {"p": BF16, "g": BF16}, shapes)
    for n in "pg":
        given[n] = [np.asarray(np.round(x.astype(float) * 8)).astype(BF16) for x in given[n]]
    if coded:
        given["m"] = [np.full(x.shape, 200, np.uint8) for x in given["p"]]
        given["m_scale"] = [np.ones(-(-x.size // 256), np.float32) for x in given["p"]]
    host, device = both(rule, given, lr=2.0**-9, seed=5, offset=1)
    for n in "pm":
        for a, b in zip(host[n], device[n], strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_codes_are_those_of_numpy(kind: str) -> None:
    """At and beside every place where codes change, over all exponents, in whole chunks and in tails."""
    table = np.unique(code_map(kind)[np.isfinite(code_map(kind))])
    middles = np.float32(0.5) * (table[:-1] + table[1:])
    rng = np.random.default_rng(0)
    special = np.array([0.0, -0.0, 1e-45, -1e-45, 1e-38, 1.0, -1.0, np.nextafter(np.float32(1), np.float32(0))])
    values = np.concatenate([middles, np.nextafter(middles, -np.inf), np.nextafter(middles, np.inf), table, special])
    wide = rng.choice([-1.0, 1.0], 2000) * 2.0 ** rng.uniform(-40, 0, 2000)
    values = np.concatenate([values, -values, wide]).astype(np.float32)
    rows = -(-values.size // 255)
    blocks = np.ones((rows, 256), np.float32)  # the largest magnitude of each is 1
    blocks[:, 1:] = np.resize(values, (rows, 255))
    whole = np.resize(blocks, (CODED_CHUNK,))
    given: dict[str, Any] = {"g": [whole, blocks.reshape(-1)[:-3].copy()]}
    given["m"] = [np.zeros(x.shape, np.uint8) for x in given["g"]]
    given["m_scale"] = [np.zeros(-(-x.size // 256), np.float32) for x in given["g"]]
    on_emulator(bc.optimizer("m = g + 0 * m", states8bit={"m": kind}), given)
    for x, codes, scales in zip(given["g"], given["m"], given["m_scale"], strict=True):
        want, _ = encoded(kind, x + 0)  # g + 0 * m has no -0
        np.testing.assert_array_equal(codes, want)
        np.testing.assert_array_equal(scales, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_codes_beside_what_is_not_finite(kind: str) -> None:
    """A block's scale is NaN or infinite, what is decoded then is not finite; the next block knows nothing of it."""
    g = np.ones(768, np.float32)
    g[3], g[256 + 7] = np.nan, -np.inf
    given: dict[str, Any] = {"g": [g], "m": [np.zeros(768, np.uint8)], "m_scale": [np.zeros(3, np.float32)]}
    on_emulator(bc.optimizer("m = g + 0 * m", states8bit={"m": kind}), given)
    want, scales = encoded(kind, g)
    np.testing.assert_array_equal(given["m"][0], want)
    np.testing.assert_array_equal(given["m_scale"][0], scales)


def test_numbers_of_a_tensor() -> None:
    rule = bc.optimizer("p = p - trust * g")
    shapes = ((3, 5), (4,), (2, 6))
    given = lists("pg", {}, shapes)
    given["p"][2] = np.asfortranarray(given["p"][2])
    given["trust"] = [np.asarray(x, np.float32) for x in (0.5, -1.0, 2.0)]
    want = [p - t * g for p, g, t in zip(given["p"], given["g"], given["trust"], strict=True)]
    host = [p.copy() for p in given["p"]]
    rule(host, given["g"], trust=given["trust"])
    on_emulator(rule, given, singles=("trust",))
    for a, b, c in zip(given["p"], host, want, strict=True):
        np.testing.assert_allclose(a, c, rtol=1e-6)
        np.testing.assert_array_equal(a, b)
