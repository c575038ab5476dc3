"""sdpa and its backward on a GPU: rows of every kernel, through cuBLAS and without, masks, dropout, uneven operands."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py import BackendKind, PlanPreference
from baracuda_py.ops.attention.dense.sdpa import SdpaDescriptor, SdpaPlan, sdpa
from baracuda_py.ops.attention.dense.sdpa_backward import SdpaBackwardDescriptor, SdpaBackwardPlan, sdpa_backward
from baracuda_py.testing.draw import fill
from baracuda_py.testing.gpu import wrong_plan

pytestmark = pytest.mark.gpu
ELEMENTS = ("float16", "bfloat16", "float32", "float64")
BACKENDS = (BackendKind.CUBLAS, BackendKind.BESPOKE)
LENGTHS = (1, 63, 64, 65, 255, 1000, 1024, 4099, 9001, 20003)  # of every group of threads, and beyond registers
OPTIONS = {
    "plain": {},
    "mask": {"mask_element": "float32", "softcap": 3.0, "scores_stage": "mask"},
    "bool": {"mask_element": "bool", "is_causal": True, "causal_alignment": "bottom_right", "scores_stage": "softcap"},
    "dropout": {"dropout_p": 0.25, "num_kv_heads": 1},
}


def plans(plan, desc):
    """The plan of each backend; both must be there."""
    made = [plan.select(desc, PlanPreference(prefer_backend=backend)) for backend in BACKENDS]
    assert [p.sku.backend for p in made] == list(BACKENDS)
    return made


def sizes(queries, keys, d, **facts):
    return {
        "batch_size": 1, "num_heads": 2, "query_len": queries, "key_len": keys, "d_k": d, "d_v": d,
        "mask_shape": (queries, keys), **facts,
    }  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("keys", LENGTHS)
@pytest.mark.parametrize("element", ELEMENTS)
def test_rows_of_every_length(element, keys, option):
    desc = SdpaDescriptor(**sizes(7, keys, 24, **OPTIONS[option]), element=element)
    present = {"mask": option in ("mask", "bool")}
    assert wrong_plan(fill(SdpaPlan, desc, np.random.default_rng(keys), present), plans(SdpaPlan, desc)) is None


@pytest.mark.parametrize("option", ["plain", "mask", "dropout"])
@pytest.mark.parametrize("keys", LENGTHS)
@pytest.mark.parametrize("element", ELEMENTS)
def test_gradients_of_every_length(element, keys, option):
    desc = SdpaBackwardDescriptor(**sizes(7, keys, 24, **OPTIONS[option]), element=element)
    case = fill(SdpaBackwardPlan, desc, np.random.default_rng(keys))
    assert wrong_plan(case, plans(SdpaBackwardPlan, desc)) is None


@pytest.mark.parametrize(
    "shape", [(), (1,), (300, 1), (130,), (1, 1, 1, 130), (2, 300, 130), (1, 2, 1, 1), (2, 1, 130)]
)
@pytest.mark.parametrize("element", ELEMENTS)
def test_gradients_of_a_broadcast_mask(element, shape):
    facts = sizes(300, 130, 16) | {"mask_shape": shape}
    desc = SdpaBackwardDescriptor(**facts, element=element)
    case = fill(SdpaBackwardPlan, desc, np.random.default_rng(len(shape)))
    assert wrong_plan(case, plans(SdpaBackwardPlan, desc)) is None


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
def test_a_training_step_of_usual_size(element):
    facts = {"batch_size": 2, "num_heads": 4, "num_kv_heads": 2, "query_len": 256, "key_len": 256, "d_k": 64, "d_v": 64}
    desc = SdpaDescriptor(**facts, is_causal=True, dropout_p=0.1, element=element)
    assert wrong_plan(fill(SdpaPlan, desc, np.random.default_rng(1), {"mask": False}), plans(SdpaPlan, desc)) is None
    desc = SdpaBackwardDescriptor(**facts, is_causal=True, dropout_p=0.1, element=element)
    case = fill(SdpaBackwardPlan, desc, np.random.default_rng(1), {"dmask": False})
    assert wrong_plan(case, plans(SdpaBackwardPlan, desc)) is None


@pytest.mark.parametrize("keys", [61, 257, 5001])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dropout_keeps_the_weights_that_numpy_keeps(dtype, keys):
    import cupy

    rng = np.random.default_rng(2)
    q, k = (rng.standard_normal((2, 3, n, 8)).astype(dtype) for n in (9, keys))
    v = np.ascontiguousarray(np.broadcast_to(np.eye(keys, dtype=dtype), (2, 3, keys, keys)))  # y is the weights used
    for seed, offset in ((0, 0), (2**63 + 5, 7), (3, 2**40 + 1)):
        facts = {"dropout_p": 0.4, "seed": seed, "offset": offset}
        got = sdpa(*map(cupy.asarray, (q, k, v)), **facts).get()
        np.testing.assert_array_equal(got != 0, sdpa(q, k, v, **facts) != 0)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_uneven_operands_and_outputs_give_the_bits_of_dense_ones(dtype):
    import cupy

    rng = np.random.default_rng(3)
    q, dy = (cupy.asarray(rng.standard_normal((2, 4, 48, 32)).astype(dtype)) for _ in range(2))
    k, v = (cupy.asarray(rng.standard_normal((2, 2, 72, 32)).astype(dtype)) for _ in range(2))
    bespoke = PlanPreference(prefer_backend=BackendKind.BESPOKE)
    y, attn = sdpa(q, k, v, is_causal=True, return_attn=True, preference=bespoke)
    grads = sdpa_backward(q, k, v, attn, dy, preference=bespoke)
    swapped = [cupy.ascontiguousarray(a.swapaxes(1, 2)) for a in (q, k, v, dy)]
    room = cupy.empty((2, 4, 48, 75), dtype)[..., 1:73]
    out = {"y": cupy.empty_like(swapped[0]), "attn": room}
    sdpa(*swapped[:3], is_causal=True, layout="bshd", return_attn=True, out=out, preference=bespoke)
    assert (out["y"].swapaxes(1, 2) == y).all()
    assert (room == attn).all()
    made = sdpa_backward(*swapped[:3], room, swapped[3], layout="bshd", preference=bespoke)
    for a, b in zip(made, grads, strict=True):
        assert (a.swapaxes(1, 2) == b).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_fifty_runs_give_one_set_of_bits(backend):
    import cupy

    rng = np.random.default_rng(4)
    q, k, v, dy = (cupy.asarray(rng.standard_normal((2, 4, 130, 64)).astype("float16")) for _ in range(4))
    preference = PlanPreference(prefer_backend=backend)
    facts = {"dropout_p": 0.2, "seed": 5, "preference": preference}

    def run():
        y, attn = sdpa(q, k, v, return_attn=True, **facts)
        grads = sdpa_backward(q, k, v, attn, dy, mask_shape=(1, 1, 130, 130), return_dmask=True, **facts)
        return y, attn, *grads

    first = run()
    for _ in range(50):
        assert all((a == b).all() for a, b in zip(run(), first, strict=True))


def test_a_mask_of_minus_infinity_hides():
    import cupy

    rng = np.random.default_rng(5)
    q, k, v = (cupy.asarray(rng.standard_normal((1, 2, 40, 16)).astype("float16")) for _ in range(3))
    mask = np.zeros((40, 40), "float32")
    mask[3], mask[:, 7] = -np.inf, -np.inf
    y, attn, lse = (a.get() for a in sdpa(q, k, v, cupy.asarray(mask), return_attn=True, return_lse=True))
    assert not y[:, :, 3].any()
    assert not attn[:, :, 3].any()
    assert not attn[..., 7].any()
    assert np.isneginf(lse[:, :, 3]).all()
    assert np.isfinite(np.delete(lse, 3, axis=2)).all()
