"""Runs what a change concerns, in a few minutes: lint, types, generated files, and the tests of the ops it reaches.

    python tools/check.py                # of all that differs from main: commits, edits, new files
    python tools/check.py --base HEAD~3
    python tools/check.py --list         # what would run

An op is concerned where a file of its closure changed: its page, what the page imports of `ops/` and `schedules/`, its
kernels and all that they include. Of more than a few (a header that many include) some are tested, and it is said how
many are left to the whole suite. A change of what all ops stand on (`core/`, `jit/`, …) runs `pytest -m quick`.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from baracuda_py.core import registry  # noqa: E402
from baracuda_py.core.plan import Plan  # noqa: E402
from baracuda_py.jit import source  # noqa: E402

MOST = 8  # ops that are tested of those that a change reaches
_OWN = ("baracuda_py/ops/", "baracuda_py/schedules/")  # what belongs to some ops; the rest of the package is all ops'
_LINE = re.compile(r'^#line 1 "([^"]+)"$', re.MULTILINE)
_EVERY_UNIT = tuple(f"baracuda/{name}.cuh" for name in ("types", "scalar", "tensor_map"))  # see `Variant.unit`
_PYTEST = (sys.executable, "-m", "pytest", "-n", "auto", "--dist", "loadfile")
Command = tuple[str, ...]


def changed(base: str, root: Path = ROOT) -> set[str]:
    """The files that differ from where the branch left `base`, and those that git does not know yet."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"git {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout.splitlines()

    (start,) = git("merge-base", base, "HEAD")
    return {*git("diff", "--name-only", start), *git("ls-files", "--others", "--exclude-standard")}


@cache
def imports(file: str) -> frozenset[str]:
    """The files of `ops/` and `schedules/` that a module imports, wherever in it."""
    found: set[str] = set()
    package = Path(file).parent.parts
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = (*above, *(node.module or "").split("."))
            names = [module, *((*module, alias.name) for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        else:
            continue
        for name in names:
            path = Path(*(part for part in name if part))
            found |= {str(one / "__init__.py") for one in (path, *path.parents)} | {f"{path}.py"}
    return frozenset(one for one in found if one.startswith(_OWN) and (ROOT / one).is_file())


def modules(file: str) -> set[str]:
    """A module's file and those of `ops/` and `schedules/` that it imports, its packages, and so on."""
    left = [file, *(str(folder / "__init__.py") for folder in Path(file).parents if str(folder / "_").startswith(_OWN))]
    found = set(left)
    while left:
        new = imports(left.pop()) - found
        found |= new
        left += new
    return found


def kernels(plan: type[Plan]) -> set[str]:
    """The files that the plan's kernels are compiled from."""
    sources = {kernel.source or row.source for row in plan.variants for kernel in row.kernels} - {None, ""}
    lines = [f"#include <{name}>" for name in (*_EVERY_UNIT, *sorted(map(str, sources)))]
    for row in plan.variants:
        for kind in plan.kinds or (None,):
            header = getattr(kind, "header", "")  # of its functor
            texts = [f'#include "{header}"'] if header else []
            texts += [row.prelude(element, kind) for element in row.elements_for(kind)] if row.prelude else []
            lines += dict.fromkeys(line for text in texts for line in text.splitlines() if line.startswith("#include"))
    text = source.flatten("\n".join(dict.fromkeys(lines)) + "\n")
    return {f"kernels/{name}" for name in _LINE.findall(text)} & {*_kernel_files()}


@cache
def _kernel_files() -> tuple[str, ...]:
    return tuple(str(path.relative_to(ROOT)) for path in (ROOT / "kernels").rglob("*.cu*"))


def closure(plan: type[Plan]) -> set[str]:
    """Every file of its own that an op depends on; those that all ops depend on are not among them."""
    page = Path(str(sys.modules[plan.__module__].__file__)).resolve().relative_to(ROOT)
    return modules(str(page)) | kernels(plan)


def concerned(files: Iterable[str]) -> dict[str, int]:
    """The plans that a change reaches, those first whose own page or kernels it is: their closures' sizes of it."""
    told = {file for file in files if file.startswith((*_OWN, "kernels/"))}
    if not told:
        return {}
    closures = {name: closure(plan) for name, plan in registry.plans().items()}
    users = {file: sum(file in files for files in closures.values()) for file in told}
    reached = {name: min(users[f] for f in files & told) for name, files in closures.items() if files & told}
    return dict(sorted(reached.items(), key=lambda item: item[1]))


def of_frame(files: Iterable[str]) -> bool:
    """Whether a change is of what all ops stand on."""
    return any(f.startswith("baracuda_py/") and f.endswith(".py") and not f.startswith(_OWN) for f in files)


def lint(files: Iterable[str]) -> list[Command]:
    """Style of the files that changed, types of all, generated files."""
    there = sorted(file for file in files if (ROOT / file).is_file())
    python = [file for file in there if file.endswith((".py", ".pyi"))]
    cuda = [file for file in there if file.startswith("kernels/")]
    found: list[Command] = []
    if python:
        found += [("ruff", "check", *python), ("ruff", "format", "--check", *python)]
    if cuda:
        found.append(("clang-format", "--dry-run", "--Werror", *cuda))
    if any(file.startswith(("baracuda_py/", "kernels/", "benchmarks/", "docs/")) for file in there):
        found += [(sys.executable, f"tools/{name}.py", "--check") for name in ("exports", "docs")]
    if any(file.startswith(("baracuda_py/", "tools/")) for file in python):
        found.append(("mypy",))
    return found


def tests(files: Iterable[str], plans: Mapping[str, int]) -> list[Command]:
    """The tests that changed, those of the first of the concerned ops, and the quick ones where all are concerned."""
    told, chosen = set(files), list(plans)[:MOST]
    own = [f for f in sorted(told) if re.fullmatch(r"tests/(?:.*/)?test_\w+\.py", f) and (ROOT / f).is_file()]
    for name in chosen:
        family, _, op = registry.plans()[name].op.partition(".")
        own += [str(p.relative_to(ROOT)) for p in (ROOT / "tests" / "ops" / family).glob(f"test_{op}.py")]
    found: list[Command] = []
    if chosen:
        every = ["tests/test_ops.py", "tests/test_compile.py", "tests/test_emulated.py"]
        every += ["tests/interop/test_in_torch.py"] if find_spec("torch") else []
        found.append((*_PYTEST, *every, "-k", " or ".join(chosen)))
    if own:
        found.append((*_PYTEST, *dict.fromkeys(own)))
    if of_frame(told):
        found.append((*_PYTEST, "-m", "quick"))
    return found


def run(commands: Iterable[Command]) -> list[str]:
    """Runs some one after the other, tells how each ended, and returns those that failed."""
    failed = []
    environ = os.environ | {"PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))}
    for command in commands:
        shown, start = shorten(command), time.monotonic()
        done = subprocess.run(
            command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        bad = done.returncode not in ((0, 5) if "pytest" in command else (0,))  # 5: nothing was selected
        print(f"{'FAILED' if bad else 'passed'} in {time.monotonic() - start:.0f} s: {shown}", flush=True)
        if bad:
            failed.append(shown)
            print(done.stdout, flush=True)
    return failed


def shorten(command: Command) -> str:
    """A command as it is told: without the interpreter's path, and of many files the first."""
    words = ["python" if word == sys.executable else word for word in command]
    return " ".join(words if len(words) <= 16 else [*words[:14], f"… ({len(words) - 14} more)"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default="main", help="the commit or branch to compare with (default: main)")
    parser.add_argument("--list", action="store_true", help="print what would run, and run nothing")
    given = parser.parse_args()
    files = changed(given.base)
    plans = concerned(files)
    print(f"{len(files)} files differ from {given.base}; ops concerned: {', '.join(plans) or 'none'}")
    if len(plans) > MOST:
        print(f"tested here are the first {MOST} of these {len(plans)}; the whole suite has the others")
    lanes = [lint(files), tests(files, plans)]
    if given.list:
        print(*(shorten(command) for lane in lanes for command in lane), sep="\n")
        return 0
    with ThreadPoolExecutor(len(lanes)) as pool:
        failed = [command for found in pool.map(run, lanes) for command in found]
    print("\n".join(["failed:", *failed]) if failed else "all passed")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
