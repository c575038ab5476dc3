"""`cache`: the compiled kernels on disk."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..jit import archive, cache

SAYS = "the cubin cache"


def options(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--stats", action="store_true", help="where it is, how many entries, how large")
    action.add_argument("--clear", action="store_true", help="remove every entry")
    action.add_argument("--export", type=Path, metavar="FILE", help="write all entries to one file, a tar archive")
    action.add_argument(
        "--import", type=Path, dest="taken", metavar="FILE",
        help="take the entries of such a file; only of one that you trust: they are code",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Print what there is, or was."""
    if options.export is not None:
        count, size = archive.write(cache.default_cache(), options.export)
        print(f"{options.export}: {count} entries, {size / 1e6:.1f} MB")
        return 0
    if options.taken is not None:
        total, new = archive.read(held := cache.default_cache(), options.taken)
        print(f"{held.dir}: {new} of {total} entries were new")
        return 0
    found = cache.clear() if options.clear else cache.stats()
    print(f"{found.dir}: {'removed ' if options.clear else ''}{found.entries} entries, {found.bytes / 1e6:.1f} MB")
    return 0
