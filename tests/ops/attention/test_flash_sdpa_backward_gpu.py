"""flash_sdpa_backward on a GPU: many tiles, every tiling, large scores, single gradients, bits whatever the layout."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from baracuda_py import ArchSku, PlanPreference
from baracuda_py.core.device import resolve_device
from baracuda_py.ops.attention.dense.flash_sdpa import flash_sdpa
from baracuda_py.ops.attention.dense.flash_sdpa_backward import (
    FlashSdpaBackwardDescriptor,
    FlashSdpaBackwardPlan,
    flash_sdpa_backward,
)
from baracuda_py.testing.draw import fill, stored
from baracuda_py.testing.gpu import wrong_plan

pytestmark = pytest.mark.gpu
HALVES = ("float16", "bfloat16")
SM80 = PlanPreference(max_arch=ArchSku.SM80)
ANY_ORDER = PlanPreference(deterministic=False)
SM80_ANY_ORDER = PlanPreference(deterministic=False, max_arch=ArchSku.SM80)
SMALL = 101_376  # bytes of shared memory on 8.6, 8.9 and 12.0


def plans(desc: FlashSdpaBackwardDescriptor) -> list[FlashSdpaBackwardPlan]:
    """The device's own row and the SM80 row, in a fixed order and in any, and in the tiles for little shared memory."""
    device = resolve_device(None)
    little = dataclasses.replace(device, smem=SMALL)
    chosen = [(preference, device) for preference in (PlanPreference(), SM80, ANY_ORDER, SM80_ANY_ORDER)]
    return [FlashSdpaBackwardPlan(desc, *one) for one in (*chosen, (SM80, little))]


def wrong(desc: FlashSdpaBackwardDescriptor, spread: float = 1.0) -> str | None:
    """What a plan gets wrong with random operands, or None; `spread` multiplies q, and with it the scores."""
    case = fill(FlashSdpaBackwardPlan, desc, np.random.default_rng(desc.query_len))
    case.arrays["q"] = stored(case.arrays["q"].astype(np.float64) * spread, desc.element)
    FlashSdpaBackwardPlan.complete(desc, case.arrays)
    return wrong_plan(case, plans(desc))


def descriptor(queries: int, keys: int, d: int, element: str, **facts: object) -> FlashSdpaBackwardDescriptor:
    sizes = {"batch_size": 1, "num_heads": 2, "num_kv_heads": 1, "d_k": d, "d_v": d} | facts
    return FlashSdpaBackwardDescriptor(query_len=queries, key_len=keys, element=element, **sizes)


@pytest.mark.parametrize("element", HALVES)
@pytest.mark.parametrize("d", [32, 64, 96, 128, 192, 256])
def test_every_head_dim(element: str, d: int) -> None:
    assert wrong(descriptor(131, 270, d, element)) is None
    assert wrong(descriptor(270, 270, d, element, num_heads=1, is_causal=True)) is None


@pytest.mark.parametrize("element", HALVES)
@pytest.mark.parametrize("d", [64, 128, 256])
def test_scores_up_to_a_hundred(element: str, d: int) -> None:
    facts = {"is_causal": True, "causal_alignment": "bottom_right"}
    assert wrong(descriptor(131, 270, d, element, **facts), spread=30) is None
    assert wrong(descriptor(270, 131, d, element, **facts), spread=30) is None  # rows that see nothing


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 127, 128, 129, 1021])
@pytest.mark.parametrize("element", HALVES)
def test_lengths(element: str, length: int) -> None:
    assert wrong(descriptor(length, length, 64, element, is_causal=length % 2 == 1, num_heads=1)) is None


@pytest.mark.parametrize(("d_k", "d_v"), [(17, 72), (80, 8), (40, 33), (256, 1), (200, 250)])
@pytest.mark.parametrize("element", HALVES)
def test_unequal_and_odd_head_dims(element: str, d_k: int, d_v: int) -> None:
    assert wrong(descriptor(150, 297, 0, element, d_k=d_k, d_v=d_v, num_heads=3, scale=-0.3, is_causal=True)) is None


