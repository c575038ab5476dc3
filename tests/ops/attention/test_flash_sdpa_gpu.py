"""flash_sdpa on a GPU: large scores, long and odd lengths, bits whatever the batch, alignment or repetition."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from baracuda_py import ArchSku, PlanPreference
from baracuda_py.ops.attention.dense.flash_sdpa import FlashSdpaArgs, FlashSdpaDescriptor, FlashSdpaPlan
from baracuda_py.ops.attention.dense.flash_sdpa import flash_sdpa as functional
from baracuda_py.ops.attention.dense.flash_sdpa_sm89 import FlashSdpaSm89Plan
from baracuda_py.testing.draw import fill, stored
from baracuda_py.testing.gpu import wrong_plan

pytestmark = pytest.mark.gpu
HALVES = ("float16", "bfloat16")
ELEMENTS = (*HALVES, "float32", "float64")


def wrong(desc: FlashSdpaDescriptor, spread: float = 1.0) -> str | None:
    """What any design gets wrong with random operands, or None; `spread` multiplies q, and with it the scores."""
    case = fill(FlashSdpaPlan, desc, np.random.default_rng(desc.query_len))
    case.arrays["q"] = stored(case.arrays["q"].astype(np.float64) * spread, desc.element)
    return wrong_plan(case, designs(desc))


def designs(desc: FlashSdpaDescriptor) -> list[FlashSdpaPlan]:
    """The plans for a descriptor that take different rows on this device."""
    plans = [FlashSdpaPlan.select(desc)]
    if desc.element.itemsize == 2:
        plans.append(FlashSdpaSm89Plan.select(desc))
        if plans[0].sku.variant != "mma":
            plans.append(FlashSdpaPlan.select(desc, PlanPreference(max_arch=ArchSku.SM80)))
    return plans


def descriptor(queries: int, keys: int, d: int, element: str, **facts: object) -> FlashSdpaDescriptor:
    sizes = {"batch_size": 1, "num_heads": 2, "num_kv_heads": 1} | facts
    return FlashSdpaDescriptor(query_len=queries, key_len=keys, d_k=d, d_v=d, element=element, **sizes)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("d", [32, 64, 96, 128, 192, 256, 512])
def test_scores_up_to_a_hundred(element: str, d: int) -> None:
    desc = descriptor(131, 197, d, element, batch_size=2, is_causal=True, causal_alignment="bottom_right")
    assert wrong(desc, spread=30) is None


@pytest.mark.parametrize("length", [1, 2, 61, 127, 128, 129, 1021, 2048, 4093, 4096])
@pytest.mark.parametrize("element", HALVES)
def test_lengths(element: str, length: int) -> None:
    causal = length % 2 == 1
    assert wrong(descriptor(length, length, 64, element, is_causal=causal, num_heads=1), spread=30) is None


@pytest.mark.parametrize(
    ("d_k", "d_v"), [(17, 72), (80, 8), (40, 33), (256, 1), (200, 250), (512, 40), (40, 300), (257, 512)]
)
@pytest.mark.parametrize("element", HALVES)
def test_unequal_and_odd_head_dims(element: str, d_k: int, d_v: int) -> None:
    desc = FlashSdpaDescriptor(
        batch_size=2, num_heads=3, query_len=150, key_len=97, d_k=d_k, d_v=d_v, is_causal=True, element=element
    )
    assert wrong(desc) is None


@pytest.mark.parametrize("d", [64, 128, 256])
def test_masked_values_that_are_not_finite_add_nothing(d: int) -> None:
    import cupy

    length = 300
    rng = np.random.default_rng(3)
    q, k, v = (cupy.asarray(rng.standard_normal((1, 2, length, d)).astype("float16")) for _ in range(3))
    v[0, 0, 77, 5], v[0, 0, 201, 6], v[0, 1, 255, 7] = np.inf, np.nan, -np.inf
    desc = descriptor(length, length, d, "float16", num_kv_heads=2, is_causal=True)
    want = np.isfinite(FlashSdpaPlan.reference(desc, q=q.get(), k=k.get(), v=v.get(), wanted={"y"})["y"])
    for chosen in designs(desc):
        y = cupy.empty_like(q)
        chosen.run(FlashSdpaArgs(q=q, k=k, v=v, y=y))
        found = y.get()
        np.testing.assert_array_equal(np.isfinite(found), want)
        assert np.isposinf(found[0, 0, 77:, 5]).all()
        assert np.isnan(found[0, 0, 201:, 6]).all()
        assert np.isneginf(found[0, 1, 255:, 7]).all()


@pytest.mark.parametrize("d", [64, 128, 192, 256])
@pytest.mark.parametrize(
    "facts",
    [
        {}, {"is_causal": True}, {"window_left": 70, "window_right": 3}, {"is_causal": True, "scale": -0.2},
        {"is_causal": True, "softcap": 5.0},
    ],
)  # fmt: skip
def test_blocks_that_stay_give_the_bits_of_blocks_that_do_not(d: int, facts: dict[str, object]) -> None:
    """1152 tiles of queries, more than blocks at once; those of one sequence have a block each."""
    import cupy

    rng = np.random.default_rng(d)
    q, k, v = (cupy.asarray(rng.standard_normal((24, 12, 389, d)).astype("float16")) for _ in range(3))
    v[11, 3, 200, 0], v[23, 5, 388, 1], v[23, 7, 64, 2] = np.inf, np.nan, -np.inf
    want = functional(q, k, v, **facts, return_lse=True)
    again = functional(q, k, v, **facts, return_lse=True)
    for at in (slice(None), *(slice(b, b + 1) for b in (0, 11, 23))):
        found = again if at == slice(None) else functional(q[at], k[at], v[at], **facts, return_lse=True)
        for got, of_all in zip(found, want, strict=True):
            assert ((got == of_all[at]) | (cupy.isnan(got) & cupy.isnan(of_all[at]))).all()


@pytest.mark.parametrize("element", ["float16", "float32"])
@pytest.mark.parametrize("d", [64, 128, 192])
@pytest.mark.parametrize("arch", [None, ArchSku.SM80])
def test_alignment_strides_batch_and_repetition_do_not_change_bits(element: str, d: int, arch: ArchSku | None) -> None:
    import cupy

    flash_sdpa = partial(functional, preference=PlanPreference(max_arch=arch))

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
    assert FlashSdpaPlan.select(desc).sku.variant in ("mma", "wgmma")
    assert FlashSdpaPlan.select(desc, PlanPreference(max_arch=ArchSku.SM80)).sku.variant == "mma"
    assert FlashSdpaSm89Plan.select(desc).sku.variant == "mma_wide"
