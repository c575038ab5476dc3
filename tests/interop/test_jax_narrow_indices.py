"""Indices of no row in JAX without 64-bit numbers, which is how JAX comes: what is padded is padding there too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import baracuda_py as bc

jax = pytest.importorskip("jax")
V, OFFSETS = np.arange(1, 7, dtype=np.float32), np.array([0, 2, 6], np.int32)
EXPERTS = np.array([[0, 5], [2, -1], [1, 0]], np.int32)  # 5 and -1 are nobody

CALLS = {
    "jagged_to_padded_dense": (lambda v, o: bc.jagged_to_padded_dense(v[:, None], o, 4), (V, OFFSETS)),
    "dense_to_jagged": (lambda d, o: bc.dense_to_jagged(d, o, 6), (V.reshape(2, 3), OFFSETS)),
    "segment_topk": (lambda v, o: bc.segment_topk(v, o, 3), (V, OFFSETS)),
    "moe_permute": (lambda x, e: bc.moe_permute(x, e, num_experts=3), (V.reshape(3, 2), EXPERTS)),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("wide", [False, True])
def test_absent_rows_are_absent(name: str, wide: bool) -> None:
    call, given = CALLS[name]
    wanted: Any = call(*given)
    with jax.default_device(jax.devices("cpu")[0]), jax.enable_x64(wide):
        for run in (call, jax.jit(call)):
            made = run(*(jax.numpy.asarray(one) for one in given))
            pairs = zip(made, wanted, strict=True) if isinstance(wanted, tuple) else [(made, wanted)]
            for one, other in pairs:
                np.testing.assert_array_equal(np.asarray(one), np.asarray(other))
