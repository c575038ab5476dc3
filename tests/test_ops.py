"""Every plan of the registry × every check: one item each; elements, shapes and layouts are drawn inside.

A failure prints the problem (descriptor, operands, placements); `exercise(Plan, check)` of `baracuda_py.testing`
repeats it.
"""

from __future__ import annotations

import pytest

from baracuda_py.core import registry
from baracuda_py.core.element import ElementKind
from baracuda_py.core.plan import Plan
from baracuda_py.testing import CHECKS, GPU_CHECKS, exercise
from baracuda_py.testing.checks import Check
from baracuda_py.testing.draw import combinations

PLANS = registry.plans()


def _applies(plan: type[Plan], check: Check) -> bool:
    return getattr(check, "applies", lambda plan: True)(plan)


@pytest.mark.parametrize(
    ("plan", "check"),
    [
        pytest.param(plan, check, id=f"{name}-{check.__name__.removeprefix('check_')}")
        for name, plan in PLANS.items()
        for check in CHECKS
        if _applies(plan, check)
    ],
)
def test_op(plan: type[Plan], check: Check) -> None:
    exercise(plan, check, examples=10)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("plan", "check", "element"),
    [
        pytest.param(plan, check, element, id=f"{name}-{check.__name__.removeprefix('gpu_')}-{element}")
        for name, plan in PLANS.items()
        for check in GPU_CHECKS
        for element in dict.fromkeys(element for _, element in combinations(plan))
        if _applies(plan, check)
    ],
)
def test_op_on_gpu(plan: type[Plan], check: Check, element: ElementKind) -> None:
    exercise(plan, check, examples=getattr(check, "examples", 0), elements=(element,))
