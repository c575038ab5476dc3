"""`warm`: every variant compiled into the cache."""

from __future__ import annotations

import argparse
import re
import sys
import time

from ..core import registry
from ..core.errors import BaracudaError, CompileError
from ..core.warm import warm
from .progress import Progress

SAYS = "compile every variant into the cache; needs NVRTC, no GPU"


def options(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("ops", nargs="*", help="families, ops or plans (default: all)")
    parser.add_argument("--arch", nargs="+", metavar="sm_XX", help="targets (default: each row's own design)")
    parser.add_argument("--jobs", type=_count, help="compiles at once (default: the cores)")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, got {text!r}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Compile, and say what was compiled, what spills and what failed."""
    plans = list(dict.fromkeys(plan for name in options.ops for plan in registry.family(name))) or None
    for target in options.arch or ():
        if not re.fullmatch(r"sm_\d{2,3}[af]?", target):
            raise BaracudaError(f"{target!r} is not a target such as sm_80, sm_90a or sm_120")
    start = time.perf_counter()
    bar: list[Progress] = []

    def progress(done: int, total: int, name: str) -> None:
        if not bar:
            bar.append(Progress(total, "warm").__enter__())
        bar[0](name)

    try:
        results = warm(plans, options.arch, workers=options.jobs, progress=progress)
    finally:
        for one in bar:
            one.__exit__(None, None, None)
    if not results:
        raise BaracudaError("no row is compiled for these targets")
    made = [(target, result) for _, target, result in results if not isinstance(result, CompileError)]
    failures = [result for _, _, result in results if isinstance(result, CompileError)]
    for message in dict.fromkeys(map(str, failures)):  # without NVRTC every unit says the same
        print(f"error: {message}", file=sys.stderr)
    kernels = [(target, name, kernel) for target, result in made for name, kernel in result.kernels.items()]
    spilling = [(t, name, k) for t, name, k in kernels if k.spill_stores or k.spill_loads]
    for target, name, kernel in spilling:
        print(f"spills: {name} for {target}, {kernel.spill_stores} bytes out, {kernel.spill_loads} bytes in")
    print(
        f"{len(kernels)} kernels in {len(results)} units ({sum(r.cached for _, r in made)} from the cache), "
        f"{time.perf_counter() - start:.1f} s; registers up to {max((k.registers for _, _, k in kernels), default=0)}, "
        f"{len(spilling)} kernels spill, {len(failures)} units failed"
    )
    return 1 if failures else 0
