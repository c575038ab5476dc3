"""Writes the package's export map and its type stub from the op pages; `--check` fails when they are stale."""

from __future__ import annotations

import argparse
import ast
import enum
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from baracuda_py import named_plans  # noqa: E402
from baracuda_py.core import Args, Descriptor, Plan  # noqa: E402
from baracuda_py.core.exported import is_exported  # noqa: E402
from baracuda_py.expressions.elementwise import Expression  # noqa: E402

FRAME = {
    "core.element": ["ElementKind"],
    "core.errors": [
        "BaracudaError", "BufferTooSmallError", "CaptureError", "CompileError", "DeviceMismatchError",
        "InvalidProblemError", "MisalignedOperandError", "NonFiniteWarning", "NotPreparedError", "OutOfMemoryError",
        "UnknownKeywordError", "UnsupportedError", "WorkspaceTooSmallError",
    ],
    "core.error_bound": ["Exact", "Forward", "PerOutput", "Relative", "Ulp"],
    "core.plan": ["Plan"],
    "core.preference": ["PlanPreference"],
    "core.sku": ["ArchSku", "BackendKind", "KernelSku", "OpCategory", "PrecisionGuarantee"],
    "core.tensor": ["TensorRef"],
    "core.dispatch": ["Verdict"],
    "core.device": ["Device", "fake_device"],
    "core.graph": ["Graph", "graph"],
    "core.warm": ["warm"],
    "measure.tuner": ["autotune"],
}  # fmt: skip


def is_marked(module: ModuleType, name: str, value: Any) -> bool:
    """What is marked is exported, under every name that its module has of it."""
    return not name.startswith("_") and getattr(value, "__module__", None) == module.__name__ and is_exported(value)


def is_export(module: ModuleType, name: str, value: Any) -> bool:
    """Pages export their plans, descriptors, args, kinds, entries and formulas, and what is marked."""
    if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
        return False
    if inspect.isclass(value) and not is_exported(value):
        return value.__name__ == name and issubclass(value, (Plan, Descriptor, Args, enum.Enum))
    return callable(value) and (hasattr(value, "plan") or is_exported(value))


PUBLIC = {"expressions": is_marked, "ops": is_export}


def collect() -> dict[str, str]:
    """Public name → module, relative to the package."""
    named = {"named_plans": [*named_plans.NAMES, *named_plans.DESCRIPTORS]}
    found: dict[str, str] = {name: module for module, names in (FRAME | named).items() for name in names}
    for page, is_public in PUBLIC.items():
        package = importlib.import_module(f"baracuda_py.{page}")
        for info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            module = importlib.import_module(info.name)
            for name, value in vars(module).items():
                if is_public(module, name, value):
                    where = module.__name__.removeprefix("baracuda_py.")
                    if found.setdefault(name, where) != where:
                        raise SystemExit(f"{name} is exported by both {found[name]} and {where}")
    return dict(sorted(found.items()))


def family(where: str) -> str:
    """The section that a module's names stand in: `ops.<family>`, or the package that it is in."""
    package, _, rest = where.partition(".")
    return f"{package}.{rest.partition('.')[0]}" if package == "ops" else package


def sections(lines: Iterable[tuple[str, str]], indent: str = "") -> str:
    """Lines, each with the module that it is of, in a section a family, so that changes of two do not meet."""
    found: dict[str, list[str]] = {}
    for where, text in lines:
        found.setdefault(family(where), []).append(text)
    return "".join(f"{indent}# {name}\n{''.join(texts)}" for name, texts in sorted(found.items()))


STUB = {  # names that annotations of functions use → where the stub has them from
    "Any": "typing", "Literal": "typing", "Callable": "collections.abc", "Mapping": "collections.abc",
    "Sequence": "collections.abc", "dataclass": "dataclasses", "Array": ".core.args", "Scalar": ".core.args",
    "Arrays": ".core.signatures", "DType": ".core.signatures", "Out": ".core.signatures", "Stream": ".core.signatures",
}  # fmt: skip
BUILTINS = {"None", "bool", "complex", "dict", "float", "int", "list", "object", "str", "tuple", "type"}


