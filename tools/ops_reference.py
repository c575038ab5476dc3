"""The reference of all ops, from the registry: the index in docs/ops.md, and each family's page, made with the site."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any

from measured import rows_of

import baracuda_py
from baracuda_py._exports import EXPORTS
from baracuda_py.cli.report import operand, operations
from baracuda_py.core import registry
from baracuda_py.core.args import operands_of
from baracuda_py.core.element import ElementKind
from baracuda_py.core.plan import Plan
from baracuda_py.core.variant import Variant
from baracuda_py.expressions.elementwise import Expression
from baracuda_py.testing.in_torch import forwards_of

Function = Callable[..., Any]


def index() -> str:
    """A row a family: its page, its plans, its functions."""
    functions = _functions()
    lines = ["| family | plans | functions |", "| --- | --- | --- |"]
    for family, plans in _families().items():
        named = sorted({name for plan in plans for name in functions.get(plan, {})})
        to = f"[{family}](ops/{family}.md), [functions](functions/{family}.md)"
        lines.append(f"| {to} | {len(plans)} | {', '.join(f'`{name}`' for name in named)} |")
    formulas = ", ".join(f"`{name}`" for name in _formulas())
    return "\n".join([*lines, f"| [named formulas](ops/formulas.md) | | {formulas} |"])


def pages() -> dict[str, str]:
    """Each family's page, in it an entry an op, and that of functions that are formulas, by place below `docs/`."""
    functions = _functions()
    sections = {
        family: [f"# {family}", *(_entry(plan, functions.get(plan, {}), forwards_of(plan)) for plan in plans)]
        for family, plans in _families().items()
    }
    sections["formulas"] = [_FORMULAS, *(_formula(name, one) for name, one in _formulas().items())]
    return {f"ops/{name}.md": "\n\n".join(parts) + "\n" for name, parts in sections.items()}


def _families() -> dict[str, list[type[Plan]]]:
    found: dict[str, list[type[Plan]]] = {}
    for plan in registry.plans().values():
        found.setdefault(plan.op.partition(".")[0], []).append(plan)
    return found


LINE = 98  # characters of code that stand whole on a page of the site (docs/site.css)
_FORMULAS = """# named formulas

Functions that are [formulas](../expressions.md): one launch, arrays broadcast with one another, any strides, every
element that the formula has a meaning for, in place where `out=` is an operand. `<name>.vjp(dy, …)` is the gradient,
`<name>.plan()` the Plan class, and in other formulas they stand as functions."""


def _formulas() -> dict[str, Expression]:
    """The exported functions that are formulas."""
    values = {name: getattr(baracuda_py, name) for name in EXPORTS}
    return {name: value for name, value in values.items() if isinstance(value, Expression)}


def _formula(name: str, formula: Expression) -> str:
    """An entry: what it is, how it is called, what it computes."""
    given = [f"{n}={formula.defaults[n]!r}" if n in formula.defaults else n for n in formula.inputs]
    call = f"{name}({', '.join((*given, '*', 'out=None', 'stream=None', 'preference=None'))})"
    lines = [f"## {name}", "", markdown(inspect.cleandoc(formula.__doc__ or "")), "", "```python", call, "```", ""]
    lines += [f"* Formula: `{formula.text}`.", f"* Outputs: {', '.join(formula.outputs)}."]
    return "\n".join([*lines, f"* Gradient: {'`vjp`' if formula.differentiable else 'none is known'}."])


def _functions() -> dict[type[Plan], dict[str, Function]]:
    """The functional entries of every plan, under each of their names."""
    found: dict[type[Plan], dict[str, Function]] = {}
    for name in EXPORTS:
        value = getattr(baracuda_py, name)
        if not inspect.isclass(value) and hasattr(value, "plan"):
            found.setdefault(value.plan, {})[name] = value
    return found


