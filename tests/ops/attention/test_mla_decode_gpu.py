"""mla_decode on a GPU: bits that do not depend on company, at DeepSeek's sizes; captured graphs follow the lengths."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.attention.mla.mla_decode import mla_decode

pytestmark = pytest.mark.gpu


def make(heads: int, queries: int, tokens: int, page: int, dtype: str) -> Any:
    """Queries, pages and tables of two sequences, on the device; rows of pages are dealt out backwards."""
    cupy = pytest.importorskip("cupy")
    q = cupy.random.standard_normal((2, queries, heads, 576), "float32").astype(dtype)
    each = -(-tokens // page)
    cache = cupy.random.standard_normal((2 * each, page, 576), "float32").astype(dtype)
    table = cupy.arange(2 * each, dtype="int32")[::-1].reshape(2, each)
    return cupy, q, cache, table, cupy.array([tokens, tokens - 37], dtype="int32")


def truth(cupy: Any, q: Any, cache: Any, table: Any, lengths: Any, scale: float) -> tuple[Any, Any]:
    """y and lse in float64."""
    y, lse = np.zeros((*q.shape[:3], 512)), np.zeros(q.shape[:3])
    for b, i in np.ndindex(q.shape[:2]):
        c = cache[table[b]].reshape(-1, 576)[: int(lengths[b]) - q.shape[1] + i + 1].astype("float64")
        s = scale * q[b, i].astype("float64") @ c.T
        top = s.max(-1, keepdims=True)
        w = cupy.exp(s - top)
        y[b, i] = (w @ c[:, :512] / w.sum(-1, keepdims=True)).get()
        lse[b, i] = (top[:, 0] + cupy.log(w.sum(-1))).get()
    return y, lse


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    ("heads", "queries", "tokens", "page"), [(16, 1, 4097, 64), (128, 1, 1500, 16), (20, 4, 961, 1)]
)
def test_is_attention(dtype: str, heads: int, queries: int, tokens: int, page: int) -> None:
    cupy, q, cache, table, lengths = make(heads, queries, tokens, page, dtype)
    y, lse = mla_decode(q, cache, page_table=table, lengths=lengths, scale=0.05, return_lse=True)
    want = truth(cupy, q, cache, table, lengths, 0.05)
    tolerance = 2e-3 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(y.get(), want[0], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(lse.get(), want[1], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_bits_of_a_query_do_not_depend_on_company(dtype: str) -> None:
    _, q, cache, table, lengths = make(20, 4, 2000, 16, dtype)
    y, lse = mla_decode(q, cache, page_table=table, lengths=lengths, scale=0.05, return_lse=True)
    for b, i in np.ndindex(2, 4):
        alone = {"page_table": table[b : b + 1], "lengths": lengths[b : b + 1] - 3 + i}
        got = mla_decode(q[b : b + 1, i : i + 1], cache, **alone, scale=0.05, return_lse=True)
        assert got[0].tobytes() == y[b : b + 1, i : i + 1].tobytes()
        assert got[1].tobytes() == lse[b : b + 1, i : i + 1].tobytes()


def test_a_captured_graph_follows_the_lengths() -> None:
    _, q, cache, table, lengths = make(16, 1, 1200, 64, "float16")
    given = {"page_table": table, "lengths": lengths, "scale": 0.05}
    graph = bc.graph(lambda q: mla_decode(q, cache, **given), q)
    for length in (1, 700, 1200):
        lengths[:] = length
        want = mla_decode(q, cache, **given)
        graph()
        assert graph.outputs.tobytes() == want.tobytes()
