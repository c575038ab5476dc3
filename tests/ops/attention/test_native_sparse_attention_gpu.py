"""block_importance, native_sparse_attention and moba_attention on a GPU, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.ops.attention.sparse.block_importance import BlockImportanceDescriptor, BlockImportancePlan
from baracuda_py.ops.attention.sparse.moba_attention import moba_attention
from baracuda_py.ops.attention.sparse.native_sparse_attention import native_sparse_attention
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import wrong_plan

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("d", [32, 64, 128, 192, 256])
@pytest.mark.parametrize("group", [1, 16, 20])
def test_importance(element: str, d: int, group: int) -> None:
    if element == "float64" and group * d > 512:
        pytest.skip("its truth, in long doubles, takes a minute")
    desc = BlockImportanceDescriptor(
        batch_size=2, num_heads=2 * group, num_kv_heads=2, query_len=130, key_len=191, d_k=d,
        tokens=3080, element=element,
    )  # fmt: skip
    case = fill(BlockImportancePlan, desc, np.random.default_rng(d))
    assert wrong_plan(case, [BlockImportancePlan.select(desc)]) is None


@pytest.mark.parametrize("function", [native_sparse_attention, moba_attention])
@pytest.mark.parametrize("element", ["float32", "float64"])
def test_compositions(function: object, element: str) -> None:
    import cupy

    rng = np.random.default_rng(6)
    q, k, v = (rng.standard_normal((2, heads, 1500, 64)).astype(element) for heads in (16, 2, 2))
    want = function(*(x.astype(np.float64) for x in (q, k, v)))
    got = function(*map(cupy.asarray, (q, k, v))).get()
    near = np.isclose(got, want, rtol=0, atol=1e-5 if element == "float32" else 1e-12).all(-1)
    assert near.mean() > 0.999  # a query whose choice is a near tie may choose otherwise
