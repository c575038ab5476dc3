"""flash_decoding on a GPU: what must not change a bit, and long contexts with large scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py.core.element import ElementKind
from baracuda_py.core.error_bound import Relative
from baracuda_py.ops.attention.decoding.flash_decoding import FlashDecodingDescriptor, flash_decoding, reference
from baracuda_py.testing.tolerance import assert_within

pytestmark = pytest.mark.gpu


def make(batch: int, heads: int, kv_heads: int, cells: int, d_k: int, d_v: int, dtype: Any) -> list[Any]:
    """q and the two caches, on the device."""
    cupy = pytest.importorskip("cupy")
    shapes = (batch, heads, d_k), (batch, kv_heads, cells, d_k), (batch, kv_heads, cells, d_v)
    return [cupy.random.standard_normal(shape, "float32").astype(dtype) for shape in shapes]


def same(got: tuple[Any, ...], want: tuple[Any, ...]) -> bool:
    """Equal bits of all outputs."""
    return all(a.tobytes() == b.tobytes() for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("heads", [1, 3, 8, 12, 19])
def test_a_sequence_alone_is_the_same_in_a_batch(dtype, heads):
    cupy = pytest.importorskip("cupy")
    q, k, v = make(3, heads, 1, 700, 128, 64, dtype)
    lengths = np.array([700, 257, 0], np.int32)
    k[1, :, 257:], v[1, :, 257:] = cupy.nan, cupy.nan
    given = [q, k, v, cupy.asarray(lengths)]
    y = flash_decoding(*given)
    assert (flash_decoding(*(a[1:2] for a in given)) == y[1:2]).all()
    want = flash_decoding(*(a.get().astype("float64") for a in (q, k, v)), lengths)
    np.testing.assert_allclose(y.get().astype("float64"), want, rtol=0, atol=8 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize(("heads", "dim"), [(8, 64), (32, 64), (8, 128)])
def test_four_splits_a_block_or_one(heads, dim):
    cupy = pytest.importorskip("cupy")
    batch = cupy.cuda.Device().attributes["MultiProcessorCount"]  # enough for blocks of four splits
    q, k, v = make(batch, heads, 2, 8300, dim, dim, "float16")
    lengths = cupy.random.randint(0, 8301, batch)
    lengths[:8] = cupy.asarray([0, 1, 256, 257, 1024, 1280, 8192, 8300])
    y, lse = flash_decoding(q, k, v, lengths, return_lse=True)
    for b in range(12):
        alone = flash_decoding(*(a[b : b + 1] for a in (q, k, v, lengths)), return_lse=True)
        assert same(alone, (y[b : b + 1], lse[b : b + 1])), int(lengths[b])


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_size_of_the_cache_changes_no_bit(dtype):
    cupy = pytest.importorskip("cupy")
    q, k, v = make(2, 8, 2, 20000, 64, 64, dtype)
    for length in (1, 255, 256, 257, 8191, 8192, 8193, 12289):
        lengths = cupy.asarray([length, max(1, length // 3)])
        want = flash_decoding(q, k, v, lengths, return_lse=True)
        for cells in (length, length + 1, length + 300):
            assert same(flash_decoding(q, k[:, :, :cells], v[:, :, :cells], lengths, return_lse=True), want), length


@pytest.mark.parametrize("sizes", [(32, 32), (64, 128), (96, 96), (128, 72), (192, 192), (256, 256)])
@pytest.mark.parametrize("group", [1, 7, 16, 21])
def test_alignment_changes_no_bit(sizes, group):
    cupy = pytest.importorskip("cupy")
    given = make(2, 2 * group, 2, 777, *sizes, "float16")
    lengths = cupy.asarray([777, 300])
    want = flash_decoding(*given, lengths, return_lse=True)
    shifted = []
    for a in given:
        flat = cupy.empty(a.size + 1, a.dtype)[1:]
        flat[...] = a.ravel()
        shifted.append(flat.reshape(a.shape))
    assert same(flash_decoding(*shifted, lengths, return_lse=True), want)
    spread = []
    for a in given:
        wider = cupy.full((*a.shape[:-1], a.shape[-1] + 8), cupy.nan, a.dtype)
        wider[..., : a.shape[-1]] = a
        spread.append(wider[..., : a.shape[-1]])
    assert same(flash_decoding(*spread, lengths, return_lse=True), want)


@pytest.mark.parametrize("group", [1, 4, 16])
def test_long_contexts_and_large_scores(group):
    cupy = pytest.importorskip("cupy")
    lengths = np.array([1, 2, 13, 61, 127, 256, 257, 1021, 2048, 4093, 8191, 8192])
    given = make(len(lengths), group, 1, 8192, 64, 64, "float16")
    given[0] *= 12  # scores of ±100 at a scale of 0.25
    y, lse = flash_decoding(*given, cupy.asarray(lengths), scale=0.25, return_lse=True)
    desc = FlashDecodingDescriptor(
        batch_size=len(lengths), num_heads=group, num_kv_heads=1, max_cache_len=8192, d_k=64, d_v=64, scale=0.25,
        element="float16",
    )  # fmt: skip

    def formula(dtype: Any, **store: Any) -> Any:
        arrays = {name: a.get().astype(dtype) for name, a in zip("qkv", given, strict=True)}
        return reference(desc, **arrays, lengths=lengths, wanted={"y", "lse"}, **store)

    truth, low = formula("float64"), formula("float32", store=lambda x: x.astype("float16").astype("float32"))
    assert truth["lse"].max() > 60
    assert_within(Relative(2), y.get(), truth["y"], element=ElementKind.F16, low=low["y"])
    np.testing.assert_allclose(lse.get(), truth["lse"], rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(8, 1, 128), (6, 2, 64), (21, 1, 40), (1, 1, 256)])
def test_weights(dtype, heads, kv_heads, dim):
    """Against the reference; y and lse keep their bits; a mean alone and a sequence alone are the same."""
    cupy = pytest.importorskip("cupy")
    q, k, v = make(4, heads, kv_heads, 1333, dim, dim, dtype)
    lengths = np.array([1333, 0, 257, 64])
    for b, n in enumerate(lengths):
        k[b, :, n:], v[b, :, n:] = cupy.nan, cupy.nan
    given = [q, k, v, cupy.asarray(lengths)]
    plain = flash_decoding(*given, return_lse=True)
    acc = "float64" if dtype == "float64" else "float32"
    wide = cupy.full((4, heads + 1, 1340), 7, acc)
    out = {"weights": wide[:, :heads, 3:1336]}
    y, lse, weights, mean = flash_decoding(
        *given, return_lse=True, return_weights=True, return_mean_weights=True, out=out
    )
    assert same((y, lse), plain)
    assert (wide[:, heads] == 7).all() and (wide[..., :3] == 7).all() and (wide[..., 1336:] == 7).all()
    host = [a.get().astype("float64") for a in (q, k, v)]
    _, want, want_mean = flash_decoding(*host, lengths, return_weights=True, return_mean_weights=True)
    tight = {"rtol": 1e-12, "atol": 1e-15} if acc == "float64" else {"rtol": 2e-5, "atol": 1e-9}
    np.testing.assert_allclose(weights.get(), want, **tight)
    np.testing.assert_allclose(mean.get(), want_mean, **tight)
    _, alone = flash_decoding(*given, return_mean_weights=True)
    assert same((alone, alone), (mean, mean))
    for b in range(4):
        one = flash_decoding(*(a[b : b + 1] for a in given), return_weights=True, return_mean_weights=True)
        assert same(one, (y[b : b + 1], cupy.ascontiguousarray(weights[b : b + 1]), mean[b : b + 1]))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_row_without_weights_is_zero_whatever_the_values(dtype):
    cupy = pytest.importorskip("cupy")
    q, k, v = make(2, 4, 2, 600, 64, 64, dtype)
    k[1], v[1] = -cupy.inf, cupy.nan
    y, lse, weights = flash_decoding(cupy.abs(q), k, v, cupy.asarray([600, 300]), return_lse=True, return_weights=True)
    assert not y[1].any() and cupy.isneginf(lse[1]).all() and not weights[1].any() and cupy.isfinite(y).all()
