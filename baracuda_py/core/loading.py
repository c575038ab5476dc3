"""The steps of a layout made ready: kernels compiled and loaded, calls into a library."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..jit.launch import runtime_for
from .device import Device
from .errors import BaracudaError
from .memo import memo
from .variant import Step, Variant

if TYPE_CHECKING:
    from .plan import Plan


class LibraryLaunch:
    """A library call as a step: pointers and scalars by declaration order, then workspace and stream."""

    def __init__(self, run: Callable[..., None], starts: dict[str, int], nbytes: int) -> None:
        workspace = starts["@workspace"]

        def call(flat: tuple[int, ...], values: tuple[Any, ...], stream: int) -> None:
            arrays = workspace - len(values)
            run(flat[:arrays], tuple(zip(flat[arrays:workspace], values, strict=True)), flat[workspace], nbytes, stream)

        self.call = call

    def fixed(self, flat: tuple[int, ...], values: tuple[Any, ...]) -> Callable[[int], None]:
        """The call with everything but the stream given."""
        return partial(self.call, flat, values)


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
