"""Masks of every layout class, forward and backward, on every row.

Which axes broadcast, whole and partial tiles, whether rows are whole 16-byte pieces, what elements they have.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from attention_rows import ANY, Row
from baracuda_py import ArchSku, FlashSdpaBackwardPlan, FlashSdpaPlan, PlanPreference
from baracuda_py.testing import emulate, emulated_device, operands
from baracuda_py.testing.layouts import Placement, lay_out
from baracuda_py.testing.operands import Operands
from terms_cases import BROADCASTS, terms_case

# Of 80 queries or keys the last tile is partial, of 128 it is whole; rows of 131 elements are no whole 16-byte pieces.
FACTORS: dict[str, tuple[Any, ...]] = {
    "plan": (FlashSdpaBackwardPlan, FlashSdpaPlan), "b": (False, True), "h": (False, True), "q": (False, True),
    "k": (False, True), "queries": (80, 128), "keys": (80, 128, 131), "kind": ("bool", "half", "float32"),
    "offset": (False, True), "group": (1, 2), "row": tuple(ANY),
}  # fmt: skip
Chosen = dict[str, Any]
# A mask that all queries share, staged once for all tiles: what it takes to meet every way of staging it.
SHARED = [
    dict(zip(FACTORS, (FlashSdpaBackwardPlan, True, h, True, False, n, 80, kind, False, 1 + h, "wgmma"), strict=True))
    for kind in FACTORS["kind"]
    for h, n in ((False, 80), (True, 80), (True, 128))
]


def covering() -> list[Chosen]:
    """SHARED, and few choices more with which every pair of values of two factors is met: greedy, in a fixed order."""
    rng = np.random.default_rng(0)
    names = list(FACTORS)
    left = {
        frozenset({(a, x), (b, y)}) for a, b in itertools.combinations(names, 2) for x in FACTORS[a] for y in FACTORS[b]
    }
    made = list(SHARED)
    left -= {pair for chosen in made for pair in _pairs(chosen)}
    while left:
        wanted = dict(min(left, key=lambda pair: sorted(map(str, pair))))  # one that is not met, and more with it
        tries = [{n: wanted.get(n, FACTORS[n][rng.integers(len(FACTORS[n]))]) for n in names} for _ in range(40)]
        best = max(tries, key=lambda t: len(left & set(_pairs(t))))
        left -= set(_pairs(best))
        made.append(best)
    return made


def _pairs(chosen: Chosen) -> list[frozenset[Any]]:
    return [frozenset(pair) for pair in itertools.combinations(chosen.items(), 2)]


def ready(chosen: Chosen) -> Operands:
    plan, element = chosen["plan"], "float32" if chosen["row"] == "simt" else "bfloat16"
    sizes = {"batch_size": 2, "num_heads": 2, "num_kv_heads": 2 // chosen["group"], "d_k": 64, "d_v": 64}
    desc = plan.descriptor(query_len=chosen["queries"], key_len=chosen["keys"], scale=0.125, element=element, **sizes)
    kind = {"half": "bfloat16" if chosen["queries"] == 80 else "float16"}.get(chosen["kind"], chosen["kind"])
    once = tuple(chosen[axis] for axis in "bhqk")
    given = operands(terms_case(plan, desc, {"mask"}, mask=kind, once=once))
    if chosen["offset"]:
        mask = np.array(given.laid["mask"].view)
        given.laid["mask"] = lay_out(mask, Placement("offset", offset=1))
    return given


def name(chosen: Chosen) -> str:
    once = "".join("1" if chosen[axis] else axis for axis in "bhqk")
    where = "offset" if chosen["offset"] else "aligned"
    return "-".join(map(str, (chosen["plan"].op.split("_")[-1], chosen["row"], once, chosen["queries"], chosen["keys"],
                              chosen["kind"], where, chosen["group"])))  # fmt: skip


def preference(row: Row) -> PlanPreference:
    return PlanPreference(deterministic=not row.any_order, max_arch=ArchSku.SM80 if row.cc == 8.0 else None)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("chosen", covering(), ids=name)
def test_pairs_of_layouts(chosen: Chosen) -> None:
    row = ANY[chosen["row"]]
    given = ready(chosen)
    emulate(chosen["plan"].select(given.case.desc, preference(row), device=emulated_device(row.cc)), given)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", FACTORS["kind"])
@pytest.mark.parametrize("axes", BROADCASTS, ids=lambda axes: "".join("01"[x] for x in axes))
@pytest.mark.parametrize("plan", FACTORS["plan"], ids=lambda p: p.__name__)
def test_all_layouts(plan: Any, axes: tuple[bool, ...], kind: str) -> None:
    from baracuda_py.testing.gpu import wrong_plan

    free = ("queries", "keys", "offset", "group")
    for values in itertools.product(*(FACTORS[name] for name in free)):
        for rows in (("simt",), tuple(row for row in ANY if row != "simt")):  # of one element
            chosen = dict(zip(free, values, strict=True)) | dict(zip("bhqk", axes, strict=True))
            given = ready(chosen | {"plan": plan, "kind": kind, "row": rows[0]})
            plans = [plan.select(given.case.desc, preference(ANY[row])) for row in rows]
            assert wrong_plan(given, plans) is None, chosen
