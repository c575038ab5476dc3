"""qk_norm_rope and its gradient at shapes that drawn problems miss, on the emulator.

Many tiles of a block, several passes over heads, samples that end within a tile, and lanes that hold two units.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from baracuda_py import QkNormRopeBackwardPlan, QkNormRopePlan
from baracuda_py.core.device import fake_device
from baracuda_py.core.element import ElementKind
from baracuda_py.core.plan import Plan
from baracuda_py.ops.attention.rope.qk_norm_rope import ways_of
from baracuda_py.testing import emulate, emulated_device, fill, operands
from baracuda_py.testing.draw import SeededDraw

# Elements, (batch_size, seq_len), (num_heads, num_kv_heads), head_dim, rotary_dim, pairing, the operands that are absent.
PROBLEMS: list[tuple[str, tuple[int, int], tuple[int, int], int, int | None, str, tuple[str, ...]]] = [
    ("bfloat16", (3, 67), (5, 2), 128, None, "half", ()),  # tiles that cross samples
    ("bfloat16", (2, 21), (34, 3), 128, 64, "interleaved", ("k_weight",)),  # three passes of 16 heads, the last small
    ("float16", (41, 1), (7, 9), 80, 48, "half", ("q_weight",)),  # each token a sample, lanes without a unit
    ("float16", (2, 5), (3, 1), 1016, 112, "interleaved", ()),  # two units a lane
    ("bfloat16", (1, 9), (2, 17), 700, None, "half", ("positions",)),
    ("float32", (2, 33), (18, 1), 127, 62, "interleaved", ("positions",)),
    ("float32", (3, 3), (2, 2), 500, 250, "half", ("q_weight", "k_weight")),
    ("float64", (2, 7), (3, 20), 256, None, "interleaved", ()),
    ("float64", (1, 130), (1, 1), 2, 2, "half", ()),  # groups of one lane
    ("float32", (2, 19), (4, 0), 64, 0, "half", ()),  # no keys, nothing turned
]
WANTED = [("dq", "dk", "dq_weight", "dk_weight"), ("dk_weight",), ("dq", "dk_weight"), ("dk",)]


def check(plan: type[Plan], number: int, rule: str | None, sms: int, wanted: tuple[str, ...] = ()) -> None:
    element, tokens, heads, head_dim, rotary, pairing, absent = PROBLEMS[number]
    desc = plan.descriptor(
        batch_size=tokens[0], seq_len=tokens[1], num_heads=heads[0], num_kv_heads=heads[1], head_dim=head_dim,
        rotary_dim=rotary, pairing=pairing, element=element, weight_offset=1.0,
    )  # fmt: skip
    tables = ("cos", "sin", "inv_freq")
    case = fill(plan, desc, np.random.default_rng(number), dict.fromkeys((*absent, *tables), False))
    if wanted:
        case = replace(case, wanted=frozenset(w for w in wanted if case.arrays.get(w[1:], 0) is not None))
    draw: Any = None if rule is None else SeededDraw(number, ElementKind(element))
    chosen = plan.select(desc, device=replace(emulated_device(9.0), sms=sms))
    emulate(chosen, operands(case, draw, rule=rule))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("rule", [None, "any"])
@pytest.mark.parametrize("number", range(len(PROBLEMS)))
def test_forward(number: int, rule: str | None) -> None:
    check(QkNormRopePlan, number, rule, 1 + number % 2 * 7)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("rule", [None, "any"])
@pytest.mark.parametrize("number", range(len(PROBLEMS)))
def test_backward(number: int, rule: str | None) -> None:
    check(QkNormRopeBackwardPlan, number, rule, 1, WANTED[(number + (rule is None)) % len(WANTED)])
