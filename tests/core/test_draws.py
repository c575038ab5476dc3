"""What special problems hold: NaN, infinities, signed zeros and subnormals in every float operand that takes them."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py.core import registry
from baracuda_py.core.args import Everywhere, arrays_of
from baracuda_py.core.plan import Plan
from baracuda_py.testing import SeededDraw
from baracuda_py.testing.draw import combinations, make_case

PLANS = registry.plans()


def finite(plan: type[Plan], name: str, special: bool, problems: int = 60) -> bool:
    """Whether an operand is, in all of some problems."""
    pairs = combinations(plan)
    for i in range(problems):
        kind, element = pairs[i % len(pairs)]
        array = make_case(plan, SeededDraw(i, element, kind), special=special).arrays[name]
        if isinstance(array, np.ndarray) and array.dtype.kind in "fc" and not np.isfinite(array).all():
            return False
    return True


@pytest.mark.parametrize(
    ("plan", "operand"),
    [
        ("AveragePlan", "weights"), ("IntGemmPlan", "scale_a"), ("SamplingPlan", "temperatures"),
        ("SpecialFunctionPlan", "a"), ("RowLossPlan", "weight"), ("LinearScanPlan", "a"), ("PolicyLossPlan", "policy"),
        ("PointwiseLossPlan", "target"), ("MultinomialPlan", "probs"),
    ],
)  # fmt: skip
def test_ranges_and_functions_of_values_have_specials_among_them(plan: str, operand: str) -> None:
    assert finite(PLANS[plan], operand, special=False)
    assert not finite(PLANS[plan], operand, special=True)


def test_what_is_to_be_finite_stays_so() -> None:
    """Everywhere there is such an operand, which is in few plans: gradients whose error NaN would hide."""
    marked = [
        (plan, spec.name)
        for plan in PLANS.values()
        for spec in arrays_of(plan.args)
        if spec.reads and not isinstance(spec.values, Everywhere) and getattr(spec.values, "finite_only", False)
    ]
    assert 4 < len(marked) < 200
    for plan, name in marked:
        if name.removeprefix("ring_") not in ("mask", "g", "g_channel"):  # which hides, or forgets, by -inf
            assert finite(plan, name, special=True, problems=6), f"{plan.__name__} {name}"


@pytest.mark.parametrize("operand", ["dloss", "dlse", "dtarget_logit"])
def test_gradients_that_a_policy_calls_finite_are_drawn_so(operand: str) -> None:
    assert finite(PLANS["LinearCrossEntropyBackwardPlan"], operand, special=True)
