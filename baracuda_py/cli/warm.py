"""`warm`: every variant of ops, or what models of a family call, compiled into the cache."""

from __future__ import annotations

import argparse
import re
import sys
import time
from typing import Any

from ..core import registry
from ..core.device import Device, fake_device, resolve_device
from ..core.element import ElementKind
from ..core.errors import BaracudaError, CompileError
from ..core.warm import compiled, warm
from .families import FAMILIES, family
from .family_calls import needed
from .progress import Progress

SAYS = "compile every variant of ops, or what a model needs, into the cache; needs NVRTC, no GPU"


def options(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("ops", nargs="*", help="families, ops or plans (default: all)")
    parser.add_argument(
        "--for", dest="models", nargs="+", metavar="MODEL",
        help=f"what training and generation call: {', '.join(FAMILIES)}, or a model's config.json",
    )  # fmt: skip
    parser.add_argument("--element", default="bfloat16", help="of the model (default: bfloat16)")
    parser.add_argument(
        "--arch", nargs="+", metavar="sm_XX", help="targets (default: each row's own design; of --for this GPU's)"
    )
    parser.add_argument("--jobs", type=_count, help="compiles at once (default: the cores)")


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, got {text!r}")
    return int(text)


def run(options: argparse.Namespace) -> int:
    """Compile, and say what was compiled, what spills and what failed."""
    for target in options.arch or ():
        if not re.fullmatch(r"sm_\d{2,3}[af]?", target):
            raise BaracudaError(f"{target!r} is not a target such as sm_80, sm_90a or sm_120; ops stand before --arch")
    start = time.perf_counter()
    bar: list[Progress] = []

    def progress(done: int, total: int, name: str) -> None:
        if not bar:
            bar.append(Progress(total, "warm").__enter__())
        bar[0](name)

    try:
        results = _of_models(options, progress) if options.models else _of_ops(options, progress)
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


def _of_ops(options: argparse.Namespace, progress: Any) -> Any:
    plans = list(dict.fromkeys(plan for name in options.ops for plan in registry.family(name))) or None
    return warm(plans, options.arch, workers=options.jobs, progress=progress)


def _of_models(options: argparse.Namespace, progress: Any) -> Any:
    """What each device would be asked to load, for the target that it is loaded for."""
    if options.ops:
        raise BaracudaError(f"--for says what is compiled; leave out {' '.join(options.ops)}")
    families, element = [family(name) for name in options.models], ElementKind.of(options.element)
    devices = dict.fromkeys(_device(target) for target in options.arch or ()) or [resolve_device()]
    if any(device.kind != "cuda" for device in devices):
        raise BaracudaError("no GPU is here; name what is compiled for: --arch sm_90a")
    wanted = {
        (job.unit, device.target): job for f in families for device in devices for job in needed(f, element, device)
    }
    return compiled([(job, target) for (_, target), job in wanted.items()], options.jobs, progress)


def _device(target: str) -> Device:
    """A device that is not there, by its target."""
    number = int(re.sub(r"\D", "", target))
    return fake_device(divmod(number, 10))
