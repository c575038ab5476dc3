"""flash_sdpa_varlen_backward: against differences of the forward; each sequence is flash_sdpa_backward of it alone."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.core.device import fake_device
from baracuda_py.core.dispatch import dense_problem
from baracuda_py.core.errors import InvalidProblemError
from baracuda_py.core.variant import Problem
from baracuda_py.ops.attention.packed.flash_sdpa_varlen import FlashSdpaVarlenPlan, flash_sdpa_varlen
from baracuda_py.ops.attention.packed.flash_sdpa_varlen_backward import (
    FlashSdpaVarlenBackwardDescriptor,
    FlashSdpaVarlenBackwardPlan,
    flash_sdpa_varlen_backward,
)

from test_flash_sdpa_varlen import LENGTHS, TERMS, bounds, make

GRADS = ("dq", "dk", "dv")
MASKS = ({}, {"is_causal": True, "causal_alignment": "top_left", "scale": -0.7}, {"window_left": 3, "scale": 0.4})


def problem(seed, facts, cu=None):
    """q, k, v, y, lse, dy and the bounds."""
    rng = np.random.default_rng(seed)
    cu_q, cu_k = cu or bounds(LENGTHS)
    q, k, v = make(rng, 30, 60)
    y, lse = flash_sdpa_varlen(q, k, v, cu_q, cu_k, return_lse=True, **facts)
    return q, k, v, y, lse, rng.standard_normal(y.shape), cu_q, cu_k


@pytest.mark.parametrize("facts", MASKS)
def test_directional_differences(facts):
    q, k, v, y, lse, dy, cu_q, cu_k = problem(0, facts)
    grads = flash_sdpa_varlen_backward(q, k, v, y, lse, dy, cu_q, cu_k, **facts)
    rng = np.random.default_rng(1)
    for n, x in enumerate((q, k, v)):
        way = rng.standard_normal(x.shape)
        moved = [[x + s * way if i == n else a for i, a in enumerate((q, k, v))] for s in (1e-6, -1e-6)]
        ends = [flash_sdpa_varlen(*arrays, cu_q, cu_k, **facts) for arrays in moved]
        np.testing.assert_allclose(
            (grads[n] * way).sum(), ((ends[0] - ends[1]) * dy).sum() / 2e-6, rtol=1e-6, atol=1e-7
        )


def test_rows_of_no_sequence_and_of_one_without_partners_get_zeros():
    cu = np.array([2, 5, 5, 9]), np.array([0, 0, 4, 6])  # no keys; no queries; some of both
    dq, dk, dv = flash_sdpa_varlen_backward(*problem(2, {}, cu))
    assert dq[5:9].any(axis=(1, 2)).all() and dk[4:6].any(axis=(1, 2)).all()
    assert not dq[:5].any() and not dq[9:].any()
    for grad in (dk, dv):
        assert not grad[:4].any() and not grad[6:].any()


@pytest.mark.parametrize("only", GRADS)
def test_one_gradient_alone(only):
    arrays = problem(3, {"is_causal": True})
    every = dict(zip(GRADS, flash_sdpa_varlen_backward(*arrays, is_causal=True), strict=True))
    flags = {f"return_{name}": name == only for name in GRADS}
    np.testing.assert_array_equal(flash_sdpa_varlen_backward(*arrays, is_causal=True, **flags), every[only])


@pytest.mark.parametrize("facts", TERMS.values(), ids=TERMS)
def test_gradients_under_score_terms(facts):
    q, k, v, y, lse, dy, cu_q, cu_k = problem(4, facts)
    wants = {"return_dsinks": True} if "sinks" in facts else {}
    grads = flash_sdpa_varlen_backward(q, k, v, y, lse, dy, cu_q, cu_k, **facts, **wants)
    rng = np.random.default_rng(5)
    names = ("q", "k", "v", "sinks")[: len(grads)]
    given = {"q": q, "k": k, "v": v} | facts
    for name, grad in zip(names, grads, strict=True):
        way = rng.standard_normal(given[name].shape)
        ends = []
        for step in (1e-6, -1e-6):
            now = given | {name: given[name] + step * way}
            operands = [now.pop(n) for n in ("q", "k", "v")]
            ends.append(flash_sdpa_varlen(*operands, cu_q, cu_k, **now))
        np.testing.assert_allclose((grad * way).sum(), ((ends[0] - ends[1]) * dy).sum() / 2e-6, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["slopes", "sinks"])
def test_a_gradient_of_what_is_not_there_is_refused(name):
    with pytest.raises(InvalidProblemError, match=f"d{name} is wanted but no {name}"):
        flash_sdpa_varlen_backward(*problem(6, {}), **{f"return_d{name}": True})


def test_torch_has_the_gradients_of_slopes_and_sinks():
    torch = pytest.importorskip("torch")
    from baracuda_py import torch as bct

    facts = {"sinks": np.array([0.3, -0.2, 1.0, 0.0]), "slopes": np.array([0.5, 0.1, 0.0, -0.2]), "softcap": 2.0}
    arrays = problem(7, facts)
    q, k, v, cu_q, cu_k, sinks, slopes = map(torch.tensor, (*arrays[:3], *arrays[6:], facts["sinks"], facts["slopes"]))
    leaves = slopes.requires_grad_(), sinks.requires_grad_()
    y = bct.flash_sdpa_varlen(q, k, v, cu_q, cu_k, sinks=sinks, slopes=slopes, softcap=2.0)
    wanted = flash_sdpa_varlen_backward(*arrays, **facts, return_dslopes=True, return_dsinks=True)[3:]
    for got, want in zip(torch.autograd.grad(y, leaves, torch.tensor(arrays[5])), wanted, strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-12)


@pytest.mark.parametrize("shape", [(4,), (1,), (7, 4), (7, 1), (1, 4)])
def test_the_gradient_of_slopes_by_differences(shape):
    rng = np.random.default_rng(8)
    slopes, way = rng.standard_normal(shape), rng.standard_normal(shape)
    arrays = problem(8, facts := {"is_causal": True, "window_left": 4, "slopes": slopes})
    got = flash_sdpa_varlen_backward(*arrays, **facts, return_dslopes=True)[3]
    assert got.shape == shape
    q, k, v, *_, cu_q, cu_k = arrays
    ends = [flash_sdpa_varlen(q, k, v, cu_q, cu_k, **facts | {"slopes": slopes + s * way}) for s in (1e-6, -1e-6)]
    np.testing.assert_allclose((got * way).sum(), ((ends[0] - ends[1]) * arrays[5]).sum() / 2e-6, rtol=1e-6, atol=1e-7)


def test_it_is_the_forwards_vjp():
    assert FlashSdpaVarlenPlan.vjp is not None
    assert FlashSdpaVarlenPlan.vjp.plan == FlashSdpaVarlenBackwardPlan.__name__


@pytest.mark.parametrize(("cc", "d", "row"), [(9.0, 128, "wgmma"), (9.0, 32, "mma"), (8.6, 256, "mma")])
def test_the_row_a_device_takes(cc, d, row):
    desc = FlashSdpaVarlenBackwardDescriptor(
        batch_size=3, total_q=64, total_k=80, num_heads=2, d_k=d, d_v=d, element="bfloat16"
    )
    assert FlashSdpaVarlenBackwardPlan.select(desc, device=fake_device(cc)).sku.variant == row


@pytest.mark.parametrize(("d", "total", "segment", "in_turn"), [(256, 32768, 24576, 1), (128, 32768, 6144, 8)])
def test_what_blocks_work_on_together_stays_in_the_cache(d, total, segment, in_turn):
    """Where they rise a head of many sequences, as none waits for another; else several heads of fewer."""
    desc = FlashSdpaVarlenBackwardDescriptor(
        batch_size=16, total_q=total, total_k=total, num_heads=8, d_k=d, d_v=d, is_causal=True, element="bfloat16"
    )
    plan = FlashSdpaVarlenBackwardPlan.select(desc, device=fake_device(9.0))
    dense = dense_problem(FlashSdpaVarlenBackwardPlan, desc, plan.device, optional=True)
    plain = Problem(desc, plan.device, dense.views | dict.fromkeys(("slopes", "sinks", "dsinks")))
    lists, _, gradients, *_ = plan.rows[0].geometry(plain).steps
    assert lists.params["segment"] == segment
    assert gradients.params["chunk"] == in_turn
