"""flash_sdpa_backward: against differences of the forward, grouped heads, empty rows, single gradients."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py import PlanPreference, TensorRef
from baracuda_py.core.device import fake_device
from baracuda_py.ops.attention.dense.flash_sdpa import flash_sdpa
from baracuda_py.ops.attention.dense.flash_sdpa_backward import (
    FlashSdpaBackwardArgs,
    FlashSdpaBackwardDescriptor,
    FlashSdpaBackwardPlan,
    flash_sdpa_backward,
)

GRADS = ("dq", "dk", "dv")


def problem(rng, queries=5, keys=7, heads=4, kv_heads=2, d_k=8, d_v=6, dtype=np.float64, **facts):
    """q, k, v, y, lse, dy of one problem."""
    shapes = (2, heads, queries, d_k), (2, kv_heads, keys, d_k), (2, kv_heads, keys, d_v)
    q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    y, lse = flash_sdpa(q, k, v, return_lse=True, **facts)
    return q, k, v, y, lse, rng.standard_normal(y.shape).astype(dtype)


@pytest.mark.parametrize(
    ("queries", "keys", "facts"),
    [
        (5, 7, {}),
        (6, 6, {"is_causal": True}),
        (7, 5, {"is_causal": True, "causal_alignment": "bottom_right", "scale": -0.7}),
        (3, 8, {"is_causal": True, "causal_alignment": "bottom_right"}),
    ],
)
def test_directional_differences(queries, keys, facts):
    rng = np.random.default_rng(0)
    q, k, v, y, lse, dy = problem(rng, queries, keys, **facts)
    grads = flash_sdpa_backward(q, k, v, y, lse, dy, **facts)
    for n, x in enumerate((q, k, v)):
        way = rng.standard_normal(x.shape)
        ends = [
            flash_sdpa(*(x + s * way if i == n else a for i, a in enumerate((q, k, v))), **facts) for s in (1e-6, -1e-6)
        ]
        np.testing.assert_allclose(
            (grads[n] * way).sum(), ((ends[0] - ends[1]) * dy).sum() / 2e-6, rtol=1e-6, atol=1e-8
        )


def test_a_row_that_sees_nothing_has_no_gradient():
    facts = {"is_causal": True, "causal_alignment": "bottom_right"}
    q, k, v, y, lse, dy = problem(np.random.default_rng(1), 7, 5, **facts)
    dq, dk, dv = flash_sdpa_backward(q, k, v, y, lse, dy, **facts)
    assert not dq[:, :, :2].any()
    assert all(np.isfinite(g).all() for g in (dq, dk, dv))


def test_a_shared_head_gets_the_sum_over_its_group():
    q, k, v, y, lse, dy = problem(np.random.default_rng(2))
    _, dk, dv = flash_sdpa_backward(q, k, v, y, lse, dy)
    full = [np.repeat(a, 2, axis=1) for a in (k, v)]
    _, dk_each, dv_each = flash_sdpa_backward(q, *full, y, lse, dy)
    for got, each in ((dk, dk_each), (dv, dv_each)):
        np.testing.assert_allclose(got, each.reshape(2, 2, 2, *each.shape[2:]).sum(2), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("only", GRADS)
def test_one_gradient_alone(only):
    q, k, v, y, lse, dy = problem(np.random.default_rng(3), is_causal=True)
    every = dict(zip(GRADS, flash_sdpa_backward(q, k, v, y, lse, dy, is_causal=True), strict=True))
    flags = {f"return_{name}": name == only for name in GRADS}
    np.testing.assert_array_equal(flash_sdpa_backward(q, k, v, y, lse, dy, is_causal=True, **flags), every[only])


def test_bshd_gradients_have_the_layout_of_their_inputs():
    q, k, v, y, lse, dy = problem(np.random.default_rng(4), dtype=np.float32)
    want = flash_sdpa_backward(q, k, v, y, lse, dy)
    q, k, v, y, dy = (np.ascontiguousarray(a.swapaxes(1, 2)) for a in (q, k, v, y, dy))
    got = flash_sdpa_backward(q, k, v, y, lse, dy, layout="bshd")
    for a, b, x in zip(got, want, (q, k, v), strict=True):
        assert a.shape == x.shape
        np.testing.assert_array_equal(a.swapaxes(1, 2), b)


def test_no_keys_leave_dq_zero():
    q, k, v, y, lse, dy = problem(np.random.default_rng(5), keys=0)
    dq, dk, _ = flash_sdpa_backward(q, k, v, y, lse, dy)
    assert not dq.any()
    assert dk.size == 0


def test_saved_tensors_are_the_forwards():
    assert FlashSdpaBackwardPlan.direction == "backward"
    desc = FlashSdpaBackwardPlan.descriptor(
        batch_size=1, num_heads=2, query_len=3, key_len=4, d_k=8, d_v=8, is_causal=True, element="bfloat16"
    )
    rng = np.random.default_rng(6)
    arrays = {
        n: rng.standard_normal((1, 2, s, 8)).astype(desc.element.dtype) for n, s in (("q", 3), ("k", 4), ("v", 4))
    }
    FlashSdpaBackwardPlan.complete(desc, arrays)
    y, lse = flash_sdpa(arrays["q"], arrays["k"], arrays["v"], is_causal=True, return_lse=True)
    np.testing.assert_array_equal(arrays["y"], y)
    np.testing.assert_array_equal(arrays["lse"], lse)


def steps_of(desc, any_order=False, cc=9.0, **leave_out):
    """The launches on a device of 132 multiprocessors."""
    plan = FlashSdpaBackwardPlan.select(desc, PlanPreference(deterministic=not any_order), device=fake_device(cc))
    queries = desc.batch_size, desc.num_heads, desc.query_len
    keys = desc.batch_size, desc.num_kv_heads, desc.key_len
    shapes = dict.fromkeys(("q", "dq"), (*queries, desc.d_k)) | dict.fromkeys(("y", "dy"), (*queries, desc.d_v))
    shapes |= dict.fromkeys(("k", "dk"), (*keys, desc.d_k)) | dict.fromkeys(("v", "dv"), (*keys, desc.d_v))
    refs = {n: TensorRef((1 + i) << 40, shape, None, "bfloat16") for i, (n, shape) in enumerate(shapes.items())}
    refs |= {"lse": TensorRef(1 << 50, queries, None, "float32")} | leave_out
    return plan.plan_layout(FlashSdpaBackwardArgs(**refs, seed=1))[1].steps


@pytest.mark.parametrize("any_order", [False, True])
@pytest.mark.parametrize(
    ("d", "facts", "last", "finish"),
    [
        (64, {}, "gradients_wgmma_64", "finish_sides_wgmma_64"),
        (128, {"softcap": 30.0}, "gradients_wgmma_128_terms", "finish_sides_wgmma_128"),
        (128, {"dropout_p": 0.1}, "gradients_wgmma_128_masks", None),
        (256, {}, "gradients_wgmma_256", "finish_sides_wgmma_256"),
        (256, {"softcap": 30.0}, "gradients_wgmma_256_terms", "finish_sides_wgmma_256"),
        (256, {"dropout_p": 0.1}, "gradients_wgmma_256_masks", None),
    ],
)
def test_sums_of_dq_are_finished_by_who_knows_how_they_stand(d, facts, last, finish, any_order):
    """The kernels of two designs leave sums in two layouts; in a fixed order one of them leaves none."""
    desc = FlashSdpaBackwardDescriptor(
        batch_size=2, num_heads=4, query_len=300, key_len=500, d_k=d, d_v=d, element="bfloat16", **facts
    )
    steps = steps_of(desc, any_order)
    finish = finish or (f"finish_wgmma_{d}" if any_order else None)
    wanted = [f"prepare_wgmma_{d}", last, *([finish] if finish else [])]
    assert [step.kernel for step in steps] == wanted
    assert all(step.smem <= fake_device(9.0).smem for step in steps)


@pytest.mark.parametrize(("cc", "tiling"), [(8.0, "wide"), (8.6, "narrow"), (8.9, "narrow"), (9.0, "wide")])
@pytest.mark.parametrize(("facts", "level"), [({}, ""), ({"softcap": 30.0}, "_terms"), ({"dropout_p": 0.1}, "_masks")])
def test_head_dims_past_256_fit_every_device(cc, tiling, facts, level):
    desc = FlashSdpaBackwardDescriptor(
        batch_size=2, num_heads=4, query_len=300, key_len=500, d_k=512, d_v=320, element="bfloat16", **facts
    )
    steps = steps_of(desc, cc=cc)
    assert [step.kernel for step in steps] == [f"prepare_{tiling}_512", f"gradients_{tiling}_512{level}"]
    assert all(step.smem <= fake_device(cc).smem for step in steps)


def long(d, length, heads, kv_heads=0, **facts):
    return FlashSdpaBackwardDescriptor(
        batch_size=4, num_heads=heads, num_kv_heads=kv_heads or heads, query_len=length, key_len=length, d_k=d, d_v=d,
        element="bfloat16", **facts,
    )  # fmt: skip


@pytest.mark.parametrize(("length", "in_turn"), [(1024, 16), (4096, 4), (16384, 1), (24576, 1), (24640, None)])
def test_blocks_of_as_many_heads_rise_as_multiprocessors_take_at_once(length, in_turn):
    _, step, _ = steps_of(long(256, length, 8, is_causal=True))
    assert step.kernel.endswith("_rising") == (in_turn is not None)
    assert step.params["rising"] == 7
    assert step.params["chunk"] == (in_turn or 8)


def test_groups_of_heads_rise_while_many_of_them_stay_in_the_cache():
    for length, rises in ((1536, True), (2048, False)):
        _, step, _ = steps_of(long(256, length, 16, 8, is_causal=True))
        assert step.kernel.endswith("_rising") == rises
        assert step.params["chunk"] == 8


@pytest.mark.parametrize(
    ("d", "length", "facts", "fixed"),
    [
        (64, 1024, {}, True),
        (64, 2048, {"is_causal": True}, True),
        (128, 2112, {}, False),
        (256, 1024, {}, False),
        (256, 1024, {"is_causal": True}, True),
        (128, 1024, {"dropout_p": 0.1}, False),
    ],
)
def test_sums_in_any_order_are_in_a_fixed_one_where_that_is_faster(d, length, facts, fixed):
    desc = long(d, length, 128, **facts)
    prepare, step, *_ = steps_of(desc, any_order=True)
    assert step.params["any_order"] == int(not fixed)
    assert (prepare.params["fill"] == 0) == fixed
    if fixed:
        assert repr(steps_of(desc)) == repr(steps_of(desc, any_order=True))


@pytest.mark.parametrize("any_order", [False, True])
@pytest.mark.parametrize("length", [512, 1024, 4096])
def test_the_way_of_a_walk_is_the_same_whichever_gradients_are_wanted(length, any_order):
    """Or the others would have other bits."""
    both = [steps_of(long(256, length, 8, is_causal=True), any_order, **left)[1] for left in ({}, {"dq": None})]
    assert both[0].kernel == both[1].kernel
    assert both[0].params["rising"] == both[1].params["rising"]


@pytest.mark.gpu
@pytest.mark.parametrize("d", [32, 64, 96, 128, 192, 256])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gpu_repeats_bit_for_bit_and_agrees(dtype, d):
    cupy = pytest.importorskip("cupy")
    facts = {"is_causal": True, "causal_alignment": "bottom_right"}
    arrays = problem(np.random.default_rng(7), 131, 197, d_k=d, d_v=d, dtype=dtype, **facts)
    given = [cupy.asarray(a) for a in arrays]
    got = flash_sdpa_backward(*given, **facts)
    want = flash_sdpa_backward(*arrays, **facts)
    for _ in range(5):
        assert all((a == b).all() for a, b in zip(flash_sdpa_backward(*given, **facts), got, strict=True))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a.get(), b, rtol=0, atol=200 * np.finfo(dtype).eps)
