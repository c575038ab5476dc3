"""`locks/`: it is current, keys are of what is compiled, lines say the most that a unit takes, the tool keeps them."""

from __future__ import annotations

import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripts import tool

import baracuda_py
from baracuda_py.core import registry
from baracuda_py.core.errors import CompileError
from baracuda_py.jit import KernelInfo, source

LOCK, LINES, KEYS = tool("kernels_lock"), tool("lock_lines"), tool("lock_keys")
PLANS = registry.plans().values()


@pytest.fixture(scope="module")
def version() -> str:
    """Of NVRTC, which keys are made of."""
    try:
        return str(KEYS.version())
    except CompileError as error:
        pytest.skip(f"keys need NVRTC's version: {error}")


@pytest.fixture(scope="module")
def kernels() -> dict[Any, Any]:
    """Those of all plans."""
    return dict(LOCK.kernels(PLANS))


def test_the_lock_knows_every_unit_as_it_is(version: str, kernels: dict[Any, Any]) -> None:
    titles = {file.read_text().split("\n", 1)[0] for file in LOCK.LOCKS.glob("*.lock")}
    if others := {title.split()[-1] for title in titles} - {version}:
        pytest.skip(f"locks/ was made with NVRTC {others}, here is {version}: all units are compiled instead")
    now, held = LOCK.line_keys(kernels), LOCK.held(PLANS)
    changed = dict(now.items() ^ {place: line.key for place, line in held.items()}.items())
    stale = sorted(f"{plan.op}: {kernel} for {target}" for plan, (kernel, target) in changed)
    assert not stale, f"locks/ is stale, run python tools/kernels_lock.py: {len(stale)} lines, {stale[:3]}"
    assert not LOCK.gone(), "locks/ has files of ops that are no more, run python tools/kernels_lock.py"


def test_rows_declare_what_the_lock_says_of_spills(kernels: dict[Any, Any]) -> None:
    """A row says that its kernels may spill if and only if one of them does, for any target."""
    held = LOCK.held(PLANS)
    known = {place: found for place, found in kernels.items() if place in held}
    assert LOCK.idle(known, held) == [], "rows that say `may_spill`, and of which nothing spills"
    silent = {place: units for place, found in known.items() if (units := LOCK.undeclared(held[place], found))}
    assert silent == {}, "kernels that spill in rows that do not say `may_spill`"


def test_keys_are_of_tokens() -> None:
    tokens = KEYS.tokens
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


