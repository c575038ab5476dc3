"""`cache`: the compiled kernels on disk."""

from __future__ import annotations

import argparse

from ..jit import cache

SAYS = "the cubin cache"


def options(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--stats", action="store_true", help="where it is, how many entries, how large")
    action.add_argument("--clear", action="store_true", help="remove every entry")


def run(options: argparse.Namespace) -> int:
    """Print what there is, or was."""
    found = cache.clear() if options.clear else cache.stats()
    print(f"{found.dir}: {'removed ' if options.clear else ''}{found.entries} entries, {found.bytes / 1e6:.1f} MB")
    return 0
