"""Keeps `locks/`: what the assembler said of every op's kernels, so that a check compiles only what changed.

    python tools/kernels_lock.py [PLAN …]        # compile the units of lines that are stale, and write the ops' files
    python tools/kernels_lock.py --all [PLAN …]  # compile every unit, say which lines were wrong, and write the files

PLAN is a plan, an op or a family; without one all are meant. `locks/<op>.lock` has a line for each kernel of the op and
target: one key over all that its units are compiled from (of each the tokens of its flattened source, so that comments
and layout change nothing, options, NVRTC's version, the toolkit's headers), how many units there are, and the most
registers and bytes of stack and of static shared memory that one of them takes. Below it stand the units that spill,
with the bytes stored and loaded, and those whose products on wgmma the assembler made wait for one another.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from lock_keys import keys, version  # noqa: E402
from lock_lines import Line, Name, made, read, render  # noqa: E402

from baracuda_py.core import registry  # noqa: E402
from baracuda_py.core.errors import CompileError, InvalidProblemError  # noqa: E402
from baracuda_py.core.plan import Plan  # noqa: E402
from baracuda_py.core.unit import KernelInfo  # noqa: E402
from baracuda_py.core.warm import Job, jobs  # noqa: E402
from baracuda_py.jit import Unit, compile_many  # noqa: E402
from baracuda_py.jit.cache import make_key  # noqa: E402
from baracuda_py.jit.compiler import Progress  # noqa: E402

LOCKS = ROOT / "locks"
Plans = Iterable[type[Plan]]
Place = tuple[type[Plan], Name]  # of a line


def path(plan: type[Plan]) -> Path:
    """The file of a plan's kernels."""
    return LOCKS / f"{plan.op}.lock"


def kernels(plans: Plans) -> dict[Place, list[Job]]:
    """The kernels of plans for their rows' targets, each with its units, some of which rows and kinds share."""
    found: dict[Place, list[Job]] = {}
    for job in jobs(plans):
        found.setdefault((job.plan, (job.instance.kernel.name, job.variant.design.target)), []).append(job)
    return found


def units(kernels: Mapping[Place, Iterable[Job]]) -> dict[Name, Unit]:
    """The units of kernels."""
    return {(job.unit.name, target): job.unit for (_, (_, target)), found in kernels.items() for job in found}


def line_keys(kernels: Mapping[Place, Iterable[Job]]) -> dict[Place, str]:
    """The key of each kernel's line as it is now: of its units' names and keys."""
    now = keys(units(kernels))
    return {
        place: make_key(sorted({f"{job.unit.name} {now[job.unit.name, place[1][1]]}" for job in found}))[:20]
        for place, found in kernels.items()
    }


def held(plans: Plans) -> dict[Place, Line]:
    """What the files say."""
    return {(plan, name): line for plan in plans for name, line in read(path(plan)).items()}


def resources(units: Mapping[Name, Unit], progress: Progress | None = None) -> dict[Name, KernelInfo | CompileError]:
    """What the assembler says of units now, compiled or from the cache."""
    results = compile_many([(unit, target) for (_, target), unit in units.items()], progress=progress)
    return {
        name: cubin if isinstance(cubin, CompileError) else cubin.kernels[unit.symbols[0]]
        for (name, unit), cubin in zip(units.items(), results, strict=True)
    }


def compiled(
    kernels: Mapping[Place, Iterable[Job]], now: Mapping[Place, str], found: Mapping[Name, KernelInfo | CompileError]
) -> dict[Place, Line | CompileError]:
    """The lines of kernels whose units' resources are found; where one does not compile, its error."""
    lines: dict[Place, Line | CompileError] = {}
    for place, of_kernel in kernels.items():
        infos = {job.unit.name: found[job.unit.name, place[1][1]] for job in of_kernel}
        error = next((info for info in infos.values() if isinstance(info, CompileError)), None)
        lines[place] = error or made(now[place], infos)  # type: ignore[arg-type]
    return lines


