"""Problems that between them launch every kernel of every row, and every kind of a table, found by searching a page's
`case`. Host only.

A target is a row, one of its kernel templates, and an element of each width that the row serves; or a kind and an
element of each sort (float, complex, signed, unsigned, bool) that it takes, with operands that show what it computes
(`telling`). The search draws a page's own random problems, with the rare sizes that `Draw.sizes` keeps for it, asks the
dispatcher what each would launch, keeps the best problem (see `Launch.cost`) for every target, and of those a few that
launch all.

    found = search(RMSNormPlan)
    found.problems          # to be built, and given to `emulate`
    found.missing           # targets that no problem launches: give `case` rare sizes that do
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..core.element import ElementKind
from ..core.errors import UnsupportedError
from ..core.memo import cached_property
from ..core.plan import Plan
from ..core.sku import BackendKind
from ..core.unit import Unit
from ..core.variant import Geometry, Step, Variant
from .draw import SeededDraw
from .emulated import draw_problem
from .operands import Operands
from .recording import pointer_view
from .telling import results_differ, tells

_DRAWS = 16000  # problems at most, for one element
_ENOUGH = 40  # problems at least: better ones may turn up
_ENOUGH_OF_A_KIND = 12
_DRAWS_OF_A_KIND = 2000
_BY_SHARPNESS = sorted(ElementKind, key=lambda element: (element.bits != 32, -element.bits))
_CHEAP = 2**18  # bytes, or eight operations of the formula: less than a second


_Best: TypeAlias = "dict[Any, tuple[tuple[Any, ...], Problem, frozenset[Any]]]"


@dataclass(frozen=True)
class Target:
    """What has to be launched."""

    row: str
    kernel: str
    element: ElementKind

    def __str__(self) -> str:
        return f"{self.row}/{self.kernel}/{self.element}"


@dataclass(frozen=True)
class KindTarget:
    """A kind of a table that has to be launched with operands that show it."""

    kind: Any
    element: ElementKind

    def __str__(self) -> str:
        return f"{self.kind.value} of {self.element}"


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

    @cached_property
    def targets(self) -> frozenset[Target | KindTarget]:
        """What it launches; its kind where the operands tell it from others."""
        row, problem = self.row, self.problem
        if row is None:
            return frozenset()
        found: set[Target | KindTarget] = {Target(row.name, step.kernel, problem.element) for step in self.steps}
        if found and problem.kind is not None and tells(self.ready):
            found.add(KindTarget(problem.kind, problem.element))
        return frozenset(found)

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
    missing: tuple[Target | KindTarget, ...]


class _RareDraw(SeededDraw):
    """A seeded draw that takes rare sizes too."""

    rare = True


def targets(plan: type[Plan]) -> tuple[Target | KindTarget, ...]:
    """Everything that a plan's rows can launch, once for each width of element, and its kinds, once for each sort of
    element; rows of libraries launch nothing that the others do not."""
    kernels = tuple(
        Target(row.name, kernel.name, element)
        for row in plan.variants
        if row.backend is BackendKind.BESPOKE
        for element in _one_of_each_width(plan, row)
        for kernel in row.kernels
        if all(kernel.axes_for(element).values())
    )
    return kernels + tuple(KindTarget(kind, one) for kind in plan.kinds or () for one in _one_of_each_sort(plan, kind))


def search(plan: type[Plan], wanted: Iterable[Target | KindTarget] | None = None) -> Found:
    """Problems for the wanted targets (default: all); the same at every call."""
    everything = tuple(targets(plan) if wanted is None else wanted)
    kernels = [target for target in everything if isinstance(target, Target)]
    best: _Best = {}
    for element in dict.fromkeys(target.element for target in kernels):
        missing = {target for target in kernels if target.element is element}
        for problem in _draws(plan, element):
            missing -= _see(best, problem.build(), everything)
            if not missing and problem.seed >= _ENOUGH:
                break
    for target in everything:
        if isinstance(target, KindTarget) and target not in best:
            _search_kind(plan, target, best)
    problems = {problem: launched for _, problem, launched in best.values()}
    return Found(few(problems), tuple(target for target in everything if target not in best))


def _see(best: _Best, launch: Launch, wanted: Iterable[Any], same: bool = False) -> frozenset[Any]:
    """Keeps a problem for the targets that it is the best of, and says which it launches.

    same: its results are all alike, so that any other problem is better.
    """
    launched = launch.targets.intersection(wanted)
    cost = (same, *launch.cost) if launched else ()
    for target in launched:
        if target not in best or cost < best[target][0]:
            best[target] = cost, launch.problem, launched
    return launched


def _search_kind(plan: type[Plan], target: KindTarget, best: _Best) -> None:
    """Draws problems of one kind until there are some that tell it, and whose results differ if any do."""
    for seed in range(_DRAWS_OF_A_KIND):
        launch = Problem(plan, target.element, target.kind, seed).build()
        if target in launch.targets:
            _see(best, launch, (target,), same=not results_differ(launch.ready.case))
        found = target in best and not best[target][0][0]
        if seed >= (_ENOUGH_OF_A_KIND if found else _ENOUGH) and target in best:
            break


def few(problems: Mapping[Problem, frozenset[Any]]) -> tuple[Problem, ...]:
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


def _one_of_each_sort(plan: type[Plan], kind: Any) -> list[ElementKind]:
    """float32 and what is nearest to it, whose bounds are tight; of integers one that depends on the kind's name."""
    sorts: dict[str, list[ElementKind]] = {}
    for element in _BY_SHARPNESS:
        if any(row.backend is BackendKind.BESPOKE and row.serves(kind, element) for row in plan.variants):
            sorts.setdefault(_sort(element), []).append(element)
    pick = zlib.crc32(f"{plan.op} {kind.value}".encode())
    return [elements[pick % len(elements) if elements[0].is_integer else 0] for elements in sorts.values()]


def _sort(element: ElementKind) -> str:
    if not element.is_integer:
        return "complex" if element.is_complex else "float" if element.is_float else "bool"
    return "signed" if element.limits.min else "unsigned"


def _draws(plan: type[Plan], element: ElementKind) -> Iterator[Problem]:
    kinds = [kind for kind in plan.kinds or (None,) if any(row.serves(kind, element) for row in plan.variants)]
    for seed in range(_DRAWS):
        yield Problem(plan, element, kinds[seed % len(kinds)], seed)
