"""The checks every op passes without a GPU; use them on plans of your own.

    from baracuda_py.testing import CHECKS, exercise
    for check in CHECKS:
        exercise(MyPlan, check)

A check takes (plan class, draw) and raises AssertionError with the problem that failed. `exercise` runs it on one
seeded problem per (kind, element) and on drawn ones.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.args import arrays_of
from ..core.element import ElementKind
from ..core.plan import Plan
from .draw import Draw, HypothesisDraw, SeededDraw, combinations, fill, make_case, zero_sized
from .errors import check_wrong
from .gradients import check_gradients
from .launches import check_devices, check_launch_errors, check_launches, check_zero_launches
from .operands import Operands, operands
from .recording import pointer_view
from .reference import call, evaluate, values

Check = Callable[[type[Plan], Draw], None]


def exercise(
    plan: type[Plan], check: Check, examples: int = 12, elements: tuple[ElementKind, ...] | None = None,
    seeded: bool = True,
) -> None:  # fmt: skip
    """Run a check on a seeded problem per (kind, element), then on `examples` that hypothesis draws and shrinks."""
    pairs = [pair for pair in combinations(plan) if elements is None or pair[1] in elements]
    if not pairs:
        raise AssertionError(f"{plan.__name__} serves none of {elements}")
    for kind, element in pairs if seeded else ():
        seed = zlib.crc32(f"{plan.op} {kind} {element} {check.__name__}".encode())
        check(plan, SeededDraw(seed, element, kind))
    if not examples:
        return
    try:
        import hypothesis
        from hypothesis import strategies
    except ImportError as error:
        raise ImportError("drawn problems need hypothesis: pip install hypothesis; examples=0 draws none") from error

    @hypothesis.settings(max_examples=examples, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(strategies.sampled_from(pairs), strategies.data())
    def drawn(pair: tuple[Any, ElementKind], data: Any) -> None:
        check(plan, HypothesisDraw(data, pair[1], pair[0]))

    drawn()


def check_layouts(plan: type[Plan], draw: Draw) -> None:
    """Whatever the layout: the reference in float64 rounded once, every output written, nothing else touched."""
    case = make_case(plan, draw, special=draw.integer(0, 3) == 0)
    chosen = plan.select(case.desc, device="cpu")
    results = evaluate(case)
    ready = operands(case, draw, poison=draw.choice((0xFF, 0x55)))
    _run(chosen, ready, results)


def _run(chosen: Plan, ready: Operands, results: dict[str, Any]) -> None:
    args = ready.args()
    verdict = chosen.can_implement(args)
    if not verdict:
        raise AssertionError(f"{ready}\nrefused: {verdict.reason}")
    chosen.run(args)
    wrong = ready.damage() or ready.compare(results)
    if wrong:
        raise AssertionError(f"{ready}\n{wrong}")


def check_dtypes(plan: type[Plan], draw: Draw) -> None:
    """The reference computes in the dtype it is given: float32 stays float32, its widest stays that (`Plan.widest`).

    A complex result has parts of that dtype.
    """
    if plan.raw:
        return
    case = make_case(plan, draw)
    floats = {s.name for s in arrays_of(plan.args) if s.writes and all(e.is_inexact for e in s.elements(case.desc))}
    reads_floats = any(e.is_inexact for s in arrays_of(plan.args) if s.reads for e in s.elements(case.desc))
    for compute in (np.float32, plan.widest):
        for name, result in evaluate(case, compute).items() if reads_floats else ():
            for one in result if isinstance(result, (list, tuple)) else [result]:
                if name in floats and np.asarray(one).real.dtype != compute:
                    raise AssertionError(
                        f"{case}\n{name} of the reference is {np.asarray(one).dtype}, given {compute.__name__}"
                    )


def check_inputs_kept(plan: type[Plan], draw: Draw) -> None:
    """The reference changes no input, whatever optional outputs are wanted, and returns each of those."""
    case = make_case(plan, draw)
    given = values(case)
    before = values(case)
    call(plan, case.desc, given, case.wanted)
    for spec in arrays_of(plan.args):
        if spec.role == "in" and given[spec.name] is not None:
            pair = zip(_list(given[spec.name]), _list(before[spec.name]), strict=True)
            if any(a.tobytes() != b.tobytes() for a, b in pair):
                raise AssertionError(f"{case}\nthe reference changes its input {spec.name}")


def _list(value: Any) -> list[np.ndarray]:
    return value if isinstance(value, list) else [value]


def check_inplace(plan: type[Plan], draw: Draw) -> None:
    """An output that may be an identical view of an input gives the same result there."""
    named = {s.name: s for s in arrays_of(plan.args)}
    pairs = [(s, name) for s in named.values() for name in s.inplace]
    for spec, name in pairs:
        case = make_case(plan, draw)
        source = case.arrays[name]
        if spec.name not in case.wanted or not isinstance(source, np.ndarray):
            continue
        if not set(spec.elements(case.desc)) & set(named[name].elements(case.desc)):
            continue  # carriers alike, of different elements
        ready = operands(case, draw, rule=spec.layout)
        target, laid = ready.laid[spec.name], ready.laid[name]
        if (target.shape, target.dtype) != (laid.shape, laid.dtype) or laid.placement.broadcast:
            continue
        results = evaluate(case)
        ready.laid[spec.name] = laid
        chosen = plan.select(case.desc, device="cpu")
        args = ready.args()
        if not (verdict := chosen.can_implement(args)):
            raise AssertionError(f"{ready}\n{spec.name} may be {name}, but: {verdict.reason}")
        chosen.run(args)
        ready.laid[name] = None  # it is the output now
        wrong = ready.damage() or ready.compare(results)
        if wrong:
            raise AssertionError(f"{ready}\n{spec.name} in place of {name}: {wrong}")


def check_errors(plan: type[Plan], draw: Draw) -> None:
    """Every declared error on the NumPy backend; the plan works afterwards."""
    case = make_case(plan, draw)
    chosen = plan.select(case.desc, device="cpu")
    ready = operands(case)
    check_wrong(chosen, ready, lambda a: a, pointer_view, host=True)
    _run(chosen, ready, evaluate(case))


def check_zero_size(plan: type[Plan], draw: Draw) -> None:
    """With an extent of zero: the reference's result, or a descriptor that refuses it; no warning, no crash."""
    case = make_case(plan, draw, plain=True)
    for desc in zero_sized(plan, case.desc):
        empty = fill(plan, desc, draw.seed(), kind=draw.kind)
        chosen = plan.select(desc, device="cpu")
        ready = operands(empty)
        results = evaluate(empty)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            _run(chosen, ready, results)


CHECKS: tuple[Check, ...] = (
    check_layouts, check_dtypes, check_inputs_kept, check_inplace, check_errors, check_zero_size, check_gradients,
    check_devices, check_launches, check_launch_errors, check_zero_launches,
)  # fmt: skip

check_inplace.applies = lambda plan: any(s.inplace for s in arrays_of(plan.args))  # type: ignore[attr-defined]
check_dtypes.applies = lambda plan: not plan.raw  # type: ignore[attr-defined]
check_gradients.applies = lambda plan: plan.vjp is not None  # type: ignore[attr-defined]
