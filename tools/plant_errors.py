"""Plants an error in the functor of every kind of every table, and counts those that the emulated problems tell.

    python tools/plant_errors.py                      # every kind of every plan: an hour or two of one core
    python tools/plant_errors.py UnaryPlan            # of some plans
    python tools/plant_errors.py --sample 20          # of twenty problems, other ones every time

An error is one instruction of a kernel's PTX changed: a sum to a difference, a product to a sum, a quotient to a
product, the smaller to the larger, one comparison to another. The functor of a kind is the lines of source that its
kernel has and the same kernel of other kinds has not. An instruction that the problem's operands do not reach is passed
over for another one; one that they reach has to be told by the problem of the kind that `emulation.lock` has.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]
os.environ.setdefault("BARACUDA_CACHE_DIR", str(Path(tempfile.gettempdir(), f"baracuda-tests-{os.getuid()}")))

import emulation_lock as lock  # noqa: E402

from baracuda_py.core.unit import Unit  # noqa: E402
from baracuda_py.core.variant import Step  # noqa: E402
from baracuda_py.jit import compiler  # noqa: E402
from baracuda_py.jit.cache import make_key  # noqa: E402
from baracuda_py.testing import emulate, emulator  # noqa: E402
from baracuda_py.testing.coverage import KindTarget, Launch  # noqa: E402
from baracuda_py.testing.emulator import EmulationError  # noqa: E402
from baracuda_py.testing.emulator.translate import translate  # noqa: E402
from baracuda_py.testing.emulator.words import UntranslatableError  # noqa: E402

SECONDS = 120  # of an emulation; where an error makes a loop endless it is told
OTHERS = 4  # kinds that a kind's lines are compared with
_LOC = re.compile(r"\s*\.loc\s+(\d+) (\d+) \d+")
_FILE = re.compile(r"\s*\.file\s+(\d+) \"([^\"]*)\"")
_CHANGES: tuple[tuple[str, str], ...] = (
    (r"\badd((?:\.rn)?\.f\d\d|\.[su]\d\d)\b", r"sub\1"),
    (r"\bsub((?:\.rn)?\.f\d\d|\.[su]\d\d)\b", r"add\1"),
    (r"\bmul(\.rn)?(\.f\d\d)\b", r"add\1\2"),
    (r"\bmul\.lo(\.[su]\d\d)\b", r"add\1"),
    (r"\bdiv(\.rn)?(\.f\d\d)\b", r"mul\1\2"),
    (r"\bfma(\.rn\.f\d\d)(\s+[^,]+,[^,]+,[^,]+),[^;]+;", r"mul\1\2;"),
    (r"\bmin(\.\w+)", r"max\1"),
    (r"\bmax(\.\w+)", r"min\1"),
    (r"\bsetp\.(?:lt|le)(u?\.)", r"setp.gt\1"),
    (r"\bsetp\.(?:gt|ge)(u?\.)", r"setp.lt\1"),
    (r"\bsetp\.eq(u?\.)", r"setp.ne\1"),
    (r"\bsetp\.ne(u?\.)", r"setp.eq\1"),
    (r"\bneg(\.f\d\d|\.s\d\d)", r"abs\1"),
    (r"\babs(\.f\d\d|\.s\d\d)", r"neg\1"),
    (r"\bselp(\.\w+\s+[^,]+),([^,]+),([^,]+),", r"selp\1,\3,\2,"),
    (r"\bor(\.b\d\d)", r"and\1"),
    (r"\band(\.b\d\d)", r"or\1"),
    (r"\bxor(\.b\d\d)", r"or\1"),
    (r"\bshl(\.b\d\d)", r"shr\1"),
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """An instruction of a kernel that can be changed, by its line of PTX."""

    unit: Unit
    symbol: str
    line: int
    where: tuple[str, int]
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.where[0]}:{self.where[1]} {self.old.strip()} -> {self.new.strip()}"


@lru_cache(maxsize=256)
def ptx(unit: Unit, target: str, symbol: str) -> str:
    """A kernel's PTX, with the line of source of every instruction."""
    usual = compiler.options
    compiler.options = lambda *given: (*usual(*given), "--generate-line-info")
    try:
        return emulator.ptx.__wrapped__(emulator.alone(unit, symbol), target)
    finally:
        compiler.options = usual


def instructions(text: str) -> Iterator[tuple[int, tuple[str, int], str]]:
    """Line of PTX, place in the sources, and text of every instruction."""
    files = {found[1]: found[2] for line in text.splitlines() if (found := _FILE.match(line))}
    where = ("", 0)
    for number, line in enumerate(text.splitlines()):
        if found := _LOC.match(line):
            where = (files.get(found[1], ""), int(found[2]))
        elif line.startswith("\t") and line.endswith(";") and not line.strip().startswith("."):
            yield number, (re.sub(r".*?/(?=include/|\w+/[\w.]+$)", "", where[0]), where[1]), line


