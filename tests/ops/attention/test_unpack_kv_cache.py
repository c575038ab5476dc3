"""`unpack_kv_cache`: views of both layouts that appends write through, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import baracuda_py as bc

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("axis", [0, 1])
def test_appends_reach_the_array_and_decoding_reads_it(axis: int) -> None:
    cache = np.zeros((2, 6, 4, 2, 8) if axis == 0 else (6, 2, 4, 2, 8))
    k, v = bc.unpack_kv_cache(cache, axis)
    assert k.base is not None and np.shares_memory(k, cache) and k.shape == v.shape == (6, 4, 2, 8)
    new_k, new_v = RNG.standard_normal((2, 5, 2, 8))
    at = np.array([9, 8, 3, 20, 21], np.int32)
    bc.paged_kv_append(new_k, new_v, k, v, slot_mapping=at, layout="nhd")
    halves = np.moveaxis(cache, axis, 0).reshape(2, 24, 2, 8)
    np.testing.assert_array_equal(halves[0][at], new_k)
    np.testing.assert_array_equal(halves[1][at], new_v)
    q = RNG.standard_normal((1, 4, 8))
    given = {"page_table": np.array([[2, 5]], np.int32), "lengths": np.array([6], np.int32)}
    y = bc.batch_paged_decode(q, k, v, **given, layout="nhd")
    keys, values = (x[[8, 9, 10, 11, 20, 21]].swapaxes(0, 1)[None] for x in halves)
    np.testing.assert_allclose(y, bc.flash_sdpa(q[:, :, None], keys, values)[:, :, 0], rtol=1e-13)


def test_packages() -> None:
    torch = pytest.importorskip("torch")
    x = torch.arange(48.0).reshape(2, 2, 3, 2, 2)
    k, v = bc.unpack_kv_cache(x)
    assert k.data_ptr() == x.data_ptr() and torch.equal(v, x[:, 1])
    jax = pytest.importorskip("jax")
    np.testing.assert_array_equal(bc.unpack_kv_cache(jax.numpy.asarray(x.numpy()))[1], x[:, 1])


@pytest.mark.parametrize(
    ("shape", "axis", "said"),
    [((4, 3, 2, 8), 1, r"\[pages, 2, …\], got \(4, 3, 2, 8\)"), ((3, 2, 8), 0, r"\[2, pages, …\]"), ((2, 2), 1, "2, …"),
     ((4, 2, 2, 8), 2, "axis")],
)  # fmt: skip
def test_what_is_refused(shape: tuple[int, ...], axis: int, said: str) -> None:
    with pytest.raises(bc.InvalidProblemError, match=said):
        bc.unpack_kv_cache(np.zeros(shape), axis)
