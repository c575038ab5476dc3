"""The order of the packages: each imports those below it, as its modules are loaded, and none above."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import baracuda_py

ROOT = Path(baracuda_py.__file__).parent

PACKAGES = {  # lowest first
    "_forking": "What a forked child must not find half done.",
    "_not_offered": "Names of other libraries that are not here, and why.",
    "_absent": "The error for a name that is not there.",
    "_exports": "The generated table of public names.",
    "__init__": "The public names, each imported when it is first used.",
    "interop": "What CuPy, torch and JAX say of arrays and streams, asked where they are loaded.",
    "core": "The frame: descriptions, readers of arrays, plans; it knows no op.",
    "calls": "How a call is made: functions of plans, their calls as values, who serves them.",
    "jit": "From kernel source to a kernel that is loaded and launched.",
    "backends": "What runs a plan: CUDA, CUDA's libraries, NumPy.",
    "schedules": "How kernels of a kind share out their work: launch geometry that pages share.",
    "ops": "The pages, each with its plan, its reference and its functions.",
    "expressions": "Plans made from formulas, of the kinds and kernels that pages declare.",
    "ops of formulas": "Modules of `ops` whose functions are written as formulas; see `place`.",
    "testing": "Checks for every op: random problems, layouts, tolerances, the emulator.",
    "help": "What `help` shows of a function.",
    "named_plans": "Further names of some kinds of plans.",
    "linalg": "The names of linear algebra.",
    "signal": "The names of signal processing.",
    "nn": "PyTorch's spellings of functions.",
    "sparse": "Sparse matrices: formats, conversions, products.",
    "nested": "Rows of different lengths, by torch's names.",
    "distributed": "Several ranks: communicators, collectives, and what is built of them.",
    "serving": "What a serving loop needs around the ops: pages, prefixes, batches.",
    "weights": "Readers of files of weights.",
    "measure": "Timing, results on file, and the rows that are faster on this machine.",
    "torch": "Ops and modules of torch.",
    "jax": "Functions in programs of JAX.",
    "cli": "The commands.",
    "__main__": "`python -m baracuda_py`.",
}
ORDER = list(PACKAGES)

BY_NAME = {  # modules that have another of a package above them imported when it is needed, by a name in a string
    "core.execution": "The table of what runs a plan, or captures a function.",
    "calls.interpreters": "The table of what takes a call that torch or JAX records.",
    "core.registry": "All plans are found by importing every page.",
    "core.doc": "A docstring is short until it is shown.",
}


class Import(NamedTuple):
    """One module imports another: at a line, within a function or not, by an import or by a name in a string."""

    by: str
    of: str
    line: int
    deferred: bool
    named: bool

    def __str__(self) -> str:
        return f"{self.by.replace('.', '/')}.py:{self.line} imports {self.of}"


@cache
def modules() -> dict[str, Path]:
    """Every module by its name in the package; a package of several has the name of its folder."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = path
    return found


@cache
def nodes(module: str) -> list[tuple[ast.AST, bool]]:
    """The imports and constants of a module, and whether each is in a function."""
    found, todo = [], [(ast.parse(modules()[module].read_text()), False)]
    while todo:
        node, inside = todo.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Constant)):
            found.append((node, inside))
        inside = inside or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        todo += ((child, inside) for child in ast.iter_child_nodes(node))
    return found


def targets(path: Path, node: ast.AST) -> list[str]:
    """The modules of the package that an import names, or a string that is imported by."""
    if isinstance(node, ast.Constant):
        name = re.fullmatch(r"baracuda_py\.([\w.]+)(:\w+)?", str(node.value))
        return [name[1]] if name and name[1] in modules() else []
    if isinstance(node, ast.Import):
        full = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        own = (ROOT.name, *path.relative_to(ROOT).parts)
        base = [*own[: len(own) - node.level]] if node.level else []
        base += node.module.split(".") if node.module else []
        full = [".".join([*base, alias.name]) for alias in node.names]
    else:
        return []
    return [module_of(name.split(".")[1:]) for name in full if name.split(".")[0] == ROOT.name]


