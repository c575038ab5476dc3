"""A step's kernel made ready: its unit compiled or found, loaded once a device."""

from __future__ import annotations

from typing import Any

from ...core.device import Device
from ...core.errors import BaracudaError
from ...core.memo import memo
from ...core.plan import Plan
from ...core.variant import Step, Variant
from ...jit.launch import runtime_for


def load_function(plan: Plan, variant: Variant, step: Step) -> Any:
    """Compile (or find) the unit of a step and load its kernel on the plan's device."""
    kernel = variant.kernel(step.kernel)
    element = plan.desc.element
    instance = variant.instance(
        plan.op, element, plan.kind, kernel, {a: step.axes[a] for a in kernel.axes_for(element)}
    )
    return _load(
        plan.op, variant, element, plan.kind, kernel.name, tuple(instance.axes.items()), plan.device, step.smem
    )


@memo(maxsize=4096)
def _load(
    op: str,
    variant: Variant,
    element: Any,
    kind: Any,
    name: str,
    axes: tuple[tuple[str, Any], ...],
    device: Device,
    smem: int,
) -> Any:
    kernel = variant.kernel(name)
    chosen = dict(axes)
    unit, _ = variant.unit(op, element, kind, kernel, {a: chosen[a] for a in kernel.split})
    symbol = variant.instance(op, element, kind, kernel, chosen).symbol
    if symbol not in unit.symbols:
        raise BaracudaError(f"{symbol} is not an instance of its unit: its geometry chose {chosen}")
    return runtime_for(device).load(device, unit, symbol, smem)
