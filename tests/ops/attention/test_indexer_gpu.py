"""indexer_logits and indexer_topk on a GPU: DeepSeek's sizes; lists are the best of the logits in any company."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.attention.indexer.indexer_logits import indexer_logits
from baracuda_py.ops.attention.indexer.indexer_topk import indexer_topk

pytestmark = pytest.mark.gpu


def make(queries: int, pages: int, element: str) -> Any:
    """Operands of 64 heads of 128 columns and pages of 64 keys, and the same as float32."""
    cupy = pytest.importorskip("cupy")
    q = cupy.random.standard_normal((queries, 64, 128), "float32")
    k = cupy.random.standard_normal((pages, 64, 128), "float32")
    w = cupy.random.standard_normal((queries, 64), "float32")
    ends = cupy.linspace(1, 64 * pages, queries).astype("int32")
    if element == "float32":
        return cupy, q, k, w, ends, q, k
    coded = [bc.cast(x, element) for x in (q, k)]
    return cupy, *coded, w, ends, *(bc.cast(x, "float32", element=element) for x in coded)


@pytest.mark.parametrize("element", ["float8_e4m3fn", "float16", "float32"])
def test_are_the_formula_and_its_best(element: str) -> None:
    cupy, q, k, w, ends, q32, k32 = make(70, 65, element)
    logits = indexer_logits(q, k, w, ends=ends, element=element).get()
    s = cupy.einsum("thd,sd->ths", q32.astype("float64"), k32.reshape(-1, 128).astype("float64"))
    want = cupy.einsum("ths,th->ts", cupy.maximum(s, 0), w.astype("float64")).get()
    seen = np.arange(logits.shape[1]) < ends.get()[:, None]
    np.testing.assert_allclose(logits[seen], want[seen], rtol=1e-4, atol=1e-2)
    assert np.isneginf(logits[~seen]).all()
    lists = indexer_topk(q, k, w, ends=ends, top_k=2048, element=element).get()
    for t, row in enumerate(logits):
        chosen = np.sort(np.argsort(-row, kind="stable")[: min(2048, int(ends[t]))])
        np.testing.assert_array_equal(lists[t, : len(chosen)], chosen)
        assert (lists[t, len(chosen) :] == -1).all()


@pytest.mark.parametrize("element", ["float8_e4m3fn", "float32"])
def test_a_list_does_not_depend_on_company(element: str) -> None:
    _, q, k, w, ends, _, _ = make(1200, 1024, element)  # more than one launch
    lists = indexer_topk(q, k, w, ends=ends, top_k=2048, element=element)
    for t in (0, 555, 1199):
        own = slice(t, t + 1)
        alone = indexer_topk(q[own], k, w[own], ends=ends[own], top_k=2048, element=element)
        assert alone.tobytes() == lists[own].tobytes()


def test_a_captured_graph_follows_the_lengths() -> None:
    _, q, k, w, ends, _, _ = make(8, 40, "float16")
    graph = bc.graph(lambda q: indexer_topk(q, k, w, ends=ends, top_k=256), q)
    for end in (1, 700, 2560):
        ends[:] = end
        want = indexer_topk(q, k, w, ends=ends, top_k=256)
        graph()
        assert graph.outputs.tobytes() == want.tobytes()
