"""Every kernel without a GPU: NVRTC's PTX run thread by thread, within the row's bound of the reference.

`emulation.lock` has problems that between them launch every kernel template of a plan and every kind of a table, and
the keys that they passed with. Those whose key is another are emulated here, a few of the others too, and problems that
nobody has seen before; of a plan that the lock does not know yet, drawn problems of every float and of an integer of
each width.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import pytest
from scripts import tool

from baracuda_py.core import registry
from baracuda_py.core.element import ElementKind
from baracuda_py.core.plan import Plan
from baracuda_py.testing import emulate, emulated, exercise
from baracuda_py.testing.coverage import KindTarget, Launch, Target, search
from baracuda_py.testing.draw import combinations

SAMPLE = 0.01  # of the problems that the lock knows are emulated all the same
EXAMPLES = 2  # problems that hypothesis draws of each plan
PLANS = registry.plans()


@cache
def lock() -> ModuleType:
    return tool("emulation_lock")


LOCKED = [name for name in PLANS if any(line.split()[0] == name for line in lock().held())]


@cache
def known(name: str) -> tuple[dict[str, str], list[Launch], list[Target | KindTarget]]:
    """What the lock has of a plan: lines, the problems that still launch what they are for, kernels without one."""
    lines = {line: key for line, key in lock().held().items() if line.split()[0] == name}
    return lines, *lock().covering(PLANS[name], lines)


@pytest.mark.parametrize("name", LOCKED)
def test_every_kernel_and_kind_has_a_problem_that_launches_it(name: str) -> None:
    missing = known(name)[2]
    unreached = search(PLANS[name], missing).missing
    assert not unreached, lock().unreached(PLANS[name], unreached)
    assert not missing, (
        f"no problem of emulation.lock launches {', '.join(map(str, missing))}: run python tools/emulation_lock.py"
    )


@pytest.mark.parametrize("name", LOCKED)
def test_the_lock_knows_every_problem_as_it_is(name: str) -> None:
    lines, launches, _ = known(name)
    now = {str(launch.problem): lock().key(launch) for launch in launches}
    stale = sorted(line for line in lines if now.get(line) != lines[line])
    assert not stale, f"emulation.lock is stale, run python tools/emulation_lock.py: {len(stale)} problems, {stale[:3]}"


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize("name", LOCKED)
def test_problems_that_changed_and_a_sample_of_the_others_pass(name: str) -> None:
    lines, launches, _ = known(name)
    for launch in launches:
        if lock().key(launch) != lines[str(launch.problem)] or random.random() < SAMPLE:
            emulate(launch.plan, launch.ready)


def drawn() -> Iterator[Any]:
    """The plans; those that the lock does not know with every float and an integer of each width."""
    for name, plan in PLANS.items():
        if name in LOCKED:
            yield pytest.param(plan, None, id=name)
            continue
        served = list(dict.fromkeys(element for _, element in combinations(plan)))
        widths = {(element.is_float, element.itemsize): element for element in reversed(served)}
        for element in served:
            if element.is_float or element in widths.values():
                yield pytest.param(plan, element, id=f"{name}-{element}")


@pytest.mark.usefixtures("emulation")
@pytest.mark.parametrize(("plan", "element"), list(drawn()))
def test_problems_drawn_anew_pass(plan: type[Plan], element: ElementKind | None) -> None:
    elements = None if element is None else (element,)
    exercise(plan, emulated, EXAMPLES, seeded=element is not None, elements=elements)
