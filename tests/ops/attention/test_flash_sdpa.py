"""flash_sdpa: the formula written out, both causal alignments, grouped heads, empty rows, layouts."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError, UnsupportedError
from baracuda_py.core.tensor import TensorRef
from baracuda_py.ops.attention.dense.flash_sdpa import FlashSdpaArgs, FlashSdpaDescriptor, FlashSdpaPlan, flash_sdpa


def make(rng, batch=2, heads=4, kv_heads=2, queries=5, keys=7, d_k=8, d_v=6, dtype=np.float64):
    """Random q, k, v."""
    shapes = (batch, heads, queries, d_k), (batch, kv_heads, keys, d_k), (batch, kv_heads, keys, d_v)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def one_by_one(q, k, v, scale, seen):
    """Attention row by row; `seen(i)` is the number of keys query i sees."""
    y = np.zeros((*q.shape[:3], v.shape[3]))
    lse = np.full(q.shape[:3], -np.inf)
    group = q.shape[1] // k.shape[1]
    for b, h, i in np.ndindex(q.shape[:3]):
        n = max(0, min(k.shape[2], seen(i)))
        if n:
            weights = np.exp(scale * (k[b, h // group, :n] @ q[b, h, i]))
            y[b, h, i] = weights @ v[b, h // group, :n] / weights.sum()
            lse[b, h, i] = np.log(weights.sum())
    return y, lse


@pytest.mark.parametrize("alignment", ["top_left", "bottom_right", None])
@pytest.mark.parametrize(("queries", "keys"), [(5, 7), (7, 5), (1, 6), (6, 1), (4, 4)])
def test_row_by_row(alignment, queries, keys):
    q, k, v = make(np.random.default_rng(0), queries=queries, keys=keys)
    shift = {"top_left": 0, "bottom_right": keys - queries, None: keys}[alignment]
    want, want_lse = one_by_one(q, k, v, 0.4, lambda i: i + shift + 1)
    y, lse = flash_sdpa(
        q, k, v, scale=0.4, is_causal=alignment is not None, causal_alignment=alignment or "top_left", return_lse=True
    )
    np.testing.assert_allclose(y, want, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(lse, want_lse, rtol=1e-13)


def test_scale_is_the_root_of_d_k_by_default():
    q, k, v = make(np.random.default_rng(1), d_k=16)
    np.testing.assert_array_equal(flash_sdpa(q, k, v), flash_sdpa(q, k, v, scale=0.25))


def test_no_keys_give_zeros_and_minus_infinity():
    q, k, v = make(np.random.default_rng(2), keys=0)
    y, lse = flash_sdpa(q, k, v, return_lse=True)
    assert not y.any()
    assert np.isneginf(lse).all()


def test_a_masked_key_adds_nothing_even_as_nan():
    q, k, v = make(np.random.default_rng(3), queries=4, keys=4)
    want = flash_sdpa(q, k, v, is_causal=True)
    k[:, :, 3], v[:, :, 3] = np.nan, np.nan
    got = flash_sdpa(q, k, v, is_causal=True)
    np.testing.assert_array_equal(got[:, :, :3], want[:, :, :3])
    assert np.isnan(got[:, :, 3]).all()


def test_large_scores_do_not_overflow():
    q, k, v = make(np.random.default_rng(4), dtype=np.float32)
    y, lse = flash_sdpa(q * 1e3, k * 1e3, v, return_lse=True)
    assert np.isfinite(y).all()
    assert np.isfinite(lse).all()


@pytest.mark.parametrize("return_lse", [False, True])
def test_bshd_is_the_same_memory_order_for_outputs(return_lse):
    q, k, v = make(np.random.default_rng(5), dtype=np.float32)
    want, want_lse = flash_sdpa(q, k, v, is_causal=True, return_lse=True)
    swapped = [np.ascontiguousarray(a.swapaxes(1, 2)) for a in (q, k, v)]
    got = flash_sdpa(*swapped, is_causal=True, layout="bshd", return_lse=return_lse)
    y = got[0] if return_lse else got
    assert y.flags.c_contiguous
    np.testing.assert_array_equal(y.swapaxes(1, 2), want)
    if return_lse:
        np.testing.assert_array_equal(got[1], want_lse)
    given = np.empty_like(y)
    lse = np.empty_like(want_lse)
    result = flash_sdpa(
        *swapped, is_causal=True, layout="bshd", return_lse=return_lse, out=(given, lse) if return_lse else given
    )
    assert (result[0] if return_lse else result) is given
    np.testing.assert_array_equal(given, y)


def test_layout_must_be_known():
    q, k, v = make(np.random.default_rng(6))
    with pytest.raises(InvalidProblemError, match="layout"):
        flash_sdpa(q, k, v, layout="sbhd")


def test_heads_of_stride_zero_are_one_head():
    # One matrix product for all heads or one a head, which BLAS may sum in another order: no sum here is rounded.
    q, k, v = (np.rint(4 * a) for a in make(np.random.default_rng(7), kv_heads=1))
    v[:] = np.eye(*v.shape[2:])
    expanded = [np.broadcast_to(a, (a.shape[0], 4, *a.shape[2:])) for a in (k, v)]
    np.testing.assert_array_equal(flash_sdpa(q, *expanded, scale=0.125), flash_sdpa(q, k, v, scale=0.125))


def test_heads_must_divide():
    with pytest.raises(InvalidProblemError, match="multiple of num_kv_heads"):
        FlashSdpaDescriptor(
            batch_size=1, num_heads=3, num_kv_heads=2, query_len=1, key_len=1, d_k=8, d_v=8, element="float32"
        )


@pytest.mark.parametrize("alignment", ["top_left", "bottom_right"])
def test_pairs_counts_what_is_not_masked(alignment):
    for queries, keys in np.ndindex(6, 6):
        desc = FlashSdpaDescriptor(
            batch_size=1, num_heads=1, query_len=queries, key_len=keys, d_k=8, d_v=8, is_causal=True,
            causal_alignment=alignment, element="float32",
        )  # fmt: skip
        assert desc.pairs == sum(max(0, min(keys, i + desc.shift + 1)) for i in range(queries))


def choose(element, d_k, d_v, strides=None):
    """The SKU on a device with 99 KB of shared memory, or the error."""
    desc = FlashSdpaDescriptor(batch_size=2, num_heads=2, query_len=70, key_len=70, d_k=d_k, d_v=d_v, element=element)
    acc = "float64" if element == "float64" else "float32"
    q, k = (TensorRef(1 << 24, (2, 2, 70, d_k), strides, element) for _ in range(2))
    v, y = TensorRef(2 << 24, (2, 2, 70, d_v), None, element), TensorRef(3 << 24, (2, 2, 70, d_v), None, element)
    args = FlashSdpaArgs(q=q, k=k, v=v, y=y, lse=TensorRef(4 << 24, (2, 2, 70), None, acc))
    return FlashSdpaPlan.select(desc, device=fake_device(8.6)).can_implement(args)


@pytest.mark.parametrize("element", ["float32", "float64", "float16", "bfloat16"])
def test_every_head_dim_fits_small_shared_memory(element):
    for d in (1, 32, 64, 80, 128, 192, 256, 257, 512):
        for other in (256, 512):
            assert choose(element, d, other), choose(element, d, other).reason
            assert choose(element, other, d)


def test_head_dim_beyond_512_is_refused_with_the_reason():
    verdict = choose("float32", 513, 64)
    assert isinstance(verdict.error, UnsupportedError)
    assert "head_dim 513" in verdict.reason


def test_a_strided_head_dim_is_refused():
    verdict = choose("float32", 8, 8, strides=(2 * 70 * 16, 70 * 16, 16, 2))
    assert isinstance(verdict.error, UnsupportedError)
    assert "stride 1" in verdict.reason


def test_layout_classes_are_named():
    assert choose("float32", 64, 64).sku.layout == "contiguous"
    assert choose("float32", 64, 64, strides=(2 * 70 * 64, 64, 128, 1)).sku.layout == "inner_contiguous"


@pytest.mark.parametrize(
    ("cc", "d", "row"), [(9.0, 64, "wgmma"), (9.0, 32, "mma"), (8.0, 64, "mma"), (12.0, 256, "mma")]
)
def test_the_row_a_device_takes(cc, d, row):
    desc = FlashSdpaDescriptor(batch_size=1, num_heads=1, query_len=64, key_len=64, d_k=d, d_v=d, element="bfloat16")
    assert FlashSdpaPlan.select(desc, device=fake_device(cc)).sku.variant == row


def test_more_tiles_than_blocks_take_tickets_where_they_differ_in_work():
    device = fake_device(9.0)

    def workspace(heads, d=128, **facts):
        facts = {"is_causal": True, **facts}
        sizes = {"batch_size": 1, "num_heads": heads, "query_len": 128, "key_len": 128, "d_k": d, "d_v": d}
        return FlashSdpaPlan.select(FlashSdpaDescriptor(**sizes, element="bfloat16", **facts), device=device)

    assert workspace(device.sms).workspace_size() == 0
    assert workspace(device.sms + 1).workspace_size() == 256
    assert workspace(device.sms + 1, is_causal=False, window_left=64).workspace_size() == 256
    assert workspace(device.sms + 1, is_causal=False, window_right=64).workspace_size() == 256
    assert workspace(device.sms + 1, is_causal=False).workspace_size() == 0
    assert workspace(device.sms + 1, d=64).workspace_size() == 0  # a block for each tile
    assert workspace(device.sms + 1, dropout_p=0.5).workspace_size() == 0
