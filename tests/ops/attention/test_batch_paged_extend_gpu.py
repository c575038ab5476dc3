"""batch_paged_extend on a GPU: against prefill, bits at real sizes, a captured graph that serves any lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.attention.paged.batch_paged_extend import batch_paged_extend
from baracuda_py.ops.attention.paged.batch_paged_prefill import batch_paged_prefill

pytestmark = pytest.mark.gpu

HEADS, KV_HEADS, PAGE = 16, 2, 16


def make(lengths: list[int], queries: list[int], d: int, dtype: str) -> Any:
    """q, caches, bounds and tables on the device; pages are dealt out backwards."""
    cupy = pytest.importorskip("cupy")
    cupy.random.seed(1)
    each = -(-max(lengths) // PAGE)
    count = each * len(lengths)
    q = cupy.random.standard_normal((sum(queries), HEADS, d), "float32").astype(dtype)
    k, v = (cupy.random.standard_normal((count, KV_HEADS, PAGE, d), "float32").astype(dtype) for _ in range(2))
    table = cupy.arange(count, dtype="int32")[::-1].reshape(len(lengths), each).copy()
    bounds = cupy.array([0, *np.cumsum(queries)], dtype="int32")
    return cupy, q, (k, v), bounds, {"page_table": table, "lengths": cupy.array(lengths, dtype="int32")}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("d", [64, 128, 192, 256])
@pytest.mark.parametrize("queries", [[1, 1, 1], [8, 3, 1], [40, 16, 2]])
def test_is_prefill(dtype: str, d: int, queries: list[int]) -> None:
    _, q, caches, bounds, tables = make([5000, 300, 17], queries, d, dtype)
    got = batch_paged_extend(q, *caches, bounds, **tables, max_seqlen_q=max(queries), return_lse=True)
    want = batch_paged_prefill(q, *caches, bounds, **tables, is_causal=True, return_lse=True)
    tolerance = 2e-3 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(got[0].get(), want[0].get(), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(got[1].get(), want[1].get(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("terms", [{}, {"softcap": 20.0, "window_left": 3000}])
def test_bits_of_a_query_do_not_depend_on_company(dtype: str, d: int, terms: dict[str, Any]) -> None:
    """Widths from 1 to 40, alone and in a batch so large that units are groups of blocks; positions beyond 32768."""
    for lengths, queries in (([40000, 300], [16, 1]), ([4000] * 80, [8] * 80), ([700, 33], [40, 5])):
        cupy, q, caches, bounds, tables = make(lengths, queries, d, dtype)
        y, lse = batch_paged_extend(q, *caches, bounds, **tables, **terms, return_lse=True)
        for i in (0, queries[0] - 1):
            one = {
                "page_table": tables["page_table"][:1].copy(),
                "lengths": cupy.array([lengths[0] - queries[0] + i + 1], dtype="int32"),
            }
            alone = batch_paged_extend(
                q[i : i + 1], *caches, cupy.array([0, 1], dtype="int32"), **one, **terms, return_lse=True
            )
            assert alone[0].tobytes() == y[i : i + 1].tobytes()
            assert alone[1].tobytes() == lse[:, i : i + 1].tobytes()


def test_a_captured_graph_serves_any_lengths() -> None:
    cupy, q, caches, bounds, tables = make([2000, 1500], [4, 4], 128, "float16")
    given = {**tables, "max_seqlen_q": 4}
    graph = bc.graph(lambda q: batch_paged_extend(q, *caches, bounds, **given), q)
    for lengths in ([2000, 1500], [17, 1999], [4, 4]):
        tables["lengths"][:] = cupy.array(lengths, dtype="int32")
        want = batch_paged_extend(q, *caches, bounds, **given)
        graph()
        assert graph.outputs.tobytes() == want.tobytes()
