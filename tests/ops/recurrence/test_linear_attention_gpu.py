"""Linear attention on a GPU: sequences, heads and states as models have them, every kind, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.ops.recurrence.kinds import RecurrenceKind
from baracuda_py.ops.recurrence.linear_attention import LinearAttentionPlan
from baracuda_py.ops.recurrence.linear_attention_backward import LinearAttentionBackwardPlan
from baracuda_py.ops.recurrence.linear_attention_decode import LinearAttentionDecodePlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import wrong_plan

pytestmark = pytest.mark.gpu
KINDS = list(RecurrenceKind)


def check(plan: type, seed: int, **fields: object) -> None:
    desc = plan.descriptor(**fields)
    case = fill(plan, desc, np.random.default_rng(seed))
    assert wrong_plan(case, [plan.select(desc)]) is None


@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("d_k", "d_v", "seq_len", "states"), [(64, 64, 1000, 2), (128, 128, 511, 3), (256, 96, 130, 1)]
)
def test_forward(kind, element, d_k, d_v, seq_len, states):
    check(
        LinearAttentionPlan, seq_len, kind=kind, batch_size=1, num_states=states, seq_len=seq_len, q_heads=1, k_heads=1,
        v_heads=2, d_k=d_k, d_v=d_v, use_qk_l2norm=True, element=element,
    )  # fmt: skip


@pytest.mark.parametrize("kind", [RecurrenceKind.SCALAR, RecurrenceKind.SCALAR_DELTA])
def test_a_long_sequence(kind):
    check(
        LinearAttentionPlan, 8, kind=kind, batch_size=1, seq_len=8192, q_heads=1, k_heads=1, v_heads=1, d_k=128,
        d_v=64, use_qk_l2norm=True, element="bfloat16",
    )  # fmt: skip


@pytest.mark.parametrize("element", ["bfloat16", "float32"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("d_k", "d_v", "seq_len", "states"), [(64, 64, 300, 3), (128, 128, 130, 1), (256, 40, 70, 2)])
def test_backward(kind, element, d_k, d_v, seq_len, states):
    check(
        LinearAttentionBackwardPlan, seq_len, kind=kind, batch_size=1, num_states=states, seq_len=seq_len, q_heads=1,
        k_heads=2, v_heads=2, d_k=d_k, d_v=d_v, use_qk_l2norm=True, element=element,
    )  # fmt: skip


@pytest.mark.parametrize("element", ["bfloat16", "float32"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps", [1, 4])
def test_decode(kind, element, steps):
    check(
        LinearAttentionDecodePlan, steps, kind=kind, batch_size=33, seq_len=steps, q_heads=2, k_heads=2, v_heads=4,
        d_k=128, d_v=128, num_slots=40, element=element,
    )  # fmt: skip
