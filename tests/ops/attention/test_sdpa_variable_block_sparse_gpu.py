"""sdpa_variable_block_sparse and its gradients on a GPU: head_dims, groups, many blocks."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.ops.attention.sparse.sdpa_variable_block_sparse import SdpaVariableBlockSparsePlan
from baracuda_py.ops.attention.sparse.sdpa_variable_block_sparse_backward import SdpaVariableBlockSparseBackwardPlan
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import wrong_plan

pytestmark = pytest.mark.gpu
PLANS = (SdpaVariableBlockSparsePlan, SdpaVariableBlockSparseBackwardPlan)


def wrong(plan: type, element: str, **facts: object) -> str | None:
    """What the plan gets wrong with random operands, or None."""
    sizes = {
        "batch_size": 2, "num_heads": 4, "num_kv_heads": 2, "query_len": 147, "key_len": 261, "d_k": 64, "d_v": 64,
        "row_blocks": 12, "column_blocks": 20, "is_causal": True, "causal_alignment": "bottom_right",
        "element": element,
    }  # fmt: skip
    if element == "float64":  # whose truth is in long doubles, without a library's products
        sizes |= {"batch_size": 1, "query_len": 41, "key_len": 133}
    desc = plan.descriptor(**sizes | facts)
    return wrong_plan(fill(plan, desc, np.random.default_rng(5)), [plan.select(desc)])


@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("d", [32, 64, 96, 128, 192, 256])
def test_every_head_dim(plan: type, element: str, d: int) -> None:
    assert wrong(plan, element, d_k=d, d_v=d) is None


@pytest.mark.parametrize("element", ["bfloat16", "float32"])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("blocks", [1, 40, 700])
def test_many_blocks(plan: type, element: str, blocks: int) -> None:
    sizes = {"batch_size": 1, "num_heads": 2, "num_kv_heads": 1, "query_len": 750, "key_len": 900}
    assert wrong(plan, element, row_blocks=blocks, column_blocks=blocks, **sizes) is None
