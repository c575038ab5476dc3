"""Which module may know which: a page's declaration knows no runner, and no import goes in a circle."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

import baracuda_py
from baracuda_py import core
from baracuda_py.core.execution import RUNNERS, runner_for

PACKAGE = Path(baracuda_py.__file__).parent
ROOT = PACKAGE.parent


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> Mapping[str, Path]:
    return {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(name: str, node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """The package's own modules that a statement imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if alias.name in modules())
        return
    base = name.split(".") if modules()[name].name == "__init__.py" else name.split(".")[:-1]
    parent = [*base[: len(base) - node.level + 1]] if node.level else []
    source = ".".join([*parent, *([node.module] if node.module else [])])
    for alias in node.names:
        inner = f"{source}.{alias.name}"
        if inner in modules() or source in modules():
            yield inner if inner in modules() else source


def imports(name: str) -> Iterator[tuple[str, bool]]:
    """What a module imports of the package, each with whether a function does it."""

    def visit(node: ast.AST, deferred: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.Import, ast.ImportFrom)):
                yield from ((target, deferred) for target in imported(name, child))
            else:
                inside = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
                yield from visit(child, deferred or inside)

    yield from visit(ast.parse(modules()[name].read_text()), False)


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """A way from a module back to it, or nothing."""
    done: set[str] = set()

    def walk(name: str, way: list[str]) -> list[str]:
        if name in way:
            return [*way[way.index(name) :], name]
        if name in done:
            return []
        found = next((c for target in sorted(graph.get(name, ())) if (c := walk(target, [*way, name]))), [])
        done.add(name)
        return found

    return next((found for name in graph if (found := walk(name, []))), [])


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert not circle({"a": {"b", "c"}, "b": {"c"}})


def test_no_import_goes_in_a_circle() -> None:
    """Imports for type checkers and those that functions make are counted with the rest."""
    assert not circle({name: {target for target, _ in imports(name)} for name in modules()})


def test_functions_import_only_other_packages() -> None:
    """What is deferred is CuPy, torch and the like, never a module of this package."""
    deferred = {name: found for name in modules() if (found := sorted({t for t, inside in imports(name) if inside}))}
    assert not deferred


def test_pages_load_no_runner() -> None:
    runners = {target.partition(":")[0] for target in RUNNERS.values()}
    code = (
        "import sys; from baracuda_py.core import registry; registry.plans(); from baracuda_py.core import graph, warm;"
        "print(*[m for m in sys.modules if m.startswith('baracuda_py.backends')])"
    )
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert runners and not runners & set(loaded.split())
    assert not any(name.startswith("baracuda_py.backends.cuda") for name in loaded.split())


def test_every_kind_of_device_has_a_runner() -> None:
    assert set(RUNNERS) == {"cpu", "cuda"}
    for kind, target in RUNNERS.items():
        made = runner_for(kind)
        module, _, name = target.partition(":")
        assert made is getattr(import_module(module), name)
        for method in ("prepare", "run", "bind", "direct"):
            assert callable(getattr(made, method)), (kind, method)


def test_the_core_knows_its_runners_by_name_alone() -> None:
    wrong = [
        (name, target)
        for name in modules()
        if name.startswith("baracuda_py.core")
        for target, _ in imports(name)
        if target.startswith(("baracuda_py.backends", "baracuda_py.ops", "baracuda_py.schedules"))
    ]
    assert not wrong


def test_the_frame_says_what_each_module_of_it_is_for() -> None:
    named = re.findall(r"`(\w+)`", core.__doc__ or "")
    held = [path.stem for path in Path(core.__file__ or "").parent.glob("*.py") if path.stem != "__init__"]
    assert sorted(named) == sorted(held)
