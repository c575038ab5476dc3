"""Every kernel compiles for its design's own target, within its registers and without spills. No GPU needed.

`kernels.lock` has what the assembler said of every unit. Units whose key is not in it are compiled here, and a few of
the others too; a lock that is out of date or wrong fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType

import pytest
from scripts import tool

from baracuda_py.core import registry
from baracuda_py.core.errors import CompileError
from baracuda_py.core.warm import Job, jobs
from baracuda_py.jit import KernelInfo, nvrtc

CEILING = 250  # kernels per op (of one kind, where it is a table) and target
SAMPLE = 0.01  # of the units that the lock knows: they are compiled all the same
PLANS = registry.plans()
Resources = Mapping[tuple[str, str], "tuple[KernelInfo, ...] | CompileError"]


@cache
def lock() -> ModuleType:
    return tool("kernels_lock")


def jobs_of(name: str) -> list[tuple[Job, str]]:
    return [(job, job.variant.design.target) for job in jobs([PLANS[name]])]


@pytest.fixture(scope="session")
def resources(request: pytest.FixtureRequest) -> Resources:
    """What the assembler says of the units that the selected tests ask for."""
    try:
        nvrtc.load()
    except CompileError as error:
        pytest.skip(f"kernels not compiled: {error}")
    calls = [item.callspec for item in request.session.items if getattr(item, "originalname", "") == NEEDS]  # type: ignore[attr-defined]
    names = dict.fromkeys(str(call.params["name"]) for call in calls)
    units = {(job.unit.name, target): job.unit for name in names for job, target in jobs_of(name)}
    made_with, held = lock().read(lock().PATH.read_text())
    if made_with != lock().version():
        return lock().resources(units, units)  # the lock tells nothing of this compiler's machine code
    now = lock().keys(units)
    known = [name for name in units if name in held and held[name].key == now[name]]
    sample = set(random.sample(known, round(SAMPLE * len(known))))
    found = lock().resources(units, [name for name in units if name not in known or name in sample])
    wrong = [f"{name}: {held[name].kernels}, now {found[name]}" for name in sample if found[name] != held[name].kernels]
    assert not wrong, "kernels.lock is wrong, run python tools/kernels_lock.py --all\n" + "\n".join(wrong)
    return {name: held[name].kernels for name in known} | found


@pytest.mark.parametrize("name", PLANS)
def test_kernels_compile_within_their_budget(
    name: str, resources: Resources, record_property: Callable[[str, object], None]
) -> None:
    exact = lock().read(lock().PATH.read_text())[0] == lock().version()  # another NVRTC may spill less
    counts: dict[object, set[str]] = {}  # rows may share kernels
    wrong = []
    for job, target in jobs_of(name):
        found = resources[job.unit.name, target]
        if isinstance(found, CompileError):
            raise found
        counts.setdefault((job.kind, target), set()).update(job.unit.symbols)
        instance, (info,) = job.instance, found
        kernel = instance.kernel
        if "mma" in (job.variant.source or ""):  # tensor cores: the summary has a table of them
            spilled = f"{info.spill_stores} + {info.spill_loads}" if info.spill_stores + info.spill_loads else ""
            record_property("kernel", (instance.symbol, target, info.registers, spilled))
        if info.registers > kernel.max_registers:
            wrong.append(f"{instance.symbol}: {info.registers} registers, {kernel.max_registers} allowed")
        declared = kernel.may_spill(job.element, instance.axes, job.kind)
        spills = info.spill_stores + info.spill_loads
        if spills and not declared:
            wrong.append(f"{instance.symbol}: spills {info.spill_stores} + {info.spill_loads} bytes")
        if declared and not spills and exact:
            wrong.append(f"{instance.symbol}: declared to spill, and does not")
        if info.serialised:
            wrong.append(f"{instance.symbol}: its products on wgmma are serialised")
        if info.static_smem > 48 * 1024:
            wrong.append(f"{instance.symbol}: {info.static_smem} bytes of static shared memory")
    assert not wrong, "\n".join(wrong)
    assert all(len(symbols) <= CEILING for symbols in counts.values()), {k: len(s) for k, s in counts.items()}


NEEDS = test_kernels_compile_within_their_budget.__name__


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


def test_the_lock_knows_every_unit_as_it_is() -> None:
    try:
        made_with = lock().version()
    except CompileError as error:
        pytest.skip(f"keys need NVRTC's version: {error}")
    wanted, held = lock().read(lock().PATH.read_text())
    if made_with != wanted:
        pytest.skip(f"kernels.lock was made with NVRTC {wanted}, here is {made_with}: all units were compiled instead")
    now = lock().keys(lock().current())
    stale = sorted({name for name, _ in {(n, k) for n, k in now.items()} ^ {(n, e.key) for n, e in held.items()}})
    assert not stale, f"kernels.lock is stale, run python tools/kernels_lock.py: {len(stale)} units, {stale[:3]}"


def test_the_lock_reads_as_it_was_written() -> None:
    info = KernelInfo(registers=168, spill_stores=8, spill_loads=12, stack=16, static_smem=1024, serialised=True)
    entries = {("unit_b", "sm_90a"): lock().Entry("k2", (info, info)), ("unit_a", "sm_80"): lock().Entry("k1", (info,))}
    text = lock().render(entries)
    assert lock().read(text) == (lock().version(), entries)
    assert text.splitlines()[1] == "unit_a sm_80 k1 168/8+12/16/1024!"


def test_keys_are_of_tokens() -> None:
    tokens = lock().tokens
    plain = "#define F(x) ((x) + 1)\n#pragma unroll\nint f(int a) { return a<<F(1'0u) + +a; }\n"
    laid_out = """// A comment, "quoted".
# define F(x) \\
    ( (x)/* one
more */+ 1 )
  #pragma   unroll
int f( int a )
{
  return a << F( 1'0u )   // of a number
             + +a; }
"""
    assert tokens(laid_out) == tokens(plain)
    for was, now in (("+ +", "++"), ("<<", "< <"), ("F(x)", "F (x)"), ("1'0u", "1'1u"), ("unroll\nint", "unroll int")):
        assert tokens(plain.replace(was, now)) != tokens(plain), (was, now)
    assert tokens('"//a" + b') != tokens('"//c" + b')
