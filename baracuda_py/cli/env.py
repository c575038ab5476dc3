"""`env`: what is installed and what is loaded."""

from __future__ import annotations

import argparse
import json

from .report import environment, render

SAYS = "what is installed, what is loaded, driver, GPU, NVRTC, headers, cache"


def options(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("--json", action="store_true")


def run(options: argparse.Namespace) -> int:
    """Print the report."""
    facts = environment()
    print(json.dumps(facts, indent=2) if options.json else render(facts))
    return 0
