"""indexer_k_append on a GPU: DeepSeek's keys, the same as on the host but for last bits of codes and scales."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import baracuda_py as bc

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("tokens", [1, 1000])
@pytest.mark.parametrize("facts", [{}, {"rotary_columns": "last", "pairing": "interleaved"}, {"hadamard": False}])
@pytest.mark.parametrize("form", ["float8_e4m3fn", "plain"])
def test_has_the_keys_of_the_host(tokens: int, facts: dict[str, Any], form: str) -> None:
    cupy = pytest.importorskip("cupy")
    rng, pages = np.random.default_rng(tokens), -(-tokens // 64) + 2
    k = (rng.standard_normal((tokens, 128)) + 0.3).astype(np.float32)
    given = {name: rng.uniform(-1, 1, 128).astype(np.float32) for name in ("weight", "bias")}
    where = {"positions": rng.integers(0, 100_000, tokens), "slot_mapping": rng.permutation(pages * 64)[:tokens]}
    coded = form != "plain"
    cache = np.zeros((pages, 64, 128), np.uint8 if coded else np.float32)
    scales = np.zeros((pages, 64), np.float32) if coded else None
    facts = {**facts, "rotary_dim": 64, "format": form}
    held, held_scales = cupy.asarray(cache), None if scales is None else cupy.asarray(scales)
    bc.indexer_k_append(k, cache, scales, **given, **where, **facts)
    there = {name: cupy.asarray(x) for name, x in {**given, **where}.items()}
    bc.indexer_k_append(cupy.asarray(k), held, held_scales, **there, **facts)
    got = held.get()
    if scales is not None and held_scales is not None:
        np.testing.assert_allclose(held_scales.get(), scales, rtol=1e-5)
        assert (got != cache).mean() < 0.01
        got, cache = (x.view(ml_dtypes.float8_e4m3fn).astype(np.float32) for x in (got, cache))
    np.testing.assert_allclose(got, cache, rtol=2**-3 if coded else 1e-4, atol=2**-8 if coded else 1e-4)
