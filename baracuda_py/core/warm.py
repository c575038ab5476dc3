"""Compile ahead of use: every variant of chosen plans for chosen targets, on any machine with NVRTC."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ..jit.compiler import compile_many
from ..jit.cubin import Cubin
from ..jit.source import Unit
from . import registry
from .element import ElementKind
from .errors import CompileError
from .plan import Plan
from .sku import ArchSku
from .variant import Instance, Variant


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


def serves_target(design: ArchSku, target: str) -> bool:
    """Whether rows of a design are compiled for a target such as "sm_90a" or "sm_120"."""
    digits = target.removeprefix("sm_").rstrip("af")
    return design.runs_on((int(digits[:-1]), int(digits[-1])))


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
    wanted = [
        (job, target)
        for job in jobs(plans)
        for target in (targets or (job.variant.design.target,))
        if serves_target(job.variant.design, target)
    ]

    def report(done: int, total: int, unit: Unit, target: str, result: object) -> None:
        if progress is not None:
            progress(done, total, f"{unit.name} {target}")

    results = compile_many([(job.unit, target) for job, target in wanted], workers=workers, progress=report)
    return [(job, target, result) for (job, target), result in zip(wanted, results, strict=True)]
