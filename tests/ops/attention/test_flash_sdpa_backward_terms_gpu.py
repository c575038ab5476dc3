"""flash_sdpa_backward's score terms on a GPU: every row, gradients of masks of any shape, slopes and sinks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from baracuda_py import ArchSku, PlanPreference
from baracuda_py.ops.attention.dense.flash_sdpa import flash_sdpa
from baracuda_py.ops.attention.dense.flash_sdpa_backward import (
    FlashSdpaBackwardDescriptor,
    FlashSdpaBackwardPlan,
    flash_sdpa_backward,
)
from baracuda_py.testing.gpu import wrong_plan
from baracuda_py.testing.reference import evaluate
from terms_cases import BROADCASTS, TERMS, terms_case

pytestmark = pytest.mark.gpu
HALVES = ("float16", "bfloat16")
ELEMENTS = (*HALVES, "float32", "float64")
SIZES = [(element, d) for element in ELEMENTS for d in (64, 128) if d == 64 or element != "float64"]  # in longdouble
SM80 = PlanPreference(max_arch=ArchSku.SM80)
GRADIENTS = ("dq", "dk", "dv", "dmask", "dslopes", "dsinks")


def plans(desc: FlashSdpaBackwardDescriptor) -> list[Any]:
    """One for every row that takes the descriptor's element on this device."""
    if desc.element.itemsize > 2:
        return [FlashSdpaBackwardPlan.select(desc)]
    free = PlanPreference(deterministic=False), PlanPreference(deterministic=False, max_arch=ArchSku.SM80)
    return [FlashSdpaBackwardPlan.select(desc, preference) for preference in (None, SM80, *free)]


def descriptor(queries: int, keys: int, d: int, element: str, **facts: Any) -> FlashSdpaBackwardDescriptor:
    batch = 1 if element == "float64" else 2
    sizes = {"batch_size": batch, "num_heads": 2, "num_kv_heads": 1, "d_k": d, "d_v": d} | facts
    return FlashSdpaBackwardDescriptor(query_len=queries, key_len=keys, element=element, **sizes)


def wrong(desc: FlashSdpaBackwardDescriptor, given: set[str], **how: Any) -> str | None:
    """What any row gets wrong, or None."""
    return wrong_plan(terms_case(FlashSdpaBackwardPlan, desc, given, **how), plans(desc))


@pytest.mark.parametrize(("element", "d"), SIZES)
@pytest.mark.parametrize("term", TERMS)
def test_each_term_and_all(term: str, element: str, d: int) -> None:
    facts, given = TERMS[term]
    assert wrong(descriptor(131, 197, d, element, **facts), given) is None
    assert wrong(descriptor(197, 131, d, element, **facts), given, mask="bool", every_head=True) is None


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize(("d_k", "d_v"), [(32, 32), (80, 96), (192, 150), (256, 256)])
def test_other_head_dims(d_k: int, d_v: int, element: str) -> None:
    facts, given = TERMS["all"]
    assert wrong(descriptor(150, 201, 0, element, d_k=d_k, d_v=d_v, scale=-0.3, **facts), given) is None


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("once", BROADCASTS)
def test_gradients_of_masks_that_broadcast_along_any_axes(once: tuple[bool, ...], element: str) -> None:
    for mask in ("float64",) if element == "float64" else ("float16", "bfloat16", "float32"):
        desc = descriptor(70, 133, 32, element, batch_size=2, num_heads=3, window_right=60)
        assert wrong(desc, {"mask"}, mask=mask, once=once) is None, mask


