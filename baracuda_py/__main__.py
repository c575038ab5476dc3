"""`python -m baracuda_py`: env · ops · explain · warm · cache.

Exit status: 0; 1 where something failed, which one line on stderr tells; 2 where the command line was not understood;
130 after Ctrl-C. A reader that closes the pipe early (`| head`) is no failure.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import io
import json
import os
import re
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from .core import registry
from .core.device import fake_device
from .core.errors import BaracudaError, CompileError
from .core.report import describe, environment, operations, render
from .core.warm import warm
from .jit import cache


class _Parser(argparse.ArgumentParser):
    def print_help(self, file: Any = None) -> None:
        """As inherited, which says nothing of output that could not be written."""
        if file is None:
            print(self.format_help(), end="")
        else:
            super().print_help(file)


def main(argv: list[str] | None = None) -> int:
    """Run a command; bad use ends in one line on stderr and a non-zero exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names that are no text in the stream's encoding are shown escaped
            stream.reconfigure(errors="backslashreplace")
    if sys.stdout is None:
        return _failed("standard output is closed")
    try:
        try:
            return _command(argv)
        finally:
            sys.stdout.flush()  # what does not fit is told here, not by the interpreter at exit
    except BaracudaError as error:
        return _failed(str(error))
    except BrokenPipeError:
        _discard(sys.stdout)
        return 0
    except OSError as error:
        _discard(sys.stdout)
        return _failed(": ".join(str(part) for part in (error.filename, error.strerror or error) if part))
    except KeyboardInterrupt:
        _failed("interrupted")
        return 130


def _failed(message: str) -> int:
    if sys.stderr is not None:
        try:
            print(f"error: {message}", file=sys.stderr, flush=True)
        except OSError:
            _discard(sys.stderr)
    return 1


def _discard(stream: TextIO) -> None:
    """Let what a stream still holds go nowhere: the interpreter writes it at exit, and would fail again."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def _command(argv: list[str] | None) -> int:
    parser = _Parser(
        prog="python -m baracuda_py",
        description="Fused ML ops as plans over raw CUDA.",
        epilog="exit status: 0, 1 on failure, 2 on wrong use",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text)
        made.set_defaults(run=run)
        return made

    command("env", _env, "what is installed, what is loaded, driver, GPU, NVRTC, headers, cache").add_argument(
        "--json", action="store_true"
    )
    ops = command("ops", _ops, "every op, or those named, with rows and elements; one op with all that it takes")
    ops.add_argument("names", nargs="*", metavar="NAME", help="a family (norm), an op (rms_norm) or a kind (silu)")
    ops.add_argument("--json", action="store_true")
    explain = command("explain", _explain, "the dispatch table of an op for a problem, with each row's verdict")
    explain.add_argument("op", help="a plan or op name, such as RMSNormPlan or rms_norm")
    explain.add_argument("fields", nargs="*", metavar="field=value", help="descriptor fields: batch_shape=8,128")
    explain.add_argument("--device", help="cpu, cuda:N, or a compute capability such as 8.6 (no GPU needed)")
    warm = command("warm", _warm, "compile every variant into the cache; needs NVRTC, no GPU")
    warm.add_argument("ops", nargs="*", help="families, ops or plans (default: all)")
    warm.add_argument("--arch", nargs="+", metavar="sm_XX", help="targets (default: each row's own design)")
    warm.add_argument("--jobs", type=_count, help="compiles at once (default: the cores)")
    cache = command("cache", _cache, "the cubin cache")
    action = cache.add_mutually_exclusive_group(required=True)
    action.add_argument("--stats", action="store_true", help="where it is, how many entries, how large")
    action.add_argument("--clear", action="store_true", help="remove every entry")
    options, rest = parser.parse_known_args(argv)
    if options.command is None and not rest:
        parser.print_help(sys.stderr)
        parser.exit(2, f"{parser.prog}: error: a command is missing\n")
    if rest and options.command == "explain" and not any(item.startswith("-") for item in rest):
        options.fields += rest  # fields after an option, which argparse leaves over
    elif rest:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    return int(options.run(options))


def _env(options: argparse.Namespace) -> int:
    facts = environment()
    print(json.dumps(facts, indent=2) if options.json else render(facts))
    return 0


def _ops(options: argparse.Namespace) -> int:
    rows = operations(options.names)
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    if len(rows) == 1:
        print(describe(registry.plan(rows[0]["plan"])))
    for row in rows:
        kinds = f"  {len(row['kinds'])} kinds" if row["kinds"] else ""
        print(f"{row['family']:<16} {row['plan']:<32} {row['direction']:<9} {' '.join(row['elements'])}{kinds}")
        for variant in row["variants"]:
            print(f"    {variant['name']:<20} {variant['backend']:<8} {variant['arch']:<6} {variant['layout']}")
    return 0


def _explain(options: argparse.Namespace) -> int:
    plan = registry.plan(options.op)
    device = options.device
    if device is not None and re.fullmatch(r"[0-9]{1,2}\.[0-9]", device):
        device = fake_device(float(device))
    fields = {}
    for item in options.fields:
        name, equals, text = item.partition("=")
        if not equals:
            raise BaracudaError(f"{item!r} is not field=value; {plan.descriptor.__name__} has {_fields(plan)}")
        fields[name] = _value(text)
    try:
        desc = plan.descriptor(**fields)
    except TypeError as error:
        raise BaracudaError(f"{error}; the fields are {_fields(plan)}") from None
    print(plan.select(desc, device=device).explain())
    return 0


def _fields(plan: Any) -> str:
    return ", ".join(f.name for f in dataclasses.fields(plan.descriptor))


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number from 1, got {text!r}")
    return int(text)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _warm(options: argparse.Namespace) -> int:
    plans = list(dict.fromkeys(plan for name in options.ops for plan in registry.family(name))) or None
    for target in options.arch or ():
        if not re.fullmatch(r"sm_\d{2,3}[af]?", target):
            raise BaracudaError(f"{target!r} is not a target such as sm_80, sm_90a or sm_120")
    start, shown = time.perf_counter(), [0.0]

    def progress(done: int, total: int, name: str) -> None:
        now = time.perf_counter()
        if sys.stderr.isatty() and (now - shown[0] > 0.1 or done == total):
            shown[0] = now
            print(f"\r{done}/{total} {name:<70.70}", end="\n" if done == total else "", file=sys.stderr, flush=True)

    results = warm(plans, options.arch, workers=options.jobs, progress=progress)
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


def _cache(options: argparse.Namespace) -> int:
    found = cache.clear() if options.clear else cache.stats()
    print(f"{found.dir}: {'removed ' if options.clear else ''}{found.entries} entries, {found.bytes / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
