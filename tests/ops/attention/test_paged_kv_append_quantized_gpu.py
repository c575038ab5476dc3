"""paged_kv_append_quantized on a GPU: the bits of NumPy at real sizes, of all formats."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

pytestmark = pytest.mark.gpu

FORMATS = [("int8", None), ("int4", None), ("int4", 32), ("int4", 128), ("float8_e4m3fn", None), ("float8_e5m2", None)]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(("form", "group"), FORMATS)
@pytest.mark.parametrize("d", [128, 256, 640])
def test_bits_are_numpys(dtype: str, form: str, group: int | None, d: int) -> None:
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(d)
    batch, new, heads, page, each = 5, 37, 3, 16, 8
    k, v = (rng.standard_normal((batch * new, heads, d)).astype(dtype) for _ in range(2))
    k[3, 1, 7], v[4, 2] = np.nan, 0
    width = d // 2 if form == "int4" else d
    held: list[Any] = [
        np.zeros((batch * each, heads, page, width), np.int8 if form == "int8" else np.uint8) for _ in range(2)
    ]
    held += [np.zeros((batch * each, heads, page, d // (group or d)), np.float32) for _ in range(2)]
    tables = {
        "page_table": rng.permutation(batch * each).reshape(batch, each).astype(np.int32),
        "cache_offsets": rng.integers(0, page * each - new, batch).astype(np.int32),
    }
    device = [cupy.asarray(a) for a in (k, v, *held)]
    facts: dict[str, Any] = {"format": form, "group_size": group}
    bc.paged_kv_append_quantized(*device, **{n: cupy.asarray(t) for n, t in tables.items()}, **facts)
    bc.paged_kv_append_quantized(k, v, *held, **tables, **facts)
    for got, want in zip(device[2:], held, strict=True):
        np.testing.assert_array_equal(got.get(), want)