@pytest.mark.parametrize("element", ["bfloat16", "float32"])
@pytest.mark.parametrize("once", [(True, False, False, False), (True, True, True, True), (False, True, True, False)])
def test_gradients_of_masks_over_many_tiles(once: tuple[bool, ...], element: str) -> None:
    desc = descriptor(500, 700, 32, element, batch_size=3, num_heads=4, dropout_p=0.1)
    assert wrong(desc, {"mask", "slopes", "sinks"}, once=once, every_head=True) is None


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("term", ["band", "slopes", "mask", "sinks", "dropout"])
def test_scores_up_to_a_hundred(term: str, element: str) -> None:
    facts, given = TERMS[term]
    assert wrong(descriptor(131, 197, 64, element, **facts), given, spread=30) is None


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 129, 521])
@pytest.mark.parametrize("element", ["bfloat16", "float32"])
def test_lengths(length: int, element: str) -> None:
    facts, given = TERMS["all"]
    desc = descriptor(length, length, 64, element, **facts | {"batch_size": 1})
    assert wrong(desc, given) is None
    for left, right in ((0, 0), (1, None), (None, 1), (length, length)):
        narrow = {"window_left": left, "window_right": right, "num_heads": 1, "batch_size": 1}
        assert wrong(descriptor(length, length, 64, element, **narrow), set()) is None


@pytest.mark.parametrize(("queries", "keys"), [(0, 70), (70, 0), (150, 20), (20, 150)])
@pytest.mark.parametrize("once", [(False,) * 4, (True, False, True, False), (True,) * 4])
def test_empty_and_unequal_lengths(queries: int, keys: int, once: tuple[bool, ...]) -> None:
    facts, given = TERMS["all"]
    for element in ("bfloat16", "float32"):
        assert wrong(descriptor(queries, keys, 64, element, **facts), given, once=once) is None


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("hidden_by", ["mask", "bool", "left", "right"])
def test_hidden_values_are_not_seen(hidden_by: str, element: str) -> None:
    hidden = slice(140, 197) if hidden_by == "right" else slice(0, 60)
    windows = {"left": {"window_left": 0, "causal_alignment": "bottom_right"}, "right": {"window_right": 0}}
    desc = descriptor(131, 197, 64, element, **windows.get(hidden_by, {}))
    masked = hidden_by not in windows
    case = terms_case(
        FlashSdpaBackwardPlan, desc, {"mask"} if masked else set(), mask="bool" if hidden_by == "bool" else "float32"
    )
    if masked:
        case.arrays["mask"][..., hidden] = False if hidden_by == "bool" else -np.inf
        FlashSdpaBackwardPlan.complete(desc, case.arrays)
    case.arrays["v"][..., hidden, ::3], case.arrays["v"][..., hidden, 1::3] = np.nan, np.inf
    assert all(np.isfinite(value).all() for value in evaluate(case).values())
    assert wrong_plan(case, plans(desc)) is None


def given(length: int, element: str, batch: int = 3) -> tuple[list[Any], dict[str, Any]]:
    """q … dy, mask, slopes and sinks on the device, two query heads a key head, and the call's facts."""
    import cupy

    rng = np.random.default_rng(length)
    q, k, v, dy = (cupy.asarray(rng.standard_normal((batch, h, length, 64)).astype(element)) for h in (4, 2, 2, 4))
    mask = cupy.asarray(rng.standard_normal((batch, 1, length, length)).astype("float16"))
    slopes = cupy.asarray(rng.uniform(0, 0.1, (batch, 4)).astype("float32"))
    sinks = cupy.asarray(rng.standard_normal(4).astype("float32"))
    facts = {"window_left": 200, "window_right": 90, "softcap": 5.0}
    y, lse = flash_sdpa(q, k, v, mask, slopes, sinks, return_lse=True, **facts)
    return [q, k, v, y, lse, dy, mask, slopes, sinks], facts


@pytest.mark.parametrize("preference", [None, SM80])
@pytest.mark.parametrize("element", ["float16", "float32"])
def test_strides_batch_and_repetition_do_not_change_bits(element: str, preference: PlanPreference | None) -> None:
    import cupy

    arrays, facts = given(515, element)
    facts |= {"preference": preference, "return_dmask": True, "return_dslopes": True}
    want = flash_sdpa_backward(*arrays, **facts)
    out = tuple(cupy.zeros_like(x).swapaxes(-1, -2).copy().swapaxes(-1, -2) if n == 3 else cupy.zeros_like(x)
                for n, x in enumerate(want))  # fmt: skip
    flash_sdpa_backward(*arrays, **facts, out=out)
    assert all((a == b).all() for a, b in zip(out, want, strict=True))
    for b in range(3):
        alone = flash_sdpa_backward(*(a[b : b + 1] for a in arrays[:-1]), arrays[-1], **facts)
        assert all((a == w[b : b + 1]).all() for a, w in zip(alone, want, strict=True))
    for _ in range(20):
        assert all((a == b).all() for a, b in zip(flash_sdpa_backward(*arrays, **facts), want, strict=True))


