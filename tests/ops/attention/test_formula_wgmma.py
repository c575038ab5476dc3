"""The wgmma row of a formula's gradients on the emulator: every head_dim, score terms beside the formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from terms_cases import terms_case

import baracuda_py as bc
from baracuda_py.core.preference import PlanPreference
from baracuda_py.testing.emulated import emulate
from baracuda_py.testing.emulator import emulated_device
from baracuda_py.testing.operands import operands

SCORE, HIDES = "s * 0.5 + bias[h, q - k] * tanh(s)", "abs(q - k) <= n or t[k] > 0"
BOTTOM = {"is_causal": True, "causal_alignment": "bottom_right"}
CASES: tuple[tuple[str, int, str | None, str | None, dict[str, Any], set[str], str], ...] = (
    ("bfloat16", 64, SCORE, HIDES, {}, set(), "float32"),
    ("float16", 40, SCORE, None, {"is_causal": True, "dropout_p": 0.3}, {"slopes"}, "float32"),
    ("float16", 64, None, HIDES, {"window_left": 40, "softcap": 2.0}, {"mask"}, "bool"),
    ("bfloat16", 128, SCORE, HIDES, BOTTOM, {"mask", "sinks"}, "float32"),
    ("bfloat16", 128, "where(q > k, s, -s)", None, {"softcap": 3.0, "dropout_p": 0.2}, {"slopes"}, "float32"),
    ("float16", 256, SCORE, HIDES, {"window_right": 20}, {"slopes"}, "float32"),
    ("bfloat16", 200, SCORE, None, {"dropout_p": 0.1}, {"mask"}, "bfloat16"),
    ("bfloat16", 128, None, HIDES, {"is_causal": True}, {"sinks"}, "float32"),
    ("float16", 256, None, HIDES, {}, set(), "float32"),
)  # fmt: skip


def check(
    row: str, element: str, d: int, score: str | None, mask: str | None, facts: dict[str, Any], given: set[str],
    kind: str,
) -> None:  # fmt: skip
    """Emulates a row; lse has a gradient, too."""
    plan: Any = bc.attention(score, mask).plan(**({"n": int} if mask else {})).vjp.plan  # type: ignore[union-attr]
    queries, keys = (70, 130) if d <= 64 else (65, 75)
    tables: dict[str, Any] = {"bias_shape": (2, 90)} if score == SCORE else {}
    tables |= {"t_shape": (keys,)} if mask else {}
    sizes = {"batch_size": 1, "num_heads": 2, "num_kv_heads": 1, "query_len": queries, "key_len": keys}
    desc = plan.descriptor(**sizes, d_k=d, d_v=d, element=element, **facts, **tables)
    case = terms_case(plan, desc, given, mask=kind)
    case.arrays["block_mask"] = None
    if mask:
        case.arrays |= {"n": 9, "t": np.where(np.arange(keys) % 3 == 0, 1, -1).astype(case.arrays["t"].dtype)}
    plan.complete(desc, case.arrays)
    chosen = plan(desc, PlanPreference(), emulated_device(9.0))
    assert [one.name for one in chosen.rows] == ["wgmma", "mma"]
    chosen.rows = tuple(one for one in chosen.rows if one.name == row)
    emulate(chosen, operands(case))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("case", CASES, ids=[f"{c[1]}-{n}" for n, c in enumerate(CASES)])
def test_gradients(case: Any) -> None:
    check("wgmma", *case)


@pytest.mark.usefixtures("emulation")
def test_dropout_leaves_the_gradient_of_lse_where_a_key_has_all_of_its_row() -> None:
    """As the first row of a causal mask: the row of mma.sync."""
    check("mma", *CASES[1])
