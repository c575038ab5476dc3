"""mla_kv_append_fp8 on a GPU: into records of bytes, the same as on the host but for last bits of codes and scales."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc
from baracuda_py.ops.attention.mla.mla_kv_append_fp8 import mla_kv_append_fp8
from baracuda_py.ops.attention.mla.records import decoded

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("weighted", [False, True])
def test_has_the_records_of_the_host(weighted: bool) -> None:
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(0)
    latent, k_rope, weight = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((90, 512), (90, 64), (512,)))
    tables = {"page_table": np.arange(6, dtype=np.int32).reshape(3, 2), "cache_offsets": np.array([0, 5, 30], np.int32)}
    records = np.zeros((6, 32, 656), np.uint8)
    parts = records[..., :512], records[..., 512:528].view(np.float32), records[..., 528:].view(ml_dtypes.bfloat16)
    mla_kv_append_fp8(latent, k_rope, *parts, weight=weight if weighted else None, **tables)
    held = cupy.zeros((6, 32, 656), "uint8")
    codes, scales, rope = held[..., :512], held[..., 512:528].view("float32"), cupy.zeros((6, 32, 64), "float32")
    rope = bc.cast(rope, "bfloat16")
    new, keys, by = (bc.cast(cupy.asarray(x.astype(np.float32)), "bfloat16") for x in (latent, k_rope, weight))
    placed = {name: cupy.asarray(x) for name, x in tables.items()}
    mla_kv_append_fp8(new, keys, codes, scales, rope, weight=by if weighted else None, **placed)
    got, want = decoded(held.get(), 512, np.float32), decoded(records, 512, np.float32)
    np.testing.assert_allclose(got[..., :512], want[..., :512], rtol=2**-3, atol=1e-2)
    np.testing.assert_allclose(held[..., 512:528].get().view(np.float32), parts[1], rtol=1e-6)
    np.testing.assert_allclose(bc.cast(rope, "float32").get(), want[..., 512:], rtol=2**-7, atol=1e-6)
