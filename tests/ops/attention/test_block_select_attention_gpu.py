"""block_select_attention and its gradients on a GPU: block sizes, head_dims, groups, blocks in parts, bits."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.ops.attention.sparse.block_select_attention import BlockSelectAttentionPlan, block_select_attention
from baracuda_py.ops.attention.sparse.block_select_attention_backward import (
    BlockSelectAttentionBackwardPlan, block_select_attention_backward,
)  # fmt: skip
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import wrong_plan

pytestmark = pytest.mark.gpu
ELEMENTS = ("float16", "bfloat16", "float32", "float64")
PLANS = (BlockSelectAttentionPlan, BlockSelectAttentionBackwardPlan)


def wrong(plan: type, element: str, **facts: object) -> str | None:
    """What the plan gets wrong with random operands, or None."""
    sizes = {
        "batch_size": 2, "num_heads": 4, "num_kv_heads": 2, "query_len": 147, "key_len": 421, "d_k": 64, "d_v": 64,
        "selected": 5, "block_size": 64, "is_causal": True, "causal_alignment": "bottom_right", "element": element,
    }  # fmt: skip
    if element == "float64":  # whose truth is in long doubles, without a library's products
        sizes |= {"batch_size": 1, "query_len": 37, "key_len": 133, "selected": 2}
    desc = plan.descriptor(**sizes | facts)
    return wrong_plan(fill(plan, desc, np.random.default_rng(5)), [plan.select(desc)])


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("d", [32, 64, 96, 128, 192, 256])
def test_every_head_dim(plan: type, element: str, d: int) -> None:
    assert wrong(plan, element, d_k=d, d_v=d) is None
    assert wrong(plan, element, d_k=d, d_v=d - 8, block_size=16, selected=16) is None


@pytest.mark.parametrize("element", ["bfloat16", "float32"])
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize(("block_size", "selected"), [(128, 3), (48, 5), (1, 40), (23, 9), (1000, 1), (32, 33)])
@pytest.mark.parametrize("group", [1, 16, 20])
def test_blocks_and_groups_of_any_size(plan: type, element: str, block_size: int, selected: int, group: int) -> None:
    sizes = {"block_size": block_size, "selected": selected, "num_heads": 2 * group}
    assert wrong(plan, element, **sizes, batch_size=2 if group == 1 else 1) is None


@pytest.mark.parametrize("element", ["float16", "float32"])
def test_bits_repeat_and_follow_from_sets(element: str) -> None:
    import cupy

    rng = np.random.default_rng(9)
    q, k, v, dy = (cupy.asarray(rng.standard_normal((2, h, 2048, 128)).astype(element)) for h in (16, 2, 2, 16))
    blocks = rng.integers(0, 32, (2, 2, 2048, 8)).astype(np.int32)
    blocks[..., 0] = 0  # a block that all choose, which is worked on in parts
    results = []
    for lists in (blocks, blocks, blocks[..., ::-1].copy()):
        given = (q, k, v, cupy.asarray(lists))
        y, lse = block_select_attention(*given, is_causal=True, return_lse=True)
        results.append((y, lse, *block_select_attention_backward(*given, y, lse, dy, is_causal=True)))
    for other in results[1:]:
        assert all((a == b).all() for a, b in zip(results[0], other, strict=True))
