"""Steps' kernels made ready: the units that are missing compiled side by side, each kernel loaded once a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.memo import keep
from ...core.plan import Plan
from ...core.variant import Step, Variant
from ...jit.launch import Wanted, runtime_for

_KERNELS = 4096  # handles that are remembered
_handles: dict[Any, Any] = {}


def load_functions(plan: Plan, variant: Variant, steps: Sequence[Step]) -> list[Any]:
    """The handle of each step's kernel on the plan's device; those that are new are compiled at the same time."""
    keys = [_key(plan, variant, step) for step in steps]
    missing = {key: step for key, step in zip(keys, steps, strict=True) if key not in _handles}
    if not missing:
        return [_handles[key] for key in keys]
    loaded = runtime_for(plan.device).load(plan.device, [_wanted(plan, variant, step) for step in missing.values()])
    known = {key: _handles[key] for key in keys if key not in missing} | dict(zip(missing, loaded, strict=True))
    return [keep(_handles, key, known[key], _KERNELS) for key in keys]


def _key(plan: Plan, variant: Variant, step: Step) -> tuple[Any, ...]:
    axes = tuple(step.axes[name] for name in variant.kernel(step.kernel).axes_for(plan.desc.element))
    return plan.op, variant, plan.desc.element, plan.kind, step.kernel, axes, plan.device, step.smem


def _wanted(plan: Plan, variant: Variant, step: Step) -> Wanted:
    unit, instance = variant.launched(plan.op, plan.desc.element, plan.kind, step)
    return Wanted(unit, instance.symbol, step.smem)
