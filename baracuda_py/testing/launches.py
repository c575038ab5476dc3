"""The CUDA path without a GPU: real `cupy.ndarray`s over host memory, fake devices, recorded launches.

What a launch is given is derived a second time here, from the geometry and the operands, and compared byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.args import arrays_of, scalars_of
from ..core.device import fake_device
from ..core.dispatch import refuse_row
from ..core.errors import BaracudaError, UnsupportedError
from ..core.params import Params
from ..core.plan import Plan
from ..core.preference import PlanPreference
from ..core.sku import ArchSku
from ..core.variant import Geometry, LibraryStep, Step, Variant
from .draw import Draw, fill, make_case, zero_sized
from .errors import check_wrong
from .operands import Operands, operands
from .recording import STREAM, Launched, Record, encoded_map, pointer_view, recording

CAPABILITIES = (8.0, 8.6, 8.9, 9.0, 10.0, 12.0)
FAST = PlanPreference(deterministic=False)
SHARED = PlanPreference(same_bits=True)
_GRID = (2**31 - 1, 65535, 65535)


def capabilities(plan: type[Plan]) -> list[float]:
    """The compute capabilities a plan must serve: all, unless every row is of a newer design (a pinned plan)."""
    designs = [v.design for v in plan.variants]
    if ArchSku.SM80 in designs or ArchSku.ANY in designs:
        return list(CAPABILITIES)
    return [cc for cc in CAPABILITIES if any(d.runs_on(fake_device(cc).cc) for d in designs)]


def check_devices(plan: type[Plan], draw: Draw) -> None:
    """Every device from 8.0 on has a row within its shared memory, 7.5 is refused, every row is open to some."""
    desc = plan.case(draw)
    for cc in capabilities(plan):
        chosen = plan.select(desc, device=fake_device(cc))
        if not chosen.sku.arch.runs_on(fake_device(cc).cc):
            raise AssertionError(f"{desc} on {cc}: {chosen.sku}")
        for row in chosen.rows:
            if row.guarantee.of(draw.element, chosen.kind).error.looseness > chosen.precision_guarantee.error.looseness:
                raise AssertionError(f"{desc} on {cc}: {row.name} promises less than plan.precision_guarantee")
        if str(chosen.sku) not in repr(chosen.sku) and not str(chosen.sku).startswith(plan.op):
            raise AssertionError(f"{chosen.sku} does not start with {plan.op}")
    try:
        plan.select(desc, device=fake_device(7.5))
    except UnsupportedError as error:
        if "7.5" not in str(error):
            raise AssertionError(f"the refusal of 7.5 does not say so: {error}") from error
    else:
        raise AssertionError(f"{plan.__name__} accepts a device of compute capability 7.5")
    for variant in plan.variants:
        kinds = [draw.kind] if variant.kinds is None else variant.kinds
        refused = variant.refuses is not None and variant.refuses(desc)
        if not refused and draw.kind in kinds and draw.element in variant.elements_for(draw.kind):
            asked = SHARED if variant.guarantee.same_bits else FAST
            reasons = [refuse_row(plan, variant, desc, fake_device(cc), asked) for cc in CAPABILITIES]
            if all(reasons):
                raise AssertionError(f"{plan.__name__}: no device takes row {variant.name}: {set(reasons)}")


def with_shared_bits(chosen: Plan) -> tuple[Variant, ...]:
    """A plan's rows behind those that are taken only where the bits of its family are asked for."""
    plan = type(chosen)
    if plan.shares_bits() or not any(row.guarantee.same_bits for row in plan.variants):
        return chosen.rows
    return (*plan.select(chosen.desc, SHARED, device=chosen.device).rows, *chosen.rows)


def check_launches(plan: type[Plan], draw: Draw) -> None:
    """run, prepare and bind launch what the geometry says, with the operands' own pointers and constants."""
    case = make_case(plan, draw)
    device = fake_device(draw.choice(capabilities(plan)))
    fast = draw.flag()
    chosen = plan(case.desc, FAST if fast else PlanPreference(), device)
    if fast:
        chosen.rows = with_shared_bits(chosen)
    ready = operands(case, draw if draw.integer(0, 3) else None)
    args = ready.args(pointer_view)
    with recording() as record:
        verdict = chosen.can_implement(args)
        if not verdict:
            check_refusal(chosen, ready, args, verdict)
            return
        variant, geometry, views = chosen.plan_layout(args)
        if not any(isinstance(step, Step) for step in geometry.steps):
            return  # a library itself needs a device
        chosen.prepare(args)
        if record.launches:
            raise AssertionError(f"{ready}: prepare launched {record.launches[0].function.symbol}")
        chosen.run(args)
        check_record(chosen, ready, variant, geometry, record)
        first = [launch.image for launch in record.launches]
        again: tuple[Callable[[], None], ...] = (lambda: chosen.run(args, stream=7), chosen.bind(args, stream=7))
        for act in again:
            record.launches.clear()
            record.allocations[:] = record.allocations[:1] if geometry.workspace else []
            act()
            if not geometry.workspace and [launch.image for launch in record.launches] != first:
                raise AssertionError(f"{ready}: the second run packs other bytes than the first")
            if any(launch.stream != 7 for launch in record.launches):
                raise AssertionError(f"{ready}: the launch is not on the stream that was asked for")
    if (harm := ready.damage(writes=False)) is not None:
        raise AssertionError(f"{ready}: the host wrote into operands: {harm}")
    del views


