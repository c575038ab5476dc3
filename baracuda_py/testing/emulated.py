"""Every row without a GPU: its kernels run by the emulator, against the reference."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.plan import Plan
from ..core.preference import PlanPreference
from ..core.sku import BackendKind
from .draw import Draw, make_case
from .emulator import emulated_device, emulating
from .launches import capabilities, check_refusal, with_shared_bits
from .operands import Operands, held, operands
from .recording import pointer_view
from .truth import Truth

_CAPABILITIES = (9.0, 8.0, 8.9)
_FEW = 3  # multiprocessors: enough to have a first, a last, and one between
_SEEDS = (1, 2)  # orders of threads


def emulated(plan: type[Plan], draw: Draw) -> None:
    """`emulate` over shapes, layouts, offsets and special values, on devices of two designs."""
    emulate(*draw_problem(plan, draw))


def draw_problem(plan: type[Plan], draw: Draw) -> tuple[Plan, Operands]:
    """A plan for an emulated device, and operands for it."""
    case = make_case(plan, draw, special=draw.integer(0, 3) == 0)
    served = [cc for cc in _CAPABILITIES if cc in capabilities(plan)] or capabilities(plan)[:1]
    device = emulated_device(draw.choice(served), draw.choice((None, _FEW)))
    chosen = plan(case.desc, PlanPreference(deterministic=draw.flag()), device)
    every = with_shared_bits(chosen)
    own = [row for row in every if row.backend is BackendKind.BESPOKE] or every  # or libraries' stand-ins
    chosen.rows = tuple(own[draw.integer(0, len(own) - 1) :])  # rows after the first have their turn
    ready = operands(case, draw if draw.integer(0, 3) else None)
    if draw.integer(0, 3) == 0:
        ready.held = held(case)
    return chosen, ready


def emulate(chosen: Plan, ready: Operands) -> None:
    """Within the row's bound, everything written, nothing else touched, no deadlock; the same bits in another order of
    threads where the row is deterministic."""
    args = ready.args(pointer_view)
    first: dict[tuple[str, int], np.ndarray] = {}
    for seed in _SEEDS:
        for _, _, one in ready.items():
            one.buffer[:] = one.before
        with emulating(seed) as emulator:
            verdict = chosen.can_implement(args)
            if not verdict:
                check_refusal(chosen, ready, args, verdict)
                return
            chosen.run(args)
            harm = emulator.overrun() or ready.damage()
        guarantee: Any = verdict.sku.precision_guarantee  # type: ignore[union-attr]
        got = _written(ready)
        wrong = harm or (None if first else Truth(ready.case).wrong(got, guarantee.error))
        if not wrong and first and guarantee.deterministic:
            differing = [name for (name, i), value in got.items() if value.tobytes() != first[name, i].tobytes()]
            wrong = f"other bits of {differing} in another order of threads" if differing else None
        if wrong:
            raise AssertionError(f"{ready}\n{verdict.sku}, threads in order {seed}: {wrong}")
        first = got


def _written(ready: Operands) -> dict[tuple[str, int], np.ndarray]:
    return {(spec.name, i): np.array(one.view, order="C") for spec, i, one in ready.items() if spec.writes}
