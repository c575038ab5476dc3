"""Every row's kernels without a GPU: NVRTC's PTX run thread by thread, within the row's bound of the reference."""

from __future__ import annotations

import pytest

from baracuda_py.core import registry
from baracuda_py.core.element import ElementKind
from baracuda_py.core.plan import Plan
from baracuda_py.testing import exercise
from baracuda_py.testing.draw import combinations
from baracuda_py.testing.emulated import emulated

PLANS = registry.plans()


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    ("plan", "element"),
    [
        pytest.param(plan, element, id=f"{name}-{element}")
        for name, plan in PLANS.items()
        for element in dict.fromkeys(element for _, element in combinations(plan))
    ],
)
def test_op_emulated(plan: type[Plan], element: ElementKind) -> None:
    exercise(plan, emulated, examples=2, elements=(element,))