def module_of(parts: list[str]) -> str:
    """The module that a dotted name is of, or is in."""
    while parts and ".".join(parts) not in modules():
        parts = parts[:-1]
    return ".".join(parts) or "__init__"


def outside(node: ast.AST) -> set[str]:
    """The packages that an import names which is not of this package's own modules."""
    if isinstance(node, ast.Import):
        return {alias.name.partition(".")[0] for alias in node.names}
    return {str(node.module).partition(".")[0]} if isinstance(node, ast.ImportFrom) and not node.level else set()


@cache
def imports() -> tuple[Import, ...]:
    """All imports of the package's modules by each other; strings count where a module imports by name at all."""
    found = []
    for name, path in modules().items():
        by_name = any("importlib" in outside(node) for node, _ in nodes(name))
        for node, inside in nodes(name):
            named = isinstance(node, ast.Constant)
            if by_name or not named:
                line = getattr(node, "lineno", 0)
                found += [Import(name, of, line, inside, named) for of in targets(path, node) if of != name]
    return tuple(found)


def reached(start: str, back: bool = False) -> set[str]:
    """The modules of `ops` that a package imports, itself or through each other; back: those that import it so."""
    pairs = [(one.of, one.by) if back else (one.by, one.of) for one in imports()]
    found: set[str] = set()
    while more := {
        to for at, to in pairs if to.startswith("ops.") and (at.partition(".")[0] == start or at in found)
    } - found:  # fmt: skip
        found |= more
    return found


@cache
def of_formulas() -> set[str]:
    """The modules of `ops` that import formulas, and that formulas do not stand on."""
    return reached("expressions", back=True) - reached("expressions")


def place(module: str) -> str:
    """The package that a module is in.

    Public names keep the modules that they are in, so `ops` is in two places: pages are below formulas, which name
    their kinds and call their functions, and a function that is written as a formula is above them.
    """
    return "ops of formulas" if module in of_formulas() else module.partition(".")[0]


def test_every_package_has_its_place() -> None:
    assert {place(module) for module in modules()} == set(PACKAGES)


def upward(named: bool) -> list[Import]:
    """What imports a package above its own."""
    return [
        one for one in imports() if one.named is named and ORDER.index(place(one.of)) > ORDER.index(place(one.by))
    ]  # fmt: skip


def test_packages_import_those_below_them() -> None:
    found = ", ".join(map(str, upward(named=False)))
    assert not found, f"each imports a package above its own, see PACKAGES: {found}"


def test_packages_above_are_named_where_that_is_known() -> None:
    found = upward(named=True)
    assert {one.by for one in found} == {*BY_NAME}, f"see BY_NAME: {', '.join(map(str, found))}"


def test_modules_are_imported_where_a_file_begins() -> None:
    deferred = [str(one) for one in imports() if one.deferred and not one.named]
    assert not deferred, f"in a function: {', '.join(deferred)}"


def test_modules_import_no_circle() -> None:
    """Neither within a package: what a module imports is whole when it is imported."""
    below = {name: {one.of for one in imports() if one.by == name and not one.named} for name in modules()}
    while free := [name for name, needed in below.items() if not needed]:
        for name in free:
            del below[name]
        for needed in below.values():
            needed.difference_update(free)
    assert not below, f"modules in a circle, or above one: {sorted(below)}"


def test_frameworks_are_imported_by_their_own_packages() -> None:
    """All others ask for those that are loaded."""
    for name in modules():
        named = {one for node, inside in nodes(name) if not inside for one in outside(node)}
        found = named & {"torch", "jax", "jaxlib", "cupy"}
        assert found <= {place(name)}, f"{name} imports {found} as it is loaded"


def test_a_product_loads_no_formulas() -> None:
    code = (
        "import sys, numpy\n"
        "import baracuda_py as bc\n"
        "bc.matmul(numpy.ones((2, 2), 'f'), numpy.ones((2, 2), 'f'))\n"
        "print([name for name in sys.modules if name.startswith('baracuda_py.expressions')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT.parent, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stdout + done.stderr
