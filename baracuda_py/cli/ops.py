"""`ops`: every op, those named, or those that a word finds."""

from __future__ import annotations

import argparse
import inspect
import json
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from .._exports import EXPORTS
from ..core import registry
from ..core.errors import BaracudaError
from ..core.keywords import near
from .report import describe, operations

SAYS = "every op, or those named, with rows and elements; one op with all that it takes"


def options(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="a family (norm), an op (rms_norm) or a kind (silu)")
    parser.add_argument("--search", metavar="WORD", help="functions whose name or description has the word")
    parser.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Print them."""
    if options.search is not None:
        return _search(options.search, options.json)
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


def functions() -> Iterator[tuple[str, Any]]:
    """Every public function by name."""
    package = import_module("baracuda_py")
    for name in EXPORTS:
        value = getattr(package, name)
        if not inspect.isclass(value):
            yield name, value


def found(word: str) -> list[tuple[str, str, str]]:
    """(name, op, first sentence) of the functions that a word finds, those by name first, then by their description."""
    wanted = re.compile(re.escape(word), re.IGNORECASE)
    ranked = []
    for name, value in functions():
        plan: Any = getattr(value, "plan", None)
        declared = isinstance(plan, type)  # what is made from a formula has a method of that name
        text, op = value.__doc__ or "", plan.op if declared else ""
        own = plan.__doc__ or "" if declared and plan.kinds is None else ""
        rank = 0 if name == word.lower() else 1 if wanted.search(name) else 2 if wanted.search(text + own) else None
        if rank is not None:
            ranked.append((rank, name, op, " ".join(text.strip().partition("\n\n")[0].split())))
    return [(name, op, text) for _, name, op, text in sorted(ranked)]


def _search(word: str, as_json: bool) -> int:
    rows = found(word)
    if not rows:
        names = near(word.lower(), [name for name, _ in functions()])
        hint = f"; did you mean {' or '.join(names)}?" if names else ""
        raise BaracudaError(f"no function has {word!r} in its name or description{hint}")
    if as_json:
        print(json.dumps([dict(zip(("name", "op", "says"), row, strict=True)) for row in rows], indent=1))
        return 0
    for name, op, text in rows:
        print(f"{name:<28} {op:<28} {textwrap.shorten(text, 100, placeholder=' …')}")
    return 0
