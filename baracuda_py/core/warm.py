"""Compile ahead of use: every variant of chosen plans for chosen targets, on any machine with NVRTC."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from . import registry
from .args import Args
from .checked import shown, whole
from .element import ElementKind
from .errors import CompileError, InvalidProblemError
from .execution import runner_for
from .plan import Plan
from .sku import ArchSku
from .unit import Cubin, Unit
from .variant import Instance, Step, Variant


@dataclass(frozen=True)
class Job:
    """One compile unit of one row, and the kernel in it."""

    plan: type[Plan]
    variant: Variant
    kind: Any
    element: ElementKind
    unit: Unit
    instance: Instance


def jobs(plans: Iterable[type[Plan]] | None = None) -> Iterator[Job]:
    """Every unit of every row of the plans (default: all)."""
    for plan in registry.plans().values() if plans is None else plans:
        for variant in plan.variants:
            for kind in plan.kinds or (None,):
                for element in variant.elements_for(kind):
                    if variant.serves(kind, element):
                        for unit, instance in variant.units(plan.op, element, kind):
                            yield Job(plan, variant, kind, element, unit, instance)


def jobs_of(plan: Plan, args: Args) -> Iterator[Job]:
    """The units of the kernels that a plan launches for one call; what a library does needs none."""
    variant, geometry, _ = plan.plan_layout(args)
    for step in geometry.steps:
        if isinstance(step, Step):
            unit, instance = variant.launched(plan.op, plan.desc.element, plan.kind, step)
            yield Job(type(plan), variant, plan.kind, plan.desc.element, unit, instance)


def serves_target(design: ArchSku, target: str) -> bool:
    """Whether rows of a design are compiled for a target such as "sm_90a" or "sm_120"."""
    digits = target.removeprefix("sm_").rstrip("af")
    return design.runs_on((int(digits[:-1]), int(digits[-1])))


def _listed(name: str, values: Any, fits: Callable[[Any], bool], what: str) -> tuple[Any, ...]:
    """Items of any number, each of which fits."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidProblemError(f"{name} must be a list of {what}, got {shown(values)}")
    items = tuple(values)
    for item in items:
        if not fits(item):
            raise InvalidProblemError(f"{name} must be {what}, got {shown(item)}")
    return items


def _is_plan(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Plan)


def _is_target(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(r"(sm_)?\d{2,3}[af]?", value) is not None


def warm(
    plans: Iterable[type[Plan]] | None = None,
    targets: Iterable[str] | None = None,
    *,
    workers: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[tuple[Job, str, Cubin | CompileError]]:
    """Compile plans (default: all) for targets (default: each row's own design) into the cache, in parallel.

    Needs NVRTC, no GPU. Returns each job with its target and its cubin or error, in order.
    """
    chosen = None if plans is None else _listed("plans", plans, _is_plan, "Plan classes")
    named = None if targets is None else _listed("targets", targets, _is_target, 'names such as "sm_90a"')
    workers = None if workers is None else whole("workers", workers, 1)
    wanted = [
        (job, target)
        for job in jobs(chosen)
        for target in (named or (job.variant.design.target,))
        if serves_target(job.variant.design, target)
    ]

    return compiled(wanted, workers, progress)


def compiled(
    wanted: Iterable[tuple[Job, str]],
    workers: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[tuple[Job, str, Cubin | CompileError]]:
    """Each job with its target and its cubin or error, in order; a unit of several jobs is compiled once."""
    asked = list(wanted)
    units = {(job.unit, target): None for job, target in asked}

    def report(done: int, total: int, unit: Unit, target: str, result: object) -> None:
        if progress is not None:
            progress(done, total, f"{unit.name} {target}")

    runner: Any = runner_for("cuda")
    results = dict(zip(units, runner.compile_many(list(units), workers=workers, progress=report), strict=True))
    return [(job, target, results[job.unit, target]) for job, target in asked]