def test_a_changed_file_changes_the_keys_of_the_units_that_hold_it(
    version: str, kernels: dict[Any, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a comment in it no key."""
    root = tmp_path / "kernels"
    shutil.copytree(source.kernel_root(), root)
    monkeypatch.setattr(source, "kernel_root", lambda: root)
    every = LOCK.units(kernels)
    units = {name: every[name] for name in random.sample(sorted(every), 25)}
    was = KEYS.keys(units)
    held = {name: source.flatten(unit.text) for name, unit in units.items()}  # which names each file that it holds
    files = [file for file in sorted(root.rglob("*.cu*")) if any(_names(file, root) in t for t in held.values())]
    for file in random.sample(files, 8):
        text = file.read_text()
        for added, changes in (("\nstruct Added {};\n", True), ("\n// A comment.\n", False)):
            file.write_text(text + added)
            now = KEYS.keys(units)
            changed = {name for name in units if now[name] != was[name]}
            assert changed == {name for name in units if changes and _names(file, root) in held[name]}, file
        file.write_text(text)


def _names(file: Path, root: Path) -> str:
    return f'#line 1 "{file.relative_to(root)}"'


INFOS = {
    "b__k__bfloat16": KernelInfo(168, spill_stores=8, spill_loads=12, stack=16, static_smem=1024, serialised=True),
    "a__k__float64": KernelInfo(200, spill_stores=0, spill_loads=4, stack=0, static_smem=2048),
    "a__k__float32": KernelInfo(96, spill_stores=0, spill_loads=0, stack=24, static_smem=0),
}


def test_a_line_reads_as_it_was_written(tmp_path: Path) -> None:
    """And says the most that a unit takes, which units spill, and which are serialised."""
    lines = {
        ("split", "sm_90a"): LINES.made("0123456789abcdef0123", INFOS),
        ("flat", "sm_80"): LINES.made("f" * 20, {"a__k__float32": INFOS["a__k__float32"]}),
    }
    text = LINES.render(lines, "12.9")
    assert text.splitlines()[1:] == [
        "flat sm_80 ffffffffffffffffffff 1 units, 96 registers, 24 stack, 0 shared",
        "split sm_90a 0123456789abcdef0123 3 units, 200 registers, 24 stack, 2048 shared",
        "  a__k__float64 spills 0+4",
        "  b__k__bfloat16 spills 8+12",
        "  b__k__bfloat16 serialised",
    ]
    file = tmp_path / "op.lock"
    assert LINES.read(file) == {}
    file.write_text(text)
    assert LINES.read(file) == lines
    file.write_text(text.replace("flat sm_80", "<<<<<<< flat sm_80"))
    with pytest.raises(SystemExit, match="does not read as a line"):
        LINES.read(file)


@pytest.mark.parametrize("what", ["registers", "spill_stores", "spill_loads", "stack", "static_smem"])
@pytest.mark.parametrize("unit", INFOS)
def test_a_unit_that_takes_more_than_its_line_says_is_seen(unit: str, what: str) -> None:
    line, info = LINES.made("0" * 20, INFOS), INFOS[unit]
    assert LINES.agrees(line, unit, info)
    most = max(getattr(one, what) for one in INFOS.values()) + 1
    assert not LINES.agrees(line, unit, replace(info, **{what: most}))
    assert not LINES.agrees(line, unit, replace(info, serialised=not info.serialised))
    spills = replace(info, spill_stores=info.spill_stores + 4, spill_loads=max(0, info.spill_loads - 4))
    assert not LINES.agrees(line, unit, spills), "bytes are those that the line names"


# -- the tool -------------------------------------------------------------------------------------------------------

PLAN = baracuda_py.RMSNormPlan


@pytest.fixture
def run(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Calls the tool over locks in an empty folder, with an assembler for which every kernel takes 32 registers."""
    plain = KernelInfo(32, 0, 0, 0, 0)

    def run(*arguments: str, **spilling: int) -> int:
        asked = []

        def resources(units: Any, progress: Any = None) -> Any:
            asked.extend(units)
            return {name: replace(plain, spill_stores=spilling.get(name[0], 0)) for name in units}

        monkeypatch.setattr(LOCK, "LOCKS", tmp_path)
        monkeypatch.setattr(LOCK, "resources", resources)
        monkeypatch.setattr(sys, "argv", ["kernels_lock", *arguments])
        run.asked, run.status = asked, LOCK.main()  # type: ignore[attr-defined]
        return len(asked)

    return run


def test_the_tool_does_the_plans_that_are_named(run: Callable[..., int], tmp_path: Path) -> None:
    units = LOCK.units(LOCK.kernels([PLAN]))
    (tmp_path / "norm.gone.lock").write_text("")
    assert run("RMSNormPlan") == len(units)
    assert {file.name for file in tmp_path.iterdir()} == {"norm.rms_norm.lock", "norm.gone.lock"}
    assert run("norm.rms_norm") == 0
    assert run("--all", "rms_norm") == len(units)
    with pytest.raises(SystemExit):
        run("rms_nrom")


def test_the_tool_compiles_what_is_stale(run: Callable[..., int], tmp_path: Path) -> None:
    run("RMSNormPlan")
    file = tmp_path / "norm.rms_norm.lock"
    text = file.read_text()
    line = text.splitlines()[3]
    kernel, target, key = line.split()[:3]
    file.write_text(text.replace(key, "0" * 20))
    count = run("RMSNormPlan")
    assert 0 < count == int(line.split()[3]) and file.read_text() == text
    assert all(f"__{kernel}__" in unit and of == target for unit, of in run.asked)  # type: ignore[attr-defined]


def test_the_tool_says_what_spills_anew(run: Callable[..., int], capsys: pytest.CaptureFixture[str]) -> None:
    run("RMSNormPlan")
    capsys.readouterr()
    unit, target = next(iter(LOCK.units(LOCK.kernels([PLAN]))))
    run("--all", "RMSNormPlan", **{unit: 12})
    out = capsys.readouterr().out
    assert f"{unit} for {target} spills 12 + 0 bytes, before 0 + 0\n" in out
    assert "norm.rms_norm.lock was wrong about" in out and run.status == 1  # type: ignore[attr-defined]
    run("--all", "RMSNormPlan", **{unit: 12})
    assert capsys.readouterr().out.count("\n") == 1 and run.status == 0  # type: ignore[attr-defined]


def test_what_is_declared_to_spill_and_does_not_is_said_and_fails_nothing(
    run: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    run("SamplingPlan")
    assert "random.sample: row is declared to spill, and does not\n" in capsys.readouterr().out
    assert run.status == 0  # type: ignore[attr-defined]
    unit, _ = next(iter(LOCK.units(LOCK.kernels([baracuda_py.SamplingPlan]))))
    run("--all", "SamplingPlan", **{unit: 4})
    assert "and does not" not in capsys.readouterr().out


@pytest.mark.parametrize("plan", ["RMSNormPlan", "SamplingPlan"])
def test_what_spills_is_declared(plan: str) -> None:
    """By every row that has the kernel, whatever its other instances do."""
    of_kernel = next(iter(LOCK.kernels([getattr(baracuda_py, plan)]).values()))
    infos = {job.unit.name: KernelInfo(32, 0, 0, 0, 0) for job in of_kernel}
    first = of_kernel[0].unit.name
    assert LOCK.undeclared(LINES.made("0" * 20, infos), of_kernel) == []
    spilling = LINES.made("0" * 20, infos | {first: KernelInfo(32, 0, 4, 0, 0)})
    assert LOCK.undeclared(spilling, of_kernel) == ([] if plan == "SamplingPlan" else [first])
    silent = [replace(job, variant=replace(job.variant, may_spill=False)) for job in of_kernel]
    assert LOCK.undeclared(spilling, [*of_kernel, *silent]) == [first]
