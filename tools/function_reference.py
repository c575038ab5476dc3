"""The reference by function: a page a family, made with the site, with an example of each and links to its plan."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from ops_reference import LINE, folder, markdown, signature

import baracuda_py
from baracuda_py._exports import EXPORTS
from baracuda_py.core import registry
from baracuda_py.expressions.elementwise import Expression
from baracuda_py.help.examples import HEAD, example

Function = Callable[..., Any]

_HEAD = """# Functions: {family}

Functions of arrays; each takes those of CuPy, torch, JAX, Numba or NumPy and returns its own.
{plans}Examples run on any machine, after

```python
{imports}
```"""


def families() -> dict[str, dict[str, Function]]:
    """Every public function by the folder of its page; what stands in none is among the others."""
    found: dict[str, dict[str, Function]] = {}
    for name in EXPORTS:
        value = getattr(baracuda_py, name)
        if not inspect.isclass(value):
            found.setdefault(folder(name), {})[name] = value
    return {family: dict(sorted(found[family].items())) for family in sorted(found)}


def pages() -> dict[str, str]:
    """Each family's page by its place below `docs/`."""
    made, of_plans = {}, {plan.op.partition(".")[0] for plan in registry.plans().values()}
    for family, functions in families().items():
        plans = f"What they promise, row by row: [plans](../ops/{family}.md). " if family in of_plans else ""
        head = _HEAD.format(family=family, plans=plans, imports=HEAD.strip())
        made[f"functions/{family}.md"] = "\n\n".join([head, *(_entry(*item) for item in functions.items())]) + "\n"
    return made


def plan_of(function: Function) -> Any:
    """The plan that a function calls, where it is one."""
    found = getattr(function, "plan", None)
    return found if isinstance(found, type) else None


def link(op: str) -> str:
    """Of a function's page to the entry of a plan."""
    return f"[`{op}`](../ops/{op.partition('.')[0]}.md#{op.replace('.', '')})"


def _entry(name: str, function: Function) -> str:
    return f"## {name}\n\n" + "\n\n".join(part for part in _parts(name, function) if part)


def _parts(name: str, function: Function) -> Iterator[str]:
    """What it is, how it is called, an example, and where more is said."""
    yield markdown(inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0])
    if isinstance(function, Expression):
        yield f"A formula, of which [named formulas](../ops/formulas.md#{name}) says more."
        return
    call = textwrap.fill(f"{name}({signature(function)})", LINE, subsequent_indent=" " * 4, break_on_hyphens=False)
    yield f"```python\n{call}\n```"
    plan = plan_of(function)
    if plan is not None:
        code = example(function).removeprefix(HEAD).strip()
        yield f"For example\n\n```python\n{code}\n```" if code else ""
        kind = getattr(function, "fixed", {}).get("kind")
        yield f"Plan: {link(plan.op)}" + (f", kind `{kind.value}`." if kind is not None else ".")
