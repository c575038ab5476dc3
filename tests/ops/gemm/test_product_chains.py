"""Long sums in one chain: products and the losses of a linear layer keep their bounds in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from call_emulated import by_last_row

import baracuda_py as bc
from baracuda_py.core.device import fake_device
from baracuda_py.core.error_bound import Chained, Exact, Forward
from baracuda_py.core.plan import Plan
from baracuda_py.testing import fill
from baracuda_py.testing.truth import Truth

QKV = {"n_q": 900, "n_k": 900, "n_v": 5, "k": 16, "group": 16}
LONG = [
    (bc.BlockGemmPlan, {"kind": "nf4", "n": 8, "k": 1504, "group": 32}),
    (bc.QkvGemmPlan, {"kind": "nf4", "n_q": 8, "n_k": 8, "n_v": 8, "k": 1504, "group": 32}),
    (bc.BlockGemmBackwardPlan, {"kind": "nf4", "n": 1500, "k": 16, "group": 16}),
    (bc.QkvGemmBackwardPlan, {"kind": "nf4", **QKV}),
    (bc.QkvInt8BackwardPlan, {name: QKV[name] for name in ("n_q", "n_k", "n_v", "k")}),
    (bc.GroupedBlockGemmPlan, {"kind": "nf4", "n": 8, "k": 1504, "group": 32}),
    (bc.product("x").plan(), {"n": 8, "k": 1504}),
    (bc.LinearCrossEntropyPlan, {"hidden": 1500, "num_classes": 5}),
    (bc.LinearCrossEntropyBackwardPlan, {"hidden": 1500, "num_classes": 5}),
]

SUMS = [
    (bc.GemmPlan, {"n": 8, "k": 4096}),
    (bc.GemmBackwardPlan, {"n": 4096, "k": 8}),
    (bc.GroupedGemmPlan, {"groups": 1, "n": 8, "k": 4096}),
    (bc.GroupedGemmBackwardPlan, {"groups": 1, "n": 4096, "k": 8}),
    (bc.GroupedInnerGemmPlan, {"total": 4096, "groups": 1, "m": 8, "n": 8}),
    (bc.GroupedInnerGemmBackwardPlan, {"groups": 1, "m": 4096, "n": 8}),
    (bc.MultiGemmPlan, {"a_shapes": ((7, 4096),), "b_shapes": ((4096, 8),)}),
    (bc.SyrkPlan, {"n": 8, "k": 4096}),
]


def results(
    plan: type[Plan], facts: dict[str, Any], seed: int, alike: bool = False
) -> tuple[Truth, dict[tuple[str, int], Any], Any]:
    """The truth of a problem of a few rows, what the last row of kernels makes of it, and what that promises; `alike`:
    the terms of a sum have one value."""
    names = plan.descriptor.__dataclass_fields__
    rows = {"m": 7, "total": 7, "rows": 3, "experts": 1, "num_offsets": 2}
    desc = plan.descriptor(**{"element": "float32", **{n: v for n, v in rows.items() if n in names}, **facts})
    case = fill(plan, desc, np.random.default_rng(seed))
    for name, array in case.arrays.items() if alike else ():
        if name.startswith(("codes", "scales", "w_")):
            array[...] = array.flat[0]
        elif name in ("a", "b", "up", "dy") or name.startswith(("x", "dy_", "weight")):
            for one in array if isinstance(array, list) else [array]:
                one[...] = one.flat[0]
    return Truth(case), *by_last_row(case)


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("plan", "facts"), LONG, ids=[plan.__name__ for plan, _ in LONG])
def test_the_bound_holds_and_a_tenth_of_it_does_not(plan: type[Plan], facts: dict[str, Any]) -> None:
    far = 0
    for seed in range(31000, 31004):
        truth, got, bound = results(plan, facts, seed)
        assert (wrong := truth.wrong(got, bound)) is None, f"seed {seed}: {wrong}"
        far += truth.wrong(got, Chained(bound.k / 10, bound.mean)) is not None
    assert far > 0


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("plan", "facts"), LONG + SUMS, ids=[plan.__name__ for plan, _ in LONG + SUMS])
def test_the_bound_holds_where_errors_of_a_chain_line_up(plan: type[Plan], facts: dict[str, Any]) -> None:
    """Terms of one value are rounded alike within a binade: the error is of the order of their number."""
    for seed in range(2):
        truth, got, bound = results(plan, facts, seed, alike=True)
        assert (wrong := truth.wrong(got, bound)) is None, f"seed {seed}: {wrong}"


def test_a_forward_bound_grows_with_the_roundings_of_a_sum() -> None:
    def promised(k: int, element: str, capability: float) -> Any:
        desc = bc.GemmDescriptor(m=1, n=1, k=k, element=element)
        plan = bc.GemmPlan.select(desc, bc.PlanPreference(prefer_backend="bespoke"), device=fake_device(capability))
        return plan.sku.precision_guarantee.error

    assert promised(256, "float32", 8.0) == promised(2048, "float16", 9.0) == Forward(128)
    assert promised(4096, "float32", 8.0) == promised(4096, "float64", 8.0) == Forward(2048)
    backward = bc.GemmBackwardPlan.select(bc.GemmBackwardDescriptor(m=1, n=600, k=1, element="float32"), device="cpu")
    assert backward.precision_guarantee.error.of("dresidual") == Exact()