def check_refusal(chosen: Plan, ready: Operands, args: Any, verdict: Any) -> None:
    """A refused layout is refused by run too, and never a dense one."""
    if all(one.view.flags.c_contiguous for _, _, one in ready.items()):
        raise AssertionError(f"{ready}\non {chosen.device}: dense operands refused: {verdict.reason}")
    if not isinstance(verdict.error, UnsupportedError):
        raise AssertionError(f"{ready}\non {chosen.device}: {type(verdict.error).__name__}: {verdict.reason}")
    try:
        chosen.run(args)
    except BaracudaError as error:
        if type(error) is not type(verdict.error):
            raise AssertionError(f"{ready}: run raised {error!r}, can_implement said {verdict.error!r}") from error
    else:
        raise AssertionError(f"{ready}: run took what can_implement refuses: {verdict.reason}")


def check_record(chosen: Plan, ready: Operands, variant: Variant, geometry: Geometry, record: Record) -> None:
    """One recorded run against a geometry."""
    steps = [one for step in geometry.steps if isinstance(step, Step) for one in _launches(step)]
    symbols = [launch.function.symbol for launch in record.launches]
    if len(symbols) != len(steps):
        raise AssertionError(f"{ready}: the geometry has {len(steps)} steps, launched were {symbols}")
    workspace = 0
    if geometry.workspace:
        if geometry.workspace != len(record.allocations[0].bytes):
            raise AssertionError(
                f"{ready}: allocated is {len(record.allocations[0].bytes)}, not {geometry.workspace} bytes"
            )
        workspace = record.allocations[0].ptr
    elif record.allocations:
        raise AssertionError(f"{ready}: run allocated although the geometry asks for no workspace")
    pointers = _pointers(ready) | {"@workspace": [workspace], "@null": []}
    for step, launch in zip(steps, record.launches, strict=True):
        wrong = _wrong_launch(chosen, variant, step, geometry, launch) or _wrong_fields(
            chosen, variant.kernel(step.kernel).params, step, launch, pointers, ready, workspace, geometry
        )
        if wrong:
            raise AssertionError(f"{ready}\non {chosen.device}, {launch.function.symbol}: {wrong}")


def _launches(step: Step) -> list[Step]:
    """A step once for each of its launches."""
    if step.times == 1:
        return [step]
    return [replace(step, params={**step.params, "turn": n}, times=1) for n in range(step.times)]


def _pointers(ready: Operands) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for spec in arrays_of(ready.case.plan.args):
        held = ready.laid[spec.name]
        many = held if isinstance(held, list) else [] if held is None else [held]
        found[spec.name] = [x.view.__array_interface__["data"][0] for x in many]
    return found


def _wrong_launch(chosen: Plan, variant: Variant, step: Step, geometry: Geometry, launch: Launched) -> str | None:
    kernel = variant.kernel(step.kernel)
    threads = kernel.threads if isinstance(kernel.threads, int) else step.axes[kernel.threads]
    launched = launch.grid, launch.block, launch.smem, launch.cluster
    if launched != (tuple(step.grid), (step.block, 1, 1), step.smem, step.cluster):
        return f"launched with grid, block, smem and cluster {launched}; the step says {step}"
    if step.grid[0] % step.cluster or not 1 <= step.cluster <= 8:
        return f"clusters of {step.cluster} blocks in a grid {step.grid}"
    if not all(0 < g <= limit for g, limit in zip(launch.grid, _GRID, strict=True)):
        return f"grid {launch.grid} is outside the limits {_GRID}"
    if not 0 < step.block <= min(threads, 1024):
        return f"block {step.block}, but the kernel is compiled for at most {threads} threads"
    if step.smem > chosen.device.smem:
        return f"{step.smem} bytes of shared memory, the device has {chosen.device.smem}"
    if launch.stream != STREAM:
        return f"stream {launch.stream:#x}, the current one is {STREAM:#x}"
    for name, allowed in kernel.axes_for(chosen.desc.element).items():
        if step.axes[name] not in tuple(allowed):
            return f"axis {name} is {step.axes[name]!r}, declared are {tuple(allowed)}"
    if geometry.workspace % 256:
        return f"workspace of {geometry.workspace} bytes is no multiple of 256"
    return None


