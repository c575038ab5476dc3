"""rope_quantize_fp8: rope, a product with a scale and fp8; tables, latent keys, special values, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py import RopeQuantizeFp8Plan
from baracuda_py.core.element import decode
from baracuda_py.testing import emulate, emulated_device, fill, operands

RNG = np.random.default_rng(21)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def numbers(y: Any, element: str = "float8_e4m3fn") -> np.ndarray:
    return decode(np.asarray(y).view(np.uint8), bc.ElementKind.of(element)).astype(np.float64)


def turned(x: Any, positions: Any, pairing: str, base: float = 1e4) -> Any:
    """Rows [tokens, heads, d] as complex numbers times exp(i angle), in float64."""
    y, half = np.array(x, np.float64), x.shape[-1] // 2
    turn = np.exp(1j * np.asarray(positions, float)[:, None, None] * base ** (-np.arange(half) / max(half, 1)))
    first, second = (slice(0, half), slice(half, None)) if pairing == "half" else (slice(0, None, 2), slice(1, None, 2))
    z = (y[..., first] + 1j * y[..., second]) * turn
    y[..., first], y[..., second] = z.real, z.imag
    return y


def near(y: Any, wanted: Any, element: str = "float8_e4m3fn") -> None:
    """Within the rounding to fp8, and a float's before it."""
    limits = bc.ElementKind.of(element).limits
    half = 2.0**-4 if element == "float8_e4m3fn" else 2.0**-3
    got, bound = numbers(y, element), np.clip(wanted, -float(limits.max), float(limits.max))
    least = 2.0**-10 if element == "float8_e4m3fn" else 2.0**-17  # half of the smallest number
    assert (np.abs(got - bound) <= np.abs(bound) * (half + 1e-5) + least + 1e-6).all()


