"""Every kernel compiles for its design's own target, within its registers and without spills. No GPU needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from baracuda_py.core import registry
from baracuda_py.core.element import ElementKind
from baracuda_py.core.errors import CompileError
from baracuda_py.core.variant import Instance, Variant
from baracuda_py.jit import Cubin, Unit, compile_many, nvrtc

CEILING = 250  # kernels per op (of one kind, where it is a table) and target
PLANS = registry.plans()
TARGETS = {"any": "sm_80"}  # rows of any design
Job = tuple[Any, Variant, Unit, tuple[Instance, ...], str]  # kind, row, unit, its kernels, target


def jobs(name: str) -> Iterator[Job]:
    plan = PLANS[name]
    for variant in plan.variants:
        if variant.source is None:
            continue
        target = TARGETS.get(variant.design.target, variant.design.target)
        for kind in plan.kinds or (None,):
            for element in ElementKind:
                if variant.serves(kind, element):
                    for unit, instances in variant.units(plan.op, element, kind):
                        yield kind, variant, unit, instances, target


@pytest.fixture(scope="session")
def compiled() -> dict[tuple[str, str], Cubin | CompileError]:
    """All units, compiled together (from the cache where they are in it)."""
    try:
        nvrtc.load()
    except CompileError as error:
        pytest.skip(f"kernels not compiled: {error}")
    wanted = {(unit.name, target): (unit, target) for name in PLANS for _, _, unit, _, target in jobs(name)}
    return dict(zip(wanted, compile_many(wanted.values()), strict=True))


@pytest.mark.parametrize("name", PLANS)
def test_kernels_compile_within_their_budget(
    name: str, compiled: dict[tuple[str, str], Cubin | CompileError], record_property: Callable[[str, object], None]
) -> None:
    counts: dict[Any, set[str]] = {}  # rows may share kernels
    wrong = []
    for kind, variant, unit, instances, target in jobs(name):
        cubin = compiled[unit.name, target]
        if isinstance(cubin, CompileError):
            raise cubin
        counts.setdefault((kind, target), set()).update(instance.symbol for instance in instances)
        for instance in instances:
            info, kernel = cubin.kernels[instance.symbol], instance.kernel
            if "mma" in variant.source:  # tensor cores: the summary has a table of them
                spilled = f"{info.spill_stores} + {info.spill_loads}" if info.spill_stores + info.spill_loads else ""
                record_property("kernel", (instance.symbol, target, info.registers, spilled))
            if info.registers > kernel.max_registers:
                wrong.append(f"{instance.symbol}: {info.registers} registers, {kernel.max_registers} allowed")
            if not kernel.spills and info.spill_stores + info.spill_loads:
                wrong.append(f"{instance.symbol}: spills {info.spill_stores} + {info.spill_loads} bytes")
            if info.serialised:
                wrong.append(f"{instance.symbol}: its products on wgmma are serialised")
            if info.static_smem > 48 * 1024:
                wrong.append(f"{instance.symbol}: {info.static_smem} bytes of static shared memory")
    assert not wrong, "\n".join(wrong)
    assert all(len(symbols) <= CEILING for symbols in counts.values()), {k: len(s) for k, s in counts.items()}


@pytest.mark.parametrize("name", PLANS)
def test_unit_names_and_symbols_are_unique(name: str) -> None:
    seen: dict[tuple[str, str], str] = {}
    symbols: dict[tuple[str, str], str] = {}
    for _, variant, unit, instances, target in jobs(name):
        assert seen.setdefault((unit.name, target), unit.text) == unit.text, (
            f"{unit.name} names two units ({variant.name})"
        )
        for instance in instances:
            assert symbols.setdefault((instance.symbol, target), unit.name) == unit.name, instance.symbol