@pytest.mark.parametrize(("queries", "keys"), [(0, 70), (70, 0), (300, 70), (70, 300)])
def test_empty_and_unequal_lengths(queries: int, keys: int) -> None:
    assert wrong(descriptor(queries, keys, 64, "bfloat16", is_causal=True)) is None


def given(d: int, length: int, dtype: str = "float16") -> tuple[list[object], dict[str, object]]:
    """q, k, v, y, lse, dy on the device, two query heads a key head, and the call's facts."""
    import cupy

    rng = np.random.default_rng(d + length)
    q, k, v, dy = (cupy.asarray(rng.standard_normal((3, h, length, d)).astype(dtype)) for h in (4, 2, 2, 4))
    y, lse = flash_sdpa(q, k, v, is_causal=True, return_lse=True)
    return [q, k, v, y, lse, dy], {"is_causal": True}


@pytest.mark.parametrize("preference", [None, SM80])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_alignment_strides_batch_and_repetition_do_not_change_bits(d: int, preference: PlanPreference | None) -> None:
    import cupy

    arrays, facts = given(d, 1155)
    facts["preference"] = preference
    want = flash_sdpa_backward(*arrays, **facts)

    def shifted(a: cupy.ndarray) -> cupy.ndarray:
        room = cupy.empty((a.shape[0], a.shape[2], a.shape[1], a.shape[3] + 1), a.dtype)[..., 1:].swapaxes(1, 2)
        room[...] = a
        return room

    out = tuple(shifted(cupy.zeros_like(x)) for x in want)
    flash_sdpa_backward(*(a if n == 4 else shifted(a) for n, a in enumerate(arrays)), **facts, out=out)
    assert all((a == b).all() for a, b in zip(out, want, strict=True))
    for b in range(3):
        alone = flash_sdpa_backward(*(a[b : b + 1] for a in arrays), **facts)
        assert all((a == w[b : b + 1]).all() for a, w in zip(alone, want, strict=True))
    for _ in range(50):
        assert all((a == b).all() for a, b in zip(flash_sdpa_backward(*arrays, **facts), want, strict=True))


@pytest.mark.parametrize("preference", [None, SM80])
@pytest.mark.parametrize("d", [64, 256])
def test_gradients_alone_are_those_of_all(d: int, preference: PlanPreference | None) -> None:
    arrays, facts = given(d, 515)
    facts["preference"] = preference
    want = dict(zip(("dq", "dk", "dv"), flash_sdpa_backward(*arrays, **facts), strict=True))
    for names in (("dq",), ("dk",), ("dv",), ("dk", "dv"), ("dq", "dv")):
        flags = {f"return_{n}": n in names for n in want}
        got = flash_sdpa_backward(*arrays, **facts, **flags)
        for name, x in zip(names, got if isinstance(got, tuple) else (got,), strict=True):
            assert (x == want[name]).all(), (names, name)


def test_more_blocks_than_run_at_once_on_many_streams() -> None:
    import cupy

    arrays, facts = given(128, 4100)
    want = flash_sdpa_backward(*arrays, **facts)
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    cupy.cuda.Device().synchronize()
    found = [flash_sdpa_backward(*arrays, **facts, stream=s) for s in streams for _ in range(2)]
    cupy.cuda.Device().synchronize()
    assert all((a == b).all() for got in found for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("element", HALVES)
def test_tensor_core_rows_are_taken(element: str) -> None:
    desc = descriptor(128, 128, 64, element)
    assert FlashSdpaBackwardPlan.select(desc).sku.variant in ("mma", "wgmma")
    assert FlashSdpaBackwardPlan.select(desc, SM80).sku.variant == "mma"
    free = FlashSdpaBackwardPlan.select(desc, SM80_ANY_ORDER)
    assert free.sku.variant == "mma_any_order"
    assert not free.precision_guarantee.deterministic
