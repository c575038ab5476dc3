"""sdpa_backward: broadcast masks, softcap, dropout, grouped heads, single gradients and what each of them costs."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.core.variant import LibraryStep
from baracuda_py.ops.attention.dense.flash_sdpa import flash_sdpa
from baracuda_py.ops.attention.dense.flash_sdpa_backward import flash_sdpa_backward
from baracuda_py.ops.attention.dense.sdpa import sdpa
from baracuda_py.ops.attention.dense.sdpa_backward import (
    SdpaBackwardArgs,
    SdpaBackwardDescriptor,
    SdpaBackwardPlan,
    sdpa_backward,
)
from baracuda_py.ops.random.philox import philox_uniform
from baracuda_py.schedules import products
from baracuda_py.testing.recording import pointer_view

GRADS = ("dq", "dk", "dv")


def problem(rng, queries=5, keys=7, heads=4, kv_heads=2, d_k=8, d_v=6, mask=None, **facts):
    """q, k, v, attn, dy of one problem."""
    shapes = (2, heads, queries, d_k), (2, kv_heads, keys, d_k), (2, kv_heads, keys, d_v)
    q, k, v = (rng.standard_normal(shape) for shape in shapes)
    y, attn = sdpa(q, k, v, mask, return_attn=True, **facts)
    return q, k, v, attn, rng.standard_normal(y.shape)


def test_without_options_it_is_flash_sdpa_backward():
    facts = {"is_causal": True, "causal_alignment": "bottom_right", "scale": -0.7}
    q, k, v, attn, dy = problem(np.random.default_rng(0), 7, 5, **facts)
    y, lse = flash_sdpa(q, k, v, return_lse=True, **facts)
    want = flash_sdpa_backward(q, k, v, y, lse, dy, **facts)
    for a, b in zip(sdpa_backward(q, k, v, attn, dy, scale=-0.7), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("shape", [(2, 4, 5, 7), (4, 5, 7), (5, 7), (7,), (2, 1, 1, 7), (1, 4, 5, 1), (1,), ()])
def test_directional_differences(shape):
    rng = np.random.default_rng(1)
    facts = {"softcap": 1.3, "dropout_p": 0.3, "seed": 5, "scale": 0.6}
    mask = np.asarray(rng.standard_normal(shape))
    q, k, v, attn, dy = problem(rng, mask=mask, is_causal=True, **facts)
    grads = sdpa_backward(q, k, v, attn, dy, mask_shape=shape, return_dmask=True, **facts)
    given = (q, k, v, mask)
    for n, x in enumerate(given):
        assert grads[n].shape == x.shape
        way = rng.standard_normal(x.shape)
        ends = [
            sdpa(*(np.asarray(a + s * way) if i == n else a for i, a in enumerate(given)), is_causal=True, **facts)
            for s in (1e-6, -1e-6)
        ]
        found = ((ends[0] - ends[1]) * dy).sum() / 2e-6
        np.testing.assert_allclose((grads[n] * way).sum(), found, rtol=1e-6, atol=1e-7)


def test_a_mask_along_every_key_changes_nothing():
    """Softmax does not see what is added to a whole row."""
    q, k, v, attn, dy = problem(np.random.default_rng(2))
    dmask = sdpa_backward(q, k, v, attn, dy, mask_shape=(5, 1), return_dmask=True)[3]
    np.testing.assert_allclose(dmask, 0, atol=1e-13)


def test_dropped_weights_pass_no_gradient():
    q, k, v, attn, dy = problem(np.random.default_rng(3), kv_heads=4)
    facts = {"dropout_p": 0.5, "seed": 9, "offset": 1}
    dv = sdpa_backward(q, k, v, attn, dy, **facts)[2]
    keep = philox_uniform(9, 1, attn.size).reshape(attn.shape) >= 0.5
    np.testing.assert_allclose(dv, (2 * attn * keep).swapaxes(-1, -2) @ dy, rtol=1e-12, atol=1e-14)
    assert not any(g.any() for g in sdpa_backward(q, k, v, attn, dy, dropout_p=1.0))


def test_a_shared_head_gets_the_sum_over_its_group():
    q, k, v, attn, dy = problem(np.random.default_rng(4))
    _, dk, dv = sdpa_backward(q, k, v, attn, dy)
    full = [np.repeat(a, 2, axis=1) for a in (k, v)]
    _, dk_each, dv_each = sdpa_backward(q, *full, attn, dy)
    for got, each in ((dk, dk_each), (dv, dv_each)):
        np.testing.assert_allclose(got, each.reshape(2, 2, 2, *each.shape[2:]).sum(2), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("only", GRADS)
def test_one_gradient_alone(only):
    q, k, v, attn, dy = problem(np.random.default_rng(5), softcap=2.0)
    every = dict(zip(GRADS, sdpa_backward(q, k, v, attn, dy, softcap=2.0), strict=True))
    flags = {f"return_{name}": name == only for name in GRADS}
    np.testing.assert_array_equal(sdpa_backward(q, k, v, attn, dy, softcap=2.0, **flags), every[only])


def test_bshd_gradients_have_the_layout_of_their_inputs():
    q, k, v, attn, dy = problem(np.random.default_rng(6))
    want = sdpa_backward(q, k, v, attn, dy)
    q, k, v, dy = (np.ascontiguousarray(a.swapaxes(1, 2)) for a in (q, k, v, dy))
    for a, b, x in zip(sdpa_backward(q, k, v, attn, dy, layout="bshd"), want, (q, k, v), strict=True):
        assert a.shape == x.shape
        np.testing.assert_array_equal(a.swapaxes(1, 2), b)


def test_a_boolean_mask_has_no_gradient():
    q, k, v, attn, dy = problem(np.random.default_rng(7))
    with pytest.raises(InvalidProblemError, match="boolean mask has no gradient"):
        sdpa_backward(q, k, v, attn, dy, mask_shape=(5, 7), mask_element="bool", return_dmask=True)


def steps(wanted, **facts):
    """Names of the cuBLAS row's steps, and how many matrices of scores it holds."""
    desc = SdpaBackwardDescriptor(
        batch_size=2, num_heads=2, query_len=64, key_len=64, d_k=8, d_v=8, mask_shape=(64, 64), **facts,
        element="bfloat16",
    )  # fmt: skip
    shapes = dict.fromkeys(("q", "k", "v", "dy", *GRADS), (2, 2, 64, 8)) | {"attn": (2, 2, 64, 64), "dmask": (64, 64)}
    arrays = {
        name: pointer_view(np.zeros(shape, np.uint16).view("bfloat16")) if name in wanted or name not in grads else None
        for grads in [(*GRADS, "dmask")]
        for name, shape in shapes.items()
    }
    plan = SdpaBackwardPlan.select(desc, device=fake_device(9.0))
    with mock.patch.object(products, "_PARTIALS", 0):  # no workspace for the library
        variant, geometry, _ = plan.plan_layout(SdpaBackwardArgs(**arrays, seed=1))
    assert variant.name == "cublas"
    names = [
        "gemm" if isinstance(s, LibraryStep) else s.kernel.partition("_")[0].replace("plain", "rows")
        for s in geometry.steps
    ]
    return names, geometry.workspace // (2 * 2 * 64 * 64 * 2)


@pytest.mark.parametrize(
    ("wanted", "facts", "names", "held"),
    [
        (("dv",), {}, ["gemm"], 0),
        (("dv",), {"dropout_p": 0.1}, ["rows", "gemm"], 1),
        (("dq",), {}, ["gemm", "rows", "gemm", "mend"], 1),
        (GRADS, {}, ["gemm", "rows", "gemm", "gemm", "mend", "gemm"], 1),
        (GRADS, {"dropout_p": 0.1}, ["gemm", "rows", "gemm", "gemm", "mend", "gemm"], 2),
        (GRADS, {"softcap": 2.0}, ["gemm", "gemm", "rows", "gemm", "gemm", "mend", "gemm"], 2),
        (("dmask",), {"softcap": 2.0}, ["gemm", "rows", "dmask"], 1),
        (("dq", "dmask"), {"softcap": 2.0}, ["gemm", "gemm", "rows", "gemm", "mend", "dmask"], 3),
    ],
)
def test_a_gradient_costs_what_it_needs(wanted, facts, names, held):
    assert steps(wanted, **facts) == (names, held)
