"""Problems that between them launch every kernel of every row, found by searching a page's `case`. Host only.

A target is a row, one of its kernel templates, and an element of each width that the row serves. The search draws a
page's own random problems, with the rare sizes that `Draw.sizes` keeps for it, asks the dispatcher what each would
launch, keeps the best problem (see `Launch.cost`) for every target, and of those a few that launch all.

    found = search(RMSNormPlan)
    found.problems          # to be built, and given to `emulate`
    found.missing           # targets that no problem launches: give `case` rare sizes that do
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..core.element import ElementKind
from ..core.errors import UnsupportedError
from ..core.plan import Plan
from ..core.sku import BackendKind
from ..core.variant import Geometry, Step, Variant
from ..jit.source import Unit
from .draw import SeededDraw
from .emulated import draw_problem
from .operands import Operands
from .recording import pointer_view

_DRAWS = 16000  # problems at most, for one element
_ENOUGH = 40  # problems at least: better ones may turn up
_CHEAP = 2**18  # bytes, or eight operations of the formula: less than a second


@dataclass(frozen=True)
class Target:
    """What has to be launched."""

    row: str
    kernel: str
    element: ElementKind

    def __str__(self) -> str:
        return f"{self.row}/{self.kernel}/{self.element}"


@dataclass(frozen=True)
class Problem:
    """A drawn problem, to be drawn again from its seed."""

    plan: type[Plan]
    element: ElementKind
    kind: Any
    seed: int

    def build(self) -> Launch:
        """The problem and what it launches on an emulated device."""
        chosen, ready = draw_problem(self.plan, _RareDraw(self.seed, self.element, self.kind))
        try:
            row, geometry, _ = chosen.plan_layout(ready.args(pointer_view))
        except UnsupportedError:  # a layout that no row takes
            return Launch(self, chosen, ready, None, Geometry(()))
        return Launch(self, chosen, ready, row, geometry)

    def __str__(self) -> str:
        kind = "-" if self.kind is None else self.kind.value
        return f"{self.plan.__name__} {self.element} {kind} {self.seed}"


@dataclass(frozen=True)
class Launch:
    """A problem with its operands, the row that takes it, and the row's steps."""

    problem: Problem
    plan: Plan
    ready: Operands
    row: Variant | None
    geometry: Geometry

    @property
    def steps(self) -> tuple[Step, ...]:
        """Launches of kernels; none where a library is called, which takes a device."""
        steps = self.geometry.steps
        own = tuple(step for step in steps if isinstance(step, Step))
        return own if len(own) == len(steps) else ()

    @property
    def targets(self) -> frozenset[Target]:
        """What it launches."""
        row = self.row
        return frozenset(Target(row.name, step.kernel, self.problem.element) for step in self.steps if row is not None)

    @property
    def units(self) -> tuple[Unit, ...]:
        """The compile unit of each of its steps."""
        return tuple(self._unit(self.row, step) for step in self.steps if self.row is not None)

    def _unit(self, row: Variant, step: Step) -> Unit:
        plan, element = self.plan, self.plan.desc.element
        kernel = row.kernel(step.kernel)
        axes = {name: step.axes[name] for name in kernel.axes_for(element)}
        return row.unit(row.instance(plan.op, element, plan.kind, kernel, axes))

    @property
    def cost(self) -> tuple[bool, bool, int]:
        """How far the problem is from the best: the largest that costs little beside compiling its kernels, and with an
        odd number of elements somewhere, which is a tail for loads of any width.

        Small problems leave out further blocks, and what one thread could do to another.
        """
        laid = [one for _, _, one in self.ready.items()]
        size = sum(one.buffer.size for one in laid) + type(self.plan).flops(self.plan.desc) // 8
        dear = size > _CHEAP
        return dear, not any(one.view.size % 2 for one in laid), size if dear else -size


@dataclass(frozen=True)
class Found:
    """What a search found: problems, and the targets that none of them launches."""

    problems: tuple[Problem, ...]
    missing: tuple[Target, ...]


class _RareDraw(SeededDraw):
    """A seeded draw that takes rare sizes too."""

    rare = True


def targets(plan: type[Plan]) -> tuple[Target, ...]:
    """Everything that a plan's rows can launch, once for each width of element; rows of libraries launch nothing that
    the others do not."""
    return tuple(
        Target(row.name, kernel.name, element)
        for row in plan.variants
        if row.backend is BackendKind.BESPOKE
        for element in _one_of_each_width(plan, row)
        for kernel in row.kernels
        if all(kernel.axes_for(element).values())
    )


def search(plan: type[Plan], wanted: Iterable[Target] | None = None) -> Found:
    """Problems for the wanted targets (default: all); the same at every call."""
    everything = tuple(targets(plan) if wanted is None else wanted)
    best: dict[Target, tuple[tuple[bool, bool, int], Problem, frozenset[Target]]] = {}
    for element in dict.fromkeys(target.element for target in everything):
        missing = {target for target in everything if target.element is element}
        for problem in _draws(plan, element):
            launch = problem.build()
            launched = launch.targets.intersection(everything)
            cost = launch.cost if launched else (True, True, 0)
            for target in launched:
                if target not in best or cost < best[target][0]:
                    best[target] = cost, problem, launched
            missing -= launched
            if not missing and problem.seed >= _ENOUGH:
                break
    problems = {problem: launched for _, problem, launched in best.values()}
    return Found(few(problems), tuple(target for target in everything if target not in best))


def few(problems: Mapping[Problem, frozenset[Target]]) -> tuple[Problem, ...]:
    """Some of the problems that launch as much as all: each is the one that adds most to those before it."""
    chosen: list[Problem] = []
    left = set().union(*problems.values()) if problems else set()
    while left:
        chosen.append(max(problems, key=lambda problem: len(left & problems[problem])))
        left -= problems[chosen[-1]]
    return tuple(chosen)


def _one_of_each_width(plan: type[Plan], row: Variant) -> list[ElementKind]:
    """Which one depends on the row's name: plans of many rows see them all."""
    widths: dict[int, list[ElementKind]] = {}
    for element in ElementKind:
        if any(row.serves(kind, element) for kind in plan.kinds or (None,)):
            widths.setdefault(element.itemsize, []).append(element)
    pick = zlib.crc32(f"{plan.op} {row.name}".encode())
    return [elements[pick % len(elements)] for elements in widths.values()]


def _draws(plan: type[Plan], element: ElementKind) -> Iterator[Problem]:
    kinds = [kind for kind in plan.kinds or (None,) if any(row.serves(kind, element) for row in plan.variants)]
    for seed in range(_DRAWS):
        yield Problem(plan, element, kinds[seed % len(kinds)], seed)