def places(launch: Launch) -> list[Place]:
    """What can be changed in the functor of a problem's kind."""
    target = launch.plan.device.target
    found: list[Place] = []
    for step in launch.steps:
        unit, symbol = kernel = _kernel(launch, step, launch.plan.kind)
        text = ptx(unit, target, symbol)
        every = [
            Place(unit, symbol, number, where, line, new)
            for number, where, line in instructions(text)
            if (new := changed(line)) is not None
        ]
        shared = [_lines(other, target) for other in _of_other_kinds(launch, step) if other != kernel]
        for others in (frozenset[Any]().union(*shared), *sorted(shared, key=len, reverse=True)):
            own = [place for place in every if place.where not in others]
            if own or not shared:
                found += own
                break
    return list(dict.fromkeys(found))


def changed(line: str) -> str | None:
    """An instruction with an error, or None where it has none to make."""
    for old, new in _CHANGES:
        made, count = re.subn(old, new, line, count=1)
        if count:
            return made
    return None


@lru_cache(maxsize=4096)
def _lines(kernel: tuple[Unit, str], target: str) -> frozenset[tuple[str, int]]:
    return frozenset(where for _, where, _ in instructions(ptx(kernel[0], target, kernel[1])))


def _kernel(launch: Launch, step: Step, kind: Any) -> tuple[Unit, str]:
    """The unit and the symbol of a step's kernel, of one kind."""
    row, plan = launch.row, launch.plan
    assert row is not None
    kernel, element = row.kernel(step.kernel), plan.desc.element
    axes = {name: step.axes[name] for name in kernel.axes_for(element)}
    instance = row.instance(plan.op, element, kind, kernel, axes)
    return row.unit(instance), instance.symbol


def _of_other_kinds(launch: Launch, step: Step) -> Iterator[tuple[Unit, str]]:
    """The same kernel of a few other kinds."""
    plan, row = launch.plan, launch.row
    assert row is not None
    kinds = list(type(plan).kinds or ())
    at = kinds.index(plan.kind)
    others = [kind for kind in kinds[at + 1 :] + kinds[:at] if row.serves(kind, plan.desc.element)]
    for kind in others[:: max(1, len(others) // OTHERS)][:OTHERS]:
        yield _kernel(launch, step, kind)


def told(launch: Launch, place: Place, line: str) -> bool:
    """Whether the problem fails with a line of PTX in an instruction's place; in a process of its own, as it may do
    anything.

    Raises EmulationError or UntranslatableError where nothing can be made of that line: that tells nothing.
    """
    target = launch.plan.device.target
    text = ptx(place.unit, target, place.symbol).splitlines()
    text[place.line] = line
    code = "\n".join(one for one in text if not re.match(r"\s*\.(loc|file)\b", one))
    usual = emulator.translated
    changed_one = emulator._library(f"{make_key((code,))} {place.symbol}", "-O0", lambda: translate(code, place.symbol))

    def translated(unit: Unit, target: str, symbol: str) -> Any:
        return changed_one if (unit, symbol) == (place.unit, place.symbol) else usual(unit, target, symbol)

    child = os.fork()
    if child == 0:
        emulator.translated = translated  # type: ignore[assignment]
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            emulate(launch.plan, launch.ready)
        except BaseException:
            os._exit(1)
        os._exit(0)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status != 0
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def plant(line: str, errors: int = 1) -> tuple[list[Place], list[Place]]:
    """Errors planted in the functor of a problem's kind, and those of them that it does not tell.

    Raises AssertionError where it fails as it is.
    """
    problem = lock.parse(line)
    assert problem is not None
    launch = problem.build()
    assert lock.failure(line) is None, f"{line} fails without an error"
    found = places(launch)
    random.Random(zlib.crc32(line.encode())).shuffle(found)
    planted: list[Place] = []
    missed: list[Place] = []
    for place in found:
        if len(planted) == errors:
            break
        try:
            seen = told(launch, place, place.new)
        except (EmulationError, UntranslatableError):
            continue
        if seen or told(launch, place, "\ttrap;"):  # the operands reach it
            planted.append(place)
            missed += [] if seen else [place]
    return planted, missed


def for_kinds(lines: Iterable[str]) -> Iterator[str]:
    """The lines that are for a kind, one for each sort of element that it takes."""
    seen = set()
    for line in lines:
        problem = lock.parse(line)
        if problem is None or problem.kind is None:
            continue
        target = KindTarget(problem.kind, problem.element)
        if (problem.plan, target) not in seen and target in problem.build().targets:
            seen.add((problem.plan, target))
            yield line


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("plans", nargs="*", help="plans to look at (default: all)")
    parser.add_argument("--sample", type=int, help="of so many problems only")
    parser.add_argument("--errors", type=int, default=1, help="errors for each functor")
    given = parser.parse_args()
    lines = list(for_kinds(line for line in lock.held() if not given.plans or line.split()[0] in given.plans))
    if given.sample:
        lines = random.sample(lines, min(given.sample, len(lines)))
    count, missed, empty = 0, list[str](), list[str]()
    for line in lines:
        planted, wrong = plant(line, given.errors)
        count += len(planted)
        missed += [f"{line}: {place}" for place in wrong]
        empty += [] if planted else [line]
        print(f"{line}: {len(planted) - len(wrong)} of {len(planted)}", *wrong, sep="\n    ", flush=True)
    print(*(f"nothing to change, or nothing reached: {line}" for line in empty), sep="\n")
    print(f"{count - len(missed)} of {count} planted errors told, in {len(lines)} problems")
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
