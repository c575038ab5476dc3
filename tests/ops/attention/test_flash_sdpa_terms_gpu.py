"""flash_sdpa's score terms on a GPU: every row, mask broadcasts and strides, large scores, hidden keys that are NaN."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from baracuda_py import ArchSku, PlanPreference
from baracuda_py.ops.attention.dense.flash_sdpa import FlashSdpaDescriptor, FlashSdpaPlan, flash_sdpa
from baracuda_py.ops.attention.dense.flash_sdpa_sm89 import FlashSdpaSm89Plan
from baracuda_py.testing.gpu import wrong_plan
from baracuda_py.testing.reference import evaluate
from terms_cases import BROADCASTS, TERMS, terms_case

pytestmark = pytest.mark.gpu
HALVES = ("float16", "bfloat16")
ELEMENTS = (*HALVES, "float32", "float64")
SIZES = [(element, d) for element in ELEMENTS for d in (64, 128) if d == 64 or element != "float64"]  # in longdouble
SM80 = PlanPreference(max_arch=ArchSku.SM80)


def plans(desc: FlashSdpaDescriptor) -> list[Any]:
    """One for every row that takes the descriptor's element on this device."""
    if desc.element.itemsize > 2:
        return [FlashSdpaPlan.select(desc)]
    return [FlashSdpaPlan.select(desc), FlashSdpaPlan.select(desc, SM80), FlashSdpaSm89Plan.select(desc)]


def descriptor(queries: int, keys: int, d: int, element: str, **facts: Any) -> FlashSdpaDescriptor:
    batch = 1 if element == "float64" else 2
    sizes = {"batch_size": batch, "num_heads": 2, "num_kv_heads": 1, "d_k": d, "d_v": d} | facts
    return FlashSdpaDescriptor(query_len=queries, key_len=keys, element=element, **sizes)


def wrong(desc: FlashSdpaDescriptor, given: set[str], **how: Any) -> str | None:
    """What any row gets wrong, or None."""
    return wrong_plan(terms_case(FlashSdpaPlan, desc, given, **how), plans(desc))


@pytest.mark.parametrize(("element", "d"), SIZES)
@pytest.mark.parametrize("term", TERMS)
def test_each_term_and_all(term: str, element: str, d: int) -> None:
    facts, given = TERMS[term]
    assert wrong(descriptor(131, 270, d, element, **facts), given) is None
    assert wrong(descriptor(270, 131, d, element, **facts), given, mask="bool", every_head=True) is None


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize(("d_k", "d_v"), [(32, 32), (80, 96), (192, 150), (256, 256)])
def test_other_head_dims(d_k: int, d_v: int, element: str) -> None:
    facts, given = TERMS["all"]
    assert wrong(descriptor(150, 201, 0, element, d_k=d_k, d_v=d_v, scale=-0.3, **facts), given) is None


@pytest.mark.parametrize("element", ["float16", "float32"])
@pytest.mark.parametrize("once", BROADCASTS)
def test_masks_broadcast_along_any_axes(once: tuple[bool, ...], element: str) -> None:
    for mask in ("bool", "float16", "bfloat16", "float32"):
        assert wrong(descriptor(70, 133, 64, element), {"mask"}, mask=mask, once=once) is None


@pytest.mark.parametrize("element", HALVES)
@pytest.mark.parametrize("mask", ["bool", "float16", "bfloat16", "float32"])
@pytest.mark.parametrize("once", [(False,) * 4, (False, True, True, False), (True, False, False, False)])
def test_masks_of_aligned_rows(once: tuple[bool, ...], mask: str, element: str) -> None:
    """Five tiles of keys whose masks are loaded 16 bytes at a time, and one that is not whole."""
    for d in (32, 64, 128, 256):
        assert wrong(descriptor(131, 336, d, element), {"mask"}, mask=mask, once=once) is None


@pytest.mark.parametrize("element", HALVES)
@pytest.mark.parametrize("keys", [320, 321, 322, 324])
@pytest.mark.parametrize("facts", [{}, {"is_causal": True}])
def test_dropout_wherever_blocks_of_the_stream_begin(facts: dict[str, Any], keys: int, element: str) -> None:
    for d in (64, 128, 192, 256):
        assert wrong(descriptor(131, keys, d, element, dropout_p=0.3, **facts), set()) is None


