"""sdpa: the formula written out, masks of every kind, stages of the scores, dropout, what each layout takes."""

from __future__ import annotations

import itertools
from unittest import mock

import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.core.variant import LibraryStep
from baracuda_py.ops.attention.dense.flash_sdpa import flash_sdpa
from baracuda_py.ops.attention.dense.sdpa import SdpaArgs, SdpaDescriptor, SdpaPlan, sdpa
from baracuda_py.ops.random.philox import philox_uniform
from baracuda_py.schedules import products
from baracuda_py.testing.recording import pointer_view


def make(rng, batch=2, heads=4, kv_heads=2, queries=5, keys=7, d_k=8, d_v=6, dtype=np.float64):
    """Random q, k, v."""
    shapes = (batch, heads, queries, d_k), (batch, kv_heads, keys, d_k), (batch, kv_heads, keys, d_v)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def one_by_one(q, k, v, scale, softcap, mask):
    """y, attn, capped and masked scores, lse, query by query; `mask` is added and has the shape of the scores."""
    y, attn = np.zeros((*q.shape[:3], v.shape[3])), np.zeros((*q.shape[:3], k.shape[2]))
    capped, masked, lse = np.zeros_like(attn), np.zeros_like(attn), np.full(q.shape[:3], -np.inf)
    group = q.shape[1] // k.shape[1]
    for b, h, i in np.ndindex(q.shape[:3]):
        raw = scale * (k[b, h // group] @ q[b, h, i])
        capped[b, h, i] = softcap * np.tanh(raw / softcap) if softcap else raw
        masked[b, h, i] = capped[b, h, i] + mask[b, h, i]
        seen = masked[b, h, i] > -np.inf
        if seen.any():
            weights = np.exp(masked[b, h, i])
            attn[b, h, i] = weights / weights.sum()
            y[b, h, i] = attn[b, h, i] @ v[b, h // group]
            lse[b, h, i] = np.log(weights.sum())
    return y, attn, capped, masked, lse


SHAPES = [(2, 4, 5, 7), (1, 4, 5, 7), (2, 1, 1, 7), (5, 7), (4, 1, 7), (5, 1), ()]


@pytest.mark.parametrize("kind", ["float64", "float32", "bool"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("causal", [None, "top_left", "bottom_right"])
def test_row_by_row(kind, shape, causal):
    rng = np.random.default_rng(len(shape))
    q, k, v = make(rng)
    given = np.asarray(rng.random(shape) < 0.6 if kind == "bool" else rng.standard_normal(shape), kind)
    if kind == "float32" and shape:
        given[..., -1] = -np.inf
    added = np.where(given, 0, -np.inf) if kind == "bool" else given
    full = np.array(np.broadcast_to(added, (2, 4, 5, 7)), np.float64)
    if causal:
        shift = 2 if causal == "bottom_right" else 0
        full[..., np.arange(7) > np.arange(5)[:, None] + shift] = -np.inf
    y, attn, capped, masked, lse = one_by_one(q, k, v, 0.4, 1.5, full)
    for stage, want in (("softcap", capped), ("mask", masked)):
        got = sdpa(
            q, k, v, given, scale=0.4, softcap=1.5, is_causal=causal is not None, return_attn=True, return_scores=True,
            return_lse=True, scores_stage=stage, causal_alignment=causal or "top_left",
        )  # fmt: skip
        for a, b in zip(got, (y, attn, want, lse), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


def test_raw_scores_are_neither_capped_nor_masked():
    q, k, v = make(np.random.default_rng(1), kv_heads=4)
    _, scores = sdpa(q, k, v, np.False_ * np.ones((5, 7), bool), scale=2.0, softcap=0.5, return_scores=True)
    np.testing.assert_allclose(scores, 2 * q @ k.swapaxes(-1, -2), rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_without_options_it_is_flash_sdpa(dtype):
    q, k, v = make(np.random.default_rng(2), dtype=dtype)
    want, want_lse = flash_sdpa(q, k, v, is_causal=True, causal_alignment="bottom_right", return_lse=True)
    y, lse = sdpa(q, k, v, is_causal=True, causal_alignment="bottom_right", return_lse=True)
    np.testing.assert_allclose(y, want, rtol=4 * np.finfo(dtype).eps, atol=np.finfo(dtype).eps)
    np.testing.assert_allclose(lse, want_lse, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("mask", [np.zeros((5, 7), bool), np.full((5, 7), -np.inf)])
def test_a_row_that_sees_nothing_is_zero_even_with_scores_that_are_not_finite(mask):
    q, k, v = make(np.random.default_rng(3))
    q[0, 0, 0], q[0, 0, 1] = np.inf, np.nan
    y, attn, lse = sdpa(q, k, v, mask, return_attn=True, return_lse=True)
    assert not y.any()
    assert not attn.any()
    assert np.isneginf(lse).all()


def test_a_hidden_key_counts_for_nothing_whatever_its_score():
    q, k, v = make(np.random.default_rng(4))
    mask = np.ones((5, 7), bool)
    mask[:, 3] = False
    want = sdpa(q, k, v, mask)
    k[:, :, 3] = np.nan
    np.testing.assert_array_equal(sdpa(q, k, v, mask), want)
    np.testing.assert_array_equal(sdpa(q, k, v, np.where(mask, 0.0, -np.inf)), want)


def test_no_keys_give_zeros_and_minus_infinity():
    q, k, v = make(np.random.default_rng(5), keys=0)
    y, attn, lse = sdpa(q, k, v, return_attn=True, return_lse=True)
    assert not y.any()
    assert attn.shape == (2, 4, 5, 0)
    assert np.isneginf(lse).all()


def test_dropout_replays_the_stream_of_the_logical_index():
    q, k, v = make(np.random.default_rng(6), kv_heads=4)
    y, attn = sdpa(q, k, v, dropout_p=0.3, seed=11, offset=2**40, return_attn=True)
    np.testing.assert_array_equal(attn, sdpa(q, k, v, return_attn=True)[1])  # it is returned before dropout
    keep = philox_uniform(11, 2**40, attn.size).reshape(attn.shape) >= 0.3
    assert 0 < keep.sum() < keep.size
    np.testing.assert_allclose(y, (attn * keep / 0.7) @ v, rtol=1e-12)
    one = sdpa(q[1:], k[1:], v[1:], dropout_p=0.3, seed=11, offset=2**40)
    assert (one != y[1:]).any()  # the index counts from the start of the call's own batch
    assert not sdpa(q, k, v, dropout_p=1.0).any()


def test_dropout_is_right_on_average():
    q, k, v = make(np.random.default_rng(7), queries=64, keys=64)
    want = sdpa(q, k, v)
    mean = np.mean([sdpa(q, k, v, dropout_p=0.4, seed=s) for s in range(200)], axis=0)
    assert np.abs(mean - want).max() < 0.15


def test_bshd_swaps_the_operands_and_nothing_else():
    q, k, v = make(np.random.default_rng(8), dtype=np.float32)
    want = sdpa(q, k, v, return_attn=True, return_lse=True)
    swapped = [np.ascontiguousarray(a.swapaxes(1, 2)) for a in (q, k, v)]
    got = sdpa(*swapped, layout="bshd", return_attn=True, return_lse=True)
    assert got[0].flags.c_contiguous
    np.testing.assert_array_equal(got[0].swapaxes(1, 2), want[0])
    for a, b in zip(got[1:], want[1:], strict=True):
        np.testing.assert_array_equal(a, b)


SIZES = {"batch_size": 2, "num_heads": 2, "query_len": 3, "key_len": 8, "d_k": 8, "d_v": 8}


def test_masks_must_broadcast_and_be_of_a_known_element():
    with pytest.raises(InvalidProblemError, match="mask_shape"):
        SdpaDescriptor(**SIZES, mask_shape=(3, 3), element="float32")
    with pytest.raises(InvalidProblemError, match="mask_element"):
        SdpaDescriptor(**SIZES, mask_element="float16", element="bfloat16")
    with pytest.raises(InvalidProblemError, match="dropout_p"):
        SdpaDescriptor(**SIZES, dropout_p=1.5, element="bfloat16")


# -- what each layout takes ------------------------------------------------------------------------------------------


def steps(swapped=(), keys=8, without=(), group=1, pad=False, **facts):
    """Names of the cuBLAS row's steps, and its workspace beyond the library's own."""
    sizes = SIZES | {"key_len": keys, "num_kv_heads": 2 // group}
    desc = SdpaDescriptor(**sizes, **facts, element="bfloat16")
    arrays = {}
    for name, rows, cols in (
        ("q", 3, 8),
        ("k", keys, 8),
        ("v", keys, 8),
        ("y", 3, 8),
        ("attn", 3, keys),
        ("scores", 3, keys),
    ):
        heads = desc.num_kv_heads if name in "kv" else 2
        room = np.zeros((2, rows, heads, cols + pad) if name in swapped else (2, heads, rows, cols + pad), np.uint16)
        array = (room.swapaxes(1, 2) if name in swapped else room)[..., :cols].view("bfloat16")
        arrays[name] = None if name in without else pointer_view(array)
    plan = SdpaPlan.select(desc, device=fake_device(9.0))
    args = SdpaArgs(**arrays, seed=1)
    with mock.patch.object(products, "_PARTIALS", 0):  # no workspace for the library
        variant, geometry, _ = plan.plan_layout(args)
    assert variant.name == "cublas"
    names = [
        "gemm" if isinstance(s, LibraryStep) else s.kernel.partition("_")[0].replace("plain", "rows")
        for s in geometry.steps
    ]
    return names, geometry.workspace


PLAIN = ["gemm", "rows", "gemm"]


def test_weights_in_their_own_memory_need_no_workspace():
    assert steps(without=("scores",)) == (PLAIN, 0)
    assert steps() == (PLAIN, 0)  # raw scores in theirs
    assert steps(without=("scores",), group=2) == (PLAIN, 0)
    assert steps(without=("scores", "attn"))[1] == 256
    assert steps(without=("scores",), dropout_p=0.5) == (PLAIN, 256)


def test_rows_that_are_not_aligned_are_multiplied_elsewhere():
    names, workspace = steps(keys=7)
    assert names == ["gemm", "copy", "rows", "gemm"]  # the copy: raw scores
    assert workspace > 0
    assert steps(keys=7, scores_stage="mask")[0] == PLAIN


@pytest.mark.parametrize("swapped", [c for n in range(4) for c in itertools.combinations("qkv", n)])
def test_uneven_heads_are_copied(swapped):
    names, _ = steps(swapped=swapped, without=("scores",))
    assert sorted(names) == sorted(PLAIN + ["copy"] * len(swapped))


def test_an_uneven_output_is_copied_out():
    assert steps(swapped=("y",), without=("scores",))[0] == [*PLAIN, "copy"]
