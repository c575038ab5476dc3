"""cascade_merge_states and cascade_attention: parts of attention merged are attention over all; neutral states."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.core.tensor import TensorRef
from baracuda_py.ops.attention.decoding.cascade_attention import cascade_attention
from baracuda_py.ops.attention.decoding.cascade_merge_states import (
    CascadeMergeStatesArgs,
    CascadeMergeStatesDescriptor,
    CascadeMergeStatesPlan,
    cascade_merge_states,
)
from baracuda_py.ops.attention.decoding.flash_decoding import flash_decoding
from baracuda_py.ops.attention.dense.flash_sdpa import flash_sdpa


def states(rng, seq=3, sets=4, heads=2, d=5):
    """Random v and lse."""
    return rng.standard_normal((seq, sets, heads, d)), rng.uniform(-5, 5, (seq, sets, heads))


def token_major(y, lse):
    """[batch, heads, queries, …] as [batch · queries, heads, …]."""
    return y.swapaxes(1, 2).reshape(-1, y.shape[1], y.shape[3]), lse.swapaxes(1, 2).reshape(-1, lse.shape[1])


def test_the_formula():
    v, lse = states(np.random.default_rng(0))
    got, got_lse = cascade_merge_states(v, lse)
    total = np.exp(lse).sum(1)
    np.testing.assert_allclose(got_lse, np.log(total), rtol=1e-14)
    np.testing.assert_allclose(got, (np.exp(lse)[..., None] * v).sum(1) / total[..., None], rtol=1e-13)


@pytest.mark.parametrize("cuts", [(7,), (1, 2, 15), (0, 20), ()])
def test_attention_over_parts_is_attention_over_all(cuts):
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((2, 3, n, 8)) for n in (5, 20, 20))
    want, want_lse = token_major(*flash_sdpa(q, k, v, return_lse=True))
    bounds = (0, *cuts, 20)
    parts = [
        token_major(*flash_sdpa(q, k[:, :, a:b], v[:, :, a:b], return_lse=True)) for a, b in itertools.pairwise(bounds)
    ]
    ys, lses = (np.stack(x, 1) for x in zip(*parts, strict=True))
    y, lse = cascade_merge_states(ys, lses)
    np.testing.assert_allclose(y, want, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(lse, want_lse, rtol=1e-13)
    y, lse = ys[:, 0].copy(), lses[:, 0].copy()
    for n in range(1, ys.shape[1]):  # one after the other
        cascade_attention(y, lse, ys[:, n], lses[:, n])
    np.testing.assert_allclose(y, want, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(lse, want_lse, rtol=1e-13)


def test_a_shared_prefix_and_a_cache_of_their_own():
    """What the docstring shows: every sequence attends to the prefix and to the cells of its own cache."""
    rng = np.random.default_rng(2)
    batch, heads, d, prefix, cells = 4, 2, 8, 11, 6
    q = rng.standard_normal((batch, heads, d)).astype(np.float32)
    shared_k, shared_v = (rng.standard_normal((1, heads, prefix, d)).astype(np.float32) for _ in range(2))
    own_k, own_v = (rng.standard_normal((batch, heads, cells, d)).astype(np.float32) for _ in range(2))
    lengths = np.array([0, 6, 3, 1])
    y, lse = flash_decoding(q, own_k, own_v, lengths, return_lse=True)
    other, other_lse = flash_sdpa(q.swapaxes(0, 1)[None], shared_k, shared_v, return_lse=True)
    result = cascade_attention(y, lse, other[0].swapaxes(0, 1), other_lse[0].swapaxes(0, 1))
    assert result[0] is y
    assert result[1] is lse
    for b, length in enumerate(lengths):
        k, v = (
            np.concatenate((x[0], own[b, :, :length]), 1)[None] for x, own in ((shared_k, own_k), (shared_v, own_v))
        )
        want, want_lse = flash_sdpa(q[b][None, :, None], k, v, return_lse=True)
        np.testing.assert_allclose(y[b], want[0, :, 0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(lse[b], want_lse[0, :, 0], rtol=1e-5)


def test_neutral_states_add_nothing_whatever_they_hold():
    v, lse = states(np.random.default_rng(3))
    lse[:, 2] = -np.inf
    want = cascade_merge_states(v[:, [0, 1, 3]], lse[:, [0, 1, 3]])
    v[:, 2] = np.nan
    for a, b in zip(cascade_merge_states(v, lse), want, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("sets", [0, 3])
def test_nothing_seen_gives_zeros_and_minus_infinity(sets):
    y, lse = cascade_merge_states(np.full((2, sets, 3, 4), np.nan), np.full((2, sets, 3), -np.inf))
    assert not y.any()
    assert np.isneginf(lse).all()


def test_one_state_is_itself():
    v, lse = states(np.random.default_rng(4), sets=1)
    y, merged = cascade_merge_states(v, lse)
    np.testing.assert_array_equal(y, v[:, 0])
    np.testing.assert_array_equal(merged, lse[:, 0])


def test_nan_and_infinity_are_a_softmaxs():
    v, lse = states(np.random.default_rng(5), seq=3)
    lse[0, 1], lse[1, 1], lse[2, 1], lse[2, 2] = np.nan, np.inf, np.nan, np.inf
    y, merged = cascade_merge_states(v, lse)
    assert np.isnan(y).all()
    assert np.isnan(merged[[0, 2]]).all()
    assert np.isposinf(merged[1]).all()


def test_base_two_is_base_e_of_other_units():
    v, lse = states(np.random.default_rng(6))
    want, want_lse = cascade_merge_states(v, lse)
    got, got_lse = cascade_merge_states(v, lse / np.log(2), lse_base="2")
    np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(got_lse * np.log(2), want_lse, rtol=1e-13)


def test_the_mask_picks_tokens():
    v, lse = states(np.random.default_rng(7), seq=4, sets=2)
    y, merged = v[:, 0].copy(), lse[:, 0].copy()
    mask = np.array([True, False, False, True])
    cascade_attention(y, merged, v[:, 1], lse[:, 1], mask)
    want, want_lse = cascade_merge_states(v, lse)
    np.testing.assert_array_equal(y, np.where(mask[:, None, None], want, v[:, 0]))
    np.testing.assert_array_equal(merged, np.where(mask[:, None], want_lse, lse[:, 0]))


def test_layout_classes():
    desc = CascadeMergeStatesDescriptor(seq_len=4, num_sets=3, num_heads=2, head_dim=64, element="float16")
    plan = CascadeMergeStatesPlan.select(desc, device=fake_device(8.6))

    def layout(ptr, strides):
        return plan.can_implement(
            CascadeMergeStatesArgs(
                v=TensorRef(ptr, (4, 3, 2, 64), strides, "float16"), lse=TensorRef(2 << 20, (4, 3, 2)),
                v_merged=TensorRef(3 << 20, (4, 2, 64), None, "float16"), lse_merged=TensorRef(4 << 20, (4, 2)),
            )
        ).sku.layout  # fmt: skip

    assert layout(1 << 20, None) == "contiguous"
    assert layout(1 << 20, (128, 512, 64, 1)) == "inner_contiguous"
    assert layout(1 << 20, (2, 512, 0, 8)) == "strided"


@pytest.mark.gpu
@pytest.mark.parametrize("element", ["float16", "float32", "float64"])
def test_gpu_alignment_strides_and_company_do_not_change_bits(element):
    cupy = pytest.importorskip("cupy")
    rng = np.random.default_rng(8)
    for sets, heads, d in ((2, 7, 128), (9, 3, 80), (5, 2, 2056)):
        v = cupy.asarray(rng.standard_normal((301, sets, heads, d)).astype(element))
        lse = cupy.asarray(rng.uniform(-20, 20, (301, sets, heads)).astype("f8" if element == "float64" else "f4"))
        want, want_lse = cascade_merge_states(v, lse)
        room = cupy.empty((sets, 301, d, heads + 1), v.dtype)[..., 1:].transpose(1, 0, 3, 2)
        room[...] = v
        got, got_lse = cascade_merge_states(room, cupy.ascontiguousarray(lse[::-1])[::-1])
        assert (got == want).all()
        assert (got_lse == want_lse).all()
        alone = cascade_merge_states(v[77:78], lse[77:78])
        assert (alone[0] == want[77:78]).all()
        if sets == 2:
            y, merged = v[:, 0].copy(), lse[:, 0].copy()
            cascade_attention(y, merged, v[:, 1], lse[:, 1])
            assert (y == want).all()
            assert (merged == want_lse).all()
