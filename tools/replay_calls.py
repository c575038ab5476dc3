"""Whether two trees do the same: every public function is called in both, and what the calls do is compared.

    python tools/replay_calls.py --compare HEAD~1 .              # every name; exit status 1 where something differs
    python tools/replay_calls.py silu matmul --compare main .    # some names
    python tools/replay_calls.py --record before.jsonl           # this tree, once, for
    python tools/replay_calls.py --compare before.jsonl .        # many comparisons

A tree is a commit, a folder, or a file that was recorded. Of each call are recorded the results (package, element,
shape, strides, bits, memory shared with operands), operands that were written over, the plans that ran (descriptor,
preference, row, operands), on CUDA devices that are not there the launches (kernel, grid, block, parameters), gradients
through torch and JAX, and errors; of each name besides its signature and help. The calls are the sample calls of
`tests/interop/`, as they are, again, strided, with `out=`, `stream=`, `preference=`, of other elements, and wrong. Both
trees get the calls of the tree that this file is in. Lines are sorted, one a call: `diff` reads them, too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
Key = tuple[str, str, str, str]
_FIRST = ("error", "out", "gradients", "changed", "plans")  # of what differs
_WIDTH = 160  # of a value that is printed


def recorded(tree: str, names: list[str], where: list[str]) -> dict[Key, dict[str, Any]]:
    """The lines of a tree by name, place, call and mode."""
    if tree.endswith(".jsonl"):
        found = read(Path(tree))
        return {k: v for k, v in found.items() if (not names or k[0] in names) and (not where or k[1] in where)}
    with tempfile.TemporaryDirectory(prefix="replay-") as folder, checked_out(tree, Path(folder)) as path:
        file = Path(folder, "recorded.jsonl")
        record(path, file, names, where)
        return read(file)


def record(tree: Path, file: Path, names: list[str], where: list[str]) -> None:
    """Have a tree recorded by a process of its own, to which no variable of the package is handed but its cache's."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.startswith("BARACUDA_")}
    kept |= {k: v for k, v in os.environ.items() if k == "BARACUDA_CACHE_DIR"}
    options = [word for one in where for word in ("--place", one)]
    command = [sys.executable, str(ROOT / "tools/replay_record.py"), str(tree), str(file), *options, *names]
    if subprocess.run(command, check=False, env=kept).returncode:
        print(f"{tree} was not recorded", file=sys.stderr)
        sys.exit(2)


@contextlib.contextmanager
def checked_out(tree: str, folder: Path) -> Iterator[Path]:
    """A folder as it is; a commit in a worktree that is there for as long."""
    if Path(tree).is_dir():
        yield Path(tree).resolve()
        return
    path = folder / "tree"
    git = ["git", "-C", str(ROOT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(path), tree], check=True)
    try:
        yield path
    finally:
        subprocess.run([*git, "remove", "--force", str(path)], check=True)


def read(file: Path) -> dict[Key, dict[str, Any]]:
    """The lines of a file."""
    lines = map(json.loads, file.read_text().splitlines())
    return {(one.pop("name"), one.pop("place"), one.pop("call"), one.pop("mode")): one for one in lines}


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Where two values differ, and how."""
    if type(old) is type(new) and isinstance(old, dict):
        for key in sorted(old.keys() | new.keys(), key=lambda one: (_FIRST.index(one) if one in _FIRST else 9, one)):
            yield from differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif type(old) is type(new) and isinstance(old, list):
        if len(old) != len(new):
            yield f"{path}: {len(old)} → {len(new)} of them"
        for i, (a, b) in enumerate(zip(old, new, strict=False)):
            yield from differences(a, b, f"{path}[{i}]")
    elif old != new:
        yield f"{path}: {' → '.join(shortened(str(old), str(new)))}"


def shortened(old: str, new: str) -> tuple[str, str]:
    """Two texts from shortly before where they part."""
    if len(old) <= _WIDTH and len(new) <= _WIDTH:
        return old, new
    start = max(next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), _WIDTH) - 40, 0)
    lead = "…" if start else ""
    return tuple(lead + text[start : start + _WIDTH] for text in (old, new))  # type: ignore[return-value]


def compared(old: dict[Key, Any], new: dict[Key, Any], ignored: list[str], most: int) -> tuple[list[str], int]:
    """What differs, in a few lines for each name, and for how many names something does."""
    found: dict[str, list[str]] = defaultdict(list)
    for key in sorted(old.keys() | new.keys()):
        where = ", ".join(filter(None, key[1:]))
        if key not in old or key not in new:
            found[key[0]].append(f"{where}: only in the {'new' if key in new else 'old'} tree")
            continue
        a, b = ({k: v for k, v in lines[key].items() if k not in ignored} for lines in (old, new))
        if a != b:
            first, *others = differences(a, b)
            found[key[0]].append(f"{where}: {first}" + (f" (and {len(others)} more)" if others else ""))
    lines = []
    for name, told in found.items():
        lines.append(f"{name}: {len(told)} of its calls")
        lines += [f"    {one}" for one in told[:most]]
    return lines, len(found)


def main(arguments: list[str] | None = None) -> int:
    """The command line; 1 where the trees differ, 2 where one could not be recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="public names; without one all are called")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--compare", nargs=2, metavar=("OLD", "NEW"), help="commits, folders or recorded files")
    what.add_argument("--record", type=Path, metavar="FILE", help="write what this tree does")
    parser.add_argument("--place", action="append", default=[], help="numpy, cuda, torch, 'torch gradient', jax, …")
    parser.add_argument("--ignore", action="append", default=[], help="a field, such as help")
    parser.add_argument("--lines", type=int, default=5, help="lines for each name that are printed")
    options = parser.parse_intermixed_args(arguments)
    if options.record:
        record(ROOT, options.record, options.names, options.place)
        return 0
    old, new = (recorded(tree, options.names, options.place) for tree in options.compare)
    lines, count = compared(old, new, options.ignore, options.lines)
    print("\n".join(lines) + "\n" * bool(lines), end="")
    names = len({key[0] for key in (*old, *new)})
    print(f"{count} of {names} names differ ({len(old)} and {len(new)} calls)")
    return 1 if count or not names else 0


if __name__ == "__main__":
    sys.exit(main())