def undeclared(line: Line, of_kernel: Iterable[Job]) -> list[str]:
    """The units of a kernel that spill though a row that has them does not say that they may."""
    return sorted({job.unit.name for job in of_kernel if job.unit.name in line.spills and not job.variant.may_spill})


def idle(kernels: Mapping[Place, Iterable[Job]], lines: Mapping[Place, Line]) -> list[str]:
    """The rows that say that their kernels may spill, where none does."""
    rows: dict[str, bool] = {}
    for place, of_kernel in kernels.items():
        for job in of_kernel:
            if job.variant.may_spill:
                row = f"{job.plan.op}: {job.variant.name}"
                rows[row] = rows.get(row, False) or job.unit.name in lines[place].spills
    return [row for row, spills in rows.items() if not spills]


def write(plans: Plans, lines: Mapping[Place, Line]) -> None:
    """The files of plans; one without kernels has none."""
    LOCKS.mkdir(exist_ok=True)
    for plan in plans:
        of_plan = {name: line for (one, name), line in lines.items() if one is plan}
        if of_plan:
            path(plan).write_text(render(of_plan, version()))
        else:
            path(plan).unlink(missing_ok=True)


def gone() -> list[Path]:
    """Files of ops that are no more."""
    return sorted(set(LOCKS.glob("*.lock")) - set(map(path, registry.plans().values())))


def anew(target: str, line: Line, before: Line | None) -> list[str]:
    """What spills more than it did."""
    found = []
    for unit, (stored, loaded) in line.spills.items():
        was = before.spills.get(unit, (0, 0)) if before else (0, 0)
        if stored + loaded > sum(was):
            found.append(f"{unit} for {target} spills {stored} + {loaded} bytes, before {was[0]} + {was[1]}")
    return found


def _named(names: Iterable[str]) -> list[type[Plan]]:
    found = [plan for name in names for plan in registry.family(name)] or registry.plans().values()
    return list(dict.fromkeys(found))


def _progress(done: int, total: int, unit: Unit, target: str, _: object) -> None:
    if sys.stderr.isatty() or done % 100 == 0 or done == total:
        end = "\r" if sys.stderr.isatty() and done < total else "\n"
        print(f"{done}/{total} {unit.name:<64.64} {target}", end=end, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("plans", nargs="*", metavar="PLAN", help="a plan, an op or a family; all without one")
    parser.add_argument("--all", action="store_true", help="compile every unit, whether or not its line is stale")
    given = parser.parse_args()
    try:
        plans = _named(given.plans)
    except InvalidProblemError as error:
        parser.error(str(error))
    wanted, before = kernels(plans), held(plans)
    now = line_keys(wanted)
    fresh = {place: before[place] for place, key in now.items() if place in before and before[place].key == key}
    chosen = {place: found for place, found in wanted.items() if given.all or place not in fresh}
    lines = compiled(chosen, now, resources(units(chosen), _progress))
    failed = {str(line): line for line in lines.values() if isinstance(line, CompileError)}
    for text in failed:
        print(f"error: {text}", file=sys.stderr)
    if failed:
        return 1
    made_now = {place: line for place, line in lines.items() if isinstance(line, Line)}
    said = [text for place, line in made_now.items() for text in anew(place[1][1], line, before.get(place))]
    touched = {place: found for place, found in wanted.items() if place[0] in {plan for plan, _ in chosen}}
    said += [f"{row} is declared to spill, and does not" for row in idle(touched, fresh | made_now)]
    wrong = [place for place, line in made_now.items() if place in fresh and fresh[place] != line]
    said += [f"{path(plan).name} was wrong about {kernel} for {target}" for plan, (kernel, target) in wrong]
    print("".join(f"{text}\n" for text in said), end="")
    write(plans, fresh | made_now)
    for file in [] if given.plans else gone():
        file.unlink()
    print(f"{LOCKS.name}/: {len(wanted)} kernels of {len(plans)} ops, {len(chosen)} compiled")
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
