"""Every kernel compiles for its design's own target, within its registers, and spills only where its row says so.

`locks/` has what the assembler said of every kernel's units. The units of lines whose key is stale are compiled here,
and a few of the others too; a lock that is out of date or wrong fails.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping

import pytest
from scripts import tool

from baracuda_py.core import registry
from baracuda_py.core.errors import CompileError
from baracuda_py.core.plan import Plan
from baracuda_py.core.warm import Job, jobs
from baracuda_py.jit import nvrtc

# Kernels per op (of one kind, where it is a table) and target. flash_decoding has 264: its rows of floats have one for
# each head_dim and number of heads, with terms and without, with weights that are kept and without.
CEILING = 330
SAMPLE = 0.003  # of the units that the lock knows: they are compiled all the same
PLANS = registry.plans()
LOCK, LINES = tool("kernels_lock"), tool("lock_lines")
Lines = Mapping["tuple[type[Plan], tuple[str, str]]", "tuple[object, ...] | CompileError"]


def jobs_of(name: str) -> list[tuple[Job, str]]:
    return [(job, job.variant.design.target) for job in jobs([PLANS[name]])]


def on_tensor_cores(job: Job) -> bool:
    return not {"mma", "wgmma"}.isdisjoint(re.split("[/_.]", job.variant.source or ""))


@pytest.fixture(scope="session")
def lines(request: pytest.FixtureRequest) -> Lines:
    """The lines of the kernels that the selected tests ask for: of the lock, those that are stale made here."""
    try:
        nvrtc.load()
    except CompileError as error:
        pytest.skip(f"kernels not compiled: {error}")
    calls = [item.callspec for item in request.session.items if getattr(item, "originalname", "") == NEEDS]  # type: ignore[attr-defined]
    plans = [PLANS[name] for name in dict.fromkeys(str(call.params["name"]) for call in calls)]
    wanted, held = LOCK.kernels(plans), LOCK.held(plans)
    now = LOCK.line_keys(wanted)
    fresh = {place: held[place] for place in wanted if place in held and held[place].key == now[place]}
    stale = {place: found for place, found in wanted.items() if place not in fresh}
    known = [(line, unit) for place, line in fresh.items() for unit in LOCK.units({place: wanted[place]}).items()]
    sample = random.sample(known, round(SAMPLE * len(known)))
    found = LOCK.resources(LOCK.units(stale) | dict(unit for _, unit in sample))
    wrong = [
        f"{name} for {target}: {found[name, target]}, where the lock has {line}"
        for line, ((name, target), _) in sample
        if isinstance(found[name, target], CompileError) or not LINES.agrees(line, name, found[name, target])
    ]
    assert not wrong, "the lock is wrong, run python tools/kernels_lock.py --all\n" + "\n".join(wrong)
    return fresh | LOCK.compiled(stale, now, found)


@pytest.mark.parametrize("name", PLANS)
def test_kernels_compile_within_their_budget(
    name: str, lines: Lines, record_property: Callable[[str, object], None]
) -> None:
    wrong = []
    for place, found in LOCK.kernels([PLANS[name]]).items():
        line, (kernel, target) = lines[place], place[1]
        if isinstance(line, CompileError):
            raise line
        if any(on_tensor_cores(job) for job in found):  # the summary has a table of them
            spilled = "{} + {}".format(*max(line.spills.values(), key=sum)) if line.spills else ""
            record_property("kernel", (f"{PLANS[name].op} {kernel}", target, line.registers, spilled))
        allowed = min(job.instance.kernel.max_registers for job in found)
        if line.registers > allowed:
            wrong.append(f"{kernel} for {target}: {line.registers} registers, {allowed} allowed")
        wrong += [f"{unit}: spills {line.spills[unit]} bytes" for unit in LOCK.undeclared(line, found)]
        wrong += [f"{unit}: its products on wgmma are serialised" for unit in line.serialised]
        if line.static_smem > 48 * 1024:
            wrong.append(f"{kernel} for {target}: {line.static_smem} bytes of static shared memory")
    assert not wrong, "\n".join(wrong)


NEEDS = test_kernels_compile_within_their_budget.__name__


@pytest.mark.parametrize("name", PLANS)
def test_no_op_has_many_kernels(name: str) -> None:
    counts: dict[object, set[str]] = {}  # rows may share kernels
    for job, target in jobs_of(name):
        counts.setdefault((job.kind, target), set()).update(job.unit.symbols)
    assert all(len(symbols) <= CEILING for symbols in counts.values()), {k: len(s) for k, s in counts.items()}


@pytest.mark.parametrize("name", PLANS)
def test_unit_names_and_symbols_are_unique(name: str) -> None:
    seen: dict[tuple[str, str], str] = {}
    symbols: dict[tuple[str, str], str] = {}
    for job, target in jobs_of(name):
        unit = job.unit
        assert seen.setdefault((unit.name, target), unit.text) == unit.text, (
            f"{unit.name} names two units ({job.variant.name})"
        )
        for symbol in unit.symbols:
            assert symbols.setdefault((symbol, target), unit.name) == unit.name, symbol
