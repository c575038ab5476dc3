"""The rows of libraries under their stand-ins, on the small problems that kernels of our own take before them."""

from __future__ import annotations

import pytest

from baracuda_py import (
    CholeskyBackwardPlan, CholeskyPlan, EighPlan, LuFactorPlan, QrPlan, SvdPlan, TriangularSolvePlan,
)  # fmt: skip
from baracuda_py.core import BackendKind, PlanPreference
from baracuda_py.core.plan import Plan
from baracuda_py.testing import Draw, emulate, emulated_device, exercise, make_case, operands


def by_the_library(plan: type[Plan], draw: Draw) -> None:
    case = make_case(plan, draw)
    chosen = plan(case.desc, PlanPreference(), emulated_device(9.0))
    chosen.rows = tuple(row for row in plan.variants if row.backend is not BackendKind.BESPOKE)
    emulate(chosen, operands(case, draw if draw.integer(0, 3) else None))


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(
    "plan", [CholeskyPlan, CholeskyBackwardPlan, EighPlan, LuFactorPlan, QrPlan, SvdPlan, TriangularSolvePlan]
)
def test_small_problems(plan: type[Plan]) -> None:
    exercise(plan, by_the_library, 20)
