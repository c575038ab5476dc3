"""One call of a plan where it is asked for: on the NumPy backend, on the emulator, on a GPU."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from ..core.args import arrays_of, scalars_of
from ..core.element import ElementKind
from ..core.plan import Plan
from ..core.preference import PlanPreference
from ..core.sku import BackendKind
from .draw import Case, default_of, stored
from .emulator import emulated_device, emulating
from .gpu import DEVICE, OnDevice
from .layouts import Placement, lay_out
from .operands import operands
from .recording import pointer_view


def emulated(plan: type[Plan]) -> PlanPreference:
    """What the emulator runs of a plan: its kernels, or where it has none of its own, libraries' stand-ins."""
    own = any(row.backend is BackendKind.BESPOKE for row in plan.variants)
    return PlanPreference(prefer_backend=BackendKind.BESPOKE if own else None)


def call(
    plan: type[Plan], desc: Any, wanted: Collection[str], place: str, /, preference: PlanPreference | None = None,
    **given: Any,
) -> dict[str, Any]:  # fmt: skip
    """What a call writes, by operand: for tests that know the values by another way than the reference.

    given: operands and scalars by name, floats in any dtype; those left out are None, or the scalar's default.
    wanted: the outputs to be written; one that is given, too, tells its element.
    place: "numpy", "gpu", or "emulator", which takes a library's row only of a plan that has no others.
    """
    scalars = {spec.name: default_of(plan, spec) for spec in scalars_of(plan.args)}
    scalars |= {name: given[name] for name in scalars.keys() & given.keys()}
    arrays = {
        spec.name: _stored(given.get(spec.name), spec.elements(desc)) for spec in arrays_of(plan.args) if spec.reads
    }
    ready = operands(Case(plan, desc, arrays | scalars, frozenset(wanted)))
    for spec in arrays_of(plan.args):
        if spec.name in wanted and spec.name in given and not spec.reads:
            ready.laid[spec.name] = lay_out(given[spec.name], Placement())
    if place == "gpu":
        held = OnDevice(ready)
        plan.select(desc, preference, device=DEVICE).run(held.args())
        written = held.written()
    else:
        if place == "numpy":
            plan.select(desc, device="cpu").run(ready.args())
        else:
            with emulating():
                chosen = plan.select(desc, preference or emulated(plan), device=emulated_device(9.0))
                chosen.run(ready.args(pointer_view))
        written = {(s.name, i): np.array(one.view, order="C") for s, i, one in ready.items() if s.writes}
    results: dict[str, Any] = {}
    for spec in arrays_of(plan.args):
        found = [value for (name, _), value in written.items() if name == spec.name]
        if found:
            results[spec.name] = found if spec.many else found[0]
    return results


def _stored(value: Any, kinds: tuple[ElementKind, ...]) -> Any:
    """In one of the elements an operand takes: its own, else the first."""
    if value is None:
        return None
    if isinstance(value, list):
        return [_stored(one, kinds) for one in value]
    array = np.asarray(value)
    own = next((kind for kind in kinds if array.dtype == kind.carrier), None)
    return np.array(array) if own else stored(array, kinds[0])
