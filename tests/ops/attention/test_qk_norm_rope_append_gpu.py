"""qk_norm_rope_append on a GPU: against the ops that it joins, of all formats, at real sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("form", ["plain", "int8", "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize(("tokens", "d"), [(64, 128), (1000, 128), (333, 80), (70, 256)])
def test_is_the_ops_one_after_the_other(form: str, norm: bool, tokens: int, d: int) -> None:
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(tokens)
    heads, kv, page = 16, 4, 16
    pages = -(-tokens // page) + 3
    packed = cupy.asarray(rng.standard_normal((tokens, heads + 2 * kv, d)).astype(np.float32))
    q, k, v = packed[:, :heads], packed[:, heads : heads + kv], packed[:, heads + kv :]
    positions = cupy.asarray(rng.integers(0, 50_000, tokens))
    slots = cupy.asarray(rng.permutation(pages * page)[:tokens])
    kind = {"plain": "float32", "int8": "int8"}.get(form, "uint8")
    got, want = ([cupy.zeros((pages, kv, page, d), kind) for _ in range(2)] for _ in range(2))
    made, wanted = ([cupy.zeros((pages, kv, page, 1), "float32") for _ in range(2)] for _ in range(2))
    scales: dict[str, Any] = {} if form == "plain" else {"k_scales": made[0], "v_scales": made[1]}
    y = bc.qk_norm_rope_append(q, k, v, *got, positions, slot_mapping=slots, format=form, norm=norm, **scales)
    turned = [x.swapaxes(0, 1)[None] for x in (q, k)]
    turned = bc.qk_norm_rope(*turned, positions=positions) if norm else bc.rope(turned[0], positions, x2=turned[1])
    np.testing.assert_array_equal(y.get(), turned[0][0].swapaxes(0, 1).get())
    keys = cupy.ascontiguousarray(turned[1][0].swapaxes(0, 1))
    values = cupy.ascontiguousarray(v)
    if form == "plain":
        bc.paged_kv_append(keys, values, *want, slot_mapping=slots)
    else:
        bc.paged_kv_append_quantized(keys, values, *want, *wanted, slot_mapping=slots, format=form)
    for one, other in zip((*got, *made), (*want, *wanted), strict=True):
        np.testing.assert_array_equal(one.get(), other.get())


@pytest.mark.parametrize("group", [None, 32, 64])
@pytest.mark.parametrize(("tokens", "d", "rotary"), [(64, 128, None), (1000, 128, 64), (333, 192, None), (70, 64, 34)])
def test_int4_is_what_the_append_of_codes_stores(group: int | None, tokens: int, d: int, rotary: int | None) -> None:
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(tokens)
    heads, kv, page = 16, 4, 16
    pages = -(-tokens // page) + 3
    packed = cupy.asarray(rng.standard_normal((tokens, heads + 2 * kv, d)).astype(np.float32))
    q, k, v = packed[:, :heads], packed[:, heads : heads + kv], packed[:, heads + kv :]
    facts = {"positions": cupy.asarray(rng.integers(0, 50_000, tokens)), "rotary_dim": rotary}
    at = {"slot_mapping": cupy.asarray(rng.permutation(pages * page)[:tokens]), "format": "int4", "group_size": group}
    got, want = ([cupy.zeros((pages, kv, page, d // 2), "uint8") for _ in range(2)] for _ in range(2))
    groups = 1 if group is None else d // group
    made, wanted = ([cupy.zeros((pages, kv, page, groups), "float32") for _ in range(2)] for _ in range(2))
    bc.qk_norm_rope_append(q, k, v, *got, **facts, **at, k_scales=made[0], v_scales=made[1])
    keys = bc.qk_norm_rope(*(x.swapaxes(0, 1)[None] for x in (q, k)), **facts)[1][0].swapaxes(0, 1)
    news = [cupy.ascontiguousarray(x) for x in (keys, v)]
    bc.paged_kv_append_quantized(*news, *want, *wanted, **at)
    for one, other in zip((*got, *made), (*want, *wanted), strict=True):
        np.testing.assert_array_equal(one.get(), other.get())
