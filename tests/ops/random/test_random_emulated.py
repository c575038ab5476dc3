"""Fills of dense arrays that are several chunks a thread, on an emulated device of one multiprocessor."""

from __future__ import annotations

import numpy as np
import pytest

from baracuda_py import RandomPlan
from baracuda_py.core.preference import PlanPreference
from baracuda_py.testing import emulate, emulated_device, fill, operands

pytestmark = pytest.mark.usefixtures("emulation")


@pytest.mark.parametrize("parameters", [False, True])
@pytest.mark.parametrize(
    ("kind", "element"),
    [
        ("uniform", "float64"),
        ("uniform", "bfloat16"),
        ("normal", "float64"),
        ("normal", "float32"),
        ("exponential", "float16"),
        ("bernoulli", "int64"),
        ("randint", "int64"),
    ],
)
def test_threads_make_many_chunks(kind: str, element: str, parameters: bool) -> None:
    desc = RandomPlan.descriptor(kind=kind, shape=(2 * 32 * 256 * 2 + 1001,), element=element)
    present = dict.fromkeys("abc", parameters) | {"like": False}
    case = fill(RandomPlan, desc, np.random.default_rng(3), present, kind=desc.kind)
    emulate(RandomPlan(desc, PlanPreference(), emulated_device(9.0, 1)), operands(case))