@pytest.mark.parametrize("element", ["float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("source", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_grouped_heads(element: str, source: str, pairing: str) -> None:
    q, k = (bc.cast(draw(9, n, 24), source) for n in (4, 2))
    wide_q, wide_k = (np.asarray(bc.cast(x, "float64")) for x in (q, k))
    positions = np.array([0, 1, 70_000, -5, 3, 3, 8, 9, 2])
    made = bc.rope_quantize_fp8(
        q[..., 16:], k[..., 16:], positions, q[..., :16], k[..., :16], pairing=pairing, quant_scale_q=0.3,
        quant_scale_kv=np.array(20.0, np.float32), to_element=element,
    )  # fmt: skip
    assert [y.shape for y in made] == [(9, 4, 8), (9, 2, 8), (9, 4, 16), (9, 2, 16)]
    near(made[0], turned(wide_q[..., 16:], positions, pairing) * 0.3, element)
    near(made[1], turned(wide_k[..., 16:], positions, pairing) * 20, element)
    for y, x, by in ((made[2], q, 0.3), (made[3], k, 20.0)):
        same = bc.fp8_cast(x[..., :16], scale=by, to_element=element)
        np.testing.assert_array_equal(np.asarray(y).view(np.uint8), np.asarray(same).view(np.uint8))


def test_a_latent_key_has_no_heads() -> None:
    q_rope, q_nope, k_rope, k_nope = draw(7, 5, 8), draw(7, 5, 32), draw(7, 8), draw(7, 32)
    positions = np.arange(7)
    made = bc.rope_quantize_fp8(q_rope, k_rope, positions, q_nope, k_nope, quant_scale_kv=2.0)
    assert [y.shape for y in made] == [(7, 5, 8), (7, 8), (7, 5, 32), (7, 32)]
    one = bc.rope_quantize_fp8(q_rope, k_rope[:, None], positions, q_nope, k_nope[:, None], quant_scale_kv=2.0)
    for y, other in zip(made, one, strict=True):
        np.testing.assert_array_equal(y, other.reshape(y.shape))
    both = np.zeros((7, 40), np.uint8)  # the cell of a cache of latents
    outs = (np.zeros((7, 5, 8), np.uint8), both[:, 32:], np.zeros((7, 5, 32), np.uint8), both[:, :32])
    found = bc.rope_quantize_fp8(q_rope, k_rope, positions, q_nope, k_nope, quant_scale_kv=2.0, out=outs)
    assert found[1] is outs[1]
    np.testing.assert_array_equal(both, np.concatenate([made[3], made[1]], -1))
    assert len(bc.rope_quantize_fp8(q_rope, k_rope, positions)) == 2
    queries = bc.rope_quantize_fp8(q_rope, k_rope, positions, q_nope)
    np.testing.assert_array_equal(queries[2], made[2])
    keys = bc.rope_quantize_fp8(q_rope, k_rope, positions, None, k_nope, quant_scale_kv=2.0)
    np.testing.assert_array_equal(keys[2], made[3])


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_a_table_has_cosines_and_then_sines(pairing: str) -> None:
    q, k, positions = draw(6, 2, 8), draw(6, 1, 8), np.array([0, 4, 2, 9, -1, 10], np.int32)
    angle = np.outer(np.arange(10), 1e4 ** (-np.arange(4) / 4))
    table = np.concatenate([np.cos(angle), np.sin(angle)], -1).astype(np.float32)
    made = bc.rope_quantize_fp8(q, k, positions, cos_sin_cache=table, pairing=pairing, scale=1.5)
    inside = (positions >= 0) & (positions < 10)
    near(made[0][inside], turned(q, positions, pairing)[inside] * 1.5)
    near(made[1][inside], turned(k, positions, pairing)[inside] * 1.5)
    assert (numbers(made[0])[~inside] == 0).all()
    moved = bc.rope_quantize_fp8(q, k, positions - 3, cos_sin_cache=table, pairing=pairing, scale=1.5, offset=3)
    np.testing.assert_array_equal(moved[0], made[0])


@pytest.mark.parametrize("dealt", [False, True])
def test_sections_turn_by_axes_of_positions(dealt: bool) -> None:
    q, k = draw(5, 2, 12), draw(5, 1, 12)
    positions = RNG.integers(0, 50, (3, 5))
    facts: dict[str, Any] = {"mrope_section": (2, 3, 1), "mrope_interleaved": dealt}
    made = bc.rope_quantize_fp8(q, k, positions, **facts)
    near(made[0], bc.rope(q.astype(float)[None], positions[:, None], layout="bshd", **facts)[0])


def test_special_values() -> None:
    q = np.array([1e9, -1e9, np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-30], np.float32).reshape(1, 1, 8)
    for element, most in (("float8_e4m3fn", 448.0), ("float8_e5m2", 57344.0)):
        made = bc.rope_quantize_fp8(q[..., :0], q[..., :0], np.array([7]), q, q, to_element=element)
        np.testing.assert_array_equal(numbers(made[2], element).ravel(), [most, -most, most, -most, np.nan, 0, 0, 0])
    turning = bc.rope_quantize_fp8(q, q, np.array([0]))
    expected = [np.nan, -448, 448, -448, np.nan, 0, np.nan, np.nan]  # pairs of columns 0 and 4, …; 0 · inf is NaN
    np.testing.assert_array_equal(numbers(turning[0]).ravel(), expected)


# Element, tokens, (heads, kv_heads), d_rope, (d_nope, d_nope_kv), pairing, operands that are given.
PROBLEMS: list[tuple[str, int, tuple[int, int], int, tuple[int, int], str, tuple[str, ...]]] = [
    ("bfloat16", 70, (5, 1), 64, (128, 128), "half", ("q_nope", "k_nope")),
    ("float16", 3, (16, 1), 64, (520, 512), "interleaved", ("q_nope", "k_nope", "cos_sin_cache")),  # an odd chunk
    ("bfloat16", 33, (6, 2), 128, (0, 0), "interleaved", ()),
    ("float32", 41, (3, 2), 80, (36, 8), "half", ("k_nope", "inv_freq")),
    ("bfloat16", 9, (2, 2), 20, (17, 3), "interleaved", ("q_nope", "k_nope")),  # element by element
    ("float32", 19, (3, 1), 6, (5, 0), "half", ("q_nope", "cos_sin_cache")),
    ("float16", 5, (0, 4), 10, (8, 8), "half", ("q_nope", "k_nope")),
    ("float16", 11, (3, 0), 0, (24, 0), "half", ("q_nope",)),  # nothing turns
    ("bfloat16", 1, (128, 1), 64, (512, 512), "half", ("q_nope", "k_nope")),  # shares of a token
]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("sms", [1, 40])
@pytest.mark.parametrize("number", range(len(PROBLEMS)))
def test_emulated(number: int, sms: int) -> None:
    element, tokens, heads, d_rope, others, pairing, given = PROBLEMS[number]
    desc = RopeQuantizeFp8Plan.descriptor(
        num_tokens=tokens, num_heads=heads[0], num_kv_heads=heads[1], d_rope=d_rope, d_nope=others[0],
        d_nope_kv=others[1], num_positions=12, pairing=pairing, element=element,
        to_element=("float8_e4m3fn", "float8_e5m2")[number % 2],
    )  # fmt: skip
    there = {name: name in given for name in ("q_nope", "k_nope", "inv_freq", "cos_sin_cache")}
    case = fill(RopeQuantizeFp8Plan, desc, np.random.default_rng(number), there)
    case = replace(case, wanted=frozenset(f"y{n}" for n in ("q_rope", "k_rope", *given) if n[1:] in ("_rope", "_nope")))
    emulate(RopeQuantizeFp8Plan.select(desc, device=replace(emulated_device(9.0), sms=sms)), operands(case))


X, AT = np.zeros((4, 2, 6), np.float32), np.arange(4)


@pytest.mark.parametrize(
    "args, options, message",
    [
        ((X[..., :5], X[..., :5], AT), {}, "d_rope must be even, got 5"),
        ((X, X[:3], AT), {}, "k_rope"),
        ((X, X, AT[:3]), {}, "positions"),
        ((X, X, AT.astype(float)), {}, "positions"),
        ((X, X[:, 0], AT, X, X), {}, "k_rope and k_nope must both have heads, or neither"),
        ((X, X, AT, X[:, :1]), {}, "q_nope"),
        ((X, X, AT), {"cos_sin_cache": X[:, 0], "inv_freq": X[0, 0, :3]}, "cos_sin_cache replaces inv_freq"),
        ((X, X, AT), {"cos_sin_cache": X[:, 0, :4]}, "cos_sin_cache"),
        ((X, X, AT), {"mrope_section": (1, 1)}, "mrope_section"),
        ((X, X, AT), {"to_element": "int8"}, "to_element"),
        ((X.astype(float), X.astype(float), AT), {}, "float64"),
        ((X, X, AT), {"quant_scale": 1.0}, "quant_scale"),
    ],
)
def test_refusals(args: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((bc.BaracudaError, TypeError), match=message):
        bc.rope_quantize_fp8(*args, **options)


def test_a_gradient_is_refused() -> None:
    torch = pytest.importorskip("torch")
    x = torch.zeros(4, 2, 6, requires_grad=True)
    with pytest.raises(bc.UnsupportedError, match="rope_quantize_fp8"):
        bc.rope_quantize_fp8(x, x.detach(), torch.arange(4))
    assert len(bc.rope_quantize_fp8(x.detach(), x.detach(), torch.arange(4))) == 2
