"""rope_kv_append: the bits of rope and kv_cache_append, grouped heads, the policy for rows outside, replays."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from call_emulated import call

from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.ops.attention.cache.kv_cache_append import kv_cache_append
from baracuda_py.ops.attention.rope.rope import rope
from baracuda_py.ops.attention.cache.rope_kv_append import (
    RopeKvAppendArgs,
    RopeKvAppendDescriptor,
    RopeKvAppendPlan,
    rope_kv_append,
)

RNG = np.random.default_rng(13)


def problem(batch=3, heads=4, kv_heads=2, new=5, length=11, d_k=8, d_v=6, dtype=np.float64):
    shapes = [(batch, heads, new, d_k), (batch, kv_heads, new, d_k), (batch, kv_heads, new, d_v)]
    shapes += [(batch, kv_heads, length, d_k), (batch, kv_heads, length, d_v)]
    return [RNG.standard_normal(shape).astype(dtype) for shape in shapes]


def in_two_steps(q, k, v, offsets, k_cache, v_cache, positions=None, xp=np, **options):
    """y and both caches by the two ops this one joins."""
    if positions is None:
        positions = offsets[:, None] + xp.arange(q.shape[2])
    y, keys = rope(q, positions, x2=k, return_y2=True, **options)
    caches = k_cache.copy(), v_cache.copy()
    kv_cache_append(keys, v, offsets, *caches)
    return y, *caches


@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("rotary", [None, 4])
def test_is_rope_then_append(pairing, rotary):
    q, k, v, k_cache, v_cache = problem()
    offsets = np.array([0, 6, 3])
    options = {"pairing": pairing, "rotary_dim": rotary, "base": 500.0, "scale": 1.25}
    expected = in_two_steps(q, k, v, offsets, k_cache, v_cache, **options)
    y = rope_kv_append(q, k, v, offsets, k_cache, v_cache, **options)
    for got, wanted in zip((y, k_cache, v_cache), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_scores_with_cached_keys_depend_on_distance_only():
    """Tokens appended one by one at growing offsets see their keys as one call of rope would."""
    q, k, v, k_cache, v_cache = problem(batch=1, heads=2, new=7, length=7)
    rows = [
        rope_kv_append(q[:, :, i : i + 1], k[:, :, i : i + 1], v[:, :, i : i + 1], np.array([i]), k_cache, v_cache)
        for i in range(7)
    ]
    np.testing.assert_allclose(np.concatenate(rows, 2), rope(q), atol=1e-14)
    np.testing.assert_allclose(k_cache, rope(k), atol=1e-14)
    np.testing.assert_array_equal(v_cache, v)
    far = rope(q, offset=1000) @ rope(k, offset=1000).swapaxes(-1, -2)
    np.testing.assert_allclose(np.concatenate(rows, 2) @ k_cache.swapaxes(-1, -2), far, atol=1e-11)


def test_positions_frequencies_and_tables():
    q, k, v, k_cache, v_cache = problem()
    offsets, positions = np.array([1, 0, 6]), RNG.integers(0, 99, (3, 5))
    inv_freq = np.array([1.0, 0.3, 0.1, 0.01])
    expected = in_two_steps(q, k, v, offsets, k_cache, v_cache, positions, inv_freq=inv_freq)
    caches = k_cache.copy(), v_cache.copy()
    y = rope_kv_append(q, k, v, offsets, *caches, positions, inv_freq)
    np.testing.assert_array_equal(y, expected[0])
    np.testing.assert_array_equal(caches[0], expected[1])
    angle = positions[..., None] * inv_freq
    tables = {"cos": np.cos(angle), "sin": np.sin(angle)}
    np.testing.assert_allclose(rope_kv_append(q, k, v, offsets, k_cache, v_cache, **tables), y, atol=1e-14)
    np.testing.assert_allclose(k_cache, expected[1], atol=1e-14)
    with pytest.raises(InvalidProblemError, match="cos and sin go together"):
        rope_kv_append(q, k, v, offsets, k_cache, v_cache, cos=tables["cos"])


SECTIONS = [
    {"mrope_section": (1, 2, 1)},
    {"mrope_section": (2, 1, 1), "mrope_interleaved": True},
    {"mrope_section": (2, 1), "rotary_dim": 6},
    {"mrope_section": (0, 4, 0)},
    {"mrope_section": (4,)},
]


@pytest.mark.parametrize("sections", SECTIONS)
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize("batch", [1, 3])
def test_positions_along_several_axes(sections, pairing, batch):
    """Of one sample or of all; keys still go where the offsets say."""
    q, k, v, k_cache, v_cache = problem()
    offsets, options = np.array([0, 6, 3]), {"pairing": pairing, **sections}
    positions = RNG.integers(0, 99, (len(sections["mrope_section"]), batch, 5))
    expected = in_two_steps(q, k, v, offsets, k_cache, v_cache, positions, **options)
    y = rope_kv_append(q, k, v, offsets, k_cache, v_cache, positions, **options)
    for got, wanted in zip((y, k_cache, v_cache), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_one_position_along_all_axes_is_a_position():
    q, k, v, k_cache, v_cache = problem()
    offsets, positions, caches = np.array([0, 6, 3]), RNG.integers(0, 99, (3, 5)), problem()[3:]
    y = rope_kv_append(q, k, v, offsets, k_cache, v_cache, positions)
    kept = k_cache.copy()
    for section in ((1, 1, 2), (4, 0, 0)):
        along = np.stack([positions] * 3)
        again = rope_kv_append(q, k, v, offsets, k_cache, v_cache, along, mrope_section=section)
        np.testing.assert_array_equal(again, y)
        np.testing.assert_array_equal(k_cache, kept)
    for given, options, match in (
        (None, {"mrope_section": (2, 1, 1)}, "positions must be given"),
        (positions, {"mrope_section": (2, 1, 1)}, "positions must be given"),
        (np.stack([positions] * 3), {"mrope_section": (2, 1, 2)}, "sum is 4"),
        (np.stack([positions] * 2), {"mrope_section": (2, 1, 1)}, "positions"),
        (positions, {"mrope_interleaved": True}, "goes with mrope_section"),
    ):
        with pytest.raises(InvalidProblemError, match=match):
            rope_kv_append(q, k, v, offsets, *caches, given, **options)


@pytest.mark.parametrize("element", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize(
    "sections", [{"mrope_section": (16, 24, 24)}, {"mrope_section": (24, 20, 20), "mrope_interleaved": True}]
)
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
def test_kernels_turn_by_several_axes(element, sections, pairing):
    kind = np.dtype(getattr(ml_dtypes, element, element))
    q, k, v, k_cache, v_cache = problem(batch=2, new=3, d_k=128, d_v=128, dtype=kind)
    offsets, positions = np.array([7, 2]), RNG.integers(0, 99999, (3, 2, 3))
    wide = [x.astype(np.float64) for x in (q, k, v, k_cache, v_cache)]
    expected = in_two_steps(*wide[:3], offsets, *wide[3:], positions, pairing=pairing, **sections)
    desc = RopeKvAppendDescriptor(
        batch_size=2, num_heads=4, num_kv_heads=2, new_len=3, max_cache_len=11, d_k=128, d_v=128, pairing=pairing,
        element=element, **sections,
    )  # fmt: skip
    outputs = {"y": np.zeros_like(q), "k_cache": k_cache, "v_cache": v_cache}
    given = {"q": q, "k_new": k, "v_new": v, "cache_offsets": offsets, "positions": positions}
    made = call(RopeKvAppendPlan, desc, outputs, **given)
    size = {"float32": 1e-6, "bfloat16": 2**-8, "float64": 1e-9}[element]
    for got, wanted in zip(made.values(), expected, strict=True):
        np.testing.assert_allclose(got.astype(np.float64), wanted, rtol=size, atol=size)


OUTSIDE = np.array([0, -2, 9, 11, -5, 2**63 - 1, -(2**63), 2**62])


def test_rows_outside_the_caches_are_skipped():
    q, k, v, k_cache, v_cache = problem(batch=len(OUTSIDE))
    positions = np.arange(5)
    expected = in_two_steps(q, k, v, OUTSIDE, k_cache, v_cache, positions)
    y = rope_kv_append(q, k, v, OUTSIDE, k_cache, v_cache, positions)
    for got, wanted in zip((y, k_cache, v_cache), expected, strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_checked_run_names_the_offsets(monkeypatch):
    monkeypatch.setenv("BARACUDA_CHECK", "1")
    q, k, v, k_cache, v_cache = problem()
    rope_kv_append(q, k, v, np.array([0, 6, 3]), k_cache, v_cache)
    with pytest.raises(InvalidProblemError, match=r"cache_offsets must lie in \[0, 6\]"):
        rope_kv_append(q, k, v, np.array([0, 7, 3]), k_cache, v_cache)


def test_sku_without_a_gpu():
    desc = RopeKvAppendDescriptor(
        batch_size=8, num_heads=32, num_kv_heads=8, new_len=1, max_cache_len=4096, d_k=128, d_v=128, element="bfloat16"
    )
    plan = RopeKvAppendPlan.select(desc, device=fake_device(8.6))
    assert str(plan.sku) == "attention.rope_kv_append/rotate/bfloat16.float32/contiguous/sm80/bespoke"
    assert plan.workspace_size() == 0


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("pairing", ["half", "interleaved"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "new", "d_k", "d_v", "rotary"),
    [(32, 8, 300, 128, 128, None), (5, 5, 33, 64, 192, 32), (6, 1, 7, 80, 24, None), (3, 2, 4, 7, 5, 6)],
)
def test_gpu_bits_of_the_two_steps(dtype, pairing, heads, kv_heads, new, d_k, d_v, rotary):
    """Grouped heads out of one packed projection, offsets inside and outside, d_v other than d_k, odd rows."""
    import cupy as cp

    batch, length = 4, new + 9
    q, k, v, k_cache, v_cache = map(cp.asarray, problem(batch, heads, kv_heads, new, length, d_k, d_v, dtype))
    wide = cp.zeros((batch, new, heads + kv_heads, d_k), dtype)  # queries and keys of a row side by side
    wide[:, :, :heads], wide[:, :, heads:] = q.transpose(0, 2, 1, 3), k.transpose(0, 2, 1, 3)
    views = wide[:, :, :heads].transpose(0, 2, 1, 3), wide[:, :, heads:].transpose(0, 2, 1, 3)
    offsets = cp.asarray([0, 9, length - 1, -3])
    options = {"pairing": pairing, "rotary_dim": rotary, "scale": 0.75}
    expected = in_two_steps(q, k, v, offsets, k_cache, v_cache, xp=cp, **options)
    for one, two in ((q, k), views):
        caches = k_cache.copy(), v_cache.copy()
        y = rope_kv_append(one, two, v, offsets, *caches, **options)
        for got, wanted in zip((y, *caches), expected, strict=True):
            np.testing.assert_array_equal(got.get(), wanted.get())


@pytest.mark.gpu
def test_gpu_policy():
    import cupy as cp

    q, k, v, k_cache, v_cache = problem(batch=len(OUTSIDE), dtype=np.float32)
    expected = in_two_steps(q, k, v, OUTSIDE, k_cache, v_cache, np.arange(5))
    caches = cp.asarray(k_cache), cp.asarray(v_cache)
    y = rope_kv_append(*map(cp.asarray, (q, k, v, OUTSIDE)), *caches, cp.arange(5))
    for got, wanted in zip((y, *caches), expected, strict=True):
        np.testing.assert_allclose(got.get(), wanted, rtol=0, atol=1e-6)


@pytest.mark.gpu
def test_gpu_checked_run(monkeypatch):
    import cupy as cp

    monkeypatch.setenv("BARACUDA_CHECK", "1")
    arrays = [cp.asarray(a) for a in problem(dtype=np.float32)]
    rope_kv_append(*arrays[:3], cp.asarray([0, 6, 3]), *arrays[3:])
    with pytest.raises(InvalidProblemError, match="cache_offsets"):
        rope_kv_append(*arrays[:3], cp.asarray([0, 7, 3]), *arrays[3:])


@pytest.mark.gpu
def test_gpu_capture_with_moving_offsets():
    import cupy as cp

    q, k, v, k_cache, v_cache = map(cp.asarray, problem(dtype=np.float32))
    expected = k_cache.copy(), v_cache.copy()
    offsets, y = cp.zeros(3, cp.int64), cp.empty_like(q)
    desc = RopeKvAppendDescriptor(
        batch_size=3, num_heads=4, num_kv_heads=2, new_len=5, max_cache_len=11, d_k=8, d_v=6, element="float32"
    )
    plan = RopeKvAppendPlan.select(desc, device=0)
    args = RopeKvAppendArgs(q=q, k_new=k, v_new=v, cache_offsets=offsets, k_cache=k_cache, v_cache=v_cache, y=y)
    plan.prepare(args)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        plan.run(args)
        graph = stream.end_capture()
    for values in ([0, 4, 6], [5, 1, 3]):
        offsets[...] = cp.asarray(values)
        cp.cuda.Device().synchronize()
        graph.launch(stream)
        stream.synchronize()
        wanted = in_two_steps(q, k, v, offsets, *expected, xp=cp)
        expected = wanted[1:]
        for got, other in zip((y, k_cache, v_cache), wanted, strict=True):
            np.testing.assert_array_equal(got.get(), other.get())
