"""`tune`: measure the rows of ops and remember the fastest."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..core import tuned
from ..core.device import in_use, resolve_device
from ..core.errors import BaracudaError
from ..measure import problems
from ..measure.tuner import autotune
from .bench import chosen_problems
from .explain import device_of
from .progress import Progress

SAYS = "measure which row of an op is fastest here, and remember it; --list shows what is known"


def options(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("ops", nargs="*", metavar="OP", help="families, ops, plans or kinds (default: all)")
    parser.add_argument("--shapes", type=Path, metavar="FILE", help="problems of one op, `field=value …` a line")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--again", action="store_true", help="measure anew what is known")
    parser.add_argument("--device", help="cuda:N (default: the current one)")
    parser.add_argument("--list", action="store_true", help="print what is known instead")
    parser.add_argument("--forget", action="store_true", help="delete what is known instead")


def run(options: argparse.Namespace) -> int:
    """Print a line a problem that several rows can take."""
    table = tuned.measurements()
    if options.forget:
        count = len(table.entries())
        table.clear()
        print(f"{count} measurements deleted from {table.path}")
        return 0
    if options.list:
        for key, times in table.entries().items():
            print(f"{', '.join(f'{name} {us:.1f} us' for name, us in sorted(times.items(), key=_second))}  {key}")
        return 0
    device = in_use(resolve_device(device_of(options.device)))
    if device.kind != "cuda" or device.fake:
        raise BaracudaError(f"rows are measured on a CUDA device, this is {device.name}; --list shows what is known")
    found = chosen_problems(options, small=False)
    with Progress(len(found), "tune") as step, autotune(rounds=options.rounds, again=options.again, progress=print):
        for problem in found:
            _measure(problem, device)
            step(problem.label)
    print(f"{len(table.entries())} measurements in {table.path}")
    return 0


def _second(item: tuple[str, float]) -> float:
    return item[1]


def _measure(problem: problems.Problem, device: Any) -> None:
    plan = problem.plan.select(problem.desc, device=str(device))
    if len(plan.rows) > 1:
        plan.prepare(plan.args(**problems.operands(problem, device, 0)))
