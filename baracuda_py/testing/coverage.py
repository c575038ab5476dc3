"""Problems that between them launch every kernel of every row, found by searching a page's `case`. Host only.

A target is a row, one of its kernel templates, and a width of element. The search draws a page's own random problems,
with the rare sizes that `Draw.sizes` keeps for it, asks the dispatcher what each would launch, and keeps the smallest
problem for every target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from ..core.element import ElementKind
from ..core.errors import UnsupportedError
from ..core.plan import Plan
from ..core.variant import Step, Variant
from .draw import SeededDraw
from .emulated import draw_problem
from .operands import Operands
from .recording import pointer_view

_DRAWS = 3000  # problems at most, for one element
_ENOUGH = 40  # problems at least: smaller ones may turn up


@dataclass(frozen=True)
class Target:
    """What has to be launched."""

    row: str
    kernel: str
    element: ElementKind

    def __str__(self) -> str:
        return f"{self.row}/{self.kernel}/{self.element}"


@dataclass(frozen=True)
class Found:
    """A drawn problem, to be drawn again from its seed."""

    plan: type[Plan]
    element: ElementKind
    kind: Any
    seed: int

    def build(self, complete: bool = True) -> tuple[Plan, Operands]:
        """The plan for an emulated device, and its operands."""
        return draw_problem(self.plan, SearchDraw(self.seed, self.element, self.kind), complete=complete)


class SearchDraw(SeededDraw):
    """A seeded draw that takes rare sizes too."""

    rare = True


def widths(plan: type[Plan], row: Variant) -> list[ElementKind]:
    """One element of each width that a row serves."""
    served = [e for e in ElementKind if any(row.serves(kind, e) for kind in plan.kinds or (None,))]
    return list({e.itemsize: e for e in reversed(served)}.values())


def targets(plan: type[Plan]) -> list[Target]:
    """Everything that a plan's rows can launch, once for each width of element."""
    return [
        Target(row.name, kernel.name, element)
        for row in plan.variants
        for element in widths(plan, row)
        for kernel in row.kernels
        if all(len(values) for values in kernel.axes_for(element).values())
    ]


@cache
def search(plan: type[Plan]) -> dict[Target, Found]:
    """The smallest problem found for each target; a target that none was found for is absent."""
    everything = set(targets(plan))
    best: dict[Target, tuple[int, Found]] = {}
    for element in dict.fromkeys(target.element for target in everything):
        missing = {target for target in everything if target.element is element}
        for found in _draws(plan, element):
            chosen, ready = found.build(complete=False)
            launched = set(_launches(chosen, ready, element)) & everything
            cost = sum(one.buffer.size for _, _, one in ready.items()) + plan.flops(chosen.desc) // 8
            for target in launched:
                if target not in best or cost < best[target][0]:
                    best[target] = cost, found
            missing -= launched
            if not missing and found.seed >= _ENOUGH:
                break
    return {target: found for target, (_, found) in best.items()}


def _draws(plan: type[Plan], element: ElementKind) -> Iterator[Found]:
    kinds = [kind for kind in plan.kinds or (None,) if any(row.serves(kind, element) for row in plan.variants)]
    for seed in range(_DRAWS):
        yield Found(plan, element, kinds[seed % len(kinds)], seed)


def _launches(chosen: Plan, ready: Operands, element: ElementKind) -> Iterator[Target]:
    try:
        row, geometry, _ = chosen.plan_layout(ready.args(pointer_view))
    except UnsupportedError:  # a layout that no row takes
        return
    for step in geometry.steps:
        if isinstance(step, Step):
            yield Target(row.name, step.kernel, element)
