"""The wgmma row of a formula's gradients on the emulator: every head_dim, terms, options of the formula."""

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

import os
ROW = os.environ.get("ROW", "wgmma")
SCORE, HIDES = "s * 0.5 + bias[h, q - k] * tanh(s)", "abs(q - k) <= n or t[k] > 0"
CASES: tuple[tuple[int, str | None, str | None, dict[str, Any], set[str], str], ...] = (
    (64, SCORE, HIDES, {}, set(), "float32"),
    (40, SCORE, None, {"is_causal": True, "dropout_p": 0.3}, {"slopes"}, "float32"),
    (64, None, HIDES, {"window_left": 40, "softcap": 2.0}, {"mask"}, "bool"),
    (128, SCORE, HIDES, {"is_causal": True, "causal_alignment": "bottom_right"}, {"mask", "sinks"}, "float32"),
    (128, "where(q > k, s, -s)", None, {"softcap": 3.0, "dropout_p": 0.2}, {"slopes", "sinks"}, "float32"),
    (256, SCORE, HIDES, {"window_right": 20}, {"slopes"}, "float32"),
    (200, SCORE, None, {"dropout_p": 0.1}, {"mask"}, "same"),
)  # fmt: skip


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("d", "score", "mask", "facts", "given", "kind"), CASES, ids=[f"{c[0]}-{n}" for n, c in enumerate(CASES)]
)
@pytest.mark.parametrize("element", ["bfloat16"])
def test_gradients(
    element: str, d: int, score: str | None, mask: str | None, facts: dict[str, Any], given: set[str], kind: str
) -> None:
    roles = {"n": int} if mask else {}
    plan: Any = bc.attention(score, mask).plan(**roles).vjp.plan  # type: ignore[union-attr]
    queries, keys = (70, 130) if d <= 64 else (65, 75)
    tables = {"bias_shape": (4, 90)} if score == SCORE else {}
    tables |= {"t_shape": (keys,)} if mask else {}
    desc = plan.descriptor(
        batch_size=1, num_heads=4, num_kv_heads=2, query_len=queries, key_len=keys, d_k=d, d_v=d, element=element,
        **facts, **tables,
    )  # fmt: skip
    case = terms_case(plan, desc, given, mask=element if kind == "same" else kind)
    case.arrays["block_mask"] = None
    if mask:
        case.arrays["n"] = 9
        case.arrays["t"] = np.where(np.arange(keys) % 3 == 0, 1, -1).astype(case.arrays["t"].dtype)
    plan.complete(desc, case.arrays)
    chosen = plan(desc, PlanPreference(), emulated_device(9.0))
    chosen.rows = tuple(row for row in chosen.rows if row.name == ROW)
    emulate(chosen, operands(case))
