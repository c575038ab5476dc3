"""mla_sparse on a GPU: DeepSeek's sizes against float64; bits that do not depend on company; captured graphs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.attention.mla.mla_decode import mla_decode
from baracuda_py.ops.attention.mla.mla_decode_fp8 import mla_decode_fp8
from baracuda_py.ops.attention.mla.mla_sparse import mla_sparse
from baracuda_py.ops.attention.mla.mla_sparse_fp8 import mla_sparse_fp8
from baracuda_py.ops.attention.mla.records import decoded, encoded

pytestmark = pytest.mark.gpu


def make(queries: int, heads: int, top_k: int, dtype: str) -> Any:
    """Queries, 64 pages of 64 cells, and lists of which every ninth number is none."""
    cupy = pytest.importorskip("cupy")
    q = cupy.random.standard_normal((queries, heads, 576), "float32").astype(dtype)
    cache = cupy.random.standard_normal((64, 64, 576), "float32").astype(dtype)
    lists = cupy.stack([cupy.random.permutation(4096)[:top_k] for _ in range(queries)]).astype("int32")
    lists[:, ::9] = -1
    return cupy, q, cache, lists


def truth(cupy: Any, q: Any, cache: Any, lists: Any, scale: float) -> tuple[Any, Any]:
    """y and lse in float64."""
    y, lse = np.zeros((*q.shape[:2], 512)), np.zeros(q.shape[:2])
    for t in range(len(q)):
        c = cache.reshape(-1, 576)[lists[t][lists[t] >= 0]].astype("float64")
        s = scale * q[t].astype("float64") @ c.T
        top = s.max(-1, keepdims=True)
        w = cupy.exp(s - top)
        y[t] = (w @ c[:, :512] / w.sum(-1, keepdims=True)).get()
        lse[t] = (top[:, 0] + cupy.log(w.sum(-1))).get()
    return y, lse


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(("queries", "heads", "top_k"), [(3, 128, 2048), (40, 16, 2048), (5, 20, 1057), (2, 1, 7)])
def test_is_attention_to_the_listed_cells(dtype: str, queries: int, heads: int, top_k: int) -> None:
    cupy, q, cache, lists = make(queries, heads, top_k, dtype)
    y, lse = mla_sparse(q, cache, lists, scale=0.05, return_lse=True)
    want = truth(cupy, q, cache, lists, 0.05)
    tolerance = 2e-3 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(y.get(), want[0], rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(lse.get(), want[1], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_bits_of_a_query_do_not_depend_on_company(dtype: str) -> None:
    _, q, cache, lists = make(400, 128, 2048, dtype)  # more than one launch
    y, lse = mla_sparse(q, cache, lists, scale=0.05, return_lse=True)
    for t in (0, 170, 399):
        got = mla_sparse(q[t : t + 1], cache, lists[t : t + 1], scale=0.05, return_lse=True)
        assert got[0].tobytes() == y[t : t + 1].tobytes() and got[1].tobytes() == lse[t : t + 1].tobytes()


def test_a_captured_graph_follows_the_lists() -> None:
    cupy, q, cache, lists = make(4, 16, 512, "float16")
    graph = bc.graph(lambda q: mla_sparse(q, cache, lists, scale=0.05), q)
    for shift in (0, 13):
        lists[:] = cupy.where(lists < 0, -1, (lists + shift) % 4096)
        want = mla_sparse(q, cache, lists, scale=0.05)
        graph()
        assert graph.outputs.tobytes() == want.tobytes()


@pytest.mark.parametrize("queries", [3, 90])
def test_fp8_records_have_the_bits_of_decoded_cells(queries: int) -> None:
    cupy, q, _, lists = make(queries, 128, 2048, "float32")
    rng = np.random.default_rng(0)
    cells = encoded(rng.standard_normal((64, 64, 512)).astype(ml_dtypes.bfloat16), rng.standard_normal((64, 64, 64)))
    q = bc.cast(q, "bfloat16")
    columns = bc.cast(cupy.asarray(decoded(cells, 512, np.float32)), "bfloat16")
    cache = cupy.asarray(cells)
    got = mla_sparse_fp8(q, cache, lists, scale=0.05, return_lse=True)
    want = mla_sparse(q, columns, lists, scale=0.05, return_lse=True)
    assert got[0].tobytes() == want[0].tobytes() and got[1].tobytes() == want[1].tobytes()
    given = {"page_table": cupy.arange(64, dtype="int32")[None], "lengths": cupy.array([4001], dtype="int32")}
    got, want = (
        f(q[:1, None], held, **given, scale=0.05) for f, held in ((mla_decode_fp8, cache), (mla_decode, columns))
    )
    assert got.tobytes() == want.tobytes()
