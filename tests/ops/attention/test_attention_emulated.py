"""Tensor-core attention at head_dims and with terms that drawn problems are too small for, on the emulator."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from baracuda_py import (
    BatchPagedPrefillPlan, BatchRaggedPrefillPlan, FlashSdpaBackwardPlan, FlashSdpaPlan, FlashSdpaVarlenBackwardPlan,
    FlashSdpaVarlenPlan, PlanPreference,
)  # fmt: skip
from baracuda_py.core.plan import Plan
from baracuda_py.testing import emulate, emulated_device, fill, operands
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.reference import evaluate

pytestmark = pytest.mark.usefixtures("emulation")

CAUSAL = {"is_causal": True, "query_len": 200, "key_len": 200, "num_heads": 4, "num_kv_heads": 2}
WINDOW = {"query_len": 300, "key_len": 260, "window_left": 70, "window_right": 9}
CAPPED = {"is_causal": True, "query_len": 190, "key_len": 140, "num_heads": 2, "softcap": 5.0, "slopes": True}
MASKED = {"query_len": 130, "key_len": 150, "mask": True}
DROPPED = {"query_len": 130, "key_len": 150, "dropout_p": 0.3}
LSE = [{"dlse": True, **facts} for facts in (CAUSAL, CAPPED, DROPPED | {"is_causal": True})]
SHIFTED = [
    {"is_causal": True}, {"is_causal": True, "query_len": 150}, {"is_causal": True, "key_len": 150},
    {"is_causal": True, "query_len": 150, "causal_alignment": "bottom_right"},
    {"is_causal": True, "key_len": 150, "causal_alignment": "bottom_right"},
    {"is_causal": True, "window_left": 100},
]  # fmt: skip
PACKED = {"batch_size": 5, "total_q": 300, "total_k": 280, "max_seqlen_q": 200, "max_seqlen_k": 190}
FIELDS = {"batch_size": 1, "num_heads": 2, "num_kv_heads": 2}
ONE_HEAD = {"batch_size": 1, "num_heads": 1, "num_kv_heads": 1}
OPTIONAL = (
    "mask", "slopes", "sinks", "dlse", "dmask", "dslopes", "dsinks", "page_table", "lengths", "mask_bits",
    "mask_indptr",
)  # fmt: skip


def check(
    plan: type[Plan], d: tuple[int, int], facts: dict[str, Any], element: str, any_order: bool = False, sms: int = 132
) -> None:
    facts = FIELDS | facts
    present = {name: bool(facts.pop(name, False)) for name in OPTIONAL}
    desc = plan.descriptor(d_k=d[0], d_v=d[1], scale=d[0] ** -0.5, element=element, **facts)
    case = fill(plan, desc, np.random.default_rng(sum(d)), present)
    device = replace(emulated_device(9.0), sms=sms)
    chosen = plan.select(desc, PlanPreference(deterministic=not any_order), device=device)
    emulate(chosen, operands(case))


@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("facts", [CAUSAL, WINDOW, CAPPED, MASKED, DROPPED], ids=lambda f: "-".join(f))
@pytest.mark.parametrize("any_order", [False, True])
def test_backward(d: int, facts: dict[str, Any], any_order: bool) -> None:
    check(FlashSdpaBackwardPlan, (d, d), facts, "bfloat16", any_order)


@pytest.mark.parametrize("cc", [8.0, 8.6])
@pytest.mark.parametrize("plan", [FlashSdpaBackwardPlan, FlashSdpaVarlenBackwardPlan])
@pytest.mark.parametrize("any_order", [False, True])
def test_backward_past_256(plan: type[Plan], cc: float, any_order: bool) -> None:
    sizes = (
        {"batch_size": 3, "total_q": 70, "total_k": 60} if plan is FlashSdpaVarlenBackwardPlan else {"batch_size": 1}
    )
    sizes |= {"query_len": 70, "key_len": 60} if plan is FlashSdpaBackwardPlan else {}
    desc = plan.descriptor(
        **sizes, num_heads=2, num_kv_heads=1, d_k=512, d_v=400, is_causal=True, scale=0.05, element="bfloat16"
    )
    case = fill(plan, desc, np.random.default_rng(int(cc)), dict.fromkeys(OPTIONAL, False))
    chosen = plan.select(desc, PlanPreference(deterministic=not any_order), device=emulated_device(cc))
    emulate(chosen, operands(case))


@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("facts", LSE, ids=lambda f: "-".join(f))
def test_backward_through_the_lse(d: int, facts: dict[str, Any]) -> None:
    check(FlashSdpaBackwardPlan, (d, d), facts, "bfloat16")


@pytest.mark.parametrize("cc", [8.0, 9.0])
@pytest.mark.parametrize(("growth", "dropout_p"), [(1.0, 0.3), (1500.0, 0.0), (40000.0, 0.3)])
def test_a_key_with_all_of_its_row_has_the_gradient_of_its_lse(cc: float, growth: float, dropout_p: float) -> None:
    """ds is dlse there: dropout leaves it, and so do scores as large as floats of them still are differences."""
    rng = np.random.default_rng(5)
    sizes = ONE_HEAD | {"query_len": 70, "key_len": 70, "d_k": 64, "d_v": 64, "window_left": 0}
    desc = FlashSdpaBackwardPlan.descriptor(
        **sizes, is_causal=True, scale=growth, dropout_p=dropout_p, element="bfloat16"
    )
    present = dict.fromkeys(OPTIONAL, False) | {"dlse": True}
    case = fill(FlashSdpaBackwardPlan, desc, rng, present)
    case.arrays["q"][:] = case.arrays["k"][:] = 1 / 8  # q k = 1
    FlashSdpaBackwardPlan.complete(desc, case.arrays)
    found = evaluate(case)
    np.testing.assert_allclose(
        found["dq"][0, 0], np.outer(case.arrays["dlse"][0, 0], np.full(64, growth / 8)), rtol=0.05, atol=0.05 * growth
    )
    emulate(FlashSdpaBackwardPlan.select(desc, device=emulated_device(cc)), operands(case))


@pytest.mark.parametrize("sms", [2, 132])
@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("facts", SHIFTED, ids=lambda f: "-".join(f))
def test_backward_under_a_diagonal_of_any_place(d: int, facts: dict[str, Any], sms: int) -> None:
    """Three tiles of keys and more, the last not full, and more than one beyond lengths of 150. Blocks take tiles of
    one batch after those of another where there are few of them; else each has one tile, and a batch is enough."""
    heads = {"batch_size": 2 if sms == 2 else 1, "num_heads": 6, "num_kv_heads": 3}  # of three key heads two may go up
    n = 330 if d < 256 else 230  # tiles of 128 keys, and of 64
    check(FlashSdpaBackwardPlan, (d, d), {"query_len": n, "key_len": n} | heads | facts, "bfloat16", sms=sms)


@pytest.mark.parametrize("any_order", [False, True])
@pytest.mark.parametrize("d", [(48, 3), (3, 64), (112, 67), (67, 128), (240, 195), (195, 256)])
def test_backward_waits_for_what_it_copies_where_one_operand_is_aligned(d: tuple[int, int], any_order: bool) -> None:
    check(FlashSdpaBackwardPlan, d, {"query_len": 130, "key_len": 130}, "float16", any_order)


@pytest.mark.parametrize("d", [48, 64, 112, 128])
@pytest.mark.parametrize(
    "where", [Placement("padded", pads=(0, 0, 0, 16)), Placement("permuted", (0, 2, 1, 3))], ids=lambda w: w.name
)
def test_gradients_between_rows_of_others(d: int, where: Placement) -> None:
    """Rows of 48 and 112 with 16 between them are as far apart as whole rows of the kernels for 64 and 128 are."""
    heads = {"batch_size": 1, "num_heads": 2, "num_kv_heads": 2, "query_len": 150, "key_len": 300}
    desc = FlashSdpaBackwardPlan.descriptor(d_k=d, d_v=d, scale=d**-0.5, element="bfloat16", **heads)
    ready = operands(fill(FlashSdpaBackwardPlan, desc, np.random.default_rng(d), dict.fromkeys(OPTIONAL, False)))
    for name in ("dq", "dk", "dv"):
        ready.laid[name] = lay_out(np.empty_like(ready.laid[name].view), where)
    emulate(FlashSdpaBackwardPlan.select(desc, device=replace(emulated_device(9.0), sms=3)), ready)


@pytest.mark.parametrize("d", [192, 256, 512])
@pytest.mark.parametrize("facts", [CAUSAL, WINDOW, CAPPED, MASKED], ids=lambda f: "-".join(f))
def test_forward(d: int, facts: dict[str, Any]) -> None:
    check(FlashSdpaPlan, (d, d), facts, "float16")


@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("facts", [{}, {"softcap": 5.0}, {"mask": True}], ids=lambda f: "-".join(f) or "plain")
def test_tiles_of_queries_that_see_no_key(d: int, facts: dict[str, Any]) -> None:
    """Their outputs leave by way of where the queries are copied, which nothing else waits for there."""
    sizes = {"query_len": 330, "key_len": 140, "is_causal": True, "causal_alignment": "bottom_right"}
    check(FlashSdpaPlan, (d, d), sizes | facts, "bfloat16")


@pytest.mark.parametrize("d", [64, 128, 256])
def test_a_soft_cap_far_below_zero(d: int) -> None:
    """tanh of the keys walked later is above that of the first by less than their arguments, but by 2^200 in weight."""
    desc = FlashSdpaPlan.descriptor(
        query_len=64, key_len=256, d_k=d, d_v=d, scale=0.25, softcap=4000.0, element="float16", **FIELDS
    )
    case = fill(FlashSdpaPlan, desc, np.random.default_rng(d), dict.fromkeys(OPTIONAL, False))
    case.arrays["q"][...] = 4.0
    case.arrays["k"][...] = -0.549 * 4000 / d
    case.arrays["k"][:, :, :128] = -0.505 * 4000 / d
    emulate(FlashSdpaPlan.select(desc, device=emulated_device(9.0)), operands(case))


@pytest.mark.parametrize("element", ["float16", "bfloat16"])
@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize(("growth", "steps"), [(12, 2), (40, 2), (110, 2), (125, 1), (200, 2)])
@pytest.mark.parametrize("facts", [{}, {"window_left": 150, "window_right": 40}], ids=["full", "window"])
def test_scores_that_grow(d: int, element: str, growth: int, steps: int, facts: dict[str, Any]) -> None:
    """Tiles walked later have weights 2^growth times those before: beyond float16's room, bfloat16's, a float's."""
    desc = FlashSdpaPlan.descriptor(
        query_len=200, key_len=500, d_k=d, d_v=d, scale=1.0, element=element, **ONE_HEAD | facts
    )
    case = fill(FlashSdpaPlan, desc, np.random.default_rng(growth), dict.fromkeys(OPTIONAL, False))
    q, k = case.arrays["q"], case.arrays["k"]
    tile = 128 if d == 128 else 64
    rise = np.minimum((499 - np.arange(500)) // tile + (500 % tile > 0), steps)
    rise[500 // tile * tile :] = 0
    q[...] *= np.asarray(0.1, q.dtype)
    q[..., 0] = 8.0
    k[..., 0] = (rise * growth * math.log(2) / 8.0).astype(k.dtype)
    emulate(FlashSdpaPlan.select(desc, device=replace(emulated_device(9.0), sms=1)), operands(case))


@pytest.mark.parametrize("sink", [-300.0, 60.0])
@pytest.mark.parametrize("d", [128, 256])
def test_sinks_far_from_the_scores(d: int, sink: float) -> None:
    desc = FlashSdpaPlan.descriptor(
        query_len=200, key_len=300, d_k=d, d_v=d, scale=d**-0.5, window_left=100, element="bfloat16", **FIELDS
    )
    present = dict.fromkeys(OPTIONAL, False) | {"sinks": True}
    case = fill(FlashSdpaPlan, desc, np.random.default_rng(d), present)
    case.arrays["sinks"][...] = sink
    emulate(FlashSdpaPlan.select(desc, device=emulated_device(9.0)), operands(case))


@pytest.mark.parametrize("d", [128, 256])
@pytest.mark.parametrize("length", [100, 300])
@pytest.mark.parametrize("facts", [{}, {"is_causal": True}, {"window_left": 70}], ids=lambda f: "-".join(f) or "full")
def test_blocks_that_stay(d: int, length: int, facts: dict[str, Any]) -> None:
    check(FlashSdpaPlan, (d, d), facts | {"query_len": length, "key_len": length, "num_heads": 6}, "bfloat16", sms=2)


@pytest.mark.parametrize("plan", [FlashSdpaVarlenPlan, FlashSdpaVarlenBackwardPlan])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_blocks_that_stay_with_packed_sequences(plan: type[Plan], d: int) -> None:
    check(plan, (d, d), PACKED | {"is_causal": True, "num_heads": 4}, "bfloat16", sms=2)


PACKED_TERMS = [
    {"is_causal": True, "softcap": 5.0, "slopes": True, "sinks": True, "dsinks": True},
    {"dropout_p": 0.3, "slopes": True, "sinks": True, "dsinks": True}, {"total_k": 281, "dropout_p": 0.3},
]  # fmt: skip


@pytest.mark.parametrize("plan", [FlashSdpaVarlenPlan, FlashSdpaVarlenBackwardPlan])
@pytest.mark.parametrize("d", [64, 128, 256])
@pytest.mark.parametrize("facts", PACKED_TERMS, ids=lambda f: "-".join(f))
def test_terms_of_packed_sequences(plan: type[Plan], d: int, facts: dict[str, Any]) -> None:
    """Blocks that stay go from one sequence to another, of another length and other slopes."""
    check(plan, (d, d), PACKED | {"num_heads": 4} | facts, "bfloat16", sms=2)


@pytest.mark.parametrize("d", [64, 128])
def test_terms_over_pages(d: int) -> None:
    packed = {"batch_size": 4, "total_q": 150, "num_pages": 40, "page_size": 16, "max_pages": 9, "softcap": 5.0}
    facts = {"is_causal": True, "page_table": True, "lengths": True, "slopes": True, "sinks": True}
    check(BatchPagedPrefillPlan, (d, d), packed | facts, "bfloat16", sms=2)
    bits = {"mask_bytes": 3000, "mask_bits": True, "mask_indptr": True}
    check(BatchPagedPrefillPlan, (d, d), packed | facts | bits, "bfloat16")


@pytest.mark.parametrize(("cc", "d", "element"), [(9.0, 64, "float16"), (8.0, 64, "float16"), (8.0, 8, "float32")])
def test_keys_that_bits_hide_may_hold_anything(cc: float, d: int, element: str) -> None:
    desc = BatchRaggedPrefillPlan.descriptor(
        batch_size=2, total_q=75, total_k=131, mask_bytes=1300, num_heads=2, d_k=d, d_v=d, element=element
    )
    case = fill(BatchRaggedPrefillPlan, desc, np.random.default_rng(0), {"slopes": False, "sinks": False})
    arrays = case.arrays
    arrays["qo_indptr"][...], arrays["kv_indptr"][...] = (0, 5, 75), (0, 0, 131)
    mask = np.random.default_rng(1).random((70, 131)) < 0.6
    mask[:, [7, 128]] = mask[3] = False
    arrays["mask_bits"][...], arrays["mask_indptr"][...] = 0, (0, 100, 0)
    bits = np.packbits(mask, bitorder="little")
    arrays["mask_bits"][100 : 100 + len(bits)] = bits
    arrays["k"][[7, 128]], arrays["v"][[7, 128]] = np.nan, np.inf
    emulate(BatchRaggedPrefillPlan.select(desc, device=emulated_device(cc)), operands(case))


def test_packed_sequences_too_long_for_their_keys_to_go_up() -> None:
    """Keys of a key head of 32 heads go up from the diagonal where up to 96 queries of 256 elements are above them."""
    desc = FlashSdpaVarlenBackwardPlan.descriptor(
        batch_size=2, total_q=130, total_k=130, max_seqlen_q=100, max_seqlen_k=100, num_heads=64, num_kv_heads=2,
        d_k=256, d_v=256, is_causal=True, element="bfloat16",
    )  # fmt: skip
    case = fill(FlashSdpaVarlenBackwardPlan, desc, np.random.default_rng(0))
    for bounds in ("cu_seqlens_q", "cu_seqlens_k"):
        case.arrays[bounds][...] = (0, 100, 130)
    FlashSdpaVarlenBackwardPlan.complete(desc, case.arrays)
    device = replace(emulated_device(9.0), sms=2)
    emulate(FlashSdpaVarlenBackwardPlan.select(desc, device=device), operands(case))


@pytest.mark.parametrize("plan", [FlashSdpaVarlenPlan, FlashSdpaVarlenBackwardPlan])
@pytest.mark.parametrize("any_order", [False, True])
@pytest.mark.parametrize("d", [128, 256])
def test_packed(plan: type[Plan], d: int, any_order: bool) -> None:
    check(plan, (d, d), PACKED | {"is_causal": True, "num_heads": 4}, "bfloat16", any_order)