@pytest.mark.parametrize("element", [*HALVES, "float32"])
@pytest.mark.parametrize("keys", [320, 333])
@pytest.mark.parametrize("mask", ["bfloat16", "float32"])
def test_the_lowest_biases_hide_nothing(mask: str, keys: int, element: str) -> None:
    """Rows of nothing but the lowest finite number, of that and -inf, and of that and others."""
    desc = descriptor(131, keys, 64, element)
    case = terms_case(FlashSdpaPlan, desc, {"mask"}, mask=mask)
    lowest = -3.3895313892515355e38
    case.arrays["mask"][..., 3:9, :] = lowest
    case.arrays["mask"][..., 5, ::2] = -np.inf
    case.arrays["mask"][..., 7, 64:] = 1.0
    case.arrays["mask"][..., 8, :128] = 1.0
    assert wrong_plan(case, plans(desc)) is None


def test_masks_in_double() -> None:
    assert wrong(descriptor(70, 133, 64, "float64"), {"mask"}, mask="float64") is None


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("term", ["band", "slopes", "mask", "sinks", "dropout"])
def test_scores_up_to_a_hundred(term: str, element: str) -> None:
    facts, given = TERMS[term]
    assert wrong(descriptor(131, 270, 64, element, **facts), given, spread=30) is None


@pytest.mark.parametrize("element", HALVES)
@pytest.mark.parametrize("softcap", [20.0, 50.0, 400.0])
@pytest.mark.parametrize("spread", [1, 8, 30])
def test_soft_caps_of_small_scores_and_large(spread: float, softcap: float, element: str) -> None:
    """Small ones beside a row that is not small in all are where a polynomial stands for tanh."""
    band = {"window_left": 100, "window_right": 20, "causal_alignment": "bottom_right"}
    for d in (64, 128, 256):
        for facts, given in (({}, set()), ({"is_causal": True}, {"sinks"}), (band, set()), (band, {"slopes"})):
            desc = descriptor(131, 470, d, element, softcap=softcap, **facts)
            assert wrong(desc, given, spread=spread) is None, (d, facts, given)


@pytest.mark.parametrize("element", HALVES)
@pytest.mark.parametrize("softcap", [30.0, 50.0])
@pytest.mark.parametrize("spread", [2, 5, 20])
def test_soft_caps_where_most_scores_are_low(spread: float, softcap: float, element: str) -> None:
    """All scores far below zero; then a few keys that are not, in the tiles that are seen last and first."""
    desc = descriptor(131, 470, 64, element, softcap=softcap)
    case = terms_case(FlashSdpaPlan, desc, set(), spread=spread)
    case.arrays["q"], case.arrays["k"] = abs(case.arrays["q"]), -abs(case.arrays["k"])
    assert wrong_plan(case, plans(desc)) is None
    case.arrays["k"][..., 7, :] *= -0.5
    case.arrays["k"][..., 450, ::2] *= -1
    assert wrong_plan(case, plans(desc)) is None


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("facts", [{}, {"softcap": 30.0}, {"is_causal": True, "causal_alignment": "bottom_right"}])
def test_slopes_so_steep_that_each_tile_outweighs_the_one_before(facts: dict[str, Any], element: str) -> None:
    for d in (64, 128, 256):
        desc = descriptor(131, 470, d, element, **facts)
        case = terms_case(FlashSdpaPlan, desc, {"slopes"}, every_head=True)
        case.arrays["slopes"][:] = 0.3, 1.5
        outputs = replace(case, wanted=frozenset({"y"}))  # an lse near 0 is what is left of scores around 100
        assert wrong_plan(outputs, plans(desc)) is None, d


@pytest.mark.parametrize("element", HALVES)
@pytest.mark.parametrize("facts", [{}, {"is_causal": True, "causal_alignment": "bottom_right"}])
def test_tiles_of_ever_higher_and_ever_lower_scores(facts: dict[str, Any], element: str) -> None:
    """What a row's base must follow, in either direction of the walk over the keys."""
    rise = np.linspace(0, 12, 470)
    for d in (64, 128, 256):
        for size in (rise, rise[::-1], np.repeat((0, 9, 3, 12, 0), 94)):
            desc = descriptor(131, 470, d, element, **facts)
            case = terms_case(FlashSdpaPlan, desc, set())
            keys = case.arrays["k"].astype(np.float64) * size[:, None]
            case.arrays["k"] = keys.astype(case.arrays["k"].dtype)
            assert wrong_plan(case, plans(desc)) is None, d


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 129, 1021])
@pytest.mark.parametrize("element", ["bfloat16", "float32"])
def test_lengths(length: int, element: str) -> None:
    facts, given = TERMS["all"]
    desc = descriptor(length, length, 64, element, **facts | {"batch_size": 1, "num_heads": 2, "num_kv_heads": 1})
    assert wrong(desc, given) is None
    for left, right in ((0, 0), (1, None), (None, 1), (length, length)):
        narrow = {"window_left": left, "window_right": right, "num_heads": 1, "num_kv_heads": 1}
        assert wrong(descriptor(length, length, 64, element, **narrow), set()) is None


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("hidden_by", ["mask", "bool", "left", "right"])
def test_hidden_keys_and_values_are_not_seen(hidden_by: str, element: str) -> None:
    hidden = slice(200, 270) if hidden_by == "right" else slice(0, 70)
    windows = {"left": {"window_left": 0, "causal_alignment": "bottom_right"}, "right": {"window_right": 0}}
    desc = descriptor(131, 270, 64, element, **windows.get(hidden_by, {}))
    masked = hidden_by not in windows
    case = terms_case(
        FlashSdpaPlan, desc, {"mask"} if masked else set(), mask="bool" if hidden_by == "bool" else "float32"
    )
    if masked:
        case.arrays["mask"][..., hidden] = False if hidden_by == "bool" else -np.inf
    case.arrays["k"][..., hidden, ::3] = np.nan
    case.arrays["v"][..., hidden, ::3], case.arrays["v"][..., hidden, 1::3] = np.nan, np.inf
    assert all(np.isfinite(value[value != -np.inf]).all() for value in evaluate(case).values())
    assert wrong_plan(case, plans(desc)) is None


