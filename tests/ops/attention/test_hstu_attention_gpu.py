"""hstu_attention and its gradients on a GPU: head_dims, many sequences, long ones."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.ops.attention.packed.hstu_attention import HstuAttentionPlan
from baracuda_py.ops.attention.packed.hstu_attention_backward import HstuAttentionBackwardPlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import wrong_plan

pytestmark = pytest.mark.gpu
PLANS = (HstuAttentionPlan, HstuAttentionBackwardPlan)


@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(("d", "total", "bounds"), [(32, 700, 4), (64, 900, 130), (128, 600, 2), (100, 513, 9)])
@pytest.mark.parametrize("facts", [{}, {"is_causal": False}, {"window_left": 100}])
def test_sizes(plan: type, element: str, d: int, total: int, bounds: int, facts: dict[str, object]) -> None:
    total = total // 4 if element == "float64" else total  # whose truth is in long doubles
    sizes = {"total": total, "num_heads": 3, "d_k": d, "d_v": d, "num_bounds": bounds, "max_seqlen": 100}
    desc = plan.descriptor(**sizes, element=element, **facts)
    case = fill(plan, desc, np.random.default_rng(total))
    assert wrong_plan(case, [plan.select(desc)]) is None