def _entry(plan: type[Plan], functions: dict[str, Function], forwards: list[type[Plan]]) -> str:
    (facts,) = [fact for fact in operations([plan.__name__]) if fact["plan"] == plan.__name__]
    lines = [f"## {plan.op}", "", f"`{plan.__name__}` · `{plan.descriptor.__name__}` · `{plan.args.__name__}`", ""]
    lines += [markdown(inspect.cleandoc(plan.__doc__ or "")), ""]
    lines += [*_signatures(functions), ""] if functions else []
    if functions:
        lines.append(f"* Functions: {', '.join(_function_link(name) for name in sorted(functions))}.")
    if facts["kinds"]:
        lines.append(f"* Kinds: {', '.join(facts['kinds'])}.")
    lines.append(f"* Elements: {', '.join(facts['elements'])}.")
    if plan.vjp:
        lines.append(f"* Gradient: `{plan.vjp.plan}` (of {', '.join(plan.vjp.grads)}).")
    elif forwards:
        lines.append(f"* The gradient of {' and '.join(f'`{forward.__name__}`' for forward in forwards)}.")
    if plan.value_policy:
        lines.append(f"* Values: {markdown(plan.value_policy)}.")
    lines += ["", "| operand | role | shape and element |", "| --- | --- | --- |"]
    roles = {"in": "input", "out": "output", "inout": "in place", "scalar": "number"}
    lines += [f"| {o.name} | {roles[o.role]} | {markdown(operand(o))} |" for o in operands_of(plan.args)]
    lines += ["", "| row | design | backend | elements | error | deterministic | batch-invariant |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
    lines += [_row(plan, row, facts["elements"]) for row in plan.table()]
    return "\n".join([*lines, *_measured(plan.op)])


def _function_link(name: str) -> str:
    """Of a plan's entry to that of a function."""
    return f"[`{name}`](../functions/{folder(name)}.md#{name.lower()})"


def folder(name: str) -> str:
    """The family whose page a function stands on: its module's folder, or the others."""
    words = EXPORTS[name].split(".")
    return words[1] if words[0] == "ops" else "others"


def _measured(op: str) -> list[str]:
    """A line a problem that was measured, of the first GPU that has figures of the op."""
    for name, rows in rows_of(op).items():
        said = [
            f"{row['shape']}: {row['rate']} {row['unit']}, {100 * float(row['fraction']):.0f} % of the ceiling"
            for row in rows
        ]
        return ["", f"Measured on an {name}:", "", *(f"* {line}" for line in said)]
    return []


def _row(plan: type[Plan], row: Variant, every: list[str]) -> str:
    kinds = row.kinds or plan.kinds or (None,)
    promises = {(e, kind): row.guarantee.of(e, kind) for kind in kinds for e in row.elements_for(kind)}
    served = [str(e) for e in ElementKind if any(e is element for element, _ in promises)]
    errors = sorted({p.error for p in promises.values()}, key=lambda error: (error.looseness, str(error)))
    said = list(dict.fromkeys(map(str, errors)))
    flags = [
        "yes" if all(values) else "some" if any(values) else "no"
        for values in ([p.deterministic for p in promises.values()], [p.batch_invariant for p in promises.values()])
    ]
    elements = "all" if served == every else ", ".join(served)
    error = "; ".join(said) if len(said) < 4 else f"{said[0]} to {said[-1]}, by kind and element"
    return f"| {' | '.join([row.name, row.design.value, row.backend.value, elements, error, *flags])} |"


def markdown(text: str) -> str:
    """A docstring with what Markdown would read as its own escaped, but within backticks."""
    parts = text.split("`")
    return "`".join(_escaped(part) if i % 2 == 0 else part for i, part in enumerate(parts))


def _escaped(text: str) -> str:
    return re.sub(r"([*_\[])", r"\\\1", text).replace("<", "&lt;")


def _signatures(functions: dict[str, Function]) -> list[str]:
    """The functions' signatures in one block; functions of equal ones, a table op's kinds, share it."""
    groups: dict[str, list[str]] = {}
    for name, function in functions.items():
        groups.setdefault(signature(function), []).append(name)
    blocks = []
    for given, names in groups.items():
        name = names[0] if len(names) == 1 else "f"
        call = textwrap.fill(f"{name}({given})", LINE, subsequent_indent=" " * 4, break_on_hyphens=False)
        more = textwrap.wrap(f"f is one of {', '.join(names)}", LINE - 4, initial_indent="# ", subsequent_indent="# ")
        blocks.append("\n".join([*(more if len(names) > 1 else []), call]))
    return ["```python", *blocks, "```"]


def signature(function: Function) -> str:
    """Parameters and defaults; attributes that follow from the arrays' shapes are left out."""
    shown, starred = [], False
    for parameter in inspect.signature(function).parameters.values():
        if str(parameter.default) == "…":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        shown.append(f"{parameter.name}{default}")
    return ", ".join(shown)