def _wrong_fields(
    chosen: Plan, params: Params, step: Step, launch: Launched, pointers: dict[str, list[int]], ready: Operands,
    workspace: int, geometry: Geometry,
) -> str | None:  # fmt: skip
    if len(launch.image) != params.size:
        return f"{len(launch.image)} bytes of parameters, the page declares {params.size}"
    fields = launch.fields(params)
    scalars = {s.name: ready.case.arrays[s.name] for s in scalars_of(chosen.args)}
    for name, slot in params.slots.items():
        given, got = step.params.get(name), fields[name]
        wanted: Any
        if slot.kind == "map":
            wanted = encoded_map(given, pointers[given.operand][0]) if given else bytes(slot.nbytes)
        elif slot.kind == "workspace":
            if not 0 <= int(given or 0) <= geometry.workspace or int(given or 0) % 16:
                return f"{name}: workspace offset {given} (of {geometry.workspace} bytes)"
            wanted = workspace + int(given or 0)
        elif slot.kind == "status" or (name.endswith("_ptr") and name[:-4] in params.scalars):
            wanted = 0
        elif name.endswith("_value") and name[:-6] in params.scalars:
            wanted = scalars[step.params.get(f"{name[:-6]}_ptr", name[:-6])] if given is None else given
            if isinstance(wanted, int):
                wanted = (wanted + 2**63) % 2**64 - 2**63  # one of uint64 has the same bits in the int64 it travels in
        elif slot.kind == "ptr" and slot.extents:
            listed = pointers[given[0]][given[1] : given[2]]  # type: ignore[index]
            wanted = (*listed, *(0,) * (slot.count - len(listed)))
        elif slot.kind == "ptr":
            source, shift = (name, 0) if given is None else given if isinstance(given, tuple) else (given, 0)
            wanted = pointers[source][0] + shift if pointers[source] else 0
        else:
            flat = np.ravel(np.asarray(given, dtype=object)).tolist() if slot.extents else [given]
            flat = [x for item in flat for x in (item if isinstance(item, (list, tuple)) else [item])]
            wanted = tuple(flat) + (0,) * (slot.count - len(flat)) if slot.extents else given
            if slot.kind == "f32":
                wanted = tuple(float(np.float32(x)) for x in wanted) if slot.extents else float(np.float32(wanted))
        if got != wanted:
            return f"field {name} is {got}, expected {wanted}"
    return None


def check_launch_errors(plan: type[Plan], draw: Draw) -> None:
    """Every declared error of the CUDA path, before any launch."""
    case = make_case(plan, draw)
    chosen = plan.select(case.desc, device=fake_device(9.0 if 9.0 in capabilities(plan) else capabilities(plan)[0]))
    ready = operands(case)
    with recording() as record:
        if not any(isinstance(step, Step) for step in chosen.plan_layout(ready.args(pointer_view))[1].steps):
            return
        chosen.prepare(ready.args(pointer_view))  # so that the code for layouts already known meets the wrong calls
        check_wrong(chosen, ready, pointer_view, lambda a: a, host=False)
        if record.launches:
            raise AssertionError(f"{ready}: a refused call launched {record.launches[0].function.symbol}")
        chosen.run(ready.args(pointer_view))


def check_zero_launches(plan: type[Plan], draw: Draw) -> None:
    """Nothing to write means no launch; an empty reduction with something to write still launches a valid grid."""
    case = make_case(plan, draw, plain=True)
    device = fake_device(draw.choice(capabilities(plan)))
    for desc in zero_sized(plan, case.desc):
        ready = operands(fill(plan, desc, draw.seed(), kind=draw.kind))
        chosen = plan.select(desc, device=device)
        args = ready.args(pointer_view)
        empty = not any(one.view.size for spec, _, one in ready.items() if spec.writes)
        with recording() as record:
            verdict = chosen.can_implement(args)
            if not verdict:
                raise AssertionError(f"{ready}\non {device}: refused: {verdict.reason}")
            variant, geometry, _ = chosen.plan_layout(args)
            if any(isinstance(step, LibraryStep) for step in geometry.steps):
                continue
            chosen.run(args)
            if empty and record.launches:
                raise AssertionError(f"{ready}\non {device}: nothing to write, but launched")
            if not empty and not record.launches:
                raise AssertionError(f"{ready}\non {device}: outputs to write, but nothing was launched")
            check_record(chosen, ready, variant, geometry, record)