@pytest.mark.parametrize("element", ["float16", "float32"])
@pytest.mark.parametrize("preference", [None, SM80])
def test_masks_of_any_strides_give_one_result(element: str, preference: PlanPreference | None) -> None:
    import cupy

    rng = np.random.default_rng(5)
    q, k, v = (cupy.asarray(rng.standard_normal((2, 3, 150, 64)).astype(element)) for _ in range(3))
    mask = cupy.asarray(rng.standard_normal((2, 3, 150, 150)).astype("float16"))
    want = flash_sdpa(q, k, v, mask, preference=preference)
    views = [
        cupy.ascontiguousarray(mask.transpose(3, 1, 0, 2)).transpose(2, 1, 3, 0),
        cupy.ascontiguousarray(mask[:, :, ::-1, ::-1])[:, :, ::-1, ::-1],
        cupy.concatenate([mask, mask], axis=3)[..., :150],
    ]
    for view in views:
        assert (flash_sdpa(q, k, v, view, preference=preference) == want).all()
    one = mask[:, :1, :, :1]
    spread = cupy.broadcast_to(one, mask.shape)
    assert (flash_sdpa(q, k, v, spread, preference=preference) == flash_sdpa(q, k, v, one, preference=preference)).all()


@pytest.mark.parametrize("element", ["float16", "float32"])
@pytest.mark.parametrize("preference", [None, SM80])
def test_a_batch_alone_is_the_same_in_a_batch(element: str, preference: PlanPreference | None) -> None:
    import cupy

    rng = np.random.default_rng(6)
    q, k, v = (cupy.asarray(rng.standard_normal((3, 2, 150, 64)).astype(element)) for _ in range(3))
    mask = cupy.asarray(rng.standard_normal((3, 1, 150, 150)).astype(element))
    slopes, sinks = cupy.asarray(np.float32([[0.1, 0.02]] * 3)), cupy.asarray(np.float32([0.5, -1]))
    facts = {"window_left": 60, "window_right": 7, "softcap": 5.0, "preference": preference}
    want = flash_sdpa(q, k, v, mask, slopes, sinks, **facts)
    for b in range(3):
        own = slice(b, b + 1)
        assert (flash_sdpa(q[own], k[own], v[own], mask[own], slopes[own], sinks, **facts) == want[own]).all()
    dropped = {"dropout_p": 0.25, "seed": 3, "offset": 9} | facts
    again = flash_sdpa(q, k, v, mask, slopes, sinks, **dropped)
    assert (again == flash_sdpa(q, k, v, mask, slopes, sinks, **dropped)).all()
    assert (again != flash_sdpa(q, k, v, mask, slopes, sinks, **dropped | {"offset": 10})).any()


@pytest.mark.parametrize("element", ELEMENTS)
def test_dropout_leaves_exactly_the_weights_of_the_stream(element: str) -> None:
    """With the identity for values and equal scores a row of y is its weights."""
    import cupy

    from baracuda_py.ops.random.philox import philox_uniform

    keys, p, seed, offset = 128, 0.4, 12345678901, 2**33 + 1
    q, k = cupy.zeros((2, 2, 67, 16), element), cupy.zeros((2, 2, keys, 16), element)
    v = cupy.broadcast_to(cupy.eye(keys, dtype=element), (2, 2, keys, keys))
    kept = (philox_uniform(seed, offset, 2 * 2 * 67 * keys) >= p).reshape(2, 2, 67, keys)
    for preference in (None, SM80):
        facts = {"dropout_p": p, "seed": seed, "offset": offset, "preference": preference}
        assert ((flash_sdpa(q, k, v, **facts) > 0).get() == kept).all()