@pytest.mark.parametrize("element", HALVES)
@pytest.mark.parametrize("d", [64, 128, 256])
def test_masks_and_dropout_where_rows_are_whole_pieces(d: int, element: str) -> None:
    for mask in ("bool", "float16", "bfloat16", "float32"):
        assert wrong(descriptor(150, 208, d, element, dropout_p=0.3), {"mask"}, mask=mask) is None, mask


def layouts(mask: Any) -> dict[str, Any]:
    """Views equal to a mask [1, heads, queries, keys]: pieces of 16 bytes or none, any strides."""
    import cupy

    room = cupy.zeros((*mask.shape[:3], mask.shape[3] + 1), mask.dtype)[..., 1:]
    room[...] = mask
    return {
        "dense": mask, "odd": room, "swapped": cupy.ascontiguousarray(mask.swapaxes(2, 3)).swapaxes(2, 3),
        "backwards": cupy.ascontiguousarray(mask[..., ::-1, ::-1])[..., ::-1, ::-1],
    }  # fmt: skip


@pytest.mark.parametrize("preference", [None, SM80])
@pytest.mark.parametrize(("d", "keys"), [(64, 400), (128, 144), (256, 336), (64, 203)])
def test_masks_of_any_element_and_strides_give_the_same_bits(
    d: int, keys: int, preference: PlanPreference | None
) -> None:
    import cupy

    rng = np.random.default_rng(d)
    q, y, dy = (cupy.asarray(rng.standard_normal((2, 2, 301, d)).astype("float16")) for _ in range(3))
    k, v = (cupy.asarray(rng.standard_normal((2, 1, keys, d)).astype("float16")) for _ in range(2))
    lse = cupy.full((2, 2, 301), 7.0, "float32")
    facts = {"preference": preference, "is_causal": True, "scale": -0.1}
    seen = cupy.asarray(rng.random((1, 2, 301, keys)) < 0.8)
    some = cupy.where(seen, cupy.asarray(rng.integers(-8, 8, seen.shape) / 4), -np.inf)  # exact in any element
    for once in (False, True):  # in all rows the same
        if once:
            seen, some = (cupy.broadcast_to(m[:, :1, :1], m.shape) for m in (seen, some))
        for kind, mask, biases in (
            ("bool", seen, cupy.where(seen, 0, -np.inf)), ("float16", some, some), ("float32", some, some),
        ):  # fmt: skip
            want = flash_sdpa_backward(q, k, v, y, lse, dy, biases.astype("float32"), **facts)
            for name, view in layouts(mask.astype(kind)).items():
                got = flash_sdpa_backward(q, k, v, y, lse, dy, view[:, :1, :1] if once else view, **facts)
                assert all((a == b).all() for a, b in zip(got, want, strict=True)), (kind, name, once)


@pytest.mark.parametrize("preference", [None, SM80])
@pytest.mark.parametrize("element", ["float16", "float32"])
def test_gradients_alone_are_those_of_all(element: str, preference: PlanPreference | None) -> None:
    arrays, facts = given(259, element)
    facts["preference"] = preference

    def call(names: tuple[str, ...]) -> dict[str, Any]:
        got = flash_sdpa_backward(*arrays, **facts, **{f"return_{n}": n in names for n in GRADIENTS})
        return dict(zip(names, got if isinstance(got, tuple) else (got,), strict=True))

    want = call(GRADIENTS)
    for names in (*((name,) for name in GRADIENTS), ("dv", "dmask"), ("dq", "dslopes", "dsinks")):
        for name, x in call(names).items():
            assert (x == want[name]).all(), (names, name)
