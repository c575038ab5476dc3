"""qk_norm_rope and its gradient at shapes that drawn problems miss, on the emulator.

Many tiles of a block, several passes over heads, samples that end within a tile, and lanes that hold two units.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from baracuda_py import QkNormRopeBackwardPlan, QkNormRopePlan
from baracuda_py.core.element import ElementKind
from baracuda_py.core.plan import Plan
from baracuda_py.ops.attention.rope.qk_norm_rope import THREADS, side_values
from baracuda_py.ops.attention.rope.qk_norm_rope_backward import parts_of
from baracuda_py.testing import emulate, emulated_device, fill, operands
from baracuda_py.testing.draw import SeededDraw
from baracuda_py.testing.places import call

# Element, (batch_size, seq_len), (num_heads, num_kv_heads), head_dim, rotary_dim, pairing, absent operands.
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


@pytest.mark.parametrize("exponent", [-101, -60, 60, 101])
def test_a_power_of_two_leaves_the_norm_as_it_is(place: str, exponent: int) -> None:
    """Squares of such elements leave float's range. dx has the inverse power; the weights' gradients stay."""
    rng = np.random.default_rng(exponent + 200)

    def drawn(*shape: int) -> Any:
        return rng.integers(1, 128, shape) * rng.choice((-1.0, 1.0), shape) / 64

    shapes = {"batch_size": 2, "num_heads": 3, "num_kv_heads": 2, "seq_len": 5, "head_dim": 32}
    fields: dict[str, Any] = {**shapes, "element": "bfloat16", "eps": 0.0}
    q, k, dyq, dyk = drawn(2, 3, 5, 32), drawn(2, 2, 5, 32), drawn(2, 3, 5, 32), drawn(2, 2, 5, 32)
    weights = {"q_weight": drawn(32), "k_weight": drawn(32)}
    power = 2.0**exponent
    made = []
    for by in (1.0, power):
        x = {"q": q * by, "k": k * by, **weights}
        made.append(
            call(QkNormRopePlan, QkNormRopePlan.descriptor(**fields), ("yq", "yk"), place, **x)
            | call(
                QkNormRopeBackwardPlan, QkNormRopeBackwardPlan.descriptor(**fields),
                ("dq", "dk", "dq_weight", "dk_weight"), place, dyq=dyq, dyk=dyk, **x,
            )
        )  # fmt: skip
    for name, plain in made[0].items():
        by = 1 / power if name in ("dq", "dk") else 1.0
        np.testing.assert_array_equal(made[1][name], plain * by, err_msg=name)


def test_groups_share_heads_where_tokens_alone_do_not_fill_the_device() -> None:
    def ways(rows: int, heads: tuple[int, int], groups: int) -> list[int]:
        found: list[int] = side_values(rows, heads, THREADS // groups, 396)["side_ways"]
        return found

    assert ways(32768, (32, 8), 32) == [2, 1]  # 16 and 8 heads one after another
    assert ways(8, (32, 8), 32) == [32, 8]  # a head a group
    assert ways(1, (1000, 0), 8) == [8, 1]
    assert ways(0, (0, 0), 32) == [1, 1]


@pytest.mark.parametrize("heads", [(32, 8), (1, 64), (5, 0), (0, 0)])
@pytest.mark.parametrize("tokens", [0, 3, 40000])
def test_persistent_blocks_are_divided_in_proportion(heads: tuple[int, int], tokens: int) -> None:
    tiles = [tokens if n else 0 for n in heads]
    parts = parts_of(heads, tiles, 264)
    assert min(parts) >= 1  # which write the sum of nothing
    assert sum(parts) <= 264
    if tokens > 264 and min(heads) > 0:
        assert parts[0] / parts[1] == pytest.approx(heads[0] / heads[1], rel=0.25)