def annotation(said: Any, exports: dict[str, str]) -> str:
    """An annotation as the stub has it; Any where it uses a name that the stub does not know.

    A type that shares its name with a function of the package (`complex`) is said to be of `builtins`.
    """
    if not isinstance(said, str):
        return "Any"
    tree = ast.parse(said, mode="eval")
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    if not {node.id for node in names} <= {*STUB, *BUILTINS, *exports}:
        return "Any"
    shared = [node for node in names if node.id in BUILTINS and node.id in exports]
    for node in shared:
        node.id = f"builtins.{node.id}"
    return ast.unparse(tree) if shared else said


def signature(value: Any, exports: dict[str, str]) -> str:
    """A function's parameters for the stub with their types and defaults, and what it returns."""
    parts, starred, shown = [], False, inspect.signature(value)
    for parameter in shown.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            parts.append(f"*{parameter.name}: Any")
            starred = True
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            parts.append(f"**{parameter.name}: Any")
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        default = ""
        if parameter.default is not parameter.empty:
            literal = parameter.default is None or type(parameter.default) in (bool, int, float, str)
            said = repr(parameter.default) if literal else "..."
            default = f" = {'...' if said in ('inf', '-inf', 'nan') else said}"
        parts.append(f"{parameter.name}: {annotation(parameter.annotation, exports)}{default}")
    return f"({', '.join(parts)}) -> {annotation(shown.return_annotation, exports)}"


def summary(value: Any) -> str:
    """The first sentence of a docstring, as a docstring on one line."""
    first = " ".join((value.__doc__ or "").strip().partition("\n\n")[0].split())
    return '"""' + first.replace("\\", "\\\\").replace('"', "'") + '"""'


def declaration(name: str, value: type[Any]) -> str:
    """A class that is made from the table of names, with the fields that its base has not."""
    own = named_plans.NAMES[named_plans.DESCRIPTORS[name]].more if name in named_plans.DESCRIPTORS else ()
    head = "@dataclass(frozen=True, kw_only=True)\n" if own else ""
    body = "".join(f"    {field}: Any\n" for field in own)
    return f"{head}class {name}({value.__bases__[-1].__name__}):\n    {summary(value)}\n{body}"


def render() -> dict[Path, str]:
    """The generated files."""
    exports = collect()
    table = sections(((where, f'    "{name}": "{where}",\n') for name, where in exports.items()), "    ")
    classes, named, functions, mirrored = [], [], [], []
    for name, where in exports.items():
        value = getattr(importlib.import_module(f"baracuda_py.{where}"), name)
        if hasattr(value, "plan") and not inspect.isclass(value):
            mirrored.append((where, f"from baracuda_py import {name} as {name}\n"))
        if where == "named_plans":
            named.append((where, declaration(name, value)))
        elif inspect.isclass(value):
            classes.append((where, f"from .{where} import {name} as {name}\n"))
        elif isinstance(value, Expression):
            functions.append((where, f"{name}: Expression  # {value.text}\n"))
        else:
            functions.append((where, f"def {name}{signature(value, exports)}:\n    {summary(value)}\n"))
    made = "Generated by tools/exports.py; do not edit."
    head = f"# {made}\n# ruff: noqa: E501, I001\n# fmt: off\n"
    used = "import builtins\n" + "".join(f"from {where} import {name}\n" for name, where in STUB.items())
    imports, written = sections(sorted(classes)), sections([*named, *functions])
    stub = f"{head}{used}\nfrom . import nn as nn\n\n{imports}\n__version__: str\n\n{written}"
    plain = f"# {made}\n# ruff: noqa: I001\n# fmt: off\n"
    by_name = "EXPORTS = dict(sorted(_BY_FAMILY.items()))"
    return {
        ROOT / "baracuda_py/torch/__init__.pyi": f"{plain}{sections(mirrored)}\ndef define_all() -> list[str]: ...\n",
        ROOT / "baracuda_py/_exports.py": (
            f'"""Public name → module. {made}"""\n\n_BY_FAMILY = {{\n{table}}}\n{by_name}\n'
        ),
        ROOT / "baracuda_py/__init__.pyi": stub,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a file is stale")
    check = parser.parse_args().check
    stale = {path: text for path, text in render().items() if not path.exists() or path.read_text() != text}
    for path, text in stale.items():
        print(f"{'stale' if check else 'wrote'}: {path.relative_to(ROOT)}")
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    return int(check and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main())
