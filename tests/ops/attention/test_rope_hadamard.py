"""rope_hadamard: rope and scipy's matrix, its gradient, special heads on the emulator, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.linalg import hadamard

import baracuda_py as bc
from baracuda_py import RopeHadamardBackwardPlan, RopeHadamardPlan
from baracuda_py.core.element import ElementKind
from baracuda_py.core.plan import Plan
from baracuda_py.testing import emulate, emulated_device, fill, operands
from baracuda_py.testing.draw import SeededDraw

RNG = np.random.default_rng(31)


def by_complex_numbers(x: Any, positions: Any, rotary: int, pairing: str, scale: float = 1.0) -> Any:
    """Rows [..., tokens, d] rotated as complex numbers and multiplied by scipy's matrix."""
    y, half = np.array(x, np.float64), rotary // 2
    turn = scale * np.exp(1j * np.asarray(positions, float)[:, None] * 500.0 ** (-np.arange(half) / max(half, 1)))
    first, second = (
        (slice(0, half), slice(half, rotary)) if pairing == "half" else (slice(0, rotary, 2), slice(1, rotary, 2))
    )
    z = (y[..., first] + 1j * y[..., second]) * turn
    y[..., first], y[..., second] = z.real, z.imag
    return y @ hadamard(x.shape[-1]) / np.sqrt(x.shape[-1])


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("d, rotary", [(1, 0), (2, 2), (4, 2), (8, 8), (64, 64), (128, 64), (256, 96), (32, 0)])
def test_is_the_rotation_and_the_transform(d: int, rotary: int, pairing: str) -> None:
    x, x2, positions = RNG.standard_normal((2, 3, 7, d)), RNG.standard_normal((2, 1, 7, d)), RNG.integers(-50, 5000, 7)
    facts: dict[str, Any] = {"rotary_dim": rotary, "pairing": pairing, "base": 500.0, "scale": 1.5}
    y, y2 = bc.rope_hadamard(x, positions, x2=x2, **facts)
    for one, made in ((x, y), (x2, y2)):
        np.testing.assert_allclose(made, by_complex_numbers(one, positions, rotary, pairing, 1.5), atol=1e-10)
    two = bc.hadamard_transform(bc.rope(x, positions, **facts), normalized=True)
    np.testing.assert_allclose(y, two, atol=1e-12)
    swapped = bc.rope_hadamard(x.swapaxes(1, 2), positions, layout="bshd", **facts)
    np.testing.assert_array_equal(swapped, y.swapaxes(1, 2))


def test_scores_stay_what_they_are() -> None:
    q, k = RNG.standard_normal((2, 1, 2, 6, 64))
    plain = bc.rope(q) @ bc.rope(k).swapaxes(-1, -2)
    made = bc.rope_hadamard(q) @ bc.rope_hadamard(k).swapaxes(-1, -2)
    np.testing.assert_allclose(made, plain, atol=1e-12)


def test_the_gradient_goes_back() -> None:
    x, x2 = RNG.standard_normal((1, 3, 5, 16)), RNG.standard_normal((1, 2, 5, 16))
    for facts in ({}, {"rotary_dim": 6, "pairing": "interleaved", "offset": 9}):
        y, y2 = bc.rope_hadamard(x, x2=x2, **facts)
        dx, dx2 = bc.rope_hadamard_backward(y, dy2=y2, **facts)
        np.testing.assert_allclose(dx, x, atol=1e-12)
        np.testing.assert_allclose(dx2, x2, atol=1e-12)
    y = x.copy()
    assert bc.rope_hadamard(y, out=y) is y
    np.testing.assert_array_equal(y, bc.rope_hadamard(x))


