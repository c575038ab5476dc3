"""flash_sdpa on a GPU: large scores, long and odd lengths, bits whatever the batch, alignment or repetition."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py import PlanPreference
from baracuda_py.core.element import ElementKind
from baracuda_py.ops.attention.flash_sdpa import FlashSdpaArgs, FlashSdpaDescriptor, FlashSdpaPlan, flash_sdpa
from baracuda_py.ops.attention.flash_sdpa_sm89 import FlashSdpaSm89Plan
from baracuda_py.testing.draw import fill, stored
from baracuda_py.testing.gpu import OnDevice, wrong_results
from baracuda_py.testing.operands import operands

pytestmark = pytest.mark.gpu
HALVES = ("float16", "bfloat16")
ELEMENTS = (*HALVES, "float32", "float64")


def wrong(desc: FlashSdpaDescriptor, plan: type[FlashSdpaPlan] = FlashSdpaPlan, spread: float = 1.0) -> str | None:
    """What a run with random operands gets wrong, or None; `spread` multiplies q, and with it the scores."""
    case = fill(plan, desc, np.random.default_rng(desc.query_len))
    case.arrays["q"] = stored(case.arrays["q"].astype(np.float64) * spread, desc.element)
    ready = OnDevice(operands(case))
    chosen = plan.select(desc)
    args = ready.args()
    chosen.run(args)
    bound = chosen.can_implement(args).sku.precision_guarantee.error
    return ready.harm() or wrong_results(case, ready.written(), bound)


def descriptor(queries: int, keys: int, d: int, element: str, **facts: object) -> FlashSdpaDescriptor:
    sizes = {"batch_size": 1, "num_heads": 2, "num_kv_heads": 1} | facts
    return FlashSdpaDescriptor(query_len=queries, key_len=keys, d_k=d, d_v=d, element=element, **sizes)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("d", [32, 64, 96, 128, 192, 256])
def test_scores_up_to_a_hundred(element: str, d: int) -> None:
    desc = descriptor(131, 197, d, element, batch_size=2, is_causal=True, causal_alignment="bottom_right")
    assert wrong(desc, spread=30) is None
    if element in HALVES:
        assert wrong(desc, FlashSdpaSm89Plan, spread=30) is None


@pytest.mark.parametrize("length", [1, 2, 61, 127, 128, 129, 1021, 2048, 4093, 4096])
@pytest.mark.parametrize("element", HALVES)
def test_lengths(element: str, length: int) -> None:
    causal = length % 2 == 1
    assert wrong(descriptor(length, length, 64, element, is_causal=causal, num_heads=1), spread=30) is None


@pytest.mark.parametrize(("d_k", "d_v"), [(17, 72), (80, 8), (40, 33), (256, 1), (200, 250)])
@pytest.mark.parametrize("element", HALVES)
def test_unequal_and_odd_head_dims(element: str, d_k: int, d_v: int) -> None:
    desc = FlashSdpaDescriptor(
        batch_size=2, num_heads=3, query_len=150, key_len=97, d_k=d_k, d_v=d_v, is_causal=True, element=element
    )
    assert wrong(desc) is None
    assert wrong(desc, FlashSdpaSm89Plan) is None


@pytest.mark.parametrize("plan", [FlashSdpaPlan, FlashSdpaSm89Plan])
def test_masked_values_that_are_not_finite_add_nothing(plan: type[FlashSdpaPlan]) -> None:
    import cupy

    length, d = 300, 64
    rng = np.random.default_rng(3)
    q, k, v = (cupy.asarray(rng.standard_normal((1, 2, length, d)).astype("float16")) for _ in range(3))
    v[0, 0, 77, 5], v[0, 0, 201, 6], v[0, 1, 255, 7] = np.inf, np.nan, -np.inf
    desc = descriptor(length, length, d, "float16", num_kv_heads=2, is_causal=True)
    y = cupy.empty_like(q)
    plan.select(desc).run(FlashSdpaArgs(q=q, k=k, v=v, y=y))
    found = y.get()
    want = np.isfinite(FlashSdpaPlan.reference(desc, q=q.get(), k=k.get(), v=v.get(), wanted={"y"})["y"])
    np.testing.assert_array_equal(np.isfinite(found), want)
    assert np.isposinf(found[0, 0, 77:, 5]).all()
    assert np.isnan(found[0, 0, 201:, 6]).all()
    assert np.isneginf(found[0, 1, 255:, 7]).all()


@pytest.mark.parametrize("element", ["float16", "float32"])
@pytest.mark.parametrize("d", [64, 128])
def test_alignment_strides_batch_and_repetition_do_not_change_bits(element: str, d: int) -> None:
    import cupy

    rng = np.random.default_rng(9)
    q, k, v = (cupy.asarray(rng.standard_normal((3, 4, 515, d)).astype(element)) for _ in range(3))
    want = flash_sdpa(q, k, v, is_causal=True)

    def shifted(a: cupy.ndarray) -> cupy.ndarray:
        room = cupy.empty((a.shape[0], a.shape[2], a.shape[1], a.shape[3] + 1), a.dtype)[..., 1:].swapaxes(1, 2)
        room[...] = a
        return room

    out = shifted(cupy.zeros_like(want))
    flash_sdpa(shifted(q), shifted(k), shifted(v), is_causal=True, out=out)
    assert (out == want).all()
    for b in range(3):
        assert (flash_sdpa(q[b : b + 1], k[b : b + 1], v[b : b + 1], is_causal=True) == want[b : b + 1]).all()
    for _ in range(50):
        assert (flash_sdpa(q, k, v, is_causal=True) == want).all()


@pytest.mark.parametrize("element", HALVES)
def test_tensor_core_rows_are_taken(element: str) -> None:
    desc = descriptor(128, 128, 64, element)
    assert FlashSdpaPlan.select(desc).sku.variant == "mma"
    assert FlashSdpaSm89Plan.select(desc).sku.variant == "mma_wide"
    only = FlashSdpaPlan.select(desc, PlanPreference(deterministic=True)).sku
    assert only.element is ElementKind.of(element)
