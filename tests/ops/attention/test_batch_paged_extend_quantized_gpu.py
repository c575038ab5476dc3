"""batch_paged_extend_quantized on a GPU: against its decoded caches, and bits at real sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py import cast
from baracuda_py.ops.attention.paged.batch_paged_extend import batch_paged_extend
from baracuda_py.ops.attention.paged.batch_paged_extend_quantized import batch_paged_extend_quantized

pytestmark = pytest.mark.gpu

HEADS, KV_HEADS, PAGE = 16, 2, 16
FORMATS = [("int8", 0), ("int4", 0), ("int4", 32), ("float8_e4m3fn", 0), ("float8_e5m2", 0)]


def make(lengths: list[int], queries: list[int], d: int, dtype: str, form: tuple[str, int]) -> Any:
    """q, codes and scales, bounds and tables on the device, and the elements in float32; pages in reverse order."""
    cupy = pytest.importorskip("cupy")
    cupy.random.seed(1)
    kind, group = form
    each = -(-max(lengths) // PAGE)
    cells = each * len(lengths), KV_HEADS, PAGE
    caches: dict[str, Any] = {}
    plain = []
    for name in ("k", "v"):
        scales = cupy.random.random((*cells, d // group if group else 1), "float32") / (8 if kind == "int4" else 128)
        if kind == "int8":
            codes = cupy.random.randint(-127, 128, (*cells, d)).astype("int8")
            numbers = codes.astype("float32")
        elif kind == "int4":
            codes = cupy.random.randint(0, 256, (*cells, d // 2)).astype("uint8")
            halves = cupy.stack([codes & 15, codes >> 4], -1).reshape(*cells, d)
            numbers = (halves ^ 8).astype("float32") - 8
        else:
            codes = cast(cupy.random.standard_normal((*cells, d), "float32") * 16, kind)
            numbers = cast(codes, "float32", element=kind)
        caches |= {f"{name}_cache": codes, f"{name}_scales": scales}
        plain.append(numbers * cupy.repeat(scales, d // scales.shape[-1], -1))
    q = cupy.random.standard_normal((sum(queries), HEADS, d), "float32").astype(dtype)
    table = cupy.arange(each * len(lengths), dtype="int32")[::-1].reshape(len(lengths), each).copy()
    bounds = cupy.array([0, *np.cumsum(queries)], dtype="int32")
    return cupy, q, caches, bounds, {"page_table": table, "lengths": cupy.array(lengths, dtype="int32")}, plain


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("d", [64, 128, 192, 256])
@pytest.mark.parametrize("queries", [[1, 1, 1], [40, 16, 2]])
def test_is_extend_of_the_elements(form: Any, dtype: str, d: int, queries: list[int]) -> None:
    _, q, caches, bounds, tables, plain = make([5000, 300, 17], queries, d, dtype, form)
    facts = {"max_seqlen_q": max(queries), "scale": 0.05, "return_lse": True}
    got = batch_paged_extend_quantized(q, **caches, qo_indptr=bounds, format=form[0], **tables, **facts)
    want = batch_paged_extend(q.astype("float32"), *plain, bounds, **tables, **facts)
    tolerance = 5e-3 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(got[0].get(), want[0].get(), rtol=tolerance, atol=tolerance)
    exact = dtype == "float32" or not form[1]
    np.testing.assert_allclose(got[1].get(), want[1].get(), rtol=1e-5, atol=2e-5 if exact else tolerance)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_bits_of_a_query_do_not_depend_on_company(form: Any, dtype: str, d: int) -> None:
    """Alone and in batches so large that units are groups of blocks; positions beyond 32768."""
    for lengths, queries in (([40000, 300], [16, 1]), ([4000] * 80, [8] * 80), ([700, 33], [40, 5])):
        cupy, q, caches, bounds, tables, _ = make(lengths, queries, d, dtype, form)
        facts = {"format": form[0], "return_lse": True}
        y, lse = batch_paged_extend_quantized(q, **caches, qo_indptr=bounds, **tables, **facts)
        for i in (0, queries[0] - 1):
            one = {
                "page_table": tables["page_table"][:1].copy(),
                "lengths": cupy.array([lengths[0] - queries[0] + i + 1], dtype="int32"),
                "qo_indptr": cupy.array([0, 1], dtype="int32"),
            }
            alone = batch_paged_extend_quantized(q[i : i + 1], **caches, **one, **facts)
            assert alone[0].tobytes() == y[i : i + 1].tobytes()
            assert alone[1].tobytes() == lse[:, i : i + 1].tobytes()