@pytest.mark.parametrize("facts", [{}, {"rotary_dim": 2, "pairing": "interleaved", "scale": 1.5}])
def test_autograd(facts: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    x, x2 = (torch.tensor(RNG.standard_normal((1, n, 2, 4)), requires_grad=True) for n in (2, 1))
    assert torch.autograd.gradcheck(lambda a, b: bc.rope_hadamard(a, x2=b, **facts), (x, x2))
    assert torch.autograd.gradgradcheck(lambda a: bc.rope_hadamard(a, **facts), (x,))


# Element, (batch_size, seq_len), (num_heads, num_heads2), head_dim, rotary_dim, pairing, absent operands.
PROBLEMS: list[tuple[str, tuple[int, int], tuple[int, int], int, int | None, str, tuple[str, ...]]] = [
    ("bfloat16", (3, 19), (5, 2), 128, None, "half", ()),  # tiles that cross samples
    ("bfloat16", (1, 7), (34, 1), 128, 64, "interleaved", ()),  # DeepSeek's columns, three passes of heads
    ("float16", (2, 9), (3, 0), 128, 32, "half", ("positions", "x2", "dy2")),
    ("float16", (1, 9), (3, 17), 256, None, "interleaved", ()),
    ("bfloat16", (2, 5), (3, 1), 256, 98, "half", ()),  # element by element, lanes without a unit
    ("float32", (2, 11), (3, 2), 256, 6, "half", ()),  # 33 units: two of a lane
    ("float32", (41, 1), (2, 2), 64, 40, "interleaved", ()),
    ("float32", (2, 33), (18, 1), 2, None, "half", ("positions",)),  # heads of less than a chunk
    ("bfloat16", (2, 13), (3, 1), 8, 8, "interleaved", ()),
    ("bfloat16", (2, 13), (3, 1), 4, 2, "half", ()),
    ("float16", (2, 13), (3, 1), 1, 0, "half", ()),
    ("float64", (2, 7), (3, 5), 256, None, "interleaved", ()),  # two units of a lane
    ("float64", (1, 7), (3, 2), 256, 6, "half", ()),  # three
    ("float64", (1, 60), (2, 1), 32, 32, "half", ()),
    ("float32", (2, 19), (4, 0), 64, 0, "half", ("x2", "dy2")),  # nothing turns
]


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("rule", [None, "any"])
@pytest.mark.parametrize("number", range(len(PROBLEMS)))
@pytest.mark.parametrize("plan", [RopeHadamardPlan, RopeHadamardBackwardPlan])
def test_emulated(plan: type[Plan], number: int, rule: str | None) -> None:
    element, tokens, heads, head_dim, rotary, pairing, absent = PROBLEMS[number]
    desc = plan.descriptor(
        batch_size=tokens[0], seq_len=tokens[1], num_heads=heads[0], num_heads2=heads[1], head_dim=head_dim,
        rotary_dim=rotary, pairing=pairing, element=element,
    )  # fmt: skip
    tables = ("cos", "sin", "inv_freq")
    case = fill(plan, desc, np.random.default_rng(number), dict.fromkeys((*absent, *tables), False))
    draw: Any = None if rule is None else SeededDraw(number, ElementKind(element))
    chosen = plan.select(desc, device=replace(emulated_device(9.0), sms=1 + number % 2 * 7))
    emulate(chosen, operands(case, draw, rule=rule))


@pytest.mark.parametrize("d", [0, 3, 96, 512])
def test_head_dim_is_a_power_of_two(d: int) -> None:
    with pytest.raises(bc.InvalidProblemError, match=f"head_dim must be a power of two up to 256, got {d}"):
        bc.rope_hadamard(np.zeros((1, 1, 2, d), np.float32))


@pytest.mark.parametrize("facts, message", [({"rotary_dim": 10}, "rotary_dim"), ({"rotary_dim": 3}, "rotary_dim")])
def test_refusals(facts: dict[str, Any], message: str) -> None:
    with pytest.raises(bc.InvalidProblemError, match=message):
        bc.rope_hadamard(np.zeros((1, 1, 2, 8), np.float32), **facts)
    with pytest.raises(bc.InvalidProblemError, match="cos and sin go together"):
        bc.rope_hadamard(np.zeros((1, 1, 2, 8), np.float32), cos=np.zeros((2, 4), np.float32))
