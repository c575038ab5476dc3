"""batch_paged_decode_fp8: every stored element, scales wherever they live, queries beyond float16."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from call_emulated import call
from paged_caches import deal

from baracuda_py.core.args import arrays_of
from baracuda_py.core.device import fake_device
from baracuda_py.core.element import FP8, ElementKind
from baracuda_py.core.error_bound import Relative
from baracuda_py.ops.attention.paged.batch_paged_decode import batch_paged_decode
from baracuda_py.ops.attention.paged.batch_paged_decode_fp8 import (
    BatchPagedDecodeFp8Args,
    BatchPagedDecodeFp8Descriptor,
    BatchPagedDecodeFp8Plan,
    batch_paged_decode_fp8,
)
from baracuda_py.testing.draw import Case, fill
from baracuda_py.testing.truth import Truth

LENGTHS = np.array([40, 1, 13], np.int32)


def make(seed, kind, batch=3, heads=6, kv_heads=2, cells=40, d=32, page=8, dtype=np.float16):
    """q, paged caches as bytes, what they stand for, and the tables."""
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((batch, heads, d)).astype(dtype)
    dense = [rng.standard_normal((batch, kv_heads, cells, d)).astype(kind.dtype) for _ in range(2)]
    caches, table = deal(rng, dense, page, 0)
    tables = {"page_table": table, "lengths": LENGTHS[:batch]}
    return q, [c.view(np.uint8) for c in caches], [c.astype(np.float32) for c in caches], tables


@pytest.mark.parametrize("kind", FP8)
def test_is_the_decode_of_scaled_caches(kind):
    q, stored, (k, v), tables = make(0, kind)
    heads = np.array([0.5, 3.0], np.float32), np.array([2.0, 0.25], np.float32)
    got = batch_paged_decode_fp8(
        q, *stored, **tables, k_scale=0.7, v_scale=1.5, k_head_scale=heads[0], v_head_scale=heads[1],
        cache_element=kind, scale=0.3, return_lse=True,
    )  # fmt: skip
    k, v = k * (0.7 * heads[0])[:, None, None], v * (1.5 * heads[1])[:, None, None]
    want = batch_paged_decode(*(a.astype(np.float64) for a in (q, k, v)), **tables, scale=0.3, return_lse=True)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("group", "kernel"), [(1, "mma_{}_8"), (8, "mma_{}_8"), (9, "mma_{}"), (16, "mma_{}")])
def test_sku_and_rings(group, kernel):
    for d in (32, 96, 128, 256):
        desc = BatchPagedDecodeFp8Descriptor(
            batch_size=64, num_heads=8 * group, num_kv_heads=8, num_pages=32768, page_size=16, max_pages=512, d_k=d,
            d_v=d, element="bfloat16", aux_element="float8_e5m2",
        )  # fmt: skip
        plan = BatchPagedDecodeFp8Plan.select(desc, device=fake_device(8.6))
        assert plan.sku.aux_element is ElementKind.FP8E5M2
        step = plan.rows[0].geometry(plan._dense).steps[0]
        assert step.smem <= 99 << 10
        assert step.kernel == kernel.format(d)
        assert step.params["run"] == (4 if d < 256 or group <= 8 else 1)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("element", ["float16", "bfloat16"])
def test_values_that_are_infinite_count_unless_their_weight_is_zero_as_float16(element):
    """A weight of 2^-10 is a number of float16; one of 2^-32 is 0 and makes NaN, which the bound then takes."""
    kind = ElementKind.of(element)
    desc = BatchPagedDecodeFp8Descriptor(
        batch_size=1, num_heads=1, num_pages=1, page_size=2, max_pages=1, d_k=1, d_v=3, scale=math.log(2),
        element=kind, aux_element="float8_e5m2",
    )  # fmt: skip
    for power in (10, 32):
        k, v = np.array([0, -power]), np.array([[1, 1, 1], [np.inf, -np.inf, np.nan]])
        arrays = dict.fromkeys(spec.name for spec in arrays_of(BatchPagedDecodeFp8Args)) | {
            "q": np.ones((1, 1, 1), kind.dtype),
            "k_cache": k.astype(ml_dtypes.float8_e5m2).view(np.uint8).reshape(1, 1, 2, 1),
            "v_cache": v.astype(ml_dtypes.float8_e5m2).view(np.uint8).reshape(1, 1, 2, 3),
            "page_table": np.zeros((1, 1), np.int32), "lengths": np.full(1, 2, np.int32),
            "k_scale": 1.0, "v_scale": 1.0,
        }  # fmt: skip
        y = call(BatchPagedDecodeFp8Plan, desc, arrays | {"y": np.zeros((1, 1, 3), kind.dtype)})["y"]
        exact = power == 10
        np.testing.assert_array_equal(y[0, 0].astype(float), [np.inf, -np.inf, np.nan] if exact else np.nan)
        truth = Truth(Case(BatchPagedDecodeFp8Plan, desc, arrays, frozenset({"y"})))
        assert truth.wrong({("y", 0): y}, Relative(2)) is None
        assert (truth.wrong({("y", 0): np.full_like(y, np.nan)}, Relative(2)) is not None) is exact


def test_scales_are_drawn_finite():
    """As the policy says; zeros are among them."""
    desc = BatchPagedDecodeFp8Descriptor(
        batch_size=1, num_heads=4, num_pages=1, page_size=2, max_pages=1, d_k=1, d_v=3, element="float16",
        aux_element="float8_e5m2",
    )  # fmt: skip
    drawn = [fill(BatchPagedDecodeFp8Plan, desc, np.random.default_rng(n), special=True).arrays for n in range(40)]
    for name in ("k_head_scale", "v_head_scale"):
        found = np.concatenate([arrays[name] for arrays in drawn])
        assert np.isfinite(found).all() and (found == 0).any()


# ---- on a GPU --------------------------------------------------------------------------------------------------------


def run(q, k, v, element, cache, heads_kv, page, **given):
    """The plan on raw bytes: q and y of any 16-bit element as uint16. Returns y in float64 and lse."""
    cp = pytest.importorskip("cupy")
    from baracuda_py import TensorRef

    kind, batch, heads = ElementKind.of(element), q.shape[0], q.shape[1]
    desc = BatchPagedDecodeFp8Descriptor(
        batch_size=batch, num_heads=heads, num_kv_heads=heads_kv, num_pages=k.shape[0], page_size=page, d_k=q.shape[2],
        d_v=v.shape[3], max_pages=given["page_table"].shape[1], element=kind, aux_element=cache,
        scale=given.pop("scale", None),
    )  # fmt: skip
    plan = BatchPagedDecodeFp8Plan.select(desc, device=0)
    raw = cp.asarray(np.ascontiguousarray(q.astype(kind.dtype)).view(np.uint16))
    y, lse = cp.empty((batch, heads, v.shape[3]), cp.uint16), cp.empty((batch, heads), cp.float32)
    refs = [TensorRef(a.data.ptr, a.shape, None, kind, None, 0) for a in (raw, y)]
    fields = {n: cp.asarray(a) if isinstance(a, np.ndarray) else a for n, a in given.items()}
    plan.run(
        BatchPagedDecodeFp8Args(q=refs[0], k_cache=cp.asarray(k), v_cache=cp.asarray(v), y=refs[1], lse=lse, **fields)
    )
    return y.get().view(kind.dtype).astype(np.float64), lse.get()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", FP8)
@pytest.mark.parametrize("element", ["float16", "bfloat16"])
@pytest.mark.parametrize("d", [256, 128, 64])
def test_gpu_every_stored_element(kind, element, d):
    """A sequence of one token: y is v and lse is one element of k, for every byte, by a query that picks it."""
    codes = np.arange(256, dtype=np.uint8)
    values = codes.view(kind.dtype).astype(np.float64)
    batch = 256
    cache = np.zeros((batch, 1, 1, d), np.uint8)
    column = np.arange(batch) % d
    cache[np.arange(batch), 0, 0, column] = codes
    q = np.zeros((batch, 1, d))
    q[np.arange(batch), 0, column] = 1
    tables = {"page_table": np.arange(batch, dtype=np.int32)[:, None], "lengths": np.ones(batch, np.int32)}
    y, lse = run(q, cache, cache, element, kind, 1, 1, scale=2.0**-8, **tables)
    finite = np.isfinite(values)
    np.testing.assert_allclose(lse[finite, 0] * 256, values[finite], rtol=2**-22, atol=0)  # a step is 2^-4 at least
    picked = y[np.arange(batch), 0, column]
    np.testing.assert_array_equal(picked[finite], values[finite])
    assert np.isnan(picked[np.isnan(values)]).all()
    rest = y[finite, 0].copy()
    rest[np.arange(finite.sum()), column[finite]] = 0
    assert not rest.any()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", FP8)
@pytest.mark.parametrize("page", [1, 16])
def test_gpu_pages_and_neighbours_change_no_bit(kind, page):
    rng = np.random.default_rng(1)
    q = rng.standard_normal((5, 16, 128))
    dense = [rng.standard_normal((5, 2, 2100, 128)).astype(kind.dtype).view(np.uint8) for _ in range(2)]
    lengths = np.array([2100, 0, 257, 1024, 31], np.int32)
    nan = int(np.array(np.nan).astype(kind.dtype).view(np.uint8))
    (k, v), table = deal(rng, dense, page, nan, lengths=lengths)
    want = run(q, k, v, "bfloat16", kind, 2, page, page_table=table, lengths=lengths, k_scale=0.5)
    (k, v), table = deal(rng, dense, page, nan, lengths=lengths)
    got = run(q, k, v, "bfloat16", kind, 2, page, page_table=table, lengths=lengths, k_scale=0.5)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    for b in range(5):
        alone = {"page_table": table[b : b + 1], "lengths": lengths[b : b + 1]}
        for x, y in zip(run(q[b : b + 1], k, v, "bfloat16", kind, 2, page, k_scale=0.5, **alone), got, strict=True):
            np.testing.assert_array_equal(x[0], y[b])


@pytest.mark.gpu
@pytest.mark.parametrize("size", [3e5, 1e-3, 1e-20, 1e-39])
def test_gpu_queries_beyond_float16(size):
    """bfloat16 queries are multiplied as float16 of their own scale: heads of different sizes keep their digits."""
    rng = np.random.default_rng(2)
    kind = ElementKind.FP8E4M3
    q = rng.standard_normal((2, 4, 128)) * np.array([size, 1.0, 1e3 * size, 1e-2])[:, None]
    q = q.astype(ml_dtypes.bfloat16)
    dense = [rng.standard_normal((2, 2, 300, 128)).astype(kind.dtype).view(np.uint8) for _ in range(2)]
    (k, v), table = deal(rng, dense, 16, 0)
    lengths = np.array([300, 77], np.int32)
    big = q.astype(np.float64)
    # One scale for all heads: scores of the large are thousands, and one key takes all.
    y, lse = run(big, k, v, "bfloat16", kind, 2, 16, page_table=table, lengths=lengths, scale=0.1)
    decoded = [c.view(kind.dtype).astype(np.float64) for c in (k, v)]
    want, want_lse = batch_paged_decode(big, *decoded, page_table=table, lengths=lengths, scale=0.1, return_lse=True)
    np.testing.assert_allclose(lse, want_lse, rtol=3e-6, atol=3e-6)
    if size < 1:
        np.testing.assert_allclose(y, want, rtol=0, atol=4e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("element", ["float16", "bfloat16"])
def test_gpu_scales_are_numbers_or_arrays(element):
    cp = pytest.importorskip("cupy")
    rng = np.random.default_rng(3)
    kind = ElementKind.FP8E4M3
    q = rng.standard_normal((3, 8, 64))
    dense = [rng.standard_normal((3, 2, 600, 64)).astype(kind.dtype).view(np.uint8) for _ in range(2)]
    (k, v), table = deal(rng, dense, 16, 0)
    tables = {"page_table": table, "lengths": np.array([600, 1, 300], np.int32)}
    want = run(q, k, v, element, kind, 2, 16, k_scale=0.25, v_scale=-3.0, **tables)
    heads = {"k_head_scale": np.full(2, 0.5, np.float32), "v_head_scale": np.full(2, -1.5, np.float32)}
    for given in (
        {"k_scale": cp.array(0.25, "float32"), "v_scale": cp.array(-3.0)},
        {"k_scale": 0.5, "v_scale": cp.array(2.0, "float32"), **heads},
    ):
        for a, b in zip(run(q, k, v, element, kind, 2, 16, **given, **tables), want, strict=True):
            np.testing.assert_array_equal(a, b)
    flipped = run(-q, k, v, element, kind, 2, 16, k_scale=-0.25, v_scale=-3.0, **tables)
    for a, b in zip(flipped, want, strict=True):
        np.testing.assert_array_equal(a, b)
    none = run(q, k, v, element, kind, 2, 16, k_scale=0.0, v_scale=0.0, **tables)
    assert not none[0].any()
    np.testing.assert_allclose(none[1], np.log(tables["lengths"])[:, None].repeat(8, 1), rtol=1e-6, atol=1e-6)
